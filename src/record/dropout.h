// record/dropout.h
// Dropout on CUDA as three operators, so that its mask is neither stored nor kept:
//
//   torchbolt::draw_state(numel, most, device)            reserves the numbers: seed and offset, as a tensor
//   torchbolt::dropout_keep(state, sizes, keep, ..., most) which elements stay: a function of the above
//   aten::native_dropout_backward(x, mask, scale)          x * mask * scale, of either direction
//
// Only the first draws, and it draws what ATen's native_dropout would: the numbers, and where the generator
// is afterwards, are eager's. The second can run inside of any kernel that reads the mask, and again in the
// backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace bolt::record {

/// How ATen's kernel deals its numbers out (support/philox.h).
struct DropoutDraw {
  int64_t vector;
  int64_t most;  ///< threads of a launch, however many elements there are
};

/// None: of such a tensor it is not known. ATen's kernel is asked once for each device and size of an
/// element, by what it gives for a few numbers.
std::optional<DropoutDraw> dropout_draw(c10::Device device, c10::ScalarType dtype, int64_t numel);

/// Threads that share so many elements.
int64_t dropout_threads(int64_t numel, int64_t most);
constexpr int64_t kDropoutBlock = 256;

/// support/philox.h: number_at, of tensors of i64.
at::Tensor random_numbers(const at::Tensor& seed, const at::Tensor& offset, const at::Tensor& threads,
                          const at::Tensor& vector, const at::Tensor& position);

}  // namespace bolt::record
