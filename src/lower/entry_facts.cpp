// lower/entry_facts.cpp
#include "lower/entry_facts.h"

#include <algorithm>

#include "record/convert.h"

namespace bolt::lower {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;

std::string full_name(const Entry& e) {
  const c10::OperatorName& name = e.op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

record::TensorIds results(const Entry& e) {
  record::TensorIds out;
  for (const Arg& r : e.results) out.insert(out.end(), r.tensors.begin(), r.tensors.end());
  return out;
}

TensorId first_tensor(const Entry& e) {
  for (const Arg& a : e.args)
    if (!a.tensors.empty()) return a.tensors[0];
  return -1;
}

std::set<int> operand_storages(const Entry& e, const Tape& tape) {
  std::set<int> storages;
  for_each_tensor(e.args, [&](TensorId id) { storages.insert(tape.tensors[id].storage); });
  return storages;
}

bool is_view(const Entry& e, const Tape& tape) {
  const std::set<int> given = operand_storages(e, tape);
  const record::TensorIds made = results(e);
  return std::any_of(made.begin(), made.end(),
                     [&](TensorId r) { return r >= 0 && given.count(tape.tensors[r].storage); });
}

bool draws(const Entry& e) { return e.op.hasSchema() && e.op.hasTag(at::Tag::nondeterministic_seeded); }

bool has_effects(const Entry& e) {
  return (e.results.empty() && written_arguments(e).empty()) || e.op.schema().name().find("aten::") != 0 ||
         draws(e);
}

bool is_compilable(const Entry& e, const Tape& tape) {
  auto is_unknown = [&](TensorId id) {
    const auto dtype = record::to_bolt(tape.tensors[id].dtype);
    return !dtype || is_opaque(*dtype);
  };
  return !any_tensor(e.args, is_unknown) && !any_tensor(e.results, is_unknown);
}

}  // namespace bolt::lower
