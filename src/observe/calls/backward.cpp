// observe/calls/backward.cpp
// backward(), torch.autograd.grad(...) -> an operator that later calls repeat, and what is done with what it
// gives: torchbolt.stand_ins.gradients.run_backward, in the place of a call of autograd's engine.
//
// Where the pass must not be part of the region (record/backward.h), is asked for gradients of what nobody
// knows, leaves a history to `.grad`, or lies under an `except`, the region ends and the engine is called
// between two.

#include <string_view>

#include "guard/tensors.h"
#include "interp/code.h"
#include "observe/calls/controls.h"
#include "observe/ends/frames.h"
#include "observe/recording.h"

namespace bolt::observe {
namespace {

enum Argument : uint8_t { outputs, tangents, retain, create, inputs, expected };

bool are_tensors(PyObject* tuple) {
  if (!PyTuple_CheckExact(tuple)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    if (!guard::is_tensor(PyTuple_GET_ITEM(tuple, i))) return false;
  return true;
}

/// `except` at the beginning of a handler, which `finally` and `with` have too.
bool is_except(const interp::Code& code, int handler) {
  for (auto at = static_cast<size_t>(handler) + 1; at < code.instrs.size(); at += code.instrs[at].length) {
    const std::string_view name = interp::opcode_name(code.instrs[at].op);
    if (name == "CHECK_EXC_MATCH" || name == "CHECK_EG_MATCH") return true;
    if (name == "POP_TOP") return at == static_cast<size_t>(handler) + 1;  // one of everything
    if (!name.starts_with("LOAD_") && name != "BUILD_TUPLE" && name != "CACHE" && name != "PUSH_NULL")
      return false;
  }
  return false;
}

/// Does the program catch something that is raised here? Then a step that lacks memory may go on otherwise.
bool is_caught(const Frame& innermost) {
  for (const Frame* frame : frames_of(innermost)) {
    const interp::Code& code = *frame->prepared;
    const interp::ExceptionRange* range = code.find_handler(frame->pc());
    for (; range; range = code.find_handler(range->target))
      if (is_except(code, range->target)) return true;
  }
  return false;
}

}  // namespace

/// What gradients are wanted of; null: the engine is to be called.
PyRef Recording::places_of_backward(PyObject* const* args, size_t nargs) {
  if (nargs < expected || !are_tensors(args[outputs]) || !are_tensors(args[tangents]) ||
      !are_tensors(args[inputs]) || !PyBool_Check(args[retain]) || !PyBool_Check(args[create]))
    return {};
  if (args[create] == Py_True && PyTuple_GET_SIZE(args[inputs]) == 0)
    return {};  // `.grad` would have a history
  PyRef places = PyRef::steal(hooks_.places_behind(args[outputs], args[inputs]));
  if (!places) return {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places.get()); ++i)
    if (PyObject* place = PyTuple_GET_ITEM(places.get(), i); !world.find(place) && !hooks_.knows(place))
      return {};
  return places;
}

interp::CallStart Recording::start_backward(Frame& frame, PyObject* engine, PyObject* const* args,
                                            size_t nargs, PyObject* kwnames) {
  const PyRef places = is_caught(frame) ? PyRef() : places_of_backward(args, nargs);
  if (!places) {
    if (!PyErr_Occurred()) end_here(frame, {Why::calls, full_name(engine)});
    return {PyErr_Occurred() ? nullptr : PyObject_Vectorcall(engine, args, nargs, kwnames), nullptr};
  }
  world.asked_gradients = true;
  return call_instead(frame, stand_in("run_backward"), places.get(), args, nargs, kwnames);
}

}  // namespace bolt::observe
