// autograd/written_as_others.cpp
// Operators that ATen calls on fakes and that are written as others (Writer::call): a library's own, of whose
// results only the library knows, and those that run faster, or with less kept, in kernels of ours.
#include <ATen/EmptyTensor.h>

#include <optional>
#include <vector>

#include "autograd/writer.h"
#include "device/host/host.h"
#include "record/dropout.h"

namespace bolt::autograd {
namespace {

using Stack = torch::jit::Stack;

c10::OperatorHandle operator_named(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

}  // namespace

/// The library's batch norm leaves memory for its backward pass whose size only the library knows. Both are
/// written as the operators that every device has, which compute the same.
void Writer::call_batch_norm(Stack& stack) {
  static const c10::OperatorHandle everywhere = operator_named("aten::native_batch_norm");
  const c10::Device device = torch::jit::peek(stack, 0, 8).toTensor().device();
  call(everywhere, stack);
  const Below below;
  stack.emplace_back(adopted(at::Tensor(at::detail::empty_strided_meta({0}, {1}, at::kByte)), device));
}

/// (input, grad, weight, mean, var, save_mean, save_invstd, eps, reserve)
void Writer::call_batch_norm_backward(Stack& stack) {
  static const c10::OperatorHandle everywhere = operator_named("aten::native_batch_norm_backward");
  const Stack given = torch::jit::pop(stack, 9);
  stack.insert(stack.end(), {given[1], given[0]});
  stack.insert(stack.end(), given.begin() + 2, given.begin() + 7);
  stack.insert(stack.end(), {true, given[7], c10::List<bool>({true, given[2].toTensor().defined(), true})});
  call(everywhere, stack);
}

/// Where ATen gives convolutions to a library that makes no gradient of the bias, it sums up the other
/// gradient in an operator that is slow where channels lie next to each other. As a sum of its own it is
/// computed with whatever else reads that gradient.
void Writer::call_convolution_backward(const c10::OperatorHandle& op, Stack& stack) {
  static const c10::OperatorHandle sum = operator_named("aten::sum", "dim_IntList");
  const at::Tensor gradient = torch::jit::peek(stack, 0, 11).toTensor();
  const auto wanted = torch::jit::peek(stack, 10, 11).toBoolList();
  if (device::is_processor(gradient.device()) || !wanted[2]) return write(op, stack);
  if (wanted[0] || wanted[1]) {
    torch::jit::peek(stack, 10, 11) = c10::List<bool>({wanted[0], wanted[1], false});
    write(op, stack);
    torch::jit::drop(stack, 1);
  } else {
    torch::jit::drop(stack, 11);
    torch::jit::push(stack, at::Tensor(), at::Tensor());
  }
  std::vector<int64_t> over{0};
  for (int64_t d = 2; d < gradient.dim(); ++d) over.push_back(d);
  torch::jit::push(stack, gradient, over, false, c10::IValue());
  write(sum, stack);
}

/// (x, p, train): on CUDA a mask that any kernel can compute, any number of times (record/dropout.h).
void Writer::call_dropout(const c10::OperatorHandle& op, Stack& stack) {
  static const c10::OperatorHandle draw_state = operator_named("torchbolt::draw_state"),
                                   keep_of = operator_named("torchbolt::dropout_keep"),
                                   scaled = operator_named("aten::native_dropout_backward");
  const at::Tensor x = torch::jit::peek(stack, 0, 3).toTensor();
  const double p = torch::jit::peek(stack, 1, 3).toDouble();
  const c10::IValue trains = torch::jit::peek(stack, 2, 3);
  std::optional<record::DropoutDraw> draw;
  if (trains.isBool() && trains.toBool() && p > 0 && p < 1 && x.is_contiguous()) {
    const Below below;
    draw = record::dropout_draw(x.device(), x.scalar_type(), x.numel());
  }
  if (!draw) return write(op, stack);

  // ATen compares with a float what is computed in floats, and scales by one.
  const bool is_double = x.scalar_type() == at::kDouble;
  const auto keep = static_cast<float>(1 - p);
  const double least = 1 - p, scale = is_double ? 1 / least : static_cast<float>(1.0 / double{keep});
  torch::jit::drop(stack, 3);
  torch::jit::push(stack, x.numel(), draw->most, x.device());
  write(draw_state, stack);
  torch::jit::push(stack, x.sizes(), is_double ? least : double{keep}, draw->vector, draw->most);
  write(keep_of, stack);
  const at::Tensor mask = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, x, mask, scale);
  write(scaled, stack);
  stack.emplace_back(mask);
}

/// A tensor that shows other memory conjugated or negated has a bit for that, and tapes have not. Of what
/// formulas of ATen's look at so, nobody writes to either, so a tensor of its own is as good.
void Writer::call_seen_otherwise(const std::string& name, Stack& stack) {
  static const c10::OperatorHandle conjugated = operator_named("aten::conj_physical"),
                                   negated = operator_named("aten::neg");
  entry_ = nullptr;
  write(name == "aten::_conj" ? conjugated : negated, stack);
}

void Writer::call(const c10::OperatorHandle& op, Stack& stack) {
  if (computes_numbers(op, stack)) return;
  const std::string& name = op.operator_name().name;
  if (name == "aten::as_strided_") return call_turning(stack);
  if (name == "aten::native_dropout" && !(entry_ && op == entry_->op)) return call_dropout(op, stack);
  if (name == "aten::_conj" || name == "aten::_neg_view") return call_seen_otherwise(name, stack);
  if (name == "aten::cudnn_batch_norm") return call_batch_norm(stack);
  if (name == "aten::cudnn_batch_norm_backward") return call_batch_norm_backward(stack);
  if (name == "aten::convolution_backward" && !(entry_ && op == entry_->op))
    return call_convolution_backward(op, stack);
  write(op, stack);
}

}  // namespace bolt::autograd
