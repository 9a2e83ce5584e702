// lower/lowerings/activations.cpp
// Rows for the gradients of activations and softmax, and for the activations that only exist below autograd.
//
// Formulas and what they make of the edges (NaN, infinities, the points where pieces meet) are ATen's.
#include <cmath>
#include <numbers>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "record/dropout.h"

namespace bolt::lower {
namespace {

using std::numbers::inv_sqrtpi;
using std::numbers::sqrt2;

// Of real numbers it is their sign; the gradient of abs is made of it.
std::vector<Value*> sgn(Call& c) {
  if (c.result_dtype() == DType::Bool) return {};
  return {c.make(Op::sign, {c.tensor("self")})};
}

std::vector<Value*> threshold_backward(Call& c) {
  Formula f(c);
  return f.only(where(f("self") <= f("threshold"), 0, f("grad_output")));
}
std::vector<Value*> threshold(Call& c) {
  Formula f(c);
  return f.only(where(f("self") <= f("threshold"), f("value"), f("self")));
}

std::vector<Value*> gelu_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), x = f("self");
  if (c.text("approximate") == "none") {
    Term density = exp(-0.5 * x * x) * (inv_sqrtpi / sqrt2);
    return f.only(g * (x.apply(Op::ndtr) + x * density));
  }
  constexpr double kBeta = sqrt2 * inv_sqrtpi, kKappa = 0.044715;
  Term square = x * x;
  Term inner = tanh(kBeta * (x + kKappa * square * x));
  Term slope = kBeta * (1 + 3 * kKappa * square);
  return f.only(g * (0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * slope));
}

std::vector<Value*> silu_backward(Call& c) {
  Formula f(c);
  Term x = f("self"), s = sigmoid(x);
  return f.only(f("grad_output") * s * (1 + x * (1 - s)));
}
std::vector<Value*> sigmoid_backward(Call& c) {
  Formula f(c);
  Term y = f("output");
  return f.only(f("grad_output") * (1 - y) * y);
}
std::vector<Value*> tanh_backward(Call& c) {
  Formula f(c);
  Term y = f("output");
  return f.only(f("grad_output") * (1 - y * y));
}
std::vector<Value*> mish_backward(Call& c) {
  Formula f(c);
  Term x = f("self"), t = tanh(exp(x).apply(Op::log1p));
  return f.only(f("grad_output") * (t + x * sigmoid(x) * (1 - t * t)));
}

// Of what went in, or of what came out.
std::vector<Value*> elu_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), x = f("self_or_result");
  Term alpha = f("alpha"), scale = f("scale"), input_scale = f("input_scale");
  Term low = alpha * scale;
  Term slope = c.flag("is_result") ? input_scale * (x + low) : input_scale * low * exp(x * input_scale);
  return f.only(where(x <= 0, g * slope, g * scale));
}
std::vector<Value*> celu(Call& c) {
  if (c.is_symbolic("alpha") || c.number("alpha") == 0) return {};
  return {c.make(Op::elu, {c.tensor("self")},
                 {{"alpha", c.number("alpha")}, {"scale", 1.0}, {"input_scale", 1 / c.number("alpha")}})};
}
std::vector<Value*> leaky_relu_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output");
  return f.only(where(f("self") > 0, g, g * f("negative_slope")));
}
std::vector<Value*> prelu(Call& c) {
  Formula f(c);
  Term x = f("self");
  return f.only(where(x > 0, x, f("weight") * x));
}
/// The operator that users call: a weight for each channel, or one for all.
std::vector<Value*> prelu_of_channels(Call& c) {
  Formula f(c);
  Term x = f("self"), weight = f("weight");
  if (!f.is_real() || c.tensor("weight")->type.dtype != c.tensor("self")->type.dtype) return {};
  Syms shape;
  if (!weight.value->type.numel().is_const(1)) {
    if (x.rank() < 2 || weight.rank() != 1) return {};
    shape.push_back(1);
    shape.push_back(weight.sizes()[0]);
    for (int d = 2; d < x.rank(); ++d) shape.push_back(1);
  }
  return f.only(where(x > 0, x, weight.reshaped(shape) * x));
}
std::vector<Value*> frac(Call& c) {
  Formula f(c);
  Term x = f("self");
  return f.is_real() ? f.only(x - x.apply(Op::trunc)) : std::vector<Value*>{};
}
// Of equal infinities the difference is no number.
std::vector<Value*> logaddexp(Call& c) {
  Formula f(c);
  if (!f.is_real() || is_opaque(c.result_dtype())) return {};
  Term a = f("self"), b = f("other"), largest = a.with(Op::maximum, b);
  Term same = (a == b) & a.apply(Op::isinf);
  return f.only(where(same, a, largest + log1p(exp(-abs(a - b)))));
}
std::vector<Value*> selu(Call& c) {
  Value* x = c.tensor("self");
  if (!is_float(x->type.dtype)) return {};
  return {c.make(Op::elu, {x},
                 {{"alpha", 1.6732632423543772848170429916717},
                  {"scale", 1.0507009873554804934193349852946},
                  {"input_scale", 1.0}})};
}
std::vector<Value*> prelu_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), x = f("self"), positive = x > 0;
  Term of_input = where(positive, g, f("weight") * g), of_weight = where(positive, 0, x * g);
  return {f.result(of_input), f.result(of_weight, 1)};
}

std::vector<Value*> hardswish_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), x = f("self");
  return f.only(where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g)));
}
std::vector<Value*> hardsigmoid_backward(Call& c) {
  Formula f(c);
  Term x = f("self");
  constexpr double kSixth = 1.0f / 6.0f;  // in float64, too
  return f.only(where((x > -3) & (x < 3), f("grad_output") * kSixth, 0));
}
std::vector<Value*> hardtanh_backward(Call& c) {
  Formula f(c);
  Term x = f("self");
  return f.only(where((x <= f("min_val")) | (x >= f("max_val")), 0, f("grad_output")));
}
std::vector<Value*> shrink_backward(Call& c) {
  Formula f(c);
  Term x = f("self"), edge = f("lambd");
  Term g = f(c.name() == "aten::hardshrink_backward" ? "grad_out" : "grad_output");
  return f.only(where((x >= -edge) & (x <= edge), 0, g));
}
std::vector<Value*> hardshrink(Call& c) {
  Formula f(c);
  Term x = f("self"), edge = f("lambd");
  return f.only(where((x >= -edge) & (x <= edge), 0, x));
}
std::vector<Value*> softshrink(Call& c) {
  Formula f(c);
  Term x = f("self"), edge = f("lambd");
  return f.only(where(x > edge, x - edge, where(x < -edge, x + edge, x * 0)));
}
std::vector<Value*> softplus_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), scaled = f("self") * f("beta"), z = exp(scaled);
  return f.only(where(scaled > f("threshold"), g, g * z / (z + 1)));
}

// The buffer that the processor keeps, exp(-|x|), is as quickly computed as read; a GPU keeps none.
std::vector<Value*> log_sigmoid_forward(Call& c) {
  Formula f(c);
  Term x = f("self"), z = exp(-abs(x));
  const bool kept = c.result_rank(1) == x.rank() && !(c.result_rank(1) == 1 && c.result_size(1, 0) == 0);
  if (kept != graph::is_processor(c.result_device())) return {};
  Term low = x.with(Op::minimum, f.number(0));
  return {f.result(low - z.apply(Op::log1p)), f.result(kept ? z : f.full(0, {Sym(0)}), 1)};
}
std::vector<Value*> log_sigmoid_backward(Call& c) {
  Formula f(c);
  Term x = f("self"), z = exp(-abs(x)), share = z / (1 + z);
  return f.only(f("grad_output") * where(x < 0, 1 - share, share));
}

std::vector<Value*> glu_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), x = f("self");
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const Sym half = g.sizes()[dim];
  Term s = sigmoid(x.part(dim, half, half));
  Term of_value = s * g, of_gate = (1 - s) * s * g * x.part(dim, 0, half);
  return {c.make(Op::cat, {f.result(of_value), f.result(of_gate)}, {{"dim", dim}})};
}

std::vector<Value*> logit(Call& c) {
  Formula f(c);
  if (!f.is_real()) return {};
  Term x = f("self");
  if (c.has("eps")) {
    Term eps = f("eps");
    x = where(x < eps, eps, where(x > 1 - eps, 1 - eps, x));
  }
  return f.only((x / (1 - x)).apply(Op::log));
}
std::vector<Value*> logit_backward(Call& c) {
  Formula f(c);
  Term x = f("self"), inside = f("grad_output") / (x * (1 - x));
  if (!c.has("eps")) return f.only(where((x < 0) | (x > 1), std::nan(""), inside));
  Term eps = f("eps");
  return f.only(where((x < eps) | (x > 1 - eps), 0, inside));
}

std::vector<Value*> dropout_backward(Call& c) {
  Formula f(c);
  return f.only(f("grad_output") * f("mask") * f("scale"));
}

// A softmax that gives zeros where it sees nothing at all.
std::vector<Value*> safe_softmax(Call& c) {
  Formula f(c);
  Term x = f("self");
  if (!f.is_real() || x.rank() == 0) return {};
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  Term y = x.apply(Op::softmax, {{"dim", dim}});
  Term nothing = x.reduced(Op::amax, {Sym(dim)}, true) == -std::numeric_limits<double>::infinity();
  return f.only(where(nothing, 0, y));
}
std::vector<Value*> softmax_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), y = f("output");
  if (y.rank() == 0) return {};
  const Syms dim{Call::wrap(c.integer("dim"), y.rank())};
  return f.only(y * (g - (g * y).sum(dim)));
}
/// Of which a log softmax is made, as where it is made at once (autograd/row_statistics.h).
std::vector<Value*> log_softmax_statistics(Call& c) {
  Formula f(c);
  const Term x = f("self");
  const Syms dim{Call::wrap(c.integer("dim"), x.rank())};
  const Term top = x.reduced(Op::amax, dim, true);
  return {f.result(top), f.result(log(exp(x - top).sum(dim)), 1)};
}
std::vector<Value*> log_softmax_with(Call& c) {
  Formula f(c);
  return f.only(f("self") - f("top") - f("log_sum"));
}
std::vector<Value*> log_softmax_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output"), y = f("output");
  if (y.rank() == 0) return {};
  const Syms dim{Call::wrap(c.integer("dim"), y.rank())};
  return f.only(g - exp(y) * g.sum(dim));
}

/// record/dropout.h
std::vector<Value*> dropout_keep(Call& c) {
  const Syms sizes = c.syms("sizes");
  const Sym numel = product(sizes);
  auto number = [&](Sym n) { return c.make(Op::scalar, {}, {{"value", Syms{n}}, {"dtype", DType::I64}}); };
  auto of_state = [&](int64_t at) {
    return c.reshape(c.make(Op::slice, {c.tensor("state")}, graph::slice_attrs(0, at, 1)), {});
  };
  const Sym threads =
      min(ceildiv(numel, record::kDropoutBlock) * record::kDropoutBlock, Sym(c.integer("most")));
  Value* position = c.reshape(c.make(Op::iota, {}, {{"size", Syms{numel}}, {"dtype", DType::I64}}), sizes);
  Value* drawn =
      c.make(Op::random, {of_state(0), of_state(1), number(threads), number(c.integer("vector")), position});
  // The numbers are floats: below a double is what is below the next float from there on.
  const double keep = c.number("keep");
  auto least = static_cast<float>(keep);
  if (least < keep) least = std::nextafter(least, 2.0f);
  return {c.make(Op::lt, {drawn, c.scalar_value(least, DType::F32)})};
}

}  // namespace

void add_activations(Table& t) {
  const RowsByName row{t};
  row(sgn, {"sgn"});
  row(threshold, {"threshold"});
  row(threshold_backward, {"threshold_backward"});
  row(gelu_backward, {"gelu_backward"});
  row(silu_backward, {"silu_backward"});
  row(sigmoid_backward, {"sigmoid_backward"});
  row(tanh_backward, {"tanh_backward"});
  row(mish_backward, {"mish_backward"});
  row(elu_backward, {"elu_backward"});
  row(celu, {"celu"});
  row(leaky_relu_backward, {"leaky_relu_backward"});
  row(prelu_of_channels, {"prelu"});
  row(frac, {"frac"});
  row(logaddexp, {"logaddexp"});
  row(selu, {"selu"});
  row(prelu, {"_prelu_kernel"});
  row(prelu_backward, {"_prelu_kernel_backward"});
  row(hardswish_backward, {"hardswish_backward"});
  row(hardsigmoid_backward, {"hardsigmoid_backward"});
  row(hardtanh_backward, {"hardtanh_backward"});
  row(shrink_backward, {"hardshrink_backward", "softshrink_backward"});
  row(hardshrink, {"hardshrink"});
  row(softshrink, {"softshrink"});
  row(softplus_backward, {"softplus_backward"});
  row(log_sigmoid_forward, {"log_sigmoid_forward"});
  row(log_sigmoid_backward, {"log_sigmoid_backward"});
  row(glu_backward, {"glu_backward"});
  row(logit, {"logit"});
  row(logit_backward, {"logit_backward"});
  row(dropout_backward, {"native_dropout_backward"});
  t["torchbolt::dropout_keep"] = {dropout_keep, nullptr};
  row(safe_softmax, {"_safe_softmax"});
  row(softmax_backward, {"_softmax_backward_data"});
  row(log_softmax_backward, {"_log_softmax_backward_data"});
  t["torchbolt::log_softmax_statistics"] = {log_softmax_statistics, nullptr};
  t["torchbolt::log_softmax_with"] = {log_softmax_with, nullptr};
}

}  // namespace bolt::lower
