// run/double_backward.h
// Backward passes over a region so far -> whether gradients of gradients are expected of it.
//
// For those the region is run again, from inputs that eager may have let go of (trained.h). They are kept as
// long as no pass has come to the region, and from the first pass on that was to be differentiated itself
// (create_graph). That may be one over what the recorded run gave, whose nodes are eager's: a hook on these
// tells of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace bolt::run {

class DoubleBackward {
 public:
  /// A pass comes to the region, in this thread.
  void note_pass();
  bool may_come() const { return asked_ != Asked::no; }
  bool has_come() const { return asked_ == Asked::yes; }

 private:
  enum class Asked : uint8_t { unknown, yes, no };
  std::atomic<Asked> asked_{Asked::unknown};
};

/// Where half of the calls are differentiated twice, their programs run for nothing.
class UsualDoubleBackward {
 public:
  /// Asked once by each call. It looks at some, goes by them for many, and looks again.
  bool is_usual();
  /// A call's gradients are to be differentiated.
  void note() { ++differentiated_; }

 private:
  std::atomic<int> calls_ = 0;  ///< since they were last looked at
  std::atomic<int> differentiated_ = 0;
  std::atomic<bool> is_usual_ = false;
};

/// Notes passes to be differentiated that come to what has made the tensor, if that is one of autograd's
/// nodes with this number or a later one.
void note_passes_over(const at::Tensor& result, uint64_t first_number,
                      const std::shared_ptr<DoubleBackward>& noted);

}  // namespace bolt::run
