// run/trained/trained_call.cpp
#include "run/trained/trained_call.h"

#include <ATen/ops/add.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "run/trained/trained.h"

namespace bolt::run {

using autograd::make_node;
using autograd::NodePtr;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

namespace {

/// Will the engine come to the node in this pass, or has it?
bool comes_to(torch::autograd::Node* node) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (!nodes || !nodes->contains(node)) return false;
  const auto* filter = torch::autograd::get_current_graph_task_exec_info();
  if (!filter || filter->empty()) return true;
  const auto info = filter->find(node);
  return info != filter->end() && info->second.should_execute();
}

}  // namespace

// ---- forward ----

TrainedCall::TrainedCall(std::shared_ptr<const Trained> region, std::vector<int64_t> values,
                         std::shared_ptr<const TrainedSizes::Set> set, record::CallGenerators generators)
    : region_(std::move(region)),
      inputs_(region_->p_, region_->links_),
      generators_(std::move(generators)),
      values_(std::move(values)),
      set_(std::move(set)),
      gone_(region_->p_.tangent_of.size(), false),
      result_nodes_(gone_.size()) {}

std::vector<NodePtr> TrainedCall::make_nodes(const Tensors& inputs) {
  std::vector<NodePtr> nodes;
  const TrainedLinks& links = region_->links_;
  for (size_t g = 0; g < links.groups.size(); ++g) {
    const auto node = make_node<TrainedNode>(shared_from_this(), g);
    edge_list next;
    for (size_t edge : links.groups[g].edges) {
      const at::Tensor& input = inputs[links.edges[edge]];
      next.push_back(input.requires_grad() ? variables::gradient_edge(input) : Edge());
    }
    node->set_next_edges(std::move(next));
    nodes_.push_back(node.get());
    nodes.push_back(node);
  }
  for (size_t i : region_->p_.rewritten) {
    const at::Tensor& t = inputs[i];
    const bool of_history = t.is_view() && t.requires_grad();  // its base has one as well
    rewritten_from_.push_back(of_history ? variables::gradient_edge(t) : Edge());
  }
  return nodes;
}

edge_list TrainedCall::edges_to_groups(size_t tangent, const at::Tensor& of) const {
  edge_list edges;
  for (size_t g = 0; g < nodes_.size(); ++g)
    if (std::ranges::find(region_->links_.groups[g].tangents, tangent) !=
        region_->links_.groups[g].tangents.end())
      edges.emplace_back(nodes_[g]->getptr(),
                         torch::autograd::isDifferentiableType(of.scalar_type())
                             ? nodes_[g]->add_input_metadata(of)
                             : nodes_[g]->add_input_metadata(TrainedNode::undefined_input()));
  return edges;
}

/// Inner results come before what is made of them.
void TrainedCall::tie(at::Tensor& t, size_t tangent) {
  if (gone_.size() == 1) return torch::autograd::set_history(t, nodes_[0]->getptr());
  edge_list edges = edges_to_groups(tangent, t);
  if (!torch::autograd::isDifferentiableType(t.scalar_type())) return;
  const auto place = make_node<ResultNode>(shared_from_this(), tangent, false);
  for (size_t inner : region_->links_.before[tangent]) edges.emplace_back(result_nodes_[inner]->getptr(), 0);
  place->set_next_edges(std::move(edges));
  torch::autograd::set_history(t, place);
  result_nodes_[tangent] = place.get();
}

void TrainedCall::tie_rewritten(const at::Tensor& t, size_t tangent) {
  const auto place = make_node<ResultNode>(shared_from_this(), tangent, true);
  edge_list edges = edges_to_groups(tangent, t);
  Edge& from = rewritten_from_[tangent - (gone_.size() - rewritten_from_.size())];
  edges.insert(edges.begin(), std::exchange(from, Edge()));
  place->set_next_edges(std::move(edges));
  if (!t.is_view()) result_nodes_[tangent] = place.get();  // else what is made of it leads to its base
  variables::rebase_history(t, Edge(place, place->add_input_metadata(t)));
}

// ---- nodes ----

TrainedNode::~TrainedNode() {
  const std::lock_guard lock(call_->nodes_mutex_);
  if (group_ < call_->nodes_.size()) call_->nodes_[group_] = nullptr;
}

ResultNode::~ResultNode() {
  const std::lock_guard lock(call_->nodes_mutex_);
  auto& nodes = call_->result_nodes_;
  if (tangent_ < nodes.size() && nodes[tangent_] == this) nodes[tangent_] = nullptr;
}

variable_list TrainedNode::apply(variable_list&& tangents) {
  return call_->gradients_of(group_, std::move(tangents), getptr());
}

/// The engine calls it behind each pass that keeps nothing.
void TrainedNode::release_variables() { call_->release(); }

variable_list ResultNode::apply(variable_list&& gradients) {
  const at::Tensor gradient = std::move(gradients[0]);
  gradients.clear();
  at::Tensor of_base;
  // Of a view; what is undefined, all of the base's is.
  if (is_rewritten_ && next_edge(0).is_valid() && gradient.defined())
    of_base = gradient.new_zeros(gradient.sizes());
  // Nothing holds it but the call, so that it goes when its last reader has run.
  variable_list to_inner;
  const bool told = call_->tell(tangent_, gradient, getptr(), to_inner);
  variable_list all(num_outputs() - to_inner.size(), told ? at::Tensor() : gradient);
  if (is_rewritten_) all[0] = std::move(of_base);
  std::ranges::move(to_inner, std::back_inserter(all));
  return all;
}

/// Where there is but one node, the engine tells it. A pass that has nothing to go on with ends here, before
/// it comes to results that were made earlier: eager has not called what retains their gradients either.
/// `to_inner`: what is handed on to inner results.
bool TrainedCall::tell(size_t tangent, const at::Tensor& gradient, const NodePtr& node,
                       variable_list& to_inner) {
  const TrainedLinks& links = region_->links_;
  to_inner.resize(links.before[tangent].size());
  const int id = torch::autograd::get_current_graph_task_id();
  if (!gradient.defined() && (id < 0 || region_->p_.inner.empty())) return false;
  const std::lock_guard lock(mutex_);
  if (gradient.defined()) demand_held(tangent);
  if (id < 0 || (links.groups.size() == 1 && region_->p_.inner.empty())) return false;
  const auto pass = passes_.of(id, region_->links_);
  pass->tangents[tangent] = gradient;
  pass->passed[tangent] = true;
  passes_.keep(pass);
  for (size_t i = 0; i < to_inner.size(); ++i) {
    const size_t inner = links.before[tangent][i];
    if (is_seen(inner) && is_last_before(inner, tangent, *pass))
      to_inner[i] = gradient_through(*pass, inner, node);
  }
  return true;
}

/// Does anybody look at the gradient of the inner result in this pass?
bool TrainedCall::is_seen(size_t inner) const {
  const std::lock_guard lock(nodes_mutex_);
  ResultNode* node = result_nodes_[inner];
  if (!node) return false;
  if (!node->pre_hooks().empty() || !node->tensor_pre_hooks().empty() || !node->post_hooks().empty() ||
      !node->retains_grad_hooks().empty())
    return true;
  const auto* filter = torch::autograd::get_current_graph_task_exec_info();
  if (!filter) return false;
  const auto info = filter->find(node);
  return info != filter->end() && info->second.captures_ && !info->second.captures_->empty();
}

/// Has the pass been through all else that leads to the inner result?
bool TrainedCall::is_last_before(size_t inner, size_t tangent, const PassUnderWay& pass) const {
  const std::lock_guard lock(nodes_mutex_);
  const auto& before = region_->links_.before;
  for (size_t k = 0; k < before.size(); ++k) {
    if (k == tangent || pass.passed[k]) continue;
    const bool leads = std::ranges::find(before[k], inner) != before[k].end();
    if (leads && result_nodes_[k] && comes_to(result_nodes_[k])) return false;
  }
  return true;
}

/// From what the pass was told of by now, all of which is still needed.
at::Tensor TrainedCall::gradient_through(PassUnderWay& pass, size_t inner, const NodePtr& node) {
  const auto at = static_cast<size_t>(region_->links_.inner[inner]);
  const std::vector<bool>& from = region_->p_.inner[at].from;
  Tensors tangents(gone_.size());
  std::vector<bool> given(gone_.size());
  for (size_t k = 0; k < given.size(); ++k)
    if (from[k] && pass.tangents[k].defined()) tangents[k] = pass.tangents[k], given[k] = true;
  if (std::ranges::find(given, true) == given.end()) return {};
  std::vector<bool> seen = pass.seen;
  pass.seen[inner] = true;
  if (c10::GradMode::is_enabled()) {
    seen[inner] = true;
    return differentiate(tangents, seen, static_cast<int>(inner))[0];
  }
  Tensors all = unpack_saved(given, false, node);
  std::ranges::move(tangents, std::back_inserter(all));
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return region_->gradient_through(std::move(all), given, seen, at, *this);
}

variable_list TrainedCall::gradients_of(size_t group, variable_list&& tangents, const NodePtr& node) {
  const std::lock_guard lock(mutex_);
  region_->double_backward_->note_pass();
  const TrainedLinks::Group& links = region_->links_.groups[group];
  const auto under_way = passes_.of(torch::autograd::get_current_graph_task_id(), region_->links_);
  PassUnderWay& pass = *under_way;
  for (size_t i = 0; i < tangents.size(); ++i)
    if (tangents[i].defined()) pass.tangents[links.tangents[i]] = std::move(tangents[i]);
  tangents.clear();
  const auto is_new = [&](size_t tangent) { return pass.tangents[tangent].defined(); };
  if (std::ranges::any_of(links.tangents, is_new)) compute(pass, node);
  variable_list out;
  for (size_t edge : links.edges) out.push_back(std::move(pass.gradients[edge]));
  pass.handed_on[group] = true;
  const std::vector<bool> to_come = groups_to_come(pass);
  if (std::ranges::find(to_come, true) != to_come.end()) {
    passes_.keep(under_way);
  } else {
    pass.gradients.clear();  // of groups that it does not come to
    passes_.forget(*under_way);
  }
  return out;
}

/// By group: will the engine come to it in this pass, if the pass is the engine's?
std::vector<bool> TrainedCall::groups_to_come(const PassUnderWay& pass) const {
  std::vector<bool> to_come(pass.handed_on.size());
  if (pass.id < 0) return to_come;
  const std::lock_guard lock(nodes_mutex_);
  for (size_t g = 0; g < to_come.size(); ++g) to_come[g] = !pass.handed_on[g] && comes_to(nodes_[g]);
  return to_come;
}

/// Of all that was told by now, for all groups.
void TrainedCall::compute(PassUnderWay& pass, const NodePtr& node) {
  Tensors tangents = std::exchange(pass.tangents, Tensors(gone_.size()));
  std::vector<bool> given;
  for (const at::Tensor& t : tangents) given.push_back(t.defined());
  // The pass goes through inner results' own operators, though nothing came to them from outside.
  std::vector<bool> through = given;
  for (size_t k = 0; k < given.size(); ++k) {
    if (pass.passed[k] && region_->links_.inner[k] >= 0) through[k] = true;
    if (through[k]) demand_held(k);
  }
  variable_list computed;
  bool reads_saved = false;
  for (size_t k = 0; k < given.size(); ++k) reads_saved |= through[k] && region_->links_.reads_saved[k];
  // Gradients that are made of the tangents alone need no second run where the inputs are gone.
  if (c10::GradMode::is_enabled() && (reads_saved || !inputs_.are_released())) {
    note_gone(through);
    computed = differentiate(tangents, pass.seen, -1);
  } else {
    const bool last = is_last(through);
    Tensors all = unpack_saved(given, last, node);
    if (last && is_over(through)) release_runs();
    note_gone(through);  // not where a saved tensor was written to, which raises
    std::ranges::move(tangents, std::back_inserter(all));
    tangents.clear();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    computed = region_->run_backward(std::move(all), given, pass.seen, *this);
  }
  for (size_t edge = 0; edge < computed.size(); ++edge) {
    at::Tensor& whole = pass.gradients[edge];
    whole = whole.defined() && computed[edge].defined() ? at::add(whole, computed[edge])
            : whole.defined()                           ? whole
                                                        : std::move(computed[edge]);
  }
}

/// What results need that no pass came to yet stays. The engine calls it behind a pass, and torch where a
/// node goes that nobody holds any more.
void TrainedCall::release() {
  // Another pass is at work, and comes here itself.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  const int id = torch::autograd::get_current_graph_task_id();
  if (id >= 0 && passes_.has(id)) return;
  for (size_t k = 0; k < gone_.size(); ++k)
    if (!gone_[k] && region_->links_.reads_saved[k]) return;
  saved_.clear();
  if (is_over(std::vector<bool>(gone_.size()))) release_runs();
}

/// Gradients of gradients need them all, whatever they are of. Where nothing is saved eager has nothing to
/// let go of either.
void TrainedCall::release_runs() {
  if (std::ranges::find(region_->links_.reads_saved, true) == region_->links_.reads_saved.end()) return;
  inputs_.release();
  again_.clear();
  next_.clear();
}

void TrainedCall::demand_held(size_t tangent) const {
  TORCH_CHECK(!region_->links_.reads_saved[tangent] || !gone_[tangent], torch::autograd::ERR_BACKWARD_TWICE);
}

/// Of the passes that need what is saved.
bool TrainedCall::is_last(const std::vector<bool>& given) const {
  if (torch::autograd::get_current_graph_task_keep_graph()) return false;
  bool last = true;
  for (size_t k = 0; k < given.size(); ++k) last &= gone_[k] || given[k] || !region_->links_.reads_saved[k];
  return last;
}

/// Has a pass that keeps nothing been through each result whose node is there, with those that it is given
/// now?
bool TrainedCall::is_over(const std::vector<bool>& given) const {
  const std::lock_guard lock(nodes_mutex_);
  const auto& groups = region_->links_.groups;
  for (size_t g = 0; g < nodes_.size(); ++g)
    for (size_t k : groups[g].tangents)
      if (nodes_[g] && !gone_[k] && !given[k]) return false;
  return true;
}

void TrainedCall::note_gone(const std::vector<bool>& given) {
  if (torch::autograd::get_current_graph_task_keep_graph()) return;
  for (size_t k = 0; k < given.size(); ++k) gone_[k] = gone_[k] || given[k];
}

/// Does a pass with these tangents come to what reads the saved tensor?
bool TrainedCall::is_read(size_t saved, const std::vector<bool>& given) const {
  const auto& readers = region_->links_.readers;
  if (readers.empty()) return true;
  bool any = false;
  for (size_t k = 0; k < given.size(); ++k) any |= given[k] && readers[saved][k];
  return any;
}

/// In the last pass over this node nothing is kept that is given away here. Behind it there is nothing any
/// more, which is no matter to what reads nothing of it.
Tensors TrainedCall::unpack_saved(const std::vector<bool>& given, bool last, const NodePtr& node) {
  Tensors out;
  out.reserve(region_->links_.saved_from.size() + region_->p_.tangent_of.size());
  for (size_t i = 0; i < saved_.size(); ++i) {
    try {
      out.push_back(saved_[i].unpack(node));
    } catch (const c10::Error&) {  // it was written to, which is no matter to a pass that does not read it
      if (is_read(i, given)) throw;
      out.emplace_back();
    }
    if (last) saved_[i].reset_data();
  }
  out.resize(region_->links_.saved_from.size());
  return out;
}

/// By edge; or, of an inner result that is `asked` for (a tangent), what comes to it through others.
variable_list TrainedCall::differentiate(const variable_list& tangents, const std::vector<bool>& seen,
                                         int asked) {
  const auto to = [this, asked](const SecondRun& run) {
    return asked < 0 ? run.from : Tensors{run.inner[region_->links_.inner[asked]]};
  };
  if (begins_there(tangents)) {
    const SecondRun& again = second_run(tangents, seen, true);
    return again.differentiate(to(again), tangents, {}, nullptr);
  }
  const auto there = [call = shared_from_this(), seen, to](const variable_list& these) {
    const std::lock_guard lock(call->mutex_);
    const SecondRun& again = call->second_run(these, seen, true);
    return SecondRun::There{again.differentiate(to(again), these, {}, nullptr), again.begins()};
  };
  const SecondRun& again = second_run(tangents, seen, false);
  return again.differentiate(to(again), tangents, ways_from(again), there);
}

/// Of what its passes give to the caller's graph: by what the run begins with.
std::vector<SecondRun::Way> TrainedCall::ways_from(const SecondRun& again) const {
  std::vector<SecondRun::Way> ways;
  const auto add = [&](const at::Tensor& from, const Edge& to) {
    const bool is_way = from.defined() && from.requires_grad() && to.is_valid() &&
                        to.function->input_metadata(to.input_nr).is_same_shape(from);
    ways.push_back(is_way ? SecondRun::Way{from, to} : SecondRun::Way());
  };
  for (size_t k = 0; k < next_.size(); ++k) add(again.from[k], next_[k]);
  const std::lock_guard lock(nodes_mutex_);
  for (size_t k = 0; k < gone_.size(); ++k)
    add(again.results[k].is_leaf() ? at::Tensor() : again.results[k], edge_to_result(k));
  for (size_t i = 0; i < again.inner.size(); ++i)
    add(again.inner[i], edge_to_result(region_->p_.inner[i].tangent));
  return ways;
}

/// With nodes_mutex_ held. None where the result is gone.
Edge TrainedCall::edge_to_result(size_t tangent) const {
  if (result_nodes_[tangent]) return {result_nodes_[tangent]->getptr(), 0};
  const bool has_none = gone_.size() == 1 && rewritten_from_.empty();
  return has_none && nodes_[0] ? Edge(nodes_[0]->getptr(), 0) : Edge();
}

/// The run is made again once, for all passes: as in eager, they go through the nodes of one run.
SecondRun& TrainedCall::second_run(const variable_list& tangents, const std::vector<bool>& seen,
                                   bool in_callers) {
  TORCH_CHECK(!inputs_.are_released(), torch::autograd::ERR_BACKWARD_TWICE);
  const std::vector<bool> needed = region_->links_.inputs_behind(tangents);
  if (next_.empty()) next_ = edges();
  if (const auto known = again_.find({seen, in_callers}); known != again_.end()) {
    inputs_.demand(next_, needed);
    return known->second;
  }
  const auto apart = apart_from_transforms();
  Tensors inputs = inputs_.find(next_, needed);
  std::optional<record::GeneratorStates> now;
  if (inputs_.drawn()) now = region_->attempt_.states(generators_);
  const auto put_back = c10::make_scope_exit([&] {
    if (now) now->put_back();
  });
  if (inputs_.drawn()) inputs_.drawn()->put_back();
  edge_list parted(gone_.size());
  {
    const std::lock_guard lock(nodes_mutex_);
    for (size_t k = 0; k < seen.size(); ++k)
      if (seen[k]) parted[k] = edge_to_result(k);
  }
  region_->twice_.note();
  SecondRun again = region_->run_again(std::move(inputs), values_, generators_, next_, parted, in_callers);
  return again_.emplace(std::pair(seen, in_callers), std::move(again)).first->second;
}

/// By edge; none where nothing leads any more.
edge_list TrainedCall::edges() const {
  const TrainedLinks& links = region_->links_;
  edge_list all(links.edges.size());
  const std::lock_guard lock(nodes_mutex_);
  for (size_t g = 0; g < nodes_.size(); ++g)
    for (size_t i = 0; nodes_[g] && i < links.groups[g].edges.size(); ++i)
      all[links.groups[g].edges[i]] = nodes_[g]->next_edge(i);
  return all;
}

}  // namespace bolt::run
