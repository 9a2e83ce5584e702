// observe/values/number_calls.h
// A call of a function of C or of torch's, or an index, with numbers that differ between calls -> its result
// (number_calls.cpp). Null without an exception: it is not done here.
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

void note_slices(Recording& recording, PyObject* tensor, PyObject* key);
bool select_followed(Recording& recording, Frame& frame, PyRef& tensor, PyRef& key);
/// A tensor made of lists that differ between calls.
PyObject* list_tensor_call(Recording& recording, Frame& frame, const Native& native, PyObject* const* args,
                           size_t nargs, PyObject* kwnames);
/// `*handled`: the result is the call's, also where it is null.
PyObject* size_call(Recording& recording, Frame& frame, const CFunction& row, PyObject* callable,
                    PyObject* const* args, size_t nargs, PyObject* kwnames, const std::vector<PyObject*>& all,
                    bool* handled);
void sizes_seen(World& world, const CFunction& row, const std::vector<PyObject*>& all, PyObject* result);

}  // namespace bolt::observe
