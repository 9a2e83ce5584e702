// run/given_memory.cpp
#include "run/given_memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

namespace bolt::run {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// While it lives, in this thread.
class Giving {
 public:
  explicit Giving(const std::vector<at::Tensor>& places)
      : places_(places), taken_(places.size()), before_(std::exchange(current_, this)) {
    c10::impl::tls_set_dispatch_key_included(kKey, true);
  }
  ~Giving() {
    current_ = before_;
    c10::impl::tls_set_dispatch_key_included(kKey, before_ != nullptr);
  }
  Giving(const Giving&) = delete;
  static Giving* current() { return current_; }

  /// Undefined: there is none left of this kind.
  at::Tensor take(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype, c10::Device device) {
    for (size_t i = 0; i < places_.size(); ++i) {
      const at::Tensor& place = places_[i];
      if (taken_[i] || !place.defined() || place.scalar_type() != dtype || !is_dense(place)) continue;
      if (place.device().type() != device.type() || place.numel() != c10::multiply_integers(sizes)) continue;
      at::Tensor made = at::for_blob(place.data_ptr(), sizes)
                            .strides(strides)
                            .target_device(place.device())
                            .options(place.options())
                            .make_tensor();
      if (!is_dense(made)) continue;
      taken_[i] = 1;
      return made;
    }
    return {};
  }

 private:
  static bool is_dense(const at::Tensor& t) { return t.is_non_overlapping_and_dense(); }

  static thread_local Giving* current_;
  const std::vector<at::Tensor>& places_;
  std::vector<char> taken_;
  Giving* const before_;
};

thread_local Giving* Giving::current_ = nullptr;

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.nbytes() == 0 || b.nbytes() == 0) return false;
  const auto* a_begin = static_cast<const char*>(a.data_ptr());
  const auto* b_begin = static_cast<const char*>(b.data_ptr());
  return a_begin < b_begin + b.nbytes() && b_begin < a_begin + a.nbytes();
}

/// Of the arguments behind the sizes (and strides).
at::Tensor taken(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::IValue& dtype,
                 const c10::IValue& device) {
  Giving* memory = Giving::current();
  if (!memory || !dtype.isInt() || !device.isDevice()) return {};
  return memory->take(sizes, strides, dtype.toScalarType(), device.toDevice());
}

constexpr size_t kArguments = 6;  // of either of the following

/// In the place of the call; undefined: it is made.
void answer(at::Tensor given, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) {
  if (!given.defined()) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    return;
  }
  torch::jit::drop(*stack, kArguments);
  torch::jit::push(*stack, std::move(given));
}

/// empty.memory_format(SymInt[] size, dtype, layout, device, pin_memory, memory_format)
void empty(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto args = torch::jit::last(*stack, kArguments);
  at::Tensor given;
  if (args[0].isIntList() && (args[5].isNone() || args[5].toMemoryFormat() == at::MemoryFormat::Contiguous)) {
    const std::vector<int64_t> sizes = args[0].toIntVector();
    given = taken(sizes, c10::contiguous_strides(sizes), args[1], args[3]);
  }
  answer(std::move(given), op, keys, stack);
}

/// empty_strided(SymInt[] size, SymInt[] stride, dtype, layout, device, pin_memory)
void empty_strided(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto args = torch::jit::last(*stack, kArguments);
  at::Tensor given;
  if (args[0].isIntList() && args[1].isIntList())
    given = taken(args[0].toIntVector(), args[1].toIntVector(), args[2], args[4]);
  answer(std::move(given), op, keys, stack);
}

/// What was made in another result's place, or in its own and not as that lies, is copied elsewhere, so that
/// each place may be written to.
void part_from_places(std::vector<at::Tensor>& results, const std::vector<at::Tensor>& places) {
  for (size_t i = 0; i < results.size(); ++i) {
    at::Tensor& result = results[i];
    bool lies_wrong = false;
    for (size_t k = 0; k < places.size(); ++k) {
      const at::Tensor& place = places[k];
      const bool is_its_own = k == i && place.defined() && result.data_ptr() == place.data_ptr() &&
                              result.sizes() == place.sizes() && result.strides() == place.strides();
      lies_wrong |= !is_its_own && share_memory(result, place);
    }
    if (lies_wrong) result = result.clone();
  }
}

}  // namespace

std::vector<at::Tensor> made_at(const std::vector<at::Tensor>& places,
                                const std::function<std::vector<at::Tensor>()>& run) {
  if (std::ranges::none_of(places, [](const at::Tensor& t) { return t.defined(); })) return run();
  std::vector<at::Tensor> results;
  {
    const Giving here(places);
    results = run();
  }
  part_from_places(results, places);
  return results;
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericWrapper, m) {
  m.impl("empty.memory_format", torch::CppFunction::makeFromBoxedFunction<&empty>());
  m.impl("empty_strided", torch::CppFunction::makeFromBoxedFunction<&empty_strided>());
}

}  // namespace bolt::run
