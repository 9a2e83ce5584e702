// record/out_arguments.cpp
#include "record/out_arguments.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "record/operator_facts.h"
#include "record/tensors.h"

namespace bolt::record {
namespace {

/// torch.cat(list, out=o): the operator that gives what this one writes to its out= arguments, if there is
/// one.
const c10::OperatorHandle* without_out(const c10::OperatorHandle& op) {
  // Operators run without the GIL.
  thread_local std::unordered_map<c10::OperatorName, std::optional<c10::OperatorHandle>> known;
  const auto [at, fresh] = known.try_emplace(op.operator_name());
  if (!fresh) return at->second ? &*at->second : nullptr;
  std::vector<c10::Argument> wanted;
  for (const c10::Argument& a : op.schema().arguments())
    if (!a.is_out()) wanted.push_back(a);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name != op.operator_name().name || name == op.operator_name()) continue;
    auto other = c10::Dispatcher::singleton().findSchema(name);
    if (!other || other->schema().is_mutable() ||
        other->schema().returns().size() != op.schema().returns().size())
      continue;
    if (std::equal(wanted.begin(), wanted.end(), other->schema().arguments().begin(),
                   other->schema().arguments().end(), [](const c10::Argument& a, const c10::Argument& b) {
                     return a.name() == b.name() && *a.type() == *b.type();
                   }))
      at->second = *other;
  }
  return at->second ? &*at->second : nullptr;
}

}  // namespace

bool fills_new_tensors(const Entry& entry, const Tape& tape) {
  if (!entry.facts->has_out) return false;
  const auto& arguments = entry.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_out()) continue;
    if (entry.args[i].kind != Arg::Kind::Tensor || entry.args[i].tensors[0] < 0) return false;
    const TensorInfo& info = tape.tensors[entry.args[i].tensors[0]];
    if (info.input >= 0 || std::find(info.sizes.begin(), info.sizes.end(), 0) == info.sizes.end())
      return false;
  }
  return true;
}

bool gives_new_tensors(Entry& entry, Tape& tape, const torch::jit::Stack& given,
                       const std::function<void(const c10::OperatorHandle&, torch::jit::Stack*)>& call) {
  const c10::OperatorHandle* op = without_out(entry.op);
  if (!op || op->hasTag(at::Tag::nondeterministic_seeded) || !is_atens(entry.op)) return false;
  std::vector<Arg> args;
  torch::jit::Stack stack;
  for (size_t i = 0; i < given.size(); ++i) {
    if (entry.op.schema().arguments()[i].is_out()) continue;
    args.push_back(entry.args[i]);
    stack.push_back(given[i]);
  }
  {
    // Autocast casts nothing for an operator with out=, so nothing here either.
    const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
    call(*op, &stack);
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!stack[i].isTensor() || entry.results[i].kind != Arg::Kind::Tensor) return false;
    const TensorInfo& written = tape.tensors[entry.results[i].tensors[0]];
    const at::Tensor& fresh = stack[i].toTensor();
    if (!written.plain || !is_plain(fresh) || written.dtype != fresh.scalar_type() ||
        fresh.sizes() != written.sizes || fresh.strides() != written.strides)
      return false;
  }
  entry.op = *op;
  entry.facts = &facts_of(*op);
  entry.args = tape.args->take(args.size());
  std::move(args.begin(), args.end(), entry.args.begin());
  return true;
}

}  // namespace bolt::record
