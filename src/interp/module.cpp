// interp/module.cpp
// The interpreter's Python functions; see module.h.

#include "interp/module.h"

#include "interp/call.h"
#include "interp/generator.h"

namespace bolt::interp {

namespace {

PlainSemantics plain;
Semantics observed;  // the base class as it is: takes the observing loop, for tests of that loop

PyObject* run_under(Semantics& semantics, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "_interp_run() needs a callable");
    return nullptr;
  }
  return call_function(args[0], args + 1, static_cast<size_t>(nargs - 1), kwnames, semantics);
}

PyObject* interp_run(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return run_under(plain, args, nargs, kwnames);
}

PyObject* interp_run_observed(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return run_under(observed, args, nargs, kwnames);
}

PyObject* interp_wrap(PyObject*, PyObject* function) { return make_interpreted_function(function); }

PyObject* interp_lines(PyObject*, PyObject* code) {
  if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "_interp_lines() needs a code object");
  const Code* prepared = prepare(reinterpret_cast<PyCodeObject*>(code));
  PyObject* lines = prepared ? PyList_New(static_cast<Py_ssize_t>(prepared->instrs.size())) : nullptr;
  for (Py_ssize_t i = 0; lines && i < PyList_GET_SIZE(lines); ++i) {
    const int line = prepared->line_at(reinterpret_cast<PyCodeObject*>(code), static_cast<int>(i));
    PyList_SET_ITEM(lines, i, PyLong_FromLong(line));
  }
  return lines;
}

template <class F>
PyCFunction as_method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"_interp_run", as_method(interp_run), METH_FASTCALL | METH_KEYWORDS,
     "_interp_run(f, *args, **kwargs): f(*args, **kwargs), run by torchbolt's interpreter."},
    {"_interp_run_observed", as_method(interp_run_observed), METH_FASTCALL | METH_KEYWORDS,
     "As _interp_run, through the loop that recording uses."},
    {"_interp_wrap", interp_wrap, METH_O,
     "_interp_wrap(f): a stand-in for f that C code may call and that comes back into the interpreter."},
    {"_interp_lines", interp_lines, METH_O,
     "_interp_lines(code): the line of each code unit, -1 where it has none."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_interp_functions(PyObject* module) {
  if (init_calls() < 0 || init_generators() < 0 || init_function_proxy() < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}

}  // namespace bolt::interp
