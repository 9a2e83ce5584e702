// pointwise, 4 elements per access; 256 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_embedding_add_0(const i64* b0, const float* b1, const float* b2, float* b3, i64* report, unsigned count) {
  const unsigned at = (blockIdx.x * 256 + threadIdx.x) * 4;
  if (at >= count) return;
  const i64 d0 = at / 32768;
  const i64 d1 = at / 256 % 128;
  const i64 d2_at = at % 256;
  bool missed = false;
  const i64 v0 = b0[((d0 * 128) + d1)];
  const i64 v2 = inside(v0, 1000ll, true, missed);
  const pack<float, 4> x3 = get<4>(b1 + d2_at + v2 * 256);
  const pack<float, 4> x4 = get<4>(b2 + ((d1 * 256) + d2_at));
  pack<float, 4> y0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float v5 = x3.at[e] + x4.at[e];
    y0.at[e] = v5;
  }
  put(b3 + ((d0 * 32768) + (d1 * 256) + d2_at), y0);
  if (missed) *report = 1;
}
