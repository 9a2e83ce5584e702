// codegen/cuda/compile_plan.h
// Plan -> machine code for a CUDA device, and all that a launch must know.
//
// Kernels whose text is the same but for the name are one function, also across the plans of this process;
// what nobody has compiled yet comes from disk or is compiled on several threads (codegen/common/batch.h). A
// call of NVRTC costs some 30 ms beside what it compiles, so each thread makes one call for its share of
// kernels.
//
// Needs no device and no driver: the result is data (device/driver/launch.h runs it).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/common/batch.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/parts.h"
#include "loops/plan.h"

namespace bolt::codegen::cuda {

struct CudaTarget {
  int capability = 90;  // 90: sm_90
  std::shared_ptr<const Nvrtc> nvrtc;
  ScheduleOptions options;
};

/// Machine code of some functions, as cuModuleLoadData takes it. What `address` gives is not where a function
/// lies, which only a context knows, but its name there: a std::string that lives as long as this.
class BOLT_API Cubin final : public MachineCode {
 public:
  explicit Cubin(std::string bytes) : image_(std::move(bytes)) {}
  void* address(const std::string& name) const override;
  size_t bytes() const override { return image_.size(); }
  const std::string& image() const { return image_; }

 private:
  const std::string image_;
  mutable std::map<std::string, std::string> names_;  // filled while the batch is compiled, by one thread
};

struct GridLaunch {
  std::shared_ptr<const Cubin> code;
  std::string function;      // its name there
  std::vector<int> buffers;  // by argument: the kernel's buffer, or, from their number on, a scratch
  bool reports = false;      // one more argument: where its checks report to
  bool narrow = false;       // the count is 32 bits wide, else 64
  Sym count = 0, blocks = 1;
  Sym points = 0;   // Schedule::points
  int threads = 0;  // per block
  int64_t shared_bytes = 0;
  int cluster = 1;  // blocks; the function says so itself
  int most = 0;     // it takes a list of so many (lists.h); 0: the arguments of one
};

struct KernelLaunches {
  std::string name;
  std::string refused;  // why there is no code; else empty
  Syms symbols;         // what the sizes here are functions of, in the order in which a launch gets them
  size_t buffers = 0;
  std::vector<char> number_bytes;  // by buffer: of the number that is the argument; 0: its address is
  std::vector<int64_t> values;     // arguments behind the symbols'
  bool reports = false;
  std::vector<GridLaunch> launches;  // one after the other
  std::vector<Scratch> scratch;
  Sym scratch_bytes = 0;

  /// All numbers that a launch takes and that are functions of the symbols, evaluated once for a set of
  /// sizes: blocks, count and points of each launch, the offset of each scratch, and the bytes of them all.
  Syms extents() const;
};

struct PlanLaunches {
  std::vector<KernelLaunches> kernels;  // as the plan's
  bool from_cache = true;               // nothing had to be compiled
  size_t code_bytes = 0;
};

/// Kernels whose texts are written, and which are still to be compiled.
class BOLT_API Compilation {
 public:
  /// `listed`, by kernel: it is launched together with others where it has that form. Empty: none is.
  /// `numbers`, by kernel and buffer: loops::numbers_of its steps. `schedules`, by kernel:
  /// loops::Step::schedule.
  Compilation(const std::vector<loops::Kernel>& kernels, const CudaTarget& target,
              const std::vector<char>& listed = {}, const std::vector<std::vector<char>>& numbers = {},
              const std::vector<int>& schedules = {});
  ~Compilation();

  /// All is known of them but their launches' code, and its names.
  const std::vector<KernelLaunches>& kernels() const;
  /// Once, on any thread.
  PlanLaunches finish();

 private:
  class Texts;
  std::unique_ptr<Texts> texts_;
};

/// Compiles kernels and loads them: a Compilation from beginning to end.
BOLT_API PlanLaunches compile(const std::vector<loops::Kernel>& kernels, const CudaTarget& target,
                              const std::vector<char>& listed = {},
                              const std::vector<std::vector<char>>& numbers = {});

}  // namespace bolt::codegen::cuda
