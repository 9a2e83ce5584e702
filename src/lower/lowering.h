// lower/lowering.h
// The table from operator to graph nodes, and what a row may ask.
//
// A row is (schema name with overload, builder). Builders see the operator's arguments by name and the
// recorded facts of its results; they return one value per result, of the recorded sizes and dtype. An
// in-place operator uses the row of its functional form. View rows give view steps instead, so that they can
// be replayed and inverted. An operator without a row becomes an extern_call: a row is an optimisation, never
// needed for correctness.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/ir.h"
#include "lower/functionalize.h"

namespace bolt::lower {

using graph::Attrs;
using graph::Op;
using graph::Value;

/// The number as a tensor of dtype t would hold it.
graph::Attr number_as(const c10::Scalar& s, DType t);

using Make = std::function<Value*(Op, std::vector<Value*>, Attrs)>;
/// Strides and, behind them, the offset.
using Place = std::pair<Syms, Sym>;

struct ViewStep {
  Op op;
  Attrs attrs;
  /// Of an as_strided, whose attributes say how it lies in a dense tensor: the same in one of other strides.
  std::function<Place(const Syms& strides)> place = nullptr;
  /// Of an as_strided, where that can be said for all sizes: what it is applied to, once what it shows is
  /// `v`.
  std::function<Value*(const Make& make, Value* before, Value* v)> inverse = nullptr;
};

/// A row must know a number that was taken out of a tensor. A call of ATen reads it there.
class DataDemand : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// One operator call being lowered.
class Call {
 public:
  using Values = ShortVector<Value*, 2>;  ///< of an argument
  Call(graph::Graph& graph, const record::Tape& tape, const record::Entry& entry, graph::Loc loc,
       std::vector<Values> values, Sizes& sizes, bool rounds_as_eager);

  graph::Graph& g;
  graph::Loc loc;
  const bool rounds_as_eager;  ///< loops::PlanOptions; what a row makes of one operator: round_once.h

  bool has(std::string_view name) const;  // the schema has it and it is not None
  // Numbers that were computed from sizes which differ between calls are no numbers: these throw SizeDemand,
  // the ones that give Syms do not.
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
  c10::Scalar scalar(std::string_view name) const;
  Sym sym(std::string_view name) const;
  Syms syms(std::string_view name) const;
  bool is_symbolic(std::string_view name) const;
  bool is_real(std::string_view name) const;  // given as a float
  bool is_data(std::string_view name) const;  // a number that was taken out of a tensor
  c10::ScalarType scalar_type(std::string_view name) const;
  Value* tensor(std::string_view name) const;  // nullptr when None
  std::vector<Value*> tensors(std::string_view name) const;
  Value* first_tensor() const;
  std::vector<Value*> all_tensors() const;
  bool is_tensor(std::string_view name) const;  // given as a real tensor, not as a number
  const Syms& sizes(std::string_view name) const;
  int64_t rank(std::string_view name) const { return static_cast<int64_t>(sizes(name).size()); }
  /// Where numbers among the operands are made to lie.
  graph::Device result_device() const;
  int64_t result_rank(int i = 0) const { return static_cast<int64_t>(results_[i]->sizes.size()); }
  /// Size `dim` of result i as recorded: for rows that have seen that it cannot differ.
  int64_t result_size(int i, int64_t dim) const { return results_[i]->sizes[dim]; }
  int64_t result_stride(int i, int64_t dim) const { return results_[i]->strides[dim]; }
  int result_count() const { return static_cast<int>(results_.size()); }
  /// Is result i a tensor at all? Of gradients only those are that somebody asked for.
  bool gives(int i) const { return results_[i] != nullptr; }
  /// Does the call write to any of its arguments?
  bool writes() const { return !record::written_arguments(entry_).empty(); }
  /// Demands the numbers among the arguments.
  void demand_numbers() const;
  /// Does nothing about this call differ between calls?
  bool is_static() const;
  /// Sizes of result i (flattened over lists) as eager showed them: of a call that is_static. SizeDemand
  /// elsewhere.
  std::vector<int64_t> static_sizes(int i = 0) const;
  /// Did `a relation b` hold when recorded? From now on it is guarded.
  bool decide(Sym a, Relation relation, Sym b) const;
  /// constant_pad_nd copies a tensor as it lies where it adds nothing, and into a dense one elsewhere:
  /// decides which of these it does.
  void decide_layout_of_pad() const;
  /// A tensor argument as it was when recorded.
  const record::TensorInfo& recorded(std::string_view name) const;
  /// What it was when recorded.
  int64_t hint(Sym s) const { return all_sizes_.hint(s); }
  std::string_view name() const;

  /// An argument that is a number, as a value of dtype t.
  Value* number_value(std::string_view name, DType t) const;
  /// v times the number; v itself for a number that is always 1.
  Value* times(Value* v, std::string_view name) const;
  /// The operand as a value of dtype t: a tensor is cast, a number becomes a scalar.
  Value* operand(std::string_view name, DType t) const;
  Value* scalar_value(const c10::Scalar& s, DType t) const;
  Value* cast(Value* v, DType t) const;
  Value* make(Op op, std::vector<Value*> operands, Attrs attrs = {}) const;
  Value* reshape(Value* v, const Syms& sizes) const;
  /// ATen's promotion over the named arguments.
  c10::ScalarType promote(const std::vector<std::string_view>& names) const;
  DType result_dtype(int i = 0) const;
  /// dim normalised for a tensor of this rank.
  static int64_t wrap(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }
  static Syms syms(const std::vector<int64_t>& xs) { return {xs.begin(), xs.end()}; }

 private:
  int index_of(std::string_view name) const;
  const record::Arg* find(std::string_view name) const;
  static bool is_data(const record::Arg& a);
  /// Throws when the schema has no such argument: the row is wrong.
  const record::Arg& required(std::string_view name) const;
  int64_t known(const record::Arg& a, size_t i = 0) const;
  const record::Tape& tape_;
  const record::Entry& entry_;
  Sizes& all_sizes_;
  std::vector<Values> values_;  // per argument
  std::vector<const record::TensorInfo*> results_;
};

/// What RMS norms add where no epsilon is given: that of the type in which their sums are computed.
inline double rms_norm_epsilon(DType input) {
  return input == DType::F64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

/// One value per result, then one for each tensor that the call writes to (nullptr: it stays as it was); an
/// empty vector refuses this call, which then stays extern.
using Builder = std::vector<Value*> (*)(Call&);
/// Per result, the steps from the operator's first tensor argument, or from the result's own where that is a
/// list of as many; nullopt refuses.
using Viewer = std::optional<std::vector<std::vector<ViewStep>>> (*)(Call&);

struct Lowering {
  Builder build = nullptr;
  Viewer view = nullptr;
  bool detaches = false;  ///< the result requires no gradient, whatever it is a view of
  bool moves = false;     ///< looks at no element: of a type with which no kernel computes, too, as views do
  bool copies = false;    ///< where a tensor cannot be shown with the sizes asked for; others raise
};

using Table = std::unordered_map<std::string, Lowering>;
/// All rows, by "aten::name" or "aten::name.overload".
const Table& lowerings();
/// aten::add.Tensor for aten::add_.Tensor, aten::__or__ for aten::__ior__; "" for what is no in-place form.
std::string functional_name(const c10::OperatorName& name);
/// Of ATen's own operators. In-place forms have those of the functional ones.
bool has_row(const c10::OperatorHandle& op);

}  // namespace bolt::lower
