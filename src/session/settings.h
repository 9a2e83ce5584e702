// session/settings.h
// What torchbolt.config sets for the whole process, where C++ reads it. The names, the defaults and what they
// mean are in torchbolt/config.py.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace bolt::session {

struct Settings {
  std::atomic<int64_t> recompile_limit{8}, accumulated_recompile_limit{256};
  /// Of a failure: 1 eager runs, 0 it raises, -1 a backend's raises, and eager runs after one of ours.
  std::atomic<int64_t> suppress_errors{-1};
  std::atomic<int64_t> dynamic_shapes{1}, assume_static_by_default{1}, automatic_dynamic_shapes{1};
  std::atomic<int64_t> allow_ignore_mark_dynamic{0}, error_on_recompile{0}, fail_on_recompile_limit_hit{0},
      disable{0};
  /// activation_memory_budget: up to 1 a share, above it bytes; not a number: there is none.
  std::atomic<double> memory_budget{std::numeric_limits<double>::quiet_NaN()};
  /// numerics: is it "eager"?
  std::atomic<int64_t> rounds_as_eager{0};
  static Settings& get();
};

/// Python's _configure(name, number).
PyObject* configure(PyObject*, PyObject* args);

}  // namespace bolt::session
