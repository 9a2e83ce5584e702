// observe/calls/numpy_draws.h
// A Python function that computes with numpy's random numbers, and with nothing of torch's -> whether it runs
// as a whole between two regions. No step of it could be recorded, so it would end a region at each.
//
// Spans of speech that are masked, augmentations: written once, as functions of a module that are given sizes
// and numbers.
#pragma once

#include <Python.h>

#include <cstddef>

namespace bolt::observe {

/// `args`: all that it is called with, those with a name, too. What it is given must be numbers, texts,
/// arrays and tensors: it may call anything else. Given tensors, it must make arrays.
bool only_draws_with_numpy(PyObject* callable, PyObject* const* args, size_t count);

}  // namespace bolt::observe
