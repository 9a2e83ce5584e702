// loops/in_bands.h
// Plan -> Plan: a large product that one kernel reads row by row is computed some rows at a time.
//
//   linear b2 = b0 b1                       linear b5 = b0[0..512] b1, kernel b3[0..512] = f(b5)
//   kernel b3 = f(b2)              =>       linear b6 = b0[512..1024] b1, kernel b3[512..1024] = f(b6)
//                                           ...
//
// A language model's head is the peak of its inference: it has a column for each word there is, and where the
// library wants aligned rows, what it gives lies beside the logits that the caller is given. Of what is made
// in bands only one band is there at any time, and mostly in the device's cache when the kernel reads it.
//
// A kernel is one that can be cut where its outermost dimension counts rows of the product, nothing runs over
// that dimension or asks where in it it is, and each of its buffers lies along it at equal distances.
#pragma once

#include "loops/plan.h"

namespace bolt::loops {

/// After write_in_place: what lies in its operand's place needs no band.
void compute_in_bands(Plan& plan, const PlanOptions& options);

}  // namespace bolt::loops
