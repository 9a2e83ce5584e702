// autograd/joint.cpp
#include "autograd/joint.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <future>
#include <new>
#include <optional>
#include <string_view>

#include "autograd/copied_results.h"
#include "autograd/follow.h"
#include "autograd/numbers_in_tensors.h"
#include "autograd/selected_rows.h"
#include "autograd/trial.h"
#include "autograd/walk.h"
#include "autograd/writer.h"
#include "autograd/written_apart.h"
#include "python/gil.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "record/text.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Tape;
using record::TensorId;
using torch::autograd::Edge;
namespace variables = torch::autograd::impl;

class Making {
 public:
  Making(const Asked& asked, Joint& joint, Trial* trial)
      : run_(trial ? trial->run : asked.run),
        wanted_(asked.wanted),
        parts_(asked.parts),
        own_(asked.own),
        inner_(asked.inner),
        joint_(joint),
        trial_(trial),
        writer_(run_, joint, trial),
        rows_(run_, wanted_) {}

  void make() {
    try {
      make_both_directions();
    } catch (const c10::Error& error) {
      if (std::string_view(error.what()).find("data is not allocated") == std::string_view::npos) throw;
      writer_.refuse("an operator that reads its tensors' data by itself");
    }
  }

  /// Whose entry or node it is that is being called.
  std::optional<size_t> at() const { return at_; }

 private:
  using InputPtr = decltype(make_node<InputNode>());

  void make_both_directions() {
    check_inference(run_, wanted_);
    const Listening listening(writer_);
    make_inputs();
    const std::vector<at::Tensor> results = replay();
    find_rewritten();
    joint_.backward = joint_.tape.entries.size();
    walk_back(results);
    for (const at::Tensor& t : results) joint_.outputs.push_back(writer_.id_of(t));
    for (const auto& node : nodes_) {
      joint_.gradients.push_back(node ? writer_.id_of(node->gradient) : -1);
      joint_.comes_from.push_back(node ? node->roots : std::vector<bool>());
    }
    // Of leaves of its own alone, what comes out has a history yet, which a node without inputs would not be.
    const bool reaches_any = std::ranges::any_of(joint_.gradients, [](TensorId id) { return id >= 0; });
    if (!joint_.tangent_of.empty() && !reaches_any)
      throw_unsupported("results whose gradients lead to nothing from outside");
    writer_.finish();
    copy_results(joint_);
    write_apart(joint_.tape, joint_.sizes);
  }

  void make_inputs() {
    for (TensorId id : run_.inputs) {
      at::Tensor& fake = fakes_.emplace_back(writer_.input(id));
      auto& node = nodes_.emplace_back();
      if (!run_.tensors[id].requires_grad) continue;
      node = make_node<InputNode>();
      // No leaf: the run may have written to an input that is none.
      variables::set_gradient_edge(fake, Edge(node, node->add_input_metadata(fake)));
    }
  }

  std::vector<at::Tensor> replay() {
    record::ReplayOptions options;
    options.number_out_of = [&](const at::Tensor& from, const record::Arg& arg) {
      return numbers_.take(from, arg);
    };
    options.before = [&](size_t i, const torch::jit::Stack& stack) {
      at_ = i;
      first_numbers_.push_back(at::sequence_number::peek());
      writer_.begin(i);
      for (size_t a = 0; a < stack.size(); ++a)
        if (const record::Arg& arg = run_.entries[i].args[a];
            is_operand_that_differs(arg) && !arg.tensors.empty())
          writer_.follow_number(stack[a].toTensor(), arg);
    };
    options.instead = [&](size_t i, torch::jit::Stack& stack) {
      const record::Entry& entry = run_.entries[i];
      if (std::ranges::any_of(entry.args, is_number_of_tensor)) {
        const bool followed = entry.grad_mode && std::ranges::any_of(stack, holds_followed);
        if (!followed) return writer_.call(entry.op, stack), true;
        writer_.go_on_at(entry.loc);
        if (call_with_tensors(entry, numbers_, stack)) return true;
        writer_.refuse("gradients that rest on a number out of a tensor");
      }
      if (rows_.takes(i)) return writer_.go_on_at(entry.loc), rows_.call(i, stack), true;
      if (computes_by_itself(entry, stack)) return writer_.call(entry.op, stack), true;
      return writer_.call_by_formula(entry, stack);
    };
    options.after = [&](size_t i, const torch::jit::Stack& results) {
      at_.reset();
      if (!rows_.gives_rows(i)) writer_.end(i, results);
    };
    if (trial_) options.value = [&](Sym number) { return trial_->value_of(number); };
    return record::replay_watched(run_, fakes_, wanted_, std::move(options));
  }

  /// Composite operators of ATen's that read memory themselves where nobody differentiates their argument: a
  /// kernel of their own, or a look at the data. Entries of the tape can be them as well as what they are
  /// made of.
  static bool computes_by_itself(const record::Entry& entry, const torch::jit::Stack& stack) {
    static constexpr std::string_view kNames[] = {"aten::max_pool1d", "aten::one_hot", "aten::quantile",
                                                  "aten::nanquantile"};
    if (std::ranges::find(kNames, entry.op.operator_name().name) == std::end(kNames)) return false;
    return !entry.grad_mode || !stack[0].toTensor().requires_grad();
  }

  bool is_own(size_t input) const { return own_.contains(static_cast<int>(input)); }

  /// What an input is afterwards is for the caller to see, and with it where its gradient leads.
  void find_rewritten() {
    for (size_t i = 0; i < fakes_.size(); ++i) {
      const bool kept = nodes_[i] ? variables::gradient_edge(fakes_[i]).function == NodePtr(nodes_[i])
                                  : !fakes_[i].requires_grad();
      if (kept || is_own(i)) continue;
      if (!fakes_[i].requires_grad()) throw_unsupported("an input that is parted from its history");
      if (is_turned(i)) throw_unsupported("an input that is turned with its history");
      joint_.rewritten.push_back(i);
    }
  }

  /// By t_() and the like: its gradient has other sizes from then on, which its new node is not told of.
  bool is_turned(size_t input) const {
    return std::ranges::any_of(run_.entries, [&](const record::Entry& entry) {
      return entry.facts->turns && entry.args[0].tensors[0] == run_.inputs[input];
    });
  }

  void walk_back(const std::vector<at::Tensor>& results) {
    std::vector<Root> roots;
    joint_.tangents = joint_.tape.inputs.size();
    for (size_t i = 0; i < results.size(); ++i) {
      const bool follows = results[i].defined() && results[i].requires_grad();
      joint_.leaves.push_back(follows && results[i].is_leaf());
      joint_.differentiable.push_back(follows && !joint_.leaves[i]);
    }
    size_t inner = 0;
    for (const at::Tensor& of : differentiated(results)) {
      const TensorId id = writer_.id_of(of);
      if (std::ranges::find(joint_.tangent_of, id) != joint_.tangent_of.end()) continue;
      joint_.tangent_of.push_back(id);
      roots.push_back({variables::gradient_edge(of), writer_.tangent(of), is_inner(of, results)});
      inner += roots.back().is_inner;
    }
    if (inner < count_inner())
      throw_unsupported("a result that others are made of, and that is seen as a part of another");
    for (size_t input : joint_.rewritten) {
      joint_.tangent_of.push_back(run_.inputs[input]);
      roots.push_back({variables::gradient_edge(fakes_[input]), writer_.tangent(fakes_[input])});
    }
    walk(
        roots,
        [&](const torch::autograd::Node& node) {
          at_ = entry_of(node);
          writer_.go_on_at(at_ ? run_.entries[*at_].loc : -1);
        },
        [&](const at::Tensor& leaf) { return is_hidden(leaf); },
        [&](size_t root, const at::Tensor& through, const at::Tensor& whole, const std::vector<bool>& from) {
          if (through.defined())
            joint_.inner.push_back({root, writer_.id_of(through), writer_.id_of(whole), from});
        });
    at_.reset();
    std::ranges::sort(joint_.inner, {}, &Inner::tangent);
  }

  /// It has a tangent of its own, then, and not that of what it is a part of.
  bool is_inner(const at::Tensor& of, const std::vector<at::Tensor>& results) const {
    for (size_t i = 0; i < results.size(); ++i)
      if (inner_.contains(wanted_[i]) && results[i].is_same(of)) return true;
    return false;
  }

  size_t count_inner() const {
    std::set<TensorId> all;
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (joint_.differentiable[i] && inner_.contains(wanted_[i])) all.insert(wanted_[i]);
    return all.size();
  }

  /// A leaf that the run made and hands out in no way (`x = pixels[:, None]; x.requires_grad = True`, which
  /// some models do for the sake of checkpoints): nobody can ask for its gradient.
  bool is_hidden(const at::Tensor& leaf) {
    const int memory = joint_.tape.tensors[writer_.id_of(leaf)].storage;
    return std::ranges::none_of(
        wanted_, [&](TensorId id) { return id >= 0 && joint_.tape.tensors[id].storage == memory; });
  }

  /// What is given a tangent, in the order in which autograd made the nodes: a pass comes to results in the
  /// opposite one.
  std::vector<at::Tensor> differentiated(const std::vector<at::Tensor>& results) const {
    std::vector<at::Tensor> all;
    for (size_t i = 0; i < results.size(); ++i)
      if (joint_.differentiable[i])
        if (auto of = differentiated_for(i, results[i]); of && of->requires_grad())
          all.push_back(*std::move(of));
    std::ranges::stable_sort(
        all, {}, [](const at::Tensor& t) { return variables::gradient_edge(t).function->sequence_nr(); });
    return all;
  }

  /// What is given a tangent for a wanted tensor; nothing: it is a view of an input. What shows an input
  /// beside its history (detach()), and was written to, has one of its own.
  std::optional<at::Tensor> differentiated_for(size_t i, const at::Tensor& result) const {
    auto storage = [&](TensorId id) { return run_.tensors[id].storage; };
    const int here = storage(wanted_[i]);
    bool shows_input = false;
    for (size_t input = 0; input < run_.inputs.size(); ++input) {
      if (storage(run_.inputs[input]) != here || is_own(input)) continue;
      const at::TensorBase& whole = result.is_view() ? result._base() : result;
      if (whole.is_same(fakes_[input])) return std::nullopt;
      shows_input = true;
    }
    if (shows_input) return result.is_view() ? at::Tensor(result._base()) : result;
    const bool shared = parts_.contains(wanted_[i]) || std::ranges::any_of(wanted_, [&](TensorId id) {
                          return id >= 0 && id != wanted_[i] && storage(id) == here;
                        });
    return shared && result.is_view() ? at::Tensor(result._base()) : result;
  }

  /// The entry that the node was made for.
  std::optional<size_t> entry_of(const torch::autograd::Node& node) const {
    const auto after = std::upper_bound(first_numbers_.begin(), first_numbers_.end(), node.sequence_nr());
    if (after == first_numbers_.begin()) return std::nullopt;
    return static_cast<size_t>(after - first_numbers_.begin()) - 1;
  }

  const Tape& run_;
  const std::vector<TensorId>& wanted_;
  const std::set<TensorId>& parts_;
  const std::set<int>& own_;
  const std::set<TensorId>& inner_;
  Joint& joint_;
  Trial* trial_;  ///< null: it is as in the recorded run
  Writer writer_;
  SelectedRows rows_;
  NumbersTaken numbers_;
  std::vector<at::Tensor> fakes_;        ///< of the inputs
  std::vector<InputPtr> nodes_;          ///< null: the input requires no gradient
  std::vector<uint64_t> first_numbers_;  ///< by entry: the next number that autograd would have given a node
  std::optional<size_t> at_;
};

bool in_a_pass() { return torch::autograd::get_current_graph_task_id() != -1; }

/// In the middle of a backward pass (a checkpointed function is run again), nodes ask the pass which of their
/// gradients are wanted, and ours are none of its. Another thread is in no pass. What is asked in Python
/// there, and functions of the user's, need the GIL.
template <class Body>
auto in_no_pass(Body body) {
  std::optional<WithoutGil> released;
  if (PyGILState_Check()) released.emplace();
  return std::async(std::launch::async, body).get();
}

}  // namespace

Joint make_joint(const Tape& run, const std::vector<TensorId>& wanted, const std::set<TensorId>& parts,
                 const Varying& dynamic, const std::set<int>& own, const std::set<TensorId>& inner) {
  if (in_a_pass()) return in_no_pass([&] { return make_joint(run, wanted, parts, dynamic, own, inner); });
  const Asked asked{run, wanted, parts, own, inner};
  Joint joint;
  Making making(asked, joint, nullptr);
  auto fail = [&](const std::string& why) {
    if (making.at()) throw NotFollowed(*making.at(), why);
    throw_unsupported(why);
  };
  try {
    making.make();
  } catch (const Unsupported& error) {
    fail(error.what());
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {  // ATen's own complaint, as eager's backward pass would have it
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {  // also of a rule that was asked for in Python
    fail(error.what());
  }
  follow(asked, dynamic, joint);
  return joint;
}

std::optional<Joint> try_joint(Trial& trial, const Asked& asked) {
  if (in_a_pass()) return in_no_pass([&] { return try_joint(trial, asked); });
  Joint joint;
  try {
    Making(asked, joint, &trial).make();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // these sizes do not fit together, or no rule knows them
    return std::nullopt;
  }
  return joint;
}

size_t bytes_reached(const record::TensorInfo& info) {
  int64_t last = info.offset;
  for (size_t d = 0; d < info.sizes.size(); ++d) {
    if (info.sizes[d] == 0) return 0;
    last += (info.sizes[d] - 1) * info.strides[d];
  }
  return static_cast<size_t>(last + 1) * c10::elementSize(info.dtype);
}

bool fills_its_memory(const record::TensorInfo& info) {
  return info.offset == 0 && record::elements_fill_memory(info.sizes, info.strides);
}

std::string print(const Joint& joint) {
  record::TapeContext context;
  context.wanted = joint.outputs;
  context.wanted.insert(context.wanted.end(), joint.gradients.begin(), joint.gradients.end());
  context.notes = {{false, joint.tangents, "tangents:"},
                   {true, 0, "forward:"},
                   {true, joint.backward, "backward:"},
                   {true, joint.tape.entries.size(),
                    std::to_string(joint.outputs.size()) + " results, then the gradient of each input"}};
  return record::print(joint.tape, context);
}

}  // namespace bolt::autograd
