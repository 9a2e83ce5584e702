// device/driver/graph_policy.cpp: see graph_policy.h.
#include "device/driver/graph_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace bolt::device {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

GraphPolicy::Decision GraphPolicy::decide(const GraphCall& call) {
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
  const bool moved = moves(*slot, call);
  if (slot->recorded && !moved) return {Do::replay, at};
  slot->recorded = false;
  slot->addresses = call.addresses;
  if (slot->calls++ < kWatched) return {Do::launch, at};
  if (std::string why = obstacle(*slot, call); !why.empty()) {
    slot->given_up = true;
    return {Do::launch, at, std::move(why)};
  }
  ++slot->recordings;
  slot->recorded = true;
  return {Do::record, at};
}

void GraphPolicy::failed(size_t slot) {
  Slot& s = slots_[slot];
  s.recorded = false;
  s.calls = kWatched - 1;
  s.given_up = ++s.failures >= kFailures;
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
  *at = {call.values, call.order, call.folded, call.addresses, std::vector<char>(call.addresses.size())};
  return &*at;
}

/// Notes which inputs lie elsewhere than before; whether one does that is read in place.
bool GraphPolicy::moves(Slot& slot, const GraphCall& call) const {
  bool any = false;
  for (size_t i = 0; i < call.addresses.size(); ++i) {
    if (slot.copied[i] || slot.addresses[i] == call.addresses[i]) continue;
    slot.copied[i] = any = true;
  }
  return any;
}

std::string GraphPolicy::obstacle(const Slot& slot, const GraphCall& call) const {
  if (slot.recordings >= kRecordings) return "its inputs keep moving in memory";
  int64_t bytes = call.result_bytes, copies = results_;
  for (size_t i = 0; i < slot.copied.size(); ++i) {
    if (!slot.copied[i]) continue;
    if (call.bytes[i] == GraphCall::kCannotMove)
      return "input " + std::to_string(i) + " moves in memory, and shows parts of it twice";
    bytes += call.bytes[i];
    ++copies;
  }
  if (launches_ <= copies + kLaunchesOfAGraph)
    return "it is " + std::to_string(launches_) + " launches, and a graph needs " + std::to_string(copies) +
           " copies of inputs and results";
  if (bytes <= launches_ * kBytesALaunch) return "";
  return "copying inputs that move in memory, and results (" + std::to_string(bytes >> 20) +
         " MiB) takes longer than " + std::to_string(launches_) + " launches";
}

}  // namespace bolt::device
