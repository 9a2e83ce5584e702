// run/folds.cpp: see folds.h.
#include "run/folds.h"

#include <algorithm>

namespace bolt::run {
namespace {

constexpr size_t kMostInstances = 8;

const at::Tensor& at(const std::vector<at::Tensor>& inputs, int input) {
  return inputs[static_cast<size_t>(input)];
}

}  // namespace

bool Folds::Folded::matches(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const {
  for (size_t i = 0; i < weights.size(); ++i)
    if (!weights[i].is(at(inputs, which[i]))) return false;
  return true;
}

bool Folds::Folded::is_stale(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const {
  for (size_t i = 0; i < weights.size(); ++i)
    if (!weights[i].was(at(inputs, which[i]))) return weights[i].is_gone();
  return true;
}

std::shared_ptr<const FoldedBuffers> Folds::of(const Prepared& p, const std::vector<at::Tensor>& inputs,
                                               const std::shared_ptr<const Shapes>& shapes) {
  auto buffers_of = [](const std::shared_ptr<Folded>& f) {
    return std::shared_ptr<const FoldedBuffers>(f, &f->buffers);
  };
  {
    std::lock_guard lock(mutex_);
    for (const auto& f : known_)
      if (f->matches(inputs, p.fold_inputs)) return buffers_of(f);
    std::erase_if(known_, [&](const auto& f) { return f->is_stale(inputs, p.fold_inputs); });
  }
  auto f = std::make_shared<Folded>();
  for (int i : p.fold_inputs) f->weights.emplace_back(at(inputs, i));
  f->buffers = Execution(p).fold(inputs, shapes);
  std::lock_guard lock(mutex_);
  if (known_.size() >= kMostInstances) known_.erase(known_.begin());
  known_.push_back(f);
  return buffers_of(f);
}

}  // namespace bolt::run
