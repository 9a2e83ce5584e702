// observe/recording.h
// A run's operations -> each done for real, with notes of what it read, changed and called: Recording.
//
// Each method follows one pattern: touch the operands (guards for what the operation will read, a copy of
// what it will write), then let the base class do the work, special methods in Python included. Where the
// base would read something outside without asking (attributes, function fields), the read is done here,
// through World.
//
// What is asked in between about numbers, texts and random draws (is this one followed, can that be made
// later?) are functions in values/ and ends/expectations.h, which take the recording.
//
// The region ends at the first thing that must not be repeated from a recording: an unknown C function,
// tensor data given to Python. Then the frames are described as recipes, and from there on every method is
// the base's.
#pragma once

#include "interp/semantics.h"
#include "observe/calls/cfunctions.h"
#include "observe/calls/process_flags.h"
#include "observe/ends/frames.h"
#include "observe/ends/learned_ends.h"
#include "observe/observation.h"
#include "observe/world.h"

namespace bolt::observe {

using interp::Frame;

struct Controlled;

class Recording final : public interp::Semantics {
 public:
  explicit Recording(RecorderHooks& hooks);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() override { hooks_.on_escape = nullptr; }

  World world;
  bool on = true;
  std::vector<RegionEnd> breaks;
  ProcessFlags flags;
  std::unique_ptr<Recipe> broken_off;  ///< set when the region ended inside
  Place broken_off_at;
  const Frame* entry = nullptr;  ///< the outermost frame, once entered
  Ends& ends = *Ends::current();
  const guard::ThreadState before = guard::ThreadState::now();
  guard::ThreadState after;                                      ///< when the region ended inside
  int autocast_levels = -guard::ThreadState::autocast_levels();  ///< in the end: how many more there are
  int64_t recorded = 0;         ///< instructions of the region, once it has ended
  bool told_compiling = false;  ///< is_compiling() said yes
  bool resumable = true;        ///< the run may be suspended where the region ends
  bool retry = false;  ///< not to be kept, but the next one ends before the instruction that was too much
  bool idle = false;   ///< the region ended because no operator had come for long

  /// Ends the region before the instruction in progress. `drop`: what operators did since mark() belongs to
  /// that instruction, as where the recorder wants the end.
  [[gnu::cold]] void end_here(Frame& frame, const Reason& why, bool drop = false);
  /// As end_here, if the recorder has a reason, or torch asked what an open number is (World::is_open).
  /// `changes`: what the frames hold is not what they held before the instruction: an iterator that C code
  /// took items from has gone on. The next call ends its region before it (end_where_escaped).
  void end_if_wanted(Frame& frame, bool changes = false);
  /// Data was given to Python, and the region did not end before the instruction that led to it: this run's
  /// is not kept, and from now on regions end there.
  void end_where_escaped(Frame* frame);
  /// From now on regions end before this instruction, for this reason.
  /// `whole`: see runs_whole.
  [[gnu::cold]] void not_past(PyObject* code, int pc, const Reason& why, bool whole = false);
  /// From now on regions end before the instruction of the outermost run in progress that led to where this
  /// one cannot be suspended: within native code, or among the tensors of a transform (torch.func), which
  /// only live while it runs.
  [[gnu::cold]] void not_past_here(const Frame& frame, const Reason& why);
  struct Instruction {
    PyRef code;
    int pc;
    bool whole;  ///< see runs_whole
  };
  /// The instruction of the outermost run in progress that led to where this one stands.
  Instruction outermost(const Frame& frame) const;
  /// CPython runs a function of Python's within the instruction in progress: nobody sees what it reads, or
  /// shows.
  void met_unseen(const std::string& function, bool in_operator);
  /// The run cannot be described (`failure`: why): from now on regions end before what makes `object`, or
  /// before the call, made by `below`, that it is met in. With neither known the recording is not to be kept.
  [[gnu::cold]] void cannot_describe(const Reason& failure, PyObject* object, const Frame* below);
  /// The thread is left in a state that no later call could bring about. From now on regions of this run's
  /// program end before calls that change it so.
  [[gnu::cold]] void left_changed(const Reason& why);
  /// Tensors whose contents are wanted must still have them.
  void check_awaited();
  /// What is shown at the region's end must be shown as it would have been at the call.
  void check_shown();
  /// What follows an operator that raised is no recording of calls where it does not.
  void check_raised();

  /// What is stored for `value` (borrowed, may be null): where the region has just ended, the user's own.
  PyObject* stored(PyObject* value) const { return on || !value ? value : world.original(value); }

  // names.cpp, of Semantics
  PyObject* load_global(Frame& frame, PyObject* name) override;
  int store_global(Frame& frame, PyObject* name, PyObject* value) override;
  int delete_global(Frame& frame, PyObject* name) override;
  PyObject* load_name(Frame& frame, PyObject* name) override;
  PyObject* load_deref(Frame& frame, int index) override;
  int store_deref(Frame& frame, int index, PyObject* value) override;
  int delete_deref(Frame& frame, int index) override;
  PyObject* load_build_class(Frame& frame) override;
  void make_class(Frame& frame) override;
  PyObject* import_name(Frame& frame, PyObject* name, PyObject* fromlist, PyObject* level) override;
  int import_star(Frame& frame, PyObject* module) override;

  // attributes.cpp
  interp::CallStart start_get_attr(Frame& frame, PyObject* object, PyObject* name) override;
  int set_attr(Frame& frame, PyObject* object, PyObject* name, PyObject* value) override;
  int delete_attr(Frame& frame, PyObject* object, PyObject* name) override;
  int get_method(Frame& frame, PyObject* object, PyObject* name, PyObject** method) override;
  int get_special(Frame& frame, PyObject* object, PyObject* name, PyObject** method) override;
  /// object.__getattribute__, type.__getattribute__ and object.__setattr__, with notes. `value` null: delete.
  /// `absent`, where given: no error is raised for an attribute that is not there.
  interp::CallStart start_generic_get(Frame& frame, PyObject* object, PyObject* name, bool* absent = nullptr);
  PyObject* generic_get(Frame& frame, PyObject* object, PyObject* name, bool* absent = nullptr);
  PyObject* class_get(Frame& frame, PyObject* cls, PyObject* name);
  int generic_set(Frame& frame, PyObject* object, PyObject* name, PyObject* value);
  /// type.__setattr__ of a class made by a class statement. False: it is not done, nor is it noted.
  bool can_set_on_class(PyObject* cls, PyObject* name);

  // items.cpp
  interp::CallStart start_get_item(Frame& frame, PyObject* container, PyObject* key) override;
  int set_item(Frame& frame, PyObject* container, PyObject* key, PyObject* value) override;
  int delete_item(Frame& frame, PyObject* container, PyObject* key) override;

  // operators.cpp
  interp::CallStart start_binary_op(Frame& frame, int op, PyObject* left, PyObject* right) override;
  PyObject* unary_op(Frame& frame, interp::Unary op, PyObject* value) override;
  interp::CallStart start_compare(Frame& frame, int op, PyObject* left, PyObject* right) override;
  int contains(Frame& frame, PyObject* container, PyObject* value) override;
  bool is_same(Frame& frame, PyObject* left, PyObject* right) override;
  int truth(Frame& frame, PyObject* value) override;
  void read_number(interp::Frame&, PyObject* number) override {
    if (on) world.use(number);
  }
  Py_ssize_t length(Frame& frame, PyObject* value) override;
  PyObject* format_value(Frame& frame, PyObject* value, int conversion, PyObject* spec) override;
  PyObject* match_keys(Frame& frame, PyObject* subject, PyObject* keys) override;

  // iteration.cpp
  PyObject* get_iter(Frame& frame, PyObject* object) override;
  interp::CallStart start_next(Frame& frame, PyObject* iterator) override;
  PyObject* advance(Frame& frame, PyObject* iterator) override;
  int unpack_sequence(Frame& frame, PyObject* sequence, int n, PyObject** out) override;
  int unpack_ex(Frame& frame, PyObject* sequence, int before, int after, PyObject** out) override;
  PySendResult send(Frame& frame, PyObject* receiver, PyObject* value, PyObject** result) override;
  Frame* start_send(Frame& frame, PyObject* receiver, PyObject* value) override;
  PyObject* get_awaitable(Frame& frame, PyObject* object) override;

  // displays.cpp
  PyObject* build(Frame& frame, interp::Build kind, PyObject* const* items, Py_ssize_t n) override;
  int list_append(Frame& frame, PyObject* list, PyObject* value) override;
  int list_extend(Frame& frame, PyObject* list, PyObject* iterable) override;
  int set_add(Frame& frame, PyObject* set, PyObject* value) override;
  int set_update(Frame& frame, PyObject* set, PyObject* iterable) override;
  int map_add(Frame& frame, PyObject* map, PyObject* key, PyObject* value) override;
  int dict_update(Frame& frame, PyObject* dict, PyObject* mapping) override;
  int dict_merge(Frame& frame, PyObject* dict, PyObject* mapping, PyObject* callable) override;
  PyObject* list_to_tuple(Frame& frame, PyObject* list) override;
  PyObject* star_args(Frame& frame, PyObject* callable, PyObject* iterable) override;
  PyObject* star_kwargs(Frame& frame, PyObject* callable, PyObject* mapping) override;

  // exceptions.cpp
  void about_to_raise(Frame& frame, PyObject* exception) override;
  int exception_matches(Frame& frame, PyObject* exception, PyObject* cls) override;
  PyObject* split_group(Frame& frame, PyObject* group, PyObject* cls) override;

  // async_generators.cpp
  PyObject* get_async_next(Frame& frame, PyObject* iterator) override;
  /// An asynchronous generator is about to be asked for something.
  void about_to_ask(Frame& frame, PyObject* generator);

  void enter_frame(Frame& frame) override;
  void leave_frame(Frame& frame, PyObject* result) override;
  bool before_instruction(Frame& frame) override;
  bool ends_before(Frame& frame);
  void end_if_idle(Frame& frame);

  // calls.cpp
  interp::CallStart start_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                               PyObject* kwnames) override;
  // native_calls.cpp
  PyObject* call_native(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                        PyObject* kwnames) override;
  PyObject* call_operator(Frame& frame, const Native& native, PyObject* const* args, size_t nargs,
                          PyObject* kwnames);
  bool is_plain_call(const Native& native, PyObject* const* args, size_t nargs);
  void touch_operand(Frame& frame, PyObject* operand);
  PyObject* note_result(Frame& frame, const Native& native, PyObject* const* args, size_t nargs,
                        PyObject* kwnames, PyObject* result);
  PyObject* ask(PyObject* function, PyObject* const* args, size_t nargs);
  PyObject* call_cached(PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames);
  /// PyObject_Vectorcall while watching for Python code that CPython runs behind our back.
  PyObject* run_native(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                       const CFunction& row);

  /// The instruction in progress made `object`: where that cannot be described, regions end before it.
  void note_given(const Frame& frame, PyObject* object);
  /// A class's special method is about to be used: its being (or not being) there is guarded.
  void note_special(PyObject* object, PyObject* name);
  RecorderHooks& hooks() { return hooks_; }
  /// Another function with the same arguments; `self` (may be null) before them.
  interp::CallStart call_instead(Frame& frame, PyObject* by, PyObject* self, PyObject* const* args,
                                 size_t nargs, PyObject* kwnames);
  /// The contents of an operand are about to be read in C. Ends the region if we do not understand its type.
  void touch(Frame& frame, PyObject* object, bool deep = false);
  /// Ends the region if `object`, or an item of it, takes torch's functions into its own hands.
  void end_if_overridden(Frame& frame, PyObject* object);
  /// A native operation that may run tensor operators begins.
  void mark(Frame& frame);

  // backward.cpp
  interp::CallStart start_backward(Frame& frame, PyObject* engine, PyObject* const* args, size_t nargs,
                                   PyObject* kwnames);
  PyRef places_of_backward(PyObject* const* args, size_t nargs);

  // parameters.cpp: null, false: the region has ended, and eager does it
  PyObject* make_subclass(Frame& frame, PyObject* cls, PyObject* data, bool requires_grad);
  bool require_grad(Frame& frame, PyObject* tensor, bool yes);
  void end_at_switch(Frame& frame, const Reason& why);

  /// An iterator from outside; not a generator whose body ran where the region began: that is part of what it
  /// knows.
  bool is_outside(PyObject* iterator);

  /// The region begins in these frames.
  void begins_in(Frame& innermost);

 private:
  interp::CallStart start_next_of_callback(Frame& frame, PyObject* iterator);
  /// What `take` gives of a tensor that belongs to the model: numbers that guards know, as of the class `as`
  /// (null: what item() gives). Null without an exception: it is none of those.
  PyObject* model_data(Frame& frame, PyObject* tensor, PyObject* (*take)(PyObject*), PyObject* as);
  /// What it gives of any other tensor: a number ends no region by itself, it is known again when the program
  /// has run. `as_int`: an int is made of it. Null without an exception: not here.
  PyObject* late_data(Frame& frame, PyObject* tensor, PyObject* (*take)(PyObject*), bool as_int);
  PyObject* take_data(Frame& frame, const CFunction& row, const std::vector<PyObject*>& all);
  /// C code will take items out of `iterable`: what a map or filter in it calls reads the numbers in them.
  void use_unseen(PyObject* iterable);
  /// The next item of such a map or filter, whose function is called by us. Null and not handled: it is none.
  PyObject* next_seen(Frame& frame, PyObject* iterator, bool* handled);
  /// All of its items as a list, if it is one. False with an exception.
  bool gather(Frame& frame, PyObject* iterable, PyRef& items);
  PyObject* numpy_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                       PyObject* kwnames);
  PyObject* tensor_getset(Frame& frame, PyObject* tensor, PyObject* descriptor, PyObject* name);
  PyObject* module_get(Frame& frame, PyObject* module, PyObject* name);
  PyObject* super_get(Frame& frame, PyObject* super, PyObject* name);
  interp::CallStart start_getattribute(Frame& frame, PyObject* object, PyObject* name,
                                       bool* absent = nullptr);
  PyObject* hooked_get(Frame& frame, PyObject* object, PyObject* name);
  PyObject* module_part(PyObject* module, PyObject* name);
  interp::CallStart start_bind(Frame& frame, PyObject* descriptor, PyObject* object, PyTypeObject* type);
  PyObject* bind(Frame& frame, PyObject* descriptor, PyObject* object, PyTypeObject* type);
  bool note_answer(PyObject* object, PyObject* descriptor, PyObject* value);
  void note_descriptor(PyObject* found);
  bool can_set_grad(Frame& frame, PyObject* tensor, PyObject* value);
  bool set_data(Frame& frame, PyObject* tensor, PyObject* value, int* status);
  PyObject* getset(Frame& frame, PyObject* object, PyObject* descriptor, PyObject* name);
  void note_callable(PyObject* callable, int depth = 0);
  PyObject* call_allowed(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                         PyObject* kwnames);
  void use_as_key(Frame& frame, PyObject* object);
  void use_for_constant(PyObject* object);
  PyObject* call_for_constant(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames);
  PyObject* transparent_get(Frame& frame, PyObject* object, PyObject* name);
  interp::CallStart start_transparent(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                      PyObject* kwnames);
  std::optional<interp::CallStart> start_controlled(Frame& frame, PyObject* callable, const Controlled& found,
                                                    PyObject* const* args, size_t nargs, PyObject* kwnames);
  void note_class(PyTypeObject* cls);

  /// So many instructions without an operator, half a second or less, and the region ends.
  static constexpr int64_t kIdle = 1 << 21;
  size_t operators_ = 0;       ///< recorded when it was last looked whether some had come
  const size_t outer_levels_;  ///< of transforms, where the region begins
  RecorderHooks& hooks_;
  const bool follows_numbers_ = hooks_.follows_numbers();
  /// What native calls gave, and where.
  struct Given {
    PyObject* object;  ///< only its address
    PyRef code;
    int pc;
  };
  std::vector<Given> given_;
  std::vector<const Frame*> watched_;  ///< is_watched, where the region begins
  /// Tensors that numbers were taken out of: what they showed then.
  struct Taken {
    std::pair<int64_t, int64_t> contents;
    PyRef copy;
  };
  std::vector<Taken> taken_;
  std::optional<Instruction> transforms_at_;  ///< in which the first transform of torch.func was entered
  bool may_have_let_go_ = true;               ///< the last instruction, of something whose end is noticed
  std::optional<Instruction> raising_;        ///< in which the first operator raised
  std::optional<Instruction> escaped_at_;     ///< in which an operator last gave data to Python
  WholeLoop loop_;                            ///< that a learned end stands before
  Native calling_;                            ///< what start_call is busy with: looked up once
  std::vector<std::vector<PyObject*>> argument_lists_;  ///< empty, for native calls to use again
  /// While it lives C code reads what Python code gives it (yields, returns to it), unless `hands_on`.
  class NativeReader {
   public:
    NativeReader(Recording& recording, bool hands_on)
        : recording_(recording),
          outer_(std::exchange(recording.reads_given_, !hands_on || recording.reads_later_)) {}
    ~NativeReader() { recording_.reads_given_ = outer_; }
    NativeReader(const NativeReader&) = delete;

   private:
    Recording& recording_;
    const bool outer_;
  };
  bool reads_given_ = false;
  bool reads_later_ = false;  ///< an iterator was made that reads what it goes through, whoever advances it
};

/// Does a logger that this function or method of logging's tells come to handlers, filters or formatters that
/// the user wrote? They may go by anything.
bool reaches_users_code(PyObject* callable, PyObject* const* args, size_t nargs);

/// The name of a function of Python or of C, with that of its module.
std::string full_name(PyObject* callable);
/// Is it given a tensor where it takes a size (torch.zeros(2, n))? Torch would read the number out of it.
bool takes_size_of_tensor(const Native& native, PyObject* const* args, size_t nargs);

/// Where an instruction stands in the user's source.
StackLine line_of(PyCodeObject* code, int pc);

/// A functools.partial: what it holds is guarded when it is called, or handed to native code that may call
/// it.
bool is_partial(PyObject* object);
/// `function` with arguments of these names (null: none), whose values lie at `values`.
PyRef with_keywords(PyObject* function, PyObject* const* values, PyObject* kwnames);
/// Is it a function of Python's, however wrapped, that a native function which calls it comes back with?
bool calls_python(PyObject* object);

/// Is nothing made of what the instruction in progress gives, a call of `called` or of a method of it?
bool drops_result(const Frame& frame, PyObject* called);

/// Of the type that see_through was told.
bool is_transparent(PyObject* object);

}  // namespace bolt::observe
