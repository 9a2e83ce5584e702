// observe/world.h
// What a recording knows about the objects it meets: World.
//
// An object is *known* when the recording can say where it comes from: its source. Everything else is fresh:
// made by the recorded run itself, so a function of what was guarded, and free to be read. Every read of a
// known object goes through here and leaves its guard in the same step; what is found becomes known in turn,
// or is a leaf and guarded by value. A known object that is about to be written is copied first (shallow),
// and of a dict it is noted which keys are written: what the run put somewhere is its own doing and needs no
// guard, also where it is what was there before, for a later call may find something else there. The rest
// needs one still. At the end what was written is the effect to repeat.
//
// Known objects are held: their address is the key. Fresh ones are not.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "guard/leaf.h"
#include "guard/source.h"
#include "guard/tensors.h"
#include "observe/observation.h"
#include "observe/rebuild/recipe.h"
#include "support/growing.h"
#include "support/pointer_map.h"

namespace bolt::observe {

using guard::Access;
using guard::Check;
using guard::Source;

/// What the run did to the ends of a list or deque from outside: what is left of what was there lies between
/// what the run put in front and what it put behind.
struct Window {
  Py_ssize_t front = 0, back = 0;  ///< how many items were taken from either end of what was there; also
                                   ///< of a dict, whose keys that the run wrote were not there then
  Py_ssize_t put_in_front = 0;     ///< and still is there; what was put behind is the rest
  Py_ssize_t last = -1;            ///< of what the run made: only so many of what is left, the last; -1: all
  bool cleared = false;            ///< nothing is left of what was there; also of a dict
  bool is_moved() const { return front || back || put_in_front || cleared; }
};

/// What the run did to a key of a dict.
enum class Written : uint8_t {
  put,
  removed,  ///< at some time
  moved,    ///< to the end of an OrderedDict
  moved_and_put,
};
/// As it lies in Known::keys; null: it was not written. Borrowed.
PyObject* mark_of(Written how);
std::optional<Written> written_as(PyObject* mark);

struct Known {
  Source* source = nullptr;
  PyRef object;
  PyRef before;   ///< contents before the first write: a dict, a 1-tuple for a cell, else a list
  PyRef keys;     ///< of a dict or set: those the run wrote, in order, and how (written_as)
  Window window;  ///< of a list or deque that is not read whole
  PyRef first;    ///< of a dict: its first key, which the program asked for (World::first_key)
  std::vector<std::pair<PyRef, bool>>
      elements;  ///< of a set, put in (true) or taken out by the run, in order
  std::vector<PyRef>
      placed;    ///< of such a list: the followed numbers that the run wrote items at (places.cpp)
  PyRef length;  ///< before the run, once it was asked for (World::length_before)
  size_t noticed_writes = 0;  ///< of a deque or OrderedDict: guard::noticed_writes then
  bool read_whole = false;    ///< length, keys and items are guarded
  bool by_ends = false;       ///< a tuple whose length differs between calls, as lists are until read whole
  Known* of = nullptr;        ///< the run made it: this list or tuple from outside is a part (joined.cpp)
  bool loses = false;         ///< any of what was in it may go
  bool noted = false;         ///< a function whose fields are guarded, a class of which note_lookup is, an
                              ///< iterator of which it is where it stood
  bool lazy = false;          ///< a number or text whose value nothing has read yet: only its type is guarded
};

/// A context variable that the run set.
struct WrittenContext {
  PyRef variable, before;  ///< before: what it held, may be null
  bool restored = false;   ///< by its first token: it holds what every call finds there
  bool set_to_what_it_was = false;

  /// May `old`, what a token gives back, be what was there before? With a default, a variable that is not set
  /// holds something too.
  bool gives_back_before(PyObject* old) const;
};

/// A slot (`__slots__`, C member) of a known object that the run wrote.
struct WrittenField {
  PyRef object;
  Py_ssize_t offset;
  PyRef before;  ///< may be null
};

/// An attribute that the run gave to a class.
struct WrittenClass {
  PyRef cls, name;
  PyRef before;  ///< what its own dict held, may be null
};

/// What the run gave to a known tensor: a gradient, which may be None, or data, which are detached from where
/// they came from.
struct WrittenTensor {
  Effect part;  ///< set_grad or set_data
  PyRef tensor, value;
  PyRef before;  ///< null: it was not asked
};

/// A text or tensor made of tensors' contents that nothing has read yet: every later call makes it anew at
/// the region's end. Only where it is needed earlier does it end the region.
struct Late {
  PyRef object;
  Make make;
  std::vector<PyRef> parts;
  Py_ssize_t number = 0;
};

/// A tensor whose contents are wanted at the region's end, as they were at an instruction of the user's.
struct Awaited {
  PyRef tensor;
  int64_t version;
  PyRef code;  ///< of the instruction
  int pc;
  int otherwise;  ///< World::shown_otherwise, then
  /// Operators recorded by then, where autograd follows what is made of it.
  std::optional<size_t> followed_from;
};

/// A call that shows something to the user (print, a logger) and gives nothing back: made at the region's
/// end.
struct DelayedCall {
  PyRef callable;
  std::vector<PyRef> args;
  PyRef kwnames;
  std::vector<std::pair<PyRef, int>> callers;  ///< functions and instructions, oldest first
  int otherwise = 0;                           ///< World::shown_otherwise, then
};

/// An iterator from outside that the run took something from, and how often.
struct Advanced {
  PyRef iterator;
  Py_ssize_t times = 0;
  int last = -1;  ///< of itertools.count: the step of the number that it gave last
};

class World {
 public:
  /// `watch`: set when each instruction from the next on must begin with begin_instruction.
  World(RecorderHooks& hooks, bool& watch);

  Known* find(PyObject* object);
  /// Makes `object` known without a guard: the caller has one that implies it.
  Known& know(PyObject* object, Source* source);
  /// A function, class, module or dict of one that hangs on something pinned.
  Known& pin(PyObject* object);

  /// `object` was found at `source`: guards it, remembers it.
  void reached(PyObject* object, Source* source);
  /// The same for a reader that goes on with what this returns (borrowed): where a number differs between
  /// calls, a copy that can be followed; where some in a tuple or slice do, one that holds such copies.
  PyObject* found(PyObject* object, Source* source);
  /// A list, deque or dict from outside is about to be read or written as a whole. Where some of its numbers
  /// differ between calls each gets an address of its own in the container itself, until the region is over:
  /// so whoever goes through it is given numbers that are followed, also of what is written meanwhile.
  void own_numbers_of(PyObject* container);
  /// C code is about to go through `sequence` and to hand on what is in it. A tuple of the same numbers for
  /// one that is not to be written; null: itself will do.
  PyRef with_followed(PyObject* sequence);
  /// May the region go on with this iterator from outside?
  bool can_advance(PyObject* iterator);
  /// The next item of such a one is about to be taken, which may end the region, and has been.
  void about_to_advance(PyObject* iterator);
  /// It gave `item` (stolen, may be null). What the run is given.
  PyObject* has_advanced(PyObject* iterator, PyObject* item);
  /// Has the run taken something out of `container` by such a one?
  bool is_gone_through(PyObject* container) const;

  /// The same for what lies in the frames where a region begins. A number there that is only carried along
  /// (the time since when, a running sum of losses) must not tie the region to its value: it is guarded when
  /// it is used. The object must be nobody else's: see own_number.
  /// Returns what is to lie there (borrowed), as found does.
  PyObject* carried(PyObject* object, Source* source);
  /// Is it a late value, or one that is followed or only carried along?
  bool is_unread(PyObject* object) const;
  /// The value of `object` is read, and of every number that can be reached from it.
  void use(PyObject* object);
  /// The same where only numbers and texts are read, not what they are found in.
  void use_scalar(PyObject* object) {
    if (is_scalar(object)) use(object);
  }
  void use_all();
  /// Is every number and text what it is: none is followed, late or only carried along? And every tuple?
  bool all_are_read() const {
    return lazy_.empty() && followed_.empty() && late_.empty() && open_tuples_.empty();
  }
  /// For as long as this is false nothing depends on what single instructions used.
  bool wants_watch() const { return ends_are_noticed_ || follows() || !notes->facts.empty(); }
  void begin_instruction() {
    noted_before = notes->facts.size();
    used_now_.clear();
  }
  /// Something that the run has let go of and that only we hold any more, whose end is noticed; null:
  /// nothing.
  PyObject* last_held() { return ends_are_noticed_ ? find_gone() : nullptr; }
  /// Is there anything known whose end would be?
  bool ends_are_noticed() const { return ends_are_noticed_; }
  /// A weak reference to `object` was made.
  void referred_weakly(PyObject* object);
  /// The region is over, and nobody asks what is known: holds nothing any more but what undo() needs.
  void let_go();
  /// The instruction in progress is the first that is not part of the region: what it used is as it was.
  void undo_instruction();

  /// `mine` stands for `number` in what is recorded: who asks which object it is means the other.
  void stands_for(PyObject* mine, PyObject* number);
  /// The object that eager has in the place of a number; borrowed.
  PyObject* original(PyObject* number) const;
  bool has_copies() const { return !originals_.empty() || !followed_.empty(); }

  // -- Late texts and tensors (late.cpp)
  // ----------------------------------------------------------------------------------------------------
  /// Makes `object` (stolen, may be null; nobody else's) a late one. New, null with an exception.
  PyObject* make_late(PyObject* object, Make make, std::vector<PyRef> parts, Py_ssize_t number = 0);
  const Late* late(PyObject* object) const {
    auto at = late_.find(object);
    return at == late_.end() ? nullptr : &at->second;
  }
  /// Is it a late value, or a tuple that holds one?
  bool holds_late(PyObject* object) const;
  /// The contents of `tensor` will be read at the region's end.
  void await(PyObject* tensor, PyObject* code, int pc, bool is_followed = false);
  /// Goes up with every write to its memory; -1: that cannot be told.
  int64_t version_of(PyObject* tensor) const;
  std::vector<Awaited> awaited;
  std::vector<DelayedCall> calls;
  bool users_code_shows = false;   ///< a delayed call is handled by Python code of the user's
  int shown_otherwise = 0;         ///< writes, since something is to be shown, to what showing goes by
  std::vector<PyRef> locks;        ///< that the run holds
  std::vector<PyObject*> resumed;  ///< generators from outside that the run went on with; known
  std::vector<Advanced> advanced;

  // -- Numbers that differ between calls (followed.cpp)
  // ----------------------------------------------------------------------------------------------------
  // Such a number is *followed*: it has an address of its own, and World knows what it was computed from. An
  // int as an expression over sizes and symbols of numbers, which is what sizes can be computed from in turn;
  // a float, and an int that has no symbol, as a step of `numbers`. It is *open* while later calls do not
  // know it when they check their guards (guard::Phase): what needs its value ends the region.

  /// The expression of a followed int; null: it has none.
  const Sym* followed(PyObject* object) const;
  bool follows_number(PyObject* object) const;
  /// When later calls know it; numbers that are not followed are what they are.
  guard::Phase phase_of(PyObject* number) const;
  bool is_open(PyObject* number) const { return phase_of(number) != guard::Phase::check; }
  /// Also from where an operator found sizes out that are data.
  bool follows() const { return follows_ || hooks_.follows_sizes(); }
  /// The expression of an int, followed or not.
  Sym expression(PyObject* number) const;
  /// `number` (stolen, may be null) was computed as `expression`: itself, or a followed copy. New.
  PyObject* follow(PyObject* number, Sym expression);
  /// `number` (stolen, an int or a float) was computed by this step: a followed copy, or the region ends.
  /// New.
  PyObject* computed(PyObject* number, guard::NumberStep step);
  /// The step of a number, followed or not.
  int step_of(PyObject* number);
  /// The outcome of a step is what the run goes by.
  void went_by(guard::NumberStep step, PyObject* value);
  /// `number` (stolen) was element `element` of `tensor`, which nothing writes to any more: known to later
  /// calls when the program has run. Where its value is used before, the region ends. New.
  PyObject* data_number(PyObject* number, PyObject* tensor, int64_t element);
  /// The program checks that int() of the tensor's element gives a number of 64 bits. False: it cannot.
  bool expect_whole(PyObject* tensor);
  /// math.isnan, isinf or isfinite of an open number, as a tensor; null: it cannot be one.
  PyRef classified(PyObject* function, PyObject* number);
  /// The tensors that steps of kind `data` are taken from, by NumberStep::kind until the region's end.
  std::vector<PyRef> data;
  /// Facts about sizes before the instruction in progress.
  size_t noted_before = 0;
  /// Ends the region before the instruction in progress, which reads what later calls could not read the same
  /// way.
  std::function<void(const std::string& why)> end_region;
  /// Is any number that `object` is or holds (tuples, lists, slices) followed?
  bool holds_followed(PyObject* object, int depth = 3) const;
  /// size(dim) of a tensor; torch.Size of all. New.
  PyObject* tensor_size(PyObject* tensor, int dim);
  PyObject* tensor_sizes(PyObject* tensor);
  /// The sizes of `tensor` are taken for what they are.
  void use_sizes(PyObject* tensor);
  /// `object` with torch.SymInts and SymFloats for the followed numbers it is or holds. `operand`: of an
  /// operation that does not ask what it is, so that an open one can be lent too. New, null with an
  /// exception.
  PyObject* lend(PyObject* object, bool operand = false);
  /// Operators treat a float of 0 or 1 as something else (dropout of 0 gives its input itself): whether this
  /// symbol of one is either stays as it is. Where no guard can say so: why the region ends before the
  /// operator.
  const char* tell_0_and_1(Sym symbol);
  /// Did torch ask, since this was called last, what an open number is that it was lent? Why the region ends
  /// then; null: no. The questions are struck out.
  const char* asked_open();
  bool lent_open() const { return open_lent_; }
  /// How two numbers compare, some of which are open, as a tensor; null: it cannot be one.
  PyRef compared_tensor(int op, PyObject* left, PyObject* right);
  /// The same as a fact about sizes, which the program checks. False: they are none.
  bool compared_sizes(int op, PyObject* left, PyObject* right, bool answer);

  // -- Reads. Results are borrowed; null means absent (guarded) without an exception.
  // ----------------------------
  PyObject* dict_get(PyObject* dict, PyObject* key);
  /// `dict` is about to be asked for `key`. False: finding it runs code of the user's (`__hash__`, `__eq__`),
  /// which is CPython's to do, once; where the dictionary is from outside the region ends before. Then
  /// dict_get gives nothing.
  bool dict_key(PyObject* dict, PyObject* key);
  PyObject* type_attr(PyTypeObject* type, PyObject* name);
  /// How a class finds attributes at all: with functions of its own, or as every other.
  void note_lookup(PyTypeObject* type);
  /// What a class is derived from.
  void note_bases(PyTypeObject* type);
  PyObject* super_attr(PyTypeObject* type, PyTypeObject* start, PyObject* name);
  PyObject* instance_dict(PyObject* object);
  PyObject* sequence_item(PyObject* sequence, Py_ssize_t index);
  PyObject* cell_get(PyObject* cell);
  PyObject* field(PyObject* object, Py_ssize_t offset, PyObject* name);
  /// The same for a reader that goes on with what this returns.
  PyObject* slot(PyObject* object, Py_ssize_t offset, PyObject* name);
  PyObject* tensor_grad(PyObject* tensor);
  PyObject* context_value(PyObject* variable);
  /// What an import gave; null: it raised. A module that is loaded stays what it is in sys.modules; loading
  /// it the first time happens once, for real.
  void imported(PyObject* module);
  /// How long it was before the run does not differ between calls.
  void read_length(PyObject* object);
  // -- Containers that are longer or shorter from call to call (lengths.cpp)
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
  /// False: it was read, and is written like others.
  bool about_to_clear(PyObject* container);
  /// A key of an OrderedDict is about to be moved to the end; its first item is about to go, and nobody reads
  /// it. False: all of it is to be read.
  bool about_to_move(PyObject* dict, PyObject* key);
  bool about_to_take_first(PyObject* dict);
  /// The last item of a dict is about to go: is it one that the run put there?
  bool about_to_take_last(PyObject* dict);
  /// The same of a dict, where `key` is what first_key gave.
  bool about_to_take_first(PyObject* dict, PyObject* key);
  /// next(iter(dict)) of one from outside: may the key be followed? `iterator` is for that alone. The key,
  /// new; null: it is another iterator.
  bool has_first_key(PyObject* dict);
  void asks_first_key(PyObject* iterator, PyObject* dict);
  PyObject* first_key(PyObject* iterator);
  void about_to_delete(PyObject* container, PyObject* index);
  /// del list[:-n] and the like: takes the items that a slice of constants means off their end. False: not
  /// here.
  bool cut(PyObject* list, PyObject* slice);
  /// Is container[index] an item that the run put there in every call?
  bool is_own_item(PyObject* container, PyObject* index);
  /// A list or deque from outside of which nobody needs to know all that is in it; null: it is another
  /// object.
  Known* known_by_ends(PyObject* container);
  /// Of such a one: how many items the run put in front, are left of those that were there, and were put
  /// behind.
  struct Parts {
    Py_ssize_t in_front, old, behind;
  };
  static Parts parts_of(const Known& known);
  /// The step to an item of what was there before the run.
  static Access access_of(const Known& known);

  /// The same of a tuple, and of a list or tuple that the run made of one (joined.cpp). New; null without an
  /// exception: not here.
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

  // -- Items by numbers and texts that differ between calls (places.cpp)
  /// list[index], where `index` is such a number and the item a number, text or tensor, or what the run put
  /// there. New; null: not here.
  PyObject* item_by_number(PyObject* list, PyObject* index);
  /// The same of dict[key]; borrowed.
  PyObject* item_by_key(PyObject* dict, PyObject* key);
  /// list[index] is about to be written. False: it is written like others.
  bool about_to_place(PyObject* list, PyObject* index);
  /// Which item of `list` each of those written was.
  bool is_placed(Known& known, Sym index, Py_ssize_t at);

  // -- Lists, deques and tuples of numbers as a whole (lists.cpp). New; null without an exception: not here.
  /// The tensor of what was in a list from outside, lists in it among that, where how many numbers there are
  /// differs between calls, or which of many. What the run put behind is not in it, what it took is. Null
  /// where it put something in front.
  PyRef tensor_of_list(PyObject* list);
  /// Is it a list or deque of numbers whose length, or the numbers in it, differ between calls?
  bool has_any_length(PyObject* container);
  /// What the C function `method` gives for all[0] and maybe a number.
  PyObject* of_list(const std::string& method, PyObject* function, const std::vector<PyObject*>& all);
  PyObject* told_of_list(PyObject* function, PyObject* container, PyObject* arg = nullptr);
  PyObject* compared_lists(int op, PyObject* left, PyObject* right);
  PyObject* list_text(PyObject* list);
  /// Of a text that differs between calls, or of one by a number that does.
  PyObject* text_length(PyObject* text);
  PyObject* letters_of(PyObject* text, PyObject* key);

  /// Length or keys, and every item; fresh containers have nothing to guard.
  void read_whole(PyObject* object);
  /// The same through nested containers. Ends the region where they hold what no guard can tell of.
  void read_deep(PyObject* object, int depth = 8);
  /// Containers that read_deep went through, and how deep: one may be in another many times over.
  using Depths = std::unordered_map<PyObject*, int>;
  void read_deep(PyObject* object, int depth, Depths& read, const PyObject*& opaque);
  void note_function(PyObject* function);
  void compared(PyObject* a, PyObject* b);
  /// id(object) was taken. Later calls may meet other objects: which of them are one is guarded.
  void identified(PyObject* object, PyObject* id);
  /// `object` was looked for among others, or put among the keys of a dict or the elements of a set: which it
  /// is was read, or its value.
  void told_apart(PyObject* object);
  // -- Keys of dicts that differ between calls (keys.cpp)
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
  /// The same, where it may come to be among them; with all keys of another dict.
  void puts_key(PyObject* dict, PyObject* key);
  void puts_keys(PyObject* dict, PyObject* mapping);
  /// The same of one element of a set from outside. False: it is written like others.
  bool about_to_write_element(PyObject* set, PyObject* element, bool removes);
  /// Whoever goes through the container meets the followed keys of the run at a place of their own.
  void use_positions(const Known& known);
  /// {items[0]: items[1], ...} is about to be made.
  void puts_keys_of_display(PyObject* const* items, Py_ssize_t n);
  /// `dict` is the `__dict__` of an object that the run made, where its keys are names.
  void note_namespace(PyObject* dict);
  /// The keys are read by something that does not tell them apart as the above does.
  void use_keys(PyObject* container);
  /// What the run told apart by identity, or wrote to, must be different objects in later calls too: called
  /// at the region's end.
  void keep_apart();
  /// Where `number` is what id() gave, of what; `of` is null for an object that the run made.
  struct Identity {
    PyRef id;
    PyObject* of;
  };
  const Identity* identity(PyObject* number) const;

  // -- Writes
  // ------------------------------------------------------------------------------------------------------
  /// Its hash says which object it is, and nothing of what is in it.
  static bool is_told_by_identity(PyObject* object);
  /// Looking one up runs no Python code.
  static bool is_plain_key(PyObject* key);
  /// Is it what its value or its address says? Also (type(p), type(q)), as tables of functions for pairs of
  /// classes have it.
  static bool is_key(PyObject* key);
  static bool has_plain_keys(PyObject* dict);
  /// `appends`: the write only adds at the end of a list, or of a deque.
  void about_to_write(PyObject* container, bool appends = false);
  /// The same of one item of a dict.
  void about_to_write_item(PyObject* dict, PyObject* key, bool removes = false);
  /// The items that `mapping`, a dict, has.
  void about_to_update(PyObject* dict, PyObject* mapping);
  /// Not of a slot that cannot be written.
  void about_to_write_field(PyObject* object, Py_ssize_t offset);
  /// cls.name, of a class made by a class statement.
  void about_to_write_class(PyTypeObject* cls, PyObject* name);
  /// What was there before what has been written so far.
  Undo undo() const;
  void about_to_set_context(PyObject* variable);
  /// tensor.grad = value, of a known tensor. -1 with an exception.
  int set_grad(PyObject* tensor, PyObject* value);
  /// tensor.data = value, of a known tensor; `before`: another one on what it showed. -1 with an exception.
  int set_data(PyObject* tensor, PyObject* value, PyRef before);
  bool was_given(Effect part, PyObject* tensor) const;
  /// Is its content to be shown at the region's end?
  bool is_awaited(PyObject* tensor) const;
  /// False: what the token gives back cannot be told apart from what the run put there.
  bool about_to_reset_context(PyObject* variable, PyObject* token);

  /// What the run left that was not there before it, or that is not as it was; "": nothing.
  std::string trace() const;

  /// The recording cannot be trusted: it must not be cached.
  [[gnu::cold]] void distrust(const std::string& why) {
    if (unsound.empty()) unsound = why;
  }

  std::unique_ptr<guard::SourceTree> tree;
  guard::TensorTable tensors;
  std::string unsound;
  bool asked_offsets = false;      ///< where in its storage some tensor begins
  bool asked_gradients = false;    ///< which tensors require gradients, or what autograd keeps of them
  std::vector<PyObject*> written;  ///< known containers with `before`, in order of first write
  std::vector<PyObject*>
      lent_numbers;  ///< known ones that hold such (own_numbers_of), until they are given back
  std::vector<WrittenField> written_fields;
  std::vector<WrittenClass> written_classes;
  std::vector<WrittenContext> written_context;
  std::vector<WrittenTensor> written_tensors;  ///< in order: a gradient must fit the data
  std::shared_ptr<SizeNotes> notes = std::make_shared<SizeNotes>();
  guard::Numbers numbers;
  std::vector<SizeValue> number_sizes;       ///< what the steps that are sizes were, in order
  std::vector<NumberSymbol> number_symbols;  ///< the symbols of steps, and what they were
  /// A torch.Generator from outside is given to operators: later calls give them the one that is there then.
  void found_generator(PyObject* generator);
  std::vector<std::pair<PyRef, int>> generators;  ///< those, and the register of their place

 private:
  void note_showing(const Source* written);
  void note_reading(PyObject* object);
  bool is_as_before(PyObject* container) const;
  void wrote_tensor(Effect part, PyObject* tensor, PyObject* value, PyRef before);
  bool is_written(PyTypeObject* type, PyObject* name);
  bool is_pinned(PyObject* object, const Source* source) const;
  bool is_scalar(PyObject* object) const;
  bool is_known_when_checked(PyObject* part) const;
  void use_late(const Late& late);
  bool cannot_raise(const guard::NumberStep& step);
  bool may_raise(const guard::NumberStep& step);
  std::optional<double> bound_of(int step);
  std::optional<double> find_bound(int step);
  std::unordered_map<int, std::optional<double>> bounds_;  ///< by step: one may be part of another many times
  void note_iterator(PyObject* iterator);
  PyObject* counted(Advanced& counter, PyObject* number);
  void read_method(PyObject* method, Source* source);
  /// The same as reached, or guards that there is nothing. Gives `object`.
  PyObject* reached_if_bound(PyObject* object, Source* source);
  bool read_next(PyObject* iterator);
  // world_ends.cpp
  void met(const Known& known);
  void may_go(PyObject* object);
  void also_held(PyObject* object);
  void note_copy(const Known& known);
  void may_lose(Known& known);
  PyObject* find_gone();
  bool is_gone(PyObject* object) const;
  void goes(PyObject* object);
  Source* source_for(PyObject* object);
  Sym length_before(Known& known);
  Sym length_now(Known& known);
  void note_length(Known& known, Relation relation, Py_ssize_t number);
  std::optional<int> list_of_any_length(PyObject* container);
  std::optional<int> list_step(PyObject* container);
  PyObject* reduced(PyObject* function, PyObject* container, bool sums);
  PyObject* sorted(PyObject* container);
  bool tell_written_keys(Known& known);
  bool owns_new_keys(Known& known);
  PyObject* outside_item(PyObject* item, Source* place);
  void take(PyObject* container, bool in_front, bool is_read);
  bool makes_room(PyObject* container, bool in_front);
  Source* place_of(const Known& known, Py_ssize_t index);
  PyObject* end_of(PyObject* sequence, PyObject* slice);
  PyObject* followed_slice(PyObject* sequence, PyObject* slice);
  std::optional<std::pair<Py_ssize_t, std::optional<Py_ssize_t>>> constant_bounds(PyObject* slice);
  PyObject* part_of(PyObject* sequence, Known& of, Py_ssize_t first, Py_ssize_t last);
  PyObject* last_of(PyObject* sequence, Known& of, Py_ssize_t n);
  PyObject* open_tuple(PyObject* tuple, Source* source);
  void read_parts(Known& known);
  Known* followed_by_ends(PyObject* sequence);
  void make_of(PyObject* made, Known& of, Window window);
  PyRef guard_keys(PyObject* contents, Source& source);
  void guard_whole(PyObject* contents, Known& known);
  Known* copied(PyObject* container);
  bool are_one_number(PyObject* a, PyObject* b);
  int text_step(PyObject* text);
  void tell_from_outside(const Known& known, PyObject* key, bool asks);
  bool tell_from_followed(const std::vector<PyObject*>& keys, PyObject* key);
  void tell_from_own(PyObject* dict, PyObject* key);
  std::pair<PyRef, PyObject*> asking_first_;  ///< an iterator, and its dict
  Known* known_in_place(PyObject* list);
  Py_ssize_t place_in(Known& known, PyObject* index);
  PyObject* item_from(Known& known, PyObject* item, PyObject* place);
  PyObject* chosen_tensor(Known& known, PyObject* item, PyObject* place);

  RecorderHooks& hooks_;
  bool& watch_;
  Growing<Known> store_;
  PointerMap<Known*> known_;
  std::unordered_map<PyObject*, Known> made_of_;  ///< lists and tuples that the run made
  std::vector<PyObject*> open_tuples_;            ///< those that are by_ends
  std::vector<PyObject*> may_go_;                 ///< what the run may be the last to hold; all held
  PointerMap<Py_ssize_t> also_held_;  ///< how many references are ours, or of what is gone, beside Known's
  std::vector<PyObject*> gone_;       ///< what nobody else holds any more, owners first
  std::unordered_set<PyObject*> is_gone_;  ///< the same
  void notice_ends(bool yes) { ends_are_noticed_ |= yes, watch_ |= yes; }
  bool ends_are_noticed_ = false;  ///< of something that is known
  /// The last reads of attributes of classes and of items of dicts: what was read again is guarded already.
  struct Read {
    const void* where = nullptr;
    PyObject* name = nullptr;   ///< interned, and held by the tree
    uint64_t version = 0;       ///< of the class or dict
    PyObject* there = nullptr;  ///< what the reader met; null: nothing
    PyObject* given = nullptr;  ///< what it was given for it
  };
  static constexpr size_t kReads = 1024;
  PyTypeObject* last_noted_ = nullptr;  ///< held
  Read& last_read(const void* where, PyObject* name) {
    return reads_[(hash_address(where) + hash_address(name)) % kReads];
  }
  std::array<Read, kReads> reads_{};
  struct Followed {
    PyRef object;
    Sym expression;  ///< of an int; a number: it has none, or its value has been used
    int step = -1;   ///< -1: none so far
    bool used = false;
    bool open = false;  ///< the expression rests on sizes that are data
  };
  struct Use {
    PyObject* number;  ///< in followed_
    Sym expression;
    size_t facts;  ///< of numbers, before
  };
  std::vector<Use> used_now_;
  std::unordered_map<PyObject*, std::pair<PyRef, PyRef>> originals_;  ///< the number itself held, what it is
  std::unordered_map<PyObject*, Late> late_;
  PyObject* follow_leaf(PyObject* number, Source* source);
  PyObject* follow_step(PyObject* number, int step);
  Sym symbol_of(int step, PyObject* number);
  bool has_symbol(int step) const;
  int open_step(Sym expression);
  std::optional<Sym> size_from(int step);
  PyObject* lend_size(int step, PyObject* number);
  std::optional<Sym> open_size(PyObject* number);
  PyRef data_tensor(int step);
  bool expect_within(int step, double low, double high);
  bool expect_other_than_0(int step);
  PyRef data_arithmetic(const guard::NumberStep& step);
  PyRef lend_step(int step);
  PyObject* followed_as(int step) const;
  PyObject* lend_early(int step, PyObject* number);
  PyRef early_tensor(int step);
  std::unordered_map<int, PyRef> data_tensors_;
  /// Tensors at places that go by numbers: in which container, and at what place in it.
  struct Chosen {
    const Known* from;
    const Source* source;
    PyRef place;
  };
  std::vector<Chosen> chosen_;
  std::unordered_map<const Source*, PyRef> list_tensors_;  ///< by place; null: it cannot be made
  int late_tensor(PyObject* tensor);
  struct Size {
    PyRef tensor;
    int dim;
    int64_t value;
  };
  std::unordered_map<Sym, Size> sizes_;  ///< by symbol, those that were asked for; held where they are open
  void begin_to_follow() { follows_ = watch_ = true; }
  bool follows_ = false;
  std::vector<PyRef> namespaces_;
  bool has_followed_keys_ = false;  ///< some dict may hold a followed key
  bool open_lent_ = false;          ///< since asked_open
  std::unordered_map<PyObject*, Followed> followed_;
  std::unordered_map<const Source*, PyObject*> leaves_;  ///< numbers found there, held by followed_
  Source* field_place(PyObject* object, Py_ssize_t offset, PyObject* name);
  bool some_differ(PyObject* whole, Source* source);
  struct Differing {
    bool lengths = false, numbers = false;
    Py_ssize_t count = 0;  ///< of numbers
  };
  void see_what_differs(PyObject* list, Source& source, Differing& seen);
  bool some_differ(PyObject* whole, Source* source, int& left);
  PyObject* make_twin(PyObject* whole, Source* source);
  bool is_own(PyObject* part, Source* place) const;
  std::unordered_map<PyObject*, PyObject*> twins_;  ///< of tuples and slices, held by originals_
  std::vector<PyObject*> lazy_;                     ///< those not used so far
  std::unordered_set<PyObject*> identified_;        ///< known objects that were told apart by identity
  std::vector<Identity> identities_;
};

/// A number or text equal to `number` at an address of its own; new. Null: there is none (the empty text), or
/// an exception.
PyObject* own_number(PyObject* number);
bool is_number(PyObject* object);
/// A float, or an int of 64 bits: what others do when they are added up or compared is their own code.
bool is_exact_number(PyObject* object);
/// A number, or a text: one that differs between calls may be given away, and what is asked about it is a
/// fact.
inline bool can_be_followed(PyObject* object) { return is_number(object) || PyUnicode_CheckExact(object); }
/// Is `key` itself, no other that is equal, a key of the dict?
bool holds_key_itself(PyObject* dict, PyObject* key);
/// operator.contains and operator.getitem, borrowed.
PyObject* contains_function();
PyObject* getitem_function();
/// Is the step a number in a list that is drawn (draws.cpp)? The step that draws it; null: no.
const guard::NumberStep* drawn_list(const guard::Numbers& numbers, const guard::NumberStep& step);
/// Why a region ends where a number is used that is known in that phase.
const char* why_open(guard::Phase phase);
/// The comparison with the sides changed.
int mirrored(int compare);
/// `x op y` (CPython's numbering) was asked, and the answer was this.
void note_comparison(SizeNotes& notes, int op, Sym x, Sym y, bool answer);
/// Operator `kind` (CPython's numbering) of two ints as an expression; `right` is what `y` was in this run,
/// or 0 where nothing may be taken for granted about it. Nothing: there is none.
std::optional<Sym> arithmetic(int kind, Sym x, Sym y, int64_t right);

/// (container, front, back, n, m, items..., index, item, ...) -> the first n items, what is left of the
/// container without as many items at either end, the other items; m of what is left are replaced by the
/// items that come with an index. `numbers`: a list, and what is left are ints and floats; it raises where
/// they are not. Borrowed.
enum class Joins : uint8_t { list, tuple, numbers };
PyObject* joining_function(Joins how);
/// True for containers whose contents `read_whole` understands.
bool is_understood_container(PyObject* object);
/// An object of C's: no guard tells what is in it.
bool is_opaque(PyObject* object);
bool is_deque(PyObject* object);
/// As C counts, whatever a class in Python says.
Py_ssize_t native_length(PyObject* container);
/// The items of a list, tuple, deque or set, or the keys of a dict in order, as a list: as C has them,
/// whatever a class in Python does when it is gone through.
PyRef native_items(PyObject* container);
/// Strings that are equal become one object, so that they intern to one source.
PyRef canonical_key(PyObject* key);
/// A tuple or a list: PySequence_Fast_GET_ITEM gives its items.
inline bool is_sequence(PyObject* object) { return PyTuple_Check(object) || PyList_Check(object); }

}  // namespace bolt::observe
