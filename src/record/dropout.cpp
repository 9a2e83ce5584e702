// record/dropout.cpp
#include "record/dropout.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "device/driver/driver.h"
#include "record/cuda_numbers.h"
#include "record/generators.h"
#include "support/philox.h"

namespace bolt::record {
namespace {

int64_t numbers_of_a_thread(int64_t numel, int64_t most) {
  const int64_t in_a_turn = dropout_threads(numel, most) * 4;
  return (numel + in_a_turn - 1) / in_a_turn * 4;
}

/// Seed and offset are written by one launch, as the two halves of one complex number: nothing is copied from
/// the host, so nothing waits for it. In a graph they are read where each launch will find its own.
at::Tensor draw_state(c10::SymInt of, int64_t most, c10::Device device) {
  const at::Generator generator = at::globalContext().defaultGenerator(device);
  const CudaNumbers numbers =
      reserve_numbers(generator, static_cast<uint64_t>(numbers_of_a_thread(of.expect_int(), most)));
  if (numbers.captured) {
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kLong);
    auto word = [&](int64_t* place) {
      return at::for_blob(place, {1}).options(options).target_device(device).make_tensor();
    };
    at::Tensor state = at::empty({2}, options);
    state.narrow(0, 0, 1).copy_(word(numbers.seed_place));
    at::Tensor offset = state.narrow(0, 1, 1);
    at::add_out(offset, word(numbers.offset_place), at::scalar_tensor(numbers.behind, at::kLong));
    return state;
  }
  at::Tensor both = at::empty({1}, at::TensorOptions(device).dtype(at::kComplexDouble));
  both.fill_(
      c10::complex<double>(std::bit_cast<double>(numbers.seed), std::bit_cast<double>(numbers.offset)));
  return both.view(at::kLong);
}

/// Words without a sign in a tensor of i64, as philox.h computes with them. Quotients are of numbers that are
/// not negative.
struct Words {
  at::Tensor t;
};
Words operator*(const Words& x, const Words& y) { return {x.t.mul(y.t)}; }
Words operator+(const Words& x, const Words& y) { return {x.t.add(y.t)}; }
Words operator^(const Words& x, const Words& y) { return {x.t.bitwise_xor(y.t)}; }
Words operator/(const Words& x, const Words& y) { return {x.t.floor_divide(y.t)}; }
Words operator%(const Words& x, const Words& y) { return {x.t.remainder(y.t)}; }
Words operator*(const Words& x, uint64_t y) { return {x.t.mul(static_cast<int64_t>(y))}; }
Words operator+(const Words& x, uint64_t y) { return {x.t.add(static_cast<int64_t>(y))}; }
Words operator&(const Words& x, uint64_t y) { return {x.t.bitwise_and(static_cast<int64_t>(y))}; }
Words operator>>(const Words& x, int n) { return Words{x.t.bitwise_right_shift(n)} & (~uint64_t{0} >> n); }

at::Tensor dropout_keep(const at::Tensor& state, c10::SymIntArrayRef of, double keep, int64_t vector,
                        int64_t most) {
  const at::IntArrayRef sizes = c10::asIntArrayRefSlow(of, __FILE__, __LINE__);
  const at::TensorOptions options = state.options();
  const at::Tensor position = at::arange(c10::multiply_integers(sizes), options).view(sizes);
  auto number = [&](int64_t n) { return at::empty({}, options).fill_(n); };
  const at::Tensor threads = number(dropout_threads(position.numel(), most));
  return random_numbers(state[0], state[1], threads, number(vector), position).lt(keep);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("draw_state(SymInt numel, int most, Device device) -> Tensor", {at::Tag::nondeterministic_seeded});
  m.def("dropout_keep(Tensor state, SymInt[] sizes, float keep, int vector, int most) -> Tensor");
  m.impl("draw_state", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(draw_state));
  m.impl("dropout_keep", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(dropout_keep));
}

// ---- what ATen's kernel does ----

int64_t most_threads(c10::Device device) {
  constexpr int kThreadsOfMultiprocessor = 39;
  const auto& cuda = device::driver::get();
  device::driver::CUdevice handle = 0;
  device::driver::check(cuda.cuDeviceGet(&handle, device.index()), "cuDeviceGet");
  const int64_t blocks = device::driver::attribute(handle, kThreadsOfMultiprocessor) / kDropoutBlock;
  return device::driver::attribute(handle, device::driver::kMultiprocessors) * blocks * kDropoutBlock;
}

/// The first and the last elements of a tensor that takes more than one turn.
int64_t vector_seen(c10::Device device, c10::ScalarType dtype, int64_t most) {
  constexpr int64_t kWidest = 16, kLooked = 512;
  constexpr double kKeep = 0.5;
  const at::AutoDispatchBelowADInplaceOrView plain;
  Undrawn undrawn;
  undrawn.keep_default(device);
  const at::Generator generator = at::globalContext().defaultGenerator(device);
  const uint64_t seed = generator.current_seed(), offset = generator.get_offset();
  const int64_t numel = (most + kDropoutBlock) * kWidest;
  const auto given = at::ones({numel}, at::TensorOptions(device).dtype(dtype));
  const at::Tensor mask = std::get<1>(at::native_dropout(given, 1 - kKeep, true));
  if (generator.get_offset() - offset != static_cast<uint64_t>(numbers_of_a_thread(numel, most))) return 0;
  auto agrees = [&](int64_t begin, int64_t vector) {
    const at::Tensor seen = mask.narrow(0, begin, kLooked).cpu();
    const auto threads = static_cast<uint64_t>(dropout_threads(numel, most));
    for (int64_t i = 0; i < kLooked; ++i) {
      const bool kept = philox::number_at(seed, offset, threads, static_cast<uint64_t>(vector),
                                          static_cast<uint64_t>(begin + i)) < static_cast<float>(kKeep);
      if (kept != seen.data_ptr<bool>()[i]) return false;
    }
    return true;
  };
  for (int64_t vector = 4; vector <= kWidest; vector *= 2)
    if (agrees(0, vector) && agrees(numel - kLooked, vector)) return vector;
  return 0;
}

}  // namespace

int64_t dropout_threads(int64_t numel, int64_t most) {
  return std::min(most, (numel + kDropoutBlock - 1) / kDropoutBlock * kDropoutBlock);
}

std::optional<DropoutDraw> dropout_draw(c10::Device device, c10::ScalarType dtype, int64_t numel) {
  if (!device.is_cuda() || !c10::isFloatingType(dtype) || numel == 0) return std::nullopt;
  static std::mutex mutex;
  static auto* const seen = new std::map<std::pair<int, int64_t>, DropoutDraw>;
  std::lock_guard lock(mutex);
  const std::pair<int, int64_t> key(device.index(), static_cast<int64_t>(c10::elementSize(dtype)));
  auto at = seen->find(key);
  if (at == seen->end()) {
    const int64_t most = most_threads(device);
    at = seen->emplace(key, DropoutDraw{vector_seen(device, dtype, most), most}).first;
  }
  const DropoutDraw& draw = at->second;
  if (draw.vector == 0 || numel % draw.vector != 0) return std::nullopt;
  return draw;
}

at::Tensor random_numbers(const at::Tensor& seed, const at::Tensor& offset, const at::Tensor& threads,
                          const at::Tensor& vector, const at::Tensor& position) {
  const auto [four, which] =
      philox::drawn_at(Words{seed}, Words{offset}, Words{threads}, Words{vector}, Words{position});
  at::Tensor bits = four[3].t;
  for (int64_t i = 0; i < 3; ++i) bits = at::where(which.t.eq(i), four[i].t, bits);
  return bits.to(at::kFloat).mul(0x1p-32).add(0x1p-33);
}

}  // namespace bolt::record
