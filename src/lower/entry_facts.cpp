// lower/entry_facts.cpp
#include "lower/entry_facts.h"

#include <algorithm>
#include <optional>
#include <span>

#include "loops/kernel_ops.h"
#include "record/convert.h"
#include "record/operator_facts.h"

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
  return (e.results.empty() && written_arguments(e).empty()) || !record::is_atens(e.op) || draws(e);
}

/// Are its tensors all of one type, whose elements a kernel moves? But for those that say where they are.
static bool moves_alike(const Entry& e, const Tape& tape) {
  std::optional<c10::ScalarType> all;
  auto differs = [&](TensorId id) {
    const c10::ScalarType own = tape.tensors[id].dtype;
    if (!all) all = own;
    return own != *all;
  };
  if (any_tensor(e.results, differs)) return false;
  for (size_t i = 0; i < e.args.size(); ++i) {
    const bool are_places = e.op.schema().arguments()[i].name().starts_with("ind");  // index, indices
    if (!are_places && any_tensor(std::span(&e.args[i], 1), differs)) return false;
  }
  return all && !is_opaque(loops::moved_as(*record::to_bolt(*all)));
}

bool is_compilable(const Entry& e, const Tape& tape, bool moves) {
  bool any_opaque = false;
  auto is_unknown = [&](TensorId id) {
    const auto dtype = record::to_bolt(tape.tensors[id].dtype);
    any_opaque |= dtype && is_opaque(*dtype);
    return !dtype || (any_opaque && !moves);
  };
  if (any_tensor(e.args, is_unknown) || any_tensor(e.results, is_unknown)) return false;
  return !any_opaque || moves_alike(e, tape);
}

}  // namespace bolt::lower
