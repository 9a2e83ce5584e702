// interp/opcodes/all.h
// Every handler of the CPython version this is compiled for.
#pragma once

#include "interp/opcodes/attributes.h"
#include "interp/opcodes/calls.h"
#include "interp/opcodes/containers.h"
#include "interp/opcodes/exceptions.h"
#include "interp/opcodes/generators.h"
#include "interp/opcodes/jumps.h"
#include "interp/opcodes/matching.h"
#include "interp/opcodes/names.h"
#include "interp/opcodes/operators.h"
#include "interp/opcodes/stack.h"
#if BOLT_PY312
#include "interp/opcodes/only_312.h"
#else
#include "interp/opcodes/only_311.h"
#endif
