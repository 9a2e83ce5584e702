// codegen/cpu/attention/from_plan.cpp
// planner's sdpa calls -> attention kernels; see from_plan.h
#include "codegen/cpu/attention/from_plan.h"

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace bolt::codegen::cpu::attention {
namespace {

using graph::Type;

constexpr int64_t kMostDepth = 512;    // of the block of queries on the stack: 64 KB
constexpr int64_t kFewestQueries = 4;  // each is a lane of a vector: with fewer most multiply nothing

/// Stride of dimension `d` counted from the last; 0 where the operand has one element to show for all.
Sym stride(const Type& t, int d) {
  const size_t rank = t.sizes.size();
  if (static_cast<size_t>(d) >= rank || t.sizes[rank - 1 - static_cast<size_t>(d)].is_const(1)) return 0;
  return t.strides[rank - 1 - static_cast<size_t>(d)];
}

bool set_matrix(InnerDims* m, int buffer, const Type& t) {
  const Sym row = stride(t, 1), col = stride(t, 0);
  if (!row.is_const() || !col.is_const()) return false;
  *m = {buffer, row.value(), col.value()};
  return true;
}

/// Batch and heads. Grouped query heads are two dimensions, the inner one of stride 0 in keys and values.
bool set_lead(AttentionKernel* a, const loops::PlannedContraction& call) {
  const bool grouped = call.node.attr<bool>("enable_gqa");
  const Type& result = call.node.out()->type;
  const Type &q = call.operands[0], &k = call.operands[1], &v = call.operands[2];
  for (int d = result.rank() - 1; d >= 2; --d) {
    auto of_mask = [&] { return a->mask ? stride(call.operands[3], d) : Sym(0); };
    const Sym size = result.sizes[result.rank() - 1 - d];
    if (!grouped || d != 2) {
      if (!size.is_const(1)) a->lead.push_back({size, stride(q, d), stride(k, d), stride(v, d), of_mask()});
      continue;
    }
    const Sym heads = k.sizes[k.rank() - 3];
    if (!size.is_const() || !heads.is_const() || size.value() % heads.value() != 0) return false;
    const Sym group = size.value() / heads.value();
    a->lead.push_back({heads, stride(q, d) * group, stride(k, d), stride(v, d), of_mask() * group});
    a->lead.push_back({group, stride(q, d), 0, 0, of_mask()});
  }
  return true;
}

/// Queries and keys count words of two from here on; false where they do not pair.
bool make_pairs(AttentionKernel* a) {
  a->pairs = true;
  if (a->q.col != 1 || a->k.col != 1 || a->depth % 2 != 0) return false;
  if (a->queries.is_const(1)) a->q.row = 0;
  if (a->keys.is_const(1)) a->k.row = 0;
  if (a->q.row % 2 != 0 || a->k.row % 2 != 0) return false;
  a->depth /= 2;
  a->q.row /= 2;
  a->k.row /= 2;
  for (LeadDim& dim : a->lead) {
    if (!divisible(dim.q, 2) || !divisible(dim.k, 2)) return false;
    dim.q = floordiv(dim.q, 2);
    dim.k = floordiv(dim.k, 2);
  }
  return true;
}

std::optional<AttentionKernel> kernel_of(const loops::PlannedContraction& call) {
  const size_t count = call.operands.size();
  const DType dtype = call.operands[0].dtype;
  if (dtype != DType::F32 && dtype != DType::BF16) return std::nullopt;
  for (size_t i = 0; i < count; ++i)
    if (call.operands[i].dtype != dtype && (i < 3 || call.operands[i].dtype != DType::Bool))
      return std::nullopt;
  const Type &q = call.operands[0], &k = call.operands[1], &v = call.operands[2];
  const Type& result = call.node.out()->type;
  const size_t rank = result.sizes.size();
  if (result.numel().is_const(0) || k.numel().is_const(0) || q.sizes.size() != rank) return std::nullopt;
  AttentionKernel a;
  a.name = "attention";
  a.queries = q.sizes[rank - 2];
  a.keys = k.sizes[k.sizes.size() - 2];
  const Sym depth = q.sizes.back(), value_depth = v.sizes.back();
  if (!depth.is_const() || !value_depth.is_const() || a.keys.is_const(0)) return std::nullopt;
  a.depth = depth.value();
  a.value_depth = value_depth.value();
  if (a.depth == 0 || a.value_depth < 2)
    return std::nullopt;  // one column: an epilogue has no dimension for it
  if (!set_matrix(&a.q, 0, q) || !set_matrix(&a.k, 1, k) || !set_matrix(&a.v, 2, v)) return std::nullopt;
  if (a.v.col != 1) return std::nullopt;
  if (count > 3) {
    const Type& m = call.operands[3];
    a.mask = Mask{3, stride(m, 1), stride(m, 0), m.dtype == DType::Bool};
  }
  a.scale = call.node.attr_or<double>("scale", 1 / std::sqrt(static_cast<double>(a.depth)));
  a.causal = call.node.attr<bool>("causal");
  a.empty_rows_nan = call.node.attr<bool>("empty_rows_nan");
  if (!set_lead(&a, call) || (dtype == DType::BF16 && !make_pairs(&a))) return std::nullopt;
  return a;
}

/// The cost rule, all of it; bench/micro/attention.py measures what it rests on.
bool worth_it(const AttentionKernel& a, const Target& target) {
  if (a.pairs && !target.avx512_bf16) return false;
  if (target.isa == Target::Isa::Scalar || a.depth > kMostDepth || a.value_depth > kMostDepth) return false;
  return a.queries.value_or(kFewestQueries) >= kFewestQueries;
}

}  // namespace

bool generates(const loops::PlannedContraction& call, const Target& target) {
  const std::optional<AttentionKernel> a = kernel_of(call);
  return a && worth_it(*a, target);
}

bool accepts_epilogue(const loops::PlannedContraction& call, const loops::Kernel& epilogue) {
  std::optional<AttentionKernel> a = kernel_of(call);
  return a && fits({std::move(*a), {}, epilogue});
}

Attention attention_of(const loops::Plan& plan, const loops::Step& step, const Target& target) {
  loops::PlannedContraction call{*step.node, {}, {}};
  for (int i = 0; i < step.operand_count; ++i) call.operands.push_back(plan.buffers[step.buffers[i]].type);
  std::optional<AttentionKernel> a = kernel_of(call);
  BOLT_CHECK(a, "the plan has an attention that cannot be generated");
  Attention item{std::move(*a), {}, plan.kernels[step.epilogue], step.operand_count};
  item.kernel.name = item.epilogue.name;
  item.schedule = choose_schedule(item.kernel, gemm::machine_facts(target));
  return item;
}

}  // namespace bolt::codegen::cpu::attention
