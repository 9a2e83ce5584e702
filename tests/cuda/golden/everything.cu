// one block per row, 8 elements per access; 123 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_abs_amax_0_part0(const f16* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  float a3 = (-__int_as_float(0x7f800000));
  const unsigned length_0 = bolt_maximum(i64(bolt_minimum(i64(((d0 * (-8192)) + 1000000)), i64(8192))), i64(0));
#pragma unroll 4
  for (unsigned j = lane * 8; j < length_0; j += 2048) {
    const i64 d1_at = j;
    const pack<f16, 8> x0 = get<8>(b0 + ((d0 * 8192) + d1_at));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v1 = from_f16(x0.at[e]);
      const float v2 = fabsf(v1);
      a3 = Max::of(a3, v2);
    }
  }
  const float v3 = across_block<Max, 256>(a3);
  if (lane == 0) b1[d0] = v3;
}

// one block per row, 4 elements per access, rows that begin between accesses, row held in registers; 1 blocks of 64 threads
extern "C" __global__ void __launch_bounds__(64)
bolt_abs_amax_0_part1(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x;
  const int shift = int(0);
  float a1 = (-__int_as_float(0x7f800000));
#pragma unroll
  for (int c = 0; c < 1; ++c) {
    const int j = (c * 64 + lane) * 4 - shift;
    const i64 d0_at = j;
    if (j >= 123) continue;
    const pack<float, 4> x0 = get_within<4>(b0 + d0_at, int(-d0_at), int(123 - d0_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!(unsigned(d0_at + e) >= unsigned(123))) a1 = Max::of(a1, x0.at[e]);
    }
  }
  const float v1 = across_block<Max, 64>(a1);
  if (lane == 0) b1[0] = v1;
}
