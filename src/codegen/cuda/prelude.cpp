// codegen/cuda/prelude.cpp
// See prelude.h. In parts, because compilers limit the length of a literal.

#include "codegen/cuda/prelude.h"

#include <string>

#include "support/philox.h"

namespace bolt::codegen::cuda {
namespace {

constexpr std::string_view kTypes = R"(typedef long long i64;
typedef unsigned long long u64;
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short f16;  // their bits
typedef unsigned short bf16;
#define BOLT __device__ __forceinline__

)";

constexpr std::string_view kInstructions =
    R"(// What PTX says and C++ does not. All else runs on any processor: tests/cuda/emulate has these in C++.
#ifndef BOLT_INSTRUCTIONS
// The whole access: two ways to store the same elements are otherwise made one, of single ones.
BOLT void store_whole(void* to, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
BOLT void store_whole(void* to, uint2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
BOLT void store_whole(void* to, unsigned v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory"); }
BOLT void store_whole(void* to, unsigned short v) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(v) : "memory");
}
// Read if wanted, else left as it is: an instruction that is not executed where a branch would have the values
// it jumps over wait for each other.
BOLT void load_if(bool wanted, const void* from, uint4& v) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %5, 0;\n @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(from), "r"(unsigned(wanted))
               : "memory");
}
BOLT void load_if(bool wanted, const void* from, uint2& v) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %3, 0;\n @p ld.global.v2.u32 {%0, %1}, [%2];\n}"
               : "+r"(v.x), "+r"(v.y)
               : "l"(from), "r"(unsigned(wanted))
               : "memory");
}
BOLT void load_if(bool wanted, const void* from, unsigned& v) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %2, 0;\n @p ld.global.u32 %0, [%1];\n}"
               : "+r"(v)
               : "l"(from), "r"(unsigned(wanted))
               : "memory");
}
BOLT void load_if(bool wanted, const void* from, unsigned short& v) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %2, 0;\n @p ld.global.u16 %0, [%1];\n}"
               : "+h"(v)
               : "l"(from), "r"(unsigned(wanted))
               : "memory");
}
BOLT float from_f16(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
}
BOLT f16 to_f16(float v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
#if __CUDA_ARCH__ >= 800
BOLT bf16 to_bf16(float v) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
BOLT float bolt_maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
BOLT float bolt_minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#endif
// Off by 1 ulp at most.
BOLT float reciprocal(float v) {
  float r;
  asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
// Both halves of a product; written in C++, all that is made of them is computed with 64 bits.
BOLT void multiply(unsigned a, unsigned b, unsigned& low, unsigned& high) {
  asm("{\n .reg .b64 p;\n mul.wide.u32 p, %2, %3;\n mov.b64 {%0, %1}, p;\n}" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
}
// Blocks of a cluster: where another one has what this one has at `mine`, and a word that lies there.
BOLT void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
BOLT void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
BOLT unsigned place_in_block(const void* mine, int block) {
  unsigned here = unsigned(__cvta_generic_to_shared(mine)), there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  return there;
}
BOLT unsigned word_of_block(unsigned there) {
  unsigned word;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(there) : "memory");
  return word;
}
#endif

)";

constexpr std::string_view kMemory =
    R"(// The arguments of several launches that are one (lists.h): block b is of the last of them that begins at or
// before it.
template <int kArguments, int kMost>
struct List {
  unsigned count, begin[kMost];
  u64 of[kMost][kArguments];
};
template <int kArguments, int kMost>
BOLT unsigned place_in(const List<kArguments, kMost>& list) {
  unsigned at = 0;
  for (unsigned step = kMost / 2 + 1; step > 0; step = step > 1 ? (step + 1) / 2 : 0)
    if (at + step < list.count && list.begin[at + step] <= blockIdx.x) at += step;
  return at;
}

// N neighbours in memory, read and written 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
  T at[N];
};
template <int N, typename T>
BOLT pack<T, N> get(const T* from) {
  return *reinterpret_cast<const pack<T, N>*>(from);
}
template <typename T, int N>
BOLT void put(T* to, const pack<T, N>& v) {
  *reinterpret_cast<pack<T, N>*>(to) = v;
}
// Those from `begin` to `end` alone: at the ends of a row that does not begin or end where an access does.
template <int N, typename T>
BOLT pack<T, N> get_within(const T* from, int begin, int end) {
  if (begin <= 0 && end >= N) return get<N>(from);
  pack<T, N> p;
#pragma unroll
  for (int i = 0; i < N; ++i) p.at[i] = i >= begin && i < end ? from[i] : T(0);
  return p;
}
// The same wherever they begin: whole accesses around them are put together. None is read that holds no element of
// theirs.
template <int N, typename T>
BOLT pack<T, N> get_between(const T* from, int begin, int end) {
  if (begin > 0 || end < N) return get_within<N>(from, begin, end);
  pack<T, N> p;
  constexpr int kWords = sizeof(p) / 4;
  const unsigned ahead = unsigned(reinterpret_cast<u64>(from) % 16);
  const uint4* const whole = reinterpret_cast<const uint4*>(reinterpret_cast<u64>(from) - ahead);
  unsigned word[kWords + 4];
#pragma unroll
  for (int i = 0; i <= kWords; i += 4) {
    uint4 v = {0, 0, 0, 0};
    if (i < kWords || ahead > 0) v = whole[i / 4];
    word[i] = v.x, word[i + 1] = v.y, word[i + 2] = v.z, word[i + 3] = v.w;
  }
#pragma unroll
  for (int step = 2; step > 0; --step)
#pragma unroll
    for (int i = 0; i + step < kWords + 4; ++i)
      if (ahead / 4 & step) word[i] = word[i + step];
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    reinterpret_cast<unsigned*>(&p)[i] = unsigned((u64(word[i + 1]) << 32 | word[i]) >> ahead % 4 * 8);
  return p;
}
template <typename T, int N>
BOLT void put_within(T* to, const pack<T, N>& v, int begin, int end) {
  if (begin <= 0 && end >= N) {
    if (sizeof(v) == 8) store_whole(to, reinterpret_cast<const uint2&>(v));
    if (sizeof(v) == 4) store_whole(to, reinterpret_cast<const unsigned&>(v));
    if (sizeof(v) == 2) store_whole(to, reinterpret_cast<const unsigned short&>(v));
    if (sizeof(v) == 1) to[0] = v.at[0];
#pragma unroll
    for (int i = 0; i < int(sizeof(v)) / 16; ++i)
      store_whole(reinterpret_cast<uint4*>(to) + i, reinterpret_cast<const uint4*>(&v)[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i >= begin && i < end) to[i] = v.at[i];
}
template <int N, typename T>
BOLT pack<T, N> all_of(T v) {
  pack<T, N> p;
#pragma unroll
  for (int i = 0; i < N; ++i) p.at[i] = v;
  return p;
}

// Where they are not wanted, none is read.
template <int N, typename T>
BOLT pack<T, N> get_if(bool wanted, const T* from, T otherwise) {
  pack<T, N> p = all_of<N>(otherwise);
  if (sizeof(p) == 8) load_if(wanted, from, reinterpret_cast<uint2&>(p));
  if (sizeof(p) == 4) load_if(wanted, from, reinterpret_cast<unsigned&>(p));
  if (sizeof(p) == 2) load_if(wanted, from, reinterpret_cast<unsigned short&>(p));
  if (sizeof(p) == 1 && wanted) p.at[0] = from[0];
#pragma unroll
  for (int i = 0; i < int(sizeof(p)) / 16; ++i)
    load_if(wanted, reinterpret_cast<const uint4*>(from) + i, reinterpret_cast<uint4*>(&p)[i]);
  return p;
}

BOLT float from_bf16(bf16 v) { return __uint_as_float(unsigned(v) << 16); }
#if __CUDA_ARCH__ < 800
BOLT bf16 to_bf16(float v) {
  unsigned bits = __float_as_uint(v);
  return bf16(v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

// The index where it lies in [0, size), else one that does; a wanted one that does not is noted.
BOLT i64 inside(i64 index, i64 size, bool wanted, bool& missed) {
  if (u64(index) < u64(size)) return index;
  missed = missed || wanted;
  return 0;
}

)";

constexpr std::string_view kArithmetic = R"(// Integers wrap: all of it is done on 64 bits without a sign.
template <typename T> BOLT T bolt_add(T a, T b) { return T(u64(a) + u64(b)); }
template <typename T> BOLT T bolt_sub(T a, T b) { return T(u64(a) - u64(b)); }
template <typename T> BOLT T bolt_mul(T a, T b) { return T(u64(a) * u64(b)); }
template <typename T> BOLT T bolt_neg(T a) { return T(0 - u64(a)); }
template <typename T> BOLT T bolt_abs(T a) { return a < 0 ? bolt_neg(a) : a; }
BOLT float bolt_add(float a, float b) { return a + b; }
BOLT float bolt_mul(float a, float b) { return a * b; }
BOLT double bolt_add(double a, double b) { return a + b; }
BOLT double bolt_mul(double a, double b) { return a * b; }
template <typename T> BOLT T bolt_sign(T a) { return T((a > 0) - (a < 0)); }

// NaN wins; in fmax and fmin it loses.
template <typename T> BOLT T bolt_maximum(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> BOLT T bolt_minimum(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> BOLT T bolt_fmax(T a, T b) { return a > b || b != b ? a : b; }
template <typename T> BOLT T bolt_fmin(T a, T b) { return a < b || b != b ? a : b; }

// What a whole row is divided by: two products in place of a division, which costs more than an exponential. The
// scale keeps the inverse of the smallest and largest numbers exact enough.
struct Divisor { float scale, inverse; };
BOLT Divisor divisor(float v) {
  float size = fabsf(v), scale = size > 0x1p100f ? 0x1p-64f : size < 0x1p-100f ? 0x1p64f : 1.0f;
  return {scale, 1.0f / (v * scale)};
}
BOLT float divided(float x, Divisor by) { return x * by.scale * by.inverse; }

// Division by zero gives 0, the smallest integer by -1 itself.
template <typename T>
BOLT T bolt_trunc_div(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return bolt_neg(a);
  return T(a / b);
}
template <typename T>
BOLT T bolt_fmod(T a, T b) {
  return b == 0 ? T(0) : bolt_sub(a, bolt_mul(bolt_trunc_div(a, b), b));
}
template <typename T>
BOLT T bolt_remainder(T a, T b) {
  T r = bolt_fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? bolt_add(r, b) : r;
}
template <typename T>
BOLT T bolt_floor_div(T a, T b) {
  T q = bolt_trunc_div(a, b), r = bolt_fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? bolt_sub(q, T(1)) : q;
}
template <typename T>
BOLT T bolt_pow(T base, T n) {
  if (n < 0) return base == 1 ? T(1) : base == T(-1) ? (n % 2 != 0 ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (u64 left = u64(n); left != 0; left >>= 1, base = bolt_mul(base, base))
    if (left & 1) result = bolt_mul(result, base);
  return result;
}
template <typename T>
BOLT T bolt_shift_left(T a, T b) {
  return u64(b) < 8 * sizeof(T) ? T(u64(a) << int(b)) : T(0);
}
template <typename T>
BOLT T bolt_shift_right(T a, T b) {
  if (u64(b) < 8 * sizeof(T)) return T(a >> int(b));
  return a < 0 ? T(-1) : T(0);
}

// support/philox.h: the number of each position of a tensor, by seed and offset.
BOLT uint4 philox(u64 seed, u64 counter, u64 sequence) {
  unsigned x = unsigned(counter), y = unsigned(counter >> 32), z = unsigned(sequence), w = unsigned(sequence >> 32);
  unsigned first = unsigned(seed), second = unsigned(seed >> 32);
#pragma unroll
  for (int round = 0; round < PHILOX_ROUNDS; ++round) {
    unsigned a, over_a, b, over_b;
    multiply(PHILOX_FACTOR_1, x, a, over_a);
    multiply(PHILOX_FACTOR_2, z, b, over_b);
    x = over_b ^ y ^ first, y = b, z = over_a ^ w ^ second, w = a;
    first += PHILOX_STEP_1, second += PHILOX_STEP_2;
  }
  return {x, y, z, w};
}
BOLT float uniform(unsigned bits) { return fmaf(float(bits), 0x1p-32f, 0x1p-33f); }
// The four numbers that the one at this position comes with.
template <typename T>
BOLT uint4 four_at(u64 seed, u64 offset, T taken, T vector, T position) {
  T turn = position / taken, rest = position % taken;
  return philox(seed, offset / 4 + u64(turn) * (vector / 4) + rest % vector / 4, rest / vector);
}
BOLT uint4 four_of(i64 seed, i64 offset, i64 threads, i64 vector, i64 position) {
  u64 taken = u64(threads) * vector;
  if (u64(position) >> 32 == 0 && taken >> 32 == 0)
    return four_at<unsigned>(seed, offset, taken, vector, position);
  return four_at<u64>(seed, offset, taken, vector, position);
}
BOLT float random_number(i64 seed, i64 offset, i64 threads, i64 vector, i64 position) {
  uint4 four = four_of(seed, offset, threads, vector, position);
  int at = int(position & 3);
  return uniform(at == 0 ? four.x : at == 1 ? four.y : at == 2 ? four.z : four.w);
}
// Of N neighbours, the first of which has a position that is a multiple of 4: so is `vector`.
template <int N>
BOLT pack<float, N> random_numbers(i64 seed, i64 offset, i64 threads, i64 vector, i64 position) {
  pack<float, N> p;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    uint4 four = four_of(seed, offset, threads, vector, position + i);
    p.at[i] = uniform(four.x), p.at[i + 1] = uniform(four.y);
    p.at[i + 2] = uniform(four.z), p.at[i + 3] = uniform(four.w);
  }
  return p;
}

// A division costs more than the exponential.
BOLT float bolt_sigmoid(float x) { return reciprocal(1.0f + expf(-x)); }
BOLT double bolt_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// CUDA's own normcdf keeps all digits of what is hardly there, too, which nobody who multiplies by it sees.
BOLT float bolt_ndtr(float x) { return 0.5f + 0.5f * erff(x * 0.707106781f); }
BOLT double bolt_ndtr(double x) { return 0.5 + 0.5 * erf(x * 0.70710678118654752); }

// As ATen: the remainder has the divisor's sign; x / 0 is the true quotient.
#define BOLT_FLOATING(T, f)                                                 \
  BOLT T bolt_remainder(T a, T b) {                                         \
    T r = fmod##f(a, b);                                                    \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                        \
  }                                                                         \
  BOLT T bolt_floor_div(T a, T b) {                                         \
    if (b == 0) return a / b;                                               \
    T r = fmod##f(a, b), d = (a - r) / b;                                   \
    if (r != 0 && (r < 0) != (b < 0)) d = d - T(1);                         \
    if (d == 0) return copysign##f(T(0), a / b);                            \
    T whole = floor##f(d);                                                  \
    return d - whole > T(0.5) ? whole + T(1) : whole;                       \
  }
BOLT_FLOATING(float, f)
BOLT_FLOATING(double, )

)";

constexpr std::string_view kReductions = R"(template <typename T> struct Best { T value; i64 at; };
enum : i64 { kNowhere = 0x7fffffffffffffffll };  // behind every position

// The first of equals wins, NaN beats all.
template <typename T>
BOLT Best<T> first_of(bool a_wins, bool b_wins, Best<T> a, Best<T> b) {
  bool take_a = a_wins || (!b_wins && a.at < b.at);
  return take_a ? a : b;
}
template <typename T> BOLT bool over(T a, T b) { return a > b || (a != a && b == b); }
template <typename T> BOLT bool under(T a, T b) { return a < b || (a != a && b == b); }

struct Sum { template <typename T> static BOLT T of(T a, T b) { return bolt_add(a, b); } };
struct Prod { template <typename T> static BOLT T of(T a, T b) { return bolt_mul(a, b); } };
struct Max { template <typename T> static BOLT T of(T a, T b) { return bolt_maximum(a, b); } };
struct Min { template <typename T> static BOLT T of(T a, T b) { return bolt_minimum(a, b); } };
// A sum of exp(x - most) while `most` grows. Where nothing but -inf has been found so far it is the sum of nothing; of
// a row of nothing else, for which -inf - -inf is no number, it is none either.
template <typename T> BOLT T nothing_found() { return -T(__int_as_float(0x7f800000)); }
template <typename T> BOLT T less(T x, T most) { return most == nothing_found<T>() ? x : x - most; }
BOLT float scaled(float sum, float before, float now) { return before == now ? sum : sum * expf(before - now); }
BOLT double scaled(double sum, double before, double now) { return before == now ? sum : sum * exp(before - now); }
template <typename T> BOLT T sum_below(T most, T sum) { return most == nothing_found<T>() ? most - most : sum; }
struct Any { static BOLT bool of(bool a, bool b) { return a || b; } };
struct All { static BOLT bool of(bool a, bool b) { return a && b; } };
struct ArgMax {
  template <typename T> static BOLT Best<T> of(Best<T> a, Best<T> b) {
    return first_of(over(a.value, b.value), over(b.value, a.value), a, b);
  }
};
struct ArgMin {
  template <typename T> static BOLT Best<T> of(Best<T> a, Best<T> b) {
    return first_of(under(a.value, b.value), under(b.value, a.value), a, b);
  }
};

BOLT int partner(int v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }
BOLT i64 partner(i64 v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }
BOLT float partner(float v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }
BOLT double partner(double v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }
template <typename T> BOLT T partner(T v, int distance) { return T(partner(int(v), distance)); }
template <typename T> BOLT Best<T> partner(Best<T> v, int distance) {
  return {partner(v.value, distance), partner(v.at, distance)};
}

// Every lane gets the result.
template <typename Op, typename T>
BOLT T across_warp(T v) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) v = Op::of(v, partner(v, distance));
  return v;
}
// Every thread gets the result, from the same sums in the same order.
template <typename Op, int Threads, typename T>
BOLT T across_block(T v) {
  __shared__ T part[Threads / 32];
  v = across_warp<Op>(v);
  __syncthreads();  // an earlier result may still be on its way out of `part`
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  T result = part[0];
#pragma unroll
  for (int i = 1; i < Threads / 32; ++i) result = Op::of(result, part[i]);
  return result;
}
// Of blocks that are a cluster: each reads the others' results in their shared memory. Every reduction has memory
// of its own (Number), so it need not be waited for that all have read, but before a block ends.
template <typename T> union Words { T value; unsigned at[(sizeof(T) + 3) / 4]; };
template <typename T>
BOLT T of_block(const Words<T>& mine, int block) {
  const unsigned there = place_in_block(&mine, block);
  Words<T> other;
#pragma unroll
  for (int i = 0; i < int(sizeof(other) / 4); ++i) other.at[i] = word_of_block(there + 4 * i);
  return other.value;
}
template <typename Op, int Threads, int Blocks, int Number, typename T>
BOLT T across_cluster(T v) {
  __shared__ Words<T> mine;
  v = across_block<Op, Threads>(v);
  if (threadIdx.x == 0) mine.value = v;
  cluster_arrive();
  cluster_wait();
  T all[Blocks];
#pragma unroll
  for (int i = 0; i < Blocks; ++i) all[i] = of_block(mine, i);
  T result = all[0];
#pragma unroll
  for (int i = 1; i < Blocks; ++i) result = Op::of(result, all[i]);
  return result;
}
// Of a block in which Beside threads have a row each and Group share it: every thread gets its row's result. Those of
// one warp first tell each other.
template <typename Op, int Beside, int Group, typename T>
BOLT T across_rows(T v) {
  constexpr int InWarp = Beside < 32 ? 32 / Beside : 1, Parts = Group / InWarp;
#pragma unroll
  for (int i = 1; i < InWarp; i *= 2) v = Op::of(v, partner(v, i * Beside));
  static_assert(Parts > 1, "a block is more than a warp");
  __shared__ T part[Parts][Beside];
  const int row = threadIdx.x % Beside;
  __syncthreads();
  if (threadIdx.x % 32 < Beside) part[threadIdx.x / (Beside * InWarp)][row] = v;
  __syncthreads();
  T result = part[0][row];
#pragma unroll
  for (int i = 1; i < Parts; ++i) result = Op::of(result, part[i][row]);
  return result;
}
)";

constexpr std::string_view kScans =
    R"(// The larger and what the other adds to it; of two infinities the difference is none.
BOLT float log_of_sum(float high, float low) { return high + log1pf(expf(low == high ? 0.0f : low - high)); }
BOLT double log_of_sum(double high, double low) { return high + log1p(exp(low == high ? 0.0 : low - high)); }
struct LogAddExp {
  template <typename T> static BOLT T of(T a, T b) { return log_of_sum(bolt_maximum(a, b), bolt_minimum(a, b)); }
};

BOLT int from_below(int v, int distance) { return __shfl_up_sync(0xffffffffu, v, distance); }
BOLT i64 from_below(i64 v, int distance) { return __shfl_up_sync(0xffffffffu, v, distance); }
BOLT float from_below(float v, int distance) { return __shfl_up_sync(0xffffffffu, v, distance); }
BOLT double from_below(double v, int distance) { return __shfl_up_sync(0xffffffffu, v, distance); }
template <typename T> BOLT T from_below(T v, int distance) { return T(from_below(int(v), distance)); }

BOLT int last_of_lanes(int v) { return __shfl_sync(0xffffffffu, v, 31); }
BOLT i64 last_of_lanes(i64 v) { return __shfl_sync(0xffffffffu, v, 31); }
BOLT float last_of_lanes(float v) { return __shfl_sync(0xffffffffu, v, 31); }
BOLT double last_of_lanes(double v) { return __shfl_sync(0xffffffffu, v, 31); }
template <typename T> BOLT T last_of_lanes(T v) { return T(last_of_lanes(int(v))); }

// Each element with all before it. `before`: what those of earlier turns come to; then of this one, too.
template <typename Op, typename T>
BOLT T running(T v, T& before) {
  return before = Op::of(before, v);
}
template <typename Op, typename T>
BOLT T running_of_lanes(T v) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    T below = from_below(v, distance);
    if (lane >= distance) v = Op::of(below, v);
  }
  return v;
}
template <typename Op, typename T>
BOLT T running_in_warp(T v, T& before) {
  v = Op::of(before, running_of_lanes<Op>(v));
  before = last_of_lanes(v);
  return v;
}
template <typename Op, int Threads, typename T>
BOLT T running_in_block(T v, T& before) {
  __shared__ T part[Threads / 32];
  const int warp = threadIdx.x / 32;
  v = running_of_lanes<Op>(v);
  __syncthreads();  // those of an earlier turn may still be on their way out of `part`
  if (threadIdx.x % 32 == 31) part[warp] = v;
  __syncthreads();
  T mine = before, all = before;
#pragma unroll
  for (int i = 0; i < Threads / 32; ++i) {
    if (i == warp) mine = all;
    all = Op::of(all, part[i]);
  }
  before = all;
  return Op::of(mine, v);
}

// What lies in memory combined with v, whoever else does so at the same time.
BOLT unsigned bits_of(float v) { return __float_as_uint(v); }
BOLT unsigned bits_of(int v) { return unsigned(v); }
BOLT u64 bits_of(double v) { return u64(__double_as_longlong(v)); }
BOLT u64 bits_of(i64 v) { return u64(v); }
BOLT void of_bits(unsigned bits, float& v) { v = __uint_as_float(bits); }
BOLT void of_bits(unsigned bits, int& v) { v = int(bits); }
BOLT void of_bits(u64 bits, double& v) { v = __longlong_as_double(i64(bits)); }
BOLT void of_bits(u64 bits, i64& v) { v = i64(bits); }
template <typename Word, typename F>
BOLT void change(Word* word, F next) {
  for (Word old = *word;;) {
    const Word wanted = next(old);
    if (wanted == old) return;
    const Word seen = atomicCAS(word, old, wanted);
    if (seen == old) return;
    old = seen;
  }
}
// Of a byte or two the word around them.
template <typename T, typename F>
BOLT void change_part(T* at, F next) {
  const u64 address = reinterpret_cast<u64>(at);
  const unsigned shift = unsigned(address % 4) * 8, mask = ((1u << 8 * sizeof(T)) - 1) << shift;
  change(reinterpret_cast<unsigned*>(address - address % 4), [&](unsigned old) {
    return (old & ~mask) | (unsigned(next(T(old >> shift))) << shift & mask);
  });
}
template <typename Op, typename T> struct Into {
  static BOLT void at(T* to, T v) {
    change(reinterpret_cast<decltype(bits_of(v))*>(to), [&](decltype(bits_of(v)) old) {
      T here;
      of_bits(old, here);
      return bits_of(Op::of(here, v));
    });
  }
};
template <> struct Into<Sum, float> { static BOLT void at(float* to, float v) { atomicAdd(to, v); } };
template <> struct Into<Sum, double> { static BOLT void at(double* to, double v) { atomicAdd(to, v); } };
template <> struct Into<Sum, int> { static BOLT void at(int* to, int v) { atomicAdd(to, v); } };
template <> struct Into<Sum, i64> {
  static BOLT void at(i64* to, i64 v) { atomicAdd(reinterpret_cast<u64*>(to), u64(v)); }
};
template <> struct Into<Max, int> { static BOLT void at(int* to, int v) { atomicMax(to, v); } };
template <> struct Into<Min, int> { static BOLT void at(int* to, int v) { atomicMin(to, v); } };
template <> struct Into<Max, i64> { static BOLT void at(i64* to, i64 v) { atomicMax(to, v); } };
template <> struct Into<Min, i64> { static BOLT void at(i64* to, i64 v) { atomicMin(to, v); } };
#define BOLT_NARROW(T)                                                       \
  template <typename Op> struct Into<Op, T> {                                \
    static BOLT void at(T* to, T v) {                                        \
      change_part(to, [&](T here) { return Op::of(here, v); });              \
    }                                                                        \
  };
BOLT_NARROW(i8)
BOLT_NARROW(u8)
BOLT_NARROW(i16)
template <typename Op, typename From, typename To>
BOLT void into_half(unsigned short* at, float v, From from, To to) {
  change_part(at, [&](unsigned short here) { return to(Op::of(from(here), v)); });
}
)";
/// What the text below shares with the other forms of the generator.
std::string philox_numbers() {
  auto define = [](const char* name, uint32_t value, const char* end) {
    return std::string("#define ") + name + " " + std::to_string(value) + end + "\n";
  };
  return define("PHILOX_ROUNDS", philox::kRounds, "") + define("PHILOX_FACTOR_1", philox::kFirstFactor, "u") +
         define("PHILOX_FACTOR_2", philox::kSecondFactor, "u") +
         define("PHILOX_STEP_1", philox::kFirstStep, "u") + define("PHILOX_STEP_2", philox::kSecondStep, "u");
}

}  // namespace

std::string_view prelude() {
  static const std::string text = std::string(kTypes) + std::string(kInstructions) + std::string(kMemory) +
                                  philox_numbers() + std::string(kArithmetic) + std::string(kReductions) +
                                  std::string(kScans);
  return text;
}

}  // namespace bolt::codegen::cuda
