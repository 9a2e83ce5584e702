// autograd/early_cuts.cpp
#include "autograd/early_cuts.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "autograd/checkpoint.h"
#include "autograd/flow.h"
#include "autograd/joint.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

constexpr int64_t kBytesOfPiece = 1 << 20;
constexpr int64_t kFewest = 4, kMost = 16;

class EarlyCutting {
 public:
  EarlyCutting(const Tape& run, const std::vector<bool>& awaited)
      : run_(run),
        crossing_(run.entries.size() + 1),
        barred_(run.entries.size() + 1),
        due_(run.entries.size()) {
    note_lives();
    bar_checkpoints();
    note_gradients(awaited);
  }

  std::vector<size_t> cuts() const {
    std::vector<size_t> out;
    const int64_t pieces = std::min(std::clamp(bytes_ / kBytesOfPiece, kFewest, kMost), parameters_);
    int64_t behind = 0;
    size_t end = run_.entries.size();  // of the piece under construction, whose entries are gone through
    for (size_t i = end; i-- > 1 && pieces > 1;) {
      behind += due_[i];
      if (behind * pieces < bytes_) continue;
      if (const std::optional<size_t> at = best_between(i, end)) {
        out.push_back(*at);
        behind = due_between(i, *at);
        end = *at;
      }
    }
    std::ranges::reverse(out);
    return out;
  }

 private:
  const TensorInfo& info(TensorId id) const { return run_.tensors[id]; }

  /// What is made inside crosses all places from its first maker to its last reader, and may not be written
  /// behind a cut that it crosses: autograd's graph of what was handed out would not know.
  void note_lives() {
    struct Life {
      size_t first, last, last_write;
      int64_t bytes;
    };
    std::unordered_map<int, Life> lives;  // by storage
    for (size_t i = 0; i < run_.entries.size(); ++i) {
      const Entry& entry = run_.entries[i];
      for_each_tensor(entry.results,
                      [&](TensorId id) { lives.try_emplace(info(id).storage, Life{i, i, i, 0}); });
      auto touch = [&](TensorId id) {
        if (const auto at = lives.find(info(id).storage); at != lives.end()) {
          at->second.last = i;
          at->second.bytes = std::max(at->second.bytes, static_cast<int64_t>(bytes_reached(info(id))));
        }
      };
      for_each_tensor(entry.args, touch);
      for_each_written(entry, [&](TensorId id) {
        if (const auto at = lives.find(info(id).storage); at != lives.end()) at->second.last_write = i;
      });
    }
    for (TensorId id : run_.inputs) lives.erase(info(id).storage);
    for (const auto& [_, life] : lives) {
      for (size_t at = life.first + 1; at <= life.last; ++at) crossing_[at] += life.bytes;
      for (size_t at = life.first + 1; at <= life.last_write; ++at) barred_[at] = true;
    }
  }

  void bar_checkpoints() {
    int open = 0;
    for (size_t i = 0; i < run_.entries.size(); ++i) {
      if (open > 0) barred_[i] = true;
      open += checkpoint_mark(run_.entries[i]);
    }
  }

  /// The gradient of a parameter is complete when the backward pass has gone through its first reader.
  void note_gradients(const std::vector<bool>& awaited) {
    std::vector<bool> met(run_.inputs.size());
    for (size_t i = 0; i < run_.entries.size(); ++i)
      for_each_tensor(run_.entries[i].args, [&](TensorId id) {
        const int input = info(id).input;
        if (input < 0 || met[input] || !awaited[input]) return;
        met[input] = true;
        const auto bytes = static_cast<int64_t>(bytes_reached(info(id)));
        due_[i] += bytes;
        bytes_ += bytes;
        ++parameters_;
      });
  }

  /// From `first` on, before `end`; nothing: it is nowhere allowed.
  std::optional<size_t> best_between(size_t first, size_t end) const {
    std::optional<size_t> best;
    for (size_t at = first; at < end; ++at)
      if (!barred_[at] && due_between(at, end) > 0 && (!best || crossing_[at] < crossing_[*best])) best = at;
    return best;
  }

  int64_t due_between(size_t first, size_t end) const {
    int64_t bytes = 0;
    for (size_t i = first; i < end; ++i) bytes += due_[i];
    return bytes;
  }

  const Tape& run_;
  std::vector<int64_t> crossing_;  ///< by place, before the entry: bytes
  std::vector<bool> barred_;       ///< by place
  std::vector<int64_t> due_;  ///< by entry: bytes of gradients that are complete behind its backward pass
  int64_t bytes_ = 0, parameters_ = 0;
};

bool calls_back(torch::autograd::Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         node.tensor_post_acc_grad_hooks();
}

}  // namespace

std::vector<size_t> early_cuts(const Tape& run, const std::vector<bool>& awaited) {
  if (std::ranges::find(awaited, true) == awaited.end()) return {};
  return EarlyCutting(run, awaited).cuts();
}

bool is_awaited(const at::Tensor& leaf) {
  namespace variables = torch::autograd::impl;
  if (!leaf.requires_grad() || !leaf.is_leaf()) return false;
  if (variables::post_acc_grad_hooks(leaf)) return true;
  const auto accumulator = variables::try_get_grad_accumulator(leaf);
  return accumulator && calls_back(*accumulator);
}

}  // namespace bolt::autograd
