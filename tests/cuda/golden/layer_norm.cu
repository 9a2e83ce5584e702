// one block per row, 8 elements per access, row held in registers; 32 blocks of 128 threads
extern "C" __global__ void __launch_bounds__(128)
bolt_add_norm_0(const bf16* b0, const bf16* b1, const bf16* b2, const bf16* b3, bf16* b4, bf16* b5, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  float k4[4][8];
  float k8[4][8];
  float a5 = 0.0f;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const unsigned j = (c * 128 + lane) * 8;
    const i64 d1_at = j;
    const pack<bf16, 8> x0 = get<8>(b0 + ((d0 * 4096) + d1_at));
    const pack<bf16, 8> x2 = get<8>(b1 + ((d0 * 4096) + d1_at));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v1 = from_bf16(x0.at[e]);
      const float v3 = from_bf16(x2.at[e]);
      k4[c][e] = v1 + v3;
      a5 = Sum::of(a5, k4[c][e]);
    }
  }
  const float v5 = across_block<Sum, 128>(a5);
  const float v7 = v5 * 0.000244140625f;
  float a10 = 0.0f;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      k8[c][e] = k4[c][e] - v7;
      const float v9 = k8[c][e] * k8[c][e];
      a10 = Sum::of(a10, v9);
    }
  }
  const float v10 = across_block<Sum, 128>(a10);
  const float v11 = v10 * 0.000244140625f;
  const float v13 = v11 + 9.99999975e-06f;
  const float v14 = rsqrtf(v13);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const unsigned j = (c * 128 + lane) * 8;
    const i64 d1_at = j;
    const pack<bf16, 8> x16 = get<8>(b2 + d1_at);
    const pack<bf16, 8> x19 = get<8>(b3 + d1_at);
    pack<bf16, 8> y0;
    pack<bf16, 8> y1;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v15 = k8[c][e] * v14;
      const float v17 = from_bf16(x16.at[e]);
      const float v18 = v15 * v17;
      const float v20 = from_bf16(x19.at[e]);
      const float v21 = v18 + v20;
      const bf16 v22 = to_bf16(v21);
      const bf16 v25 = to_bf16(k4[c][e]);
      y0.at[e] = v22;
      y1.at[e] = v25;
    }
    put(b4 + ((d0 * 4096) + d1_at), y0);
    put(b5 + ((d0 * 4096) + d1_at), y1);
  }
}
