// run/recordings.h
// Calls of a prepared program whose launches are given to the device all at once (CUDA graphs).
//
// Which call is launched step by step, which is recorded and which is repeated says GraphPolicy
// (device/driver/graph_policy.h). A call that is repeated copies the inputs that move to where the recording
// reads them, asks for the memory that it writes its results to, and launches, in the order of the caller's
// stream. A result is the caller's for good: no later call writes over it, whoever holds it, for how long,
// and on which stream (device::ResultMemory); while one is in use, calls are launched, and from the next
// recording on it is copied out. Inputs that are written are written in place, or copied back.
//
// Steps that cannot be recorded are run in between graphs of the others, in each call (sections.h). The call
// that records runs as well: a section is captured, and launched at once, since the next one may need what it
// gives. An operator of which it shows that it cannot be captured is run, and from the next recording on is
// among those.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/driver/graph_policy.h"
#include "run/recorded_call.h"

namespace bolt::run {

class Recordings {
 public:
  Recordings(const Prepared& prepared, std::string name);

  /// Why no call is recorded; "": some may be.
  std::string obstacle() const;

  /// The outputs as Execution::collect gives them. Nothing: the call is to be run step by step. What a step
  /// raises, raises. `take_execution`: gives one that the call's steps may be run by.
  std::optional<std::vector<at::Tensor>> run(
      const GraphedCall& call, const std::function<std::unique_ptr<Execution>()>& take_execution);

 private:
  device::GraphCall described(const GraphedCall& call, const Sections& sections, int64_t order) const;
  std::shared_ptr<RecordedCall> made_of(const device::GraphPolicy::Decision& decision);
  void divide();
  void note_failure(size_t slot, const RecordedCall& recorded);
  void say(const std::string& why) const;

  const Prepared& p_;
  const std::string name_;
  mutable std::mutex mutex_;                                   ///< guards what follows
  std::map<std::string, std::pair<int, std::string>> failed_;  ///< by name of a step: how often, and why
  std::shared_ptr<const Sections> sections_;
  device::GraphPolicy policy_{0};
  std::vector<std::shared_ptr<RecordedCall>> made_;  ///< by slot
};

}  // namespace bolt::run
