// observe/ends/learned_ends.h
// Recordings of one callable -> what the next ones keep to: instructions that regions end before.
//
// A place in a library's code is on the way of many programs, and what the objects of one do there is no
// reason to end the regions of another, nor of the same code run on other objects (every module is called
// through one function of torch's). So each callable has a table of its own, which is forgotten with what was
// compiled of it.
#pragma once

#include <Python.h>

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "python/py_ref.h"
#include "support/reason.h"

namespace bolt::interp {
struct Frame;
}

namespace bolt::observe {

class Ends {
 public:
  struct End {
    PyRef code;  ///< held, which keeps its address from being used again
    Reason reason;
    bool whole;       ///< see runs_whole
    uint64_t number;  ///< in the order in which they were found
  };

  bool empty() const { return all_.empty(); }
  /// What says that a region ends before the instruction in progress; null: nothing.
  const End* at(const interp::Frame& frame) const;
  void add(PyObject* code, int pc, const Reason& reason, bool whole);
  /// How many were found so far, and forgetting those found since then.
  uint64_t count() const { return count_; }
  void forget_since(uint64_t count);

  /// Runs were left in a state of the thread that no later call could bring about: regions end before calls
  /// that change it so.
  bool leaves_thread_changed = false;

  /// The ends of regions of the callable that this thread runs.
  static Ends*& current();

 private:
  using Key = std::pair<PyObject*, int>;
  struct Hash {
    size_t operator()(const Key& key) const {
      return reinterpret_cast<size_t>(key.first) / 16 * 31 + static_cast<size_t>(key.second);
    }
  };
  std::unordered_map<Key, End, Hash> all_;
  uint64_t count_ = 0;
};

}  // namespace bolt::observe
