// run/weight.cpp: see weight.h.
#include "run/weight.h"

#include <bit>
#include <cstring>

namespace bolt::run {
namespace {

/// From its first element to its last, with what lies between: of expanded tensors few, of slices more than
/// they show.
size_t bytes_of(const c10::TensorImpl& impl) {
  if (impl.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < impl.dim(); ++d) last += (impl.size(d) - 1) * impl.stride(d);
  return static_cast<size_t>(last + 1) * impl.itemsize();
}

// Four words spread over the tensor tell every update of a whole tensor apart, whoever made it.
std::array<uint64_t, 4> sample_of(const c10::TensorImpl& impl) {
  std::array<uint64_t, 4> words{};
  const size_t bytes = bytes_of(impl);
  if (bytes < sizeof(uint64_t)) {
    if (bytes) std::memcpy(words.data(), impl.data(), bytes);
    return words;
  }
  const char* data = static_cast<const char*>(impl.data());
  for (size_t i = 0; i < words.size(); ++i)
    std::memcpy(&words[i], data + (bytes - sizeof(uint64_t)) * i / (words.size() - 1) / 8 * 8,
                sizeof(uint64_t));
  return words;
}

/// Of all contents, four words at a time: as fast as memory is read.
uint64_t hash_of(const c10::TensorImpl& impl) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
  const size_t bytes = bytes_of(impl);
  const char* data = static_cast<const char*>(impl.data());
  uint64_t lanes[4] = {1, 2, 3, 4};
  size_t at = 0;
  for (; at + sizeof(lanes) <= bytes; at += sizeof(lanes)) {
    uint64_t words[4];
    std::memcpy(words, data + at, sizeof(words));
    for (int i = 0; i < 4; ++i) lanes[i] = std::rotl(lanes[i] ^ words[i], 29) * kPrime;
  }
  for (; at < bytes; ++at) lanes[at % 4] = (lanes[at % 4] ^ static_cast<unsigned char>(data[at])) * kPrime;
  uint64_t hash = bytes;
  for (uint64_t lane : lanes) hash = std::rotl(hash ^ lane, 31) * kPrime;
  return hash;
}

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
      sample_(sample_of(*address_)),
      hash_(hash_of(*address_)),
      handed_out_(watch(tensor.storage())),
      times_(handed_out_->times),
      has_aliases_(may_have_aliases(*address_, *handed_out_)) {}

bool Weight::is(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& version = impl.version_counter();
  return &impl == address_ && impl.data() == data_ && counter_of(version) == counter_ &&
         number_of(version) == number_ && impl.unsafe_storage().unsafeGetStorageImpl() == memory_ &&
         sample_of(impl) == sample_ && ((times_ == handed_out_->times && !has_aliases_) || holds_same(impl));
}

/// Who has let go of the memory by now has written for the last time.
bool Weight::holds_same(const c10::TensorImpl& impl) const {
  const uint64_t times = handed_out_->times;
  const bool has_aliases = may_have_aliases(impl, *handed_out_);
  if (hash_of(impl) != hash_) return false;
  times_ = times;
  has_aliases_ = has_aliases;
  return true;
}

}  // namespace bolt::run
