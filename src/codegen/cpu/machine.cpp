// codegen/cpu/machine.cpp
// See machine.h. Objects are loaded by LLVM's RuntimeDyld into one mapping: text, then constants, within
// reach of each other's 32-bit offsets; a far helper is reached through a stub that RuntimeDyld writes behind
// the text.

#include "codegen/cpu/machine.h"

#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Pass.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Scalar.h>
#include <llvm/Transforms/Utils.h>
#include <sys/mman.h>
#include <unistd.h>

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "support/error.h"

namespace bolt::codegen::cpu {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

struct IsaFlags {
  const char* cpu;
  const char* features;
  const char* vector_bits;
};

// Fixed CPU names keep code the same on every machine of one Target (the disk cache may be shared).
IsaFlags isa_flags(Target::Isa isa) {
  switch (isa) {
    case Target::Isa::Amx:
    case Target::Isa::Avx512: return {"skylake-avx512", "-prefer-256-bit", "512"};
    case Target::Isa::Avx2: return {"haswell", "", "256"};
    case Target::Isa::Scalar: return {"x86-64", "", "128"};
  }
  return {"x86-64", "", "128"};
}

std::string feature_string(const Target& t) {
  std::string features = isa_flags(t.isa).features;
  auto add = [&](const char* feature) { features += (features.empty() ? "" : ",") + std::string(feature); };
  if (t.avx512_bf16) add("+avx512bf16");
  if (t.avx512_fp16) add("+avx512fp16");
  if (t.isa == Target::Isa::Amx) add("+amx-tile,+amx-bf16");
  if (t.isa == Target::Isa::Avx2 && !t.f16c) add("-f16c");
  return features;
}

/// LLVM ends the process after this; the process is the user's. What LLVM held meanwhile is lost.
[[noreturn]] void on_fatal_error(void*, const char* reason, bool) {
  throw Error(ErrorKind::Internal, std::string("LLVM: ") + reason);
}

/// A switch that LLVM has for command lines alone.
void set_flag(llvm::StringRef name) {
  auto& all = llvm::cl::getRegisteredOptions();
  const auto found = all.find(name);
  BOLT_CHECK(found != all.end(), "LLVM has no switch ", name.str());
  found->second->addOccurrence(0, name, "true");
}

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::install_fatal_error_handler(on_fatal_error);
    // Loops are emitted with what changes in them added up from outside inwards (emit_index.cpp). Looking for
    // better induction variables took a quarter of the time, and loops were no shorter and spilt more for it.
    set_flag("disable-lsr");
  });
}

size_t pages(size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// One anonymous mapping for all of an object's sections, writable until finalizeMemory.
class ObjectMemory final : public llvm::RTDyldMemoryManager {
 public:
  ~ObjectMemory() override {
    if (base_) munmap(base_, size_);
  }
  size_t bytes() const { return size_; }

  bool needsToReserveAllocationSpace() override { return true; }
  void reserveAllocationSpace(uintptr_t code, llvm::Align, uintptr_t constants, llvm::Align, uintptr_t data,
                              llvm::Align) override {
    code_end_ = pages(code + kSlack);
    size_ = code_end_ + pages(constants + data + kSlack);
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BOLT_CHECK(memory != MAP_FAILED, "cannot map ", size_, " bytes for machine code");
    base_ = static_cast<uint8_t*>(memory);
    data_ = code_end_;
  }
  uint8_t* allocateCodeSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef) override {
    return take(code_, size, align, code_end_);
  }
  uint8_t* allocateDataSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef, bool) override {
    return take(data_, size, align, size_);
  }
  bool finalizeMemory(std::string*) override {
    return mprotect(base_, code_end_, PROT_READ | PROT_EXEC) != 0 ||
           mprotect(base_ + code_end_, size_ - code_end_, PROT_READ) != 0;
  }
  void registerEHFrames(uint8_t*, uint64_t, size_t) override {}
  void deregisterEHFrames() override {}
  llvm::JITSymbol findSymbol(const std::string& name) override {
    void* address = helper_address(name);
    if (!address) return nullptr;
    return {llvm::pointerToJITTargetAddress(address), llvm::JITSymbolFlags::Exported};
  }

 private:
  static constexpr size_t kSlack = 4096;  // alignment of sections and RuntimeDyld's stubs
  uint8_t* take(size_t& at, size_t size, size_t align, size_t end) {
    at = (at + align - 1) / align * align;
    BOLT_CHECK(at + size <= end, "object needs more memory than it declared");
    uint8_t* result = base_ + at;
    at += size;
    return result;
  }
  uint8_t* base_ = nullptr;
  size_t size_ = 0, code_ = 0, code_end_ = 0, data_ = 0;
};

class LoadedCode final : public MachineCode {
 public:
  explicit LoadedCode(std::string_view object) : linker_(arena_, arena_) {
    auto file = llvm::object::ObjectFile::createELFObjectFile(
        llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "kernels"));
    if (!file) BOLT_CHECK(false, "unreadable object: ", llvm::toString(file.takeError()));
    linker_.loadObject(**file);
    linker_.resolveRelocations();
    BOLT_CHECK(!linker_.hasError(), "cannot link object: ", linker_.getErrorString().str());
    BOLT_CHECK(!arena_.finalizeMemory(nullptr), "cannot make machine code executable");
  }
  void* address(const std::string& name) const override {
    void* address = linker_.getSymbolLocalAddress(name);
    BOLT_CHECK(address, "object has no function ", name);
    return address;
  }
  size_t bytes() const override { return arena_.bytes(); }

 private:
  ObjectMemory arena_;
  llvm::RuntimeDyld linker_;
};

}  // namespace

std::unique_ptr<MachineCode> load_object(std::string_view object, const Target& target) {
  require_host_runs(target);
  return std::make_unique<LoadedCode>(object);
}

namespace {

std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target) {
  initialise_llvm();
  std::string error;
  const llvm::Target* backend = llvm::TargetRegistry::lookupTarget(kTriple, error);
  BOLT_CHECK(backend, error);
  std::unique_ptr<llvm::TargetMachine> made(backend->createTargetMachine(
      kTriple, isa_flags(target.isa).cpu, feature_string(target), llvm::TargetOptions(), llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  BOLT_CHECK(made, "LLVM has no code generator for ", kTriple);
  return made;
}

/// Target machines that no thread uses at the moment, by what they generate code for. What one knows of its
/// target is a megabyte of tables, which LLVM would fill in anew for each compilation.
class IdleMachines {
 public:
  static IdleMachines& get() {
    static auto* idle = new IdleMachines();  // compilations may outlive static destruction
    return *idle;
  }
  std::unique_ptr<llvm::TargetMachine> take(const Target& target) {
    {
      const std::lock_guard lock(mutex_);
      auto& all = idle_[target.key()];
      if (!all.empty()) {
        auto machine = std::move(all.back());
        all.pop_back();
        return machine;
      }
    }
    return make_target_machine(target);
  }
  void give_back(const Target& target, std::unique_ptr<llvm::TargetMachine> machine) {
    const std::lock_guard lock(mutex_);
    idle_[target.key()].push_back(std::move(machine));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<llvm::TargetMachine>>> idle_;
};

}  // namespace

LlvmMachine::LlvmMachine(const Target& target)
    : target_(target), machine_(IdleMachines::get().take(target)), exceptions_(std::uncaught_exceptions()) {}

LlvmMachine::~LlvmMachine() {
  // One that LLVM left in the middle of something is not used again.
  if (std::uncaught_exceptions() == exceptions_) IdleMachines::get().give_back(target_, std::move(machine_));
}

std::unique_ptr<llvm::Module> LlvmMachine::make_module(llvm::LLVMContext& context,
                                                       const std::string& name) const {
  auto module = std::make_unique<llvm::Module>(name, context);
  module->setTargetTriple(kTriple);
  module->setDataLayout(machine_->createDataLayout());
  module->setPICLevel(llvm::PICLevel::BigPIC);
  return module;
}

void LlvmMachine::set_attributes(llvm::Function& function) const {
  const IsaFlags flags = isa_flags(target_.isa);
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.addFnAttr("prefer-vector-width", flags.vector_bits);
  function.addFnAttr("min-legal-vector-width", flags.vector_bits);
  function.addFnAttr("no-trapping-math", "true");
  function.addFnAttr("target-cpu", flags.cpu);
  function.addFnAttr("target-features", feature_string(target_));
}

void LlvmMachine::optimise(llvm::Module& module) const {
#ifndef NDEBUG
  std::string text;
  llvm::raw_string_ostream out(text);
  BOLT_CHECK(!llvm::verifyModule(module, &out), "emitted IR is malformed: ", out.str());
#endif
  // Accumulators are emitted as stack slots (SROA), index arithmetic repeats (EarlyCSE); the rest is final.
  llvm::legacy::FunctionPassManager passes(&module);
  passes.add(llvm::createSROAPass());
  passes.add(llvm::createEarlyCSEPass());
  passes.add(llvm::createCFGSimplificationPass());
  passes.doInitialization();
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function);
  passes.doFinalization();
}

std::string LlvmMachine::generate(llvm::Module& module, bool text) const {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  const auto kind = text ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  BOLT_CHECK(!machine_->addPassesToEmitFile(passes, out, nullptr, kind, /*DisableVerify=*/true),
             "LLVM cannot emit code");
  passes.run(module);
  return {bytes.begin(), bytes.end()};
}

std::string LlvmMachine::object(llvm::Module& module) const { return generate(module, false); }
std::string LlvmMachine::assembly(llvm::Module& module) const { return generate(module, true); }

}  // namespace bolt::codegen::cpu
