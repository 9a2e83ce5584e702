// session/saved.h
// What a callable has compiled -> an archive -> a callable in another process, which neither records nor, at
// its first call, compiles.
//
// An entry is written as what it rests on: guards, recipe, and the tape's text with what the compiler was
// told beside it. The plan is made again from the tape when the archive is read, and the machine code is
// found in the disk cache by the plan, as in any process. Whether the objects that an archive names are what
// they were is asked before it is read (torchbolt/saved.py).
#pragma once

#include "session/entries.h"

namespace bolt::session {

/// _saved(weights) of a callable: (numbers, texts, objects). Null with an exception, which says what is in
/// the way. Of the tensors in the list `weights`, those that regions have used beforehand are among the
/// objects.
PyObject* save(Callable* self, PyObject* weights);

/// _restore(numbers, texts, objects): adds the entries to those that are there; how many. Null with an
/// exception, and nothing is added. The tensors among the objects, or None in their place, are what the calls
/// to come are expected to find: they are used beforehand now.
PyObject* restore(Callable* self, PyObject* const* lists);

}  // namespace bolt::session
