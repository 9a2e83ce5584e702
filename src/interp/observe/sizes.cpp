// interp/observe/sizes.cpp
// Operations on numbers that differ between calls: sizes, and what is computed from them. The result of
// integer arithmetic is followed with its expression; a comparison leaves a fact; an operator of torch is
// lent the expression. Whatever is not here takes the number for what it is (World::use).

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

/// What torch takes from a number as it takes it from a tensor without dimensions.
bool lends_to_tensor(int kind, bool number_first) {
  if (kind == Binary::add || kind == Binary::multiply) return true;
  return !number_first && (kind == Binary::subtract || kind == Binary::true_divide);
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
  const Sym *a = world.followed(left), *b = world.followed(right);
  if (!a && !b) return nullptr;
  at_line(frame);
  if (guard::is_tensor(left) || guard::is_tensor(right)) {
    const bool number_first = guard::is_tensor(right);
    if (!lends_to_tensor(kind, number_first)) return nullptr;
    *handled = true;
    PyRef lent = PyRef::steal(world.lend(number_first ? left : right));
    if (!lent) return nullptr;
    mark(frame);
    PyObject* value = number_first ? Semantics::binary_op(frame, kind, right, lent.get())
                                   : Semantics::binary_op(frame, op, left, lent.get());
    end_if_wanted(frame);
    return value;
  }
  if (!PyLong_CheckExact(left) || !PyLong_CheckExact(right)) return nullptr;
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
  *handled = true;
  return world.follow(Semantics::binary_op(frame, op, left, right), result);
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
  if (PyLong_CheckExact(left) && PyLong_CheckExact(right)) {
    if (!world.followed(left) && !world.followed(right)) return nullptr;
    int overflow = 0;
    for (PyObject* side : {left, right})
      if (PyLong_AsLongLongAndOverflow(side, &overflow), overflow) return nullptr;
    at_line(frame);
    *handled = true;
    PyObject* value = Semantics::compare(frame, op, left, right);
    if (value) note(op, left, right, value == Py_True);
    return value;
  }
  // (b, s) == x.shape: equal in every element, or different in the first that differs.
  if ((op == Py_EQ || op == Py_NE) && is_sequence(left) && is_sequence(right) &&
      (world.holds_followed(left, 1) || world.holds_followed(right, 1)) && Py_SIZE(left) == Py_SIZE(right)) {
    for (PyObject* side : {left, right})
      for (Py_ssize_t i = 0; i < Py_SIZE(side); ++i)
        if (!PyLong_CheckExact(item(side, i))) return nullptr;
    at_line(frame);
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
    if (!guard::is_tensor(tensor) || !world.followed(number)) continue;
    at_line(frame);
    PyRef lent = PyRef::steal(world.lend(number));
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
    if (!PyLong_CheckExact(n)) return nullptr;
    followed |= world.followed(n) != nullptr;
  }
  if (!followed) return nullptr;
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
      return done(reduce(*this, row.method, all));
    if (row.name == "torch.Size.numel" && all.size() == 1) return done(reduce(*this, "prod", all));
    if (row.name == "int" && all.size() == 1 && world.followed(all[0])) return done(Py_NewRef(all[0]));
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
  if (ignores_sizes(row) || gives_tensors(result)) return;
  for (PyObject* each : all)
    if (guard::is_tensor(each)) world.use_sizes(each);
}

}  // namespace bolt::observe
