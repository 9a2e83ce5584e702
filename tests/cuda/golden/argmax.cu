// one block per row, 1 element per access, row held in registers; 40 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_argmax_0(const float* b0, i64* b1, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  Best<float> a1 = {(-__int_as_float(0x7f800000)), kNowhere};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const unsigned j = c * 256 + lane;
    const i64 d1 = j;
    if (j >= 1001) continue;
    const float v0 = b0[((d0 * 1001) + d1)];
    a1 = ArgMax::of(a1, Best<float>{v0, d1});
  }
  const i64 v1 = across_block<ArgMax, 256>(a1).at;
  if (lane == 0) b1[d0] = v1;
}
