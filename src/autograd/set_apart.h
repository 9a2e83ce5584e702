// autograd/set_apart.h
// A run's tape -> one that leaves alone what gets another history by being written to.
//
// `out = zeros(n); ...; out[where] = f(x)`, of which a region sees only the end: its input has another
// history afterwards. A node of ours could not give it that without knowing what else of its memory the
// caller holds. So the run works on a copy of that input, which is a result like any other, and whoever runs
// it copies the result into the input where autograd sees it (run/written_back.h): the history is
// CopyBackwards', as of any copy_().
//
//     %0 = input f32[4]                        %0 = input f32[4]
//     %2 = aten::add_.Tensor(%0, %1)    ->     %3 = aten::clone(%0)
//                                              %2 = aten::add_.Tensor(%3, %1)      and %3 is wanted, too
#pragma once

#include <unordered_map>
#include <vector>

#include "record/tape.h"

namespace bolt::autograd {

struct SetApart {
  record::Tape tape;
  std::vector<record::TensorId> wanted;  ///< the run's, then a tensor for each of `inputs`
  std::vector<size_t> inputs;            ///< that get the values of those; empty: there is none, and no tape
};

/// Left as they are, and refused later: inputs whose memory another input or a result shows, or whose entries
/// rest on numbers that differ between calls.
SetApart set_apart(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
                   const std::unordered_map<int, at::Tensor>& constants);

}  // namespace bolt::autograd
