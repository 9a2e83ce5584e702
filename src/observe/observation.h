// observe/observation.h
// observe_call: run a callable for real under the recording interpreter -> Observation: its guards, how to
// rebuild its result, and what it did to the world.
//
// The roots of the guards are, in order: the callable itself, the positional arguments, the keyword
// arguments' values. How many there were and the keywords' names are the caller's key (they say which program
// to try).
#pragma once

#include <Python.h>
#include <structmember.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "guard/program.h"
#include "observe/ends/frames.h"
#include "observe/rebuild/recipe.h"
#include "observe/writes/undo.h"
#include "support/reason.h"
#include "support/size_fact.h"

namespace bolt::interp {
struct Frame;
}

namespace bolt::observe {

/// What the observer and the recorder of tensor operators tell each other.
class RecorderHooks {
 public:
  virtual ~RecorderHooks() = default;
  /// `tensor` was read from outside and will be input `slot` (guard::Found::tensors) of later calls. Called
  /// before the first operator that can see it.
  /// `source` is where, its text being over `names`.
  virtual void input(PyObject* tensor, int slot, const guard::Source& source,
                     const std::vector<std::string>& names) = 0;
  /// Sizes of some input differ between calls, so numbers computed from sizes are followed.
  virtual bool follows_sizes() { return false; }
  /// Does it rest on sizes that are data (nonzero)? Later calls know it when the program has run.
  virtual bool rests_on_data(Sym) { return false; }
  /// Was an operator run in grad mode?
  virtual bool differentiates() { return true; }
  /// Size `dim` of a tensor: an expression, or the number where that is the same in every call.
  virtual Sym size_of(PyObject* tensor, int dim) = 0;
  /// Strides of inputs that differ between calls, and what they are in this one.
  virtual std::vector<std::pair<Sym, int64_t>> differing_strides() { return {}; }
  /// A torch.SymInt that stands for `size` in the call of an operator and was `value` in this run; what torch
  /// asks about it goes to `notes`. New, null with an exception.
  virtual PyObject* lend(Sym size, int64_t value, const std::shared_ptr<SizeNotes>& notes) = 0;
  /// A float that operators are lent in its place: `symbol` stands for its bits.
  virtual PyObject* lend_float(Sym, double value, const std::shared_ptr<SizeNotes>&) {
    return PyFloat_FromDouble(value);
  }
  /// A number that was taken out of `tensor`, of one element, is lent to an operator. Null without an
  /// exception: that is not possible.
  virtual PyObject* lend_data(Sym, PyObject*, PyObject*, const std::shared_ptr<SizeNotes>&) {
    return nullptr;
  }
  /// The size that the only element of `tensor` is, whatever the data are (record::size_in). Nothing: none is
  /// known.
  virtual std::optional<Sym> size_in(PyObject*) { return std::nullopt; }
  /// An int that was element `element` of `tensor`, as an expression over a size that is data. Nothing: not
  /// possible.
  virtual std::optional<Sym> size_from(PyObject*, int64_t) { return std::nullopt; }
  /// The run goes on with the truth of `tensor` being `value`, and otherwise an error is raised: later calls
  /// check it when the program runs. False: not possible.
  virtual bool expect(PyObject*, bool, const std::string&) { return false; }
  /// What `tensor` shows: equal pairs, equal elements. Nothing: not known.
  virtual std::optional<std::pair<int64_t, int64_t>> contents(PyObject*) { return std::nullopt; }
  /// The tensors from outside that `tensor`, as it is now, was computed from and from nothing else; itself,
  /// where it is one. Nothing: it is not known, or the region has written to one of those on the way.
  virtual std::optional<std::vector<PyRef>> made_of(PyObject*) { return std::nullopt; }
  /// May guards know the number in a tensor found at `source`? It was another one in fewer recordings than
  /// `most`.
  virtual bool may_know_number(const guard::Source&, const std::vector<std::string>&, int) { return false; }
  /// May a region end because of a number that was another one in many recordings?
  virtual bool gives_up_numbers() { return false; }
  /// May operators be lent numbers that are not known while guards are checked (guard::Phase)? Other
  /// compilers are given what the call was given.
  virtual bool lends_open() { return false; }
  /// May a region go on with an iterator that it found in its frames? It then holds for one place of it.
  virtual bool may_advance() { return true; }
  /// May operators be given a torch.Generator that differs between calls? The text that other compilers are
  /// given names none.
  virtual bool names_generators() { return true; }
  /// Until it is called with false: torch takes numbers out of tensors only to give them to operators.
  void lend_items(bool on) {
    if (lends_items_) *lends_items_ = on;
  }
  /// A call of torch's `function` begins that is lent numbers.
  virtual void begin_lent_call(const std::string&) {}
  /// The call is over. Gives the symbols that its operator was given as floats, not as numbers of any kind,
  /// and may decide by.
  virtual std::vector<Sym> end_lent_call() { return {}; }
  /// Is there any number that differs between calls?
  virtual bool follows_numbers() { return false; }
  /// The number found at `source` differs between calls. From now on operators may be lent numbers.
  virtual bool follows_number(PyObject*, const guard::Source&, const std::vector<std::string>&) {
    return false;
  }
  /// Does any number differ that was found in the container at `source`?
  virtual bool follows_within(const guard::Source&, const std::vector<std::string>&) { return false; }
  /// A number was computed from a text that differs, which operators are lent none of.
  virtual void follows_number_of_text() {}
  /// Does the length of the container found at `source` differ?
  virtual bool follows_length(const guard::Source&, const std::vector<std::string>&) { return false; }
  /// Operators recorded so far.
  virtual size_t recorded() = 0;
  /// Was any of them, from that one on, more than a view or a computation with single numbers?
  virtual bool worked_since(size_t) { return false; }
  /// May the region end because there has been none for long?
  virtual bool may_idle() { return true; }
  /// Does autograd follow what an operator gave, from that one on?
  virtual bool gives_followed(size_t) { return false; }
  /// `tensor` is part of the result, of an effect or of a frame, and is not an input: the index it gets among
  /// the program's outputs; -1 if the recorder does not know it (the observation then ends as not cacheable).
  /// Called once per tensor, when the region has ended.
  virtual int output(PyObject* tensor) = 0;
  /// Would `output` know it?
  virtual bool knows(PyObject* tensor) = 0;
  /// A Python instruction that may run operators begins. If the recorder wants the region to end because of
  /// one of them, that operator and everything since this call are not part of the region.
  virtual void instruction(const char* file, const char* function, int line) = 0;
  /// Asked after each native call: did an operator since `instruction` give tensor data to Python? Non-null:
  /// why.
  virtual const Reason* wants_end() = 0;
  /// May `wants_end` or `raised` have something to say? Nearly always nothing has happened that they could.
  bool has_news() const { return !news_ || *news_; }
  /// Called when an operator gives data to Python, while the instruction that leads to it is in progress.
  std::function<void()> on_escape;
  /// Do the data decide whether that operator raises? Then it cannot be run late.
  virtual bool end_may_raise() { return false; }
  /// The first operator of the region that raised, whoever caught it; null if none did.
  virtual const char* raised() { return nullptr; }
  /// How many references to it are the recorder's.
  virtual Py_ssize_t references_to(PyObject*) { return 0; }
  /// How often operators of the region wrote to its memory; -1: not known.
  virtual int64_t writes(PyObject* tensor) = 0;
  /// `tensor`, which the last operator made, shall count the writes to it by itself.
  virtual void own_version(PyObject*) {}
  /// `tensor` was given the data of another one, which the last operator made. False: not possible.
  virtual bool given_data(PyObject*, PyObject*) { return false; }
  /// Where a backward pass from `outputs` (a tuple of tensors) gives gradients, which is `asked` or, where
  /// that is empty, all leaves: a tuple of tensors, new. Null without an exception: it must not be part of
  /// the region.
  virtual PyObject* places_behind(PyObject*, PyObject*) { return nullptr; }
  /// What operators did since `instruction` is not part of the region, which goes on.
  virtual void take_back() = 0;
  /// An operator runs: Python code it is made of (torch.library.custom_op) is its own affair.
  virtual bool in_operator() const { return false; }
  /// Did an operator change what guards say of a tensor that it wrote to: sizes and strides (x.t_()), or
  /// whether it requires a gradient (buffer.add_(x))? The program repeats that; what was read is then not
  /// what it was.
  virtual bool changed_inputs() = 0;
  /// By slot of the tensors from outside: is its memory written to, is something that is given out part of
  /// it, or was it taken for another tensor that shows the same?
  virtual std::vector<bool> memory_matters(size_t slots) { return std::vector<bool>(slots, true); }
  /// Sizes that differ between calls (a slot, a bit for each dimension) of tensors nobody looked at: the run
  /// only hands them on.
  virtual std::vector<std::pair<int, uint64_t>> unread_sizes() { return {}; }
  /// Whether an operator was told where in a storage a view begins.
  virtual bool placed() = 0;
  /// What operators left that cannot be taken back; "": nothing. What they drew can be put back.
  virtual std::string trace() { return "an operator may have written something"; }
  /// Whether guards shall be checked as soon as they are made: a test of ourselves, which takes as long as
  /// the next call's first check.
  virtual bool proves_guards() const { return true; }
  /// Until it is called with false: what operators do belongs to nobody (see assume_constant_result). Returns
  /// what it was before.
  virtual bool pause(bool on) = 0;
  /// What `run` gives, so.
  template <class Run>
  auto unseen(const Run& run) {
    const bool before = pause(true);
    auto given = run();
    pause(before);
    return given;
  }
  /// The region is over: record no more. `before_instruction`: drop what was recorded since `instruction`.
  virtual void end_region(bool before_instruction) = 0;

 protected:
  /// Where the recorder keeps them, which is looked at for each native call. Null: nobody wants items lent,
  /// and there may be news at any time.
  bool* lends_items_ = nullptr;
  const bool* news_ = nullptr;
};

/// One line of Python, outermost frame first in RegionEnd::stack.
struct StackLine {
  std::string file, function;
  int line = 0;
  int column = -1, end_line = -1,
      end_column = -1;  ///< of the instruction, counted from 0 in bytes; -1: not known
};

struct RegionEnd {
  Reason reason;
  std::vector<StackLine> stack;
  bool is_error = false;  ///< error_on_graph_break(True) was in force
};
/// This thread's error_on_graph_break.
bool& breaks_are_errors();

enum class End : uint8_t {
  returned,  ///< the region is the whole call
  raised,    ///< the call raised; nothing to cache
  broke,     ///< the region ended inside; `recipe.frames` says where, later calls go on from there
};

struct Observation {
  End end = End::raised;
  std::unique_ptr<guard::Program> guards;
  Recipe recipe;
  std::vector<RegionEnd> breaks;  ///< why the region ended; later ones were run plainly
  WorldUndo undo;                 ///< of what the region wrote
  std::string unsound;            ///< not empty: must not be cached, and why
  bool retry = false;             ///< and the next recording will not come to that point
  /// The run raised after it had been told that it is being compiled. What it left behind; "": nothing.
  std::optional<std::string> trace;
  guard::ThreadState before;  ///< what it began in
  guard::ThreadState after;   ///< what the region left the thread in
  int autocast_levels = 0;    ///< contexts of autocast that it entered and did not leave
  SymbolTable number_sizes;   ///< of the guards' numbers, see World
  SymbolTable number_symbols;
  std::vector<std::pair<PyRef, int>> generators;  ///< from outside, and the register of their place
  std::vector<SizeFact> size_facts;  ///< what was taken for granted about sizes that differ between calls
  int64_t instructions = 0;          ///< and how many were run, the one that ended it included
  Place last;                        ///< where that one is to be found
  Py_ssize_t advanced = 0;           ///< how often an iterator that was found in the frames
  bool ended_in_its_loop = false;    ///< and the loop over it is not over where the region ended
  bool idle = false;                 ///< it ended because no operator had come for long
  bool cacheable() const { return end != End::raised && unsound.empty(); }
};

/// What a recorded run came to: the user gets it, whatever becomes of the recording.
struct Ran {
  PyObject* result = nullptr;          ///< new; null: an exception is set, or
  interp::Frame* suspended = nullptr;  ///< the region ended inside and the run stands after that instruction
};

/// What is_compiling() answers to what this thread runs in a recording and between regions.
bool& says_compiling();

/// Calls `callable` for real. Ends::current() are to be its own, as where a run goes on.
std::unique_ptr<Observation> observe_call(PyObject* callable, PyObject* const* args, size_t nargs,
                                          PyObject* kwnames, RecorderHooks& hooks, Ran& ran);

/// Goes on with a suspended run. The roots of the guards are roots_of(innermost).
std::unique_ptr<Observation> observe_frames(interp::Frame& innermost, RecorderHooks& hooks, Ran& ran);

/// What a slot of `object` holds; borrowed, may be null.
inline PyObject* member_of(PyObject* object, const PyMemberDescrObject* slot) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + slot->d_member->offset);
}

/// Objects of this type stand for the callable in their field at `target`: a recording goes on into it, so
/// that what was compiled apart becomes part of the whole. The field at `receiver` may hold the slot of those
/// it is called on where what stands for `self` is found.
void see_through(PyTypeObject* type, Py_ssize_t target, Py_ssize_t receiver);

/// Whether calls that only show something to the user (print, loggers) are delayed to the region's end.
bool& delays_calls();
/// Calls of `callable` only show something; `yes` false: not any more.
void show_with(PyObject* callable, bool yes);

/// What users say about a callable: "allow_in_graph", "constant" (assume_constant_result), "substitute"
/// (then `by` is called instead), "shows" (its calls may be delayed) or "shows not". -1 with an exception
/// set.
int mark_callable(PyObject* callable, const char* mark, PyObject* by);

/// Readies the tables; once, when the extension is loaded (after interp::init_calls). -1 with an exception
/// set.
int init_observe();

}  // namespace bolt::observe
