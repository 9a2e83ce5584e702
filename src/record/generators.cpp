// record/generators.cpp
#include "record/generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

namespace bolt::record {
namespace {

void make_generator(const std::optional<at::Generator>&) {}

void seed_generator(const std::optional<at::Generator>& generator, c10::SymInt seed) {
  at::Generator seeded = *generator;
  std::lock_guard lock(seeded.mutex());
  seeded.set_current_seed(static_cast<uint64_t>(seed.expect_int()));
}

// As operators that draw by their tags, both keep their place among those that do.
TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  const std::vector<at::Tag> tags = {at::Tag::nondeterministic_seeded};
  m.def("make_generator(Generator? generator) -> ()", tags);
  m.def("seed_generator(Generator? generator, SymInt seed) -> ()", tags);
  m.impl("make_generator", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(make_generator));
  m.impl("seed_generator", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(seed_generator));
}

}  // namespace

bool makes_generator(const c10::OperatorHandle& op) {
  static const auto* const schema =
      &c10::Dispatcher::singleton().findSchemaOrThrow("torchbolt::make_generator", "").schema();
  return &op.schema() == schema;
}

at::Generator CallGenerators::of(const at::Generator& recorded) const {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& g) { return g.first == recorded; });
  return at == all_.end() ? recorded : at->second;
}

c10::IValue CallGenerators::given(const c10::OperatorHandle& op, const c10::IValue& argument) {
  if (!argument.isGenerator()) return argument;
  const at::Generator recorded = argument.toGenerator();
  if (makes_generator(op)) add(recorded, at::detail::createCPUGenerator());
  return of(recorded);
}

void GeneratorStates::keep_drawn(const OperatorFacts& facts, const torch::jit::Stack& stack) {
  keep_default(at::kCPU);  // which operators on any device may draw from
  for (size_t i = first_argument(facts, stack); i < stack.size(); ++i) {
    const c10::IValue& argument = stack[i];
    if (argument.isGenerator())
      keep(argument.toGenerator());
    else if (argument.isTensor() && argument.toTensor().defined() && argument.toTensor().is_cuda())
      keep_default(argument.toTensor().device());
    else if (argument.isDevice() && argument.toDevice().is_cuda())
      keep_default(argument.toDevice());
  }
}

}  // namespace bolt::record
