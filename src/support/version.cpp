// support/version.cpp
// The version the build was configured with.
#include "support/version.h"

namespace bolt {

const char* version() { return BOLT_VERSION; }

}  // namespace bolt
