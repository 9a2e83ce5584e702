// interp/machine.h
// The registers of the loop while it runs one frame, and the few moves every opcode handler is written with.
//
// A handler is a function with its opcode's name that takes the Machine and says what comes Next. Handlers
// are inlined into one dispatch loop (loop.h), once for plain execution and once for an observing Semantics,
// so Machine must stay in registers: never pass its address to a function that is not inlined.
//
// Order within a handler: ask the Semantics first, with the operands on the stack; pop and release them only
// when the outcome is there. What is released is what lies on the stack then: an observer may have put
// another object there meanwhile (writes/give_back.h). On error just say so: the unwinder releases the whole
// stack down to the handler's depth.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "interp/code.h"
#include "interp/semantics.h"
#include "interp/thread.h"

namespace bolt::interp {

/// How a handler left its instruction.
enum class Next : uint8_t {
  step,      ///< done: go to the following instruction
  jumped,    ///< done: ip is already at the next instruction
  error,     ///< exception set: add a traceback entry, find a handler
  unwind,    ///< exception set that already carries this frame's entry: find a handler
  returned,  ///< the frame has ended or yielded with machine.result
  called,    ///< machine.callee is to run
};

template <class S>
struct Machine {
  static constexpr bool plain = std::is_same_v<S, PlainSemantics>;

  S& s;
  PyThreadState* tstate;
  Thread& thread;
  Frame* frame = nullptr;
  const Instr* ip = nullptr;
  PyObject** sp = nullptr;
  PyObject** locals = nullptr;
  PyObject* const* consts = nullptr;
  PyObject* const* names = nullptr;
  uintptr_t pc_bias = 0;  ///< address of CPython's instruction = address of ours / 4 + this
  PyObject* result = nullptr;
  Frame* callee = nullptr;

  int arg() const { return ip->arg; }
  PyObject* name(int index) const { return names[index]; }

  void push(PyObject* stolen) { *sp++ = stolen; }
  PyObject* pop() { return *--sp; }
  PyObject*& top() { return sp[-1]; }
  PyObject*& peek(int from_top) { return sp[-from_top]; }

  /// Pops and releases `n` entries (entries may be null).
  [[gnu::always_inline]] void drop(int n) {
    while (n-- > 0) Py_XDECREF(*--sp);
  }

  /// Replaces the `operands` top entries by `value`; a null value is an error.
  [[gnu::always_inline]] Next finish(int operands, PyObject* value) {
    if (!value) [[unlikely]]
      return Next::error;
    drop(operands);
    push(value);
    return Next::step;
  }
  [[gnu::always_inline]] Next finish_bool(int operands, int value) {
    if (value < 0) [[unlikely]]
      return Next::error;
    return finish(operands, Py_NewRef(value ? Py_True : Py_False));
  }
  /// Pops the `operands` top entries after an operation without a value; `status` < 0 is an error.
  [[gnu::always_inline]] Next done(int operands, int status) {
    if (status < 0) [[unlikely]]
      return Next::error;
    drop(operands);
    return Next::step;
  }

  /// Jumps by `delta` units counted from the following instruction.
  [[gnu::always_inline]] Next jump(int delta) {
    ip += ip->length + delta;
    return Next::jumped;
  }

  /// Ends an instruction that is one call, with what was started: pops the operands now (a new frame has its
  /// own references).
  [[gnu::always_inline]] Next finish_start(int operands, CallStart start) {
    if (!start.frame) return finish(operands, start.value);
    drop(operands);
    callee = start.frame;
    return Next::called;
  }

  /// Before any Semantics call an observer may look at the frame.
  Frame& synced() {
    if constexpr (!plain) frame->sp = sp;
    return *frame;
  }

  /// Backward jumps and calls: every so often CPython's pending work is done.
  [[gnu::always_inline]] bool pending_failed() {
    if (--thread.budget >= 0) [[likely]]
      return false;
    frame->sp = sp;
    if constexpr (!plain) s.watch_instructions |= s.instructions >= s.watches_from;
    return handle_pending(thread) < 0;
  }

  /// Loads the registers from `target`, to run the instruction at its pc.
  [[gnu::always_inline]] void load(Frame* target) {
    frame = target;
    const int pc = target->pc();
    ip = target->prepared->instrs.data() + (pc < 0 ? 0 : pc);
    pc_bias = reinterpret_cast<uintptr_t>(_PyCode_CODE(target->code())) -
              (reinterpret_cast<uintptr_t>(target->prepared->instrs.data()) >> 2);
    sp = target->sp;
    locals = target->locals();
    consts = &PyTuple_GET_ITEM(target->code()->co_consts, 0);
    names = &PyTuple_GET_ITEM(target->code()->co_names, 0);
  }

  /// CPython's own pc, which is what every traceback and `f_lineno` reads.
  [[gnu::always_inline]] void store_pc() {
    static_assert(sizeof(Instr) == 4 * sizeof(CodeUnit));
    frame->raw->prev_instr = reinterpret_cast<CodeUnit*>((reinterpret_cast<uintptr_t>(ip) >> 2) + pc_bias);
  }

  int ip_index() const { return static_cast<int>(ip - frame->prepared->instrs.data()); }
};

/// Handlers are always inlined into the loop.
#define BOLT_OP(name) \
  template <class S>  \
  [[gnu::always_inline]] inline Next name([[maybe_unused]] Machine<S>& m)

}  // namespace bolt::interp
