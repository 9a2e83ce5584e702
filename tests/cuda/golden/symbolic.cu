// one block per row, 1 element per access; s0 blocks of 256 threads
extern "C" __global__ void __launch_bounds__(256)
bolt_mul_sum_div_0(const float* b0, const float* b1, float* b2, unsigned count, i64 n0, i64 n1) {
  const int lane = threadIdx.x;
  const unsigned row = blockIdx.x;
  const i64 d0 = row;
  float a3 = 0.0f;
  const unsigned length_0 = n1;
#pragma unroll 4
  for (unsigned j = lane; j < length_0; j += 256) {
    const i64 d1 = j;
    const float v0 = b0[((d0 * n1) + d1)];
    const float v1 = b1[d1];
    const float v2 = v0 * v1;
    a3 = Sum::of(a3, v2);
  }
  const float v3 = across_block<Sum, 256>(a3);
  const Divisor q3 = divisor(v3);
  const unsigned length_1 = n1;
  for (unsigned j = lane; j < length_1; j += 256) {
    const i64 d1 = j;
    const float v0 = b0[((d0 * n1) + d1)];
    const float v1 = b1[d1];
    const float v2 = v0 * v1;
    const float v4 = divided(v2, q3);
    b2[((d0 * n1) + d1)] = v4;
  }
}
