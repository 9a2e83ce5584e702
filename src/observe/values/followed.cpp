// observe/values/followed.cpp
// A number that differs between calls -> what it was computed from, so that it need not be read; and its
// value, at the price of a guard or of the region's end, once something reads it (see "Numbers that differ"
// in world.h).
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "guard/numpy_numbers.h"
#include "interp/semantics.h"
#include "observe/world.h"
#include "python/compat.h"
#include "python/slots.h"

namespace bolt::observe {

bool is_number(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || guard::is_numpy_number(object);
}

/// Of one letter, CPython has one object for all who ask by other ways.
static PyObject* own_text(PyObject* text) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
  PyObject* copy = length ? PyUnicode_New(length, PyUnicode_MAX_CHAR_VALUE(text)) : nullptr;
  if (copy && PyUnicode_CopyCharacters(copy, 0, text, 0, length) < 0) Py_CLEAR(copy);
  return copy;
}

PyObject* own_number(PyObject* number) {
  if (guard::is_numpy_number(number)) return PyObject_CallMethod(number, "copy", nullptr);
  if (PyUnicode_CheckExact(number)) return own_text(number);
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

PyObject* World::found(PyObject* object, Source* source) {
  if (is_own(object, source)) return object;
  if (PyObject* tuple = open_tuple(object, source)) return tuple;
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
  if (!can_be_followed(object) || follows_number(object) ||
      !hooks_.follows_number(object, *source, tree->root_names))
    return reached(object, source), object;
  if (auto at = leaves_.find(source); at != leaves_.end()) return at->second;
  PyObject* mine = own_number(object);
  if (!mine) return PyErr_Clear(), reached(object, source), object;
  PyRef held = PyRef::steal(follow_leaf(mine, source));
  stands_for(mine, object);
  return leaves_[source] = held.get();
}

/// `number` lies at `source` and has an address of its own. Stolen and returned.
PyObject* World::follow_leaf(PyObject* number, Source* source) {
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(number)));
  begin_to_follow();
  guard::NumberStep step{guard::NumberOp::source, tree->keep(source), {}, {}, {}};
  step.type = Py_TYPE(number);
  return follow_step(number, numbers.add(std::move(step)));
}

PyObject* World::carried(PyObject* object, Source* source) {
  const bool has_no_copy = PyUnicode_CheckExact(object) && PyUnicode_GET_LENGTH(object) == 0;
  if (!can_be_followed(object) || has_no_copy || find(object)) return found(object, source);
  if (hooks_.follows_number(object, *source, tree->root_names)) {
    PyRef held = PyRef::steal(follow_leaf(Py_NewRef(object), source));
    return object;
  }
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  know(object, source).lazy = true;
  lazy_.push_back(object);
  return object;
}

bool World::is_unread(PyObject* object) const {
  if (late(object) || follows_number(object)) return true;
  Known* const* known = lazy_.empty() ? nullptr : known_.find(object);
  return known && (*known)->lazy;
}

bool World::is_scalar(PyObject* object) const {
  return object && (can_be_followed(object) || (!late_.empty() && late_.count(object)));
}

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

/// Does the step rest on a number or text that was another one in nearly as many recordings as are kept? A
/// program for each of its values holds for no other.
bool World::is_always_another(int step) const {
  constexpr int kMost = 6;
  std::vector<int> open = {step};
  while (!open.empty()) {
    const guard::NumberStep& at = numbers.steps[static_cast<size_t>(open.back())];
    open.pop_back();
    open.insert(open.end(), at.args.begin(), at.args.end());
    if (at.op != guard::NumberOp::source) continue;
    const auto source = std::ranges::find(tree->all(), at.kind, &Source::reg);
    if (source != tree->all().end() && !hooks_.may_know_number(**source, tree->root_names, kMost))
      return true;
  }
  return false;
}

void World::use(PyObject* object) {
  if (all_are_read() || !object) return;
  if (const Late* late = this->late(object)) return use_late(*late);
  if (can_be_followed(object)) {
    if (auto at = followed_.find(object); at != followed_.end()) {
      Followed& number = at->second;  // held on: the address stays its own
      if (number.used) return;
      const guard::Phase phase = phase_of(object);
      const bool gives_up = phase == guard::Phase::check && number.step >= 0 && hooks_.gives_up_numbers() &&
                            is_recorded() && is_always_another(number.step);
      if (phase != guard::Phase::check || gives_up)
        end_region(gives_up ? Why::number_taken : why_open(phase));
      used_now_.push_back({object, number.expression, numbers.facts.size()});
      number.used = true;
      if (phase != guard::Phase::check || gives_up) return;
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
          !can_be_followed(found) && !PyTuple_Check(found) && !is_set(found) && !PySlice_Check(found) &&
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
    followed_keys.use_keys(at);  // a dict does not traverse texts that are keys
    lengths.read_if_open(at);
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

void World::use_elements(PyObject* container) {
  if (all_are_read()) return;
  if (!is_set(container)) return use(container);
  const PyRef list = native_items(container);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* element = PyList_GET_ITEM(list.get(), i);
    if (is_scalar(element) || !is_told_by_identity(element)) use(element);
  }
}

void World::use_all() {
  for (PyObject* tuple : open_tuples_) lengths.read_if_open(tuple);
  for (const auto& [object, late] : late_) use_late(late);
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
  if (mine) followed_[mine] = {PyRef::share(mine), expression, -1, false, hooks_.rests_on_data(expression)};
  return mine;
}

guard::Phase World::phase_of(PyObject* number) const {
  auto at = followed_.find(number);
  if (at == followed_.end() || at->second.used) return guard::Phase::check;
  if (at->second.rests_on_data) return guard::Phase::late;
  return at->second.step < 0 ? guard::Phase::check
                             : numbers.steps[static_cast<size_t>(at->second.step)].phase;
}

PyObject* World::computed(PyObject* number, guard::NumberStep step) {
  const bool rests_on_open = std::any_of(step.args.begin(), step.args.end(), [&](int arg) {
    return numbers.steps[static_cast<size_t>(arg)].phase != guard::Phase::check;
  });
  const bool of_numpys = std::any_of(step.args.begin(), step.args.end(), [&](int arg) {
    const guard::NumberStep& part = numbers.steps[static_cast<size_t>(arg)];
    return guard::is_numpys(part.op == guard::NumberOp::constant ? Py_TYPE(part.object.get()) : part.type);
  });
  const bool early = rests_on_open && numbers.phase_of(step) == guard::Phase::early;
  if (early) numbers.early_may_raise |= open_numbers.may_raise(step);
  if (rests_on_open && (of_numpys || (!early && !open_numbers.cannot_raise(step))))
    return end_region(why_open(numbers.phase_of(step))), number;
  begin_to_follow();
  if (is_number(number) && !hooks_.follows_sizes()) hooks_.follows_number_of_text();
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

/// Is it an int that a guard keeps in a symbol's range?
bool World::has_symbol(int step) const {
  return place_in(number_symbols, *number_symbol(step, false).node()) < number_symbols.size();
}

/// Constant: there is none.
Sym World::symbol_of(int step, PyObject* number) {
  int64_t value;
  if (!guard::symbol_value(number, &value)) return 0;
  const Sym symbol = number_symbol(step, PyFloat_CheckExact(number));
  if (place_in(number_symbols, *symbol.node()) == number_symbols.size())
    number_symbols.push_back(SymbolRow::of_number(
        symbol, value, numbers.steps[static_cast<size_t>(step)].phase == guard::Phase::early));
  return symbol;
}

int World::step_of(PyObject* number) {
  auto at = followed_.find(number);
  if (at == followed_.end() || at->second.used) {
    use(number);
    return numbers.add({guard::NumberOp::constant, 0, PyRef::share(number), {}, {}});
  }
  Followed& followed = at->second;
  if (followed.step < 0 && followed.rests_on_data) {
    const int step = open_numbers.open_step(followed.expression);
    if (step >= 0) return followed.step = step;
    end_region(why_open(guard::Phase::late));
    return numbers.add({guard::NumberOp::constant, 0, PyRef::share(number), {}, {}});
  }
  if (followed.step < 0) {
    number_sizes.push_back(SymbolRow::of_computed(followed.expression, PyLong_AsLongLong(number)));
    followed.step = numbers.add({guard::NumberOp::size, 0, {}, followed.expression, {}});
  }
  return followed.step;
}

/// The number that is this step. Null: it is not at hand any more.
PyObject* World::followed_as(int step) const {
  for (const auto& [number, followed] : followed_)
    if (followed.step == step && !followed.used) return number;
  return nullptr;
}

void World::went_by(guard::NumberStep step, PyObject* value) {
  if (const guard::Phase phase = numbers.phase_of(step); phase != guard::Phase::check)
    return end_region(why_open(phase));
  numbers.facts.push_back({numbers.add(std::move(step)), PyRef::share(value), notes->where()});
}

bool World::holds_followed(PyObject* object, int depth) const {
  if (followed_.empty() || !object) return false;
  if (can_be_followed(object)) return follows_number(object);
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
  if (!size.is_const())
    sizes_[size] = {hooks_.rests_on_data(size) ? PyRef::share(tensor) : PyRef(), dim, value};
  return follow(PyLong_FromLongLong(value), size);
}

PyObject* World::size_in(int64_t number, Sym size) {
  if (!size.is_const()) sizes_.try_emplace(size, AskedSize{PyRef(), size.node()->what.part, number});
  return follow(PyLong_FromLongLong(number), size);
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
    if (Sym size = hooks_.size_of(tensor, d); !size.is_const() && hooks_.rests_on_data(size))
      return end_region(why_open(guard::Phase::late));
    else if (!size.is_const())
      notes->add(size, Relation::eq, guard::size_of(impl, d));
  // Of a view it is not known here what its strides are made of.
  for (const auto& [stride, value] : hooks_.differing_strides()) notes->add(stride, Relation::eq, value);
}

PyObject* World::lend(PyObject* object, bool operand) {
  if (!holds_followed(object)) return use(object), Py_NewRef(object);
  if (const Sym* size = followed(object)) {
    open_numbers.note_lent(hooks_.rests_on_data(*size));
    return hooks_.lend(*size, PyLong_AsLongLong(object), notes);
  }
  if (is_open(object)) {
    const int at = step_of(object);
    const guard::NumberStep& step = numbers.steps[static_cast<size_t>(at)];
    const bool is_float = PyFloat_CheckExact(object);
    PyObject* lent = nullptr;
    open_numbers.note_lent(true);
    if (operand && step.phase == guard::Phase::early && is_float && hooks_.lends_open()) {
      lent = open_numbers.lend_early(at, object);
    } else if (hooks_.lends_open()) {
      const PyRef tensor = operand ? open_numbers.data_tensor(at) : PyRef();
      if (tensor) lent = hooks_.lend_data(number_symbol(at, is_float), object, tensor.get(), notes);
      if (!lent && PyLong_CheckExact(object)) lent = open_numbers.lend_size(at, object);
    }
    return lent || PyErr_Occurred() ? lent : (use(object), Py_NewRef(object));
  }
  if (PyFloat_CheckExact(object))
    return hooks_.lend_float(symbol_of(step_of(object), object), PyFloat_AS_DOUBLE(object), notes);
  if (guard::is_numpy_number(object)) {  // for torch it is the number of Python's that it stands for
    auto* type = reinterpret_cast<PyObject*>(guard::pythons_type_of(object));
    PyObject* number = PyObject_CallOneArg(type, object);
    if (!number) return nullptr;
    PyRef plain =
        PyRef::steal(computed(number, {guard::NumberOp::call, 0, PyRef::share(type), {}, {step_of(object)}}));
    return plain ? lend(plain.get(), operand) : nullptr;
  }
  if (can_be_followed(object)) return use(object), Py_NewRef(object);
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
  PyRef tuple = PyRef::steal(PyList_AsTuple(list.get()));  // x.new(size) is not x.new(tuple)
  return tuple && guard::is_torch_size(object) ? guard::make_torch_size(tuple.get()) : tuple.release();
}

std::optional<Why> World::tell_0_and_1(Sym symbol) {
  const int step = number_step(*symbol.node());
  if (const guard::Phase phase = numbers.steps[static_cast<size_t>(step)].phase;
      phase != guard::Phase::check) {
    const auto at = std::ranges::find_if(followed_, [&](const auto& each) {
      return each.second.step == step && PyFloat_CheckExact(each.first);
    });
    const double value = at == followed_.end() ? 0 : PyFloat_AS_DOUBLE(at->first);
    const bool between = phase == guard::Phase::late && value > 0 && value < 1 &&
                         open_numbers.expect_within(step, std::numeric_limits<double>::denorm_min(),
                                                    1 - std::numeric_limits<double>::epsilon() / 2);
    return between ? std::nullopt : std::optional(why_open(phase));
  }
  const SymbolRow& known = number_symbols[place_in(number_symbols, *symbol.node())];
  const double value = std::bit_cast<double>(known.hint);
  for (int each : {0, 1}) {
    const int other =
        numbers.add({guard::NumberOp::constant, 0, PyRef::steal(PyLong_FromLong(each)), {}, {}});
    went_by({guard::NumberOp::compare, Py_EQ, {}, {}, {step, other}}, value == each ? Py_True : Py_False);
  }
  return std::nullopt;
}

}  // namespace bolt::observe
