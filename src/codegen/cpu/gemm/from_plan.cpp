// src/codegen/cpu/gemm/from_plan.cpp
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

/// The cost rule, all of it. Measured on one core of a Zen 5 with bench/micro/gemm.py: packed products run at
/// 90-97 % of the peak where MKL behind at::linear reaches 40 %, and at 2-3 times its speed down to one row,
/// so that nothing but memory speaks for the library: packed weights are a second copy.
bool worth_it(const GemmKernel& gemm, const Target& target) {
  constexpr int64_t kMostPackedFloats = int64_t{32} << 20;  // an output layer over a large vocabulary
  return target.isa != Target::Isa::Scalar && gemm.n > 1 && gemm.n * gemm.k <= kMostPackedFloats;
}

bool all_known(const std::vector<Sym>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](Sym s) { return s.is_const(); });
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

std::optional<GemmKernel> linear_of(const loops::Call& call) {
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

/// What the call computes, without its epilogue; nothing when these kernels cannot.
std::optional<Contraction> shape_of(const loops::Call& call) {
  const bool floats = std::all_of(call.operands.begin(), call.operands.end(),
                                  [](const Type& t) { return t.dtype == DType::F32; });
  if (!floats || call.node.op != Op::linear) return std::nullopt;
  if (call.operands.size() > 2 && !all_known(call.operands[2].strides)) return std::nullopt;
  std::optional<GemmKernel> gemm = linear_of(call);
  if (!gemm) return std::nullopt;
  return Contraction{*gemm, {}, 2};
}

/// acc -> acc + bias[column], the bias being a new first buffer.
Kernel with_bias(const Kernel& k, Sym stride) {
  Kernel out;
  out.name = k.name;
  out.dims = k.dims;
  out.symbols = k.symbols;
  out.sources = k.sources;
  out.buffers = k.buffers;
  out.buffers.insert(out.buffers.begin(), {DType::F32, loops::BufferRole::In, "bias"});
  std::vector<ExprId> id(k.exprs.size());
  auto renamed = [&](ExprId e) { return e == loops::kNone ? e : id[static_cast<size_t>(e)]; };
  for (size_t i = 0; i < k.exprs.size(); ++i) {
    Expr e = k.exprs[i];
    for (ExprId& a : e.args) a = renamed(a);
    for (loops::GatherTerm& g : e.gather) g.value = renamed(g.value);
    e.mask = renamed(e.mask);
    if (e.kind == ExprKind::Load) ++e.buffer;
    const bool acc = e.kind == ExprKind::Acc;
    id[i] = out.add(std::move(e));
    if (!acc) continue;
    Expr load{};
    load.kind = ExprKind::Load;
    load.dtype = DType::F32;
    load.buffer = 0;
    load.index = Kernel::dim(static_cast<int>(k.dims.size()) - 1) * stride;
    Expr sum{};
    sum.kind = ExprKind::Op;
    sum.dtype = DType::F32;
    sum.op = loops::ScalarOp::add;
    sum.args = {id[i], out.add(std::move(load))};
    id[i] = out.add(std::move(sum));
  }
  for (loops::Store s : k.stores) {
    ++s.buffer;
    s.value = renamed(s.value);
    s.mask = renamed(s.mask);
    for (loops::GatherTerm& g : s.gather) g.value = renamed(g.value);
    out.stores.push_back(std::move(s));
  }
  return out;
}

}  // namespace

std::optional<int64_t> generates(const loops::Call& call, const Target& target) {
  if (!call.constant[1]) return std::nullopt;
  const std::optional<Contraction> c = shape_of(call);
  if (!c || !worth_it(std::get<GemmKernel>(c->shape), target)) return std::nullopt;
  return packed_floats(*c, choose_schedule(*c, target));
}

bool accepts_epilogue(const loops::Call& call, const Kernel& epilogue) {
  std::optional<Contraction> c = shape_of(call);
  if (!c) return false;
  c->epilogue = epilogue;
  const uint32_t column = 1u << (epilogue.dims.size() - 1);
  const bool stores_columns =
      std::all_of(epilogue.stores.begin(), epilogue.stores.end(),
                  [&](const loops::Store& s) { return (epilogue.varies(s.index) & column) != 0; });
  // A check needs an address to report to, which contractions are not given.
  return stores_columns && !epilogue.has_checks() && fits(*c);
}

ScheduledContraction contraction_of(const loops::Plan& plan, const loops::Step& step, const Target& target) {
  loops::Call call{*step.node, {}, {}};
  for (int i = 0; i < step.operand_count; ++i) {
    Type type = plan.buffers[static_cast<size_t>(step.buffers[static_cast<size_t>(i)])].type;
    if (i == 1) type = step.node->operands[1]->type;  // the buffer holds them packed
    call.operands.push_back(std::move(type));
  }
  std::optional<Contraction> c = shape_of(call);
  BOLT_CHECK(c, "the plan has a contraction that cannot be generated");
  c->epilogue = plan.kernels[static_cast<size_t>(step.epilogue)];
  std::visit([&](auto& shape) { shape.name = c->epilogue.name; }, c->shape);
  if (step.operand_count > 2) c->epilogue = with_bias(c->epilogue, call.operands[2].strides[0]);
  const Schedule schedule = choose_schedule(*c, target);
  return {std::move(*c), schedule};
}

}  // namespace bolt::codegen::cpu::gemm
