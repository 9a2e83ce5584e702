// observe/lifetimes/noticed.cpp
#include "observe/lifetimes/noticed.h"

#include <algorithm>
#include <string_view>

#include "guard/leaf.h"
#include "guard/tensors.h"
#include "interp/code.h"
#include "interp/frame.h"
#include "python/compat.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

/// A generator that stands within try or with, or may come to.
bool is_waited_for(PyObject* object) {
  if (!PyGen_Check(object) && !PyCoro_CheckExact(object) && !PyAsyncGen_CheckExact(object)) return false;
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  if (generator->gi_frame_state >= FRAME_COMPLETED) return false;
  const auto* frame = reinterpret_cast<const _PyInterpreterFrame*>(generator->gi_iframe);
  const interp::Code* code = interp::prepare(frame->f_code);
  if (generator->gi_frame_state == FRAME_EXECUTING) return code && !code->handlers.empty();
  return code && code->handles_at(static_cast<int>(frame->prev_instr - _PyCode_CODE(frame->f_code)));
}

PyWeakReference* first_weak_reference(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) || PyType_Check(object)) return nullptr;
  return reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(object));
}

bool is_native_generator(PyObject* object) {
  return PyGen_CheckExact(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object);
}

/// What instances of the type are to C: is there nothing to them that would be undone? Guards that torch's
/// C++ keeps for Python, files, views of memory are more than what they hold.
bool is_plain_in_c(PyTypeObject* type) {
  type = class_of_c(type);
  if (!is_heap_type(type)) return type != &PyMemoryView_Type;
  constexpr std::string_view kPlain[] = {"functools.",   "itertools.",    "operator.", "re.",
                                         "collections.", "_collections.", "types.",    "datetime."};
  const std::string_view name = type->tp_name;
  return std::any_of(std::begin(kPlain), std::end(kPlain),
                     [&](std::string_view each) { return name.starts_with(each); });
}

/// Looks through an object and what it holds, so many objects at most.
struct Look {
  int left = 64;

  static int inside(PyObject* object, void* look) { return static_cast<Look*>(look)->finds(object); }

  bool finds(PyObject* object) {
    if (guard::is_leaf(object) || PyType_Check(object) || is_module(object) || PyFunction_Check(object) ||
        PyCode_Check(object))
      return false;
    if (guard::is_tensor(object)) return first_weak_reference(object) != nullptr;
    if (PyWeakref_Check(object)) return reinterpret_cast<PyWeakReference*>(object)->wr_callback != nullptr;
    if (--left < 0) return false;
    PyTypeObject* type = Py_TYPE(object);
    if (is_native_generator(object) ? is_waited_for(object) : type->tp_finalize || !is_plain_in_c(type))
      return true;
    if (first_weak_reference(object)) return true;
    return type->tp_traverse && type->tp_traverse(object, inside, this) != 0;
  }
};

}  // namespace

bool end_matters(PyObject* object) {
  return !PyType_Check(object) && !is_module(object) && !guard::is_leaf(object);
}

bool ends_noticed(PyObject* object, int depth) {
  PyTypeObject* type = Py_TYPE(object);
  if ((is_python_class(type) && type->tp_finalize) || is_waited_for(object) || first_weak_reference(object))
    return end_matters(object);
  if (depth == 0 || !type->tp_traverse || PyFunction_Check(object) || !end_matters(object)) return false;
  auto look = [](PyObject* inside, void* depth_of_it) -> int {
    // What others hold too does not go with it.
    return Py_REFCNT(inside) == 1 && ends_noticed(inside, *static_cast<int*>(depth_of_it));
  };
  int inner = depth - 1;
  return type->tp_traverse(object, look, &inner) != 0;
}

bool end_is_noticed(PyObject* object) {
  Look look;
  return look.finds(object);
}

bool may_let_go(const interp::Frame& frame) {
  namespace op = interp::op;
  auto matters = [](PyObject* object) { return object && end_matters(object); };
  switch (frame.instr().op) {
    case op::RESUME:
    case op::PUSH_NULL:
    case op::COPY:
    case op::SWAP:
    case op::LOAD_FAST:
    case op::LOAD_CONST:
    case op::LOAD_GLOBAL:
    case op::LOAD_DEREF:
    case op::BUILD_TUPLE:
    case op::BUILD_LIST:
    case op::JUMP_FORWARD:
    case op::JUMP_BACKWARD: return false;
    case op::STORE_FAST: return matters(frame.locals()[frame.instr().arg]);
    case op::POP_TOP: return matters(frame.peek(1));
    case op::BINARY_OP:
    case op::COMPARE_OP: return matters(frame.peek(1)) || matters(frame.peek(2));
    default: return true;
  }
}

}  // namespace bolt::observe
