// guard/thread_state.cpp
#include "guard/thread_state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

#include "guard/transforms.h"
#include "python/py_ref.h"

namespace bolt::guard {
namespace {

using Functions = at::impl::PythonTorchFunctionTLS;

PyObject* function_mode(int64_t index) { return Functions::get_stack_at(index)->ptr(getPyInterpreter()); }

/// The device of a torch.device(...) context, a new reference; null for other modes.
PyObject* device_of(PyObject* mode) {
  static PyObject* const context = [] {
    PyObject* module = import_module("torch.utils._device");
    PyObject* found = module ? PyObject_GetAttrString(module, "DeviceContext") : nullptr;
    Py_XDECREF(module);
    if (!found) PyErr_Clear();
    return found;
  }();
  if (reinterpret_cast<PyObject*>(Py_TYPE(mode)) != context) return nullptr;
  PyObject* device = PyObject_GetAttrString(mode, "device");
  if (!device) PyErr_Clear();
  return device;
}

/// What the modes of torch functions come to: how many, and the default device.
uint64_t function_modes() {
  const int64_t count = Functions::stack_len();
  uint64_t all = static_cast<uint64_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    PyObject* device = device_of(function_mode(i));
    if (device && THPDevice_Check(device)) {
      const c10::Device& d = reinterpret_cast<THPDevice*>(device)->device;
      all = all * 257 + static_cast<uint64_t>(d.type()) * 16 + static_cast<uint64_t>(d.index() + 1);
    }
    Py_XDECREF(device);
  }
  return all;
}

}  // namespace

bool modes_run_python() {
  if (dual_level_is_open()) return true;
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return true;
  if (Functions::get_disabled_state() == at::impl::TorchFunctionDisabledState::ALL_DISABLED) return false;
  for (int64_t i = 0, count = Functions::stack_len(); i < count; ++i) {
    PyObject* device = device_of(function_mode(i));
    if (!device) return true;
    Py_DECREF(device);
  }
  return false;
}

ThreadState ThreadState::now() {
  ThreadState state;
  auto& context = at::globalContext();
  bool bits[] = {c10::GradMode::is_enabled(),
                 c10::InferenceMode::is_enabled(),
                 at::autocast::is_autocast_enabled(at::kCPU),
                 at::autocast::is_autocast_enabled(at::kCUDA),
                 at::autocast::is_autocast_cache_enabled(),
                 context.deterministicAlgorithms(),
                 context.deterministicFillUninitializedMemory(),
                 context.userEnabledMkldnn(),
                 context.userEnabledFlashSDP(),
                 context.userEnabledMathSDP(),
                 context.userEnabledMemEfficientSDP(),
                 context.benchmarkCuDNN(),
                 at::impl::PythonTorchFunctionTLS::get_disabled_state() !=
                     at::impl::TorchFunctionDisabledState::ENABLED};
  for (bool bit : bits) state.flags = state.flags << 1 | (bit ? 1 : 0);
  state.types = static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())) |
                static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCPU)) << 8 |
                static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCUDA)) << 16 |
                static_cast<uint64_t>(context.float32MatmulPrecision()) << 24;
  state.modes = static_cast<uint64_t>(transform_levels()) << 32 | (function_modes() & 0xffffff) << 8 |
                static_cast<uint64_t>(c10::impl::TorchDispatchModeTLS::stack_len());
  state.threads = 0;
  return state;
}

// What code around a region's end sets and resets by value: grad mode and autocast (bits as in now()). Where
// the rest is left changed, regions end before what changes it (Recording::left_changed).
constexpr uint64_t kGradMode = uint64_t{1} << 12, kAutocast = uint64_t{0b111} << 8;
constexpr uint64_t kAutocastTypes = 0xffff00;
constexpr at::DeviceType kAutocastDevices[] = {at::kCPU, at::kCUDA};

bool ThreadState::can_follow(const ThreadState& before) const {
  return ((flags ^ before.flags) & ~(kGradMode | kAutocast)) == 0 &&
         ((types ^ before.types) & ~kAutocastTypes) == 0 && modes == before.modes &&
         threads == before.threads;
}

void ThreadState::enter(int levels) const {
  c10::GradMode::set_enabled((flags & kGradMode) != 0);
  for (size_t i = 0; i < std::size(kAutocastDevices); ++i) {
    at::autocast::set_autocast_enabled(kAutocastDevices[i], flags >> (10 - i) & 1);
    at::autocast::set_autocast_dtype(kAutocastDevices[i],
                                     static_cast<at::ScalarType>(types >> (8 + 8 * i) & 0xff));
  }
  at::autocast::set_autocast_cache_enabled(flags >> 8 & 1);
  for (; levels > 0; --levels) at::autocast::increment_nesting();
  for (; levels < 0; ++levels)
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // as autocast.__exit__
}

int ThreadState::autocast_levels() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

std::string ThreadState::explain(const ThreadState& current) const {
  static const char* const names[] = {"grad mode",
                                      "inference mode",
                                      "autocast on cpu",
                                      "autocast on cuda",
                                      "autocast cache",
                                      "deterministic algorithms",
                                      "fill uninitialized memory",
                                      "oneDNN enabled",
                                      "flash attention enabled",
                                      "math attention enabled",
                                      "memory-efficient attention enabled",
                                      "cudnn benchmark",
                                      "torch functions disabled"};
  constexpr size_t count = sizeof(names) / sizeof(*names);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bit = uint64_t{1} << (count - 1 - i);
    if ((flags ^ current.flags) & bit)
      return std::string(names[i]) + (flags & bit ? " is on (now off)" : " is off (now on)");
  }
  if (types != current.types) return "default dtype or precision is as recorded (now changed)";
  if (modes != current.modes)
    return "torch function and dispatch modes and transforms of torch.func are as recorded (now changed)";
  return {};
}

}  // namespace bolt::guard
