// interp/observe/followed.cpp
// Numbers that differ between calls, as World knows them (see world.h): where they come from, what they were
// computed from, and what becomes of them when somebody wants to know one.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "interp/compat.h"
#include "interp/observe/world.h"
#include "interp/semantics.h"

namespace bolt::observe {

bool is_number(PyObject* object) { return PyFloat_CheckExact(object) || PyLong_CheckExact(object); }

PyObject* own_number(PyObject* number) {
  if (PyFloat_CheckExact(number)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(number));
#if BOLT_PY312
  constexpr size_t first_digit = offsetof(PyLongObject, long_value.ob_digit);
#else
  constexpr size_t first_digit = offsetof(PyLongObject, ob_digit);
#endif
  // Past the header an int is plain data; CPython's own ways of copying share the small ones.
  constexpr size_t head = sizeof(PyObject);
  const size_t digits = _PyLong_NumBits(number) / PyLong_SHIFT + 1;
  auto* copy = reinterpret_cast<PyObject*>(_PyLong_New(static_cast<Py_ssize_t>(digits)));
  if (!copy) return nullptr;
  const size_t used = std::max<size_t>(1, (_PyLong_NumBits(number) + PyLong_SHIFT - 1) / PyLong_SHIFT);
  std::memcpy(reinterpret_cast<char*>(copy) + head, reinterpret_cast<char*>(number) + head,
              first_digit + used * sizeof(digit) - head);
  return copy;
}

namespace {

/// Calls visit(part, where it lies) for each part of a tuple, list or slice.
template <class Visit>
void for_each_part(guard::SourceTree& tree, PyObject* whole, Source* source, Visit visit) {
  if (PySlice_Check(whole)) {
    auto* slice = reinterpret_cast<PySliceObject*>(whole);
    const std::pair<const char*, PyObject**> fields[] = {
        {"start", &slice->start}, {"stop", &slice->stop}, {"step", &slice->step}};
    for (const auto& [name, at] : fields) {
      const auto offset = reinterpret_cast<char*>(at) - reinterpret_cast<char*>(slice);
      PyRef text = PyRef::steal(PyUnicode_InternFromString(name));
      visit(*at, tree.child(source, Access::field, text.get(), offset));
    }
    return;
  }
  const Access step = PyList_Check(whole) ? Access::list_item : Access::tuple_item;
  for (Py_ssize_t i = 0; i < Py_SIZE(whole); ++i)
    visit(PySequence_Fast_GET_ITEM(whole, i), tree.child(source, step, nullptr, i));
}

}  // namespace

/// Does a number in this list, tuple or slice differ between calls?
bool World::some_differ(PyObject* whole, Source* source) {
  if (!hooks_.follows_numbers()) return false;
  bool differs = false;
  for_each_part(*tree, whole, source, [&](PyObject* part, Source* place) {
    differs = differs || (is_number(part) ? hooks_.follows_number(part, *place, tree->root_names)
                                          : guard::has_parts(part) && some_differ(part, place));
  });
  return differs;
}

/// Known from now on by its parts, each of which is guarded for itself.
PyObject* World::make_twin(PyObject* whole, Source* source) {
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(whole)));
  if (!PySlice_Check(whole)) source->assume(Check::length, nullptr, Py_SIZE(whole));
  std::vector<PyObject*> parts;  // held by what is known about them
  for_each_part(*tree, whole, source,
                [&](PyObject* part, Source* place) { parts.push_back(found(part, place)); });
  if (PySlice_Check(whole)) return PySlice_New(parts[0], parts[1], parts[2]);
  const bool list = PyList_Check(whole);
  const auto size = static_cast<Py_ssize_t>(parts.size());
  PyRef twin = PyRef::steal(list ? PyList_New(size) : PyTuple_New(size));
  for (Py_ssize_t i = 0; twin && i < size; ++i) {
    PyObject* part = Py_NewRef(parts[static_cast<size_t>(i)]);
    list ? PyList_SET_ITEM(twin.get(), i, part) : PyTuple_SET_ITEM(twin.get(), i, part);
  }
  return twin && guard::is_torch_size(whole) ? guard::make_torch_size(twin.get()) : twin.release();
}

bool World::is_read_by_item(PyObject* sequence) {
  if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence)) return false;
  const Known* known = find(sequence);
  return known && !known->before && !known->read_whole && some_differ(sequence, known->source);
}

PyObject* World::with_followed(PyObject* sequence) {
  if (!is_read_by_item(sequence)) return nullptr;
  PyObject* twin = make_twin(sequence, find(sequence)->source);
  if (!twin) PyErr_Clear();
  return twin;
}

void World::loops_over(PyObject* iterator, PyObject* sequence) {
  read_length(sequence);
  loops_.emplace_back(PyRef::share(iterator), sequence);
}

PyObject* World::next_item(PyObject* iterator, bool* handled) {
  const auto loop =
      std::find_if(loops_.begin(), loops_.end(), [&](auto& each) { return each.first.get() == iterator; });
  *handled = loop != loops_.end();
  if (!*handled) return nullptr;
  PyObject* sequence = loop->second;
  const Py_ssize_t left = PyObject_LengthHint(iterator, -1);
  PyRef item = PyRef::steal(Py_TYPE(iterator)->tp_iternext(iterator));
  if (!item || left <= 0) return item.release();
  PyObject* given = sequence_item(sequence, Py_SIZE(sequence) - left);
  return given ? Py_NewRef(given) : item.release();
}

PyObject* World::found(PyObject* object, Source* source) {
  if (guard::has_parts(object)) {
    const auto twin = twins_.find(object);
    if (twin != twins_.end()) {
      Source* first = find(object)->source;
      if (first != source) source->assume(Check::same_as, nullptr, 0, first);
      return twin->second;
    }
    if (find(object) || !some_differ(object, source)) return reached(object, source), object;
    PyObject* made = make_twin(object, source);
    if (!made) return PyErr_Clear(), reached(object, source), object;
    know(object, source);
    originals_[made] = {PyRef::steal(made), PyRef::share(object)};
    return twins_[object] = made;
  }
  if (!is_number(object) || follows_number(object) ||
      !hooks_.follows_number(object, *source, tree->root_names))
    return reached(object, source), object;
  if (auto at = leaves_.find(source); at != leaves_.end()) return at->second;
  PyObject* mine = own_number(object);
  if (!mine) return PyErr_Clear(), reached(object, source), object;
  PyRef held = PyRef::steal(follow_leaf(mine, source));
  return leaves_[source] = held.get();
}

/// `number` lies at `source` and has an address of its own. Stolen and returned.
PyObject* World::follow_leaf(PyObject* number, Source* source) {
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(number)));
  follows_ = true;
  return follow_step(number, numbers.add({guard::NumberOp::source, tree->keep(source), {}, {}, {}}));
}

PyObject* World::carried(PyObject* object, Source* source) {
  // Made by the run: operators and guards do not tell all that its class knows about it.
  if (guard::is_tensor(object) && guard::sees_operators(object))
    distrust("a tensor with __torch_dispatch__ crosses a region's end");
  if (!is_number(object) || find(object)) return found(object, source);
  if (hooks_.follows_number(object, *source, tree->root_names)) {
    PyRef held = PyRef::steal(follow_leaf(Py_NewRef(object), source));
    return object;
  }
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  know(object, source).lazy = true;
  lazy_.push_back(object);
  return object;
}

bool World::is_scalar(PyObject* object) const { return object && (is_number(object) || late_.count(object)); }

namespace {

const char* why_open(guard::Phase phase) {
  return phase == guard::Phase::late ? "the value of a tensor decides what is computed"
                                     : "a random number decides what is computed";
}

}  // namespace

void World::undo_instruction() {
  for (auto use = used_now_.rbegin(); use != used_now_.rend(); ++use) {
    Followed& number = followed_.at(use->number);
    number.used = false;
    number.expression = use->expression;
    numbers.facts.resize(use->facts);
  }
  used_now_.clear();
}

void World::stands_for(PyObject* mine, PyObject* number) {
  originals_[mine] = {PyRef::share(mine), PyRef::share(original(number))};
}

PyObject* World::original(PyObject* number) const {
  if (const auto at = originals_.find(number); at != originals_.end()) return at->second.second.get();
  if (!PyLong_CheckExact(number) || !followed_.count(number)) return number;
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(number, &overflow);
  if (overflow || value < -5 || value > 256) return number;
  PyObject* shared = PyLong_FromLong(value);  // CPython has one object for each of these
  Py_DECREF(shared);
  return shared;
}

void World::use(PyObject* object) {
  if ((lazy_.empty() && followed_.empty() && late_.empty()) || !object) return;
  if (late_.count(object)) return late_use();
  if (is_number(object)) {
    if (auto at = followed_.find(object); at != followed_.end()) {
      Followed& number = at->second;  // held on: the address stays its own
      if (number.used) return;
      const guard::Phase phase = phase_of(object);
      if (phase != guard::Phase::check) end_region(why_open(phase));
      used_now_.push_back({object, number.expression, numbers.facts.size()});
      number.used = true;
      if (phase != guard::Phase::check) return;
      if (!number.expression.is_const())
        notes->add(std::exchange(number.expression, 0), Relation::eq, PyLong_AsLongLong(object));
      else
        numbers.facts.push_back({number.step, PyRef::share(object), notes->where()});
      return;
    }
    Known* known = find(object);
    if (!known || !known->lazy) return;
    known->lazy = false;
    known->source->assume(Check::equals, object);
    lazy_.erase(std::find(lazy_.begin(), lazy_.end(), object));
    return;
  }
  // Everything that native code can get at from here, up to what has guards of its own.
  struct Search {
    World& world;
    std::vector<PyObject*> open;
    std::unordered_set<PyObject*> seen;
    void add(PyObject* found) {
      bool ends =
          !is_number(found) && !PyTuple_Check(found) && !is_set(found) && !PySlice_Check(found) &&
          !world.late(found) &&
          (guard::is_leaf(found) || guard::is_tensor(found) || PyType_Check(found) || is_module(found));
      if (!ends && seen.insert(found).second) open.push_back(found);
    }
  } search{*this, {}, {}};
  search.add(object);
  constexpr size_t kMost = 10000;
  while (!search.open.empty() && search.seen.size() < kMost) {
    PyObject* at = search.open.back();
    search.open.pop_back();
    if (is_scalar(at)) {
      use(at);
    } else if (PySlice_Check(at)) {  // not a garbage-collected type: it has no traverse
      auto* slice = reinterpret_cast<PySliceObject*>(at);
      for (PyObject* part : {slice->start, slice->stop, slice->step}) search.add(part);
    } else if (PyFunction_Check(at)) {
      if (PyObject* closure = PyFunction_GET_CLOSURE(at)) search.add(closure);
    } else if (traverseproc traverse = Py_TYPE(at)->tp_traverse; traverse && PyObject_IS_GC(at)) {
      auto visit = [](PyObject* found, void* to) { return static_cast<Search*>(to)->add(found), 0; };
      traverse(at, visit, &search);
    }
  }
  if (!search.open.empty()) use_all();
}

void World::use_all() {
  if (!late_.empty()) late_use();
  while (!lazy_.empty()) use(lazy_.back());
  for (auto& [object, followed] : followed_) use(object);
}

const Sym* World::followed(PyObject* object) const {
  auto at = followed_.find(object);
  return at == followed_.end() || at->second.expression.is_const() ? nullptr : &at->second.expression;
}

bool World::follows_number(PyObject* object) const {
  auto at = followed_.find(object);
  return at != followed_.end() && !at->second.used;
}

Sym World::expression(PyObject* number) const {
  const Sym* found = followed(number);
  return found ? *found : Sym(PyLong_AsLongLong(number));
}

PyObject* World::follow(PyObject* number, Sym expression) {
  if (!number || expression.is_const()) return number;
  PyRef held = PyRef::steal(number);
  PyObject* mine = own_number(number);
  if (mine) followed_[mine] = {PyRef::share(mine), expression, -1, false, hooks_.is_open(expression)};
  return mine;
}

guard::Phase World::phase_of(PyObject* number) const {
  auto at = followed_.find(number);
  if (at == followed_.end() || at->second.used) return guard::Phase::check;
  if (at->second.open) return guard::Phase::late;
  return at->second.step < 0 ? guard::Phase::check
                             : numbers.steps[static_cast<size_t>(at->second.step)].phase;
}

namespace {

/// Where a function of floats gives a number and does not raise: from low to high. What is close to an end is
/// eager's.
struct Domain {
  const char *module, *name;
  double low, high;
};
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

/// The program checks that the open number of this step lies there; false: it cannot.
bool World::expect_within(int step, double low, double high) {
  if (low == -kAny && high == kAny) return true;
  const PyRef number = data_tensor(step);
  const PyRef real = PyRef::steal(number ? PyObject_CallMethod(number.get(), "double", nullptr) : nullptr);
  bool done = real.get() != nullptr;
  for (auto [method, bound] : {std::pair("ge", low), {"le", high}}) {
    if (!done || bound == (method[0] == 'g' ? -kAny : kAny)) continue;
    const PyRef within = PyRef::steal(PyObject_CallMethod(real.get(), method, "d", bound));
    done = within && hooks_.expect(within.get(), true, notes->where());
  }
  return PyErr_Clear(), done;
}

bool World::expect_whole(PyObject* tensor) {
  const PyRef plain = PyRef::steal(PyObject_CallMethod(tensor, "detach", nullptr));
  const PyRef size = PyRef::steal(plain ? PyObject_CallMethod(plain.get(), "abs", nullptr) : nullptr);
  const PyRef within = PyRef::steal(size ? PyObject_CallMethod(size.get(), "le", "d", kWhole) : nullptr);
  const bool done = within && hooks_.expect(within.get(), true, notes->where());
  return PyErr_Clear(), done;
}

bool World::expect_other_than_0(int step) {
  const PyRef number = data_tensor(step);
  const PyRef other = PyRef::steal(number ? PyObject_CallMethod(number.get(), "ne", "i", 0) : nullptr);
  const bool done = other && hooks_.expect(other.get(), true, notes->where());
  return PyErr_Clear(), done;
}

/// Of a step that rests on open numbers, and did not raise in this run. What raises for others must be seen
/// by the interpreter: the program checks that these do not. A divisor that guards know need only stay
/// different from 0.
bool World::cannot_raise(const guard::NumberStep& step) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  auto of = [&](size_t arg) -> const guard::NumberStep& {
    return numbers.steps[static_cast<size_t>(step.args[arg])];
  };
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
      if (divisor.phase != guard::Phase::check)
        return divisor.phase == guard::Phase::late && expect_other_than_0(step.args[1]);
      if (divisor.op == NumberOp::constant) return true;
      PyRef zero = PyRef::steal(PyLong_FromLong(0));
      const int nothing = numbers.add({NumberOp::constant, 0, zero, {}, {}});
      went_by({NumberOp::compare, Py_NE, {}, {}, {step.args[1], nothing}}, Py_True);
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

PyObject* World::data_number(PyObject* number, PyObject* tensor, int64_t element) {
  PyRef held = PyRef::steal(number);
  PyObject* mine = own_number(number);
  if (!mine) return nullptr;
  PyRef type = PyRef::share(reinterpret_cast<PyObject*>(Py_TYPE(number)));
  guard::NumberStep step{guard::NumberOp::data, late_tensor(tensor), type, {}, {}, element};
  follows_ = true;
  return follow_step(mine, numbers.add(std::move(step)));
}

/// Its place in `data`.
int World::late_tensor(PyObject* tensor) {
  auto same = [&](const PyRef& known) { return known.get() == tensor; };
  const auto at = std::find_if(data.begin(), data.end(), same);
  if (at == data.end()) return data.push_back(PyRef::share(tensor)), static_cast<int>(data.size()) - 1;
  return static_cast<int>(at - data.begin());
}

/// The step of an expression over sizes, some of which are data; -1: it is not made of arithmetic alone.
int World::open_step(Sym e) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  if (e.is_const())
    return numbers.add({NumberOp::constant, 0, PyRef::steal(PyLong_FromLongLong(e.value())), {}, {}});
  const SymNode& n = *e.node();
  if (n.op == SymOp::Symbol) {
    if (const int step = number_step(n); step >= 0) return step;
    const auto at = sizes_.find(e);
    if (at == sizes_.end()) return -1;
    const auto& [tensor, dim, value] = at->second;
    if (tensor) return numbers.add({NumberOp::data_size, late_tensor(tensor.get()), {}, {}, {}, dim});
    number_sizes.push_back({e, value});
    return numbers.add({NumberOp::size, 0, {}, e, {}});
  }
  const int kind = n.op == SymOp::Add        ? Binary::add
                   : n.op == SymOp::Mul      ? Binary::multiply
                   : n.op == SymOp::FloorDiv ? Binary::floor_divide
                   : n.op == SymOp::Mod      ? Binary::remainder
                                             : -1;
  int result = -1;
  for (Sym arg : n.args) {
    const int next = open_step(arg);
    if (next < 0 || kind < 0) return -1;
    result = result < 0 ? next : numbers.add({NumberOp::binary, kind, {}, {}, {result, next}});
  }
  return result;
}

/// An int that rests on numbers taken out of tensors, as an expression over sizes that are data: what
/// open_step does, the other way round. Nothing: it is made of more than arithmetic.
std::optional<Sym> World::size_from(int at) {
  using guard::NumberOp;
  const guard::NumberStep& step = numbers.steps[static_cast<size_t>(at)];
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
  const bool known =
      step.phase == guard::Phase::check && std::any_of(number_symbols.begin(), number_symbols.end(),
                                                       [&](const auto& n) { return n.symbol == symbol; });
  return known ? std::optional(symbol) : std::nullopt;
}

PyObject* World::computed(PyObject* number, guard::NumberStep step) {
  const bool rests_on_open = std::any_of(step.args.begin(), step.args.end(), [&](int arg) {
    return numbers.steps[static_cast<size_t>(arg)].phase != guard::Phase::check;
  });
  if (rests_on_open && !cannot_raise(step)) return end_region(why_open(numbers.phase_of(step))), number;
  follows_ = true;
  step.type = Py_TYPE(number);
  PyRef held = PyRef::steal(number);
  PyObject* mine = own_number(number);
  return mine ? follow_step(mine, numbers.add(std::move(step))) : nullptr;
}

PyObject* World::follow_step(PyObject* number, int step) {
  // Open ints have none: whether they are in a symbol's range is not known.
  const bool has_symbol =
      PyLong_CheckExact(number) && numbers.steps[static_cast<size_t>(step)].phase == guard::Phase::check;
  followed_[number] = {PyRef::share(number), has_symbol ? symbol_of(step, number) : Sym(0), step};
  return number;
}

/// Constant: there is none.
Sym World::symbol_of(int step, PyObject* number) {
  int64_t value;
  if (!guard::symbol_value(number, &value)) return 0;
  const Sym symbol = number_symbol(step, PyFloat_CheckExact(number));
  auto same = [&](const NumberSymbol& known) { return known.symbol == symbol; };
  if (std::none_of(number_symbols.begin(), number_symbols.end(), same))
    number_symbols.push_back(
        {symbol, value, numbers.steps[static_cast<size_t>(step)].phase == guard::Phase::early});
  return symbol;
}

int World::step_of(PyObject* number) {
  auto at = followed_.find(number);
  if (at == followed_.end() || at->second.used) {
    use(number);
    return numbers.add({guard::NumberOp::constant, 0, PyRef::share(number), {}, {}});
  }
  Followed& followed = at->second;
  if (followed.step < 0 && followed.open) {
    const int step = open_step(followed.expression);
    if (step >= 0) return followed.step = step;
    end_region(why_open(guard::Phase::late));
    return numbers.add({guard::NumberOp::constant, 0, PyRef::share(number), {}, {}});
  }
  if (followed.step < 0) {
    number_sizes.push_back({followed.expression, PyLong_AsLongLong(number)});
    followed.step = numbers.add({guard::NumberOp::size, 0, {}, followed.expression, {}});
  }
  return followed.step;
}

void World::went_by(guard::NumberStep step, PyObject* value) {
  if (const guard::Phase phase = numbers.phase_of(step); phase != guard::Phase::check)
    return end_region(why_open(phase));
  numbers.facts.push_back({numbers.add(std::move(step)), PyRef::share(value), notes->where()});
}

bool World::holds_followed(PyObject* object, int depth) const {
  if (followed_.empty() || !object) return false;
  if (is_number(object)) return follows_number(object);
  if (depth == 0) return false;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      if (holds_followed(PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i),
                         depth - 1))
        return true;
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    for (PyObject* part : {slice->start, slice->stop, slice->step})
      if (holds_followed(part, depth - 1)) return true;
  }
  return false;
}

PyObject* World::tensor_size(PyObject* tensor, int dim) {
  const Sym size = hooks_.size_of(tensor, dim);
  const int64_t value = guard::size_of(*guard::tensor_impl(tensor), dim);
  if (!size.is_const()) sizes_[size] = {hooks_.is_open(size) ? PyRef::share(tensor) : PyRef(), dim, value};
  return follow(PyLong_FromLongLong(value), size);
}

PyObject* World::tensor_sizes(PyObject* tensor) {
  const int rank = guard::rank_of(*guard::tensor_impl(tensor));
  PyRef sizes = PyRef::steal(PyTuple_New(rank));
  for (int d = 0; sizes && d < rank; ++d) {
    PyObject* size = tensor_size(tensor, d);
    if (!size) return nullptr;
    PyTuple_SET_ITEM(sizes.get(), d, size);
  }
  return sizes ? guard::make_torch_size(sizes.get()) : nullptr;
}

void World::use_sizes(PyObject* tensor) {
  const c10::TensorImpl& impl = *guard::tensor_impl(tensor);
  for (int d = 0; d < guard::rank_of(impl); ++d)
    if (Sym size = hooks_.size_of(tensor, d); !size.is_const() && hooks_.is_open(size))
      return end_region(why_open(guard::Phase::late));
    else if (!size.is_const())
      notes->add(size, Relation::eq, guard::size_of(impl, d));
}

PyObject* World::lend(PyObject* object, bool operand) {
  if (!holds_followed(object)) return use(object), Py_NewRef(object);
  if (const Sym* size = followed(object)) {
    open_lent_ |= hooks_.is_open(*size);
    return hooks_.lend(*size, PyLong_AsLongLong(object), notes);
  }
  if (is_open(object)) {
    const int at = step_of(object);
    const guard::NumberStep& step = numbers.steps[static_cast<size_t>(at)];
    const bool is_float = PyFloat_CheckExact(object);
    PyObject* lent = nullptr;
    open_lent_ = true;
    if (operand && step.phase == guard::Phase::early && is_float && hooks_.lends_open()) {
      lent = hooks_.lend_float(symbol_of(at, object), PyFloat_AS_DOUBLE(object), notes);
    } else if (hooks_.lends_open()) {
      const PyRef tensor = operand ? data_tensor(at) : PyRef();
      if (tensor) lent = hooks_.lend_data(number_symbol(at, is_float), object, tensor.get(), notes);
      if (!lent && PyLong_CheckExact(object)) lent = lend_size(at, object);
    }
    return lent || PyErr_Occurred() ? lent : (use(object), Py_NewRef(object));
  }
  if (PyFloat_CheckExact(object))
    return hooks_.lend_float(symbol_of(step_of(object), object), PyFloat_AS_DOUBLE(object), notes);
  if (is_number(object)) return use(object), Py_NewRef(object);
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    PyRef start = PyRef::steal(lend(slice->start)), stop = PyRef::steal(lend(slice->stop)),
          step = PyRef::steal(lend(slice->step));
    return start && stop && step ? PySlice_New(start.get(), stop.get(), step.get()) : nullptr;
  }
  PyRef list = PyRef::steal(PySequence_List(object));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* item = lend(PyList_GET_ITEM(list.get(), i), operand);
    if (!item || PyList_SetItem(list.get(), i, item) < 0) return nullptr;
  }
  if (!list || PyList_Check(object)) return list.release();
  return PyList_AsTuple(list.get());
}

/// An open number as a tensor without dimensions. Null: there is none.
PyRef World::data_tensor(int at) {
  if (auto known = data_tensors_.find(at); known != data_tensors_.end() && hooks_.knows(known->second.get()))
    return PyRef::share(known->second.get());
  const guard::NumberStep step = numbers.steps[static_cast<size_t>(at)];
  PyRef tensor;
  if (step.op == guard::NumberOp::data) {
    PyObject* whole = data[static_cast<size_t>(step.kind)].get();
    if (guard::rank_of(*guard::tensor_impl(whole)) == 0) return PyRef::share(whole);
    PyRef flat = PyRef::steal(PyObject_CallMethod(whole, "flatten", nullptr));
    if (flat)
      tensor = PyRef::steal(PyObject_CallMethod(flat.get(), "select", "iL", 0, (long long)step.element));
  } else if (step.type == &PyFloat_Type) {
    tensor = data_arithmetic(step);
  }
  if (!tensor) return PyErr_Clear(), PyRef();
  data_tensors_[at] = PyRef::share(tensor.get());
  return tensor;
}

/// Floats computed from open numbers, as doubles: torch computes with those as Python does.
PyRef World::data_arithmetic(const guard::NumberStep& step) {
  using guard::NumberOp;
  namespace Binary = interp::Binary;
  auto is_late = [&](int arg) { return numbers.steps[static_cast<size_t>(arg)].phase == guard::Phase::late; };
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

/// A number that the program is given, for an operator. Null: it cannot be one.
PyRef World::lend_step(int at) {
  constexpr int64_t kExact = int64_t{1} << 53;  // up to there ints are doubles
  const guard::NumberStep& step = numbers.steps[static_cast<size_t>(at)];
  if (step.op == guard::NumberOp::constant) {
    PyObject* number = step.object.get();
    int overflow = 0;
    const int64_t value = PyLong_Check(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    return overflow || value > kExact || value < -kExact ? PyRef() : PyRef::share(number);
  }
  for (const auto& [number, followed] : followed_)
    if (followed.step == at && !followed.used) return PyRef::steal(lend(number, true));
  return {};
}

/// Null without an exception: it cannot be one.
PyObject* World::lend_size(int step, PyObject* number) {
  int64_t value;
  if (!guard::symbol_value(number, &value)) return nullptr;
  const std::optional<Sym> size = size_from(step);
  return size ? hooks_.lend(*size, value, notes) : nullptr;
}

const char* World::asked_open() {
  if (!std::exchange(open_lent_, false)) return nullptr;
  guard::Phase last = guard::Phase::check;
  std::erase_if(notes->facts, [&](const SizeFact& fact) {
    const bool asked_now = &fact - notes->facts.data() >= static_cast<std::ptrdiff_t>(noted_before);
    Syms symbols;
    collect_symbols(fact.a, &symbols);
    collect_symbols(fact.b, &symbols);
    guard::Phase phase = guard::Phase::check;
    for (Sym symbol : symbols)
      if (const int step = number_step(*symbol.node()); step >= 0)
        phase = std::max(phase, numbers.steps[static_cast<size_t>(step)].phase);
    // Of sizes that are data the run finds out whether they are in a range. That they are one number says
    // that somebody wanted to know it.
    const bool pinned =
        asked_now && fact.relation == Relation::eq && (fact.a.is_const() || fact.b.is_const());
    if (pinned && (hooks_.is_open(fact.a) || hooks_.is_open(fact.b))) phase = guard::Phase::late;
    last = std::max(last, phase);
    return phase != guard::Phase::check;
  });
  return last == guard::Phase::check ? nullptr : why_open(last);
}

/// The expression of an int, open or not; nothing: it has none.
std::optional<Sym> World::open_size(PyObject* number) {
  int64_t value;
  if (!PyLong_CheckExact(number) || !guard::symbol_value(number, &value)) return std::nullopt;
  if (const Sym* known = followed(number)) return *known;
  return follows_number(number) ? size_from(step_of(number)) : std::optional(Sym(value));
}

bool World::compared_sizes(int op, PyObject* left, PyObject* right, bool answer) {
  const std::optional<Sym> x = open_size(left), y = x ? open_size(right) : std::nullopt;
  if (y) note_comparison(*notes, op, *x, *y, answer);
  return y.has_value();
}

PyRef World::compared_tensor(int op, PyObject* left, PyObject* right) {
  if (!hooks_.lends_open()) return {};
  const char* const kMethods[] = {"lt", "le", "eq", "ne", "gt", "ge"};  // in CPython's order
  const bool floats = PyFloat_Check(left) || PyFloat_Check(right);
  auto open = [&](PyObject* number) {
    auto at = followed_.find(number);
    return is_open(number) && at->second.step >= 0;
  };
  auto tensor = [&](PyObject* number) {
    const PyRef found = data_tensor(followed_.at(number).step);
    return PyRef::steal(found ? PyObject_CallMethod(found.get(), floats ? "double" : "long", nullptr)
                              : nullptr);
  };
  const bool turned = !open(left);
  PyObject *const first = turned ? right : left, *const second = turned ? left : right;
  if (!open(first) || (is_open(second) && !open(second))) return {};
  const PyRef one = tensor(first), other = open(second) ? tensor(second) : lend_step(step_of(second));
  PyRef result;
  if (one && other)
    result =
        PyRef::steal(PyObject_CallMethod(one.get(), kMethods[turned ? mirrored(op) : op], "O", other.get()));
  PyErr_Clear();
  return result;
}

PyRef World::classified(PyObject* function, PyObject* number) {
  for (const char* name : {"isnan", "isinf", "isfinite"})
    if (is_named(function, "__name__", name) && is_named(function, "__module__", "math")) {
      const PyRef tensor = data_tensor(step_of(number));
      PyRef answer = PyRef::steal(tensor ? PyObject_CallMethod(tensor.get(), name, nullptr) : nullptr);
      PyErr_Clear();
      return answer;
    }
  return {};
}

}  // namespace bolt::observe
