// guard/memory.cpp
#include "guard/memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "guard/assumption.h"
#include "guard/dict_clock.h"
#include "guard/iterators.h"
#include "guard/leaf.h"
#include "guard/number_lists.h"

namespace bolt::guard {
namespace {

/// Fewer words than this are compared faster than the clock is asked.
constexpr size_t kWorthAClock = 32;

// Deprecated from 3.12 on, where watchers take its place; kept up to date there still.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
const uint64_t* version_of(const PyDictObject* dict) { return &dict->ma_version_tag; }
#pragma GCC diagnostic pop

bool equal(const std::vector<Word>& words) {
  return std::all_of(words.begin(), words.end(), [](const Word& word) { return *word.at == word.expected; });
}

bool makes_tensor(const Source& step) {
  return step.access == Access::list_tensor || step.access == Access::array_tensor;
}

/// The tensor that such a step makes of what it is given; null without an exception: of that it makes none.
PyRef tensor_made(const Source& step, PyObject* object) {
  return PyRef::steal(step.access == Access::list_tensor ? tensor_of_list(object, step.index != 0)
                                                         : tensor_of_array(object));
}

}  // namespace

void Memory::forget(std::vector<PyRef>& gone) {
  words.clear();
  others.clear();
  type_tags.clear();
  always.clear();
  tensors.clear();
  objects.clear();
  std::move(held.begin(), held.end(), std::back_inserter(gone));
  held.clear();
  grads.clear();
  numbers.clear();
  for (auto* steps : {&rereads, &made}) {
    for (Reread& again : *steps) gone.push_back(std::move(again.found));
    steps->clear();
  }
  valid = related = false;
}

void Memory::forget_all(std::vector<PyRef>& gone) {
  forget(gone);
  for (auto& [source, part] : parts) part->forget_all(gone);
}

void Memory::append(const Memory& part) {
  auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  for (GradStep grad : part.grads) {
    grad.tensors += tensors.size();
    grad.objects += objects.size();
    grads.push_back(grad);
  }
  add(words, part.words);
  add(others, part.others);
  add(type_tags, part.type_tags);
  add(always, part.always);
  add(tensors, part.tensors);
  add(objects, part.objects);
  add(numbers, part.numbers);
  auto share = [](auto& to, const auto& from) {
    for (const Reread& again : from)
      to.push_back({again.step, again.parent, PyRef::share(again.found.get())});
  };
  share(rereads, part.rereads);
  share(made, part.made);
  valid = valid && part.valid;
}

bool Memory::words_unchanged() {
  if (words.size() - others.size() < kWorthAClock) return equal(words);
  const uint64_t time = dict_time();
  if (time == compared) return equal(others);
  if (!equal(words)) return false;
  compared = time;
  return true;
}

bool Memory::unchanged() {
  if (!words_unchanged()) return false;
  for (const HalfWord& tag : type_tags)
    if (*tag.at != tag.expected) return false;
  for (auto& [source, object] : always) {
    for (const Assumption& assumption : source->assumptions)
      if (!holds(assumption, object)) return false;
  }
  for (const auto& [tensor, number] : numbers)
    if (!number->is_in(tensor)) return false;
  for (const Reread& again : rereads)
    if (again.step->read(again.parent) != again.found.get()) return false;
  return true;
}

void Memory::renew() {
  static uint64_t next_id = 0;
  id = ++next_id;
  related = false;
}

bool Memory::find_lists(std::vector<PyRef>& gone) {
  for (auto& [step, list, tensor] : made) {
    PyRef other = tensor_made(*step, list);
    if (!other) return false;
    for (auto* found : {&tensors, &objects})
      for (auto& [at, object] : *found)
        if (object == tensor.get()) object = other.get();
    gone.push_back(std::exchange(tensor, std::move(other)));
  }
  return true;
}

void Memory::add_grad(const Source& step, PyObject* tensor, PyObject* grad, Memory& below) {
  grads.push_back(
      {&step, tensor, grad, tensors.size(), below.tensors.size(), objects.size(), below.objects.size()});
  tensors.insert(tensors.end(), below.tensors.begin(), below.tensors.end());
  objects.insert(objects.end(), below.objects.begin(), below.objects.end());
  valid = valid && below.made.empty() && below.numbers.empty();
  std::move(below.made.begin(), below.made.end(), std::back_inserter(made));
}

void Memory::replace_grad(GradStep& grad, PyObject* now, const Memory& below) {
  std::copy(below.tensors.begin(), below.tensors.end(), tensors.begin() + static_cast<long>(grad.tensors));
  std::copy(below.objects.begin(), below.objects.end(), objects.begin() + static_cast<long>(grad.objects));
  if (std::exchange(grad.found, now) != now) renew();
}

bool Memory::find_again(const std::vector<std::string>& root_names, const TensorTable& table,
                        std::vector<PyRef>& gone) {
  if (!find_lists(gone)) return false;
  Memory below;
  for (GradStep& grad : grads) {
    below.forget(gone);
    PyObject* now = grad.step->read(grad.tensor);
    Walk walk{below, root_names, table, nullptr, nullptr};
    if (!walk.visit(*grad.step, now) || below.tensors.size() != grad.tensor_count ||
        below.objects.size() != grad.object_count)
      return false;
    replace_grad(grad, now, below);
  }
  below.forget(gone);
  return true;
}

void Walk::word(const void* at, const void* expected) {
  const Word word{static_cast<const uint64_t*>(at), reinterpret_cast<uint64_t>(expected)};
  memory.words.push_back(word);
  memory.others.push_back(word);
}

template <typename T>
void Walk::word_now(const T* at) {
  static_assert(sizeof(T) == sizeof(const void*));
  const void* now;
  std::memcpy(&now, at, sizeof(now));
  word(at, now);
}

void Walk::dict_word(PyDictObject* dict) {
  watch_dict(reinterpret_cast<PyObject*>(dict));
  const uint64_t* version = version_of(dict);
  memory.words.push_back({version, *version});
}

bool Walk::visit(const Source& source, PyObject* object) {
  return source.is_part && gone && object ? visit_part(source, object) : visit_whole(source, object);
}

bool Walk::visit_part(const Source& source, PyObject* object) {
  std::unique_ptr<Memory>& part = memory.parts[&source];
  if (!part) part = std::make_unique<Memory>();
  if (!part->valid || part->top != object || !part->unchanged() ||
      !part->find_again(root_names, table, *gone)) {
    part->forget(*gone);
    part->top = object;
    part->valid = true;
    part->compared = dict_time();
    Walk walk{*part, root_names, table, nullptr, nullptr, false, gone, &source};
    if (!walk.visit_whole(source, object)) return part->valid = false;
  }
  memory.append(*part);
  return true;
}

bool Walk::visit_whole(const Source& source, PyObject* object) {
  if (!object) return visit_absent(source);
  for (const Assumption& assumption : source.assumptions)
    if (!holds(assumption, object) && !is_other_number(source, assumption, object) &&
        !(goes_on && assumption.check == Check::missing))  // how many keys there are is looked at, too
      return fail(source, assumption, object);
  remember(source, object);
  for (const Source* child : source.children()) {
    PyObject* found = read(*child, object);
    if (child->access == Access::tensor_grad) {
      if (!visit_grad(*child, object, found)) return false;
      continue;
    }
    remember_step(*child, object, found);
    if (!visit(*child, found)) return false;
  }
  return true;
}

bool Walk::visit_grad(const Source& step, PyObject* tensor, PyObject* grad) {
  Memory below;
  Walk walk{below, root_names, table, why, numbers, goes_on};
  const bool fits = walk.visit(step, grad);
  memory.other_class |= below.other_class;
  if (fits) memory.add_grad(step, tensor, grad, below);
  return fits;
}

PyObject* Walk::read(const Source& child, PyObject* parent) {
  if (child.access == Access::tensor_number) return read_number(child, parent);
  if (!makes_tensor(child)) return child.read(parent);
  PyRef made = tensor_made(child, parent);
  return made ? memory.made.emplace_back(Reread{&child, parent, std::move(made)}).found.get() : nullptr;
}

PyObject* Walk::read_number(const Source& child, PyObject* tensor) {
  const auto known = memory.known_numbers.find(&child);
  const bool holds = known != memory.known_numbers.end() && known->second.is_in(tensor);
  if (known != memory.known_numbers.end() && !holds) {
    memory.held.push_back(PyRef::share(known->second.number()));
    memory.known_numbers.erase(known);
  }
  const TensorNumber& number =
      holds ? known->second
            : memory.known_numbers.try_emplace(&child, tensor, child.index, child.key.get()).first->second;
  memory.numbers.push_back({tensor, &number});
  return number.number();
}

bool Walk::is_other_number(const Source& source, const Assumption& assumption, PyObject* object) {
  if (!numbers) return false;
  // Of a flag, too, it is counted how often it was another one.
  if (source.access == Access::tensor_number) numbers->insert(source.str(root_names));
  if (assumption.check == Check::length) {
    numbers->insert(source.length_str(root_names));
    // Whoever went through it met other items. Numbers may have become a tensor, of which only sizes matter.
    return (!source.is_whole && !source.has(Check::keys)) || holds_numbers(object);
  }
  // Other keys of a dict are looked at as items at other places of a list are.
  if (assumption.check == Check::keys && PyDict_Check(object))
    return numbers->insert(source.length_str(root_names)), true;
  if (assumption.check == Check::keys && is_set(object) &&
      PyTuple_GET_SIZE(assumption.value.get()) != PySet_GET_SIZE(object))
    return numbers->insert(source.length_str(root_names)), false;
  if (assumption.check == Check::equals && PyTuple_CheckExact(assumption.value.get()) &&
      PyTuple_CheckExact(object) && Py_SIZE(assumption.value.get()) != Py_SIZE(object))
    return numbers->insert(source.length_str(root_names)), false;
  return assumption.check == Check::equals &&
         differ_in_numbers(assumption.value.get(), object, source.str(root_names), *numbers);
}

bool Walk::visit_absent(const Source& source) {
  if (goes_on || source.has(Check::unbound)) return true;
  if (numbers && ((source.access == Access::list_item && source.parent->is_whole) ||
                  (source.access == Access::dict_item && source.parent->has(Check::keys))))
    return true;  // as is_other_number
  for (const Assumption& assumption : source.assumptions) return fail(source, assumption, nullptr);
  return source.children().empty() || fail(source, {Check::type_is, {}, nullptr, 0}, nullptr);
}

bool Walk::fail(const Source& source, const Assumption& assumption, PyObject* object) {
  if (goes_on) return true;
  memory.other_class = object && assumption.check == Check::type_is;
  if (why) *why = guard_text(source, assumption, root_names, table) + now(assumption, object);
  return false;
}

/// Words that prove what was assumed about the object itself.
void Walk::remember(const Source& source, PyObject* object) {
  // By its dict's version, which is no word of a part's.
  bool proven = source.parent && source.access == Access::dict_item && &source != part_of;
  bool constant = source.access == Access::constant;
  if (source.reg >= 0) {
    memory.objects.emplace_back(source.reg, object);
    // Of a number more than its type is asked: another one must not take its address.
    if (!proven && (PyLong_CheckExact(object) || PyFloat_CheckExact(object)))
      memory.held.push_back(PyRef::share(object));
  }
  // Of a tensor what it is is looked at anyway (TensorTable), in one pass over all.
  const bool tensor = source.has(Check::tensor);
  for (const Assumption& assumption : source.assumptions)
    if (!tensor || assumption.check != Check::type_is) remember_assumption(assumption, object, proven);
  if (source.has(Check::leaf) || source.has(Check::gives) || source.has(Check::stands))
    memory.always.emplace_back(&source, object);
  if (PyDict_Check(object) && source.reads_dict()) {
    dict_word(reinterpret_cast<PyDictObject*>(object));
    // move_to_end() leaves no trace: neither in the dict below nor in the words of the ordered one, whose
    // first and last may be the same again after several.
    if (PyODict_Check(object) && source.has(Check::keys)) memory.always.emplace_back(&source, object);
  } else if (PyType_Check(object) && constant && !source.children().empty()) {
    remember_type(reinterpret_cast<PyTypeObject*>(object));
  } else if (is_set(object) && source.has(Check::keys)) {
    memory.always.emplace_back(&source, object);
  } else if (PyList_Check(object) && !source.children().empty()) {
    word_now(&reinterpret_cast<PyVarObject*>(object)->ob_size);
    word_now(&reinterpret_cast<PyListObject*>(object)->ob_item);
  } else if (PyTuple_Check(object) && !source.children().empty()) {
    word_now(&reinterpret_cast<PyVarObject*>(object)->ob_size);
  }
}

void Walk::remember_type(PyTypeObject* type) {
  if (type->tp_version_tag && (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG))
    memory.type_tags.push_back({&type->tp_version_tag, type->tp_version_tag});
  else
    memory.valid = false;
}

void Walk::remember_assumption(const Assumption& assumption, PyObject* object, bool proven) {
  switch (assumption.check) {
    case Check::type_is:
      if (!proven || (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) word_now(&object->ob_type);
      break;
    case Check::equals:
    case Check::is_bound:
      if (!proven) memory.held.push_back(PyRef::share(object));
      break;
    case Check::method: word_now(&reinterpret_cast<PyCFunctionObject*>(object)->m_ml); break;
    case Check::value: memory.held.push_back(PyRef::share(object)); break;
    case Check::length:
      if (PyList_Check(object) || PyTuple_Check(object))
        word_now(&reinterpret_cast<PyVarObject*>(object)->ob_size);
      else if (is_set(object))
        word_now(&reinterpret_cast<PySetObject*>(object)->used);
      else if (!PyDict_Check(object))
        memory.valid = false;
      break;
    case Check::tensor: memory.tensors.emplace_back(static_cast<int>(assumption.number), object); break;
    default: break;
  }
}

/// Words that prove that the same object is found again.
void Walk::remember_step(const Source& child, PyObject* parent, PyObject* found) {
  switch (child.access) {
    case Access::instance_dict: word(instance_dict_slot(parent), found); break;
    case Access::list_item:
      if (found) word(list_place(parent, child.index), found);
      break;
    case Access::tuple_item:
      if (found)
        word(&PyTuple_GET_ITEM(parent, child.index < 0 ? child.index + Py_SIZE(parent) : child.index), found);
      break;
    case Access::cell: word(&reinterpret_cast<PyCellObject*>(parent)->ob_ref, found); break;
    case Access::field: word(reinterpret_cast<char*>(parent) + child.index, found); break;
    case Access::deque_item:
      if (!found) {
        memory.valid = false;
        break;
      }
      if (child.index < 0) word_now(&reinterpret_cast<PyVarObject*>(parent)->ob_size);
      for (const void* const* at :
           deque_path(parent, child.index < 0 ? child.index + Py_SIZE(parent) : child.index))
        word(at, *at);
      break;
    case Access::context_var: memory.rereads.push_back({&child, parent, PyRef::share(found)}); break;
    case Access::list_tensor:
    case Access::array_tensor:  // more than the tensor itself is looked at
      if (!child.children().empty() || child.has(Check::leaf) || child.has(Check::gives))
        memory.valid = false;
      break;
    default: break;
  }
}

}  // namespace bolt::guard
