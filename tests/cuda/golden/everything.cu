// one block per row, 8 elements per access; 1 blocks of 512 threads
extern "C" __global__ void __launch_bounds__(512)
bolt_abs_amax_0(const f16* b0, float* b1) {
  const int lane = threadIdx.x;
  float a3 = (-__int_as_float(0x7f800000));
  for (unsigned j = lane * 8; j < 1000000; j += 4096) {
    const i64 d0_at = j;
    const pack<f16, 8> x0 = get<8>(b0 + d0_at);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v1 = from_f16(x0.at[e]);
      const float v2 = fabsf(v1);
      a3 = Max::of(a3, v2);
    }
  }
  const float v3 = across_block<Max, 512>(a3);
  if (lane == 0) b1[0] = v3;
}
