// guard/thread_state.h
// Torch's settings of a thread -> numbers that guards compare. The entry of a region was recorded under some,
// and holds under these alone.
#pragma once

#include <cstdint>
#include <string>

namespace bolt::guard {

/// Is a mode active that runs Python for every operator, or forward-mode gradients? The contexts of default
/// devices are none: all they do is give factories their device.
bool modes_run_python();

/// Everything of the thread that operators and torch's Python read.
struct ThreadState {
  uint64_t flags = 0;  ///< grad mode, inference mode, autocast, deterministic algorithms, ...
  uint64_t types = 0;  ///< default dtype, autocast dtypes
  uint64_t modes = 0;  ///< active torch function and dispatch modes, levels of torch.func
  int threads = 0;
  bool operator==(const ThreadState&) const = default;

  static ThreadState now();
  /// A region that began in `before` may leave this behind: `enter` can bring it about.
  bool can_follow(const ThreadState& before) const;
  /// `levels`: so many more contexts of autocast have been entered than left since.
  void enter(int levels) const;
  /// How many contexts of autocast the thread is in.
  static int autocast_levels();
  std::string explain(const ThreadState& current) const;
};

}  // namespace bolt::guard
