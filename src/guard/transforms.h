// guard/transforms.h
// How many transforms of torch.func (vmap, grad, ...) this thread is inside of.
#pragma once

#include <cstddef>

namespace bolt::guard {

/// A number that is 0 outside of them and grows with each level.
size_t transform_levels();

}  // namespace bolt::guard
