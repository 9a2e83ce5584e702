// autograd/module.h
// Python functions of torchbolt.stand_ins,
//
//   _keep_callable(callable) -> its number for torchbolt::function and begin_checkpoint (function.h)
//   _tie_function(callable, inputs, outputs, saved, differentiable, written, materialize) -> a list of
//   tensors
//
// and for the tests of joint tapes, without a compiler behind them:
//
//   _joint(callable, args, others=[]) -> a joint tape of a recorded call, whose results are a tensor or a
//   sequence of them; `others`: args of other sizes and with other numbers, which differ between calls then
//   _joint_text(joint) -> str
//   _joint_parts(joint) -> the texts of the two tapes that it is split into
//   _joint_symbols(joint) -> str: what differs, and what is taken for granted about it
//   _joint_inputs(joint) -> the tensors that the run took from outside
//   _joint_agrees(joint, inputs, args) -> is it the joint tape for these?
//   _joint_run(joint, tangents, budget=None[, inputs, args]) -> (outputs, gradients, complaints): it is run,
//   on what its inputs are now or on these; a complaint names an entry whose result is not what the tape says
//   _joint_run_parts(joint, tangents, budget=None[, inputs, args]) -> the same, by the two parts; a budget is
//   a share (float) or a number of bytes (int) _joint_partition(joint, budget=None) -> (text, (tensors kept,
//   bytes, peak), the same of eager, inputs that are kept though eager does not) _joint_saved(joint) ->
//   (tensors, bytes) that eager keeps
#pragma once

#include <Python.h>

namespace bolt::autograd {

/// Adds them to `module`; -1 with an exception set.
int add_joint_functions(PyObject* module);

}  // namespace bolt::autograd
