// support/export.h
// What the core library shows to the extension: everything else (LLVM above all) stays hidden, so that a
// second LLVM in the process (Triton, numba) can never be bound to ours.
#pragma once

#define BOLT_API __attribute__((visibility("default")))
