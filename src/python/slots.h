// python/slots.h
// A class -> which of its operations run Python code, and the names of the special methods that do.
//
// CPython fills a class's C slots (nb_add, tp_getattro, ...) with its own functions when the class defines
// the special method in Python. Those functions are private, but they are the same for all classes: we read
// them once from a class that defines everything. So "would this operation enter Python code?" is one pointer
// comparison, and all other objects take CPython's own road.
#pragma once

#include "python/compat.h"

namespace bolt {

/// CPython's slot functions for special methods written in Python.
struct PythonSlots {
  binaryfunc binary[13];   ///< by Binary number
  binaryfunc inplace[13];  ///< the same for += ...
  unaryfunc negative, positive, invert;
  inquiry boolean;
  lenfunc length;
  binaryfunc get_item;
  objobjargproc set_item;
  objobjproc contains;
  richcmpfunc compare;
  getattrofunc get_attr;       ///< a class with only `__getattribute__`
  getattrofunc get_attr_hook;  ///< a class with `__getattr__`
  setattrofunc set_attr;
  descrgetfunc descr_get;
  descrsetfunc descr_set;
  getiterfunc iter;
  iternextfunc next;
  ternaryfunc call;
  initproc init;
  newfunc make;
  destructor dealloc;  ///< of every class that a class statement made
  reprfunc str, repr;
  unaryfunc await, async_iter, async_next;
  descrgetfunc property_get;  ///< not a Python slot: that of `property`
  descrsetfunc property_set;
};

extern PythonSlots python_slots;

/// Interned names of special methods: names_of.len_ is "__len__".
struct SpecialNames {
#define SPECIAL(name) PyObject* name##_;
#include "python/special_names.def"
#undef SPECIAL
  PyObject* binary[13];     ///< "__add__" by Binary number
  PyObject* reflected[13];  ///< "__radd__"
  PyObject* inplace[13];    ///< "__iadd__"
  PyObject* compare[6];     ///< "__lt__" by Py_LT ...
};

extern SpecialNames names_of;

/// Fills both tables; call once. -1 with an exception set.
int init_special();

inline bool is_heap_type(PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; }
/// PyCFunction_Check without a search through bases: no class in Python can be derived from this one.
inline bool is_builtin_function(PyObject* object) {
  return Py_IS_TYPE(object, &PyCFunction_Type) || Py_TYPE(object)->tp_base == &PyCFunction_Type;
}
/// Made by a class statement. Many classes of C are on the heap as well, more with each version of Python.
inline bool is_python_class(PyTypeObject* type) {
  return is_heap_type(type) && type->tp_dealloc == python_slots.dealloc;
}
/// The class of C that a class is or is derived from.
inline PyTypeObject* class_of_c(PyTypeObject* type) {
  while (is_python_class(type)) type = type->tp_base;
  return type;
}

/// type(self).name bound to self, new reference; null without an exception when the type has none.
PyObject* lookup_special(PyObject* self, PyObject* name);

/// True if looking up the class attribute `descriptor` on an instance runs Python code: a property with a
/// Python getter, or a `__get__` written in Python.
bool getter_is_python(PyObject* descriptor);

/// The Python function behind property.fget / .fset, borrowed; null where it is native or `descriptor` is no
/// property.
PyObject* property_getter(PyObject* descriptor);
PyObject* property_setter(PyObject* descriptor);

}  // namespace bolt
