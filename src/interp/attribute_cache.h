// interp/attribute_cache.h
// (instruction, object) -> the object's own attribute, from where it lay the last time the instruction ran.
//
// Objects of a Python class keep their attributes in an array of values whose order is the class's, until
// somebody asks for their `__dict__`; those of `__slots__` lie in the object itself. So for an attribute that
// the class does not have itself, or has as such a slot, one place is right for every object of the class, as
// long as the class has the same version tag. The place and the tag are kept beside the instruction, where
// CPython has its own inline cache: those code units are empty in ours (Code::instrs).
#pragma once

#include <utility>

#include "interp/code.h"
#include "python/compat.h"

namespace bolt::interp {

struct AttributePlace {
  uint32_t version;  ///< of the class; 0: nothing is known
  uint16_t index;    ///< in the array of values, or in the object as an array of pointers
  uint8_t is_slot;   ///< the latter
  uint8_t fills;     ///< how often it was found anew: a site that many classes pass is given up
};
static_assert(sizeof(AttributePlace) == sizeof(Instr));

/// The code unit after an instruction that has an inline cache.
inline AttributePlace& attribute_place(const Instr* ip) {
  return *reinterpret_cast<AttributePlace*>(const_cast<Instr*>(ip + 1));
}

/// Where the attribute's value is, or would be; null: not known here.
inline PyObject** cached_attribute(const Instr* ip, PyObject* object) {
  const AttributePlace& place = attribute_place(ip);
  PyTypeObject* type = Py_TYPE(object);
  if (!place.version || place.version != type->tp_version_tag) return nullptr;
  PyObject** values = place.is_slot ? reinterpret_cast<PyObject**>(object) : inline_values(object);
  return values ? values + place.index : nullptr;
}

/// Stores `value` (stolen) at such a place. What was there: owned, may be null.
inline PyObject* store_cached_attribute(const Instr* ip, PyObject* object, PyObject** at, PyObject* value) {
  const AttributePlace& place = attribute_place(ip);
  if (!*at && !place.is_slot) note_inline_insertion(object, place.index);
  return std::exchange(*at, value);
}

/// After the general road: notes where `object` has its attribute `name`, if that is such a place.
void find_attribute_place(const Instr* ip, PyObject* object, PyObject* name);
inline void note_attribute_place(const Instr* ip, PyObject* object, PyObject* name) {
  constexpr int kMostFills = 8;
  AttributePlace& place = attribute_place(ip);
  if (place.fills == kMostFills || place.version == Py_TYPE(object)->tp_version_tag) return;
  ++place.fills;
  find_attribute_place(ip, object, name);
}

}  // namespace bolt::interp
