// interp/bind.cpp
// (function, arguments) -> a frame with its parameters filled, by CPython's rules and with its error texts.
//
// Order matters for which error wins, and is CPython's: positionals, *args, keywords (unknown ones first),
// count of positionals, missing positionals, defaults, missing keyword-only.

#include <algorithm>
#include <vector>

#include "interp/call.h"

namespace bolt::interp {

namespace {

/// What binding one call needs to know.
struct Binding {
  PyFunctionObject* function;
  PyCodeObject* code;
  PyObject** locals;  ///< owned by the frame: null, or a parameter's value
  PyObject* const* args;
  Py_ssize_t nargs;
  PyObject* kwnames;

  Py_ssize_t positional() const { return code->co_argcount; }
  Py_ssize_t named() const { return code->co_argcount + code->co_kwonlyargcount; }
  PyObject* name(Py_ssize_t index) const { return PyTuple_GET_ITEM(code->co_localsplusnames, index); }
  PyObject* qualname() const { return function->func_qualname; }
};

/// "'a', 'b', and 'c'" of the reprs in `names`.
PyObject* join_names(const std::vector<PyObject*>& names) {
  if (names.size() == 1) return Py_NewRef(names[0]);
  if (names.size() == 2) return PyUnicode_FromFormat("%U and %U", names[0], names[1]);
  PyObject* text = PyUnicode_FromFormat("%U", names[0]);
  for (size_t i = 1; text && i + 1 < names.size(); ++i) {
    Py_SETREF(text, PyUnicode_FromFormat("%U, %U", text, names[i]));
  }
  if (text) Py_SETREF(text, PyUnicode_FromFormat("%U, and %U", text, names.back()));
  return text;
}

bool missing_arguments(const Binding& b, Py_ssize_t from, Py_ssize_t to, const char* kind) {
  std::vector<PyObject*> names;
  for (Py_ssize_t i = from; i < to; ++i) {
    PyObject* text = b.locals[i] ? nullptr : PyObject_Repr(b.name(i));
    if (text) names.push_back(text);
  }
  PyObject* list = names.empty() ? nullptr : join_names(names);
  if (list) {
    PyErr_Format(PyExc_TypeError, "%U() missing %zd required %s argument%s: %U", b.qualname(),
                 static_cast<Py_ssize_t>(names.size()), kind, names.size() == 1 ? "" : "s", list);
    Py_DECREF(list);
  }
  for (PyObject* name : names) Py_DECREF(name);
  return false;
}

bool too_many_positional(const Binding& b) {
  Py_ssize_t keyword_only = 0;
  for (Py_ssize_t i = b.positional(); i < b.named(); ++i) keyword_only += b.locals[i] != nullptr;
  PyObject* defaults = b.function->func_defaults;
  const Py_ssize_t n_defaults = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  const bool plural = n_defaults || b.positional() != 1;
  PyObject* takes = n_defaults
                        ? PyUnicode_FromFormat("from %zd to %zd", b.positional() - n_defaults, b.positional())
                        : PyUnicode_FromFormat("%zd", b.positional());
  PyObject* extra =
      keyword_only ? PyUnicode_FromFormat(" positional argument%s (and %zd keyword-only argument%s)",
                                          b.nargs != 1 ? "s" : "", keyword_only, keyword_only != 1 ? "s" : "")
                   : PyUnicode_FromString("");
  if (takes && extra) {
    PyErr_Format(PyExc_TypeError, "%U() takes %U positional argument%s but %zd%U %s given", b.qualname(),
                 takes, plural ? "s" : "", b.nargs, extra, b.nargs == 1 && !keyword_only ? "was" : "were");
  }
  Py_XDECREF(takes);
  Py_XDECREF(extra);
  return false;
}

/// TypeError if some keyword names a positional-only parameter; true if so (or on error).
bool positional_only_as_keyword(const Binding& b) {
  PyObject* names = PyList_New(0);
  if (!names) return true;
  for (Py_ssize_t i = 0; i < b.code->co_posonlyargcount; ++i) {
    const int found = PySequence_Contains(b.kwnames, b.name(i));
    if (found > 0) PyList_Append(names, b.name(i));
  }
  if (PyList_GET_SIZE(names) && !PyErr_Occurred()) {
    PyObject* comma = PyUnicode_FromString(", ");
    PyObject* joined = comma ? PyUnicode_Join(comma, names) : nullptr;
    if (joined) {
      PyErr_Format(PyExc_TypeError,
                   "%U() got some positional-only arguments passed as keyword arguments: '%U'", b.qualname(),
                   joined);
    }
    Py_XDECREF(comma);
    Py_XDECREF(joined);
  }
  Py_DECREF(names);
  return PyErr_Occurred() != nullptr;
}

/// The parameter a keyword names: its index, -1 none, -2 error.
Py_ssize_t find_parameter(const Binding& b, PyObject* keyword) {
  for (Py_ssize_t i = b.code->co_posonlyargcount; i < b.named(); ++i) {
    if (b.name(i) == keyword) return i;
  }
  for (Py_ssize_t i = b.code->co_posonlyargcount; i < b.named(); ++i) {
    const int same = PyObject_RichCompareBool(keyword, b.name(i), Py_EQ);
    if (same) return same < 0 ? -2 : i;
  }
  return -1;
}

bool bind_keyword(const Binding& b, PyObject* keyword, PyObject* value, PyObject* rest) {
  if (!PyUnicode_Check(keyword)) {
    PyErr_Format(PyExc_TypeError, "%U() keywords must be strings", b.qualname());
    return false;
  }
  const Py_ssize_t index = find_parameter(b, keyword);
  if (index == -2) return false;
  if (index == -1) {
    if (rest) return PyDict_SetItem(rest, keyword, value) == 0;
    if (b.code->co_posonlyargcount && positional_only_as_keyword(b)) return false;
    PyErr_Format(PyExc_TypeError, "%U() got an unexpected keyword argument '%S'", b.qualname(), keyword);
    return false;
  }
  if (b.locals[index]) {
    PyErr_Format(PyExc_TypeError, "%U() got multiple values for argument '%S'", b.qualname(), keyword);
    return false;
  }
  b.locals[index] = Py_NewRef(value);
  return true;
}

bool bind_keywords(const Binding& b) {
  PyObject* rest = nullptr;
  if (b.code->co_flags & CO_VARKEYWORDS) {
    rest = PyDict_New();
    if (!rest) return false;
    b.locals[b.named() + ((b.code->co_flags & CO_VARARGS) ? 1 : 0)] = rest;
  }
  const auto count = static_cast<Py_ssize_t>(keyword_count(b.kwnames));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!bind_keyword(b, PyTuple_GET_ITEM(b.kwnames, i), b.args[b.nargs + i], rest)) return false;
  }
  return true;
}

bool bind_positional_defaults(const Binding& b) {
  if (b.nargs >= b.positional()) return true;
  PyObject* defaults = b.function->func_defaults;
  const Py_ssize_t n_defaults = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  const Py_ssize_t required = b.positional() - n_defaults;
  for (Py_ssize_t i = b.nargs; i < required; ++i) {
    if (!b.locals[i]) return missing_arguments(b, 0, required, "positional");
  }
  for (Py_ssize_t i = std::max<Py_ssize_t>(b.nargs - required, 0); i < n_defaults; ++i) {
    PyObject*& slot = b.locals[required + i];
    if (!slot) slot = Py_NewRef(PyTuple_GET_ITEM(defaults, i));
  }
  return true;
}

bool bind_keyword_defaults(const Binding& b) {
  bool missing = false;
  for (Py_ssize_t i = b.positional(); i < b.named(); ++i) {
    if (b.locals[i]) continue;
    PyObject* defaults = b.function->func_kwdefaults;
    PyObject* value = defaults ? PyDict_GetItemWithError(defaults, b.name(i)) : nullptr;
    if (PyErr_Occurred()) return false;
    b.locals[i] = Py_XNewRef(value);
    missing |= !value;
  }
  return !missing || missing_arguments(b, b.positional(), b.named(), "keyword-only");
}

bool bind_all(const Binding& b) {
  const Py_ssize_t taken = std::min(b.nargs, b.positional());
  for (Py_ssize_t i = 0; i < taken; ++i) b.locals[i] = Py_NewRef(b.args[i]);
  if (b.code->co_flags & CO_VARARGS) {
    PyObject* rest = PyTuple_New(b.nargs - taken);
    if (!rest) return false;
    for (Py_ssize_t i = taken; i < b.nargs; ++i) PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(b.args[i]));
    b.locals[b.named()] = rest;
  }
  if (!bind_keywords(b)) return false;
  if (b.nargs > b.positional() && !(b.code->co_flags & CO_VARARGS)) return too_many_positional(b);
  return bind_positional_defaults(b) && bind_keyword_defaults(b);
}

}  // namespace

Frame* bind_call(PyFunctionObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  const Code* prepared = prepare(code);
  Frame* frame = prepared ? new_frame(function, prepared) : nullptr;
  if (!frame) return nullptr;
  PyObject** locals = frame->locals();
  const bool simple = !kwnames && nargs == static_cast<size_t>(code->co_argcount) &&
                      !code->co_kwonlyargcount && !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
  if (simple) {
    for (size_t i = 0; i < nargs; ++i) locals[i] = Py_NewRef(args[i]);
    return frame;
  }
  if (bind_all({function, code, locals, args, static_cast<Py_ssize_t>(nargs), kwnames})) return frame;
  discard_frame(frame);
  return nullptr;
}

}  // namespace bolt::interp
