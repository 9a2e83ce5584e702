// interp/frame.cpp
// Allocation, death and copying of frames; see frame.h.
//
// When a call ends, its locals usually die with it. If Python holds the frame object (a traceback,
// `sys._getframe()`), the record moves into that object instead, as CPython does it. CPython does not export
// the functions for this, so `release_raw` does the same steps on the same structs.

#include "interp/frame.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "interp/generator.h"
#include "interp/semantics.h"

namespace bolt::interp {

namespace {

/// Freed frames by size, in steps of kStep bytes, for reuse: a call costs no malloc. Guarded by the GIL.
constexpr size_t kStep = 64;
constexpr size_t kClasses = 64;
struct FreeBlock {
  FreeBlock* next;
};
std::array<FreeBlock*, kClasses> free_blocks{};

size_t block_class(size_t bytes) { return (bytes + kStep - 1) / kStep; }

void* take_block(size_t bytes) {
  const size_t index = block_class(bytes);
  if (index < kClasses && free_blocks[index]) {
    FreeBlock* block = free_blocks[index];
    free_blocks[index] = block->next;
    return block;
  }
  return std::malloc(index * kStep);
}

void give_block(void* memory, size_t bytes) {
  const size_t index = block_class(bytes);
  if (index >= kClasses) return std::free(memory);
  auto* block = static_cast<FreeBlock*>(memory);
  block->next = free_blocks[index];
  free_blocks[index] = block;
}

size_t frame_bytes(const Code& code) {
  return sizeof(Frame) + sizeof(RawFrame) +
         sizeof(PyObject*) * static_cast<size_t>(code.nlocalsplus + code.stack_size);
}

/// The frame object of the nearest complete frame at or below `raw`; made when missing. Borrowed or null.
PyFrameObject* frame_object_of(RawFrame* raw) {
  while (raw && _PyFrame_IsIncomplete(raw)) raw = raw->previous;
  if (!raw) return nullptr;
  if (raw->frame_obj) return raw->frame_obj;
  PyThreadState* thread = thread_state();
  RawFrame* current = std::exchange(current_raw(thread), raw);
  PyFrameObject* object = PyEval_GetFrame();
  current_raw(thread) = current;
  return object;
}

/// Moves the record into its frame object, which outlives the call.
void move_to_frame_object(PyFrameObject* object, RawFrame* raw) {
  const size_t bytes =
      reinterpret_cast<char*>(&raw->localsplus[raw->stacktop]) - reinterpret_cast<char*>(raw);
  auto* moved = reinterpret_cast<RawFrame*>(object->_f_frame_data);
  std::memcpy(static_cast<void*>(moved), raw, bytes);
  object->f_frame = moved;
  moved->owner = FRAME_OWNED_BY_FRAME_OBJECT;
  if (_PyFrame_IsIncomplete(moved)) {
    moved->prev_instr = _PyCode_CODE(moved->f_code) + moved->f_code->_co_firsttraceable;
  }
  PyFrameObject* back = frame_object_of(moved->previous);
  if (back && !object->f_back) object->f_back = reinterpret_cast<PyFrameObject*>(Py_NewRef(back));
  moved->previous = nullptr;
  if (!PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(object))) PyObject_GC_Track(object);
}

}  // namespace

void release_raw(RawFrame* raw) {
  // From 3.12 on a generator keeps its code object until it dies.
  const bool keep_code = BOLT_PY312 && raw->owner == FRAME_OWNED_BY_GENERATOR;
  if (PyFrameObject* object = std::exchange(raw->frame_obj, nullptr)) {
    if (Py_REFCNT(object) > 1) {
      if (keep_code) Py_INCREF(raw->f_code);
      move_to_frame_object(object, raw);
      Py_DECREF(object);
      return;
    }
    Py_DECREF(object);
  }
  for (int i = 0; i < raw->stacktop; ++i) Py_XDECREF(raw->localsplus[i]);
  Py_XDECREF(raw->f_locals);
  Py_DECREF(raw_function(raw));
  if (!keep_code) Py_DECREF(raw->f_code);
}

Frame* new_frame(PyFunctionObject* function, const Code* prepared) {
  void* memory = take_block(frame_bytes(*prepared));
  if (!memory) {
    PyErr_NoMemory();
    return nullptr;
  }
  auto* frame = new (memory) Frame;
  auto* raw = reinterpret_cast<RawFrame*>(frame + 1);
  frame->raw = raw;
  frame->prepared = prepared;
  set_raw_function(raw, reinterpret_cast<PyFunctionObject*>(Py_NewRef(function)));
  raw->f_code = reinterpret_cast<PyCodeObject*>(Py_NewRef(function->func_code));
  raw->f_globals = function->func_globals;
  raw->f_builtins = function->func_builtins;
  raw->f_locals = nullptr;
  raw->frame_obj = nullptr;
  raw->previous = nullptr;
  raw->prev_instr = _PyCode_CODE(raw->f_code) - 1;
  raw->stacktop = prepared->nlocalsplus;
  raw->owner = FRAME_OWNED_BY_THREAD;
  std::memset(static_cast<void*>(raw->localsplus), 0,
              sizeof(PyObject*) * static_cast<size_t>(prepared->nlocalsplus));
  frame->sp = frame->stack_base();
  return frame;
}

Frame* new_generator_frame(PyObject* generator, const Code* prepared) {
  void* memory = take_block(sizeof(Frame));
  if (!memory) {
    PyErr_NoMemory();
    return nullptr;
  }
  auto* frame = new (memory) Frame;
  frame->raw = reinterpret_cast<RawFrame*>(reinterpret_cast<PyGenObject*>(generator)->gi_iframe);
  frame->prepared = prepared;
  frame->generator = Py_NewRef(generator);
  frame->sp = frame->raw->localsplus + frame->raw->stacktop;
  return frame;
}

void discard_frame(Frame* frame) {
  PyObject* instance = frame->instance;
  PyObject* generator = frame->generator;
  PyObject* awaitable = frame->awaitable;
  Py_CLEAR(frame->thrown);
  Py_CLEAR(frame->handled);
  if (generator) {
    give_block(frame, sizeof(Frame));
  } else {
    const size_t bytes = frame_bytes(*frame->prepared);  // the code may die with the record
    frame->raw->stacktop = static_cast<int>(frame->sp - frame->raw->localsplus);
    release_raw(frame->raw);
    give_block(frame, bytes);
  }
  Py_XDECREF(instance);
  Py_XDECREF(awaitable);
  Py_XDECREF(generator);
}

void take_frame_object(Frame& frame, Frame& from) {
  PyFrameObject* object = frame.raw == from.raw ? nullptr : std::exchange(from.raw->frame_obj, nullptr);
  if (!object) return;
  object->f_frame = frame.raw;
  frame.raw->frame_obj = object;
}

void replace_run(Frame* innermost) {
  for (Frame* frame = innermost; frame;) {
    Frame* back = frame->return_to == ReturnTo::entry ? nullptr : frame->back;
    discard_frame(frame);
    frame = back;
  }
}

void discard_run(Frame* innermost) {
  for (Frame* frame = innermost; frame; frame = frame->return_to == ReturnTo::entry ? nullptr : frame->back) {
    if (!frame->generator ||
        reinterpret_cast<PyGenObject*>(frame->generator)->gi_frame_state >= FRAME_COMPLETED)
      continue;
    frame->raw->stacktop = static_cast<int>(frame->sp - frame->raw->localsplus);
    finish_body(*frame);
  }
  replace_run(innermost);
}

// -- States
// -----------------------------------------------------------------------------------------------------------

FrameState::~FrameState() {
  Py_XDECREF(function);
  Py_XDECREF(generator);
  Py_XDECREF(awaitable);
  Py_XDECREF(handled);
  Py_XDECREF(namespace_dict);
  Py_XDECREF(instance);
  Py_XDECREF(kw_names);
  for (PyObject* value : locals) Py_XDECREF(value);
  for (PyObject* value : stack) Py_XDECREF(value);
}

void FrameState::swap(FrameState& other) noexcept {
  std::swap(function, other.function);
  std::swap(generator, other.generator);
  std::swap(awaitable, other.awaitable);
  std::swap(handled, other.handled);
  std::swap(namespace_dict, other.namespace_dict);
  std::swap(instance, other.instance);
  std::swap(kw_names, other.kw_names);
  std::swap(locals, other.locals);
  std::swap(stack, other.stack);
  std::swap(pc, other.pc);
  std::swap(return_to, other.return_to);
  std::swap(call_started, other.call_started);
}

Frame* restore(const FrameState& state, Frame* back) {
  if (state.generator) {
    auto* raw = reinterpret_cast<RawFrame*>(reinterpret_cast<PyGenObject*>(state.generator)->gi_iframe);
    const Code* prepared = prepare(raw->f_code);
    Frame* frame = prepared ? new_generator_frame(state.generator, prepared) : nullptr;
    if (!frame) return nullptr;
    frame->awaitable = Py_XNewRef(state.awaitable);
    frame->kw_names = state.kw_names;
    frame->return_to = state.return_to;
    frame->call_started = state.call_started;
    frame->back = back;
    return frame;
  }
  auto* function = reinterpret_cast<PyFunctionObject*>(state.function);
  const Code* prepared = prepare(reinterpret_cast<PyCodeObject*>(function->func_code));
  Frame* frame = prepared ? new_frame(function, prepared) : nullptr;
  if (!frame) return nullptr;
  frame->raw->f_locals = Py_XNewRef(state.namespace_dict);
  frame->instance = Py_XNewRef(state.instance);
  frame->handled = Py_XNewRef(state.handled);
  // The names tuple is a constant of the code object, which the frame keeps alive.
  frame->kw_names = state.kw_names;
  for (size_t i = 0; i < state.locals.size(); ++i) frame->locals()[i] = Py_XNewRef(state.locals[i]);
  for (PyObject* value : state.stack) *frame->sp++ = Py_XNewRef(value);
  frame->set_pc(state.pc);
  frame->return_to = state.return_to;
  frame->call_started = state.call_started;
  frame->back = back;
  return frame;
}

}  // namespace bolt::interp
