// one warp per row, scanned, 1 element per access; 16 blocks of 128 threads
extern "C" __global__ void __launch_bounds__(128)
bolt_scan_exp_0(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x % 32;
  const unsigned row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= count) return;
  const i64 d0 = row;
  float a1 = 0.0f;
  for (unsigned first = 0; first < 100; first += 32) {
    const bool here = first + lane < 100;
    const unsigned j = here ? first + lane : 0;
    const i64 d1 = j;
    const float v0 = b0[((d0 * 100) + d1)];
    const float v1 = running_in_warp<Sum>(here ? v0 : 0.0f, a1);
    const float v2 = expf(v1);
    if (here) b1[((d0 * 100) + d1)] = v2;
  }
}

// one block per row, scanned, 1 element per access; 8 blocks of 512 threads
extern "C" __global__ void __launch_bounds__(512)
bolt_scan_1(const bf16* b0, bf16* b1, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  float a2 = 0.0f;
  for (unsigned first = 0; first < 10000; first += 512) {
    const bool here = first + lane < 10000;
    const unsigned j = here ? first + lane : 0;
    const i64 d1 = j;
    const bf16 v0 = b0[((d0 * 10000) + d1)];
    const float v1 = from_bf16(v0);
    const float v2 = running_in_block<Sum, 512>(here ? v1 : 0.0f, a2);
    const bf16 v3 = to_bf16(v2);
    if (here) b1[((d0 * 10000) + d1)] = v3;
  }
}

// 128 x 1 threads on rows side by side, scanned, 1 element per access; 1 blocks of 128 threads
extern "C" __global__ void __launch_bounds__(128)
bolt_scan_2(const float* b0, float* b1, unsigned count) {
  const unsigned row = blockIdx.x * 128 + threadIdx.x;
  if (row >= count) return;
  const i64 d1 = row;
  float a1 = 1.0f;
  for (unsigned j = 0; j < 500; ++j) {
    const i64 d0 = j;
    const float v0 = b0[((d0 * 64) + d1)];
    const float v1 = running<Prod>(v0, a1);
    b1[((d0 * 64) + d1)] = v1;
  }
}

// one block per row, scanned, 1 element per access; 16 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_scan_3(const i64* b0, i64* b1, unsigned count) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  i64 a1 = (-9223372036854775807ll - 1);
  for (unsigned first = 0; first < 3000; first += 256) {
    const bool here = first + lane < 3000;
    const unsigned j = here ? first + lane : 0;
    const i64 d1 = j;
    const i64 v0 = b0[((d0 * 3000) + d1)];
    const i64 v1 = running_in_block<Max, 256>(here ? v0 : (-9223372036854775807ll - 1), a1);
    if (here) b1[((d0 * 3000) + d1)] = v1;
  }
}

// one warp per row, scanned, 1 element per access; 125 blocks of 128 threads
extern "C" __global__ void __launch_bounds__(128)
bolt_scan_4(const float* b0, float* b1, unsigned count) {
  const int lane = threadIdx.x % 32;
  const unsigned row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= count) return;
  const i64 d0 = row;
  float a1 = (-__int_as_float(0x7f800000));
  for (unsigned first = 0; first < 64; first += 32) {
    const bool here = first + lane < 64;
    const unsigned j = here ? first + lane : 0;
    const i64 d1 = j;
    const float v0 = b0[((d0 * 64) + d1)];
    const float v1 = running_in_warp<LogAddExp>(here ? v0 : (-__int_as_float(0x7f800000)), a1);
    if (here) b1[((d0 * 64) + d1)] = v1;
  }
}
