// lower/lowerings/nn.cpp
// Rows for contractions, normalisations, attention and pooling.
#include <c10/util/ArrayRef.h>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/slides.h"
#include "record/convert.h"

namespace bolt::lower {
namespace {

using record::to_bolt;

bool floating(Value* v) { return is_float(v->type.dtype); }

std::vector<Value*> linear(Call& c) {
  Value *x = c.tensor("input"), *weight = c.tensor("weight");
  if (!floating(x) || x->type.rank() == 0 || weight->type.rank() != 2) return {};
  Value* bias = c.has("bias") ? c.tensor("bias") : nullptr;
  if (bias && bias->type.sizes == Syms{weight->type.sizes[0]})
    return {c.make(Op::linear, std::vector<Value*>{x, weight, bias})};
  if (bias && bias->type.dtype != x->type.dtype) return {};
  Value* product = c.make(Op::linear, std::vector<Value*>{x, weight});
  return {bias ? c.make(Op::add, {product, bias}) : product};  // one number, or a row's own
}

// matmul's rule for 1-d operands: a row or a column that is dropped again.
std::vector<Value*> contraction(Call& c, const char* left, const char* right) {
  Value *a = c.tensor(left), *b = c.tensor(right);
  if (!floating(a) || a->type.dtype != b->type.dtype || a->type.rank() == 0 || b->type.rank() == 0) return {};
  auto grown = [&](Value* v, bool front) {
    Syms s = v->type.sizes;
    s.insert(front ? s.begin() : s.end(), 1);
    return c.make(Op::reshape, {v}, {{"sizes", s}});
  };
  const bool row = a->type.rank() == 1, column = b->type.rank() == 1;
  if (row) a = grown(a, true);
  if (column) b = grown(b, false);
  Value* product = c.make(Op::matmul, {a, b});
  Syms sizes = product->type.sizes;
  if (column) sizes.pop_back();
  if (row) sizes.erase(sizes.end() - (column ? 1 : 2));
  return {c.reshape(product, sizes)};
}
std::vector<Value*> matmul(Call& c) { return contraction(c, "self", "other"); }
std::vector<Value*> mm(Call& c) { return contraction(c, "self", "mat2"); }
std::vector<Value*> mv(Call& c) { return contraction(c, "self", "vec"); }
std::vector<Value*> dot(Call& c) {
  return contraction(c, "self", c.name() == "aten::vdot" ? "other" : "tensor");
}

/// The sum as part of the product, which is rounded once with it. No pass may put them together again, since
/// an addition by itself, of a product that has been rounded, looks the same.
Value* with_bias(Call& c, Value* product) {
  Value* bias = c.tensor("self");
  const bool is_sum = !c.is_symbolic("alpha") && !c.is_symbolic("beta") && c.scalar("alpha").equal(1) &&
                      c.scalar("beta").equal(1);
  if (!is_sum || product->def->op != Op::matmul || product->def->operands[1]->type.rank() != 2 ||
      bias->type.sizes != Syms{product->type.sizes.back()})
    return nullptr;
  Value* weight = c.make(Op::permute, {product->def->operands[1]}, {{"dims", Syms{1, 0}}});
  return c.make(Op::linear, {product->def->operands[0], weight, bias});
}

// beta * self + alpha * product
std::vector<Value*> added(Call& c, Value* product) {
  Value* p = c.times(product, "alpha");
  if (c.scalar("beta").equal(0)) return {p};
  return {c.make(Op::add, {p, c.times(c.tensor("self"), "beta")})};
}

// beta * self + alpha * (a @ b)
std::vector<Value*> add_product(Call& c, const char* left, const char* right) {
  auto product = contraction(c, left, right);
  if (product.empty() || c.tensor("self")->type.dtype != product[0]->type.dtype) return {};
  if (c.rounds_as_eager)
    if (Value* linear = with_bias(c, product[0])) return {linear};
  return added(c, product[0]);
}
std::vector<Value*> addmm(Call& c) { return add_product(c, "mat1", "mat2"); }
std::vector<Value*> addmv(Call& c) { return add_product(c, "mat", "vec"); }
std::vector<Value*> baddbmm(Call& c) { return add_product(c, "batch1", "batch2"); }

/// beta * self + alpha * the sum of a batch of products, which is one product: side by side, one below the
/// other. On the processor ATen adds each product to the result where that lies, and copies nothing.
std::vector<Value*> addbmm(Call& c) {
  const Syms &a = c.sizes("batch1"), &b = c.sizes("batch2");
  if (graph::is_processor(c.result_device())) return {};
  if (c.rounds_as_eager && is_half(c.result_dtype())) return {};  // ATen rounds the sum at each product
  if (!is_float(c.result_dtype()) || product(a).is_const(0) || product(b).is_const(0)) return {};
  Value* side_by_side = c.make(Op::permute, {c.tensor("batch1")}, {{"dims", Syms{1, 0, 2}}});
  Value* sum = c.make(Op::matmul, {c.reshape(side_by_side, {a[1], a[0] * a[2]}),
                                   c.reshape(c.tensor("batch2"), {b[0] * b[1], b[2]})});
  return added(c, sum);
}

Attrs conv_attrs(const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                 const std::vector<int64_t>& dilation, bool transposed,
                 const std::vector<int64_t>& output_padding, int64_t groups, size_t spatial) {
  auto full = [&](std::vector<int64_t> v) {
    if (v.size() == 1) v.resize(spatial, v[0]);
    return Call::syms(v);
  };
  return {{"stride", full(stride)},
          {"padding", full(padding)},
          {"dilation", full(dilation)},
          {"transposed", transposed},
          {"output_padding", full(output_padding)},
          {"groups", groups}};
}
std::vector<Value*> conv_node(Call& c, const char* x_name, Attrs attrs) {
  Value* x = c.tensor(x_name);
  size_t spatial = c.sizes("weight").size() - 2;
  // Without a batch dimension eager adds one and drops it.
  bool batched = x->type.rank() == static_cast<int>(spatial) + 2;
  if (!floating(x)) return {};
  if (!batched) {
    auto s = x->type.sizes;
    s.insert(s.begin(), 1);
    x = c.make(Op::reshape, {x}, {{"sizes", s}});
  }
  std::vector<Value*> operands{x, c.tensor("weight")};
  if (c.has("bias")) operands.push_back(c.tensor("bias"));
  Value* y = c.make(Op::conv, operands, std::move(attrs));
  if (batched) return {y};
  return {c.reshape(y, {y->type.sizes.begin() + 1, y->type.sizes.end()})};
}
std::vector<Value*> conv(Call& c) {
  size_t spatial = c.sizes("weight").size() - 2;
  return conv_node(c, "input",
                   conv_attrs(c.integers("stride"), c.integers("padding"), c.integers("dilation"), false, {0},
                              c.integer("groups"), spatial));
}
std::vector<Value*> conv_padded(Call& c) {  // padding by name
  size_t spatial = c.sizes("weight").size() - 2;
  std::vector<int64_t> padding(spatial, 0), dilation = c.integers("dilation");
  if (dilation.size() == 1) dilation.resize(spatial, dilation[0]);
  if (c.text("padding") == "same")
    for (size_t i = 0; i < spatial; ++i) {
      int64_t total = dilation[i] * (c.sizes("weight")[i + 2].value() - 1);
      if (total % 2) return {};  // uneven: eager pads by hand
      padding[i] = total / 2;
    }
  return conv_node(
      c, "input",
      conv_attrs(c.integers("stride"), padding, dilation, false, {0}, c.integer("groups"), spatial));
}
std::vector<Value*> conv_transpose(Call& c) {
  size_t spatial = c.sizes("weight").size() - 2;
  return conv_node(c, "input",
                   conv_attrs(c.integers("stride"), c.integers("padding"), c.integers("dilation"), true,
                              c.integers("output_padding"), c.integer("groups"), spatial));
}
std::vector<Value*> convolution(Call& c) {
  size_t spatial = c.sizes("weight").size() - 2;
  return conv_node(
      c, "input",
      conv_attrs(c.integers("stride"), c.integers("padding"), c.integers("dilation"), c.flag("transposed"),
                 c.integers("output_padding"), c.integer("groups"), spatial));
}

std::vector<Value*> sdpa(Call& c) {
  if (c.number("dropout_p") != 0) return {};
  Value *q = c.tensor("query"), *k = c.tensor("key"), *v = c.tensor("value");
  if (q->type.rank() < 3 || k->type.rank() != q->type.rank() || v->type.rank() != q->type.rank()) return {};
  for (Value* each : {q, k, v})  // then the result is as large as the queries, broadcast or not
    if (each->type.numel().is_const(0)) return {};
  std::vector<Value*> operands{q, k, v};
  if (c.has("attn_mask")) {
    Value* mask = c.tensor("attn_mask");
    if (mask->type.dtype != DType::Bool && mask->type.dtype != q->type.dtype) return {};
    operands.push_back(mask);
  }
  const bool grouped = c.has("enable_gqa") && c.flag("enable_gqa");
  const size_t heads = q->type.sizes.size() - 3;
  if (grouped && k->type.sizes[heads] != v->type.sizes[heads]) return {};  // ATen has groups of either kind
  Attrs attrs{{"causal", c.flag("is_causal")}, {"enable_gqa", grouped}};
  if (c.is_symbolic("scale") && !is_half(q->type.dtype)) {
    operands[0] = c.times(q, "scale");
    attrs["scale"] = 1.0;
  } else if (c.has("scale")) {
    attrs["scale"] = c.number("scale");
  }
  return {c.make(Op::sdpa, operands, std::move(attrs))};
}

std::vector<Value*> softmax_like(Call& c, Op op) {
  Value* x = c.cast(c.tensor("self"), c.result_dtype());
  if (!floating(x) || x->type.rank() == 0) return {};
  return {c.make(op, {x}, {{"dim", Call::wrap(c.integer("dim"), x->type.rank())}})};
}
std::vector<Value*> softmax(Call& c) { return softmax_like(c, Op::softmax); }
/// Along the last dimension ATen has the sums and their logarithms in the type of what it is given, on the
/// processor.
std::vector<Value*> log_softmax(Call& c) {
  const DType t = c.result_dtype();
  const int64_t last = c.rank("self") - 1;
  if (!c.rounds_as_eager || !is_half(t) || !graph::is_processor(c.result_device()) || last < 0 ||
      Call::wrap(c.integer("dim"), last + 1) != last)
    return softmax_like(c, Op::log_softmax);
  const Formula f(c);
  const Term x = f("self");
  const Term shifted = x - x.reduced(Op::amax, {Sym(last)}, true);
  const Term sum = exp(shifted).sum({Sym(last)}).as(t).as(f.type());
  return f.only(shifted - log(sum).as(t).as(f.type()));
}

// Appends weight and bias where given and says so in the attributes.
void add_affine(Call& c, std::vector<Value*>& operands, Attrs& attrs) {
  attrs["has_weight"] = c.has("weight");
  attrs["has_bias"] = c.has("bias");
  if (c.has("weight")) operands.push_back(c.tensor("weight"));
  if (c.has("bias")) operands.push_back(c.tensor("bias"));
}
bool same_dtypes(const std::vector<Value*>& vs) {
  for (Value* v : vs)
    if (v->type.dtype != vs[0]->type.dtype) return false;
  return true;
}

std::vector<Value*> layer_norm(Call& c) {
  if (c.is_symbolic("eps")) return native_layer_norm(c);
  std::vector<Value*> operands{c.tensor("input")};
  Attrs attrs{{"normalized_rank", static_cast<int64_t>(c.integers("normalized_shape").size())},
              {"eps", c.number("eps")}};
  add_affine(c, operands, attrs);
  if (!floating(operands[0]) || !same_dtypes(operands)) return {};
  return {c.make(Op::layer_norm, operands, std::move(attrs))};
}
/// Computed in the type of whichever is wider, the input or the weight, and given in the input's: models
/// under autocast have half inputs and whole weights.
std::vector<Value*> rms_norm(Call& c) {
  if (c.is_symbolic("eps")) return native_rms_norm(c);
  Value* x = c.tensor("input");
  if (!floating(x)) return {};
  const DType given = x->type.dtype;
  Value* weight = c.has("weight") ? c.tensor("weight") : nullptr;
  if (weight && !floating(weight)) return {};
  DType wide = given;
  if (weight && weight->type.dtype != given)
    wide = given == DType::F64 || weight->type.dtype == DType::F64 ? DType::F64 : DType::F32;
  std::vector<Value*> operands{c.cast(x, wide)};
  if (weight) operands.push_back(c.cast(weight, wide));
  const double eps = c.has("eps") ? c.number("eps") : rms_norm_epsilon(given);
  Value* y = c.make(
      Op::rms_norm, operands,
      {{"normalized_rank", static_cast<int64_t>(c.integers("normalized_shape").size())}, {"eps", eps}});
  return {c.cast(y, given)};
}
std::vector<Value*> group_norm(Call& c) {
  if (c.is_symbolic("eps")) return native_group_norm(c);
  std::vector<Value*> operands{c.tensor("input")};
  Attrs attrs{{"groups", c.integer("num_groups")}, {"eps", c.number("eps")}};
  add_affine(c, operands, attrs);
  if (!floating(operands[0]) || !same_dtypes(operands)) return {};
  if (!fills_vectors(c, "input", c.integer("num_groups"))) return {};
  return {c.make(Op::group_norm, operands, std::move(attrs))};
}
std::vector<Value*> by_running_statistics(Call& c) {
  if (!c.has("running_mean") || !c.has("running_var")) return {};
  std::vector<Value*> operands{c.tensor("input"), c.tensor("running_mean"), c.tensor("running_var")};
  Attrs attrs{{"eps", c.number("eps")}};
  add_affine(c, operands, attrs);
  if (!floating(operands[0]) || !same_dtypes(operands)) return {};
  return {c.make(Op::batch_norm, operands, std::move(attrs))};
}
std::vector<Value*> batch_norm(Call& c) {
  return c.flag("training") || c.is_symbolic("eps") ? native_batch_norm(c) : by_running_statistics(c);
}

// Each channel of each image by itself: groups of one channel. Where running statistics are
// written it is ATen's.
std::vector<Value*> instance_norm(Call& c) {
  if (!c.flag("use_input_stats")) {
    std::vector<Value*> made = by_running_statistics(c);
    if (!made.empty()) made.resize(3);
    return made;
  }
  Value* x = c.tensor("input");
  if (c.has("running_mean") || c.has("running_var") || x->type.rank() < 3 || !floating(x)) return {};
  std::vector<Value*> operands{x};
  Attrs attrs{{"groups", x->type.sizes[1].value()}, {"eps", c.number("eps")}};
  add_affine(c, operands, attrs);
  if (!same_dtypes(operands)) return {};
  return {c.make(Op::group_norm, operands, std::move(attrs)), nullptr, nullptr};
}

// v * (g / |v|), the norm over all dimensions but one (dim -1: over all). Of parameters it is folded, and the
// layer's weight is a constant again.
std::vector<Value*> weight_norm(Call& c) {
  Value *v = c.tensor("v"), *g = c.tensor("g");
  const int64_t kept = c.integer("dim");
  if (!floating(v) || v->type.dtype != g->type.dtype) return {};
  const DType t = compute_type(v->type.dtype);
  Syms dims;
  for (int64_t d = 0; d < v->type.rank(); ++d)
    if (d != kept) dims.push_back(d);
  Value* x = c.cast(v, t);
  Value* squares = c.make(Op::sum, {c.make(Op::mul, {x, x})}, {{"dims", dims}, {"keepdim", kept >= 0}});
  Value* scale = c.make(Op::div, {c.cast(g, t), c.make(Op::sqrt, {squares})});
  return {c.cast(c.make(Op::mul, {x, scale}), v->type.dtype)};
}

/// Images [N, C, ...] of as many dimensions as the argument has numbers?
bool takes_images(Call& c, const char* name) {
  const Value* x = c.tensor("self");
  return is_float(x->type.dtype) && x->type.rank() == static_cast<int>(c.integers(name).size()) + 2;
}
Syms of_windows(Call& c, const char* name) {
  return Call::syms(per_dim(c, name, c.integers("kernel_size").size()));
}
Attrs windows_of(Call& c) {
  return {{"kernel", of_windows(c, "kernel_size")},
          {"stride", of_windows(c, c.integers("stride").empty() ? "kernel_size" : "stride")},
          {"padding", of_windows(c, "padding")},
          {"ceil", c.flag("ceil_mode")}};
}
std::vector<Value*> max_pool(Call& c) {
  if (!takes_images(c, "kernel_size")) return {};
  Attrs attrs = windows_of(c);
  attrs.emplace("dilation", of_windows(c, "dilation"));
  return {c.make(Op::max_pool, {c.tensor("self")}, std::move(attrs))};
}
std::vector<Value*> avg_pool(Call& c) {
  if (!takes_images(c, "kernel_size") || c.has("divisor_override")) return {};
  Attrs attrs = windows_of(c);
  attrs.emplace("count_include_pad", c.flag("count_include_pad"));
  return {c.make(Op::avg_pool, {c.tensor("self")}, std::move(attrs))};
}
std::vector<Value*> adaptive_avg_pool(Call& c) {
  if (!takes_images(c, "output_size")) return {};
  return {
      c.make(Op::adaptive_avg_pool, {c.tensor("self")}, {{"sizes", Call::syms(c.integers("output_size"))}})};
}

}  // namespace

void add_nn(Table& t) {
  const RowsByName row{t};
  row(linear, {"linear"});
  row(matmul, {"matmul"});
  row(mm, {"mm", "bmm"});
  row(mv, {"mv"});
  row(dot, {"dot", "vdot"});
  row(addmm, {"addmm"});
  row(addmv, {"addmv"});
  row(baddbmm, {"baddbmm"});
  row(addbmm, {"addbmm"});
  row(conv, {"conv1d", "conv2d", "conv3d"});
  row(conv_padded, {"conv1d.padding", "conv2d.padding", "conv3d.padding"});
  row(conv_transpose, {"conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input"});
  row(convolution, {"convolution"});
  row(sdpa, {"scaled_dot_product_attention"});
  row(softmax, {"softmax.int", "_softmax", "special_softmax"});
  row(log_softmax, {"log_softmax.int", "_log_softmax"});
  row(layer_norm, {"layer_norm"});
  row(rms_norm, {"rms_norm"});
  row(group_norm, {"group_norm"});
  row(batch_norm, {"batch_norm"});
  row(instance_norm, {"instance_norm"});
  row(weight_norm, {"_weight_norm"});
  row(max_pool, {"max_pool1d", "max_pool2d", "max_pool3d"});
  row(avg_pool, {"avg_pool1d", "avg_pool2d", "avg_pool3d"});
  row(adaptive_avg_pool, {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
                          "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"});
}

}  // namespace bolt::lower
