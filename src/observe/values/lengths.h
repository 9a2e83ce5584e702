// observe/values/lengths.h
// Lists, deques, dicts, sets and tuples from outside that are longer or shorter from call to call, and what
// the run makes of them -> their length as an expression, their items by how far they lie from an end.
//
//   self.history.append(loss)          the length is n0 + 1, n0 being what it was before the run
//   if len(self.history) > 10: ...     the fact n0 + 1 <= 10
//   self.history[-3]                   the last but one of those that were there: item -2
//   self.t = self.t + (x,)             a tuple of what there was, and x
//
// The length before the run is guarded, or, where it differs between calls, a followed number like any other:
// a step that asks for it. What the run puts in or takes away is the same in every call, so the length at any
// time is that and a constant. Whoever goes through the container reads how long it is (World::read_whole).
//
// lengths.cpp reads; what is put in and taken out is followed in writes/appends_and_pops.cpp, what the run
// makes of such a one in joined.cpp.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>

#include "observe/known.h"
#include "support/size_fact.h"

namespace bolt::observe {

class RecorderHooks;
class World;

/// Is it a number or text that the program itself names as a key, not one that is followed? Only its kind is
/// looked at.
bool is_plain_constant(PyObject* key);

class Lengths {
 public:
  Lengths(World& world, RecorderHooks& hooks) : world_(world), hooks_(hooks) {}
  Lengths(const Lengths&) = delete;

  /// len(container): followed where it differs between calls. New.
  PyObject* length(PyObject* container);
  /// xs[len(xs) - 1]: `index` as it is counted from the end in every call. Nothing: it is another.
  std::optional<Py_ssize_t> index_from_end(PyObject* sequence, PyObject* index);
  /// An item of a list or deque; borrowed, null: there is none.
  PyObject* item_at(PyObject* container, Py_ssize_t index);
  /// One item is about to be taken from an end of a list or deque, or put there; its items are about to go.
  /// `is_read`: what is taken is given to the program.
  void about_to_take(PyObject* container, bool in_front, bool is_read);
  void about_to_put(PyObject* container, bool in_front);
  /// All items are about to go. False means that the container was read whole and is written like others.
  bool about_to_clear(PyObject* container);
  /// A key of an OrderedDict is about to be moved to the end; its first item is about to go, and nobody reads
  /// it. False: all of it is to be read.
  bool about_to_move(PyObject* dict, PyObject* key);
  bool about_to_take_first(PyObject* dict);
  /// The last item of a dict is about to go: is it one that the run put there?
  bool about_to_take_last(PyObject* dict);
  /// The first item of a dict is about to go, whose `key` is what Places::first_key gave. False: it is
  /// another key.
  bool about_to_take_first(PyObject* dict, PyObject* key);
  void about_to_delete(PyObject* container, PyObject* index);
  /// del list[:-n] and the like: takes the items that a slice of constants means off their end. False: not
  /// here.
  bool cut(PyObject* list, PyObject* slice);
  /// Is container[index] an item that the run put there in every call?
  bool is_own_item(PyObject* container, PyObject* index);
  /// A list or deque from outside of which nobody needs to know all that is in it; null: it is another
  /// object.
  Known* known_by_ends(PyObject* container);
  /// Where the items of such a one come from: so many were put in front by the run, so many are left of those
  /// that were there before it, and so many were put behind.
  struct Parts {
    Py_ssize_t in_front, old, behind;
  };
  static Parts parts_of(const Known& known);
  /// The step to an item of what was there before the run.
  static Access access_of(const Known& known);
  /// The sum, a slice and the tuple of lists or tuples that are known by their ends, which are known in the
  /// same way (joined.cpp). Each is new; null without an exception means that it is made as usual.
  PyObject* concatenated(PyObject* left, PyObject* right);
  PyObject* slice_of(PyObject* sequence, PyObject* slice);
  PyObject* tuple_of(PyObject* list);
  /// `list`, which the run made, is about to be extended by `items`: afterwards it is known by its ends.
  Known* begin_extension(PyObject* list, PyObject* items);
  void end_extension(PyObject* list, Known* of, Py_ssize_t size_before);
  /// Reads a tuple, or what the run made, whole, where only its ends are known.
  void read_if_open(PyObject* object);
  /// What the run made of one from outside that was not read whole since; null: it is another object.
  const Known* made_of(PyObject* sequence);
  /// Its length before the run: an expression, or a number that is guarded.
  Sym length_before(Known& known);
  /// Was none of the keys that the run wrote there before it?
  bool owns_new_keys(Known& known);
  /// Each item of what the run made, or of the copy that stands for a tuple: numbers that differ lie there
  /// from now on, as in a list (World::own_numbers_of).
  void read_parts(Known& known);
  /// What the run made is not known any more.
  void forget() { made_of_.clear(); }

 private:
  Sym length_now(Known& known);
  void note_length(Known& known, Relation relation, Py_ssize_t number);
  /// Which of the keys that the run wrote were there before it. False: of some that is not told.
  bool tell_written_keys(Known& known);
  void take(PyObject* container, bool in_front, bool is_read);
  /// A deque that is full lets go of what lies at the other end. False: it holds nothing at all.
  bool makes_room(PyObject* container, bool in_front);
  /// The source of item `index` of those that were there; it is counted from the front where their number is
  /// guarded.
  Source* place_of(const Known& known, Py_ssize_t index);
  PyObject* end_of(PyObject* sequence, PyObject* slice);
  /// A slice of one whose length is followed: its items are not read.
  PyObject* followed_slice(PyObject* sequence, PyObject* slice);
  /// Where a slice of constants without a step begins and, if that is said, where it ends.
  std::optional<std::pair<Py_ssize_t, std::optional<Py_ssize_t>>> constant_bounds(PyObject* slice);
  /// Without as many items at either end; it has more. Null: not here.
  PyObject* part_of(PyObject* sequence, Known& of, Py_ssize_t first, Py_ssize_t last);
  /// The last n items, which reach into what was there.
  PyObject* last_of(PyObject* sequence, Known& of, Py_ssize_t n);
  /// One whose length is followed, and of which what was there is as it was; null: it is another object.
  Known* followed_by_ends(PyObject* sequence);
  /// `made` is what the run made of `of`: `window` says what is left of that one in it.
  void make_of(PyObject* made, Known& of, Window window);
  std::unordered_map<PyObject*, Known> made_of_;  ///< lists and tuples that the run made
  World& world_;
  RecorderHooks& hooks_;
};

}  // namespace bolt::observe
