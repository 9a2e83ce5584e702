// loops/library_layout.cpp
#include "loops/library_layout.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/device_facts.h"
#include "support/knobs.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::Type;

bool is_backward(const Node& n) {
  return n.op == Op::extern_call && n.attr<std::string>("name") == "aten::convolution_backward" &&
         n.operands.size() >= 3;
}

/// Of a convolution of these images, by these weights, that gives so many channels.
Sym groups_of(const Type& image, const Type& weight, Sym channels) {
  const bool transposed = weight.sizes[0] != channels;
  return transposed ? floordiv(channels, weight.sizes[1]) : floordiv(image.sizes[1], weight.sizes[1]);
}

/// Tensor cores read channels that lie next to each other, so that cuDNN turns other images round, there and
/// back. Doubles have no such kernels; for floats they round to 10 bits, where the kernels that cuDNN takes
/// otherwise may not. Groups of a few channels each take many times as long channels-last. Of images with one
/// channel nothing tells how they lie.
bool suits(const Type& image, const Type& weight, Sym channels, bool asked_for) {
  const DType t = image.dtype;
  if (t != DType::F16 && t != DType::BF16 && !(asked_for && t == DType::F32)) return false;
  if (weight.dtype != t || weight.rank() != image.rank() || (image.rank() != 4 && image.rank() != 5))
    return false;
  if (!image.sizes[1].is_const() || image.sizes[1].is_const(1)) return false;
  const Sym groups = groups_of(image, weight, channels);
  if (groups.is_const(1)) return true;
  // Of a few pixels cuDNN's only kernel channels-last is a launch for each channel: 400 us for 768 of 2x2.
  const bool is_small = std::ranges::all_of(image.sizes.begin() + 2, image.sizes.end(),
                                            [](Sym s) { return s.is_const() && s.value() <= 2; });
  return groups == image.sizes[1] && !is_small;
}

}  // namespace

bool likes_channels_last(const Node& call) {
  if (call.outputs.empty() || (call.op != Op::conv && call.op != Op::extern_call)) return false;
  const std::string wanted = knob("TORCHBOLT_CHANNELS_LAST");
  const bool does_by_itself = graph::facts_of(call.out()->type.device).likes_channels_last;
  const bool asked_for = wanted != "auto";
  if (asked_for ? !knob_bool("TORCHBOLT_CHANNELS_LAST") : !does_by_itself) return false;
  if (call.op == Op::conv)
    return suits(call.operands[0]->type, call.operands[1]->type, call.out()->type.sizes[1], asked_for);
  if (!is_backward(call) || call.operands[0]->type.rank() < 3) return false;
  return suits(call.operands[1]->type, call.operands[2]->type, call.operands[0]->type.sizes[1], asked_for);
}

bool follows_images(const Node& call) {
  static constexpr std::string_view names[] = {"aten::max_pool2d_with_indices",
                                               "aten::max_pool2d_with_indices_backward",
                                               "aten::avg_pool2d",
                                               "aten::avg_pool2d_backward",
                                               "aten::_adaptive_avg_pool2d",
                                               "aten::_adaptive_avg_pool2d_backward",
                                               "aten::upsample_bilinear2d",
                                               "aten::upsample_nearest2d",
                                               "aten::upsample_bilinear2d.vec",
                                               "aten::upsample_nearest2d.vec"};
  return call.op == Op::extern_call &&
         std::find(std::begin(names), std::end(names), call.attr<std::string>("name")) != std::end(names);
}

}  // namespace bolt::loops
