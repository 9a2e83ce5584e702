// record/origins.cpp
#include "record/origins.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "record/operator_facts.h"

namespace bolt::record {
namespace {

constexpr size_t kMostOperators = 32;

/// Does it compute its results from its arguments alone?
bool is_function(const Entry& entry) {
  const OperatorFacts& facts = *entry.facts;
  const std::string_view name = entry.op.operator_name().name;
  return !facts.draws && facts.written.empty() && facts.written_in_training.empty() && !facts.finds_sizes &&
         !facts.has_out && name.find("empty") == std::string_view::npos;
}

class Origins {
 public:
  explicit Origins(const Tape& tape) : tape_(tape) {}

  bool add(TensorId id) {
    if (id < 0 || !seen_.insert(id).second) return true;
    const TensorInfo& info = tape_.tensors[id];
    storages_.insert(info.storage);
    if (info.input >= 0) return origins.push_back(id), true;
    if (info.producer < 0 || !info.plain || ++operators_ > kMostOperators) return false;
    const Entry& entry = tape_.entries[info.producer];
    return is_function(entry) && std::ranges::all_of(entry.args, [&](const Arg& arg) {
             return arg.syms.empty() &&
                    std::ranges::all_of(arg.tensors, [&](TensorId each) { return add(each); });
           });
  }

  /// Did any operator write to what was met? Those that turn a tensor only say so (detach_, of every
  /// torch.tensor()).
  bool is_written() const {
    auto is_met = [&](TensorId id) { return storages_.contains(tape_.tensors[id].storage); };
    return std::ranges::any_of(
        tape_.entries, [&](const Entry& entry) { return !entry.facts->turns && any_written(entry, is_met); });
  }

  std::vector<TensorId> origins;

 private:
  const Tape& tape_;
  std::unordered_set<TensorId> seen_;
  std::unordered_set<int> storages_;
  size_t operators_ = 0;
};

}  // namespace

std::optional<std::vector<TensorId>> origins_of(const Tape& tape, TensorId tensor) {
  Origins search(tape);
  if (!search.add(tensor) || search.is_written()) return std::nullopt;
  return std::move(search.origins);
}

}  // namespace bolt::record
