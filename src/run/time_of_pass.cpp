// run/time_of_pass.cpp
#include "run/time_of_pass.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace bolt::run {
namespace {

using GradNode = torch::autograd::Node;
using torch::autograd::variable_list;

class Watch : public std::enable_shared_from_this<Watch> {
 public:
  explicit Watch(std::function<void(double)> tell) : tell_(std::move(tell)) {}

  void comes() {
    std::lock_guard lock(mutex_);
    if (!std::exchange(waits_, false)) return;
    runs_ = !c10::GradMode::is_enabled();
    if (!runs_) return;
    from_ = to_ = Clock::now();
    torch::autograd::Engine::get_default_engine().queue_callback(
        [self = shared_from_this()] { self->over(); });
  }
  void leaves() {
    std::lock_guard lock(mutex_);
    if (runs_) to_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void over() {
    std::unique_lock lock(mutex_);
    runs_ = false;
    const std::chrono::duration<double, std::nano> taken = to_ - from_;
    lock.unlock();
    tell_(taken.count());
  }

  const std::function<void(double)> tell_;
  std::mutex mutex_;  // guards all below
  bool waits_ = true, runs_ = false;
  Clock::time_point from_, to_;
};

class Before final : public torch::autograd::FunctionPreHook {
 public:
  explicit Before(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}

 private:
  variable_list operator()(const variable_list& gradients) override {
    watch_->comes();
    return gradients;
  }
  /// What torch's own compiler makes of such a pass needs nothing of it.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

  const std::shared_ptr<Watch> watch_;
};

class Behind final : public torch::autograd::FunctionPostHook {
 public:
  explicit Behind(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}

 private:
  variable_list operator()(const variable_list& gradients, const variable_list& /*given*/) override {
    watch_->leaves();
    return gradients;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

  const std::shared_ptr<Watch> watch_;
};

bool is_leafs(const GradNode& node) {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr;
}

/// From the results down to what was there before.
std::vector<GradNode*> nodes_of(const std::vector<at::Tensor>& results, uint64_t first_node) {
  std::vector<GradNode*> all;
  std::unordered_set<const GradNode*> seen;
  auto add = [&](GradNode* node) {
    if (node && node->sequence_nr() >= first_node && !is_leafs(*node) && seen.insert(node).second)
      all.push_back(node);
  };
  for (const at::Tensor& t : results)
    if (t.defined() && t.requires_grad()) add(t.grad_fn().get());
  for (size_t i = 0; i < all.size(); ++i)
    for (const torch::autograd::Edge& edge : all[i]->next_edges()) add(edge.function.get());
  return all;
}

}  // namespace

bool time_pass_over(const std::vector<at::Tensor>& results, uint64_t first_node,
                    std::function<void(double)> tell) {
  const std::vector<GradNode*> nodes = nodes_of(results, first_node);
  if (nodes.empty()) return false;
  const auto watch = std::make_shared<Watch>(std::move(tell));
  for (GradNode* node : nodes) {
    node->add_pre_hook(std::make_unique<Before>(watch));
    node->add_post_hook(std::make_unique<Behind>(watch));
  }
  return true;
}

}  // namespace bolt::run
