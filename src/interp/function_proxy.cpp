// interp/function_proxy.cpp
// A callable that stands for a Python function towards C code and brings the call back into this interpreter.
// So can an iterable whose class has an `__iter__` in Python be stood for, where C code asks for it later.

#include "interp/call.h"

#include <cstddef>

namespace bolt::interp {

namespace {

struct Proxy {
  PyObject_HEAD PyObject* target;  ///< the function; owned
  vectorcallfunc vectorcall;
};

Proxy* as_proxy(PyObject* object) { return reinterpret_cast<Proxy*>(object); }

PyObject* proxy_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* target = as_proxy(self)->target;
  Semantics* semantics = current_semantics();
  if (!semantics) return PyObject_Vectorcall(target, args, nargsf, kwnames);
  return call_function(target, args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames, *semantics);
}

PyObject* proxy_iter(PyObject* self) {
  PyObject* target = as_proxy(self)->target;
  Semantics* semantics = current_semantics();
  Frame* frame = semantics ? current_frame() : nullptr;
  return frame ? semantics->get_iter(*frame, target) : PyObject_GetIter(target);
}

/// For pickle, which finds functions by name and would have to find this object there: functions are their
/// own copies, so what is loaded is the function, also where Torchbolt is not known.
PyObject* proxy_reduce(PyObject* self, PyObject*) {
  PyObject* copies = PyImport_ImportModule("copy");
  PyObject* copy = copies ? PyObject_GetAttrString(copies, "copy") : nullptr;
  Py_XDECREF(copies);
  return copy ? Py_BuildValue("N(O)", copy, as_proxy(self)->target) : nullptr;
}

PyMethodDef reduces = {"__reduce_ex__", proxy_reduce, METH_O, nullptr};

PyObject* proxy_getattr(PyObject* self, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, reduces.ml_name) == 0) return PyCFunction_New(&reduces, self);
  return PyObject_GetAttr(as_proxy(self)->target, name);
}

int proxy_setattr(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(as_proxy(self)->target, name, value);
}

PyObject* proxy_repr(PyObject* self) { return PyObject_Repr(as_proxy(self)->target); }
Py_hash_t proxy_hash(PyObject* self) { return PyObject_Hash(as_proxy(self)->target); }

PyObject* proxy_compare(PyObject* self, PyObject* other, int op) {
  PyObject* target = interpreted_function_target(other);
  return PyObject_RichCompare(as_proxy(self)->target, target ? target : other, op);
}

int proxy_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_proxy(self)->target);
  return 0;
}

int proxy_clear(PyObject* self) {
  Py_CLEAR(as_proxy(self)->target);
  return 0;
}

void proxy_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  proxy_clear(self);
  PyObject_GC_Del(self);
}

PyTypeObject proxy_type{};

}  // namespace

PyObject* make_interpreted_function(PyObject* function) {
  Proxy* proxy = PyObject_GC_New(Proxy, &proxy_type);
  if (!proxy) return nullptr;
  proxy->target = Py_NewRef(function);
  proxy->vectorcall = proxy_call;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(proxy));
  return reinterpret_cast<PyObject*>(proxy);
}

PyObject* interpreted_function_target(PyObject* object) {
  return Py_IS_TYPE(object, &proxy_type) ? as_proxy(object)->target : nullptr;
}

int init_function_proxy() {
  if (proxy_type.tp_name) return 0;
  Py_SET_REFCNT(&proxy_type, 1);
  proxy_type.tp_name = "torchbolt.interpreted_function";
  proxy_type.tp_basicsize = sizeof(Proxy);
  proxy_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  proxy_type.tp_vectorcall_offset = offsetof(Proxy, vectorcall);
  proxy_type.tp_call = PyVectorcall_Call;
  proxy_type.tp_iter = proxy_iter;
  proxy_type.tp_getattro = proxy_getattr;
  proxy_type.tp_setattro = proxy_setattr;
  proxy_type.tp_repr = proxy_repr;
  proxy_type.tp_hash = proxy_hash;
  proxy_type.tp_richcompare = proxy_compare;
  proxy_type.tp_traverse = proxy_traverse;
  proxy_type.tp_clear = proxy_clear;
  proxy_type.tp_dealloc = proxy_dealloc;
  return PyType_Ready(&proxy_type);
}

}  // namespace bolt::interp
