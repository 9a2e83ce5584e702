// interp/observe/native_watch.cpp: see native_watch.h. A frame evaluator stands in for CPython's meanwhile.
#include "interp/observe/native_watch.h"

#include "interp/thread.h"

namespace bolt::observe {
namespace {

thread_local NativeWatch* watched = nullptr;

/// Python that torch registers for operators: functions of their arguments.
bool is_decomposition(const std::string& file) {
  for (const char* folder : {"/torch/_decomp/", "/torch/_refs/", "/torch/_prims/", "/torch/_prims_common/",
                             "/torch/fx/experimental/symbolic_shapes.py"})
    if (file.find(folder) != std::string::npos) return true;
  return file.size() >= 18 && file.compare(file.size() - 18, 18, "/torch/__init__.py") == 0;  // torch._check
}

bool is_harmless(PyCodeObject* code) {
  std::string name = PyUnicode_AsUTF8(code->co_name), file = PyUnicode_AsUTF8(code->co_filename);
  auto ends_with = [&](const char* tail) {
    std::string suffix = tail;
    return file.size() >= suffix.size() &&
           file.compare(file.size() - suffix.size(), suffix.size(), suffix) == 0;
  };
  // Finalisers, caches of weak references, abstract base classes: state that no region depends on.
  // And imports: a module's body runs once in a process.
  // Default devices: the operators that come of them are recorded, and which device it is is guarded.
  // A tensor's hash is its identity, and a set or dict gives nothing else of it away.
  return name == "__del__" || name == "<module>" || (name == "__hash__" && ends_with("torch/_tensor.py")) ||
         file.rfind("<frozen importlib", 0) == 0 || ends_with("weakref.py") || ends_with("_weakrefset.py") ||
         ends_with("abc.py") || file == "<frozen abc>" || file == "<frozen _collections_abc>" ||
         ends_with("enum.py") || ends_with("torch/utils/_device.py") || is_decomposition(file);
}

_PyFrameEvalFunction below_us = _PyEval_EvalFrameDefault;

PyObject* watching_eval(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  if (watched) watched->entered(frame->f_code);
  return below_us(thread, frame, throwing);
}

}  // namespace

NativeWatch::NativeWatch(const RecorderHooks& hooks) : hooks_(hooks), frame_(interp::current_frame()) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  previous_ = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (previous_ != watching_eval) below_us = previous_;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, watching_eval);
  outer_ = watched;
  watched = this;
}

NativeWatch::~NativeWatch() {
  watched = outer_;
  // Whoever came in between (torch.compile) takes itself away again.
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == watching_eval)
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_);
}

void NativeWatch::entered(PyCodeObject* code) {
  // Called by the native function itself, or by code of ours that it led to? The latter has its own watches.
  if (!seen_.empty() || interp::current_frame() != frame_ || hooks_.in_operator() || is_harmless(code))
    return;
  seen_ = std::string(PyUnicode_AsUTF8(code->co_filename)) + ":" + PyUnicode_AsUTF8(code->co_name);
}

}  // namespace bolt::observe
