// run/trained/trained_links.cpp
#include "run/trained/trained_links.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "autograd/flow.h"
#include "autograd/joint.h"
#include "record/copy.h"
#include "support/error.h"

namespace bolt::run {

using record::Tape;
using record::TensorId;
using record::TensorInfo;

namespace {

int64_t bytes_of(const TensorInfo& info) { return static_cast<int64_t>(autograd::bytes_reached(info)); }

/// Marks what `more` does, which may be empty.
void unite(std::vector<bool>& to, const std::vector<bool>& more) {
  for (size_t i = 0; i < more.size(); ++i) to[i] = to[i] || more[i];
}

}  // namespace

TrainedLinks::TrainedLinks(const Tape& tape, const std::vector<TensorId>& wanted, const TrainedParts& parts,
                           const std::unordered_map<int, at::Tensor>& constants)
    : tape_(tape), wanted_(wanted), p_(parts) {
  for (TensorId id : wanted_) result_of.push_back(position(p_.forward->wanted(), id));
  find_saved(constants);
  find_tangents();
  find_inner();
  find_groups();
  find_readers_of_saved();
  find_views();
  find_inputs_of_each();
  find_changing(constants);
  find_cost_of_inputs();
  find_copied();
  draws = std::ranges::any_of(tape_.entries, [](const record::Entry& e) { return e.facts->draws; });
}

void TrainedLinks::find_saved(const std::unordered_map<int, at::Tensor>& constants) {
  const Tape& tape = p_.forward->tape();
  for (TensorId id : p_.saved) {
    const int input = info_of(tape, id).input;
    if (input >= 0 && !constants.contains(input))
      saved_from.push_back({SavedFrom::Kind::Input, static_cast<size_t>(input)});
    else
      saved_from.push_back({SavedFrom::Kind::Result, position(p_.forward->wanted(), id)});
  }
}

bool TrainedLinks::is_own(size_t result) const {
  return p_.forward->lowered().outputs[result].kind == OutKind::Fresh;
}

bool TrainedLinks::shows_rewritten(size_t result) const {
  const lower::TensorOut& out = p_.forward->lowered().outputs[result];
  const bool shows = out.kind == OutKind::Input || out.kind == OutKind::InputView;
  return shows && is_rewritten(static_cast<size_t>(out.index));
}

/// A gradient belongs to a result that is memory of its own: the tensor itself, or what it is a part of. Or
/// the program takes a result for a view that is none to autograd, as of linear() without a bias.
void TrainedLinks::find_tangents() {
  const Tape& tape = p_.forward->tape();
  const auto& results = p_.forward->lowered().outputs;
  const auto& wanted = p_.forward->wanted();
  const size_t of_results = p_.tangent_of.size() - p_.rewritten.size();
  for (TensorId id : std::span(p_.tangent_of).first(of_results)) {
    const TensorInfo& info = info_of(tape, id);
    const size_t itself = position(wanted, id);
    if (itself < wanted.size() && (is_own(itself) || results[itself].kind == OutKind::OutputView)) {
      tied.push_back(itself);
      continue;
    }
    if (itself < wanted.size() && results[itself].kind == OutKind::InputView && is_shown_beside(id)) {
      beside.push_back(id);
      tied.push_back(itself);
      continue;
    }
    size_t part = 0;
    while (part < wanted.size() &&
           (results[part].kind != OutKind::OutputView || info_of(tape, wanted[part]).storage != info.storage))
      ++part;
    if (part == wanted.size()) throw_unsupported("a result whose memory nothing gives");
    const auto whole = static_cast<size_t>(results[part].index);
    if (results[whole].sizes.size() != info.sizes.size())
      throw_unsupported("results that show one memory in ways of which none is the first");
    tied.push_back(whole);
  }
}

/// From a result to those inner ones that it leads to, but not through a third one.
void TrainedLinks::find_inner() {
  const size_t count = p_.tangent_of.size();
  inner.assign(count, -1);
  before.resize(count);
  for (size_t i = 0; i < p_.inner.size(); ++i) {
    const size_t itself = p_.inner[i].tangent;
    if (!is_own(tied[itself])) throw_unsupported("a result that others are made of, and that is a view");
    inner[itself] = static_cast<int>(i);
  }
  for (const autograd::Inner& to : p_.inner) {
    // What leads to it through another one. Those come in the order in which they were made, the nearest
    // first, and what leads to one behind the nearest leads to the nearest as well.
    std::vector<bool> through(count);
    for (const autograd::Inner& it : p_.inner) {
      if (!to.from[it.tangent] || it.tangent == to.tangent || through[it.tangent]) continue;
      for (size_t k = 0; k < count; ++k)
        if (it.from[k] && k != it.tangent) through[k] = true;
    }
    for (size_t k = 0; k < count; ++k) {
      // Autograd may call the node of a rewritten view from within one of its own.
      if (to.from[k] && k + p_.rewritten.size() >= count)
        throw_unsupported("a result that others are made of, and an input that is rewritten with it");
      if (to.from[k] && !through[k]) before[k].push_back(to.tangent);
    }
  }
}

void TrainedLinks::find_groups() {
  const size_t count = p_.tangent_of.size();
  const auto device = [&](size_t tangent) {
    return info_of(p_.backward_tape(), p_.backward_tape().inputs[p_.saved.size() + tangent]).device;
  };
  bool one_device = true;
  std::map<std::vector<bool>, Group> by_tangents;
  for (size_t k = 1; p_.backward && k < count; ++k) one_device &= device(k) == device(0);
  for (size_t i = 0; i < p_.gradients.size(); ++i) {
    if (p_.gradients[i] < 0) continue;
    const auto from = one_device ? p_.comes_from[i] : std::vector<bool>(count, true);
    by_tangents[from].edges.push_back(edges.size());
    edges.push_back(i);
  }
  for (auto& [from, group] : by_tangents) {
    for (size_t k = 0; k < count; ++k)
      if (from[k]) group.tangents.push_back(k);
    groups.push_back(std::move(group));
  }
}

/// Eager has a node for each operator, so a pass through one result leaves what others need as it was. What
/// reads nothing that is saved can be gone through as often as one likes.
void TrainedLinks::find_readers_of_saved() {
  const size_t count = p_.tangent_of.size();
  reads_saved.assign(count, false);
  if (!p_.backward) return;
  const Tape& tape = p_.backward_tape();
  std::vector<std::vector<bool>> from(tape.tensors.size());  // tangents that lead to a tensor
  std::vector<bool> of_saved(tape.tensors.size());           // made of what is saved alone
  for (size_t s = 0; s < p_.saved.size(); ++s) of_saved[tape.inputs[s]] = true;
  for (size_t k = 0; k < count; ++k) {
    auto& itself = from[tape.inputs[p_.saved.size() + k]];
    itself.assign(count, false);
    itself[k] = true;
  }
  for (const record::Entry& entry : tape.entries) {
    std::vector<bool> all(count);
    bool saved = false;
    for_each_tensor(entry.args, [&](TensorId id) {
      saved = saved || of_saved[id];
      unite(all, from[id]);
    });
    const bool makes_again = std::ranges::find(all, true) == all.end();  // what was not saved, or nothing
    if (saved && !makes_again) unite(reads_saved, all);
    auto lead = [&](TensorId id) {
      of_saved[id] = saved && makes_again;
      if (!makes_again) from[id] = all;
    };
    for_each_tensor(entry.results, lead);
    for_each_written(entry, lead);
  }
  if (count > 1) find_readers_of_each(from);
}

/// `from`: by tensor of the backward part, the tangents that lead to it; empty: none does, so it is saved or
/// made of what is.
void TrainedLinks::find_readers_of_each(const std::vector<std::vector<bool>>& from) {
  const Tape& tape = p_.backward_tape();
  const size_t count = p_.tangent_of.size();
  readers.assign(p_.saved.size(), std::vector<bool>(count, false));
  std::vector<std::vector<size_t>> made_of(tape.tensors.size());  // of which saved tensors
  for (size_t s = 0; s < p_.saved.size(); ++s) made_of[tape.inputs[s]] = {s};
  for (const record::Entry& entry : tape.entries) {
    std::vector<size_t> read;
    std::vector<bool> behind(count, false);
    for_each_tensor(entry.args, [&](TensorId id) {
      const auto at = static_cast<size_t>(id);
      if (from[at].empty()) read.insert(read.end(), made_of[at].begin(), made_of[at].end());
      unite(behind, from[at]);
    });
    std::ranges::sort(read);
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (size_t s : read) unite(readers[s], behind);
    auto lead = [&](TensorId id) {
      if (from[id].empty()) made_of[id] = read;
    };
    for_each_tensor(entry.results, lead);
    for_each_written(entry, lead);
  }
}

/// Whatever gradients of gradients are made of, gradients have read. By memory, so that writes and views
/// count.
void TrainedLinks::find_inputs_of_each() {
  const Tape& tape = p_.forward->tape();
  const size_t count = tape.inputs.size();
  const auto storage_of = [&](TensorId id) { return static_cast<size_t>(info_of(tape, id).storage); };
  std::vector<std::vector<bool>> of(static_cast<size_t>(record::count_storages(tape)),
                                    std::vector<bool>(count));
  for (size_t i = 0; i < count; ++i) of[storage_of(tape.inputs[i])][i] = true;
  for (const record::Entry& entry : tape.entries) {
    std::vector<bool> read(count);
    for_each_tensor(entry.args, [&](TensorId id) { unite(read, of[storage_of(id)]); });
    const auto lead = [&](TensorId id) { unite(of[storage_of(id)], read); };
    for_each_tensor(entry.results, lead);
    for_each_written(entry, lead);
  }
  made_of.assign(p_.tangent_of.size(), std::vector<bool>(count));
  for (size_t s = 0; s < p_.saved.size(); ++s)
    for (size_t k = 0; k < made_of.size(); ++k)
      if (readers.empty() || readers[s][k]) unite(made_of[k], of[storage_of(p_.saved[s])]);
}

/// Results that autograd itself leads back, to inputs or to a part of what the node gives.
void TrainedLinks::find_views() {
  std::vector<TensorId> bases = tape_.inputs, wanted;
  for (size_t i = 0; i < tied.size(); ++i) {
    if (static_cast<size_t>(p_.tangent_of[i]) >= tape_.tensors.size()) continue;  // of the joint tape alone
    bases.push_back(p_.tangent_of[i]);
    viewed.push_back(i);
  }
  const auto& results = p_.forward->lowered().outputs;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const OutKind kind = results[result_of[i]].kind;
    const bool view = kind == OutKind::InputView || kind == OutKind::OutputView;
    wanted.push_back(view && p_.differentiable[i] ? wanted_[i] : -1);
    const bool shows_input = kind == OutKind::InputView || kind == OutKind::Input;
    if (!shows_input || !p_.differentiable[i]) continue;
    if (shown_by(wanted_[i], "torchbolt::function"))
      throw_unsupported("a result of an autograd.Function that shows an input");
    if (shown_by(wanted_[i], "aten::detach"))
      throw_unsupported("an input that is written to beside its history, and has another one there");
  }
  find_shown(wanted, bases);
  views.emplace(tape_, bases, wanted);
}

/// The operator of that name that has given it, or what it is a view of; null: none has, but behind what is
/// itself given a gradient (`beside`).
const record::Entry* TrainedLinks::shown_by(TensorId id, std::string_view name) const {
  for (int at = info_of(tape_, id).producer; info_of(tape_, id).input < 0 && at >= 0;
       at = info_of(tape_, id).producer) {
    if (std::ranges::find(beside, id) != beside.end()) return nullptr;
    const record::Entry& entry = tape_.entries[at];
    if (entry.op.operator_name().name == name) return &entry;
    TensorId shown = -1;
    for_each_tensor(entry.args, [&](TensorId operand) {
      if (info_of(tape_, operand).storage == info_of(tape_, id).storage) shown = operand;
    });
    if (shown < 0) return nullptr;
    id = shown;
  }
  return nullptr;
}

/// By detach(), and written to: it has a history of its own, beside that of the input whose memory it is.
bool TrainedLinks::is_shown_beside(TensorId id) const {
  const record::Entry* detach = shown_by(id, "aten::detach");
  return detach && !detach->own_version && detach->results[0].tensors[0] == id;
}

/// What an operator that is no view makes may be a view below autograd: linear() of three dimensions. It is
/// one of what the node gives, as it lies there, and views of it are made of it.
void TrainedLinks::find_shown(const std::vector<TensorId>& views, std::vector<TensorId>& bases) {
  std::vector<std::pair<TensorId, size_t>> as_made;
  for (size_t i = 0; i < views.size(); ++i)
    if (views[i] >= 0) as_made.emplace_back(views[i], i);
  std::ranges::sort(as_made);
  for (const auto& [id, output] : as_made) {
    if (Views::reaches(tape_, bases, id)) continue;
    demand_tied(p_.forward->lowered().outputs[result_of[output]]);
    bases.push_back(id);
    shown.push_back(output);
  }
}

/// A view of what the node gives.
void TrainedLinks::demand_tied(const lower::TensorOut& view) const {
  if (view.kind == OutKind::OutputView &&
      std::ranges::find(tied, static_cast<size_t>(view.index)) == tied.end())
    throw_unsupported("results that show one memory in ways of which none is the first");
}

void TrainedLinks::find_changing(const std::unordered_map<int, at::Tensor>& constants) {
  const VisibleWrites writes(tape_, constants);
  std::vector<TensorId> seen = wanted_;  // afterwards
  for (size_t i : p_.rewritten) seen.push_back(tape_.inputs[i]);
  const std::vector<bool> read = writes.are_read(tape_, seen);
  for (size_t i = 0; i < writes.inputs.size(); ++i) changing.push_back({writes.inputs[i], read[i]});
  for (size_t i = 0; i < p_.written_later.size(); ++i)
    if (p_.written_later[i] && std::ranges::find(writes.inputs, i) == writes.inputs.end())
      changing.push_back({i, true});
}

/// Parameters are alive anyway, and so is what is saved. What another piece of the region made is not, nor
/// are copies of what is written to.
void TrainedLinks::find_cost_of_inputs() {
  int64_t extra = 0, saved = 0;
  for (TensorId id : p_.saved) saved += bytes_of(info_of(p_.forward->tape(), id));
  auto made_inside = [&](TensorId id) {
    return !p_.made_inside.empty() && p_.made_inside[info_of(tape_, id).input];
  };
  for (TensorId id : tape_.inputs)
    if ((!info_of(tape_, id).requires_grad || made_inside(id)) && position(p_.saved, id) == p_.saved.size())
      extra += bytes_of(info_of(tape_, id));
  for (const Changing& input : changing)
    if (input.is_read) extra += bytes_of(info_of(tape_, tape_.inputs[input.input]));
  inputs_are_cheap = extra * 16 <= saved;
}

/// Who writes to what eager does not keep does not disturb gradients of gradients there. Copies are made of
/// what is no more than what is kept anyway, or next to nothing.
void TrainedLinks::find_copied() {
  constexpr int64_t kNextToNothing = 1 << 20;
  int64_t saved = 0, copies = 0;
  for (TensorId id : p_.saved) saved += bytes_of(info_of(p_.forward->tape(), id));
  copied = p_.kept_by_eager;
  copied.flip();
  for (size_t i = 0; i < copied.size(); ++i)
    if (copied[i]) copies += bytes_of(info_of(tape_, tape_.inputs[i]));
  if (copies > std::max(saved, kNextToNothing)) copied.assign(copied.size(), false);
}

std::vector<bool> TrainedLinks::inputs_behind(const Tensors& tangents) const {
  std::vector<bool> out(tape_.inputs.size());
  for (size_t k = 0; k < made_of.size(); ++k)
    if (tangents[k].defined()) unite(out, made_of[k]);
  return out;
}

/// What the node has a gradient for may be of the joint tape alone, made inside of an operator that gives a
/// view of it: that view is on the run's tape, and results may be parts of it.
TensorId TrainedLinks::on_tape(size_t tangent) const {
  const TensorId id = p_.tangent_of[tangent];
  if (static_cast<size_t>(id) < tape_.tensors.size()) return id;
  const auto& results = p_.forward->lowered().outputs;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const auto& result = results[result_of[i]];
    if (result.kind != OutKind::OutputView || static_cast<size_t>(result.index) != tied[tangent]) continue;
    const TensorInfo &part = info_of(tape_, wanted_[i]), &whole = info_of(p_.forward->tape(), id);
    for (TensorId shown = 0; shown < wanted_[i]; ++shown)
      if (const TensorInfo& info = info_of(tape_, shown);
          info.storage == part.storage && info.elements() == whole.elements() && info.producer >= 0)
        return shown;
    return wanted_[i];
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "torchbolt: gradients of gradients of a result that no view shows");
}

}  // namespace bolt::run
