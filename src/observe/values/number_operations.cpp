// observe/values/number_operations.cpp
// An operation on numbers that differ between calls (arithmetic, a comparison, taking one out of a tensor) ->
// a followed number, a fact, or an operator's call that is lent the number. A result is followed with its
// expression where that is one over sizes, and as a step of Python's otherwise. An operation that is not
// treated here takes the numbers for what they are in this run (World::use).
#include <algorithm>
#include <cmath>

#include "guard/numpy_numbers.h"
#include "observe/calls/numpy_calls.h"
#include "observe/ends/expectations.h"
#include "observe/recording.h"
#include "observe/values/number_operations.h"
#include "support/range.h"

namespace bolt::observe {

using interp::Semantics;

namespace {

namespace Binary = interp::Binary;

/// tensor.item(), float(tensor), int(tensor), tensor.tolist(): the function, given the tensor.
using Conversion = PyObject* (*)(PyObject*);
Conversion takes_data(const CFunction& row) {
  auto item = [](PyObject* tensor) { return PyObject_CallMethod(tensor, "item", nullptr); };
  if (row.name == "float") return PyNumber_Float;
  if (row.name == "int") return item;
  if (!row.is(Trait::gives_data)) return nullptr;
  if (row.method == "item") return item;
  return [](PyObject* tensor) { return PyObject_CallMethod(tensor, "tolist", nullptr); };
}

/// The class that the number taken is made one of; null: what is in the tensor says it.
PyObject* class_taken(const CFunction& row) {
  if (row.name == "float") return reinterpret_cast<PyObject*>(&PyFloat_Type);
  return row.name == "int" ? reinterpret_cast<PyObject*>(&PyLong_Type) : nullptr;
}

/// Are these ints and floats, and lists of them?
bool holds_numbers(PyObject* object) {
  if (!PyList_CheckExact(object)) return is_number(object);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
    if (!holds_numbers(PyList_GET_ITEM(object, i))) return false;
  return true;
}

/// The numbers in `object` (stolen) are the elements of `tensor` from `element` on, in order. New.
PyObject* follow_elements(World& world, PyObject* object, PyObject* tensor, int64_t& element) {
  if (is_number(object)) return world.open_numbers.data_number(object, tensor, element++);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
    PyObject* item = follow_elements(world, Py_NewRef(PyList_GET_ITEM(object, i)), tensor, element);
    if (!item) return Py_DECREF(object), nullptr;
    PyList_SetItem(object, i, item);
  }
  return object;
}

/// Only numbers that no step of a region gives: True is no number here.
bool is_plain_number(PyObject* object) { return is_number(object) || PyBool_Check(object); }

/// Of an expression over numbers alone: does it stay within 64 bits? Sizes are bounded by memory.
bool may_overflow(Sym s) {
  Syms symbols;
  collect_symbols(s, &symbols);
  for (Sym each : symbols)
    if (number_step(*each.node()) < 0) return false;
  return !symbols.empty() && upper_bound(s) == 0 && s.node()->op == SymOp::Mul;
}

/// torch.name, held for the life of the process; null with an exception.
PyObject* torch_function(const char* name) {
  PyRef module = PyRef::steal(import_module("torch"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

/// left (op) right without notes of it.
PyObject* run_base(Semantics& s, Frame& frame, int op, PyObject* left, PyObject* right) {
  return s.finish_binary_op(frame, op, left, right, s.Semantics::start_binary_op(frame, op, left, right));
}

/// tensor (op) number, or the other way round, as torch's own special methods compute it; null without an
/// exception: not here.
PyObject* with_tensor(Semantics& semantics, Frame& frame, int op, PyObject* tensor, PyObject* number,
                      bool number_first) {
  const int kind = op % Binary::inplace;
  if (!number_first) {
    const bool known = kind == Binary::add || kind == Binary::multiply || kind == Binary::subtract ||
                       kind == Binary::true_divide || kind == Binary::power || kind == Binary::remainder ||
                       kind == Binary::lshift || kind == Binary::rshift;
    if (op == Binary::floor_divide) {  // a function in Python, as __rpow__ is
      static PyObject* const floor_divide = torch_function("floor_divide");
      return floor_divide ? PyObject_CallFunctionObjArgs(floor_divide, tensor, number, nullptr) : nullptr;
    }
    return known ? run_base(semantics, frame, op, tensor, number) : nullptr;
  }
  switch (kind) {
    case Binary::add:
    case Binary::multiply: return run_base(semantics, frame, kind, tensor, number);
    case Binary::subtract: {
      static PyObject* const rsub = torch_function("rsub");
      return rsub ? PyObject_CallFunctionObjArgs(rsub, tensor, number, nullptr) : nullptr;
    }
    case Binary::true_divide: {
      static PyObject* const reciprocal = torch_function("reciprocal");
      PyRef turned =
          PyRef::steal(reciprocal ? PyObject_CallFunctionObjArgs(reciprocal, tensor, nullptr) : nullptr);
      return turned ? run_base(semantics, frame, Binary::multiply, turned.get(), number) : nullptr;
    }
    case Binary::power: {
      static PyObject* const pow = torch_function("pow");
      return pow ? PyObject_CallFunctionObjArgs(pow, number, tensor, nullptr) : nullptr;
    }
    default: return nullptr;
  }
}

}  // namespace

/// Numbers that are not followed may be carried along unread (World::carried): now they are read.
static void use_others(World& world, const std::vector<PyObject*>& numbers) {
  for (PyObject* each : numbers)
    if (!world.follows_number(each)) world.use(each);
}

std::optional<Sym> arithmetic(int kind, Sym x, Sym y, int64_t right) {
  std::optional<Sym> result;
  switch (kind) {
    case Binary::add: result = x + y; break;
    case Binary::subtract: result = x - y; break;
    case Binary::multiply: result = x * y; break;
    case Binary::floor_divide:
      if (right > 0) result = floordiv(x, y);
      break;
    case Binary::remainder:
      if (right > 0) result = mod(x, y);
      break;
    case Binary::power:
      if (!y.is_const() || right < 1 || right > 4) break;
      result = x;
      for (int64_t i = 1; i < right; ++i) *result *= x;
      break;
    default: break;
  }
  return result && !may_overflow(*result) ? result : std::nullopt;
}

/// Arithmetic of ints as an expression over sizes.
static PyObject* expression_arithmetic(Recording& recording, Frame& frame, int op, PyObject* left,
                                       PyObject* right) {
  World& world = recording.world;
  const int kind = op % Binary::inplace;
  if (!world.followed(left) && !world.followed(right)) return nullptr;
  if (!PyLong_CheckExact(left) || !PyLong_CheckExact(right)) return nullptr;
  for (PyObject* side : {left, right})  // a followed int that has no expression
    if (world.follows_number(side) && !world.followed(side)) return nullptr;
  int overflow = 0;
  const int64_t divisor = PyLong_AsLongLongAndOverflow(right, &overflow);
  if (overflow) return nullptr;
  PyLong_AsLongLongAndOverflow(left, &overflow);
  if (overflow) return nullptr;
  const Sym y = world.expression(right);
  const std::optional<Sym> result = arithmetic(kind, world.expression(left), y, divisor);
  if (!result) return nullptr;
  if ((kind == Binary::floor_divide || kind == Binary::remainder) && !y.is_const())
    world.notes->add(0, Relation::lt, y);
  return world.follow(run_base(recording, frame, op, left, right), *result);
}

PyObject* size_arithmetic(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right) {
  World& world = recording.world;
  const int kind = op % Binary::inplace;
  if (!world.follows_number(left) && !world.follows_number(right)) return nullptr;
  if (PyUnicode_Check(left) || PyUnicode_Check(right)) return nullptr;
  if (guard::is_tensor(left) || guard::is_tensor(right)) {
    const bool number_first = guard::is_tensor(right);
    if (world.late(number_first ? right : left)) return nullptr;
    recording.mark(frame);
    // Gradients compute with an exponent: one that is drawn would have to be known to them.
    PyObject* number = number_first ? left : right;
    const bool operand = kind != Binary::power || world.phase_of(number) == guard::Phase::late;
    PyRef lent = PyRef::steal(world.lend(number, operand));
    if (!lent) return nullptr;
    PyObject* value =
        with_tensor(recording, frame, op, number_first ? right : left, lent.get(), number_first);
    if (value || PyErr_Occurred()) recording.end_if_wanted(frame);
    return value;
  }
  if (!is_plain_number(left) || !is_plain_number(right)) return nullptr;
  use_others(world, {left, right});
  PyObject* result = expression_arithmetic(recording, frame, op, left, right);
  if (result || PyErr_Occurred()) return result;
  result = run_base(recording, frame, op, left, right);
  if (!result) return PyErr_Clear(), nullptr;  // raised anew, for these numbers
  if (!is_number(result)) return Py_DECREF(result), nullptr;
  const int x = world.step_of(left), y = world.step_of(right);
  return world.computed(result, {guard::NumberOp::binary, kind, {}, {}, {x, y}});
}

PyObject* number_unary(Recording& recording, Frame& frame, interp::Unary op, PyObject* value) {
  World& world = recording.world;
  using guard::NumberOp;
  const NumberOp as = op == interp::Unary::negative   ? NumberOp::negative
                      : op == interp::Unary::positive ? NumberOp::positive
                                                      : NumberOp::invert;
  if (const Sym* size = world.followed(value); size && op == interp::Unary::negative)
    return world.follow(recording.Semantics::unary_op(frame, op, value), Sym(0) - *size);
  PyObject* result = recording.Semantics::unary_op(frame, op, value);
  return result ? world.computed(result, {as, 0, {}, {}, {world.step_of(value)}}) : nullptr;
}

/// A C function that gives a number for numbers: a step. A bool it gives, numpy's too, is what the run goes
/// by.
PyObject* number_call(Recording& recording, Frame& frame, PyObject* callable,
                      const std::vector<PyObject*>& all) {
  World& world = recording.world;
  constexpr size_t kMost = 64;
  if (all.size() > kMost || !(PyType_Check(callable) || PyCFunction_Check(callable) ||
                              Py_IS_TYPE(callable, &PyMethodDescr_Type) || is_numpys_function(callable)))
    return nullptr;
  bool follows = false;
  for (PyObject* each : all) {
    if (!is_plain_number(each) && each != Py_None) return nullptr;
    follows |= world.follows_number(each);
  }
  if (!follows) return nullptr;
  PyObject* result = PyObject_Vectorcall(callable, all.data(), all.size(), nullptr);
  if (!result) return PyErr_Clear(), nullptr;  // raised anew, for these numbers
  if (!is_plain_number(result) && !guard::is_numpys(Py_TYPE(result))) return Py_DECREF(result), nullptr;
  guard::NumberStep step{guard::NumberOp::call, 0, PyRef::share(callable), {}, {}};
  for (PyObject* each : all) step.args.push_back(world.step_of(each));
  if (is_number(result)) return world.computed(result, std::move(step));
  if (all.size() == 1 && world.is_open(all[0]) && expects(recording, frame, result == Py_True)) {
    const PyRef answer = world.open_numbers.classified(callable, all[0]);
    if (answer && recording.hooks().expect(answer.get(), result == Py_True, world.notes->where()))
      return result;
  }
  world.went_by(std::move(step), result);
  return result;
}

PyObject* Recording::take_data(Frame& frame, const CFunction& row, const std::vector<PyObject*>& all) {
  if (all.size() != 1 || !guard::is_tensor(all[0])) return nullptr;  // asked at every call: most are none
  const Conversion take = takes_data(row);
  if (!take) return nullptr;
  PyObject* number = model_data(frame, all[0], take, class_taken(row));
  return number || PyErr_Occurred() ? number : late_data(frame, all[0], take, row.name == "int");
}

PyObject* Recording::late_data(Frame& frame, PyObject* tensor, PyObject* (*take)(PyObject*), bool as_int) {
  constexpr int64_t kMostElements = 64;
  if (!on || !hooks_.lends_open() || guard::elements_of(tensor) > kMostElements) return nullptr;
  if (world.follows()) world.use_sizes(tensor);  // as many numbers as elements
  touch(frame, tensor);
  if (!on) return nullptr;
  mark(frame);
  PyRef taken = PyRef::steal(hooks_.unseen([&] { return take(tensor); }));
  if (taken && PyBool_Check(taken.get()) && expect_truth(*this, frame, tensor, taken.get() == Py_True))
    return taken.release();
  const bool whole = as_int && taken && PyFloat_CheckExact(taken.get());  // int(nan) raises
  if (!taken || !holds_numbers(taken.get()) || (whole && !world.open_numbers.expect_whole(tensor)))
    return PyErr_Clear(), nullptr;  // by the function itself, after the region's end
  if (whole) taken = PyRef::steal(PyNumber_Long(taken.get()));
  // The tensor as it is now: it may be written to later.
  PyRef copy;
  for (const Taken& before : taken_)
    if (!whole && before.contents == hooks_.contents(tensor) && hooks_.knows(before.copy.get()))
      copy = PyRef::share(before.copy.get());
  if (!copy) {
    PyRef plain = PyRef::steal(PyObject_CallMethod(tensor, "detach", nullptr));
    copy =
        PyRef::steal(plain ? PyObject_CallMethod(plain.get(), whole ? "long" : "clone", nullptr) : nullptr);
    if (const auto now = hooks_.contents(tensor); copy && now && !whole)
      taken_.push_back({*now, PyRef::share(copy.get())});
  }
  int64_t element = 0;
  return copy ? follow_elements(world, taken.release(), copy.get(), element) : nullptr;
}

/// The number that comes first says which of the others.
static PyObject* one_of(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  const Py_ssize_t at = PyLong_AsSsize_t(args[0]), size = nargs - 1;
  if (at >= -size && at < size) return Py_NewRef(args[1 + (at < 0 ? at + size : at)]);
  return PyErr_Format(PyExc_IndexError, "list index out of range");
}

/// random.choice(range(n)).
static PyObject* number_in_range(World& world, PyObject* range, PyObject* key) {
  PyObject* number = PyObject_GetItem(range, key);
  if (!number) return PyErr_Clear(), nullptr;  // raised anew
  const int whole = world.numbers.add({guard::NumberOp::constant, 0, PyRef::share(range), {}, {}});
  return world.computed(
      number, {guard::NumberOp::call, 0, PyRef::share(getitem_function()), {}, {whole, world.step_of(key)}});
}

static PyObject* one_of_numbers(Recording& recording, Frame& frame, PyObject* sequence, PyObject* key) {
  World& world = recording.world;
  static PyMethodDef method = {"one_of", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(one_of)),
                               METH_FASTCALL, nullptr};
  static PyObject* const function = PyCFunction_New(&method, nullptr);
  const bool is_early = world.phase_of(key) == guard::Phase::early;
  if (is_early && PyRange_Check(sequence)) return number_in_range(world, sequence, key);
  if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence)) return nullptr;
  if (Py_SIZE(sequence) >= 64 || (!is_early && world.lengths.known_by_ends(sequence))) return nullptr;
  for (Py_ssize_t i = 0; i < Py_SIZE(sequence); ++i)
    if (!is_number(PySequence_Fast_GET_ITEM(sequence, i))) return nullptr;
  const PyRef followed = world.with_followed(sequence);
  PyObject* whole = followed ? followed.get() : sequence;
  world.read_whole(whole);
  std::vector<PyObject*> all = {key};
  for (Py_ssize_t i = 0; i < Py_SIZE(whole); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(whole, i);
    if (!is_number(item) || world.is_open(item) ||
        Py_TYPE(item) != Py_TYPE(PySequence_Fast_GET_ITEM(whole, 0)))
      return nullptr;
    all.push_back(item);
  }
  PyObject* mine = number_call(recording, frame, function, all);
  if (PyObject* item = mine ? one_of(nullptr, all.data(), std::ssize(all)) : nullptr) {
    if (mine != item) world.stands_for(mine, item);
    Py_DECREF(item);
  }
  return mine;
}

/// An int that differs between calls says which item is meant: of a list from outside whose items nobody
/// needs to know, or of few numbers in a list or tuple. Null: not here.
PyObject* item_by_number(Recording& recording, Frame& frame, PyObject* sequence, PyObject* key) {
  World& world = recording.world;
  if (!PyLong_CheckExact(key) || !world.follows_number(key) || world.phase_of(key) == guard::Phase::late)
    return nullptr;
  PyObject* item = world.places.item_by_number(sequence, key);
  return item ? item : one_of_numbers(recording, frame, sequence, key);
}

int mirrored(int compare) {
  switch (compare) {
    case Py_LT: return Py_GT;
    case Py_LE: return Py_GE;
    case Py_GT: return Py_LT;
    case Py_GE: return Py_LE;
    default: return compare;
  }
}

void note_comparison(SizeNotes& notes, int op, Sym x, Sym y, bool answer) {
  switch (op) {
    case Py_EQ: return notes.answered(x, Relation::eq, y, answer);
    case Py_NE: return notes.answered(x, Relation::ne, y, answer);
    case Py_LT: return notes.answered(x, Relation::lt, y, answer);
    case Py_LE: return notes.answered(x, Relation::le, y, answer);
    case Py_GT: return notes.answered(y, Relation::lt, x, answer);
    default: return notes.answered(y, Relation::le, x, answer);
  }
}

/// How floats are summed up is Python's business: `function` of a sequence, as one of its items.
static PyObject* of_items(PyObject* function, PyObject* numbers) {
  return PyObject_CallOneArg(function, numbers);
}

/// The sum of ints, one of which is open, as it can be known of a step that it does not raise.
static PyObject* open_sum(World& world, const std::vector<PyObject*>& items, PyObject* sum) {
  int total = world.step_of(items[0]);
  for (size_t i = 1; i + 1 < items.size(); ++i)
    total =
        world.numbers.add({guard::NumberOp::binary, Binary::add, {}, {}, {total, world.step_of(items[i])}});
  return world.computed(sum,
                        {guard::NumberOp::binary, Binary::add, {}, {}, {total, world.step_of(items.back())}});
}

/// A C function of a sequence: a step of its items, some of which differ between calls.
PyObject* call_of_items(Recording& recording, Frame& frame, PyObject* callable, PyObject* sequence) {
  static PyMethodDef method = {"of_items", of_items, METH_VARARGS, nullptr};
  recording.touch(frame, sequence);
  const PyRef items = PyRef::steal(recording.on ? PySequence_List(sequence) : nullptr);
  const PyRef function = PyRef::steal(items ? PyCFunction_New(&method, callable) : nullptr);
  if (!function) return nullptr;
  PyObject** const first = PySequence_Fast_ITEMS(items.get());
  return number_call(recording, frame, function.get(), {first, first + PyList_GET_SIZE(items.get())});
}

/// max, min, sum and the like of a container that holds numbers which differ between calls: of the numbers
/// themselves. Null without an exception: not here.
PyObject* reduction(Recording& recording, Frame& frame, const CFunction& row, PyObject* callable,
                    PyObject* container) {
  const bool sums = row.name == "builtins.sum";
  const bool takes_items = row.name == "builtins.max" || row.name == "builtins.min";
  if (!sums && !takes_items && row.name != "math.prod" && row.name != "math.fsum") return nullptr;
  recording.touch(frame, container);
  const PyRef list = PyRef::steal(recording.on ? PySequence_List(container) : nullptr);
  if (!list) return nullptr;
  const std::vector<PyObject*> items(PySequence_Fast_ITEMS(list.get()),
                                     PySequence_Fast_ITEMS(list.get()) + PyList_GET_SIZE(list.get()));
  guard::Phase phase = guard::Phase::check;
  for (PyObject* each : items) phase = std::max(phase, recording.world.phase_of(each));
  const bool open = phase != guard::Phase::check;
  const bool ints =
      std::all_of(items.begin(), items.end(), [](PyObject* each) { return PyLong_CheckExact(each); });
  const bool late_floats = phase == guard::Phase::late && !(sums && ints);
  if (items.size() < 2 || (late_floats && !takes_items)) return nullptr;
  if (takes_items) return number_call(recording, frame, callable, items);
  if (!open || !(sums && ints)) return call_of_items(recording, frame, callable, list.get());
  PyObject* result = PyObject_CallOneArg(callable, container);
  return result ? open_sum(recording.world, items, result) : nullptr;
}

/// mode == "sum": which of the two it is, not what the text says. Null without an exception: not here.
static PyObject* text_comparison(World& world, int op, PyObject* left, PyObject* right) {
  if (!PyUnicode_CheckExact(left) || !PyUnicode_CheckExact(right) || world.late(left) || world.late(right) ||
      (!world.follows_number(left) && !world.follows_number(right)))
    return nullptr;
  PyObject* value = PyUnicode_RichCompare(left, right, op);
  const int x = world.step_of(left), y = world.step_of(right);
  if (value) world.went_by({guard::NumberOp::compare, op, {}, {}, {x, y}}, value);
  return value;
}

namespace {

/// random.random: the generator's other methods are Python's, and give other numbers.
bool is_random(PyObject* function) {
  if (PyFunction_Check(function)) return false;
  const PyRef name = PyRef::steal(PyObject_GetAttrString(function, "__name__"));
  if (!name) PyErr_Clear();
  return name && PyUnicode_Check(name.get()) && !PyUnicode_CompareWithASCIIString(name.get(), "random");
}

/// Where a number lies that is random.random(), or computed from it and constants; nothing: not known.
std::optional<NumberRange> range_of(const guard::Numbers& numbers, int at) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  constexpr double kExact = 1LL << 53;  // up to there ints are doubles
  const guard::NumberStep& step = numbers.steps[at];
  if (step.op == NumberOp::constant && is_exact_number(step.object.get())) {
    const double value = PyFloat_AsDouble(step.object.get());
    if (PyErr_Occurred()) return PyErr_Clear(), std::nullopt;
    return std::fabs(value) <= kExact ? std::optional(NumberRange{value, value}) : std::nullopt;
  }
  if (numbers.draws(step) && is_random(step.object.get())) return NumberRange{0, 1};
  if (step.op != NumberOp::binary) return std::nullopt;
  const std::optional<NumberRange> x = range_of(numbers, step.args[0]);
  const std::optional<NumberRange> y = x ? range_of(numbers, step.args[1]) : std::nullopt;
  if (!y) return std::nullopt;
  switch (step.kind) {
    case Binary::add: return *x + *y;
    case Binary::subtract: return *x - *y;
    case Binary::multiply: return *x * *y;
    default: return std::nullopt;
  }
}

/// CPython's numbering; nothing: it asks for no order.
std::optional<Inequality> order_of(int compare) {
  switch (compare) {
    case Py_LT: return Inequality::less;
    case Py_LE: return Inequality::less_or_equal;
    case Py_GT: return Inequality::greater;
    case Py_GE: return Inequality::greater_or_equal;
    default: return std::nullopt;
  }
}

/// random.random() < 0: a comparison of a random number with one that guards know, of which the outcome is
/// the same whatever is drawn. Such a number is taken for what it is.
bool outcome_is_known(World& world, int op, PyObject* left, PyObject* right) {
  const bool turned = world.is_open(right);
  PyObject *const drawn = turned ? right : left, *const with = turned ? left : right;
  if (world.is_open(with) || world.step_so_far(drawn) < 0) return false;
  const std::optional<NumberRange> range = range_of(world.numbers, world.step_so_far(drawn));
  const double value = range && is_exact_number(with) ? PyFloat_AsDouble(with) : std::nan("");
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  const int how = turned ? mirrored(op) : op;
  const std::optional<Inequality> order = order_of(how);
  if (!range || !order || !known_outcome(*range, *order, value)) return false;
  world.use(with);
  return true;
}

}  // namespace

/// Two numbers that are one size in each call: of what one mask selects, say.
static bool are_one_size(const World& world, PyObject* left, PyObject* right) {
  const Sym *x = world.followed(left), *y = world.followed(right);
  return x && y && *x == *y;
}

PyObject* size_comparison(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right) {
  World& world = recording.world;
  if (PyObject* answer = text_comparison(world, op, left, right)) return answer;
  auto note = [&](int how, PyObject* a, PyObject* b, bool yes) {
    note_comparison(*world.notes, how, world.expression(a), world.expression(b), yes);
  };
  if (is_plain_number(left) && is_plain_number(right)) {
    if (!world.follows_number(left) && !world.follows_number(right)) return nullptr;
    use_others(world, {left, right});
    PyObject* value = PyObject_RichCompare(left, right, op);
    if (!value) return nullptr;
    if (are_one_size(world, left, right)) return value;
    if (world.is_open(left) || world.is_open(right)) {
      if (outcome_is_known(world, op, left, right)) return value;
      if (PyBool_Check(value) && expects(recording, frame, value == Py_True) &&
          expect_comparison(recording, frame, op, left, right, value == Py_True))
        return value;
      for (PyObject* side : {left, right})
        if (world.is_open(side)) return world.use(side), value;  // ends the region
    }
    bool expressions = true;
    for (PyObject* side : {left, right}) {
      int overflow = 0;
      expressions = expressions && PyLong_CheckExact(side) &&
                    (world.followed(side) || !world.follows_number(side)) &&
                    (PyLong_AsLongLongAndOverflow(side, &overflow), !overflow);
    }
    if (expressions) {
      note(op, left, right, value == Py_True);
    } else {
      const int x = world.step_of(left), y = world.step_of(right);
      world.went_by({guard::NumberOp::compare, op, {}, {}, {x, y}}, value);
    }
    return value;
  }
  // (b, s) == x.shape: equal in every element, or different in the first that differs.
  if ((op == Py_EQ || op == Py_NE) && is_sequence(left) && is_sequence(right) &&
      (world.holds_followed(left, 1) || world.holds_followed(right, 1)) && Py_SIZE(left) == Py_SIZE(right)) {
    for (PyObject* side : {left, right}) world.own_numbers_of(side);
    for (PyObject* side : {left, right})
      for (Py_ssize_t i = 0; i < Py_SIZE(side); ++i)
        if (PyObject* each = PySequence_Fast_GET_ITEM(side, i);
            !PyLong_CheckExact(each) || (world.follows_number(each) && !world.followed(each)))
          return nullptr;
    for (Py_ssize_t i = 0; i < Py_SIZE(left); ++i) {
      PyObject *a = PySequence_Fast_GET_ITEM(left, i), *b = PySequence_Fast_GET_ITEM(right, i);
      if (are_one_size(world, a, b)) continue;
      for (PyObject* each : {a, b})
        if (world.is_open(each)) return world.use(each), nullptr;
    }
    for (PyObject* side : {left, right}) {
      world.read_whole(side);
      for (Py_ssize_t i = 0; i < Py_SIZE(side); ++i) use_others(world, {PySequence_Fast_GET_ITEM(side, i)});
    }
    const size_t noted = world.notes->facts.size();
    bool equal = true;
    for (Py_ssize_t i = 0; equal && i < Py_SIZE(left); ++i) {
      PyObject *a = PySequence_Fast_GET_ITEM(left, i), *b = PySequence_Fast_GET_ITEM(right, i);
      equal = PyLong_AsLongLong(a) == PyLong_AsLongLong(b);
      if (are_one_size(world, a, b)) continue;
      if (!equal) world.notes->facts.resize(noted);  // enough
      note(Py_EQ, a, b, equal);
    }
    return Py_NewRef(equal == (op == Py_EQ) ? Py_True : Py_False);
  }
  for (bool turned : {false, true}) {
    PyObject *tensor = turned ? right : left, *number = turned ? left : right;
    if (!guard::is_tensor(tensor) || world.late(tensor) || !world.follows_number(number)) continue;
    recording.mark(frame);
    PyRef lent = PyRef::steal(world.lend(number, true));
    if (!lent) return nullptr;
    const int how = turned ? mirrored(op) : op;
    PyObject* value = recording.finish_compare(
        frame, how, tensor, lent.get(), recording.Semantics::start_compare(frame, how, tensor, lent.get()));
    recording.end_if_wanted(frame);
    return value;
  }
  return nullptr;
}

}  // namespace bolt::observe
