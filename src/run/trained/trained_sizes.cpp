// run/trained/trained_sizes.cpp
#include "run/trained/trained_sizes.h"

#include <algorithm>

#include "autograd/follow.h"
#include "support/log.h"
#include "support/nesting.h"
#include "support/stats.h"

namespace bolt::run {

namespace {

std::string text_of(const autograd::Joint& joint, const Ints& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    if (!is_float_symbol(*joint.symbols[i].symbol.node()))
      text += " " + joint.symbols[i].symbol.str() + "=" + std::to_string(values[i]);
  return text;
}

}  // namespace

Sym over_region(Sym s, const lower::Sizes& backward, const std::vector<LayoutOverRegion>& layouts,
                const lower::Sizes& region) {
  const SymbolTable& all = backward.all();
  return region.resolve(substitute(s, [&](Sym symbol) {
    const size_t place = place_in(all, *symbol.node());
    if (place == all.size() || all[place].from != SymbolRow::From::input) return symbol;
    const SymbolRow& row = all[place];
    const auto& [sizes, strides] = layouts[row.input];
    return floordiv(row.dim < kStrideBit ? sizes[row.dim] : strides[row.dim - kStrideBit], row.divisor);
  }));
}

Syms TrainedSizes::Parts::over_region(const SymbolTable& program, const lower::Sizes& sizes) const {
  Syms out;
  for (const SymbolRow& row : program) out.push_back(run::over_region(row.symbol, sizes, backwards, region));
  return out;
}

TrainedSizes::TrainedSizes(Parts parts) : p_(std::move(parts)), region_(p_.region.open()) {}

bool TrainedSizes::hold(const std::vector<SizeFact>& facts, const Ints& values) const {
  const Evaluate value{region_, values};
  return std::ranges::all_of(facts,
                             [&](const SizeFact& f) { return holds(value(f.a), f.relation, value(f.b)); });
}

/// Without numbers that are operands: nothing is asked about these, and they may differ in each call.
Ints TrainedSizes::key_of(const Ints& joint_values) const {
  Ints key = joint_values;
  for (size_t i = 0; i < key.size(); ++i)
    if (p_.joint.operands[i]) key[i] = 0;
  return key;
}

std::shared_ptr<const TrainedSizes::Set> TrainedSizes::of(const Ints& values) const {
  const Ints of_joint = joint_values(values);
  const Ints key = key_of(of_joint);
  {
    const std::lock_guard lock(mutex_);
    if (const auto* known = sets_.find(key)) return *known;
  }
  auto set = made(values, of_joint);
  const std::lock_guard lock(mutex_);
  return sets_.put(key, std::move(set));
}

std::shared_ptr<const TrainedSizes::Set> TrainedSizes::made(const Ints& values,
                                                            const Ints& joint_values) const {
  auto set = std::make_shared<Set>();
  set->agrees = autograd::agrees(p_.joint, {p_.run, p_.wanted, p_.parts, p_.own, p_.inner}, joint_values);
  if (!set->agrees) {
    ++Stats::get().eager_fallbacks;
    log("perf_hints", "eager's operators run, because gradients are computed otherwise for" +
                          text_of(p_.joint, joint_values));
    return set;
  }
  const Evaluate value{region_, values};
  for (const Layout& layout : p_.backwards)
    set->backwards.push_back({value(layout.sizes), value(layout.strides)});
  return set;
}

std::function<int64_t(Sym)> TrainedSizes::on_joint_tape(const Ints& values) const {
  return [this, all = joint_values(values)](Sym s) { return Evaluate{p_.joint.symbols, all}(s); };
}

}  // namespace bolt::run
