// run/choose_schedules.h
// Plan -> the same plan, whose kernels follow the schedules that take the least time.
//
// A schedule follows from sizes and the machine's facts (codegen/cuda/schedule.h). How many threads a block
// has decides little where memory is what a kernel waits for, and something where it is not; so where the
// user asked for it, those of a device's few schedules are measured for the kernels that take most of a call,
// each with memory of its own. A kernel's result may differ in how sums are rounded, and is compared.
//
// Left as they are: kernels of lists, kernels whose sizes differ between calls, and those that read at places
// out of data, which nobody can make up.
#pragma once

#include <string>
#include <vector>

#include "cache/choices.h"
#include "loops/plan.h"

namespace bolt::run {

/// Lines for people, as choose_ways() gives them.
std::vector<std::string> choose_schedules(loops::Plan& plan, cache::Allowance& allowance,
                                          const std::string& name);

}  // namespace bolt::run
