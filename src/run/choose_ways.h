// run/choose_ways.h
// Plan -> the same plan, whose library calls are computed in the way that takes the least time.
//
// What is fastest depends on sizes and on the device, and nobody but the clock knows. So the ways that there
// are for a call are measured with operands as the plan has them, once for a set of sizes (cache/choices.h).
// A way whose result is not that of the usual one, up to rounding, is none. Calls whose sizes differ between
// calls of the program stay with the usual way.
//
//   attention   by ATen's choice, or one of its kernels by name (attention.h); the node says which
//   a product   by the library's first choice, or another of those it names; the node says which
//   products    of one operand by several weights: one after another, or at once (loops/merge_products.h)
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/choices.h"
#include "loops/plan.h"

namespace bolt::run {

/// Lines for people: each question once, what was chosen and what was measured. `name`: of the region, for
/// logs. `of_products`: a product has a dozen ways, most of them slower; so that is asked where the user
/// wants it.
std::vector<std::string> choose_ways(loops::Plan& plan, cache::Allowance& allowance, const std::string& name,
                                     bool of_products);

/// PlanOptions::merges that measures, and takes the word of `options` where it cannot. What came of it goes
/// to `lines`.
std::function<bool(const std::vector<const graph::Node*>&)> measured_merges(
    const loops::PlanOptions& options, std::shared_ptr<std::vector<std::string>> lines,
    const std::string& name);

}  // namespace bolt::run
