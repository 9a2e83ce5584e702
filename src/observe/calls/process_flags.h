// observe/calls/process_flags.h
// Flags of the process that a region sets (special_flags.cpp) -> whether it may, and whether it has left them
// as they were.
#pragma once

#include <vector>

#include "python/py_ref.h"

namespace bolt::observe {

class Recording;

class ProcessFlags {
 public:
  /// Before the first is set, `recording` asks what all of them are, and guards it. False: the region must
  /// not set any.
  bool may_be_set(Recording& recording);
  /// Are they the region's own doing from now on?
  bool are_set(PyObject* getter, PyObject* question) const;
  bool are_as_before() const;

 private:
  struct Flag {
    PyRef getter, question, before;
  };
  std::vector<Flag> flags_;  ///< empty: none is set
};

}  // namespace bolt::observe
