// guard/source.h
// Where an object of the recorded run came from, and what the run took for granted about it: SourceTree.
//
// A source is one step from a parent: "item 'training' of the instance dict of root 0". Sources are interned,
// so the tree holds each place once, and whatever was assumed about a place hangs on its node. Checking a
// tree (program.h) is walking it: read the child from the parent's object, check its assumptions, go on to
// its children. So a path is read once however many guards lie below it, and nothing below a wrong object is
// ever touched.
//
//        root 0 (TypeIs Net)
//          `- instance dict
//               |- item 'training'   Equals False
//               `- item '_modules'   TypeIs dict
//                    `- item 'fc'    TypeIs Linear
//                         `- instance dict
//                              `- item '_parameters' ...  Tensor #1
//
// Kinds of tops: `root i` is the i-th object handed to the check (callable, arguments, frame slots);
// `constant` is an object pinned by identity: a function, class, module, their dicts and cells. Everything
// below a constant is the same for every instance of the roots. User objects are never constants. `chosen` is
// what lies at a place that goes by numbers (self.masks[n]): it is met when those have been computed.
//
// Invariants: an assumption is added in the same statement as the read it protects; `read` returns a borrowed
// reference that is owned by the parent's object, so no step may create objects but three, whose tensor or
// number the walk holds (Access::list_tensor, Access::array_tensor, Access::tensor_number).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/py_ref.h"
#include "support/growing.h"
#include "support/short_vector.h"

namespace bolt::guard {

/// The step from the parent's object.
enum class Access : uint8_t {
  root,           ///< objects[index] of the check
  constant,       ///< `key` itself, pinned
  instance_dict,  ///< the object's __dict__
  dict_item,      ///< dict[key]
  list_item,      ///< list[index], from the end where it is negative
  tuple_item,     ///< the same of a tuple
  deque_item,     ///< the same of a collections.deque
  cell,           ///< contents of a cell
  field,          ///< the PyObject* `index` bytes into the object; `key` is its name. For slots and C members
  type_attr,      ///< `key` found along the method resolution order of a class
  super_attr,     ///< the same, starting after class `start`
  tensor_grad,    ///< .grad of a tensor
  context_var,    ///< value of a contextvars.ContextVar in the current context
  list_tensor,    ///< the numbers in a list as a tensor, new; `index`: with floats (number_lists.h)
  array_tensor,   ///< the memory of one of numpy's arrays as a tensor, new; `index`: which of several
  tensor_number,  ///< element `index` of a tensor as a number (tensor_numbers.h); `key`: the class it is made
                  ///< one of, null: what item() gives
  chosen,         ///< a top: what step `index` of the numbers gives; `key`: the place as text, `start`: the
                  ///< number or text that says which it is
};

enum class Check : uint8_t {
  type_is,   ///< type(object) is value
  is,        ///< object is value
  is_bound,  ///< a built-in method of the same C function and self as value
  method,    ///< a built-in method of the C function `number` (PyMethodDef*), whatever self
  equals,    ///< equal to the leaf `value` (leaf.h), of the same type
  value,     ///< of a class on top of int, str, ...: what it is without the class (plain_value in leaf.h)
  length,    ///< len == number
  keys,      ///< keys (dict) or elements (set) in order are those of the tuple `value`
  missing,   ///< dict has no key `value`; class has no attribute `value`
  tensor,    ///< as entry `number` of the tensor table
  leaf,      ///< a tensor whose is_leaf is `number`
  stands,    ///< an iterator stands where the tuple `value` says (iterators.h)
  gives,     ///< asked again as the tuple `value` says, it gives the same leaf (see `ask`)
  same_as,   ///< the very object found at `other`
  not_same_as,
  unbound,  ///< an empty cell or slot (the object itself is absent)
};

struct Source;

struct Assumption {
  Check check;
  PyRef value;
  Source* other = nullptr;
  Py_ssize_t number = 0;
};

struct Source {
  Source* parent = nullptr;
  Access access = Access::root;
  PyRef key;
  Py_ssize_t index = 0;
  PyObject* start = nullptr;  ///< super_attr: borrowed, pinned by the tree
  ShortVector<Assumption, 2> assumptions;
  int reg = -1;         ///< register that keeps the object found here for recipes and alias checks; -1: none
  uint32_t number = 0;  ///< in SourceTree::all()
  bool is_whole = false;   ///< each item of a list or deque is read
  bool is_part = false;    ///< what lies below has a memory of its own (memory.h)
  bool is_static = false;  ///< the top of its chain is a constant: the same for every instance

  /// In the order in which they were made.
  struct Children {
    struct Iterator {
      Source* at;
      Source* operator*() const { return at; }
      Iterator& operator++() { return at = at->next_, *this; }
      bool operator==(const Iterator&) const = default;
    };
    Iterator begin() const { return {first}; }
    static Iterator end() { return {nullptr}; }
    bool empty() const { return !first; }
    Source* first;
  };
  Children children() const { return {first_}; }
  void add_child(Source* child) {
    (last_ ? last_->next_ : first_) = child;
    last_ = child;
  }

  bool has(Check check) const;
  /// Of a dict: does it rest on anything inside?
  bool reads_dict() const;
  /// Adds an assumption unless the same one is there.
  void assume(Check check, PyObject* value = nullptr, Py_ssize_t number = 0, Source* other = nullptr);
  /// Adds that `object`, asked `how`, gives the leaf `answer`, unless it is there.
  void assume_answer(PyObject* how, PyObject* answer);
  /// The object found here, given the parent's object; borrowed, null when absent. No exception is left set.
  PyObject* read(PyObject* parent_object) const;
  /// As Python would write it: `self.layers[3].weight`. `root_names` may be shorter than the roots.
  std::string str(const std::vector<std::string>& root_names = {}) const;
  /// `len(self.layers)`
  std::string length_str(const std::vector<std::string>& root_names = {}) const {
    return "len(" + str(root_names) + ")";
  }

 private:
  Source *first_ = nullptr, *last_ = nullptr;  ///< child
  Source* next_ = nullptr;                     ///< child of the same parent
};

/// The place of list[index], in no tree: to ask what is known of it.
inline Source item_of(Source& list, Py_ssize_t index) {
  Source item;
  item.parent = &list;
  item.access = Access::list_item;
  item.index = index;
  return item;
}

/// Places where different objects were found, and must be in every call: none of `each` is another of them,
/// nor one of `others`. The run told them apart by identity, or wrote to some and read the others.
struct Apart {
  std::vector<Source*> each, others;
};

class SourceTree {
 public:
  Source* root(Py_ssize_t index);
  Source* constant(PyObject* object);
  Source* chosen(int step, PyObject* place, PyObject* key);
  Source* child(Source* parent, Access access, PyObject* key = nullptr, Py_ssize_t index = 0,
                PyObject* start = nullptr);
  /// Gives `source` a register.
  int keep(Source* source);

  const std::vector<Source*>& tops() const { return tops_; }
  int registers() const { return registers_; }
  /// Parents come before their children.
  const std::vector<Source*>& all() const { return all_; }
  std::vector<std::string> root_names;
  std::vector<Apart> apart;

 private:
  struct Id {
    Source* parent;
    PyObject* key;
    Py_ssize_t index;
    PyObject* start;
    Access access;
  };
  /// A place in the table that sources are found by. Small: a model's table is read all over.
  struct Entry {
    uint32_t hash = 0;
    uint32_t source = kFree;  ///< in all_
  };
  static constexpr uint32_t kFree = ~uint32_t{0};
  Source* intern(const Id& id);
  void grow();

  Growing<Source> store_;
  std::vector<Source*> all_, tops_;
  std::vector<Entry> table_;  ///< open addressing; half of it is free
  int registers_ = 0;
};

/// What a ContextVar holds now; borrowed, null when it is not set and has no default.
PyObject* context_value(PyObject* variable);

/// The place of list[index], which is counted from the end where it is negative; null: there is none.
PyObject** list_place(PyObject* list, Py_ssize_t index);

/// The place of an object's __dict__ pointer, made if needed; null for objects without one.
PyObject** instance_dict_slot(PyObject* object);

}  // namespace bolt::guard
