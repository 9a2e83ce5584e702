// interp/frame.h
// A Python function call being run by us: Frame.
//
// The state of a call is (function, pc, locals + cells, value stack); handled exceptions are on the value
// stack, as in CPython. All of it lives in CPython's own frame record `raw` (see compat.h for why); Frame
// adds what our loop needs beside it. Frames live on the heap, linked by `back`; a Python-to-Python call does
// not recurse on the C stack.
//
// Invariants, whenever control is outside the loop (inside a Semantics method, hence inside any native call):
// - `pc()` is the instruction in progress, and its operands are still on the value stack [stack_base(), sp);
// - `raw` is linked into the thread's frame chain, so CPython's introspection sees the call;
// - nothing has been popped or stored yet by that instruction (unless its Semantics method did it);
// - a frame whose call runs in a younger frame of the same loop has `call_started` set: its operands moved
// there, but for those of an operator and a loop's iterator, which are needed again. So an observer may copy
// the whole stack of frames in the middle of a native call and later resume before that instruction
// (run_frame from its pc).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "interp/code.h"
#include "python/compat.h"

namespace bolt::interp {

class Semantics;

/// What happens with a frame's return value. All but `entry`: the instruction in progress of the `back` frame
/// goes on with it, in the same loop.
enum class ReturnTo : uint8_t {
  entry,      ///< run_frame returns it to its C++ caller; what that would do with it cannot be captured
  caller,     ///< the instruction's value
  item,       ///< FOR_ITER: what a generator yields is the item; its return ends the loop
  item_call,  ///< FOR_ITER: a `__next__` in Python; StopIteration ends the loop
  sent,       ///< SEND: what a generator yields is passed on; its return value is that of `yield from`
  next_call,  ///< a call of next(), send(), throw(): what a generator yields is the value; its return is
              ///< StopIteration
  // An operator's operand is asked; if it returns NotImplemented, the next one is (operands.cpp).
  in_place,     ///< left's `__iadd__`
  right_first,  ///< right's `__radd__`, before left's `__add__`
  left,         ///< left's `__add__`, or `__lt__`
  left_last,    ///< the same after right_first
  right,        ///< right's `__radd__`, or `__gt__`
};

struct Frame {
  RawFrame* raw = nullptr;         ///< CPython's record: function, code, globals, locals, value stack
  const Code* prepared = nullptr;  ///< decoded code of raw->f_code
  PyObject** sp = nullptr;         ///< one past the top of the value stack
  Frame* back = nullptr;           ///< the next older frame of ours on this thread, whatever lies between
  PyObject* kw_names = nullptr;    ///< borrowed: keyword names set by KW_NAMES for the next CALL
  PyObject* instance =
      nullptr;  ///< owned: this is its `__init__`; the call's result is the instance, not None
  PyObject* generator = nullptr;  ///< owned: the generator whose body this is, or null
  /// Owned: what the body of an asynchronous generator was asked with (async_generator.h), or null.
  PyObject* awaitable = nullptr;
  PyObject* thrown = nullptr;  ///< owned: to be raised where the generator stands when it is resumed, or null
  PyObject* handled =
      nullptr;               ///< owned, oldest frame of a suspended run: the exception that run is handling
  void* observer = nullptr;  ///< free for the Semantics in force; null at enter_frame
  ReturnTo return_to = ReturnTo::entry;
  /// The instruction in progress is a call that has handed its operands to a younger frame (they are off the
  /// stack).
  bool call_started = false;

  PyFunctionObject* func() const { return raw_function(raw); }
  PyCodeObject* code() const { return raw->f_code; }
  PyObject* globals() const { return raw->f_globals; }
  PyObject* builtins() const { return raw->f_builtins; }
  PyObject* closure() const { return func()->func_closure; }
  /// The namespace of a class body or module; null in a function.
  PyObject* namespace_dict() const { return raw->f_locals; }

  /// Index of the instruction in progress, in code units (CPython's f_lasti / 2); -1 before the first.
  int pc() const { return static_cast<int>(raw->prev_instr - _PyCode_CODE(raw->f_code)); }
  void set_pc(int index) { raw->prev_instr = _PyCode_CODE(raw->f_code) + index; }
  const Instr& instr() const { return prepared->instrs[pc()]; }
  int lineno() const { return prepared->line_at(raw->f_code, pc()); }

  /// Locals, then cells, then free variables; a slot may be null (unbound).
  PyObject** locals() const { return raw->localsplus; }
  int local_count() const { return prepared->nlocalsplus; }
  PyObject** stack_base() const { return raw->localsplus + prepared->nlocalsplus; }
  int stack_depth() const { return static_cast<int>(sp - stack_base()); }
  /// 1 = top of stack. An entry may be null (PUSH_NULL).
  PyObject* peek(int from_top) const { return sp[-from_top]; }
};

/// The innermost frame run by us on this thread, or null.
Frame* current_frame();

/// The rules in force on this thread (those of the innermost run_frame), or null.
Semantics* current_semantics();

/// Makes a frame that is about to run `function` from its first instruction, with all locals unbound (fill
/// locals() with owned references). Null with an exception set on no memory.
Frame* new_frame(PyFunctionObject* function, const Code* prepared);

/// A frame for one resumption of `generator`, whose body's record stays inside the generator. It holds the
/// generator.
Frame* new_generator_frame(PyObject* generator, const Code* prepared);

/// Drops a frame that never ran, or whose run has ended: releases what it owns. A generator's record is not
/// part of that.
void discard_frame(Frame* frame);

/// Releases what a frame record owns, or moves it into its frame object if Python holds that. Its stacktop
/// must be set.
void release_raw(RawFrame* raw);

/// One frame's state, owning its references: what a run that goes on in the middle of a call is made from.
struct FrameState {
  PyObject* function = nullptr;   ///< owned
  PyObject* generator = nullptr;  ///< owned or null: then the record in it has locals, stack and pc already
  PyObject* awaitable = nullptr;  ///< owned or null
  PyObject* namespace_dict = nullptr;  ///< owned or null
  PyObject* instance = nullptr;        ///< owned or null
  PyObject* kw_names = nullptr;        ///< owned or null
  PyObject* handled = nullptr;         ///< owned or null: Frame::handled
  std::vector<PyObject*> locals;       ///< owned, entries may be null
  std::vector<PyObject*> stack;        ///< owned, entries may be null
  int pc = -1;
  ReturnTo return_to = ReturnTo::entry;
  bool call_started = false;

  FrameState() = default;
  FrameState(FrameState&& other) noexcept { swap(other); }
  FrameState& operator=(FrameState&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FrameState();
  void swap(FrameState& other) noexcept;
};

/// A new frame with the state of `state`, called by `back` (null: an entry frame). Resume it with run_frame.
Frame* restore(const FrameState& state, Frame* back);

/// The frame at the bottom of `frame`'s run: the one that run_frame was entered with.
template <class AnyFrame>
AnyFrame* bottom_of(AnyFrame& frame) {
  AnyFrame* at = &frame;
  while (at->return_to != ReturnTo::entry && at->back) at = at->back;
  return at;
}

/// Drops a suspended run that will not go on: its frames, innermost first. Generators in it are over.
void discard_run(Frame* innermost);
/// Drops the frames of a suspended run that goes on in other frames: its generators live on.
void replace_run(Frame* innermost);

/// `frame` goes on where `from` stands: the frame's object, where Python code holds it, is that of `frame`
/// now.
void take_frame_object(Frame& frame, Frame& from);

}  // namespace bolt::interp
