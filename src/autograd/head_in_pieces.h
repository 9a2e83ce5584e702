// autograd/head_in_pieces.h
// A joint tape -> the same, with what is made of its largest product computed for some rows after others
//
//   %x = mm(%h, %w)                        %h0 = slice(%h, 0, 512), %x0 = mm(%h0, %w)
//   %p = _log_softmax(%x)                  %p0 = _log_softmax(%x0)
//   %l = nll_loss_forward(%p, %y)     =>   %l0 = nll_loss_forward(%p0, %y0)
//                                          %h1 = slice(%h, 512, 1024), ...
//                                          %l = (%l0 + %l1 + ...) / count
//
// A language model's head is the peak of its training: logits, their log softmax and its gradient have a
// column for each word there is. All of that is independent by rows (rows.h), and what leaves it is small: a
// loss, the gradient of the states, which is put together, and that of the weight, which is added up, in
// float32 where it is of a half type. So none of it is ever whole. The backward part makes its logits again
// from the states, for one product more; within a whole step, where the loss counts as part of the pass, both
// directions of a piece are done with it before the next one begins.
//
// What a piece gives goes through torchbolt::keep, and the last of it through keep_of_piece, across which no
// kernel works. Otherwise the program would add up what all pieces give at its end, in one kernel, and take
// the softmax of several pieces in another.
#pragma once

#include <optional>

#include "autograd/joint.h"
#include "autograd/partition.h"
#include "autograd/rows.h"

namespace bolt::autograd {

/// In so many pieces, or fewer. Throws Unsupported where that would change the order of what must keep
/// its order.
Joint head_in_pieces(const Flow& flow, const ByRows& rows, int64_t pieces);

/// What a budget asks for.
struct HeadPlan {
  std::optional<Joint> joint;  ///< nothing: the tape stays as it is
  Budget budget;               ///< for its partition
};
/// As few pieces as keep the peak within the budget, or bring it lowest; none, where no budget is given:
/// a piece is dearer than the whole. A lower budget never gives a higher peak.
HeadPlan plan_head(const Joint& joint, const Budget& budget, const Prices& prices = {});

}  // namespace bolt::autograd
