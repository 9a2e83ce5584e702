// one block per row, 4 elements per access, rows that begin between accesses; 37 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_sum_0_part0(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  const int shift = int(0);
  float a1 = 0.0f;
  const int length_0 = bolt_maximum(i64(bolt_minimum(i64(((d0 * (-8192)) + 300001)), i64(8192))), i64(0));
#pragma unroll 4
  for (int j = lane * 4 - shift; j < length_0; j += 1024) {
    const i64 d1_at = j;
    const pack<float, 4> x0 = get_within<4>(b0 + ((d0 * 8192) + d1_at), int(-d1_at), int(bolt_maximum(i64(bolt_minimum(i64(((d0 * (-8192)) + 300001)), i64(8192))), i64(0)) - d1_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!(unsigned(d1_at + e) >= unsigned(bolt_maximum(i64(bolt_minimum(i64(((d0 * (-8192)) + 300001)), i64(8192))), i64(0))))) a1 = Sum::of(a1, x0.at[e]);
    }
  }
  const float v1 = across_block<Sum, 256>(a1);
  if (lane == 0) b1[d0] = v1;
}

// one block per row, 4 elements per access, rows that begin between accesses, row held in registers; 1 blocks of 64 threads
extern "C" __global__ void __launch_bounds__(64)
bolt_sum_0_part1(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x;
  const int shift = int(0);
  float a1 = 0.0f;
#pragma unroll
  for (int c = 0; c < 1; ++c) {
    const int j = (c * 64 + lane) * 4 - shift;
    const i64 d0_at = j;
    if (j >= 37) continue;
    const pack<float, 4> x0 = get_within<4>(b0 + d0_at, int(-d0_at), int(37 - d0_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!(unsigned(d0_at + e) >= unsigned(37))) a1 = Sum::of(a1, x0.at[e]);
    }
  }
  const float v1 = across_block<Sum, 64>(a1);
  if (lane == 0) b1[0] = v1;
}

// one block per row, 4 elements per access; 256 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_sum_1_part0(const float* b0, float* b1, unsigned count, i64 n0) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  float a1 = 0.0f;
  const unsigned length_0 = bolt_maximum(i64(bolt_minimum(i64(((d0 * ((n0 + 2047) / 2048) * (-512)) + (n0 * 64))), i64((((n0 + 2047) / 2048) * 512)))), i64(0));
#pragma unroll 4
  for (unsigned j = lane * 4; j < length_0; j += 1024) {
    const i64 d1_at = j;
    const pack<float, 4> x0 = get<4>(b0 + ((d0 * ((n0 + 2047) / 2048) * 512) + d1_at));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      a1 = Sum::of(a1, x0.at[e]);
    }
  }
  const float v1 = across_block<Sum, 256>(a1);
  if (lane == 0) b1[d0] = v1;
}

// one block per row, 4 elements per access, row held in registers; 1 blocks of 64 threads
extern "C" __global__ void __launch_bounds__(64)
bolt_sum_1_part1(const float* b0, float* b1, unsigned count, i64 n0) {
  const int lane = threadIdx.x;
  float a1 = 0.0f;
#pragma unroll
  for (int c = 0; c < 1; ++c) {
    const unsigned j = (c * 64 + lane) * 4;
    const i64 d0_at = j;
    const pack<float, 4> x0 = get<4>(b0 + d0_at);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      a1 = Sum::of(a1, x0.at[e]);
    }
  }
  const float v1 = across_block<Sum, 64>(a1);
  if (lane == 0) b1[0] = v1;
}

// one block per row, 8 elements per access, rows that begin between accesses; 256 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_mul_sum_2_part0(const bf16* b0, float* b1, unsigned count, i64 n0) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  const int shift = int(0);
  float a3 = 0.0f;
  const int length_0 = bolt_maximum(i64(bolt_minimum(i64(((d0 * ((n0 + 131071) / 131072) * (-512)) + n0)), i64((((n0 + 131071) / 131072) * 512)))), i64(0));
#pragma unroll 4
  for (int j = lane * 8 - shift; j < length_0; j += 2048) {
    const i64 d1_at = j;
    const pack<bf16, 8> x0 = get_within<8>(b0 + ((d0 * ((n0 + 131071) / 131072) * 512) + d1_at), int(-d1_at), int(bolt_maximum(i64(bolt_minimum(i64(((d0 * ((n0 + 131071) / 131072) * (-512)) + n0)), i64((((n0 + 131071) / 131072) * 512)))), i64(0)) - d1_at));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float v1 = from_bf16(x0.at[e]);
      const float v2 = v1 * v1;
      if (!(unsigned(d1_at + e) >= unsigned(bolt_maximum(i64(bolt_minimum(i64(((d0 * ((n0 + 131071) / 131072) * (-512)) + n0)), i64((((n0 + 131071) / 131072) * 512)))), i64(0))))) a3 = Sum::of(a3, v2);
    }
  }
  const float v3 = across_block<Sum, 256>(a3);
  if (lane == 0) b1[d0] = v3;
}

// one block per row, 4 elements per access, row held in registers; 1 blocks of 64 threads
extern "C" __global__ void __launch_bounds__(64)
bolt_mul_sum_2_part1(const float* b0, float* b1, unsigned count, i64 n0) {
  const int lane = threadIdx.x;
  float a1 = 0.0f;
#pragma unroll
  for (int c = 0; c < 1; ++c) {
    const unsigned j = (c * 64 + lane) * 4;
    const i64 d0_at = j;
    const pack<float, 4> x0 = get<4>(b0 + d0_at);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      a1 = Sum::of(a1, x0.at[e]);
    }
  }
  const float v1 = across_block<Sum, 64>(a1);
  if (lane == 0) b1[0] = v1;
}
