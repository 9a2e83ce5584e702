// loops/layout.h
// Graph -> the same graph, its temporaries lying in memory as contractions like to read and write them.
//
// A generated convolution works on all channels of a pixel at once: it reads images whose channels are
// innermost ("channels-last") in place and stores such images in whole vectors. A generated linear layer does
// the same with rows. Temporaries have no strides that a user can see, only inputs and outputs have eager's;
// so each temporary takes the order of memory that its neighbours like, and no copy ever permutes:
//
//   x (input, NCHW) -> conv -> relu -> max_pool -> conv -> add -> relu -> y (output, NCHW)
//                         channels-last in between; the last kernel's stores are strided
//
// A wish is an order of dimensions. Wishes start at the activations and results of convolutions that the code
// generator would compute if their input lay channels-last, then of linear layers, then at results of
// attentions whose heads are put together next; who comes first wins. They
// spread through pointwise operations, pools, cat, pad and upsampling, which work in any order and leave each
// dimension where it is, and behind views in the order in which the view shows the memory (pixels flattened
// to rows are row-major if the image is channels-last). They stop at
//   - inputs, outputs and values that outputs are views of;
//   - operands of opaque calls, which were recorded with their strides and may ask for them;
//   - values that a reduction over channels and pixels together reads (group norm): a run of memory before.
//
// Only Type::strides change, which say how a value lies IF it is stored (graph/ir.h); what is stored is
// decided later. So this comes before fuse, which asks again who computes a contraction, now with the strides
// as they will be.
#pragma once

#include "loops/plan.h"

namespace bolt::loops {

/// `graph` is renumbered.
void choose_layouts(graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops
