// run/trained/trained.cpp
#include "run/trained/trained.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "autograd/joint.h"
#include "python/gil.h"
#include "record/copy.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "run/evaluate.h"
#include "support/error.h"

namespace bolt::run {

using record::Tape;
using record::TensorId;
using record::TensorInfo;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

namespace {

constexpr c10::DispatchKeySet kOfSomebodyElse({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                               c10::DispatchKey::FuncTorchGradWrapper});

/// Something that has no memory of its own to read: a tensor under vmap, or of a subclass.
bool is_wrapped(const at::Tensor& t) {
  return t.defined() &&
         (!t.has_storage() || t.layout() != at::kStrided || t.key_set().has_any(kOfSomebodyElse));
}

bool is_batched(const at::Tensor& t) {
  return t.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched}));
}

/// As the kernels of the backward part read it.
bool lies_so(const at::Tensor& t, at::IntArrayRef strides) {
  if (t.is_conj() || t.is_neg() || t._is_zerotensor()) return false;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1 && t.stride(d) != strides[d]) return t.numel() == 0;
  return true;
}

/// Within torch.utils.checkpoint, or its second run.
bool is_checkpointed() {
  const auto hooks = at::SavedTensorDefaultHooks::get_hooks();
  if (!hooks || !at::SavedTensorDefaultHooks::is_enabled()) return false;
  const WithGil gil;
  const auto pack = pybind11::reinterpret_borrow<pybind11::object>(hooks->first.ptr(getPyInterpreter()));
  const pybind11::object module = pybind11::getattr(pack, "__module__", pybind11::none());
  return pybind11::isinstance<pybind11::str>(module) &&
         module.cast<std::string>() == "torch.utils.checkpoint";
}

}  // namespace

// ---- made once ----

Trained::Trained(Tape tape, std::vector<TensorId> wanted, TrainedParts parts,
                 std::unordered_map<int, at::Tensor> constants)
    : Runnable(std::move(tape), std::move(wanted), parts.forward->symbols()),
      p_(std::move(parts)),
      as_eager_(record::copy_of(tape_), wanted_, "", constants, symbols_),
      constants_(std::move(constants)),
      links_(tape_, wanted_, p_, constants_) {
  std::unordered_map<TensorId, size_t> places;
  for (size_t i = 0; p_.backward && i < p_.backward->wanted().size(); ++i)
    places[p_.backward->wanted()[i]] = i;
  for (size_t edge : links_.edges) place_of_edge_.push_back(places.at(p_.gradients[edge]));
  for (const autograd::Inner& inner : p_.inner) {
    const TensorInfo& info = info_of(tape_, p_.tangent_of[inner.tangent]);
    nothing_.push_back(at::empty({0}, at::TensorOptions(info.dtype).device(info.device)));
  }
  can_fail_ = true;  // hooks of saved tensors may raise
  releases_gil_ = true;
  Facts made = p_.forward->facts;
  if (p_.backward) made.add(p_.backward->facts);
  made.ops = facts.ops;
  facts = std::move(made);
}

void Trained::finish_code(const std::string& name, Stages& stages) {
  stages.enter("codegen");
  p_.forward->finish_code(name + ", forward");
  if (p_.backward) p_.backward->finish_code(name + ", backward");
  facts.from_cache = p_.forward->facts.from_cache && (!p_.backward || p_.backward->facts.from_cache);
  stages.finish();
}

Runnable::Texts Trained::texts() const {
  Texts both = p_.forward->texts();
  both.graph = "# forward\n" + both.graph;
  both.plan = "# forward\n" + both.plan;
  if (!p_.backward) return both;
  const auto [graph, plan] = p_.backward->texts();
  both.graph += "# backward\n" + graph;
  both.plan += "# backward\n" + plan;
  return both;
}

void Trained::launch_at_once(const std::string& name) {
  p_.forward->launch_at_once(name + ", forward");
  facts.why_no_graph = p_.forward->facts.why_no_graph;
  if (!p_.backward) return;
  p_.backward->launch_at_once(name + ", backward");
  partial_.launch_at_once(name + ", backward of some results");
  if (facts.why_no_graph.empty()) facts.why_no_graph = p_.backward->facts.why_no_graph;
}

std::vector<StepFacts> Trained::costs() const {
  std::vector<StepFacts> all = p_.forward->costs();
  for (StepFacts& step : p_.backward ? p_.backward->costs() : std::vector<StepFacts>())
    all.push_back(std::move(step));
  return all;
}

// ---- forward ----

Tensors Trained::call(const Tensors& inputs, const std::vector<int64_t>& values,
                      record::CallGenerators generators) {
  if (is_checkpointed() || twice_.is_usual()) return as_eager_.call(inputs, values, std::move(generators));
  const auto set = p_.sizes ? p_.sizes->of(values) : nullptr;
  if (set && !set->agrees) return as_eager_.call(inputs, values, std::move(generators));
  std::shared_ptr<TrainedCall> call;
  if (!links_.edges.empty())
    call = std::make_shared<TrainedCall>(shared_from_this(), values, set, generators);
  // Once: another thread's backward pass may change the answer.
  const bool keeps = call && (links_.inputs_are_cheap || double_backward_->may_come());
  demand_rewritable(inputs);
  std::vector<autograd::NodePtr> nodes;
  // A view's history is made when somebody asks for it, out of what its base has become.
  const bool may_change = !p_.rewritten.empty() || std::ranges::any_of(links_.edges, [&](size_t edge) {
    return inputs[edge].is_view();
  });
  if (call && may_change) nodes = call->make_nodes(inputs);
  if (keeps)
    call->inputs_.keep_what_changes(
        inputs, links_.draws ? std::optional(attempt_.states(call->generators_)) : std::nullopt);
  Tensors wholes(links_.tied.size());
  // Before there are views of what was written: who asks one for its history makes it out of the history that
  // its base has by then.
  Tensors results = p_.forward->run_tied(inputs, values, std::move(generators), [&](Tensors& fresh) {
    // A device is at work by now, and the way to a hundred parameters is long.
    if (call && nodes.empty()) nodes = call->make_nodes(inputs);
    tie(call.get(), inputs, values, fresh, wholes);
    give_histories(call.get(), inputs);
  });
  for (size_t i = 0; i < links_.tied.size(); ++i)
    if (!links_.is_own(links_.tied[i])) results[links_.tied[i]] = wholes[i];
  if (call) save(*call, inputs, results);
  if (keeps) call->inputs_.keep(inputs, double_backward_->has_come());
  if (call && !keeps) call->inputs_.remember(inputs);
  Tensors out;
  for (size_t at : links_.result_of) out.push_back(results[at]);
  give_views(inputs, wholes, values, out);
  return out;
}

void Trained::tie(TrainedCall* call, const Tensors& inputs, const std::vector<int64_t>& values,
                  Tensors& fresh, Tensors& wholes) const {
  for (size_t i = 0; i < links_.tied.size(); ++i) {
    at::Tensor& t = wholes[i] =
        links_.is_own(links_.tied[i]) ? fresh[links_.tied[i]] : shown(links_.tied[i], inputs, values, fresh);
    // An operator that we call may give a view, made without grad mode, which nobody may write to with it.
    if (t.is_view()) t = t.detach();
    if (call) call->tie(t, i);
    if (links_.is_own(links_.tied[i])) fresh[links_.tied[i]] = t;
  }
}

/// What eager's in-place operators would raise for, they shall raise for.
void Trained::demand_rewritable(const Tensors& inputs) const {
  const at::AutoGradMode as_written(true);
  for (size_t i : p_.rewritten) {
    try {
      torch::autograd::check_inplace(inputs[i], true);
    } catch (const c10::Error& error) {
      throw RunEagerly{{Why::operator_raised_in_call, error.what_without_backtrace()}};
    }
  }
}

void Trained::give_histories(TrainedCall* call, const Tensors& inputs) const {
  for (size_t r = 0; r < p_.rewritten.size(); ++r)
    call->tie_rewritten(inputs[p_.rewritten[r]], links_.tied.size() + r);
}

/// A result that the program takes for a view.
at::Tensor Trained::shown(size_t result, const Tensors& inputs, const std::vector<int64_t>& values,
                          const Tensors& fresh) const {
  const lower::TensorOut& view = p_.forward->lowered().outputs[result];
  const Evaluate value{symbols_, values};
  std::vector<int64_t> sizes, strides;
  for (Sym size : view.sizes) sizes.push_back(value(size));
  for (Sym stride : view.strides) strides.push_back(value(stride));
  const auto at = static_cast<size_t>(view.index);
  const at::Tensor whole = view.kind == OutKind::InputView ? inputs[at].detach() : fresh[at];
  return whole.as_strided(sizes, strides, whole.storage_offset() + value(view.offset));
}

void Trained::give_views(const Tensors& inputs, const Tensors& wholes, const std::vector<int64_t>& values,
                         Tensors& results) const {
  if (links_.views->any()) {
    Tensors bases = inputs;
    for (size_t tangent : links_.viewed) bases.push_back(wholes[tangent]);
    for (size_t output : links_.shown) bases.push_back(results[output]);
    links_.views->make(bases, Evaluate{symbols_, values},
                       [&](size_t i, at::Tensor view) { results[i] = std::move(view); });
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!p_.differentiable[i] && results[i].requires_grad() && tape_.tensors[wanted_[i]].input < 0)
      results[i] = results[i].detach();
    if (p_.leaves[i]) results[i].set_requires_grad(true);
  }
}

void Trained::save(TrainedCall& call, const Tensors& inputs, const Tensors& results) const {
  call.saved_.reserve(links_.saved_from.size());
  for (const TrainedLinks::SavedFrom& from : links_.saved_from) {
    if (from.kind == TrainedLinks::SavedFrom::Kind::Input) {
      const at::Tensor& t = inputs[from.index];
      call.saved_.emplace_back(links_.is_rewritten(from.index) ? t.detach() : t, false);
      continue;
    }
    const at::Tensor& t = results[from.index];
    const OutKind kind = p_.forward->lowered().outputs[from.index].kind;
    const bool tied = std::ranges::find(links_.tied, from.index) != links_.tied.end();
    // What has the node for its history, but is none of its outputs, would keep the node alive for ever.
    const bool of_node =
        links_.shows_rewritten(from.index) ||
        (t.requires_grad() && (kind == OutKind::OutputView || (tied && p_.tangent_of.size() > 1)));
    call.saved_.emplace_back(of_node ? t.detach() : t, tied && !of_node);
  }
}

// ---- backward ----

namespace {

/// All of the sizes, and lying as, the backward part takes them; zeros for the tangents that there are none
/// of. What hooks give for a saved tensor may lie otherwise than what they were given. What is missing of
/// those meets nothing but zeros, which may be divided by it.
Tensors complete(const Tape& tape, Tensors given, const TrainedSizes::Set* set, size_t saved) {
  for (size_t i = 0; i < given.size(); ++i) {
    const TensorInfo& info = info_of(tape, tape.inputs[i]);
    const at::IntArrayRef sizes = set ? at::IntArrayRef(set->backwards[i].sizes) : info.sizes;
    const at::IntArrayRef strides = set ? at::IntArrayRef(set->backwards[i].strides) : info.strides;
    at::Tensor& t = given[i];
    if (t.defined() && (is_wrapped(t) || lies_so(t, strides))) continue;
    const auto options = at::TensorOptions(info.dtype).device(info.device);
    at::Tensor made = at::empty_strided(sizes, strides, options);
    const bool divides = i < saved && at::isFloatingType(info.dtype);
    const at::Tensor once = shown_once(made, strides);
    t.defined() ? once.copy_(shown_once(t, strides)) : divides ? once.fill_(1) : once.zero_();
    t = std::move(made);
  }
  return given;
}

/// By edge: does any tangent that is given lead to it?
std::vector<bool> reached(const TrainedLinks& links, const TrainedParts& parts,
                          const std::vector<bool>& given) {
  std::vector<bool> out;
  for (size_t edge : links.edges) {
    const std::vector<bool>& from = parts.comes_from[edge];
    bool any = false;
    for (size_t k = 0; k < given.size(); ++k) any |= from[k] && given[k];
    out.push_back(any);
  }
  return out;
}

}  // namespace

/// How such a pass comes to each inner result.
std::vector<autograd::Arrives> Trained::ways_of(const std::vector<bool>& given,
                                                const std::vector<bool>& seen) const {
  std::vector<autograd::Arrives> ways;
  for (const autograd::Inner& inner : p_.inner)
    ways.push_back(seen[inner.tangent]    ? autograd::Arrives::whole
                   : given[inner.tangent] ? autograd::Arrives::both
                                          : autograd::Arrives::through);
  return ways;
}

/// Is the backward part for such passes?
bool Trained::is_usual(const PartialPasses::Kind& kind) const {
  if (kind.ways != p_.ways) return false;
  for (size_t k = 0; k < kind.given.size(); ++k)
    if (const int inner = links_.inner[k];
        !kind.given[k] && (inner < 0 || kind.ways[inner] != autograd::Arrives::through))
      return false;
  return true;
}

/// `some`: null: the backward part. The results are by what that gives.
Tensors Trained::run_part(Tensors all, const PartialPasses::Program* some,
                          const std::vector<autograd::Arrives>& ways, const TrainedCall& call) const {
  const Tape& tape = some ? some->tape : p_.backward->tape();
  const std::vector<TensorId>& wanted = some ? some->wanted : p_.backward->wanted();
  const auto replay = [&](const Tensors& inputs) {
    const auto number = p_.sizes ? p_.sizes->on_joint_tape(call.values_) : nullptr;
    record::ReplayOptions options;
    options.value = number;
    options.follows = c10::GradMode::is_enabled();
    std::ranges::copy_if(inputs, std::back_inserter(options.batched), is_batched);
    return record::replay_watched(tape, inputs, wanted, std::move(options));
  };
  // Nobody reads them.
  for (size_t i = 0; i < p_.inner.size(); ++i)
    if (ways[i] == autograd::Arrives::through) all[p_.saved.size() + p_.inner[i].tangent] = nothing_[i];
  const bool wrapped = std::ranges::any_of(all, is_wrapped);
  all = complete(tape, std::move(all), call.set_.get(), p_.saved.size());
  if (wrapped || c10::GradMode::is_enabled() ||
      (some && !some->is_compiled_for(p_.sizes.get(), call.values_)))
    return replay(all);
  const Ints values = !p_.sizes ? Ints()
                      : some    ? p_.sizes->over_region(some->symbols, call.values_)
                                : p_.sizes->for_backward(call.values_);
  const record::Communications told;
  try {
    return (some ? *some->compiled : *p_.backward).run_last(all, values);
  } catch (const RunEagerly& why) {
    check_nobody_was_told(told, why);
    return replay(all);
  }
}

/// The gradients, by edge. What no tangent that is given leads to is none. They have a history, of the
/// tangents alone, in grad mode.
variable_list Trained::run_backward(Tensors all, const std::vector<bool>& given,
                                    const std::vector<bool>& seen, const TrainedCall& call) const {
  const std::vector<bool> reaches = reached(links_, p_, given);
  const PartialPasses::Kind kind{given, ways_of(given, seen), -1};
  std::shared_ptr<const PartialPasses::Program> some;
  if (!is_usual(kind)) {
    std::vector<TensorId> asked;
    for (size_t i = 0; i < reaches.size(); ++i)
      if (const TensorId id = p_.gradients[links_.edges[i]];
          reaches[i] && position(asked, id) == asked.size())
        asked.push_back(id);
    const at::NoGradGuard no_grad;
    some = partial_.of(p_.backward_tape(), p_.inner, kind, asked, p_.sizes.get(), p_.wishes);
  }
  const Tensors gradients = run_part(std::move(all), some.get(), kind.ways, call);
  variable_list out(links_.edges.size());
  for (size_t i = 0; i < out.size(); ++i)
    if (reaches[i])
      out[i] = gradients[some ? position(some->wanted, p_.gradients[links_.edges[i]]) : place_of_edge_[i]];
  return out;
}

/// What comes to an inner result through others.
at::Tensor Trained::gradient_through(Tensors all, const std::vector<bool>& given,
                                     const std::vector<bool>& seen, size_t inner,
                                     const TrainedCall& call) const {
  const at::NoGradGuard no_grad;
  const TensorId id = p_.inner[inner].through;
  const PartialPasses::Kind kind{given, ways_of(given, seen), id};
  const auto some = partial_.of(p_.backward_tape(), p_.inner, kind, {id}, p_.sizes.get(), p_.wishes);
  return run_part(std::move(all), some.get(), kind.ways, call)[0];
}

// ---- gradients of gradients ----

namespace {

/// The tensor apart from what it was made of. `to`: where its gradient goes in the caller's graph, if the run
/// begins there. Otherwise it is a leaf, whose place in the graph stays, whoever writes to its memory.
at::Tensor parted_from_history(const at::Tensor& t, const torch::autograd::Edge& to, bool begins_there) {
  at::Tensor apart = t.detach();
  if (!begins_there) return apart.set_requires_grad(true);
  const at::AutoGradMode followed(true);
  variables::set_gradient_edge(apart, to);
  return at::alias(apart);
}

/// What stands for it in the run, which may write to it.
at::Tensor seen_by_run(const at::Tensor& parted) {
  const at::AutoGradMode followed(true);
  return at::alias(parted);
}

}  // namespace

/// The run once more, where autograd sees it.
/// `next`, by edge; `parted`, by tangent: what others are made of an inner result has this edge, where there
/// is one, in the place of its history in the run.
SecondRun Trained::run_again(Tensors inputs, const std::vector<int64_t>& values,
                             const record::CallGenerators& generators, const torch::autograd::edge_list& next,
                             const torch::autograd::edge_list& parted, bool begins_there) const {
  SecondRun again;
  for (size_t i = 0; i < links_.edges.size(); ++i) {
    at::Tensor& from = again.from.emplace_back();
    if (!next[i].is_valid()) continue;  // nothing leads there any more
    at::Tensor& input = inputs[links_.edges[i]];
    from = parted_from_history(input, next[i], begins_there);
    input = links_.is_rewritten(links_.edges[i]) ? from.clone() : seen_by_run(from);
  }
  for (const auto& [input, value] : constants_) inputs[input] = value.clone();
  std::vector<TensorId> given;
  for (size_t i = 0; i < p_.tangent_of.size(); ++i) given.push_back(links_.on_tape(i));
  again.inner.resize(p_.inner.size());
  std::unordered_map<size_t, size_t> makes;  // an inner result, by entry
  for (size_t i = 0; i < p_.inner.size(); ++i)
    if (const size_t tangent = p_.inner[i].tangent; parted[tangent].is_valid())
      makes[info_of(tape_, given[tangent]).producer] = i;
  std::vector<at::Tensor> made(p_.inner.size());
  record::ReplayOptions options;
  options.value = Evaluate{symbols_, values};
  options.generators = generators;
  if (!makes.empty())
    options.instead = [&](size_t entry, torch::jit::Stack& stack) {
      const auto at = makes.find(entry);
      if (at == makes.end()) return false;
      const record::Entry& maker = tape_.entries[entry];
      maker.op.callBoxed(&stack);
      for (size_t r = 0; r < maker.results.size(); ++r) {
        const size_t tangent = p_.inner[at->second].tangent;
        if (maker.results[r].kind != record::Arg::Kind::Tensor ||
            maker.results[r].tensors[0] != given[tangent])
          continue;
        made[at->second] = stack[r].toTensor();
        again.inner[at->second] = parted_from_history(made[at->second], parted[tangent], begins_there);
        stack[r] = seen_by_run(again.inner[at->second]);
      }
      return true;
    };
  again.results = record::replay_watched(tape_, inputs, given, std::move(options));
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i].defined()) again.results[p_.inner[i].tangent] = made[i];
  again.end_at_results();
  return again;
}

}  // namespace bolt::run
