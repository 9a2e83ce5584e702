// graph/passes/pad_groups.cpp
// Convolutions of groups of a width that the library has no kernels for -> the same of wider groups, and a
// view of it
//
//   conv(x[N, 12 * 24, H, W], w)       -> cut(conv(padded(x)[N, 12 * 32, H, W], padded(w)))
//   convolution_backward(g, x, w)      -> cut(convolution_backward(padded(g), padded(x), padded(w)))
//
//   padded(x): reshape to [N, 12, 24, H, W], pad to 32 channels with zeros, reshape to [N, 12 * 32, H, W]
//
// cuDNN has kernels that read channels where they lie for groups of 8, 16, 32 channels and so on. Images of
// other groups it turns round and pads itself, in passes of their own, there and back, for each of the three
// tensors of a backward pass. What is padded here is written so by the kernel that makes it, and who reads
// the result reads the channels that count. Zeros are added to sums: results are the same.
#include <initializer_list>
#include <optional>
#include <vector>

#include "graph/convolution.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

/// Channels a group, as they are and as there are kernels for.
struct Width {
  int64_t is, padded;
};
struct Widths {
  int64_t groups;
  Width in, out;
};

std::optional<Widths> widths_of(const Node& node) {
  const auto call = convolution_of(node);
  if (!call || !channels_last_on(node.out()->type.device).given || !is_half(call->image->dtype)) return {};
  if (call->is_transposed() || node.attr_or<bool>("transposed", false)) return {};
  if (call->image->rank() != 4 || call->weight->rank() != 4 || node.operands.size() > 3) return {};
  const Sym in = call->image->sizes[1], groups = call->groups();
  if (!in.is_const() || !call->channels.is_const() || !groups.is_const() || groups.value() <= 1) return {};
  if (call->is_depthwise()) return {};
  const int64_t n = groups.value(), wide = in.value() / n, gives = call->channels.value() / n;
  const auto to_in = width_of_groups(*call, wide), to_out = width_of_groups(*call, gives);
  if (!to_in || !to_out || (*to_in == wide && *to_out == gives)) return {};
  return Widths{n, {wide, *to_in}, {gives, *to_out}};
}

/// Puts channels behind those of each group, and takes them away again: [.., groups * width, ..] is seen as
/// [.., groups, width, ..] meanwhile. Of weights, [groups * out, in, ..], the dimension behind has a width,
/// too.
class Groups {
 public:
  Groups(const Maker& maker, int64_t groups) : maker_(maker), groups_(groups) {}

  Value* padded(Value* v, size_t dim, std::initializer_list<Width> widths) const {
    Value* parted = maker_.reshape(v, split(v, dim, widths.begin()->is));
    Syms none(static_cast<size_t>(parted->type.rank()), 0), more = none;
    size_t d = dim;
    for (const Width& w : widths) more[++d] = w.padded - w.is;
    if (more == none) return v;
    Value* wide = maker_.make(Op::pad, {parted}, {{"low", none}, {"high", more}, {"value", 0.0}});
    return maker_.reshape(wide, joined(wide, dim));
  }
  Value* cut(Value* v, size_t dim, std::initializer_list<Width> widths) const {
    Value* part = maker_.reshape(v, split(v, dim, widths.begin()->padded));
    size_t d = dim;
    for (const Width& w : widths) {
      ++d;
      if (w.is != w.padded) part = maker_.slice(part, static_cast<int64_t>(d), 0, w.is);
    }
    return maker_.reshape(part, joined(part, dim));
  }

 private:
  Syms split(const Value* v, size_t dim, int64_t width) const {
    Syms sizes = v->type.sizes;
    sizes[dim] = groups_;
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(dim) + 1, width);
    return sizes;
  }
  static Syms joined(const Value* v, size_t dim) {
    Syms sizes = v->type.sizes;
    sizes[dim] *= sizes[dim + 1];
    sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(dim) + 1);
    return sizes;
  }

  const Maker& maker_;
  int64_t groups_;
};

Value* padded_forward(Graph& g, Node* node, const Widths& widths) {
  const Maker maker(g, node);
  const Groups groups(maker, widths.groups);
  std::vector<Value*> operands = {groups.padded(node->operands[0], 1, {widths.in}),
                                  groups.padded(node->operands[1], 0, {widths.out, widths.in})};
  if (node->operands.size() > 2) operands.push_back(groups.padded(node->operands[2], 0, {widths.out}));
  return lying_as(groups.cut(maker.make(Op::conv, std::move(operands), node->attrs), 1, {widths.out}),
                  node->out());
}

std::vector<Value*> padded_backward(Graph& g, Node* node, const Widths& widths) {
  const Maker maker(g, node);
  const Groups groups(maker, widths.groups);
  Value *image = groups.padded(node->operands[1], 1, {widths.in}),
        *weight = groups.padded(node->operands[2], 0, {widths.out, widths.in});
  // It gives those gradients that are asked for.
  const auto is_image = [&](const auto& out) { return out->type.sizes == node->operands[1]->type.sizes; };
  std::vector<Type> types;
  for (const auto& out : node->outputs) {
    Type type = out->type;
    type.sizes = (is_image(out) ? image : weight)->type.sizes;
    type.strides = contiguous_strides(type.sizes);
    types.push_back(std::move(type));
  }
  const Node* wide =
      g.make_typed(Op::extern_call, {groups.padded(node->operands[0], 1, {widths.out}), image, weight},
                   node->attrs, std::move(types), node->loc, node);
  std::vector<Value*> made;
  for (size_t i = 0; i < node->outputs.size(); ++i) {
    const auto& out = node->outputs[i];
    Value* v = wide->out(static_cast<int>(i));
    made.push_back(
        lying_as(is_image(out) ? groups.cut(v, 1, {widths.in}) : groups.cut(v, 0, {widths.out, widths.in}),
                 out.get()));
  }
  return made;
}

}  // namespace

bool pad_groups(Graph& g) {
  return rewrite_results(g, [&](Node* node) -> std::vector<Value*> {
    const auto widths = widths_of(*node);
    if (!widths) return {};
    if (node->op == Op::conv) return {padded_forward(g, node, *widths)};
    return padded_backward(g, node, *widths);
  });
}

}  // namespace bolt::graph
