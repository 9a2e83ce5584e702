// autograd/pieces.h
// A tape, where it is cut, and what of it is left to eager -> a tape for each piece. What a piece makes and a
// later one reads is a result of the one and an input of the other.
//
// Tensors and storages keep their numbers, so what is said of one (`t12_0`, its size 0) is said of it in
// every piece, as in the parts of a joint tape.
#pragma once

#include <vector>

#include "record/tape.h"

namespace bolt::autograd {

struct Piece {
  /// Inputs: what it reads of the run's inputs and of what earlier pieces make. Of the latter it is to be
  /// said whether they require a gradient (TensorInfo::requires_grad), which is known when those are made.
  record::Tape tape;
  std::vector<record::TensorId> results;  ///< of what it makes: the wanted ones, and what later pieces read
  bool is_eagers = false;                 ///< a single operator, which eager calls
  size_t first = 0;                       ///< of the run's entries
};

/// `cuts`: see cuts.h. `eagers`: entries that are pieces of their own (record/left_to_eager.h). Throws
/// Unsupported where a cut would part what is one: views of one memory that is written later, and what
/// is changed without being a tensor.
std::vector<Piece> pieces(const record::Tape& run, const std::vector<record::TensorId>& wanted,
                          std::vector<size_t> cuts, const std::vector<size_t>& eagers);

}  // namespace bolt::autograd
