// session/report.cpp
#include "session/report.h"

#include "interp/semantics.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

PyObject* text(const std::string& s) {
  return PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace");
}
void set(PyObject* dict, const char* key, PyObject* value) {
  if (value) PyDict_SetItemString(dict, key, value);
  Py_XDECREF(value);
}

/// A dict for each step; None for what is not known.
PyObject* describe_costs(const run::Runnable& region) {
  PyObject* list = PyList_New(0);
  auto number = [](std::optional<double> value, double scale = 1) {
    return value ? PyFloat_FromDouble(*value * scale) : Py_NewRef(Py_None);
  };
  for (const run::StepFacts& step : region.costs()) {
    PyRef d = PyRef::steal(PyDict_New());
    set(d.get(), "kind", text(step.kind));
    set(d.get(), "name", text(step.name));
    set(d.get(), "bytes", number(step.bytes));
    set(d.get(), "instructions", number(step.instructions));
    set(d.get(), "repeated", number(step.repeated));
    set(d.get(), "predicted_us", number(step.predicted_ns, 1e-3));
    set(d.get(), "measured_us", number(step.measured_ns, 1e-3));
    PyList_Append(list, d.get());
  }
  return list;
}

}  // namespace

PyObject* describe_breaks(const std::vector<observe::RegionEnd>& breaks) {
  PyObject* list = PyList_New(0);
  for (const auto& b : breaks) {
    PyRef d = PyRef::steal(PyDict_New());
    set(d.get(), "reason", text(b.reason.text()));
    set(d.get(), "cause", text(b.reason.id()));
    set(d.get(), "hint", text(b.reason.hint()));
    PyObject* stack = PyList_New(0);
    for (const auto& line : b.stack) {
      PyRef item = PyRef::steal(Py_BuildValue("(sis)", line.file.c_str(), line.line, line.function.c_str()));
      PyList_Append(stack, item.get());
    }
    set(d.get(), "user_stack", stack);
    const observe::StackLine none, &at = b.stack.empty() ? none : b.stack.back();
    set(d.get(), "position", Py_BuildValue("(iiii)", at.line, at.column, at.end_line, at.end_column));
    PyList_Append(list, d.get());
  }
  return list;
}

PyObject* describe_recompiles(const std::vector<Recompile>& recompiles) {
  PyObject* list = PyList_New(0);
  for (const Recompile& r : recompiles) {
    PyRef d = PyRef::steal(PyDict_New());
    set(d.get(), "where", text(r.where));
    set(d.get(), "guard", text(r.guard));
    PyList_Append(list, d.get());
  }
  return list;
}

PyObject* describe_eager_calls(const std::vector<std::pair<Reason, int64_t>>& calls) {
  PyObject* list = PyList_New(0);
  for (const auto& [why, count] : calls) {
    PyRef d = PyRef::steal(PyDict_New());
    set(d.get(), "cause", text(why.id()));
    set(d.get(), "why", text(why.text()));
    set(d.get(), "hint", text(why.hint()));
    set(d.get(), "count", PyLong_FromLongLong(count));
    PyList_Append(list, d.get());
  }
  return list;
}

PyObject* describe(const CallEntry& entry) {
  PyObject* d = PyDict_New();
  PyObject* guards = PyList_New(0);
  for (const auto& g : entry.guards->describe()) {
    PyRef line = PyRef::steal(text(g));
    PyList_Append(guards, line.get());
  }
  set(d, "guards", guards);
  set(d, "breaks", describe_breaks(entry.breaks));
  if (!entry.region) return d;
  const auto successor = entry.region->successor();  // the next call takes it
  const run::Runnable& region = successor ? *successor : *entry.region;
  const auto& f = region.facts;
  set(d, "ops", PyLong_FromLong(f.ops));
  set(d, "kernels", PyLong_FromLong(f.kernels));
  set(d, "kernels_before_fusion", PyLong_FromLong(f.kernels_before_fusion));
  set(d, "library_calls", PyLong_FromLong(f.library_calls));
  set(d, "extern_calls", PyLong_FromLong(f.extern_calls));
  set(d, "bytes_moved", PyLong_FromLongLong(f.bytes_moved));
  set(d, "compiled", PyBool_FromLong(f.compiled));
  set(d, "from_cache", PyBool_FromLong(f.from_cache));
  set(d, "why_replayed", text(f.why_replayed));
  set(d, "why_no_graph", text(f.why_no_graph));
  PyObject* given_up = PyList_New(0);
  for (const std::string& line : f.sizes_given_up) {
    PyRef item = PyRef::steal(text(line));
    PyList_Append(given_up, item.get());
  }
  set(d, "sizes_given_up", given_up);
  PyObject* choices = PyList_New(0);
  for (const std::string& line : f.choices) {
    PyRef item = PyRef::steal(text(line));
    PyList_Append(choices, item.get());
  }
  set(d, "choices", choices);
  const auto [graph, plan] = region.texts();
  set(d, "graph", text(graph));
  set(d, "plan", text(plan));
  set(d, "costs", describe_costs(region));
  set(d, "measured", text(f.measured));
  set(d, "is_trial", PyBool_FromLong(region.is_trial()));
  PyObject* times = PyDict_New();
  for (const auto& [name, seconds] : f.stage_seconds) set(times, name.c_str(), PyFloat_FromDouble(seconds));
  set(d, "stage_seconds", times);
  return d;
}

PyObject* stats_dict(PyObject*, PyObject*) {
  auto& s = Stats::get();
  PyObject* d = PyDict_New();
  set(d, "regions", PyLong_FromLongLong(s.regions));
  set(d, "recordings", PyLong_FromLongLong(s.recordings));
  set(d, "graph_breaks", PyLong_FromLongLong(s.graph_breaks));
  PyObject* reasons = PyDict_New();
  for (const auto& [reason, count] : s.break_reasons())
    set(reasons, reason.c_str(), PyLong_FromLongLong(count));
  set(d, "break_reasons", reasons);
  set(d, "region_ends", PyLong_FromLongLong(interp::stops()));
  set(d, "recompiles", PyLong_FromLongLong(s.recompiles));
  set(d, "eager_fallbacks", PyLong_FromLongLong(s.eager_fallbacks));
  set(d, "cache_hits", PyLong_FromLongLong(s.cache_hits));
  set(d, "cache_misses", PyLong_FromLongLong(s.cache_misses));
  set(d, "specialized", PyLong_FromLongLong(s.specialized));
  set(d, "graphs", PyLong_FromLongLong(s.graphs));
  set(d, "graph_replays", PyLong_FromLongLong(s.graph_replays));
  set(d, "foldings", PyLong_FromLongLong(s.foldings));
  set(d, "foldings_again", PyLong_FromLongLong(s.foldings_again));
  set(d, "folded_calls", PyLong_FromLongLong(s.folded_calls));
  set(d, "measured", PyLong_FromLongLong(s.measured));
  set(d, "planned_again", PyLong_FromLongLong(s.planned_again));
  set(d, "slower_than_eager", PyLong_FromLongLong(s.slower_than_eager));
  set(d, "compile_seconds", PyFloat_FromDouble(s.compile_nanoseconds * 1e-9));
  return d;
}

}  // namespace bolt::session
