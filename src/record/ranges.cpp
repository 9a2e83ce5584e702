// record/ranges.cpp
#include "record/ranges.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "record/operator_facts.h"
#include "support/range.h"

namespace bolt::record {
namespace {

/// The entry that made the tensor, all of it in one go: nothing writes to its memory behind that.
const Entry* maker(const Tape& tape, TensorId id) {
  if (id < 0) return nullptr;
  const TensorInfo& info = tape.tensors[id];
  if (info.producer < 0 || !info.plain) return nullptr;
  const auto made = static_cast<size_t>(info.producer);
  auto is_there = [&](TensorId written) { return tape.tensors[written].storage == info.storage; };
  for (size_t i = made; i < tape.entries.size(); ++i)
    if (any_written(tape.entries[i], is_there)) return nullptr;
  return &tape.entries[made];
}

/// A number of Python's that is the same in all calls.
std::optional<double> constant(const Arg& arg) {
  const bool plain = arg.syms.empty() && arg.tensors.empty();
  if (!plain || !(arg.value.isDouble() || arg.value.isInt())) return std::nullopt;
  return arg.value.isDouble() ? arg.value.toDouble() : static_cast<double>(arg.value.toInt());
}

}  // namespace

std::optional<bool> known_outcome(const Tape& tape, TensorId condition) {
  const Entry* compares = maker(tape, condition);
  if (!compares || compares->op.operator_name().overload_name != "Scalar" || compares->args.size() != 2 ||
      compares->args[0].tensors.size() != 1)
    return std::nullopt;
  const Entry* draws = maker(tape, compares->args[0].tensors[0]);
  const std::optional<double> with = constant(compares->args[1]);
  if (!draws || !with || draws->op.operator_name().name != "aten::rand") return std::nullopt;
  // The bound is cast to the type of the numbers, which lie in [0, 1]: near the ends nothing is said.
  constexpr double kNear = 0.01;
  const bool is_end = *with == 0 || *with == 1;
  if (!is_end && *with >= -kNear && *with <= 1 + kNear) return std::nullopt;
  static const std::unordered_map<std::string, Inequality> orders = {
      {"aten::lt", Inequality::less},
      {"aten::le", Inequality::less_or_equal},
      {"aten::gt", Inequality::greater},
      {"aten::ge", Inequality::greater_or_equal}};
  const auto order = orders.find(compares->op.operator_name().name);
  return order == orders.end() ? std::nullopt : bolt::known_outcome({0, 1}, order->second, *with);
}

}  // namespace bolt::record
