// observe/ends/expectations.h
// A branch on data whose other side is an error -> a check that the program makes (expectations.cpp).
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

/// Does the instruction in progress give this answer to a question whose other answer is an error?
bool expects(const Recording& recording, const Frame& frame, bool answer);
bool expect_truth(Recording& recording, Frame& frame, PyObject* tensor, bool answer);
bool expect_comparison(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right,
                       bool answer);

}  // namespace bolt::observe
