// guard/program.cpp: see program.h.
#include "guard/program.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "guard/leaf.h"

namespace bolt::guard {
namespace {

/// Memories per group; beyond it all are dropped (a program called with endless new instances).
constexpr size_t kMaxMemories = 4096;

struct Word {
  const uint64_t* at;
  uint64_t expected;
};
struct HalfWord {
  const uint32_t* at;
  uint32_t expected;
};

// CPython keeps these private to their .c files.
struct OrderedDictHead {
  PyDictObject dict;
  void* fast_nodes;
  Py_ssize_t fast_nodes_size;
  void* resize_sentinel;
  size_t state;  ///< changes with every insertion, removal and reordering
};

// Deprecated from 3.12 on, where watchers take its place; kept up to date there still.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
const uint64_t* version_of(const PyDictObject* dict) { return &dict->ma_version_tag; }
#pragma GCC diagnostic pop

bool keys_match(PyObject* container, PyObject* expected) {
  Py_ssize_t n = PyTuple_GET_SIZE(expected), at = 0;
  auto same = [&](PyObject* key) {
    PyObject* wanted = at < n ? PyTuple_GET_ITEM(expected, at++) : nullptr;
    return wanted && (key == wanted || same_leaf(key, wanted));
  };
  if (PyAnySet_Check(container)) {
    if (PySet_GET_SIZE(container) != n) return false;
    Py_ssize_t position = 0;
    PyObject* item;
    Py_hash_t hash;
    while (_PySet_NextEntry(container, &position, &item, &hash))
      if (!same(item)) return false;
    return true;
  }
  if (PyDict_GET_SIZE(container) != n) return false;
  if (PyODict_Check(container)) {  // its order is not the order of the dict below
    PyRef keys = PyRef::steal(PySequence_List(container));
    if (!keys) return PyErr_Clear(), false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i)
      if (!same(PyList_GET_ITEM(keys.get(), i))) return false;
    return true;
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(container, &position, &key, &value))
    if (!same(key)) return false;
  return true;
}

bool is_missing(PyObject* container, PyObject* key) {
  if (PyType_Check(container)) return !_PyType_Lookup(reinterpret_cast<PyTypeObject*>(container), key);
  int found = PyDict_Check(container) ? PyDict_Contains(container, key) : -1;
  if (found < 0) PyErr_Clear();
  return found == 0;
}

Py_ssize_t length_of(PyObject* object) {
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  Py_ssize_t n = PySequence_Size(object);
  if (n < 0) PyErr_Clear();
  return n;
}

bool same_builtin(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b) || !PyCFunction_Check(a)) return false;
  auto *x = reinterpret_cast<PyCFunctionObject*>(a), *y = reinterpret_cast<PyCFunctionObject*>(b);
  return x->m_ml == y->m_ml && x->m_self == y->m_self;
}

/// Aliases and tensors are compared after the walk.
bool holds(const Assumption& assumption, PyObject* object) {
  switch (assumption.check) {
    case Check::type_is: return reinterpret_cast<PyObject*>(Py_TYPE(object)) == assumption.value.get();
    case Check::is: return object == assumption.value.get();
    case Check::is_bound: return same_builtin(object, assumption.value.get());
    case Check::equals: return same_leaf(object, assumption.value.get());
    case Check::length: return length_of(object) == assumption.number;
    case Check::keys: return keys_match(object, assumption.value.get());
    case Check::missing: return is_missing(object, assumption.value.get());
    case Check::no_dict: return !instance_dict_slot(object);
    case Check::unbound: return false;
    case Check::tensor: return is_tensor(object);
    case Check::same_as:
    case Check::not_same_as: return true;
  }
  return false;
}

std::string guard_text(const Source& source, const Assumption& assumption,
                       const std::vector<std::string>& names, const TensorTable& tensors) {
  std::string path = source.str(names), value = assumption.value ? short_repr(assumption.value.get()) : "";
  switch (assumption.check) {
    case Check::type_is: return "type(" + path + ") is " + value;
    case Check::is:
    case Check::is_bound: return path + " is " + value;
    case Check::equals: return path + " == " + value;
    case Check::length: return "len(" + path + ") == " + std::to_string(assumption.number);
    case Check::keys: return "keys of " + path + " are " + value;
    case Check::missing: return value + " not in " + path;
    case Check::no_dict: return path + " has no __dict__";
    case Check::unbound: return path + " is unbound";
    case Check::tensor: return path + " is " + tensors.describe(static_cast<int>(assumption.number));
    case Check::same_as: return path + " is " + assumption.other->str(names);
    case Check::not_same_as: return path + " is not " + assumption.other->str(names);
  }
  return path;
}

std::string now(const Assumption& assumption, PyObject* object) {
  if (!object) return " (now missing)";
  switch (assumption.check) {
    case Check::length: return " (now " + std::to_string(length_of(object)) + ")";
    case Check::type_is: return std::string(" (now ") + Py_TYPE(object)->tp_name + ")";
    case Check::missing:
    case Check::keys: return " (no longer)";
    default: return " (now " + short_repr(object) + ")";
  }
}

}  // namespace

/// A step that leaves no word to compare: it is taken again. What was found is held, since words may point
/// into it.
struct Reread {
  const Source* step;
  PyObject* parent;
  PyRef found;
};

struct Program::Memory {
  std::vector<Word> words;
  std::vector<HalfWord> type_tags;
  std::vector<std::pair<const Source*, PyObject*>> always;  ///< places no word can vouch for
  std::vector<std::pair<int, PyObject*>> tensors, objects;  ///< by slot, by register
  std::vector<PyRef> held;                                  ///< leaves whose address is a word's value
  std::vector<Reread> rereads;
  uint64_t id = 0;
  bool valid = false;

  /// Forgets everything; the objects it held are the caller's to let go of.
  void forget(std::vector<PyRef>& gone) {
    words.clear();
    type_tags.clear();
    always.clear();
    tensors.clear();
    objects.clear();
    std::move(held.begin(), held.end(), std::back_inserter(gone));
    held.clear();
    for (Reread& again : rereads) gone.push_back(std::move(again.found));
    rereads.clear();
    valid = false;
  }

  bool unchanged() const {
    for (const Word& word : words)
      if (*word.at != word.expected) return false;
    for (const HalfWord& tag : type_tags)
      if (*tag.at != tag.expected) return false;
    for (auto& [source, object] : always) {
      for (const Assumption& assumption : source->assumptions)
        if (!holds(assumption, object)) return false;
    }
    for (const Reread& again : rereads)
      if (again.step->read(again.parent) != again.found.get()) return false;
    return true;
  }
};

struct Program::Group {
  std::vector<const Source*> tops;  ///< one root, or all constants
  Py_ssize_t root = -1;
  Memory scratch;  ///< for roots that are new objects at every call anyway
  std::unordered_map<PyObject*, std::unique_ptr<Memory>> memories;
  const Memory* in_use = nullptr;
  bool walked = false;
};

/// One slow walk: checks, and fills a memory.
struct Program::Walk {
  Memory& memory;
  const Program& program;
  std::string* why;
  std::set<std::string>* numbers;  ///< not null: numbers may differ, and this is where those do

  void word(const void* at, const void* expected) {
    memory.words.push_back({static_cast<const uint64_t*>(at), reinterpret_cast<uint64_t>(expected)});
  }
  template <typename T>
  void word_now(const T* at) {
    static_assert(sizeof(T) == 8);
    memory.words.push_back({reinterpret_cast<const uint64_t*>(at), *reinterpret_cast<const uint64_t*>(at)});
  }

  bool visit(const Source& source, PyObject* object) {
    if (!object) return visit_absent(source);
    for (const Assumption& assumption : source.assumptions)
      if (!holds(assumption, object) && !is_other_number(source, assumption, object))
        return fail(source, assumption, object);
    remember(source, object);
    for (const Source* child : source.children) {
      PyObject* found = child->read(object);
      remember_step(*child, object, found);
      if (!visit(*child, found)) return false;
    }
    return true;
  }

  bool is_other_number(const Source& source, const Assumption& assumption, PyObject* object) {
    if (!numbers || assumption.check != Check::equals || Py_TYPE(object) != Py_TYPE(assumption.value.get()) ||
        !(PyLong_CheckExact(object) || PyFloat_CheckExact(object)))
      return false;
    numbers->insert(source.str(program.tree_->root_names));
    return true;
  }

  bool visit_absent(const Source& source) {
    if (source.has(Check::unbound)) return true;
    for (const Assumption& assumption : source.assumptions) return fail(source, assumption, nullptr);
    return source.children.empty() || fail(source, {Check::type_is, {}, nullptr, 0}, nullptr);
  }

  bool fail(const Source& source, const Assumption& assumption, PyObject* object) {
    if (why)
      *why = guard_text(source, assumption, program.tree_->root_names, program.tensors_) +
             now(assumption, object);
    return false;
  }

  /// Words that prove what was assumed about the object itself.
  void remember(const Source& source, PyObject* object) {
    bool proven = source.parent && source.access == Access::dict_item;  // by its dict's version
    bool constant = source.access == Access::constant;
    if (source.reg >= 0) {
      memory.objects.emplace_back(source.reg, object);
      // Of a number more than its type is asked: another one must not take its address.
      if (!proven && (PyLong_CheckExact(object) || PyFloat_CheckExact(object)))
        memory.held.push_back(PyRef::share(object));
    }
    for (const Assumption& assumption : source.assumptions) remember_assumption(assumption, object, proven);
    if (PyDict_Check(object) && reads_dict(source)) {
      word_now(version_of(reinterpret_cast<PyDictObject*>(object)));
      // move_to_end() is no change to the dict below.
      const bool ordered = source.has(Check::keys) ||
                           std::any_of(source.children.begin(), source.children.end(),
                                       [](const Source* c) { return c->access == Access::dict_key; });
      if (PyODict_Check(object) && ordered) word_now(&reinterpret_cast<OrderedDictHead*>(object)->state);
    } else if (PyType_Check(object) && constant && !source.children.empty()) {
      remember_type(source, reinterpret_cast<PyTypeObject*>(object));
    } else if (PyAnySet_Check(object) && source.has(Check::keys)) {
      memory.always.emplace_back(&source, object);
    } else if (PyList_Check(object) && !source.children.empty()) {
      word_now(&reinterpret_cast<PyVarObject*>(object)->ob_size);
      word_now(&reinterpret_cast<PyListObject*>(object)->ob_item);
    } else if (PyTuple_Check(object) && !source.children.empty()) {
      word_now(&reinterpret_cast<PyVarObject*>(object)->ob_size);
    }
  }

  static bool reads_dict(const Source& source) {
    return !source.children.empty() || source.has(Check::keys) || source.has(Check::missing) ||
           source.has(Check::length);
  }

  void remember_type(const Source& source, PyTypeObject* type) {
    if (type->tp_version_tag && (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG))
      memory.type_tags.push_back({&type->tp_version_tag, type->tp_version_tag});
    else
      memory.valid = false;
    (void)source;
  }

  void remember_assumption(const Assumption& assumption, PyObject* object, bool proven) {
    switch (assumption.check) {
      case Check::type_is:
        if (!proven || (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) word_now(&object->ob_type);
        break;
      case Check::equals:
      case Check::is_bound:
        if (!proven) memory.held.push_back(PyRef::share(object));
        break;
      case Check::length:
        if (PyList_Check(object) || PyTuple_Check(object))
          word_now(&reinterpret_cast<PyVarObject*>(object)->ob_size);
        else if (PyAnySet_Check(object))
          word_now(&reinterpret_cast<PySetObject*>(object)->used);
        else if (!PyDict_Check(object))
          memory.valid = false;
        break;
      case Check::tensor:
        memory.tensors.emplace_back(static_cast<int>(assumption.number), object);
        if (const void* at = impl_slot(object))
          word(at, tensor_impl(object));
        else
          memory.valid = false;
        break;
      default: break;
    }
  }

  /// Words that prove that the same object is found again.
  void remember_step(const Source& child, PyObject* parent, PyObject* found) {
    switch (child.access) {
      case Access::instance_dict: word(instance_dict_slot(parent), found); break;
      case Access::list_item:
        if (found) word(&reinterpret_cast<PyListObject*>(parent)->ob_item[child.index], found);
        break;
      case Access::tuple_item:
        if (found) word(&reinterpret_cast<PyTupleObject*>(parent)->ob_item[child.index], found);
        break;
      case Access::cell: word(&reinterpret_cast<PyCellObject*>(parent)->ob_ref, found); break;
      case Access::field: word(reinterpret_cast<char*>(parent) + child.index, found); break;
      case Access::deque_item:
      case Access::context_var: memory.rereads.push_back({&child, parent, PyRef::share(found)}); break;
      case Access::tensor_grad: memory.valid = false; break;  // holding a gradient would keep its memory
      default: break;
    }
  }
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
    group->root = top->index;
    group_of[top] = groups_.size() + 1;
    groups_.push_back(std::move(group));
  }
  groups_.push_back(std::move(constants));
  auto top_group = [&](const Source* source) {
    while (source->parent) source = source->parent;
    return group_of.count(source) ? group_of[source] : 0;
  };
  for (const auto& source : tree_->all())
    for (const Assumption& assumption : source->assumptions)
      if (assumption.other) {
        tree_->keep(source.get());
        tree_->keep(assumption.other);
        aliases_.push_back({source.get(), assumption.other, assumption.check == Check::same_as,
                            top_group(source.get()) != top_group(assumption.other)});
      }
  tensor_objects_.resize(tensors_.size());
  impls_.resize(tensors_.size());
  objects_.resize(static_cast<size_t>(tree_->registers()));
}

Program::~Program() = default;

bool Program::walk_group(const Group& group, PyObject* top, Memory& memory, std::string* why,
                         std::set<std::string>* numbers) const {
  static uint64_t next_id = 0;
  memory.id = ++next_id;
  memory.valid = true;
  Walk walk{memory, *this, why, numbers};
  for (const Source* source : group.tops)
    if (!walk.visit(*source, group.root >= 0 ? top : source->key.get())) {
      memory.valid = false;
      return false;
    }
  return true;
}

void Program::use(Group& group, const Memory& memory) {
  if (group.in_use == &memory && !group.walked) return;
  for (auto& [slot, tensor] : memory.tensors) {
    tensor_objects_[static_cast<size_t>(slot)] = tensor;
    impls_[static_cast<size_t>(slot)] = tensor_impl(tensor);
  }
  for (auto& [reg, object] : memory.objects) objects_[static_cast<size_t>(reg)] = object;
  group.in_use = &memory;
}

bool Program::check_group(Group& group, PyObject* top, std::vector<PyRef>& gone) {
  // Only objects that outlive a call are worth a memory of their own.
  bool lasting = top && group.root >= 0 && _PyObject_GetDictPtr(top) && !is_tensor(top);
  Memory* memory = &group.scratch;
  if (lasting) {
    if (group.memories.size() > kMaxMemories) {
      for (auto& [root, known] : group.memories) known->forget(gone);
      group.memories.clear();
      group.in_use = nullptr;
    }
    auto& own = group.memories[top];
    if (!own) own = std::make_unique<Memory>();
    memory = own.get();
  }
  // A scratch memory speaks of objects found through the root it saw; another root may be met now.
  bool same_root = lasting || group.root < 0;
  group.walked = !(same_root && memory->valid && memory->unchanged());
  if (group.walked) memory->forget(gone);
  if (group.walked && !walk_group(group, top, *memory, nullptr)) {
    group.in_use = nullptr;
    return false;
  }
  use(group, *memory);
  return true;
}

bool Program::check_aliases(bool all, std::string* why) const {
  for (const Alias& alias : aliases_) {
    if (!all && !alias.across) continue;
    PyObject* a = objects_[static_cast<size_t>(alias.a->reg)];
    PyObject* b = objects_[static_cast<size_t>(alias.b->reg)];
    if ((a == b) == alias.same) continue;
    if (why)
      *why = alias.a->str(tree_->root_names) + (alias.same ? " is " : " is not ") +
             alias.b->str(tree_->root_names) + " (no longer)";
    return false;
  }
  return true;
}

bool Program::check(PyObject* const* roots, size_t nroots, Found& found) {
  if (!(ThreadState::now() == thread_)) return false;
  // Whoever frees a tensor may lose the GIL for a moment, and another thread comes in between and checks its
  // own call: what is let go of goes before the check or after it.
  found.objects.clear();
  std::vector<PyRef> gone;
  bool walked = false;
  uint64_t instance = 0;
  for (auto& group : groups_) {
    if (group->root >= static_cast<Py_ssize_t>(nroots)) return false;
    if (!check_group(*group, group->root >= 0 ? roots[group->root] : nullptr, gone)) return false;
    walked |= group->walked;
    if (group->root >= 0 && group->in_use != &group->scratch) instance = instance * 31 + group->in_use->id;
  }
  if (!check_aliases(walked, nullptr)) return false;
  if (tensors_.first_difference(impls_.data()) >= 0) return false;
  found.tensors = impls_;
  if (!check_numbers(found.tensors.data(), found.numbers, nullptr)) return false;
  if (!facts_.empty() && !check_sizes(found.tensors.data(), found.numbers, nullptr)) return false;
  found.objects.reserve(objects_.size());
  for (PyObject* object : objects_) found.objects.push_back(PyRef::share(object));
  found.instance = instance;
  return true;
}

std::string Program::explain_failure(PyObject* const* roots, size_t nroots) {
  ThreadState thread = ThreadState::now();
  if (!(thread == thread_)) return thread_.explain(thread);
  std::string why;
  if (!walk_all(roots, nroots, &why)) return why;
  const int slot = tensors_.first_difference(impls_.data());
  std::vector<PyRef> numbers;
  if (slot < 0)
    return check_numbers(impls_.data(), numbers, &why) && check_sizes(impls_.data(), numbers, &why) ? ""
                                                                                                    : why;
  return place_of(slot) + " is " + tensors_.explain(slot, tensor_objects_[static_cast<size_t>(slot)]);
}

/// Everything but the tensors, remembering nothing.
bool Program::walk_all(PyObject* const* roots, size_t nroots, std::string* why,
                       std::set<std::string>* numbers) {
  for (auto& group : groups_) {
    if (group->root >= static_cast<Py_ssize_t>(nroots)) return *why = "fewer arguments", false;
    Memory memory;
    if (!walk_group(*group, group->root >= 0 ? roots[group->root] : nullptr, memory, why, numbers))
      return false;
    group->in_use = nullptr;
    use(*group, memory);
    group->in_use = nullptr;
  }
  return check_aliases(true, why);
}

std::string Program::place_of(int slot) const {
  for (const auto& source : tree_->all())
    for (const Assumption& assumption : source->assumptions)
      if (assumption.check == Check::tensor && assumption.number == slot)
        return source->str(tree_->root_names);
  return "a tensor";
}

void Program::free_sizes(std::vector<SizeSource> symbols, std::vector<SizeFact> facts,
                         const std::vector<Sym>& sizes) {
  sizes_ = std::move(symbols);
  facts_ = std::move(facts);
  std::map<int, uint64_t> free;
  for (const SizeSource& s : sizes_) {
    const bool number = std::any_of(facts_.begin(), facts_.end(), [&](const SizeFact& f) {
      return f.relation == Relation::eq && f.a == s.symbol && f.b.is_const();
    });
    if (!number && s.slot >= 0) free[s.slot] |= uint64_t{1} << s.dim;
  }
  for (auto [slot, dims] : free) tensors_.set_free(slot, dims);
  size_t next = 0;
  for (NumberStep& step : numbers_.steps)
    if (step.op == NumberOp::size) step.size = sizes[next++];
}

int64_t Program::value_of(Sym size, c10::TensorImpl* const* tensors,
                          const std::vector<PyRef>& numbers) const {
  if (size.is_const()) return size.value();
  return evaluate(size, [&](const SymNode& n) -> int64_t {
    if (const int step = number_step(n); step >= 0) {
      int64_t number = -1;
      if (static_cast<size_t>(step) < numbers.size() && numbers[static_cast<size_t>(step)])
        symbol_value(numbers[static_cast<size_t>(step)].get(), &number);
      return number;
    }
    for (const SizeSource& s : sizes_)
      if (s.symbol.node() == &n) return size_of(*tensors[s.slot], s.dim);
    return -1;
  });
}

std::string Program::text_of(int step) const {
  return numbers_.text(step, [&](int reg) {
    for (const auto& source : tree_->all())
      if (source->reg == reg) return source->str(tree_->root_names);
    return std::string("a number");
  });
}

bool Program::check_numbers(c10::TensorImpl* const* tensors, std::vector<PyRef>& numbers,
                            std::string* why) const {
  numbers.clear();
  if (numbers_.steps.empty()) return true;
  auto size = [&](Sym s, const std::vector<PyRef>& so_far) { return value_of(s, tensors, so_far); };
  if (!numbers_.compute(objects_, size, numbers)) {
    if (why) *why = "what is computed from " + text_of(static_cast<int>(numbers.size())) + " raises";
    return false;
  }
  for (const SizeSource& s : sizes_) {
    int64_t ignored;
    if (s.slot >= 0 || numbers_.steps[static_cast<size_t>(s.dim)].phase != Phase::check ||
        symbol_value(numbers[static_cast<size_t>(s.dim)].get(), &ignored))
      continue;
    if (why)
      *why = text_of(s.dim) + " is an int below 2**31 and not negative (now " +
             short_repr(numbers[static_cast<size_t>(s.dim)].get()) + ")";
    return false;
  }
  const NumberFact* broken = numbers_.broken(numbers);
  if (broken && why)
    *why = text_of(broken->step) + " == " + short_repr(broken->value.get()) + " (now " +
           short_repr(numbers[static_cast<size_t>(broken->step)].get()) + "); because of " + broken->where;
  return !broken;
}

bool Program::check_sizes(c10::TensorImpl* const* tensors, const std::vector<PyRef>& numbers,
                          std::string* why) const {
  for (const SizeFact& f : facts_) {
    const int64_t a = value_of(f.a, tensors, numbers), b = value_of(f.b, tensors, numbers);
    if (bolt::holds(a, f.relation, b)) continue;
    if (why) {
      *why = bolt::str(f) + " (now " + std::to_string(a) + " and " + std::to_string(b) + ")";
      for (const SizeSource& s : sizes_)
        *why += ", " + s.symbol.str() + " being " +
                (s.slot < 0 ? text_of(s.dim) : place_of(s.slot) + ".size(" + std::to_string(s.dim) + ")");
      *why += "; because of " + f.where;
    }
    return false;
  }
  return true;
}

void Program::add_differences(PyObject* const* roots, size_t nroots, Differences& into) {
  std::string why;
  Differences found;
  if (!(ThreadState::now() == thread_) || !walk_all(roots, nroots, &why, &found.numbers)) return;
  for (size_t slot = 0; slot < tensor_objects_.size(); ++slot) {
    const auto differ = tensors_.size_differences(static_cast<int>(slot), tensor_objects_[slot]);
    if (!differ) return;
    if (*differ) found.sizes[place_of(static_cast<int>(slot))] |= *differ;
  }
  for (const auto& [place, dims] : found.sizes) into.sizes[place] |= dims;
  into.numbers.merge(found.numbers);
}

void Program::forbid_new_overlap(const std::vector<int>& written_slots) {
  tensors_.forbid_new_overlap(written_slots);
}

std::vector<std::string> Program::describe() const {
  std::vector<std::string> lines;
  for (const auto& source : tree_->all())
    for (const Assumption& assumption : source->assumptions)
      lines.push_back(guard_text(*source, assumption, tree_->root_names, tensors_));
  for (const SizeSource& s : sizes_)
    lines.push_back(
        s.symbol.str() + " is " +
        (s.slot < 0 ? text_of(s.dim) : place_of(s.slot) + ".size(" + std::to_string(s.dim) + ")"));
  for (const NumberFact& f : numbers_.facts)
    lines.push_back(text_of(f.step) + " == " + short_repr(f.value.get()));
  for (const SizeFact& f : facts_) lines.push_back(bolt::str(f));
  return lines;
}

}  // namespace bolt::guard
