// observe/calls/cfunctions.h
// A C function that is met while recording -> what it may do: one row each in cfunctions.def.
//
// A function that is not in the table is never assumed harmless: the region ends before it.
#pragma once

#include <string>

#include "python/py_ref.h"

namespace bolt::observe {

enum class Kind : uint8_t {
  pure,      ///< a function of its arguments and their items
  deep,      ///< a function of everything inside its arguments
  writes,    ///< as pure, and changes its first argument
  appends,   ///< as writes, but only adds at an end of a list or deque
  tensor,    ///< tensors are touched through the dispatcher only, so the recorder sees all; else as deep
  special,   ///< see call_specially
  stand_in,  ///< calls Python back: the function of that name in torchbolt.stand_ins is run in its place
  ends,      ///< known, and must not be part of a region
  unknown,
};

/// What else its row says, or-ed.
namespace Trait {
enum : uint32_t {
  calls = 1,          ///< calls functions among its arguments: they come back into the interpreter
  hands_on = 2,       ///< hands on what it is given, or keeps it, without reading numbers in it
  ignores_sizes = 4,  ///< of kind `tensor`: the answer is no tensor, and yet the same for all sizes
  through_first = 8,  ///< goes through its first argument (self apart), where a Python `__iter__` may be
  through_only = 16,  ///< its argument, where that is the only one
  through_second = 32,
  through_all = 64,
  takes = 128,         ///< of kind `writes`, of a dict: what it does depends on all that is inside
  asked = 256,         ///< tells of the process or the thread: later calls ask again
  tells_offset = 512,  ///< tells where in its storage a tensor begins
  tells_apart = 1024,  ///< tells its arguments, and what is in them, from each other
  only_items = 2048,   ///< of a list it is given only the items matter: it does not go on reading it
  inside = 4096,  ///< looks into the items of the sequences that it is given (compares, adds or tests them)
  pairs = 8192,   ///< of a sequence the items are taken apart
  is_operator = 16384,  ///< an operator itself, without torch's argument parser: its numbers are Python's
  begins_late = 32768,  ///< asks what it goes through for an iterator when it gets there, not when called
  places = 262144,  ///< of kind `writes`: puts something in a place, or takes it out, and reads nothing of it
  of_numbers = 2097152,   ///< has a step for a list of numbers (World::of_list)
  makes_text = 131072,    ///< of kind `special` or `deep`: a text that may be made at the region's end
  by_class = 1048576,     ///< of a container it is given only the class matters
  gives_data = 524288,    ///< gives the tensor's data to Python
  written_out = 4194304,  ///< for numbers that are followed the stand-in does the same key by key
  itself = 8388608,       ///< of a class: none that is derived from it
  of_arrays = 16777216,   ///< makes a tensor of one of numpy's arrays
  by_operators =
      33554432,  ///< where numbers that it is given differ, the stand-in does the same by operators
  scales_sizes =
      65536,  ///< computes sizes from numbers in the list it is given last, where the second is None
};
}

/// Does what a function of kind `special` stands for. See special_calls.h.
struct SpecialCall;
using Handler = PyObject* (*)(const SpecialCall&);
Handler handler_of(const std::string& name);

struct CFunction {
  Kind kind = Kind::unknown;
  uint32_t traits = 0;
  std::string name;    ///< "dict.get"
  std::string method;  ///< "get"
  Handler handler = nullptr;
  /// Of kind `tensor`, and nothing is said of how it takes what it is given.
  bool plain_operator = false;

  bool is(uint32_t trait) const { return (traits & trait) != 0; }
  /// Is argument `index` (self apart) of `nargs` what it goes through?
  bool goes_through(size_t index, size_t nargs) const;
};

/// CPython's method-wrapper, private to descrobject.c.
struct WrapperObject {
  PyObject_HEAD PyWrapperDescrObject* descr;
  PyObject* self;
};

/// A method in C with what it is called on: `x.append`, `x.__add__`. Functions of modules and class methods
/// are none.
bool is_bound_method(PyObject* object);

/// A native callable with its row.
struct Native {
  PyObject* callable = nullptr;  ///< borrowed, as `self`
  const CFunction* row = nullptr;
  PyObject* self = nullptr;  ///< the object it is bound to, if that is its first argument
};
Native find_cfunction(PyObject* callable);

enum class TensorAttribute : uint8_t {
  described,  ///< follows from what is guarded about tensors (shape, dtype, ...)
  computed,   ///< runs operators
  unknown,
};
TensorAttribute tensor_attribute(const char* name);

}  // namespace bolt::observe
