// observe/calls/parameters.cpp
// nn.Parameter(...), requires_grad_(), and with them whole modules -> leaves of autograd's graph that later
// calls make, too.
//
// Eager makes them without an operator that the dispatcher sees. Here aten::requires_grad_ is called, so that
// it stands in the tape and a replayed region, which autograd differentiates, does it again. A compiled
// region is not differentiated: what it gives out is told to require a gradient when its objects are made
// (Fill::gradient).

#include <ATen/core/Tensor.h>
#include <ATen/ops/requires_grad_ops.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string_view>

#include "observe/calls/controls.h"
#include "observe/recording.h"
#include "support/text.h"

namespace bolt::observe {

namespace {

/// No operator of its own (__torch_dispatch__): it is a tensor like any other, with a name.
bool is_plain_class(World& world, PyObject* cls) {
  if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls),
                                              reinterpret_cast<PyTypeObject*>(guard::tensor_class())))
    return false;
  PyObject* hook = interned<"__torch_dispatch__">();
  return world.type_attr(reinterpret_cast<PyTypeObject*>(cls), hook) ==
         _PyType_Lookup(reinterpret_cast<PyTypeObject*>(guard::tensor_class()), hook);
}

/// Does it do nothing but tell leaves, one after another, whether they require gradients? Then its names are
/// these.
bool only_switches(PyCodeObject* code) {
  static const std::vector<std::string_view> names = split(
      "append children extend float isinstance items list Module module modules named_modules "
      "named_parameters nn parameters range requires_grad requires_grad_ reversed startswith torch tuple "
      "values zip",
      ' ');
  bool switches = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i) {
    const std::string_view name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_names, i));
    if (std::ranges::find(names, name) == names.end()) return false;
    switches |= name.starts_with("requires_grad");
  }
  return switches;
}

}  // namespace

/// Of a leaf from outside, which must stand between two regions. A function that does so in a loop is one
/// end, from the next recording on, and not one for each leaf and each step of what it goes through.
void Recording::end_at_switch(Frame& frame, const Reason& why) {
  if (!on) return;
  const Frame* switches = nullptr;
  for (const Frame* at = &frame; at->return_to != interp::ReturnTo::entry && at->back; at = at->back) {
    if (!only_switches(at->code())) break;
    switches = at;
  }
  end_here(frame, why);
  if (switches && interp::bottom_of(frame) == entry)
    not_past(reinterpret_cast<PyObject*>(switches->back->code()), switches->back->pc(), why, true);
}

/// torch.Tensor._make_subclass: detach(), which is seen, of another class.
PyObject* Recording::make_subclass(Frame& frame, PyObject* cls, PyObject* data, bool requires_grad) {
  if (!guard::is_tensor(data) || !is_plain_class(world, cls)) {
    end_here(frame, {Why::calls_subclass, "torch.Tensor._make_subclass"});
    return nullptr;
  }
  mark(frame);
  PyRef made =
      PyRef::steal(PyObject_CallMethod(guard::tensor_class(), "_make_subclass", "OOO", cls, data, Py_False));
  end_if_wanted(frame);
  if (!made || !requires_grad || !on) return on ? made.release() : nullptr;
  if (require_grad(frame, made.get(), true)) return made.release();
  if (!PyErr_Occurred()) end_here(frame, {Why::calls, "torch.Tensor._make_subclass"});
  return nullptr;
}

/// tensor.requires_grad_(yes), of a tensor that the region made. What is said of one from outside would have
/// to be repeated on it.
bool Recording::require_grad(Frame& frame, PyObject* tensor, bool yes) {
  const bool known = world.find(tensor) != nullptr;
  world.asked_gradients |= known;
  if (known && guard::requires_grad(tensor) == yes) return true;  // guarded
  if (known || !hooks_.knows(tensor)) return false;
  mark(frame);
  auto set = [&]() -> PyObject* {
    HANDLE_TH_ERRORS
    at::Tensor t = THPVariable_Unpack(tensor);
    at::_ops::requires_grad_::call(t, yes);
    return Py_NewRef(Py_None);
    END_HANDLE_TH_ERRORS
  };
  return static_cast<bool>(PyRef::steal(set()));
}

}  // namespace bolt::observe
