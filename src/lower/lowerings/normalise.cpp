// lower/lowerings/normalise.cpp
// Rows for normalisations as autograd calls them, which keep mean and reciprocal deviation, and their
// gradients.
//
//   n = (x - mean) * rstd     y = n * weight + bias     over the dimensions `over`
//   of x:      rstd * (h - mean(h) - n * mean(h * n))   h = gradient * weight
//   of weight: sum(gradient * n)   of bias: sum(gradient)     over the dimensions that these do not have
//
// Everything is computed in the compute type of x, whatever the parameters are, and rounded once. Variances
// come from differences from the mean. ATen's form of the first line, a * x + b with a and b per row, loses
// digits where the mean is large.
#include <limits>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

struct Moments {
  Term mean, rstd, normal;
  Term squares;  // the squared differences
};

Sym elements(const Term& x, const Syms& over) {
  Sym n = 1;
  for (Sym d : over) n *= x.sizes()[d.value()];
  return n;
}

Moments moments(Term x, const Syms& over, Term eps) {
  Term mean = x.mean(over), centred = x - mean, squares = centred * centred;
  Term rstd = (squares.mean(over) + eps).apply(Op::rsqrt);
  return {mean, rstd, centred * rstd, squares};
}

/// A parameter, where it is given, in the sizes that meet x.
Term scaled(Call& c, const Formula& f, Term x, const Syms& shape) {
  return c.has("weight") ? x * f("weight").reshaped(shape) : x;
}
Term affine(Call& c, const Formula& f, Term normal, const Syms& shape) {
  Term y = scaled(c, f, normal, shape);
  return c.has("bias") ? y + f("bias").reshaped(shape) : y;
}

/// As many of these as the call gives: what users call gives no statistics.
Results given(Call& c, const Formula& f, const std::vector<Term>& all) {
  Results out;
  for (int i = 0; i < c.result_count(); ++i) out.push_back(f.result(all[static_cast<size_t>(i)], i));
  return out;
}

/// The three gradients, of which only the wanted ones are made. `shape`: of the parameters beside x.
struct Gradients {
  Call& c;
  const Formula& f;
  Term g, x, mean, rstd;
  Syms over, shared, shape;

  Term of_input() const {
    Term h = scaled(c, f, g, shape), normal = (x - mean) * rstd;
    return rstd * (h - h.mean(over) - normal * (h * normal).mean(over));
  }
  Value* parameter(Term t, int i) const {
    if (!c.gives(i)) return nullptr;
    const Syms to = c.sizes("weight");
    return f.result(t.sum(shared, false).reshaped(to), i);
  }
  Results all(Term input) const {
    // Written the other way round than in of_input(), these differences are computed by whoever adds them up,
    // and not stored for both.
    Term of_weight = g * ((mean - x) * -rstd);
    return {c.gives(0) ? f.result(input) : nullptr, parameter(of_weight, 1), parameter(g, 2)};
  }
};

/// Without a weight nothing says how large the parameters' gradients are, which are asked for all the same.
bool lacks_weight(Call& c) { return !c.has("weight") && (c.gives(1) || c.gives(2)); }

bool any_empty(const Term& x) {
  for (Sym s : x.sizes())
    if (s.is_const(0)) return true;
  return false;
}

// ---- over the last dimensions ----

int64_t first_normal(Call& c, const Term& x) {
  return x.rank() - static_cast<int64_t>(c.syms("normalized_shape").size());
}
Syms normal_shape(const Term& x, int64_t first) { return {x.sizes().begin() + first, x.sizes().end()}; }

}  // namespace

Results native_layer_norm(Call& c) {
  Formula f(c);
  Term x = f("input");
  if (!f.is_real() || any_empty(x)) return {};
  const int64_t first = first_normal(c, x);
  Moments m = moments(x, dims_between(first, x.rank()), f("eps"));
  Term y = affine(c, f, m.normal, normal_shape(x, first));
  return given(c, f, {y, m.mean, m.rstd});
}

namespace {

Results layer_norm_backward(Call& c) {
  Formula f(c, compute_type(c.tensor("input")->type.dtype));
  Term x = f("input");
  if (any_empty(x) || lacks_weight(c)) return {};
  const int64_t first = first_normal(c, x);
  Gradients all{c,
                f,
                f("grad_out"),
                x,
                f("mean"),
                f("rstd"),
                dims_between(first, x.rank()),
                dims_between(0, first),
                normal_shape(x, first)};
  return all.all(all.of_input());
}

}  // namespace

Results native_rms_norm(Call& c) {
  Formula f(c);
  Term x = f("input");
  if (!f.is_real() || any_empty(x)) return {};
  const int64_t first = first_normal(c, x);
  const Term eps = c.has("eps") ? f("eps") : f.number(rms_norm_epsilon(c.tensor("input")->type.dtype));
  Term rstd = ((x * x).mean(dims_between(first, x.rank())) + eps).apply(Op::rsqrt);
  return given(c, f, {scaled(c, f, x * rstd, normal_shape(x, first)), rstd});
}

namespace {

Results rms_norm_backward(Call& c) {
  Formula f(c, compute_type(c.tensor("input")->type.dtype));
  Term x = f("input"), g = f("grad_out");
  if (any_empty(x) || (c.gives(1) && !c.has("weight"))) return {};
  const int64_t first = first_normal(c, x);
  const Syms shape = normal_shape(x, first);
  Term rstd = f("rstd"), normal = x * rstd, h = scaled(c, f, g, shape);
  Results out(2, nullptr);
  if (c.gives(0)) out[0] = f.result(rstd * (h - normal * (h * normal).mean(dims_between(first, x.rank()))));
  if (c.gives(1))
    out[1] = f.result((g * normal).sum(dims_between(0, first), false).reshaped(c.sizes("weight")), 1);
  return out;
}

// ---- over groups of channels ----

/// [N, C, ...] as [N, G, C / G, ...].
Syms in_groups(const Term& x, Sym groups) {
  Syms split = x.sizes();
  split[1] = floordiv(split[1], groups);
  split.insert(split.begin() + 1, groups);
  return split;
}
/// [C] as [G, C / G, 1, ...].
Syms group_shape(const Syms& split) {
  Syms shape(split.size() - 1, Sym(1));
  shape[0] = split[1];
  shape[1] = split[2];
  return shape;
}

}  // namespace

Results native_group_norm(Call& c) {
  Formula f(c);
  Term x = f("input");
  const int64_t groups = c.integer(c.has("group") ? "group" : "num_groups");
  if (!f.is_real() || any_empty(x) || x.rank() < 2 || !fills_vectors(c, "input", groups)) return {};
  const Syms split = in_groups(x, groups), kept{split[0], split[1]};
  Term apart = x.reshaped(split);
  Moments m = moments(apart, dims_between(2, static_cast<int64_t>(split.size())), f("eps"));
  // Written the other way round, as in batch_norm_in_training.
  Term y = affine(c, f, (m.mean - apart) * -m.rstd, group_shape(split)).reshaped(x.sizes());
  return given(c, f, {y, m.mean.reshaped(kept), m.rstd.reshaped(kept)});
}

namespace {

/// The first result of the above, as it was computed (autograd/normalise_again.h).
Results normalise_groups_again(Call& c) {
  Formula f(c, compute_type(c.tensor("input")->type.dtype));
  Term x = f("input");
  if (any_empty(x) || x.rank() < 2) return {};
  const Term mean = f("mean");
  const Syms split = in_groups(x, mean.sizes()[1]);
  Syms kept(split.size(), Sym(1));
  kept[0] = split[0], kept[1] = split[1];
  const Term normal = (mean.reshaped(kept) - x.reshaped(split)) * -f("rstd").reshaped(kept);
  const Term y = affine(c, f, normal, group_shape(split));
  return {f.result(y.reshaped(x.sizes()))};
}

/// All sums are made of those over a channel's pixels: which are long, lie together or in columns of memory,
/// and are the parameters' as well.
Results group_norm_backward(Call& c) {
  Formula f(c, compute_type(c.tensor("input")->type.dtype));
  Term input = f("input");
  if (any_empty(input) || input.rank() < 2 || lacks_weight(c)) return {};
  const Syms split = in_groups(input, c.integer("group")), shape = group_shape(split);
  const auto rank = static_cast<int64_t>(split.size());
  Syms kept(split.size(), Sym(1));
  kept[0] = split[0], kept[1] = split[1];
  Term x = input.reshaped(split), g = f("grad_out").reshaped(split);
  Term mean = f("mean").reshaped(kept), rstd = f("rstd").reshaped(kept);
  const Syms pixels = dims_between(3, rank);
  Term along = (g * ((mean - x) * -rstd)).sum(pixels), all = g.sum(pixels);
  auto group_mean = [&](Term t) {
    return scaled(c, f, t, shape).sum({Sym(2)}) / f.count(elements(x, dims_between(2, rank)));
  };
  Term of_input = rstd * (scaled(c, f, g, shape) - group_mean(all) - (x - mean) * rstd * group_mean(along));
  auto parameter = [&](Term t, int i) {
    return c.gives(i) ? f.result(t.sum({Sym(0)}, false).reshaped(c.sizes("weight")), i) : nullptr;
  };
  return {c.gives(0) ? f.result(of_input.reshaped(input.sizes())) : nullptr, parameter(along, 1),
          parameter(all, 2)};
}

// ---- weights by their norm ----

/// All dimensions but the first or the last, whichever the norm keeps.
Syms beside(const Term& v, int64_t kept) { return dims_except(Call::wrap(kept, v.rank()), v.rank()); }

Results norm_of_weight(Call& c) {
  const Formula f(c);
  const Term v = f("v");
  if (!f.is_real() || any_empty(v) || c.sizes("g").size() != v.sizes().size()) return {};
  const Term norm = (v * v).sum(beside(v, c.integer("dim"))).apply(Op::sqrt);
  return {f.result(v * (f("g") / norm)), f.result(norm, 1)};
}

Results norm_of_weight_backward(Call& c) {
  const Formula f(c, compute_type(c.tensor("saved_v")->type.dtype));
  const Term v = f("saved_v"), g = f("saved_g"), of = f("grad_w");
  if (!f.is_real() || any_empty(v) || g.rank() != v.rank()) return {};
  const Term share = 1.0 / f("saved_norms"), along = (of * v).sum(beside(v, c.integer("dim"))) * share;
  return {c.gives(0) ? f.result(g * share * (of - v * (share * along)), 0) : nullptr,
          c.gives(1) ? f.result(along, 1) : nullptr};
}

// ---- over everything but the channels ----

Syms channel_shape(const Term& x) {
  Syms shape(static_cast<size_t>(x.rank()), Sym(1));
  shape[1] = x.sizes()[1];
  return shape;
}

/// What a running statistic becomes: momentum * now + (1 - momentum) * running.
Value* moved(Call& c, const Formula& f, const char* running, Term now) {
  if (!c.has(running)) return nullptr;
  const Term momentum = f("momentum");
  const Term rest = c.is_symbolic("momentum") ? 1 - momentum : f.number(1 - c.number("momentum"));
  Term next = now.reshaped(c.sizes(running)) * momentum + f(running) * rest;
  return next.as(c.tensor(running)->type.dtype).value;
}

bool in_training(Call& c) {
  if (c.name() == "aten::_native_batch_norm_legit_no_training") return false;
  return c.flag("training");
}

/// With the statistics of the batch; the running ones follow, as what the call writes.
Results batch_norm_in_training(Call& c, const Formula& f, Term x) {
  const Syms over = dims_except(1, x.rank()), channels{x.sizes()[1]};
  Moments m = moments(x, over, f("eps"));
  // Not m.normal: the differences would be stored for both passes. The other way round each computes its own.
  const Term y = affine(c, f, (m.mean - x) * -m.rstd, channel_shape(x));
  Results out = given(c, f, {y, m.mean.reshaped(channels), m.rstd.reshaped(channels)});
  if (!c.writes()) return out;
  Term unbiased = m.squares.sum(over) / (f.count(elements(x, over)) - 1);
  out.push_back(moved(c, f, "running_mean", m.mean));
  out.push_back(moved(c, f, "running_var", unbiased));
  return out;
}

/// As normalise_groups_again, of batches.
Results normalise_again(Call& c) {
  Formula f(c, compute_type(c.tensor("input")->type.dtype));
  Term x = f("input");
  if (any_empty(x) || x.rank() < 2) return {};
  const Syms shape = channel_shape(x);
  Term mean = f("save_mean").reshaped(shape), rstd = f("save_invstd").reshaped(shape);
  return {f.result(affine(c, f, (mean - x) * -rstd, shape))};
}

/// The CPU keeps no statistics then, CUDA those that it was given.
Results batch_norm_in_evaluation(Call& c, const Formula& f, Term x) {
  const bool kept = c.result_count() > 1 && c.result_rank(1) == 1 && c.result_size(1, 0) != 0;
  const Syms shape = channel_shape(x);
  Term mean = f("running_mean"), rstd = (f("running_var") + f("eps")).apply(Op::rsqrt);
  Term normal = (x - mean.reshaped(shape)) * rstd.reshaped(shape), none = f.full(0, {Sym(0)});
  Results out = given(c, f, {affine(c, f, normal, shape), kept ? mean : none, kept ? rstd : none});
  if (c.writes()) out.insert(out.end(), {nullptr, nullptr});
  return out;
}

Results batch_norm_backward(Call& c) {
  Formula f(c, compute_type(c.tensor("input")->type.dtype));
  Term x = f("input"), g = f("grad_out");
  if (any_empty(x) || x.rank() < 2 || lacks_weight(c)) return {};
  const bool train = c.flag("train");
  if (!c.has(train ? "save_mean" : "running_mean")) return {};
  const Syms shape = channel_shape(x), over = dims_except(1, x.rank());
  Term mean = f(train ? "save_mean" : "running_mean").reshaped(shape);
  Term rstd = train ? f("save_invstd") : (f("running_var") + f("eps")).apply(Op::rsqrt);
  rstd = rstd.reshaped(shape);
  Gradients all{c, f, g, x, mean, rstd, over, over, shape};
  Term slope = scaled(c, f, rstd, shape);
  if (!train) return all.all(g * slope);
  Term along = (g * ((mean - x) * -rstd)).mean(over);
  return all.all(slope * (g - g.mean(over) - (x - mean) * (rstd * along)));
}

}  // namespace

Results native_batch_norm(Call& c) {
  Formula f(c);
  Term x = f("input");
  if (!f.is_real() || any_empty(x) || x.rank() < 2) return {};
  return in_training(c) ? batch_norm_in_training(c, f, x) : batch_norm_in_evaluation(c, f, x);
}

bool fills_vectors(const Call& c, std::string_view name, int64_t groups) {
  constexpr int64_t kLanes = 16;
  const record::TensorInfo& image = c.recorded(name);
  const bool lie_innermost = image.sizes.size() > 2 && image.strides[1] == 1;
  const bool in_parts = groups > 1 && groups < image.sizes[1] && image.sizes[1] / groups < kLanes;
  return graph::facts_of(c.tensor(name)->type.device).reads_anywhere || !lie_innermost || !in_parts;
}

void add_normalisations(Table& t) {
  const RowsByName row{t};
  row(native_layer_norm, {"native_layer_norm"});
  row(layer_norm_backward, {"native_layer_norm_backward"});
  row(native_rms_norm, {"_fused_rms_norm"});
  row(rms_norm_backward, {"_fused_rms_norm_backward"});
  row(native_group_norm, {"native_group_norm"});
  row(group_norm_backward, {"native_group_norm_backward"});
  row(native_batch_norm, {"native_batch_norm", "_native_batch_norm_legit",
                          "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training"});
  row(batch_norm_backward, {"native_batch_norm_backward"});
  row(norm_of_weight, {"_weight_norm_interface"});
  row(norm_of_weight_backward, {"_weight_norm_interface_backward"});
  t["torchbolt::normalise_again"] = {normalise_again, nullptr};
  t["torchbolt::normalise_groups_again"] = {normalise_groups_again, nullptr};
}

}  // namespace bolt::lower
