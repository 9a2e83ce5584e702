// observe/calls/numpy_draws.cpp
#include "observe/calls/numpy_draws.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "guard/tensors.h"
#include "observe/calls/controls.h"

namespace bolt::observe {
namespace {

/// Is it `module`, or within it?
bool is_within(const char* name, const char* module) {
  const size_t length = std::strlen(module);
  return name && std::strncmp(name, module, length) == 0 && (name[length] == 0 || name[length] == '.');
}

bool is_of_numpy(PyTypeObject* type) { return is_within(type->tp_name, "numpy"); }

bool is_numpy(PyObject* object) {
  return PyModule_Check(object) && is_within(PyModule_GetName(object), "numpy");
}

bool is_plain(PyObject* object) {
  if (object == Py_None || PyLong_Check(object) || PyFloat_Check(object) || PyUnicode_Check(object))
    return true;
  if (!PyTuple_Check(object) && !PyList_CheckExact(object))
    return guard::is_tensor(object) || is_of_numpy(Py_TYPE(object));
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
  PyObject** const items = PySequence_Fast_ITEMS(object);
  return std::all_of(items, items + count, is_plain);
}

bool names(PyCodeObject* code, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i)
    if (PyTuple_GET_ITEM(code->co_names, i) == name) return true;
  return false;
}

/// Functions of numpy's that give arrays, as functions that draw masks and the like call them.
constexpr const char* kMakers[] = {"arange",      "array", "asarray", "broadcast_to",
                                   "concatenate", "empty", "full",    "full_like",
                                   "ones",        "stack", "zeros",   "zeros_like"};

bool makes_arrays(PyCodeObject* code) {
  return std::ranges::any_of(kMakers, [&](const char* maker) { return names(code, interned(maker)); });
}

/// Are numpy, constants and what every module has all that the code finds in its module?
bool knows_only_numpy(PyCodeObject* code, PyObject* globals, bool& knows_numpy) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i) {
    PyObject* const found = PyDict_GetItemWithError(globals, PyTuple_GET_ITEM(code->co_names, i));
    if (!found) continue;
    if (!is_numpy(found) && !is_plain(found)) return false;
    knows_numpy |= is_numpy(found);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* const constant = PyTuple_GET_ITEM(code->co_consts, i);
    if (PyCode_Check(constant) &&
        !knows_only_numpy(reinterpret_cast<PyCodeObject*>(constant), globals, knows_numpy))
      return false;
  }
  return true;
}

bool looks_like_it(PyFunctionObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  bool knows_numpy = false;
  return !function->func_closure && knows_only_numpy(code, function->func_globals, knows_numpy) &&
         knows_numpy;
}

}  // namespace

bool only_draws_with_numpy(PyObject* callable, PyObject* const* args, size_t count) {
  if (!PyFunction_Check(callable)) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  if (!names(code, interned<"random">())) return false;
  static auto* const known = new std::unordered_map<PyObject*, bool>;  // by code, which is held for good
  const auto [at, is_new] = known->try_emplace(function->func_code, false);
  if (is_new) {
    Py_INCREF(function->func_code);
    at->second = looks_like_it(function);
  }
  // One that computes with the tensors that it is given, and with numbers that it draws, is looked into.
  return at->second && std::all_of(args, args + count, is_plain) &&
         (makes_arrays(code) || std::none_of(args, args + count, guard::is_tensor));
}

}  // namespace bolt::observe
