// codegen/cpu/jit.h
// Loops -> machine code in memory, for the machine we are on.
//
// A kernel is compiled to one function over a range of its parallel work:
//
//   void kernel(void* const* buffers, const int64_t* syms, int64_t begin, int64_t end)
//
// buffers: base pointers in the kernel's order (each already at the tensor's first element), then the address
// of the report where the kernel has checks (loops/kernel.h), then that of the scratch; syms: the
// kernel's size symbols; [begin, end): a part of [0, work(syms)). Ranges may run at the same time on any
// threads. Who splits the range (at::parallel_for) and how finely (`grain`) is the caller's business: `grain`
// is the fewest work items worth a thread. No allocation, no exceptions, no calls into libraries inside.
//
// Compiling needs no GIL and is safe from several threads. Objects come from and go to the disk cache by
// content and target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cpu/target.h"
#include "loops/kernel.h"
#include "support/export.h"

namespace bolt::codegen::cpu {

using KernelFn = void (*)(void* const* buffers, const int64_t* syms, int64_t begin, int64_t end);

struct CompiledKernel {
  std::string name;
  KernelFn fn = nullptr;
  Sym work;              // number of parallel work items, over the kernel's symbols
  bool reports = false;  // gets an address for its checks to report to
  int64_t grain = 1;     // fewest work items worth a thread
  /// A reduction split over threads (split.h) has a second phase: run after the first over its own range.
  KernelFn second_fn = nullptr;
  Sym second_work;
  int64_t second_grain = 1;
  int64_t scratch_bytes = 0;  // shared scratch both phases get as one more pointer after the kernel's buffers
};

/// Owns the machine code of its kernels.
class BOLT_API Module {
 public:
  virtual ~Module();
  virtual const std::vector<CompiledKernel>& kernels() const = 0;
  virtual size_t code_bytes() const = 0;
  virtual bool from_cache() const = 0;
};

/// Error(User) when the host cannot run the target's code.
BOLT_API std::unique_ptr<Module> compile(const std::vector<loops::Kernel>& kernels,
                                         const Target& target = Target::host());
/// Code that is not loaded: how a machine looks at what it cannot run.
struct Assembled {
  std::string object;  // a relocatable ELF file
  std::string text;    // the same instructions in AT&T's syntax
};
BOLT_API Assembled assemble(const std::vector<loops::Kernel>& kernels, const Target& target);
/// LLVM IR text (stage "llvm" of the dumps), before or after optimisation.
BOLT_API std::string emit_text(const loops::Kernel& kernel, const Target& target, bool optimised);

}  // namespace bolt::codegen::cpu
