// session/exceptions.h
// The exceptions of torchbolt/exc.py, raised from C++.
#pragma once

#include <string>

namespace bolt::session {

/// Sets torchbolt.exc.<name>(text) as the current exception.
void set_exception(const char* name, const std::string& text);

}  // namespace bolt::session
