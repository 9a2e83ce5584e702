// observe/values/draws.h
// A call of a function of Python's module `random`, or of one of numpy's generators -> numbers that each call
// of the region draws anew (draws.cpp). Null without an exception: it is not done here.
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

PyObject* early_call(World& world, const CFunction& row, PyObject* callable,
                     const std::vector<PyObject*>& all, PyObject* self, PyObject* kwnames);
PyObject* draw(World& world, PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames);
PyObject* numpy_draw(World& world, PyObject* method, PyObject* const* args, size_t nargs, PyObject* kwnames);
PyObject* draw_list(World& world, PyObject* method, PyObject* const* args, size_t nargs, PyObject* kwnames);

}  // namespace bolt::observe
