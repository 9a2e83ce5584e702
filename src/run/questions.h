// run/questions.h
// What questions put to the clock (cache/choices.h) have in common: operands that are made up, results that
// are compared, and where it was measured.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cache/choices.h"
#include "graph/ir.h"

namespace bolt::run {

/// No size and no stride differs between calls.
bool is_known(const graph::Type& type);

/// A tensor without memory, to be looked at.
at::Tensor described(const graph::Type& type);
/// One of numbers between -1 and 1 that do not repeat soon, whole ones of 0 and 1; nobody's generator is
/// asked.
at::Tensor made_up(const graph::Type& type);
/// Error(Internal) where `other` is not `usual`, up to what rounding on the way explains.
void check_alike(const at::Tensor& usual, const at::Tensor& other);

/// `question`, asked of a device. Operands are made when a way is measured, not before.
cache::Choice choose(const std::string& question, graph::Device on, const std::vector<cache::Way>& ways,
                     cache::Allowance& allowance);
std::string in_words(const std::string& question, const cache::Choice& choice);

}  // namespace bolt::run
