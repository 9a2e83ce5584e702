// program/callable.cpp
#include "program/callable.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <structmember.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "compile.h"
#include "guard/py_ref.h"
#include "interp/observe/observation.h"
#include "program/background.h"
#include "program/stats.h"
#include "record/recorder.h"
#include "support/error.h"
#include "support/knobs.h"

namespace bolt::program {
namespace {

struct Options {
  bool fullgraph = false;
  bool background = false;
  Py_ssize_t recompile_limit = 8;
};

/// One recorded way through the target.
struct Entry {
  std::unique_ptr<guard::Program> guards;
  guard::Recipe recipe;
  std::shared_ptr<Region> region;  // null until a background compilation is done
  size_t nargs = 0;
  PyRef kwnames;
  std::vector<int> tape_input_slot;  // per tape input: the slot among the guarded tensors; -1: a constant
  std::vector<observe::BreakReason> breaks;
};

struct Compiled {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* target;
  PyObject* weakrefs;
  Options options;
  std::vector<std::shared_ptr<Entry>>* entries;
  guard::Found* found;  // scratch of the check
  Py_ssize_t recompiles;
  bool warned_limit, warned_failure;
};

Compiled* self_of(PyObject* o) { return reinterpret_cast<Compiled*>(o); }

// ---- recording
// ----------------------------------------------------------------------------------------------

/// Joins the observer of Python with the recorder of operators.
class Bridge final : public observe::RecorderHooks {
 public:
  void input(PyObject* tensor, int slot) override {
    slots_[THPVariable_Unpack(tensor).unsafeGetTensorImpl()] = slot;
  }
  int output(PyObject* tensor) override {
    auto id = recorder.find(THPVariable_Unpack(tensor));
    if (!id) return -1;
    wanted.push_back(*id);
    return static_cast<int>(wanted.size()) - 1;
  }
  void instruction(const char* file, const char* function, int line) override {
    recorder.instruction(file, function, line);
  }
  const char* wants_end() override {
    return recorder.escaped().empty() ? nullptr : recorder.escaped().c_str();
  }
  void end_region(bool before_instruction) override { recorder.stop(before_instruction); }

  int slot_of(const at::Tensor& t) const {
    auto it = slots_.find(t.unsafeGetTensorImpl());
    return it == slots_.end() ? -1 : it->second;
  }

  record::Recorder recorder;
  std::vector<record::TensorId> wanted;

 private:
  std::unordered_map<c10::TensorImpl*, int> slots_;
};

std::vector<bool> used_inputs(const record::Tape& tape, const std::vector<record::TensorId>& wanted) {
  std::vector<bool> used(tape.inputs.size(), false);
  auto mark = [&](record::TensorId id) {
    if (id >= 0 && tape.tensors[id].input >= 0) used[tape.tensors[id].input] = true;
  };
  for (const auto& e : tape.entries)
    for (const auto& a : e.args)
      for (auto id : a.tensors) mark(id);
  for (auto id : wanted) mark(id);
  return used;
}

// A tensor found on an object (a module's parameter or buffer, a global) rather than among the arguments: it
// is the same at every call, most likely.
std::vector<bool> slots_on_objects(const guard::Program& guards) {
  std::vector<bool> out(guards.tensor_count(), false);
  for (const auto& source : guards.tree().all())
    for (const auto& a : source->assumptions) {
      if (a.check != guard::Check::tensor) continue;
      bool on_object = source->is_static();
      for (const guard::Source* s = source.get(); s; s = s->parent)
        on_object |= s->access == guard::Access::instance_dict;
      out[a.number] = on_object;
    }
  return out;
}

void warn(PyObject* category, const std::string& text) {
  if (PyErr_WarnEx(category, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
}

PyObject* torchbolt_exception(const char* name) {
  PyRef module = PyRef::steal(PyImport_ImportModule("torchbolt.exc"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

std::string describe_break(const observe::BreakReason& reason) {
  std::string text = reason.what;
  for (auto line = reason.stack.rbegin(); line != reason.stack.rend(); ++line)
    text += "\n  at " + line->file + ":" + std::to_string(line->line) + " in " + line->function;
  return text;
}

void raise_graph_break(const std::string& text) {
  PyRef type = PyRef::steal(torchbolt_exception("GraphBreak"));
  if (!type) return;
  PyErr_SetString(type.get(), text.c_str());
}

bool strict() { return knob_bool("TORCHBOLT_STRICT"); }

// A failure of ours: the user already has eager's result. Loud once, then eager; raised in strict mode.
bool report_failure(Compiled* self, const std::string& what) {
  ++Stats::get().eager_fallbacks;
  if (strict()) {
    PyErr_SetString(PyExc_RuntimeError, ("torchbolt: " + what).c_str());
    return false;
  }
  if (!self->warned_failure) {
    self->warned_failure = true;
    warn(PyExc_RuntimeWarning, "torchbolt could not compile a region and runs it eagerly: " + what +
                                   "\nPlease report this, with the output of TORCHBOLT_LOGS=+all.");
  }
  return true;
}

PyObject* call_target(Compiled* self, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  return PyObject_Vectorcall(self->target, args, nargs, kwnames);
}

/// False with an exception only in strict mode or for fullgraph.
bool add_entry(Compiled* self, std::unique_ptr<observe::Observation> seen, Bridge& bridge, size_t nargs,
               PyObject* kwnames) {
  auto& stats = Stats::get();
  for (const auto& b : seen->breaks) stats.count_break(b.what);
  if (self->options.fullgraph && (seen->end == observe::End::broke || !seen->unsound.empty())) {
    raise_graph_break(seen->breaks.empty() ? seen->unsound : describe_break(seen->breaks[0]));
    return false;
  }
  if (seen->end == observe::End::raised) return true;
  if (!seen->cacheable()) return report_failure(self, seen->unsound);
  if (seen->end == observe::End::broke) {
    ++stats.eager_fallbacks;
    return true;
  }

  auto entry = std::make_shared<Entry>();
  entry->guards = std::move(seen->guards);
  entry->recipe = std::move(seen->recipe);
  entry->breaks = std::move(seen->breaks);
  entry->nargs = nargs;
  entry->kwnames = PyRef::share(kwnames);

  record::Recorder& recorder = bridge.recorder;
  Recorded recorded;
  recorded.obstacle = recorder.obstacle();
  auto used = used_inputs(recorder.tape(), bridge.wanted);
  auto on_objects = slots_on_objects(*entry->guards);
  for (size_t i = 0; i < recorder.inputs().size(); ++i) {
    int slot = bridge.slot_of(recorder.inputs()[i]);
    auto constant = recorder.constants().find(static_cast<int>(i));
    if (slot < 0 && used[i]) {
      if (constant == recorder.constants().end())
        return report_failure(self,
                              "an operator used a tensor that came from nowhere the recording knows (input " +
                                  std::to_string(i) + ")");
      recorded.constants.insert(*constant);
    }
    entry->tape_input_slot.push_back(slot);
    recorded.is_param.push_back(slot >= 0 && on_objects[slot]);
  }
  recorded.wanted = bridge.wanted;
  recorded.tape = std::move(recorder.tape());

  auto build = [](Recorded r) { return compile(std::move(r)); };
  auto& entries = *self->entries;
  if (self->options.background) {
    std::weak_ptr<Entry> target = entry;
    run_in_background([build, target, recorded = std::make_shared<Recorded>(std::move(recorded))] {
      auto region = build(std::move(*recorded));
      PyGILState_STATE gil = PyGILState_Ensure();
      if (auto e = target.lock()) e->region = std::move(region);
      PyGILState_Release(gil);
    });
  } else {
    std::exception_ptr failure;
    Py_BEGIN_ALLOW_THREADS try { entry->region = build(std::move(recorded)); } catch (...) {
      failure = std::current_exception();
    }
    Py_END_ALLOW_THREADS if (failure) {
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& e) {
        return report_failure(self, e.what());
      }
    }
    if (!entry->region->facts.compiled && entry->region->facts.why_replayed != "gradients are needed")
      ++stats.eager_fallbacks;
    entry->guards->forbid_new_overlap([&] {
      std::vector<int> slots;
      for (int i : entry->region->written_inputs())
        if (entry->tape_input_slot[i] >= 0) slots.push_back(entry->tape_input_slot[i]);
      return slots;
    }());
  }
  ++stats.regions;
  if (!entries.empty()) ++stats.recompiles;
  entries.insert(entries.begin(), std::move(entry));
  return true;
}

PyObject* record_call(Compiled* self, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  Bridge bridge;
  PyObject* result = nullptr;
  std::unique_ptr<observe::Observation> seen;
  try {
    record::Recorder::Scope scope(bridge.recorder);
    seen = observe::observe_call(self->target, args, nargs, kwnames, bridge, &result);
  } catch (const std::exception& e) {
    if (!result && !PyErr_Occurred()) result = call_target(self, args, nargs, kwnames);
    if (result && !report_failure(self, e.what())) Py_CLEAR(result);
    return result;
  }
  if (!result) return nullptr;
  try {
    if (!add_entry(self, std::move(seen), bridge, nargs, kwnames)) Py_CLEAR(result);
  } catch (const std::exception& e) {
    if (!report_failure(self, e.what())) Py_CLEAR(result);
  }
  return result;
}

// ---- calling
// ------------------------------------------------------------------------------------------------

bool same_keywords(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b) return (a ? PyTuple_GET_SIZE(a) : 0) == (b ? PyTuple_GET_SIZE(b) : 0);
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

PyObject* run_entry(const Entry& entry, const guard::Found& found) {
  HANDLE_TH_ERRORS
  std::vector<at::Tensor> inputs;
  inputs.reserve(entry.tape_input_slot.size());
  for (int slot : entry.tape_input_slot)
    inputs.push_back(slot < 0 ? at::Tensor()
                              : at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(
                                    found.tensors[slot])));
  // Another call may use `found` while the GIL is away.
  const std::vector<PyRef> objects = found.objects;
  std::vector<at::Tensor> outputs;
  if (entry.region->releases_gil()) {
    pybind11::gil_scoped_release no_gil;
    outputs = entry.region->run(inputs);
  } else {
    outputs = entry.region->run(inputs);
  }
  std::vector<PyRef> tensors;
  std::vector<PyObject*> borrowed;
  for (at::Tensor& t : outputs) {
    tensors.push_back(PyRef::steal(THPVariable_Wrap(std::move(t))));
    borrowed.push_back(tensors.back().get());
  }
  return entry.recipe.run_result(objects, borrowed.data());
  END_HANDLE_TH_ERRORS
}

std::string limit_message(Compiled* self, PyObject* const* roots, size_t nroots) {
  PyRef name = PyRef::steal(PyObject_GetAttrString(self->target, "__qualname__"));
  if (!name) PyErr_Clear();
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : "a function";
  return std::string("torchbolt: ") + text + " was compiled " + std::to_string(self->entries->size()) +
         " times (recompile_limit) and now runs eagerly where none of them fits. The last guard that "
         "failed: " +
         self->entries->front()->guards->explain_failure(roots, nroots) +
         "\nIf this value changes often, pass it as a tensor, or raise recompile_limit.";
}

PyObject* compiled_call(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Compiled* self = self_of(callable);
  const size_t nargs = PyVectorcall_NARGS(nargsf);
  const size_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  // Inside somebody else's recording we are just a Python call.
  if (record::Recorder::current() && !record::Recorder::current()->stopped())
    return call_target(self, args, nargs, kwnames);

  PyObject* small[16];
  std::vector<PyObject*> large;
  PyObject** roots = small;
  if (total + 1 > 16) {
    large.resize(total + 1);
    roots = large.data();
  }
  roots[0] = self->target;
  std::copy(args, args + total, roots + 1);

  auto& entries = *self->entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::shared_ptr<Entry> entry = entries[i];
    if (entry->nargs != nargs || !same_keywords(entry->kwnames.get(), kwnames)) continue;
    if (!entry->guards->check(roots, total + 1, *self->found)) continue;
    if (!entry->region) return call_target(self, args, nargs, kwnames);  // still being compiled
    if (i > 0) std::rotate(entries.begin(), entries.begin() + i, entries.begin() + i + 1);
    try {
      return run_entry(*entry, *self->found);
    } catch (const IndexOutOfRange&) {
      return call_target(self, args, nargs, kwnames);
    }
  }
  if (static_cast<Py_ssize_t>(entries.size()) >= self->options.recompile_limit) {
    ++Stats::get().eager_fallbacks;
    if (!self->warned_limit) {
      self->warned_limit = true;
      warn(PyExc_RuntimeWarning, limit_message(self, roots, total + 1));
    }
    return call_target(self, args, nargs, kwnames);
  }
  return record_call(self, args, nargs, kwnames);
}

// ---- the type
// -----------------------------------------------------------------------------------------------

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"target", "fullgraph", "background", "recompile_limit", nullptr};
  PyObject* target;
  int fullgraph = 0, background = 0;
  Py_ssize_t limit = 8;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$ppn", const_cast<char**>(names), &target, &fullgraph,
                                   &background, &limit))
    return nullptr;
  Compiled* self = self_of(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = compiled_call;
  self->target = Py_NewRef(target);
  self->options = {fullgraph != 0, background != 0, limit};
  self->entries = new std::vector<std::shared_ptr<Entry>>();
  self->found = new guard::Found();
  return reinterpret_cast<PyObject*>(self);
}

int compiled_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(self_of(o)->target);
  return 0;
}
int compiled_clear(PyObject* o) {
  Py_CLEAR(self_of(o)->target);
  if (self_of(o)->entries) self_of(o)->entries->clear();
  return 0;
}
void compiled_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (self_of(o)->weakrefs) PyObject_ClearWeakRefs(o);
  compiled_clear(o);
  delete self_of(o)->entries;
  delete self_of(o)->found;
  Py_TYPE(o)->tp_free(o);
}

PyObject* compiled_get(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

PyObject* text(const std::string& s) {
  return PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace");
}
void set(PyObject* dict, const char* key, PyObject* value) {
  if (value) PyDict_SetItemString(dict, key, value);
  Py_XDECREF(value);
}

PyObject* break_dicts(const std::vector<observe::BreakReason>& breaks) {
  PyObject* list = PyList_New(0);
  for (const auto& b : breaks) {
    PyRef d = PyRef::steal(PyDict_New());
    set(d.get(), "reason", text(b.what));
    PyObject* stack = PyList_New(0);
    for (const auto& line : b.stack) {
      PyRef item = PyRef::steal(Py_BuildValue("(sis)", line.file.c_str(), line.line, line.function.c_str()));
      PyList_Append(stack, item.get());
    }
    set(d.get(), "user_stack", stack);
    PyList_Append(list, d.get());
  }
  return list;
}

PyObject* region_dict(const Entry& entry) {
  PyObject* d = PyDict_New();
  PyObject* guards = PyList_New(0);
  for (const auto& g : entry.guards->describe()) {
    PyRef line = PyRef::steal(text(g));
    PyList_Append(guards, line.get());
  }
  set(d, "guards", guards);
  set(d, "breaks", break_dicts(entry.breaks));
  if (!entry.region) return d;
  const auto& f = entry.region->facts;
  set(d, "ops", PyLong_FromLong(f.ops));
  set(d, "kernels", PyLong_FromLong(f.kernels));
  set(d, "kernels_before_fusion", PyLong_FromLong(f.kernels_before_fusion));
  set(d, "library_calls", PyLong_FromLong(f.library_calls));
  set(d, "extern_calls", PyLong_FromLong(f.extern_calls));
  set(d, "bytes_moved", PyLong_FromLongLong(f.bytes_moved));
  set(d, "compiled", PyBool_FromLong(f.compiled));
  set(d, "from_cache", PyBool_FromLong(f.from_cache));
  set(d, "why_replayed", text(f.why_replayed));
  set(d, "graph", text(f.graph_text));
  set(d, "plan", text(f.plan_text));
  PyObject* times = PyDict_New();
  for (const auto& [name, seconds] : f.stage_seconds) set(times, name.c_str(), PyFloat_FromDouble(seconds));
  set(d, "stage_seconds", times);
  return d;
}

PyObject* compiled_regions(PyObject* o, PyObject*) {
  PyObject* list = PyList_New(0);
  auto entries = *self_of(o)->entries;
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {  // oldest first
    PyRef d = PyRef::steal(region_dict(**it));
    PyList_Append(list, d.get());
  }
  return list;
}

PyObject* compiled_clear_entries(PyObject* o, PyObject*) {
  self_of(o)->entries->clear();
  self_of(o)->warned_limit = self_of(o)->warned_failure = false;
  Py_RETURN_NONE;
}

PyObject* compiled_getattro(PyObject* o, PyObject* name) {
  if (PyObject* v = PyObject_GenericGetAttr(o, name)) return v;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  return PyObject_GetAttr(self_of(o)->target, name);  // __name__, __doc__, user attributes
}

PyMethodDef compiled_methods[] = {
    {"_regions", compiled_regions, METH_NOARGS, "What was compiled so far, a dict for each region."},
    {"_clear", compiled_clear_entries, METH_NOARGS, "Forgets everything compiled."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef compiled_members[] = {
    {"_target", T_OBJECT_EX, offsetof(Compiled, target), READONLY, "What it runs."},
    {"__wrapped__", T_OBJECT_EX, offsetof(Compiled, target), READONLY, "What it runs."},
    {nullptr, 0, 0, 0, nullptr}};

PyTypeObject compiled_type = [] {
  PyTypeObject t{PyVarObject_HEAD_INIT(nullptr, 0)};
  t.tp_name = "torchbolt._C.Compiled";
  t.tp_basicsize = sizeof(Compiled);
  t.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  t.tp_new = compiled_new;
  t.tp_dealloc = compiled_dealloc;
  t.tp_traverse = compiled_traverse;
  t.tp_clear = compiled_clear;
  t.tp_call = PyVectorcall_Call;
  t.tp_vectorcall_offset = offsetof(Compiled, vectorcall);
  t.tp_weaklistoffset = offsetof(Compiled, weakrefs);
  t.tp_descr_get = compiled_get;
  t.tp_getattro = compiled_getattro;
  t.tp_methods = compiled_methods;
  t.tp_members = compiled_members;
  t.tp_doc = "A callable that is recorded, compiled and then run compiled.";
  return t;
}();

PyObject* stats_dict(PyObject*, PyObject*) {
  auto& s = Stats::get();
  PyObject* d = PyDict_New();
  set(d, "regions", PyLong_FromLongLong(s.regions));
  set(d, "graph_breaks", PyLong_FromLongLong(s.graph_breaks));
  PyObject* reasons = PyDict_New();
  for (const auto& [reason, count] : s.break_reasons())
    set(reasons, reason.c_str(), PyLong_FromLongLong(count));
  set(d, "break_reasons", reasons);
  set(d, "recompiles", PyLong_FromLongLong(s.recompiles));
  set(d, "eager_fallbacks", PyLong_FromLongLong(s.eager_fallbacks));
  set(d, "cache_hits", PyLong_FromLongLong(s.cache_hits));
  set(d, "cache_misses", PyLong_FromLongLong(s.cache_misses));
  set(d, "compile_seconds", PyFloat_FromDouble(s.compile_nanoseconds * 1e-9));
  return d;
}
PyObject* reset_stats(PyObject*, PyObject*) {
  Stats::get().reset();
  Py_RETURN_NONE;
}
PyObject* wait(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS wait_for_background();
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"stats", stats_dict, METH_NOARGS, "Counters of this process."},
                           {"reset_stats", reset_stats, METH_NOARGS, "Sets all counters to zero."},
                           {"wait", wait, METH_NOARGS, "Returns when no compilation is running."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_callable(PyObject* module) {
  if (PyType_Ready(&compiled_type) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Compiled", reinterpret_cast<PyObject*>(&compiled_type)) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace bolt::program
