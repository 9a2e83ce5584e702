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
// A wish is an order of dimensions. Wishes start at the activations and results of convolutions that a
// library computes so (library_layout.h), then of those that the code generator would compute if their input
// lay channels-last, then of linear layers, then at results of attentions whose heads are put together next,
// then at what other linear layers read; who comes first wins. They spread through pointwise operations,
// pools, cat, pad and upsampling, which work in any order and leave each dimension where it is, and behind
// views in the order in which the view shows the memory (pixels flattened to rows are row-major if the image
// is channels-last). They stop at
//   - inputs, outputs and values that outputs are views of;
//   - operands of opaque calls, which were recorded with their strides and may ask for them, but for those
//     that are known to give what lies as their images do;
//   - on the processor, values that a reduction over channels and pixels together reads (group norm): a run
//     of memory before;
//   - convolutions of a library whose weights would have to follow, and are too large to keep twice.
//
// What a library's convolution is given otherwise is copied, as it would do itself: a node of its own, so
// that two calls share the copy, a cast makes it on the way, and of weights that stay it is made once.
//
// Else only Type::strides change, which say how a value lies IF it is stored (graph/ir.h); what is stored is
// decided later. So this comes before fuse, which asks again who computes a contraction, now with the strides
// as they will be.
#pragma once

#include "loops/plan.h"

namespace bolt::loops {

/// `graph` is renumbered. `free_outputs`: results, by their place among the graph's, that may lie in any
/// order too: what a forward pass leaves for the backward pass, and nobody else looks at. What was chosen
/// stays when it is chosen again without these.
BOLT_API void choose_layouts(graph::Graph& graph, const PlanOptions& options,
                             const std::vector<int>& free_outputs = {});

}  // namespace bolt::loops
