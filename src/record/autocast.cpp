// record/autocast.cpp
#include "record/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "record/generators.h"
#include "record/operator_facts.h"

namespace bolt::record {
namespace {

/// What decides which operators one is made of: how many tensors of which rank and type, texts (einsum's
/// equation), flags.
void add_form(const c10::IValue& argument, std::string& form) {
  if (argument.isTensor()) {
    const at::Tensor& t = argument.toTensor();
    form += t.defined() ? c10::toString(t.scalar_type()) + std::to_string(t.dim()) : "-";
  } else if (argument.isString()) {
    form += argument.toStringRef();
  } else if (argument.isBool()) {
    form += argument.toBool() ? "t" : "f";
  } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
    for (const c10::IValue& each : argument.toListRef()) add_form(each, form);
  }
  form += ",";
}

/// While it lives, what autocast takes is noted in `flag`.
struct AutocastWatch {
  AutocastWatch(bool*& place, bool* flag) : place(place), before(std::exchange(place, flag)) {}
  ~AutocastWatch() { place = before; }
  AutocastWatch(const AutocastWatch&) = delete;
  bool*& place;
  bool* before;
};

}  // namespace

c10::DispatchKeySet below_our_key(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

bool autocast_takes(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  for (auto key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
    if (keys.has(key) && op.hasKernelForDispatchKey(key)) return true;
  return false;
}

bool casts_inside(const c10::OperatorHandle& op, c10::DispatchKeySet keys, const torch::jit::Stack& stack,
                  bool*& trial) {
  // Not told by the keys: those that an operator falls through are not among them.
  const int devices =
      at::autocast::is_autocast_enabled(at::kCPU) + 2 * at::autocast::is_autocast_enabled(at::kCUDA);
  if (!devices || op.schema().is_mutable() || !is_atens(op)) return false;
  const OperatorFacts& facts = facts_of(op);
  torch::jit::Stack arguments(stack.begin() + static_cast<long>(first_argument(facts, stack)), stack.end());
  // By device, too: autocast takes other operators on each.
  std::string form =
      std::to_string(devices) + op.operator_name().name + "." + op.operator_name().overload_name;
  for (const c10::IValue& argument : arguments) add_form(argument, form);
  thread_local std::unordered_map<std::string, bool> known;  // operators run without the GIL
  if (const auto at = known.find(form); at != known.end()) return at->second;
  bool casts = false;
  const at::NoGradGuard no_grad;
  Undrawn drawn;
  if (facts.draws) drawn.keep_drawn(facts, arguments);
  const AutocastWatch on(trial, &casts);
  try {
    op.redispatchBoxed(below_our_key(keys), &arguments);
    known[form] = casts;
  } catch (...) {  // and will again, where it is not tried out
    casts = false;
  }
  at::autocast::clear_cache();  // nobody would see where the casts come from
  return casts;
}

}  // namespace bolt::record
