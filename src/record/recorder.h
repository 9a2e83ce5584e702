// record/recorder.h
// A real run -> Tape: sees every operator of the thread through one boxed fallback on a mode dispatch key.
//
// The key sits above autocast and autograd, so composite operators (linear, layer_norm, attention) arrive
// whole and ATen's own decompositions below are not seen. An operator autocast has a kernel for is let
// through to autocast with our key still on: the casts and the inner call it makes are what gets recorded, so
// nothing later knows about autocast. So is a composite operator that is made of such (einsum). The same
// holds for the transforms of torch.func.
//
// Which tensor of the tape an object of the run is: record/tensors.h.
//
// One recording per thread at a time; recordings on different threads do not meet.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/autocast.h"
#include "record/generators.h"
#include "record/parsed_floats.h"
#include "record/tape.h"
#include "record/tensors.h"
#include "support/reason.h"
#include "support/size_fact.h"

namespace bolt::record {

class Recorder {
 public:
  Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// While alive, operators of this thread are recorded.
  class Scope {
   public:
    explicit Scope(Recorder& recorder);
    ~Scope();

   private:
    Recorder* previous_;
    bool included_;
  };
  /// A Python instruction begins: the line operators are said to come from until the next one. The texts must
  /// live that long. Called for every instruction, so it only stores.
  void instruction(const char* file, const char* function, int line) {
    here_ = {file, function, line};
    mark_ = tape_.entries.size();
    escaped_.reset();
    lent_->facts.clear();
    raised_now_ = false;
  }
  /// Entries since `instruction` are taken back; more may follow.
  void take_back();
  /// The operator that, since `instruction`, handed tensor data (or sizes made of data) to Python; "" if
  /// none.
  const Reason* escaped() const;
  std::function<void()> on_escape;  ///< called when one does
  /// Do the data decide whether that one raises?
  bool escaped_raises() const { return escaped_raises_; }
  /// The first operator of the region that raised; "" if none. What raised for some values may not for
  /// others.
  const std::string& raised() const { return raised_; }
  /// An operator is running; what it calls is part of it.
  bool in_operator() const { return running_; }
  /// Whether an operator changed more of a tensor than its contents: sizes and strides of the one it was
  /// called on, or whether what it wrote to requires a gradient.
  bool changed_inputs() const { return changed_inputs_; }
  /// Whether an operator was told where in a storage a view begins (as_strided).
  bool placed() const { return placed_; }
  /// Tensors that were taken for another one, which shows the same memory, and for which.
  const std::vector<Tensors::Merged>& merged() const { return tensors_.merged(); }
  /// Whether torch.func transformed operators. Sizes that Python saw of its tensors have no expressions.
  bool transformed() const { return transformed_; }
  /// Until it is called with false: operators run unseen. Returns what it was before.
  bool pause(bool on) { return std::exchange(paused_, on); }
  /// Stops taking entries; operators run on unseen. `drop`: entries since `instruction` are taken back.
  void stop(bool drop);
  bool stopped() const { return stopped_; }
  /// True from when one first escaped, lent an item or raised, or the tape became very long.
  const bool& news() const { return news_; }
  bool is_very_long() const { return tape_.entries.size() >= kMostEntries; }
  /// Whether an operator ran since it was stopped.
  bool met_operator() const { return met_operator_; }
  bool* wakes = nullptr;  ///< set where one does

  Tape& tape() { return tape_; }
  /// Tape inputs in order, alive.
  const std::vector<at::Tensor>& inputs() const { return tensors_.inputs(); }
  /// The id of a tensor as it is now, or nullopt if no recorded operator touched it.
  std::optional<TensorId> find(const at::Tensor& t) const { return tensors_.find(t); }
  /// Its id; a tensor not seen before becomes an input.
  TensorId input_id(const at::Tensor& t) { return tensors_.input_id(t); }
  /// What the run drew from random generators is to come again.
  void put_back_draws() { drawn_from_.put_back(); }
  /// The operator that made `t`, which was the last, makes it with a version of its own.
  void own_version(const at::Tensor& t);
  /// `t` was given the data of `data`, which the last operator made. False: that is none that we know.
  bool given_data(const at::Tensor& t, const at::Tensor& data);
  /// How often recorded operators wrote to its memory; -1: not that kind of tensor.
  int64_t writes(const at::Tensor& t) const { return tensors_.writes(t); }
  /// Constants made inside the run from Python data (torch.tensor(...)): their contents when made. By input
  /// index.
  const std::unordered_map<int, at::Tensor>& constants() const { return constants_; }
  /// Why the tape cannot be compiled although it can be replayed ("" = it can).
  const std::string& obstacle() const { return tensors_.obstacle(); }

  /// Operators may be given torch.SymInts (record/symint.h).
  bool follows_sizes = false;
  /// Symbols of numbers that were taken out of a tensor: an argument is that tensor's element.
  std::unordered_map<Sym, TensorId> data;

  /// Floats that torch's argument parser takes out of the numbers that the call in progress is lent.
  ParsedFloats parsed;

  /// Scalars that torch's argument parser takes out of tensors (addcdiv_(value=tensor)) go to the operator as
  /// that tensor. Where the parser asks what one is, the region ends.
  bool lends_items = false;

  /// The region ends before operators on tensors of another kind (record/other_kinds.h). Otherwise a tape
  /// with them can only be replayed.
  bool ends_at_other_kinds = false;
  /// Whether who lowers the tape knows an operator as a whole: of others what they are made of is recorded
  /// (record/parts.cpp). Null: all stay whole.
  bool (*has_row)(const c10::OperatorHandle& op) = nullptr;
  /// Operators that find sizes out (nonzero, masks) do not end the region.
  bool goes_on_with_data_sizes = false;
  /// So do masks on a device where gradients are needed, in the hope that sizes do not matter
  /// (autograd/selected_rows.h).
  bool goes_on_with_selected_rows = false;
  bool has_data_sizes() const { return has_data_sizes_; }
  /// An int element of a tensor that nothing writes to any more, as an expression over a size that is data.
  /// Nothing: not possible.
  std::optional<Sym> size_from(const at::Tensor& numbers, int64_t element);
  /// The run goes on with `condition` being `value`, and where it is not an error is raised: the program
  /// checks it. `where` is the user's line. False: not possible.
  bool expect(const at::Tensor& condition, bool value, const std::string& where);

  static Recorder* current();
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
           torch::jit::Stack* stack);  // the fallback

 private:
  /// By argument.
  using Symbols = std::vector<std::vector<Sym>>;
  void call(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
            torch::jit::Stack* stack);
  bool asks_nothing(c10::DispatchKeySet keys) const;
  // parts.cpp
  bool falls_apart(const c10::OperatorHandle& op, const OperatorFacts& facts,
                   const torch::jit::Stack& stack) const;
  bool can_be_part(const OperatorFacts& facts, const torch::jit::Stack& stack) const;
  void run_parts(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack);
  bool is_filled(size_t maker) const;
  bool say_all(size_t first, size_t first_tensor, const torch::jit::Stack& stack, size_t returns) const;
  bool ends_at_result(const c10::OperatorHandle& op, const OperatorFacts& facts,
                      const torch::jit::Stack& stack);
  void add_whole(Entry entry, const torch::jit::Stack& stack);
  void run_asking(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);
  bool is_transformed(c10::DispatchKeySet keys) const;
  bool meets_other_kind(const c10::OperatorHandle& op, const OperatorFacts& facts,
                        const torch::jit::Stack& stack);
  [[gnu::cold]] void escape_from(const c10::OperatorHandle& op, const char* how, const char* kind);
  void ask_data(const c10::IValue& v);
  Symbols take_all_symbols(const c10::OperatorHandle& op, const OperatorFacts& facts,
                           torch::jit::Stack& stack);
  void add_entry(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack, Symbols symbols, bool finds_sizes);
  Entry begin_entry(const c10::OperatorHandle& op, const OperatorFacts& facts, const torch::jit::Stack& stack,
                    Symbols symbols);
  void note_kept_cast(const Entry& cast);
  void follow_kept_casts(const Entry& reader);
  void give_symbols(Entry& entry, Symbols symbols);
  torch::jit::Stack before_call(Entry& entry, const torch::jit::Stack& stack);
  void after_call(Entry& entry, const torch::jit::Stack& given);
  void note_constant(Entry& entry, const at::Tensor& fresh);
  void note_new_geometry(Entry& entry, const torch::jit::Stack& given);
  bool differentiates_given(const c10::OperatorHandle& op, const OperatorFacts& facts,
                            const torch::jit::Stack& stack) const;
  void escape_by_arguments(const c10::OperatorHandle& op, const OperatorFacts& facts,
                           const torch::jit::Stack& stack);
  [[gnu::cold]] void escape(const c10::OperatorHandle& op, const char* how);
  void note_met();
  void drop_entries(size_t from);
  void note_raised(const c10::OperatorHandle& op);
  void take(const c10::IValue& v, Use use, int entry, Arg& arg);
  void take_wrapped_number(const at::Tensor& t, Arg& arg);
  int line_id();
  // data_sizes.cpp
  bool can_find_sizes(const OperatorFacts& facts, const torch::jit::Stack& stack) const;
  bool can_find_sizes(const at::Tensor& t) const;
  bool can_select_rows(const at::Tensor& t) const;
  bool are_masks_constant(const OperatorFacts& facts, const torch::jit::Stack& stack) const;
  bool may_rest_on_data() const;
  void note_data_sizes(const Entry& entry);
  void expect_full_rank(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  bool is_constant(TensorId id) const;
  bool lend_item(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack);

  Tape tape_;
  Tensors tensors_{tape_};
  /// Texts by their addresses: they live as long as the recording.
  struct Line {
    const char *file = "", *function = "";
    int line = 0;
    bool operator==(const Line&) const = default;
  };
  Line here_;
  /// The lines of a loop come again: by the end of a line's number, the last that had it.
  struct Seen {
    Line line;
    int id = -1;  ///< in Tape::locs
  };
  std::array<Seen, 32> seen_;
  size_t mark_ = 0;
  std::optional<Reason> escaped_;
  std::string raised_;
  std::shared_ptr<SizeNotes> lent_ = std::make_shared<SizeNotes>();  ///< what was asked about lent items
  bool escaped_raises_ = false;
  bool raised_now_ = false;  ///< `raised_` since `instruction`
  bool changed_inputs_ = false;
  bool placed_ = false;
  bool has_data_sizes_ = false;
  struct SizeOfData {
    TensorId numbers;
    int64_t element;
    TensorId rows;
  };
  std::vector<SizeOfData> sizes_of_data_;
  bool transformed_ = false;
  std::optional<bool> grad_mode_;     ///< around an operator that autocast takes apart
  std::vector<TensorId> kept_casts_;  ///< that nobody has read who wants gradients
  size_t outer_levels_;               ///< of torch.func's transforms, when the recording began
  bool stopped_ = false, paused_ = false, met_operator_ = false, news_ = false;
  static constexpr size_t kMostEntries = 20000;
  bool running_ = false;
  bool* whole_ = nullptr;  ///< while parts are recorded: whether they do not say what the whole does
  bool* cast_ = nullptr;   ///< while an operator is tried out: whether autocast took one that it is made of
  GeneratorStates drawn_from_;  ///< before the first draw
  std::unordered_map<int, at::Tensor> constants_;
};

/// As text, one operator a line.
std::string print(const Tape& tape);

/// Calls every entry again: eager's computation on other inputs, differentiable. Gives the tensors asked for.
/// `value` gives the numbers among the arguments that are expressions; without it they are what was recorded.
/// `before` is told of each entry, by its index, and what it is called with.
std::vector<at::Tensor> replay(const Tape& tape, const std::vector<at::Tensor>& inputs,
                               const std::vector<TensorId>& wanted,
                               const std::function<int64_t(Sym)>& value = nullptr,
                               const std::function<void(size_t, const torch::jit::Stack&)>& before = nullptr,
                               CallGenerators generators = {});

/// What tensor.data has over detach(): autograd does not see what is written to it.
void count_writes_apart(const at::Tensor& t);

}  // namespace bolt::record
