// loops/library_layout.h
// A call that a library computes -> how that library likes its images to lie.
#pragma once

#include "graph/ir.h"
#include "support/export.h"

namespace bolt::loops {

/// Does it work on images whose channels are innermost, and rearrange others on the way? Convolutions,
/// forward and backward, in cuDNN, or wherever the environment says so (TORCHBOLT_CHANNELS_LAST).
BOLT_API bool likes_channels_last(const graph::Node& call);

/// Does a library do what follows this product or convolution in about the time that it takes without? Of a
/// convolution: a relu of its sum with a bias and another image, as cuDNN does of images that it reads as
/// they lie; or the sum alone (Op::add), of single pixels, which are a multiplication of matrices.
BOLT_API bool ends_in_library(const graph::Node& call, graph::Op ending);

/// Is it such a multiplication, of a convolution with a bias and what is added? It may add to that, its last
/// operand, where it lies.
BOLT_API bool multiplies_and_adds(const graph::Node& call);

/// Calls of ATen that work on images in any order, and whose results lie as these do.
bool follows_images(const graph::Node& call);

}  // namespace bolt::loops
