// autograd/meta_kernels.cpp
// The operators of meta_kernels.def -> kernels that describe their results, without the dispatcher between.
#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>

#include "autograd/results.h"

namespace bolt::autograd {
namespace {

/// The operator's schema says which of several functions of that name it is.
template <class Operator>
void add(MetaKernels& table, typename Operator::schema* kernel) {
  std::string name = Operator::name;
  if (*Operator::overload_name) name += std::string(".") + Operator::overload_name;
  table.emplace(std::move(name), c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel));
}

}  // namespace

const MetaKernels& meta_kernels() {
  static const MetaKernels* const all = [] {
    auto* table = new MetaKernels();
#define SAME(name) add<at::_ops::name>(*table, at::meta::name);
#define OTHER(name, function) add<at::_ops::name>(*table, at::meta::function);
#include "autograd/meta_kernels.def"
#undef SAME
#undef OTHER
    return table;
  }();
  return *all;
}

}  // namespace bolt::autograd
