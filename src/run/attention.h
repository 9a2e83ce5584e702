// run/attention.h
// Which of ATen's kernels computes an attention.
//
// Left to itself ATen goes by an order of preference, whatever the sizes. Where sizes are known, the ways
// that it has for them are measured when a program is made (choose_ways.h), and the program's text says which
// was chosen.
//
// Where lengths differ between calls, ATen takes cuDNN's where it can, which makes a plan for every length it
// meets: a tenth of a second each, for every token of a sequence that grows. The flash kernel takes any
// length at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir.h"

namespace bolt::run {

/// The ways that may compute it, as they are called in programs; the first one, "", is ATen's own choice. Of
/// some it is only known when they are tried. No gradients are wanted.
std::vector<std::string> ways_of_attention(const graph::Node& node, const std::vector<at::Tensor>& operands);

/// In the way that the node names, unless the user has forbidden that since.
at::Tensor attention(const graph::Node& node, const std::vector<at::Tensor>& operands);
at::Tensor attention(const graph::Node& node, const std::vector<at::Tensor>& operands, std::string_view way);

}  // namespace bolt::run
