// observe/values/places.h
// An item of a list or dict from outside, or a letter of a text, by a number or text that differs between
// calls -> the number, text or tensor that is there in each call.
//
//   self.buffer[self.at] = x            at is one of the places; which, is no part of the region
//   self.counts[token] += 1             what is there now is the number that is there in the call
//
//   x + self.masks[len(x)]              a tensor that is there now is an input of the program
//
// Where a place lies is told by facts, from the length and from the other places that the run wrote to. A
// number or text that is there is read by a step, and so is a tensor, which the guards look at when they have
// come to it (Access::chosen). Any other item is read as itself, so the index or key is used; and so it is
// where somebody goes through the container (FollowedKeys::use_positions).
#pragma once

#include <utility>
#include <vector>

#include "observe/known.h"
#include "support/sym.h"

namespace bolt::observe {

class RecorderHooks;
class World;

class Places {
 public:
  Places(World& world, RecorderHooks& hooks) : world_(world), hooks_(hooks) {}
  Places(const Places&) = delete;

  /// next(iter(dict)) of one from outside: may the key be followed? `iterator` is for that alone. The key,
  /// new; null: it is another iterator.
  bool has_first_key(PyObject* dict);
  void asks_first_key(PyObject* iterator, PyObject* dict);
  PyObject* first_key(PyObject* iterator);
  /// list[index], where `index` is such a number and the item a number, text or tensor, or what the run put
  /// there. New; null: not here.
  PyObject* item_by_number(PyObject* list, PyObject* index);
  /// dict[key] likewise; borrowed.
  PyObject* item_by_key(PyObject* dict, PyObject* key);
  /// list[index] is about to be written. False: it is written like others.
  bool about_to_place(PyObject* list, PyObject* index);
  /// Which item of `list` each of those written was.
  bool is_placed(Known& known, Sym index, Py_ssize_t at);
  /// The length of a text that differs between calls; letters of such a text, or of any by a number that
  /// differs.
  PyObject* text_length(PyObject* text);
  PyObject* letters_of(PyObject* text, PyObject* key);

 private:
  std::pair<PyRef, PyObject*> asking_first_;  ///< an iterator, and its dict
  /// A list from outside as it lay there, but for what was put behind; null: it is another.
  Known* known_in_place(PyObject* list);
  /// Where a followed index lies in such a list, counted from the front, in every call; -1: that is not told.
  Py_ssize_t place_in(Known& known, PyObject* index);
  /// A number or text at such a place, read by a step. New.
  PyObject* item_from(Known& known, PyObject* item, PyObject* place);
  /// A tensor at such a place is an input that guards choose when they know the number or text. Null: it is
  /// known as another one.
  PyObject* chosen_tensor(Known& known, PyObject* item, PyObject* place);
  /// Tensors at places that go by numbers: in which container, and at what place in it.
  struct Chosen {
    const Known* from;
    const Source* source;
    PyRef place;
  };
  std::vector<Chosen> chosen_;
  World& world_;
  RecorderHooks& hooks_;
};

}  // namespace bolt::observe
