// device/driver/graph_policy.h
// What a call of a program brings (sizes, stream, addresses of its inputs) -> whether its launches go to the
// device one by one, are recorded into a graph, or come from the graph that was recorded before.
//
// A graph repeats what it recorded: the same addresses, sizes and numbers. So there is a slot for each set of
// values, stream and set of folded parameters, and a slot watches a few calls before it records: inputs whose
// address stayed the same are read where they lie, others are copied to where the graph reads them. One that
// moves later is copied from then on, by a graph that is recorded anew.
//
// Everything is bounded: the slots, the recordings of a slot, and the bytes that are copied for its sake.
// Past a bound calls are launched one by one, as they would be without graphs, and `why_not` says why.
//
// Plain data, with no device in it. Calls are serialised by who asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/export.h"

namespace bolt::device {

/// What a graph would repeat of a call.
struct GraphCall {
  std::vector<int64_t> values;       ///< of the program's symbols: sizes and numbers
  int64_t order = 0;                 ///< the stream
  const void* folded = nullptr;      ///< what was computed of parameters beforehand
  std::vector<uintptr_t> addresses;  ///< by input
  std::vector<int64_t> bytes;        ///< by input: what copying it moves; kCannotMove: only read in place
  int64_t result_bytes = 0;          ///< what is copied out of a graph's memory
  static constexpr int64_t kCannotMove = -1;
};

class BOLT_API GraphPolicy {
 public:
  static constexpr size_t kSlots = 8;  ///< sets of sizes with a graph, of one program
  static constexpr int kWatched = 2;   ///< calls before the one that is recorded
  static constexpr int kFailures = 2;
  static constexpr int kRecordings = 4;              ///< of one slot: inputs that move make a new one
  static constexpr int64_t kBytesALaunch = 2 << 20;  ///< copying more takes longer than launching

  static constexpr int64_t kLaunchesOfAGraph = 2;  ///< what launching it costs, as so many launches

  /// `launches`: that one call makes. `results`: that are copied out after each replay.
  explicit GraphPolicy(int64_t launches, int64_t results = 0) : launches_(launches), results_(results) {}

  enum class Do : uint8_t { launch, record, replay };
  struct Decision {
    Do what = Do::launch;
    size_t slot = kSlots;      ///< kSlots: none, and nothing is kept of this call
    std::string why_not = {};  ///< told once, where launching is for good
  };
  Decision decide(const GraphCall& call);

  /// By input: whether the graph of a slot reads a copy.
  const std::vector<char>& copied(size_t slot) const { return slots_[slot].copied; }
  /// It could not be recorded. Tried once more, when the thread that tried has launched the steps itself: a
  /// library may make a handle for each thread, which cannot be captured.
  void failed(size_t slot);

 private:
  struct Slot {
    std::vector<int64_t> values;
    int64_t order = 0;
    const void* folded = nullptr;
    std::vector<uintptr_t> addresses;  ///< of the call before, or of the recording
    std::vector<char> copied;
    int calls = 0, recordings = 0, failures = 0;
    int64_t used = 0;  ///< at which call last
    bool recorded = false, given_up = false;
  };

  Slot* find(const GraphCall& call);
  Slot* make(const GraphCall& call);
  bool moves(Slot& slot, const GraphCall& call) const;
  std::string obstacle(const Slot& slot, const GraphCall& call) const;

  const int64_t launches_, results_;
  std::vector<Slot> slots_;
  int64_t calls_ = 0;
  bool said_full_ = false;
};

}  // namespace bolt::device
