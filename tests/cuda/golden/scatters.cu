// pointwise, 8 elements per access; 32 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_copy_0(const float* b0, const i64* b1, const f16* b2, float* b3, float* b4, float* b5, i64* b6, i64* b7, f16* b8, unsigned count) {
  const unsigned at = (blockIdx.x * 256 + threadIdx.x) * 8;
  if (at >= count) return;
  const i64 d0_at = at;
  const pack<float, 8> x0 = get<8>(b0 + d0_at);
  const pack<i64, 8> x1 = get<8>(b1 + d0_at);
  const pack<f16, 8> x2 = get<8>(b2 + d0_at);
  pack<float, 8> y0;
  pack<float, 8> y1;
  pack<float, 8> y2;
  pack<i64, 8> y3;
  pack<i64, 8> y4;
  pack<f16, 8> y5;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    y0.at[e] = x0.at[e];
    y1.at[e] = x0.at[e];
    y2.at[e] = x0.at[e];
    y3.at[e] = x1.at[e];
    y4.at[e] = x1.at[e];
    y5.at[e] = x2.at[e];
  }
  put(b3 + d0_at, y0);
  put(b4 + d0_at, y1);
  put(b5 + d0_at, y2);
  put(b6 + d0_at, y3);
  put(b7 + d0_at, y4);
  put(b8 + d0_at, y5);
}

// pointwise, 1 element per access; 250 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_scatter_1(const i64* b0, const i64* b1, const f16* b2, const u8* b3, i64* b4, i64* b5, f16* b6, u8* b7, i64* report, unsigned count) {
  const unsigned at = blockIdx.x * 256 + threadIdx.x;
  if (at >= count) return;
  const i64 d0 = at / 64;
  const i64 d1 = at % 64;
  bool missed = false;
  const i64 v0 = b0[((d0 * 64) + d1)];
  const i64 v2 = inside(v0, 1000ll, true, missed);
  const i64 v3 = b1[((d0 * 64) + d1)];
  const f16 v4 = b2[((d0 * 64) + d1)];
  const bool v7 = (b3[((d0 * 64) + d1)] != 0);
  Into<Sum, i64>::at(b4 + d1 + v2 * 64, v3);
  Into<Prod, i64>::at(b5 + d1 + v2 * 64, v3);
  into_half<Min>(b6 + d1 + v2 * 64, from_f16(v4), from_f16, to_f16);
  b7[((d0 * 64) + d1)] = u8(v7);
  if (missed) *report = 1;
}

// pointwise, 1 element per access; 75 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_mul_scatter_2(const i64* b0, const float* b1, const float* b2, const u8* b3, float* b4, float* b5, float* b6, u8* b7, i64* report, unsigned count) {
  const unsigned at = blockIdx.x * 256 + threadIdx.x;
  if (at >= count) return;
  const i64 d0 = at / 64;
  const i64 d1 = at % 64;
  bool missed = false;
  const i64 v0 = b0[d0];
  const i64 v2 = inside(v0, 1000ll, true, missed);
  const float v3 = b1[((d0 * 64) + d1)];
  const float v4 = v3 * v3;
  const float v5 = b2[d1];
  const bool v6 = (b3[d1] != 0);
  Into<Sum, float>::at(b4 + d1 + v2 * 64, v4);
  Into<Max, float>::at(b5 + d1 + v2 * 64, v3);
  b6[d1 + v2 * 64] = v5;
  b7[d1 + v2 * 64] = u8(v6);
  if (missed) *report = 1;
}
