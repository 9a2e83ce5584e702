// record/unary.h
// An operator and two tensors of a tape -> the entry that makes the one of the other.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

#include <optional>

#include "record/copy.h"
#include "record/operator_facts.h"

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

/// One more tensor, with the sizes of `id` and memory of its own, row by row.
inline TensorId add_contiguous(Tape& tape, TensorId id) {
  const TensorId added = add_like(tape, id, count_storages(tape));
  TensorInfo& info = tape.tensors[static_cast<size_t>(added)];
  info.strides = Dims();
  for (int64_t stride : c10::contiguous_strides(info.sizes)) info.strides.push_back(stride);
  info.offset = 0;
  return added;
}

}  // namespace bolt::record
