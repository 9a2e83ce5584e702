// one warp per row, 4 elements per access, row held in registers; 24 blocks of 128 threads
extern "C" __global__ void __launch_bounds__(128)
bolt_softmax_0(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x % 32;
  const unsigned row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= count) return;
  const i64 d0 = row;
  pack<float, 4> k0[4];
  float k3[4][4];
  float a1 = (-__int_as_float(0x7f800000));
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const unsigned j = (c * 32 + lane) * 4;
    const i64 d1_at = j;
    k0[c] = get<4>(b0 + ((d0 * 512) + d1_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      a1 = Max::of(a1, k0[c].at[e]);
    }
  }
  const float v1 = across_warp<Max>(a1);
  float a4 = 0.0f;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float v2 = k0[c].at[e] - v1;
      k3[c][e] = expf(v2);
      a4 = Sum::of(a4, k3[c][e]);
    }
  }
  const float v4 = across_warp<Sum>(a4);
  const Divisor q4 = divisor(v4);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const unsigned j = (c * 32 + lane) * 4;
    const i64 d1_at = j;
    pack<float, 4> y0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float v5 = divided(k3[c][e], q4);
      y0.at[e] = v5;
    }
    put(b1 + ((d0 * 512) + d1_at), y0);
  }
}
