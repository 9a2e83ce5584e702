// run/plan_options.h
// A recording -> what its plan is made with: the device's answers to the planner's questions, how memory is
// come by, and what may be measured.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "loops/plan.h"
#include "run/recorded.h"

namespace bolt::run {

/// What came of measuring is told in lines, as it goes on.
using Choices = std::shared_ptr<std::vector<std::string>>;

loops::PlanOptions plan_options(const Recorded& recorded, const Choices& choices);

/// Of a part of a region, as a direction or a piece is: nothing is measured, and as no input of it is called
/// a parameter, only what depends on constants alone is computed ahead of its calls.
loops::PlanOptions plan_options_of_part(const Wishes& wishes);

}  // namespace bolt::run
