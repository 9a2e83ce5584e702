// guard/tensor_images.cpp
#include "guard/tensor_images.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

namespace bolt::guard {
namespace {

using torch::autograd::AutogradMeta;

// Where a tensor's implementation keeps what is asked of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
struct ImplLayout : c10::TensorImpl {
  static constexpr size_t sizes_at() { return offsetof(ImplLayout, sizes_and_strides_); }
  static constexpr size_t kSizeWords = sizeof(c10::impl::SizesAndStrides) / 8;
  /// dtype, device and flags; the key set follows and ends the object.
  static constexpr size_t kind_end() { return offsetof(ImplLayout, key_set_) + sizeof(c10::DispatchKeySet); }
  static constexpr size_t kind_words() { return (kind_end() - offsetof(ImplLayout, data_type_) + 7) / 8; }
  /// Private, therefore not asked for by its name: is_known checks.
  static constexpr size_t meta_at() { return offsetof(ImplLayout, storage_) + sizeof(c10::Storage); }

  static const char* bytes(const c10::TensorImpl& impl) { return reinterpret_cast<const char*>(&impl); }
  static const AutogradMeta* meta(const c10::TensorImpl& impl) {
    return *reinterpret_cast<const AutogradMeta* const*>(bytes(impl) + meta_at());
  }
  /// Is it laid out as said, with its sizes inside?
  static bool is_known(const c10::TensorImpl& impl) {
    const char* at = reinterpret_cast<const char*>(impl.sizes().data());
    return meta(impl) == impl.autograd_meta() && at >= bytes(impl) && at < bytes(impl) + sizeof(impl);
  }
};
#pragma GCC diagnostic pop

/// As TensorImpl::requires_grad, which is two calls into libraries.
bool requires_grad(const c10::TensorImpl& impl) {
  const AutogradMeta* meta = ImplLayout::meta(impl);
  return meta && (meta->requires_grad_ || meta->grad_fn_);
}

/// Sizes, strides, dtype, device, flags and keys of an implementation. Between those are words that nobody
/// asks about (offset, number of elements), zero here.
class Image {
 public:
  explicit Image(const c10::TensorImpl& impl) : brief_(is_told_briefly(impl)) {
    const uint32_t asked = brief_ ? kBriefly : kAsked;
    for (size_t i = 0; i < kWords; ++i) words_[i] = asked >> i & 1 ? word(impl, i) : 0;
  }
  bool operator==(const Image&) const = default;
  uint64_t hash() const {
    uint64_t mixed = brief_;
    for (const uint64_t word : words_) mixed = (mixed ^ word) * 0x9E3779B97F4A7C15 ^ mixed >> 29;
    return mixed;
  }
  bool is_brief() const { return brief_; }

  template <bool kBrief>
  bool shows(const c10::TensorImpl& impl) const {
    uint64_t different = 0;
#pragma GCC unroll 16
    for (size_t i = 0; i < kWords; ++i)
      if ((kBrief ? kBriefly : kAsked) >> i & 1) different |= words_[i] ^ word(impl, i);
    return !different;
  }

 private:
  static constexpr size_t kWords = (ImplLayout::kind_end() - ImplLayout::sizes_at()) / 8;
  static_assert(kWords <= 16 && (ImplLayout::kind_end() - ImplLayout::sizes_at()) % 8 == 0);
  static constexpr uint32_t kKind = ((1u << ImplLayout::kind_words()) - 1)
                                    << (kWords - ImplLayout::kind_words());
  static constexpr uint32_t kAsked = ((1u << ImplLayout::kSizeWords) - 1) | kKind;
  static constexpr uint32_t kBriefly = 0b111 | kKind;  ///< the rank, two sizes

  static uint64_t word(const c10::TensorImpl& impl, size_t i) {
    uint64_t word;
    std::memcpy(&word, ImplLayout::bytes(impl) + ImplLayout::sizes_at() + 8 * i, sizeof(word));
    return word;
  }
  static bool same_kind(const c10::TensorImpl& a, const c10::TensorImpl& b) {
    for (size_t i = kWords - ImplLayout::kind_words(); i < kWords; ++i)
      if (word(a, i) != word(b, i)) return false;
    return true;
  }
  /// Most weights: their strides follow from two sizes and from the flag that says that they are contiguous.
  static bool is_told_briefly(const c10::TensorImpl& impl) {
    static const bool flags_tell = [] {
      const at::Tensor matrix = at::empty({2, 3});
      return !same_kind(*matrix.unsafeGetTensorImpl(), *matrix.t().unsafeGetTensorImpl());
    }();
    return flags_tell && impl.dim() <= 2 && impl.is_contiguous() &&
           std::all_of(impl.sizes().begin(), impl.sizes().end(), [](int64_t size) { return size > 1; });
  }

  uint64_t words_[kWords];
  bool brief_;
};

/// More are not remembered, and no slot is moved from one to another more often: something differs each time
/// that nothing asks about.
constexpr size_t kMostImages = 256;
constexpr int kMostMoves = 8;

}  // namespace

struct TensorImages::Data {
  /// Slots of tensors that look alike.
  struct Alike {
    Image image;
    PyTypeObject* type;
    bool requires_grad;
    std::vector<uint32_t> slots;
    uint64_t hash = image.hash();
    bool operator==(const Alike& other) const {
      return hash == other.hash && image == other.image && type == other.type &&
             requires_grad == other.requires_grad;
    }
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  std::vector<Alike> alike;
  std::vector<uint32_t> alike_of;  ///< by slot; kNone: it is among the loose ones
  std::vector<uint32_t> loose;
  std::vector<uint32_t> place;  ///< by slot: where among those that look alike, or the loose ones
  std::vector<int> moves;       ///< by slot: how often it came to another image
  std::vector<uint32_t> unlike;
  bool gradients = true;
  ptrdiff_t impl_at = 0;  ///< where the Python object keeps the address of its implementation

  std::vector<uint32_t>& members(uint32_t of) { return of == kNone ? loose : alike[of].slots; }
  void take_out(uint32_t slot) {
    std::vector<uint32_t>& from = members(alike_of[slot]);
    const uint32_t last = from.back();
    from[place[slot]] = last;
    place[last] = place[slot];
    from.pop_back();
  }
  void put_in(uint32_t slot, uint32_t of) {
    alike_of[slot] = of;
    place[slot] = static_cast<uint32_t>(members(of).size());
    members(of).push_back(slot);
  }

  /// The tensors that look like this one.
  uint32_t find(PyObject* object, const c10::TensorImpl& impl) {
    const auto* at_word = static_cast<const char*>(impl_slot(object));
    const ptrdiff_t at = at_word ? at_word - reinterpret_cast<const char*>(object) : 0;
    if (!at_word || (impl_at && impl_at != at) || !ImplLayout::is_known(impl)) return kNone;
    impl_at = at;
    Alike looks{Image(impl), Py_TYPE(object), gradients && requires_grad(impl), {}};
    const auto found = std::find(alike.begin(), alike.end(), looks);
    const auto index = static_cast<uint32_t>(found - alike.begin());
    if (found != alike.end()) return index;
    if (alike.size() == kMostImages) return kNone;
    alike.push_back(std::move(looks));
    return index;
  }

  template <bool kBrief, bool kGradients>
  void compare(const Alike& a, PyObject* const* objects, c10::TensorImpl* const* impls) {
    const Image image = a.image;
    const PyTypeObject* const type = a.type;
    const ptrdiff_t at = impl_at;
    for (const uint32_t slot : a.slots) {
      const PyObject* object = objects[slot];
      const c10::TensorImpl* impl = impls[slot];
      const char* kept = reinterpret_cast<const char*>(object) + at;
      // The object's word first: torch.utils.swap_tensors gives it another implementation.
      if (object->ob_type != type || *reinterpret_cast<const c10::TensorImpl* const*>(kept) != impl ||
          !image.shows<kBrief>(*impl) || (kGradients && requires_grad(*impl) != a.requires_grad))
        unlike.push_back(slot);
    }
  }
};

TensorImages::TensorImages() : data_(std::make_unique<Data>()) {}
TensorImages::TensorImages(TensorImages&&) noexcept = default;
TensorImages::~TensorImages() = default;

void TensorImages::reset(size_t slots, bool gradients) {
  *data_ = Data();
  data_->gradients = gradients;
  data_->alike_of.assign(slots, Data::kNone);
  data_->moves.assign(slots, 0);
  data_->place.resize(slots);
  for (uint32_t slot = 0; slot < slots; ++slot) data_->put_in(slot, Data::kNone);
}

const std::vector<uint32_t>& TensorImages::unlike(PyObject* const* objects, c10::TensorImpl* const* impls) {
  Data& d = *data_;
  d.unlike = d.loose;
  for (const Data::Alike& a : d.alike) {
    const bool brief = a.image.is_brief();
    const auto compare = d.gradients ? (brief ? &Data::compare<true, true> : &Data::compare<false, true>)
                                     : (brief ? &Data::compare<true, false> : &Data::compare<false, false>);
    (d.*compare)(a, objects, impls);
  }
  return d.unlike;
}

void TensorImages::remember(uint32_t slot, PyObject* object, const c10::TensorImpl& impl) {
  Data& d = *data_;
  if (d.alike_of[slot] == Data::kNone && d.moves[slot] == kMostMoves) return;
  d.take_out(slot);
  d.put_in(slot, d.moves[slot]++ < kMostMoves ? d.find(object, impl) : Data::kNone);
}

}  // namespace bolt::guard
