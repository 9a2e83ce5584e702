// loops/library_layout.h
// A call that a library computes -> how that library likes its images to lie.
#pragma once

#include "graph/ir.h"
#include "support/export.h"

namespace bolt::loops {

/// Does it work on images whose channels are innermost, and rearrange others on the way? Convolutions,
/// forward and backward, in cuDNN, or wherever the environment says so (TORCHBOLT_CHANNELS_LAST).
BOLT_API bool likes_channels_last(const graph::Node& call);

/// Does the library compute a relu of this convolution, with a bias and another image added, in about the
/// time that it takes without? cuDNN does, of images that it reads as they lie.
BOLT_API bool ends_in_library(const graph::Node& convolution);

/// May it add its sums to what it is to add, its last operand, where that lies? A convolution of single
/// pixels that ends in a relu, which a library multiplies as matrices then.
bool adds_in_place(const graph::Node& call);

/// Calls of ATen that work on images in any order, and whose results lie as these do.
bool follows_images(const graph::Node& call);

}  // namespace bolt::loops
