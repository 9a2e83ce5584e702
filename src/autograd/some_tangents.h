// autograd/some_tangents.h
// A backward part -> the same for passes that come to some of the results only.
//
// To the backward part a result that no pass comes to has a tangent of zeros. But what is made of zeros is
// not always zero: where x is 0, the gradient of sqrt(x) is 0 / 0. Eager does not go there at all, so
// whatever would be made of such tangents alone is zero here, whatever it meets. What then makes nothing that
// is asked for goes with the dead code.
#pragma once

#include <optional>
#include <vector>

#include "record/tape.h"

namespace bolt::autograd {

/// `backward`: `given.size()` tangents are its last inputs. Nothing: it may be taken as it is, since nothing
/// that a gradient of `wanted` is made of could be other than zero.
std::optional<record::Tape> with_some_tangents(const record::Tape& backward,
                                               const std::vector<record::TensorId>& wanted,
                                               const std::vector<bool>& given);

}  // namespace bolt::autograd
