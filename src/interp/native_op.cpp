// interp/native_op.cpp
// Opcode -> helper function run by CPython; see native_op.h.

#include "interp/native_op.h"

#include <map>
#include <utility>
#include <vector>

#include "interp/code.h"
#include "interp/thread.h"

namespace bolt::interp {

namespace {

/// `lambda a, b, ...: None` as a template whose bytecode is then replaced.
PyObject* make_template(size_t parameters) {
  static const char* const sources[] = {"lambda: None", "lambda a: (a, a, a)", "lambda a, b: (a, b, a)"};
  return make_helper(sources[parameters]);
}

PyObject* make_function(int opcode, int arg, size_t parameters, int results) {
  PyObject* function = make_template(parameters);
  if (!function) return nullptr;
  std::vector<uint8_t> bytes = {op::RESUME, 0};
  for (size_t i = 0; i < parameters; ++i) bytes.insert(bytes.end(), {op::LOAD_FAST, static_cast<uint8_t>(i)});
  bytes.insert(bytes.end(), {static_cast<uint8_t>(opcode), static_cast<uint8_t>(arg)});
  if (results == 2) bytes.insert(bytes.end(), {op::BUILD_TUPLE, 2});
  bytes.insert(bytes.end(), {op::RETURN_VALUE, 0});

  PyObject* code = PyFunction_GET_CODE(function);
  PyObject* replace = PyObject_GetAttrString(code, "replace");
  PyObject* kwargs =
      Py_BuildValue("{s:y#,s:y,s:y}", "co_code", bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                    "co_linetable", "", "co_exceptiontable", "");
  PyObject* no_args = PyTuple_New(0);
  PyObject* replaced = replace && kwargs && no_args ? PyObject_Call(replace, no_args, kwargs) : nullptr;
  Py_XDECREF(replace);
  Py_XDECREF(kwargs);
  Py_XDECREF(no_args);
  if (replaced && PyObject_SetAttrString(function, "__code__", replaced) < 0) Py_CLEAR(replaced);
  if (!replaced) Py_CLEAR(function);
  Py_XDECREF(replaced);
  return function;
}

/// Removes the helper's entry, the outermost one, from the raised exception's traceback.
void hide_helper_frame() {
  PyObject* exception = take_raised();
  PyObject* trace = PyException_GetTraceback(exception);
  if (trace) {
    PyObject* next = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(trace)->tb_next);
    PyException_SetTraceback(exception, next ? next : Py_None);
    Py_DECREF(trace);
  }
  set_raised(exception);
}

}  // namespace

PyObject* call_hidden(PyObject* function, PyObject* const* args, size_t nargs) {
  PyObject* result = PyObject_Vectorcall(function, args, nargs, nullptr);
  if (!result) hide_helper_frame();
  return result;
}

PyObject* run_native_op(int opcode, int arg, std::initializer_list<PyObject*> operands, int results) {
  // Helper functions are made once and kept for the life of the process.
  static std::map<std::pair<int, int>, PyObject*> functions;
  PyObject*& function = functions[{opcode, arg}];
  if (!function) function = make_function(opcode, arg, operands.size(), results);
  if (!function) return nullptr;
  return call_hidden(function, operands.begin(), operands.size());
}

}  // namespace bolt::interp
