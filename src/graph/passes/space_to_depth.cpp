// graph/passes/space_to_depth.cpp
// Convolutions of few channels that step over pixels -> of the pixels of each step as channels
//
//   conv(x[N, 3, H, W], w[O, 3, 7, 7]) {stride=[2, 2]}
//     -> conv(parted(x)[N, 16, H', W'], parted(w)[O, 16, 4, 4]) {stride=[1, 1]}
//
//   parted(x): padded as the convolution pads, seen as [N, 3, H', 2, W', 2], its pixels of a step beside its
//   channels, and zeros behind those up to whole accesses of the device
//
// A library pads three channels to eight, in a pass of its own, and then multiplies with zeros for the most
// part: the first convolution of a ResNet takes as long as the next ten. Parted, what is multiplied are
// pixels, and the image is written so by the kernel that makes it. Zeros are added to sums: results are the
// same. Only forward: gradients are a call of the library with arguments of its own.
#include <algorithm>
#include <optional>

#include "graph/convolution.h"
#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

constexpr int64_t kWholeAccess = 8;

class Parting {
 public:
  Parting(Graph& g, Node* conv) : m_(g, conv), conv_(conv) {}

  /// nullptr: it is not worth it.
  Value* made() {
    if (!few_channels() || !steps()) return nullptr;
    Value *x = conv_->operands[0], *w = conv_->operands[1];
    for (size_t d = 0; d < stride_.size(); ++d) {
      const int64_t low = padding_[d], taps = (kernel(d) + stride_[d] - 1) / stride_[d];
      const int64_t wanted = (conv_->out()->type.sizes[d + 2].value() + taps - 1) * stride_[d];
      x = spread(x, d, low, wanted - low - x->type.sizes[d + 2].value());
      w = spread(w, d, 0, taps * stride_[d] - kernel(d));
    }
    Attrs attrs = conv_->attrs;
    attrs["stride"] = Syms(stride_.size(), 1);
    attrs["padding"] = Syms(stride_.size(), 0);
    Value* y = m_.make(Op::conv, {parted(x), parted(w)}, std::move(attrs));
    y->type.strides = conv_->out()->type.strides;
    return y;
  }

 private:
  int64_t kernel(size_t d) const { return conv_->operands[1]->type.sizes[d + 2].value(); }

  bool few_channels() const {
    const auto call = convolution_of(*conv_);
    if (!call || call->backward || conv_->operands.size() != 2 || !is_half(call->image->dtype)) return false;
    const Device on = conv_->out()->type.device;
    if (!facts_of(on).pads_channels || !channels_last_on(on).given) return false;
    if (conv_->attr<bool>("transposed") || conv_->has_attr("padding_end")) return false;
    const Syms &x = call->image->sizes, &y = conv_->out()->type.sizes;
    const auto known = [](Sym s) { return s.is_const() && s.value() > 0; };
    return x.size() == 4 && std::all_of(x.begin() + 1, x.end(), known) &&
           std::all_of(y.begin() + 1, y.end(), known) && std::ranges::all_of(call->weight->sizes, known) &&
           call->groups().is_const(1) && x[1].value() > 1 && x[1].value() <= kFewChannels;
  }
  /// Over pixels that other windows read.
  bool steps() {
    stride_ = conv_->ints("stride");
    padding_ = conv_->ints("padding");
    const auto dilation = conv_->ints("dilation");
    for (size_t d = 0; d < stride_.size(); ++d)
      if (dilation[d] != 1 || kernel(d) < stride_[d]) return false;
    return std::ranges::any_of(stride_, [](int64_t s) { return s > 1; });
  }

  /// With so many zeros before and behind; less than none: without the last pixels, which no window reads.
  Value* spread(Value* v, size_t d, int64_t low, int64_t high) const {
    if (high < 0) {
      v = m_.slice(v, static_cast<int64_t>(d) + 2, 0, v->type.sizes[d + 2] + Sym(high));
      high = 0;
    }
    return padded(v, d + 2, low, high);
  }
  Value* padded(Value* v, size_t dim, int64_t low, int64_t high) const {
    if (low == 0 && high == 0) return v;
    Syms before(static_cast<size_t>(v->type.rank()), 0), behind = before;
    before[dim] = low;
    behind[dim] = high;
    return m_.make(Op::pad, {v}, {{"low", before}, {"high", behind}, {"value", 0.0}});
  }

  /// [N, C, H * s, W * s] -> [N, C * s * s and zeros, H, W]
  Value* parted(Value* v) const {
    const Syms& is = v->type.sizes;
    const auto n = static_cast<int64_t>(stride_.size());
    Syms split{is[0], is[1]}, dims{0, 1}, sizes{is[0], is[1]};
    for (int64_t d = 0; d < n; ++d) {
      const int64_t step = stride_[d];
      const Sym pixels = floordiv(is[static_cast<size_t>(d) + 2], Sym(step));
      split.insert(split.end(), {pixels, Sym(step)});
      dims.push_back(3 + 2 * d);
      sizes[1] *= Sym(step);
      sizes.push_back(pixels);
    }
    for (int64_t d = 0; d < n; ++d) dims.push_back(2 + 2 * d);
    Value* turned = m_.make(Op::permute, {m_.reshape(v, split)}, {{"dims", dims}});
    const int64_t channels = sizes[1].value();
    return padded(m_.reshape(turned, sizes), 1, 0,
                  (channels + kWholeAccess - 1) / kWholeAccess * kWholeAccess - channels);
  }

  Maker m_;
  Node* conv_;
  std::vector<int64_t> stride_, padding_;
};

}  // namespace

bool space_to_depth(Graph& g) {
  return rewrite(
      g, [&](Node* node) -> Value* { return node->op == Op::conv ? Parting(g, node).made() : nullptr; });
}

}  // namespace bolt::graph
