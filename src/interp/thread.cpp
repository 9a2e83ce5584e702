// interp/thread.cpp
// The interpreter's per-thread state and its two limits: pending work and C stack depth.

#include "interp/thread.h"

#include <pthread.h>

#include <algorithm>

#include "interp/native_op.h"

namespace bolt::interp {

namespace {

/// C stack left for the native code that our deepest frame may call.
constexpr size_t kStackReserve = 256 * 1024;

char* find_stack_limit() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  void* low = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  return static_cast<char*>(low) + std::min(kStackReserve, size / 4);
}

}  // namespace

PyObject* make_helper(const char* source, const char* file) {
  PyObject* globals = PyDict_New();
  PyObject* code = globals ? Py_CompileString(source, file, Py_eval_input) : nullptr;
  if (code) PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins());
  PyObject* function = code ? PyEval_EvalCode(code, globals, globals) : nullptr;
  Py_XDECREF(code);
  Py_XDECREF(globals);
  return function;
}

Thread& this_thread() {
  static thread_local Thread thread;
  return thread;
}

Frame* current_frame() { return this_thread().frame; }

Semantics* current_semantics() { return this_thread().semantics; }

int handle_pending(Thread& thread) {
  thread.budget = kPendingInterval;
  // Near the recursion limit the helper call would fail where CPython's own check does not; the next look
  // will do.
  if (!has_calls_left(thread_state(), 4)) return 0;
  // CPython looks at its eval breaker when a Python function starts. Entering an empty one is the only public
  // way to have all pending work done (Py_MakePendingCalls leaves out the GIL and, on 3.12, the garbage
  // collector).
  static PyObject* empty = nullptr;
  if (!empty) empty = make_helper("lambda: None", kPendingFile);
  if (!empty) return -1;
  PyThreadState_EnterTracing(thread_state());  // a debugger shall not step into it
  PyObject* result = call_hidden(empty, nullptr, 0);
  PyThreadState_LeaveTracing(thread_state());
  if (!result) return -1;
  Py_DECREF(result);
  return 0;
}

int check_c_stack(Thread& thread) {
  char here;
  if (!thread.stack_limit) thread.stack_limit = find_stack_limit();
  if (&here > thread.stack_limit) return 0;
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
  return -1;
}

}  // namespace bolt::interp
