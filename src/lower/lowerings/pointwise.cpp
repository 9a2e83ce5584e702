// lower/lowerings/pointwise.cpp
// ATen's elementwise operators -> graph. Most follow from their row in graph/pointwise.def; the functions
// here are for the others.
#include <bit>
#include <limits>

#include "graph/device_facts.h"
#include "graph/pointwise.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "record/convert.h"
#include "support/text.h"

namespace bolt::lower {
namespace {

using c10::ScalarType;
using record::to_bolt;

using graph::Promotion;

/// An operator of ATen and the operation that it is. Those of two operands stand for the overloads .Tensor
/// and .Scalar (and none), with arguments self and other.
struct AtenOperation {
  std::string_view name;
  Op op;
  int operands;
  Promotion rule;
};

// Operators that are another one's operation under another rule of promotion.
constexpr AtenOperation kOthers[] = {
    {"logical_and", Op::bitwise_and, 2, Promotion::Bool},
    {"logical_or", Op::bitwise_or, 2, Promotion::Bool},
    {"logical_xor", Op::bitwise_xor, 2, Promotion::Bool},
};

const std::vector<AtenOperation>& rows() {
  static const auto* all = [] {
    auto* list = new std::vector<AtenOperation>(std::begin(kOthers), std::end(kOthers));
    for (const graph::PointwiseRow& r : graph::pointwise_rows())
      for (std::string_view name : split(r.aten, ' '))
        if (!name.empty()) list->push_back({name, r.op, r.operands, r.promotion});
    return list;
  }();
  return *all;
}

const AtenOperation* find_row(std::string_view name) {
  const std::string functional = functional_name({std::string(name), ""});
  if (!functional.empty()) name = functional;
  name.remove_prefix(name.find("::") + 2);
  for (const AtenOperation& r : rows())
    if (name == (r.operands == 2 ? r.name.substr(0, r.name.find('.')) : r.name)) return &r;
  return nullptr;
}

DType default_float() { return *to_bolt(c10::get_default_dtype_as_scalartype()); }

DType computed_in(const Call& c, Promotion rule, const std::vector<std::string_view>& names) {
  if (rule == Promotion::Bool) return DType::Bool;
  DType t = *to_bolt(c.promote(names));
  return rule == Promotion::Float && !is_float(t) ? default_float() : t;
}

std::vector<Value*> unary(Call& c) {
  const AtenOperation* row = find_row(c.name());
  DType t = computed_in(c, row->rule, {"self"});
  Value* x = c.operand("self", t);
  // Rounding and sign questions have trivial answers on integers.
  if (!is_float(t)) {
    if (row->op == Op::floor || row->op == Op::ceil || row->op == Op::trunc || row->op == Op::round)
      return {x};
    if (row->op == Op::isnan || row->op == Op::isinf) return {};
    if (t == DType::Bool && row->op != Op::logical_not && row->op != Op::bitwise_not) return {};
    if (t == DType::Bool) return {c.make(Op::logical_not, {x})};
  }
  return {c.make(row->op, {x})};
}

/// A number as a value of type t holds it. Where every value is rounded, one that differs between calls is
/// float32 first, since a number that is only cast stands for itself (round_once.h).
Value* held(const Call& c, std::string_view name, DType t) {
  if (!is_half(t) || c.is_tensor(name)) return c.operand(name, t);
  if (c.is_symbolic(name))
    return c.rounds_as_eager ? c.cast(c.number_value(name, DType::F32), t) : c.operand(name, t);
  const auto number = static_cast<float>(c.scalar(name).toDouble());
  return c.scalar_value(t == DType::BF16 ? float{c10::BFloat16(number)} : float{c10::Half(number)}, t);
}

/// ATen compares a half with a number as that type holds it, and so it does where a rest is left of a
/// division; other arithmetic takes the number as it is.
Value* compared(const Call& c, std::string_view name, DType t) { return held(c, name, t); }

/// An operand of a sum or a difference, or what one is multiplied with. Of halves, ATen has numbers as the
/// type holds them on the processor, and as they are elsewhere.
Value* summand(const Call& c, std::string_view name, DType t) {
  return c.rounds_as_eager && graph::is_processor(c.result_device()) ? held(c, name, t) : c.operand(name, t);
}
Value* times_alpha(const Call& c, Value* v) {
  if (!c.has("alpha") || (!c.is_symbolic("alpha") && c.scalar("alpha").equal(1))) return v;
  return c.make(Op::mul, {v, summand(c, "alpha", v->type.dtype)});
}

/// Halves by a number of another type that is a tensor on the processor: as it is, while sums round it first.
bool is_number_as_it_is(const Call& c, std::string_view name, Op op, DType t) {
  if (!c.rounds_as_eager || !is_half(t) || !c.is_tensor(name) || c.result_rank() == 0) return false;
  const graph::Type& type = c.tensor(name)->type;
  const bool product = op == Op::mul || op == Op::div;
  return type.rank() == 0 && type.dtype != t && graph::is_processor(type.device) &&
         (product || !graph::is_processor(c.result_device()));
}
/// op(self, other), which is rounded once where one of them is such a number.
Value* of_two(const Call& c, Op op, DType t, Value* a, Value* b) {
  const bool wide_a = is_number_as_it_is(c, "self", op, t), wide_b = is_number_as_it_is(c, "other", op, t);
  if (!wide_a && !wide_b) return c.make(op, {a, b});
  const auto wide = [&](const char* name, Value* v, bool as_it_is) {
    return c.cast(as_it_is ? c.tensor(name) : v, DType::F32);
  };
  return c.cast(c.make(op, {wide("self", a, wide_a), wide("other", b, wide_b)}), t);
}

std::vector<Value*> binary(Call& c) {
  const AtenOperation* row = find_row(c.name());
  DType t = computed_in(c, row->rule, {"self", "other"});
  Op op = row->op;
  if (t == DType::Bool) {
    if (op == Op::mul || op == Op::minimum) op = Op::bitwise_and;
    if (op == Op::maximum) op = Op::bitwise_or;
  }
  if (row->rule == Promotion::Compare) return {c.make(op, {compared(c, "self", t), compared(c, "other", t)})};
  return {of_two(c, op, t, c.operand("self", t), c.operand("other", t))};
}

// self + alpha * other
std::vector<Value*> add_or_sub(Call& c, Op op, const char* left, const char* right) {
  DType t = *to_bolt(c.promote({"self", "other"}));
  Value* b = times_alpha(c, summand(c, right, t));
  if (t == DType::Bool)
    return op == Op::add ? std::vector{c.make(Op::bitwise_or, {c.operand(left, t), b})}
                         : std::vector<Value*>{};
  return {c.make(op, {summand(c, left, t), b})};
}
std::vector<Value*> add(Call& c) { return add_or_sub(c, Op::add, "self", "other"); }
std::vector<Value*> sub(Call& c) { return add_or_sub(c, Op::sub, "self", "other"); }
std::vector<Value*> rsub(Call& c) {  // other - alpha * self
  DType t = *to_bolt(c.promote({"self", "other"}));
  Value* a = times_alpha(c, summand(c, "self", t));
  return {c.make(Op::sub, {summand(c, "other", t), a})};
}

/// Halves by a number: elsewhere than on the processor ATen multiplies by the number's reciprocal.
Value* times_reciprocal(const Call& c, DType t) {
  if (!c.rounds_as_eager || !is_half(t) || graph::is_processor(c.result_device())) return nullptr;
  if (c.is_tensor("other") || c.is_symbolic("other")) return nullptr;
  const double reciprocal = 1.0f / static_cast<float>(c.scalar("other").toDouble());
  return c.make(Op::mul, {c.operand("self", t), c.scalar_value(reciprocal, t)});
}

// Integer division by a number that is not zero cannot raise.
bool divisor_is_safe(Call& c, DType t) {
  return is_float(t) || (!c.is_tensor("other") && c.scalar("other").toDouble() != 0);
}

std::vector<Value*> divide(Call& c) {
  if (c.has("rounding_mode")) {
    DType t = *to_bolt(c.promote({"self", "other"}));
    if (t == DType::Bool || !divisor_is_safe(c, t)) return {};
    Op op = c.text("rounding_mode") == "floor" ? Op::floor_div : Op::trunc_div;
    return {c.make(op, {c.operand("self", t), c.operand("other", t)})};
  }
  DType t = computed_in(c, Promotion::Float, {"self", "other"});
  if (Value* share = times_reciprocal(c, t)) return {share};
  return {of_two(c, Op::div, t, c.operand("self", t), c.operand("other", t))};
}

std::vector<Value*> division_like(Call& c, Op op) {
  DType t = *to_bolt(c.promote({"self", "other"}));
  if (t == DType::Bool || !divisor_is_safe(c, t)) return {};
  return {c.make(op, {c.operand("self", t), c.operand("other", t)})};
}
std::vector<Value*> floor_divide(Call& c) { return division_like(c, Op::floor_div); }
std::vector<Value*> rest(Call& c, Op op) {
  DType t = *to_bolt(c.promote({"self", "other"}));
  if (t == DType::Bool || !divisor_is_safe(c, t)) return {};
  return {c.make(op, {compared(c, "self", t), compared(c, "other", t)})};
}
std::vector<Value*> remainder(Call& c) { return rest(c, Op::remainder); }
std::vector<Value*> fmod(Call& c) { return rest(c, Op::fmod); }

std::vector<Value*> shift(Call& c, Op op) {
  DType t = *to_bolt(c.promote({"self", "other"}));
  if (!is_int(t) || c.is_tensor("other")) return {};
  int64_t by = c.scalar("other").toLong();
  if (by < 0 || by >= dtype_bytes(t) * 8) return {};
  return {c.make(op, {c.operand("self", t), c.operand("other", t)})};
}
std::vector<Value*> shift_left(Call& c) { return shift(c, Op::shift_left); }
std::vector<Value*> shift_right(Call& c) { return shift(c, Op::shift_right); }

/// ATen's powers of halves are products of halves, each rounded, but for float16 on the processor.
Value* rounded_power(const Call& c, Value* x, double e) {
  const DType t = x->type.dtype;
  const bool rounds = t == DType::BF16 || !graph::is_processor(c.result_device());
  if (!c.rounds_as_eager || !is_half(t) || !rounds || (e != 3 && e != -2)) return nullptr;
  Value* wide = c.cast(x, DType::F32);
  Value* square = c.cast(c.make(Op::mul, {wide, wide}), t);
  return e == 3 ? c.make(Op::mul, {square, x}) : c.make(Op::reciprocal, {square});
}

// Small whole powers are products, and halves roots, as ATen computes them; of a float that differs between
// calls it is a power whatever it is.
std::vector<Value*> power(Call& c) {
  DType t = *to_bolt(c.promote({"self", "exponent"}));
  if (!is_float(t)) return {};
  if (!c.is_tensor("exponent") && !(c.is_symbolic("exponent") && c.is_real("exponent"))) {
    Value* x = c.operand("self", t);
    double e = c.scalar("exponent").toDouble();
    if (Value* rounded = rounded_power(c, x, e)) return {rounded};
    if (e == 1) return {c.make(Op::mul, {x, c.scalar_value(1.0, t)})};
    if (e == 2) return {c.make(Op::mul, {x, x})};
    if (e == 3) return {c.make(Op::mul, {c.make(Op::mul, {x, x}), x})};
    if (e == 0.5) return {c.make(Op::sqrt, {x})};
    if (e == -0.5) return {c.make(Op::rsqrt, {x})};
    if (e == -1) return {c.make(Op::reciprocal, {x})};
  }
  // ATen's pow takes numbers as halves hold them.
  const auto operand = [&](const char* name) {
    return c.rounds_as_eager ? held(c, name, t) : c.operand(name, t);
  };
  return {c.make(Op::pow, {operand("self"), operand("exponent")})};
}

std::vector<Value*> where(Call& c) {
  DType t = *to_bolt(c.promote({"self", "other"}));
  return {c.make(Op::where,
                 {c.cast(c.tensor("condition"), DType::Bool), c.operand("self", t), c.operand("other", t)})};
}
std::vector<Value*> masked_fill(Call& c) {
  DType t = c.result_dtype();
  Value* x = c.tensor("self");
  return {c.make(Op::where, {c.cast(c.tensor("mask"), DType::Bool), c.operand("value", t), c.cast(x, t)})};
}

std::vector<Value*> clamp(Call& c) {
  std::vector<std::string_view> names{"self"};
  if (c.has("min")) names.push_back("min");
  if (c.has("max")) names.push_back("max");
  DType t = *to_bolt(c.promote(names));
  Value* x = c.operand("self", t);
  if (c.has("min")) x = c.make(Op::maximum, {x, c.operand("min", t)});
  if (c.has("max")) x = c.make(Op::minimum, {x, c.operand("max", t)});
  return {x};
}

std::vector<Value*> gelu(Call& c) {
  return {c.make(Op::gelu, {c.tensor("self")}, {{"approximate", c.text("approximate")}})};
}
std::vector<Value*> hardtanh(Call& c) {
  if (c.is_symbolic("min_val") || c.is_symbolic("max_val")) {
    const Formula f(c);
    return f.only(f("self").with(Op::maximum, f("min_val")).with(Op::minimum, f("max_val")));
  }
  return {
      c.make(Op::hardtanh, {c.tensor("self")}, {{"min", c.number("min_val")}, {"max", c.number("max_val")}})};
}
std::vector<Value*> relu6(Call& c) {
  return {c.make(Op::hardtanh, {c.tensor("self")}, {{"min", 0.0}, {"max", 6.0}})};
}
std::vector<Value*> leaky_relu(Call& c) {
  if (c.is_symbolic("negative_slope")) {
    const Formula f(c);
    const Term x = f("self");
    return f.only(where(x > 0, x, x * f("negative_slope")));
  }
  return {c.make(Op::leaky_relu, {c.tensor("self")}, {{"slope", c.number("negative_slope")}})};
}
std::vector<Value*> elu(Call& c) {
  if (c.is_symbolic("alpha")) {
    const Formula f(c);
    const Term x = f("self");
    return f.only(
        where(x > 0, x * f("scale"), (x * f("input_scale")).apply(Op::expm1) * (f("alpha") * f("scale"))));
  }
  return {c.make(Op::elu, {c.tensor("self")},
                 {{"alpha", c.number("alpha")},
                  {"scale", c.has("scale") ? c.number("scale") : 1.0},
                  {"input_scale", c.has("input_scale") ? c.number("input_scale") : 1.0}})};
}
std::vector<Value*> softplus(Call& c) {
  if (c.is_symbolic("beta") || c.is_symbolic("threshold")) {
    const Formula f(c);
    const Term x = f("self"), scaled = x * f("beta");
    return f.only(where(scaled > f("threshold"), x, log1p(exp(scaled)) / f("beta")));
  }
  return {c.make(Op::softplus, {c.tensor("self")},
                 {{"beta", c.number("beta")}, {"threshold", c.number("threshold")}})};
}

std::vector<Value*> addcmul_or_div(Call& c, Op op) {
  DType t = *to_bolt(c.promote({"self", "tensor1", "tensor2"}));
  if (!is_float(t)) return {};
  Value* p = c.make(op, {c.operand("tensor1", t), c.operand("tensor2", t)});
  return {c.make(Op::add, {c.operand("self", t), c.times(p, "value")})};
}
std::vector<Value*> addcmul(Call& c) { return addcmul_or_div(c, Op::mul); }
std::vector<Value*> addcdiv(Call& c) { return addcmul_or_div(c, Op::div); }

std::vector<Value*> lerp(Call& c) {  // ATen picks the end that keeps lerp(a, b, 1) == b
  DType t = c.result_dtype();
  Value *a = c.operand("self", t), *b = c.operand("end", t), *w = c.operand("weight", t);
  Value* diff = c.make(Op::sub, {b, a});
  Value* low = c.make(Op::add, {a, c.make(Op::mul, {w, diff})});
  Value* high = c.make(Op::sub, {b, c.make(Op::mul, {diff, c.make(Op::sub, {c.scalar_value(1.0, t), w})})});
  Value* is_low = c.make(Op::lt, {c.make(Op::abs, {w}), c.scalar_value(0.5, t)});
  return {c.make(Op::where, {is_low, low, high})};
}

std::vector<Value*> square(Call& c) {
  Value* x = c.operand("self", c.result_dtype());  // of bools: integers
  return {c.make(Op::mul, {x, x})};
}
std::vector<Value*> isfinite(Call& c) {
  Value* x = c.tensor("self");
  if (!is_float(x->type.dtype)) return {};
  // x - x is 0 exactly when x is finite
  return {c.make(Op::eq, {c.make(Op::sub, {x, x}), c.scalar_value(0.0, x->type.dtype)})};
}
std::vector<Value*> glu(Call& c) {
  Value* x = c.tensor("self");
  int64_t dim = Call::wrap(c.integer("dim"), x->type.rank());
  Sym half = floordiv(x->type.sizes[dim], 2);
  if (half * Sym(2) != x->type.sizes[dim]) x->type.sizes[dim].value();
  auto part = [&](Sym start) { return c.make(Op::slice, {x}, graph::slice_attrs(dim, start, half)); };
  return {c.make(Op::mul, {part(0), c.make(Op::sigmoid, {part(half)})})};
}
// Identity on values; the recorded storage says it is a copy.
std::vector<Value*> same(Call& c) { return {c.tensor("self")}; }
std::vector<Value*> copy_into(Call& c) { return {c.tensor("src")}; }
std::vector<Value*> fill(Call& c) {
  DType t = c.result_dtype();
  return {c.make(Op::expand, {c.operand("value", t)}, {{"sizes", c.sizes("self")}})};
}
std::vector<Value*> zero(Call& c) {
  return {c.make(Op::expand, {c.scalar_value(0, c.result_dtype())}, {{"sizes", c.sizes("self")}})};
}
/// ATen looks at p whether it drops anything or not. As bits, numbers from 0 on are whole numbers from 0 on,
/// in the same order, and 2.0 is 2**62.
void stay_probable(Call& c) {
  if (!c.is_symbolic("p")) return;
  const Sym bits = c.sym("p");
  c.decide(floordiv(bits, int64_t{1} << 62), Relation::eq, 0);
  c.decide(bits, Relation::le, std::bit_cast<int64_t>(1.0));
}
std::vector<Value*> dropout(Call& c) {
  // Draws random numbers: stays ATen's.
  if (c.flag("train") && (c.is_symbolic("p") || c.number("p") > 0)) return {};
  if (!c.is_data("p")) stay_probable(c);  // of data the recording has seen to it (World::tell_0_and_1)
  return {c.tensor(c.is_tensor("input") ? "input" : "self")};  // dropout_ names it otherwise
}

// What is no number or infinite becomes one; by default 0 and the largest of the element type.
std::vector<Value*> nan_to_num(Call& c) {
  Value* x = c.tensor("self");
  const DType t = x->type.dtype;
  if (is_opaque(t)) return {};
  if (!is_float(t)) return {x};
  const double largest = t == DType::F64   ? std::numeric_limits<double>::max()
                         : t == DType::F16 ? 65504.0
                         : t == DType::F32 ? static_cast<double>(std::numeric_limits<float>::max())
                                           : 3.3895313892515355e38;
  auto number = [&](const char* name, double otherwise) {
    return c.scalar_value(c.has(name) ? c.number(name) : otherwise, t);
  };
  const double infinity = std::numeric_limits<double>::infinity();
  auto instead = [&](double of, const char* name, double otherwise, Value* v) {
    return c.make(Op::where, {c.make(Op::eq, {x, c.scalar_value(of, t)}), number(name, otherwise), v});
  };
  Value* v = c.make(Op::where, {c.make(Op::isnan, {x}), number("nan", 0), x});
  v = instead(infinity, "posinf", largest, v);
  return {instead(-infinity, "neginf", -largest, v)};
}

}  // namespace

void add_pointwise(Table& t) {
  for (const AtenOperation& r : rows()) {
    std::string name = "aten::" + std::string(r.name);
    t[name] = {r.operands == 1 ? unary : binary, nullptr};
    if (r.operands == 2 && name.find('.') == std::string::npos)
      for (const char* overload : {".Tensor", ".Scalar"}) t[name + overload] = {binary, nullptr};
  }
  const RowsByName row{t};
  row(add, {"add.Tensor", "add.Scalar"});
  row(sub, {"sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar"});
  row(rsub, {"rsub.Tensor", "rsub.Scalar"});
  row(divide, {"div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "divide.Tensor",
               "divide.Scalar", "true_divide.Tensor", "true_divide.Scalar"});
  row(floor_divide, {"floor_divide", "floor_divide.Scalar"});
  row(remainder, {"remainder.Tensor", "remainder.Scalar"});
  row(fmod, {"fmod.Tensor", "fmod.Scalar"});
  row(shift_left, {"__lshift__.Scalar", "bitwise_left_shift.Tensor_Scalar"});
  row(shift_right, {"__rshift__.Scalar", "bitwise_right_shift.Tensor_Scalar"});
  row(power, {"pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"});
  row(where, {"where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"});
  row(masked_fill, {"masked_fill.Scalar", "masked_fill.Tensor"});
  row(clamp, {"clamp", "clamp.Tensor", "clip", "clip.Tensor", "clamp_min", "clamp_min.Tensor", "clamp_max",
              "clamp_max.Tensor"});
  row(gelu, {"gelu"});
  row(hardtanh, {"hardtanh"});
  row(relu6, {"relu6"});
  row(leaky_relu, {"leaky_relu"});
  row(elu, {"elu"});
  row(softplus, {"softplus"});
  row(addcmul, {"addcmul"});
  row(addcdiv, {"addcdiv"});
  row(lerp, {"lerp.Scalar", "lerp.Tensor"});
  row(nan_to_num, {"nan_to_num"});
  row(square, {"square"});
  row(isfinite, {"isfinite"});
  row(glu, {"glu"});
  row.moving(same, {"clone", "lift_fresh", "lift_fresh_copy", "positive"});
  row.moving(copy_into, {"copy"});
  row(fill, {"fill.Scalar", "fill.Tensor"});
  row.moving(zero, {"zero"});
  row(dropout, {"dropout", "feature_dropout", "alpha_dropout"});
}

}  // namespace bolt::lower
