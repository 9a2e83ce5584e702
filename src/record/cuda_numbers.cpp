// record/cuda_numbers.cpp
#include "record/cuda_numbers.h"

#include <c10/core/GeneratorImpl.h>
#include <dlfcn.h>

#include <mutex>

#include <ATen/cuda/detail/PhiloxCudaStateRaw.cuh>

namespace bolt::record {
namespace {

// at::CUDAGeneratorImpl::philox_cuda_state(unsigned long).
using Reserve = at::PhiloxCudaState (*)(c10::GeneratorImpl*, uint64_t);

Reserve find_reserve() {
  void* library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  return reinterpret_cast<Reserve>(::dlsym(library, "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm"));
}
Reserve reserve() {
  static const Reserve found = find_reserve();
  return found;
}

}  // namespace

bool reserves_in_graphs() { return reserve() != nullptr; }

CudaNumbers reserve_numbers(const at::Generator& given, uint64_t of_a_thread) {
  at::Generator generator = given;
  const std::lock_guard lock(generator.mutex());
  CudaNumbers out{};
  if (const Reserve by_torch = reserve()) {
    const at::PhiloxCudaState state = by_torch(generator.unsafeGetGeneratorImpl(), of_a_thread);
    out.captured = state.captured_;
    if (state.captured_) {
      out.seed_place = state.seed_.ptr;
      out.offset_place = state.offset_.ptr;
      out.behind = static_cast<int64_t>(state.offset_intragraph_);
    } else {
      out.seed = state.seed_.val;
      out.offset = state.offset_.val;
    }
    return out;
  }
  out.seed = generator.current_seed();
  out.offset = generator.get_offset();
  generator.set_offset(out.offset + of_a_thread);
  return out;
}

}  // namespace bolt::record
