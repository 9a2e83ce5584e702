// run/double_backward.cpp
#include "run/double_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace bolt::run {
namespace {

using torch::autograd::variable_list;

class NotesPasses final : public torch::autograd::FunctionPreHook {
 public:
  explicit NotesPasses(std::shared_ptr<DoubleBackward> noted) : noted_(std::move(noted)) {}

 private:
  variable_list operator()(const variable_list& gradients) override {
    if (c10::GradMode::is_enabled()) noted_->note_pass();
    return gradients;
  }
  /// What torch's own compiler makes of such a pass needs nothing of it.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

  const std::shared_ptr<DoubleBackward> noted_;
};

}  // namespace

bool UsualDoubleBackward::is_usual() {
  constexpr int kLooks = 8, kGoesBy = 64;
  const int before = calls_++;
  if (before == kLooks) is_usual_ = differentiated_ * 2 >= kLooks;
  if (before == kLooks + kGoesBy) {
    is_usual_ = false;
    calls_ = differentiated_ = 0;
  }
  return is_usual_;
}

void DoubleBackward::note_pass() {
  if (c10::GradMode::is_enabled()) {
    asked_ = Asked::yes;
    return;
  }
  auto unknown = Asked::unknown;
  asked_.compare_exchange_strong(unknown, Asked::no);
}

void note_passes_over(const at::Tensor& result, uint64_t first_number,
                      const std::shared_ptr<DoubleBackward>& noted) {
  if (!result.defined() || result.is_leaf()) return;
  const auto& node = result.grad_fn();
  if (node->sequence_nr() >= first_number) node->add_pre_hook(std::make_unique<NotesPasses>(noted));
}

}  // namespace bolt::run
