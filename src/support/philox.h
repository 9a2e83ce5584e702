// support/philox.h
// The counter-based generator of CUDA's random numbers (Philox 4x32-10), and which of its numbers a tensor's
// element gets from ATen's dropout kernel: `threads` threads take `vector` neighbours each in a turn, the
// next ones in the next turn, and thread t draws the sequence t of the generator, four numbers at a time.
//
// A number is a function of seed, offset and position, so it can be computed wherever it is needed, as often
// as it is needed. Generated code spells the same (codegen/cpu/ops.cpp, codegen/cuda/prelude.cpp).
#pragma once

#include <array>
#include <cstdint>

namespace bolt::philox {

inline constexpr uint32_t kFirstFactor = 0xd2511f53, kSecondFactor = 0xcd9e8d57;
inline constexpr uint32_t kFirstStep = 0x9e3779b9, kSecondStep = 0xbb67ae85;
inline constexpr int kRounds = 10;

/// Four numbers of 32 bits.
inline std::array<uint32_t, 4> block(uint64_t seed, uint64_t counter, uint64_t sequence) {
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)};
  auto first = static_cast<uint32_t>(seed), second = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{kFirstFactor} * x[0], b = uint64_t{kSecondFactor} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ first, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ second, static_cast<uint32_t>(a)};
    first += kFirstStep, second += kSecondStep;
  }
  return x;
}

/// In (0, 1], as a float.
inline float uniform(uint32_t bits) { return static_cast<float>(bits) * 0x1p-32f + 0x1p-33f; }

/// `vector` is a multiple of 4, and so is `offset`, which counts numbers.
inline float number_at(uint64_t seed, uint64_t offset, uint64_t threads, uint64_t vector, uint64_t position) {
  const uint64_t turn = position / (threads * vector), rest = position % (threads * vector);
  const uint64_t lane = rest % vector;
  return uniform(block(seed, offset / 4 + turn * (vector / 4) + lane / 4, rest / vector)[lane % 4]);
}

}  // namespace bolt::philox
