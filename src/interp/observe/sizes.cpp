// interp/observe/sizes.cpp
// Operations on numbers that differ between calls, and what is computed from them. The result of arithmetic
// is followed, with its expression where it is one over sizes, as a step of Python's otherwise; a comparison
// leaves a fact; an operator of torch is lent the number. Whatever is not here takes the number for what it
// is (World::use).

#include "interp/observe/recording.h"

namespace bolt::observe {

using interp::Semantics;

namespace {

namespace Binary = interp::Binary;

bool is_sequence(PyObject* object) { return PyTuple_Check(object) || PyList_Check(object); }
PyObject* item(PyObject* sequence, Py_ssize_t i) {
  return PyTuple_Check(sequence) ? PyTuple_GET_ITEM(sequence, i) : PyList_GET_ITEM(sequence, i);
}

/// The same operation with the sides changed; -1: there is none.
int mirrored(int compare) {
  switch (compare) {
    case Py_LT: return Py_GT;
    case Py_LE: return Py_GE;
    case Py_GT: return Py_LT;
    case Py_GE: return Py_LE;
    default: return compare;
  }
}

/// tensor.item(), float(tensor), int(tensor), tensor.tolist(): the function, given the tensor.
using Conversion = PyObject* (*)(PyObject*);
Conversion takes_data(const CFunction& row) {
  auto item = [](PyObject* tensor) { return PyObject_CallMethod(tensor, "item", nullptr); };
  if (row.name == "torch._C.TensorBase.item") return item;
  if (row.name == "float") return PyNumber_Float;
  if (row.name == "int")
    return item;  // of ints: int(nan) raises, and nobody knows what later calls have there
  if (row.name == "torch._C.TensorBase.tolist")
    return [](PyObject* tensor) { return PyObject_CallMethod(tensor, "tolist", nullptr); };
  return nullptr;
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
  if (is_number(object)) return world.data_number(object, tensor, element++);
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
  std::vector<Sym> symbols;
  collect_symbols(s, &symbols);
  for (Sym each : symbols)
    if (guard::number_step(*each.node()) < 0) return false;
  return !symbols.empty() && upper_bound(s) == 0 && s.node()->op == SymOp::Mul;
}

/// torch.name, held for the life of the process; null with an exception.
PyObject* torch_function(const char* name) {
  PyRef module = PyRef::steal(PyImport_ImportModule("torch"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

/// tensor (op) number, or the other way round, as torch's own special methods compute it; null without an
/// exception: not here.
PyObject* with_tensor(Semantics& semantics, Frame& frame, int op, PyObject* tensor, PyObject* number,
                      bool number_first) {
  const int kind = op % Binary::inplace;
  if (!number_first) {
    const bool known = kind == Binary::add || kind == Binary::multiply || kind == Binary::subtract ||
                       kind == Binary::true_divide || kind == Binary::power;
    return known ? semantics.Semantics::binary_op(frame, op, tensor, number) : nullptr;
  }
  switch (kind) {
    case Binary::add:
    case Binary::multiply: return semantics.Semantics::binary_op(frame, kind, tensor, number);
    case Binary::subtract: {
      static PyObject* const rsub = torch_function("rsub");
      return rsub ? PyObject_CallFunctionObjArgs(rsub, tensor, number, nullptr) : nullptr;
    }
    case Binary::true_divide: {
      static PyObject* const reciprocal = torch_function("reciprocal");
      PyRef turned =
          PyRef::steal(reciprocal ? PyObject_CallFunctionObjArgs(reciprocal, tensor, nullptr) : nullptr);
      return turned ? semantics.Semantics::binary_op(frame, Binary::multiply, turned.get(), number) : nullptr;
    }
    default: return nullptr;
  }
}

}  // namespace

/// x[:8] of a tensor that is no longer than 8 is the tensor itself, and no operator tells.
void Recording::note_slices(PyObject* tensor, PyObject* key) {
  const bool many = PyTuple_Check(key);
  for (Py_ssize_t i = 0; i < (many ? PyTuple_GET_SIZE(key) : 1); ++i) {
    PyObject* part = many ? PyTuple_GET_ITEM(key, i) : key;
    if (!PySlice_Check(part)) continue;
    PyObject* stop = reinterpret_cast<PySliceObject*>(part)->stop;
    if (!PyLong_CheckExact(stop) || world.followed(stop)) continue;
    const int64_t end = PyLong_AsLongLong(stop);
    const c10::TensorImpl& impl = *guard::tensor_impl(tensor);
    for (int d = 0; end >= 0 && d < guard::rank_of(impl); ++d)  // which dimension it cuts is not looked for
      if (Sym size = hooks_.size_of(tensor, d); !size.is_const())
        world.notes->answered(size, Relation::le, end, guard::size_of(impl, d) <= end);
  }
}

PyObject* Recording::size_arithmetic(Frame& frame, int op, PyObject* left, PyObject* right, bool* handled) {
  const int kind = op % Binary::inplace;
  if (!world.follows_number(left) && !world.follows_number(right)) return nullptr;
  at_line(frame);
  if (guard::is_tensor(left) || guard::is_tensor(right)) {
    const bool number_first = guard::is_tensor(right);
    PyRef lent = PyRef::steal(world.lend(number_first ? left : right, kind != Binary::power));
    *handled = !lent;
    if (!lent) return nullptr;
    mark(frame);
    PyObject* value = with_tensor(*this, frame, op, number_first ? right : left, lent.get(), number_first);
    *handled = value || PyErr_Occurred();
    if (*handled) end_if_wanted(frame);
    return value;
  }
  if (!is_plain_number(left) || !is_plain_number(right)) return nullptr;
  use_others({left, right});
  PyObject* result = expression_arithmetic(frame, op, left, right, handled);
  if (*handled) return result;
  result = Semantics::binary_op(frame, op, left, right);
  if (!result) return PyErr_Clear(), nullptr;  // raised anew, for these numbers
  if (!is_number(result)) return Py_DECREF(result), nullptr;
  *handled = true;
  const int x = world.step_of(left), y = world.step_of(right);
  return world.computed(result, {guard::NumberOp::binary, kind, {}, {}, {x, y}});
}

/// Numbers that are not followed may be carried along unread (World::carried): now they are read.
void Recording::use_others(const std::vector<PyObject*>& numbers) {
  for (PyObject* each : numbers)
    if (!world.follows_number(each)) world.use(each);
}

/// Arithmetic of ints as an expression over sizes.
PyObject* Recording::expression_arithmetic(Frame& frame, int op, PyObject* left, PyObject* right,
                                           bool* handled) {
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
  const Sym x = world.expression(left), y = world.expression(right);
  Sym result;
  switch (kind) {
    case Binary::add: result = x + y; break;
    case Binary::subtract: result = x - y; break;
    case Binary::multiply: result = x * y; break;
    case Binary::floor_divide:
    case Binary::remainder:
      if (divisor <= 0) return nullptr;
      if (!y.is_const()) world.notes->add(0, Relation::lt, y);
      result = kind == Binary::remainder ? mod(x, y) : floordiv(x, y);
      break;
    case Binary::power:
      if (!y.is_const() || divisor < 1 || divisor > 4) return nullptr;
      result = x;
      for (int64_t i = 1; i < divisor; ++i) result *= x;
      break;
    default: return nullptr;
  }
  if (may_overflow(result)) return nullptr;
  *handled = true;
  return world.follow(Semantics::binary_op(frame, op, left, right), result);
}

PyObject* Recording::number_unary(Frame& frame, interp::Unary op, PyObject* value) {
  using guard::NumberOp;
  const NumberOp as = op == interp::Unary::negative   ? NumberOp::negative
                      : op == interp::Unary::positive ? NumberOp::positive
                                                      : NumberOp::invert;
  if (const Sym* size = world.followed(value); size && op == interp::Unary::negative)
    return world.follow(Semantics::unary_op(frame, op, value), Sym(0) - *size);
  PyObject* result = Semantics::unary_op(frame, op, value);
  return result ? world.computed(result, {as, 0, {}, {}, {world.step_of(value)}}) : nullptr;
}

/// A C function that gives a number for numbers: a step. A bool it gives is what the run goes by.
PyObject* Recording::number_call(PyObject* callable, const std::vector<PyObject*>& all, bool* handled) {
  constexpr size_t kMost = 8;
  if (all.size() > kMost ||
      !(PyType_Check(callable) || PyCFunction_Check(callable) || Py_IS_TYPE(callable, &PyMethodDescr_Type)))
    return nullptr;
  bool follows = false;
  for (PyObject* each : all) {
    if (!is_plain_number(each) && each != Py_None) return nullptr;
    follows |= world.follows_number(each);
  }
  if (!follows) return nullptr;
  PyObject* result = PyObject_Vectorcall(callable, all.data(), all.size(), nullptr);
  if (!result) return PyErr_Clear(), nullptr;  // raised anew, for these numbers
  if (!is_plain_number(result)) return Py_DECREF(result), nullptr;
  *handled = true;
  guard::NumberStep step{guard::NumberOp::call, 0, PyRef::share(callable), {}, {}};
  for (PyObject* each : all) step.args.push_back(world.step_of(each));
  if (is_number(result)) return world.computed(result, std::move(step));
  world.went_by(std::move(step), result);
  return result;
}

/// A number taken out of a tensor ends no region by itself: it is known again when the program has run. Null
/// without an exception: not here.
PyObject* Recording::take_data(Frame& frame, const CFunction& row, const std::vector<PyObject*>& all) {
  constexpr int64_t kMostElements = 64;
  const Conversion take = takes_data(row);
  if (!take || all.size() != 1 || !guard::is_tensor(all[0]) || !hooks_.follows_data()) return nullptr;
  PyObject* tensor = all[0];
  const c10::TensorImpl& impl = *guard::tensor_impl(tensor);
  int64_t elements = 1;
  for (int d = 0; d < guard::rank_of(impl); ++d) elements *= guard::size_of(impl, d);
  if (elements > kMostElements) return nullptr;
  if (world.follows()) at_line(frame), world.use_sizes(tensor);  // as many numbers as elements
  touch(frame, tensor);
  if (!on) return nullptr;
  mark(frame);
  hooks_.pause(true);
  PyRef taken = PyRef::steal(take(tensor));
  hooks_.pause(false);
  if (!taken || !holds_numbers(taken.get()) || (row.name == "int" && PyFloat_CheckExact(taken.get())))
    return PyErr_Clear(), nullptr;  // by the function itself, after the region's end
  // The tensor as it is now: it may be written to later.
  PyRef plain = PyRef::steal(PyObject_CallMethod(tensor, "detach", nullptr));
  PyRef copy = PyRef::steal(plain ? PyObject_CallMethod(plain.get(), "clone", nullptr) : nullptr);
  int64_t element = 0;
  return copy ? follow_elements(world, taken.release(), copy.get(), element) : nullptr;
}

PyObject* Recording::size_comparison(Frame& frame, int op, PyObject* left, PyObject* right, bool* handled) {
  auto note = [&](int how, PyObject* a, PyObject* b, bool yes) {
    const Sym x = world.expression(a), y = world.expression(b);
    switch (how) {
      case Py_EQ: return world.notes->answered(x, Relation::eq, y, yes);
      case Py_NE: return world.notes->answered(x, Relation::ne, y, yes);
      case Py_LT: return world.notes->answered(x, Relation::lt, y, yes);
      case Py_LE: return world.notes->answered(x, Relation::le, y, yes);
      case Py_GT: return world.notes->answered(y, Relation::lt, x, yes);
      default: return world.notes->answered(y, Relation::le, x, yes);
    }
  };
  if (is_plain_number(left) && is_plain_number(right)) {
    if (!world.follows_number(left) && !world.follows_number(right)) return nullptr;
    at_line(frame);
    use_others({left, right});
    *handled = true;
    PyObject* value = Semantics::compare(frame, op, left, right);
    if (!value) return nullptr;
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
    for (PyObject* side : {left, right})
      for (Py_ssize_t i = 0; i < Py_SIZE(side); ++i)
        if (PyObject* each = item(side, i);
            !PyLong_CheckExact(each) || (world.follows_number(each) && !world.followed(each)))
          return nullptr;
    at_line(frame);
    for (PyObject* side : {left, right})
      for (Py_ssize_t i = 0; i < Py_SIZE(side); ++i) use_others({item(side, i)});
    *handled = true;
    bool equal = true;
    for (Py_ssize_t i = 0; equal && i < Py_SIZE(left); ++i) {
      PyObject *a = item(left, i), *b = item(right, i);
      equal = PyLong_AsLongLong(a) == PyLong_AsLongLong(b);
      if (!equal) world.notes->facts.resize(world.notes->facts.size() - static_cast<size_t>(i));  // enough
      note(Py_EQ, a, b, equal);
    }
    return Py_NewRef(equal == (op == Py_EQ) ? Py_True : Py_False);
  }
  for (bool turned : {false, true}) {
    PyObject *tensor = turned ? right : left, *number = turned ? left : right;
    if (!guard::is_tensor(tensor) || !world.follows_number(number)) continue;
    at_line(frame);
    PyRef lent = PyRef::steal(world.lend(number, true));
    if (!lent) return nullptr;
    *handled = true;
    mark(frame);
    PyObject* value = Semantics::compare(frame, turned ? mirrored(op) : op, tensor, lent.get());
    end_if_wanted(frame);
    return value;
  }
  return nullptr;
}

namespace {

/// min, max, sum and product of followed numbers: over the arguments, or over the one that is a sequence.
PyObject* reduce(Recording& recording, const std::string& name, const std::vector<PyObject*>& all) {
  World& world = recording.world;
  std::vector<PyObject*> numbers = all;
  if (all.size() == 1 && is_sequence(all[0])) {
    numbers.clear();
    for (Py_ssize_t i = 0; i < Py_SIZE(all[0]); ++i) numbers.push_back(item(all[0], i));
  }
  if (numbers.empty()) return nullptr;
  bool followed = false;
  for (PyObject* n : numbers) {
    if (!PyLong_CheckExact(n) || (world.follows_number(n) && !world.followed(n))) return nullptr;
    followed |= world.followed(n) != nullptr;
  }
  if (!followed) return nullptr;
  for (PyObject* n : numbers)
    if (!world.follows_number(n)) world.use(n);
  Sym size = world.expression(numbers[0]);
  int64_t value = PyLong_AsLongLong(numbers[0]);
  for (size_t i = 1; i < numbers.size(); ++i) {
    const Sym next = world.expression(numbers[i]);
    const int64_t n = PyLong_AsLongLong(numbers[i]);
    if (name == "min") {
      size = min(size, next), value = std::min(value, n);
    } else if (name == "max") {
      size = max(size, next), value = std::max(value, n);
    } else if (name == "sum") {
      size += next, value += n;
    } else {
      size *= next, value *= n;
    }
  }
  return world.follow(PyLong_FromLongLong(value), size);
}

/// tensor.size(), .size(1), .numel()
PyObject* size_query(Recording& recording, const CFunction& row, const std::vector<PyObject*>& all) {
  World& world = recording.world;
  PyObject* tensor = all[0];
  const int rank = guard::rank_of(*guard::tensor_impl(tensor));
  if (row.method == "size" && all.size() == 1) return world.tensor_sizes(tensor);
  if (row.method == "size" && all.size() == 2 && PyLong_CheckExact(all[1])) {
    world.use(all[1]);
    const long dim = PyLong_AsLong(all[1]);
    if (dim < -rank || dim >= rank) return nullptr;  // eager raises
    return world.tensor_size(tensor, static_cast<int>(dim < 0 ? dim + rank : dim));
  }
  if ((row.method == "numel" || row.method == "nelement") && all.size() == 1) {
    PyRef sizes = PyRef::steal(world.tensor_sizes(tensor));
    if (!sizes) return nullptr;
    if (rank == 0) return PyLong_FromLong(1);
    PyObject* product = reduce(recording, "prod", {sizes.get()});
    if (product || PyErr_Occurred()) return product;
  }
  return nullptr;
}

bool gives_tensors(PyObject* result) {
  if (result == Py_None || guard::is_tensor(result)) return true;
  if (!is_sequence(result)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i)
    if (!gives_tensors(item(result, i))) return false;
  return true;
}

}  // namespace

PyObject* Recording::size_call(Frame& frame, const CFunction& row, PyObject* callable, PyObject* const* args,
                               size_t nargs, PyObject* kwnames, const std::vector<PyObject*>& all,
                               bool* handled) {
  PyObject* result = nullptr;
  auto done = [&](PyObject* value) {
    *handled = value || PyErr_Occurred();
    return value;
  };
  at_line(frame);
  if (!kwnames) {
    if (row.name == "builtins.min" || row.name == "builtins.max" || row.name == "builtins.sum" ||
        row.name == "math.prod")
      if ((result = reduce(*this, row.method, all)) || PyErr_Occurred()) return done(result);
    if (row.name == "torch.Size.numel" && all.size() == 1) return done(reduce(*this, "prod", all));
    if (row.name == "int" && all.size() == 1 && PyLong_CheckExact(all[0])) return done(Py_NewRef(all[0]));
    if (row.kind == Kind::pure && all.size() == nargs) {
      result = number_call(callable, all, handled);
      if (*handled) return result;
    }
  }
  if (row.kind != Kind::tensor) return nullptr;
  if (!kwnames && !all.empty() && guard::is_tensor(all[0]))
    if ((result = size_query(*this, row, all)) || PyErr_Occurred()) return done(result);

  const bool lends =
      std::any_of(all.begin(), all.end(), [&](PyObject* each) { return world.holds_followed(each); });
  if (lends) {
    const size_t total = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
    std::vector<PyRef> held;
    std::vector<PyObject*> passed;
    for (size_t i = 0; i < total; ++i) {
      held.push_back(PyRef::steal(world.lend(args[i])));
      if (!held.back()) return done(nullptr);
      passed.push_back(held.back().get());
    }
    for (PyObject* each : all) touch(frame, each, true);
    if (!on) return nullptr;
    mark(frame);
    const size_t before = hooks_.recorded();
    result = run_native(callable, passed.data(), nargs, kwnames, row.name);
    if (!result && hooks_.recorded() == before) {
      // Not every function takes a torch.SymInt. Whether it takes the number is asked with the number.
      PyErr_Clear();
      return nullptr;
    }
    end_if_wanted(frame);
    *handled = true;
  }
  if (result) sizes_seen(row, all, result);
  return result;
}

/// A function that reports on tensors, rather than computing others, saw their sizes.
void Recording::sizes_seen(const CFunction& row, const std::vector<PyObject*>& all, PyObject* result) {
  if (row.is(Trait::ignores_sizes) || gives_tensors(result)) return;
  for (PyObject* each : all)
    if (guard::is_tensor(each)) world.use_sizes(each);
}

}  // namespace bolt::observe
