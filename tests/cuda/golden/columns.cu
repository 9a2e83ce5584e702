// one thread per row, 1 element per access; 3 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_mul_sum_add_0(const float* b0, const float* b1, float* b2) {
  const unsigned row = blockIdx.x * 256 + threadIdx.x;
  if (row >= 768) return;
  const i64 d0 = row;
  const float v3 = b1[d0];
  float a2 = 0.0f;
  for (unsigned j = 0; j < 300; j += 1) {
    const i64 d1 = j;
    const float v0 = b0[(d0 + (d1 * 768))];
    const float v1 = v0 * v0;
    a2 = Sum::of(a2, v1);
  }
  const float v2 = a2;
  const float v4 = v2 + v3;
  b2[d0] = v4;
}
