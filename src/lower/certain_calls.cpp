// lower/certain_calls.cpp
#include "lower/certain_calls.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

#include "lower/entry_facts.h"
#include "lower/lowering.h"

namespace bolt::lower {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorInfo;

/// Names without overloads, and without the "_" of those that write.
const std::unordered_set<std::string>& names_by_element() {
  static const auto* const names = [] {
    Table rows;
    add_pointwise(rows);
    add_optimizers(rows);
    auto* all = new std::unordered_set<std::string>;
    for (const auto& [name, row] : rows) {
      std::string base = name.substr(0, name.find('.'));
      if (base.ends_with('_')) base.pop_back();
      all->insert(std::move(base));
    }
    return all;
  }();
  return *names;
}

bool is_by_element(const Entry& e) {
  constexpr std::string_view kLists = "aten::_foreach_";
  std::string name = e.op.operator_name().name;
  if (name.ends_with('_')) name.pop_back();
  if (names_by_element().contains(name)) return true;
  return name.starts_with(kLists) && names_by_element().contains("aten::" + name.substr(kLists.size()));
}

bool is_view_row(const Entry& e) {
  const auto row = lowerings().find(full_name(e));
  return row != lowerings().end() && row->second.view;
}

template <class Fact>
bool all_tensors(const Tape& tape, const Entry& e, const Fact& fact) {
  auto fails = [&](record::TensorId id) { return !fact(tape.tensors[id]); };
  return !any_tensor(e.args, fails) && !any_tensor(e.results, fails);
}

/// Whole numbers can be divided by zero.
bool is_certain(const Tape& tape, const Entry& e) {
  auto is_plain = [](const TensorInfo& t) { return t.plain && !t.data_sized; };
  if (is_view_row(e)) return all_tensors(tape, e, is_plain);
  return is_by_element(e) && all_tensors(tape, e, [&](const TensorInfo& t) {
           return is_plain(t) && c10::isFloatingType(t.dtype);
         });
}

}  // namespace

size_t certain_from(const Tape& tape) {
  size_t from = tape.entries.size();
  while (from > 0 && is_certain(tape, tape.entries[from - 1])) --from;
  return from;
}

}  // namespace bolt::lower
