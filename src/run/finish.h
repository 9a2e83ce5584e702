// run/finish.h
// What was compiled, or cannot be -> the region that the session is given: what guards and reports are told
// of it, or the recorded run replayed.
#pragma once

#include <memory>
#include <string>

#include "lower/settle.h"
#include "run/recorded.h"
#include "run/runnable.h"

namespace bolt::run {

/// lower::settle, of a recording that is not compiled.
void settle(Recorded& recorded, lower::Sizes& sizes, const std::string& why);

/// Takes the recording.
std::shared_ptr<Runnable> make_replayed(Recorded& recorded, lower::Sizes& sizes, const std::string& why);
/// A replayed region that was to be compiled: it counts as one that eager has to run, and users are told.
std::shared_ptr<Runnable> given_up(std::shared_ptr<Runnable> replayed, const std::string& name);

/// `sizes`: as they are when nothing more is decided.
std::shared_ptr<Runnable> finished(std::shared_ptr<Runnable> region, const Recorded& recorded,
                                   const lower::Sizes& sizes);

}  // namespace bolt::run
