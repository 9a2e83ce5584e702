// loops/library_layout.cpp
#include "loops/library_layout.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/convolution.h"
#include "graph/device_facts.h"
#include "support/text.h"

namespace bolt::loops {
namespace {

using graph::Convolution;
using graph::Node;
using graph::Op;
using graph::Type;

/// Tensor cores read channels that lie next to each other, so that cuDNN turns other images round, there and
/// back. Doubles have no such kernels; for floats they round to 10 bits, where the kernels that cuDNN takes
/// otherwise may not. Of groups it has kernels for some widths alone. Of images with one channel nothing
/// tells how they lie.
bool suits(const Convolution& call, bool asked_for) {
  const Type &image = *call.image, &weight = *call.weight;
  const DType t = image.dtype;
  if (t != DType::F16 && t != DType::BF16 && !(asked_for && t == DType::F32)) return false;
  if (weight.dtype != t || weight.rank() != image.rank() || (image.rank() != 4 && image.rank() != 5))
    return false;
  if (!image.sizes[1].is_const() || image.sizes[1].is_const(1)) return false;
  const Sym groups = call.groups();
  if (groups.is_const(1)) return true;
  // Of a few pixels cuDNN's only kernel channels-last is a launch for each channel: 400 us for 768 of 2x2.
  const bool is_small = std::ranges::all_of(image.sizes.begin() + 2, image.sizes.end(),
                                            [](Sym s) { return s.is_const() && s.value() <= 2; });
  // Of one that gives a channel more than one, too: 13 of them took 2.9 ms of FastViT's 5.2.
  if (call.is_depthwise()) return !is_small && call.channels == groups;
  const auto has = [&](Sym channels) {
    const Sym width = floordiv(channels, groups);
    return width.is_const() && width_of_groups(call, width.value()) == width.value();
  };
  return image.rank() == 4 && has(image.sizes[1]) && has(call.channels);
}

}  // namespace

bool likes_channels_last(const Node& call) {
  const auto convolution = graph::convolution_of(call);
  if (!convolution) return false;
  const graph::ChannelsLast lies = graph::channels_last_on(call.out()->type.device);
  return lies.given && suits(*convolution, lies.asked_for);
}

/// Each pixel of the result is a product of one of the image.
static bool is_of_single_pixels(const Node& convolution) {
  const auto all = [&](const char* attribute, int64_t value) {
    return std::ranges::all_of(convolution.ints(attribute), [&](int64_t n) { return n == value; });
  };
  const Syms& weight = convolution.operands[1]->type.sizes;
  return weight.size() == 4 && weight[2].is_const(1) && weight[3].is_const(1) &&
         weight[1] == convolution.operands[0]->type.sizes[1] && all("stride", 1) && all("padding", 0) &&
         !convolution.attr_or<bool>("transposed", false) && !convolution.has_attr("padding_end");
}

/// Rows of whole accesses.
static bool adds_in_library(const Node& convolution) {
  constexpr int64_t kTogether = 8;
  const auto are_whole = [](Sym channels) {
    return channels.is_const() && channels.value() % kTogether == 0;
  };
  return graph::facts_of(convolution.out()->type.device).products_add_in_place &&
         likes_channels_last(convolution) && is_of_single_pixels(convolution) &&
         are_whole(convolution.operands[0]->type.sizes[1]) && are_whole(convolution.out()->type.sizes[1]);
}

bool ends_in_library(const Node& convolution, Op ending) {
  if (convolution.op != Op::conv) return true;
  if (ending == Op::add) return adds_in_library(convolution);
  const auto call = graph::convolution_of(convolution);
  if (!call || call->backward || call->image->rank() != 4 || !likes_channels_last(convolution)) return false;
  if (convolution.attr_or<bool>("transposed", false) || convolution.has_attr("padding_end")) return false;
  // Of 411 convolutions of networks of images, on an H200, those that take far longer with an epilogue are of
  // one channel a group (20 times), of groups that give more than they are given (up to 7), of single pixels
  // to 96 or 104 channels (10), and of channels that are no multiple of 16 bytes (2). Of kernels larger than
  // these too little is known.
  constexpr int64_t kTogether = 8, kOfPixels = 64, kMostPixels = 4;
  const Syms& kernel = call->weight->sizes;
  if (kernel[2] != kernel[3] || !kernel[2].is_const() || kernel[2].value() > kMostPixels) return false;
  if (convolution.ints("dilation") != std::vector<int64_t>{1, 1}) return false;
  const auto are_whole = [](Sym channels, int64_t together) {
    return channels.is_const() && channels.value() % together == 0;
  };
  if (!call->groups().is_const(1) && (call->is_depthwise() || call->channels != call->image->sizes[1]))
    return false;
  return are_whole(call->image->sizes[1], kTogether) &&
         are_whole(call->channels, kernel[2].is_const(1) ? kOfPixels : kTogether);
}

bool multiplies_and_adds(const Node& call) {
  constexpr size_t kOperands = 4;  // image, weights, bias, what is added
  return call.op == Op::conv && call.operands.size() == kOperands &&
         graph::facts_of(call.out()->type.device).products_add_in_place && is_of_single_pixels(call);
}

bool follows_images(const Node& call) {
  static const std::vector<std::string_view> names = split(
      "aten::max_pool2d_with_indices aten::max_pool2d_with_indices_backward aten::avg_pool2d "
      "aten::avg_pool2d_backward aten::_adaptive_avg_pool2d aten::_adaptive_avg_pool2d_backward "
      "aten::upsample_bilinear2d aten::upsample_nearest2d aten::upsample_bilinear2d.vec "
      "aten::upsample_nearest2d.vec",
      ' ');
  return call.op == Op::extern_call &&
         std::ranges::find(names, call.attr<std::string>("name")) != names.end();
}

}  // namespace bolt::loops
