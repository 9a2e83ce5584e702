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
#include <vector>

#include "interp/flow.h"
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

/// Is it a name that is met where leaves are told, one after another, whether they require gradients?
bool is_of_switches(PyObject* name) {
  static const std::vector<std::string_view> names = split(
      "append children extend float isinstance items list Module module modules named_modules "
      "named_parameters nn parameters range requires_grad requires_grad_ reversed startswith torch tuple "
      "values zip",
      ' ');
  return std::ranges::find(names, std::string_view(PyUnicode_AsUTF8(name))) != names.end();
}
bool is_switch(PyObject* name) {
  return std::string_view(PyUnicode_AsUTF8(name)).starts_with("requires_grad");
}

/// Does it do nothing but that? Then its names are these.
bool only_switches(PyCodeObject* code) {
  PyObject* const* names = &PyTuple_GET_ITEM(code->co_names, 0);
  PyObject* const* end = names + PyTuple_GET_SIZE(code->co_names);
  return std::all_of(names, end, is_of_switches) && std::any_of(names, end, is_switch);
}

/// The name that an instruction reads or writes something by; null: it does not.
PyObject* name_of(const PyCodeObject* code, const interp::Instr& instr) {
  const std::string_view op = interp::opcode_name(instr.op);
  const bool has_flag = op == "LOAD_GLOBAL" || (BOLT_PY312 && op == "LOAD_ATTR");
  if (!has_flag && !interp::is_any_of(op, {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "STORE_GLOBAL"}))
    return nullptr;
  return PyTuple_GET_ITEM(code->co_names, has_flag ? instr.arg >> 1 : instr.arg);
}

/// The same of the instructions of a loop, which call nothing that has no name.
bool only_switches(const Frame& frame, const interp::ForLoop& loop) {
  int named = 0, calls = 0;
  for (int at = loop.first; at <= loop.last; at += frame.prepared->instrs[at].length) {
    const interp::Instr& instr = frame.prepared->instrs[at];
    PyObject* name = name_of(frame.code(), instr);
    if (name && !is_of_switches(name)) return false;
    named += name && instr.op != interp::op::STORE_ATTR;
    calls += std::string_view(interp::opcode_name(instr.op)).starts_with("CALL");
  }
  return calls <= named;
}

}  // namespace

/// Of a leaf from outside, which must stand between two regions. A function or a loop that does so is one
/// end, from the next recording on, and not one for each leaf and each step of what it goes through.
void Recording::end_at_switch(Frame& frame, const Reason& why) {
  if (!on) return;
  const Frame* switches = nullptr;
  for (const Frame* at = &frame; at->return_to != interp::ReturnTo::entry && at->back; at = at->back) {
    if (!only_switches(at->code())) break;
    switches = at;
  }
  end_here(frame, why);
  if (interp::bottom_of(frame) != entry) return;
  if (switches)
    not_past(reinterpret_cast<PyObject*>(switches->back->code()), switches->back->pc(), why, true);
  for (const interp::ForLoop& loop : interp::loops_around(*frame.prepared, frame.pc())) {
    if (!only_switches(frame, loop)) break;
    not_past(reinterpret_cast<PyObject*>(frame.code()), loop.first, why, true);
  }
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
