// observe/values/open_numbers.cpp
#include "observe/values/open_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "interp/semantics.h"
#include "observe/world.h"

namespace bolt::observe {

Why why_open(guard::Phase phase) {
  return phase == guard::Phase::late ? Why::data_decide : Why::random_decides;
}

namespace {

/// Where a function of floats gives a number and does not raise: from low to high. What is close to an end is
/// eager's.
struct Domain {
  const char *module, *name;
  double low, high;
};
constexpr int64_t kExact = int64_t{1} << 53;  // up to there ints are doubles
constexpr double kAny = std::numeric_limits<double>::infinity(), kWhole = 9e15, kLeast = 1e-300;
constexpr Domain kDomains[] = {
    {"builtins", "abs", -kAny, kAny},     {"builtins", "float", -kAny, kAny},
    {"builtins", "int", -kWhole, kWhole}, {"builtins", "round", -kWhole, kWhole},
    {"math", "floor", -kWhole, kWhole},   {"math", "ceil", -kWhole, kWhole},
    {"math", "trunc", -kWhole, kWhole},   {"math", "sqrt", 0, kAny},
    {"math", "exp", -kAny, 709},          {"math", "log", kLeast, kAny},
    {"math", "log2", kLeast, kAny},       {"math", "log10", kLeast, kAny},
    {"math", "tanh", -kAny, kAny},        {"math", "atan", -kAny, kAny},
    {"math", "fabs", -kAny, kAny},
};

bool is_named(PyObject* object, const char* attribute, const char* text) {
  PyRef name = PyRef::steal(PyObject_GetAttrString(object, attribute));
  if (!name) PyErr_Clear();
  return name && PyUnicode_Check(name.get()) && !PyUnicode_CompareWithASCIIString(name.get(), text);
}

const Domain* domain_of(PyObject* callable) {
  const auto* row = std::find_if(std::begin(kDomains), std::end(kDomains), [&](const Domain& each) {
    return is_named(callable, "__name__", each.name) && is_named(callable, "__module__", each.module);
  });
  return row == std::end(kDomains) ? nullptr : row;
}

}  // namespace

bool OpenNumbers::expect_within(int step, double low, double high) {
  if (low == -kAny && high == kAny) return true;
  const PyRef number = data_tensor(step);
  const PyRef real = PyRef::steal(number ? PyObject_CallMethod(number.get(), "double", nullptr) : nullptr);
  bool done = real.get() != nullptr;
  for (auto [method, bound] : {std::pair("ge", low), {"le", high}}) {
    if (!done || bound == (method[0] == 'g' ? -kAny : kAny)) continue;
    const PyRef within = PyRef::steal(PyObject_CallMethod(real.get(), method, "d", bound));
    done = within && hooks_.expect(within.get(), true, world_.notes->where());
  }
  return PyErr_Clear(), done;
}

bool OpenNumbers::expect_whole(PyObject* tensor) {
  const PyRef plain = PyRef::steal(PyObject_CallMethod(tensor, "detach", nullptr));
  const PyRef size = PyRef::steal(plain ? PyObject_CallMethod(plain.get(), "abs", nullptr) : nullptr);
  const PyRef within = PyRef::steal(size ? PyObject_CallMethod(size.get(), "le", "d", kWhole) : nullptr);
  const bool done = within && hooks_.expect(within.get(), true, world_.notes->where());
  return PyErr_Clear(), done;
}

bool OpenNumbers::expect_other_than_0(int step) {
  const PyRef number = data_tensor(step);
  const PyRef other = PyRef::steal(number ? PyObject_CallMethod(number.get(), "ne", "i", 0) : nullptr);
  const bool done = other && hooks_.expect(other.get(), true, world_.notes->where());
  return PyErr_Clear(), done;
}

/// Does this function give one of the numbers that it is given?
static bool gives_one_of(PyObject* function) {
  return is_named(function, "__name__", "max") || is_named(function, "__name__", "min") ||
         is_named(function, "__name__", "one_of");
}

/// How far from 0 the numbers in a range can be.
static std::optional<double> bound_of_range(PyObject* range) {
  double most = 0;
  for (const char* end : {"start", "stop"}) {
    const PyRef number = PyRef::steal(PyObject_GetAttrString(range, end));
    most = std::max(most, number ? std::fabs(PyFloat_AsDouble(number.get())) : kAny);
  }
  return PyErr_Occurred() ? (PyErr_Clear(), std::nullopt) : std::optional(most);
}

std::optional<double> OpenNumbers::bound_of(int step) {
  if (const auto known = bounds_.find(step); known != bounds_.end()) return known->second;
  return bounds_[step] = find_bound(step);
}

std::optional<double> OpenNumbers::find_bound(int at) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  const guard::NumberStep& step = world_.numbers.steps[at];
  auto of = [&](size_t arg) { return bound_of(step.args[arg]); };
  if (step.op == NumberOp::constant && PyRange_Check(step.object.get()))
    return bound_of_range(step.object.get());
  if (step.op == NumberOp::constant) {
    const double value = PyFloat_AsDouble(step.object.get());
    return PyErr_Occurred() ? (PyErr_Clear(), std::nullopt) : std::optional(std::fabs(value));
  }
  if (step.op == NumberOp::size || world_.has_symbol(at)) return kNumberLimit;
  if (world_.numbers.draws(step)) {
    PyObject* const method = step.object.get();
    if (is_named(method, "__name__", "random")) return 1;
    const bool below = is_named(method, "__name__", "_randbelow_with_getrandbits");
    const bool between = is_named(method, "__name__", "randint") ||
                         is_named(method, "__name__", "integers") || is_named(method, "__name__", "choice");
    std::optional<double> most;  // of the numbers that say from which range an int is
    for (size_t i = 1; (below || between) && i < step.args.size() && (i == 1 || most); ++i)
      if (const auto x = of(i))
        most = std::max(most.value_or(0), *x);
      else
        most = std::nullopt;
    return most;
  }
  if (step.op == NumberOp::negative || step.op == NumberOp::positive) return of(0);
  if (step.op == NumberOp::call) {
    const bool rounds = domain_of(step.object.get()) && step.args.size() == 1 && step.type == &PyLong_Type;
    const guard::NumberStep* const list = drawn_list(world_.numbers, step);
    const bool of_range = !list && step.object.get() == getitem_function();  // the others give texts
    if (!rounds && !list && !of_range && !gives_one_of(step.object.get())) return std::nullopt;
    const std::vector<int>& among = list ? list->args : step.args;
    std::optional<double> most = 0;
    for (size_t i = list ? 1 : 0; most && i < (of_range ? 1 : among.size()); ++i)
      if (const auto x = bound_of(among[i]))
        most = std::max(*most, *x + (rounds ? 1 : 0));
      else
        most = std::nullopt;
    return most;
  }
  if (step.op != NumberOp::binary) return std::nullopt;
  const std::optional<double> x = of(0), y = of(1);
  if (!x || !y) return std::nullopt;
  switch (step.kind) {
    case Binary::add:
    case Binary::subtract: return *x + *y;
    case Binary::multiply: return *x * *y;
    case Binary::floor_divide: return step.type == &PyLong_Type ? x : std::nullopt;
    case Binary::remainder: return y;
    default: return std::nullopt;
  }
}

bool OpenNumbers::may_raise(const guard::NumberStep& step) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  if (step.op == NumberOp::negative || step.op == NumberOp::positive || drawn_list(world_.numbers, step))
    return false;
  if (step.op != NumberOp::binary ||
      (step.kind != Binary::add && step.kind != Binary::subtract && step.kind != Binary::multiply))
    return true;
  auto is_float = [&](int arg) {
    const guard::NumberStep& of = world_.numbers.steps[arg];
    return (of.op == NumberOp::constant ? Py_TYPE(of.object.get()) : of.type) == &PyFloat_Type;
  };
  // An int beside a float becomes one.
  return is_float(step.args[0]) != is_float(step.args[1]) &&
         !std::all_of(step.args.begin(), step.args.end(),
                      [&](int arg) { return is_float(arg) || bound_of(arg); });
}

/// Is it what clocks showed, or computed from that and numbers that guards know? Eager divides by it, too,
/// and raises where two readings were the same.
static bool is_of_clocks(const guard::Numbers& numbers, int at) {
  const guard::NumberStep& step = numbers.steps[at];
  PyObject* const called = step.op == guard::NumberOp::call ? step.object.get() : nullptr;
  if (step.args.empty())
    return called && PyCFunction_Check(called) && PyCFunction_GET_SELF(called) &&
           PyModule_Check(PyCFunction_GET_SELF(called));
  auto is_clock = [&](int arg) { return is_of_clocks(numbers, arg); };
  return step.op == guard::NumberOp::binary && std::ranges::any_of(step.args, is_clock) &&
         std::ranges::all_of(step.args, [&](int arg) {
           return numbers.steps[arg].phase == guard::Phase::check || is_clock(arg);
         });
}

/// Of a step that rests on open numbers, and did not raise in this run. What raises for others must be seen
/// by the interpreter: the program checks that these do not. A divisor that guards know need only stay
/// different from 0.
bool OpenNumbers::cannot_raise(const guard::NumberStep& step) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  auto of = [&](size_t arg) -> const guard::NumberStep& { return world_.numbers.steps[step.args[arg]]; };
  auto is_float = [&](size_t arg) {
    PyObject* object = of(arg).object.get();
    if (of(arg).op == NumberOp::constant) return PyFloat_Check(object) != 0;
    const bool of_data = of(arg).op == NumberOp::data && object == reinterpret_cast<PyObject*>(&PyFloat_Type);
    return of_data || of(arg).type == &PyFloat_Type;
  };
  if (step.op == NumberOp::negative || step.op == NumberOp::positive || step.op == NumberOp::invert)
    return true;
  if (step.op == NumberOp::call) {
    const Domain* domain = domain_of(step.object.get());
    if (domain && step.args.size() == 1)
      return !is_float(0) ? domain->low == -kAny && domain->high == kAny
                          : expect_within(step.args[0], domain->low, domain->high);
    if (domain && step.args.size() == 2 && is_named(step.object.get(), "__name__", "round"))
      return of(1).op == NumberOp::constant && PyLong_Check(of(1).object.get());
    if (!is_named(step.object.get(), "__module__", "builtins") || step.args.size() < 2) return false;
    // Which of them it is: all must be of one kind.
    for (size_t i = 1; i < step.args.size(); ++i)
      if (is_float(i) != is_float(0)) return false;
    return is_named(step.object.get(), "__name__", "max") || is_named(step.object.get(), "__name__", "min");
  }
  if (step.op != NumberOp::binary) return false;
  switch (step.kind) {
    case Binary::add:
    case Binary::subtract:
    case Binary::multiply: return true;
    case Binary::true_divide:
    case Binary::floor_divide:
    case Binary::remainder: {
      const guard::NumberStep& divisor = of(1);
      if (is_of_clocks(world_.numbers, step.args[1])) return true;
      if (divisor.phase != guard::Phase::check)
        return divisor.phase == guard::Phase::late && expect_other_than_0(step.args[1]);
      if (divisor.op == NumberOp::constant) return true;
      PyRef zero = PyRef::steal(PyLong_FromLong(0));
      const int nothing = world_.numbers.add({NumberOp::constant, 0, zero, {}, {}});
      world_.went_by({NumberOp::compare, Py_NE, {}, {}, {step.args[1], nothing}}, Py_True);
      return true;
    }
    case Binary::power: {
      if (of(1).op != NumberOp::constant) return false;
      const double exponent = PyFloat_AsDouble(of(1).object.get());
      PyErr_Clear();
      const bool whole = exponent == 2 || exponent == 3 || exponent == 4;
      if (!is_float(0)) return whole && PyLong_Check(of(1).object.get());
      if (!(exponent >= -4 && exponent <= 4)) return false;
      return expect_within(step.args[0], whole ? -1e70 : exponent > 0 ? 0 : 1e-70, 1e70);
    }
    default: return false;
  }
}

PyObject* OpenNumbers::data_number(PyObject* number, PyObject* tensor, int64_t element) {
  PyRef held = PyRef::steal(number);
  PyObject* mine = own_number(number);
  if (!mine) return nullptr;
  PyRef type = PyRef::share(reinterpret_cast<PyObject*>(Py_TYPE(number)));
  guard::NumberStep step{guard::NumberOp::data, late_tensor(tensor), type, {}, {}, element};
  world_.begin_to_follow();
  return world_.follow_step(mine, world_.numbers.add(std::move(step)));
}

int OpenNumbers::late_tensor(PyObject* tensor) {
  auto same = [&](const PyRef& known) { return known.get() == tensor; };
  const auto at = std::find_if(data.begin(), data.end(), same);
  if (at == data.end()) return data.push_back(PyRef::share(tensor)), static_cast<int>(data.size()) - 1;
  return static_cast<int>(at - data.begin());
}

int OpenNumbers::open_step(Sym e) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  if (e.is_const())
    return world_.numbers.add({NumberOp::constant, 0, PyRef::steal(PyLong_FromLongLong(e.value())), {}, {}});
  const SymNode& n = *e.node();
  if (n.op == SymOp::Symbol) {
    if (const int step = number_step(n); step >= 0) return step;
    const World::AskedSize* asked = world_.size_asked(e);
    if (!asked) return -1;
    const auto& [tensor, dim, value] = *asked;
    if (tensor) return world_.numbers.add({NumberOp::data_size, late_tensor(tensor.get()), {}, {}, {}, dim});
    world_.number_sizes.push_back(SymbolRow::of_computed(e, value));
    return world_.numbers.add({NumberOp::size, 0, {}, e, {}});
  }
  const int kind = n.op == SymOp::Add        ? Binary::add
                   : n.op == SymOp::Mul      ? Binary::multiply
                   : n.op == SymOp::FloorDiv ? Binary::floor_divide
                   : n.op == SymOp::Mod      ? Binary::remainder
                                             : -1;
  std::vector<int> args;
  for (Sym arg : n.args)
    if (args.push_back(open_step(arg)); args.back() < 0) return -1;
  if (kind < 0) {  // Min, Max
    const char* const name = n.op == SymOp::Min ? "min" : "max";
    PyRef function = PyRef::share(PyDict_GetItemString(PyEval_GetBuiltins(), name));
    return function ? world_.numbers.add({NumberOp::call, 0, std::move(function), {}, std::move(args)}) : -1;
  }
  int result = args[0];
  for (size_t i = 1; i < args.size(); ++i)
    result = world_.numbers.add({NumberOp::binary, kind, {}, {}, {result, args[i]}});
  return result;
}

std::optional<Sym> OpenNumbers::size_from(int at) {
  using guard::NumberOp;
  const guard::NumberStep& step = world_.numbers.steps[at];
  if (step.type && step.type != &PyLong_Type) return std::nullopt;
  switch (step.op) {
    case NumberOp::size: return step.size;
    case NumberOp::data: return hooks_.size_from(data[static_cast<size_t>(step.kind)].get(), step.element);
    case NumberOp::data_size:
      return hooks_.size_of(data[static_cast<size_t>(step.kind)].get(), static_cast<int>(step.element));
    case NumberOp::constant: {
      int64_t value;
      if (!PyLong_CheckExact(step.object.get()) || !guard::symbol_value(step.object.get(), &value)) break;
      return value;
    }
    case NumberOp::positive: return size_from(step.args[0]);
    case NumberOp::negative: {
      const std::optional<Sym> x = size_from(step.args[0]);
      return x ? std::optional(Sym(0) - *x) : std::nullopt;
    }
    case NumberOp::binary: {
      const std::optional<Sym> x = size_from(step.args[0]);
      const std::optional<Sym> y = x ? size_from(step.args[1]) : std::nullopt;
      return y ? arithmetic(step.kind, *x, *y, y->is_const() ? y->value() : 0) : std::nullopt;
    }
    case NumberOp::call: {
      if (step.phase == guard::Phase::check) break;
      if (const PyRef drawn = early_tensor(at)) return hooks_.size_from(drawn.get(), 0);
      const bool least = is_named(step.object.get(), "__name__", "min");
      if (!least && !is_named(step.object.get(), "__name__", "max")) return std::nullopt;
      std::optional<Sym> result;
      for (int arg : step.args) {
        const std::optional<Sym> x = size_from(arg);
        if (!x) return std::nullopt;
        result = !result ? x : least ? min(*result, *x) : max(*result, *x);
      }
      return result;
    }
    default: break;
  }
  const Sym symbol = number_symbol(at, false);
  const bool known = step.phase == guard::Phase::check &&
                     place_in(world_.number_symbols, *symbol.node()) < world_.number_symbols.size();
  return known ? std::optional(symbol) : std::nullopt;
}

/// torch.zeros((), dtype=torch.float64, device="cpu")
static PyObject* double_zero() {
  PyRef torch = PyRef::steal(import_module("torch"));
  PyRef zeros = PyRef::steal(torch ? PyObject_GetAttrString(torch.get(), "zeros") : nullptr);
  PyRef type = PyRef::steal(zeros ? PyObject_GetAttrString(torch.get(), "float64") : nullptr);
  PyRef args = PyRef::steal(Py_BuildValue("(())"));
  PyRef how = PyRef::steal(type ? Py_BuildValue("{sOss}", "dtype", type.get(), "device", "cpu") : nullptr);
  return how && args ? PyObject_Call(zeros.get(), args.get(), how.get()) : nullptr;
}

PyRef OpenNumbers::data_tensor(int at) {
  if (auto known = data_tensors_.find(at); known != data_tensors_.end() && hooks_.knows(known->second.get()))
    return PyRef::share(known->second.get());
  const guard::NumberStep step = world_.numbers.steps[at];
  PyRef tensor;
  if (step.op == guard::NumberOp::data) {
    PyObject* whole = data[static_cast<size_t>(step.kind)].get();
    if (guard::rank_of(*guard::tensor_impl(whole)) == 0) return PyRef::share(whole);
    PyRef flat = PyRef::steal(PyObject_CallMethod(whole, "flatten", nullptr));
    if (flat)
      tensor = PyRef::steal(PyObject_CallMethod(flat.get(), "select", "iL", 0, (long long)step.element));
  } else if (step.phase == guard::Phase::early) {
    return early_tensor(at);
  } else if (step.type == &PyFloat_Type) {
    tensor = data_arithmetic(step);
  }
  if (!tensor) return PyErr_Clear(), PyRef();
  data_tensors_[at] = PyRef::share(tensor.get());
  return tensor;
}

PyObject* OpenNumbers::lend_early(int at, PyObject* number) {
  if (PyFloat_CheckExact(number))
    return hooks_.lend_float(world_.symbol_of(at, number), PyFloat_AS_DOUBLE(number), world_.notes);
  const std::optional<double> bound = bound_of(at);
  if (!bound || *bound > kExact) return nullptr;
  PyRef one = PyRef::steal(PyFloat_FromDouble(1));
  PyObject* real = PyNumber_Multiply(number, one.get());
  const int times = world_.numbers.add({guard::NumberOp::constant, 0, std::move(one), {}, {}});
  const PyRef mine = PyRef::steal(
      world_.computed(real, {guard::NumberOp::binary, interp::Binary::multiply, {}, {}, {at, times}}));
  return mine ? lend_early(world_.step_of(mine.get()), mine.get()) : nullptr;
}

PyRef OpenNumbers::early_tensor(int at) {
  if (world_.numbers.steps[at].phase != guard::Phase::early) return {};
  if (auto known = data_tensors_.find(at); known != data_tensors_.end() && hooks_.knows(known->second.get()))
    return PyRef::share(known->second.get());
  PyObject* number = world_.followed_as(at);
  const PyRef lent = PyRef::steal(number ? lend_early(at, number) : nullptr);
  const PyRef zero = PyRef::steal(lent ? double_zero() : nullptr);
  PyRef sum = PyRef::steal(zero ? PyObject_CallMethod(zero.get(), "add", "O", lent.get()) : nullptr);
  if (sum && PyLong_CheckExact(number)) sum = PyRef::steal(PyObject_CallMethod(sum.get(), "long", nullptr));
  if (!sum) return PyErr_Clear(), PyRef();
  data_tensors_[at] = PyRef::share(sum.get());
  return sum;
}

/// max or min of floats. Python keeps the first of those that do not differ, and a nan that comes first.
PyRef OpenNumbers::one_of(const guard::NumberStep& step) {
  auto call = [](PyObject* on, const char* method, PyObject* with) {
    return PyRef::steal(PyObject_CallMethod(on, method, "O", with));
  };
  const bool least = is_named(step.object.get(), "__name__", "min");
  if (!least && !is_named(step.object.get(), "__name__", "max")) return {};
  PyRef best;
  bool is_tensor = false;
  for (int arg : step.args) {
    const bool late = world_.numbers.steps[arg].phase == guard::Phase::late;
    const PyRef found = late ? data_tensor(arg) : lend_step(arg);
    const PyRef each =
        found && late ? PyRef::steal(PyObject_CallMethod(found.get(), "double", nullptr)) : found;
    if (!each || (best && !late && !is_tensor)) return {};
    if (!best) {
      best = each;
    } else {
      // What the other number is put into: the tensor of the two, where that one is better.
      const PyRef& into = is_tensor ? best : each;
      const PyRef& other = is_tensor ? each : best;
      PyRef other_is = call(into.get(), is_tensor != least ? "lt" : "gt", other.get());
      if (other_is && !is_tensor)
        other_is = PyRef::steal(PyObject_CallMethod(other_is.get(), "logical_not", nullptr));
      best = PyRef::steal(
          other_is ? PyObject_CallMethod(into.get(), "masked_fill", "OO", other_is.get(), other.get())
                   : nullptr);
      if (!best) return {};
    }
    is_tensor |= late;
  }
  return best;
}

PyRef OpenNumbers::data_arithmetic(const guard::NumberStep& step) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  auto is_late = [&](int arg) { return world_.numbers.steps[arg].phase == guard::Phase::late; };
  auto open = [&](int arg) {
    const PyRef tensor = data_tensor(arg);
    return PyRef::steal(tensor ? PyObject_CallMethod(tensor.get(), "double", nullptr) : nullptr);
  };
  auto call = [](const PyRef& on, const char* method, const PyRef& with) {
    return PyRef::steal(on && with ? PyObject_CallMethod(on.get(), method, "O", with.get()) : nullptr);
  };
  auto unary = [](const PyRef& x, const char* method) {
    return PyRef::steal(x ? PyObject_CallMethod(x.get(), method, nullptr) : nullptr);
  };
  if (step.op == NumberOp::call) {
    // The others are rounded as the C library has it.
    auto is = [&](const char* name) { return is_named(step.object.get(), "__name__", name); };
    if (gives_one_of(step.object.get())) return one_of(step);
    if (!domain_of(step.object.get()) || step.args.size() != 1 || !is_late(step.args[0])) return {};
    if (is("float")) return open(step.args[0]);
    if (is("abs") || is("fabs")) return unary(open(step.args[0]), "abs");
    return is("sqrt") ? unary(open(step.args[0]), "sqrt") : PyRef();
  }
  if (step.op == NumberOp::positive) return open(step.args[0]);
  if (step.op == NumberOp::negative) return unary(open(step.args[0]), "neg");
  if (step.op != NumberOp::binary) return {};
  const int x = step.args[0], y = step.args[1];
  const bool turned = !is_late(x);
  const PyRef first = open(turned ? y : x);
  const PyRef second = turned ? lend_step(x) : is_late(y) ? open(y) : lend_step(y);
  switch (step.kind) {
    case Binary::add: return call(first, "add", second);
    case Binary::multiply: return call(first, "mul", second);
    case Binary::subtract:
      return turned ? call(unary(first, "neg"), "add", second) : call(first, "sub", second);
    case Binary::true_divide: return turned ? PyRef() : call(first, "div", second);
    default: return {};
  }
}

PyRef OpenNumbers::lend_step(int at) {
  const guard::NumberStep& step = world_.numbers.steps[at];
  if (step.op == guard::NumberOp::constant) {
    PyObject* number = step.object.get();
    int overflow = 0;
    const int64_t value = PyLong_Check(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    return overflow || value > kExact || value < -kExact ? PyRef() : PyRef::share(number);
  }
  PyObject* number = world_.followed_as(at);
  return number ? PyRef::steal(world_.lend(number, true)) : PyRef();
}

PyObject* OpenNumbers::lend_size(int step, PyObject* number) {
  int64_t value;
  if (!guard::symbol_value(number, &value)) return nullptr;
  const std::optional<Sym> size = size_from(step);
  return size ? hooks_.lend(*size, value, world_.notes) : nullptr;
}

std::optional<Why> OpenNumbers::asked_open() {
  if (!std::exchange(open_lent_, false)) return std::nullopt;
  guard::Phase last = guard::Phase::check;
  std::erase_if(world_.notes->facts, [&](const SizeFact& fact) {
    const bool asked_now =
        &fact - world_.notes->facts.data() >= static_cast<std::ptrdiff_t>(world_.noted_before);
    Syms symbols;
    collect_symbols(fact.a, &symbols);
    collect_symbols(fact.b, &symbols);
    guard::Phase phase = guard::Phase::check;
    for (Sym symbol : symbols)
      if (const int step = number_step(*symbol.node()); step >= 0)
        phase = std::max(phase, world_.numbers.steps[step].phase);
    // Of sizes that are data the run finds out whether they are in a range. That they are one number says
    // that somebody wanted to know it.
    const bool pinned =
        asked_now && fact.relation == Relation::eq && (fact.a.is_const() || fact.b.is_const());
    if (pinned && (hooks_.rests_on_data(fact.a) || hooks_.rests_on_data(fact.b))) phase = guard::Phase::late;
    last = std::max(last, phase);
    return phase != guard::Phase::check;
  });
  return last == guard::Phase::check ? std::nullopt : std::optional(why_open(last));
}

std::optional<Sym> OpenNumbers::open_size(PyObject* number) {
  int64_t value;
  if (!PyLong_CheckExact(number) || !guard::symbol_value(number, &value)) return std::nullopt;
  if (const Sym* known = world_.followed(number)) return *known;
  return world_.follows_number(number) ? size_from(world_.step_of(number)) : std::optional(Sym(value));
}

bool OpenNumbers::compared_sizes(int op, PyObject* left, PyObject* right, bool answer) {
  const std::optional<Sym> x = open_size(left), y = x ? open_size(right) : std::nullopt;
  if (y) note_comparison(*world_.notes, op, *x, *y, answer);
  return y.has_value();
}

PyRef OpenNumbers::compared_tensor(int op, PyObject* left, PyObject* right) {
  if (!hooks_.lends_open()) return {};
  const char* const kMethods[] = {"lt", "le", "eq", "ne", "gt", "ge"};  // in CPython's order
  const bool floats = PyFloat_Check(left) || PyFloat_Check(right);
  auto open = [&](PyObject* number) { return world_.is_open(number) && world_.step_so_far(number) >= 0; };
  auto tensor = [&](PyObject* number) {
    const PyRef found = data_tensor(world_.step_so_far(number));
    return PyRef::steal(found ? PyObject_CallMethod(found.get(), floats ? "double" : "long", nullptr)
                              : nullptr);
  };
  const bool turned = !open(left);
  PyObject *const first = turned ? right : left, *const second = turned ? left : right;
  if (!open(first) || (world_.is_open(second) && !open(second))) return {};
  const PyRef one = tensor(first), other = open(second) ? tensor(second) : lend_step(world_.step_of(second));
  PyRef result;
  if (one && other)
    result =
        PyRef::steal(PyObject_CallMethod(one.get(), kMethods[turned ? mirrored(op) : op], "O", other.get()));
  PyErr_Clear();
  return result;
}

PyRef OpenNumbers::classified(PyObject* function, PyObject* number) {
  for (const char* name : {"isnan", "isinf", "isfinite"})
    if (is_named(function, "__name__", name) && is_named(function, "__module__", "math")) {
      const PyRef tensor = data_tensor(world_.step_of(number));
      PyRef answer = PyRef::steal(tensor ? PyObject_CallMethod(tensor.get(), name, nullptr) : nullptr);
      PyErr_Clear();
      return answer;
    }
  return {};
}

}  // namespace bolt::observe
