// one block per row, 4 elements per access, rows that begin between accesses; s0 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_mul_sum_div_0(const float* b0, const float* b1, float* b2, unsigned count, i64 n0, i64 n1) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  const int shift = int(((d0 * n1) % 4));
  float a3 = 0.0f;
  const int length_0 = n1;
#pragma unroll 4
  for (int j = lane * 4 - shift; j < length_0; j += 1024) {
    const i64 d1_at = j;
    const pack<float, 4> x0 = get_within<4>(b0 + ((d0 * n1) + d1_at), int(-d1_at), int(n1 - d1_at));
    const pack<float, 4> x1 = get_between<4>(b1 + d1_at, int(-d1_at), int(n1 - d1_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float v2 = x0.at[e] * x1.at[e];
      if (!(unsigned(d1_at + e) >= unsigned(n1))) a3 = Sum::of(a3, v2);
    }
  }
  const float v3 = across_block<Sum, 256>(a3);
  const Divisor q3 = divisor(v3);
  const int length_1 = n1;
  for (int j = lane * 4 - shift; j < length_1; j += 1024) {
    const i64 d1_at = j;
    const pack<float, 4> x0 = get_within<4>(b0 + ((d0 * n1) + d1_at), int(-d1_at), int(n1 - d1_at));
    const pack<float, 4> x1 = get_between<4>(b1 + d1_at, int(-d1_at), int(n1 - d1_at));
    pack<float, 4> y0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float v2 = x0.at[e] * x1.at[e];
      const float v4 = divided(v2, q3);
      y0.at[e] = v4;
    }
    put_within(b2 + ((d0 * n1) + d1_at), y0, int(-d1_at), int(n1 - d1_at));
  }
}
