// pointwise, 8 elements per access; 24 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_add_gelu_mul_0(const bf16* b0, const bf16* b1, const float* b2, bf16* b3, unsigned count) {
  const unsigned at = (blockIdx.x * 256 + threadIdx.x) * 8;
  if (at >= count) return;
  const i64 d0 = at / 768;
  const i64 d1_at = at % 768;
  const pack<bf16, 8> x0 = get<8>(b0 + ((d0 * 768) + d1_at));
  const pack<bf16, 8> x2 = get<8>(b1 + d1_at);
  const float v7 = b2[d0];
  pack<bf16, 8> y0;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float v1 = from_bf16(x0.at[e]);
    const float v3 = from_bf16(x2.at[e]);
    const float v4 = v1 + v3;
    const float v5 = bolt_ndtr(v4);
    const float v6 = v4 * v5;
    const float v8 = v6 * v7;
    const bf16 v9 = to_bf16(v8);
    y0.at[e] = v9;
  }
  put(b3 + ((d0 * 768) + d1_at), y0);
}
