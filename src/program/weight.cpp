// program/weight.cpp: see weight.h.
#include "program/weight.h"

#include <cstring>

namespace bolt::program {
namespace {

// `p.data.mul_(2)` changes neither identity nor version counter. Four words spread over the tensor tell
// every update of a whole tensor apart; that of a single element through .data they may miss.
std::array<uint64_t, 4> sample_of(const c10::TensorImpl& impl) {
  std::array<uint64_t, 4> words{};
  const size_t bytes = static_cast<size_t>(impl.numel()) * impl.itemsize();
  if (bytes < sizeof(uint64_t) || !impl.is_non_overlapping_and_dense()) return words;
  const char* data = static_cast<const char*>(impl.data());
  for (size_t i = 0; i < words.size(); ++i)
    std::memcpy(&words[i], data + (bytes - sizeof(uint64_t)) * i / (words.size() - 1) / 8 * 8,
                sizeof(uint64_t));
  return words;
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
      sample_(sample_of(*address_)) {}

bool Weight::is(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& version = impl.version_counter();
  return &impl == address_ && impl.data() == data_ && counter_of(version) == counter_ &&
         number_of(version) == number_ && impl.unsafe_storage().unsafeGetStorageImpl() == memory_ &&
         sample_of(impl) == sample_;
}

}  // namespace bolt::program
