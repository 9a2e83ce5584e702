// observe/values/keys.h
// A number or text that differs between calls as a key of a dict or an element of a set -> facts that tell it
// from the other keys, so that it can stay followed.
//
//   self.cache[self.step] = x        step, 7 now, is not among the keys that self.cache had before;
//   self.cache[self.step]            it is the key that the run put there
//
// Where a lookup ends depends on which keys are equal, not on what they are. So a followed key stays
// followed: it is told from each other key by a fact, and the recipe stores under what it is in the call.
// Invariant: of two keys that the run put into one dict, the same facts or guards say in every call whether
// they are equal, as soon as the second is there. C code that hashes keys by itself, into another container,
// does not know of this: they are used before (use_keys, and World::use of what holds them). The order of a
// set's elements depends on what they are, so those are used, too.
//
// A key that is equal to one that is no followed number itself is used: the region is for that value.
#pragma once

#include <vector>

#include "observe/known.h"

namespace bolt::observe {

class World;

class FollowedKeys {
 public:
  explicit FollowedKeys(World& world) : world_(world) {}
  FollowedKeys(const FollowedKeys&) = delete;

  /// May some dict hold a followed key?
  bool any() const { return has_followed_keys_; }
  /// Is it followed, and does that hold where it is a key?
  bool is_followed_key(PyObject* key) const;
  /// A late text that is looked for in `dict` (null: in one that is being made) is followed from now on,
  /// where what it is made of is known when guards are checked.
  void follow_text(PyObject* dict, PyObject* text);
  /// A dict that such a key may be looked up in, or be put into, without being used.
  bool may_follow_keys(PyObject* container);
  /// `dict` is about to be asked for `key`: which of its keys that is, if any, is the same in later calls.
  /// `asks`: only whether it is there.
  void tell_from_keys(PyObject* dict, PyObject* key, bool asks = false);
  /// As tell_from_keys, where `key` may come to be among the keys; puts_keys takes all keys of another dict.
  void puts_key(PyObject* dict, PyObject* key);
  void puts_keys(PyObject* dict, PyObject* mapping);
  /// `element` is about to be put into or taken out of a set from outside. False means that the set is
  /// written as others are, read whole.
  bool about_to_write_element(PyObject* set, PyObject* element, bool removes);
  /// Whoever goes through the container meets the followed keys of the run at a place of their own.
  void use_positions(const Known& known);
  /// {items[0]: items[1], ...} is about to be made.
  void puts_keys_of_display(PyObject* const* items, Py_ssize_t n);
  /// `dict` is the `__dict__` of an object that the run made, where its keys are names.
  void note_namespace(PyObject* dict);
  /// The keys are read by something that does not tell them apart as the above does.
  void use_keys(PyObject* container);
  /// Are the two the same in every call, whatever that is?
  bool are_one_number(PyObject* a, PyObject* b);
  /// From the keys that the run put into it.
  void tell_from_own(PyObject* dict, PyObject* key);

 private:
  /// The step of a text made of numbers and texts that guards know; -1: it has none.
  int text_step(PyObject* text);
  /// `key` is not, or where no more is asked it is, among the keys that the dict or set had before the run,
  /// which wrote no equal one.
  void tell_from_outside(const Known& known, PyObject* key, bool asks);
  /// From those among `keys`, which the run put there, that are followed. False: it has been used.
  bool tell_from_followed(const std::vector<PyObject*>& keys, PyObject* key);
  std::vector<PyRef> namespaces_;   ///< see note_namespace
  bool has_followed_keys_ = false;  ///< some dict may hold a followed key
  World& world_;
};

}  // namespace bolt::observe
