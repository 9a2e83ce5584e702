// guard/transforms.cpp: see transforms.h.
#include "guard/transforms.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <vector>

// ATen/functorch/DynamicLayer.h includes a header that torch does not ship.
namespace at::functorch {
struct DynamicLayer;
const std::vector<DynamicLayer>& getDynamicLayerStack();
}  // namespace at::functorch

namespace bolt::guard {

size_t transform_levels() {
  if (!c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode)) return 0;
  // The elements' size is not known here, so the length is in bytes: begin and end are what a vector starts
  // with.
  const char* ends[2];
  std::memcpy(ends, &at::functorch::getDynamicLayerStack(), sizeof(ends));
  return static_cast<size_t>(ends[1] - ends[0]);
}

}  // namespace bolt::guard
