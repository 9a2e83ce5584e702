// record/size_of_data.cpp
#include "record/size_of_data.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace bolt::record {
namespace {

constexpr int64_t kMore = 2;

/// Rows without columns take no memory. Of numbers that are none's size the result has another shape, and who
/// goes by its sizes notices.
at::Tensor rows_forb(const at::Tensor& numbers, int64_t element) {
  const int64_t number = element_of(numbers, element).toLong();
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBool);
  return is_size_of_data(number) ? at::empty({number + kMore, 0}, options) : at::empty({0, 1}, options);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("size_of_data(Tensor numbers, int element) -> Tensor");
  m.impl("size_of_data", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(rows_forb));
}

}  // namespace

at::Tensor size_of_data(const at::Tensor& numbers, int64_t element) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("torchbolt::size_of_data", "")
                             .typed<at::Tensor(const at::Tensor&, int64_t)>();
  return op.call(numbers, element);
}

at::Scalar element_of(const at::Tensor& numbers, int64_t element) {
  return (numbers.dim() ? numbers.flatten()[element] : numbers).item();
}

bool is_size_of_data(int64_t number) { return number >= 0 && number < kNumberLimit; }

Sym number_of_rows(Sym rows) { return rows - Sym(kMore); }

}  // namespace bolt::record
