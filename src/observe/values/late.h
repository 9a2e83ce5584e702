// observe/values/late.h
// An operation on texts or tensors, or a call that shows something, which need not be done before the region
// ends -> a value that is made, or a call that is made, then (late.cpp). Operations give null without an
// exception where they are none of these.
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

/// Is it a tensor of whose contents a text can be made at the region's end?
bool can_show(Recording& recording, PyObject* tensor);
/// The text that a format gives of a value that nobody has read.
PyObject* late_format(Recording& recording, Frame& frame, PyObject* value, int conversion, PyObject* spec);
/// `text` (stolen, may be null) was joined of these: it is late if one of them is.
PyObject* late_join(World& world, PyObject* text, PyObject* const* items, Py_ssize_t n);
PyObject* late_operation(Recording& recording, int kind, PyObject* left, PyObject* right);
PyObject* late_text(Recording& recording, Frame& frame, const CFunction& row,
                    const std::vector<PyObject*>& all);
/// `result` of a native call whose size is data: it becomes late. False: the region must end.
bool late_operator(Recording& recording, PyObject* callable, const std::vector<PyObject*>& args,
                   PyObject* kwnames, PyObject* result, const Frame& frame);
/// A call that shows something is delayed. Where it cannot be and nothing inside is worth a region of its
/// own, the region ends and all of the call is done at once. Null without an exception: it is a call like any
/// other.
PyObject* show_later(Recording& recording, Frame& frame, PyObject* callable, PyObject* const* args,
                     size_t nargs, PyObject* kwnames);

}  // namespace bolt::observe
