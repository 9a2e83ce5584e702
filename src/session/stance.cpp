// session/stance.cpp
#include "session/stance.h"

#include <atomic>
#include <utility>

#include "observe/calls/torch_marks.h"
#include "python/py_ref.h"

namespace bolt::session {
namespace {

constexpr std::pair<const char*, Stance> kTorchsStances[] = {
    {"force_eager", Stance::force_eager},
    {"eager_on_recompile", Stance::eager_on_recompile},
    {"fail_on_recompile", Stance::fail_on_recompile},
    {"eager_then_compile", Stance::eager_then_compile},
    {"aot_eager_then_compile", Stance::eager_then_compile},
};

/// What set_stance said, wherever it was called.
std::atomic<Stance> everywhere{Stance::standard};
/// Within a disabled function; else standard.
thread_local Stance in_thread = Stance::standard;

/// What torch.compiler.set_stance says, if that was ever called: an object for each call of it. Its backends
/// are for torch's own compiler.
Stance torchs_stance() {
  static PyRef& known = *new PyRef();  // there is no Python any more where statics are destroyed
  static Stance stance = Stance::standard;
  PyObject* now = observe::loaded_attribute("torch._dynamo.eval_frame", "_stance");
  if (!now || now == known.get()) return now ? stance : Stance::standard;
  known = PyRef::share(now);
  stance = Stance::standard;
  PyRef name = PyRef::steal(PyObject_GetAttrString(now, "stance"));
  for (const auto& [text, meant] : kTorchsStances)
    if (name && PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), text) == 0)
      stance = meant;
  if (PyErr_Occurred()) PyErr_Clear();
  return stance;
}

}  // namespace

Stance stance() {
  if (in_thread != Stance::standard) return in_thread;
  const Stance now = everywhere.load(std::memory_order_relaxed);
  return now == Stance::standard ? torchs_stance() : now;
}

PyObject* set_stance(PyObject*, PyObject* value) {
  const long wanted = PyLong_AsLong(value);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLong(static_cast<long>(everywhere.exchange(static_cast<Stance>(wanted))));
}

PyObject* set_thread_stance(PyObject*, PyObject* value) {
  const long wanted = PyLong_AsLong(value);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLong(static_cast<long>(std::exchange(in_thread, static_cast<Stance>(wanted))));
}

}  // namespace bolt::session
