// graph/passes/passes.h
// Graph -> Graph: the passes, the table that names them, and the order in which they run.
//
// A pass is a function from Graph to "did anything change", in the file of its name; its contract heads that
// file. Passes keep what the graph computes (up to rounding, where the file says so) and leave a graph that
// verify() accepts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir.h"

namespace bolt::graph {

/// What passes ask of the user, and of the devices that the graph's values lie on.
struct PassOptions {
  /// What an operator gives in a half type is rounded before another one reads it, as in eager.
  bool rounds_as_eager = false;
  /// Asked for each contraction of half precision: does its device take less time for the same of float32?
  /// Unset: never.
  std::function<bool(const Node& contraction)> widens;

  /// Are this result, and what it is made of, rounded one by one? Then no pass makes one operation of the
  /// two, of which only the result would be rounded. Asked for each node, since a graph may compute in
  /// several types.
  bool rounds_each(const Node& node) const { return rounds_as_eager && is_half(node.out()->type.dtype); }
};

struct Pass {
  std::string_view name;
  bool (*run)(Graph&, const PassOptions&);
  std::string_view summary;
};
/// Every pass there is, each once.
BOLT_API const std::vector<Pass>& passes();
/// nullptr when there is none of this name.
BOLT_API const Pass* find_pass(std::string_view name);

struct PassTime {
  std::string_view name;
  double seconds;
  bool changed;
};
/// Runs the named passes; the verifier after each where `verify_each`, and dumps on request
/// (TORCHBOLT_DUMP=graph:name).
BOLT_API std::vector<PassTime> run_passes(Graph& g, const std::vector<std::string_view>& names,
                                          bool verify_each, const PassOptions& options = {});
/// The standard order, less what TORCHBOLT_DISABLE_PASSES names.
BOLT_API std::vector<PassTime> optimize(Graph& g, const PassOptions& options = {});
BOLT_API const std::vector<std::string_view>& standard_passes();

BOLT_API bool empty(Graph& g);
BOLT_API bool dce(Graph& g);
BOLT_API bool cse(Graph& g);
BOLT_API bool canonicalize(Graph& g);
BOLT_API bool constant_fold(Graph& g, const PassOptions& options);
BOLT_API bool decompose(Graph& g);
BOLT_API bool fold_batch_norm(Graph& g, const PassOptions& options);
BOLT_API bool convolutions(Graph& g);
BOLT_API bool fuse_linear(Graph& g, const PassOptions& options);
BOLT_API bool match_attention(Graph& g, const PassOptions& options);
BOLT_API bool match_gelu(Graph& g, const PassOptions& options);
BOLT_API bool pad_products(Graph& g);
BOLT_API bool pad_groups(Graph& g);
BOLT_API bool space_to_depth(Graph& g);
BOLT_API bool pools(Graph& g);
BOLT_API bool widen_halves(Graph& g, const PassOptions& options);
BOLT_API bool fold_masks(Graph& g);
BOLT_API bool attention_batches(Graph& g);
BOLT_API bool vector_products(Graph& g);
/// What can be told of an attention mask from how it is made.
enum class MaskHides : uint8_t { Something, Nothing, WhatLiesAhead };
BOLT_API MaskHides what_mask_hides(const Value* mask);

/// By value id (the graph is renumbered): does the value depend on parameters and constants alone? Such nodes
/// are computed once per instance of the parameters.
BOLT_API std::vector<bool> static_values(Graph& g);

}  // namespace bolt::graph
