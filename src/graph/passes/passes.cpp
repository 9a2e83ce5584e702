// graph/passes/passes.cpp
// The table of passes, their order, timers and dumps.
#include "graph/passes/passes.h"

#include <algorithm>
#include <chrono>

#include "graph/verify.h"
#include "support/dump.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/text.h"

namespace bolt::graph {
namespace {

/// A pass that asks nothing.
template <bool (*pass)(Graph&)>
bool asks_nothing(Graph& g, const PassOptions&) {
  return pass(g);
}

}  // namespace

const std::vector<Pass>& passes() {
  static const std::vector<Pass> table = {
      {"empty", asks_nothing<empty>, "values without elements are not computed"},
      {"dce", asks_nothing<dce>, "remove nodes whose results nobody uses"},
      {"cse", asks_nothing<cse>, "compute equal expressions once"},
      {"canonicalize", asks_nothing<canonicalize>,
       "algebra on single nodes: casts, views, powers, neutral elements"},
      {"constant_fold", constant_fold, "pointwise operations on numbers become numbers"},
      {"fold_batch_norm", fold_batch_norm,
       "conv or linear + inference batch norm: folded into weight and bias"},
      {"convolutions", asks_nothing<convolutions>,
       "convolutions that are matrix products: linear; where the library adds it late: bias apart"},
      {"pad_groups", asks_nothing<pad_groups>,
       "convolutions of groups whose width a device has no kernels for: of wider groups"},
      {"space_to_depth", asks_nothing<space_to_depth>,
       "convolutions of few channels that step over pixels: of those pixels as channels"},
      {"match_attention", match_attention, "softmax(q @ k^T * scale + mask) @ v: sdpa"},
      {"match_gelu", match_gelu, "gelu and its approximation written out by hand: gelu, ndtr"},
      {"fold_masks", asks_nothing<fold_masks>,
       "attention masks that hide nothing, or what lies ahead, are none"},
      {"attention_batches", asks_nothing<attention_batches>,
       "attention of other than four dimensions, where a library's kernels are of four: of four"},
      {"vector_products", asks_nothing<vector_products>,
       "products with a vector, where kernels read the matrix as quickly: sums of products"},
      {"fuse_linear", fuse_linear, "matmul with a weight: linear; linear + bias: its third operand"},
      {"pad_products", asks_nothing<pad_products>,
       "products whose rows begin between two accesses of a device: padded"},
      {"widen_halves", widen_halves, "contractions of half precision where float32 is faster: of float32"},
      {"pools", asks_nothing<pools>, "pools of small windows, where a device computes them by kernels"},
      {"decompose", asks_nothing<decompose>, "composites become pointwise operations and reductions"},
  };
  return table;
}

// Batch norm is folded and attention matched before decompose takes both apart; what cleans up runs again
// after it.
const std::vector<std::string_view>& standard_passes() {
  static const std::vector<std::string_view> order = split(
      "empty canonicalize constant_fold cse fold_batch_norm convolutions pad_groups space_to_depth "
      "match_attention match_gelu fold_masks attention_batches vector_products fuse_linear pad_products "
      "widen_halves pools decompose empty canonicalize constant_fold cse dce",
      ' ');
  return order;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass& p : passes())
    if (p.name == name) return &p;
  return nullptr;
}

std::vector<PassTime> run_passes(Graph& g, const std::vector<std::string_view>& names, bool verify_each,
                                 const PassOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<PassTime> times;
  for (std::string_view name : names) {
    const Pass* pass = find_pass(name);
    if (!pass) throw_user("no pass is called '", name, "'");
    Clock::time_point start = Clock::now();
    bool changed = pass->run(g, options);
    times.push_back({pass->name, std::chrono::duration<double>(Clock::now() - start).count(), changed});
    if (verify_each) {
      try {
        verify(g);
      } catch (const Error& e) {
        throw Error(ErrorKind::Internal, "after the pass " + std::string(name) + ": " + e.what());
      }
    }
    if (changed && dump_wanted("graph", name, g.name)) dump("graph", name, g.name, print(g));
  }
  g.renumber();
  return times;
}

std::vector<PassTime> optimize(Graph& g, const PassOptions& options) {
  std::vector<std::string_view> names;
  for (std::string_view name : standard_passes())
    if (!knob_has("TORCHBOLT_DISABLE_PASSES", name)) names.push_back(name);
  if (dump_wanted("graph", "input", g.name)) dump("graph", "input", g.name, print(g));
  return run_passes(g, names, knob_bool("TORCHBOLT_VERIFY"), options);
}

std::vector<bool> static_values(Graph& g) {
  g.renumber();
  size_t count = g.inputs.size();
  for (const auto& node : g.nodes) count += node->outputs.size();
  std::vector<bool> fixed(count);
  for (const Input& in : g.inputs) fixed[in.value->id] = in.kind != InputKind::Arg;
  for (const auto& node : g.nodes) {
    bool all = node->op != Op::extern_call;
    for (const Value* v : node->operands) all = all && fixed[v->id];
    for (const auto& out : node->outputs) fixed[out->id] = all;
  }
  return fixed;
}

}  // namespace bolt::graph
