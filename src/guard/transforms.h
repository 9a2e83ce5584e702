// guard/transforms.h
// How many transforms of torch.func (vmap, grad, ...) this thread is inside of, and whether of forward-mode
// gradients.
#pragma once

#include <Python.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>

namespace bolt::guard {

/// Inside of one: how many there are.
size_t open_transforms();
/// A number that is 0 outside of them and grows with each level. Asked for each operator.
inline size_t transform_levels() {
  const bool inside =
      c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
  return inside ? open_transforms() : 0;
}
/// Is a level of torch.autograd.forward_ad open, and none of torch.func's? Any tensor may have a tangent
/// then.
bool dual_level_is_open();

/// Is it a transform's own kind of tensor, whether or not that transform is over?
bool is_of_transform(PyObject* tensor);

}  // namespace bolt::guard
