// observe/lifetimes/noticed.h
// An object -> does anybody notice when it goes?
//
// A recording must know, since what runs then is the program's own code, at a moment of its own.
#pragma once

#include <Python.h>

namespace bolt::interp {
struct Frame;
}

namespace bolt::observe {

/// Can it be of interest when it goes? Not of values, nor of what the program seldom lets go of.
bool end_matters(PyObject* object);

/// Does Python code run when it goes, or is a weak reference cleared? `depth`: so far inside is looked for
/// something of which that is true, among what nobody else holds.
bool ends_noticed(PyObject* object, int depth);

/// Could the program tell when a local lets go of it: does code run, is a weak reference cleared, a file
/// closed? Looked for inside as well, whoever else holds that: who does changes during a run. The answer for
/// one object is the same in the recorded run and where the region goes on in later calls.
bool end_is_noticed(PyObject* object);

/// May the instruction in progress let go of anything whose end matters? Most only load, or compute with
/// numbers.
bool may_let_go(const interp::Frame& frame);

}  // namespace bolt::observe
