// autograd/follow.cpp
#include "autograd/follow.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "autograd/fit.h"
#include "autograd/numbers.h"
#include "autograd/trial.h"
#include "support/error.h"
#include "support/nesting.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

struct Symbol {
  Sym sym;
  int64_t hint = 0;
  int dim = -1;  ///< of a number: none
  bool early = false;
  bool only_operand = false;
  bool is_float() const { return is_float_symbol(*sym.node()); }
  bool is_stride() const { return dim >= kStrideBit; }
};

/// Symbols that are one: they vary together.
struct SymbolGroup {
  std::vector<Symbol> members;
  int64_t step = 1;
  bool given_up = false;
};

struct Sample {
  Trial trial;
  std::vector<int64_t> numbers;  ///< in the order of numbers.h
  std::vector<size_t> varied;    ///< which groups have another value than in the run
};

/// How far each group is from what it was in the run, in its steps.
using Steps = std::vector<int64_t>;

// --- Numbers that are operands ----------------------------------------------------------------------------

/// Arithmetic whose gradients are arithmetic with the same number.
bool is_arithmetic(const Entry& entry) {
  static constexpr std::string_view kNames[] = {
      "aten::add",          "aten::add_",    "aten::sub",   "aten::sub_",     "aten::rsub",
      "aten::mul",          "aten::mul_",    "aten::div",   "aten::div_",     "aten::addcmul",
      "aten::addcmul_",     "aten::addcdiv", "aten::addmm", "aten::addcdiv_", "aten::masked_fill",
      "aten::masked_fill_", "aten::fill_"};
  return std::ranges::find(kNames, entry.op.operator_name().name) != std::end(kNames);
}

int64_t bits_of(double number) { return std::bit_cast<int64_t>(number); }

struct Uses {
  bool only_operand = true;
  bool as_scalar = false;  ///< also where formulas look at it: a factor that is an argument of its own
};

Uses uses_of(Sym number, const Tape& run) {
  Uses uses;
  for (const Entry& entry : run.entries)
    for (size_t i = 0; i < entry.args.size(); ++i) {
      const Arg& arg = entry.args[i];
      Syms inside;
      for (Sym s : arg.syms) collect_symbols(s, &inside);
      if (std::ranges::find(inside, number) == inside.end()) continue;
      const bool scalar = entry.op.schema().arguments()[i].type()->kind() == c10::TypeKind::NumberType;
      if (scalar && entry.op.operator_name().name == "aten::full") continue;  // as data, from then on
      uses.as_scalar |= scalar;
      uses.only_operand &= is_arithmetic(entry) && (scalar || arg.kind == Arg::Kind::WrappedNumber);
    }
  return uses;
}

// ----------------------------------------------------------------------------------------------------------

class Following {
 public:
  Following(const Asked& asked, Joint& joint) : asked_(asked), run_(asked.run), joint_(joint) {
    hint_ = numbers_of(joint, joint, &places_).value();
  }

  void follow(const Varying& dynamic) {
    for (const SymbolRow& n : dynamic.numbers) recorded_[n.symbol] = n.hint;
    for (const Symbol& s : symbols_of(dynamic)) vary_alone(s);
    vary_together([](const Symbol& s) { return std::pair(s.hint, s.dim); });
    vary_together([](const Symbol& s) { return std::pair(s.hint, 0); });
    join_groups();
    for (const Symbol& s : apart_) give_up(s, "gradients are computed otherwise where it differs");
    vary_all();
    while (!fit()) {
    }
    write();
  }

 private:
  // ---- what differs

  std::vector<Symbol> symbols_of(const Varying& dynamic) {
    std::vector<Symbol> all;
    for (size_t i = 0; i < run_.inputs.size() && i < dynamic.dims.size(); ++i) {
      const TensorId id = run_.inputs[i];
      const TensorInfo& info = run_.tensors[id];
      auto add = [&](size_t bit, int64_t hint) {
        if ((dynamic.dims[i] >> bit & 1) && info.plain && hint >= 2)
          all.push_back({tape_symbol(id, static_cast<int>(bit)), hint, static_cast<int>(bit)});
      };
      for (size_t d = 0; d < info.sizes.size() && d < kStrideBit; ++d) add(d, info.sizes[d]);
      for (size_t d = 0; d < info.sizes.size() && d < kStrideBit; ++d) add(d + kStrideBit, info.strides[d]);
    }
    for (const SymbolRow& n : dynamic.numbers) add_number(n, all);
    return all;
  }

  void add_number(const SymbolRow& number, std::vector<Symbol>& all) {
    const Uses uses = uses_of(number.symbol, run_);
    const Symbol symbol{number.symbol, number.hint, -1, number.early, uses.only_operand};
    if (!uses.only_operand && number.early)
      return give_up(symbol, "gradients through an operator that is given it");
    all.push_back(symbol);
    if (!uses.only_operand || !uses.as_scalar) return;
    if (number.early) throw_unsupported("gradients through a factor that is drawn when the region runs");
    const bool real = symbol.is_float();
    const std::string why = "ATen's gradients look whether a factor is 0 or 1";
    const std::vector<int64_t> specials =
        real ? std::vector{bits_of(0.0), bits_of(-0.0), bits_of(1.0)} : std::vector<int64_t>{0, 1};
    for (const int64_t value : specials) {
      if (value == symbol.hint) return give_up(symbol, why);
      joint_.facts.push_back({symbol.sym, Relation::ne, value, why});
    }
  }

  void give_up(const Symbol& s, const std::string& why) {
    if (s.early) throw_unsupported("a number that is drawn when the region runs: ", why);
    joint_.facts.push_back({s.sym, Relation::eq, s.hint, why});
  }

  // ---- trials

  int64_t value_for(const Symbol& s, int64_t steps, int64_t step, int64_t base) const {
    if (!s.is_float()) return base + steps * step;
    const double was = std::bit_cast<double>(s.hint), more = static_cast<double>(steps);
    return std::bit_cast<int64_t>(was * (1 + 0.25 * more) + std::copysign(0.0625 * more, was));  // another
  }

  /// False: it does not work with these.
  bool attempt(const Steps& steps) {
    Assignment values = recorded_;
    for (size_t g = 0; g < steps.size(); ++g)
      for (const Symbol& s : groups_[g].members)
        if (!s.is_stride()) values[s.sym] = value_for(s, steps[g], groups_[g].step, s.hint);
    const Trial sizes(run_, values);
    for (size_t g = 0; g < steps.size(); ++g)
      for (const Symbol& s : groups_[g].members)
        if (s.is_stride()) values[s.sym] = value_for(s, steps[g], groups_[g].step, sizes.value_of(s.sym));
    Trial trial(run_, std::move(values));
    const std::optional<Joint> made = try_joint(trial, asked_);
    if (!made) return false;
    auto numbers = numbers_of(*made, joint_);
    if (!numbers) return false;
    Sample& sample = samples_.emplace_back(Sample{std::move(trial), std::move(*numbers), {}});
    for (size_t g = 0; g < steps.size(); ++g)
      if (steps[g] != 0) sample.varied.push_back(g);
    return true;
  }

  /// A group by itself, by one and two, or by as much again where only multiples will do.
  bool varies(size_t group) {
    SymbolGroup& varied = groups_[group];
    for (const int64_t step : {int64_t{1}, varied.members[0].hint}) {
      varied.step = step;
      Steps steps(groups_.size(), 0);
      steps[group] = 1;
      const bool well = attempt(steps);
      steps[group] = 2;
      if (well) return attempt(steps), true;
      if (varied.members[0].is_float()) return false;
    }
    return false;
  }

  bool add_group(std::vector<Symbol> members) {
    groups_.push_back({std::move(members)});
    if (varies(groups_.size() - 1)) return true;
    groups_.pop_back();
    return false;
  }

  /// What was tried with the group as it was says nothing about it any more.
  bool join(size_t group, const std::vector<Symbol>& more) {
    const SymbolGroup was = groups_[group];
    const size_t before = samples_.size();
    groups_[group].members.insert(groups_[group].members.end(), more.begin(), more.end());
    if (!varies(group)) return groups_[group] = was, false;
    const auto end = samples_.begin() + static_cast<std::ptrdiff_t>(before);
    samples_.erase(
        std::remove_if(samples_.begin(), end, [&](const Sample& s) { return s.varied.front() == group; }),
        end);
    return true;
  }

  void vary_alone(const Symbol& s) {
    if (!add_group({s})) apart_.push_back(s);
  }

  template <class Key>
  void vary_together(Key key) {
    std::vector<Symbol> left;
    while (!apart_.empty()) {
      const auto first = key(apart_[0]);
      std::vector<Symbol> alike, others;
      for (const Symbol& s : apart_) (key(s) == first ? alike : others).push_back(s);
      apart_ = std::move(others);
      if (alike.size() < 2 || !add_group(alike)) left.insert(left.end(), alike.begin(), alike.end());
    }
    apart_ = std::move(left);
  }

  /// What varies with one that varies without it: `gather` may be given fewer indices than rows, not more.
  void join_groups() {
    for (size_t group = 0; group < groups_.size(); ++group) {
      const Symbol first = groups_[group].members[0];
      std::vector<Symbol> alike, others;
      for (const Symbol& s : apart_)
        (s.hint == first.hint && s.is_stride() == first.is_stride() && !s.is_float() ? alike : others)
            .push_back(s);
      if (alike.empty() || first.is_float()) continue;
      if (join(group, alike)) {
        apart_ = std::move(others);
        continue;
      }
      if (alike.size() > 1) std::erase_if(alike, [&](const Symbol& s) { return join(group, {s}); });
      apart_ = std::move(others);
      apart_.insert(apart_.end(), alike.begin(), alike.end());
    }
  }

  /// All groups at once, each by another number of steps: what is a product shows only so.
  void vary_all() {
    if (groups_.empty()) return;
    const size_t before = samples_.size();
    for (const auto& [first, more] : {std::pair(1, 1), {3, 2}, {2, 3}, {1, 0}, {4, 1}, {2, 0}}) {
      Steps steps;
      for (size_t g = 0; g < groups_.size(); ++g) steps.push_back(first + more * static_cast<int64_t>(g));
      attempt(steps);
      if (samples_.size() == before + kTogether) return;
    }
    if (samples_.size() > before + 1) return;
    for (size_t g = 0; g < groups_.size(); ++g) give_up(g, "sizes that only differ one at a time");
  }

  // ---- expressions

  void give_up(size_t group, const std::string& why) {
    if (std::exchange(groups_[group].given_up, true)) return;
    for (const Symbol& s : groups_[group].members) give_up(s, why);
  }

  std::vector<const Sample*> samples_that_count() const {
    std::vector<const Sample*> all;
    for (const Sample& sample : samples_)
      if (std::ranges::none_of(sample.varied, [&](size_t g) { return groups_[g].given_up; }))
        all.push_back(&sample);
    return all;
  }

  /// False: a group had to be given up.
  bool fit() {
    const std::vector<const Sample*> samples = samples_that_count();
    auto observed = [&](int64_t recorded, auto value) {
      Observed out{recorded};
      for (const Sample* s : samples) out.push_back(value(*s));
      return out;
    };
    Fit fit;
    for (size_t g = 0; g < groups_.size(); ++g)
      if (const Symbol& s = groups_[g].members[0]; !groups_[g].given_up)
        fit.add_symbol(s.sym, observed(s.hint, [&](const Sample& x) { return x.trial.value_of(s.sym); }));
    found_.clear();
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto sym =
          fit.find(observed(hint_[i], [&](const Sample& x) { return x.numbers[i]; }), places_[i].is_float);
      if (!sym) return give_up_for(i), false;
      found_.push_back(*sym);
    }
    return true;
  }

  /// What a number without an expression depends on.
  void give_up_for(size_t place) {
    const std::string why = "gradients need a number that is no simple expression of it";
    bool any = false;
    for (const Sample* s : samples_that_count())
      if (s->varied.size() == 1 && s->numbers[place] != hint_[place]) give_up(s->varied[0], why), any = true;
    for (size_t g = 0; !any && g < groups_.size(); ++g) give_up(g, why);
  }

  void write() {
    for (Entry& entry : joint_.tape.entries)
      for (Arg& arg : entry.args) arg.syms.clear();
    joint_.sizes.resize(joint_.tape.tensors.size());
    for (size_t i = 0; i < places_.size(); ++i)
      if (!found_[i].is_const()) write(places_[i], found_[i]);
    for (const SymbolGroup& group : groups_) {
      if (group.given_up) continue;
      for (const Symbol& s : group.members) {
        joint_.symbols.push_back(SymbolRow::of_number(s.sym, s.hint, s.early));
        joint_.operands.push_back(s.only_operand);
        if (s.sym != group.members[0].sym)
          joint_.facts.push_back(
              {group.members[0].sym, Relation::eq, s.sym, "gradients need them to be one"});
      }
    }
  }

  void write(const NumberPlace& place, Sym sym) {
    if (place.tensor >= 0) {
      const auto id = static_cast<size_t>(place.tensor);
      const record::Dims& sizes = joint_.tape.tensors[id].sizes;
      if (joint_.sizes[id].empty()) joint_.sizes[id] = Syms(sizes.begin(), sizes.end());
      joint_.sizes[id][place.index] = sym;
      return;
    }
    if (place.arg->syms.empty()) place.arg->syms = constants(place.arg->value);
    place.arg->syms[place.index] = sym;
  }

  static std::vector<Sym> constants(const c10::IValue& value) {
    auto constant = [](const c10::IValue& v) -> Sym {
      if (v.isDouble()) return std::bit_cast<int64_t>(v.toDouble());
      return v.isInt() ? v.toInt() : 0;
    };
    if (!value.isList()) return {constant(value)};
    std::vector<Sym> all;
    for (const c10::IValue& each : value.toListRef()) all.push_back(constant(each));
    return all;
  }

  static constexpr size_t kTogether = 3;
  const Asked& asked_;
  const Tape& run_;
  Joint& joint_;
  std::vector<NumberPlace> places_;
  std::vector<int64_t> hint_;        ///< the numbers of the recorded run
  Assignment recorded_;              ///< of numbers that are no sizes
  std::vector<Symbol> apart_;        ///< that do not vary by themselves
  std::vector<SymbolGroup> groups_;  ///< that do
  std::vector<Sample> samples_;
  std::vector<Sym> found_;  ///< by place
};

Sym written_at(const NumberPlace& place, int64_t recorded, const Joint& joint) {
  if (place.arg) return place.arg->syms.empty() ? Sym(recorded) : place.arg->syms[place.index];
  const Syms& sizes = joint.sizes[place.tensor];
  return sizes.empty() ? Sym(recorded) : sizes[place.index];
}

}  // namespace

void follow(const Asked& asked, const Varying& dynamic, Joint& joint) {
  if (dynamic.any()) Following(asked, joint).follow(dynamic);
}

bool agrees(const Joint& joint, const Asked& asked, const std::vector<int64_t>& values) {
  BOLT_CHECK(values.size() == joint.symbols.size(), "a joint tape of ", joint.symbols.size(), " symbols");
  Assignment assigned;
  for (const SizeFact& fact : joint.facts)  // of what was given up
    if (fact.relation == Relation::eq && fact.b.is_const()) assigned[fact.a] = fact.b.value();
  for (size_t i = 0; i < values.size(); ++i) assigned[joint.symbols[i].symbol] = values[i];
  Trial trial(asked.run, assigned);
  const std::optional<Joint> now = try_joint(trial, asked);
  if (!now) return false;
  std::vector<NumberPlace> places;
  const auto numbers = numbers_of(*now, joint, &places), recorded = numbers_of(joint, joint);
  if (!numbers) return false;
  for (size_t i = 0; i < places.size(); ++i)
    if (trial.value_of(written_at(places[i], (*recorded)[i], joint)) != (*numbers)[i]) return false;
  return true;
}

}  // namespace bolt::autograd
