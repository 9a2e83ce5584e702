// observe/calls/torch_marks.h
// Callables and the process -> what torch's own compiler was told of them. torch.compiler.allow_in_graph and
// its kin keep their marks inside torch._dynamo, which is read where a program has loaded it, never imported
// and never called: what the user told torch holds for us, too.
//
// Missing: torch's substitute_in_graph, which keeps what it is told where only its own functions get at it.
#pragma once

#include <Python.h>

#include "observe/calls/controls.h"

namespace bolt::observe {

/// Attribute `name` of a module that is loaded; borrowed, null (without an exception) if there is none. Both
/// texts live as long as the process.
PyObject* loaded_attribute(const char* module, const char* name);

/// Reads the marks: a recording begins, which goes by what they are now.
void look_up_torch_marks();
/// `callable` among the functions that torch allows in its graphs, or does not.
Control torch_mark(PyObject* callable);

/// torch._dynamo.error_on_graph_break is in force around a compiled call.
bool torch_forbids_breaks();

}  // namespace bolt::observe
