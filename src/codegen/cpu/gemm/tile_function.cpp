// codegen/cpu/gemm/tile_function.cpp
// tile shape + epilogue -> internal function; see tile_function.h
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::gemm {
namespace {

/// Vector widths are explicit in the IR: 512-bit vectors stay whole, stack frames of any size are safe.
void set_attributes(llvm::Function& function) {
  function.setDoesNotThrow();
  function.addFnAttr("prefer-vector-width", "512");
  function.addFnAttr("probe-stack", "inline-asm");
}

}  // namespace

KernelArgs begin_kernel(llvm::Module& module, llvm::IRBuilder<>& b, const std::string& name) {
  auto* type = llvm::FunctionType::get(b.getVoidTy(),
                                       {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  set_attributes(*function);
  b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  return {function->getArg(0), function->getArg(1), function->getArg(2), function->getArg(3)};
}

llvm::Function* begin_tile(llvm::Module& module, llvm::IRBuilder<>& b, const std::string& name,
                           llvm::ArrayRef<llvm::Type*> arguments) {
  auto* type = llvm::FunctionType::get(b.getVoidTy(), arguments, false);
  auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, module);
  set_attributes(*function);
  function->addFnAttr(llvm::Attribute::NoInline);
  b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  return function;
}

llvm::Function* emit_tile_function(llvm::Module& module, const std::string& name, const TileShape& shape,
                                   const Epilogue& epilogue, bool masked) {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Type* pointer = b.getPtrTy();
  llvm::Type* integer = b.getInt64Ty();
  llvm::Function* function =
      begin_tile(module, b, name, {pointer, pointer, pointer, pointer, integer, integer, integer});
  std::vector<llvm::Value*> sums = emit_tile_product(b, shape, function->getArg(0), function->getArg(1));
  emit_epilogue(b, epilogue, sums, shape.vectors,
                {function->getArg(2), function->getArg(3), function->getArg(4), function->getArg(5),
                 masked ? function->getArg(6) : nullptr});
  b.CreateRetVoid();
  return function;
}

void call_tile(llvm::IRBuilder<>& b, llvm::Function* tile, const KernelArgs& args, const TilePlace& p) {
  std::vector<llvm::Value*> arguments{p.a, p.b, args.buffers, args.syms, p.row, p.col, p.columns_left};
  arguments.insert(arguments.end(), p.more.begin(), p.more.end());
  b.CreateCall(tile, arguments);
}

}  // namespace bolt::codegen::cpu::gemm
