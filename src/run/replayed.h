// run/replayed.h
// Replayed: the tape's operators, called again through the dispatcher under the recorded thread state. That
// is exactly eager's computation, which autograd differentiates.
#pragma once

#include <unordered_map>

#include "run/runnable.h"

namespace bolt::run {

class Replayed final : public Runnable {
 public:
  /// `constants`: inputs of the tape, by their index, that the recorded run made of numbers.
  Replayed(record::Tape tape, std::vector<record::TensorId> wanted, std::string why,
           std::unordered_map<int, at::Tensor> constants, SymbolTable symbols);

  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                               record::CallGenerators generators) override;

 private:
  std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                                 record::CallGenerators generators) const;

  const VisibleWrites visible_writes_;
  const size_t certain_from_;  ///< from this entry on none raises
  const std::unordered_map<int, at::Tensor> constants_;
};

}  // namespace bolt::run
