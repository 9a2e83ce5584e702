// observe/calls/special_classes.cpp
// See special_calls.h. What an object is, and whether it is another.
#include "interp/generator.h"
#include "interp/special.h"
#include "observe/calls/native_watch.h"
#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

PyObject* check_class(const SpecialCall& c, const char* hook_name) {
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

PyObject* is_instance(const SpecialCall& c) {
  if (c.nargs) c.recording.world.note_bases(Py_TYPE(c.args[0]));
  PyObject* answer = check_class(c, "__instancecheck__");
  if (answer || PyErr_Occurred() || c.nargs != 2) return answer;
  NativeWatch watch(c.recording.hooks());
  answer = boolean(PyObject_IsInstance(c.args[0], c.args[1]));
  if (!watch.seen().empty()) c.recording.met_unseen(watch.seen(), false);
  return answer;
}

PyObject* is_subclass(const SpecialCall& c) {
  if (c.nargs && PyType_Check(c.args[0]))
    c.recording.world.note_bases(reinterpret_cast<PyTypeObject*>(c.args[0]));
  return check_class(c, "__subclasscheck__");
}

/// The answers of abstract base classes rest on what is registered with them, too.
PyObject* ask_abstract_class(const SpecialCall& c) {
  for (size_t i = 0; i < c.nargs; ++i) {
    const bool cls = PyType_Check(c.args[i]);
    c.recording.world.note_bases(cls ? reinterpret_cast<PyTypeObject*>(c.args[i]) : Py_TYPE(c.args[i]));
  }
  PyRef registry = PyRef::steal(bolt::import_module("_abc"));
  PyRef token = PyRef::steal(registry ? PyObject_GetAttrString(registry.get(), "get_cache_token") : nullptr);
  if (!token || !c.recording.ask(token.get(), nullptr, 0)) c.recording.world.distrust("abc has changed");
  return PyErr_Clear(), nullptr;
}

PyObject* type_of_argument(const SpecialCall& c) {
  if (c.nargs != 1) return nullptr;
  PyTypeObject* type = interp::is_interpreted_generator(c.args[0]) ? &PyGen_Type : Py_TYPE(c.args[0]);
  return Py_NewRef(reinterpret_cast<PyObject*>(type));
}

/// An identity is good for comparing and as a key of a memo; that is all the recording allows for (see
/// World::identified).
PyObject* identity_of(const SpecialCall& c) {
  if (c.nargs != 1) return nullptr;
  PyObject* id = PyLong_FromVoidPtr(c.args[0]);
  if (!id) return nullptr;
  c.recording.world.identified(c.args[0], id);
  c.recording.note_given(c.frame, id);
  return id;
}

PyObject* compare_identity(const SpecialCall& c) {
  if (c.nargs == 2) c.recording.world.compared(c.args[0], c.args[1]);
  return nullptr;
}

/// object.__ne__ is what `__eq__` says, turned round.
PyObject* not_equal(const SpecialCall& c) {
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

PyObject* hash_of(const SpecialCall& c) {
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

PyObject* truth_of(const SpecialCall& c) {
  return c.nargs == 1 && !c.kwnames ? boolean(c.recording.truth(c.frame, c.args[0])) : nullptr;
}

PyObject* nothing_read(const SpecialCall&) { return nullptr; }

}  // namespace

void add_class_calls(SpecialCalls& table) {
  table.insert({
      {"builtins.isinstance", is_instance},
      {"builtins.issubclass", is_subclass},
      {"builtins.hash", hash_of},
      {"builtins.id", identity_of},
      {"_abc._abc_instancecheck", ask_abstract_class},
      {"_abc._abc_subclasscheck", ask_abstract_class},
      {"type", type_of_argument},
      {"object.__eq__", compare_identity},
      {"object.__ne__", not_equal},
      {"bool", truth_of},
      {"object.__hash__", nothing_read},
      {"object.__repr__", nothing_read},
  });
}

}  // namespace bolt::observe
