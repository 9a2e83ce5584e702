// session/settings.cpp
#include "session/settings.h"

#include <string_view>
#include <utility>

#include "observe/observation.h"

namespace bolt::session {

Settings& Settings::get() {
  static Settings settings;
  return settings;
}

PyObject* configure(PyObject*, PyObject* args) {
  const char* name;
  PyObject* given;
  if (!PyArg_ParseTuple(args, "sO", &name, &given)) return nullptr;
  Settings& s = Settings::get();
  if (name == std::string_view("activation_memory_budget")) {
    const double budget = PyFloat_AsDouble(given);
    if (PyErr_Occurred()) return nullptr;
    s.memory_budget = budget;
    Py_RETURN_NONE;
  }
  const long long value = PyLong_AsLongLong(given);
  if (PyErr_Occurred()) return nullptr;
  if (name == std::string_view("delay_logging")) {
    observe::delays_calls() = value != 0;
    Py_RETURN_NONE;
  }
  const std::pair<std::string_view, std::atomic<int64_t>*> table[] = {
      {"recompile_limit", &s.recompile_limit},
      {"accumulated_recompile_limit", &s.accumulated_recompile_limit},
      {"suppress_errors", &s.suppress_errors},
      {"error_on_recompile", &s.error_on_recompile},
      {"fail_on_recompile_limit_hit", &s.fail_on_recompile_limit_hit},
      {"disable", &s.disable},
      {"allow_ignore_mark_dynamic", &s.allow_ignore_mark_dynamic},
      {"dynamic_shapes", &s.dynamic_shapes},
      {"assume_static_by_default", &s.assume_static_by_default},
      {"automatic_dynamic_shapes", &s.automatic_dynamic_shapes},
      {"numerics", &s.rounds_as_eager},
  };
  for (const auto& [known, setting] : table)
    if (known == name) {
      *setting = value;
      Py_RETURN_NONE;
    }
  return PyErr_Format(PyExc_KeyError, "no setting %s", name);
}

}  // namespace bolt::session
