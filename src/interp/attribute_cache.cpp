// interp/attribute_cache.cpp
#include "interp/attribute_cache.h"

namespace bolt::interp {

namespace {

/// The index of a slot, its object seen as an array of pointers; -1: `descriptor` is none of this class.
Py_ssize_t slot_index(PyObject* descriptor, PyTypeObject* type) {
  if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
  const auto* slot = reinterpret_cast<PyMemberDescrObject*>(descriptor);
  const PyMemberDef* member = slot->d_member;
  const bool plain =
      member->type == T_OBJECT_EX && !member->flags && PyType_IsSubtype(type, PyDescr_TYPE(slot));
  return plain ? member->offset / static_cast<Py_ssize_t>(sizeof(PyObject*)) : -1;
}

}  // namespace

void find_attribute_place(const Instr* ip, PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_getattro != PyObject_GenericGetAttr || type->tp_setattro != PyObject_GenericSetAttr) return;
  PyObject* descriptor = _PyType_Lookup(type, name);
  // The lookup is what gives the class a version.
  if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) return;
  if (!descriptor && !inline_values(object)) return;
  const Py_ssize_t index = descriptor ? slot_index(descriptor, type) : inline_index(type, name);
  if (index < 0 || index > UINT16_MAX) return;
  AttributePlace& place = attribute_place(ip);
  place.version = type->tp_version_tag;
  place.index = static_cast<uint16_t>(index);
  place.is_slot = descriptor != nullptr;
}

}  // namespace bolt::interp
