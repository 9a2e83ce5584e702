// autograd/step_memory.cpp
#include "autograd/step_memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "autograd/flow.h"
#include "autograd/head_in_pieces.h"
#include "autograd/normalise_again.h"
#include "record/copy.h"
#include "record/operator_facts.h"
#include "record/unary.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

/// Called where a step is replayed: memory of its own, as the tape says.
at::Tensor keep(const at::Tensor& self) { return at::clone(self); }

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("keep(Tensor self) -> Tensor");
  m.impl("keep", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(keep));
  m.def("keep_of_piece(Tensor self) -> Tensor");  // the same, and the end of a piece (head_in_pieces.h)
  m.impl("keep_of_piece", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(keep));
}

Entry keep_entry(Tape& tape, TensorId from, TensorId to, int loc) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("torchbolt::keep", "");
  return record::unary(tape, op, from, to, loc);
}

/// A tensor that lies as `id` does, in other memory, and to which no gradient comes.
TensorId add_without_gradient(Tape& tape, TensorId id, int storage) {
  const TensorId added = record::add_like(tape, id, storage);
  tape.tensors[added].requires_grad = false;
  return added;
}

/// A number is as it was taken out of its tensor.
bool holds_tensors(const Arg& arg) {
  return arg.kind != Arg::Kind::Value && arg.kind != Arg::Kind::WrappedNumber;
}

std::span<Arg> copied(Tape& tape, std::span<const Arg> args) {
  const std::span<Arg> copy = tape.args->take(args.size());
  std::ranges::copy(args, copy.begin());
  return copy;
}

/// Then another one lies as it does.
bool can_be_handed_on(const TensorInfo& info) {
  return bytes_reached(info) > 0 && !info.zero && info.plain && fills_its_memory(info);
}

/// Does it reduce results to how wrong they are? It is as light as what is known to be light (work.h).
bool is_loss(const Entry& entry) {
  return record::is_atens(entry.op) && entry.op.operator_name().name.find("_loss") != std::string::npos &&
         is_repeatable(entry);
}

/// A stretch of a step's tape that ends with a backward pass, as a joint tape. Tensors keep their numbers.
class Stretch {
 public:
  Stretch(const Tape& tape, const std::vector<TensorId>& wanted, size_t begin, const BackwardPass& pass)
      : first(begin) {
    joint.tape = record::tensors_alone(tape);
    for (TensorId id : tape.inputs) record::add_input(joint.tape, id);
    for (size_t i = begin; i < pass.end; ++i) {
      const Entry& entry = tape.entries[i];
      for_each_tensor(entry.args, [&](TensorId id) {
        const TensorInfo& info = at(id);
        if (info.input < 0 && info.producer < 0) record::add_input(joint.tape, id);
      });
      record::add_entry(joint.tape, entry);
    }
    joint.tangents = joint.tape.inputs.size();
    joint.gradients.assign(joint.tangents, -1);
    for (size_t i = 0; i < pass.leaves.size(); ++i)
      if (const int input = pass.leaves[i] < 0 ? -1 : at(pass.leaves[i]).input; input >= 0)
        joint.gradients[input] = pass.gradients[i];
    joint.backward = pass.begin - begin;
    joint.backward = begin_of_tail();
    note_what_is_used(tape, wanted, pass.end);
  }

  /// Was it there before the part that the pass belongs to?
  bool is_before(TensorId id) const {
    const TensorInfo& info = at(id);
    return info.input >= 0 || (info.producer >= 0 && info.producer < static_cast<int>(joint.backward));
  }

  const size_t first;  ///< entry of the tape
  Joint joint;

 private:
  const TensorInfo& at(TensorId id) const { return joint.tape.tensors[id]; }

  /// The first entry of what stands between the last product and the pass. What it writes to it has made.
  size_t begin_of_tail() const {
    size_t begin = joint.backward;
    while (begin > 0 && is_light(joint.tape.entries[begin - 1])) --begin;
    std::set<int> made;
    for (size_t i = begin; i < joint.backward; ++i) {
      const Entry& entry = joint.tape.entries[i];
      const auto writes = storages_among(entry, record::written_arguments(entry));
      if (std::ranges::all_of(writes, [&](int s) { return made.contains(s); })) {
        if (!is_view(entry))
          for_each_tensor(entry.results, [&](TensorId id) { made.insert(at(id).storage); });
        continue;
      }
      begin = i + 1;
      made.clear();
    }
    return begin;
  }

  std::set<int> storages_among(const Entry& entry, const std::vector<int>& arguments) const {
    std::set<int> found;
    for (int a : arguments)
      for_each_tensor(entry.args.subspan(static_cast<size_t>(a), 1),
                      [&](TensorId id) { found.insert(at(id).storage); });
    return found;
  }

  bool is_light(const Entry& entry) const {
    return work_of(entry) != Work::Never || is_loss(entry) || is_view(entry);
  }
  bool is_view(const Entry& entry) const {
    std::set<int> given;
    for_each_tensor(entry.args, [&](TensorId id) { given.insert(at(id).storage); });
    bool only_shows = !given.empty() && !entry.facts->turns;
    for_each_tensor(entry.results, [&](TensorId id) { only_shows &= given.contains(at(id).storage); });
    return only_shows;
  }

  void note_what_is_used(const Tape& tape, const std::vector<TensorId>& wanted, size_t end) {
    std::set<TensorId> used(wanted.begin(), wanted.end());
    for (size_t i = end; i < tape.entries.size(); ++i)
      for_each_tensor(tape.entries[i].args, [&](TensorId id) { used.insert(id); });
    for (TensorId id : used) {
      if (id < 0 || at(id).producer < 0) continue;
      std::vector<TensorId>& list = is_before(id) ? joint.outputs : joint.gradients;
      if (std::ranges::find(list, id) == list.end()) list.push_back(id);
    }
  }
};

/// The entries of a stretch's second part, with what is computed again before its readers.
class SecondPart {
 public:
  SecondPart(Tape& tape, const Stretch& stretch, const Partition& partition)
      : tape_(tape), stretch_(stretch), joint_(stretch.joint) {
    storages_ = record::count_storages(tape);
    hand_on(partition.kept);
    for (int i : partition.backward) {
      const Entry& entry = joint_.tape.entries[i];
      static_cast<size_t>(i) < joint_.backward ? add_again(entry) : add(entry);
    }
  }

  std::vector<Entry> take() { return std::move(entries_); }

 private:
  TensorInfo& info(TensorId id) { return tape_.tensors[id]; }
  int storage(TensorId id) { return info(id).storage; }

  /// What the part writes to stays what it is, and so does what is seen afterwards through what the part
  /// made.
  std::set<int> bound_to_stay(const std::vector<TensorId>& kept) {
    std::set<int> once, stay;
    for (TensorId id : kept)
      if (!once.insert(storage(id)).second || !can_be_handed_on(info(id))) stay.insert(storage(id));
    for (size_t i = joint_.backward; i < joint_.tape.entries.size(); ++i) {
      const Entry& entry = joint_.tape.entries[i];
      for_each_written(entry, [&](TensorId id) { stay.insert(storage(id)); });
    }
    for (TensorId id : joint_.gradients)
      if (id >= 0) stay.insert(storage(id));
    return stay;
  }

  void hand_on(const std::vector<TensorId>& kept) {
    const std::set<int> stay = bound_to_stay(kept);
    for (TensorId id : kept) {
      kept_.insert(storage(id));
      if (stay.contains(storage(id))) continue;
      moved_[storage(id)] = storages_++;
      entries_.push_back(keep_entry(tape_, id, here(id), loc_of(id)));
    }
  }

  int loc_of(TensorId id) const {
    const int maker = joint_.tape.tensors[id].producer;
    return maker < 0 ? -1 : joint_.tape.entries[maker].loc;
  }

  /// The tensor that stands for `id` in this part.
  TensorId here(TensorId id) {
    if (id < 0 || !stretch_.is_before(id)) return id;
    if (const auto known = here_.find(id); known != here_.end()) return known->second;
    const auto moved = moved_.find(storage(id));
    return moved == moved_.end() ? id : here_[id] = another(id, moved->second);
  }

  TensorId another(TensorId id, int storage) { return add_without_gradient(tape_, id, storage); }

  void add(const Entry& entry) {
    Entry& made = copied(entry);
    for_each_result(made, [&](TensorId& id) {
      const auto moved = moved_.find(storage(id));
      if (!stretch_.is_before(id) && moved != moved_.end()) info(id).storage = moved->second;  // a view
      id = here(id);
    });
  }

  void add_again(const Entry& of_before) {
    auto is_kept = [&](TensorId id) { return kept_.contains(storage(id)); };
    const bool normalises = may_be_normalised_again(tape_, of_before, is_kept);
    const Entry& entry = normalises ? normalised_again(tape_, of_before) : of_before;
    std::set<int> given;
    for_each_tensor(entry.args, [&](TensorId id) { given.insert(storage(id)); });
    std::map<int, int> beside;  // what is kept, and comes a second time with what is not: nobody reads that
    bool any = false;
    Entry& made = copied(entry);
    for_each_result(made, [&](TensorId& id) {
      const int s = storage(id);
      if (!given.contains(s) && kept_.contains(s)) {
        const auto [at, is_new] = beside.try_emplace(s, storages_);
        storages_ += is_new;
        id = another(id, at->second);
        any = true;
        return;
      }
      if (!given.contains(s) && !moved_.contains(s)) moved_[s] = storages_++;
      const TensorId before = std::exchange(id, here(id));
      any |= id != before;
    });
    if (counts_statistics(entry))
      for (size_t a : kStatistics) made.args[a] = Arg();
    if (!any) entries_.pop_back();  // a view of what stays is there
  }

  Entry& copied(const Entry& entry) {
    Entry& made = entries_.emplace_back(entry);
    made.args = autograd::copied(tape_, entry.args);
    made.results = autograd::copied(tape_, entry.results);
    for (Arg& arg : made.args)
      if (holds_tensors(arg))
        for (TensorId& id : arg.tensors) id = here(id);
    return made;
  }

  template <class Each>
  static void for_each_result(Entry& entry, Each each) {
    for (Arg& result : entry.results)
      for (TensorId& id : result.tensors)
        if (id >= 0) each(id);
  }

  Tape& tape_;
  const Stretch& stretch_;
  const Joint& joint_;
  int storages_ = 0;
  std::vector<Entry> entries_;
  std::set<int> kept_;                 ///< storages
  std::map<int, int> moved_;           ///< storages of before, and what they are here
  std::map<TensorId, TensorId> here_;  ///< the same of tensors
};

/// Between a backward pass and the work for the next one. What the first has given by then, and is summed up
/// or shown afterwards, is complete: it is handed on, so that nothing of the first pass waits for the sum.
class Border {
 public:
  Border(Tape& tape, std::vector<TensorId>& wanted, std::vector<BackwardPass>& passes, size_t next)
      : tape_(tape),
        wanted_(wanted),
        passes_(passes),
        next_(next),
        uses_(static_cast<size_t>(record::count_storages(tape))),
        made_(tape.tensors.size(), SIZE_MAX) {
    for (TensorId id : tape.inputs) uses(id).given = true;
    for (size_t i = 0; i < tape.entries.size(); ++i) note(i);
    for (TensorId id : wanted)
      if (id >= 0) uses(id).last = tape.entries.size();
  }

  void draw() {
    border_ = cheapest();
    std::map<int, TensorId> crossing = read_behind();
    std::vector<Entry> keeps;
    int storages = record::count_storages(tape_);
    for (const auto& [storage, id] : crossing) {
      moved_[storage] = storages;
      renamed_[id] = add_without_gradient(tape_, id, storages++);
      keeps.push_back(keep_entry(tape_, id, renamed_[id], passed().loc));
    }
    for (size_t i = border_; i < tape_.entries.size(); ++i) rename(tape_.entries[i]);
    cast_anew(keeps, storages);
    for (TensorId& id : wanted_)
      if (const auto at = renamed_.find(id); at != renamed_.end()) id = at->second;
    tape_.entries.insert(tape_.entries.begin() + static_cast<std::ptrdiff_t>(border_), keeps.begin(),
                         keeps.end());
    for (size_t i = next_; i < passes_.size(); ++i)
      passes_[i].move(static_cast<std::ptrdiff_t>(keeps.size()));
    passes_[next_ - 1].border = border_ + keeps.size();
  }

 private:
  struct Uses {
    size_t made = SIZE_MAX, last = 0;  ///< entries
    bool given = false, for_pass = false;
    int64_t bytes = 0;
  };
  const TensorInfo& info(TensorId id) const { return tape_.tensors[id]; }
  Uses& uses(TensorId id) { return uses_[info(id).storage]; }
  const Entry& passed() const { return tape_.entries[passes_[next_ - 1].end - 1]; }

  void note(size_t i) {
    const Entry& entry = tape_.entries[i];
    const bool is_of_pass = std::any_of(passes_.begin() + static_cast<std::ptrdiff_t>(next_), passes_.end(),
                                        [&](const BackwardPass& p) { return i >= p.begin && i < p.end; });
    for_each_tensor(entry.args, [&](TensorId id) {
      uses(id).last = i;
      uses(id).for_pass |= is_of_pass;
    });
    for_each_tensor(entry.results, [&](TensorId id) {
      Uses& here = uses(id);
      made_[id] = std::min(made_[id], i);
      here.made = std::min(here.made, i);
      here.last = std::max(here.last, i);
      here.bytes = std::max(here.bytes, static_cast<int64_t>(bytes_reached(info(id))));
    });
  }

  /// The first place where least crosses.
  size_t cheapest() const {
    size_t best = 0;
    int64_t least = INT64_MAX;
    for (size_t place = passes_[next_ - 1].end; place <= passes_[next_].begin; ++place) {
      int64_t bytes = 0;
      for (const Uses& u : uses_)
        if (!u.given && u.made < place && u.last >= place) bytes += u.bytes;
      if (bytes < least) least = bytes, best = place;
    }
    return best;
  }

  /// By storage: the one tensor in it that was made before the border and is read behind it. What a later
  /// pass reads may come again for it instead.
  std::map<int, TensorId> read_behind() {
    std::map<int, std::set<TensorId>> read;
    for (size_t i = border_; i < tape_.entries.size(); ++i)
      for (const Arg& arg : tape_.entries[i].args)
        for (TensorId id : arg.tensors)
          if (id >= 0 && crosses(id)) read[info(id).storage].insert(holds_tensors(arg) ? id : -1);
    for (TensorId id : wanted_)
      if (id >= 0 && read.contains(info(id).storage) && crosses(id)) read[info(id).storage].insert(id);
    std::map<int, TensorId> found;
    for (const auto& [storage, ids] : read)
      if (const TensorId id = *ids.begin(); ids.size() == 1 && id >= 0 && can_be_handed_on(info(id)))
        found.emplace(storage, id);
    return found;
  }
  bool crosses(TensorId id) {
    const Uses& u = uses(id);
    return !u.given && !u.for_pass && u.made < border_ && !made_behind(id);
  }
  bool made_behind(TensorId id) const { return made_[id] >= border_; }

  /// What autocast makes of parameters for one part of a batch does not wait for the next one, which finds
  /// the parameter where it was.
  void cast_anew(std::vector<Entry>& keeps, int& storages) {
    std::set<TensorId> cast;
    for (size_t i = 0; i < border_; ++i)
      if (is_cast(tape_.entries[i])) cast.insert(tape_.entries[i].args[0].tensors[0]);
    std::map<TensorId, TensorId> anew;
    for (size_t i = border_; i < passes_[next_].end; ++i) {
      Entry& entry = tape_.entries[i];
      if (!is_cast(entry) || !cast.contains(entry.args[0].tensors[0])) continue;
      TensorId& id = entry.args[0].tensors[0];  // rename() has made the arguments the entry's own
      const auto [at, is_new] = anew.try_emplace(id, -1);
      if (is_new) {
        at->second = add_without_gradient(tape_, id, storages++);
        keeps.push_back(keep_entry(tape_, id, at->second, entry.loc));
      }
      id = at->second;
    }
  }

  /// Of what was given, in other numbers.
  bool is_cast(const Entry& entry) const {
    if (entry.op.operator_name().name != "aten::_to_copy" || entry.args[0].tensors.empty()) return false;
    const TensorId from = entry.args[0].tensors[0];
    return from >= 0 && info(from).input >= 0 && can_be_handed_on(info(from));
  }

  void rename(Entry& entry) {
    for (auto* list : {&entry.args, &entry.results}) {
      *list = copied(tape_, *list);
      for (Arg& arg : *list)
        for (TensorId& id : arg.tensors) {
          if (id < 0) continue;
          const auto at = renamed_.find(id);
          const auto moved = moved_.find(info(id).storage);
          if (at != renamed_.end())
            id = at->second;
          else if (moved != moved_.end())
            tape_.tensors[id].storage = moved->second;  // a view of it
        }
    }
  }

  Tape& tape_;
  std::vector<TensorId>& wanted_;
  std::vector<BackwardPass>& passes_;
  const size_t next_;         ///< the pass behind the border
  std::vector<Uses> uses_;    ///< by storage
  std::vector<size_t> made_;  ///< by tensor: the entry that gives it first
  size_t border_ = 0;
  std::map<int, int> moved_;
  std::map<TensorId, TensorId> renamed_;
};

/// All that a step keeps is there at its peak, beside what an optimizer has. So it is dearer than what waits
/// between two programs.
constexpr Prices kPrices{.kept = 2};

/// Pass by pass; what one has become is there when the next is looked at.
class Sparing {
 public:
  Sparing(Tape& tape, std::vector<TensorId>& wanted, std::vector<BackwardPass> passes, const Budget& budget)
      : tape_(tape), wanted_(wanted), passes_(std::move(passes)), budget_(budget) {
    for (size_t id = 0; id < tape.tensors.size(); ++id)
      if (tape.tensors[id].input < 0 && tape.tensors[id].producer < 0)
        taken_back_.push_back(static_cast<TensorId>(id));
  }

  std::vector<PassMemory> run() {
    for (next_ = 0; next_ < passes_.size(); ++next_) {
      if (next_ > 0) Border(tape_, wanted_, passes_, next_).draw();
      spare();
    }
    place_anew();
    return std::move(memory_);
  }

 private:
  BackwardPass& pass() { return passes_[next_]; }

  void spare() {
    const size_t before = next_ > 0 ? passes_[next_ - 1].border : 0;
    Stretch stretch(tape_, wanted_, reads_from_before(before) ? 0 : before, pass());
    HeadPlan head = plan_head(stretch.joint, budget_, kPrices);
    if (head.joint) take_over(stretch, *std::move(head.joint));
    const Partition made = partition(stretch.joint, head.budget, kPrices);
    const std::vector<Entry> part = SecondPart(tape_, stretch, made).take();
    const auto begin =
        tape_.entries.begin() + static_cast<std::ptrdiff_t>(stretch.first + stretch.joint.backward);
    const auto end = tape_.entries.begin() + static_cast<std::ptrdiff_t>(pass().end);
    const std::ptrdiff_t more = static_cast<std::ptrdiff_t>(part.size()) - (end - begin);
    tape_.entries.insert(tape_.entries.erase(begin, end), part.begin(), part.end());
    pass().end += static_cast<size_t>(more);
    for (size_t i = next_ + 1; i < passes_.size(); ++i) passes_[i].move(more);
    memory_.push_back({made.memory, made.eager});
  }

  /// The stretch is another one from now on, which begins where it began.
  void take_over(Stretch& stretch, Joint joint) {
    for (size_t id = tape_.tensors.size(); id < joint.tape.tensors.size(); ++id)
      tape_.tensors.emplace_back() = joint.tape.tensors[id];
    stretch.joint = std::move(joint);
    const auto& entries = stretch.joint.tape.entries;
    const auto begin = tape_.entries.begin() + static_cast<std::ptrdiff_t>(stretch.first);
    const auto end = tape_.entries.begin() + static_cast<std::ptrdiff_t>(pass().end);
    const std::ptrdiff_t more = static_cast<std::ptrdiff_t>(entries.size()) - (end - begin);
    tape_.entries.insert(tape_.entries.erase(begin, end), entries.begin(), entries.end());
    pass().begin = stretch.first + stretch.joint.backward;
    pass().end += static_cast<size_t>(more);
    for (size_t i = next_ + 1; i < passes_.size(); ++i) passes_[i].move(more);
  }

  /// Does the pass read anything that was made before? Mostly it does not, and all in between is its own.
  bool reads_from_before(size_t before) {
    std::vector<bool> made(tape_.tensors.size());
    for (size_t i = 0; i < before; ++i)
      for_each_tensor(tape_.entries[i].results, [&](TensorId id) { made[id] = tape_.tensors[id].input < 0; });
    bool any = false;
    for (size_t i = pass().begin; i < pass().end; ++i)
      for_each_tensor(tape_.entries[i].args, [&](TensorId id) { any |= made[id]; });
    return any;
  }

  /// The places of entries have changed.
  void place_anew() {
    Tape made = record::tensors_alone(tape_);
    for (TensorId id : tape_.inputs) record::add_input(made, id);
    for (const Entry& entry : tape_.entries) record::add_entry(made, entry);
    for (TensorId id : taken_back_) made.tensors[id].producer = -1;
    tape_ = std::move(made);
  }

  Tape& tape_;
  std::vector<TensorId>& wanted_;
  std::vector<BackwardPass> passes_;
  const Budget& budget_;
  size_t next_ = 0;                   ///< the pass at hand
  std::vector<TensorId> taken_back_;  ///< of which it is not said who makes them
  std::vector<PassMemory> memory_;
};

}  // namespace

std::vector<PassMemory> spare_memory(Tape& tape, std::vector<TensorId>& wanted,
                                     std::vector<BackwardPass> passes, const Budget& budget) {
  return Sparing(tape, wanted, std::move(passes), budget).run();
}

}  // namespace bolt::autograd
