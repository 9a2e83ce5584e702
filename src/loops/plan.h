// loops/plan.h
// Graph -> Plan: the fused kernels, the calls that stay with libraries, their order, and where every byte
// lives.
//
// `plan` is the last stage that looks at the graph. It groups nodes into kernels (fuse.h), builds each
// kernel's expressions (build.h), turns the rest into library steps, orders the steps, and lays temporaries
// into one arena by their lifetimes (arena.h). The result is plain data with a text form: program/ executes
// it, codegen/ compiles its kernels, reports count it.
//
// Memory: a buffer is an input (the caller's memory, any strides), an output (allocated for each call, given
// away), a temporary (a range of the arena, apart from it, or owned by the library call that makes it), a
// fold (computed once from parameters and constants and kept until a parameter's version changes) or an alias
// of another buffer at an offset.
//
// Devices: each buffer (its type says) and each step belongs to one; a kernel never mixes them, but for
// numbers on the processor that it reads (numbers_of).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/choices.h"
#include "graph/device_facts.h"
#include "graph/ir.h"
#include "graph/repeats.h"
#include "loops/kernel.h"
#include "support/export.h"

namespace bolt::loops {

enum class BufferKind : uint8_t { Input, Output, Temp, Fold, Alias };

struct PlanBuffer {
  graph::Type type;  // strides as it lies in memory
  BufferKind kind = BufferKind::Temp;
  int source = -1;  // Input: graph input index. Output: the first graph output it serves. Alias: the buffer
                    // it is a view of
  Sym offset;       // Alias: elements from the source's first element
  bool owned_by_step =
      false;           // the step that makes it returns freshly allocated memory (a functional ATen call)
  Sym arena_offset;    // Temp that is not owned_by_step: bytes, in the arena of its device
  int over = -1;       // Temp: takes the place of this one, which dies where it is made (in_place.h)
  bool apart = false;  // Temp: has memory of its own as long as it is needed, not a range of the arena
  /// Lifetime in `steps`, inclusive, aliases counted. A Fold buffer with last_step -1 is read by fold steps
  /// only and can go when these have run.
  int first_step = -1, last_step = -1;
};

/// Do its sizes rest on data (support/symbols.h)? It gets memory when they are known, not in the arena.
BOLT_API bool has_data_sizes(const PlanBuffer& buffer);

enum class StepKind : uint8_t {
  Kernel,       // kernels[kernel], buffers in the kernel's order
  Contraction,  // node: a contraction that the code generator computes; buffers: its operands (constant
                // weights packed), then those of kernels[epilogue]
  Pack,         // fold only: buffers[0], the weights of the contraction that ends in kernels[epilogue] ->
                // buffers[1] in the order its code reads them
  Library,      // node: a contraction or composite that ATen runs; buffers: operands then results
  Extern,       // node: one opaque ATen call; buffers: tensor operands in order, then results
  Copy,         // buffers[0] -> buffers[1], any strides (write-back into a mutated input)
};

struct Step {
  StepKind kind;
  graph::Device device;  // that its kernel runs on; all of a kernel's buffers lie there
  int kernel = -1;
  const graph::Node* node = nullptr;  // Contraction, Pack, Library, Extern: lives in Plan::graph
  std::vector<int> buffers;
  int operand_count = 0;  // how many of `buffers` are read
  int call = -1;          // Extern: its place in the extension's table
  int node_count = 0;     // nodes of the graph that would each have been a kernel
  /// Kernel: steps of one list stand next to each other, may run in any order or at once, and are few
  /// launches (together.h). -1: of none.
  int list = -1;
  /// Kernel: which of the schedules that its device has for it; 0: the one that it follows by itself.
  int schedule = 0;
  double alone = 0;  // instructions of these nodes, each by itself (cost.h)
  /// Contraction: kernels[epilogue] finishes and stores the result while it is in registers. Its `acc` is the
  /// call's result; buffers[operand_count ...] are the epilogue's, in its order. The epilogue's last
  /// dimension is the column (last dimension of the result, channel of a convolution), the others are the
  /// rows, in order.
  int epilogue = -1;
  graph::Loc loc;
};

/// The kernel that a step runs; -1: it runs none.
inline int kernel_of(const Step& s) {
  return s.kind == StepKind::Kernel ? s.kernel : s.kind == StepKind::Contraction ? s.epilogue : -1;
}

struct Plan;
/// By buffer of the step: is it one number on the processor, read by a kernel of another device? A launch
/// hands its value over. Empty: none is.
BOLT_API std::vector<char> numbers_of(const Plan& plan, const Step& step);

/// Which buffer of a kernel lies where its device cannot reach it; "": none does.
std::string out_of_reach(const Plan& plan, const Step& step);

/// The buffer whose memory this one shows: itself, where it is no alias.
BOLT_API int memory_of(const Plan& plan, int buffer);

/// One block of memory on one device, in which the temporaries of that device lie.
struct Arena {
  graph::Device device;
  Sym bytes;
};

struct PlanOutput {
  int buffer = -1;    // an Input or Alias buffer where nothing is computed
  int write_to = -1;  // >= 0: the graph input that `buffer` is
};

struct Plan {
  std::unique_ptr<graph::Graph> graph;  // owns the nodes that steps point to
  std::vector<PlanBuffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<Step> fold_steps;  // run once for an instance of the parameters
  std::vector<Step> steps;       // run every call
  std::vector<PlanOutput> outputs;
  std::vector<Arena> arenas;      // one a device that has temporaries
  int kernels_before_fusion = 0;  // nodes that would each have been a kernel
  int put_back = 0;               // equal layers that `steps` has and `graph` has not (put_back.h)
  /// Of a plan that was read back: the text of the graph it was made of, for reports.
  std::string graph_text;
};

/// A contraction, and what the planner knows of its operands.
struct PlannedContraction {
  const graph::Node& node;
  std::vector<graph::Type> operands;  // as they lie in memory
  std::vector<char> constant;         // by operand: depends on parameters only
};

struct PlanOptions {
  bool fuse = true;
  int fuel = -1;  // >= 0: at most so many fusions, to bisect a bug
  /// False: only what depends on constants alone is computed beforehand.
  bool fold_params = true;
  /// False: nothing is fused that may have work done twice, or read under other indices than it is made
  /// under. What remains needs no price to be right.
  bool repeats = true;
  /// Asked for each contraction: when the code generator computes it, the floats that its weights (operand 1,
  /// constant) take when packed, 0 where none are; nothing: a library does. Unset: always a library.
  std::function<std::optional<int64_t>(const PlannedContraction&)> generates;
  /// Asked for each generated contraction whether it can end in this pointwise work. Unset: never.
  std::function<bool(const PlannedContraction&, const Kernel& epilogue)> accepts_epilogue;
  /// numerics="eager": what an operator gives is rounded to its element type before another one reads it, as
  /// eager rounds it by storing it, although both are of one kernel. Whatever would drop such a rounding
  /// looks here first.
  bool rounds_as_eager = false;
  /// graph::PassOptions::widens. Unset: never.
  std::function<bool(const graph::Node& contraction)> widens;
  /// Asked for products of one operand by several weights: does a library that is given them at once take
  /// less time than for one after another (merge_products.h)? Unset: never.
  std::function<bool(const std::vector<const graph::Node*>& products)> merges;
  /// Asked for each product that a gelu by its approximation follows, and each convolution that ends in a
  /// relu or in a sum with an image, which nothing else reads: does its library end in that (Op::linear and
  /// Op::conv)? Unset: never.
  std::function<bool(const graph::Node& call, graph::Op ending)> ends_in;
  /// Asked for each product of half types that is only wanted in float32: does its library store its sums as
  /// they are (Op::matmul, wide)? Unset: never.
  std::function<bool(const graph::Node& product)> ends_in_float;
  /// Asked for each kernel: what it has in common with those that its device can launch together with it; "":
  /// it is launched by itself. Unset: every kernel is.
  /// `numbers`, by buffer: numbers_of.
  std::function<std::string(const Kernel&, const std::vector<char>& numbers, graph::Device)> list_key;
  /// Who makes the program may measure so long which of several ways a call is computed in is the fastest.
  /// Null: nothing is measured.
  std::shared_ptr<cache::Allowance> measuring;
  /// Schedules of kernels are measured, too.
  bool tuned = false;
  /// Temporaries of so many bytes lie apart: for programs beside whose temporaries much memory comes and
  /// goes, where an arena that is there from the first step to the last would count at the worst of moments.
  /// 0: all lie in the arena.
  int64_t bytes_apart = 0;
  /// Of products that are computed in bands (in_bands.h). Unset: as the device's facts say.
  std::optional<graph::BandBytes> bands;
  /// On which devices they do. Unset: on all.
  std::function<bool(graph::Device)> apart_on;

  bool are_apart(int64_t bytes, graph::Device on) const {
    return bytes_apart > 0 && bytes >= bytes_apart && (!apart_on || apart_on(on));
  }
};

BOLT_API Plan plan(std::unique_ptr<graph::Graph> graph, const PlanOptions& options);
/// The plan of the graph that these are shortened forms of. Nothing where steps do not repeat as the graph
/// did.
BOLT_API std::optional<Plan> plan(graph::Shortened few, const PlanOptions& options);
BOLT_API std::string print(const Plan& p);
/// Throws Error(User) with the line number and the text at fault. The graph of such a plan holds the nodes of
/// its calls and nothing else: its inputs are the plan's, then what else a call is given.
BOLT_API Plan parse_plan(std::string_view text);

}  // namespace bolt::loops
