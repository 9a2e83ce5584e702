// codegen/cuda/lists.h
// Kernel -> its form for lists: one launch does what several would, each with buffers and sizes of its own.
// So all parameters of an optimizer's step are changed, and the norms of all gradients are taken, by a few
// launches.
//
// A list takes its arguments as one block of constant memory: how many they are, the number of the block at
// which each begins, and for each what a launch of its own would be given (`List` in the prelude). The size
// of a tensor that is one row is an argument here, so that tensors of many sizes have one text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/cuda/parts.h"

namespace bolt::codegen::cuda {

/// What every launch may be given, on every device and by every driver.
constexpr size_t kArgumentBytes = 4096;

struct ListForm {
  Parts parts;
  /// Numbers that are arguments behind the kernel's symbols, and how the sizes in `parts` are functions of
  /// them.
  Syms symbols;
  std::vector<int64_t> values;
  std::vector<Schedule> schedules;  // by part
  std::vector<int> most;            // by part: launches that one may be

  /// A size with those numbers in it.
  Sym known(Sym size) const;
  std::string text(size_t part, const std::string& name, const std::vector<char>& numbers) const;
};

/// The kernel is normalised. Nothing: it can only be launched by itself.
std::optional<ListForm> list_form(const loops::Kernel& kernel, ScheduleOptions options);

/// What kernels have in common that may be launched as one; "": this one is launched by itself.
BOLT_API std::string list_key(const loops::Kernel& kernel, const ScheduleOptions& options,
                              const std::vector<char>& numbers = {});

}  // namespace bolt::codegen::cuda
