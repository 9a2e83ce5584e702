// record/other_kinds.cpp
#include "record/other_kinds.h"

namespace bolt::record {
namespace {

const char* kind_of(const at::Tensor& t) {
  if (!t.key_set().has_any(kOtherKinds)) return nullptr;
  if (t.unsafeGetTensorImpl()->is_python_dispatch()) return "tensor whose class has a __torch_dispatch__";
  return t.is_nested() ? "nested tensor" : "sparse tensor";
}

}  // namespace

const char* other_kind(const c10::IValue& value) {
  if (value.isTensor()) return kind_of(value.toTensor());
  if (!value.isTensorList() && !value.isOptionalTensorList()) return nullptr;
  for (const c10::IValue& each : value.toListRef())
    if (each.isTensor())
      if (const char* kind = kind_of(each.toTensor())) return kind;
  return nullptr;
}

}  // namespace bolt::record
