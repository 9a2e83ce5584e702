// observe/values/lists.h
// A list, deque or tuple of numbers as a whole -> what C says of all that is in it (sum, max, sorted,
// whether 5.0 is in it, its text), computed by a step from a list that a step makes:
//
//   of what is in the container then, whatever its length, where that differs between calls (lengths.cpp)
//   of the numbers in it, where some of them differ
//
// What torch makes a tensor of (torch.tensor(tokens)) is an input of the program, which guards make.
//
// What others than numbers do when they are added up or compared must not happen in a guard: the step that
// makes the list raises where there are any, and so the guard fails.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "observe/known.h"

namespace bolt::observe {

class RecorderHooks;
class World;

/// Each method gives something new, or null without an exception: the operation is not one that is done here.
class Lists {
 public:
  Lists(World& world, RecorderHooks& hooks) : world_(world), hooks_(hooks) {}
  Lists(const Lists&) = delete;

  /// The tensor of what was in a list from outside, lists in it among that, where how many numbers there are
  /// differs between calls, or which of many. What the run put behind is not in it, what it took is. Null
  /// where it put something in front.
  PyRef tensor_of_list(PyObject* list);
  /// The tensor that torch.from_numpy makes of an array from outside, one for all who copy it. Null: it is no
  /// such array, or torch makes none.
  PyRef tensor_of_array(PyObject* array) { return tensor_of_array(array, 0); }
  /// Another one for each call, as eager gives it.
  PyRef another_tensor_of_array(PyObject* array);
  /// Is it a list or deque of numbers whose length, or the numbers in it, differ between calls?
  bool has_any_length(PyObject* container);
  /// What the C function `method` gives for all[0] and maybe a number.
  PyObject* of_list(const std::string& method, PyObject* function, const std::vector<PyObject*>& all);
  /// What `function` gives for the list that a step makes of `container`, and maybe `arg`.
  PyObject* told_of_list(PyObject* function, PyObject* container, PyObject* arg = nullptr);
  /// The items of a list that the step has given are followed from now on. False: an exception is set.
  bool follow_items(PyObject* list, int step);
  PyObject* compared_lists(int op, PyObject* left, PyObject* right);
  PyObject* list_text(PyObject* list);

 private:
  /// The step of a list of what is in the container in each call, however many numbers that are.
  std::optional<int> list_of_any_length(PyObject* container);
  /// The step of such a list, or of one of the single numbers in the container where some of them differ.
  std::optional<int> list_step(PyObject* container);
  PyObject* reduced(PyObject* function, PyObject* container, bool sums);
  PyObject* sorted(PyObject* container);
  PyRef tensor_of_array(PyObject* array, Py_ssize_t which);
  std::unordered_map<const Source*, PyRef> list_tensors_;  ///< by place; null: it cannot be made
  Py_ssize_t array_tensors_ = 0;                           ///< that were given to somebody
  struct Differing {
    bool lengths = false, numbers = false;
    Py_ssize_t count = 0;  ///< of numbers
  };
  void see_what_differs(PyObject* list, Source& source, Differing& seen);
  World& world_;
  RecorderHooks& hooks_;
};

}  // namespace bolt::observe
