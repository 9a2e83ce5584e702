// run/folds.cpp
#include "run/folds.h"

#include <algorithm>

#include "support/stats.h"

namespace bolt::run {
namespace {

constexpr size_t kMostInstances = 8;
constexpr int kFewCalls = 4;    // that a folding must have served to be worth it
constexpr int kShortLived = 3;  // so many in a row did not: nothing is folded any more
constexpr int kUnchanged = 16;  // until so many calls in a row found the same contents

const at::Tensor& at(const std::vector<at::Tensor>& inputs, int input) { return inputs[input]; }

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

bool Folds::were_short_lived() {
  std::lock_guard lock(mutex_);
  return short_lived_ >= kShortLived;
}

bool Folds::keep_changing(const std::vector<int>& fold_inputs, const std::vector<at::Tensor>& inputs,
                          bool is_there) {
  std::lock_guard lock(mutex_);
  if (short_lived_ < kShortLived) return false;
  if (is_there) known_.clear();
  std::vector<uint32_t> versions;
  for (int i : fold_inputs) {
    const c10::VariableVersion& v = at(inputs, i).unsafeGetTensorImpl()->version_counter();
    versions.push_back(v.enabled() ? v.current_version() : 0);
  }
  unchanged_ = versions == versions_ ? unchanged_ + 1 : 0;
  versions_ = std::move(versions);
  if (unchanged_ < kUnchanged) return true;
  short_lived_ = unchanged_ = 0;
  return false;
}

std::shared_ptr<const FoldedBuffers> Folds::of(const Prepared& p, const std::vector<at::Tensor>& inputs,
                                               const std::shared_ptr<const Shapes>& shapes) {
  auto buffers_of = [](const std::shared_ptr<Folded>& f) {
    return std::shared_ptr<const FoldedBuffers>(f, &f->buffers);
  };
  {
    std::lock_guard lock(mutex_);
    for (const auto& f : known_)
      if (f->matches(inputs, p.fold_inputs)) {
        if (++f->calls >= kFewCalls) short_lived_ = 0;  // it has been worth it
        ++Stats::get().folded_calls;
        return buffers_of(f);
      }
    const size_t stale = std::erase_if(known_, [&](const auto& f) {
      if (!f->is_stale(inputs, p.fold_inputs)) return false;
      short_lived_ = f->calls < kFewCalls ? short_lived_ + 1 : 0;
      return true;
    });
    if (stale) ++Stats::get().foldings_again;
  }
  ++Stats::get().foldings;
  auto f = std::make_shared<Folded>();
  for (int i : p.fold_inputs) f->weights.emplace_back(at(inputs, i));
  f->buffers = Execution(p).fold(inputs, shapes);
  std::lock_guard lock(mutex_);
  if (known_.size() >= kMostInstances) known_.erase(known_.begin());
  known_.push_back(f);
  return buffers_of(f);
}

}  // namespace bolt::run
