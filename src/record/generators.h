// record/generators.h
// States of random generators, taken and put back: what is tried, or run a second time, must not draw numbers
// that nobody asked for. And which generators the operators of a call are given: a tape names those of the
// recorded run.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "record/operator_facts.h"

namespace bolt::record {

class GeneratorStates {
 public:
  /// As it is when it is kept for the first time.
  void keep(at::Generator generator) {
    auto is_it = [&](const auto& kept) { return kept.first == generator; };
    if (std::any_of(states_.begin(), states_.end(), is_it)) return;
    std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
  void keep_default(c10::Device device) { keep(at::globalContext().defaultGenerator(device)); }
  /// Keeps the generators that an operator may draw from, which is about to be called with what lies on top
  /// of `stack`.
  void keep_drawn(const OperatorFacts& facts, const torch::jit::Stack& stack);
  void put_back() {
    for (auto& [generator, state] : states_) {
      std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// What becomes of the generators that a region makes and seeds is said by two operators of ours:
/// torchbolt::make_generator(g), which does nothing but name it, and torchbolt::seed_generator(g, seed).
bool makes_generator(const c10::OperatorHandle& op);

/// The generators of one call, by the recorded ones: found where those were, or made in their place.
class CallGenerators {
 public:
  void add(at::Generator recorded, at::Generator now) {
    all_.emplace_back(std::move(recorded), std::move(now));
  }
  /// A generator that is not among them is itself.
  at::Generator of(const at::Generator& recorded) const;
  /// What `op` is given for this argument. Makes one where that is what the operator stands for.
  c10::IValue given(const c10::OperatorHandle& op, const c10::IValue& argument);

 private:
  std::vector<std::pair<at::Generator, at::Generator>> all_;
};

/// Puts back what it keeps when it goes.
class Undrawn : public GeneratorStates {
 public:
  Undrawn() = default;
  Undrawn(const Undrawn&) = delete;
  ~Undrawn() { put_back(); }
};

}  // namespace bolt::record
