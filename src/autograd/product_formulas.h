// autograd/product_formulas.h
// Products (prod, cumprod) on fakes -> the same with a node of autograd's whose gradient reads no data.
//
// ATen divides the product by each factor, and asks the data first whether one is 0. Here both sides are
// computed and chosen between, element by element: what ATen's formula gives where there is no 0, to the last
// bit, and the product of the other factors where there is one.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

#include "record/tape.h"

namespace bolt::autograd {

/// False: it is none of those, or nobody differentiates it. `call` replaces the arguments on the stack by
/// what the operator gives, without a history.
bool call_product(const record::Entry& entry, torch::jit::Stack& stack,
                  const std::function<void(const c10::OperatorHandle&, torch::jit::Stack&)>& call);

}  // namespace bolt::autograd
