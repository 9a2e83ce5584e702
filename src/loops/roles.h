// loops/roles.h
// The first step of fusion: what becomes of each node, and how every value that will lie in memory lies
// there.
#pragma once

#include "loops/fuse.h"

namespace bolt::loops {

inline graph::OpKind kind_of(const graph::Node* n) { return graph::op_info(n->op).kind; }
/// What no kernel of loops computes.
inline bool is_call(const graph::Node* n) {
  const graph::OpKind k = kind_of(n);
  return k == graph::OpKind::Library || k == graph::OpKind::Extern || k == graph::OpKind::Composite;
}

/// Fills usage (users, role), strides and constant. `wanted`, by value id: values that calls or the caller
/// need in memory under their own name (not as strides over another).
struct Roles {
  Fusion fusion;
  std::vector<char> wanted;
};
Roles assign_roles(const graph::Graph& graph, const PlanOptions& options);

/// What is scattered into is a value of its own that nobody else reads: a copy, where it is not. After the
/// passes, which would undo it.
void give_bases_memory(graph::Graph& graph);

/// By value id: depends on parameters and constants only, so that it can be computed ahead of the calls.
std::vector<char> find_constants(const graph::Graph& graph, const PlanOptions& options);

/// Follows views back to the value whose memory they show.
const graph::Value* view_base(const graph::Value* v);
/// Strides and offset of `v` over the memory of view_base(v), laid out as `base`; nothing if a copy is
/// needed.
std::optional<StridedView> over_base(const graph::Value* v, const Syms& base);
/// `v` as strides over memory in which `base`, a value that it is a view of, lies.
struct ShownOver {
  const graph::Value* base;
  StridedView view;
};
/// Over the memory of view_base(v), or else of the nearest value between them that has memory of its own:
/// where `strides`, by value id, are not empty. Nothing where a copy is needed.
std::optional<ShownOver> shown_over(const graph::Value* v, const std::vector<Syms>& strides);
/// Is so little of the memory nobody's that it may be kept for the part? Both in elements.
inline bool is_most_of(int64_t part, int64_t memory) { return 8 * memory <= 9 * part; }
/// What nobody sees may stay in the memory of a call's result that it is little less than: logits of an odd
/// length in padded rows. `v` over that result; nothing where it needs memory of its own.
std::optional<StridedView> part_of_result(const graph::Output& output, const std::vector<Syms>& strides);
/// Do the strides put every element in its own place without gaps?
bool is_dense(const graph::Type& type);

}  // namespace bolt::loops
