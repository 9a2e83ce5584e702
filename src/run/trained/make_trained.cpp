// run/trained/make_trained.cpp
#include "run/trained/make_trained.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>

#include "autograd/head_in_pieces.h"
#include "autograd/inner_results.h"
#include "autograd/joint.h"
#include "autograd/row_statistics.h"
#include "autograd/split.h"
#include "loops/library_layout.h"
#include "record/copy.h"
#include "run/recorded.h"
#include "run/trained/make_part.h"
#include "support/error.h"
#include "support/log.h"
#include "support/nesting.h"

namespace bolt::run {
namespace {

using autograd::Joint;
using autograd::Split;
using record::Tape;
using record::TensorId;

/// Each once, in their order, and none that is not there.
class Distinct {
 public:
  void add(TensorId id) {
    if (id >= 0 && seen_.insert(id).second) ids_.push_back(id);
  }
  std::vector<TensorId> take() { return std::move(ids_); }

 private:
  std::vector<TensorId> ids_;
  std::unordered_set<TensorId> seen_;
};

/// Results that are parts of something saved: one memory, two ways to look at it. Their gradient has to be
/// that of the whole, as what is seen again through it.
std::set<TensorId> parts_of_saved(const Joint& joint, const Split& parts) {
  auto storage = [&](TensorId id) { return joint.tape.tensors[id].storage; };
  auto is_input = [&](TensorId id) { return joint.tape.tensors[id].input >= 0; };
  std::set<TensorId> out;
  for (TensorId id : joint.tangent_of)
    for (TensorId saved : parts.saved)
      if (saved != id && storage(saved) == storage(id) && !is_input(id)) out.insert(id);
  return out;
}

/// The tape with arguments of its own: those of the other are about to be written over other symbols.
Tape apart_from(const Tape& tape) {
  Tape copy = record::copy_of(tape);
  for (record::Entry& entry : copy.entries) {
    const auto args = entry.args;
    entry.args = copy.args->take(args.size());
    std::ranges::copy(args, entry.args.begin());
  }
  return copy;
}

/// What a size or stride of the backward part's inputs is, over the region's symbols.
class BackwardSizes {
 public:
  BackwardSizes(const Joint& joint, const Tape& tape, const Compiled& forward, const lower::Sizes& region)
      : joint_(joint), tape_(tape), region_(region) {
    for (size_t i = 0; i < tape.inputs.size(); ++i) layouts_.push_back(layout(i, forward));
  }

  const std::vector<TrainedSizes::Layout>& layouts() const { return layouts_; }

  /// Of an expression over the backward part's symbols.
  Sym over_region(Sym s, const lower::Sizes& backward) const {
    return run::over_region(s, backward, layouts_, region_);
  }

  /// Which sizes and strides of the inputs differ between calls.
  std::vector<uint64_t> dims() const {
    std::vector<uint64_t> all;
    for (const TrainedSizes::Layout& layout : layouts_) {
      uint64_t& bits = all.emplace_back();
      for (size_t d = 0; d < layout.sizes.size() && d < kStrideBit; ++d) {
        if (!layout.sizes[d].is_const()) bits |= uint64_t{1} << d;
        if (!layout.strides[d].is_const()) bits |= uint64_t{1} << (d + kStrideBit);
      }
    }
    return all;
  }

 private:
  TrainedSizes::Layout layout(size_t input, const Compiled& forward) const {
    const TensorId id = tape_.inputs[input];
    const record::TensorInfo& info = tape_.tensors[id];
    Syms sizes = joint_.sizes.empty() ? Syms() : joint_.sizes[id];
    if (sizes.empty()) sizes = Syms(info.sizes.begin(), info.sizes.end());
    for (Sym& s : sizes) s = region_.resolve(s);
    Syms strides(info.strides.begin(), info.strides.end());
    const auto nesting = nesting_of(info.sizes, info.strides);
    if (!nesting) return {std::move(sizes), std::move(strides)};
    for (size_t d = 0; d < strides.size(); ++d)
      if (nesting->gaps >> d & 1) strides[d] = stride_given(id, d, forward);
    strides = strides_over(*nesting, sizes, std::move(strides));
    return {std::move(sizes), std::move(strides)};
  }

  /// One that is no product of sizes.
  Sym stride_given(TensorId id, size_t dim, const Compiled& forward) const {
    const record::TensorInfo& info = tape_.tensors[id];
    const auto& wanted = forward.wanted();
    const auto at = std::ranges::find(wanted, id);
    if (at != wanted.end())
      return region_.resolve(forward.lowered().outputs[at - wanted.begin()].strides[dim]);
    const Sym named = tape_symbol(id, static_cast<int>(dim) + kStrideBit), known = region_.resolve(named);
    return known == named ? Sym(info.strides[dim]) : known;  // of an input of the region
  }

  const Joint& joint_;
  const Tape& tape_;
  const lower::Sizes& region_;
  std::vector<TrainedSizes::Layout> layouts_;
};

class Making {
 public:
  Making(const RunToTrain& run, lower::OverInputs& over_inputs, lower::Sizes& sizes, Stages& stages,
         const PieceOf& piece)
      : run_(run), over_inputs_(over_inputs), sizes_(sizes), stages_(stages), piece_(piece) {}

  TrainedParts make() {
    stages_.enter("joint");
    std::set<TensorId> whole;
    autograd::Budget budget;
    Joint joint = made_joint(whole, budget);
    Split parts = autograd::split(joint, budget);
    if (whole = parts_of_saved(joint, parts); !whole.empty()) {
      joint = made_joint(whole, budget);
      parts = autograd::split(joint, budget);
    }
    note("aot_joint_graph", "1_joint.txt", [&] { return autograd::print(joint); });
    TrainedParts out;
    out.saved = parts.saved;
    out.tangent_of = joint.tangent_of;
    out.gradients = parts.gradients;
    out.inner = joint.inner;
    for (const autograd::Inner& inner : joint.inner)
      out.ways.push_back(inner.is_given ? autograd::Arrives::both : autograd::Arrives::through);
    out.comes_from = joint.comes_from;
    out.differentiable = joint.differentiable;
    out.leaves = joint.leaves;
    out.rewritten = joint.rewritten;
    out.made_inside = piece_.made_inside;
    out.written_later = piece_.written_later;
    out.written_again = piece_.written_again;
    out.kept_by_eager = inputs_read_behind(joint);
    out.wishes = run_.wishes;
    facts_ = joint.facts;
    demand_floats(facts_);
    while (!lower_parts(joint, parts, out)) {
    }
    demand_floats(sizes_.facts());
    if (!joint.symbols.empty()) tell_sizes(std::move(joint), std::move(whole), out);
    return out;
  }

 private:
  /// `budget`: for its partition.
  Joint made_joint(const std::set<TensorId>& parts, autograd::Budget& budget) {
    Joint joint =
        autograd::make_joint(run_.tape, run_.wanted, parts, {over_inputs_.dims(), over_inputs_.numbers()},
                             made_of_numbers(run_.constants), piece_.inner);
    for (autograd::Inner& inner : joint.inner)
      inner.is_given = piece_.read_later.contains(joint.tangent_of[inner.tangent]);
    joint.keepable = keepable(joint);
    joint.passing = piece_.passing;
    autograd::HeadPlan head = autograd::plan_head(joint, run_.wishes.budget);
    budget = head.budget;
    if (head.joint) return *std::move(head.joint);
    autograd::keep_row_statistics(joint);
    return joint;
  }

  /// By input: parameters, as nearly anything that eager keeps is made of them. But one may be updated before
  /// a pass that gives it no gradient (two losses, and the optimizer of one of them), so what such a pass
  /// reads is not made of it again.
  std::vector<bool> keepable(const Joint& joint) const {
    std::vector<bool> out = run_.is_param;
    const record::Tape& tape = joint.tape;
    const size_t tangents = joint.tangent_of.size();
    std::vector<size_t> asked;
    const auto gives = [&](size_t tangent, size_t input) {
      return !joint.comes_from[input].empty() && joint.comes_from[input][tangent];
    };
    for (size_t i = 0; i < out.size(); ++i) {
      size_t given = 0;
      for (size_t k = 0; k < tangents; ++k) given += gives(k, i);
      const bool is_updated = out[i] && run_.tape.tensors[run_.tape.inputs[i]].requires_grad;
      if (is_updated && given < tangents) asked.push_back(i);
    }
    if (asked.empty()) return out;
    const auto storages =
        static_cast<size_t>(record::count_storages(tape)) + 1;          // the first: of what has none
    std::vector<std::set<size_t>> made_of(storages), behind(storages);  // of inputs, and of tangents
    const auto storage_of = [&](TensorId id) { return static_cast<size_t>(tape.tensors[id].storage + 1); };
    for (size_t i : asked) made_of[storage_of(tape.inputs[i])].insert(i);
    for (size_t k = 0; k < tangents; ++k) behind[storage_of(tape.inputs[joint.tangents + k])].insert(k);
    for (const record::Entry& entry : tape.entries) {
      std::set<size_t> made, from;
      for_each_tensor(entry.args, [&](TensorId id) {
        made.merge(std::set(made_of[storage_of(id)]));
        from.merge(std::set(behind[storage_of(id)]));
      });
      for (size_t k : from)
        for (size_t i : made)
          if (!gives(k, i)) out[i] = false;
      const auto lead = [&](TensorId id) {
        from.empty() ? made_of[storage_of(id)].insert(made.begin(), made.end())
                     : behind[storage_of(id)].insert(from.begin(), from.end());
      };
      for_each_tensor(entry.results, lead);
      for_each_written(entry, lead);
    }
    return out;
  }

  /// By input of the run: the gradients are made of it, as eager's formulas say.
  std::vector<bool> inputs_read_behind(const Joint& joint) const {
    const auto storage_of = [&](TensorId id) { return joint.tape.tensors[id].storage; };
    std::set<int> read;
    for (const record::Entry& entry : std::span(joint.tape.entries).subspan(joint.backward))
      for_each_tensor(entry.args, [&](TensorId id) { read.insert(storage_of(id)); });
    std::vector<bool> behind;
    for (TensorId id : run_.tape.inputs) behind.push_back(read.contains(storage_of(id)));
    return behind;
  }

  /// None of those that differ may have become a number, but where the program itself says so.
  void demand_floats(const std::vector<SizeFact>& facts) const {
    for (const SizeFact& fact : facts)
      if (fact.relation == Relation::eq && !fact.a.is_const() && is_float_symbol(*fact.a.node()) &&
          place_in(over_inputs_.numbers(), *fact.a.node()) < over_inputs_.numbers().size())
        throw FloatDiffers("a number differs between calls, and gradients need it: " + fact.where);
  }

  /// False: the backward part takes sizes for one of which the forward part did not know it.
  bool lower_parts(const Joint& joint, Split& parts, TrainedParts& out) {
    sizes_ = over_inputs_.anew(facts_);
    out.forward = forward(parts, out);
    take_layouts(*out.forward, parts);
    backward_sizes_.emplace(joint, parts.backward, *out.forward, sizes_);
    backward_ = lower::Sizes(parts.backward, backward_sizes_->dims(), parts.dynamic.numbers, parts.facts);
    lower::settle_inputs(parts.backward, backward_);
    out.backward = backward(parts, out);
    return take_facts_of_backward();
  }

  /// What the backward part takes for granted are facts about the region's sizes, and so guards of it.
  bool take_facts_of_backward() {
    const size_t before = facts_.size();
    for (SizeFact f : backward_.facts()) {
      f.a = backward_sizes_->over_region(f.a, backward_);
      f.b = backward_sizes_->over_region(f.b, backward_);
      if (f.a == f.b || (f.a.is_const() && f.b.is_const())) continue;
      if (f.relation != Relation::eq) {
        sizes_.decide(f.a, f.relation, f.b, f.where);
        continue;
      }
      // Sizes that begin anew have no symbols for parts of sizes yet.
      f.a = over_inputs_.over_inputs(f.a, sizes_);
      f.b = over_inputs_.over_inputs(f.b, sizes_);
      if (std::ranges::find(facts_, f) == facts_.end()) facts_.push_back(f);
    }
    return facts_.size() == before;
  }

  void tell_sizes(Joint joint, std::set<TensorId> whole, TrainedParts& out) const {
    TrainedSizes::Parts sizes;
    sizes.joint = std::move(joint);
    sizes.run = apart_from(run_.tape);
    sizes.wanted = run_.wanted;
    sizes.parts = std::move(whole);
    sizes.own = made_of_numbers(run_.constants);
    sizes.inner = piece_.inner;
    sizes.region = sizes_;
    sizes.backward = backward_;
    sizes.backwards = backward_sizes_->layouts();
    for (const SymbolRow& row : sizes.joint.symbols)
      sizes.joint_symbols.push_back(sizes_.resolve(row.symbol));
    if (out.backward) sizes.backward_symbols = sizes.over_region(out.backward->symbols(), backward_);
    out.sizes = std::make_shared<const TrainedSizes>(std::move(sizes));
  }

  /// Gives the outputs, what is saved, and what results are parts of, as it lies.
  std::shared_ptr<Compiled> forward(const Split& parts, const TrainedParts& out) {
    Distinct wanted;
    for (TensorId id : parts.outputs) wanted.add(id);
    for (TensorId id : parts.saved) {
      const int input = parts.forward.tensors[id].input;
      if (input < 0 || run_.constants.contains(input)) wanted.add(id);
    }
    for (TensorId id : std::span(out.tangent_of).first(out.tangent_of.size() - out.rewritten.size()))
      if (static_cast<size_t>(id) < run_.tape.tensors.size()) wanted.add(id);
    hidden_ = hidden(parts);
    left_ = only_left(parts);
    told_.clear();
    return made("forward", parts.forward, wanted.take(), run_.constants, sizes_);
  }

  /// What the forward part leaves for the backward part in memory that the caller is not given.
  static std::set<TensorId> hidden(const Split& parts) {
    std::set<int> shown;
    for (TensorId id : parts.outputs)
      if (id >= 0) shown.insert(parts.forward.tensors[id].storage);
    std::set<TensorId> found(parts.saved.begin(), parts.saved.end());
    std::erase_if(found, [&](TensorId id) {
      const record::TensorInfo& info = parts.forward.tensors[id];
      return info.input >= 0 || shown.contains(info.storage);
    });
    return found;
  }

  /// Those of them that nothing looks at but through their sizes: the backward part can be told how they lie.
  std::set<TensorId> only_left(const Split& parts) const {
    std::set<TensorId> left = hidden_;
    std::set<int> shown;  // memory that is looked at in two ways
    std::unordered_map<int, TensorId> known;
    auto look = [&](TensorId id) {
      const int storage = parts.backward.tensors[id].storage;
      if (known.try_emplace(storage, id).first->second != id) shown.insert(storage);
    };
    for (TensorId id : parts.backward.inputs) look(id);
    for (const record::Entry& entry : parts.backward.entries)
      for (const auto* list : {&entry.args, &entry.results}) for_each_tensor(*list, look);
    std::erase_if(left, [&](TensorId id) { return shown.contains(parts.forward.tensors[id].storage); });
    return left;
  }

  KeptOutputs kept_outputs(const lower::Lowered& lowered, const std::vector<TensorId>& wanted) {
    KeptOutputs kept;
    for (TensorId id : wanted) kept.unseen.push_back(hidden_.contains(id));
    std::vector<int> places(lowered.graph->outputs.size(), 0);
    for (const lower::TensorOut& out : lowered.outputs)
      if (out.kind == lower::TensorOut::Kind::Fresh) ++places[out.index];
    // Images in any order help a library's calls, where there are some.
    const bool any_images = std::ranges::any_of(lowered.graph->nodes,
                                                [](const auto& n) { return loops::likes_channels_last(*n); });
    for (size_t i = 0; i < wanted.size(); ++i) {
      const lower::TensorOut& out = lowered.outputs[i];
      if (out.kind != lower::TensorOut::Kind::Fresh || !left_.contains(wanted[i]) || places[out.index] != 1)
        continue;
      told_.insert(wanted[i]);
      kept.parts.push_back(out.index);
      if (any_images && out.sizes.size() >= 4) kept.free.push_back(out.index);
    }
    return kept;
  }

  /// The backward part is given what the forward part left as it lies.
  void take_layouts(const Compiled& forward, Split& parts) const {
    const auto& wanted = forward.wanted();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!told_.contains(wanted[i])) continue;
      record::TensorInfo& info = parts.backward.tensors[wanted[i]];
      const Syms& lies = forward.lowered().outputs[i].strides;
      for (size_t d = 0; d < info.strides.size(); ++d) info.strides[d] = sizes_.hint(lies[d]);
    }
  }

  std::shared_ptr<Compiled> backward(const Split& parts, TrainedParts& out) {
    Distinct wanted;
    for (TensorId id : parts.gradients) wanted.add(id);
    const std::vector<TensorId> ids = wanted.take();
    if (ids.empty()) return nullptr;
    if (out.inner.empty()) return made("backward", parts.backward, ids, {}, backward_);
    out.of_any_way = record::copy_of(parts.backward);
    const Tape usual = autograd::with_inner(parts.backward, out.tangent_of.size(), out.inner, out.ways);
    return made("backward", usual, ids, {}, backward_);
  }

  std::shared_ptr<Compiled> made(const char* part, const Tape& tape, const std::vector<TensorId>& wanted,
                                 const std::unordered_map<int, at::Tensor>& constants, lower::Sizes& sizes) {
    return make_part(
        tape, wanted, constants, sizes, run_.wishes, stages_, [&](const lower::Lowered& lowered) {
          note("aot_graphs", std::string("2_") + part + "_graph.txt",
               [&] { return graph::print(*lowered.graph); });
          return std::string_view(part) == "forward" ? kept_outputs(lowered, wanted) : KeptOutputs();
        });
  }

  template <typename Text>
  void note(const char* log_name, const std::string& file, const Text& text) const {
    if (log_wanted(log_name)) log(log_name, text());
    if (run_.trace.wanted()) run_.trace.write(piece_.file + file, text());
  }

  const RunToTrain& run_;
  const lower::OverInputs& over_inputs_;
  lower::Sizes& sizes_;  ///< of the region, and of the forward part
  Stages& stages_;
  const PieceOf& piece_;
  std::vector<SizeFact> facts_;       ///< what gradients need, over sizes of the region's inputs
  std::set<TensorId> hidden_, left_;  ///< hidden() and only_left(), of the forward part that is being made
  std::set<TensorId> told_;           ///< those of them whose strides its plan says
  lower::Sizes backward_;
  std::optional<BackwardSizes> backward_sizes_;
};

}  // namespace

std::shared_ptr<Trained> make_trained(const RunToTrain& run, lower::OverInputs& over_inputs,
                                      lower::Sizes& sizes, Stages& stages, const PieceOf& piece) {
  TrainedParts parts = Making(run, over_inputs, sizes, stages, piece).make();
  // Copies: where it throws, the tape is replayed.
  auto region =
      std::make_shared<Trained>(record::copy_of(run.tape), run.wanted, std::move(parts), run.constants);
  if (piece.file.empty()) region->finish_code(run.name, stages);
  over_inputs.write_arguments(sizes);  // of the copies, too
  return region;
}

}  // namespace bolt::run
