// graph/passes/convolutions.cpp
// Convolutions that are matrix products become `linear`, others a multiplication, and the bias an addition:
//
//   conv(x, w), one pixel comes out      -> linear(x as rows, w as rows): the taps that meet the image, all
//   of
//                                           it in one row. Libraries would change the layout of a weight as
//                                           large as that in every call.
//   conv(x, w), patches of few channels  -> linear(patches as rows, w as rows), where the library pads three
//                                           channels to eight, which copies the image just as the rows do
//   conv(x, w), a channel at a time, of  -> mul(x, w), which whoever reads it computes on the way
//   single pixels
//   conv(x, w, b)                        -> add(conv(x, w), b), where the library adds the bias in a pass of
//                                           its own, and a kernel has more to do with the result
//
// The row's order is that of the weight in memory, so that of the larger operand no copy is made. After
// fold_batch_norm, which looks for convolutions.
#include <algorithm>

#include "graph/convolution.h"
#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

/// The taps of a window that meet the image, and where they meet it.
struct Taps {
  int64_t first = 0, count = 0, place = 0, step = 1;
};

/// Convolutions whose windows are whole rows of a product.
class Product {
 public:
  Product(Graph& g, Node* conv) : m_(g, conv), conv_(conv), x_(conv->operands[0]), w_(conv->operands[1]) {}

  Value* made() {
    if (conv_->attr<bool>("transposed") || conv_->attr<int64_t>("groups") != 1) return nullptr;
    const Syms &x = x_->type.sizes, &w = w_->type.sizes;
    if (x.size() < 3 || !all_known({x.begin() + 1, x.end()}) || !all_known(w) ||
        !all_known(conv_->out()->type.strides))
      return nullptr;
    if (x_->type.numel().is_const(0) || w_->type.numel().is_const(0)) return nullptr;
    if (one_pixel()) return from_image();
    const bool padded = facts_of(conv_->out()->type.device).pads_channels;
    return padded && x[1].value() <= kFewChannels && tiles() ? from_patches() : nullptr;
  }

 private:
  size_t dims() const { return x_->type.sizes.size() - 2; }
  int64_t size(size_t d) const { return x_->type.sizes[d + 2].value(); }
  int64_t kernel(size_t d) const { return w_->type.sizes[d + 2].value(); }

  bool one_pixel() const {
    const Syms& y = conv_->out()->type.sizes;
    return std::all_of(y.begin() + 2, y.end(), [](Sym s) { return s.is_const(1); });
  }
  /// Does each pixel belong to one window?
  bool tiles() const {
    const auto stride = conv_->ints("stride"), padding = conv_->ints("padding"),
               dilation = conv_->ints("dilation");
    if (conv_->has_attr("padding_end")) return false;
    for (size_t d = 0; d < dims(); ++d)
      if (stride[d] != kernel(d) || padding[d] != 0 || dilation[d] != 1 || size(d) % kernel(d) != 0)
        return false;
    return true;
  }

  Taps taps(size_t d) const {
    const int64_t pad = conv_->ints("padding")[d], step = conv_->ints("dilation")[d];
    Taps t;
    t.step = step;
    t.first = (pad + step - 1) / step;
    t.place = t.first * step - pad;
    const int64_t last = std::min(kernel(d) - 1, (size(d) - 1 + pad) / step);
    t.count = last - t.first + 1;
    return t;
  }
  Value* part(Value* v, size_t d, int64_t start, int64_t count, int64_t step) const {
    if (start == 0 && v->type.sizes[d + 2].is_const(count)) return v;
    return m_.slice(v, static_cast<int64_t>(d) + 2, start, count, step);
  }
  Value* permuted(Value* v, const Syms& dims) const {
    for (size_t d = 0; d < dims.size(); ++d)
      if (!dims[d].is_const(static_cast<int64_t>(d))) return m_.make(Op::permute, {v}, {{"dims", dims}});
    return v;
  }
  Value* rows(Value* v, size_t kept) const {
    Syms sizes(v->type.sizes.begin(), v->type.sizes.begin() + static_cast<std::ptrdiff_t>(kept));
    Sym row = 1;
    for (size_t d = kept; d < v->type.sizes.size(); ++d) row *= v->type.sizes[d];
    sizes.push_back(row);
    return m_.reshape(v, sizes);
  }
  /// All dimensions but the first, outermost in the weight's memory first.
  Syms order() const {
    std::vector<int64_t> dims;
    for (size_t d = 1; d < w_->type.sizes.size(); ++d) dims.push_back(static_cast<int64_t>(d));
    if (all_known(w_->type.strides) && !w_->type.is_contiguous())
      std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
        return w_->type.strides[a].value() > w_->type.strides[b].value();
      });
    Syms all{0};
    all.insert(all.end(), dims.begin(), dims.end());
    return all;
  }
  Value* product(Value* x, Value* w) const {
    std::vector<Value*> operands{x, w};
    if (conv_->operands.size() > 2) operands.push_back(conv_->operands[2]);
    return m_.make(Op::linear, operands);
  }
  Value* done(Value* v) const {
    if (v->def) v->type.strides = conv_->out()->type.strides;
    return v;
  }

  Value* from_image() const {
    Value *x = x_, *w = w_;
    for (size_t d = 0; d < dims(); ++d) {
      const Taps t = taps(d);
      if (t.count <= 0) return nullptr;
      w = part(w, d, t.first, t.count, 1);
      x = part(x, d, t.place, t.count, t.count == 1 ? 1 : t.step);
    }
    const Syms dims = order();
    return done(m_.reshape(product(rows(permuted(x, dims), 1), rows(permuted(w, dims), 1)),
                           conv_->out()->type.sizes));
  }

  /// [N, C, gh * kh, gw * kw] -> [N, gh, gw, C * kh * kw] and back.
  Value* from_patches() const {
    const Syms& y = conv_->out()->type.sizes;
    const size_t n = dims();
    Syms split{x_->type.sizes[0], x_->type.sizes[1]};
    for (size_t d = 0; d < n; ++d) split.insert(split.end(), {y[d + 2], Sym(kernel(d))});
    Syms dims{0}, back{0, static_cast<int64_t>(n) + 1};
    for (size_t d = 0; d < n; ++d) {
      dims.push_back(static_cast<int64_t>(2 + 2 * d));
      back.push_back(static_cast<int64_t>(d) + 1);
    }
    for (Sym of_weight : order()) {
      const int64_t d = of_weight.value();
      if (d > 0) dims.push_back(d == 1 ? 1 : 2 * d - 1);
    }
    Value* patches = rows(m_.make(Op::permute, {m_.reshape(x_, split)}, {{"dims", dims}}), n + 1);
    return done(m_.make(Op::permute, {product(patches, rows(permuted(w_, order()), 1))}, {{"dims", back}}));
  }

  Maker m_;
  Node* conv_;
  Value *x_, *w_;
};

/// A number for each channel, beside the convolution's result.
Value* along_channels(const Maker& m, const Node* conv, Value* numbers) {
  Syms along(conv->out()->type.sizes.size() - 1, Sym(1));
  along[0] = conv->out()->type.sizes[1];
  return m.reshape(numbers, along);
}
Value* with_bias(const Maker& m, const Node* conv, Value* y) {
  return lying_as(m.add(y, along_channels(m, conv, conv->operands[2])), conv->out());
}

/// Image, weight and result have the same channels, and each pixel is its own window.
bool scales_channels(const Node& conv) {
  if (conv.attr<bool>("transposed") || conv.has_attr("padding_end")) return false;
  const Syms &x = conv.operands[0]->type.sizes, &w = conv.operands[1]->type.sizes;
  if (x.size() < 3 || !x[1].is_const(conv.attr<int64_t>("groups")) || w[0] != x[1]) return false;
  const auto all = [&](std::string_view attribute, int64_t wanted) {
    const auto numbers = conv.ints(attribute);
    return std::ranges::all_of(numbers, [&](int64_t n) { return n == wanted; });
  };
  return std::all_of(w.begin() + 1, w.end(), [](Sym s) { return s.is_const(1); }) && all("stride", 1) &&
         all("padding", 0);
}
Value* as_scale(Graph& g, Node* conv) {
  if (!scales_channels(*conv)) return nullptr;
  // A library that adds the bias itself rounds once.
  const Type& out = conv->out()->type;
  const bool biased = conv->operands.size() > 2;
  if (biased && is_half(out.dtype) && !facts_of(out.device).adds_bias_apart) return nullptr;
  const Maker m(g, conv);
  Value* y = lying_as(m.mul(conv->operands[0], along_channels(m, conv, conv->operands[1])), conv->out());
  return biased ? with_bias(m, conv, y) : y;
}

Value* with_bias_behind(Graph& g, Node* conv) {
  if (conv->operands.size() < 3 || !facts_of(conv->out()->type.device).adds_bias_apart) return nullptr;
  const Maker m(g, conv);
  Value* y = m.make(Op::conv, {conv->operands[0], conv->operands[1]}, conv->attrs);
  return with_bias(m, conv, lying_as(y, conv->out()));
}

}  // namespace

bool convolutions(Graph& g) {
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op != Op::conv) return nullptr;
    if (Value* scaled = as_scale(g, node)) return scaled;
    if (Value* product = Product(g, node).made()) return product;
    return with_bias_behind(g, node);
  });
}

}  // namespace bolt::graph
