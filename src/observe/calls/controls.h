// observe/calls/controls.h
// A callable -> what a recording does instead of running it: it may speak to the compiler, or another is run.
// What is special about a callable is said here, once, by name or by the user's mark, for all who call.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "observe/calls/cfunctions.h"

namespace bolt::observe {

enum class Control : uint8_t {
  none,
  asks_whether_compiling,
  asks_whether_differing,  ///< is the argument a number that is followed?
  ends_region,
  disabled,
  allowed,      ///< called natively; its operators are recorded
  constant,     ///< called natively, unseen; its result is taken for a constant
  substituted,  ///< another function is called instead: `by`
  stand_in,     ///< the same, but a native one, bound: what it is bound to comes first
  apart,        ///< called natively, between two regions
  apart_alone,  ///< the same, but where a transform of torch.func calls it: its levels come and go with it
  draws,        ///< gives a random number, drawn anew by each call (values/draws.h)
  draws_list,   ///< a list of such numbers (values/draws.h); of other things: as `apart`
  forbidden,    ///< an error, once something is compiled
  ignored,      ///< speaks to other compilers: gives None
  engine,       ///< autograd's: an operator in its place (Recording::start_backward), or as `apart`
};

struct Controlled {
  Control control = Control::none;
  PyObject* by = nullptr;  ///< borrowed
  /// What to call where the function itself is called: `callable`, or what it wraps.
  PyObject* itself(PyObject* callable) const { return by ? by : callable; }
};

/// Was mark_callable told of any callable of C?
bool marks_natives();

/// What is special about `callable`; `native` is its row, where it has been looked up.
Controlled control_of(PyObject* callable, const Native& native = {});

/// Calls of `callable` are an error here: sets it.
void set_forbidden(PyObject* callable);

/// Whether a function of these globals is told that nothing is compiled. nn.Module calls hooks that must be
/// called even where the forward pass fails, unless it is compiled: a recording is a real run, in which it
/// may fail.
bool asks_for_eager(PyObject* globals);

/// torch.optim ends torch.compile's graphs around each step(), for its passes behind AOTAutograd. Ours need
/// no such end. `globals`, `name`: of the function that calls graph_break().
bool ends_for_aot_autograd(PyObject* globals, PyObject* name);

/// What torch's own code does where it is told that it is compiled: it goes on with tensors in place of the
/// numbers it would take out of them (torch.optim's _get_value). An operator that takes a list of numbers
/// refuses a list of such tensors, and takes them stacked. Called when `callable` has raised; `args` are what
/// it was given. Null with the exception: it was not that.
PyObject* call_with_stack(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames);

/// The function of torchbolt.stand_ins for a native one of that name, borrowed; null if it has none.
PyObject* stand_in(const std::string& name);

/// A text in the code, as the argument of a template.
template <size_t kSize>
struct Literal {
  constexpr Literal(const char (&characters)[kSize]) {  // NOLINT(google-explicit-constructor)
    for (size_t i = 0; i < kSize; ++i) text[i] = characters[i];
  }
  char text[kSize]{};
};

/// The interned string, borrowed: it is looked up once, and lives as long as the process.
template <Literal kName>
PyObject* interned() {
  static PyObject* const name = PyUnicode_InternFromString(kName.text);
  return name;
}
/// Of a text that only the caller's table knows, and that lives as long as the process.
PyObject* interned(const char* text);

}  // namespace bolt::observe
