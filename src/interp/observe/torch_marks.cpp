// interp/observe/torch_marks.cpp: see torch_marks.h.
#include "interp/observe/torch_marks.h"

#include "guard/py_ref.h"

namespace bolt::observe {
namespace {

/// A set of the ids of callables, which is made when it is first needed and stays.
struct Ids {
  const char* name;
  Control control;
  PyRef set;

  bool has(PyObject* id) {
    if (!set) {
      PyObject* owner = loaded_attribute("torch._dynamo.trace_rules", name);
      PyRef made = PyRef::steal(owner ? PyObject_GetAttr(owner, interned<"function_ids">()) : nullptr);
      if (made && PySet_Check(made.get())) set = std::move(made);
    }
    const bool found = set && PySet_Contains(set.get(), id) > 0;
    if (PyErr_Occurred()) PyErr_Clear();
    return found;
  }
};

}  // namespace

PyObject* loaded_attribute(const char* module, const char* name) {
  PyObject* loaded = PyDict_GetItem(PyImport_GetModuleDict(), interned(module));
  return loaded && is_module(loaded) ? PyDict_GetItem(PyModule_GetDict(loaded), interned(name)) : nullptr;
}

Control torch_mark(PyObject* callable) {
  static Ids* const all = new Ids[3]{{"_leaf_function_ids", Control::apart, {}},
                                     {"_disallowed_callable_ids", Control::apart, {}},
                                     {"_allowed_callable_ids", Control::allowed, {}}};
  if (!loaded_attribute("torch._dynamo.trace_rules", "_allowed_callable_ids")) return Control::none;
  PyRef id = PyRef::steal(PyLong_FromVoidPtr(callable));
  for (Ids* ids = all; id && ids != all + 3; ++ids)
    if (ids->has(id.get())) return ids->control;
  return Control::none;
}

bool torch_forbids_breaks() {
  return loaded_attribute("torch._dynamo.utils", "_error_on_graph_break") == Py_True;
}

}  // namespace bolt::observe
