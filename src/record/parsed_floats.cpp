// record/parsed_floats.cpp
#include "record/parsed_floats.h"

#include <algorithm>
#include <bit>

#include "record/operator_facts.h"

namespace bolt::record {
namespace {

thread_local ParsedFloats* parsing = nullptr;

bool is_float(c10::Type& type) {
  if (type.kind() == c10::TypeKind::FloatType) return true;
  return type.kind() == c10::TypeKind::OptionalType &&
         is_float(*type.castRaw<c10::OptionalType>()->getElementType());
}

}  // namespace

void ParsedFloats::begin(std::string function) {
  function_ = std::move(function);
  parsing = this;
}

std::vector<Sym> ParsedFloats::end() {
  parsing = nullptr;
  give_up();
  return std::exchange(given_, {});
}

bool ParsedFloats::asked(std::string_view file, Sym symbol, double value,
                         const std::shared_ptr<SizeNotes>& notes) {
  if (!parsing || !file.ends_with("python_arg_parser.h")) return false;
  parsing->asked_.push_back({symbol, value, notes});
  return true;
}

void ParsedFloats::give_up() {
  for (const Asked& each : std::exchange(asked_, {}))
    each.notes->add(each.symbol, Relation::eq, std::bit_cast<int64_t>(each.value));
}

void ParsedFloats::give(const c10::OperatorHandle& op, const OperatorFacts& facts,
                        const torch::jit::Stack& stack, std::vector<std::vector<Sym>>& symbols) {
  if (asked_.empty()) return;
  if (op.operator_name().name != "aten::" + function_) return give_up();
  const size_t first = first_argument(facts, stack);
  auto bits = [](double value) { return std::bit_cast<int64_t>(value); };
  for (size_t k = asked_.size(); k-- > 0;) {
    const Asked& asked = asked_[k];
    auto alike = [&](const Asked& other) { return bits(other.value) == bits(asked.value); };
    std::vector<size_t> places;
    for (size_t i = 0; i < symbols.size(); ++i)
      if (const c10::IValue& given = stack[first + i];
          given.isDouble() && bits(given.toDouble()) == bits(asked.value) && symbols[i].empty() &&
          is_float(*op.schema().arguments()[i].type()))
        places.push_back(i);
    if (static_cast<std::ptrdiff_t>(places.size()) != std::count_if(asked_.begin(), asked_.end(), alike))
      continue;
    const Asked first = asked;
    for (const Asked& other : asked_)
      if (alike(other) && other.symbol != first.symbol)
        first.notes->add(other.symbol, Relation::eq, first.symbol);
    bool may_decide = false;
    for (size_t i : places) {
      symbols[i] = {first.symbol};
      may_decide |= std::ranges::find(facts.only_computes_with, i) == facts.only_computes_with.end();
    }
    if (may_decide) given_.push_back(first.symbol);
    std::erase_if(asked_, [&](const Asked& other) { return bits(other.value) == bits(first.value); });
    k = asked_.size();
  }
  give_up();
}

}  // namespace bolt::record
