// run/trained/kept_inputs.cpp
#include "run/trained/kept_inputs.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <utility>

namespace bolt::run {

using torch::autograd::edge_list;

// ---- forward ----

void KeptInputs::keep_what_changes(const Tensors& inputs, std::optional<record::GeneratorStates> drawn) {
  drawn_ = std::move(drawn);
  for (const TrainedLinks::Changing& changing : links_.changing) {
    const at::Tensor input = inputs[changing.input].detach();
    changing_.push_back(changing.is_read ? input.clone() : input);
  }
}

void KeptInputs::keep(const Tensors& inputs, bool expected) {
  Tensors all = inputs;
  for (const TrainedLinks::Changing& changing : links_.changing) all[changing.input].reset();
  std::vector<bool> hidden(all.size(), !expected);
  for (size_t i = 0; i < all.size(); ++i) {
    // The next call of the region would be a write to what was saved, which eager has not.
    const bool copied = (!p_.written_again.empty() && p_.written_again[i]) || (expected && links_.copied[i]);
    if (copied && all[i].defined()) all[i] = all[i].detach().clone();
    if (all[i].defined() && all[i].is_inference()) all[i] = all[i].clone();  // none can be saved
    hidden[i] = hidden[i] || copied || !p_.kept_by_eager[i];
  }
  const bool hooked = at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks();
  std::optional<at::impl::SavedTensorDefaultHooksTLS> as_given;
  if (hooked) as_given = at::SavedTensorDefaultHooks::get_tls_state();
  const auto put_back = c10::make_scope_exit([&] {
    if (hooked) at::SavedTensorDefaultHooks::set_tls_state(*as_given);
  });
  for (size_t i = 0; i < all.size(); ++i) {
    if (hooked)
      at::SavedTensorDefaultHooks::set_tls_state(hidden[i] ? at::impl::SavedTensorDefaultHooksTLS()
                                                           : *as_given);
    kept_.emplace_back(all[i], false);
    as_it_is_.push_back(all[i].defined() ? all[i].variable_data() : all[i]);
  }
}

void KeptInputs::remember(const Tensors& inputs) {
  const bool changes = std::ranges::any_of(links_.changing, &TrainedLinks::Changing::is_read);
  const bool counted =
      std::ranges::none_of(inputs, [](const at::Tensor& t) { return t.defined() && t.is_inference(); });
  if (links_.draws || changes || !counted) return;  // they alone would not do
  seen_.reserve(inputs.size());
  const at::Tensor none;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& t = inputs[i];
    const bool is_leaf = p_.gradients[i] >= 0 && t.requires_grad() && t.is_leaf();
    seen_.push_back({decltype(Seen::tensor)((is_leaf ? none : t).getIntrusivePtr()),
                     t.defined() ? static_cast<int64_t>(t._version()) : -1});
  }
}

// ---- backward ----

/// An input that was written to is no matter to results that are not made of it.
Tensors KeptInputs::find(const edge_list& edges, const std::vector<bool>& needed) {
  Tensors found;
  otherwise_.assign(needed.size(), false);
  for (size_t i = 0; i < needed.size(); ++i) {
    try {
      found.push_back(find_one(i, edges));
    } catch (const c10::Error&) {
      if (needed[i] || i >= as_it_is_.size()) throw;
      found.push_back(as_it_is_[i]);
      otherwise_[i] = true;
    }
  }
  return found;
}

void KeptInputs::demand(const edge_list& edges, const std::vector<bool>& needed) const {
  for (size_t i = 0; i < otherwise_.size(); ++i)
    if (otherwise_[i] && needed[i]) find_one(i, edges);
}

at::Tensor KeptInputs::find_one(size_t i, const edge_list& edges) const {
  const auto& changing = links_.changing;
  const auto changes = std::ranges::find(changing, i, &TrainedLinks::Changing::input);
  if (!kept_.empty())
    return changes == changing.end() ? kept_[i].unpack() : changing_[changes - changing.begin()].clone();
  at::Tensor now;
  bool is_found = !seen_.empty();
  if (is_found) {
    now = at::Tensor::wrap_tensor_impl(seen_[i].tensor.lock());
    const bool was_defined = seen_[i].version >= 0;
    if (was_defined && !now.defined()) now = leaf_behind(i, edges);
    is_found = now.defined() == was_defined &&
               (!was_defined || changes != changing.end() || now._version() == seen_[i].version);
  }
  TORCH_CHECK(
      is_found,
      "torchbolt: gradients of gradients (create_graph=True) are asked for of a compiled function whose "
      "inputs were not kept, because the backward passes before this one did not need them. They are "
      "kept from the next call on: run this step again.");
  if (!now.defined()) return now;
  return changes == changing.end() ? now.detach() : now.detach().clone();
}

/// Autograd holds those by itself.
at::Tensor KeptInputs::leaf_behind(size_t input, const edge_list& edges) const {
  const std::vector<size_t>& to = links_.edges;
  const auto at = std::ranges::find(to, input);
  if (at == to.end()) return {};
  const auto& node = edges[at - to.begin()].function;
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  return leaf ? leaf->variable : at::Tensor();
}

void KeptInputs::release() {
  kept_.clear();
  as_it_is_.clear();
  seen_.clear();
  changing_.clear();
  released_ = true;
}

}  // namespace bolt::run
