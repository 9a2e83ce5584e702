// lower/call.cpp
// Arguments of an operator call by name, promotion, and the small builders rows share.
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <bit>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/lowering.h"
#include "record/convert.h"
#include "support/error.h"
#include "support/pointer_map.h"

namespace bolt::lower {

using record::Arg;
using record::to_bolt;

Call::Call(graph::Graph& graph, const record::Tape& tape, const record::Entry& entry, graph::Loc loc,
           std::vector<Values> values, Sizes& sizes, bool rounds_as_eager)
    : g(graph),
      loc(loc),
      rounds_as_eager(rounds_as_eager),
      tape_(tape),
      entry_(entry),
      all_sizes_(sizes),
      values_(std::move(values)) {
  for (const Arg& r : entry.results)
    for (auto id : r.tensors) results_.push_back(id < 0 ? nullptr : &tape.tensors[id]);
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
// The i-th number of an argument, demanded when it is a symbol.
int64_t Call::known(const Arg& a, size_t i) const { return all_sizes_.resolve(a.syms[i]).value(); }
int64_t Call::integer(std::string_view name) const {
  const Arg& a = required(name);
  return a.syms.empty() ? a.value.toInt() : known(a);
}
double Call::number(std::string_view name) const { return scalar(name).toDouble(); }
bool Call::flag(std::string_view name) const { return required(name).value.toBool(); }
std::string Call::text(std::string_view name) const { return required(name).value.toStringRef(); }
std::vector<int64_t> Call::integers(std::string_view name) const { return to_numbers(syms(name)); }
Sym Call::sym(std::string_view name) const {
  const Arg& a = required(name);
  return a.syms.empty() ? Sym(a.value.toInt()) : all_sizes_.resolve(a.syms[0]);
}
Syms Call::syms(std::string_view name) const {
  const Arg& a = required(name);
  Syms out;
  for (Sym s : a.syms) out.push_back(all_sizes_.resolve(s));
  if (!a.syms.empty()) return out;
  if (a.value.isInt()) return {a.value.toInt()};
  return syms(a.value.toIntVector());
}
bool Call::is_symbolic(std::string_view name) const {
  const Arg* a = find(name);
  return a && (is_data(*a) || std::any_of(a->syms.begin(), a->syms.end(),
                                          [&](Sym s) { return !all_sizes_.resolve(s).is_const(); }));
}
bool Call::is_data(std::string_view name) const {
  const Arg* a = find(name);
  return a && is_data(*a);
}
bool Call::is_real(std::string_view name) const {
  const Arg* a = find(name);
  return a && a->value.isDouble();
}
std::vector<double> Call::numbers(std::string_view name) const {
  return required(name).value.toDoubleVector();
}
// A number that was taken out of a tensor.
bool Call::is_data(const Arg& a) {
  return !a.tensors.empty() && (a.kind == Arg::Kind::Value || a.kind == Arg::Kind::WrappedNumber);
}
c10::Scalar Call::scalar(std::string_view name) const {
  const Arg& a = required(name);
  if (is_data(a)) throw DataDemand(detail::concat(this->name(), " of a number that item() gave"));
  if (a.syms.empty()) return a.value.toScalar();
  if (a.value.isDouble()) return std::bit_cast<double>(known(a));
  return known(a);
}
c10::ScalarType Call::scalar_type(std::string_view name) const { return required(name).value.toScalarType(); }
Value* Call::tensor(std::string_view name) const {
  required(name);
  const auto& values = values_[index_of(name)];
  return values.empty() ? nullptr : values[0];
}
std::vector<Value*> Call::tensors(std::string_view name) const {
  const Values& values = values_[index_of(name)];
  return {values.begin(), values.end()};
}
Value* Call::first_tensor() const { return all_tensors().at(0); }
std::vector<Value*> Call::all_tensors() const {
  std::vector<Value*> out;
  for (const auto& values : values_)
    for (Value* v : values)
      if (v) out.push_back(v);
  return out;
}
bool Call::is_tensor(std::string_view name) const {
  const Arg* a = find(name);
  return a && a->kind == Arg::Kind::Tensor && a->tensors[0] >= 0;
}
const Syms& Call::sizes(std::string_view name) const { return tensor(name)->type.sizes; }
const record::TensorInfo& Call::recorded(std::string_view name) const {
  const record::TensorIds& ids = required(name).tensors;
  BOLT_CHECK(!ids.empty(), "the argument ", name, " is no tensor");
  return tape_.tensors[ids[0]];
}
bool Call::decide(Sym a, Relation relation, Sym b) const {
  return all_sizes_.decide(a, relation, b, detail::concat(this->name(), " at ", loc.file, ":", loc.line));
}

namespace {

bool lies_in_order(const record::TensorInfo& t) {
  int64_t run = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    if (t.sizes[d] != 1 && t.strides[d] != run) return false;
    run *= t.sizes[d];
  }
  return true;
}

}  // namespace

void Call::decide_layout_of_pad() const {
  if (lies_in_order(recorded("self"))) return;
  for (Sym amount : syms("pad"))
    if (decide(0, Relation::lt, amount)) break;
}
bool Call::is_static() const {
  auto known_sizes = [](const Value* v) { return !v || all_known(v->type.sizes); };
  for (const auto& values : values_)
    if (!std::all_of(values.begin(), values.end(), known_sizes)) return false;
  for (const Arg& a : entry_.args)
    for (Sym s : a.syms)
      if (!all_sizes_.resolve(s).is_const()) return false;
  return true;
}
std::vector<int64_t> Call::static_sizes(int i) const {
  for (const auto& values : values_)
    for (const Value* v : values)
      for (size_t d = 0; v && d < v->type.sizes.size(); ++d) v->type.sizes[d].value();
  demand_numbers();
  if (results_.empty()) return {};
  const record::Dims& sizes = results_[i]->sizes;
  return {sizes.begin(), sizes.end()};
}
void Call::demand_numbers() const {
  for (const Arg& a : entry_.args)
    for (Sym s : a.syms) all_sizes_.resolve(s).value();
}
DType Call::result_dtype(int i) const { return *to_bolt(results_[i]->dtype); }

Value* Call::make(Op op, std::vector<Value*> operands, Attrs attrs) const {
  const graph::Device here = result_device();
  // Numbers on the processor may meet tensors elsewhere, and so may lists of indices; a kernel reads what
  // lies on its own device.
  for (Value*& v : operands)
    if (v->type.device != here && graph::is_processor(v->type.device))
      v = g.make(Op::transfer, {v}, {{"device", graph::str(here)}}, loc)->out();
  Value* made = g.make(op, std::move(operands), std::move(attrs), loc)->out();
  if (made->def->operands.empty()) made->type.device = here;
  return made;
}
graph::Device Call::result_device() const {
  return results_.empty() || !results_[0] ? graph::Device() : to_bolt(results_[0]->device);
}
Value* Call::cast(Value* v, DType t) const {
  return v->type.dtype == t ? v : make(Op::cast, {v}, {{"dtype", t}});
}
Value* Call::reshape(Value* v, const Syms& sizes) const {
  return v->type.sizes == sizes ? v : make(Op::reshape, {v}, {{"sizes", sizes}});
}
graph::Attr number_as(const c10::Scalar& s, DType t) {
  if (is_float(t)) return s.toDouble();
  if (t == DType::Bool) return static_cast<int64_t>(s.toBool());  // 0.5 is true, and so is 2
  return s.isFloatingPoint() ? static_cast<int64_t>(s.toDouble()) : s.toLong();
}
Value* Call::scalar_value(const c10::Scalar& s, DType t) const {
  return make(Op::scalar, {}, {{"value", number_as(s, t)}, {"dtype", t}});
}
Value* Call::operand(std::string_view name, DType t) const {
  return is_tensor(name) ? cast(tensor(name), t) : number_value(name, t);
}
Value* Call::number_value(std::string_view name, DType t) const {
  if (!is_symbolic(name)) return scalar_value(scalar(name), t);
  const Arg& a = required(name);
  const bool may_overflow = is_int(t) && dtype_bytes(t) < 8;  // then eager raises
  if (is_data(a)) {
    if (may_overflow)
      throw DataDemand(detail::concat(this->name(), " of a number that item() gave, as ", dtype_name(t)));
    Value* v = reshape(values_[index_of(name)][0], {});
    return cast(cast(v, a.value.isDouble() ? DType::F64 : DType::I64), t);
  }
  if (may_overflow && a.value.isDouble()) return scalar_value(scalar(name), t);
  const Sym symbol = all_sizes_.resolve(a.syms[0]);
  if (may_overflow) {
    const bool is_signed = t != DType::U8;
    const int64_t most = (int64_t{1} << (8 * dtype_bytes(t) - is_signed)) - 1;
    decide(symbol, Relation::le, most);
    decide(-most - is_signed, Relation::le, symbol);  // negative ones wrap where there are none
  }
  Value* v = make(Op::scalar, {}, {{"value", Syms{symbol}}, {"dtype", DType::I64}});
  return cast(a.value.isDouble() ? make(Op::from_bits, {v}) : v, t);
}

Value* Call::times(Value* v, std::string_view name) const {
  if (!has(name) || (!is_symbolic(name) && scalar(name).equal(1))) return v;
  return make(Op::mul, {v, number_value(name, v->type.dtype)});
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
    if (!is_data(*a))
      for (auto id : a->tensors) add_tensor(id);
    if ((!a->tensors.empty() && !is_data(*a)) || a->value.isNone() || !a->value.isScalar()) continue;
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
    add_activations(t);
    add_normalisations(t);
    add_losses(t);
    add_movements(t);
    add_optimizers(t);
    add_borders(t);
    add_grid_samples(t);
    add_patches(t);
    add_pools(t);
    add_scans(t);
    add_scatters(t);
    add_distances(t);
    add_named_products(t);
    add_short_formulas(t);
    add_special_functions(t);
    return t;
  }();
  return table;
}

std::string functional_name(const c10::OperatorName& name) {
  constexpr std::string_view kSpecial = "aten::__";
  std::string base = name.name;
  if (!base.ends_with('_')) return "";
  if (!base.starts_with(kSpecial))
    base.pop_back();
  else if (base[kSpecial.size()] == 'i')
    base.erase(kSpecial.size(), 1);
  else
    return "";
  return name.overload_name.empty() ? base : base + "." + name.overload_name;
}

bool has_row(const c10::OperatorHandle& op) {
  thread_local PointerMap<bool> known;  // operators run without the GIL
  if (const bool* has = known.find(&op.schema())) return *has;
  const auto& name = op.operator_name();
  const std::string whole = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  return known[&op.schema()] = lowerings().contains(whole) || lowerings().contains(functional_name(name));
}

}  // namespace bolt::lower
