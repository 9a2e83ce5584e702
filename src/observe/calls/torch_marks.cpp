// observe/calls/torch_marks.cpp
#include "observe/calls/torch_marks.h"

#include <utility>

#include "python/py_ref.h"
#include "support/pointer_map.h"

namespace bolt::observe {
namespace {

/// What each callable is marked as, by its address; of the sets as they were when the region began.
PointerMap<Control>& marked() {
  static auto* all = new PointerMap<Control>();
  return *all;
}

}  // namespace

PyObject* loaded_attribute(const char* module, const char* name) {
  PyObject* loaded = PyDict_GetItem(PyImport_GetModuleDict(), interned(module));
  return loaded && is_module(loaded) ? PyDict_GetItem(PyModule_GetDict(loaded), interned(name)) : nullptr;
}

void look_up_torch_marks() {
  // A callable that is in several is what the last of these says.
  constexpr std::pair<const char*, Control> kSets[] = {{"_allowed_callable_ids", Control::allowed},
                                                       {"_disallowed_callable_ids", Control::apart},
                                                       {"_leaf_function_ids", Control::apart}};
  PointerMap<Control> found;
  for (const auto& [name, control] : kSets) {
    PyObject* owner = loaded_attribute("torch._dynamo.trace_rules", name);
    PyRef ids = PyRef::steal(owner ? PyObject_GetAttr(owner, interned<"function_ids">()) : nullptr);
    if (!ids || !PySet_Check(ids.get())) continue;  // none were asked for so far
    Py_ssize_t position = 0;
    PyObject* id;
    Py_hash_t hash;
    while (_PySet_NextEntry(ids.get(), &position, &id, &hash))
      if (const void* address = PyLong_AsVoidPtr(id)) found[address] = control;
  }
  if (PyErr_Occurred()) PyErr_Clear();
  marked() = std::move(found);
}

Control torch_mark(PyObject* callable) {
  const Control* control = marked().size() ? marked().find(callable) : nullptr;
  return control ? *control : Control::none;
}

bool torch_forbids_breaks() {
  return loaded_attribute("torch._dynamo.utils", "_error_on_graph_break") == Py_True;
}

}  // namespace bolt::observe
