// compile.h
// The whole road, from a recorded run to something that runs: see compile.cpp.
#pragma once

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/partition.h"
#include "record/tape.h"
#include "run/runnable.h"
#include "support/size_fact.h"
#include "support/symbols.h"
#include "support/trace.h"

namespace bolt {

/// How far it goes: backend="torchbolt", "eager" (the tape is replayed), "aot_eager" (the functional graph is
/// run).
enum class Road : uint8_t { compile, replay, functional };

/// A finished recording and what is known about its inputs.
struct Recorded {
  record::Tape tape;
  std::vector<record::TensorId> wanted;  // tensors that must exist afterwards
  std::vector<bool> is_param;            // per tape input
  std::vector<uintptr_t> addresses;      // per tape input: where it lies
  std::vector<bool> is_awaited;          // per tape input: hooks wait for its gradient
  std::unordered_map<int, at::Tensor> constants;
  std::string obstacle;  // why it can only be replayed; "" = compile
  Road road = Road::compile;
  std::string name;  // of the region, for dumps and logs
  Trace trace;
  bool launch_at_once = false;    // by CUDA graphs, where that can be done
  bool measured = false;          // the program is measured beside eager (run/trial.h)
  bool tuned = false;             // all that can be done in several ways is measured (mode "max-autotune")
  std::vector<uint64_t> dynamic;  // per tape input: a bit for each dimension that differs between calls
  std::vector<NumberSymbol> number_symbols;  // of numbers that do
  std::vector<SizeValue> number_sizes;  // numbers computed from all of them, that Python code goes on with
  std::vector<SizeFact> size_facts;     // what the run took for granted about them, over tape symbols
  std::set<std::string> not_guessed;    // operators of which no sizes are guessed
  autograd::Budget budget;              // of what is kept for a backward pass
};

/// What was recorded goes on behind sizes that are data, and cannot be compiled so. The region has to end
/// before the operator that finds them out.
struct EndsAtFoundSizes : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another compiler than ours: makes what runs of the tape, the numbers in whose arguments are expressions
/// over these symbols.
using Other = std::function<std::shared_ptr<run::Runnable>(Recorded&, const std::vector<lower::SizeSymbol>&)>;

/// Never throws for what cannot be compiled (but for EndsAtFoundSizes): the region then replays its tape and
/// says why. Internal failures are thrown. Needs no GIL.
std::shared_ptr<run::Runnable> compile(Recorded recorded, const Other& other = {});

}  // namespace bolt
