// run/profiled.h
// A step about to run -> what torch.profiler shows of it: its name and, where shapes are asked for, those of
// what it reads and the line of the program that it comes from.
#pragma once

#include "run/prepared.h"

namespace at {
struct RecordFunction;
}

namespace bolt::run {

/// `shown` is open, as long as the step runs.
void show(at::RecordFunction& shown, const PreparedStep& step, const Prepared& program, const Shapes& shapes);

}  // namespace bolt::run
