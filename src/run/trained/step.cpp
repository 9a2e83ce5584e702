// run/trained/step.cpp
#include "run/trained/step.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "autograd/node_ptr.h"
#include "record/backward.h"
#include "record/copy.h"

namespace bolt::run {
namespace {

class UsedUp final : public torch::autograd::Node {
 public:
  std::string name() const override { return "TorchboltBackward"; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, torch::autograd::ERR_BACKWARD_TWICE);
  }
};

bool is_watched(const std::vector<at::Tensor>& inputs, const std::vector<size_t>& leaves) {
  const bool saves_seen =
      at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks();
  return saves_seen || torch::autograd::AnomalyMode::is_enabled() ||
         std::ranges::any_of(leaves,
                             [&](size_t i) { return !inputs[i].is_leaf() || record::has_hooks(inputs[i]); });
}

}  // namespace

WholeStep::WholeStep(record::Tape tape, std::vector<record::TensorId> wanted, std::vector<bool> used_up,
                     std::vector<bool> leaves_made, std::vector<size_t> leaves,
                     std::shared_ptr<Runnable> program)
    : Runnable(std::move(tape), std::move(wanted), program->symbols()),
      used_up_(std::move(used_up)),
      leaves_made_(std::move(leaves_made)),
      leaves_(std::move(leaves)),
      program_(std::move(program)),
      any_used_up_(std::ranges::find(used_up_, true) != used_up_.end()) {
  can_fail_ = true;  // a hook may come
  releases_gil_ = program_->releases_gil();
  const int ops = facts.ops;
  facts = program_->facts;
  facts.ops = ops;
  size_symbols = program_->size_symbols;
  size_facts = program_->size_facts;
  number_sizes = program_->number_sizes;
}

/// The step of what its program's trial came to.
std::shared_ptr<Runnable> WholeStep::successor() const {
  auto program = program_->successor();
  if (!program) return nullptr;
  return std::make_shared<WholeStep>(record::copy_of(tape_), wanted_, used_up_, leaves_made_, leaves_,
                                     std::move(program));
}

std::vector<at::Tensor> WholeStep::call(const std::vector<at::Tensor>& inputs,
                                        const std::vector<int64_t>& values,
                                        record::CallGenerators generators) {
  if (is_watched(inputs, leaves_))
    throw RunEagerly{{Why::not_compiled, "hooks or anomaly mode look at a backward pass"}};
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < values.size(); ++i)
    if (symbols_[i].from == SymbolRow::From::number) numbers.push_back(values[i]);
  std::vector<at::Tensor> results = program_->run(inputs, numbers, std::move(generators));
  for (size_t i = 0; i < results.size(); ++i)
    if (leaves_made_[i]) results[i].set_requires_grad(true);
  if (any_used_up_) give_histories(inputs, results);
  return results;
}

/// Results that show the same memory without a history have none afterwards.
void WholeStep::give_histories(const std::vector<at::Tensor>& inputs,
                               std::vector<at::Tensor>& results) const {
  torch::autograd::edge_list edges;
  for (size_t i : leaves_) edges.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
  const auto node = autograd::make_node<UsedUp>();
  node->set_next_edges(std::move(edges));
  for (size_t i = 0; i < results.size(); ++i) {
    const bool given = wanted_[i] < 0 || tape_.tensors[wanted_[i]].input >= 0;
    if (!used_up_[i] && !given && results[i].is_view() && !results[i].requires_grad())
      results[i] = results[i].detach();
  }
  std::unordered_set<const c10::TensorImpl*> tied;
  for (size_t i = 0; i < results.size(); ++i)
    if (used_up_[i] && tied.insert(results[i].unsafeGetTensorImpl()).second)
      torch::autograd::set_history(results[i], autograd::NodePtr(node));
}

}  // namespace bolt::run
