// autograd/call.cpp
// Arguments of an operator call by name, promotion, and the small builders rows share.
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "autograd/lowering.h"
#include "record/convert.h"
#include "support/error.h"

namespace bolt::autograd {

using record::Arg;
using record::to_bolt;

Call::Call(graph::Graph& graph, const record::Tape& tape, const record::Entry& entry,
           std::vector<std::vector<Value*>> values)
    : g(graph), tape_(tape), entry_(entry), values_(std::move(values)) {
  for (const Arg& r : entry.results)
    for (auto id : r.tensors) results_.push_back(id < 0 ? nullptr : &tape.tensors[id]);
  if (entry.loc >= 0) {
    const auto& line = tape.locs[entry.loc];
    loc = {line.file, line.line, line.function};
  }
}

std::string_view Call::name() const { return entry_.op.operator_name().name; }

int Call::index_of(std::string_view name) const {
  const auto& args = entry_.op.schema().arguments();
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name() == name) return static_cast<int>(i);
  return -1;
}
const Arg* Call::find(std::string_view name) const {
  int i = index_of(name);
  return i < 0 ? nullptr : &entry_.args[i];
}
bool Call::has(std::string_view name) const {
  const Arg* a = find(name);
  if (!a) return false;
  if (a->kind == Arg::Kind::Tensor) return a->tensors[0] >= 0;
  return a->kind != Arg::Kind::Value || !a->value.isNone();
}
const Arg& Call::required(std::string_view name) const {
  const Arg* a = find(name);
  BOLT_CHECK(a, "the row of ", this->name(), " asks for an argument '", name, "' that it does not have");
  return *a;
}
int64_t Call::integer(std::string_view name) const { return required(name).value.toInt(); }
double Call::number(std::string_view name) const { return required(name).value.toScalar().toDouble(); }
bool Call::flag(std::string_view name) const { return required(name).value.toBool(); }
std::string Call::text(std::string_view name) const { return required(name).value.toStringRef(); }
std::vector<int64_t> Call::integers(std::string_view name) const {
  const auto& v = required(name).value;
  if (v.isInt()) return {v.toInt()};
  return v.toIntVector();
}
std::vector<double> Call::numbers(std::string_view name) const {
  return required(name).value.toDoubleVector();
}
c10::Scalar Call::scalar(std::string_view name) const { return required(name).value.toScalar(); }
c10::ScalarType Call::scalar_type(std::string_view name) const { return required(name).value.toScalarType(); }
Value* Call::tensor(std::string_view name) const {
  required(name);
  const auto& values = values_[index_of(name)];
  return values.empty() ? nullptr : values[0];
}
std::vector<Value*> Call::tensors(std::string_view name) const { return values_[index_of(name)]; }
bool Call::is_tensor(std::string_view name) const {
  const Arg* a = find(name);
  return a && a->kind == Arg::Kind::Tensor && a->tensors[0] >= 0;
}
const record::TensorInfo& Call::info(std::string_view name) const {
  return tape_.tensors[required(name).tensors[0]];
}
const record::TensorInfo& Call::result(int i) const { return *results_[i]; }
DType Call::result_dtype(int i) const { return *to_bolt(results_[i]->dtype); }

Value* Call::make(Op op, std::vector<Value*> operands, Attrs attrs) const {
  return g.make(op, std::move(operands), std::move(attrs), loc)->out();
}
Value* Call::cast(Value* v, DType t) const {
  return v->type.dtype == t ? v : make(Op::cast, {v}, {{"dtype", t}});
}
Value* Call::reshape(Value* v, const std::vector<int64_t>& sizes) const {
  auto target = syms(sizes);
  return v->type.sizes == target ? v : make(Op::reshape, {v}, {{"sizes", target}});
}
Value* Call::scalar_value(const c10::Scalar& s, DType t) const {
  graph::Attr value;
  if (is_float(t))
    value = s.toDouble();
  else
    value = s.isFloatingPoint() ? static_cast<int64_t>(s.toDouble()) : s.toLong();
  return make(Op::scalar, {}, {{"value", value}, {"dtype", t}});
}
Value* Call::operand(std::string_view name, DType t) const {
  if (is_tensor(name)) return cast(tensor(name), t);
  return scalar_value(find(name)->value.toScalar(), t);
}

c10::ScalarType Call::promote(const std::vector<std::string_view>& names) const {
  using c10::ScalarType;
  ScalarType dim = ScalarType::Undefined, zero = dim, wrapped = dim;
  auto add = [](ScalarType& into, ScalarType t) {
    into = into == ScalarType::Undefined ? t : c10::promoteTypes(into, t);
  };
  auto add_tensor = [&](record::TensorId id) {
    if (id < 0) return;
    const auto& t = tape_.tensors[id];
    add(t.sizes.empty() ? zero : dim, t.dtype);
  };
  for (auto name : names) {
    const Arg* a = find(name);
    if (!a) continue;
    for (auto id : a->tensors) add_tensor(id);
    if (!a->tensors.empty() || a->value.isNone() || !a->value.isScalar()) continue;
    c10::Scalar s = a->value.toScalar();
    add(wrapped, s.isFloatingPoint() ? c10::get_default_dtype_as_scalartype()
                 : s.isComplex()     ? c10::toComplexType(c10::get_default_dtype_as_scalartype())
                                     : s.type());
  }
  // A lower category (0-d tensors, then numbers) only matters when it is of a higher kind (float over int).
  auto combine = [](ScalarType higher, ScalarType lower) {
    if (higher == ScalarType::Undefined) return lower;
    if (lower == ScalarType::Undefined || c10::isComplexType(higher)) return higher;
    if (c10::isFloatingType(higher)) return c10::isComplexType(lower) ? c10::toComplexType(higher) : higher;
    if (higher == ScalarType::Bool || c10::isFloatingType(lower) || c10::isComplexType(lower))
      return c10::promoteTypes(higher, lower);
    return higher;
  };
  return combine(dim, combine(zero, wrapped));
}

const Table& lowerings() {
  static const Table table = [] {
    Table t;
    add_pointwise(t);
    add_views(t);
    add_reductions(t);
    add_creation(t);
    add_indexing(t);
    add_nn(t);
    add_resample(t);
    return t;
  }();
  return table;
}

}  // namespace bolt::autograd
