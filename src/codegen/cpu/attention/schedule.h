// codegen/cpu/attention/schedule.h
// attention + machine -> sizes of tiles and blocks, as data
//
// A task takes one block of queries of one head through all of its keys, a block of keys at a time:
//
//   scores   S^T[key, query] = K Q^T       tile of `key_rows` keys x `vectors` vectors of queries
//   softmax  running maximum and sum of each query, which is a lane
//   values   O[query, column] = P V        tile of `query_rows` queries x `value_vectors` vectors of columns
//
// Scores stand transposed, a query a lane: then K and V are both read as they lie in memory (the register
// tile of gemm/tile.h broadcasts single numbers of its A, which is K first and S^T then, and needs whole
// vectors only of Q^T and V), and maxima and sums never cross lanes. Only the block of queries is copied,
// transposed, once.
//
// The block of scores and the panel of V against it share the L1 cache. The whole row of scores in one block
// needs no running rescale: blocks are stretched to that where the row is not much longer.
#pragma once

#include "codegen/cpu/attention/kernels.h"
#include "codegen/cpu/gemm/schedule.h"

namespace bolt::codegen::cpu::attention {

struct AttentionSchedule {
  int lanes = 16;
  int vectors = 2;        ///< of queries in a block
  int key_rows = 14;      ///< most keys of a tile of scores
  int64_t key_block = 9;  ///< tiles of keys in a block
  int query_rows = 8;     ///< of a tile of values
  int value_vectors = 2;  ///< of a tile of values
  int matrix_step =
      0;  ///< words that a step of matrix registers multiplies (emit_amx.h); 0: vector registers

  int width() const { return lanes * vectors; }
};

BOLT_API std::string print(const AttentionSchedule& schedule);
BOLT_API AttentionSchedule choose_schedule(const AttentionKernel& kernel, const gemm::MachineFacts& machine);
BOLT_API gemm::WorkItems launch(const AttentionKernel& kernel, const AttentionSchedule& schedule);

/// Most keys of a block.
int64_t block_keys(const AttentionSchedule& schedule);
/// Does every row of scores fit one block?
bool single_block(const AttentionKernel& kernel, const AttentionSchedule& schedule);

}  // namespace bolt::codegen::cpu::attention
