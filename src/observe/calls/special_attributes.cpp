// observe/calls/special_attributes.cpp
// See special_calls.h. Attributes, and tensors' own.
#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

/// What getattr() and the like are given, without a class of the user's on top of str.
PyRef attribute_name(PyObject* given) {
  PyRef plain = guard::plain_value(given);
  return plain ? std::move(plain) : PyRef::share(given);
}

PyObject* get_attribute(const SpecialCall& c) {
  if (c.nargs < 2 || c.nargs > 3 || c.kwnames || !PyUnicode_Check(c.args[1])) return nullptr;
  PyObject* value = c.recording.get_attr(c.frame, c.args[0], attribute_name(c.args[1]).get());
  if (value || c.nargs < 3 || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  return Py_NewRef(c.args[2]);
}

PyObject* has_attribute(const SpecialCall& c) {
  if (c.nargs != 2 || !PyUnicode_Check(c.args[1])) return nullptr;
  PyRef value = PyRef::steal(c.recording.get_attr(c.frame, c.args[0], attribute_name(c.args[1]).get()));
  if (value) Py_RETURN_TRUE;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  Py_RETURN_FALSE;
}

PyObject* set_attribute(const SpecialCall& c) {
  if (c.nargs != 3) return nullptr;
  return none_if(c.recording.set_attr(c.frame, c.args[0], attribute_name(c.args[1]).get(), c.args[2]));
}

PyObject* delete_attribute(const SpecialCall& c) {
  if (c.nargs != 2) return nullptr;
  return none_if(c.recording.delete_attr(c.frame, c.args[0], attribute_name(c.args[1]).get()));
}

PyObject* generic_get(const SpecialCall& c) {
  return c.nargs == 2 ? c.recording.generic_get(c.frame, c.args[0], c.args[1]) : nullptr;
}

PyObject* class_get(const SpecialCall& c) {
  const bool usual = c.nargs == 2 && PyType_Check(c.args[0]) && PyUnicode_Check(c.args[1]);
  return usual ? c.recording.class_get(c.frame, c.args[0], c.args[1]) : nullptr;
}

/// Of classes it is refused.
PyObject* generic_set(const SpecialCall& c) {
  return c.nargs == 3 && !PyType_Check(c.args[0])
             ? none_if(c.recording.generic_set(c.frame, c.args[0], c.args[1], c.args[2]))
             : nullptr;
}

PyObject* generic_delete(const SpecialCall& c) {
  return c.nargs == 2 && !PyType_Check(c.args[0])
             ? none_if(c.recording.generic_set(c.frame, c.args[0], c.args[1], nullptr))
             : nullptr;
}

PyObject* tensor_of_class(const SpecialCall& c) {
  const bool usual = !c.kwnames && (c.nargs == 2 || (c.nargs == 3 && PyBool_Check(c.args[2])));
  if (usual)
    return c.recording.make_subclass(c.frame, c.args[0], c.args[1], c.nargs == 3 && c.args[2] == Py_True);
  c.recording.end_here(c.frame, {Why::calls_with_more, "torch.Tensor._make_subclass"});
  return nullptr;
}

PyObject* require_gradient(const SpecialCall& c) {
  const bool named = c.kwnames && PyTuple_GET_SIZE(c.kwnames) == 1;
  PyObject* yes = c.nargs == 1 && !named ? Py_True : c.nargs + named == 2 ? c.args[1] : nullptr;
  if (yes && PyBool_Check(yes) && c.recording.require_grad(c.frame, c.args[0], yes == Py_True))
    return Py_NewRef(c.args[0]);
  if (!PyErr_Occurred()) c.recording.end_at_switch(c.frame, {Why::calls, "torch.Tensor.requires_grad_"});
  return nullptr;
}

}  // namespace

void add_attribute_calls(SpecialCalls& table) {
  table.insert({
      {"builtins.getattr", get_attribute},
      {"builtins.hasattr", has_attribute},
      {"builtins.setattr", set_attribute},
      {"builtins.delattr", delete_attribute},
      {"object.__getattribute__", generic_get},
      {"object.__setattr__", generic_set},
      {"type.__getattribute__", class_get},
      {"object.__delattr__", generic_delete},
      {"module.__getattribute__", generic_get},
      {"module.__setattr__", generic_set},
      {"method.__getattribute__", get_attribute},
      {"torch._C.TensorBase.__setattr__", generic_set},
      {"torch._C.TensorBase._make_subclass", tensor_of_class},
      {"torch._C.TensorBase.requires_grad_", require_gradient},
      {"torch._C.TensorBase.__getattribute__", generic_get},
  });
}

}  // namespace bolt::observe
