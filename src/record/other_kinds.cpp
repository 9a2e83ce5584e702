// record/other_kinds.cpp: see other_kinds.h.
#include "record/other_kinds.h"

#include <ATen/core/Tensor.h>

namespace bolt::record {
namespace {

// Quantized and mkldnn tensors, and those that are only noted to be conjugated, are missing: chains of
// operators on them are better replayed as a whole.
constexpr c10::DispatchKeySet kKinds({c10::DispatchKey::Python, c10::DispatchKey::Sparse,
                                      c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor});

const char* kind_of(const at::Tensor& t) {
  if (!t.defined() || !t.key_set().has_any(kKinds)) return nullptr;
  if (t.unsafeGetTensorImpl()->is_python_dispatch()) return "tensor whose class has a __torch_dispatch__";
  return t.is_nested() ? "nested tensor" : "sparse tensor";
}

const char* kind_of(const c10::IValue& value) {
  if (value.isTensor()) return kind_of(value.toTensor());
  if (!value.isList() || (!value.isTensorList() && !value.isOptionalTensorList())) return nullptr;
  for (const c10::IValue& each : value.toListRef())
    if (each.isTensor())
      if (const char* kind = kind_of(each.toTensor())) return kind;
  return nullptr;
}

}  // namespace

const char* other_kind(const torch::jit::Stack& stack, size_t count) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i)
    if (const char* kind = kind_of(stack[i])) return kind;
  return nullptr;
}

}  // namespace bolt::record
