// autograd/module.h
// Python functions of torchbolt.stand_ins,
//
//   _keep_backward(callable) -> its number for torchbolt::function (function.h)
//
// and for the tests of joint tapes, without a compiler behind them:
//
//   _joint(callable, args) -> a joint tape of a recorded call, whose results are a tensor or a sequence of
//   them
//   _joint_text(joint) -> str
//   _joint_inputs(joint) -> the tensors that the run took from outside
//   _joint_run(joint, tangents) -> (outputs, gradients, complaints): it is run on its inputs as they are now;
//   a complaint names an entry whose result is not what the tape says of it
//   _joint_run_parts(joint, tangents, budget=None) -> the same, by the two parts; a budget is a share (float)
//   or a number of bytes (int)
//   _joint_partition(joint, budget=None) -> (text, (tensors kept, bytes, peak), the same of eager, inputs
//   that are kept though eager does not) _joint_saved(joint) -> (tensors, bytes) that eager keeps
#pragma once

#include <Python.h>

namespace bolt::autograd {

/// Adds them to `module`; -1 with an exception set.
int add_joint_functions(PyObject* module);

}  // namespace bolt::autograd
