// 32 x 8 threads on rows side by side, 4 elements per access; 60 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_mul_sum_add_0_part0(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x / 32;
  const unsigned place = blockIdx.x * 32 + threadIdx.x % 32;
  const bool here = place < count;
  const unsigned row = here ? place : 0;
  const i64 d0 = row * 4 / 768;
  const i64 d1_at = row * 4 % 768;
  float a2[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) a2[e] = 0.0f;
  const unsigned length_0 = bolt_maximum(i64(bolt_minimum(i64(((d0 * (-32)) + 300)), i64(32))), i64(0));
#pragma unroll 4
  for (unsigned j = lane; j < length_0; j += 8) {
    const i64 d2 = j;
    const pack<float, 4> x0 = get<4>(b0 + ((d0 * 24576) + d1_at + (d2 * 768)));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float v1 = x0.at[e] * x0.at[e];
      a2[e] = Sum::of(a2[e], v1);
    }
  }
  float v2[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) v2[e] = across_rows<Sum, 32, 8>(a2[e]);
  pack<float, 4> y0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    y0.at[e] = v2[e];
  }
  if (lane == 0 && here) put(b1 + ((d0 * 768) + d1_at), y0);
}

// 32 x 2 threads on rows side by side, 4 elements per access, row held in registers; 6 blocks of 64 threads
extern "C" __global__ void __launch_bounds__(64)
bolt_mul_sum_add_0_part1(const float* b0, const float* b1, float* b2, unsigned count) {
  const int lane = threadIdx.x / 32;
  const unsigned place = blockIdx.x * 32 + threadIdx.x % 32;
  const bool here = place < count;
  const unsigned row = here ? place : 0;
  const i64 d0_at = row * 4;
  const pack<float, 4> x2 = get<4>(b1 + d0_at);
  float a1[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) a1[e] = 0.0f;
#pragma unroll
  for (int c = 0; c < 5; ++c) {
    const unsigned j = c * 2 + lane;
    const i64 d1 = j;
    const pack<float, 4> x0 = get<4>(b0 + (d0_at + (d1 * 768)));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      a1[e] = Sum::of(a1[e], x0.at[e]);
    }
  }
  float v1[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) v1[e] = across_rows<Sum, 32, 2>(a1[e]);
  float v3[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    v3[e] = v1[e] + x2.at[e];
  }
  pack<float, 4> y0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    y0.at[e] = v3[e];
  }
  if (lane == 0 && here) put(b2 + d0_at, y0);
}
