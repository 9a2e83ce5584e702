// run/trained/views.h
// Results of a region that are views of what its caller holds, or of one another -> the same views, made
// again by the operators that made them in the recorded run. So autograd knows them as it knows eager's.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "record/tape.h"

namespace bolt::run {

class Views {
 public:
  /// `bases`: tensors of the tape that are there already. `wanted`: by result; those that nothing but views
  /// leads to from these are made, of the others it is said that they are not.
  Views(const record::Tape& tape, const std::vector<record::TensorId>& bases,
        const std::vector<record::TensorId>& wanted);

  /// Is it one of them, or led to from them by nothing but views?
  static bool reaches(const record::Tape& tape, const std::vector<record::TensorId>& bases,
                      record::TensorId id);
  bool makes(size_t wanted) const { return made_[wanted] >= 0; }
  bool any() const { return !ids_.empty(); }
  /// Calls `give` with the number of each that is made. `bases`: in their order.
  void make(const std::vector<at::Tensor>& bases, const std::function<int64_t(Sym)>& value,
            const std::function<void(size_t, at::Tensor)>& give) const;

 private:
  class Finding;
  record::Tape tape_;                  ///< of the views alone
  std::vector<record::TensorId> ids_;  ///< that are made
  std::vector<int> made_;              ///< by wanted: among `ids_`; -1: it is not made
};

}  // namespace bolt::run
