// observe/lifetimes/goodbyes.h
// What the run lets go of -> the object that the region must end at, since somebody would notice that it
// goes.
//
// World holds what it knows, and copies of what is written, so in a recorded run nothing of that goes. Where
// it has an end of its own (`__del__`, a weak reference, a generator within try) the region must end there,
// since later calls end it there, too. So references are counted as a garbage collector does: an object is
// gone when all that are left are World's and those of objects that are gone. Looked at is only what can be
// the first to go: what was found in frames (what lies in something known goes with that, or is written
// over), and what was written over; and only from where something is known whose end would be noticed.
#pragma once

#include <unordered_set>
#include <vector>

#include "observe/known.h"
#include "support/pointer_map.h"

namespace bolt::observe {

class RecorderHooks;
class World;

/// What went in a region. It is held for as long as this lives.
struct Gone {
  std::vector<PyRef> held;  ///< owners first
  std::unordered_set<PyObject*> all;
};

/// Everything that `object` holds, as a garbage collector is told; borrowed.
std::vector<PyObject*> inside_of(PyObject* object);

class Goodbyes {
 public:
  /// `watch`: set when each instruction from the next on must begin with World::begin_instruction.
  Goodbyes(World& world, RecorderHooks& hooks, bool& watch) : world_(world), hooks_(hooks), watch_(watch) {}
  Goodbyes(const Goodbyes&) = delete;

  /// Something that the run has let go of and that only we hold any more, whose end is noticed; null:
  /// nothing.
  PyObject* last_held() { return ends_are_noticed_ ? find_gone() : nullptr; }
  /// Is there anything known whose end would be?
  bool ends_are_noticed() const { return ends_are_noticed_; }
  /// A weak reference to `object` was made.
  void referred_weakly(PyObject* object);
  /// World has come to know an object.
  void met(const Known& known);
  /// The run may be the last to hold `object`, since it was written over or found in a frame.
  void may_go(PyObject* object);
  /// One more reference to `object` is ours, and not the program's.
  void also_held(PyObject* object);
  /// Whatever is in the copy that was made of `known` is held by us once more.
  void note_copy(const Known& known);
  /// Any of what was in `known` may go from now on.
  void may_lose(Known& known);
  /// The region is over: what went in it. From now on nothing is looked for.
  Gone close();

 private:
  PyObject* find_gone();
  bool is_gone(PyObject* object) const;
  void goes(PyObject* object);
  std::vector<PyObject*> may_go_;     ///< what the run may be the last to hold; all held
  PointerMap<Py_ssize_t> also_held_;  ///< how many references are ours, or of what is gone, beside Known's
  std::vector<PyObject*> gone_;       ///< what nobody else holds any more, owners first
  std::unordered_set<PyObject*> is_gone_;  ///< the same
  void notice_ends(bool yes) { ends_are_noticed_ |= yes, watch_ |= yes; }
  bool ends_are_noticed_ = false;  ///< of something that is known
  World& world_;
  RecorderHooks& hooks_;
  bool& watch_;
};

}  // namespace bolt::observe
