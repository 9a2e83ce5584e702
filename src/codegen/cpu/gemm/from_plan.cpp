// codegen/cpu/gemm/from_plan.cpp
// planner's calls -> contractions; see from_plan.h
#include "codegen/cpu/gemm/from_plan.h"

#include <algorithm>

#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using graph::Op;
using graph::Type;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;

constexpr int64_t kMostPackedBytes = int64_t{128} << 20;  // an output layer over a large vocabulary

/// The cost rule, all of it. Measured on one core of a Zen 5 with bench/micro/gemm.py: packed products run at
/// 90-97 % of the peak where MKL behind at::linear reaches 40 %, and at 2-3 times its speed down to one row,
/// so that nothing but memory speaks for the library: packed weights are a second copy.
bool worth_it(const GemmKernel& gemm) {
  return gemm.n > 1 && gemm.n * gemm.k * dtype_bytes(gemm.weights) <= kMostPackedBytes;
}

/// Convolutions over channels-last images run at 85-97 % of the peak, 1.1 (3 x 3) to 3 times (1 x 1,
/// depthwise) as fast as oneDNN behind at::convolution. Not these: groups that leave most of a vector empty,
/// and images with channels apart, whose copy costs about as much as 128 multiplies per number unless there
/// is little of it.
bool worth_it(const ConvKernel& conv, int lanes) {
  const int64_t out = conv.out_channels / conv.groups;
  if (conv.depthwise()) return conv.x_channel == 1;
  if (conv.out_channels * (conv.in_channels / conv.groups) * conv.kernel_h * conv.kernel_w *
          dtype_bytes(conv.weights) >
      kMostPackedBytes)
    return false;
  if (conv.groups > 1 && out < lanes) return false;
  const int64_t uses = out * conv.kernel_h * conv.kernel_w / (conv.stride_h * conv.stride_w);
  return conv.x_channel == 1 || conv.in_channels <= 4 || uses >= 128;
}

/// Rows of x[..., k] as one run of equally distant rows (m, its stride) inside of batch dimensions.
bool set_rows(GemmKernel* gemm, const Type& x) {
  const size_t rows = x.sizes.size() - 1;
  Sym m = 1, stride = gemm->k;
  size_t d = rows;
  for (; d > 0; --d) {
    const Sym size = x.sizes[d - 1], step = x.strides[d - 1];
    if (size.is_const(1)) continue;
    if (m.is_const(1)) {
      stride = step;
    } else if (step != m * stride) {
      break;
    }
    m *= size;
  }
  for (size_t outer = 0; outer < d; ++outer) {
    if (x.sizes[outer].is_const(1)) continue;
    if (!x.sizes[outer].is_const() || !x.strides[outer].is_const()) return false;
    gemm->batch.push_back({x.sizes[outer].value(), x.strides[outer].value(), 0});
  }
  if (!stride.is_const()) return false;
  gemm->m = m;
  gemm->a.row_stride = stride.value();
  return true;
}

std::optional<GemmKernel> linear_of(const loops::PlannedContraction& call) {
  const Type& x = call.operands[0];
  const Type& w = call.operands[1];
  if (!all_known(w.sizes) || x.rank() == 0) return std::nullopt;
  if (!x.strides.back().is_const(1) && !x.sizes.back().is_const(1)) return std::nullopt;
  GemmKernel gemm;
  gemm.name = "linear";
  gemm.n = w.sizes[0].value();
  gemm.k = w.sizes[1].value();
  gemm.a = {0, 0, 1, false};
  gemm.b = {1, 0, 0, true};
  if (gemm.n == 0 || gemm.k == 0 || !set_rows(&gemm, x)) return std::nullopt;
  const bool empty = gemm.m.is_const(0) || std::any_of(gemm.batch.begin(), gemm.batch.end(),
                                                       [](const BatchDim& d) { return d.size == 0; });
  if (empty) return std::nullopt;
  return gemm;
}

/// The stride of a dimension of size 1 means nothing, and may be an expression of other sizes: that of the
/// dense channels-last tensor instead.
Type with_known_strides(Type x) {
  Sym dense = x.sizes[1];
  for (size_t d = x.sizes.size(); d-- > 2;) {
    if (x.sizes[d].is_const(1) && !x.strides[d].is_const()) x.strides[d] = dense;
    dense *= x.sizes[d];
  }
  return x;
}

/// A convolution over one or two spatial dimensions; one is an image of height 1.
std::optional<ConvKernel> conv_of(const loops::PlannedContraction& call) {
  const Type x = with_known_strides(call.operands[0]);
  const Type& w = call.operands[1];
  const size_t spatial = x.sizes.size() - 2;
  if (x.rank() < 3 || x.rank() > 4 || call.node.attr<bool>("transposed")) return std::nullopt;
  if (!all_known(w.sizes) || !all_known(x.strides)) return std::nullopt;
  if (!all_known({x.sizes.begin() + 1, x.sizes.end()})) return std::nullopt;
  if (x.sizes[0].is_const(0) || w.numel().is_const(0) || x.sizes[1].is_const(0)) return std::nullopt;
  ConvKernel conv;
  conv.name = "conv";
  conv.images = x.sizes[0];
  conv.in_channels = x.sizes[1].value();
  conv.out_channels = w.sizes[0].value();
  conv.groups = call.node.attr<int64_t>("groups");
  conv.x_image = x.strides[0].value();
  conv.x_channel = conv.in_channels == 1 ? 1 : x.strides[1].value();

  const std::vector<int64_t> stride = call.node.ints("stride"), pad = call.node.ints("padding"),
                             dilation = call.node.ints("dilation"),
                             pad_end =
                                 call.node.has_attr("padding_end") ? call.node.ints("padding_end") : pad;
  const size_t last = spatial - 1;
  conv.width = x.sizes[2 + last].value();
  conv.x_col = x.strides[2 + last].value();
  conv.kernel_w = w.sizes[2 + last].value();
  conv.stride_w = stride[last];
  conv.pad_w = pad[last];
  conv.pad_end_w = pad_end[last];
  conv.dilation_w = dilation[last];
  conv.height = 1;
  conv.x_row = conv.width * conv.x_col;
  if (spatial == 2) {
    conv.height = x.sizes[2].value();
    conv.x_row = x.strides[2].value();
    conv.kernel_h = w.sizes[2].value();
    conv.stride_h = stride[0];
    conv.pad_h = pad[0];
    conv.pad_end_h = pad_end[0];
    conv.dilation_h = dilation[0];
  }
  const bool shown = conv.out_height() > 0 && conv.out_width() > 0;
  return shown ? std::optional(conv) : std::nullopt;
}

/// Everything that counts numbers along K counts words of two from here on; false where they do not pair.
bool halve(const std::vector<int64_t*>& numbers) {
  for (int64_t* n : numbers) {
    if (*n % 2 != 0) return false;
    *n /= 2;
  }
  return true;
}
bool make_pairs(GemmKernel* gemm) {
  gemm->pairs = true;
  for (BatchDim& dim : gemm->batch)
    if (!halve({&dim.a_stride})) return false;
  if (gemm->m.is_const(1)) gemm->a.row_stride = 0;
  return halve({&gemm->k, &gemm->a.row_stride});
}
bool make_pairs(ConvKernel* conv) {
  if (conv->x_channel != 1 || conv->in_channels / conv->groups % 2 != 0) return false;
  conv->pairs = true;
  if (conv->images.is_const(1)) conv->x_image = 0;
  return halve({&conv->in_channels, &conv->x_image, &conv->x_row, &conv->x_col});
}

template <class Shape>
bool set_numbers(Shape* shape, DType activations, DType weights) {
  if (activations == DType::F32) {
    shape->weights = weights;
    return compute_type(weights) == DType::F32;
  }
  return activations == DType::BF16 && make_pairs(shape);
}
bool set_conv_numbers(ConvKernel* conv, DType activations, DType weights) {
  if (!conv->depthwise()) return set_numbers(conv, activations, weights);
  conv->pixels = activations;
  return weights == activations;
}

/// What the call computes, without its epilogue; nothing when these kernels cannot.
std::optional<Contraction> shape_of(const loops::PlannedContraction& call) {
  const DType dtype = call.operands[0].dtype, weights = call.operands[1].dtype;
  if (compute_type(dtype) != DType::F32 || (dtype != DType::F32 && weights != dtype)) return std::nullopt;
  if (call.operands.size() > 2 && call.operands[2].dtype != dtype) return std::nullopt;
  if (call.operands.size() > 2 && !all_known(call.operands[2].strides)) return std::nullopt;
  if (call.node.op == Op::linear) {
    std::optional<GemmKernel> gemm = linear_of(call);
    if (gemm && set_numbers(&*gemm, dtype, weights)) return Contraction{*gemm, {}, 2};
  } else if (call.node.op == Op::conv) {
    std::optional<ConvKernel> conv = conv_of(call);
    if (conv && set_conv_numbers(&*conv, dtype, weights)) return Contraction{*conv, {}, 2};
  }
  return std::nullopt;
}

bool worth_it(const Contraction& c, const Target& target) {
  if (target.isa == Target::Isa::Scalar) return false;
  if (std::visit([](const auto& shape) { return shape.pairs; }, c.shape) && !target.avx512_bf16) return false;
  const DType weights = std::visit([](const auto& shape) { return shape.weights; }, c.shape);
  if (weights == DType::F16 && target.isa < Target::Isa::Avx512 && !target.f16c) return false;
  if (const auto* conv = std::get_if<ConvKernel>(&c.shape)) {
    // Vectors of halves of which some do not exist need masks.
    if (conv->pixels != DType::F32 && target.isa < Target::Isa::Avx512) return false;
    return worth_it(*conv, machine_facts(target).lanes);
  }
  return worth_it(std::get<GemmKernel>(c.shape));
}

/// acc -> acc + bias[column], the bias being a new first buffer.
Kernel with_bias(const Kernel& k, DType dtype, Sym stride) {
  Kernel out;
  out.name = k.name;
  out.dims = k.dims;
  out.symbols = k.symbols;
  out.sources = k.sources;
  out.buffers = k.buffers;
  out.buffers.insert(out.buffers.begin(), {dtype, loops::BufferRole::In, "bias"});
  std::vector<ExprId> id(k.exprs.size());
  auto rename = [&](ExprId& e) { e = id[e]; };
  for (size_t i = 0; i < k.exprs.size(); ++i) {
    Expr e = k.exprs[i];
    each_operand(e, rename);
    if (e.kind == ExprKind::Load) ++e.buffer;
    const bool acc = e.kind == ExprKind::Acc;
    id[i] = out.add(std::move(e));
    if (!acc) continue;
    Expr load{};
    load.kind = ExprKind::Load;
    load.dtype = dtype;
    load.buffer = 0;
    load.index = Kernel::dim(static_cast<int>(k.dims.size()) - 1) * stride;
    ExprId bias = out.add(std::move(load));
    if (dtype != DType::F32) {
      Expr cast{};
      cast.kind = ExprKind::Cast;
      cast.dtype = DType::F32;
      cast.args = {bias};
      bias = out.add(std::move(cast));
    }
    Expr sum{};
    sum.kind = ExprKind::Op;
    sum.dtype = DType::F32;
    sum.op = loops::ScalarOp::add;
    sum.args = {id[i], bias};
    id[i] = out.add(std::move(sum));
  }
  for (loops::Store s : k.stores) {
    ++s.buffer;
    each_operand(s, rename);
    out.stores.push_back(std::move(s));
  }
  return out;
}

}  // namespace

std::optional<int64_t> generates(const loops::PlannedContraction& call, const Target& target) {
  if (!call.constant[1]) return std::nullopt;
  const std::optional<Contraction> c = shape_of(call);
  if (!c || !worth_it(*c, target)) return std::nullopt;
  try {
    return packed_floats(*c, choose_schedule(*c, target));
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

bool accepts_epilogue(const loops::PlannedContraction& call, const Kernel& epilogue) {
  std::optional<Contraction> c = shape_of(call);
  if (!c) return false;
  c->epilogue = epilogue;
  const uint32_t column = 1u << (epilogue.dims.size() - 1);
  const bool stores_columns =
      epilogue.dims.back().size.is_const(1) ||
      std::all_of(epilogue.stores.begin(), epilogue.stores.end(),
                  [&](const loops::Store& s) { return (epilogue.varies(s.index) & column) != 0; });
  // A check needs an address to report to, which contractions are not given.
  return stores_columns && !epilogue.has_checks() && fits(*c);
}

ScheduledContraction contraction_of(const loops::Plan& plan, const loops::Step& step, const Target& target) {
  loops::PlannedContraction call{*step.node, {}, {}};
  for (int i = 0; i < step.operand_count; ++i) {
    Type type = plan.buffers[step.buffers[i]].type;
    if (i == 1) type = step.node->operands[1]->type;  // the buffer holds them packed
    call.operands.push_back(std::move(type));
  }
  std::optional<Contraction> c = shape_of(call);
  BOLT_CHECK(c, "the plan has a contraction that cannot be generated");
  c->epilogue = plan.kernels[step.epilogue];
  std::visit([&](auto& shape) { shape.name = c->epilogue.name; }, c->shape);
  if (step.operand_count > 2)
    c->epilogue = with_bias(c->epilogue, call.operands[2].dtype, call.operands[2].strides[0]);
  const TileSchedule schedule = choose_schedule(*c, target);
  return {std::move(*c), schedule};
}

}  // namespace bolt::codegen::cpu::gemm
