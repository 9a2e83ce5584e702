// guard/filter.cpp
// The user's say in which guards are kept (options={"guard_filter_fn": ...}).
//
// Two kinds stay whatever is said of them: those on tensors, since kernels read memory by what they promise,
// and those on the type of an object whose parts are read by where they lie in it.
#include <algorithm>

#include "guard/program.h"

namespace bolt::guard {
namespace {

/// By the names of torch.compile's guards, which filters ask for.
const char* kind_of(const Assumption& assumption) {
  switch (assumption.check) {
    case Check::type_is: return "TYPE_MATCH";
    case Check::is: return "ID_MATCH";
    case Check::is_bound:
    case Check::method: return "BUILTIN_MATCH";
    case Check::equals:
    case Check::value:
    case Check::gives: return "EQUALS_MATCH";
    case Check::length: return "SEQUENCE_LENGTH";
    case Check::keys: return "DICT_KEYS_MATCH";
    case Check::missing: return "DICT_CONTAINS";
    case Check::tensor: return "TENSOR_MATCH";
    case Check::stands: return "ITERATOR_POSITION";
    case Check::leaf: return "TENSOR_LEAF";
    case Check::same_as: return "DUPLICATE_INPUT";
    case Check::not_same_as: return "OBJECT_ALIASING";
    case Check::unbound: return "EMPTY_CELL";
  }
  return "";
}

/// The classes of the objects on the way to a place, from the place itself outwards.
PyRef classes_on_the_way(const Source* source) {
  PyRef list = PyRef::steal(PyList_New(0));
  for (; list && source; source = source->parent)
    for (const Assumption& a : source->assumptions)
      if (a.check == Check::type_is && PyList_Append(list.get(), a.value.get()) < 0) return {};
  return list;
}

bool reads_by_layout(const Source& source) {
  if (source.reg >= 0) return true;
  for (const Source* c : source.children())
    if (c->access != Access::dict_item && c->access != Access::list_item && c->access != Access::tuple_item &&
        c->access != Access::cell)
      return true;
  return false;
}

bool must_stay(const Source& source, const Assumption& assumption) {
  switch (assumption.check) {
    case Check::tensor: return true;
    case Check::type_is:
    case Check::is:
    case Check::unbound: return reads_by_layout(source);
    default: return false;
  }
}

}  // namespace

bool Program::filter(PyObject* keep) {
  std::vector<std::pair<Source*, size_t>> asked;
  PyRef list = PyRef::steal(PyList_New(0));
  for (Source* source : tree_->all())
    for (size_t i = 0; list && i < source->assumptions.size(); ++i) {
      const Assumption& a = source->assumptions[i];
      PyRef classes = classes_on_the_way(source);
      if (!classes) return false;
      PyRef row =
          PyRef::steal(Py_BuildValue("sOOsOO", source->str(tree_->root_names).c_str(),
                                     a.value ? Py_True : Py_False, a.value ? a.value.get() : Py_None,
                                     kind_of(a), source->is_static ? Py_True : Py_False, classes.get()));
      if (!row || PyList_Append(list.get(), row.get()) < 0) return false;
      asked.emplace_back(source, i);
    }
  if (!list) return false;
  PyRef answers = PyRef::steal(PyObject_CallOneArg(keep, list.get()));
  if (!answers) return false;
  for (size_t at = asked.size(); at-- > 0;) {  // from the back: places in the lists stay what they are
    auto [source, i] = asked[at];
    const bool kept = PyList_GET_ITEM(answers.get(), static_cast<Py_ssize_t>(at)) == Py_True;
    if (kept || must_stay(*source, source->assumptions[i])) continue;
    forget_alias(source, source->assumptions[i].other);
    source->assumptions.erase(source->assumptions.begin() + i);
  }
  return true;
}

}  // namespace bolt::guard
