// autograd/checkpoint.cpp: see checkpoint.h.
#include "autograd/checkpoint.h"

#include <torch/library.h>

namespace bolt::autograd {
namespace {

void nothing() {}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  for (const char* name : {"begin_checkpoint", "end_checkpoint"}) {
    m.def((std::string(name) + "() -> ()").c_str());
    m.impl(name, c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(nothing));
  }
}

}  // namespace

int checkpoint_mark(const record::Entry& entry) {
  if (!entry.args.empty() || !entry.results.empty()) return 0;
  const std::string& name = entry.op.operator_name().name;
  return name == "torchbolt::begin_checkpoint" ? 1 : name == "torchbolt::end_checkpoint" ? -1 : 0;
}

}  // namespace bolt::autograd
