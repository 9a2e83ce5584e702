// interp/observe/special_calls.cpp
// Calls of built-ins that are operations of Semantics in disguise: getattr, len, isinstance, dict.get, ...

#include <unordered_map>

#include "interp/generator.h"
#include "interp/observe/native_watch.h"
#include "interp/observe/recording.h"
#include "interp/special.h"
#include "interp/thread.h"

namespace bolt::observe {
namespace {

using interp::names_of;

struct Call {
  Recording& recording;
  Frame& frame;
  PyObject* const* args;
  size_t nargs;
  PyObject* kwnames;
};

/// A handler gives the result, or null without an exception: let the native function do it.
using Handler = PyObject* (*)(const Call&);

PyObject* none_if(int status) { return status < 0 ? nullptr : Py_NewRef(Py_None); }
PyObject* boolean(int status) { return status < 0 ? nullptr : Py_NewRef(status ? Py_True : Py_False); }

/// What getattr() and the like are given, without a class of the user's on top of str.
PyRef attribute_name(PyObject* given) {
  PyRef plain = guard::plain_value(given);
  return plain ? std::move(plain) : PyRef::share(given);
}

PyObject* get_attribute(const Call& c) {
  if (c.nargs < 2 || c.nargs > 3 || c.kwnames || !PyUnicode_Check(c.args[1])) return nullptr;
  PyObject* value = c.recording.get_attr(c.frame, c.args[0], attribute_name(c.args[1]).get());
  if (value || c.nargs < 3 || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  return Py_NewRef(c.args[2]);
}

PyObject* has_attribute(const Call& c) {
  if (c.nargs != 2 || !PyUnicode_Check(c.args[1])) return nullptr;
  PyRef value = PyRef::steal(c.recording.get_attr(c.frame, c.args[0], attribute_name(c.args[1]).get()));
  if (value) Py_RETURN_TRUE;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  Py_RETURN_FALSE;
}

PyObject* set_attribute(const Call& c) {
  if (c.nargs != 3) return nullptr;
  return none_if(c.recording.set_attr(c.frame, c.args[0], attribute_name(c.args[1]).get(), c.args[2]));
}

PyObject* delete_attribute(const Call& c) {
  if (c.nargs != 2) return nullptr;
  return none_if(c.recording.delete_attr(c.frame, c.args[0], attribute_name(c.args[1]).get()));
}

PyObject* generic_get(const Call& c) {
  return c.nargs == 2 ? c.recording.generic_get(c.frame, c.args[0], c.args[1]) : nullptr;
}

/// Of classes it is refused.
PyObject* generic_set(const Call& c) {
  return c.nargs == 3 && !PyType_Check(c.args[0])
             ? none_if(c.recording.generic_set(c.frame, c.args[0], c.args[1], c.args[2]))
             : nullptr;
}

PyObject* generic_delete(const Call& c) {
  return c.nargs == 2 && !PyType_Check(c.args[0])
             ? none_if(c.recording.generic_set(c.frame, c.args[0], c.args[1], nullptr))
             : nullptr;
}

PyObject* check_class(const Call& c, const char* hook_name) {
  if (c.nargs != 2) return nullptr;
  PyRef name = PyRef::steal(PyUnicode_InternFromString(hook_name));
  PyObject* cls = c.args[1];
  if (PyTuple_Check(cls)) {
    c.recording.world.read_deep(cls);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cls); ++i) {
      PyObject* pair[] = {c.args[0], PyTuple_GET_ITEM(cls, i)};
      PyRef one = PyRef::steal(check_class({c.recording, c.frame, pair, 2, nullptr}, hook_name));
      auto* natively = hook_name[2] == 'i' ? PyObject_IsInstance : PyObject_IsSubclass;
      if (!one && !PyErr_Occurred()) one = PyRef::steal(boolean(natively(pair[0], pair[1])));
      if (!one || one.get() == Py_True) return one.release();
    }
    Py_RETURN_FALSE;
  }
  PyObject* hook = c.recording.world.type_attr(Py_TYPE(cls), name.get());
  if (reinterpret_cast<PyObject*>(Py_TYPE(c.args[0])) == cls && hook_name[2] == 'i') Py_RETURN_TRUE;
  if (!hook || !PyFunction_Check(hook)) return nullptr;
  PyRef answer = PyRef::steal(interp::call_required(c.recording, c.frame, cls, name.get(), {c.args[0]}));
  return answer ? boolean(c.recording.truth(c.frame, answer.get())) : nullptr;
}

PyObject* is_instance(const Call& c) {
  if (c.nargs) c.recording.world.note_bases(Py_TYPE(c.args[0]));
  PyObject* answer = check_class(c, "__instancecheck__");
  if (answer || PyErr_Occurred() || c.nargs != 2) return answer;
  NativeWatch watch(c.recording.hooks());
  answer = boolean(PyObject_IsInstance(c.args[0], c.args[1]));
  if (!watch.seen().empty()) c.recording.met_unseen(watch.seen());
  return answer;
}

PyObject* is_subclass(const Call& c) {
  if (c.nargs && PyType_Check(c.args[0]))
    c.recording.world.note_bases(reinterpret_cast<PyTypeObject*>(c.args[0]));
  return check_class(c, "__subclasscheck__");
}

/// The answers of abstract base classes rest on what is registered with them, too.
PyObject* ask_abstract_class(const Call& c) {
  for (size_t i = 0; i < c.nargs; ++i) {
    const bool cls = PyType_Check(c.args[i]);
    c.recording.world.note_bases(cls ? reinterpret_cast<PyTypeObject*>(c.args[i]) : Py_TYPE(c.args[i]));
  }
  PyRef registry = PyRef::steal(bolt::import_module("_abc"));
  PyRef token = PyRef::steal(registry ? PyObject_GetAttrString(registry.get(), "get_cache_token") : nullptr);
  if (!token || !c.recording.ask(token.get(), nullptr, 0)) c.recording.world.distrust("abc has changed");
  return PyErr_Clear(), nullptr;
}

/// Does a format string ask for attributes ("{0.name}")?
bool asks_for_attributes(std::string_view format) {
  bool in_name = false;
  for (const char each : format) {
    if (in_name && each == '.') return true;
    in_name = each == '{' || (in_name && each != '}' && each != ':' && each != '!');
  }
  return false;
}

PyObject* format_fields(const Call& c) {
  const size_t total = c.nargs + (c.kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(c.kwnames)) : 0);
  const char* format = PyUnicode_Check(c.args[0]) ? PyUnicode_AsUTF8(c.args[0]) : nullptr;
  if (!format || asks_for_attributes(format))
    c.recording.end_here(c.frame, "a format string asks for attributes");
  PyErr_Clear();
  for (size_t i = 0; c.recording.on && i < total; ++i) {
    c.recording.world.use(c.args[i]);
    c.recording.touch(c.frame, c.args[i], true);
  }
  return nullptr;
}

PyObject* length(const Call& c) {
  if (c.nargs != 1) return nullptr;
  if (c.recording.world.follows() && guard::is_tensor(c.args[0]) &&
      guard::rank_of(*guard::tensor_impl(c.args[0])) > 0)
    return c.recording.world.tensor_size(c.args[0], 0);
  Py_ssize_t n = c.recording.length(c.frame, c.args[0]);
  return n < 0 ? nullptr : PyLong_FromSsize_t(n);
}

PyObject* iterate(const Call& c) { return c.nargs == 1 ? c.recording.get_iter(c.frame, c.args[0]) : nullptr; }

PyObject* next_item(const Call& c) {
  if (c.nargs < 1 || c.nargs > 2 || c.kwnames || !Py_TYPE(c.args[0])->tp_iternext) return nullptr;
  PyObject* value = c.recording.iter_next(c.frame, c.args[0]);
  if (value || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_StopIteration))) return value;
  if (c.nargs > 1) {
    PyErr_Clear();
    return Py_NewRef(c.args[1]);
  }
  if (!PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
  return nullptr;
}

PyObject* text(const Call& c) {
  if (c.nargs != 1 || c.kwnames) return nullptr;
  // Formatting makes a str of what __str__ gives; str() leaves it what it is.
  PyTypeObject* type = Py_TYPE(c.args[0]);
  PyObject* method =
      interp::is_python_class(type) ? c.recording.world.type_attr(type, names_of.str_) : nullptr;
  if (method && PyFunction_Check(method)) {
    PyRef made = PyRef::steal(interp::call_required(c.recording, c.frame, c.args[0], names_of.str_, {}));
    if (made && !PyUnicode_Check(made.get()))
      PyErr_Format(PyExc_TypeError, "__str__ returned non-string (type %.200s)",
                   Py_TYPE(made.get())->tp_name);
    return made && PyUnicode_Check(made.get()) ? made.release() : nullptr;
  }
  return c.recording.format_value(c.frame, c.args[0], 1, nullptr);
}

PyObject* representation(const Call& c) {
  return c.nargs == 1 ? c.recording.format_value(c.frame, c.args[0], 2, nullptr) : nullptr;
}

PyObject* formatted(const Call& c) {
  if (!c.nargs || c.nargs > 2 || c.kwnames || (c.nargs == 2 && !PyUnicode_Check(c.args[1]))) return nullptr;
  return c.recording.format_value(c.frame, c.args[0], 0, c.nargs > 1 ? c.args[1] : nullptr);
}

/// Without a spec it is str(); with one, an error that object words.
PyObject* object_format(const Call& c) {
  const bool plain =
      c.nargs == 2 && !c.kwnames && PyUnicode_Check(c.args[1]) && !PyUnicode_GET_LENGTH(c.args[1]);
  return plain ? c.recording.format_value(c.frame, c.args[0], 1, nullptr) : nullptr;
}

PyObject* class_of(const Call& c) {
  if (c.nargs != 1) return nullptr;
  PyTypeObject* type = interp::is_interpreted_generator(c.args[0]) ? &PyGen_Type : Py_TYPE(c.args[0]);
  return Py_NewRef(reinterpret_cast<PyObject*>(type));
}

PyObject* hash_of(const Call& c) {
  if (c.nargs != 1) return nullptr;
  c.recording.world.use(c.args[0]);
  PyObject* method = c.recording.world.type_attr(Py_TYPE(c.args[0]),
                                                 PyRef::steal(PyUnicode_InternFromString("__hash__")).get());
  if (method && PyFunction_Check(method)) {
    PyRef name = PyRef::steal(PyUnicode_InternFromString("__hash__"));
    return interp::call_required(c.recording, c.frame, c.args[0], name.get(), {});
  }
  c.recording.touch(c.frame, c.args[0], true);
  Py_hash_t hash = PyObject_Hash(c.args[0]);
  return hash == -1 ? nullptr : PyLong_FromSsize_t(hash);
}

/// CPython looks into the cells by itself.
PyObject* all_locals(const Call& c) {
  for (int i = 0; i < c.frame.local_count(); ++i)
    if (PyObject* local = c.frame.locals()[i]; local && PyCell_Check(local))
      c.recording.world.cell_get(local);
  return nullptr;
}

/// An identity is good for comparing and as a key of a memo; that is all the recording allows for (see
/// World::identified).
PyObject* identity_of(const Call& c) {
  if (c.nargs != 1) return nullptr;
  PyObject* id = PyLong_FromVoidPtr(c.args[0]);
  if (!id) return nullptr;
  c.recording.world.identified(c.args[0], id);
  c.recording.note_given(c.frame, id);
  return id;
}

PyObject* compare_identity(const Call& c) {
  if (c.nargs == 2) c.recording.world.compared(c.args[0], c.args[1]);
  return nullptr;
}

/// object.__ne__ is what `__eq__` says, turned round.
PyObject* not_equal(const Call& c) {
  if (c.nargs != 2) return nullptr;
  c.recording.world.compared(c.args[0], c.args[1]);
  PyRef name = PyRef::steal(PyUnicode_InternFromString("__eq__"));
  PyObject* method = c.recording.world.type_attr(Py_TYPE(c.args[0]), name.get());
  if (!method || !PyFunction_Check(method)) return nullptr;
  PyRef answer =
      PyRef::steal(interp::call_required(c.recording, c.frame, c.args[0], name.get(), {c.args[1]}));
  if (!answer || answer.get() == Py_NotImplemented) return answer.release();
  const int equal = c.recording.truth(c.frame, answer.get());
  return equal < 0 ? nullptr : boolean(!equal);
}

PyObject* truth_of(const Call& c) {
  return c.nargs == 1 && !c.kwnames ? boolean(c.recording.truth(c.frame, c.args[0])) : nullptr;
}

/// reversed() of an object with a length and items in Python, and no `__reversed__`.
PyObject* reversed_items(const Call& c) {
  if (c.nargs != 1 || c.kwnames) return nullptr;
  PyObject* sequence = c.args[0];
  c.recording.touch(c.frame, sequence);
  PyRef name = PyRef::steal(PyUnicode_InternFromString("__reversed__"));
  if (!interp::is_heap_type(Py_TYPE(sequence)) || c.recording.world.type_attr(Py_TYPE(sequence), name.get()))
    return nullptr;
  PyObject* item_method = c.recording.world.type_attr(Py_TYPE(sequence), names_of.getitem_);
  if (!item_method || !PyFunction_Check(item_method)) return nullptr;
  const Py_ssize_t n = c.recording.length(c.frame, sequence);
  PyRef items = PyRef::steal(n < 0 ? nullptr : PyList_New(0));
  for (Py_ssize_t i = n - 1; items && i >= 0; --i) {
    PyRef index = PyRef::steal(PyLong_FromSsize_t(i));
    PyRef item = PyRef::steal(c.recording.get_item(c.frame, sequence, index.get()));
    const bool ends =
        !item && (PyErr_ExceptionMatches(PyExc_IndexError) || PyErr_ExceptionMatches(PyExc_StopIteration));
    if (ends) {
      PyErr_Clear();
      break;
    }
    if (!item || PyList_Append(items.get(), item.get()) < 0) return nullptr;
  }
  return items ? PyObject_GetIter(items.get()) : nullptr;
}

/// Contexts of C++ that change what operators do. Inference mode is recorded with them and guarded; the rest
/// is not.
PyObject* native_context(const Call& c) {
  if (!c.nargs || std::string(Py_TYPE(c.args[0])->tp_name) != "torch._C._InferenceMode")
    c.recording.end_here(c.frame, "a context of torch's C++ is entered or left");
  return nullptr;
}

/// functools.cached_property guards its dict with a lock, which a compiled call has no need of, unless the
/// region ends while it is held.
bool is_lock_of_functools(const Call& c) {
  PyObject* module = PyDict_GetItemString(c.frame.func()->func_globals, "__name__");
  return module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "functools") == 0;
}

PyObject* enter_lock(const Call& c) {
  if (is_lock_of_functools(c) && c.nargs == 1)
    c.recording.world.locks.push_back(PyRef::share(c.args[0]));
  else
    c.recording.end_here(c.frame, "a lock is used");
  return nullptr;
}

PyObject* leave_lock(const Call& c) {
  auto& locks = c.recording.world.locks;
  if (is_lock_of_functools(c) && c.nargs && !locks.empty() && locks.back().get() == c.args[0])
    locks.pop_back();
  else
    c.recording.end_here(c.frame, "a lock is released");
  return nullptr;
}

/// What an import statement does. Of the globals it is given it reads the package's name only. Python code
/// that finds and runs a module does so once in a process.
PyObject* import_module(const Call& c) {
  if (!c.nargs || c.nargs > 5 || c.kwnames || (c.nargs == 5 && !PyLong_Check(c.args[4]))) return nullptr;
  PyObject* const globals = c.nargs > 1 ? c.args[1] : nullptr;
  PyObject* const from = c.nargs > 3 ? c.args[3] : nullptr;
  const int level = c.nargs > 4 ? static_cast<int>(PyLong_AsLong(c.args[4])) : 0;
  const NativeWatch::Pause pause;
  PyObject* module = PyImport_ImportModuleLevelObject(c.args[0], globals, nullptr, from, level);
  c.recording.world.imported(module);
  return module;
}

PyObject* nothing_read(const Call&) { return nullptr; }

PyObject* dict_get(const Call& c) {
  if (c.nargs < 2 || c.nargs > 3 || c.kwnames || !PyDict_Check(c.args[0])) return nullptr;
  PyObject* value = c.recording.world.dict_get(c.args[0], c.args[1]);
  if (!value && PyErr_Occurred()) return nullptr;
  return Py_NewRef(value ? value : c.nargs > 2 ? c.args[2] : Py_None);
}

PyObject* dict_contains(const Call& c) {
  if (c.nargs != 2 || !PyDict_Check(c.args[0])) return nullptr;
  PyObject* value = c.recording.world.dict_get(c.args[0], c.args[1]);
  return PyErr_Occurred() ? nullptr : boolean(value != nullptr);
}

PyObject* dict_subscript(const Call& c) {
  PyObject* value =
      c.nargs == 2 && PyDict_Check(c.args[0]) ? c.recording.world.dict_get(c.args[0], c.args[1]) : nullptr;
  PyErr_Clear();
  return Py_XNewRef(value);
}

/// A read of the key, then maybe a write.
PyObject* read_then_write(const Call& c, bool writes_what_is_there) {
  if (c.nargs < 2 || !PyDict_Check(c.args[0])) return nullptr;
  PyObject* there = c.recording.world.dict_get(c.args[0], c.args[1]);
  c.recording.world.use(there);
  PyErr_Clear();
  if (writes_what_is_there == (there != nullptr))
    c.recording.world.about_to_write_item(c.args[0], c.args[1], there != nullptr);
  return nullptr;
}
PyObject* dict_pop(const Call& c) { return read_then_write(c, true); }
PyObject* dict_set_default(const Call& c) { return read_then_write(c, false); }

/// Thread state that a region leaves as it found it needs no guard of its own (see ThreadState).
PyObject* set_state(const Call& c) {
  c.recording.mark(c.frame);
  return nullptr;
}

PyObject* tensor_of_class(const Call& c) {
  const bool usual = !c.kwnames && (c.nargs == 2 || (c.nargs == 3 && PyBool_Check(c.args[2])));
  if (usual)
    return c.recording.make_subclass(c.frame, c.args[0], c.args[1], c.nargs == 3 && c.args[2] == Py_True);
  c.recording.end_here(c.frame, "calls torch.Tensor._make_subclass with further arguments");
  return nullptr;
}

PyObject* require_gradient(const Call& c) {
  const bool named = c.kwnames && PyTuple_GET_SIZE(c.kwnames) == 1;
  PyObject* yes = c.nargs == 1 && !named ? Py_True : c.nargs + named == 2 ? c.args[1] : nullptr;
  if (yes && PyBool_Check(yes) && c.recording.require_grad(c.frame, c.args[0], yes == Py_True))
    return Py_NewRef(c.args[0]);
  if (!PyErr_Occurred()) c.recording.end_here(c.frame, "calls torch.Tensor.requires_grad_");
  return nullptr;
}

/// object.__reduce_ex__ of an instance whose class leaves everything to the default (copy.copy and deepcopy
/// ask for it): the answer is made of the instance's own dict, whose reads are then guarded like any.
PyObject* reduce_plain_instance(const Call& c) {
  if (c.nargs != 2 || !PyLong_Check(c.args[1]) || PyLong_AsLong(c.args[1]) < 2) return PyErr_Clear(), nullptr;
  PyObject* object = c.args[0];
  PyTypeObject* type = Py_TYPE(object);
  PyObject** dict_slot = _PyObject_GetDictPtr(object);
  if (!interp::is_heap_type(type) || type->tp_itemsize || !dict_slot) return nullptr;
  if (PyList_Check(object) || PyDict_Check(object)) return nullptr;
  static PyTypeObject* const plain = [] {  // dict and weak references, nothing else
    PyObject* made = PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Plain");
    return reinterpret_cast<PyTypeObject*>(made);
  }();
  if (!plain || type->tp_basicsize != plain->tp_basicsize) return nullptr;
  for (const char* hook : {"__getnewargs__", "__getnewargs_ex__", "__reduce__", "__getstate__"}) {
    PyRef name = PyRef::steal(PyUnicode_InternFromString(hook));
    PyObject* found = c.recording.world.type_attr(type, name.get());
    if (found && found != PyDict_GetItem(interp::type_dict(&PyBaseObject_Type), name.get())) return nullptr;
  }
  PyRef registry = PyRef::steal(bolt::import_module("copyreg"));
  PyRef make = PyRef::steal(registry ? PyObject_GetAttrString(registry.get(), "__newobj__") : nullptr);
  if (!make) return nullptr;
  c.recording.world.pin(make.get());
  PyObject* dict = c.recording.world.instance_dict(object);
  return Py_BuildValue("O(O)OOO", make.get(), type, dict ? dict : Py_None, Py_None, Py_None);
}

PyObject* reduce(const Call& c) {
  PyObject* parts = reduce_plain_instance(c);
  if (!parts && !PyErr_Occurred() && c.nargs && c.recording.world.find(c.args[0]))
    c.recording.end_here(c.frame,
                         std::string("a ") + Py_TYPE(c.args[0])->tp_name + " from outside is reduced");
  return parts;
}

/// What an operator.itemgetter or attrgetter asks for, as a tuple. Null: let the native function do it, after
/// the region's end where what it holds cannot be guarded. The getter itself cannot change.
PyRef asked_for(const Call& c) {
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
      c.recording.end_here(c.frame, std::string("calls an ") + Py_TYPE(getter)->tp_name +
                                        " from outside that holds an object");
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

PyObject* get_items(const Call& c) {
  return answers(asked_for(c), [&](PyObject* key) { return c.recording.get_item(c.frame, c.args[1], key); });
}

PyObject* get_attributes(const Call& c) {
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

PyObject* referent(const Call& c) {
  if (c.nargs != 1 || !PyWeakref_Check(c.args[0])) return nullptr;
  PyRef name = PyRef::steal(PyUnicode_InternFromString("referent"));
  return Py_XNewRef(c.recording.world.field(c.args[0], offsetof(PyWeakReference, wr_object), name.get()));
}

PyObject* set_item(const Call& c) {
  return c.nargs == 3 ? none_if(c.recording.set_item(c.frame, c.args[0], c.args[1], c.args[2])) : nullptr;
}

PyObject* delete_item(const Call& c) {
  return c.nargs == 2 ? none_if(c.recording.delete_item(c.frame, c.args[0], c.args[1])) : nullptr;
}

constexpr int kInPlace = 13;  ///< what BINARY_OP's number of `+=` is above that of `+`

/// The functions of module operator that are `+=` and the like.
template <int kOperator>
PyObject* in_place(const Call& c) {
  return c.nargs == 2 ? c.recording.binary_op(c.frame, kOperator, c.args[0], c.args[1]) : nullptr;
}

/// Which element comes first depends on where in the set the last pop() stopped.
PyObject* pop_any(const Call& c) {
  if (c.nargs && c.recording.world.find(c.args[0]))
    c.recording.end_here(c.frame, "pops an element of a set from outside");
  return nullptr;
}

/// One with a callback is there to be kept, in a table that forgets its entries.
PyObject* make_reference(const Call& c) {
  if (c.nargs > 1 && c.args[1] != Py_None)
    c.recording.end_here(c.frame, "a weak reference with a callback is made");
  return nullptr;
}

PyObject* context_get(const Call& c) {
  if (!c.nargs || !PyContextVar_CheckExact(c.args[0])) return nullptr;
  return Py_XNewRef(c.recording.world.context_value(c.args[0]));
}

PyObject* context_set(const Call& c) {
  if (c.nargs && PyContextVar_CheckExact(c.args[0])) c.recording.world.about_to_set_context(c.args[0]);
  return nullptr;
}

/// Reset by the end of the region (`try: token = v.set(x) ... finally: v.reset(token)`), it is no effect.
PyObject* context_reset(const Call& c) {
  if (c.nargs == 2 && PyContextVar_CheckExact(c.args[0]) &&
      !c.recording.world.about_to_reset_context(c.args[0], c.args[1]))
    c.recording.end_here(c.frame, "a context variable gets back what the region does not know");
  return nullptr;
}

const std::unordered_map<std::string, Handler> handlers = {
    {"builtins.getattr", get_attribute},
    {"builtins.hasattr", has_attribute},
    {"builtins.setattr", set_attribute},
    {"builtins.delattr", delete_attribute},
    {"builtins.isinstance", is_instance},
    {"builtins.issubclass", is_subclass},
    {"builtins.len", length},
    {"builtins.iter", iterate},
    {"builtins.next", next_item},
    {"builtins.repr", representation},
    {"builtins.format", formatted},
    {"builtins.hash", hash_of},
    {"builtins.id", identity_of},
    {"builtins.locals", all_locals},
    {"builtins.__import__", import_module},
    {"_operator.setitem", set_item},
    {"_operator.delitem", delete_item},
#define BINARY(name, cname, number, stem, ...) {"_operator.i" #stem, in_place<(number) + kInPlace>},
#include "interp/binary_ops.def"
#undef BINARY
    {"_operator.iconcat", in_place<kInPlace>},
    {"set.pop", pop_any},
    {"_abc._abc_instancecheck", ask_abstract_class},
    {"_abc._abc_subclasscheck", ask_abstract_class},
    {"type", class_of},
    {"str", text},
    {"object.__getattribute__", generic_get},
    {"object.__setattr__", generic_set},
    {"object.__delattr__", generic_delete},
    {"module.__getattribute__", generic_get},
    {"module.__setattr__", generic_set},
    {"method.__getattribute__", get_attribute},
    {"torch._C.TensorBase.__setattr__", generic_set},
    {"torch._C.TensorBase._make_subclass", tensor_of_class},
    {"torch._C.TensorBase.requires_grad_", require_gradient},
    {"torch._C.TensorBase.__getattribute__", generic_get},
    {"object.__eq__", compare_identity},
    {"object.__ne__", not_equal},
    {"bool", truth_of},
    {"str.format", format_fields},
    {"str.format_map", format_fields},
    {"reversed", reversed_items},
    {"torch._C.__enter__", native_context},
    {"torch._C.__exit__", native_context},
    {"_thread.RLock.__enter__", enter_lock},
    {"_thread.RLock.__exit__", leave_lock},
    {"object.__hash__", nothing_read},
    {"object.__repr__", nothing_read},
    {"object.__str__", representation},
    {"object.__reduce_ex__", reduce},
    {"object.__format__", object_format},
    {"dict.get", dict_get},
    {"dict.__contains__", dict_contains},
    {"dict.__getitem__", dict_subscript},
    {"dict.pop", dict_pop},
    {"dict.setdefault", dict_set_default},
    {"collections.OrderedDict.get", dict_get},
    {"collections.OrderedDict.__contains__", dict_contains},
    {"collections.OrderedDict.__getitem__", dict_subscript},
    {"collections.OrderedDict.pop", dict_pop},
    {"collections.OrderedDict.setdefault", dict_set_default},
    {"_contextvars.ContextVar.get", context_get},
    {"call.operator.attrgetter", get_attributes},
    {"call.operator.itemgetter", get_items},
    {"weakref.ReferenceType", make_reference},
    {"call.weakref.ReferenceType", referent},
    {"call.weakref.KeyedRef", referent},
    {"_contextvars.ContextVar.set", context_set},
    {"_contextvars.ContextVar.reset", context_reset},
};

}  // namespace

PyObject* call_specially(Recording& recording, Frame& frame, const CFunction& row, PyObject* const* args,
                         size_t nargs, PyObject* kwnames, bool* handled) {
  auto at = handlers.find(row.name);
  Call call{recording, frame, args, nargs, kwnames};
  *handled = true;
  // A __repr__ that is object's __str__, which asks for __repr__.
  if (interp::check_c_stack(interp::this_thread()) < 0) return nullptr;
  if (Py_EnterRecursiveCall(" while calling a Python object")) return nullptr;
  PyObject* result = (at == handlers.end() ? set_state : at->second)(call);
  Py_LeaveRecursiveCall();
  *handled = result || PyErr_Occurred();
  return result;
}

}  // namespace bolt::observe
