// cache/identity.h
// A place in the program -> which library it is of, as that was built: part of a key under which that
// library's work is kept, since another build may work otherwise.
#pragma once

#include <string>

#include "support/export.h"

namespace bolt::cache {

/// Torchbolt's version, and the linker's build id of the library that holds this address, out of its ELF
/// notes.
BOLT_API std::string identity_of(const void* inside);

}  // namespace bolt::cache
