// observe/calls/native_watch.cpp
// A frame evaluator stands in for CPython's meanwhile.
#include "observe/calls/native_watch.h"

#include "interp/code.h"
#include "interp/thread.h"

#include <utility>

namespace bolt::observe {
namespace {

thread_local NativeWatch* watched = nullptr;
int watches = 0;  ///< of all threads, which share one evaluator; under the GIL

/// Python that torch registers for operators: functions of their arguments.
bool is_decomposition(const std::string& file) {
  for (const char* folder : {"/torch/_decomp/", "/torch/_refs/", "/torch/_prims/", "/torch/_prims_common/",
                             "/torch/fx/experimental/symbolic_shapes.py"})
    if (file.find(folder) != std::string::npos) return true;
  return file.size() >= 18 && file.compare(file.size() - 18, 18, "/torch/__init__.py") == 0;  // torch._check
}

/// One of gc.callbacks, which the garbage collector calls at any instruction.
bool is_called_by_collector(PyCodeObject* code) {
  PyRef gc = PyRef::steal(import_module("gc"));
  PyRef callbacks = PyRef::steal(gc ? PyObject_GetAttrString(gc.get(), "callbacks") : nullptr);
  if (!callbacks || !PyList_Check(callbacks.get())) return PyErr_Clear(), false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(callbacks.get()); ++i) {
    PyObject* each = PyList_GET_ITEM(callbacks.get(), i);
    if (PyMethod_Check(each)) each = PyMethod_GET_FUNCTION(each);
    if (PyFunction_Check(each) && PyFunction_GET_CODE(each) == reinterpret_cast<PyObject*>(code)) return true;
  }
  return false;
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
  return name == "__del__" || file == interp::kPendingFile || is_called_by_collector(code) ||
         name == "<module>" || (name == "__hash__" && ends_with("torch/_tensor.py")) ||
         file.rfind("<frozen importlib", 0) == 0 || ends_with("weakref.py") || ends_with("_weakrefset.py") ||
         ends_with("abc.py") || file == "<frozen abc>" || file == "<frozen _collections_abc>" ||
         ends_with("enum.py") || ends_with("/typing.py") || ends_with("torch/utils/_device.py") ||
         is_decomposition(file);
}

/// A garbage collection runs in this thread, begun within the innermost watch. It comes at any instruction,
/// and what it leads to (callbacks of weak references, generators that are closed) is nothing the program
/// did.
thread_local bool collecting = false;

/// Of gc.callbacks as long as anything is watched: `phase` is "start" or "stop".
PyObject* note_collection(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs > 0 && PyUnicode_Check(args[0])) {
    collecting = PyUnicode_CompareWithASCIIString(args[0], "start") == 0;
    if (watched) watched->collects(collecting);
  }
  Py_RETURN_NONE;
}

/// gc.callbacks, and what stands in it for us. Borrowed; null without an exception: there is none.
std::pair<PyObject*, PyObject*> collection_callback() {
  static PyMethodDef method = {"note_collection",
                               reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(note_collection)),
                               METH_FASTCALL, nullptr};
  static PyObject* callbacks = nullptr;
  static PyObject* ours = nullptr;
  if (!ours) {
    PyRef gc = PyRef::steal(import_module("gc"));
    PyRef list = PyRef::steal(gc ? PyObject_GetAttrString(gc.get(), "callbacks") : nullptr);
    PyRef function =
        PyRef::steal(list && PyList_Check(list.get()) ? PyCFunction_New(&method, nullptr) : nullptr);
    if (!function) return PyErr_Clear(), std::pair<PyObject*, PyObject*>();
    callbacks = list.release(), ours = function.release();
  }
  return {callbacks, ours};
}

void watch_collections() {
  const auto [callbacks, ours] = collection_callback();
  if (ours && PyList_Append(callbacks, ours) < 0) PyErr_Clear();
}

void forget_collections() {
  const auto [callbacks, ours] = collection_callback();
  for (Py_ssize_t i = ours ? PyList_GET_SIZE(callbacks) : 0; i-- > 0;) {
    if (PyList_GET_ITEM(callbacks, i) != ours) continue;
    if (PySequence_DelItem(callbacks, i) < 0) PyErr_Clear();
    return;
  }
}

/// Making a generator runs the beginning of its function, up to where its body begins.
bool only_makes_generator(const _PyInterpreterFrame* frame) {
  constexpr int kinds = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return (frame->f_code->co_flags & kinds) && frame->owner != FRAME_OWNED_BY_GENERATOR;
}

/// A generator that nobody needs any more is told so, and nothing in it wants to know.
bool only_ends_generator(const _PyInterpreterFrame* frame, int throwing) {
  if (!throwing || frame->owner != FRAME_OWNED_BY_GENERATOR || !PyErr_ExceptionMatches(PyExc_GeneratorExit))
    return false;
  const interp::Code* code = interp::prepare(frame->f_code);
  return code && !code->handles_at(static_cast<int>(frame->prev_instr - _PyCode_CODE(frame->f_code)));
}

/// Trace and profile functions and audit hooks, which run with tracing off: they come at any instruction, and
/// nothing that it does is theirs.
bool only_looks_on(PyThreadState* thread) { return thread->tracing > 0; }

bool is_helper(PyCodeObject* code) {
  return PyUnicode_CompareWithASCIIString(code->co_filename, interp::kHelperFile) == 0;
}

_PyFrameEvalFunction below_us = _PyEval_EvalFrameDefault;
/// Who came after us and calls us from there (torch.compile, within what is recorded). To go on top of it
/// again would be a circle.
_PyFrameEvalFunction above_us = nullptr;
bool in_chain = false;
/// The frame that whoever is below us was last given. From there it comes back to us where they take us for
/// the one below them (torch.compile's, which a failed compilation leaves in place).
thread_local const _PyInterpreterFrame* handed_on = nullptr;

PyObject* hand_on(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  if (handed_on == frame) return _PyEval_EvalFrameDefault(thread, frame, throwing);
  const _PyInterpreterFrame* outer = std::exchange(handed_on, frame);
  PyObject* result = below_us(thread, frame, throwing);
  handed_on = outer;
  return result;
}

PyObject* watching_eval(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  if (handed_on == frame || !watched || collecting || is_helper(frame->f_code) ||
      only_makes_generator(frame) || only_ends_generator(frame, throwing) || only_looks_on(thread))
    return hand_on(thread, frame, throwing);
  // generator.throw() comes with the exception that it throws.
  PyObject* thrown = throwing && PyErr_Occurred() ? take_raised() : nullptr;
  watched->entered(frame->f_code);
  if (thrown) set_raised(thrown);
  // One function is enough to know, and what a harmless one calls is harmless.
  const NativeWatch::Pause inside;
  return hand_on(thread, frame, throwing);
}

}  // namespace

NativeWatch::NativeWatch(RecorderHooks& hooks) : hooks_(hooks), frame_(interp::current_frame()) { install(); }

NativeWatch::NativeWatch(RecorderHooks& hooks, Met met)
    : hooks_(hooks), met_(std::move(met)), frame_(nullptr) {
  install();
}

void NativeWatch::install() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (now != watching_eval && watches > 0 && now != below_us) above_us = now;
  if (now != watching_eval && !(in_chain && now == above_us)) {
    below_us = now;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, watching_eval);
  }
  in_chain = true;
  if (watches++ == 0) watch_collections();
  outer_collecting_ = std::exchange(collecting, false);
  outer_ = watched;
  watched = this;
}

NativeWatch::~NativeWatch() {
  watched = outer_;
  collecting = outer_collecting_;
  if (--watches > 0) return;
  const RaisedAside raised;
  forget_collections();
  // Whoever came in between takes itself away again, and puts us back.
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  in_chain = now != watching_eval && now != below_us;
  above_us = in_chain ? now : nullptr;
  if (now == watching_eval) _PyInterpreterState_SetEvalFrameFunc(interpreter, below_us);
}

void NativeWatch::entered(PyCodeObject* code) {
  if (!seen_.empty() || is_harmless(code)) return;
  const bool in_operator = hooks_.in_operator();
  // Called by the native function itself, or by code of ours that it led to?
  if (!met_ && (in_operator || interp::current_frame() != frame_)) {
    if (outer_) outer_->entered(code);
    return;
  }
  const std::string name =
      std::string(PyUnicode_AsUTF8(code->co_filename)) + ":" + PyUnicode_AsUTF8(code->co_name);
  if (!in_operator) seen_ = name;
  if (met_) met_(name, in_operator);
}

void NativeWatch::collects(bool begins) {
  if (begins)
    was_paused_ = hooks_.pause(true);
  else
    hooks_.pause(was_paused_);
}

NativeWatch::Pause::Pause() : paused_(watched) { watched = nullptr; }
NativeWatch::Pause::~Pause() { watched = paused_; }

}  // namespace bolt::observe
