// support/version.h
// Which torchbolt this is.
#pragma once

namespace bolt {

// Torchbolt's version, as in pyproject.toml ("0.1.0").
const char* version();

}  // namespace bolt
