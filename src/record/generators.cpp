// record/generators.cpp: see generators.h.
#include "record/generators.h"

namespace bolt::record {

void GeneratorStates::keep_drawn(const OperatorFacts& facts, const torch::jit::Stack& stack) {
  keep_default(at::kCPU);
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
