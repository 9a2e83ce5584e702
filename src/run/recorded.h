// run/recorded.h
// A finished recording -> what every maker of a Runnable starts from: the tape, and what is known of its
// inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lower/functionalize.h"
#include "record/tape.h"
#include "run/double_backward.h"
#include "run/wishes.h"
#include "support/log.h"
#include "support/size_fact.h"
#include "support/symbols.h"
#include "support/trace.h"

namespace bolt::run {

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
  bool measured = false;  // the program is measured beside eager (run/eager_trial.h)
  bool tuned = false;     // all that can be done in several ways is measured (mode "max-autotune")
  bool is_step = false;   // the tape has become that of a whole step (make_step.h)
  bool may_end_before_backward = false;  // its callable may be recorded again with more regions
  std::vector<uint64_t> dynamic;      // per tape input: a bit for each dimension that differs between calls
  SymbolTable number_symbols;         // of numbers that do
  SymbolTable number_sizes;           // numbers computed from all of them, that Python code goes on with
  std::vector<SizeFact> size_facts;   // what the run took for granted about them, over tape symbols
  std::set<std::string> not_guessed;  // operators of which no sizes are guessed
  Wishes wishes;
  /// What passes over the run's own results ask for.
  std::shared_ptr<DoubleBackward> double_backward = std::make_shared<DoubleBackward>();

  lower::LowerOptions for_lowering() const {
    return {is_param, constants, addresses, wishes.rounds_as_eager};
  }

  /// A stage's result, as text, for those who asked to see it: in the log of that name, behind `head`, and in
  /// that file of a trace.
  template <typename Text>
  void note(const char* log_name, const char* file, const std::string& head, const Text& text) const {
    if (log_wanted(log_name)) log(log_name, head + text());
    if (trace.wanted()) trace.write(file, text());
  }
};

/// Inputs, by their index, that are none of the caller's.
inline std::set<int> made_of_numbers(const std::unordered_map<int, at::Tensor>& constants) {
  std::set<int> inputs;
  for (const auto& constant : constants) inputs.insert(constant.first);
  return inputs;
}

}  // namespace bolt::run
