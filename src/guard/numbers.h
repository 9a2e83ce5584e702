// guard/numbers.h
// Numbers that differ between calls (a step counter, a learning rate, sizes) and what Python code computes
// from them before they reach an operator, a comparison or the result: Numbers.
//
// A flat list of steps, each Python's own operation on Python's objects, in the order of the recorded run. So
// ints of any length, rounding and division by zero mean what they mean in eager, and a step that raises is a
// guard that fails. A comparison whose outcome the run went by is a step with a fact: what it came to.
//
// Most steps are computed while guards are checked. Two kinds are *open* then: a random number, which may be
// drawn only once the guards held, and what comes out of a tensor (item()), which is known when the program
// has run. They and what rests on them are computed in a later Phase: no guard, no size and no step that may
// raise can be one.
//
// In expressions over sizes a symbol stands for a step (support/symbols.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/py_ref.h"
#include "support/symbols.h"

namespace bolt::guard {

/// When a step is computed, in order.
enum class Phase : uint8_t {
  check,  ///< while guards are checked, which may be often
  early,  ///< the guards held; the program is given it
  late,   ///< the program has run
};

enum class NumberOp : uint8_t {
  source,     ///< the object in register `kind` of the check
  data,       ///< late: element `element` of output `kind` of the program, as `object` (int or float)
  data_size,  ///< late: size `element` of output `kind`
  size,       ///< an int: the value of `size`
  constant,   ///< `object`
  binary,     ///< operator `kind` (CPython's numbering) of two steps
  negative,
  positive,
  invert,
  compare,  ///< `kind`: Py_LT, ...
  call,     ///< `object`(steps...), a C function that depends on its arguments only, or is called early
};

struct NumberStep {
  NumberOp op;
  int kind = 0;
  PyRef object;
  Sym size = {};
  std::vector<int> args = {};
  int64_t element = 0;
  Phase phase = Phase::check;  ///< Numbers::add makes it that of the last operand, if that is later
  /// What its value in the recorded run was, int or float: max(2, 0.5) is one, max(0, 0.5) the other. Null:
  /// it is an int whatever happens, or guarded elsewhere.
  PyTypeObject* type = nullptr;
};

/// What the recorded run went by.
struct NumberFact {
  int step;
  PyRef value;
  std::string where;  ///< the user's line
};

struct Numbers {
  std::vector<NumberStep> steps;
  std::vector<NumberFact> facts;
  bool early_may_raise = false;  ///< some early step, for other numbers than those of the recorded run

  /// Is it a call that draws a random number: early, though all that it is given is known before?
  bool draws(const NumberStep& step) const;
  int add(NumberStep step);
  Phase phase_of(const NumberStep& step) const;

  /// The values of all steps of the check; the others stay null. `size_of` gives the value of a size given
  /// the steps so far. False: one of them raised, or gave a float for an int. No exception is left set.
  bool compute(const std::vector<PyObject*>& registers,
               const std::function<std::optional<int64_t>(Sym, const std::vector<PyRef>&)>& size_of,
               std::vector<PyRef>& values) const;
  /// The values of a later phase, given those before it; `data` gives what a step takes from an output, new.
  /// False with an exception.
  bool go_on(Phase phase, std::vector<PyRef>& values,
             const std::function<PyObject*(const NumberStep&)>& data = {}) const;
  /// The first fact that does not hold; null: all do.
  const NumberFact* broken(const std::vector<PyRef>& values) const;
  /// "self.step ** 2" with `source` for the text of a register's source.
  std::string text(int step, const std::function<std::string(int)>& source) const;
};

/// Is it taken from what the program gives?
inline bool is_of_output(const NumberStep& step) {
  return step.op == NumberOp::data || step.op == NumberOp::data_size;
}

/// The generators that the early steps draw from, as they are before that.
class Generators {
 public:
  Generators() = default;
  /// `values`: those of the check.
  Generators(const Numbers& numbers, const std::vector<PyRef>& values);
  /// What was drawn is to come again.
  void put_back() const;

 private:
  std::vector<std::pair<PyRef, PyRef>> states_;
};

/// What the symbol of a step with this value is: the int, the bits of the double. False: it has none.
bool symbol_value(PyObject* number, int64_t* value);

}  // namespace bolt::guard
