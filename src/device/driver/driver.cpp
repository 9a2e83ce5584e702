// device/driver/driver.cpp
// See driver.h.

#include "device/driver/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>

#include "support/error.h"

namespace bolt::device::driver {
namespace {

struct LoadedDriver {
  Functions functions{};
  std::string missing;  // empty: all is there
};

std::string text_of(const Functions& f, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (f.cuGetErrorName) f.cuGetErrorName(result, &name);
  if (f.cuGetErrorString) f.cuGetErrorString(result, &text);
  if (!name) return "error " + std::to_string(result);
  return std::string(text ? text : "unknown") + " (" + name + ")";
}

LoadedDriver open() {
  LoadedDriver found;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    found.missing = "CUDA needs NVIDIA's driver, and libcuda.so.1 is not on this machine";
    return found;
  }
  Functions& f = found.functions;
#define X(name, arguments)                                              \
  f.name = reinterpret_cast<decltype(f.name)>(::dlsym(library, #name)); \
  if (!f.name && found.missing.empty())                                 \
    found.missing = "NVIDIA's driver is too old for CUDA 12: it has no " #name;
  BOLT_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
  if (!found.missing.empty()) return found;
  if (const CUresult r = f.cuInit(0); r != kSuccess)
    found.missing = "NVIDIA's driver does not start: " + text_of(f, r);
  return found;
}

const LoadedDriver& found() {
  static const LoadedDriver once = open();
  return once;
}

}  // namespace

const Functions* find() { return found().missing.empty() ? &found().functions : nullptr; }

std::string missing() { return found().missing; }

const Functions& get() {
  if (!find()) throw_user(missing());
  return found().functions;
}

Unwell::~Unwell() = default;

/// Of cuda.h: memory; a device that was lost; and what stays with a context once a kernel has met it (an
/// illegal address, a time that ran out, an assertion, a broken stack or instruction, an unspecified
/// failure).
bool is_unwell(CUresult result) {
  static constexpr CUresult kThose[] = {kOutOfMemory, 46,  100, 214, 220, 226, 700, 702, 709,
                                        710,          714, 715, 716, 717, 718, 719, 721};
  return std::find(std::begin(kThose), std::end(kThose), result) != std::end(kThose);
}

void check(CUresult result, const char* what) {
  if (is_unwell(result)) throw Unwell(result, std::string(what) + ": " + text_of(found().functions, result));
  BOLT_CHECK(result == kSuccess, what, ": ", text_of(found().functions, result));
}

int attribute(CUdevice device, int which) {
  int value = 0;
  check(get().cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

int capability(CUdevice device) {
  constexpr size_t kMostKnown = 64;
  static std::array<std::atomic<int>, kMostKnown>
      known{};  // a device's does not change, and calls ask for it
  auto ask = [&] { return attribute(device, kMajor) * 10 + attribute(device, kMinor); };
  const auto at = static_cast<size_t>(device);
  if (at >= kMostKnown) return ask();
  int found = known[at].load(std::memory_order_relaxed);
  if (found == 0) known[at].store(found = ask(), std::memory_order_relaxed);
  return found;
}

CUcontext primary_context(int ordinal) {
  static std::mutex mutex;
  static std::map<int, CUcontext> known;
  std::lock_guard lock(mutex);
  CUcontext& context = known[ordinal];
  if (context) return context;
  CUdevice device = 0;
  check(get().cuDeviceGet(&device, ordinal), "cuDeviceGet");
  check(get().cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

ContextGuard::ContextGuard(CUcontext context) {
  CUcontext current = nullptr;
  check(get().cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current == context) return;
  check(get().cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextGuard::~ContextGuard() {
  CUcontext ignored = nullptr;
  if (pushed_) found().functions.cuCtxPopCurrent_v2(&ignored);
}

}  // namespace bolt::device::driver
