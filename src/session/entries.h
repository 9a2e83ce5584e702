// session/entries.h
// What a compiled callable remembers: the ways through it that were recorded, by the place they start at.
//
//   Site        a place where a region may start: the call itself, or two frames deep in a loop
//   CallEntry   one recorded way on from there: guards, program, and what comes out of it (a result, or the
//               frames of a run that stands at the instruction which ended the region)
//
// A call looks for an entry of its first site, runs it, and if it ended inside, runs that one instruction in
// the interpreter and looks among the entries of the site it has got to, and so on until there is a result.
// Where no entry fits, the run is recorded from there.
#pragma once

#include <Python.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compile.h"
#include "guard/program.h"
#include "observe/ends/frames.h"
#include "observe/ends/learned_ends.h"
#include "observe/observation.h"
#include "observe/rebuild/recipe.h"
#include "record/text.h"
#include "run/recorded.h"
#include "run/runnable.h"

namespace bolt::session {

/// Which sizes are recorded as symbols: those that changed, all of arguments, none.
enum class Dynamic : int8_t { changed, always, never };

struct Options {
  bool fullgraph = false;
  bool background = false;
  Py_ssize_t recompile_limit = 0;  ///< 0: that of torchbolt.config
  std::optional<bool> dynamic;     ///< what compile() was given; null: torchbolt.config says
  std::string name;                ///< for messages; "": the target's own
  run::Road road = run::Road::compile;
  PyRef backend;                        ///< of torchbolt/backends.py, or null: ours
  PyRef guard_filter;                   ///< of torchbolt/guards.py, or null
  bool launch_at_once = false;          ///< by CUDA graphs, where that can be done
  std::optional<bool> measure;          ///< programs beside eager; null: TORCHBOLT_MEASURE says
  bool tune = false;                    ///< all that can be done in several ways is measured
  std::string trace;                    ///< the folder that traces of regions go to; "": there are none
  double memory_budget;                 ///< as in session/settings.h, which holds where this is not a number
  std::optional<bool> rounds_as_eager;  ///< numerics="eager"; null: session/settings.h says
};

/// A call was recorded again: the guard that failed, with the value it expected and the one it met.
struct Recompile {
  std::string where, guard;
};

/// Counts up: what was recorded first comes first in reports.
int64_t next_serial();

/// Where regions end that would go on otherwise, since they could not be compiled so.
enum class EndsEarlier : uint8_t { no, at_data_sizes, at_selected_rows, before_backward };

/// What a compilation came to.
struct Built {
  std::shared_ptr<run::Runnable> region;  ///< null: it failed
  std::string failure;                    ///< why
  EndsEarlier ends = EndsEarlier::no;     ///< that is why
  bool is_users = false;                  ///< something that the user has set is why
};

/// A compilation in the background. Its thread, which needs no GIL, leaves here what it came to.
struct Pending {
  explicit Pending(bool follows) : varies(follows) {}
  const bool varies;  ///< the region may fit other sizes and numbers, too
  std::mutex mutex;
  std::optional<Built> built;
};

/// What the compiler was told beside the tape: with it the region can be compiled again, in another process
/// (session/saved.h).
struct CompiledFrom {
  record::TapeContext context;
  std::string text;  ///< of the tape, where compiling writes into it; "": that of the region is as it was
  SymbolTable number_sizes;
  std::set<std::string> not_guessed;
  std::string obstacle;
};

struct CallEntry {
  int64_t serial = next_serial();
  std::unique_ptr<guard::Program> guards;
  observe::Recipe recipe;
  guard::ThreadState after;  ///< what it leaves the thread in
  int autocast_levels = 0;   ///< contexts of autocast that it enters and does not leave
  bool changes_thread = false;
  int64_t instructions = 0;      ///< of a recipe with frames: how many the interpreter would run to get there
  bool has_other_sizes = false;  ///< than each of its site that was made before
  bool idle = false;             ///< and many of them without an operator, the last ones
  std::shared_ptr<run::Runnable> region;  ///< null while it is being compiled in the background
  std::shared_ptr<Pending> pending;       ///< of that compilation
  /// What is compiled when a call first fits. Null: it is compiled, or being compiled.
  std::unique_ptr<run::Recorded> waiting;
  std::shared_ptr<run::Runnable> tried;  ///< the trial that `region` came of: calls of it may be under way
  size_t nargs = 0;
  PyRef kwnames;
  /// Per tape input: the slot among the guarded tensors; -1: a constant.
  std::vector<int> tape_input_slot;
  /// Generators that the tape names, and the registers in which a call finds those in their place.
  std::vector<std::pair<PyRef, int>> generators;
  std::vector<observe::RegionEnd> breaks;
  /// Goes up where the sizes that a run found were not what it was compiled for, and down where they were.
  int unfit = 0;
  /// Dimensions that the user wants to be symbols, by tensor slot.
  std::vector<std::pair<int, uint64_t>> marked;
  CompiledFrom from;
};

struct Site {
  std::vector<std::shared_ptr<CallEntry>> entries;  ///< last hit first
  guard::Differences changed;                       ///< what differed between recordings
  int hopeless = 0;                                 ///< recordings that could not be kept
  /// From here the run comes to a region's end after so many instructions, without an operator on the way (or
  /// to its own end: PlainSteps::kToTheEnd): nothing to compile, and guards would only tie the run to values
  /// that do not matter. 0: not so. Where entries were made of other runs, they come first.
  int64_t plain_instructions = 0;
  observe::Place plain_end;                      ///< where the last of them is
  bool never_plain = false;                      ///< so many instructions came to another one once
  std::vector<observe::RegionEnd> plain_breaks;  ///< why it ends there
  int64_t plain_serial = 0;
  bool warned = false;
  int misses = 0;  ///< times in a row that no entry fitted and none could be added
  /// Entries that went on with a loop which was under way: each holds for one place in it.
  int advanced = 0;
  /// Such a loop came to a region's end in its next turn: what is between two turns' ends is the same each
  /// time, and one entry that leaves the iterator alone holds for all.
  bool ends_each_turn = false;
  bool may_advance() const { return advanced < 4 && !ends_each_turn; }
};

struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* target;
  /// The slot where a compiled module keeps the module it stands for, which is what the target is given as
  /// self; null: it is given what it was called on.
  PyMemberDescrObject* receiver;
  PyObject* weakrefs;
  PyObject* asked;  ///< what it was made from, for torchbolt/api.py
  PyObject* dict;   ///< the user's attributes: of a function, at first, those it had; may be null
  Options* options;
  struct State {
    Site start;
    std::map<observe::Place, std::shared_ptr<Site>> sites;
    std::shared_ptr<observe::Ends> learned;  ///< where regions end, which recordings found out
    guard::Found found;  ///< room for what the next call's guards find; a call takes it along
    bool warned_failure = false;
    /// EndsEarlier
    bool ends_at_data_sizes = false, ends_at_selected_rows = false, ends_before_backward = false;
    std::set<std::string> not_guessed;  ///< operators that gave other sizes than were guessed
    bool was_called = false;            ///< under eager_then_compile
    bool says_compiling = true;         ///< what the target is told when it asks
    std::vector<Recompile> recompiles;  ///< the last ones
    std::vector<std::pair<Reason, int64_t>> eager_calls;  ///< given to eager: why, and how often
    std::vector<observe::RegionEnd>
        ends;  ///< of regions, in order; those of recordings that were not kept too
  };
  State* state;
};

/// How a region, or a recorded run, came out: one of the two, or neither (an exception is set).
struct Outcome {
  PyObject* result = nullptr;       ///< new
  interp::Frame* frames = nullptr;  ///< a suspended run, owned
  bool computed = false;            ///< operators ran on the way
  bool idle = false;                ///< and then none for long
};

/// What guards are checked against: the target and the arguments of a call, or what lies in frames.
struct Given {
  PyObject* const* roots;
  size_t count;
  size_t nargs = 0;
  PyObject* kwnames = nullptr;
  PyObject* const* args() const { return roots + 1; }  ///< of a call
};

/// As many arguments, with the same keywords.
bool has_form_of(const Given& given, const CallEntry& entry);

/// Does it run operators? One that is still being compiled does.
bool computes(const CallEntry& entry);

/// How many entries of `site` do.
int64_t count_computing(const Site& site);

}  // namespace bolt::session
