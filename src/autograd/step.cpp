// autograd/step.cpp
#include "autograd/step.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <new>
#include <optional>
#include <unordered_set>

#include "autograd/gradients.h"
#include "autograd/joint.h"
#include "autograd/numbers_in_tensors.h"
#include "autograd/selected_rows.h"
#include "autograd/walk.h"
#include "autograd/writer.h"
#include "autograd/written_apart.h"
#include "record/replay.h"
#include "record/text.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using torch::autograd::Edge;
using Stack = torch::jit::Stack;
namespace variables = torch::autograd::impl;

class StepMaking {
 public:
  StepMaking(const Tape& run, const std::vector<TensorId>& wanted, const std::set<int>& own)
      : run_(run),
        wanted_(wanted),
        own_(own),
        untracked_(run.tensors.size()),
        writer_(run, joint_, nullptr),
        rows_(run, wanted) {}

  [[noreturn]] void fail(const std::string& why) const {
    if (at_) throw NotFollowed(*at_, why);
    throw_unsupported(why);
  }

  StepTape make(const Budget& budget) {
    demand_histories_kept();
    check_inference(run_, wanted_);
    const Listening listening(writer_);
    const Passes passes([this](const torch::autograd::Node& node) { writer_.go_on_at(loc_of(node)); });
    make_inputs();
    find_later_histories();
    const std::vector<at::Tensor> results = replay();
    StepTape step;
    for (size_t i = 0; i < results.size(); ++i) {
      joint_.outputs.push_back(writer_.id_of(results[i]));
      step.leaves_made.push_back(is_leaf_made(results[i]));
      step.used_up.push_back(has_history(i, results[i]) && !step.leaves_made[i]);
      if (step.used_up[i] && !passes.used_up(results[i], results))
        throw_unsupported("a result that can be differentiated, beside a backward pass");
    }
    writer_.finish();
    write_apart(joint_.tape, joint_.sizes);
    step.leaves = leaves();
    step.wanted = joint_.outputs;
    step.tape = std::move(joint_.tape);
    step.memory = spare_memory(step.tape, step.wanted, passes_, budget);
    return step;
  }

 private:
  /// The history that a write gives to what the caller has is for the caller to see, and lies outside of the
  /// program.
  void demand_histories_kept() const {
    std::set<int> given;  // storages
    for (size_t i = 0; i < run_.inputs.size(); ++i)
      if (!own_.contains(static_cast<int>(i))) given.insert(storage(run_.inputs[i]));
    for (const record::Entry& entry : run_.entries) {
      if (!record::writes_gradients(run_, entry) || record::counts_no_write(entry)) continue;
      for (int a : record::written_arguments(entry))
        for (TensorId id : entry.args[a].tensors)
          if (id >= 0 && given.contains(storage(id)))
            throw_unsupported("an input that is given a history by a write, beside a backward pass");
    }
  }
  int storage(TensorId id) const { return run_.tensors[id].storage; }

  /// Of what autograd does not follow yet: `out = torch.empty(n)`, whose rows are written.
  void find_later_histories() {
    for (const Entry& entry : run_.entries)
      if (entry.grad_mode && record::writes_gradients(run_, entry))
        record::for_each_written(entry, [&](TensorId id) { given_later_.insert(storage(id)); });
  }
  /// What is written through a view reaches what it is a view of only if autograd made it one.
  bool shows_what_is_given_a_history(const Entry& entry) const {
    bool shows = false;
    for_each_tensor(entry.results, [&](TensorId result) {
      if (result < 0 || !given_later_.contains(storage(result))) return;
      for_each_tensor(entry.args, [&](TensorId id) {
        shows |= id >= 0 && id != result && storage(id) == storage(result);
      });
    });
    return shows;
  }

  bool is_input(TensorId id) const { return run_.tensors[id].input >= 0; }
  bool is_callers(TensorId id) const { return is_input(id) && !own_.contains(run_.tensors[id].input); }
  bool has_history(size_t i, const at::Tensor& result) const {
    return result.defined() && result.requires_grad() && !is_callers(wanted_[i]);
  }

  /// A leaf that the run made itself is for a pass what an input is.
  bool is_leaf_made(const at::Tensor& t) const {
    return t.defined() && t.requires_grad() &&
           std::ranges::find(leaves_made_, variables::gradient_edge(t).function) != leaves_made_.end();
  }
  void make_leaf(const at::Tensor& t) {
    if (t.requires_grad()) return;
    leaves_made_.push_back(begin_history(t));
  }

  NodePtr begin_history(const at::Tensor& t) {
    const auto node = make_node<InputNode>();
    variables::set_gradient_edge(t, Edge(node, node->add_input_metadata(t)));
    nodes_.push_back(node);
    return node;
  }

  void make_inputs() {
    for (TensorId id : run_.inputs) {
      at::Tensor& fake = fakes_.emplace_back(writer_.input(id));
      if (run_.tensors[id].requires_grad) begin_history(fake);
    }
  }

  std::vector<at::Tensor> replay() {
    record::ReplayOptions options;
    options.number_out_of = [&](const at::Tensor& from, const Arg& arg) { return numbers_.take(from, arg); };
    options.before = [&](size_t i, const Stack& stack) {
      first_numbers_.push_back(at::sequence_number::peek());
      const bool is_pass = is_gradients(run_.entries[i]);
      if (is_pass) begin_pass(run_.entries[i]);
      at_ = is_pass ? std::nullopt : std::optional(i);
      writer_.begin(i);
      for (size_t a = 0; a < run_.entries[i].args.size(); ++a)
        if (const Arg& arg = run_.entries[i].args[a]; is_operand_that_differs(arg))
          writer_.follow_number(stack[a].toTensor(), arg);
    };
    options.instead = [&](size_t i, Stack& stack) {
      copied_ = false;
      if (rows_.takes(i)) return writer_.go_on_at(run_.entries[i].loc), rows_.call(i, stack), true;
      copied_ = !is_followed(run_.entries[i], stack);
      if (copied_) {
        copy(i, stack);
        if (record::makes_leaf(run_.entries[i])) make_leaf(stack[0].toTensor());
        return true;
      }
      const bool rests = std::ranges::any_of(run_.entries[i].args, is_number_of_tensor);
      if (!rests) return writer_.call_by_formula(run_.entries[i], stack);
      writer_.go_on_at(run_.entries[i].loc);
      if (call_with_tensors(run_.entries[i], numbers_, stack)) return true;
      writer_.refuse("gradients that rest on a number out of a tensor");
    };
    options.after = [&](size_t i, const Stack& results) {
      if (!copied_ && !rows_.gives_rows(i)) writer_.end(i, results);
      if (is_gradients(run_.entries[i])) passes_.back().end = joint_.tape.entries.size();
      at_.reset();
    };
    return record::replay_watched(run_, fakes_, wanted_, std::move(options));
  }

  void begin_pass(const Entry& entry) {
    BackwardPass& pass = passes_.emplace_back();
    pass.begin = joint_.tape.entries.size();
    pass.leaves.assign(places_of(entry).begin(), places_of(entry).end());
    pass.gradients.assign(entry.results[0].tensors.begin(), entry.results[0].tensors.end());
  }

  /// Does autograd follow it, or is it a backward pass?
  bool is_followed(const Entry& entry, const Stack& stack) {
    if (is_gradients(entry)) return true;
    if (!entry.grad_mode) return false;
    bool any = false, computes = false;
    for (size_t i = 0; i < entry.args.size(); ++i) {
      const Arg& arg = entry.args[i];
      computes |=
          record::differs_between_calls(arg) && !is_operand_that_differs(arg) && !is_number_of_tensor(arg);
      for (TensorId id : arg.tensors)
        if (id >= 0 && untracked_[id] && !is_given_a_history(entry, i))
          writer_.refuse("something made of a parameter where gradients were not followed");
    }
    for (const c10::IValue& v : stack) any |= holds_followed(v);
    if (any && computes) writer_.refuse("gradients that rest on a number that differs between calls");
    return any || shows_what_is_given_a_history(entry);
  }

  /// What a function of the user's gives and keeps (`x.view_as(x)`, of a gradient that is reversed) was made
  /// without gradients, and its node is all the history that it has.
  static bool is_given_a_history(const Entry& entry, size_t argument) {
    const bool is_function = entry.op.operator_name().name == "torchbolt::function";
    return is_function && (argument == 2 || argument == 3);
  }

  /// A view of a parameter says that it requires a gradient, also where none is followed.
  void copy(size_t i, Stack& stack) {
    const Entry& entry = run_.entries[i];
    writer_.copy(stack);
    for_each_tensor(entry.results, [&](TensorId id) {
      const record::TensorInfo& info = run_.tensors[id];
      if (!is_input(id) && info.producer == static_cast<int>(i)) untracked_[id] = info.requires_grad;
    });
  }

  /// The line of the entry that the node was made for.
  int loc_of(const torch::autograd::Node& node) const {
    const auto after = std::ranges::upper_bound(first_numbers_, node.sequence_nr());
    const auto entry = std::max<std::ptrdiff_t>(after - first_numbers_.begin(), 1) - 1;
    return run_.entries[entry].loc;
  }

  std::vector<size_t> leaves() const {
    std::vector<bool> is_leaf(run_.inputs.size());
    for (const Entry& entry : run_.entries)
      if (is_gradients(entry))
        for (TensorId id : places_of(entry))
          if (is_callers(id)) is_leaf[run_.tensors[id].input] = true;
    std::vector<size_t> found;
    for (size_t i = 0; i < is_leaf.size(); ++i)
      if (is_leaf[i]) found.push_back(i);
    return found;
  }

  const Tape& run_;
  const std::vector<TensorId>& wanted_;
  const std::set<int>& own_;
  Joint joint_;
  std::vector<bool> untracked_;  ///< by tensor of the run
  std::set<int> given_later_;    ///< storages that writes give a history
  bool copied_ = false;          ///< the entry in progress
  Writer writer_;
  SelectedRows rows_;
  NumbersTaken numbers_;
  std::vector<at::Tensor> fakes_;        ///< of the inputs
  std::vector<uint64_t> first_numbers_;  ///< by entry: the next number that autograd would have given a node
  std::vector<NodePtr> nodes_, leaves_made_;
  std::vector<BackwardPass> passes_;
  std::optional<size_t> at_;  ///< the operator, no backward pass, that is being replayed
};

}  // namespace

StepTape make_step(const Tape& run, const std::vector<TensorId>& wanted, const Budget& budget,
                   const std::set<int>& own) {
  if (torch::autograd::get_current_graph_task_id() != -1)
    throw_unsupported("a backward pass within a backward pass");
  StepMaking making(run, wanted, own);
  try {
    return making.make(budget);
  } catch (const Unsupported& error) {
    making.fail(error.what());
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    making.fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    making.fail(error.what());
  }
}

std::string print(const StepTape& step) {
  std::string text;
  for (const auto& [here, eager] : step.memory)
    text += detail::concat("; a backward pass keeps ", here.tensors, " tensors, ", here.bytes,
                           " bytes beside inputs (eager ", eager.bytes, "); peak ", here.peak,
                           " bytes (eager ", eager.peak, ")\n");
  return text + record::print(step.tape, {});
}

}  // namespace bolt::autograd
