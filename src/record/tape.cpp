// record/tape.cpp
#include "record/tape.h"

#include <algorithm>
#include <utility>

#include "record/operator_facts.h"

namespace bolt::record {

bool elements_share_memory(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool elements_fill_memory(at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (elements_share_memory(sizes, strides)) return false;
  int64_t elements = 1, reach = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    elements *= sizes[i];
    reach += (sizes[i] - 1) * strides[i];
  }
  return elements == 0 || reach == elements;
}

const std::vector<int>& written_arguments(const Entry& entry) {
  const OperatorFacts& facts = *entry.facts;
  if (facts.written_in_training.empty()) return facts.written;
  const c10::IValue& training = entry.args[kTrainingArgument].value;
  return training.isBool() && training.toBool() ? facts.written_in_training : facts.written;
}

bool may_decide_sizes(const Entry& entry, size_t argument) {
  const c10::TypeKind kind = entry.op.schema().arguments()[argument].type()->kind();
  if (kind != c10::TypeKind::NumberType && kind != c10::TypeKind::TensorType) return true;
  return std::ranges::all_of(entry.args, [](const Arg& a) { return a.kind == Arg::Kind::Value; });
}

bool may_be_sized_by_symbols(const Entry& entry) {
  for (size_t i = 0; i < entry.args.size(); ++i)
    if (std::ranges::any_of(entry.args[i].syms, [](Sym s) { return !s.is_const(); }) &&
        may_decide_sizes(entry, i))
      return true;
  return false;
}

bool is_followed(const Tape& tape, const Entry& entry) {
  return entry.grad_mode &&
         any_tensor(entry.args, [&](TensorId id) { return tape.tensors[id].requires_grad; });
}
bool writes_gradients(const Tape& tape, const Entry& entry) {
  return is_followed(tape, entry) && !written_arguments(entry).empty();
}
bool needs_gradients(const Tape& tape) {
  for (const auto& t : tape.tensors)
    if (t.producer >= 0 && t.requires_grad && tape.entries[t.producer].grad_mode) return true;
  return std::any_of(tape.entries.begin(), tape.entries.end(),
                     [&](const Entry& e) { return writes_gradients(tape, e); });
}

bool counts_no_write(const Entry& entry) { return !entry.facts->written_in_training.empty(); }

bool makes_leaf(const Entry& entry) {
  return entry.op.operator_name().name == "aten::requires_grad_" && entry.args[1].value.isBool() &&
         entry.args[1].value.toBool();
}

}  // namespace bolt::record
