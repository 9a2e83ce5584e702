// lower/lowerings/losses.cpp
// Rows for losses and their gradients.
//
// A loss over classes picks one number of each row: of the logits, not of their softmax, which is then stored
// nowhere however many classes there are. It is top-first, (x[label] - max) - log(sum(exp(x - max))), as
// ATen's log_softmax: max + log(...) first would lose the digits of small losses of large logits.
#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

Term no_less(Term a, double b) { return a.with(Op::maximum, a.number(b)); }

enum Reduction : int64_t { kNone, kMean, kSum };

Sym count_of(const Term& t) { return product(t.sizes()); }
Term total(Term t) { return t.sum(dims_between(0, t.rank()), false); }

/// The loss of each element, their mean or their sum.
Term reduced(Call& c, const Formula& f, Term each) {
  const int64_t reduction = c.integer("reduction");
  if (reduction == kNone) return each;
  return reduction == kMean ? total(each) / f.count(count_of(each)) : total(each);
}
/// What the gradient of a reduced loss is multiplied with for each element.
Term incoming(Call& c, const Formula& f, Term x) {
  Term g = f("grad_output");
  return c.integer("reduction") == kMean ? g / f.count(count_of(x)) : g;
}

// ---- of differences ----

Term mse(Call& c, const Formula& f) {
  Term d = f("self") - f("target");
  return reduced(c, f, d * d);
}
Results mse_backward(Call& c) {
  Formula f(c);
  Term d = f("self") - f("target");
  return f.only(2 * d * incoming(c, f, d));
}
Term l1(Call& c, const Formula& f) { return reduced(c, f, abs(f("self") - f("target"))); }

// A parabola near 0 and straight lines outside, of slope 1 (smooth_l1) or delta (huber).
Term smooth_l1(Call& c, const Formula& f) {
  const double beta = c.number("beta");
  Term z = abs(f("self") - f("target"));
  return reduced(c, f, beta == 0 ? z : where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta));
}
Term huber(Call& c, const Formula& f) {
  const double delta = c.number("delta");
  Term z = abs(f("self") - f("target"));
  return reduced(c, f, where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta)));
}
Results bent_backward(Call& c, double bend, double slope, double curve) {
  Formula f(c);
  Term d = f("self") - f("target"), g = incoming(c, f, d);
  return f.only(where(d <= -bend, -slope * g, where(d >= bend, slope * g, d * g / curve)));
}
Results smooth_l1_backward(Call& c) { return bent_backward(c, c.number("beta"), 1, c.number("beta")); }
Results huber_backward(Call& c) { return bent_backward(c, c.number("delta"), c.number("delta"), 1); }

// ---- of probabilities ----

Term weighted(Call& c, const Formula& f, Term each) { return c.has("weight") ? each * f("weight") : each; }

// Eager refuses inputs outside of [0, 1]; the place of none of them is among the one there is.
Term binary_cross_entropy(Call& c, const Formula& f) {
  Term x = f("self"), target = f("target");
  Term outside = where((x >= 0) & (x <= 1), Term{&c, c.scalar_value(0, DType::I64)}, 1);
  Term each = (target - 1) * no_less(log1p(-x), -100) - target * no_less(log(x), -100);
  each = where(f.checked(outside, 1) == 0, each, 0);
  return reduced(c, f, weighted(c, f, each));
}
Results binary_cross_entropy_backward(Call& c) {
  Formula f(c);
  Term x = f("self");
  Term each = incoming(c, f, x) * (x - f("target")) / no_less((1 - x) * x, 1e-12);
  return f.only(weighted(c, f, each));
}
Term binary_cross_entropy_with_logits(Call& c, const Formula& f) {
  Term x = f("self"), target = f("target"), low = x.apply(Op::log_sigmoid);
  if (c.has("pos_weight")) low = low * ((f("pos_weight") - 1) * target + 1);
  return reduced(c, f, weighted(c, f, (1 - target) * x - low));
}
Term soft_margin(Call& c, const Formula& f) { return reduced(c, f, log1p(exp(-f("target") * f("self")))); }
Results soft_margin_backward(Call& c) {
  Formula f(c);
  Term x = f("self"), target = f("target"), z = exp(-target * x);
  return f.only(-target * z * incoming(c, f, x) / (z + 1));
}

/// x * log(y): 0 where x is, NaN where y is.
Term x_log_y(Term x, Term y) { return where(y.apply(Op::isnan), y, where(x == 0, 0, x * log(y))); }
Term xlogy(const Formula& f) { return x_log_y(f("self"), f("other")); }
Term kl_div(Call& c, const Formula& f) {
  Term x = f("self"), target = f("target");
  Term each = c.flag("log_target") ? exp(target) * (target - x) : x_log_y(target, target) - target * x;
  return reduced(c, f, each);
}

// ---- over classes ----

/// A batch of rows x[N, C, ...] and for each row the class that it is of. One row alone is a batch of one.
struct Classes {
  Call& c;
  const Formula& f;
  bool alone;
  Syms sizes;     ///< of x
  Syms one_each;  ///< [N, 1, ...]
  Term kept;      ///< [N, 1, ...]: is the label another than the one that is ignored?
  Term labels;    ///< [N, 1, ...], 0 where it is ignored

  static Syms batch(const Syms& sizes) { return sizes.size() == 1 ? Syms{Sym(1), sizes[0]} : sizes; }
  static Syms without_classes(Syms sizes) {
    sizes[1] = 1;
    return sizes;
  }
  static Term label(Call& c, const Syms& one_each) {
    return Term{&c, c.tensor("target")}.reshaped(one_each).as(DType::I64);
  }
  static Term is_kept(Call& c, Term label) {
    return label != Term{&c, c.number_value("ignore_index", DType::I64)};
  }

  Classes(Call& call, const Formula& formula)
      : c(call),
        f(formula),
        alone(call.rank("self") == 1),
        sizes(batch(call.sizes("self"))),
        one_each(without_classes(sizes)),
        kept(is_kept(call, label(call, one_each))),
        labels(where(kept, label(call, one_each), 0)) {}

  Term picked(Term x) const {
    Term rows = x.reshaped(sizes);
    return {&c, c.make(Op::gather, {rows.value, labels.value}, {{"dim", int64_t{1}}})};
  }
  /// Of the classes that the rows are of; 0 where a label is ignored.
  Term weights() const {
    if (!c.has("weight")) return where(kept, f.number(1), 0);
    Term of_label{&c, c.make(Op::embedding, {f("weight").value, labels.value})};
    return where(kept, of_label, 0);
  }
  Term weights_of_all() const {
    Syms shape(sizes.size(), Sym(1));
    shape[1] = sizes[1];
    return f("weight").reshaped(shape);
  }
  /// One number for each row -> as `reduction` wants it; `by` is what the mean divides by.
  Term reduced(Term each, Term by) const {
    const int64_t reduction = c.integer("reduction");
    if (reduction == kNone) return each.reshaped(labels_as_given());
    return reduction == kMean ? total(each) / by : total(each);
  }
  Syms labels_as_given() const {
    Syms given = one_each;
    given.erase(given.begin() + 1);
    return alone ? Syms{} : given;
  }
};

bool has_rows(Call& c) { return c.rank("self") >= 1 && !product(c.sizes("self")).is_const(0); }

Results nll(Call& c) {
  Formula f(c);
  if (!f.is_real() || !has_rows(c)) return {};
  Classes k(c, f);
  Term log_p = k.picked(f("self"));
  Term weights = k.weights(), all = total(weights);
  Term loss = k.reduced(where(k.kept, -log_p * weights, 0), all);
  if (c.result_count() == 1) return f.only(loss);
  const bool counts = c.integer("reduction") != kNone || k.alone;
  return {f.result(loss), f.result(counts ? all : f.number(0), 1)};
}

Results nll_backward(Call& c) {
  Formula f(c);
  if (!has_rows(c)) return {};
  Classes k(c, f);
  Term g = f("grad_output");
  const int64_t reduction = c.integer("reduction");
  if (reduction == kNone) g = g.reshaped(k.one_each);
  if (reduction == kMean) g = g / f("total_weight").reshaped({});
  Term here = f.places(k.sizes[1], 1, k.sizes.size()) == k.labels;
  return f.only(where(here, -(g * k.weights()), 0).reshaped(c.sizes("self")));
}

/// With a probability for each class.
Term cross_entropy_of_shares(Call& c, const Formula& f, double smoothing) {
  Term x = f("self"), target = f("target");
  const int64_t dim = x.rank() == 1 ? 0 : 1;
  const Sym classes = x.sizes()[dim];
  if (smoothing > 0) target = target * (1 - smoothing) + f.number(smoothing) / f.count(classes);
  Term each = x.apply(Op::log_softmax, {{"dim", dim}}) * target;
  if (c.has("weight")) {
    Syms shape(static_cast<size_t>(x.rank()), Sym(1));
    shape[dim] = classes;
    each = each * f("weight").reshaped(shape);
  }
  return reduced(c, f, -each.sum({Sym(dim)}, false));
}

Term cross_entropy_of_labels(Call& c, const Formula& f, double smoothing) {
  Classes k(c, f);
  Term x = f("self"), weights = k.weights(), all = total(weights);
  Term log_p = x.reshaped(k.sizes).apply(Op::log_softmax, {{"dim", int64_t{1}}});
  Term hit = k.reduced(where(k.kept, -k.picked(log_p) * weights, 0), all);
  if (smoothing == 0) return hit;
  if (c.has("weight")) log_p = log_p * k.weights_of_all();
  Term smooth = k.reduced(where(k.kept, -log_p.sum({Sym(1)}), 0), all);
  return (1 - smoothing) * hit + smooth * (f.number(smoothing) / f.count(k.sizes[1]));
}

Results cross_entropy(Call& c) {
  Formula f(c);
  if (!f.is_real() || !has_rows(c)) return {};
  const double smoothing = c.number("label_smoothing");
  return f.only(is_float(c.tensor("target")->type.dtype) ? cross_entropy_of_shares(c, f, smoothing)
                                                         : cross_entropy_of_labels(c, f, smoothing));
}

/// How far each other class of a row comes up to the class that the row is of: x[j] - x[label] + margin,
/// where that is positive. It is taken to the power p (1 or 2), and the classes' mean is the row's loss.
struct Margins {
  Syms sizes;  ///< [N, C]
  Term labels, other, rise;

  Margins(Call& c, const Formula& f)
      : sizes(Classes::batch(c.sizes("self"))),
        labels(Classes::label(c, Classes::without_classes(sizes))),
        other(f.places(sizes[1], 1, 2) != labels),
        rise(f("self").reshaped(sizes)) {
    const Term own{&c, c.make(Op::gather, {rise.value, labels.value}, {{"dim", int64_t{1}}})};
    rise = rise - own + c.number("margin");
    rise = where(other & (rise > 0), rise, 0);
  }
  /// For each row, by its class.
  Term weighted(Call& c, const Formula& f, Term rows) const {
    if (!c.has("weight")) return rows;
    return rows * Term{&c, c.make(Op::embedding, {f("weight").value, labels.value})};
  }
};

bool has_margins(Call& c, const Formula& f) { return f.is_real() && c.rank("self") <= 2 && has_rows(c); }

Results multi_margin(Call& c) {
  Formula f(c);
  if (!has_margins(c, f)) return {};
  const Margins m(c, f);
  Term each = c.number("p") == 1 ? m.rise : m.rise * m.rise;
  each = m.weighted(c, f, each.sum({Sym(1)})) / f.count(m.sizes[1]);
  Term loss = reduced(c, f, each);
  return f.only(c.integer("reduction") == kNone ? loss.reshaped(c.sizes("target")) : loss);
}
Results multi_margin_backward(Call& c) {
  Formula f(c);
  if (!has_margins(c, f)) return {};
  const Margins m(c, f);
  Term g = f("grad_output");
  if (c.integer("reduction") == kNone) g = g.reshaped(Classes::without_classes(m.sizes));
  if (c.integer("reduction") == kMean) g = g / f.count(m.sizes[0]);
  const Term slope = where(m.rise > 0, c.number("p") == 1 ? f.number(1) : 2 * m.rise, 0);
  const Term all = where(m.other, slope, -slope.sum({Sym(1)}));
  return f.only((all * m.weighted(c, f, g) / f.count(m.sizes[1])).reshaped(c.sizes("self")));
}

}  // namespace

void add_losses(Table& t) {
  const RowsByName row{t};
  row(of_reals<mse>, {"mse_loss"});
  row(mse_backward, {"mse_loss_backward"});
  row(of_reals<l1>, {"l1_loss"});
  row(of_reals<smooth_l1>, {"smooth_l1_loss"});
  row(smooth_l1_backward, {"smooth_l1_loss_backward"});
  row(of_reals<huber>, {"huber_loss"});
  row(huber_backward, {"huber_loss_backward"});
  row(of_reals<binary_cross_entropy>, {"binary_cross_entropy"});
  row(binary_cross_entropy_backward, {"binary_cross_entropy_backward"});
  row(of_reals<binary_cross_entropy_with_logits>, {"binary_cross_entropy_with_logits"});
  row(of_reals<soft_margin>, {"soft_margin_loss"});
  row(soft_margin_backward, {"soft_margin_loss_backward"});
  row(of_reals<xlogy>, {"xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other"});
  row(of_reals<kl_div>, {"kl_div"});
  row(nll, {"nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss2d", "nll_loss_nd"});
  row(nll_backward, {"nll_loss_backward", "nll_loss2d_backward"});
  row(cross_entropy, {"cross_entropy_loss"});
  row(multi_margin, {"multi_margin_loss"});
  row(multi_margin_backward, {"multi_margin_loss_backward"});
}

}  // namespace bolt::lower
