// one warp per row, 8 elements per access, row held in registers; 1536 blocks of 128 threads
extern "C" __global__ void __launch_bounds__(128)
bolt_random_lt_mul_0(const bf16* b0, const i64* b1, const float* b2, bf16* b3, unsigned count) {
  const int lane = threadIdx.x % 32;
  const unsigned row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= count) return;
  const i64 d0 = row;
  float k13[1][8];
  const i64 v2 = b1[0];
  const i64 v3 = b1[1];
  float a14 = 0.0f;
#pragma unroll
  for (int c = 0; c < 1; ++c) {
    const unsigned j = (c * 32 + lane) * 8;
    const i64 d1_at = j;
    const pack<bf16, 8> x0 = get<8>(b0 + ((d0 * 256) + d1_at));
    const pack<float, 8> r7 = random_numbers<8>(v2, v3, 1024ll, 8ll, ((d0 * 256) + d1_at));
    const pack<float, 8> x12 = get<8>(b2 + d1_at);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v1 = from_bf16(x0.at[e]);
      const float v7 = r7.at[e];
      const bool v9 = v7 < 0.899999976f;
      const float v10 = float(v9);
      const float v11 = v1 * v10;
      k13[c][e] = v11 + x12.at[e];
      a14 = Sum::of(a14, k13[c][e]);
    }
  }
  const float v14 = across_warp<Sum>(a14);
#pragma unroll
  for (int c = 0; c < 1; ++c) {
    const unsigned j = (c * 32 + lane) * 8;
    const i64 d1_at = j;
    pack<bf16, 8> y0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v15 = k13[c][e] - v14;
      const bf16 v16 = to_bf16(v15);
      y0.at[e] = v16;
    }
    put(b3 + ((d0 * 256) + d1_at), y0);
  }
}
