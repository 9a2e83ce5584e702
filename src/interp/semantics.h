// interp/semantics.h
// What the interpreter asks of the outside world: Semantics.
//
// The loop moves values between stack, locals and constants by itself; whatever can read, change or call
// something outside goes through a method here. The base class simply does it, as CPython would, with this
// addition: a special method written in Python (`__add__`, `__getattr__`, a property's getter, `__init__`,
// ...) that the operation needs is run by this interpreter, not by CPython. A recording subclass overrides a
// method, calls the base, and notes what was read, changed or called.
//
// What such a method may be the whole of (an operator, an item, an attribute) has a `start_` form, which
// gives a frame for the loop to run; the form without runs it to its end.
//
// Conventions: arguments are borrowed. A PyObject* result is a new reference, or null with a Python exception
// set, exactly as CPython would set it; int results are -1 with an exception set. The frame is at the
// instruction in progress, its operands still on the value stack (frame.h).
//
// Plain execution is compiled apart (PlainSemantics is final, so its calls are direct and inlined); the
// loop's source is the same for both.
#pragma once

#include <atomic>
#include <limits>

#include "interp/arguments.h"
#include "interp/frame.h"
#include "python/compat.h"

namespace bolt::interp {

enum class Unary : uint8_t { negative, positive, invert, logical_not };

/// BINARY_OP's argument: `Binary::add`, or `Binary::add + Binary::inplace` for `+=`.
namespace Binary {
enum : int {
#define BINARY(name, cpython_name, number, stem, function, slot, symbol) name = number,
#include "python/binary_ops.def"
#undef BINARY
  inplace = 13,
};
}  // namespace Binary

enum class Build : uint8_t { tuple, list, set, map, const_key_map, string, slice };

/// The outcome of starting a call: a finished value, or a frame for the loop to run, or neither (exception
/// set).
struct CallStart {
  PyObject* value = nullptr;  ///< owned
  Frame* frame = nullptr;     ///< return_to tells what becomes of its result
  bool failed() const { return !value && !frame; }
};

class Semantics {
 public:
  virtual ~Semantics() = default;

  // -- Names
  // -------------------------------------------------------------------------------------------------------
  virtual PyObject* load_global(Frame& frame, PyObject* name);
  virtual int store_global(Frame& frame, PyObject* name, PyObject* value);
  virtual int delete_global(Frame& frame, PyObject* name);
  /// Class body or module level: the frame's namespace, then globals, then builtins.
  virtual PyObject* load_name(Frame& frame, PyObject* name);
  virtual int store_name(Frame& frame, PyObject* name, PyObject* value);
  virtual int delete_name(Frame& frame, PyObject* name);
  /// Cell variables; `index` is a slot of frame.locals() that holds a cell.
  virtual PyObject* load_deref(Frame& frame, int index);
  virtual int store_deref(Frame& frame, int index, PyObject* value);
  virtual int delete_deref(Frame& frame, int index);
  /// A free variable of a class body: `space` (any mapping) first, then the cell.
  virtual PyObject* load_from_dict_or_deref(Frame& frame, PyObject* space, int index);
  /// A name of an annotation scope (3.12): `space` first, then globals, then builtins.
  virtual PyObject* load_from_dict_or_globals(Frame& frame, PyObject* space, PyObject* name);
  virtual PyObject* load_build_class(Frame& frame);
  /// A metaclass is about to be called in C for a class of its own.
  virtual void make_class(Frame&) {}

  // -- Attributes
  // --------------------------------------------------------------------------------------------------
  virtual CallStart start_get_attr(Frame& frame, PyObject* object, PyObject* name);
  PyObject* get_attr(Frame& frame, PyObject* object, PyObject* name);
  virtual int set_attr(Frame& frame, PyObject* object, PyObject* name, PyObject* value);
  virtual int delete_attr(Frame& frame, PyObject* object, PyObject* name);
  /// LOAD_METHOD. 1: *method is an unbound method to be called with `object` first; 0: *method is the
  /// attribute; -1: exception set.
  virtual int get_method(Frame& frame, PyObject* object, PyObject* name, PyObject** method);
  /// super().name (3.12 LOAD_SUPER_ATTR, `super_type` being whatever `super` names). As get_method, when
  /// `method`.
  virtual int get_super_attr(Frame& frame, PyObject* super_type, PyObject* cls, PyObject* self,
                             PyObject* name, bool method, bool implicit, PyObject** result);
  /// `__enter__`, `__exit__`, ...: looked up on the type, bound to the object. 1 found, 0 there is none, -1
  /// error.
  virtual int get_special(Frame& frame, PyObject* object, PyObject* name, PyObject** method);

  // -- Items
  // -------------------------------------------------------------------------------------------------------
  virtual CallStart start_get_item(Frame& frame, PyObject* container, PyObject* key);
  PyObject* get_item(Frame& frame, PyObject* container, PyObject* key);
  virtual int set_item(Frame& frame, PyObject* container, PyObject* key, PyObject* value);
  virtual int delete_item(Frame& frame, PyObject* container, PyObject* key);

  // -- Operators
  // ---------------------------------------------------------------------------------------------------
  /// `op`: see Binary above. A frame's return_to says who is asked, and its operands stay on the stack.
  virtual CallStart start_binary_op(Frame& frame, int op, PyObject* left, PyObject* right);
  /// `asked` has returned NotImplemented: the next one.
  CallStart go_on_binary_op(Frame& frame, int op, PyObject* left, PyObject* right, ReturnTo asked);
  PyObject* finish_binary_op(Frame& frame, int op, PyObject* left, PyObject* right, CallStart start);
  PyObject* binary_op(Frame& frame, int op, PyObject* left, PyObject* right) {
    return finish_binary_op(frame, op, left, right, start_binary_op(frame, op, left, right));
  }
  virtual PyObject* unary_op(Frame& frame, Unary op, PyObject* value);
  /// `op`: Py_LT ... Py_GE. As for binary operators.
  virtual CallStart start_compare(Frame& frame, int op, PyObject* left, PyObject* right);
  CallStart go_on_compare(Frame& frame, int op, PyObject* left, PyObject* right, ReturnTo asked);
  PyObject* finish_compare(Frame& frame, int op, PyObject* left, PyObject* right, CallStart start);
  virtual int contains(Frame& frame, PyObject* container, PyObject* value);
  virtual bool is_same(Frame& frame, PyObject* left, PyObject* right);
  virtual int truth(Frame& frame, PyObject* value);
  virtual Py_ssize_t length(Frame& frame, PyObject* value);
  /// What Python code gave becomes a number of C.
  virtual void read_number(Frame&, PyObject*) {}
  /// `raise exception`, an object or a class, is next.
  virtual void about_to_raise(Frame&, PyObject*) {}
  /// `except cls`: the raised exception against a class or tuple of classes.
  virtual int exception_matches(Frame& frame, PyObject* exception, PyObject* cls);
  /// `except* cls`: (the rest, what matched) of the raised exception.
  virtual PyObject* split_group(Frame& frame, PyObject* group, PyObject* cls);

  // -- Iteration
  // ---------------------------------------------------------------------------------------------------
  virtual PyObject* get_iter(Frame& frame, PyObject* object);
  /// Null: exhausted, with StopIteration set or without, or another exception is set.
  virtual PyObject* advance(Frame& frame, PyObject* iterator);
  /// Null without an exception: exhausted.
  PyObject* iter_next(Frame& frame, PyObject* iterator);
  /// iter_next for FOR_ITER, as a frame for the loop to run where it leads to one: a generator's body, a
  /// `__next__` in Python. Neither a frame nor a value: exhausted, or an exception is set.
  virtual CallStart start_next(Frame& frame, PyObject* iterator);
  /// Fills out[0..n) with new references, out[0] the first element.
  virtual int unpack_sequence(Frame& frame, PyObject* sequence, int n, PyObject** out);
  /// `a, *b, c = sequence`: out[0..before), the list, out[before + 1 .. before + after].
  virtual int unpack_ex(Frame& frame, PyObject* sequence, int before, int after, PyObject** out);

  // -- Containers
  // --------------------------------------------------------------------------------------------------
  /// A new container of `n` items as they lie on the stack (a map: key, value, key, value ...).
  virtual PyObject* build(Frame& frame, Build kind, PyObject* const* items, Py_ssize_t n);
  virtual int list_append(Frame& frame, PyObject* list, PyObject* value);
  virtual int set_add(Frame& frame, PyObject* set, PyObject* value);
  virtual int map_add(Frame& frame, PyObject* map, PyObject* key, PyObject* value);
  virtual int list_extend(Frame& frame, PyObject* list, PyObject* iterable);
  virtual int set_update(Frame& frame, PyObject* set, PyObject* iterable);
  virtual int dict_update(Frame& frame, PyObject* dict, PyObject* mapping);
  /// `f(**mapping)`: as dict_update, but a key given twice is an error that names `callable`.
  virtual int dict_merge(Frame& frame, PyObject* dict, PyObject* mapping, PyObject* callable);
  virtual PyObject* list_to_tuple(Frame& frame, PyObject* list);
  /// `f(*iterable)`: the argument tuple.
  virtual PyObject* star_args(Frame& frame, PyObject* callable, PyObject* iterable);
  /// `f(**mapping)`: the keyword dict.
  virtual PyObject* star_kwargs(Frame& frame, PyObject* callable, PyObject* mapping);

  // -- Text, imports, functions
  // --------------------------------------------------------------------------------------
  /// `conversion`: 0 none, 1 str, 2 repr, 3 ascii; `spec` may be null.
  virtual PyObject* format_value(Frame& frame, PyObject* value, int conversion, PyObject* spec);
  virtual PyObject* import_name(Frame& frame, PyObject* name, PyObject* fromlist, PyObject* level);
  virtual PyObject* import_from(Frame& frame, PyObject* module, PyObject* name);
  virtual int import_star(Frame& frame, PyObject* module);
  /// `flags` as MAKE_FUNCTION's argument; `extras` are its operands in stack order, without the code object.
  virtual PyObject* make_function(Frame& frame, PyObject* code, int flags, PyObject* const* extras);

  // -- Matching
  // ----------------------------------------------------------------------------------------------------
  /// Tuple of attribute values, None when `subject` does not match.
  virtual PyObject* match_class(Frame& frame, PyObject* subject, PyObject* cls, Py_ssize_t positional,
                                PyObject* names);
  /// Tuple of values, None when a key is missing.
  virtual PyObject* match_keys(Frame& frame, PyObject* subject, PyObject* keys);

  // -- Generators and await
  // ------------------------------------------------------------------------------------------
  /// Resumes `receiver` with `value` (None: next). PYGEN_RETURN, PYGEN_NEXT or PYGEN_ERROR; *result is new.
  virtual PySendResult send(Frame& frame, PyObject* receiver, PyObject* value, PyObject** result);
  /// The frame that the loop is to run for that. Null without an exception: send does it.
  virtual Frame* start_send(Frame& frame, PyObject* receiver, PyObject* value);
  virtual PyObject* get_awaitable(Frame& frame, PyObject* object);
  virtual PyObject* get_async_iter(Frame& frame, PyObject* object);
  virtual PyObject* get_async_next(Frame& frame, PyObject* iterator);
  /// A call of a generator function, coroutine function or async generator function makes its object through
  /// this.
  virtual PyObject* make_generator(Frame& frame, PyFunctionObject* function, PyObject* const* args,
                                   size_t nargs, PyObject* kwnames);

  // -- Calls
  // -------------------------------------------------------------------------------------------------------
  /// Decides what a call is. A Python function: its arguments are bound to a new frame. Bound methods,
  /// functools.partial, classes with `__new__`/`__init__` in Python and objects with `__call__` in Python are
  /// unfolded to that. Anything else: call_native. `kwnames` (a tuple or null) names the last arguments.
  virtual CallStart start_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                               PyObject* kwnames);
  /// Calls something that is not Python code, or that must be left to CPython.
  virtual PyObject* call_native(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                PyObject* kwnames);
  /// start_call, run to its end.
  PyObject* call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames);

  // -- Events
  // ------------------------------------------------------------------------------------------------------
  /// The frame is linked and about to run its first instruction (or resumes: a generator).
  virtual void enter_frame(Frame& frame);
  /// The frame has returned `result`, yielded it (frame.generator, still suspended), or raised (null).
  virtual void leave_frame(Frame& frame, PyObject* result);
  /// Called before each instruction while `watch_instructions` is set. False: the run stops here; run_frame
  /// returns null without an exception and `suspended` is the innermost frame. Only for frames of the
  /// outermost run: native code that called back into us waits for its result.
  virtual bool before_instruction(Frame& frame);
  bool watch_instructions = false;
  int64_t instructions = 0;  ///< that were begun; the plain loop does not count
  /// When there were so many, or some more, watch_instructions is set: a loop or a call notices it.
  int64_t watches_from = std::numeric_limits<int64_t>::max();
  Frame* suspended = nullptr;
  /// Every attribute is to go through the methods above. Otherwise it may be taken from where it lay the last
  /// time (attribute_cache.h).
  bool notes_attributes = false;
  bool counts_stops = false;  ///< runs of it that stop are counted in stops()

  /// True for PlainSemantics: the loop that was compiled for it is used.
  virtual bool is_plain() const { return false; }
};

/// Execution without an observer.
class PlainSemantics final : public Semantics {
 public:
  bool is_plain() const override { return true; }
};

/// How many runs with `counts_stops` were stopped by before_instruction in this process.
std::atomic<int64_t>& stops();

/// Runs `frame` (and the Python calls it makes) from its pc until the entry frame at the bottom of its `back`
/// chain (return_to == entry) returns: that value, or null with the exception set. All those frames are
/// discarded. Used for a first entry (new_frame) and for resumption (restore).
PyObject* run_frame(Frame& frame, Semantics& semantics);
/// Leaves a suspended run that will not go on because of an exception (set, and kept) that is not the
/// program's: its `with` and `finally` blocks are run, as those of a generator that is closed.
void close_run(Frame& innermost);

/// Calls any Python callable under `semantics`: the way in from outside.
PyObject* call_function(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                        Semantics& semantics);

}  // namespace bolt::interp
