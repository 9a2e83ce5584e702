// run/weight.cpp
#include "run/weight.h"

#include "record/convert.h"

namespace bolt::run {
namespace {

uint32_t number_of(const c10::VariableVersion& version) {
  return version.enabled() ? version.current_version() : 0;
}

}  // namespace

Weight::Weight(const at::Tensor& tensor)
    : version_(tensor.unsafeGetTensorImpl()->version_counter()),
      storage_(tensor.storage().getWeakStorageImpl()),
      counter_(guard::counter_of(version_)),
      memory_(tensor.storage().unsafeGetStorageImpl()),
      data_(tensor.unsafeGetTensorImpl()->data()),
      address_(tensor.unsafeGetTensorImpl()),
      number_(number_of(version_)),
      device_(device::find(record::to_bolt(tensor.device()).kind)),
      sample_(device_->sample(*address_)),
      hash_(device_->hash(*address_)),
      handed_out_(guard::watch(tensor.storage())),
      times_(handed_out_->times),
      has_aliases_(guard::may_have_aliases(*address_, *handed_out_)) {}

bool Weight::is(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& version = impl.version_counter();
  return &impl == address_ && impl.data() == data_ && guard::counter_of(version) == counter_ &&
         number_of(version) == number_ && impl.unsafe_storage().unsafeGetStorageImpl() == memory_ &&
         device_->sample(impl) == sample_ &&
         ((times_ == handed_out_->times && !has_aliases_) || holds_same(impl));
}

/// Who has let go of the memory by now has written for the last time.
bool Weight::holds_same(const c10::TensorImpl& impl) const {
  const uint64_t times = handed_out_->times;
  const bool has_aliases = guard::may_have_aliases(impl, *handed_out_);
  if (!hash_ || device_->hash(impl) != hash_) return false;
  times_ = times;
  has_aliases_ = has_aliases;
  return true;
}

}  // namespace bolt::run
