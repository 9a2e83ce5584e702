// run/given_memory.h
// Memory for the results of a call of ATen's -> calls that make them there, where they would be copied to.
//
// Most operators have no form that is told where to write. But each asks the dispatcher for its results'
// memory, so that it can be given this one: what it asks for first of that size and type. A guess, and
// whoever gave it looks at what came back. On calls that are recorded once and repeated it saves a copy of
// each result in each repetition: four a layer of what attention keeps for its backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace bolt::run {

/// What `run` gives. A result lies in its place, as that does, or apart from all places. `places`: by result;
/// undefined: there is none. They outlive what is made in them.
std::vector<at::Tensor> made_at(const std::vector<at::Tensor>& places,
                                const std::function<std::vector<at::Tensor>()>& run);

}  // namespace bolt::run
