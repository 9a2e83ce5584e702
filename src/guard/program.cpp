// guard/program.cpp
#include "guard/program.h"

#include <algorithm>
#include <cstddef>

#include "guard/assumption.h"
#include "guard/dict_clock.h"
#include "guard/leaf.h"
#include "guard/memory.h"
#include "support/error.h"
#include "support/nesting.h"

namespace bolt::guard {
namespace {

/// Memories per group; beyond it all are dropped (a program called with endless new instances).
constexpr size_t kMaxMemories = 4096;

/// Subtrees of so many sources have a memory of their own, where they are not most of what they are in.
constexpr size_t kPart = 16;

void mark_parts(const SourceTree& tree) {
  std::vector<uint32_t> sizes(tree.all().size(), 1);
  for (size_t i = sizes.size(); i-- > 0;)
    if (const Source* parent = tree.all()[i]->parent) sizes[parent->number] += sizes[i];
  for (Source* source : tree.all()) {
    const uint32_t size = sizes[source->number];
    source->is_part = source->parent && size >= kPart && 2 * size <= sizes[source->parent->number];
  }
}

}  // namespace

struct Program::Group {
  std::vector<const Source*> tops;  ///< one root, or all constants
  Py_ssize_t root = -1;
  int step = -1;           ///< of the numbers, which gives the top: it is chosen
  std::vector<int> slots;  ///< of a chosen one
  Memory scratch;          ///< for roots that are new objects at every call anyway
  std::unordered_map<PyObject*, std::unique_ptr<Memory>> memories;
  Memory* in_use = nullptr;
  bool walked = false;
  Relations relations;  ///< of places in this group
};

Program::Program(std::unique_ptr<SourceTree> tree, TensorTable tensors, ThreadState thread)
    : tree_(std::move(tree)), tensors_(std::move(tensors)), thread_(thread) {
  auto constants = std::make_unique<Group>();
  std::unordered_map<const Source*, size_t> group_of;
  for (const Source* top : tree_->tops()) {
    if (top->access == Access::constant) {
      constants->tops.push_back(top);
      continue;
    }
    auto group = std::make_unique<Group>();
    group->tops = {top};
    if (top->access == Access::chosen) {
      group->step = static_cast<int>(top->index);
      for (const Assumption& assumption : top->assumptions)
        if (assumption.check == Check::tensor) group->slots.push_back(static_cast<int>(assumption.number));
      for (int slot : group->slots) tensors_.set_chosen(slot);
      chosen_.push_back(std::move(group));
      continue;
    }
    group->root = top->index;
    group_of[top] = groups_.size() + 1;
    groups_.push_back(std::move(group));
  }
  groups_.push_back(std::move(constants));
  constexpr size_t kChosen = ~size_t{0};
  auto top_group = [&](const Source* source) {
    while (source->parent) source = source->parent;
    if (source->access == Access::chosen) return kChosen;
    return group_of.count(source) ? group_of[source] : 0;
  };
  // Registers from here on are for this program's own comparisons.
  given_ = static_cast<size_t>(tree_->registers());
  /// The relations of the group that all `places` are in.
  auto relations_of = [&](const auto& places) -> Relations& {
    const size_t group = top_group(places.front());
    bool across = group == kChosen;
    for (Source* source : places) {
      tree_->keep(source);
      across |= top_group(source) != group;
    }
    return across ? across_ : groups_[group ? group - 1 : groups_.size() - 1]->relations;
  };
  for (const Apart& apart : tree_->apart) {
    std::vector<Source*> places = apart.each;
    places.insert(places.end(), apart.others.begin(), apart.others.end());
    relations_of(places).apart.push_back(&apart);
  }
  for (Source* source : tree_->all())
    for (const Assumption& assumption : source->assumptions)
      if (assumption.other)
        relations_of(std::vector<Source*>{source, assumption.other})
            .aliases.push_back({source, assumption.other, assumption.check == Check::same_as});
  mark_parts(*tree_);
  tensor_objects_.resize(tensors_.size());
  impls_.resize(tensors_.size());
  objects_.resize(static_cast<size_t>(tree_->registers()));
}

Program::~Program() = default;

bool Program::walk_group(const Group& group, PyObject* top, Memory& memory, std::string* why,
                         std::set<std::string>* numbers, bool goes_on, std::vector<PyRef>* gone) const {
  memory.renew();
  memory.valid = true;
  memory.compared = dict_time();
  Walk walk{memory, tree_->root_names, tensors_, why, numbers, goes_on, gone};
  for (const Source* source : group.tops)
    if (!walk.visit(*source, source->access == Access::constant ? source->key.get() : top)) {
      memory.valid = false;
      return false;
    }
  return true;
}

void Program::use(Group& group, Memory& memory) {
  if (group.in_use == &memory && !group.walked && memory.made.empty() && memory.grads.empty()) return;
  for (auto& [slot, tensor] : memory.tensors) {
    tensor_objects_[slot] = tensor;
    impls_[slot] = tensor_impl(tensor);
  }
  for (auto& [reg, object] : memory.objects) objects_[reg] = object;
  group.in_use = &memory;
}

bool Program::check_group(Group& group, PyObject* top, std::vector<PyRef>& gone) {
  // Only objects that outlive a call are worth a memory of their own.
  bool lasting = top && group.root >= 0 && _PyObject_GetDictPtr(top) && !is_tensor(top);
  Memory* memory = &group.scratch;
  if (lasting) {
    if (group.memories.size() > kMaxMemories) {
      for (auto& [root, known] : group.memories) known->forget_all(gone);
      group.memories.clear();
      group.in_use = nullptr;
    }
    auto& own = group.memories[top];
    if (!own) own = std::make_unique<Memory>();
    memory = own.get();
  }
  // A scratch memory speaks of objects found through the root it saw; another root may be met now.
  bool same_root = lasting || group.root < 0;
  group.walked = !(same_root && memory->valid && memory->unchanged() &&
                   memory->find_again(tree_->root_names, tensors_, gone));
  walks_ += group.walked;
  if (group.walked) memory->forget(gone);
  if (group.walked && !walk_group(group, top, *memory, nullptr, nullptr, false, &gone)) {
    group.in_use = nullptr;
    return false;
  }
  use(group, *memory);
  return true;
}

/// No chosen object is known yet.
void Program::choose_anew(std::vector<PyRef>& gone) {
  for (auto& group : chosen_) {
    group->scratch.forget(gone);
    group->in_use = nullptr;
    for (int slot : group->slots) {
      tensor_objects_[slot] = nullptr;
      impls_[slot] = nullptr;
    }
  }
}

/// Checks the objects that the numbers computed so far choose. False: one is not as it was.
bool Program::choose(const std::vector<PyRef>& numbers, std::string* why) {
  for (auto& group : chosen_) {
    if (group->in_use || static_cast<size_t>(group->step) >= numbers.size()) continue;
    PyObject* object = numbers[group->step].get();
    if (!walk_group(*group, object, group->scratch, why)) return false;
    use(*group, group->scratch);
  }
  return true;
}

bool Program::are_chosen() const {
  return std::all_of(chosen_.begin(), chosen_.end(), [](const auto& group) { return group->in_use; });
}

bool Program::check_relations() {
  for (auto& group : groups_) {
    if (group->in_use->related) continue;
    if (!group->relations.hold(objects_, tree_->root_names, nullptr)) return false;
    group->in_use->related = true;
  }
  if (across_.empty()) return true;
  auto same = [](const std::unique_ptr<Group>& group, uint64_t id) { return group->in_use->id == id; };
  if (chosen_.empty() &&
      std::equal(groups_.begin(), groups_.end(), across_held_for_.begin(), across_held_for_.end(), same))
    return true;
  if (!across_.hold(objects_, tree_->root_names, nullptr)) return false;
  across_held_for_.clear();
  for (auto& group : groups_) across_held_for_.push_back(group->in_use->id);
  return true;
}

void Program::forget_alias(const Source* a, const Source* b) {
  auto is_it = [&](const Alias& alias) { return alias.a == a && alias.b == b; };
  for (auto& group : groups_) std::erase_if(group->relations.aliases, is_it);
  std::erase_if(across_.aliases, is_it);
}

bool Program::check(PyObject* const* roots, size_t nroots, Found& found) {
  if (!(ThreadState::now() == thread_)) return false;
  // Whoever frees a tensor may lose the GIL for a moment, and another thread comes in between and checks its
  // own call: what is let go of goes before the check or after it.
  found.objects.clear();
  found.numbers.clear();
  std::vector<PyRef> gone;
  choose_anew(gone);
  for (auto& group : groups_) {
    if (group->root >= static_cast<Py_ssize_t>(nroots)) return false;
    if (!check_group(*group, group->root >= 0 ? roots[group->root] : nullptr, gone)) return false;
  }
  // What the numbers choose is looked at behind them, and they behind the sizes that they rest on.
  const bool chooses = !chosen_.empty();
  if (!chooses && !check_relations()) return false;
  if (tensors_.first_difference(tensor_objects_.data(), impls_.data(), !chooses) >= 0) return false;
  if (!check_numbers(found.numbers, nullptr)) return false;
  // The check that ends a recording comes before there are numbers, and nothing is chosen in it.
  if (chooses && are_chosen() &&
      (!check_relations() || tensors_.first_difference(tensor_objects_.data(), impls_.data()) >= 0))
    return false;
  found.tensors = impls_;
  if (!facts_.empty() && !check_sizes(found.tensors.data(), found.numbers, nullptr)) return false;
  found.objects.reserve(given_);
  for (size_t i = 0; i < given_; ++i) found.objects.push_back(PyRef::share(objects_[i]));
  return true;
}

namespace {
std::string because_of(const std::string& where) { return where.empty() ? "" : "; because of " + where; }
}  // namespace

std::string Program::explain_failure(PyObject* const* roots, size_t nroots) {
  ThreadState thread = ThreadState::now();
  if (!(thread == thread_)) return thread_.explain(thread);
  std::string why;
  std::vector<PyRef> made;
  if (!walk_all(roots, nroots, made, &why)) return why;
  int slot = tensors_.first_difference(tensor_objects_.data(), impls_.data(), chosen_.empty());
  std::vector<PyRef> numbers;
  if (slot < 0) {
    if (!check_numbers(numbers, &why)) return why;
    const bool behind = !chosen_.empty() && are_chosen();
    if (behind && !across_.hold(objects_, tree_->root_names, &why)) return why;
    slot = behind ? tensors_.first_difference(tensor_objects_.data(), impls_.data()) : -1;
  }
  if (slot < 0) return check_sizes(impls_.data(), numbers, &why) ? "" : why;
  return place_of(slot) + " is " + tensors_.explain(slot, tensor_objects_[slot]);
}

bool Program::differs_in_class(PyObject* const* roots, size_t nroots) {
  std::string why;
  bool other_class = false;
  std::vector<PyRef> made;
  return ThreadState::now() == thread_ && !walk_all(roots, nroots, made, &why, nullptr, &other_class) &&
         other_class;
}

/// Everything but the tensors, remembering nothing. `made` holds what it made of what it found.
bool Program::walk_all(PyObject* const* roots, size_t nroots, std::vector<PyRef>& made, std::string* why,
                       std::set<std::string>* numbers, bool* other_class) {
  choose_anew(made);
  for (auto& group : groups_) {
    if (group->root >= static_cast<Py_ssize_t>(nroots)) return *why = "fewer arguments", false;
    Memory memory;
    if (!walk_group(*group, group->root >= 0 ? roots[group->root] : nullptr, memory, why, numbers)) {
      if (other_class) *other_class = memory.other_class;
      return false;
    }
    group->in_use = nullptr;
    use(*group, memory);
    group->in_use = nullptr;
    for (Reread& each : memory.made) made.push_back(std::move(each.found));
    for (const auto& [tensor, number] : memory.numbers) made.push_back(PyRef::share(number->number()));
  }
  for (auto& group : groups_)
    if (!group->relations.hold(objects_, tree_->root_names, why)) return false;
  return !chosen_.empty() || across_.hold(objects_, tree_->root_names, why);
}

std::string Program::place_of(int slot) const {
  for (Source* source : tree_->all())
    for (const Assumption& assumption : source->assumptions)
      if (assumption.check == Check::tensor && assumption.number == slot)
        return source->str(tree_->root_names);
  return "a tensor";
}

void Program::free_sizes(SymbolTable symbols, std::vector<SizeFact> facts, const Syms& sizes) {
  symbols_ = std::move(symbols);
  facts_ = std::move(facts);
  std::map<int, uint64_t> free;
  for (const SymbolRow& s : symbols_) {
    const bool number = std::any_of(facts_.begin(), facts_.end(), [&](const SizeFact& f) {
      return f.relation == Relation::eq && f.a == s.symbol && f.b.is_const();
    });
    if (!number && s.input >= 0) free[s.input] |= uint64_t{1} << s.dim;
  }
  for (auto [slot, dims] : free) tensors_.set_free(slot, dims);
  size_t next = 0;
  for (NumberStep& step : numbers_.steps)
    if (step.op == NumberOp::size) step.size = sizes[next++];
}

// Null: it divides by a size that is 0 in this call, for which nothing was recorded.
std::optional<int64_t> Program::value_of(Sym size, c10::TensorImpl* const* tensors,
                                         const std::vector<PyRef>& numbers) const {
  auto number = [&](int step) {
    int64_t value = -1;
    if (step >= 0 && static_cast<size_t>(step) < numbers.size() && numbers[step])
      symbol_value(numbers[step].get(), &value);
    return value;
  };
  auto value = [&](size_t place) {
    const SymbolRow& s = symbols_[place];
    if (s.from == SymbolRow::From::number) return number(s.dim);
    return s.input >= 0 && tensors[s.input] ? s.of(size_of(*tensors[s.input], s.dim)) : -1;
  };
  try {
    return evaluate(size, symbols_, value, [&](const SymNode& n) { return number(number_step(n)); });
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Program::text_of(int step) const {
  return numbers_.text(step, [&](int reg) {
    for (Source* source : tree_->all())
      if (source->reg == reg) return source->str(tree_->root_names);
    return std::string("a number");
  });
}

std::string Program::text_of(const SymbolRow& row) const {
  if (row.from == SymbolRow::From::number) return text_of(row.dim);
  const bool stride = row.dim >= kStrideBit;
  std::string text = place_of(row.input) + (stride ? ".stride(" : ".size(") +
                     std::to_string(row.dim - (stride ? kStrideBit : 0)) + ")";
  return row.divisor == 1 ? text : text + " // " + std::to_string(row.divisor);
}

/// The numbers of the check, and what they choose. False: one cannot be computed.
bool Program::compute_numbers(std::vector<PyRef>& numbers, std::string* why) {
  auto size = [&](Sym s, const std::vector<PyRef>& so_far) {
    return choose(so_far, why) ? value_of(s, impls_.data(), so_far) : std::nullopt;
  };
  if (numbers_.compute(objects_, size, numbers)) return choose(numbers, why);
  if (why && why->empty())
    *why = "what is computed from " + text_of(static_cast<int>(numbers.size())) +
           " raises, or is an int in one call and a float in another";
  return false;
}

bool Program::check_numbers(std::vector<PyRef>& numbers, std::string* why) {
  numbers.clear();
  if (numbers_.steps.empty()) return true;
  if (!compute_numbers(numbers, why)) return false;
  for (const SymbolRow& s : symbols_) {
    int64_t ignored;
    if (s.from != SymbolRow::From::number || numbers_.steps[s.dim].phase != Phase::check ||
        symbol_value(numbers[s.dim].get(), &ignored))
      continue;
    if (why)
      *why = text_of(s.dim) + " is an int below 2**31 and not negative (now " +
             short_repr(numbers[s.dim].get()) + ")";
    return false;
  }
  const NumberFact* broken = numbers_.broken(numbers);
  if (broken && why)
    *why = text_of(broken->step) + " == " + short_repr(broken->value.get()) + " (now " +
           short_repr(numbers[broken->step].get()) + ")" + because_of(broken->where);
  return !broken;
}

bool Program::check_sizes(c10::TensorImpl* const* tensors, const std::vector<PyRef>& numbers,
                          std::string* why) const {
  for (const SizeFact& f : facts_) {
    const auto a = value_of(f.a, tensors, numbers), b = value_of(f.b, tensors, numbers);
    if (a && b && bolt::holds(*a, f.relation, *b)) continue;
    if (why) {
      auto text = [](std::optional<int64_t> value) { return value ? std::to_string(*value) : "nothing"; };
      *why = bolt::str(f) + " (now " + text(a) + " and " + text(b) + ")";
      for (const SymbolRow& s : symbols_) *why += ", " + s.symbol.str() + " being " + text_of(s);
      *why += because_of(f.where);
    }
    return false;
  }
  return true;
}

void Program::add_differences(PyObject* const* roots, size_t nroots, Differences& into) {
  std::string why;
  Differences found;
  if (!(ThreadState::now() == thread_)) return;
  // Where a list has become shorter, or a dict has other keys, the walk does not come to what was there.
  for (auto& group : groups_) group->in_use = nullptr;
  std::fill(tensor_objects_.begin(), tensor_objects_.end(), nullptr);
  std::fill(objects_.begin(), objects_.end(), nullptr);
  std::vector<PyRef> made;
  if (!walk_all(roots, nroots, made, &why, &found.numbers)) return add_arguments(roots, nroots, into);
  auto add_sizes = [&] {
    for (size_t slot = 0; slot < tensor_objects_.size(); ++slot) {
      if (!tensor_objects_[slot]) continue;
      const auto differ = tensors_.size_differences(static_cast<int>(slot), tensor_objects_[slot]);
      if (!differ) return false;
      if (*differ) found.sizes[place_of(static_cast<int>(slot))] |= *differ;
    }
    return true;
  };
  if (!add_sizes()) return;
  std::vector<PyRef> numbers;
  if (!chosen_.empty() && compute_numbers(numbers, nullptr) && !add_sizes()) return;
  for (const auto& [place, dims] : found.sizes) into.sizes[place] |= dims;
  into.numbers.merge(found.numbers);
}

/// Of the very objects that were recorded, and of what is the same for all calls: the first steps of an
/// optimizer find its state empty, and another learning rate. Of arguments that are numbers, texts or tensors
/// where they come with an object that was recorded, whose state may have changed: fn(model, step).
void Program::add_arguments(PyObject* const* roots, size_t nroots, Differences& into) const {
  const size_t known = std::min(nroots, recorded_.size());
  auto is_recorded = [&](size_t root) { return root < known && recorded_[root] == roots[root]; };
  auto is_value = [&](size_t root) {
    PyObject* given = root < known ? roots[root] : nullptr;
    return given && (PyLong_CheckExact(given) || PyFloat_CheckExact(given) || PyUnicode_CheckExact(given));
  };
  bool some_recorded = false;
  for (size_t root = 0; root < known; ++root)
    some_recorded |= roots[root] && is_recorded(root) && !is_leaf(roots[root]) &&
                     !(PyFunction_Check(roots[root]) && !PyFunction_GET_CLOSURE(roots[root]));
  for (const auto& group : groups_) {
    const auto root = static_cast<size_t>(group->root);
    const bool constant = group->root < 0;
    if (!constant && !is_recorded(root) && !(some_recorded && is_value(root))) continue;
    Memory memory;
    walk_group(*group, constant ? nullptr : roots[root], memory, nullptr, &into.numbers, true);
  }
  for (const Source* source : tree_->tops()) {
    const bool given = some_recorded && source->access == Access::root &&
                       source->index < static_cast<Py_ssize_t>(nroots) && roots[source->index];
    for (const Assumption& assumption : source->assumptions) {
      if (!given || assumption.check != Check::tensor || !is_tensor(roots[source->index])) continue;
      const auto slot = static_cast<int>(assumption.number);
      if (const auto differ = tensors_.size_differences(slot, roots[source->index]); differ && *differ)
        into.sizes[place_of(slot)] |= *differ;
    }
  }
}

void Program::forbid_new_overlap(const std::vector<int>& written_slots) {
  tensors_.forbid_new_overlap(written_slots);
}

std::vector<std::string> Program::describe() const {
  std::vector<std::string> lines;
  for (Source* source : tree_->all())
    for (const Assumption& assumption : source->assumptions)
      lines.push_back(guard_text(*source, assumption, tree_->root_names, tensors_));
  for (const Apart& apart : tree_->apart) {
    auto places = [&](const std::vector<Source*>& sources) {
      std::string text;
      for (const Source* s : sources) text += (text.empty() ? "" : ", ") + s->str(tree_->root_names);
      return text;
    };
    lines.push_back(places(apart.each) + " are different objects" +
                    (apart.others.empty() ? "" : ", and not " + places(apart.others)));
  }
  for (const SymbolRow& s : symbols_) lines.push_back(s.symbol.str() + " is " + text_of(s));
  for (const NumberFact& f : numbers_.facts)
    lines.push_back(text_of(f.step) + " == " + short_repr(f.value.get()));
  for (const SizeFact& f : facts_) lines.push_back(bolt::str(f));
  return lines;
}

}  // namespace bolt::guard
