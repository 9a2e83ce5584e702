// record/tensors.cpp
#include "record/tensors.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace bolt::record {
namespace {

/// Made by an entry that was taken back: nobody makes it any more.
bool is_gone(const TensorInfo& info) { return info.input < 0 && info.producer < 0; }

Dims dims(at::IntArrayRef values) { return {values.begin(), values.end()}; }

/// Of few numbers: std::equal would call memcmp.
bool are(at::IntArrayRef values, const Dims& dims) {
  bool same = values.size() == dims.size();
  for (size_t i = 0; same && i < dims.size(); ++i) same = values[i] == dims[i];
  return same;
}

/// Forward-mode gradients know some tangents to be zero.
bool is_zero(const at::Tensor& t) { return t.layout() == c10::kStrided && t._is_zerotensor(); }

constexpr c10::DispatchKeySet kNoted({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

/// Plain but for what it notes of its memory.
bool is_memory_seen_so(const at::Tensor& t) {
  constexpr c10::DispatchKeySet kOthers(
      {c10::DispatchKey::NestedTensor, c10::DispatchKey::Python, c10::DispatchKey::Quantized,
       c10::DispatchKey::ZeroTensor, c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});
  return !t.key_set().has_any(kOthers) && t.has_storage() &&
         t.unsafeGetTensorImpl()->layout() == c10::kStrided;
}

/// Of a leaf it is the leaf itself.
std::pair<const void*, uint32_t> place_in_graph(const c10::TensorImpl& t) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(t.autograd_meta());
  if (!meta || !meta->grad_fn_) return {&t, 0};
  return {meta->grad_fn_.get(), meta->output_nr_};
}

}  // namespace

bool is_plain(const at::Tensor& t) { return !t.key_set().has_any(kNoted) && is_memory_seen_so(t); }

bool Tensors::matches(const TensorInfo& info, const at::Tensor& t) const {
  if (info.dtype != t.scalar_type()) return false;
  if (!info.plain) return true;
  if (!are(t.sizes(), info.sizes) || !are(t.strides(), info.strides)) return false;
  return t.storage_offset() == info.offset && is_memory(info.storage, *t.storage().unsafeGetStorageImpl());
}

std::optional<TensorId> Tensors::find(const at::Tensor& t) const {
  if (!reverted_.empty())
    if (const auto at = reverted_.find(t.unsafeGetTensorImpl()); at != reverted_.end()) return at->second;
  const TensorId* id = ids_.find(t.unsafeGetTensorImpl());
  if (!id || *id < 0 || !matches(tape_.tensors[*id], t)) return std::nullopt;
  return *id;
}

/// Is the tensor that was seen first still what it was then, or was until it was freed? One that has been
/// turned (x.t_()) is another.
bool Tensors::is_itself(TensorId id) const {
  const Owner& owner = owners_[id];
  if (!owner.impl) return owner.was_itself;
  const TensorId* now = ids_.find(owner.impl);
  return now && *now == id;
}

template <class Impl>
template <class Gone>
void Tensors::AllHeld<Impl>::let_go(Gone gone) {
  auto look_at = [&](size_t i) {
    Held<Impl>& held = all[i];
    if (!held.keeps.expired()) return false;
    gone(held.impl, held.id);
    held = std::move(all.back());
    all.pop_back();
    return true;
  };
  // Most go soon, when the next operators have read them: not yet the newest, but those before it.
  constexpr size_t kNewest = kEvery + 2;
  for (size_t i = 2; i <= kNewest && i <= all.size(); ++i) look_at(all.size() - i);
  // The others in turn, and soon: an object that is gone but for us has its place in memory still, so what
  // comes next takes another than in eager.
  for (size_t i = 0; i < 4 * kEvery && i < all.size(); ++i) {
    if (next >= all.size()) next = 0;
    if (!look_at(next)) ++next;
  }
}

TensorId Tensors::input_id(const at::Tensor& t) {
  if (auto id = find(t)) return *id;
  return add(t, -1);
}

/// What autograd saved comes back as another object on the same memory, with the same place in its graph. A
/// detached tensor is none of what it was detached from, also if it has a gradient of its own, and one that
/// has been turned since (x.t_()) is another than it was.
std::optional<TensorId> Tensors::find_same_memory(const at::Tensor& t) const {
  if ((!is_plain(t) && !is_zero(t)) || !storages_.find(t.storage().unsafeGetStorageImpl()))
    return std::nullopt;
  const auto has_history_of = [&](size_t i) {
    const c10::TensorImpl* owner = owners_[i].impl;
    if (!owner || !owner->requires_grad()) return !t.requires_grad();
    return t.requires_grad() && place_in_graph(*owner) == place_in_graph(*t.unsafeGetTensorImpl());
  };
  for (size_t i = tape_.tensors.size(); i-- > 0;)
    if (tape_.tensors[i].plain && !tape_.tensors[i].is_noted() && !is_gone(tape_.tensors[i]) &&
        matches(tape_.tensors[i], t) && has_history_of(i) && is_itself(static_cast<TensorId>(i)))
      return static_cast<TensorId>(i);
  return std::nullopt;
}

TensorId Tensors::id_of(const at::Tensor& t, Use use, int entry) {
  if (!t.defined()) return -1;
  const auto id = find(t);
  if (use == Use::itself) return id && owners_[*id].impl == t.unsafeGetTensorImpl() ? *id : add(t, -1);
  if (id) return *id;
  if (use == Use::value)
    if (const auto same = find_same_memory(t)) {
      ids_[t.unsafeGetTensorImpl()] = *same;
      held_.add(t.getIntrusivePtr(), *same);
      merged_.emplace_back(t.unsafeGetTensorImpl(), *same);
      return *same;
    }
  return add(t, use == Use::result ? entry : -1);
}

TensorId Tensors::add(const at::Tensor& t, int entry) {
  const auto id = static_cast<TensorId>(tape_.tensors.size());
  TensorInfo& info = tape_.tensors.emplace_back();
  info.dtype = t.scalar_type();
  info.device = t.device();
  info.zero = takes_zeros && entry >= 0 && is_zero(t);
  // Of what comes from outside, nobody asks at each call whether it is noted so.
  info.plain = info.zero || (entry < 0 ? is_plain(t) : is_memory_seen_so(t));
  if (info.plain && entry >= 0) info.conjugated = t.is_conj(), info.negated = t.is_neg();
  if (!t.is_nested()) info.sizes = dims(t.sizes());
  info.requires_grad = t.requires_grad();
  info.producer = entry;
  if (info.plain) [[likely]] {
    info.strides = dims(t.strides());
    info.offset = t.storage_offset();
    info.storage = storage_id(t, entry < 0);
  } else if (obstacle_.empty()) {
    obstacle_ = std::string("a tensor that is not plain strided memory (") + t.toString() + ")";
  }
  auto* impl = t.unsafeGetTensorImpl();
  ids_[impl] = id;
  owners_.push_back({impl, true});
  if (entry < 0) {
    info.input = static_cast<int>(inputs_.size());
    inputs_.push_back(t);
    tape_.inputs.push_back(id);
  } else {
    held_.add(t.getIntrusivePtr(), id);
  }
  return id;
}

int Tensors::storage_id(const at::Tensor& t, bool from_outside) {
  auto* impl = t.storage().unsafeGetStorageImpl();
  const size_t before = storages_.size();
  int& known = storages_[impl];
  if (before == storages_.size() && is_memory(known, *impl)) return known;
  const int id = known = static_cast<int>(known_storages_.size());
  known_storages_.push_back({impl});
  const auto shared = c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(impl);
  if (from_outside)
    inputs_storages_.emplace_back(shared);
  else
    held_storages_.add(shared, id);
  return id;
}

void Tensors::count_write(TensorId id) {
  const TensorInfo& info = tape_.tensors[id];
  if (info.plain) ++known_storages_[info.storage].writes;
}

int64_t Tensors::writes(const at::Tensor& t) const {
  if (!is_plain(t)) return -1;
  const auto* impl = t.storage().unsafeGetStorageImpl();
  const int* storage = storages_.find(impl);
  return storage && is_memory(*storage, *impl) ? known_storages_[*storage].writes : 0;
}

void Tensors::refilled(const at::Tensor& t) {
  if (const int* known = storages_.find(t.storage().unsafeGetStorageImpl()))
    known_storages_[*known].impl = nullptr;
}

void Tensors::becomes(const at::Tensor& t, TensorId id) {
  ids_[t.unsafeGetTensorImpl()] = id;
  given_data_.emplace(t.unsafeGetTensorImpl(), t);
}

void Tensors::note_resized(TensorId id, size_t entry) { resized_.push_back({owners_[id].impl, id, entry}); }

void Tensors::revert(size_t entry) {
  for (const Resized& r : resized_)
    if (r.entry >= entry) reverted_[r.impl] = r.before;
}

void Tensors::let_go() {
  if (++since_let_go_ < kEvery) return;
  since_let_go_ = 0;
  held_.let_go([&](const c10::TensorImpl* impl, TensorId id) {
    TensorId* now = ids_.find(impl);
    const bool itself = now && *now == id;
    if (itself) *now = -1;
    Owner& owner = owners_[id];
    if (owner.impl == impl) owner = {nullptr, itself};
    if (!resized_.empty()) std::erase_if(resized_, [&](const Resized& r) { return r.impl == impl; });
  });
  held_storages_.let_go([&](const c10::StorageImpl* impl, int id) {
    const c10::StorageImpl*& known = known_storages_[id].impl;
    if (known == impl) known = nullptr;
  });
}

}  // namespace bolt::record
