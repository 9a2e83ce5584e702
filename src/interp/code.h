// interp/code.h
// PyCodeObject -> Code: the bytecode decoded once into an array our loop can run.
//
// One `Instr` per code unit of CPython's bytecode, so an index here is CPython's own instruction offset / 2
// and the two pcs convert by a subtraction. EXTENDED_ARG prefixes are folded into the instruction they extend
// (they stay in place and run as no-ops); inline-cache units stay in place too and are never reached. The
// exception table is decoded into sorted ranges.
//
// A Code lives in CPython's per-code extra slot and dies with the code object: nothing here keeps a user's
// code alive.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "python/compat.h"

namespace bolt::interp {

/// One decoded code unit.
struct Instr {
  uint8_t op;      ///< opcode number of the running CPython version
  uint8_t length;  ///< code units to the next instruction: 1 + inline-cache units
  uint16_t unused;
  int32_t arg;  ///< argument with EXTENDED_ARG folded in
};

/// One row of co_exceptiontable, in code units.
struct ExceptionRange {
  int32_t start, end;  ///< [start, end)
  int32_t target;      ///< handler
  int32_t depth;       ///< value stack depth to unwind to
  bool push_lasti;     ///< push the faulting offset below the exception
};

struct Code {
  std::vector<Instr> instrs;  ///< one per code unit; of an inline cache empty, or an AttributePlace
  std::vector<ExceptionRange> handlers;  ///< sorted by start, disjoint
  int nlocalsplus = 0;                   ///< locals + cells + free variables
  int stack_size = 0;                    ///< slots of value stack needed
  bool makes_generator = false;          ///< generator, coroutine or async generator

  mutable uint8_t observers_note = 0;  ///< free for whoever watches runs of it
  mutable const char* names[2] = {};   ///< of its file and function, once an observer has asked

  mutable std::vector<int> lines;                 ///< of the code units; empty: nobody has asked
  mutable std::map<int, std::vector<bool>> live;  ///< liveness.h's answers so far

  /// The handler that covers the instruction at `pc`, or null.
  const ExceptionRange* find_handler(int pc) const;
  /// Does an exception that comes at `pc` run anything that the program says (finally, with, except)? Where
  /// await, async for and generators end, Python has handlers of its own.
  bool handles_at(int pc) const;
  /// The line of the instruction at `pc` of `code`, which this is of; -1: it has none. What
  /// PyCode_Addr2Line gives, which reads the table from its beginning each time.
  int line_at(const PyCodeObject* code, int pc) const;
};

/// The decoded form of `code`, made on first use; valid while `code` lives. Null with an exception set on no
/// memory.
const Code* prepare(PyCodeObject* code);

/// "LOAD_FAST", or "<unknown>" for a number that this Python version does not define.
const char* opcode_name(int op);

/// Opcode numbers of the running Python version, from its table.
namespace op {
enum : int {
#define OPCODE(name, number, caches) name = number,
#include "interp/opcodes.def"
#undef OPCODE
};
}  // namespace op

}  // namespace bolt::interp
