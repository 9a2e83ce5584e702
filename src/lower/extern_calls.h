// lower/extern_calls.h
// An entry that no row lowers -> one call of ATen in the graph.
//
// Sizes of its results come from extern_sizes, or are found out by trying the operator (probe.h); where
// neither knows them they are demanded. What the operator writes to is given to it as copies, which are
// further results.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lower/windows.h"

namespace bolt::lower {

class ExternCalls {
 public:
  explicit ExternCalls(Windows& windows) : w_(windows) {}

  void lower(const record::Entry& e);
  /// A wait_tensor. What is waited for may be read behind it, and what its collective was given may go.
  void wait(const record::Entry& e);
  /// Throws where a collective of the region is waited for behind its end.
  void check_all_are_waited_for() const;
  /// The call as rows see it.
  Call call(const record::Entry& e);
  /// Can sizes that differ be left to a call of ATen, by a rule or by trying?
  bool knows_sizes(const record::Entry& e, const Call& c);

 private:
  /// Sizes of the results of a call of ATen that has no rule.
  const std::optional<std::vector<Syms>>& probed(const record::Entry& e);
  using KnownSizes = std::optional<std::vector<Syms>>;
  void resolve_numbers(ExternCall& x);
  void check_overlaps(const record::Entry& e, const Call& c) const;
  bool same_call(const record::Entry& e, const Call& c);
  KnownSizes sizes_of_results(const record::Entry& e, const Call& c, bool finds_sizes);
  bool shows_all(const record::Entry& e, const std::vector<Syms>& sizes);
  std::vector<Value*> take_operands(ExternCall& x);
  void keep_orders(const record::Entry& e, ExternCall& x);
  graph::Node* make_node(const record::Entry& e, const Call& c, ExternCall x, const KnownSizes& known);
  void define_results(const record::Entry& e, graph::Node* node, bool finds_sizes);
  void define_inverse(const record::Entry& e, const ExternCall& x);
  bool turn(const record::Entry& e);
  Value* made_by_call(ExternCall x, std::vector<Value*> operands, const graph::Type& type);

  Windows& w_;
  // Calls that found sizes out, by what they were given, and what they gave.
  std::map<std::pair<std::string, std::vector<Value*>>, record::TensorIds> found_;
  std::unordered_map<record::TensorId, Value*> found_values_;
  /// By the root of what a collective gives that nobody has waited for yet: what it was given.
  std::map<record::TensorId, std::vector<Value*>> under_way_;
};

}  // namespace bolt::lower
