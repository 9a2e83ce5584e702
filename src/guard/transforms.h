// guard/transforms.h
// How many transforms of torch.func (vmap, grad, ...) this thread is inside of, and whether of forward-mode
// gradients.
#pragma once

#include <Python.h>

#include <cstddef>

namespace bolt::guard {

/// A number that is 0 outside of them and grows with each level.
size_t transform_levels();
/// Is a level of torch.autograd.forward_ad open, and none of torch.func's? Any tensor may have a tangent
/// then.
bool dual_level_is_open();

/// Is it a transform's own kind of tensor, whether or not that transform is over?
bool is_of_transform(PyObject* tensor);

}  // namespace bolt::guard
