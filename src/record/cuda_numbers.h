// record/cuda_numbers.h
// Random numbers of a CUDA generator -> where their seed and offset stand, also while a graph is captured.
//
// In a graph the two are words of memory that are written before each launch, and an operator's numbers begin
// so many behind that offset (device/cuda_drawing_graph.h). Torch's operators are told so by a function of
// its generator, which is looked up by name here: the library that has it is not linked, since there are
// builds of torch without it.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

namespace bolt::record {

struct CudaNumbers {
  bool captured;
  // Not captured: the numbers themselves.
  uint64_t seed, offset;
  // Captured: where they will be, and what is to be added to the offset.
  int64_t *seed_place, *offset_place;
  int64_t behind;
};

/// Does this torch have the function, so that numbers can be reserved in a graph?
bool reserves_in_graphs();

/// So many numbers of each thread, a multiple of four, are taken from the generator.
CudaNumbers reserve_numbers(const at::Generator& generator, uint64_t of_a_thread);

}  // namespace bolt::record
