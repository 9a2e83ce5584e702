// run/attempt.h
// A region that fails leaves no trace: the call is given to eager as if it had not begun. What raises, raises
// at the user's line, after what the program did before it, and the user's `except` and `finally` see it.
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/gil.h"
#include "record/communications.h"
#include "record/generators.h"
#include "record/tape.h"
#include "support/error.h"
#include "support/reason.h"
#include "support/size_fact.h"

namespace bolt::run {

/// Thrown by Runnable::run when an operator raised, a kernel met an index out of range, or an operator that
/// the recorder took for one whose sizes follow from those of its operands gave others. Nothing that the
/// caller can see has been written, and the random numbers that were drawn are to come. No std::exception, so
/// that torch's HANDLE_TH_ERRORS lets it through.
struct RunEagerly {
  Reason why;
  bool of_data = false;      ///< what was taken for granted about data: sizes, or that a check holds
  std::string guessed = {};  ///< the operator that gave other sizes than it was thought to give
  /// There was no memory for it: what raised. Who knows that eager needs more raises this instead.
  std::exception_ptr no_memory = nullptr;
};

/// `finder` has found sizes of which this does not hold. Without the sizes: calls that fail alike are counted
/// as one.
inline RunEagerly unfit(const std::string& finder, const SizeFact& fact) {
  const std::string where = fact.where.empty() ? "" : " (" + fact.where + ")";
  return {{Why::data_unfit, finder, str(fact) + where}, true};
}

/// What has spoken to other processes has begun for them: there is no second call, and what failed is raised.
void check_nobody_was_told(const record::Communications& since, const RunEagerly& why);

/// What an attempt cannot do without leaving a trace: which generators draw numbers.
class Attempts {
 public:
  explicit Attempts(const record::Tape& tape);

  /// Runs `run`, which is given these generators. `take_back` is called when it failed: false where the
  /// failure must stay the caller's. What is no error of the program's (Ctrl-C in an operator of Python's)
  /// goes through, and leaves no trace either.
  template <class Run, class TakeBack>
  auto operator()(const record::CallGenerators& generators, const Run& run, const TakeBack& take_back) const {
    record::GeneratorStates drawn = states(generators);
    const record::Communications told;
    try {
      return run();
    } catch (const RunEagerly&) {
      drawn.put_back();
      throw;
    } catch (const Error&) {
      throw;  // a fault of ours
    } catch (const abi::__forced_unwind&) {
      wait_for_end_of_process();  // an operator of Python's asked for a lock that there is none of any more
    } catch (...) {
      if (told.any()) throw;
      std::optional<RunEagerly> why = reason();
      if (!take_back()) throw;
      drawn.put_back();
      if (!why) throw;
      throw RunEagerly{std::move(*why)};
    }
  }

  /// Of all that draw, now.
  record::GeneratorStates states(const record::CallGenerators& generators) const;

 private:
  /// Of the exception being handled. None: it is no error of the program's, such as the user's Ctrl-C.
  static std::optional<RunEagerly> reason();

  std::vector<c10::Device> drawn_from_;    ///< whose default generators
  std::vector<at::Generator> generators_;  ///< others, from outside, as the tape names them
};

/// What a replay writes that its caller can see: which entries, and to which inputs.
struct VisibleWrites {
  /// `own`: inputs, by their index, that are none of the caller's.
  explicit VisibleWrites(const record::Tape& tape, const std::unordered_map<int, at::Tensor>& own = {});
  struct Entry {
    size_t index;
    std::vector<int> arguments;  ///< that it writes
    bool geometry;               ///< sizes and strides (x.t_()), not the contents
  };
  std::vector<Entry> entries;
  std::vector<size_t> inputs;  ///< of the tape: all that share memory with what is written
  /// By those: do the wanted tensors rest on what was there before? Not on statistics that normalisations
  /// only count in training, or on a counter that nothing else reads.
  std::vector<bool> are_read(const record::Tape& tape, const std::vector<record::TensorId>& wanted) const;
};

/// Versions of tensors, and what autograd knows of them: as they were.
class Histories {
 public:
  Histories();
  ~Histories();
  /// Of what it is a view of, too.
  void keep(const at::Tensor& tensor);
  void put_back() const;
  void forget();

 private:
  struct History;
  std::vector<History> kept_;
};

/// Takes a replay's visible writes back: contents, versions and what autograd knows of the tensors. What is
/// kept for that is as large as what was written before the last entry that may raise.
class Undo {
 public:
  /// `certain_from`: the entry from which on none raises but for want of memory (lower/certain_calls.h).
  Undo(const VisibleWrites& writes, const std::vector<at::Tensor>& inputs, size_t certain_from);
  ~Undo();
  Undo(const Undo&) = delete;
  /// Entry `index` is about to be called with these arguments. In the order of the tape.
  void before(size_t index, const torch::jit::Stack& arguments);
  /// False, and nothing is taken back, where something was written that is not kept.
  bool take_back();

 private:
  struct Contents;

  const VisibleWrites& writes_;
  const std::vector<at::Tensor>& inputs_;
  const size_t certain_from_;
  size_t next_ = 0;
  bool is_final_ = false;
  std::vector<Contents> contents_;
  Histories histories_;
};

/// False where the user's Python is called for each tensor that autograd saves: it has seen some.
bool saves_unseen();

}  // namespace bolt::run
