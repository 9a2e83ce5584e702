// codegen/cpu/machine.h
// llvm::Module -> an object's bytes -> functions in memory. The only door to LLVM's back end.
//
// Three steps, apart because the disk cache sits between the second and the third:
//   prepare       gives a fresh module the target's triple, data layout and CPU features
//   compile       optimises with a short pipeline (the emitters write nearly final vector code, so inlining,
//                 unrolling and vectorisation have nothing to do) and returns a relocatable ELF object
//   MachineCode   maps an object into memory, resolves it against a fixed table of helpers, and gives out
//                 addresses
//
// Nothing is shared between threads: each compiling thread has an LlvmMachine and an LLVMContext to itself.
// MachineCode may be used from any thread. Emitted functions never unwind and never call anything outside the
// helper table (helpers.cpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "codegen/common/batch.h"
#include "codegen/cpu/jit.h"

namespace llvm {
class Function;
class LLVMContext;
class Module;
class TargetMachine;
}  // namespace llvm

namespace bolt::codegen::cpu {

/// Maps an object of `target`'s instructions. Error(User) when the host cannot run them. `object` may come
/// from disk: a damaged one throws Error(Internal), it never maps half.
std::unique_ptr<MachineCode> load_object(std::string_view object, const Target& target);

class LlvmMachine {
 public:
  explicit LlvmMachine(const Target& target);
  ~LlvmMachine();
  const Target& target() const { return target_; }

  std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const std::string& name) const;
  /// Attributes every emitted function needs: vector width, no unwinding, frame.
  void set_attributes(llvm::Function& function) const;
  void optimise(llvm::Module& module) const;
  /// Of an optimised module. Consumes it in all but name: code generation rewrites the IR.
  std::string object(llvm::Module& module) const;
  std::string assembly(llvm::Module& module) const;

 private:
  std::string generate(llvm::Module& module, bool text) const;
  Target target_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  int exceptions_;  ///< under way when it was made
};

/// Functions that emitted code may call, by name; null when there is none. Only cold paths use them.
void* helper_address(std::string_view name);

}  // namespace bolt::codegen::cpu
