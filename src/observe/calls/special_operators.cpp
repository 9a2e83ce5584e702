// observe/calls/special_operators.cpp
// See special_calls.h. Functions of module operator that are an
// operation of the language.
#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

/// The functions of module operator that are `+`, `+=` and the like.
template <int kOperator>
PyObject* binary(const SpecialCall& c) {
  return c.nargs == 2 ? c.recording.binary_op(c.frame, kOperator, c.args[0], c.args[1]) : nullptr;
}

template <interp::Unary kOperator>
PyObject* unary(const SpecialCall& c) {
  return c.nargs == 1 ? c.recording.unary_op(c.frame, kOperator, c.args[0]) : nullptr;
}

template <int kOperator>
PyObject* comparison(const SpecialCall& c) {
  if (c.nargs != 2) return nullptr;
  PyObject *left = c.args[0], *right = c.args[1];
  return c.recording.finish_compare(c.frame, kOperator, left, right,
                                    c.recording.start_compare(c.frame, kOperator, left, right));
}

/// Of an int itself.
PyObject* index(const SpecialCall& c) {
  if (c.nargs == 1 && PyLong_CheckExact(c.args[0])) return Py_NewRef(c.args[0]);
  if (c.nargs == 1) c.recording.touch(c.frame, c.args[0], true);
  return nullptr;
}

PyObject* item(const SpecialCall& c) {
  return c.nargs == 2 ? c.recording.get_item(c.frame, c.args[0], c.args[1]) : nullptr;
}

PyObject* contains(const SpecialCall& c) {
  const int answer = c.nargs == 2 ? c.recording.contains(c.frame, c.args[0], c.args[1]) : -1;
  return answer < 0 ? nullptr : boolean(answer);
}

PyObject* truth(const SpecialCall& c) {
  const int answer = c.nargs == 1 ? c.recording.truth(c.frame, c.args[0]) : -1;
  return answer < 0 ? nullptr : boolean(answer);
}

/// What an operator.itemgetter or attrgetter asks for, as a tuple. Null: let the native function do it, after
/// the region's end where what it holds cannot be guarded. The getter itself cannot change.
PyRef asked_for(const SpecialCall& c) {
  if (c.nargs != 2 || c.kwnames) return {};
  PyObject* getter = c.args[0];
  PyRef parts =
      PyRef::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));  // (class, what it asks for)
  if (!parts) return {};
  PyRef asked = PyRef::share(PyTuple_GET_ITEM(parts.get(), 1));
  Known* known = c.recording.world.find(getter);
  if (!known) return asked;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(asked.get()); ++i)
    if (!guard::is_leaf(PyTuple_GET_ITEM(asked.get(), i))) {
      c.recording.end_here(c.frame, {Why::calls_getter, Py_TYPE(getter)->tp_name});
      return {};
    }
  known->source->assume(Check::is, getter);
  return asked;
}

/// One result for one question, a tuple for several.
template <class Ask>
PyObject* answers(const PyRef& asked, Ask ask) {
  if (!asked) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(asked.get());
  if (n == 1) return ask(PyTuple_GET_ITEM(asked.get(), 0));
  PyRef all = PyRef::steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; all && i < n; ++i) {
    PyObject* one = ask(PyTuple_GET_ITEM(asked.get(), i));
    if (!one) return nullptr;
    PyTuple_SET_ITEM(all.get(), i, one);
  }
  return all.release();
}

PyObject* get_items(const SpecialCall& c) {
  return answers(asked_for(c), [&](PyObject* key) { return c.recording.get_item(c.frame, c.args[1], key); });
}

PyObject* get_attributes(const SpecialCall& c) {
  return answers(asked_for(c), [&](PyObject* dotted) -> PyObject* {
    PyRef dot = PyRef::steal(PyUnicode_FromString("."));
    PyRef names = PyRef::steal(dot ? PyUnicode_Split(dotted, dot.get(), -1) : nullptr);
    PyRef value = PyRef::share(c.args[1]);
    for (Py_ssize_t i = 0; names && value && i < PyList_GET_SIZE(names.get()); ++i) {
      PyObject* name = Py_NewRef(PyList_GET_ITEM(names.get(), i));
      PyUnicode_InternInPlace(&name);
      value = PyRef::steal(c.recording.get_attr(c.frame, value.get(), name));
      Py_DECREF(name);
    }
    return names ? value.release() : nullptr;
  });
}

}  // namespace

void add_operator_calls(SpecialCalls& table) {
  table.insert({
      {"_operator.iconcat", binary<interp::Binary::inplace>},
      {"_operator.and_", binary<interp::Binary::bit_and>},
      {"_operator.or_", binary<interp::Binary::bit_or>},
      {"_operator.neg", unary<interp::Unary::negative>},
      {"_operator.pos", unary<interp::Unary::positive>},
      {"_operator.invert", unary<interp::Unary::invert>},
      {"_operator.not_", unary<interp::Unary::logical_not>},
      {"_operator.truth", truth},
      {"_operator.lt", comparison<Py_LT>},
      {"_operator.le", comparison<Py_LE>},
      {"_operator.eq", comparison<Py_EQ>},
      {"_operator.ne", comparison<Py_NE>},
      {"_operator.gt", comparison<Py_GT>},
      {"_operator.ge", comparison<Py_GE>},
      {"_operator.index", index},
      {"_operator.getitem", item},
      {"_operator.contains", contains},
      {"call.operator.attrgetter", get_attributes},
      {"call.operator.itemgetter", get_items},
#define BINARY(name, cname, number, stem, ...) \
  {"_operator." #stem, binary<(number)>}, {"_operator.i" #stem, binary<(number) + interp::Binary::inplace>},
#include "python/binary_ops.def"
#undef BINARY
  });
}

}  // namespace bolt::observe
