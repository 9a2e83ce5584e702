// run/foreign.h
// Foreign: a region that is run by somebody else's function, such as one that a user's backend made. It is
// called under the GIL.
#pragma once

#include <functional>

#include "run/runnable.h"

namespace bolt::run {

class Foreign final : public Runnable {
 public:
  /// Given the tape's inputs and the values of the region's symbols.
  using Function = std::function<std::vector<at::Tensor>(
      const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values, record::CallGenerators)>;
  Foreign(record::Tape tape, std::vector<record::TensorId> wanted, Function function, SymbolTable symbols);

  /// What was written: a backend may store it when all else is done, as we do.
  std::vector<int> written_inputs() const override;

 private:
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                               record::CallGenerators generators) override {
    return function_(inputs, values, std::move(generators));
  }

  const Function function_;
};

}  // namespace bolt::run
