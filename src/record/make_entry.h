// record/make_entry.h
// An operator by its name, and what it is given -> an entry that calls it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>
#include <vector>

#include "record/operator_facts.h"
#include "record/tape.h"

namespace bolt::record {

inline Arg tensor_arg(TensorId id) {
  Arg arg;
  arg.kind = Arg::Kind::Tensor;
  arg.tensors = {id};
  return arg;
}
inline Arg list_arg(const std::vector<TensorId>& ids) {
  Arg arg;
  arg.kind = Arg::Kind::TensorList;
  for (TensorId id : ids) arg.tensors.push_back(id);
  return arg;
}
inline Arg value_arg(c10::IValue value) {
  Arg arg;
  arg.value = std::move(value);
  return arg;
}
inline Arg sizes_arg(at::IntArrayRef sizes) { return value_arg(c10::List<int64_t>(sizes)); }

/// Without a gradient. What is not said of its arguments is as its schema has it. It has to be added to the
/// tape.
inline Entry make_entry(const Tape& tape, const char* name, const char* overload,
                        const std::vector<Arg>& args, const std::vector<TensorId>& results, int loc) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const OperatorFacts& facts = facts_of(op);
  Entry made{op, &facts, tape.args->take(facts.arguments), tape.args->take(facts.returns)};
  made.grad_mode = false;
  made.loc = loc;
  for (size_t a = 0; a < facts.arguments; ++a)
    made.args[a] = a < args.size()
                       ? args[a]
                       : value_arg(op.schema().arguments()[a].default_value().value_or(c10::IValue()));
  for (size_t r = 0; r < results.size(); ++r) made.results[r] = tensor_arg(results[r]);
  return made;
}

}  // namespace bolt::record
