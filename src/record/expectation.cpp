// record/expectation.cpp
#include "record/expectation.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace bolt::record {
namespace {

void expect_kernel(const at::Tensor& condition, bool value, c10::string_view where) {
  if (condition.item().toBool() != value)
    throw Unexpected("a check does not hold (" + std::string(where) + ")");
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("expect(Tensor condition, bool value, str where) -> ()");
  m.impl("expect", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(expect_kernel));
}

}  // namespace

void expect(const at::Tensor& condition, bool value, const std::string& where) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("torchbolt::expect", "")
                             .typed<void(const at::Tensor&, bool, c10::string_view)>();
  op.call(condition, value, where);
}

}  // namespace bolt::record
