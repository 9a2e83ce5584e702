// loops/kernel_text.h
// The kernel's text form as a part of other texts: a plan's ends with those of its kernels.
#pragma once

#include "loops/kernel.h"
#include "support/text_reader.h"

namespace bolt::loops {

Kernel read_kernel(TextReader& in);

}  // namespace bolt::loops
