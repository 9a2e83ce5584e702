// record/size_of_data.h
// An operator whose result has as many rows as an element of a tensor says: a number that was taken out of a
// tensor (item()) becomes a size that is data, like those nonzero finds.
#pragma once

#include <ATen/core/Scalar.h>
#include <ATen/core/Tensor.h>

#include "support/symbols.h"

namespace bolt::record {

/// Runs it: torchbolt::size_of_data(numbers, element).
at::Tensor size_of_data(const at::Tensor& numbers, int64_t element);

/// In the order of tolist(), as item() gives it.
at::Scalar element_of(const at::Tensor& numbers, int64_t element);

/// Can it have that many rows?
bool is_size_of_data(int64_t number);

/// The number, by the symbol of how many rows the result has. Sizes of 0 and 1 are sizes of their own, so
/// there are two more: then no number is.
Sym number_of_rows(Sym rows);

}  // namespace bolt::record
