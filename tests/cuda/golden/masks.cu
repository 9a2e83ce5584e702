// pointwise, 4 elements per access, rows that begin between accesses; 2 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_pad_exp_where_0(const u8* b0, const float* b1, float* b2, unsigned count) {
  const unsigned at = blockIdx.x * 256 + threadIdx.x;
  if (at >= count) return;
  const unsigned row = at / (11);
  const i64 d0 = row;
  const int shift = int(((d0 * 3) % 4));
  const i64 d1_at = i64(at % (11) * 4) - shift;
  if (d1_at >= 39) return;
  const pack<u8, 4> x0 = get_within<4>(b0 + ((d0 * 39) + d1_at), int(-d1_at), int(39 - d1_at));
  const i64 v1 = d0;
  const bool v3 = v1 < 1ll;
  const bool v4 = !v3;
  pack<float, 4> y0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const i64 d1 = d1_at + e;
    if (unsigned(d1_at + e) >= unsigned(39)) continue;
    const i64 v5 = d1;
    const bool v7 = v5 < 2ll;
    const bool v8 = !v7;
    const bool v9 = bool(v4 & v8);
    const float v11 = get_if<1>(v9, b1 + ((d0 * 40) + d1 + (-42)), float(0.0f)).at[0];
    const float v12 = v9 ? v11 : 0.5f;
    const float v13 = expf(v12);
    const float v14 = (x0.at[e] != 0) ? v13 : v12;
    y0.at[e] = v14;
  }
  put_within(b2 + ((d0 * 39) + d1_at), y0, int(-d1_at), int(39 - d1_at));
}
