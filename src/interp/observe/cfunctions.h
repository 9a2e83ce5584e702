// interp/observe/cfunctions.h
// What a C function may do when it is met while recording: one row each in cfunctions.def.
//
// A function that is not in the table is never assumed harmless: the region ends before it.
#pragma once

#include <string>

#include "guard/py_ref.h"

namespace bolt::observe {

enum class Kind : uint8_t {
  pure,      ///< a function of its arguments and their items
  deep,      ///< a function of everything inside its arguments
  writes,    ///< as pure, and changes its first argument
  appends,   ///< as writes, but only adds at the end of a list
  tensor,    ///< tensors are touched through the dispatcher only, so the recorder sees all; else as deep
  special,   ///< see call_specially
  stand_in,  ///< calls Python back: the function of that name in torchbolt.stand_ins is run in its place
  ends,      ///< known, and must not be part of a region
  unknown,
};

struct CFunction {
  Kind kind = Kind::unknown;
  bool callbacks = false;  ///< calls functions among its arguments: they come back into the interpreter
  std::string name;        ///< "dict.get"
  std::string method;      ///< "get"
};

/// The row of a native callable. `self` is set (borrowed) when it is bound to an object that is its first
/// argument.
const CFunction& find_cfunction(PyObject* callable, PyObject** self);

/// A function of kind `tensor` whose answer is no tensor and yet the same for all sizes.
bool ignores_sizes(const CFunction& row);

enum class TensorAttribute : uint8_t {
  described,  ///< follows from what is guarded about tensors (shape, dtype, ...)
  computed,   ///< runs operators
  unknown,
};
TensorAttribute tensor_attribute(const char* name);

}  // namespace bolt::observe
