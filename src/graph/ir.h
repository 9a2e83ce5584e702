// graph/ir.h
// The Graph IR: what a region computes, as a list of functional tensor operations.
//
//   graph @forward(%x: f32[2, 128, 256], %w: f32[256, 256] param) {
//     %0: f32[2, 128, 256] = linear(%x, %w)                    # model.py:12
//     %1: f32[2, 128, 256] = gelu(%0) {approximate="tanh"}
//     return %1
//     write %x <- %1                                            # an input the region changed in place
//   }
//
// Values are tensors and nothing is ever mutated: aliasing and in-place writes were removed on the way in
// (autograd/functionalize), and what the caller must see changed is written back by `write` outputs. Nodes
// stand in execution order. Which operations exist, and every fact about them, is ops.def; semantics that
// could surprise (NaN, rounding, integer division, broadcasting) are written there on the row.
//
// Rules that verify.h checks: operands are defined before use; each type is what the op's shape and dtype
// rule say; pointwise operands broadcast by NumPy's rule but are already of one compute dtype (promotion
// happened on the way in, as explicit `cast` nodes); a Type's strides say how the value lies in memory IF it
// is ever stored: a view op's strides are advisory, the planner decides whether a view is free.
//
// An operation the table does not know is one `extern` node: it is run as one call of ATen, whatever it is.
// Its arguments that are not tensors live outside the core, in a table the node's `call` attribute indexes.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "support/dtype.h"
#include "support/export.h"
#include "support/sym.h"
#include "support/text.h"

namespace bolt::graph {

enum class DeviceKind : uint8_t { CPU, CUDA, Other };
struct Device {
  DeviceKind kind = DeviceKind::CPU;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:1", "device:0"; an error of the user's for anything else.
BOLT_API Device parse_device(std::string_view text);
BOLT_API std::string str(const Device& device);

struct BOLT_API Type {
  DType dtype = DType::F32;
  Device device;
  Syms sizes;
  Syms strides;  // in elements; one per size

  int rank() const { return static_cast<int>(sizes.size()); }
  Sym numel() const { return product(sizes); }
  bool is_contiguous() const;
  std::string str() const;  // f32[2, 8], f32[2, 8]{1, 2} when not contiguous, " cuda:0" when not on the CPU
  bool operator==(const Type&) const = default;
};
BOLT_API Syms contiguous_strides(const Syms& sizes);
/// Strides of a dense tensor of `sizes` whose dimensions, outermost first in memory, are `order`.
BOLT_API Syms strides_in_order(const Syms& sizes, const std::vector<int>& order);

enum class Op : uint16_t {
#define BOLT_OP(name, ...) name,
#include "graph/ops.def"
#undef BOLT_OP
  kCount
};

enum class OpKind : uint8_t {
  Pointwise,  // each output element from the same-index (broadcast) elements of the operands
  Reduce,     // over `dims`, keepdim as attribute
  View,       // the same elements under other indices; never computes
  Create,     // no operands: full, iota
  Index,      // pointwise with computed or conditional indices: cat, pad, embedding, gather, slice_scatter
  Composite,  // has a decomposition into the above, kept whole while a library or a pattern may want it whole
  Library,    // contraction: matmul, linear, convolution, attention
  Extern,     // one opaque call of ATen
  Scan,       // each element from those up to it along `dim`
  Scatter     // an operand in which elements at computed places are replaced or added to
};

struct OpInfo {
  std::string_view name;
  OpKind kind;
  int min_operands, max_operands;  // max -1: any
  bool gives_fresh_memory;         // a library's call: to its result, which nobody else has
  // further columns (shape rule, dtype rule) are private to op_rules.h
};
BOLT_API const OpInfo& op_info(Op op);
/// A call that a code generator may compute instead of a library.
constexpr bool is_contraction(Op op) {
  return op == Op::linear || op == Op::matmul || op == Op::conv || op == Op::sdpa;
}

enum class AttrType : uint8_t { Int, Float, Bool, Str, Dtype, Number, Ints, Floats, Sym };
BOLT_API const Op* op_from_name(std::string_view name);

using Attr = std::variant<int64_t, double, bool, std::string, DType, Syms, std::vector<double>>;
/// Few per node, kept sorted by name so that printing and hashing are deterministic.
using Attrs = std::map<std::string, Attr, std::less<>>;
inline Attrs slice_attrs(int64_t dim, Sym start, Sym length, int64_t step = 1) {
  return {{"dim", dim}, {"start", Syms{start}}, {"length", Syms{length}}, {"step", step}};
}

/// One attribute of an operation, from its row in ops.def.
struct AttrSpec {
  std::string name;
  AttrType type;
  bool required;
  std::optional<Attr> fallback;
};
BOLT_API const std::vector<AttrSpec>& op_attrs(Op op);

struct Loc {
  Interned file;  // as the user's code object names it
  int line = 0;
  Interned function;
};

struct Node;
struct Value {
  Node* def = nullptr;  // nullptr: a graph input
  int index = 0;        // which output of def, or which input of the graph
  int id = -1;          // its number in the text form
  Type type;
  std::string name;  // inputs only: what the user calls it, for reports
};

struct BOLT_API Node {
  Op op;
  std::vector<Value*> operands;
  Attrs attrs;
  std::vector<std::unique_ptr<Value>> outputs;
  Loc loc;

  Value* out(int i = 0) const { return outputs[i].get(); }
  template <typename T>
  const T& attr(std::string_view name) const;
  template <typename T>
  T attr_or(std::string_view name, T fallback) const;
  bool has_attr(std::string_view name) const { return attrs.find(name) != attrs.end(); }
  /// An attribute of type `sym` (or int).
  Sym sym(std::string_view name) const;
  /// Elements of an `ints` attribute that must be known numbers: dims, kernel, stride, ...
  std::vector<int64_t> ints(std::string_view name) const;

  std::list<std::unique_ptr<Node>>::iterator position;  // in Graph::nodes; kept by Graph
};

enum class InputKind : uint8_t {
  Arg,    // differs from call to call
  Param,  // a parameter or buffer: the same tensor every call until its version says otherwise; may be folded
  Const   // data captured at compile time (torch.tensor([..]) in forward)
};

struct Input {
  std::unique_ptr<Value> value;
  InputKind kind = InputKind::Arg;
  /// Where a parameter lay when the graph was made, by which those that lie side by side are found. It may
  /// move. 0: nobody knows.
  uintptr_t address = 0;
};

struct Output {
  Value* value = nullptr;
  int write_to = -1;  // >= 0: copied into that graph input (mutation); else returned
  /// Of memory: it is returned to a later part of the program alone, which is told how it lies.
  bool may_be_part = false;
};

class BOLT_API Graph {
 public:
  std::string name = "region";
  std::vector<Input> inputs;
  std::list<std::unique_ptr<Node>> nodes;  // execution order
  std::vector<Output> outputs;

  Value* add_input(Type type, InputKind kind, std::string name = "");
  /// As another graph's.
  Value* add_input(const Input& like);
  /// Appends (or inserts before `before`) a node whose output types come from the op's shape and dtype rules.
  /// What is made of no operands lies on the processor, unless it is put elsewhere (Type::device).
  Node* make(Op op, std::vector<Value*> operands, Attrs attrs = {}, Loc loc = {}, Node* before = nullptr);
  /// Appends or inserts a node of the types that are given, as those of extern nodes and recorded layouts
  /// are. The verifier still compares them where a rule exists.
  Node* make_typed(Op op, std::vector<Value*> operands, Attrs attrs, std::vector<Type> types, Loc loc = {},
                   Node* before = nullptr);
  /// Every use of `from`, outputs included, becomes `to`. One walk over the graph: to replace many, collect
  /// them in a map.
  void replace_uses(Value* from, Value* to);
  void replace_uses(const std::unordered_map<Value*, Value*>& with);
  void erase(Node* node);  // must have no uses
  /// Uses per value id after renumber(); outputs count.
  std::vector<int> use_counts() const;
  void renumber();
};

BOLT_API std::string print(const Graph& g);
/// Throws Error(User) with the line number and the text at fault.
BOLT_API std::unique_ptr<Graph> parse(std::string_view text);
BOLT_API std::unique_ptr<Graph> clone(const Graph& g);
/// Replaces the symbols in all types and attributes.
BOLT_API void substitute(Graph& g, const std::function<Sym(Sym)>& fn);

// ---- inline parts ----
namespace detail {
[[noreturn]] BOLT_API void missing_attr(const Node& node, std::string_view name);
}
template <typename T>
const T& Node::attr(std::string_view name) const {
  auto it = attrs.find(name);
  if (it == attrs.end()) detail::missing_attr(*this, name);
  const T* v = std::get_if<T>(&it->second);
  if (!v) detail::missing_attr(*this, name);
  return *v;
}
template <typename T>
T Node::attr_or(std::string_view name, T fallback) const {
  auto it = attrs.find(name);
  if (it == attrs.end()) return fallback;
  const T* v = std::get_if<T>(&it->second);
  return v ? *v : fallback;
}

}  // namespace bolt::graph
