// autograd/product_formulas.cpp
#include "autograd/product_formulas.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <string>
#include <utility>

#include "autograd/node_ptr.h"

namespace bolt::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

at::Tensor summed_from_behind(const at::Tensor& t, int64_t dim) { return t.flip(dim).cumsum(dim).flip(dim); }

/// Of y[i] = x[0] * ... * x[i]. Before the first 0, y[i] / x[k] is the product without x[k]; of the first 0
/// itself it is what the products are where a 1 stands in its place; behind it each has a 0 among the others.
at::Tensor cumulative_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& y,
                               int64_t dim) {
  const at::Tensor is_zero = x.eq(0), zeros = is_zero.cumsum(dim);
  const at::Tensor first = is_zero.logical_and(zeros.eq(1));
  const at::Tensor without = at::where(first, 1, x).cumprod(dim);
  const at::Tensor divided = summed_from_behind(y * gradient, dim).div(x);
  const at::Tensor others = summed_from_behind(without * gradient, dim);
  return at::where(zeros.eq(0), divided, at::where(first, others, 0));
}

/// `gradient`, `y`: with a dimension of one element where the product was taken; none: over all dimensions.
at::Tensor whole_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& y,
                          std::optional<int64_t> dim) {
  const at::Tensor is_zero = x.eq(0), ones_for_zeros = at::where(is_zero, 1, x);
  const at::Tensor zeros = dim ? is_zero.sum(*dim, true) : is_zero.sum();
  const at::Tensor without = dim ? ones_for_zeros.prod(*dim, true) : ones_for_zeros.prod();
  const at::Tensor divided = gradient * y.div(x);
  const at::Tensor others = gradient * without;
  return at::where(zeros.eq(0), divided, at::where(is_zero.logical_and(zeros.eq(1)), others, 0));
}

class ProductNode final : public Node {
 public:
  std::string name() const override { return "ProdBackward"; }
  void release_variables() override { input_.reset_data(), result_.reset_data(); }

  bool cumulative = false, keeps_dim = false;
  std::optional<int64_t> dim;
  void save(const at::Tensor& input, const at::Tensor& result) {
    input_ = SavedVariable(input, false);
    result_ = SavedVariable(result, true);
  }

 private:
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    at::Tensor gradient = gradients[0], x = input_.unpack(), y = result_.unpack(getptr());
    if (cumulative) return {cumulative_gradient(gradient, x, y, *dim)};
    if (dim && !keeps_dim) gradient = gradient.unsqueeze(*dim), y = y.unsqueeze(*dim);
    return {whole_gradient(gradient, x, y, dim)};
  }

  SavedVariable input_, result_;
};

}  // namespace

bool call_product(const record::Entry& entry, torch::jit::Stack& stack,
                  const std::function<void(const c10::OperatorHandle&, torch::jit::Stack&)>& call) {
  const auto& [name, overload] = entry.op.operator_name();
  const bool cumulative = name == "aten::cumprod" && overload.empty();
  const bool over_one = name == "aten::prod" && overload == "dim_int";
  if (!cumulative && !over_one && !(name == "aten::prod" && overload.empty())) return false;
  const at::Tensor x = stack[0].toTensor();
  if (!entry.grad_mode || !x.requires_grad() || !at::isFloatingType(x.scalar_type()) || x.dim() == 0)
    return false;
  if (!stack.back().isNone() && stack.back().toScalarType() != x.scalar_type()) return false;
  const auto node = make_node<ProductNode>();
  node->cumulative = cumulative;
  if (cumulative || over_one) {
    const int64_t dim = stack[1].toInt();
    node->dim = dim < 0 ? dim + x.dim() : dim;
  }
  node->keeps_dim = over_one && stack[2].toBool();
  node->set_next_edges({variables::gradient_edge(x)});
  call(entry.op, stack);
  const at::Tensor result = stack[0].toTensor();
  variables::set_gradient_edge(result, Edge(node, node->add_input_metadata(result)));
  node->save(x, result);
  return true;
}

}  // namespace bolt::autograd
