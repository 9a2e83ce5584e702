// device/driver/graph_policy.cpp
#include "device/driver/graph_policy.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace bolt::device {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// The longest runs of steps that are alike.
std::vector<GraphSection> runs_of(const std::vector<char>& apart) {
  std::vector<GraphSection> runs;
  for (size_t i = 0; i < apart.size(); ++i) {
    if (runs.empty() || runs.back().graph == static_cast<bool>(apart[i])) runs.push_back({i, i, !apart[i]});
    runs.back().end = i + 1;
  }
  return runs;
}

}  // namespace

/// Where a graph is not worth it, its steps join those around them, and what they make has to be copied for
/// other graphs: so all are priced again, until all that are left are worth it.
GraphSections sections_of(const std::vector<GraphStep>& steps) {
  std::vector<char> apart;
  for (const GraphStep& s : steps) apart.push_back(s.apart);
  const bool whole = std::ranges::none_of(apart, [](char a) { return a; });
  for (;;) {
    GraphSections out;
    out.list = runs_of(apart);
    std::set<int> made_apart, placed, results;
    for (size_t i = 0; i < steps.size(); ++i)
      if (apart[i]) made_apart.insert(steps[i].makes.begin(), steps[i].makes.end());
    bool all_worth_it = true;
    for (const GraphSection& run : out.list) {
      if (!run.graph) continue;
      int64_t launches = 0, copies = 0;
      for (size_t i = run.begin; i < run.end; ++i) {
        launches += steps[i].launches;
        for (int m : steps[i].touches) copies += made_apart.contains(m) && placed.insert(m).second;
        for (int r : steps[i].results) copies += results.insert(r).second;
      }
      out.launches += launches;
      ++out.graphs;
      if (whole || launches > copies + kLaunchesOfAGraph) continue;
      std::fill(apart.begin() + static_cast<std::ptrdiff_t>(run.begin),
                apart.begin() + static_cast<std::ptrdiff_t>(run.end), 1);
      all_worth_it = false;
    }
    if (!all_worth_it) continue;
    out.placed.assign(placed.begin(), placed.end());
    return out;
  }
}

GraphPolicy::Decision GraphPolicy::decide(const GraphCall& call, const IsStill& is_still) {
  Slot* slot = find(call);
  if (!slot) slot = make(call);
  if (!slot) {
    const bool again = std::exchange(said_full_, true);
    return {
        Do::launch, kSlots,
        again ? "" : "there are graphs for " + std::to_string(kSlots) + " sets of sizes and numbers already"};
  }
  const auto at = static_cast<size_t>(slot - slots_.data());
  slot->used = ++calls_;
  if (slot->given_up) return {Do::launch, at};
  const bool moved = moves(*slot, call, is_still);
  if (slot->recorded && !moved && !lies_still(*slot, call, is_still)) {
    ++slot->replays;
    return {Do::replay, at};
  }
  slot->recorded = false;
  slot->addresses = call.addresses;
  if (slot->calls++ < kWatched) return {Do::launch, at};
  read_where_made(*slot, call, is_still);
  if (auto [why, moving] = obstacle(*slot, call); !why.empty()) {
    // What another program's graph makes lies still as soon as that is recorded, too.
    if (moving && slot->moving_calls++ < kMovingCalls) {
      std::ranges::fill(slot->copied, 0);
      return {Do::launch, at};
    }
    slot->given_up = true;
    return {Do::launch, at, std::move(why)};
  }
  ++slot->recordings;
  slot->replays = 0;
  slot->recorded = true;
  return {Do::record, at};
}

void GraphPolicy::failed(size_t slot, bool taught) {
  Slot& s = slots_[slot];
  s.recorded = false;
  s.calls = kWatched - 1;
  s.recordings -= taught;  // its inputs did not move
  s.given_up = taught ? ++s.lessons >= kLessons : ++s.failures >= kFailures;
}

void GraphPolicy::missed(size_t slot, const std::vector<size_t>& results) {
  Slot& s = slots_[slot];
  s.recorded = false;
  if (++s.misses < kMisses)
    for (size_t i : results) s.copied_out[i] = 1;
  else
    std::ranges::fill(s.copied_out, 1);
}

GraphPolicy::Slot* GraphPolicy::find(const GraphCall& call) {
  for (Slot& s : slots_)
    if (s.order == call.order && s.folded == call.folded && s.values == call.values) return &s;
  return nullptr;
}

/// In the place of one that nobody will ask for, since parameters were folded anew, or of the one without a
/// recording that was not asked for the longest.
GraphPolicy::Slot* GraphPolicy::make(const GraphCall& call) {
  auto at = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) {
    return s.order == call.order && s.values == call.values && s.folded != call.folded;
  });
  if (at == slots_.end() && slots_.size() < kSlots) at = slots_.emplace(slots_.end());
  if (at == slots_.end()) {
    auto age = [](const Slot& s) { return s.recorded || s.given_up ? kNever : s.used; };
    at = std::ranges::min_element(slots_, {}, age);
    if (age(*at) == kNever) return nullptr;
  }
  *at = {};
  at->values = call.values;
  at->order = call.order;
  at->folded = call.folded;
  at->addresses = at->seen = call.addresses;
  at->copied.resize(call.addresses.size());
  at->settled.resize(call.addresses.size());
  for (size_t i = 0; i < call.result_bytes.size(); ++i)
    at->copied_out.push_back(i >= call.may_stay.size() || !call.may_stay[i]);
  return &*at;
}

/// What has moved until another program's graph made it need not be copied any more. Whether there is such an
/// input.
bool GraphPolicy::read_where_made(Slot& slot, const GraphCall& call, const IsStill& is_still) {
  bool any = false;
  for (size_t i = 0; is_still && i < slot.copied.size(); ++i) {
    if (!slot.copied[i] || slot.settled[i] >= kSettles || !is_still(call.addresses[i])) continue;
    slot.copied[i] = 0;
    ++slot.settled[i];
    any = true;
  }
  return any;
}

/// Notes which inputs lie elsewhere than before; whether one does that is read in place.
bool GraphPolicy::moves(Slot& slot, const GraphCall& call, const IsStill& is_still) const {
  bool any = false;
  for (size_t i = 0; i < call.addresses.size(); ++i) {
    if (slot.copied[i] || slot.addresses[i] == call.addresses[i]) continue;
    any = true;
    if (slot.settled[i] < kSettles && is_still && is_still(call.addresses[i]))
      ++slot.settled[i];
    else
      slot.copied[i] = 1;
  }
  return any;
}

/// Copied inputs that have lain still for some replays are read in place from now on: then a graph is
/// recorded anew.
bool GraphPolicy::lies_still(Slot& slot, const GraphCall& call, const IsStill& is_still) const {
  if (slot.relaxed || slot.recordings >= kRecordings) return false;
  std::vector<char> still = slot.copied;
  for (size_t i = 0; i < still.size(); ++i) still[i] = still[i] && slot.seen[i] == call.addresses[i];
  slot.seen = call.addresses;
  const bool any = std::ranges::any_of(still, [](char c) { return c; });
  slot.still_replays = any ? slot.still_replays + 1 : 0;
  if (slot.still_replays == kStillReplays) return read_where_made(slot, call, is_still);
  if (slot.still_replays < kLongStill) return false;
  for (size_t i = 0; i < still.size(); ++i)
    if (still[i]) slot.copied[i] = 0;
  return slot.relaxed = true;
}

GraphPolicy::Obstacle GraphPolicy::obstacle(const Slot& slot, const GraphCall& call) const {
  if (slot.recordings >= kRecordings && slot.replays < kWorthIt) return {"its inputs keep moving in memory"};
  int64_t bytes = 0, copies = copies_, moving = 0;
  for (size_t i = 0; i < slot.copied_out.size(); ++i) {
    if (!slot.copied_out[i] || call.result_bytes[i] == 0) continue;
    bytes += call.result_bytes[i];
    ++copies;
  }
  for (size_t i = 0; i < slot.copied.size(); ++i) {
    if (!slot.copied[i]) continue;
    if (call.bytes[i] == GraphCall::kCannotMove)
      return {"input " + std::to_string(i) + " moves in memory, and shows parts of it twice", true};
    bytes += call.bytes[i];
    ++copies;
    ++moving;
  }
  if (launches_ <= copies + kLaunchesOfAGraph * graphs_)
    return {"it is " + std::to_string(launches_) + " launches, and a graph needs " + std::to_string(copies) +
                " copies of inputs and results",
            moving > 0};
  if (bytes <= launches_ * kBytesALaunch) return {};
  return {"copying inputs that move in memory, and results (" + std::to_string(bytes >> 20) +
              " MiB) takes longer than " + std::to_string(launches_) + " launches",
          moving > 0};
}

}  // namespace bolt::device
