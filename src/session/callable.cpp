// session/callable.cpp
#include "session/callable.h"
#include "guard/handed_out.h"

#include <structmember.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "session/api.h"
#include "session/call.h"
#include "session/compile_entry.h"
#include "session/entries.h"
#include "session/functions.h"
#include "session/report.h"
#include "session/saved.h"

namespace bolt::session {
namespace {

Callable* self_of(PyObject* o) { return reinterpret_cast<Callable*>(o); }

/// A function that is compiled more than once has one table. Modules are all called through one function:
/// each has its own.
std::shared_ptr<observe::Ends> learned_by(PyTypeObject* type, PyObject* target, bool has_receiver) {
  static auto* const all = new std::unordered_map<PyObject*, std::weak_ptr<observe::Ends>>();
  if (Py_IS_TYPE(target, type)) return self_of(target)->state->learned;
  if (has_receiver || !PyFunction_Check(target)) return std::make_shared<observe::Ends>();
  std::weak_ptr<observe::Ends>& known = (*all)[target];
  std::shared_ptr<observe::Ends> found = known.lock();
  if (found) return found;
  found = {new observe::Ends, [target](observe::Ends* ends) { all->erase(target), delete ends; }};
  known = found;
  return found;
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"target",          "fullgraph",      "background", "recompile_limit",
                                "dynamic",         "name",           "road",       "backend",
                                "guard_filter",    "trace",          "receiver",   "asked",
                                "memory_budget",   "launch_at_once", "measure",    "tune",
                                "rounds_as_eager", nullptr};
  PyObject *target, *dynamic = Py_None, *backend = Py_None, *guard_filter = Py_None, *receiver = Py_None;
  PyObject *asked = Py_None, *measure = Py_None, *rounds_as_eager = Py_None;
  int fullgraph = 0, background = 0, road = 0, launch_at_once = 0, tune = 0;
  double memory_budget = std::numeric_limits<double>::quiet_NaN();
  Py_ssize_t limit = 0;
  const char *name = "", *trace = "";
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$ppnOsiOOsOOdpOpO", const_cast<char**>(names), &target,
                                   &fullgraph, &background, &limit, &dynamic, &name, &road, &backend,
                                   &guard_filter, &trace, &receiver, &asked, &memory_budget, &launch_at_once,
                                   &measure, &tune, &rounds_as_eager))
    return nullptr;
  if (receiver != Py_None && !Py_IS_TYPE(receiver, &PyMemberDescr_Type))
    return PyErr_SetString(PyExc_TypeError, "receiver is not a slot"), nullptr;
  Callable* self = self_of(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = compiled_call;
  self->target = Py_NewRef(target);
  self->asked = Py_NewRef(asked);
  if (PyFunction_Check(target))
    if (PyObject* had = reinterpret_cast<PyFunctionObject*>(target)->func_dict)
      if (!(self->dict = PyDict_Copy(had))) return Py_DECREF(self), nullptr;
  if (receiver != Py_None) self->receiver = reinterpret_cast<PyMemberDescrObject*>(Py_NewRef(receiver));
  auto chosen = [](PyObject* o) { return o == Py_None ? std::nullopt : std::optional(o == Py_True); };
  self->options = new Options{fullgraph != 0,
                              background != 0,
                              limit,
                              chosen(dynamic),
                              name,
                              static_cast<run::Road>(road),
                              backend == Py_None ? PyRef() : PyRef::share(backend),
                              guard_filter == Py_None ? PyRef() : PyRef::share(guard_filter),
                              launch_at_once != 0,
                              chosen(measure),
                              tune != 0,
                              trace,
                              memory_budget,
                              chosen(rounds_as_eager)};
  self->state = new Callable::State();
  self->state->learned = learned_by(type, target, self->receiver != nullptr);
  return reinterpret_cast<PyObject*>(self);
}

// Swapped out first: what dies with an entry may run Python code that calls us.
void forget(Callable::State& state) {
  Callable::State old;
  std::swap(old.start, state.start);
  std::swap(old.sites, state.sites);
  state.warned_failure = false;
  state.was_called = false;
  state.says_compiling = true;
  state.ends.clear();
  state.recompiles.clear();
  state.eager_calls.clear();
}

int compiled_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(self_of(o)->target);
  Py_VISIT(self_of(o)->receiver);
  Py_VISIT(self_of(o)->asked);
  Py_VISIT(self_of(o)->dict);
  if (const Options* options = self_of(o)->options) {
    Py_VISIT(options->backend.get());
    Py_VISIT(options->guard_filter.get());
  }
  return 0;
}
int compiled_clear(PyObject* o) {
  Py_CLEAR(self_of(o)->target);
  Py_CLEAR(self_of(o)->receiver);
  Py_CLEAR(self_of(o)->asked);
  Py_CLEAR(self_of(o)->dict);
  if (Options* options = self_of(o)->options) options->backend = options->guard_filter = PyRef();
  if (self_of(o)->state) forget(*self_of(o)->state);
  return 0;
}
void compiled_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (self_of(o)->weakrefs) PyObject_ClearWeakRefs(o);
  compiled_clear(o);
  delete self_of(o)->state;
  delete self_of(o)->options;
  Py_TYPE(o)->tp_free(o);
}

/// What the target shows, and that it is compiled.
PyObject* compiled_repr(PyObject* o) {
  PyRef shown = PyRef::steal(PyObject_Repr(self_of(o)->target));
  if (!shown) return nullptr;
  const bool in_brackets = PyUnicode_READ_CHAR(shown.get(), 0) == '<';
  PyRef inside =
      in_brackets ? PyRef::steal(PyUnicode_Substring(shown.get(), 1, PyUnicode_GET_LENGTH(shown.get()) - 1))
                  : std::move(shown);
  return inside ? PyUnicode_FromFormat("<compiled %U>", inside.get()) : nullptr;
}

PyObject* compiled_get(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

PyObject* compiled_regions(PyObject* o, PyObject*) {
  std::vector<std::pair<int64_t, PyRef>> all;
  bool sound = true;
  auto add = [&](Site& site) {
    for (const auto& entry : std::vector(site.entries))
      sound = sound && compile_waiting(self_of(o), site, entry) && settle(self_of(o), site, entry);
    for (const auto& entry : site.entries) all.emplace_back(entry->serial, PyRef::steal(describe(*entry)));
    if (site.plain_instructions && site.plain_instructions != observe::PlainSteps::kToTheEnd)
      all.emplace_back(site.plain_serial, PyRef::steal(Py_BuildValue("{s:[],s:N}", "guards", "breaks",
                                                                     describe_breaks(site.plain_breaks))));
  };
  add(self_of(o)->state->start);
  for (auto& [place, site] : std::map(self_of(o)->state->sites)) add(*site);
  if (!sound) return nullptr;
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  PyObject* list = PyList_New(0);
  for (const auto& [serial, dict] : all)
    if (dict) PyList_Append(list, dict.get());
  return list;
}

PyObject* compiled_ends(PyObject* o, PyObject*) { return describe_breaks(self_of(o)->state->ends); }

PyObject* compiled_eager_calls(PyObject* o, PyObject*) {
  return describe_eager_calls(self_of(o)->state->eager_calls);
}

PyObject* compiled_recompiles(PyObject* o, PyObject*) {
  return describe_recompiles(self_of(o)->state->recompiles);
}

PyObject* compiled_guard_seconds(PyObject* o, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const auto seconds = guard_seconds(self_of(o), args, static_cast<size_t>(nargs), kwnames);
  if (!seconds) Py_RETURN_NONE;
  return PyFloat_FromDouble(*seconds);
}

PyObject* compiled_saved(PyObject* o, PyObject* weights) { return save(self_of(o), weights); }

PyObject* compiled_restore(PyObject* o, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 3) return PyErr_SetString(PyExc_TypeError, "_restore() takes three lists"), nullptr;
  return restore(self_of(o), args);
}

PyObject* compiled_clear_entries(PyObject* o, PyObject*) {
  forget(*self_of(o)->state);
  const observe::Ends learned = std::exchange(*self_of(o)->state->learned, {});
  Py_RETURN_NONE;
}

PyObject* compiled_getattro(PyObject* o, PyObject* name) {
  if (PyObject* v = PyObject_GenericGetAttr(o, name)) return v;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  PyObject* const targets = PyObject_GetAttr(self_of(o)->target, name);  // __name__, __doc__, user attributes
  if (targets || PyUnicode_READ_CHAR(name, 0) == '_' || !PyErr_ExceptionMatches(PyExc_AttributeError))
    return targets;
  PyErr_Clear();
  return in_python("_missing", o, name);
}

PyObject* compiled_reduce(PyObject* o, PyObject*) { return in_python("_reduced", o); }
PyObject* compiled_deepcopy(PyObject* o, PyObject* memo) { return in_python("_deepcopied", o, memo); }
PyObject* compiled_copy(PyObject* o, PyObject*) { return Py_NewRef(o); }  // as functions do

/// A function's documentation can be set, and so can ours.
PyObject* compiled_doc(PyObject* o, void*) {
  PyObject* own = self_of(o)->dict ? PyDict_GetItemString(self_of(o)->dict, "__doc__") : nullptr;
  return own ? Py_NewRef(own) : PyObject_GetAttrString(self_of(o)->target, "__doc__");
}
int compiled_set_doc(PyObject* o, PyObject* doc, void*) {
  PyRef dict = PyRef::steal(PyObject_GenericGetDict(o, nullptr));
  return dict ? PyDict_SetItemString(dict.get(), "__doc__", doc ? doc : Py_None) : -1;
}

PyMethodDef compiled_methods[] = {
    {"__reduce__", compiled_reduce, METH_NOARGS, "For pickle."},
    {"__deepcopy__", compiled_deepcopy, METH_O, "Itself, unless a copy of the target is another object."},
    {"__copy__", compiled_copy, METH_NOARGS, "Itself."},
    {"_regions", compiled_regions, METH_NOARGS, "What was compiled so far, a dict for each region."},
    {"_region_ends", compiled_ends, METH_NOARGS,
     "Why recorded regions ended, a dict for each time, in order."},
    {"_eager_calls", compiled_eager_calls, METH_NOARGS, "Calls given to eager, a dict for each reason."},
    {"_recompiles", compiled_recompiles, METH_NOARGS, "Why calls were recorded again, a dict for each time."},
    {"_guard_seconds", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(compiled_guard_seconds)),
     METH_FASTCALL | METH_KEYWORDS,
     "Seconds to check the guards of a call with these arguments; None: no entry fits."},
    {"_saved", compiled_saved, METH_O,
     "What was compiled, as three lists for another process; given the tensors that may be weights."},
    {"_restore", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(compiled_restore)), METH_FASTCALL,
     "Takes over what _saved() gave; how many regions."},
    {"_clear", compiled_clear_entries, METH_NOARGS, "Forgets everything compiled."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef compiled_getset[] = {
    {"__doc__", compiled_doc, compiled_set_doc, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef compiled_members[] = {
    {"_target", T_OBJECT_EX, offsetof(Callable, target), READONLY, "What it runs."},
    {"_asked", T_OBJECT_EX, offsetof(Callable, asked), READONLY, "What it was made from."},
    {"__wrapped__", T_OBJECT_EX, offsetof(Callable, target), READONLY, "What it runs."},
    {nullptr, 0, 0, 0, nullptr}};

PyTypeObject compiled_type = [] {
  PyTypeObject t{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&t), 1);
  t.tp_name = "torchbolt._C.Compiled";
  t.tp_basicsize = sizeof(Callable);
  t.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  t.tp_new = compiled_new;
  t.tp_dealloc = compiled_dealloc;
  t.tp_traverse = compiled_traverse;
  t.tp_clear = compiled_clear;
  t.tp_repr = compiled_repr;
  t.tp_call = PyVectorcall_Call;
  t.tp_vectorcall_offset = offsetof(Callable, vectorcall);
  t.tp_weaklistoffset = offsetof(Callable, weakrefs);
  t.tp_dictoffset = offsetof(Callable, dict);
  t.tp_descr_get = compiled_get;
  t.tp_getattro = compiled_getattro;
  t.tp_methods = compiled_methods;
  t.tp_members = compiled_members;
  t.tp_getset = compiled_getset;
  return t;
}();

}  // namespace

int add_callable(PyObject* module) {
  if (!guard::notice_hand_outs()) return -1;
  if (PyType_Ready(&compiled_type) < 0) return -1;
  observe::see_through(&compiled_type, offsetof(Callable, target), offsetof(Callable, receiver));
  if (PyModule_AddObjectRef(module, "Compiled", reinterpret_cast<PyObject*>(&compiled_type)) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace bolt::session
