// observe/values/open_numbers.h
// Numbers that are not known while guards are checked (guard::Phase): taken out of tensors, drawn, or sizes
// that are data -> what may be computed from them without ending the region, and what operators are lent in
// their place.
//
// They are lent as the tensors they came from, as tensors that the same arithmetic was done on, or as
// expressions over sizes that are data. What could raise in another call, where it did not in this one, is
// checked by the program.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "guard/numbers.h"
#include "observe/known.h"
#include "support/reason.h"
#include "support/sym.h"

namespace bolt::observe {

class RecorderHooks;
class World;

class OpenNumbers {
 public:
  OpenNumbers(World& world, RecorderHooks& hooks) : world_(world), hooks_(hooks) {}
  OpenNumbers(const OpenNumbers&) = delete;

  /// `number` (stolen) was element `element` of `tensor`, which nothing writes to any more: known to later
  /// calls when the program has run. Where its value is used before, the region ends. New.
  PyObject* data_number(PyObject* number, PyObject* tensor, int64_t element);
  /// The program checks that int() of the tensor's element gives a number of 64 bits. False: it cannot.
  bool expect_whole(PyObject* tensor);
  /// math.isnan, isinf or isfinite of an open number, as a tensor; null: it cannot be one.
  PyRef classified(PyObject* function, PyObject* number);
  /// The tensors that steps of kind `data` are taken from, by NumberStep::kind until the region's end.
  std::vector<PyRef> data;
  /// Did torch ask, since this was called last, what an open number is that it was lent? Why the region ends
  /// then; nothing: no. The questions are struck out.
  std::optional<Why> asked_open();
  bool lent_open() const { return open_lent_; }
  /// Torch was lent a number, an open one if `open`.
  void note_lent(bool open) { open_lent_ |= open; }
  /// How two numbers compare, some of which are open, as a tensor; null: it cannot be one.
  PyRef compared_tensor(int op, PyObject* left, PyObject* right);
  /// Notes the answer as a fact about sizes, which the program checks. False: the two are no sizes.
  bool compared_sizes(int op, PyObject* left, PyObject* right, bool answer);
  /// A step that rests on open numbers and did not raise in this run: does the program check that it does not
  /// in others?
  bool cannot_raise(const guard::NumberStep& step);
  /// Can this early step raise, or give a number of another kind, for other numbers than those that were
  /// drawn in this run? Such a call is eager's.
  bool may_raise(const guard::NumberStep& step);
  /// The step of an expression over sizes, some of which are data; -1: it is not made of arithmetic alone.
  int open_step(Sym expression);
  /// An open int as a size that is data, for an operator. Null without an exception: it cannot be one.
  PyObject* lend_size(int step, PyObject* number);
  /// An open number as a tensor without dimensions. Null: there is none.
  PyRef data_tensor(int step);
  /// An early number as the program is given it: as a double. Null without an exception: it may be an int
  /// that is none.
  PyObject* lend_early(int step, PyObject* number);
  /// The program checks that the open number of this step lies there; false: it cannot.
  bool expect_within(int step, double low, double high);

 private:
  /// How far from 0 a number that is drawn, or computed from such ones, can be. Nothing: it is not known.
  std::optional<double> bound_of(int step);
  std::optional<double> find_bound(int step);
  std::unordered_map<int, std::optional<double>> bounds_;  ///< by step: one may be part of another many times
  /// An int that rests on numbers taken out of tensors, as an expression over sizes that are data: what
  /// open_step does, the other way round. Nothing: it is made of more than arithmetic.
  std::optional<Sym> size_from(int step);
  /// The expression of an int, open or not; nothing: it has none.
  std::optional<Sym> open_size(PyObject* number);
  /// The program checks that the number of this step is not 0; false: it cannot.
  bool expect_other_than_0(int step);
  /// Floats computed from open numbers, as doubles: torch computes with those as Python does.
  PyRef data_arithmetic(const guard::NumberStep& step);
  PyRef one_of(const guard::NumberStep& step);
  /// A number that the program is given, for an operator. Null: it cannot be one.
  PyRef lend_step(int step);
  /// An early number as a tensor. Null: it is not early, or cannot be one.
  PyRef early_tensor(int step);
  std::unordered_map<int, PyRef> data_tensors_;  ///< by step: data_tensor and early_tensor
  /// Its place in `data`.
  int late_tensor(PyObject* tensor);
  bool open_lent_ = false;  ///< torch was lent an open number since asked_open was called
  World& world_;
  RecorderHooks& hooks_;
};

}  // namespace bolt::observe
