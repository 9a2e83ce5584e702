// observe/module.h
// Python functions for the tests of observation and guards, without the compiler behind them:
//
//   _observe(callable, args, kwargs) -> (result, observation)
//   _observe_check(observation, callable, args, kwargs) -> bool; _observe_explain: the guard that fails, or
//   "" _observe_rebuild(observation, callable, args, kwargs) -> what the recipe makes, effects included
//   _observe_places(observation, callable, args, kwargs) -> (path, step, container, key, object, guarded) of
//   every place the guards look at _observe_facts(observation) -> dict: end, unsound, breaks, guards, recipe,
//   tensors _observe_time(observation, callable, args, kwargs, repeat) -> seconds a check, None if it fails
#pragma once

#include "observe/observation.h"

namespace bolt::observe {

/// Adds them to `module`; -1 with an exception set.
int add_observe_functions(PyObject* module);

}  // namespace bolt::observe
