// observe/values/model_numbers.cpp
// A number read out of a tensor that belongs to the model (`self.eps.item()`, `float(self.scale)`, `if
// self.flag:`) -> a number like one that lies on the model itself: guarded, followed once it differed between
// calls, and no end of the region.
//
// A tensor belongs to the model where it was reached through a module, a closure or a global. Of a view of
// one, elements of the tensor itself are read. What operators computed from a few such elements (`self.n >
// 3`, `self.strides.max()`) is what it was as long as those are, so all of them are guarded. What the region
// has written before the read, and what was another number in several recordings (a count of calls), is left
// to whoever takes data out of other tensors (Recording::take_data).
#include "guard/tensor_numbers.h"

#include "observe/recording.h"

namespace bolt::observe {
namespace {

using guard::Access;

/// So many elements may be behind one read.
constexpr int64_t kMostElements = 64;

/// In so many recordings a number may have been another one.
constexpr int kMostChanges = 4;

/// torch.nn.Module, borrowed for good; null before torch.nn is imported.
PyTypeObject* base_of_modules() {
  static PyTypeObject* base = nullptr;
  if (base) return base;
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = PyDict_GetItemString(modules, "torch.nn.modules.module");
  PyObject* found = module ? PyDict_GetItemString(PyModule_GetDict(module), "Module") : nullptr;
  if (found && PyType_Check(found)) base = reinterpret_cast<PyTypeObject*>(Py_NewRef(found));
  return base;
}

/// Was a module found at this place?
bool is_module_place(const Source& source) {
  PyTypeObject* const base = base_of_modules();
  for (const guard::Assumption& assumption : source.assumptions)
    if (assumption.check == guard::Check::type_is && base &&
        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(assumption.value.get()), base))
      return true;
  return false;
}

bool belongs_to_model(const Source& source) {
  bool belongs = source.is_static;
  for (const Source* at = &source; at; at = at->parent) {
    if (at->access == Access::tensor_grad || at->access == Access::list_tensor ||
        at->access == Access::array_tensor || at->access == Access::chosen)
      return false;
    belongs |=
        at->access == Access::cell || (at->access == Access::instance_dict && is_module_place(*at->parent));
  }
  return belongs;
}

}  // namespace

PyObject* World::model_number(PyObject* tensor, Py_ssize_t element, PyObject* as) {
  Known* const known = find(tensor);
  Source* const place = tree->child(known->source, Access::tensor_number, as,
                                    guard::elements_of(tensor) == 1 ? guard::kOnlyElement : element);
  if (!hooks_.may_know_number(*place, tree->root_names, kMostChanges)) return nullptr;
  for (const guard::Assumption& assumption : place->assumptions)
    if (assumption.check == guard::Check::equals) return Py_NewRef(assumption.value.get());
  const guard::TensorNumber read(tensor, place->index, as);
  if (!read.number()) return nullptr;
  numbers_in.push_back(PyRef::share(tensor));
  return Py_NewRef(found(read.number(), place));
}

bool World::reads_written_number() const {
  return std::any_of(numbers_in.begin(), numbers_in.end(),
                     [&](const PyRef& tensor) { return hooks_.writes(tensor.get()) > 0; });
}

namespace {

/// `object` (stolen), a number or lists of them, with the elements of `view` in the place of its numbers,
/// from `element` on. New; null without an exception: one of them is none that is known.
PyObject* with_elements(World& world, PyObject* object, PyObject* base, PyObject* view, Py_ssize_t& element,
                        PyObject* as) {
  PyRef held = PyRef::steal(object);
  if (!PyList_CheckExact(object)) {
    const auto at = guard::element_of(base, view, element++);
    return at ? world.model_number(base, *at, as) : nullptr;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
    PyObject* item = with_elements(world, Py_NewRef(PyList_GET_ITEM(object, i)), base, view, element, as);
    if (!item) return nullptr;
    PyList_SetItem(object, i, item);
  }
  return held.release();
}

/// Has no element of `tensor`, which is known, been another one in an earlier recording?
bool never_changed(World& world, RecorderHooks& hooks, PyObject* tensor) {
  Source place;
  place.parent = world.find(tensor)->source;
  place.access = Access::tensor_number;
  for (Py_ssize_t i = 0; i < guard::elements_of(tensor); ++i) {
    place.index = guard::elements_of(tensor) == 1 ? guard::kOnlyElement : i;
    if (!hooks.may_know_number(place, world.tree->root_names, 1)) return false;
  }
  return true;
}

/// Each element of `tensor` is what it is now. False: one of them is no number.
bool hold_elements(World& world, PyObject* tensor) {
  for (Py_ssize_t i = 0; i < guard::elements_of(tensor); ++i)
    if (!PyRef::steal(world.model_number(tensor, i, nullptr))) return false;
  return true;
}

}  // namespace

PyObject* Recording::model_data(Frame& frame, PyObject* tensor, PyObject* (*take)(PyObject*), PyObject* as) {
  if (guard::elements_of(tensor) == 0 || guard::elements_of(tensor) > kMostElements || world.late(tensor))
    return nullptr;
  const bool is_int = !as || as == reinterpret_cast<PyObject*>(&PyLong_Type);
  if (const auto size = is_int ? hooks_.size_in(tensor) : std::nullopt) {
    const PyRef number = PyRef::steal(hooks_.unseen([&] { return take(tensor); }));
    return number ? world.size_in(PyLong_AsLongLong(number.get()), *size) : nullptr;
  }
  const auto origins = hooks_.made_of(tensor);
  if (!origins) return nullptr;
  int64_t elements = 0;
  for (const PyRef& origin : *origins) {
    const Known* known = world.find(origin.get());
    if (!known || !belongs_to_model(*known->source)) return nullptr;
    elements += guard::elements_of(origin.get());
  }
  touch(frame, tensor);
  if (!on) return nullptr;
  if (world.follows()) world.use_sizes(tensor);  // as many numbers as elements
  if (!on) return nullptr;
  PyRef taken = PyRef::steal(hooks_.unseen([&] { return take(tensor); }));
  if (!taken) return PyErr_Clear(), nullptr;
  Py_ssize_t element = 0;
  if (origins->size() == 1 && guard::element_of((*origins)[0].get(), tensor, 0))
    return with_elements(world, taken.release(), (*origins)[0].get(), tensor, element, as);
  if (elements > kMostElements) return nullptr;
  for (const PyRef& origin : *origins)
    if (!never_changed(world, hooks_, origin.get())) return nullptr;
  for (const PyRef& origin : *origins)
    if (!hold_elements(world, origin.get())) return nullptr;
  return taken.release();
}

}  // namespace bolt::observe
