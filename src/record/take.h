// record/take.h
// What an operator is called with, or gives -> an argument of the tape: the way back from argument.h. Who
// records knows which tensor is which.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "record/tape.h"

namespace bolt::record {

/// `id_of`: of a tensor, defined or not. Python's numbers among the tensors are the caller's to tell apart.
template <class IdOf>
void take_value(const c10::IValue& v, Arg& arg, IdOf id_of) {
  if (v.isTensor()) {
    arg.kind = Arg::Kind::Tensor;
    arg.tensors.push_back(id_of(v.toTensor()));
  } else if (v.isTensorList()) {
    arg.kind = Arg::Kind::TensorList;
    for (const at::Tensor& t : v.toTensorVector()) arg.tensors.push_back(id_of(t));
  } else if (v.isOptionalTensorList()) {
    arg.kind = Arg::Kind::OptionalTensorList;
    for (const std::optional<at::Tensor> t : v.toOptionalTensorList())
      arg.tensors.push_back(t ? id_of(*t) : -1);
  } else {
    arg.value = v;
  }
}

}  // namespace bolt::record
