// record/argument.h
// An argument of the tape -> what an operator is called with. Who calls knows what the tensors are, and what
// the numbers are in this call.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <bit>
#include <optional>

#include "record/tape.h"

namespace bolt::record {

/// What an argument that is a number out of a tensor takes from it.
inline c10::IValue number_out_of(const at::Tensor& tensor, const Arg& arg) {
  const at::Scalar taken = tensor.item();
  return arg.value.isDouble() ? c10::IValue(taken.toDouble()) : c10::IValue(taken);  // float(a bool)
}

/// What an argument with symbols is in a call: `value` of each of them. Of a float it is the bits.
template <class ValueOf>
c10::IValue number_of(const Arg& arg, ValueOf value) {
  auto as = [&](const c10::IValue& recorded, Sym symbol) -> c10::IValue {
    const int64_t number = value(symbol);
    if (recorded.isDouble()) return std::bit_cast<double>(number);
    return recorded.isInt() ? c10::IValue(number) : recorded;
  };
  if (!arg.value.isList()) return as(arg.value, arg.syms[0]);
  c10::List<c10::IValue> list = arg.value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) list.set(i, as(list.get(i), arg.syms[i]));
  return list;
}

/// `tensor`: of an id that is not negative. `number`: of an argument that is no tensor.
template <class TensorOf, class NumberOf>
c10::IValue value_of(const Arg& arg, TensorOf tensor, NumberOf number) {
  auto get = [&](TensorId id) { return id < 0 ? at::Tensor() : tensor(id); };
  switch (arg.kind) {
    case Arg::Kind::Value: return number(arg);
    case Arg::Kind::WrappedNumber: {
      at::Tensor t = c10::scalar_to_tensor(number(arg).toScalar());
      t.unsafeGetTensorImpl()->set_wrapped_number(true);
      return t;
    }
    case Arg::Kind::Tensor: return get(arg.tensors[0]);
    case Arg::Kind::TensorList: {
      c10::List<at::Tensor> list;
      for (TensorId id : arg.tensors) list.push_back(get(id));
      return list;
    }
    case Arg::Kind::OptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (TensorId id : arg.tensors) list.push_back(id < 0 ? std::nullopt : std::optional(get(id)));
      return list;
    }
  }
  return {};
}

}  // namespace bolt::record
