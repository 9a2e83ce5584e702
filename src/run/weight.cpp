// run/weight.cpp: see weight.h.
#include "run/weight.h"

#include <cstring>

#include "record/convert.h"

namespace bolt::run {
namespace {

/// Can somebody still write to the memory past the counter? Who holds it without having been handed it so (a
/// state_dict, a view) counts its writes.
bool may_have_aliases(const c10::TensorImpl& impl, const HandedOut& handed_out) {
  return handed_out.for_good || (handed_out.times > 0 && impl.unsafe_storage().use_count() > 1);
}

/// The address of the counter that a tensor shares with its views; null of inference tensors.
const void* counter_of(const c10::VariableVersion& version) {
  static_assert(sizeof(version) == sizeof(const void*));
  if (!version.enabled()) return nullptr;
  const void* counter;
  std::memcpy(&counter, &version, sizeof(counter));
  return counter;
}

uint32_t number_of(const c10::VariableVersion& version) {
  return version.enabled() ? version.current_version() : 0;
}

}  // namespace

Weight::Weight(const at::Tensor& tensor)
    : version_(tensor.unsafeGetTensorImpl()->version_counter()),
      storage_(tensor.storage().getWeakStorageImpl()),
      counter_(counter_of(version_)),
      memory_(tensor.storage().unsafeGetStorageImpl()),
      data_(tensor.unsafeGetTensorImpl()->data()),
      address_(tensor.unsafeGetTensorImpl()),
      number_(number_of(version_)),
      device_(device::find(record::to_bolt(tensor.device()).kind)),
      sample_(device_->sample(*address_)),
      hash_(device_->hash(*address_)),
      handed_out_(watch(tensor.storage())),
      times_(handed_out_->times),
      has_aliases_(may_have_aliases(*address_, *handed_out_)) {}

bool Weight::is(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& version = impl.version_counter();
  return &impl == address_ && impl.data() == data_ && counter_of(version) == counter_ &&
         number_of(version) == number_ && impl.unsafe_storage().unsafeGetStorageImpl() == memory_ &&
         device_->sample(impl) == sample_ &&
         ((times_ == handed_out_->times && !has_aliases_) || holds_same(impl));
}

/// Who has let go of the memory by now has written for the last time.
bool Weight::holds_same(const c10::TensorImpl& impl) const {
  const uint64_t times = handed_out_->times;
  const bool has_aliases = may_have_aliases(impl, *handed_out_);
  if (!hash_ || device_->hash(impl) != hash_) return false;
  times_ = times;
  has_aliases_ = has_aliases;
  return true;
}

}  // namespace bolt::run
