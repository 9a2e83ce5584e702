// lower/lowerings/optimizers.cpp
// Rows of operators that change all parameters of a model in one call: optimizers with fused=True, and
// GradScaler's. Each tensor of the lists is one formula, computed in the compute type and rounded once; what
// the call's numbers come to is computed in float64, as ATen does, where digits would be lost.
//
// Where a step is to be left out (`found_inf`) everything stays as it was. What they write to follows the
// order of the schema: a value for each tensor, nullptr where it stays as it is.
#include <utility>

#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

/// A number of the call that is 0 in every call: then ATen leaves its part out.
bool is_zero(const Call& c, const char* name) { return !c.is_symbolic(name) && c.number(name) == 0; }

/// The lists that such an optimizer is given, tensor by tensor.
class Parameters {
 public:
  explicit Parameters(Call& c) : c_(c), parameters_(c.tensors("self")) {}

  size_t size() const { return parameters_.size(); }
  /// All that is computed for tensor i has its type.
  DType type(size_t i) const { return compute_type(parameters_[i]->type.dtype); }
  Term number(const char* name, size_t i) const { return {&c_, c_.operand(name, type(i))}; }
  Term precise(const char* name) const { return {&c_, c_.operand(name, DType::F64)}; }
  /// Of list `name`.
  Term item(const char* name, size_t i) const { return Term{&c_, c_.tensors(name)[i]}.as(type(i)); }

  /// Without the scale that the loss had.
  Term unscaled(size_t i) const {
    const Term g = item("grads", i);
    return c_.has("grad_scale") ? g / number("grad_scale", i) : g;
  }
  Term uphill(Term g) const { return c_.flag("maximize") ? -g : g; }

  /// What tensor i of list `name` becomes.
  Value* stored(const char* name, size_t i, Term becomes) const {
    Value* before = c_.tensors(name)[i];
    Value* after = becomes.as(before->type.dtype).value;
    if (!c_.has("found_inf")) return after;
    const Term found = Term{&c_, c_.tensor("found_inf")}.as(DType::F32);
    return where(found == 1.0, Term{&c_, before}, Term{&c_, after}).value;
  }
  /// ATen gives gradients back without their scale.
  Value* gradient(size_t i, Term unscaled) const {
    return c_.has("grad_scale") ? stored("grads", i, unscaled) : nullptr;
  }

 private:
  Call& c_;
  const std::vector<Value*> parameters_;
};

/// Values by list, in the order of the schema, one after the other. An empty list is one tensor that there is
/// not.
Results one_after_the_other(const std::vector<Results>& lists) {
  Results all;
  for (const Results& list : lists) {
    if (list.empty()) all.push_back(nullptr);
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// exp_avg += (1 - beta1) (g - exp_avg)     exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2
// p -= lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq / (1 - beta2^step)) + eps)
Results adam_or_adamw(Call& c, bool decoupled) {
  const Parameters all(c);
  const bool amsgrad = c.flag("amsgrad"), decays = !is_zero(c, "weight_decay");
  std::vector<Results> written(5);
  for (size_t i = 0; i < all.size(); ++i) {
    const DType type = all.type(i);
    Term p = all.item("self", i), m = all.item("exp_avgs", i), v = all.item("exp_avg_sqs", i);
    const Term unscaled = all.unscaled(i);
    Term g = all.uphill(unscaled);
    if (decays && decoupled) p = p * (1.0 - all.precise("lr") * all.precise("weight_decay")).as(type);
    if (decays && !decoupled) g = g + p * all.number("weight_decay", i);
    // 1 - beta^step without the digits that go missing where beta is nearly 1.
    const Term step = all.item("state_steps", i);
    auto missing = [&](const char* beta) {
      return -(step * log(all.precise(beta)).as(type)).apply(Op::expm1);
    };
    const Term rate = all.number("lr", i) / missing("beta1"), spread = missing("beta2").apply(Op::sqrt);
    const Term rest1 = (1.0 - all.precise("beta1")).as(type), rest2 = (1.0 - all.precise("beta2")).as(type);
    m = m + rest1 * (g - m);
    v = all.number("beta2", i) * v + rest2 * g * g;
    Term largest = v;
    if (amsgrad) largest = all.item("max_exp_avg_sqs", i).with(Op::maximum, v);
    p = p - rate * m / (largest.apply(Op::sqrt) / spread + all.number("eps", i));
    written[0].push_back(all.stored("self", i, p));
    written[1].push_back(all.gradient(i, unscaled));
    written[2].push_back(all.stored("exp_avgs", i, m));
    written[3].push_back(all.stored("exp_avg_sqs", i, v));
    if (amsgrad) written[4].push_back(all.stored("max_exp_avg_sqs", i, largest));
  }
  // The list of the largest averages may be given where nothing asks for it; then nothing is written to it.
  if (!amsgrad) written[4].resize(c.tensors("max_exp_avg_sqs").size());
  return one_after_the_other(written);
}
Results adam(Call& c) { return adam_or_adamw(c, false); }
Results adamw(Call& c) { return adam_or_adamw(c, true); }

Results sgd(Call& c) {
  const Parameters all(c);
  const bool decays = !is_zero(c, "weight_decay"), moves = !c.tensors("momentum_buffer_list").empty();
  std::vector<Results> written(3);
  for (size_t i = 0; i < all.size(); ++i) {
    const DType type = all.type(i);
    const Term p = all.item("self", i), unscaled = all.unscaled(i);
    Term g = all.uphill(unscaled);
    if (decays) g = g + p * all.number("weight_decay", i);
    if (moves) {
      Term b = g;
      if (!c.flag("is_first_step"))
        b = all.number("momentum", i) * all.item("momentum_buffer_list", i) +
            (1.0 - all.precise("dampening")).as(type) * g;
      g = c.flag("nesterov") ? g + all.number("momentum", i) * b : b;
      written[2].push_back(all.stored("momentum_buffer_list", i, b));
    }
    written[0].push_back(all.stored("self", i, p - all.number("lr", i) * g));
    written[1].push_back(all.gradient(i, unscaled));
  }
  return one_after_the_other(written);
}

Results adagrad(Call& c) {
  const Parameters all(c);
  const bool decays = !is_zero(c, "weight_decay");
  std::vector<Results> written(3);
  for (size_t i = 0; i < all.size(); ++i) {
    const Term p = all.item("self", i), unscaled = all.unscaled(i), step = all.item("state_steps", i);
    Term g = all.uphill(unscaled);
    if (decays) g = g + p * all.number("weight_decay", i);
    const Term rate = all.number("lr", i) / (1.0 + (step - 1.0) * all.number("lr_decay", i));
    const Term sum = all.item("state_sums", i) + g * g;
    written[0].push_back(all.stored("self", i, p - rate * g / (sum.apply(Op::sqrt) + all.number("eps", i))));
    written[1].push_back(all.gradient(i, unscaled));
    written[2].push_back(all.stored("state_sums", i, sum));
  }
  Results values = one_after_the_other(written);
  // One of the overloads says that it counts the steps, and neither does.
  if (!c.is_tensor("lr")) values.resize(values.size() + c.tensors("state_steps").size(), nullptr);
  return values;
}

/// Of GradScaler: gradients without the scale of the loss, and whether any is no number.
Results unscale(Call& c) {
  const std::vector<Value*> gradients = c.tensors("self");
  Results written;
  if (gradients.empty()) written.push_back(nullptr);
  const Term found{&c, c.tensor("found_inf")};
  Term bad = found != 0.0;
  for (Value* gradient : gradients) {
    const DType type = compute_type(gradient->type.dtype);
    const Term g = Term{&c, gradient}.as(type);
    Syms dims;
    for (int d = 0; d < g.rank(); ++d) dims.push_back(d);
    const Term any = ((g - g) != 0.0).reduced(Op::any, dims, false);
    bad = bad | any.reshaped(found.sizes());
    const Term scale{&c, c.operand("inv_scale", type)};
    written.push_back((g * scale).as(gradient->type.dtype).value);
  }
  written.push_back(where(bad, 1.0, found).value);
  return written;
}

Results update_scale(Call& c) {
  const Term scale{&c, c.tensor("self")}, seen{&c, c.tensor("growth_tracker")};
  const Term found = Term{&c, c.tensor("found_inf")} != 0.0;
  const Term good = seen + 1.0;
  const Term is_time = good == Term{&c, c.operand("growth_interval", seen.dtype())};
  const Term grown = scale * Term{&c, c.operand("scale_growth_factor", scale.dtype())};
  const Term shrunk = scale * Term{&c, c.operand("scale_backoff_factor", scale.dtype())};
  const Term may_grow = is_time & ((grown - grown) == 0.0);
  const Term next = where(found, shrunk, where(may_grow, grown, scale));
  const Term counted = where(found | is_time, 0.0, good);
  return {next.value, next.value, counted.value};
}

}  // namespace

void add_optimizers(Table& t) {
  const RowsByName row{t, {"", ".tensor_lr"}};
  row(adam, {"_fused_adam_"});
  row(adamw, {"_fused_adamw_"});
  row(sgd, {"_fused_sgd_"});
  row(adagrad, {"_fused_adagrad_"});
  const RowsByName scaler_row{t};
  scaler_row(unscale, {"_amp_foreach_non_finite_check_and_unscale_"});
  scaler_row(update_scale, {"_amp_update_scale_"});
}

}  // namespace bolt::lower
