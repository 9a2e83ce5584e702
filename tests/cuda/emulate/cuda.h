// tests/cuda/emulate/cuda.h
// CUDA C++ -> C++ of the processor: what the text of kernels is compiled against here (compiler.cpp).
//
// The text is the one that NVRTC gets, byte for byte. Words of the language are macros, functions of the
// hardware are calls of the emulator, and the few instructions that the prelude has in PTX are C++ under the
// same names. What a block shares is thread_local: the whole emulation is one thread of the processor, and
// its copy of all such variables is one piece of memory, which can be filled, and put aside while another
// block of a cluster runs.
//
// A read or write behind an array's end (registers, shared memory), and a wide access between two multiples
// of its size, are found by the compiler's own checks, whose handlers are below.
#pragma once

#include <math.h>
#include <string.h>

#include "interface.h"

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ thread_local
#define __grid_constant__
#define __launch_bounds__(threads)
#define __cluster_dims__(x, y, z)

struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));

namespace emulated {

static Module module;

template <typename T>
inline T exchange(Exchange how, unsigned mask, T v, int by) {
  unsigned long long bits = 0;
  memcpy(&bits, &v, sizeof v);
  bits = module.device->exchange(how, mask, bits, by);
  memcpy(&v, &bits, sizeof v);
  return v;
}

template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the bits of another type");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <auto function>
struct Call;
template <typename... T, void (*function)(T...)>
struct Call<function> {
  template <int n, int... i>
  struct Up : Up<n - 1, n - 1, i...> {};
  template <int... i>
  struct Up<0, i...> {
    static void run(void** arguments) { function(*static_cast<T*>(arguments[i])...); }
  };
  static constexpr int count = sizeof...(T);
  static constexpr unsigned bytes[] = {sizeof(T)...};
  static void run(void** arguments) { Up<count>::run(arguments); }
};

}  // namespace emulated

#define threadIdx (emulated::module.thread)
#define blockIdx (emulated::module.block)
#define blockDim (emulated::module.threads)
#define gridDim (emulated::module.blocks)
#ifdef BOLT_DYNAMIC_SHARED
/// The dynamic part, under the name that the emitter gives it.
thread_local uint4 kept_rows[emulated::kMostShared / sizeof(uint4)];
#endif

inline void __syncthreads() { emulated::module.device->wait_for_block(); }
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T v, int by) {
  return emulated::exchange(emulated::kXor, mask, v, by);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T v, int by) {
  return emulated::exchange(emulated::kUp, mask, v, by);
}
template <typename T>
inline T __shfl_sync(unsigned mask, T v, int from) {
  return emulated::exchange(emulated::kFrom, mask, v, from);
}

#define BOLT_BITS_AS(name, To, From) \
  inline To name(From v) { return emulated::bits_as<To>(v); }
BOLT_BITS_AS(__float_as_uint, unsigned, float)
BOLT_BITS_AS(__uint_as_float, float, unsigned)
BOLT_BITS_AS(__int_as_float, float, int)
BOLT_BITS_AS(__double_as_longlong, long long, double)
BOLT_BITS_AS(__longlong_as_double, double, long long)

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline double rsqrt(double v) { return 1.0 / sqrt(v); }
// Functions of CUDA's library that the processor's has not.
inline double erfcx(double v) {
  const double z = 0.5 / (v * v);
  return v < 25 ? exp(v * v) * erfc(v)
                : M_2_SQRTPI / 2 / v * (1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z))));
}
inline double erfinv(double v) {
  const double a = fabs(v), w = log1p(-a * a), half = 4.3307 + w / 2;
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, v) : NAN;
  double y = sqrt(sqrt(half * half - w / 0.147) - half);
  for (int i = 0; i < 5; ++i) {
    const double rest = erfc(y), slope = M_2_SQRTPI * exp(-y * y);
    y += a < 0.5 ? (a - erf(y)) / slope : log(rest / (1 - a)) * rest / slope;
  }
  return copysign(y, v);
}
inline float erfcxf(float v) { return static_cast<float>(erfcx(double{v})); }
inline float erfinvf(float v) { return static_cast<float>(erfinv(double{v})); }

// One thread runs at a time, and gives way where it waits only.
template <typename T>
inline T atomicAdd(T* to, T v) {
  const T old = *to;
  *to = old + v;
  return old;
}
template <typename T>
inline T atomicMax(T* to, T v) {
  const T old = *to;
  *to = old > v ? old : v;
  return old;
}
template <typename T>
inline T atomicMin(T* to, T v) {
  const T old = *to;
  *to = old < v ? old : v;
  return old;
}
template <typename T>
inline T atomicCAS(T* at, T expected, T wanted) {
  const T old = *at;
  if (old == expected) *at = wanted;
  return old;
}

// ---- the prelude's instructions

#define BOLT_INSTRUCTIONS
template <typename T>
void load_if(bool wanted, const void* from, T& v) {
  if (wanted) v = *static_cast<const T*>(from);
}
inline void store_whole(void* to, uint4 v) { *static_cast<uint4*>(to) = v; }
inline void store_whole(void* to, uint2 v) { *static_cast<uint2*>(to) = v; }
inline void store_whole(void* to, unsigned v) { *static_cast<unsigned*>(to) = v; }
inline void store_whole(void* to, unsigned short v) { *static_cast<unsigned short*>(to) = v; }
inline float from_f16(unsigned short v) { return emulated::bits_as<_Float16>(v); }
inline unsigned short to_f16(float v) {
  return v != v ? 0x7fff : emulated::bits_as<unsigned short>(static_cast<_Float16>(v));
}
#if __CUDA_ARCH__ >= 800
inline unsigned short to_bf16(float v) {
  const unsigned bits = __float_as_uint(v);
  return static_cast<unsigned short>(v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float bolt_maximum(float a, float b) { return a > b || a != a ? a : b; }
inline float bolt_minimum(float a, float b) { return a < b || a != a ? a : b; }
#endif
inline float reciprocal(float v) { return 1.0f / v; }
inline void multiply(unsigned a, unsigned b, unsigned& low, unsigned& high) {
  const unsigned long long product = static_cast<unsigned long long>(a) * b;
  low = static_cast<unsigned>(product), high = static_cast<unsigned>(product >> 32);
}
inline void cluster_arrive() { emulated::module.device->cluster_arrive(); }
inline void cluster_wait() { emulated::module.device->cluster_wait(); }
inline unsigned place_in_block(const void* mine, int block) {
  return emulated::module.device->place_in_block(mine, block);
}
inline unsigned word_of_block(unsigned place) { return emulated::module.device->word_of_block(place); }

// ---- what the compiler's checks call

namespace emulated {
struct Place {
  const char* file;
  unsigned line, column;
};
}  // namespace emulated

extern "C" {
__attribute__((noreturn)) inline void bolt_failed(const void* place, const char* what,
                                                  unsigned long long where) {
  const auto* at = static_cast<const emulated::Place*>(place);
  emulated::module.device->fail(at->line, what, where);
  __builtin_unreachable();
}
__attribute__((noreturn, used)) void __ubsan_handle_out_of_bounds_abort(void* place,
                                                                        unsigned long long index) {
  bolt_failed(place, "an index beyond the end of an array of the kernel's own", index);
}
__attribute__((noreturn, used)) void __ubsan_handle_type_mismatch_v1_abort(void* place,
                                                                           unsigned long long at) {
  // Where in the text, what type, its alignment as a power of two.
  struct Access {
    emulated::Place place;
    const void* type;
    unsigned char alignment;
  };
  const auto alignment = 1ull << static_cast<const Access*>(place)->alignment;
  bolt_failed(place,
              at % alignment != 0 ? "an access between two multiples of its size"
                                  : "an access beyond the end of a variable of the kernel's own",
              at);
}
__attribute__((visibility("default"), used)) emulated::Loaded bolt_loaded() {
  static thread_local char shared;
#ifdef BOLT_DYNAMIC_SHARED
  return {&emulated::module, &shared, reinterpret_cast<char*>(kept_rows)};
#else
  return {&emulated::module, &shared, nullptr};
#endif
}
}
