// autograd/numbers.cpp
#include "autograd/numbers.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::TensorId;
using record::TensorInfo;

/// One to one, in the order in which they are met.
class Pairs {
 public:
  bool meet(int a, int b) {
    return forth_.try_emplace(a, b).first->second == b && back_.try_emplace(b, a).first->second == a;
  }
  bool knows(int a) const { return forth_.contains(a); }

 private:
  std::unordered_map<int, int> forth_, back_;
};

class Comparison {
 public:
  Comparison(const Joint& other, const Joint& joint, std::vector<NumberPlace>* places)
      : other_(other), joint_(joint), places_(places) {}

  std::optional<std::vector<int64_t>> run() {
    const auto &mine = joint_.tape.entries, &others = other_.tape.entries;
    bool same = mine.size() == others.size() && joint_.backward == other_.backward &&
                joint_.tangents == other_.tangents && tensors(joint_.tape.inputs, other_.tape.inputs);
    for (size_t i = 0; same && i < mine.size(); ++i) same = entry(mine[i], others[i]);
    same = same && tensors(joint_.outputs, other_.outputs) && tensors(joint_.gradients, other_.gradients);
    return same ? std::optional(std::move(numbers_)) : std::nullopt;
  }

 private:
  bool entry(const Entry& mine, const Entry& others) {
    auto same = [&](Arg& a, const Arg& b) { return argument(a, b); };
    return mine.op == others.op && mine.own_version == others.own_version &&
           std::ranges::equal(mine.args, others.args, same) &&
           std::ranges::equal(mine.results, others.results, [&](const Arg& a, const Arg& b) {
             return a.kind == b.kind && tensors(a.tensors, b.tensors);
           });
  }

  template <class Ids>
  bool tensors(const Ids& mine, const Ids& others) {
    return std::ranges::equal(mine, others, [&](TensorId a, TensorId b) { return tensor(a, b); });
  }

  bool tensor(TensorId mine, TensorId others) {
    if (mine < 0 || others < 0) return mine == others;
    if (ids_.knows(mine)) return ids_.meet(mine, others);
    const TensorInfo &a = joint_.tape.tensors[mine], &b = other_.tape.tensors[others];
    for (size_t d = 0; d < a.sizes.size() && d < b.sizes.size(); ++d)
      add(b.sizes[d], {.tensor = mine, .index = d});
    return ids_.meet(mine, others) && storages_.meet(a.storage, b.storage) && a.dtype == b.dtype &&
           a.device == b.device && a.sizes.size() == b.sizes.size();
  }

  bool argument(Arg& mine, const Arg& others) {
    if (mine.kind != others.kind || !tensors(mine.tensors, others.tensors)) return false;
    const c10::IValue &a = mine.value, &b = others.value;
    if (!a.isList()) return number(a, b, mine, 0);
    if (!b.isList()) return false;
    const auto elements = a.toListRef(), given = b.toListRef();
    bool same = elements.size() == given.size();
    for (size_t i = 0; same && i < elements.size(); ++i) same = number(elements[i], given[i], mine, i);
    return same;
  }

  bool number(const c10::IValue& a, const c10::IValue& b, Arg& arg, size_t index) {
    if (a.tagKind() != b.tagKind()) return false;
    if (a.isInt()) return add(b.toInt(), {.arg = &arg, .index = index});
    if (a.isDouble())
      return add(std::bit_cast<int64_t>(b.toDouble()), {.arg = &arg, .index = index, .is_float = true});
    if (a.isBool()) return a.toBool() == b.toBool();
    if (a.isString()) return a.toStringRef() == b.toStringRef();
    return true;  // devices, generators: a trial has no other ones
  }

  bool add(int64_t number, NumberPlace place) {
    numbers_.push_back(number);
    if (places_) places_->push_back(place);
    return true;
  }

  const Joint &other_, &joint_;
  std::vector<NumberPlace>* places_;
  std::vector<int64_t> numbers_;
  Pairs ids_, storages_;
};

}  // namespace

std::optional<std::vector<int64_t>> numbers_of(const Joint& other, const Joint& joint,
                                               std::vector<NumberPlace>* places) {
  return Comparison(other, joint, places).run();
}

}  // namespace bolt::autograd
