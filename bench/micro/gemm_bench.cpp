// bench/micro/gemm_bench.cpp
// contraction kernels behind a C interface, for bench/micro/gemm.py to time beside torch in one process
#include "tests/gemm/harness.h"

using namespace bolt::codegen::cpu::gemm;
using namespace bolt::codegen::cpu::gemm::test;

namespace {

struct Handle {
  Compiled compiled;
  ConvKernel conv;
  GemmKernel gemm;
  std::vector<float> weights;
  std::string text;
};

Isa host_isa() { return bolt::codegen::cpu::Target::host().isa; }

SimpleEpilogue epilogue(int flags) {
  return {(flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0};
}

/// `tile`: {rows, vectors, rows_inside, prefetch, row_block, col_block}; a negative entry keeps the
/// schedule's.
void override_tile(TileSchedule& s, const int64_t* tile) {
  if (tile[0] >= 0) s.rows = static_cast<int>(tile[0]);
  if (tile[1] >= 0) s.vectors = static_cast<int>(tile[1]);
  if (tile[2] >= 0) s.rows_inside = tile[2] != 0;
  if (tile[3] >= 0) s.prefetch = static_cast<int>(tile[3]);
  if (tile[4] >= 0) s.row_block = tile[4];
  if (tile[5] >= 0) s.col_block = tile[5];
}

void* finish(Handle* h) {
  h->text = print(h->compiled.schedule());
  return h;
}

}  // namespace

extern "C" {

void* bench_gemm(int64_t m, int64_t n, int64_t k, int flags, const int64_t* tile, const float* w) {
  auto* h = new Handle;
  GemmKernel& g = h->gemm;
  g.name = "gemm";
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = {0, k, 1, false};
  g.b = {1, 0, 0, true};
  TileSchedule s = schedule_gemm(g, machine_facts(target_of(host_isa())), m);
  override_tile(s, tile);
  h->compiled = compile_gemm(g, epilogue(flags), host_isa(), &s);
  // w is a linear layer's weight, [n, k]
  h->weights = pack(h->compiled, w, {k, 1});
  return finish(h);
}

/// `p`: images, height, width, in, out, kernel, stride, pad, groups, channels first?
void* bench_conv(const int64_t* p, int flags, const int64_t* tile, const float* w) {
  auto* h = new Handle;
  ConvKernel& c = h->conv;
  c.name = "conv";
  c.images = p[0];
  c.height = p[1];
  c.width = p[2];
  c.in_channels = p[3];
  c.out_channels = p[4];
  c.kernel_h = c.kernel_w = p[5];
  c.stride_h = c.stride_w = p[6];
  c.set_padding(p[7], p[7]);
  c.groups = p[8];
  c.set_channels_last();
  if (p[9]) {
    c.x_channel = c.height * c.width;
    c.x_col = 1;
    c.x_row = c.width;
  }
  TileSchedule s;
  s.lanes = machine_facts(target_of(host_isa())).lanes;
  if (!c.depthwise()) {
    s = schedule_conv(c, machine_facts(target_of(host_isa())));
    override_tile(s, tile);
  }
  h->compiled = compile_conv(c, epilogue(flags), host_isa(), &s);
  h->weights = pack(h->compiled, w, weight_strides(c));
  return finish(h);
}

void bench_run(void* handle, float* x, float* result, float* bias, float* residual) {
  auto* h = static_cast<Handle*>(handle);
  void* buffers[] = {x, h->weights.data(), result, bias, residual};
  h->compiled.run(buffers, nullptr, 0, h->compiled.tasks());
}

double bench_compile_ms(void* handle) { return static_cast<Handle*>(handle)->compiled.milliseconds; }
const char* bench_text(void* handle) { return static_cast<Handle*>(handle)->text.c_str(); }
void bench_free(void* handle) { delete static_cast<Handle*>(handle); }
}
