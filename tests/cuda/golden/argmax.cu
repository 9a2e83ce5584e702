// one block per row, 4 elements per access, rows that begin between accesses, row held in registers; 40 blocks of 64 threads
extern "C" __global__ void __launch_bounds__(64)
bolt_argmax_0(const float* b0, i64* b1, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  const int shift = int((d0 % 4));
  Best<float> a1 = {(-__int_as_float(0x7f800000)), kNowhere};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int j = (c * 64 + lane) * 4 - shift;
    const i64 d1_at = j;
    if (j >= 1001) continue;
    const pack<float, 4> x0 = get_within<4>(b0 + ((d0 * 1001) + d1_at), int(-d1_at), int(1001 - d1_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const i64 d1 = d1_at + e;
      if (!(unsigned(d1_at + e) >= unsigned(1001))) a1 = ArgMax::of(a1, Best<float>{x0.at[e], d1});
    }
  }
  const i64 v1 = across_block<ArgMax, 64>(a1).at;
  if (lane == 0) b1[d0] = v1;
}
