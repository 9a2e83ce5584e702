// support/philox.h
// The counter-based generator of CUDA's random numbers (Philox 4x32-10), and which of its numbers a tensor's
// element gets from ATen's dropout kernel: `threads` threads take `vector` neighbours each in a turn, the
// next ones in the next turn, and thread t draws the sequence t of the generator, four numbers at a time.
//
// A number is a function of seed, offset and position, so it can be computed wherever it is needed, as often
// as it is needed. What computes it is spelled once, over a kind of word: numbers of the host, values of
// generated code (codegen/cpu/ops.cpp), tensors (record/dropout.cpp). Only CUDA C++ has it as text of its
// own, for whose compiler words of 32 bits are faster (codegen/cuda/prelude.cpp).
#pragma once

#include <array>
#include <cstdint>

namespace bolt::philox {

inline constexpr uint32_t kFirstFactor = 0xd2511f53, kSecondFactor = 0xcd9e8d57;
inline constexpr uint32_t kFirstStep = 0x9e3779b9, kSecondStep = 0xbb67ae85;
inline constexpr int kRounds = 10;

/// Four numbers of 32 bits. A `Word` has 64, so that products of two numbers fit, no sign, and the operators
/// of uint64_t that stand here, with constants of that type on the right.
template <class Word>
std::array<Word, 4> block(const Word& seed, const Word& counter, const Word& sequence) {
  constexpr uint64_t kLow = 0xffffffff;
  std::array<Word, 4> x = {counter & kLow, counter >> 32, sequence & kLow, sequence >> 32};
  Word first = seed & kLow, second = seed >> 32;
  for (int round = 0; round < kRounds; ++round) {
    const Word a = x[0] * uint64_t{kFirstFactor}, b = x[2] * uint64_t{kSecondFactor};
    x = {(b >> 32) ^ x[1] ^ first, b & kLow, (a >> 32) ^ x[3] ^ second, a & kLow};
    first = (first + uint64_t{kFirstStep}) & kLow;
    second = (second + uint64_t{kSecondStep}) & kLow;
  }
  return x;
}

/// Four numbers, and which of them it is.
template <class Word>
struct Drawn {
  std::array<Word, 4> four;
  Word which;
};

/// `vector` is a multiple of 4, and so is `offset`, which counts numbers.
template <class Word>
Drawn<Word> drawn_at(const Word& seed, const Word& offset, const Word& threads, const Word& vector,
                     const Word& position) {
  const Word taken = threads * vector, turn = position / taken, rest = position % taken, lane = rest % vector;
  const Word counter = (offset >> 2) + turn * (vector >> 2) + (lane >> 2);
  return {block(seed, counter, rest / vector), lane & uint64_t{3}};
}

/// In (0, 1], as a float.
inline float uniform(uint32_t bits) { return static_cast<float>(bits) * 0x1p-32f + 0x1p-33f; }

inline float number_at(uint64_t seed, uint64_t offset, uint64_t threads, uint64_t vector, uint64_t position) {
  const Drawn<uint64_t> drawn = drawn_at(seed, offset, threads, vector, position);
  return uniform(static_cast<uint32_t>(drawn.four[drawn.which]));
}

}  // namespace bolt::philox
