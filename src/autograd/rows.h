// autograd/rows.h
// A joint tape and a product on it -> what of the tape is independent by rows of what the product gives, and
// where that ends.
//
//   %x = mm(%h, %w)                 rows: computed for some rows of %h alone
//   %p = _log_softmax(%x, 1)        rows
//   %l = nll_loss_forward(%p, %y)   an end: a sum over all rows
//   ...
//   %gx = _log_softmax_backward_data(%gp, %p, 1)
//   %gh = mm(%gx, %w)               an end: so few numbers a row that they are put together
//   %gw = mm(t(%gx), %h)            an end: a sum over all rows
//
// No operator is known to belong to a loss: of each it is asked whether what it makes of some rows depends on
// these alone. The rows of a tensor are counted in units, of which all tensors have the same number, and
// which lie one after another in each: single rows of the product where nothing is in the way, or as many as
// a sequence has where those are shifted against labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/flow.h"

namespace bolt::autograd {

/// What stands for a tensor among a row-wise entry's arguments while it is computed for some units.
enum class Share : uint8_t { Whole, Made, Rows, Columns };

/// An entry that is computed unit by unit.
struct Member {
  enum class Kind : uint8_t {
    None,      ///< it is computed as a whole
    Band,      ///< it gives rows
    Joined,    ///< it gives rows, of which few are large: others read them as a whole
    Sum,       ///< over all rows
    Mean,      ///< over all elements
    Loss,      ///< nll_loss_forward that sums up, or takes the mean
    Contract,  ///< a product that sums over rows
  };
  Kind kind = Kind::None;
  std::vector<Share> shares;   ///< by tensor among its arguments, in their order, also those that are none
  bool counts_labels = false;  ///< nll_loss_forward: its second result is known before
  bool also_whole = false;     ///< a view that somebody else wants to see, too
  /// Which of the loops over pieces it ends in: later ones read what earlier ones summed up.
  int loop = -1;

  bool ends() const { return kind != Kind::None && kind != Kind::Band; }
};

struct ByRows {
  size_t product = 0;               ///< the entry
  int64_t units = 0;                ///< how many there are
  std::vector<Member> members;      ///< by entry
  std::vector<int> level;           ///< by entry that is no member: how many loops it waits for
  std::vector<bool> loop_backward;  ///< by loop: it is part of the backward part

  /// How many of the first dimensions are counted by units; 0: they cannot be.
  size_t lead(const record::TensorInfo& info) const;
};

/// Does it read nothing of its argument but how large it is? A loss's own gradient does not wait for the
/// loss.
bool fills_alike(const record::Entry& entry);

/// Of the forward part's largest product. Throws Unsupported with what keeps it from being computed by
/// rows.
ByRows rows_of(const Flow& flow);

}  // namespace bolt::autograd
