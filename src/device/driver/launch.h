// device/driver/launch.h
// Compiled kernels in a CUDA context, and their launches.
//
// Code is loaded into a context when it is first asked for there, and unloaded when the last that asked has
// gone. A launch gives work to a stream and returns: nothing here waits for the device, allocates its memory
// or copies, so all of it may be captured into a graph.
//
// Reports: kernels with checks (loops/kernel.h) set a word to 1 when an index is out of range. The word lies
// in pinned host memory that the device writes through its own address, so whoever waits for the results
// anyway reads it for nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "codegen/cuda/compile_plan.h"
#include "device/driver/driver.h"

namespace bolt::device::driver {

/// One cubin in one context.
class LoadedModule;

/// A kernel in a context. May be launched by several threads at once.
class BOLT_API LoadedKernel {
 public:
  /// `kernel` has code. Keeps what it needs of it.
  LoadedKernel(const codegen::cuda::KernelLaunches& kernel, CUcontext context);

  /// The values of KernelLaunches::extents() at these values of the kernel's symbols.
  std::vector<int64_t> extents(const int64_t* symbols) const;
  /// The last of them: what a launch needs of scratch memory.
  int64_t scratch_bytes(const int64_t* extents) const { return extents[extent_count_ - 1]; }
  /// May this code be given these? Otherwise the call needs code that was compiled with neither of
  /// ScheduleOptions::aligned and narrow.
  bool fits(const int64_t* extents, const CUdeviceptr* buffers) const;
  /// What a launch is given. `buffers`: addresses on the device, in the kernel's order, of numbers those in
  /// the host's memory. `report`: where the kernel reports, 0 where it does not. `scratch`: scratch_bytes, at
  /// a multiple of 256.
  struct Given {
    const int64_t *extents, *symbols;
    const CUdeviceptr* buffers;
    CUdeviceptr report, scratch;
  };
  /// The context is current.
  void launch(const Given& given, CUstream stream) const;

  /// Is it a kernel for lists (codegen/cuda/lists.h), and is `other` the same one?
  bool is_listed() const { return !kernel_.launches.empty() && kernel_.launches[0].most > 0; }
  bool may_join(const LoadedKernel& other) const { return is_listed() && functions_ == other.functions_; }
  struct OfList {
    const LoadedKernel* kernel;
    Given given;
  };
  /// Kernels that may join each other, in as few launches as they fit into. In no order: none reads what
  /// another writes.
  static void launch_list(std::span<const OfList> list, CUstream stream);

  const codegen::cuda::KernelLaunches& kernel() const { return kernel_; }
  /// For reports and tests: a function's attribute, of launch i.
  int attribute(size_t launch, int which) const;

 private:
  template <class Add>
  void add_arguments(size_t launch, const Given& given, Add add) const;
  int64_t blocks(size_t launch, const Given& given) const;
  void start(size_t launch, int64_t blocks, void** arguments, CUstream stream) const;

  codegen::cuda::KernelLaunches kernel_;
  std::vector<std::shared_ptr<LoadedModule>> modules_;
  std::vector<CUfunction> functions_;
  size_t extent_count_ = 0;
};

/// A word that kernels report to, zero at first.
class BOLT_API ReportWord {
 public:
  /// The context is current.
  ReportWord();
  ~ReportWord();
  ReportWord(const ReportWord&) = delete;
  ReportWord& operator=(const ReportWord&) = delete;

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(word_); }
  /// Has a kernel that is known to have run reported? Then it is zero again.
  bool take();

 private:
  volatile int64_t* word_ = nullptr;
};

}  // namespace bolt::device::driver
