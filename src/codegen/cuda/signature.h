// codegen/cuda/signature.h
// (Kernel, Schedule) -> how its function begins: bounds, name, arguments (emit.h), and the names that stand
// for them where they are not given one by one.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/schedule.h"

namespace bolt::codegen::cuda {

/// Up to the first line of the body. `most` and `numbers`: emit_kernel.
std::string signature(const loops::Kernel& kernel, const Schedule& schedule, const std::string& name,
                      int most, const std::vector<char>& numbers);

}  // namespace bolt::codegen::cuda
