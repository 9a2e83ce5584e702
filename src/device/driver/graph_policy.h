// device/driver/graph_policy.h
// What a call of a program brings (sizes, stream, addresses of its inputs) -> whether its launches go to the
// device one by one, are recorded into a graph, or come from the graph that was recorded before.
//
// A graph repeats what it recorded: the same addresses, sizes and numbers. So there is a slot for each set of
// values, stream and set of folded parameters, and a slot watches a few calls before it records: inputs whose
// address stayed the same are read where they lie, others are copied to where the graph reads them. One that
// moves later is copied from then on, by a graph that is recorded anew, unless it has moved to where another
// program's graph makes it: there it will stay. One that is copied and lies still after all is read where it
// lies, once.
// So it is with results: one whose memory somebody still has when the graph is to write there again is copied
// out from then on.
//
// Everything is bounded: the slots, the bytes that are copied for a slot's sake, and its recordings, of which
// none but the first few may be followed by few replays.
// Past a bound calls are launched one by one, as they would be without graphs, and `why_not` says why.
//
// Steps that cannot be part of a graph are launched in between graphs of what lies around them
// (`sections_of`), where that is enough to be worth a graph.
//
// Plain data, with no device in it. Calls are serialised by who asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/export.h"

namespace bolt::device {

/// What launching a graph costs the host, as so many launches of kernels. So does each copy: as one.
constexpr int64_t kLaunchesOfAGraph = 2;

/// A step of a program. Memory is told by numbers.
struct GraphStep {
  int64_t launches = 1;      ///< what it costs the host, as so many launches of kernels
  bool apart = false;        ///< it cannot be part of a graph
  std::vector<int> touches;  ///< memory that it reads or writes
  std::vector<int> makes;    ///< of that, what is somewhere else after each call, unless a graph makes it
  std::vector<int> results;  ///< of that, what is copied for the program's caller
};

/// Steps that are one graph, or are launched.
struct GraphSection {
  size_t begin = 0, end = 0;
  bool graph = false;
};

struct GraphSections {
  std::vector<GraphSection> list;  ///< all steps, in order
  std::vector<int> placed;         ///< memory that a launched step makes and a graph touches: copied to where
                                   ///< the graph has it
  int64_t launches = 0;            ///< that graphs take the place of
  int64_t graphs = 0;
};
/// One graph where all steps may be part of it, whatever that is worth. Otherwise only graphs that are worth
/// it.
BOLT_API GraphSections sections_of(const std::vector<GraphStep>& steps);

/// What a graph would repeat of a call.
struct GraphCall {
  std::vector<int64_t> values;        ///< of the program's symbols: sizes and numbers
  int64_t order = 0;                  ///< the stream
  const void* folded = nullptr;       ///< what was computed of parameters beforehand
  std::vector<uintptr_t> addresses;   ///< by input
  std::vector<int64_t> bytes;         ///< by input: what copying it moves; kCannotMove: only read in place
  std::vector<int64_t> result_bytes;  ///< by result: what copying it out moves; 0: it is not a graph's
  std::vector<char> may_stay;         ///< by result: the caller may have the memory that a graph writes to
  static constexpr int64_t kCannotMove = -1;
};

class BOLT_API GraphPolicy {
 public:
  static constexpr size_t kSlots = 8;                ///< sets of sizes with a graph, of one program
  static constexpr int kWatched = 2;                 ///< calls before the one that is recorded
  static constexpr int kFailures = 2;                ///< of a slot, that taught nothing
  static constexpr int kLessons = 6;                 ///< of a slot
  static constexpr int kRecordings = 8;              ///< of one slot: inputs that move make a new one
  static constexpr int kWorthIt = 16;                ///< replays of the last one that make one more worth it
  static constexpr int kMisses = 3;                  ///< of one slot, before all results are copied out
  static constexpr int kMovingCalls = 6;             ///< until what is too large to copy lies still
  static constexpr int kSettles = 3;                 ///< of an input, whose maker may be launched in between
  static constexpr int kStillReplays = 4;            ///< in which a copied input lay where a graph makes it
  static constexpr int kLongStill = 32;              ///< in which it lay still anywhere
  static constexpr int64_t kBytesALaunch = 2 << 20;  ///< copying more takes longer than launching

  /// `launches`: that graphs take the place of in one call. `copies`: that each replay makes beside those of
  /// inputs and results.
  explicit GraphPolicy(int64_t launches, int64_t copies = 0, int64_t graphs = 1)
      : launches_(launches), copies_(copies), graphs_(graphs) {}
  /// From now on other steps are part of graphs.
  void price(int64_t launches, int64_t copies, int64_t graphs) {
    launches_ = launches, copies_ = copies, graphs_ = graphs;
  }

  enum class Do : uint8_t { launch, record, replay };
  struct Decision {
    Do what = Do::launch;
    size_t slot = kSlots;      ///< kSlots: none, and nothing is kept of this call
    std::string why_not = {};  ///< told once, where launching is for good
  };
  /// Does another program's graph make something at this address, in each call?
  using IsStill = std::function<bool(uintptr_t)>;
  Decision decide(const GraphCall& call, const IsStill& is_still = {});

  /// By input: whether the graph of a slot reads a copy.
  const std::vector<char>& copied(size_t slot) const { return slots_[slot].copied; }
  /// By result: whether it is copied out of the graph's memory.
  const std::vector<char>& copied_out(size_t slot) const { return slots_[slot].copied_out; }
  /// A call could not be repeated, since somebody has the memory of these results.
  void missed(size_t slot, const std::vector<size_t>& results);
  /// It could not be recorded. Tried once more, when the thread that tried has launched the steps itself: a
  /// library may make a handle for each thread, which cannot be captured. And again where the failure taught
  /// which step is not to be part of it (`price`).
  void failed(size_t slot, bool taught = false);

 private:
  struct Slot {
    std::vector<int64_t> values;
    int64_t order = 0;
    const void* folded = nullptr;
    std::vector<uintptr_t> addresses;  ///< of the call before, or of the recording
    std::vector<uintptr_t> seen;       ///< of the call before
    int still_replays = 0;             ///< in which a copied input lay still
    bool relaxed = false;              ///< those are read in place: that is tried once
    std::vector<char> copied, copied_out;
    std::vector<char> settled;  ///< so often has it moved to where a graph makes it
    int calls = 0, recordings = 0, failures = 0, lessons = 0, misses = 0;
    int replays = 0;       ///< of the last recording
    int moving_calls = 0;  ///< of what is too large to copy
    int64_t used = 0;      ///< at which call last
    bool recorded = false, given_up = false;
  };

  Slot* find(const GraphCall& call);
  Slot* make(const GraphCall& call);
  static bool read_where_made(Slot& slot, const GraphCall& call, const IsStill& is_still);
  bool moves(Slot& slot, const GraphCall& call, const IsStill& is_still) const;
  bool lies_still(Slot& slot, const GraphCall& call, const IsStill& is_still) const;
  struct Obstacle {
    std::string why;      ///< "": there is none
    bool moving = false;  ///< there might be none if inputs lay still
  };
  Obstacle obstacle(const Slot& slot, const GraphCall& call) const;

  int64_t launches_, copies_, graphs_;
  std::vector<Slot> slots_;
  int64_t calls_ = 0;
  bool said_full_ = false;
};

}  // namespace bolt::device
