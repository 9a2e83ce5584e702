// record/replay.cpp
// Tape + inputs -> tensors, by calling every operator again under its recorded thread state.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <algorithm>
#include <optional>
#include <set>

#include "record/argument.h"
#include "record/communications.h"
#include "record/expectation.h"
#include "record/generators.h"
#include "record/operator_facts.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "support/error.h"

namespace bolt::record {

uint64_t& communications() {
  thread_local uint64_t count = 0;
  return count;
}

namespace {

class Replay {
 public:
  Replay(const Tape& tape, const std::vector<at::Tensor>& inputs, ReplayOptions options)
      : tape_(tape), options_(std::move(options)), tensors_(tape.tensors.size()) {
    BOLT_CHECK(inputs.size() == tape.inputs.size(), "replay got ", inputs.size(), " of ", tape.inputs.size(),
               " inputs");
    for (size_t i = 0; i < inputs.size(); ++i) tensors_[tape.inputs[i]] = inputs[i];
    if (options_.batched.empty()) return;
    for (const Entry& entry : tape.entries)
      for_each_written(entry, [&](TensorId id) { written_.insert(tape.tensors[id].storage); });
  }

  void run(const std::vector<int>& last_use) {
    torch::jit::Stack stack;
    for (size_t i = 0; i < tape_.entries.size(); ++i) {
      const Entry& entry = tape_.entries[i];
      std::optional<c10::InferenceMode> inference;
      if (entry.inference_mode != c10::InferenceMode::is_enabled()) inference.emplace(entry.inference_mode);
      at::AutoGradMode grad(entry.grad_mode || options_.follows);
      stack.clear();
      for (const Arg& arg : entry.args) stack.push_back(give(entry, arg));
      if (options_.before) options_.before(i, stack);
      if (!options_.instead || !options_.instead(i, stack)) {
        communications() += entry.facts->communicates;
        entry.op.callBoxed(&stack);
      }
      for (size_t r = 0; r < entry.results.size(); ++r) keep(entry, entry.results[r], stack[r]);
      if (entry.own_version) count_writes_apart(tensor(entry.results[0].tensors[0]));
      if (options_.after) options_.after(i, stack);
      for (const Arg& arg : entry.args) release(arg, last_use, static_cast<int>(i));
      for (const Arg& arg : entry.results) release(arg, last_use, static_cast<int>(i));
    }
  }

  const at::Tensor& tensor(TensorId id) const { return tensors_[id]; }

 private:
  c10::IValue give(const Entry& entry, const Arg& arg) {
    auto tensor = [&](TensorId id) { return tensors_[id]; };
    return value_of(arg, tensor,
                    [&](const Arg& a) { return options_.generators.given(entry.op, number(a)); });
  }

  void keep(const Entry& entry, const Arg& result, const c10::IValue& v) {
    if (result.kind == Arg::Kind::Tensor) {
      keep(entry, result.tensors[0], v.toTensor());
    } else if (result.kind == Arg::Kind::TensorList) {
      auto list = v.toTensorVector();
      if (list.size() != result.tensors.size()) throw_other_result(entry);
      for (size_t i = 0; i < result.tensors.size(); ++i) keep(entry, result.tensors[i], list[i]);
    }
  }

  void keep(const Entry& entry, TensorId id, const at::Tensor& t) {
    if (id < 0) return;
    // What is passed on is of other sizes where a run is tried with others.
    if (!is_atens(entry.op) && !entry.facts->passes_on) check(entry, tape_.tensors[id], t);
    tensors_[id] =
        written_.contains(tape_.tensors[id].storage) && !shows_argument(entry, id) ? batched(t) : t;
  }

  bool shows_argument(const Entry& entry, TensorId id) const {
    bool shows = false;
    for_each_tensor(entry.args,
                    [&](TensorId arg) { shows |= tape_.tensors[arg].storage == tape_.tensors[id].storage; });
    return shows;
  }

  /// The same in each batch.
  at::Tensor batched(at::Tensor t) const {
    for (const at::Tensor& like : options_.batched)
      t = like.new_empty_strided(t.sizes(), t.strides(), t.options()).copy_(t);
    return t;
  }

  /// What an operator of the user's gives may depend on data, and Python has seen what it was.
  void check(const Entry& entry, const TensorInfo& info, const at::Tensor& t) const {
    const bool same = t.defined() && t.scalar_type() == info.dtype && t.device() == info.device &&
                      (!info.plain || (t.dim() == static_cast<int64_t>(info.sizes.size()) &&
                                       (t.sizes() == info.sizes || may_be_sized_so(entry, info, t))));
    if (!same) throw_other_result(entry);
  }

  /// Sizes that an operator finds out are data, and others may rest on numbers that it is given. But 0 is a
  /// size of its own.
  bool may_be_sized_so(const Entry& entry, const TensorInfo& info, const at::Tensor& t) const {
    for (size_t d = 0; d < info.sizes.size(); ++d)
      if (info.data_dims != 0 && info.sizes[d] == 0 && t.size(static_cast<int64_t>(d)) != 0) return false;
    return info.data_dims != 0 || !has_recorded_sizes() ||
           std::ranges::any_of(entry.args, [](const Arg& arg) { return !arg.syms.empty(); });
  }

  /// Do the inputs have the sizes that they had? Then whatever is made of them has.
  bool has_recorded_sizes() const {
    return std::all_of(tape_.inputs.begin(), tape_.inputs.end(), [&](TensorId id) {
      const TensorInfo& info = tape_.tensors[id];
      return !info.plain || !tensors_[id].defined() || tensors_[id].sizes() == info.sizes;
    });
  }

  [[noreturn]] static void throw_other_result(const Entry& entry) {
    throw Unexpected(entry.op.operator_name().name + " gave another result than in the recorded run");
  }

  void release(const Arg& arg, const std::vector<int>& last_use, int entry) {
    for (TensorId id : arg.tensors)
      if (id >= 0 && last_use[id] == entry) tensors_[id].reset();
  }

  c10::IValue number(const Arg& arg) const {
    if (!arg.tensors.empty()) {
      const at::Tensor& from = tensors_[arg.tensors[0]];
      return options_.number_out_of ? options_.number_out_of(from, arg) : number_out_of(from, arg);
    }
    if (arg.syms.empty() || !options_.value) return arg.value;
    return number_of(arg, options_.value);
  }

  const Tape& tape_;
  ReplayOptions options_;
  std::vector<at::Tensor> tensors_;
  std::set<int> written_;  ///< storages, where tensors are under vmap
};

std::vector<int> last_uses(const Tape& tape, const std::vector<TensorId>& wanted) {
  std::vector<int> last(tape.tensors.size(), -1);
  for (size_t i = 0; i < tape.entries.size(); ++i)
    for (const auto* args : {&tape.entries[i].args, &tape.entries[i].results})
      for_each_tensor(*args, [&](TensorId id) { last[id] = static_cast<int>(i); });
  for (TensorId id : wanted)
    if (id >= 0) last[id] = static_cast<int>(tape.entries.size());
  return last;
}

}  // namespace

std::vector<at::Tensor> replay_watched(const Tape& tape, const std::vector<at::Tensor>& inputs,
                                       const std::vector<TensorId>& wanted, ReplayOptions options) {
  Replay run(tape, inputs, std::move(options));
  run.run(last_uses(tape, wanted));
  std::vector<at::Tensor> out;
  for (TensorId id : wanted) out.push_back(id < 0 ? at::Tensor() : run.tensor(id));
  return out;
}

std::vector<at::Tensor> replay(const Tape& tape, const std::vector<at::Tensor>& inputs,
                               const std::vector<TensorId>& wanted, const std::function<int64_t(Sym)>& value,
                               const std::function<void(size_t, const torch::jit::Stack&)>& before,
                               CallGenerators generators) {
  ReplayOptions options;
  options.value = value;
  options.before = before;
  options.generators = std::move(generators);
  return replay_watched(tape, inputs, wanted, std::move(options));
}

}  // namespace bolt::record
