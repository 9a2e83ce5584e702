// autograd/order.cpp
#include "autograd/order.h"

#include <algorithm>

#include "autograd/checkpoint.h"

namespace bolt::autograd {
namespace {

using record::TensorId;

/// Which of a part's entries does anybody need? Those that only give something are needed if that is.
class Needs {
 public:
  explicit Needs(const Flow& flow)
      : flow_(flow), tensors_(flow.joint.tape.tensors.size()), storages_(flow.storages.size()) {}

  void need(TensorId id) {
    if (id < 0) return;
    tensors_[id] = true;
    storages_[flow_.storage_of(id)] = true;
  }

  /// Of entries, in their order.
  std::vector<int> among(int first, int behind) {
    std::vector<int> needed;
    for (int i = behind - 1; i >= first; --i) {
      if (!is_needed(i)) continue;
      needed.push_back(i);
      for_each_tensor(flow_.entry(i).args, [&](TensorId id) { need(id); });
    }
    std::ranges::reverse(needed);
    return needed;
  }

 private:
  bool is_needed(int i) const {
    const EntryFlow& entry = flow_.entries[i];
    if (checkpoint_mark(flow_.entry(i))) return false;
    if (entry.work == Work::Never || entry.work == Work::Call) return true;
    if (entry.work == Work::Gather) return true;  // for what it raises
    bool needed = false;
    if (entry.work == Work::View)
      for_each_tensor(flow_.entry(i).results, [&](TensorId id) { needed |= tensors_[id]; });
    for (int s : entry.makes) needed |= storages_[s];
    for (int s : entry.writes) needed |= storages_[s] || flow_.storages[s].given;
    return needed;
  }

  const Flow& flow_;
  std::vector<bool> tensors_, storages_;
};

class Ordering {
 public:
  Ordering(const Flow& flow, const Fates& fates)
      : flow_(flow), fates_(fates), shown_(flow.joint.tape.tensors.size()), taken_(flow.entries.size()) {}

  Order make(const std::vector<int>& needed) {
    const Joint& joint = flow_.joint;
    for (int i : needed) {
      for_each_tensor(flow_.entry(i).args, [&](TensorId id) { wanted_.push_back(id); });
      show_wanted();
      order_.backward.push_back(i);
    }
    for (TensorId id : joint.gradients)
      if (id >= 0) wanted_.push_back(id);
    show_wanted();
    Needs results(flow_);
    for (TensorId id : joint.outputs) results.need(id);
    for (TensorId id : order_.kept) results.need(id);
    order_.forward = results.among(0, static_cast<int>(joint.backward));
    return std::move(order_);
  }

 private:
  /// Puts what they need of the forward part, and has not been there yet, next.
  void show_wanted() {
    const auto before = static_cast<std::ptrdiff_t>(order_.backward.size());
    for (size_t next = 0; next < wanted_.size(); ++next) {
      const TensorId id = wanted_[next];
      if (!flow_.is_of_forward(id) || shown_[id]) continue;
      shown_[id] = true;
      const auto storage = static_cast<size_t>(flow_.storage_of(id));
      if (const int view = flow_.shown_by(id); view >= 0) {
        take(view);
      } else if (fates_[storage] == Fate::Again) {
        for (int maker : flow_.storages[storage].makers) take(maker);
      } else {
        order_.kept.push_back(id);
      }
    }
    wanted_.clear();
    std::sort(order_.backward.begin() + before, order_.backward.end());
  }

  void take(int i) {
    if (taken_[i]) return;
    taken_[i] = true;
    order_.backward.push_back(i);
    for_each_read_again(flow_.entry(i), [&](TensorId id) { wanted_.push_back(id); });
  }

  const Flow& flow_;
  const Fates& fates_;
  Order order_;
  std::vector<TensorId> wanted_;
  std::vector<bool> shown_, taken_;  ///< tensors; entries of the forward part
};

class Simulation {
 public:
  Simulation(const Flow& flow, const Fates& fates, const Order& order)
      : flow_(flow),
        fates_(fates),
        order_(order),
        alive_(flow.storages.size()),
        stays_(flow.storages.size()) {
    for (TensorId id : order.kept) at(stays_, flow.storage_of(id)) = true;
  }

  Peak run() {
    for (size_t s = 0; s < stays_.size(); ++s)
      if (flow_.storages[s].output) stays_[s] = true;
    begin_forward();
    run_part(order_.forward, false);
    peak_.at = -1;
    begin_backward();
    peak_.last_use = run_part(order_.backward, true);
    return std::move(peak_);
  }

 private:
  template <class T>
  static typename std::vector<T>::reference at(std::vector<T>& list, int index) {
    return list[index];
  }

  /// Inputs that nobody else holds go with their last reader.
  void begin_forward() {
    for (int i : order_.forward)
      for (int s : flow_.entries[i].reads)
        if (flow_.storages[s].given) set_alive(s, true);
  }

  /// What is kept goes with its last reader, outputs stay: the caller has them.
  void begin_backward() {
    for (size_t s = 0; s < stays_.size(); ++s) {
      if (flow_.storages[s].output && fates_[s] == Fate::Again && alive_[s])
        alive_[s] = false;  // another one
      stays_[s] = flow_.storages[s].output && fates_[s] != Fate::Again;
    }
    for (TensorId id : flow_.joint.gradients)
      if (id >= 0) at(stays_, flow_.storage_of(id)) = true;
  }

  std::vector<int> run_part(const std::vector<int>& entries, bool backward) {
    const std::vector<int> last_use = last_uses(entries);
    for (size_t k = 0; k < entries.size(); ++k) {
      const EntryFlow& entry = flow_.entries[entries[k]];
      int64_t beside = 0;  // what it gives that nobody wants again
      for (int s : entry.makes) {
        const bool again = backward && flow_.is_forward(entries[k]);
        if (again && fates_[s] != Fate::Again)
          beside += bytes(s);
        else if (!again || !stays_in_kernel(s, static_cast<int>(k), last_use[s]))
          set_alive(s, true);
      }
      note(beside, static_cast<int>(k));
      for (const auto* touched : {&entry.reads, &entry.makes})
        for (int s : *touched)
          if (last_use[s] == static_cast<int>(k) && !stays_[s]) set_alive(s, false);
    }
    return last_use;
  }

  std::vector<int> last_uses(const std::vector<int>& entries) const {
    std::vector<int> last(flow_.storages.size(), -1);
    for (size_t k = 0; k < entries.size(); ++k) {
      const EntryFlow& entry = flow_.entries[entries[k]];
      for (const auto* touched : {&entry.reads, &entry.makes})
        for (int s : *touched) at(last, s) = static_cast<int>(k);
    }
    return last;
  }

  int64_t bytes(int s) const { return flow_.storages[s].bytes; }

  /// What comes again right where it is read never leaves the kernel. What waits for others does: of a chain
  /// that comes again, links that are read at other places.
  bool stays_in_kernel(int s, int made, int last_use) const {
    constexpr int kEntriesOfAKernel = 8;
    const Storage& storage = flow_.storages[s];
    return fates_[s] == Fate::Again && !storage.for_whole_calls && last_use - made <= kEntriesOfAKernel;
  }

  void set_alive(int s, bool alive) {
    if (flow_.storages[s].held || alive_[s] == alive) return;
    alive_[s] = alive;
    now_ += alive ? bytes(s) : -bytes(s);
  }

  void note(int64_t beside, int k) {
    if (now_ + beside <= peak_.bytes) return;
    peak_.bytes = now_ + beside;
    peak_.at = k;
  }

  const Flow& flow_;
  const Fates& fates_;
  const Order& order_;
  std::vector<bool> alive_, stays_;
  int64_t now_ = 0;
  Peak peak_;
};

}  // namespace

std::vector<int> needed_backward(const Flow& flow) {
  Needs gradients(flow);
  for (TensorId id : flow.joint.gradients) gradients.need(id);
  return gradients.among(static_cast<int>(flow.joint.backward), static_cast<int>(flow.entries.size()));
}

Order order_of(const Flow& flow, const std::vector<int>& needed, const Fates& fates) {
  return Ordering(flow, fates).make(needed);
}

Peak peak_of(const Flow& flow, const Fates& fates, const Order& order) {
  return Simulation(flow, fates, order).run();
}

}  // namespace bolt::autograd
