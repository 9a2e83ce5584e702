// autograd/partition.cpp
#include "autograd/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "autograd/flow.h"
#include "autograd/min_cut.h"
#include "autograd/order.h"
#include "autograd/step_price.h"
#include "record/text.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::TensorId;

int64_t as_capacity(double price) {
  constexpr double kUnits = 16, kMost = 1e15;
  return static_cast<int64_t>(std::min(price * kUnits + 1, kMost));
}

/// Of what no kernel would have to write otherwise.
double price_to_write(const Flow& flow, const Storage& storage) {
  return storage.materialised ? 0 : static_cast<double>(storage.bytes) * 2 * flow.prices.materialised;
}

/// What it costs to keep a storage, if memory is `scale` times as dear as usual.
double price_to_keep(const Flow& flow, const Storage& storage, double scale) {
  return static_cast<double>(storage.bytes) * flow.prices.kept * scale + price_to_write(flow, storage);
}

double price_of_memory_again(const Flow& flow, const Storage& storage) {
  return storage.for_whole_calls ? static_cast<double>(storage.bytes) * flow.prices.materialised : 0;
}

/// What a cut weighs against each other.
struct Weights {
  double scale = 1;  ///< memory is so many times as dear as usual
  /// Bytes that are kept and nothing else: what runs in the kernel that reads it is for nothing, and what
  /// does not is not done again.
  bool bytes_alone = false;
};
constexpr double kTooDear = 1e14;

/// Each storage is two nodes with an edge between them: the first is on the sink's side if it is computed
/// again, the second if the backward part has it at all, so cutting the edge means to keep it. A maker is a
/// node that the source holds by its price: it is on the sink's side with any of what it makes, and draws
/// what it reads there.
class Cut {
 public:
  Cut(const Flow& flow, const std::vector<int>& needed, Weights weights)
      : flow_(flow), needed_(needed), weights_(weights), maker_nodes_(flow.entries.size(), -1) {
    for (size_t s = 0; s < flow.storages.size(); ++s) {
      nodes_.push_back(network_.add_node());
      network_.add_node();
    }
    for (size_t s = 0; s < nodes_.size(); ++s) add_storage(static_cast<int>(s));
  }

  Fates make() {
    for (int i : needed_)
      for (int s : flow_.entries[i].reads) demand(s);
    for (TensorId id : flow_.joint.gradients)
      if (id >= 0) demand(flow_.storage_of(id));
    std::vector<bool> on_sink_side;
    BOLT_CHECK(network_.cut(on_sink_side), "what eager keeps can be kept");
    Fates fates;
    for (int node : nodes_) {
      const bool again = on_sink_side[node];
      const bool there = on_sink_side[static_cast<size_t>(node) + 1];
      fates.push_back(again ? Fate::Again : there ? Fate::Kept : Fate::Dropped);
    }
    return fates;
  }

 private:
  static constexpr int64_t kUncuttable = Network::kUncuttable;

  double to_keep(const Storage& storage) const {
    return weights_.bytes_alone ? static_cast<double>(storage.bytes)
                                : price_to_keep(flow_, storage, weights_.scale);
  }
  double memory_again(const Storage& storage) const {
    if (weights_.bytes_alone) return storage.for_whole_calls ? kTooDear : 0;
    return price_of_memory_again(flow_, storage);
  }
  double to_make(const EntryFlow& entry) const {
    if (!weights_.bytes_alone) return entry.price;
    return entry.fuses_again ? 0 : entry.checkpoint >= 0 ? entry.price : kTooDear;
  }

  int is_made(int s) const { return nodes_[s]; }
  int is_there(int s) const { return is_made(s) + 1; }

  void add_storage(int s) {
    const Storage& storage = flow_.storages[s];
    const int64_t kept = storage.held ? 1 : as_capacity(to_keep(storage));
    network_.add_edge(is_made(s), is_there(s), flow_.may_be_kept(s) ? kept : kUncuttable);
    if (!storage.again) return network_.add_edge(Network::kSource, is_made(s), kUncuttable);
    network_.add_edge(Network::kSource, is_made(s), as_capacity(memory_again(storage)));
    for (int maker : storage.makers) network_.add_edge(node_of(maker), is_made(s), kUncuttable);
  }

  int node_of(int maker) {
    int& node = maker_nodes_[maker];
    if (node >= 0) return node;
    const EntryFlow& entry = flow_.entries[maker];
    node = network_.add_node();
    network_.add_edge(Network::kSource, node, as_capacity(to_make(entry)));
    for (int s : entry.reads_again)
      if (std::ranges::find(entry.writes, s) == entry.writes.end())
        network_.add_edge(is_there(s), node, kUncuttable);
    return node;
  }

  /// What is made in the backward part is there then, and no matter of ours.
  void demand(int s) {
    const Storage& storage = flow_.storages[s];
    if (storage.kept_by_eager && demanded_.insert(s).second)
      network_.add_edge(is_there(s), Network::kSink, kUncuttable);
  }

  const Flow& flow_;
  const std::vector<int>& needed_;  ///< of the backward part
  const Weights weights_;
  Network network_;
  std::vector<int> nodes_, maker_nodes_;
  std::set<int> demanded_;
};

struct KeepingPlan {
  Fates fates;
  Order order;
  Peak peak;
  int64_t kept = 0, between = 0;  ///< bytes; `between` the parts the results are alive as well
  double time = 0;                ///< the price of what is computed again, or is only written to be kept
  double price = 0;               ///< the same, and that of memory
};

double time_of(const Flow& flow, const Fates& fates, const Order& order) {
  double price = 0;
  std::vector<bool> touched(flow.storages.size());
  for (int i : order.backward) {
    if (!flow.is_forward(i)) continue;
    price += flow.entries[i].price;
    for (int s : flow.entries[i].makes) touched[s] = true;
  }
  for (TensorId id : order.kept) touched[flow.storage_of(id)] = true;
  for (size_t s = 0; s < touched.size(); ++s) {
    if (!touched[s]) continue;
    const Storage& storage = flow.storages[s];
    if (fates[s] == Fate::Again)
      price += price_of_memory_again(flow, storage);
    else if (!storage.held)
      price += price_to_write(flow, storage);
  }
  return price;
}

/// Of memory that is there for nobody else.
int64_t bytes_of(const Flow& flow, const std::vector<TensorId>& kept, const std::vector<TensorId>& results) {
  std::vector<bool> counted(flow.storages.size());
  int64_t bytes = 0;
  for (const auto* ids : {&kept, &results})
    for (TensorId id : *ids) {
      if (id < 0 || counted[flow.storage_of(id)]) continue;
      counted[flow.storage_of(id)] = true;
      if (const Storage& it = flow.storages[flow.storage_of(id)]; !it.held) bytes += it.bytes;
    }
  return bytes;
}

/// What is kept lies there until the backward part begins, which may be long: that counts beside the peak.
constexpr double kUntilBackward = 0.5;

KeepingPlan plan_with(const Flow& flow, const std::vector<int>& needed, Fates fates) {
  KeepingPlan plan{std::move(fates), {}, {}};
  plan.order = order_of(flow, needed, plan.fates);
  plan.peak = peak_of(flow, plan.fates, plan.order);
  plan.kept = bytes_of(flow, plan.order.kept, {});
  plan.between = bytes_of(flow, plan.order.kept, flow.joint.outputs);
  plan.time = time_of(flow, plan.fates, plan.order);
  plan.price = plan.time + kUntilBackward * flow.prices.kept * static_cast<double>(plan.kept);
  return plan;
}

/// One storage less that is kept, with all that this asks for.
class Dropped {
 public:
  Dropped(const Flow& flow, const Fates& before, int storage) : flow_(flow), fates(before), possible_(true) {
    gain_ = flow.storages[storage].bytes;
    compute_again(storage);
  }

  bool helps() const { return possible_ && gain_ > 0; }
  int64_t gain() const { return gain_; }
  double price() const { return price_; }
  double bytes_for_price() const { return static_cast<double>(gain_) / (price_ + 1); }

 private:
  void compute_again(int storage) {
    std::vector<int> wanted{storage};
    while (!wanted.empty() && possible_) {
      const int s = wanted.back();
      wanted.pop_back();
      const Storage& it = flow_.storages[s];
      fates[s] = Fate::Again;
      price_ += price_of_memory_again(flow_, it);
      for (int maker : it.makers) {
        price_ += flow_.entries[maker].price;
        for (int read : flow_.entries[maker].reads_again)
          if (fates[read] == Fate::Dropped) provide(read, wanted);
      }
    }
  }

  void provide(int s, std::vector<int>& wanted) {
    const Storage& it = flow_.storages[s];
    Fate& fate = fates[s];
    fate = it.again ? Fate::Again : Fate::Kept;
    if (it.again) return wanted.push_back(s);
    possible_ &= flow_.may_be_kept(s);
    if (!it.held) gain_ -= it.bytes;
  }

  const Flow& flow_;

 public:
  Fates fates;

 private:
  bool possible_;
  int64_t gain_ = 0;
  double price_ = 0;
};

/// Whatever has that reason to come again does.
Fates again(const Flow& flow, Fates fates, bool Storage::* reason) {
  for (size_t s = 0; s < fates.size(); ++s)
    if (fates[s] == Fate::Kept && flow.storages[s].again && flow.storages[s].*reason)
      fates = Dropped(flow, fates, static_cast<int>(s)).fates;
  return fates;
}

Fates as_eager(const Flow& flow) {
  Fates fates;
  for (const Storage& storage : flow.storages)
    fates.push_back(storage.kept_by_eager ? Fate::Kept : Fate::Dropped);
  return again(flow, std::move(fates), &Storage::checkpointed);
}

/// Of what is computed again, all that is alive at a few moments of the forward part is kept. So a long chain
/// comes again piece by piece, and not all of it at once for its last reader.
class Pieces {
 public:
  Pieces(const Flow& flow, const Fates& base) : flow_(flow), base_(base), first_(flow.joint.backward) {
    for (size_t s = 0; s < base.size(); ++s) {
      if (base[s] != Fate::Again) continue;
      const auto made = static_cast<size_t>(flow.storages[s].makers.front());
      first_[made].push_back(static_cast<int>(s));
      total_ += flow.storages[s].bytes;
    }
    last_use_.assign(base.size(), -1);
    for (size_t i = 0; i < flow.joint.backward; ++i)
      for (int s : flow.entries[i].reads) last_use_[s] = static_cast<int>(i);
  }

  Fates cut_into(int count) const {
    Fates fates = base_;
    int64_t made = 0;
    int piece = 1;
    for (size_t i = 0; i < first_.size() && piece < count; ++i) {
      for (int s : first_[i]) made += flow_.storages[s].bytes;
      if (made < total_ / count * piece) continue;
      keep_alive_at(static_cast<int>(i), fates);
      ++piece;
    }
    return fates;
  }

 private:
  void keep_alive_at(int moment, Fates& fates) const {
    for (size_t s = 0; s < fates.size(); ++s) {
      if (fates[s] != Fate::Again || last_use_[s] <= moment || !flow_.may_be_kept(static_cast<int>(s)))
        continue;
      if (flow_.storages[s].makers.front() <= moment) fates[s] = Fate::Kept;
    }
  }

  const Flow& flow_;
  const Fates& base_;
  std::vector<std::vector<int>> first_;  ///< by entry: what it makes, of what is computed again
  std::vector<int> last_use_;            ///< by storage: an entry of the forward part
  int64_t total_ = 0;
};

/// The plans that there are to choose from.
class Plans {
 public:
  explicit Plans(const Flow& flow)
      : flow_(flow),
        needed_(needed_backward(flow)),
        step_(price_of_step(flow, needed_)),
        eager_(plan_with(flow, needed_, as_eager(flow))) {
    std::vector<KeepingPlan> all{plan_with(flow, needed_, again(flow, eager_.fates, &Storage::cast_weight))};
    for (double scale : {1.0, 8.0, 1024.0}) {
      all.push_back(plan_with(flow, needed_, Cut(flow, needed_, {.scale = scale}).make()));
      const Fates base = all.back().fates;
      if (scale == 1) take_steps(all);
      const Pieces pieces(flow, base);
      for (int count : {4, 8, 16, 32}) all.push_back(plan_with(flow, needed_, pieces.cut_into(count)));
    }
    all.push_back(plan_with(flow, needed_, Cut(flow, needed_, {.bytes_alone = true}).make()));
    usual_ = usual(all, all.back().peak.bytes);
    all.push_back(usual_);
    std::ranges::stable_sort(all, {}, &KeepingPlan::price);
    for (KeepingPlan& plan : all)
      if (row_.empty() || plan.peak.bytes < row_.back().peak.bytes) row_.push_back(std::move(plan));
  }

  const KeepingPlan& eager() const { return eager_; }
  double share_of_step(const KeepingPlan& plan) const { return step_ > 0 ? plan.time / step_ : 0; }

  const KeepingPlan& choose(const Budget& budget) const {
    if (budget.bytes) return first_below(*budget.bytes);
    if (!budget.share || *budget.share == 1) return usual_;
    const auto least = static_cast<double>(row_.back().peak.bytes);
    const double between = static_cast<double>(usual_.peak.bytes) - least;
    return first_below(static_cast<int64_t>(least + *budget.share * between));
  }

 private:
  /// Layers of one kind are all kept or all computed again by the price of memory alone. So from the plan
  /// that takes least time the peak is lowered: for no more than so much of the step's time,
  static constexpr double kOfStep = 0.02;
  /// or, whatever it takes, to so much of what eager needs.
  static constexpr double kOfEager = 0.9;

  /// Whoever runs between the parts (the loss, another piece of the region) has a peak of its own above what
  /// is there then, so that is no more than in eager, either.
  bool fits(const KeepingPlan& plan, int64_t most) const {
    return plan.peak.bytes <= std::min(most, eager_.peak.bytes) && plan.between <= eager_.between;
  }

  /// `most`: the peak where bytes alone count, which takes next to no time.
  KeepingPlan usual(const std::vector<KeepingPlan>& all, int64_t most) const {
    std::vector<const KeepingPlan*> among;
    for (int64_t allowed : {most, std::numeric_limits<int64_t>::max()})
      if (among.empty())
        for (const KeepingPlan& plan : all)
          if (fits(plan, allowed)) among.push_back(&plan);
    if (among.empty()) return eager_;
    const KeepingPlan& quickest = **std::ranges::min_element(among, {}, [](auto* p) { return p->time; });
    const double longest = quickest.time + kOfStep * step_;
    const KeepingPlan from_quickest = lowered(quickest, longest);
    among.push_back(&from_quickest);
    const auto rank = [&](const KeepingPlan* plan) {
      const bool high = is_high(*plan), slow = plan->time > longest;
      const auto peak = static_cast<double>(plan->peak.bytes);
      return std::tuple(high, slow, slow && !high ? plan->time : peak, plan->time);
    };
    return **std::ranges::min_element(among, {}, rank);
  }
  bool is_high(const KeepingPlan& plan) const {
    return static_cast<double>(plan.peak.bytes) > kOfEager * static_cast<double>(eager_.peak.bytes);
  }

  /// A part of the best of what is there at the peak is computed again, and so on.
  KeepingPlan lowered(KeepingPlan now, double longest) const {
    constexpr int kMost = 12;
    const auto high = static_cast<int64_t>(kOfEager * static_cast<double>(eager_.peak.bytes));
    for (int taken = 0; taken < kMost; ++taken) {
      KeepingPlan next = plan_with(
          flow_, needed_, after_step(now, {.bytes = now.peak.bytes - high, .price = longest - now.time}));
      if (next.peak.bytes >= now.peak.bytes || !fits(next, now.peak.bytes)) break;
      if (next.time > longest && !is_high(now)) break;
      now = std::move(next);
    }
    return now;
  }

  const KeepingPlan& first_below(int64_t allowed) const {
    const auto fits = [&](const KeepingPlan& plan) { return plan.peak.bytes <= allowed; };
    const auto at = std::ranges::find_if(row_, fits);
    return at == row_.end() ? row_.back() : *at;
  }

  void take_steps(std::vector<KeepingPlan>& all) const {
    constexpr int kMost = 16;
    KeepingPlan now = all.back();
    for (int taken = 0; taken < kMost; ++taken) {
      Fates fates = after_step(now, {});
      if (fates == now.fates) return;
      now = plan_with(flow_, needed_, std::move(fates));
      all.push_back(now);
    }
  }

  /// How far a step goes: until so many bytes are saved, and on as long as it costs no more than this.
  struct Allowed {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    double price = 0;
  };

  /// The best of what can be computed again at the peak, an eighth of it at once: what is computed again
  /// moves the peak.
  Fates after_step(const KeepingPlan& now, Allowed allowed) const {
    std::vector<std::pair<double, int>> best;
    for (size_t s = 0; s < now.fates.size(); ++s) {
      const bool there = now.fates[s] == Fate::Kept && now.peak.last_use[s] >= now.peak.at;
      if (!there || !flow_.storages[s].again) continue;
      const Dropped step(flow_, now.fates, static_cast<int>(s));
      if (step.helps()) best.emplace_back(-step.bytes_for_price(), static_cast<int>(s));
    }
    std::ranges::sort(best);
    best.resize((best.size() + 7) / 8);
    Fates fates = now.fates;
    for (const auto& [_, s] : best) {
      if (fates[s] != Fate::Kept) continue;
      Dropped step(flow_, fates, s);
      if (!step.helps()) continue;
      allowed.price -= step.price();
      if (allowed.price < 0 && allowed.bytes <= 0) break;
      allowed.bytes -= step.gain();
      fates = std::move(step.fates);
    }
    return fates;
  }

  const Flow& flow_;
  const std::vector<int> needed_;
  const double step_;  ///< its price
  const KeepingPlan eager_;
  KeepingPlan usual_;
  std::vector<KeepingPlan> row_;
};

MemoryUse memory_of(const KeepingPlan& plan) { return {plan.order.kept.size(), plan.kept, plan.peak.bytes}; }

std::string line(const char* what, const MemoryUse& memory) {
  return detail::concat("; ", what, ": ", memory.tensors, " tensors kept, ", memory.bytes,
                        " bytes beside inputs; peak ", memory.peak, " bytes\n");
}

}  // namespace

Partition partition(const Joint& joint, const Budget& budget, const Prices& prices) {
  if (budget.share) check_share(*budget.share);
  const Flow flow(joint, prices);
  Plans plans(flow);
  const KeepingPlan& plan = plans.choose(budget);
  Partition made{plan.order.kept,          {},
                 plan.order.forward,       plan.order.backward,
                 memory_of(plan),          memory_of(plans.eager()),
                 plans.share_of_step(plan)};
  for (TensorId id : made.kept) {
    const Storage& storage = flow.storages[flow.storage_of(id)];
    if (storage.given && !storage.kept_by_eager) made.inputs_kept_anew.push_back(id);
  }
  return made;
}

void check_share(double share) {
  if (!(share >= 0 && share <= 1))
    throw_user("activation_memory_budget is ", share, "; it is a share of the memory, from 0 to 1");
}

std::string print(const Joint& joint, const Partition& partition) {
  std::string text = line("eager", partition.eager) + line("here", partition.memory);
  const auto tenths = static_cast<int>(std::lround(1000 * partition.share_of_step));
  text += detail::concat("; computed again, or only written to be kept: ", tenths / 10, ".", tenths % 10,
                         " % of the step's time\n");
  const auto& tensors = joint.tape.tensors;
  for (TensorId id : partition.kept) {
    const record::TensorInfo& info = tensors[id];
    text += detail::concat("kept %", id, ": ", c10::toString(info.dtype), at::IntArrayRef(info.sizes),
                           info.input >= 0 ? ", an input" : "", "\n");
  }
  for (int i : partition.backward) {
    if (static_cast<size_t>(i) >= joint.backward) continue;
    const record::Entry& entry = joint.tape.entries[i];
    text += "again";
    for (const record::Arg& result : entry.results)
      for (TensorId id : result.tensors) text += detail::concat(" %", id);
    text += " = " + entry.op.operator_name().name + "\n";
  }
  return text;
}

}  // namespace bolt::autograd
