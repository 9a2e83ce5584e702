// cache/sha256.cpp
// Names of variables are the standard's.
#include "cache/sha256.h"

#include <bit>

namespace bolt::cache {
namespace {

constexpr size_t kBlock = 64;

constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class Sha256 {
 public:
  /// `blocks` is whole blocks.
  void take(std::string_view blocks) {
    for (size_t at = 0; at < blocks.size(); at += kBlock) compress(blocks.data() + at);
  }

  std::string digest() const {
    std::string out;
    for (uint32_t word : state_) append(out, word, 4);
    return out;
  }

  static void append(std::string& out, uint64_t number, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(number >> shift);
  }

 private:
  static uint32_t word_at(const char* bytes) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes[i]);
    return word;
  }

  void compress(const char* block) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = word_at(block + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int t = 0; t < 64; ++t) {
      const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
      const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state_[i] += after[i];
  }

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

}  // namespace

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  const size_t whole = bytes.size() / kBlock * kBlock;
  hash.take(bytes.substr(0, whole));
  std::string last(bytes.substr(whole));
  last += '\x80';
  while (last.size() % kBlock != kBlock - 8) last += '\0';
  Sha256::append(last, uint64_t{bytes.size()} * 8, 8);
  hash.take(last);
  return hash.digest();
}

std::string hmac_sha256(std::string_view secret, std::string_view bytes) {
  std::string key = secret.size() > kBlock ? sha256(secret) : std::string(secret);
  key.resize(kBlock, '\0');
  std::string inner, outer;
  for (char c : key) {
    inner += static_cast<char>(c ^ 0x36);
    outer += static_cast<char>(c ^ 0x5c);
  }
  inner += bytes;
  return sha256(outer + sha256(inner));
}

bool equal_digests(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (unsigned char c : bytes)
    for (int digit : {c >> 4, c & 15}) text += "0123456789abcdef"[digit];
  return text;
}

}  // namespace bolt::cache
