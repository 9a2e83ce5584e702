// codegen/cpu/attention/schedule.cpp
// choice of tiles and blocks; see schedule.h
#include "codegen/cpu/attention/schedule.h"

#include <algorithm>
#include <sstream>

namespace bolt::codegen::cpu::attention {
namespace {

constexpr int64_t kBlockKeys = 128;      // 16 KB of scores against two vectors of queries
constexpr int64_t kStretchedKeys = 320;  // a row up to here is one block: it lives in L2 for its two uses
constexpr int64_t kTaskMultiplies = 1 << 19;  // about 10 us

constexpr int kLeastMatrixStep = 4;  // multiplies twice as much a cycle as vectors of float32 do

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Takes matrix registers for pairs; their tiles of scores are two of them high.
void take_matrix_registers(AttentionSchedule& s, const AttentionKernel& kernel,
                           const gemm::MachineFacts& machine) {
  const int step = gemm::matrix_step(kernel.depth);
  const int64_t keys = kernel.keys.value_or(1 << 20);
  if (!machine.matrix_registers || !kernel.pairs || step < kLeastMatrixStep || keys < gemm::kMatrixRows)
    return;
  s.matrix_step = step;
  s.vectors = static_cast<int>(std::min<int64_t>(4, ceil_div(kernel.queries.value_or(1 << 20), s.lanes)));
  s.key_rows = 2 * gemm::kMatrixRows;
  const int64_t tiles = ceil_div(keys, s.key_rows);
  const int64_t most = (keys <= kStretchedKeys ? kStretchedKeys : kBlockKeys) / s.key_rows;
  s.key_block = ceil_div(tiles, ceil_div(tiles, most));
}

}  // namespace

std::string print(const AttentionSchedule& s) {
  std::ostringstream out;
  out << "queries " << s.vectors << " x " << s.lanes << " keys " << s.key_rows << " x " << s.key_block
      << " values " << s.query_rows << " x " << s.value_vectors;
  if (s.matrix_step) out << " matrix step " << s.matrix_step;
  return out.str();
}

AttentionSchedule choose_schedule(const AttentionKernel& kernel, const gemm::MachineFacts& machine) {
  verify(kernel);
  AttentionSchedule s;
  s.lanes = machine.lanes;
  const int64_t query_vectors = ceil_div(kernel.queries.value_or(1 << 20), s.lanes);
  s.vectors = static_cast<int>(std::min<int64_t>(2, query_vectors));
  // Two vectors against as many rows as leave registers for the operands; a third of the file for one.
  s.key_rows = (machine.registers - s.vectors - 1) / s.vectors;
  if (s.vectors == 1) s.key_rows = std::min(s.key_rows, machine.registers / 2);
  const int64_t keys = kernel.keys.value_or(1 << 20);
  s.key_rows = static_cast<int>(std::min<int64_t>(s.key_rows, keys));
  const int64_t tiles = ceil_div(keys, s.key_rows);
  const int64_t most =
      std::max<int64_t>(1, (keys <= kStretchedKeys ? kStretchedKeys : kBlockKeys) / s.key_rows);
  s.key_block = ceil_div(tiles, ceil_div(tiles, most));
  if (!kernel.keys.is_const()) s.key_block = std::max<int64_t>(1, kBlockKeys / s.key_rows);

  const int64_t value_vectors = ceil_div(kernel.value_depth, s.lanes);
  s.value_vectors = value_vectors == 1 ? 1 : value_vectors == 3 ? 3 : 2;
  s.query_rows = 8;
  while (s.query_rows > 1 && s.query_rows * s.value_vectors + s.value_vectors + 1 > machine.registers)
    s.query_rows /= 2;
  take_matrix_registers(s, kernel, machine);
  return s;
}

int64_t block_keys(const AttentionSchedule& s) { return s.key_block * s.key_rows; }

bool single_block(const AttentionKernel& kernel, const AttentionSchedule& s) {
  return kernel.keys.is_const() && kernel.keys.value() <= block_keys(s);
}

gemm::WorkItems launch(const AttentionKernel& kernel, const AttentionSchedule& s) {
  Sym work = ceildiv(kernel.queries, s.width());
  for (const LeadDim& dim : kernel.lead) work *= dim.size;
  const int64_t multiplies =
      s.width() * kernel.keys.value_or(block_keys(s)) * (kernel.depth + kernel.value_depth);
  return {work, std::max<int64_t>(1, kTaskMultiplies / multiplies)};
}

}  // namespace bolt::codegen::cpu::attention
