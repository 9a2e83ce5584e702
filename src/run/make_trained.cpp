// run/make_trained.cpp: see make_trained.h.
#include "run/make_trained.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "autograd/joint.h"
#include "autograd/split.h"
#include "lower/attention_masks.h"
#include "record/copy.h"
#include "run/make_compiled.h"
#include "support/error.h"
#include "support/log.h"

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
  auto storage = [&](TensorId id) { return joint.tape.tensors[static_cast<size_t>(id)].storage; };
  std::set<TensorId> out;
  for (TensorId id : joint.tangent_of)
    for (TensorId saved : parts.saved)
      if (saved != id && storage(saved) == storage(id)) out.insert(id);
  return out;
}

class Making {
 public:
  Making(const Tape& tape, const std::vector<TensorId>& wanted,
         const std::unordered_map<int, at::Tensor>& constants, const std::vector<bool>& is_param,
         std::string name, const Trace& trace, Stages& stages, const PieceOf& piece)
      : tape_(tape),
        wanted_(wanted),
        constants_(constants),
        is_param_(is_param),
        name_(std::move(name)),
        trace_(trace),
        stages_(stages),
        piece_(piece) {}

  TrainedParts make() {
    stages_.enter("joint");
    Joint joint = made_joint({});
    Split parts = autograd::split(joint);
    if (const auto whole = parts_of_saved(joint, parts); !whole.empty()) {
      joint = made_joint(whole);
      parts = autograd::split(joint);
    }
    note("aot_joint_graph", "1_joint.txt", [&] { return autograd::print(joint); });
    TrainedParts out;
    out.saved = parts.saved;
    out.tangent_of = joint.tangent_of;
    out.gradients = parts.gradients;
    out.comes_from = joint.comes_from;
    out.differentiable = joint.differentiable;
    out.made_inside = piece_.made_inside;
    out.forward = forward(parts);
    out.backward = backward(parts);
    return out;
  }

 private:
  Joint made_joint(const std::set<TensorId>& parts) const {
    Joint joint = unmasked_joint(parts);
    joint.keepable = is_param_;
    return joint;
  }

  /// Of the run without the masks that hide nothing of note, where the rest of it stays as it was.
  Joint unmasked_joint(const std::set<TensorId>& parts) const {
    lower::Sizes sizes(tape_, std::vector<uint64_t>(tape_.inputs.size()), {}, {});
    const std::optional<Tape> unmasked = lower::without_masks(tape_, sizes);
    if (!unmasked) return autograd::make_joint(tape_, wanted_, parts);
    try {
      return autograd::make_joint(*unmasked, wanted_, parts);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Unsupported) throw;
      return autograd::make_joint(tape_, wanted_, parts);
    }
  }

  std::shared_ptr<Compiled> forward(Split& parts) {
    Distinct wanted;
    for (TensorId id : parts.outputs) wanted.add(id);
    for (TensorId id : parts.saved) {
      const int input = parts.forward.tensors[static_cast<size_t>(id)].input;
      if (input < 0 || constants_.contains(input)) wanted.add(id);
    }
    return made("forward", parts.forward, wanted.take(), constants_);
  }

  std::shared_ptr<Compiled> backward(Split& parts) {
    Distinct wanted;
    for (TensorId id : parts.gradients) wanted.add(id);
    std::vector<TensorId> ids = wanted.take();
    return ids.empty() ? nullptr : made("backward", parts.backward, std::move(ids), {});
  }

  std::shared_ptr<Compiled> made(const char* part, Tape& tape, std::vector<TensorId> wanted,
                                 const std::unordered_map<int, at::Tensor>& constants) {
    stages_.enter("functionalize");
    lower::Sizes sizes(tape, std::vector<uint64_t>(tape.inputs.size()), {}, {});
    const std::vector<bool> no_parameters(tape.inputs.size(), false);
    lower::Lowered lowered = lower::functionalize(tape, wanted, {no_parameters, constants}, sizes);
    note("aot_graphs", std::string("2_") + part + "_graph.txt", [&] { return graph::print(*lowered.graph); });
    loops::PlanOptions options = device::plan_options();
    options.fold_params = false;
    return make_compiled(std::move(lowered), tape, wanted, {}, name_ + ", " + part, options, stages_);
  }

  template <typename Text>
  void note(const char* log_name, const std::string& file, const Text& text) const {
    if (log_wanted(log_name)) log(log_name, text());
    if (trace_.wanted()) trace_.write(piece_.file + file, text());
  }

  const Tape& tape_;
  const std::vector<TensorId>& wanted_;
  const std::unordered_map<int, at::Tensor>& constants_;
  const std::vector<bool>& is_param_;
  const std::string name_;
  const Trace& trace_;
  Stages& stages_;
  const PieceOf& piece_;
};

}  // namespace

std::shared_ptr<Trained> make_trained(const Tape& tape, const std::vector<TensorId>& wanted,
                                      const std::unordered_map<int, at::Tensor>& constants,
                                      const std::vector<bool>& is_param, const std::string& name,
                                      const Trace& trace, Stages& stages, const PieceOf& piece) {
  TrainedParts parts = Making(tape, wanted, constants, is_param, name, trace, stages, piece).make();
  // Copies: where it throws, the tape is replayed.
  return std::make_shared<Trained>(record::copy_of(tape), wanted, std::move(parts), constants);
}

}  // namespace bolt::run
