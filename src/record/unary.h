// record/unary.h
// An operator and two tensors of a tape -> the entry that makes the one of the other.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/MemoryFormat.h>

#include <optional>

#include "record/operator_facts.h"
#include "record/tape.h"

namespace bolt::record {

/// With nothing said of its further arguments, and without a gradient. It has to be added to the tape.
inline Entry unary(const Tape& tape, const c10::OperatorHandle& op, TensorId from, TensorId to, int loc) {
  const OperatorFacts& facts = facts_of(op);
  Entry entry{op, &facts, tape.args->take(facts.arguments), tape.args->take(facts.returns)};
  entry.grad_mode = false;
  entry.loc = loc;
  entry.args[0].kind = entry.results[0].kind = Arg::Kind::Tensor;
  entry.args[0].tensors = {from};
  entry.results[0].tensors = {to};
  return entry;
}

/// Nothing: it lies as what is copied.
inline Entry clone(const Tape& tape, TensorId from, TensorId to, int loc,
                   std::optional<at::MemoryFormat> format) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  Entry entry = unary(tape, op, from, to, loc);
  if (format) entry.args[1].value = static_cast<int64_t>(*format);
  return entry;
}

}  // namespace bolt::record
