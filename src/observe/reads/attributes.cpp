// observe/reads/attributes.cpp
// Recording of attribute access: CPython's lookup order with a guard at each step.
//
//   type(obj).name on the mro -> data descriptor? -> obj.__dict__[name] -> other descriptor or class value ->
//   __getattr__

#include <algorithm>
#include <array>

#include "interp/call.h"
#include "interp/errors.h"
#include "interp/special.h"
#include "observe/calls/controls.h"
#include "observe/recording.h"
#include "observe/values/arrays.h"

namespace bolt::observe {

using interp::CallStart;
using interp::Semantics;

namespace {

bool same_text(PyObject* name, const char* text) { return PyUnicode_CompareWithASCIIString(name, text) == 0; }

bool has_exact_type(PyObject* object, PyTypeObject* type) { return Py_IS_TYPE(object, type); }

PyObject* get_natively(PyObject* descriptor, PyObject* object) {
  return Py_TYPE(descriptor)->tp_descr_get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

/// `__slots__` and C members that hold an object.
const PyMemberDef* object_member(PyObject* descriptor) {
  if (!has_exact_type(descriptor, &PyMemberDescr_Type)) return nullptr;
  const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  return member->type == T_OBJECT || member->type == T_OBJECT_EX ? member : nullptr;
}

/// super()'s three fields (CPython keeps the struct private).
struct SuperObject {
  PyObject_HEAD PyTypeObject* type;
  PyObject* obj;
  PyTypeObject* obj_type;
};

bool is_generic_getattribute(PyObject* method) {
  return !method || (has_exact_type(method, &PyWrapperDescr_Type) &&
                     reinterpret_cast<PyWrapperDescrObject*>(method)->d_wrapped ==
                         reinterpret_cast<void*>(PyObject_GenericGetAttr));
}

/// The item that a field of a named tuple is; -1: the descriptor is none.
Py_ssize_t tuple_field(PyObject* descriptor) {
  static PyTypeObject* const type = native_type("_collections", "_tuplegetter");
  if (!Py_IS_TYPE(descriptor, type)) return -1;
  PyRef parts =
      PyRef::steal(PyObject_CallMethod(descriptor, "__reduce__", nullptr));  // (class, (index, doc))
  PyObject* args = parts ? PyTuple_GET_ITEM(parts.get(), 1) : nullptr;
  const Py_ssize_t index = args ? PyLong_AsSsize_t(PyTuple_GET_ITEM(args, 0)) : -1;
  PyErr_Clear();
  return index;
}

/// Where a function or a class of Python's keeps what a C property of that name gives, as far as nothing else
/// that is guarded tells (its code, its dict); 0: nowhere.
Py_ssize_t hidden_field(PyObject* object, PyObject* name) {
  struct Row {
    const char* name;
    Py_ssize_t of_function, of_class;
  };
  static const Row rows[] = {
      {"__name__", offsetof(PyFunctionObject, func_name), offsetof(PyHeapTypeObject, ht_name)},
      {"__qualname__", offsetof(PyFunctionObject, func_qualname), offsetof(PyHeapTypeObject, ht_qualname)},
      {"__annotations__", offsetof(PyFunctionObject, func_annotations), 0},
      {"__mro__", 0, offsetof(PyTypeObject, tp_mro)},
      {"__bases__", 0, offsetof(PyTypeObject, tp_bases)},
      {"__base__", 0, offsetof(PyTypeObject, tp_base)},
  };
  for (const Row& row : rows)
    if (same_text(name, row.name)) return PyType_Check(object) ? row.of_class : row.of_function;
  return 0;
}

/// nn.Module.__getattr__, as torch wrote it.
bool is_modules_getattr(PyObject* hook) {
  static PyObject* torchs = nullptr;  // its code
  if (!PyFunction_Check(hook)) return false;
  PyObject* code = PyFunction_GET_CODE(hook);
  if (torchs) return code == torchs;
  auto* function = reinterpret_cast<PyFunctionObject*>(hook);
  if (!function->func_module || !PyUnicode_Check(function->func_module) ||
      !same_text(function->func_module, "torch.nn.modules.module") ||
      !same_text(reinterpret_cast<PyCodeObject*>(code)->co_qualname, "Module.__getattr__"))
    return false;
  torchs = Py_NewRef(code);
  return true;
}

/// All it does is to bind what it holds to an object or a class.
bool only_binds(PyObject* descriptor) {
  static const auto types = std::to_array<PyTypeObject*>(
      {&PyFunction_Type, &PyMethodDescr_Type, &PyClassMethodDescr_Type, &PyWrapperDescr_Type,
       &PyClassMethod_Type, &PyStaticMethod_Type, &PyInstanceMethod_Type});
  return std::find(types.begin(), types.end(), Py_TYPE(descriptor)) != types.end();
}

}  // namespace

/// The C property `descriptor` gave `value` for `object`. Later calls ask again, where that can be compared.
bool Recording::note_answer(PyObject* object, PyObject* descriptor, PyObject* value) {
  Known* known = world.find(object);
  if (known && value && !guard::is_leaf(value)) return false;
  if (known && value) known->source->assume_answer(descriptor, value);
  return true;
}

/// What a class attribute gives for an instance (null: for the class itself). New reference.
CallStart Recording::start_bind(Frame& frame, PyObject* descriptor, PyObject* object, PyTypeObject* type) {
  descrgetfunc get = Py_TYPE(descriptor)->tp_descr_get;
  if (!get) return {Py_NewRef(descriptor), nullptr};
  if (object && getter_is_python(descriptor)) {
    if (PyObject* getter = property_getter(descriptor)) world.pin(getter);
    note_special(descriptor, names_of.get_);
    return interp::start_getter(*this, frame, descriptor, object);
  }
  if (object && PyTuple_Check(object))
    if (const Py_ssize_t index = tuple_field(descriptor); index >= 0)
      return {Py_XNewRef(world.sequence_item(object, index)), nullptr};
  if (object && Py_IS_TYPE(descriptor, &PyProperty_Type))
    if (PyRef getter = PyRef::steal(PyObject_GetAttrString(descriptor, "fget")); getter.get() != Py_None) {
      world.pin(getter.get());
      return interp::to_caller(*this, start_call(frame, getter.get(), &object, 1, nullptr));
    }
  if (get == python_slots.descr_get) {  // of the class itself
    note_special(descriptor, names_of.get_);
    return interp::start_descriptor(*this, frame, descriptor, Py_None, reinterpret_cast<PyObject*>(type));
  }
  PyObject* value = get(descriptor, object, reinterpret_cast<PyObject*>(type));
  if (value && object && !only_binds(descriptor) && !PyType_Check(object) && !PyMethod_Check(value) &&
      !note_answer(object, descriptor, value))
    end_here(frame, {Why::read_through, Py_TYPE(object)->tp_name, Py_TYPE(descriptor)->tp_name});
  if (!value || value == descriptor || !world.find(descriptor)) return {value, nullptr};
  // Functions inside classmethod and staticmethod objects hang on the pinned descriptor.
  PyObject* function = PyMethod_Check(value) ? PyMethod_GET_FUNCTION(value) : value;
  if (PyFunction_Check(function) && !world.find(function)) world.pin(function);
  return {value, nullptr};
}

PyObject* Recording::bind(Frame& frame, PyObject* descriptor, PyObject* object, PyTypeObject* type) {
  return interp::run_to_end(*this, start_bind(frame, descriptor, object, type));
}

/// A C property of something that is not a tensor.
PyObject* Recording::getset(Frame& frame, PyObject* object, PyObject* descriptor, PyObject* name) {
  if (same_text(name, "__dict__")) {
    if (PyObject* dict = world.instance_dict(object))
      return world.followed_keys.note_namespace(dict), Py_NewRef(dict);
  } else if (PyFunction_Check(object)) {
    world.note_function(object);
    // Asked first: annotations are made into a dict when they are.
    PyObject* value = get_natively(descriptor, object);
    if (const Py_ssize_t offset = hidden_field(object, name)) world.field(object, offset, name);
    return value;
  } else if (!guard::is_leaf(object) && world.find(object) && !is_understood_container(object) &&
             !same_text(name, "__class__") && !same_text(name, "__name__") &&
             !same_text(name, "__qualname__") && !same_text(name, "__doc__") &&
             !same_text(name, "__self__") && !same_text(name, "__module__") &&
             !same_text(name, "__text_signature__") && !same_text(name, "__isabstractmethod__")) {
    end_here(frame, {Why::attribute_read, PyUnicode_AsUTF8(name), Py_TYPE(object)->tp_name});
  }
  PyObject* value = get_natively(descriptor, object);
  // What is built in stays what it is; __class__ and __self__ are objects that other guards tell of.
  if (on && !PyCFunction_Check(object)) note_answer(object, descriptor, value);
  return value;
}

PyObject* Recording::tensor_getset(Frame& frame, PyObject* tensor, PyObject* descriptor, PyObject* name) {
  end_if_overridden(frame, tensor);
  if (!on) return get_natively(descriptor, tensor);
  if (same_text(name, "__dict__")) {
    if (PyObject* dict = world.instance_dict(tensor))
      return world.followed_keys.note_namespace(dict), Py_NewRef(dict);
  }
  for (const char* asks : {"requires_grad", "is_leaf", "grad_fn", "grad", "retains_grad"})
    world.asked_gradients |= same_text(name, asks);
  if (same_text(name, "grad")) {
    PyObject* grad = world.tensor_grad(tensor);
    const bool may_get_one = !grad && guard::requires_grad(tensor);
    if (may_get_one && !guard::is_autograd_leaf(tensor)) {  // torch warns
      end_here(frame, Why::gradient_read);
      return get_natively(descriptor, tensor);
    }
    if (Known* known = may_get_one ? world.find(tensor) : nullptr)
      known->source->assume(guard::Check::leaf, nullptr, 1);
    return Py_NewRef(grad ? grad : Py_None);
  }
  if (same_text(name, "data")) {
    // A tensor of its own on the same memory that the dispatcher does not see made; detach is that, and is
    // seen.
    mark(frame);
    PyObject* data =
        PyObject_CallMethodNoArgs(tensor, PyRef::steal(PyUnicode_InternFromString("detach")).get());
    if (data) hooks_.own_version(data);
    return data;
  }
  if (world.follows() && same_text(name, "shape")) return world.tensor_sizes(tensor);
  if (world.follows() && same_text(name, "nbytes")) world.use_sizes(tensor);
  // What autograd keeps is no part of a recording, but there is nothing where nothing is differentiated.
  if (same_text(name, "grad_fn") && guard::is_autograd_leaf(tensor) &&
      (!world.find(tensor) || !guard::requires_grad(tensor)))
    Py_RETURN_NONE;
  if (Known* known = world.find(tensor);
      known && same_text(name, "is_leaf") && guard::requires_grad(tensor))  // else it is one
    known->source->assume(guard::Check::leaf, nullptr, guard::is_autograd_leaf(tensor));
  switch (tensor_attribute(PyUnicode_AsUTF8(name))) {
    case TensorAttribute::described: break;
    case TensorAttribute::computed: mark(frame); break;
    case TensorAttribute::unknown: end_here(frame, {Why::tensor_attribute, PyUnicode_AsUTF8(name)});
  }
  PyObject* value = get_natively(descriptor, tensor);
  end_if_wanted(frame);
  return value;
}

/// Whether a class attribute is a descriptor, and of which kind.
void Recording::note_descriptor(PyObject* found) {
  if (!found || !is_python_class(Py_TYPE(found))) return;
  for (PyObject* method : {names_of.get_, names_of.set_, names_of.delete_}) note_special(found, method);
}

CallStart Recording::start_generic_get(Frame& frame, PyObject* object, PyObject* name, bool* absent) {
  PyTypeObject* type = Py_TYPE(object);
  world.note_lookup(type);
  PyRef descriptor = PyRef::share(world.type_attr(type, name));
  PyObject* found = descriptor.get();
  note_descriptor(found);
  if (found && PyDescr_IsData(found) && Py_TYPE(found)->tp_descr_get) {
    if (const PyMemberDef* member = object_member(found)) {
      PyObject* value = world.slot(object, member->offset, name);
      if (value) return {Py_NewRef(value), nullptr};
      if (member->type == T_OBJECT) return {Py_NewRef(Py_None), nullptr};
      return {PyObject_GenericGetAttr(object, name), nullptr};
    }
    if (has_exact_type(found, &PyGetSetDescr_Type))
      return {guard::is_tensor(object) ? tensor_getset(frame, object, found, name)
                                       : getset(frame, object, found, name),
              nullptr};
    return start_bind(frame, found, object, type);
  }
  if (PyObject* dict = world.instance_dict(object)) {
    PyObject* value = world.dict_get(dict, name);
    if (value) return {Py_NewRef(value), nullptr};
    if (PyErr_Occurred()) return {};
  }
  if (found) return start_bind(frame, found, object, type);
  if (absent) return *absent = true, CallStart{};
  return {PyObject_GenericGetAttr(object, name), nullptr};  // for its error
}

PyObject* Recording::generic_get(Frame& frame, PyObject* object, PyObject* name, bool* absent) {
  return interp::run_to_end(*this, start_generic_get(frame, object, name, absent));
}

CallStart Recording::start_getattribute(Frame& frame, PyObject* object, PyObject* name, bool* absent) {
  PyObject* method = world.type_attr(Py_TYPE(object), names_of.getattribute_);
  if (PyType_Check(object) && !(method && PyFunction_Check(method)))
    return {class_get(frame, object, name), nullptr};
  if (is_generic_getattribute(method)) return start_generic_get(frame, object, name, absent);
  return interp::start_required(*this, frame, object, names_of.getattribute_, {name});
}

PyObject* Recording::module_get(Frame& frame, PyObject* module, PyObject* name) {
  PyObject* value = generic_get(frame, module, name);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  PyObject* hook = world.dict_get(world.instance_dict(module), names_of.getattr_);
  if (!hook || !PyFunction_Check(hook)) return PyObject_GetAttr(module, name);
  PyRef held = PyRef::share(hook);
  return call(frame, hook, &name, 1, nullptr);
}

PyObject* Recording::class_get(Frame& frame, PyObject* object, PyObject* name) {
  auto* cls = reinterpret_cast<PyTypeObject*>(object);
  PyTypeObject* meta = Py_TYPE(cls);
  world.note_lookup(meta);
  PyRef of_meta = PyRef::share(world.type_attr(meta, name));
  note_descriptor(of_meta.get());
  if (of_meta && PyDescr_IsData(of_meta.get()) && Py_TYPE(of_meta.get())->tp_descr_get) {
    if (same_text(name, "__dict__")) end_here(frame, Why::class_dict_read);
    PyRef value = PyRef::steal(bind(frame, of_meta.get(), object, meta));
    const bool native = Py_TYPE(of_meta.get()) == &PyGetSetDescr_Type || object_member(of_meta.get());
    if (value && native && is_heap_type(cls)) {
      // The rest lies in the class's dict.
      if (const Py_ssize_t offset = hidden_field(object, name))
        world.field(object, offset, name);
      else
        world.type_attr(cls, name);
    }
    return value.release();
  }
  PyRef own = PyRef::share(world.type_attr(cls, name));
  if (own) {
    note_descriptor(own.get());
    return bind(frame, own.get(), nullptr, cls);
  }
  if (of_meta) return bind(frame, of_meta.get(), object, meta);
  return PyType_Type.tp_getattro(object, name);  // for its error
}

PyObject* Recording::super_get(Frame& frame, PyObject* object, PyObject* name) {
  auto* super = reinterpret_cast<SuperObject*>(object);
  if (!super->obj_type || same_text(name, "__class__")) return PyObject_GetAttr(object, name);
  PyRef found = PyRef::share(world.super_attr(super->obj_type, super->type, name));
  if (!found) return PyObject_GetAttr(object, name);
  bool on_class = reinterpret_cast<PyObject*>(super->obj_type) == super->obj;
  return bind(frame, found.get(), on_class ? nullptr : super->obj, super->obj_type);
}

// What nn.Module.__getattr__ reads, in its order. Run as Python it would be most of what is interpreted in
// many models.
PyObject* Recording::module_part(PyObject* module, PyObject* name) {
  static PyObject* const parts[] = {PyUnicode_InternFromString("_parameters"),
                                    PyUnicode_InternFromString("_buffers"),
                                    PyUnicode_InternFromString("_modules")};
  PyObject* fields = world.instance_dict(module);
  for (PyObject* part : parts) {
    PyObject* dict = fields ? world.dict_get(fields, part) : nullptr;
    if (!dict) continue;
    if (!PyDict_CheckExact(dict)) return nullptr;
    if (PyObject* found = world.dict_get(dict, name)) return found;
  }
  return nullptr;
}

PyObject* Recording::hooked_get(Frame& frame, PyObject* object, PyObject* name) {
  bool absent = false;
  PyObject* value = interp::run_to_end(*this, start_getattribute(frame, object, name, &absent));
  if (value || (!absent && !PyErr_ExceptionMatches(PyExc_AttributeError))) return value;
  // CPython's lookup takes an exception that is pending for its own: put it aside.
  PyRef missing = PyRef::steal(absent ? nullptr : take_raised());
  PyObject* hook = world.type_attr(Py_TYPE(object), names_of.getattr_);
  if (!hook) {
    if (absent) return PyObject_GenericGetAttr(object, name);  // for its error
    set_raised(missing.release());
    return nullptr;
  }
  if (is_modules_getattr(hook)) {
    world.note_function(hook);
    if (PyObject* part = module_part(object, name)) return Py_NewRef(part);
  }
  value = interp::call_required(*this, frame, object, names_of.getattr_, {name});
  if (!value) interp::complete_attribute_error(object, name);
  return value;
}

CallStart Recording::start_get_attr(Frame& frame, PyObject* object, PyObject* name) {
  if (!on) return Semantics::start_get_attr(frame, object, name);
  if (PyObject* made = array_attribute(*this, frame, object, name); made || PyErr_Occurred())
    return {made, nullptr};
  world.use_scalar(object);
  if (!on) return Semantics::start_get_attr(frame, object, name);
  getattrofunc get = Py_TYPE(object)->tp_getattro;
  if (get == PyObject_GenericGetAttr) return start_generic_get(frame, object, name);
  if (get == python_slots.get_attr) return start_getattribute(frame, object, name);
  if (get == python_slots.get_attr_hook) return {hooked_get(frame, object, name), nullptr};
  if (get == PyModule_Type.tp_getattro) return {module_get(frame, object, name), nullptr};
  if (get == PyType_Type.tp_getattro) return {class_get(frame, object, name), nullptr};
  if (get == PySuper_Type.tp_getattro) return {super_get(frame, object, name), nullptr};
  if (is_transparent(object)) return {transparent_get(frame, object, name), nullptr};
  if (PyMethod_Check(object)) {
    PyObject* function = world.field(object, offsetof(PyMethodObject, im_func), names_of.get_);
    if (!same_text(name, "__self__") && !same_text(name, "__func__"))
      return start_get_attr(frame, function, name);
  }
  touch(frame, object);
  return Semantics::start_get_attr(frame, object, name);
}

int Recording::get_method(Frame& frame, PyObject* object, PyObject* name, PyObject** method) {
  if (PyObject* found = on ? array_method(world, object, name) : nullptr)
    return *method = Py_NewRef(found), 1;
  if (on) world.use_scalar(object);
  if (!on) return Semantics::get_method(frame, object, name, method);
  if (Py_TYPE(object)->tp_getattro == PyObject_GenericGetAttr) {
    PyObject* found = world.type_attr(Py_TYPE(object), name);
    if (found && PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
      PyObject* dict = world.instance_dict(object);
      PyObject* own = dict ? world.dict_get(dict, name) : nullptr;
      *method = Py_NewRef(own ? own : found);
      return own ? 0 : 1;
    }
  }
  *method = get_attr(frame, object, name);
  return *method ? 0 : -1;
}

int Recording::get_special(Frame& frame, PyObject* object, PyObject* name, PyObject** method) {
  if (on) note_special(object, name);
  return Semantics::get_special(frame, object, name, method);
}

/// Can tensor.grad = value be repeated at the region's end, without an error that it does not have now? A
/// leaf that the region makes is given it where it is made again.
bool Recording::can_set_grad(Frame& frame, PyObject* tensor, PyObject* value) {
  auto is_leaf = [&] {
    const PyRef base = PyRef::steal(guard::base_of(tensor));
    return hooks_.knows(tensor) && guard::requires_grad(tensor) && guard::is_autograd_leaf(tensor) &&
           !(base && guard::requires_grad(base.get()));
  };
  if (!world.find(tensor) && !is_leaf()) return false;
  if (!value || (value != Py_None && !guard::is_tensor(value))) return false;
  end_if_overridden(frame, tensor);
  if (!on || value == Py_None) return on;
  if (world.late(value)) return false;
  end_if_overridden(frame, value);
  for (PyObject* each : {tensor, value})  // which must be the same
    if (on) world.use_sizes(each);
  if (on) world.compared(tensor, value);
  return on;
}

/// tensor.data = value: from then on the recorder takes it for another tensor, detached from `value`, and the
/// region's end gives that to the user's. False: the region has ended, or this is nothing of the kind.
bool Recording::set_data(Frame& frame, PyObject* tensor, PyObject* value, int* status) {
  if (!world.find(tensor) || !value || !guard::is_tensor(value) || world.late(value) ||
      world.is_awaited(tensor))
    return false;
  end_if_overridden(frame, tensor);
  if (on) end_if_overridden(frame, value);
  if (!on || !guard::may_be_given_data(tensor, value)) return false;
  world.compared(tensor, value);
  mark(frame);
  PyObject* name = interned<"detach">();
  const PyRef data = PyRef::steal(PyObject_CallMethodNoArgs(value, name));
  if (!data) return *status = -1, true;
  hooks_.own_version(data.get());
  end_if_wanted(frame);
  if (!on) return false;
  *status = hooks_.unseen([&] {  // setting it runs an operator, which compares the two
    PyRef before = PyRef::steal(PyObject_CallMethodNoArgs(tensor, name));
    return before ? world.writes.set_data(tensor, data.get(), std::move(before)) : -1;
  });
  if (*status == 0 && !hooks_.given_data(tensor, data.get()))
    world.distrust("a tensor was given data that are not on the tape");
  return true;
}

int Recording::generic_set(Frame& frame, PyObject* object, PyObject* name, PyObject* value) {
  PyObject* found = world.type_attr(Py_TYPE(object), name);
  if (value && PyBool_Check(value) && guard::is_tensor(object) && same_text(name, "requires_grad") &&
      require_grad(frame, object, value == Py_True))
    return 0;
  if (PyErr_Occurred()) return -1;
  if (found && Py_TYPE(found)->tp_descr_set) {
    const PyMemberDef* member = object_member(found);
    if (member && !(member->flags & READONLY))
      world.writes.about_to_write_field(object, member->offset);
    else if (has_exact_type(found, &PyGetSetDescr_Type) && guard::is_tensor(object) &&
             same_text(name, "grad") && can_set_grad(frame, object, value))
      return world.writes.set_grad(object, value);
    else if (int status = 0; has_exact_type(found, &PyGetSetDescr_Type) && guard::is_tensor(object) &&
                             same_text(name, "data") && set_data(frame, object, value, &status))
      return status;
    else if (has_exact_type(found, &PyGetSetDescr_Type) && (world.find(object) || guard::is_tensor(object)))
      end_at_switch(frame, {Why::attribute_set, PyUnicode_AsUTF8(name), Py_TYPE(object)->tp_name});
    else if (PyObject* setter = value ? property_setter(found) : nullptr) {
      world.pin(setter);
      PyObject* args[] = {object, value};
      return PyRef::steal(call(frame, setter, args, 2, nullptr)) ? 0 : -1;
    }
    if (value && same_text(name, "__dict__")) world.followed_keys.note_namespace(value);
    // Not PyObject_SetAttr: object.__setattr__ goes past a class's own (frozen dataclasses rely on it).
    return PyObject_GenericSetAttr(object, name, stored(value));
  }
  if (PyObject* dict = world.instance_dict(object)) {
    if (!value) world.dict_get(dict, name);
    world.writes.about_to_write_item(dict, name, !value);
  }
  return PyObject_GenericSetAttr(object, name, stored(value));
}

/// Special methods are more than attributes.
bool Recording::can_set_on_class(PyObject* object, PyObject* name) {
  auto* cls = reinterpret_cast<PyTypeObject*>(object);
  if (!PyType_Check(object) || Py_TYPE(object)->tp_setattro != PyType_Type.tp_setattro ||
      !is_python_class(cls) || PyUnicode_Tailmatch(name, interned<"__">(), 0, PY_SSIZE_T_MAX, -1) != 0)
    return false;
  PyObject* of_meta = world.type_attr(Py_TYPE(object), name);
  return !of_meta || !Py_TYPE(of_meta)->tp_descr_set;
}

int Recording::set_attr(Frame& frame, PyObject* object, PyObject* name, PyObject* value) {
  if (!on) return Semantics::set_attr(frame, object, name, value);
  setattrofunc set = Py_TYPE(object)->tp_setattro;
  if (set == python_slots.set_attr) {
    PyObject* method = world.type_attr(Py_TYPE(object), names_of.setattr_);
    const bool generic = method && has_exact_type(method, &PyWrapperDescr_Type) &&
                         reinterpret_cast<PyWrapperDescrObject*>(method)->d_wrapped ==
                             reinterpret_cast<void*>(PyObject_GenericSetAttr);
    if (generic && !PyType_Check(object)) return generic_set(frame, object, name, value);
    if (!method || generic || PyFunction_Check(method))
      return Semantics::set_attr(frame, object, name, value);
    // Some other function of C.
    return PyRef::steal(interp::call_required(*this, frame, object, names_of.setattr_, {name, value})) ? 0
                                                                                                       : -1;
  }
  if (set == PyObject_GenericSetAttr && !PyType_Check(object)) {
    PyObject* found = world.type_attr(Py_TYPE(object), name);
    descrsetfunc store = found ? Py_TYPE(found)->tp_descr_set : nullptr;
    if (store && store == python_slots.descr_set) {
      note_special(found, names_of.set_);
      return Semantics::set_attr(frame, object, name, value);
    }
    return generic_set(frame, object, name, value);
  }
  if (can_set_on_class(object, name)) {
    world.writes.about_to_write_class(reinterpret_cast<PyTypeObject*>(object), name);
    return Semantics::set_attr(frame, object, name, stored(value));
  }
  end_here(frame, {Why::any_attribute_set, Py_TYPE(object)->tp_name});
  return Semantics::set_attr(frame, object, name, stored(value));
}

int Recording::delete_attr(Frame& frame, PyObject* object, PyObject* name) {
  if (!on) return Semantics::delete_attr(frame, object, name);
  setattrofunc set = Py_TYPE(object)->tp_setattro;
  if (set == python_slots.set_attr) {
    PyObject* method = world.type_attr(Py_TYPE(object), names_of.delattr_);
    if (method && PyFunction_Check(method)) return Semantics::delete_attr(frame, object, name);
  } else if (set != PyObject_GenericSetAttr) {
    end_here(frame, {Why::any_attribute_deleted, Py_TYPE(object)->tp_name});
    return Semantics::delete_attr(frame, object, name);
  }
  PyObject* found = world.type_attr(Py_TYPE(object), name);
  if (found && Py_TYPE(found)->tp_descr_set) end_here(frame, Why::descriptor_deletes);
  if (PyObject* dict = world.instance_dict(object)) {
    world.dict_get(dict, name);
    if (on) world.writes.about_to_write_item(dict, name, true);
  }
  return PyObject_GenericSetAttr(object, name, nullptr);
}

}  // namespace bolt::observe
