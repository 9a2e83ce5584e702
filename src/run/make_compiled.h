// run/make_compiled.h
// The functional graph of a recording -> a region that runs it: plan, machine code, Compiled.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "run/compiled.h"
#include "run/recorded.h"
#include "support/stages.h"

namespace bolt::run {

/// Is code made when a call runs it first, and not with the plan? So it is for who wants to know plans alone.
std::atomic<bool>& code_waits();

/// `tape` and `wanted` are taken once nothing can throw any more. Throws SizeDemand where it cannot go on
/// with symbols as they are.
std::shared_ptr<Compiled> make_compiled(lower::Lowered lowered, record::Tape& tape,
                                        std::vector<record::TensorId>& wanted, SymbolTable symbols,
                                        const std::string& name, const loops::PlanOptions& options,
                                        Stages& stages);

/// Results of a part that nobody but another part sees.
struct KeptOutputs {
  /// By wanted tensor: is it one? Those that come to be one value are one memory.
  std::vector<char> unseen;
  /// Results of the graph, by place, that may lie in any order of memory, and those that may be a part of
  /// memory (graph::Output::may_be_part); lowered().outputs of what is made say how they lie.
  std::vector<int> free, parts;
};

/// A part of a region, made so. Its code may still be being compiled, while other parts are planned
/// (Compiled::finish_code).
std::shared_ptr<Compiled> begin_compiled(lower::Lowered lowered, record::Tape& tape,
                                         std::vector<record::TensorId>& wanted, SymbolTable symbols,
                                         const loops::PlanOptions& options, Stages& stages,
                                         const KeptOutputs& kept);

/// A region that adapts to its calls: programs for sizes that come often, and one for parameters that keep
/// changing, are made when they are wanted. It is tried beside eager where that is asked for (eager_trial.h);
/// a program with less fusion may be made then, too. The recording's tape is taken as make_compiled takes it.
std::shared_ptr<Runnable> make_region(lower::Lowered lowered, Recorded& recorded, lower::Sizes& sizes,
                                      Stages& stages);

}  // namespace bolt::run
