// observe/known.h
// An object that a recording knows -> what it knows of it: where it comes from, what was in it before the run
// wrote to it, and what of it later calls must find again.
//
// World makes these and gives them out; each of its parts keeps in them what it has to remember of an object.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "guard/source.h"
#include "python/py_ref.h"

namespace bolt::observe {

using guard::Access;
using guard::Check;
using guard::Source;

/// What the run did to the ends of a list or deque from outside: what is left of what was there lies between
/// what the run put in front and what it put behind.
struct Window {
  Py_ssize_t front = 0, back = 0;  ///< how many items were taken from either end of what was there; also
                                   ///< of a dict, whose keys that the run wrote were not there then
  Py_ssize_t put_in_front = 0;     ///< and still is there; what was put behind is the rest
  Py_ssize_t last = -1;            ///< of what the run made: only so many of what is left, the last; -1: all
  bool cleared = false;            ///< nothing is left of what was there; also of a dict
  bool is_moved() const { return front || back || put_in_front || cleared; }
};

/// What the run did to a key of a dict.
enum class Written : uint8_t {
  put,
  removed,  ///< at some time
  moved,    ///< to the end of an OrderedDict
  moved_and_put,
};
/// As it lies in Known::keys; null: it was not written. Borrowed.
PyObject* mark_of(Written how);
std::optional<Written> written_as(PyObject* mark);

struct Known {
  Source* source = nullptr;
  PyRef object;
  PyRef before;   ///< contents before the first write: a dict, a 1-tuple for a cell, else a list
  PyRef keys;     ///< of a dict or set: those the run wrote, in order, and how (written_as)
  Window window;  ///< of a list or deque that is not read whole
  PyRef first;    ///< of a dict: its first key, which the program asked for (Places::first_key)
  std::vector<std::pair<PyRef, bool>>
      elements;  ///< of a set, put in (true) or taken out by the run, in order
  std::vector<PyRef>
      placed;    ///< of such a list: the followed numbers that the run wrote items at (places.cpp)
  PyRef length;  ///< before the run, once it was asked for (Lengths::length_before)
  size_t noticed_writes = 0;  ///< of a deque or OrderedDict: guard::noticed_writes then
  bool read_whole = false;    ///< length, keys and items are guarded
  bool by_ends = false;       ///< a tuple whose length differs between calls, as lists are until read whole
  Known* of = nullptr;        ///< the run made it: this list or tuple from outside is a part (joined.cpp)
  bool loses = false;         ///< any of what was in it may go
  bool noted = false;         ///< a function whose fields are guarded, a class of which note_lookup is, an
                              ///< iterator of which it is where it stood
  bool lazy = false;          ///< a number or text whose value nothing has read yet: only its type is guarded
};

}  // namespace bolt::observe
