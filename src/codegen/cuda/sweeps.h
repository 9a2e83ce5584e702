// codegen/cuda/sweeps.h
// What a thread computes when. A kernel with n reductions in a row takes up to n + 1 sweeps over the row; the
// last one that looks at elements stores them. A sweep computes what its reductions or stores need, as far as
// no earlier sweep has kept it.
//
// A sum of exp(x - m), where m is the largest x, takes no sweep of its own where the row would be read again
// for it: the sweep that looks for m sums up exp(x - the largest so far), and scales the sum whenever it
// finds a larger one.
#pragma once

#include <vector>

#include "loops/kernel.h"

namespace bolt::codegen::cuda {

struct Schedule;

struct Sweep {
  std::vector<loops::ExprId> before;      // one value per row, known before the sweep
  std::vector<loops::ExprId> needed;      // values along the row
  std::vector<loops::ExprId> reductions;  // of the sweep; the last sweep has none
};

struct Sweeps {
  std::vector<Sweep> list;
  std::vector<bool> kept;  // by expression: in registers for later sweeps
  /// By expression: of a sum, the maximum that it is scaled with, or kNone.
  std::vector<loops::ExprId> follows;
  int stores = 0;  // the sweep that stores elements: none after it reads any
};

/// Dimensions that the elements of a sweep vary over; the others are one row's.
uint32_t element_dims(const loops::Kernel& k, const Schedule& s);

/// Does it vary along the row, and is it this row's alone? What all rows read comes from a cache.
bool is_of_one_row(const loops::Kernel& k, const Schedule& s, const loops::Expr& e);

/// The last thing that a schedule decides (Schedule::sweeps): it rests on all the rest.
Sweeps plan_sweeps(const loops::Kernel& k, const Schedule& s);

}  // namespace bolt::codegen::cuda
