// autograd/numbers_in_tensors.cpp
#include "autograd/numbers_in_tensors.h"

#include <ATen/OpMathType.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "record/operator_facts.h"
#include "support/text.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using torch::jit::Stack;

/// The argument at `scaled` is multiplied with the number at `factor`.
struct Factor {
  std::string_view operators;
  size_t scaled, factor;
};
constexpr Factor kFactors[] = {
    {"aten::add aten::add_ aten::sub aten::sub_", 1, 2},
    {"aten::addcmul aten::addcmul_ aten::addcdiv aten::addcdiv_", 1, 3},
};

/// These compute with the number as it is, where others round it to the type of their result first.
constexpr std::string_view kExact[] = {"aten::pow", "aten::pow_", "aten::lerp", "aten::lerp_"};

constexpr const char* kOverloads[] = {"Tensor", "Tensor_Tensor", "self", "int_Tensor"};

at::Tensor wrapped(const c10::IValue& number) {
  at::Tensor t = c10::scalar_to_tensor(number.toScalar());
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

bool takes_number(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  if (type->kind() == c10::TypeKind::NumberType) return true;
  return type->kind() == c10::TypeKind::OptionalType &&
         type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::NumberType;
}

bool takes_tensor(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor());
}

class CallWithTensors {
 public:
  CallWithTensors(const Entry& entry, const NumbersTaken& taken, Stack& stack)
      : entry_(entry), taken_(taken), stack_(stack), name_(entry.op.operator_name().name) {
    at::native::ResultTypeState types;
    for (size_t i = 0; i < stack.size(); ++i) {
      if (stack[i].isTensor() && stack[i].toTensor().defined())
        types = at::native::update_result_type_state(stack[i].toTensor(), types);
      else if (stack[i].isScalar() && !stack[i].isBool())
        types = at::native::update_result_type_state(wrapped(stack[i]), types);
    }
    type_ = at::native::result_type(types);
    wide_ = at::toOpMathType(type_);
  }

  bool run() { return multiplied_before() || by_overload(); }

 private:
  bool is_taken(size_t i) const { return is_number_of_tensor(entry_.args[i]); }

  at::Tensor number(size_t i, at::ScalarType type) const {
    return taken_.of(entry_.args[i]).detach().reshape({}).to(type);
  }

  size_t first_taken() const {
    return static_cast<size_t>(std::ranges::find_if(entry_.args, is_number_of_tensor) - entry_.args.begin());
  }

  /// What was computed in a wider type, as ATen computes it, is rounded once.
  void round() {
    if (stack_[0].toTensor().scalar_type() != type_) stack_[0] = stack_[0].toTensor().to(type_);
  }

  bool multiplied_before() {
    for (const auto& [operators, scaled, factor] : kFactors) {
      const auto names = split(operators, ' ');
      if (std::ranges::find(names, name_) == names.end()) continue;
      const bool others = std::ranges::count_if(entry_.args, is_number_of_tensor) > 1;
      if (others || !is_taken(factor) || !stack_[scaled].isTensor()) return false;
      stack_[scaled] = stack_[scaled].toTensor().to(wide_) * number(factor, wide_);
      stack_[factor] = 1;
      entry_.op.callBoxed(&stack_);
      return round(), true;
    }
    return false;
  }

  std::optional<c10::OperatorHandle> overload() const {
    for (const char* overload : kOverloads)
      if (const auto op = c10::Dispatcher::singleton().findSchema({name_, overload}); op && fits(*op))
        return op;
    return std::nullopt;
  }

  bool fits(const c10::OperatorHandle& op) const {
    const auto &mine = entry_.op.schema().arguments(), &others = op.schema().arguments();
    if (mine.size() != others.size() || record::facts_of(op).composite) return false;
    for (size_t i = 0; i < mine.size(); ++i)
      if (!(takes_number(mine[i]) && takes_tensor(others[i])) &&
          (is_taken(i) || *mine[i].type() != *others[i].type()))
        return false;
    return true;
  }

  bool by_overload() {
    const auto op = overload();
    if (!op) return false;
    const bool widens = wide_ != type_ && std::ranges::find(kExact, name_) != std::end(kExact);
    if (widens && !entry_.facts->written.empty()) return false;
    for (size_t i = 0; i < stack_.size(); ++i) {
      if (is_taken(i))
        stack_[i] = number(i, widens ? wide_ : type_);
      else if (stack_[i].isTensor() && widens)
        stack_[i] = stack_[i].toTensor().to(wide_);
      else if (takes_number(entry_.op.schema().arguments()[i]) && !stack_[i].isNone())
        stack_[i] = at::full_like(number(first_taken(), type_), stack_[i].toScalar());
    }
    op->callBoxed(&stack_);
    return round(), true;
  }

  const Entry& entry_;
  const NumbersTaken& taken_;
  Stack& stack_;
  const std::string& name_;
  at::ScalarType type_, wide_;
};

}  // namespace

bool call_with_tensors(const Entry& entry, const NumbersTaken& taken, Stack& stack) {
  return CallWithTensors(entry, taken, stack).run();
}

}  // namespace bolt::autograd
