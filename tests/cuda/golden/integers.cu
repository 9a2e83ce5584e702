// pointwise, 8 elements per access; 2 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_floor_div_remainder_mul_0(const int* b0, const int* b1, int* b2, u8* b3, unsigned count) {
  const unsigned at = (blockIdx.x * 256 + threadIdx.x) * 8;
  if (at >= count) return;
  const i64 d0_at = at;
  const pack<int, 8> x0 = get<8>(b0 + d0_at);
  const pack<int, 8> x1 = get<8>(b1 + d0_at);
  pack<int, 8> y0;
  pack<u8, 8> y1;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const int v2 = bolt_floor_div(x0.at[e], x1.at[e]);
    const int v3 = bolt_remainder(x0.at[e], x1.at[e]);
    const int v4 = bolt_mul(v2, v3);
    const int v5 = bolt_shift_left(v4, x1.at[e]);
    const bool v6 = v5 > x0.at[e];
    y0.at[e] = v5;
    y1.at[e] = u8(v6);
  }
  put(b2 + d0_at, y0);
  put(b3 + d0_at, y1);
}
