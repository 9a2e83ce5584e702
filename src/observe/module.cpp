// observe/module.cpp
// Observation and guards as Python functions; see module.h. The recorder here only collects tensors.

#include "observe/module.h"

#include <chrono>
#include <unordered_map>

#include "interp/semantics.h"
#include "observe/ends/learned_ends.h"
#include "observe/observation.h"

namespace bolt::observe {

namespace {

struct Collector final : RecorderHooks {
  std::vector<PyRef> outputs;
  void input(PyObject*, int, const guard::Source&, const std::vector<std::string>&) override {}
  Sym size_of(PyObject* tensor, int dim) override { return guard::size_of(*guard::tensor_impl(tensor), dim); }
  PyObject* lend(Sym, int64_t value, const std::shared_ptr<SizeNotes>&) override {
    return PyLong_FromLongLong(value);
  }
  size_t recorded() override { return 0; }
  int output(PyObject* tensor) override {
    outputs.push_back(PyRef::share(tensor));
    return static_cast<int>(outputs.size()) - 1;
  }
  bool knows(PyObject*) override { return true; }
  int64_t writes(PyObject*) override { return -1; }
  void take_back() override {}
  void instruction(const char*, const char*, int) override {}
  const Reason* wants_end() override { return nullptr; }
  bool changed_inputs() override { return false; }
  bool placed() override { return false; }
  bool pause(bool) override { return false; }
  void end_region(bool) override {}
};

struct KeptObservation {
  Collector hooks;
  std::unique_ptr<Observation> observation;
};

void drop(PyObject* capsule) {
  delete static_cast<KeptObservation*>(PyCapsule_GetPointer(capsule, "observation"));
}

/// (callable, args, kwargs) as roots.
struct Roots {
  std::vector<PyObject*> all;
  PyRef names;
  size_t nargs;
  Roots(PyObject* callable, PyObject* args, PyObject* kwargs)
      : nargs(static_cast<size_t>(PyTuple_GET_SIZE(args))) {
    all.push_back(callable);
    for (size_t i = 0; i < nargs; ++i) all.push_back(PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i)));
    if (!PyDict_GET_SIZE(kwargs)) return;
    PyRef keys = PyRef::steal(PyDict_Keys(kwargs));
    names = PyRef::steal(PyList_AsTuple(keys.get()));
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(kwargs, &position, &key, &value)) all.push_back(value);
  }
};

struct ObserveArguments {
  PyObject *capsule = nullptr, *callable = nullptr, *args = nullptr, *kwargs = nullptr;
  int repeat = 1;
  KeptObservation* kept() const {
    return static_cast<KeptObservation*>(PyCapsule_GetPointer(capsule, "observation"));
  }
  bool parse(PyObject* tuple) {
    return PyArg_ParseTuple(tuple, "OOO!O!|i", &capsule, &callable, &PyTuple_Type, &args, &PyDict_Type,
                            &kwargs, &repeat);
  }
};

PyObject* observe_(PyObject*, PyObject* tuple) {
  PyObject *callable, *args, *kwargs;
  if (!PyArg_ParseTuple(tuple, "OO!O!", &callable, &PyTuple_Type, &args, &PyDict_Type, &kwargs))
    return nullptr;
  Roots roots(callable, args, kwargs);
  static auto* const learned = new std::unordered_map<PyObject*, Ends>();  // as if each were compiled
  Ends::current() = &(*learned)[Py_NewRef(callable)];
  auto* kept = new KeptObservation;
  Ran ran;
  kept->observation =
      observe_call(callable, roots.all.data() + 1, roots.nargs, roots.names.get(), kept->hooks, ran);
  interp::PlainSemantics plain;
  PyObject* result = ran.suspended ? interp::run_frame(*ran.suspended, plain) : ran.result;
  PyRef capsule = PyRef::steal(PyCapsule_New(kept, "observation", drop));
  return result ? Py_BuildValue("NN", result, capsule.release()) : nullptr;
}

PyObject* check(PyObject*, PyObject* tuple) {
  ObserveArguments a;
  if (!a.parse(tuple)) return nullptr;
  Roots roots(a.callable, a.args, a.kwargs);
  guard::Found found;
  return PyBool_FromLong(a.kept()->observation->guards->check(roots.all.data(), roots.all.size(), found));
}

PyObject* explain(PyObject*, PyObject* tuple) {
  ObserveArguments a;
  if (!a.parse(tuple)) return nullptr;
  Roots roots(a.callable, a.args, a.kwargs);
  return PyUnicode_FromString(
      a.kept()->observation->guards->explain_failure(roots.all.data(), roots.all.size()).c_str());
}

PyObject* rebuild(PyObject*, PyObject* tuple) {
  ObserveArguments a;
  if (!a.parse(tuple)) return nullptr;
  Roots roots(a.callable, a.args, a.kwargs);
  guard::Found found;
  if (!a.kept()->observation->guards->check(roots.all.data(), roots.all.size(), found)) {
    PyErr_SetString(PyExc_AssertionError, "the guards do not hold");
    return nullptr;
  }
  std::vector<PyObject*> tensors;
  for (PyRef& tensor : a.kept()->hooks.outputs) tensors.push_back(tensor.get());
  return a.kept()->observation->recipe.run_result(found.objects, tensors.data());
}

PyObject* list_of(const std::vector<std::string>& lines) {
  PyObject* list = PyList_New(0);
  for (const std::string& line : lines) {
    PyRef text = PyRef::steal(PyUnicode_FromString(line.c_str()));
    PyList_Append(list, text.get());
  }
  return list;
}

PyObject* facts(PyObject*, PyObject* capsule) {
  auto* kept = static_cast<KeptObservation*>(PyCapsule_GetPointer(capsule, "observation"));
  if (!kept) return nullptr;
  const Observation& seen = *kept->observation;
  static const char* const ends[] = {"returned", "raised", "broke"};
  std::vector<std::string> breaks;
  for (const RegionEnd& end : seen.breaks) breaks.push_back(end.reason.text());
  return Py_BuildValue("{sssssNsNsNsn}", "end", ends[static_cast<int>(seen.end)], "unsound",
                       seen.unsound.c_str(), "breaks", list_of(breaks), "guards",
                       list_of(seen.guards ? seen.guards->describe() : std::vector<std::string>()), "recipe",
                       list_of(seen.recipe.describe()), "tensors",
                       static_cast<Py_ssize_t>(seen.guards ? seen.guards->tensor_count() : 0));
}

/// Every place the guards look at, with what is there now.
PyObject* places(PyObject*, PyObject* tuple) {
  static const char* const names[] = {
      "root",        "constant",    "instance_dict", "dict_item",     "list_item",  "tuple_item",
      "deque_item",  "cell",        "field",         "type_attr",     "super_attr", "tensor_grad",
      "context_var", "list_tensor", "array_tensor",  "tensor_number", "chosen"};
  ObserveArguments a;
  if (!a.parse(tuple)) return nullptr;
  Roots roots(a.callable, a.args, a.kwargs);
  const guard::SourceTree& tree = a.kept()->observation->guards->tree();
  std::unordered_map<const guard::Source*, PyObject*> found;  // parents come before children
  PyObject* list = PyList_New(0);
  for (guard::Source* source : tree.all()) {
    PyObject* parent = source->parent ? found[source->parent] : nullptr;
    PyObject*& here = found[source];
    if (source->access == guard::Access::root)
      here = roots.all[source->index];
    else if (source->access == guard::Access::constant)
      here = source->key.get();
    else
      here = parent ? source->read(parent) : nullptr;
    if (!parent || !here) continue;
    PyRef key =
        source->key ? PyRef::share(source->key.get()) : PyRef::steal(PyLong_FromSsize_t(source->index));
    PyRef place = PyRef::steal(Py_BuildValue("ssOOOO", source->str(tree.root_names).c_str(),
                                             names[static_cast<int>(source->access)], parent, key.get(), here,
                                             source->assumptions.empty() ? Py_False : Py_True));
    if (!place || PyList_Append(list, place.get()) < 0) return Py_DECREF(list), nullptr;
  }
  return list;
}

PyObject* time_check(PyObject*, PyObject* tuple) {
  ObserveArguments a;
  if (!a.parse(tuple)) return nullptr;
  Roots roots(a.callable, a.args, a.kwargs);
  guard::Found found;
  auto start = std::chrono::steady_clock::now();
  bool ok = true;
  for (int i = 0; i < a.repeat; ++i)
    ok &= a.kept()->observation->guards->check(roots.all.data(), roots.all.size(), found);
  std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return ok ? PyFloat_FromDouble(spent.count() / a.repeat) : Py_NewRef(Py_None);
}

/// How often the guards could not go by what they remembered.
PyObject* walks(PyObject*, PyObject* capsule) {
  auto* kept = static_cast<KeptObservation*>(PyCapsule_GetPointer(capsule, "observation"));
  return kept ? PyLong_FromSize_t(kept->observation->guards->walks()) : nullptr;
}

PyObject* mark(PyObject*, PyObject* tuple) {
  PyObject *callable, *by;
  const char* text;
  if (!PyArg_ParseTuple(tuple, "OsO", &callable, &text, &by)) return nullptr;
  if (mark_callable(callable, text, by) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* owns_storage(PyObject*, PyObject* tensor) {
  return PyBool_FromLong(guard::is_tensor(tensor) && guard::owns_storage(tensor));
}

PyObject* set_breaks_are_errors(PyObject*, PyObject* value) {
  const bool before = breaks_are_errors();
  breaks_are_errors() = PyObject_IsTrue(value) == 1;
  return PyBool_FromLong(before);
}

PyMethodDef methods[] = {{"_observe", observe_, METH_VARARGS, nullptr},
                         {"_observe_check", check, METH_VARARGS, nullptr},
                         {"_observe_explain", explain, METH_VARARGS, nullptr},
                         {"_observe_rebuild", rebuild, METH_VARARGS, nullptr},
                         {"_observe_facts", facts, METH_O, nullptr},
                         {"_observe_places", places, METH_VARARGS, nullptr},
                         {"_observe_walks", walks, METH_O, nullptr},
                         {"_observe_time", time_check, METH_VARARGS, nullptr},
                         {"_mark", mark, METH_VARARGS, "_mark(callable, mark, by): see mark_callable."},
                         {"_owns_storage", owns_storage, METH_O, "Has nobody else this tensor's storage?"},
                         {"_set_error_on_graph_break", set_breaks_are_errors, METH_O,
                          "Sets this thread's error_on_graph_break; the one before."},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_observe_functions(PyObject* module) {
  if (init_observe() < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}

}  // namespace bolt::observe
