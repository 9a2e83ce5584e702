// pointwise, 8 elements per access; 12 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_neg_pad_add_0(const bf16* b0, bf16* b1, unsigned count) {
  const unsigned at = (blockIdx.x * 256 + threadIdx.x) * 8;
  if (at >= count) return;
  const i64 d0 = at / 64;
  const i64 d1_at = at % 64;
  const bool v2 = i64(d1_at) < 32ll;
  const pack<bf16, 8> x4 = get_if<8>(v2, b0 + ((d0 * 64) + d1_at + 32), bf16(to_bf16(0.0f)));
  const bool v6 = !v2;
  const pack<bf16, 8> x7 = get_if<8>(v6, b0 + ((d0 * 64) + d1_at + (-32)), bf16(to_bf16(0.0f)));
  pack<bf16, 8> y0;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float v5 = from_bf16(x4.at[e]);
    const float v8 = from_bf16(x7.at[e]);
    const float v9 = -v8;
    const float v10 = v6 ? v9 : 0.0f;
    const float v11 = v5 + v10;
    const bf16 v12 = to_bf16(v11);
    y0.at[e] = v12;
  }
  put(b1 + ((d0 * 64) + d1_at), y0);
}
