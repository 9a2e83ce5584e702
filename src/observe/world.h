// observe/world.h
// Objects that a recording meets -> what it knows about them, and a guard for everything it read of them:
// World.
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
//
// World itself knows where objects come from (world.cpp), reads them (reads/), follows numbers
// (values/followed.cpp) and keeps what is shown to the user for the region's end (values/late.cpp). What is
// known of writes, of objects that go, of lengths, places, lists, keys and open numbers is kept by parts of
// their own, each in a file of its name, which are its members and reach the others through it.
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
#include "guard/tensors.h"
#include "observe/known.h"
#include "observe/lifetimes/goodbyes.h"
#include "observe/observation.h"
#include "observe/rebuild/recipe.h"
#include "observe/values/keys.h"
#include "observe/values/lengths.h"
#include "observe/values/lists.h"
#include "observe/values/open_numbers.h"
#include "observe/values/places.h"
#include "observe/writes/writes.h"
#include "support/growing.h"
#include "support/pointer_map.h"
#include "support/reason.h"

namespace bolt::observe {

/// A text or tensor made of tensors' contents that nothing has read yet. Every later call makes it anew at
/// the region's end; only what needs it earlier ends the region.
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
  int otherwise;  ///< what World::shown_otherwise was at that time
  /// How many operators were recorded by then, where autograd follows what is made of the tensor.
  std::optional<size_t> followed_from;
};

/// A clock that was read when so many operators were recorded (values/clocks.cpp).
struct ClockRead {
  PyRef code;  ///< of the instruction
  int pc;
  size_t recorded;
};

/// A call that shows something to the user (print, a logger) and gives nothing back, so that it can be made
/// at the region's end.
struct DelayedCall {
  PyRef callable;
  std::vector<PyRef> args;
  PyRef kwnames;
  std::vector<std::pair<PyRef, int>> callers;  ///< functions and instructions, oldest first
  std::optional<int> otherwise;                ///< World::shown_otherwise then; nothing: it shows nothing
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

  // -- Where objects come from (world.cpp)
  /// What is known of `object`; null: it is fresh.
  Known* find(PyObject* object);
  /// Makes `object` known without a guard: the caller has one that implies it.
  Known& know(PyObject* object, Source* source);
  /// A function, class, module or dict of one that hangs on something pinned.
  Known& pin(PyObject* object);
  /// `object` was found at `source`, which is guarded and remembered.
  void reached(PyObject* object, Source* source);
  /// As reached, for a reader that goes on with what this returns (borrowed): where a number differs between
  /// calls, a copy that can be followed; where some in a tuple or slice do, one that holds such copies.
  PyObject* found(PyObject* object, Source* source);

  // -- Numbers that lie in containers from outside (values/own_numbers.cpp)
  /// A list, deque or dict from outside is about to be read or written as a whole. Where some of its numbers
  /// differ between calls each gets an address of its own in the container itself, until the region is over:
  /// so whoever goes through it is given numbers that are followed, also of what is written meanwhile.
  void own_numbers_of(PyObject* container);
  /// C code is about to go through `sequence` and to hand on what is in it. This returns a tuple of the same
  /// numbers to be given to it instead, where it is not to be written; null: the sequence itself will do.
  PyRef with_followed(PyObject* sequence);

  // -- Iterators from outside (reads/iterators.cpp)
  /// May the region go on with this iterator from outside?
  bool can_advance(PyObject* iterator);
  /// The next item of such an iterator is about to be taken, which may end the region.
  void about_to_advance(PyObject* iterator);
  /// The iterator gave `item` (stolen, may be null). This returns what the run is given for it.
  PyObject* has_advanced(PyObject* iterator, PyObject* item);
  /// Has the run taken something out of `container` by such a one?
  bool is_gone_through(PyObject* container) const;

  // -- Reading values (values/followed.cpp)
  /// As found, for what lies in the frames where a region begins. A number there that is only carried along
  /// (the time since when, a running sum of losses) must not tie the region to its value: it is guarded when
  /// it is used. The object must be nobody else's: see own_number.
  /// Returns what is to lie there (borrowed), as found does.
  PyObject* carried(PyObject* object, Source* source);
  /// Is it a late value, or one that is followed or only carried along?
  bool is_unread(PyObject* object) const;
  /// The value of `object` is read, and of every number that can be reached from it.
  void use(PyObject* object);
  /// As use, where the elements of a set are only told apart from others.
  void use_elements(PyObject* container);
  /// As use, where only numbers and texts are read, not what they are found in.
  void use_scalar(PyObject* object) {
    if (is_scalar(object)) use(object);
  }
  /// Every value is read.
  void use_all();
  /// Has every number, text and tuple the value it has in every call: is none followed, late or only carried
  /// along?
  bool all_are_read() const {
    return lazy_.empty() && followed_.empty() && late_.empty() && open_tuples_.empty();
  }
  /// For as long as this is false nothing depends on what single instructions used.
  bool wants_watch() const { return goodbyes.ends_are_noticed() || follows() || !notes->facts.empty(); }
  void begin_instruction() {
    noted_before = notes->facts.size();
    used_now_.clear();
  }
  /// The region is over, and nobody asks what is known: nothing is held any more but what Writes::undo needs.
  void let_go();
  /// The instruction in progress is the first that is not part of the region: what it used is as it was.
  void undo_instruction();
  /// `mine` stands for `number` in what is recorded: who asks which object it is means the other.
  void stands_for(PyObject* mine, PyObject* number);
  /// The object that eager has in the place of a number; borrowed.
  PyObject* original(PyObject* number) const;
  bool has_copies() const { return !originals_.empty() || !followed_.empty(); }

  // -- Late texts and tensors (values/late.cpp)
  /// Makes `object` (stolen, may be null; nobody else's) a late one. New, null with an exception.
  PyObject* make_late(PyObject* object, Make make, std::vector<PyRef> parts, Py_ssize_t number = 0);
  const Late* late(PyObject* object) const {
    auto at = late_.find(object);
    return at == late_.end() ? nullptr : &at->second;
  }
  /// `object` is from now on a text like any other.
  void no_longer_late(PyObject* object) { late_.erase(object); }
  /// Is it a late value, or a tuple that holds one?
  bool holds_late(PyObject* object) const;
  /// The contents of `tensor` will be read at the region's end.
  void await(PyObject* tensor, PyObject* code, int pc, bool is_followed = false);
  /// Was `tensor` awaited?
  bool is_awaited(PyObject* tensor) const;
  /// A number that goes up with every write to the memory of `tensor`; -1: writes cannot be told.
  int64_t version_of(PyObject* tensor) const;
  std::vector<Awaited> awaited;
  std::vector<ClockRead> clock_reads;
  std::vector<DelayedCall> calls;
  bool users_code_shows = false;   ///< a delayed call is handled by Python code of the user's
  int shown_otherwise = 0;         ///< writes, since something is to be shown, to what showing goes by
  std::vector<PyRef> locks;        ///< that the run holds
  std::vector<PyObject*> resumed;  ///< generators from outside that the run went on with; known
  std::vector<Advanced> advanced;

  // -- Numbers that differ between calls (values/followed.cpp)
  // Such a number is *followed*: it has an address of its own, and World knows what it was computed from. An
  // int as an expression over sizes and symbols of numbers, which is what sizes can be computed from in turn;
  // a float, and an int that has no symbol, as a step of `numbers`. It is *open* while later calls do not
  // know it when they check their guards (guard::Phase): what needs its value ends the region.

  /// The expression of a followed int; null: it has none.
  const Sym* followed(PyObject* object) const;
  /// Is the number or text followed, and has nothing read its value yet?
  bool follows_number(PyObject* object) const;
  /// When later calls know it; numbers that are not followed are what they are.
  guard::Phase phase_of(PyObject* number) const;
  bool is_open(PyObject* number) const { return phase_of(number) != guard::Phase::check; }
  /// Is any number followed? Operators that find out sizes which are data begin it, too.
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
  /// How many facts about sizes there were before the instruction in progress.
  size_t noted_before = 0;
  /// Ends the region before the instruction in progress, which reads what later calls could not read the same
  /// way.
  std::function<void(const Reason& why)> end_region;
  /// Is the instruction in progress part of the region so far?
  std::function<bool()> is_recorded;
  /// Is any number that `object` is or holds (tuples, lists, slices) followed?
  bool holds_followed(PyObject* object, int depth = 3) const;
  /// size(dim) of a tensor; torch.Size of all. New.
  PyObject* tensor_size(PyObject* tensor, int dim);
  /// `number`, taken out of a tensor, which is this size of another one.
  PyObject* size_in(int64_t number, Sym size);
  PyObject* tensor_sizes(PyObject* tensor);
  /// The sizes of `tensor` are taken for what they are.
  void use_sizes(PyObject* tensor);
  /// `object` with torch.SymInts and SymFloats in the place of the followed numbers that it is or holds.
  /// Where it is the `operand` of an operation that does not ask what it is, open ones can be lent too. New,
  /// null with an exception.
  PyObject* lend(PyObject* object, bool operand = false);
  /// Operators treat a float of 0 or 1 as something else (dropout of 0 gives its input itself): whether this
  /// symbol of one is either stays as it is. Where no guard can say so: why the region ends before the
  /// operator.
  std::optional<Why> tell_0_and_1(Sym symbol);

  // -- Numbers in tensors that belong to the model (values/model_numbers.cpp)
  /// Element `element` of such a tensor, which is known, as one of the class `as` (null: what item() gives).
  /// New; null without an exception: it is no number, or changes too often to be one that guards know.
  PyObject* model_number(PyObject* tensor, Py_ssize_t element, PyObject* as);
  /// Did the region write to a tensor that it read a number out of?
  bool reads_written_number() const;
  std::vector<PyRef> numbers_in;  ///< such tensors

  // -- Reads (reads/outside.cpp). Results are borrowed; null means that there is nothing, which is guarded,
  // without an exception.
  PyObject* dict_get(PyObject* dict, PyObject* key);
  /// `dict` is about to be asked for `key`. False: finding it runs code of the user's (`__hash__`, `__eq__`),
  /// which is CPython's to do, once; where the dictionary is from outside the region ends before. Then
  /// dict_get gives nothing.
  bool dict_key(PyObject* dict, PyObject* key);
  PyObject* type_attr(PyTypeObject* type, PyObject* name);
  /// Guards how a class finds attributes at all: with functions of its own, or as every other does.
  void note_lookup(PyTypeObject* type);
  /// Guards what a class is derived from.
  void note_bases(PyTypeObject* type);
  PyObject* super_attr(PyTypeObject* type, PyTypeObject* start, PyObject* name);
  PyObject* instance_dict(PyObject* object);
  PyObject* sequence_item(PyObject* sequence, Py_ssize_t index);
  PyObject* cell_get(PyObject* cell);
  PyObject* field(PyObject* object, Py_ssize_t offset, PyObject* name);
  /// As field, for a reader that goes on with what this returns.
  PyObject* slot(PyObject* object, Py_ssize_t offset, PyObject* name);
  PyObject* tensor_grad(PyObject* tensor);
  PyObject* context_value(PyObject* variable);
  /// An import gave `module`; null: it raised. A module that is loaded stays what it is in sys.modules;
  /// loading it the first time happens once, for real.
  void imported(PyObject* module);
  /// Guards how long a container was before the run.
  void read_length(PyObject* object);
  /// The length or keys and every item of a container are guarded; there is nothing to guard of a fresh one.
  void read_whole(PyObject* object);
  /// As read_whole, through nested containers. It ends the region where they hold what no guard can tell of.
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
  /// What the run told apart by identity, or wrote to, must be different objects in later calls too: called
  /// at the region's end.
  void keep_apart();
  /// Where `number` is what id() gave, of what; `of` is null for an object that the run made.
  struct Identity {
    PyRef id;
    PyObject* of;
  };
  const Identity* identity(PyObject* number) const;

  // -- Keys
  /// Does the hash of an object say which object it is, and nothing of what is in it?
  static bool is_told_by_identity(PyObject* object);
  /// Can `key` be looked up without running Python code?
  static bool is_plain_key(PyObject* key);
  /// Is it what its value or its address says? Also (type(p), type(q)), as tables of functions for pairs of
  /// classes have it.
  static bool is_key(PyObject* key);
  static bool has_plain_keys(PyObject* dict);

  // -- The recording
  /// The recording cannot be trusted: it must not be cached.
  [[gnu::cold]] void distrust(const std::string& why) {
    if (unsound.empty()) unsound = why;
  }
  std::unique_ptr<guard::SourceTree> tree;
  guard::TensorTable tensors;
  std::string unsound;
  bool asked_offsets = false;  ///< the program was told where in its storage some tensor begins
  bool asked_gradients =
      false;  ///< it was told which tensors require gradients, or what autograd keeps of them
  std::vector<PyObject*>
      lent_numbers;  ///< known ones that hold such (own_numbers_of), until they are given back
  std::shared_ptr<SizeNotes> notes = std::make_shared<SizeNotes>();
  guard::Numbers numbers;
  SymbolTable number_sizes;    ///< what the steps that are sizes were, in order
  SymbolTable number_symbols;  ///< of the steps
  /// A torch.Generator from outside is given to operators: later calls give them the one that is there then.
  void found_generator(PyObject* generator);
  std::vector<std::pair<PyRef, int>> generators;  ///< those, and the register of their place

  // -- For World's parts
  /// Do guards know the value, or what a late text is made of?
  bool is_known_when_checked(PyObject* part) const;
  /// An item that is taken out of a container and given away. A number is only carried along until something
  /// reads it.
  PyObject* outside_item(PyObject* item, Source* place);
  /// `number`, which is nobody else's, is followed from now on as what this step gives. Returned.
  PyObject* follow_step(PyObject* number, int step);
  /// The symbol of a number that a step gives; a constant where it is out of a symbol's range.
  Sym symbol_of(int step, PyObject* number);
  /// Is it an int that a guard keeps in a symbol's range?
  bool has_symbol(int step) const;
  /// The number that is this step; borrowed. Null: it is not at hand any more.
  PyObject* followed_as(int step) const;
  /// The step of a followed number; -1: it has none so far, or the number is not followed.
  int step_so_far(PyObject* number) const {
    auto at = followed_.find(number);
    return at == followed_.end() ? -1 : at->second.step;
  }
  /// Is, or was, any number followed?
  bool follows_any() const { return !followed_.empty(); }
  /// What tensor_size was asked for when it gave this symbol; null: nothing.
  struct AskedSize {
    PyRef tensor;  ///< held where the size is data
    int dim;
    int64_t value;
  };
  const AskedSize* size_asked(Sym symbol) const {
    auto at = sizes_.find(symbol);
    return at == sizes_.end() ? nullptr : &at->second;
  }
  /// From now on some number is followed.
  void begin_to_follow() { follows_ = watch_ = true; }

  // -- What World knows, by what it is about: each part has its own state and file.
  Goodbyes goodbyes;           ///< objects that the run lets go of
  Writes writes;               ///< what was written, and what was there before
  Lengths lengths;             ///< of containers, and items by their distance from an end
  Places places;               ///< items by numbers and texts that differ
  Lists lists;                 ///< numbers in a list taken together
  FollowedKeys followed_keys;  ///< numbers and texts that differ, as keys
  OpenNumbers open_numbers;    ///< numbers that guards do not know

 private:
  void note_reading(PyObject* object);
  bool is_pinned(PyObject* object, const Source* source) const;
  bool is_scalar(PyObject* object) const;
  bool is_always_another(int step) const;
  void use_late(const Late& late);
  void note_iterator(PyObject* iterator);
  PyObject* counted(Advanced& counter, PyObject* number);
  void read_method(PyObject* method, Source* source);
  /// As reached, where `object` may be null: then it is guarded that there is nothing. Returns `object`.
  PyObject* reached_if_bound(PyObject* object, Source* source);
  bool read_next(PyObject* iterator);
  Source* source_for(PyObject* object);
  PyObject* open_tuple(PyObject* tuple, Source* source);
  PyRef guard_keys(PyObject* contents, Source& source);
  void guard_whole(PyObject* contents, Known& known);
  RecorderHooks& hooks_;
  bool& watch_;
  Growing<Known> store_;
  PointerMap<Known*> known_;
  std::vector<PyObject*> open_tuples_;  ///< those that are by_ends
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
    bool rests_on_data = false;  ///< the expression does: on sizes that are data
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
  std::unordered_map<Sym, AskedSize> sizes_;  ///< by symbol
  bool follows_ = false;
  std::unordered_map<PyObject*, Followed> followed_;
  std::unordered_map<const Source*, PyObject*> leaves_;  ///< numbers found there, held by followed_
  Source* field_place(PyObject* object, Py_ssize_t offset, PyObject* name);
  bool some_differ(PyObject* whole, Source* source);
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
Why why_open(guard::Phase phase);
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
/// An item of a list, tuple or deque as C has it; borrowed.
PyObject* native_item(PyObject* container, Py_ssize_t index);
/// Puts an item into a list or deque as C does; -1 with an exception.
int set_native_item(PyObject* container, Py_ssize_t index, PyObject* item);
/// Strings that are equal become one object, so that they intern to one source.
PyRef canonical_key(PyObject* key);
/// A tuple or a list: PySequence_Fast_GET_ITEM gives its items.
inline bool is_sequence(PyObject* object) { return PyTuple_Check(object) || PyList_Check(object); }

}  // namespace bolt::observe
