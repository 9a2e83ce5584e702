// tests/reference/kernel.h
// Runs a kernel the slow and obvious way, in double (integers exactly): the oracle of every code generator's
// tests.
#pragma once

#include "loops/kernel.h"

namespace bolt::loops {

/// `buffers` ends with the report's address when the kernel has checks.
void run_reference(const Kernel& k, void* const* buffers, const int64_t* syms);

}  // namespace bolt::loops
