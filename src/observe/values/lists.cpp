// observe/values/lists.cpp
#include "observe/values/lists.h"

#include <algorithm>

#include "guard/number_lists.h"
#include "observe/world.h"
#include "python/compat.h"

namespace bolt::observe {
namespace {

using guard::NumberOp;
using guard::Phase;

bool are_exact_numbers(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i)
    if (!is_exact_number(PyList_GET_ITEM(list, i))) return false;
  return true;
}

PyObject* list_of(PyObject*, PyObject* args) { return PySequence_List(args); }

PyObject* function(PyMethodDef& def) { return PyCFunction_New(&def, nullptr); }

/// builtins.name, borrowed.
PyObject* builtin(const char* name) { return PyDict_GetItemString(PyEval_GetBuiltins(), name); }

constexpr Py_ssize_t kMostSteps = 64;  // numbers with steps of their own

}  // namespace

bool Lists::has_any_length(PyObject* container) {
  Known* known = world_.lengths.known_by_ends(container);
  const PyRef items = known && !known->window.cleared ? native_items(container) : PyRef();
  if (!items || !PyList_GET_SIZE(items.get()) || !are_exact_numbers(items.get())) return false;
  const auto [in_front, old, behind] = world_.lengths.parts_of(*known);
  if (in_front + behind > kMostSteps) return false;
  return !world_.lengths.length_before(*known).is_const() || !known->placed.empty() ||
         hooks_.follows_within(*known->source, world_.tree->root_names);
}

std::optional<int> Lists::list_of_any_length(PyObject* container) {
  if (!has_any_length(container)) return std::nullopt;
  Known* known = world_.lengths.known_by_ends(container);
  const PyRef items = native_items(container);
  const auto [in_front, old, behind] = world_.lengths.parts_of(*known);
  auto constant = [&](Py_ssize_t number) {
    return world_.numbers.add({NumberOp::constant, 0, PyRef::steal(PyLong_FromSsize_t(number)), {}, {}});
  };
  auto join = [&](int from, const Window& window, Py_ssize_t n, const std::vector<int>& others) {
    const Py_ssize_t placed = others.empty() ? 0 : std::ssize(known->placed);
    std::vector<int> args = {from, constant(window.last < 0 ? window.front : -window.last),
                             constant(window.back), constant(n), constant(placed)};
    args.insert(args.end(), others.begin(), others.end());
    const PyRef function = PyRef::share(joining_function(Joins::numbers));
    return world_.numbers.add({NumberOp::call, 0, function, {}, std::move(args)});
  };
  std::vector<int> others;
  for (Py_ssize_t i = 0; i < in_front + old + behind; ++i)
    if (i < in_front || i >= in_front + old)
      others.push_back(world_.step_of(PyList_GET_ITEM(items.get(), i)));
  for (const PyRef& index : known->placed) {
    others.push_back(world_.step_of(index.get()));
    others.push_back(world_.step_of(PyList_GET_ITEM(items.get(), PyLong_AsSsize_t(index.get()))));
  }
  const int whole = world_.numbers.add({NumberOp::source, world_.tree->keep(known->source), {}, {}, {}});
  const bool open =
      std::ranges::any_of(others, [&](int step) { return world_.numbers.steps[step].phase != Phase::check; });
  if (!open) return join(whole, known->window, in_front, others);
  // What was there is looked at while guards are checked.
  return join(join(whole, known->window, 0, {}), {}, in_front, others);
}

/// The step that gives a list of what is in the container; nothing: it has none, or guards do not know it.
std::optional<int> Lists::list_step(PyObject* container) {
  static PyMethodDef list_def = {"list", list_of, METH_VARARGS, nullptr};
  static PyObject* const list_function = function(list_def);
  if (!PyList_CheckExact(container) && !PyTuple_CheckExact(container) && !is_deque(container))
    return std::nullopt;
  std::optional<int> whole = list_of_any_length(container);
  if (whole && world_.numbers.steps[*whole].phase == Phase::check) return whole;
  world_.own_numbers_of(container);
  const PyRef items = !world_.follows_any() ? PyRef() : PyRef::steal(PySequence_List(container));
  if (!items || PyList_GET_SIZE(items.get()) > kMostSteps) return PyErr_Clear(), std::nullopt;
  bool follows = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    if (!is_exact_number(item) || world_.is_open(item)) return std::nullopt;
    follows |= world_.follows_number(item);
  }
  if (!follows) return std::nullopt;
  world_.read_whole(container);
  guard::NumberStep step{NumberOp::call, 0, PyRef::share(list_function), {}, {}};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i)
    step.args.push_back(world_.step_of(PyList_GET_ITEM(items.get(), i)));
  return world_.numbers.add(std::move(step));
}

PyObject* Lists::reduced(PyObject* function, PyObject* container, bool sums) {
  const std::optional<int> list = list_of_any_length(container);
  PyRef result = PyRef::steal(list ? PyObject_CallOneArg(function, container) : nullptr);
  if (!result) return PyErr_Clear(), nullptr;  // raised anew
  guard::NumberStep step{NumberOp::call, 0, PyRef::share(function), {}, {*list}};
  if (world_.numbers.phase_of(step) == Phase::check)
    return world_.computed(result.release(), std::move(step));
  // A sum with a float in it is one whatever the others are, and does not raise.
  const std::vector<int> items = world_.numbers.steps[*list].args;
  const bool has_float = std::any_of(items.begin() + 5, items.end(), [&](int item) {
    const guard::NumberStep& part = world_.numbers.steps[item];
    const PyObject* of_data = part.op == NumberOp::data ? part.object.get() : nullptr;
    return part.phase != Phase::check &&
           (part.type == &PyFloat_Type || of_data == reinterpret_cast<PyObject*>(&PyFloat_Type));
  });
  if (!sums || !has_float) return nullptr;
  step.type = &PyFloat_Type;
  world_.begin_to_follow();
  PyObject* mine = own_number(result.get());
  return mine ? world_.follow_step(mine, world_.numbers.add(std::move(step))) : nullptr;
}

PyObject* Lists::told_of_list(PyObject* function, PyObject* container, PyObject* arg) {
  if (arg && (!is_exact_number(arg) || world_.is_open(arg))) return nullptr;
  const std::optional<int> list = list_step(container);
  const PyRef items = list ? PyRef::steal(PySequence_List(container)) : PyRef();
  PyRef result =
      PyRef::steal(items ? PyObject_CallFunctionObjArgs(function, items.get(), arg, nullptr) : nullptr);
  if (!result) return PyErr_Clear(), nullptr;  // raised anew
  guard::NumberStep step{NumberOp::call, 0, PyRef::share(function), {}, {*list}};
  if (arg) step.args.push_back(world_.step_of(arg));
  if (can_be_followed(result.get())) return world_.computed(result.release(), std::move(step));
  world_.went_by(std::move(step), result.get());
  return result.release();
}

PyObject* Lists::compared_lists(int op, PyObject* left, PyObject* right) {
  if ((op != Py_EQ && op != Py_NE) || !PyList_CheckExact(left) || !PyList_CheckExact(right)) return nullptr;
  std::optional<int> sides[] = {list_step(left), list_step(right)};
  if (!sides[0] && !sides[1]) return nullptr;
  for (int i : {0, 1}) {
    PyObject* side = i ? right : left;
    if (sides[i]) continue;
    if (!are_exact_numbers(side)) return nullptr;
    world_.read_whole(side);
    for (Py_ssize_t j = 0; j < PyList_GET_SIZE(side); ++j) world_.use(PyList_GET_ITEM(side, j));
    sides[i] = world_.numbers.add({NumberOp::constant, 0, native_items(side), {}, {}});
  }
  PyObject* answer = PyObject_RichCompare(left, right, op);
  if (answer) world_.went_by({NumberOp::compare, op, {}, {}, {*sides[0], *sides[1]}}, answer);
  return answer;
}

PyObject* Lists::sorted(PyObject* container) {
  PyObject* const function = builtin("sorted");
  world_.own_numbers_of(container);
  if (world_.lengths.known_by_ends(container)) return nullptr;  // how many they are is read
  const std::optional<int> list = list_step(container);
  PyRef items = PyRef::steal(list ? PyObject_CallOneArg(function, container) : nullptr);
  if (!items) return PyErr_Clear(), nullptr;
  const int order = world_.numbers.add({NumberOp::call, 0, PyRef::share(function), {}, {*list}});
  return follow_items(items.get(), order) ? items.release() : nullptr;
}

bool Lists::follow_items(PyObject* list, int step) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const int at = world_.numbers.add({NumberOp::constant, 0, PyRef::steal(PyLong_FromSsize_t(i)), {}, {}});
    PyObject* item = world_.computed(Py_NewRef(PyList_GET_ITEM(list, i)),
                                     {NumberOp::call, 0, PyRef::share(getitem_function()), {}, {step, at}});
    if (!item || PyList_SetItem(list, i, item) < 0) return false;
  }
  return true;
}

PyObject* Lists::of_list(const std::string& method, PyObject* function, const std::vector<PyObject*>& all) {
  auto of_lists = [&](const char* name) { return PyDict_GetItemString(type_dict(&PyList_Type), name); };
  const bool alone = all.size() == 1;
  if (alone && (method == "sum" || method == "max" || method == "min"))
    return reduced(function, all[0], method == "sum");
  if (alone && (method == "any" || method == "all")) return told_of_list(function, all[0]);
  if (alone && method == "sorted") return sorted(all[0]);
  if (all.size() == 2 && (method == "count" || method == "index"))
    return told_of_list(of_lists(method.c_str()), all[0], all[1]);
  if (!alone || method != "sort" || !PyList_CheckExact(all[0])) return nullptr;
  const PyRef items = PyRef::steal(sorted(all[0]));
  if (!items) return nullptr;
  world_.writes.about_to_write(all[0]);
  return PyList_SetSlice(all[0], 0, PyList_GET_SIZE(all[0]), items.get()) < 0 ? nullptr : Py_NewRef(Py_None);
}

void Lists::see_what_differs(PyObject* list, Source& source, Differing& seen) {
  seen.lengths |= hooks_.follows_length(source, world_.tree->root_names);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    Source place = guard::item_of(source, i);
    if (PyList_CheckExact(item)) {
      see_what_differs(item, place, seen);
      continue;
    }
    ++seen.count;
    seen.numbers = seen.numbers || hooks_.follows_number(item, place, world_.tree->root_names);
  }
}

static bool holds_float(PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i)
    if (PyObject* item = PyList_GET_ITEM(list, i);
        PyFloat_CheckExact(item) || (PyList_CheckExact(item) && holds_float(item)))
      return true;
  return false;
}

PyRef Lists::tensor_of_list(PyObject* list) {
  Known* known =
      PyList_CheckExact(list) && hooks_.follows_numbers() ? world_.lengths.known_by_ends(list) : nullptr;
  if (!known || known->window.put_in_front || known->window.cleared) return {};
  PyObject* contents = known->before ? known->before.get() : list;
  if (!guard::holds_numbers(contents)) return {};
  Differing seen;
  see_what_differs(contents, *known->source, seen);
  if (!seen.lengths && !(seen.numbers && seen.count > kMostSteps)) return {};
  const bool floats = holds_float(contents);
  Source* place = world_.tree->child(known->source, Access::list_tensor, nullptr, floats);
  PyRef& tensor = list_tensors_[place];
  if (tensor) return PyRef::share(tensor.get());
  tensor = PyRef::steal(guard::tensor_of_list(contents, floats));
  if (!tensor) return {};
  world_.tree->keep(place);  // nobody else holds it when guards have made it
  world_.reached(tensor.get(), place);
  return PyRef::share(tensor.get());
}

PyRef Lists::tensor_of_array(PyObject* array, Py_ssize_t which) {
  Known* const known = guard::is_array(array) ? world_.find(array) : nullptr;
  if (!known) return {};
  Source* place = world_.tree->child(known->source, Access::array_tensor, nullptr, which);
  PyRef& tensor = list_tensors_[place];
  if (tensor) return PyRef::share(tensor.get());
  // To the recorder a tensor that torch lifts is a constant, which this one is not.
  tensor = PyRef::steal(hooks_.unseen([&] { return guard::tensor_of_array(array); }));
  if (!tensor) return {};
  world_.tree->keep(place);  // nobody else holds it when guards have made it
  world_.reached(tensor.get(), place);
  return PyRef::share(tensor.get());
}

PyRef Lists::another_tensor_of_array(PyObject* array) { return tensor_of_array(array, ++array_tensors_); }

PyObject* Lists::list_text(PyObject* list) {
  return PyList_CheckExact(list) ? told_of_list(builtin("repr"), list) : nullptr;
}

}  // namespace bolt::observe
