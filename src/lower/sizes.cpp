// lower/sizes.cpp
#include "lower/sizes.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "support/nesting.h"

namespace bolt::lower {

using From = SymbolRow::From;

namespace {

/// Grows with every symbol, or stays.
bool grows(Sym s) {
  if (s.is_const()) return true;
  const SymNode& n = *s.node();
  switch (n.op) {
    case SymOp::Symbol: return true;
    case SymOp::Mod: return false;
    case SymOp::FloorDiv: return n.args[1].is_const() && n.args[1].value() > 0 && grows(n.args[0]);
    case SymOp::Mul:
      if (n.args.back().is_const() && n.args.back().value() < 0) return false;
      [[fallthrough]];
    default: return std::all_of(n.args.begin(), n.args.end(), grows);
  }
}

/// The symbols under divisions.
void collect_divided(Sym s, Syms* out) {
  if (s.is_const()) return;
  const SymNode& n = *s.node();
  if (n.op == SymOp::FloorDiv || n.op == SymOp::Mod) return collect_symbols(s, out);
  for (Sym arg : n.args) collect_divided(arg, out);
}

/// The divisions.
void collect_quotients(Sym s, std::vector<const SymNode*>* out) {
  if (s.is_const()) return;
  const SymNode& n = *s.node();
  for (Sym arg : n.args) collect_quotients(arg, out);
  if ((n.op == SymOp::FloorDiv || n.op == SymOp::Mod) && !n.args[1].is_const(1)) out->push_back(&n);
}

/// Each symbol of one with each of the other.
void pair_symbols(Sym a, Sym b, std::vector<std::pair<Sym, Sym>>* out) {
  Syms of_a, of_b;
  collect_symbols(a, &of_a);
  collect_symbols(b, &of_b);
  for (Sym x : of_a)
    for (Sym y : of_b)
      if (x != y) out->push_back({x, y});
}

/// Divides a sum by what all its numbers are multiples of: it is 0 where the sum is. Gives the quotient.
Sym primitive(std::vector<SymTerm>& terms, int64_t constant) {
  int64_t common = constant;
  for (const SymTerm& t : terms) common = std::gcd(common, t.coef);
  Sym sum = constant / std::max<int64_t>(common, 1);
  for (SymTerm& t : terms) t.coef /= common, sum += t.term * Sym(t.coef);
  return sum;
}

/// What is least of an expression that grows: sizes are 2 or more.
int64_t at_least(Sym s) {
  return evaluate(s,
                  [](const SymNode& n) { return int64_t{number_step(n) >= 0 || is_data_size(n) ? 0 : 2}; });
}
bool surely_large(Sym s) { return grows(s) && at_least(s) >= 2; }

}  // namespace

Sizes::Sizes(const record::Tape& tape, const std::vector<uint64_t>& dynamic, const SymbolTable& numbers,
             std::vector<SizeFact> recorded)
    : symbols_(numbers), recorded_(std::move(recorded)) {
  for (size_t i = 0; i < tape.inputs.size() && i < dynamic.size(); ++i) {
    const record::TensorInfo& info = tape.tensors[tape.inputs[i]];
    auto add = [&](size_t dim, int64_t hint) {
      if ((dynamic[i] >> dim & 1) && info.plain && hint >= 2)
        symbols_.push_back(SymbolRow::of_input(next_symbol(), static_cast<int>(i), static_cast<int>(dim),
                                               hint, info.chosen));
    };
    for (size_t d = 0; d < info.sizes.size() && d < kStrideBit; ++d) add(d, info.sizes[d]);
    for (size_t d = 0; d < info.sizes.size() && d < kStrideBit; ++d) add(d + kStrideBit, info.strides[d]);
  }
  for (size_t id = 0; id < tape.tensors.size(); ++id)
    for (int d = 0; d < 64 && tape.tensors[id].data_dims >> d; ++d)
      if ((tape.tensors[id].data_dims >> d & 1) && tape.tensors[id].producer >= 0)
        symbols_.push_back(SymbolRow::of_data(data_size(static_cast<int>(id), d), tape.tensors[id].sizes[d]));
  // Where only an unused tensor's sizes differ there are no symbols, and yet the recording computed with
  // sizes.
  for (const record::Entry& entry : tape.entries)
    for (const record::Arg& arg : entry.args)
      computed_ |= std::any_of(arg.syms.begin(), arg.syms.end(), [](Sym s) { return !s.is_const(); });
}

Sym Sizes::next_symbol(size_t before) const {
  return Sym::symbol("s" + std::to_string(symbols_.size() + before));
}

const SymbolRow* Sizes::find(Sym symbol) const {
  const size_t place = place_in(symbols_, *symbol.node());
  return place < symbols_.size() ? &symbols_[place] : nullptr;
}

bool Sizes::holds_early(Sym s) const {
  Syms inside;
  collect_symbols(s, &inside);
  return std::any_of(inside.begin(), inside.end(), [&](Sym symbol) {
    const SymbolRow* found = find(symbol);
    return found && found->early;
  });
}

Syms Sizes::of_input(const record::TensorInfo& info) const {
  Syms out(info.sizes.begin(), info.sizes.end());
  for (const SymbolRow& s : symbols_)
    if (s.input == info.input && s.divisor == 1 && s.dim < kStrideBit) out[s.dim] = resolve(s.symbol);
  return out;
}

Syms Sizes::strides_of_input(const record::TensorInfo& info) const {
  auto of_this = [&](const SymbolRow& s) { return s.input == info.input && s.divisor == 1; };
  if (std::none_of(symbols_.begin(), symbols_.end(), of_this)) return {};
  const auto nesting = nesting_of(info.sizes, info.strides);
  if (!nesting || nesting->is_tight()) return {};
  Syms strides(info.strides.begin(), info.strides.end());
  for (const SymbolRow& s : symbols_)
    if (of_this(s) && s.dim >= kStrideBit) strides[s.dim - kStrideBit] = resolve(s.symbol);
  return strides_over(*nesting, of_input(info), std::move(strides));
}

int64_t Sizes::hint(Sym s) const {
  return evaluate(resolve(s), symbols_, [&](size_t i) { return symbols_[i].hint; });
}

Sym Sizes::resolve(Sym s) const {
  if (s.is_const()) return s;
  return substitute(s, [&](Sym symbol) {
    if (auto at = bound_.find(symbol); at != bound_.end()) return resolve(at->second);
    if (auto at = solved_.find(symbol); at != solved_.end()) return resolve(at->second);
    return symbol;
  });
}

void Sizes::bind(record::TensorId id, const Syms& sizes) {
  if (are_numbers()) return;
  for (size_t d = 0; d < sizes.size(); ++d) {
    bound_[tape_symbol(id, static_cast<int>(d))] = sizes[d];
    if (sizes[d].is_const()) continue;
    // See the head of sizes.h: 0 and 1 are numbers, and whatever was larger stays so.
    const int64_t now = hint(sizes[d]);
    if (now < 2) throw SizeDemand(sizes[d]);
    if (holds_data_size(sizes[d])) continue;
    if (!surely_large(sizes[d])) note(facts_, {2, Relation::le, sizes[d], "a size of 0 or 1"});
  }
}

void Sizes::bind_strides(record::TensorId id, const Syms& strides) {
  for (size_t d = 0; d < strides.size(); ++d)
    bound_[tape_symbol(id, static_cast<int>(d) + kStrideBit)] = strides[d];
}

void Sizes::begin_again() {
  bound_.clear();
  facts_.clear();
}

void Sizes::note(std::vector<SizeFact>& into, SizeFact fact) const {
  if (fact.a.is_const() && fact.b.is_const()) return;
  const bool less = fact.relation == Relation::lt || fact.relation == Relation::le;
  if (less && fact.a.is_const() && grows(fact.b) && holds(fact.a.value(), fact.relation, at_least(fact.b)))
    return;
  if (std::find(into.begin(), into.end(), fact) == into.end()) into.push_back(std::move(fact));
}

bool Sizes::decide(Sym a, Relation relation, Sym b, const std::string& where) {
  a = resolve(a), b = resolve(b);
  for (Sym side : {a, b})
    if (holds_early(side)) throw SizeDemand(side);
  const bool yes = holds(hint(a), relation, hint(b));
  if (a == b || (a - b).is_const()) return yes;
  const bool turn = relation == Relation::lt || relation == Relation::le;
  if (yes)
    note(facts_, {a, relation, b, where});
  else
    note(facts_, {turn ? b : a, opposite(relation), turn ? a : b, where});
  return yes;
}

void Sizes::settle() {
  bool again = false;
  for (const SizeFact& f : recorded_) {
    Sym a = resolve(f.a), b = resolve(f.b);
    if (f.relation == Relation::eq) {
      if (a == b) continue;
      if (a.is_const() && b.is_const()) {
        if (a != b)
          throw Error(ErrorKind::Internal, "a size was " + b.str() + " and is computed as " + a.str());
        continue;
      }
      if (equate(a, b, f.where))
        again = true;
      else
        decide(a, f.relation, b, f.where);
    } else if (!decide(a, f.relation, b, f.where)) {
      throw Error(ErrorKind::Internal, "a size is not what the recording had: " + str(f));
    }
  }
  if (again) throw SizeDemand(Sym(0));
}

/// Of 12*(s0//4) == 4*s1*(s0//4): 12 == 4*s1.
void Sizes::cancel(Sym& a, Sym& b) const {
  if (a.is_const() || b.is_const()) return;
  const std::vector<SymTerm> terms = sum_terms(a, nullptr);
  const SymNode& first = *terms[0].term.node();
  for (Sym factor : first.op == SymOp::Mul ? first.args : Syms{terms[0].term}) {
    const Sym x = floordiv(a, factor), y = floordiv(b, factor);
    if (hint(factor) != 0 && x * factor == a && y * factor == b) a = x, b = y;
  }
}

/// Solves s0*s1 == s2*s3, of an image and a mask that are made flat: sizes that were the same number, in the
/// order of their dimensions, are the same sizes.
bool Sizes::match(const SymTerm& a, const SymTerm& b, const std::string& where) {
  Syms of_a, of_b;
  collect_symbols(a.term, &of_a);
  collect_symbols(b.term, &of_b);
  if (a.coef != -b.coef || a.term != product(of_a) || b.term != product(of_b)) return false;
  std::vector<std::pair<Sym, Sym>> pairs;
  for (Sym x : of_a) {
    const SymbolRow* size = find(x);
    const auto same = std::find_if(of_b.begin(), of_b.end(), [&](Sym y) {
      const SymbolRow* other = find(y);
      return size && other && size->from != From::data && other->from != From::data &&
             size->hint == other->hint;
    });
    if (same == of_b.end()) return false;
    pairs.emplace_back(x, *same);
    of_b.erase(same);
  }
  if (!of_b.empty()) return false;
  bool solved = false;
  for (auto [x, y] : pairs) solved |= find(x) < find(y) ? replace(y, x, where) : replace(x, y, where);
  return solved;
}

/// Solves `a == b` where that makes a symbol go; elsewhere it is for the guards alone.
bool Sizes::equate(Sym a, Sym b, const std::string& where) {
  cancel(a, b);
  int64_t constant = 0;
  std::vector<SymTerm> terms = sum_terms(a - b, &constant);
  const Sym difference = primitive(terms, constant);
  if (terms.size() == 1 && terms[0].term.node()->op == SymOp::Symbol)
    return replace(terms[0].term, hint(terms[0].term), where);
  // The later symbol gives way, so that a name lives as long as it can.
  for (auto [from, to] : {std::pair(b, a), std::pair(a, b)})
    if (!from.is_const() && from.node()->op == SymOp::Symbol && replace(from, to, where)) return true;
  // s0 + 1 == s1 + 1, 2*s0 == s1 - s2, 16*s0 == 16*s1: for any symbol that stands there once.
  for (size_t i = terms.size(); i-- > 0;) {
    const auto& [coef, term] = terms[i];
    if (term.node()->op == SymOp::Symbol && (coef == 1 || coef == -1) &&
        replace(term, term - difference * Sym(coef), where))
      return true;
  }
  return terms.size() == 2 && constant == 0 && match(terms[0], terms[1], where);
}

/// Solves `a == b` where what is divided holds the divisor once two sizes that were the same number are the
/// same symbol (`mask.view(tokens.size(0), -1)` has as many rows as before, the halves of two batches that
/// were joined as many as each other), or by symbols for what is left of sizes when they are divided by
/// numbers.
bool Sizes::divide(Sym a, Sym b, const std::string& where) {
  std::vector<const SymNode*> quotients;
  collect_quotients(a, &quotients);
  collect_quotients(b, &quotients);
  std::vector<std::pair<Sym, Sym>> pairs;
  for (const SymNode* quotient : quotients)
    for (Sym arg : quotient->args) pair_symbols(quotient->args[0], arg, &pairs);
  for (const bool one_dimension : {true, false})  // a batch is most likely the same batch
    for (auto [x, y] : pairs) {
      const SymbolRow *of_x = find(x), *of_y = find(y);
      if (!of_x || of_x->from == From::data || !of_y || of_y->from == From::data) continue;
      if (of_x->hint != of_y->hint || (of_x->dim == of_y->dim) != one_dimension) continue;
      const auto [from, to] = of_x < of_y ? std::pair(y, x) : std::pair(x, y);  // the later gives way
      auto as_one = [from = from, to = to](Sym s) { return s == from ? to : s; };
      if (substitute(a - b, as_one) == Sym(0) && replace(from, to, where)) return true;
    }
  SymbolTable wholes, parts;  // of both sizes of an image that is cut into patches
  for (const SymNode* quotient : quotients) {
    if (!quotient->args[1].is_const()) continue;
    for (const SymTerm& t : sum_terms(quotient->args[0], nullptr)) {
      const int64_t divisor = quotient->args[1].value() / std::gcd(quotient->args[1].value(), t.coef);
      Syms inside;
      collect_symbols(t.term, &inside);
      for (Sym whole : inside) {
        const SymbolRow* size = find(whole);
        if (!size || size->from != From::input || divisor < 2 || size->hint / divisor < 2) continue;
        SymbolRow part = *size;
        part.symbol = next_symbol();
        part.hint = size->hint / divisor;
        part.divisor = size->divisor * divisor;
        if (put_parts(a - b, {*size}, {part}, where)) return true;
        if (place_in(wholes, *whole.node()) < wholes.size()) continue;
        part.symbol = next_symbol(parts.size());
        wholes.push_back(*size), parts.push_back(part);
      }
    }
  }
  return parts.size() > 1 && put_parts(a - b, wholes, parts, where);
}

/// Replaces sizes by what is left of them when they are divided, if nothing is left of `difference` then.
bool Sizes::put_parts(Sym difference, const SymbolTable& wholes, const SymbolTable& parts,
                      const std::string& where) {
  auto divisor = [&](size_t i) { return parts[i].divisor / wholes[i].divisor; };
  auto made_of_parts = [&](size_t i) {
    return parts[i].symbol * Sym(divisor(i)) + Sym(wholes[i].hint % divisor(i));
  };
  const Sym rest = substitute(difference, [&](Sym s) {
    const size_t i = place_in(wholes, *s.node());
    return i < wholes.size() ? made_of_parts(i) : s;
  });
  if (rest != Sym(0)) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    note(solved_facts_,
         {mod(wholes[i].symbol, divisor(i)), Relation::eq, Sym(wholes[i].hint % divisor(i)), where});
    solved_[wholes[i].symbol] = made_of_parts(i);
    symbols_.push_back(parts[i]);
  }
  return true;
}

bool Sizes::replace(Sym symbol, Sym with, const std::string& where) {
  const SymbolRow* known = find(symbol);
  if (!known || solved_.count(symbol) || (!holds_data_size(symbol) && holds_data_size(with))) return false;
  Syms inside;
  collect_symbols(with, &inside);
  // Guards know which tensor is chosen by the others.
  const bool by_chosen = std::any_of(inside.begin(), inside.end(), [&](Sym s) {
    const SymbolRow* size = find(s);
    return size && size->chosen;
  });
  if (by_chosen && !known->chosen) return false;
  if (is_data_size(*symbol.node())) {
    // By sizes that are known earlier. What the operator gives is compared with them.
    for (Sym s : holds_data_size(with) ? inside : Syms())
      if (!is_data_size(*s.node()) || tensor_of_data_size(*s.node()) >= tensor_of_data_size(*symbol.node()))
        return false;
    if (!holds_data_size(with)) note(solved_facts_, {symbol, Relation::eq, with, where});
    solved_[symbol] = with;
    return true;
  }
  if (std::find(inside.begin(), inside.end(), symbol) != inside.end()) return false;
  note(solved_facts_, {symbol, Relation::eq, with, where});
  solved_[symbol] = with;
  if (with.is_const()) {
    const SymbolRow* s = find(symbol);
    const bool stride = s->dim >= kStrideBit;
    std::string what = (stride ? "stride " : "size ") + std::to_string(s->dim - (stride ? kStrideBit : 0)) +
                       " of input " + std::to_string(s->input) + " is " + with.str();
    if (s->from != From::input)
      what = "a number is " + (is_float_symbol(*symbol.node())
                                   ? detail::concat(std::bit_cast<double>(with.value()))
                                   : with.str());
    given_up_.push_back(what + ": " + where);
  }
  return true;
}

bool Sizes::solve(const SizeDemand& demand, const std::string& where) {
  if (asks_early(demand)) return false;
  const Sym a = resolve(demand.a), b = resolve(demand.b);
  if (demand.equal && hint(a) == hint(b)) {
    if (a == b || equate(a, b, where) || divide(a, b, where)) return true;
  }
  // Where a quotient is in the way, what is divided is enough.
  Syms all;
  if (demand.equal) {
    collect_divided(a, &all);
    collect_divided(b, &all);
  }
  if (all.empty()) {
    collect_symbols(a, &all);
    if (demand.equal) collect_symbols(b, &all);
  }
  bool solved = demand.a.is_const() && !demand.equal;  // only asks for a new beginning
  for (Sym s : all)
    if (const SymbolRow* known = find(s); known && known->from != From::data)
      solved |= replace(s, known->hint, where);
  return solved;
}

Sym Sizes::final(const SymbolRow& value) const {
  return open().empty() ? Sym(value.hint) : resolve(value.symbol);
}

namespace {

void collect_deciding(const record::Entry& e, Syms* out) {
  for (size_t i = 0; i < e.args.size(); ++i)
    if (record::may_decide_sizes(e, i))
      for (Sym s : e.args[i].syms) collect_symbols(s, out);
}

}  // namespace

bool Sizes::computes_with_made_sizes(const record::Tape& tape, const SymbolTable& computed) const {
  Syms used;
  for (const record::Entry& e : tape.entries)
    for (const record::Arg& arg : e.args)
      for (Sym s : arg.syms) collect_symbols(s, &used);
  for (const SizeFact& f : recorded_) collect_symbols(f.a, &used), collect_symbols(f.b, &used);
  for (const SymbolRow& v : computed) collect_symbols(v.symbol, &used);
  if (used.empty()) return false;
  for (size_t id = 0; id < tape.tensors.size(); ++id)
    for (size_t d = 0; tape.tensors[id].input < 0 && d < tape.tensors[id].sizes.size(); ++d)
      if (std::find(used.begin(), used.end(),
                    tape_symbol(static_cast<record::TensorId>(id), static_cast<int>(d))) != used.end())
        return true;
  return false;
}

void Sizes::give_up(const record::Tape& tape, const SymbolTable& computed, const std::string& where) {
  if (are_numbers()) return;
  for (const SymbolRow& s : symbols_)
    if (s.from == From::data) throw SizeDemand(s.symbol);
  if (computes_with_made_sizes(tape, computed)) {
    Syms deciding;
    for (const record::Entry& e : tape.entries) collect_deciding(e, &deciding);
    for (Sym s : deciding)
      if (const SymbolRow* number = find(s); number && number->from != From::input)
        replace(s, number->hint, where);
  }
  for (const SymbolRow& s : symbols_)
    if (s.from == From::input && !solved_.count(s.symbol)) replace(s.symbol, s.hint, where);
  while (true) {
    begin_again();
    for (record::TensorId id : tape.inputs) {
      const record::Dims& strides = tape.tensors[id].strides;
      bind_strides(id, Syms(strides.begin(), strides.end()));
    }
    for (size_t id = 0; id < tape.tensors.size(); ++id)
      for (size_t d = 0; d < tape.tensors[id].sizes.size(); ++d)
        bound_[tape_symbol(static_cast<record::TensorId>(id), static_cast<int>(d))] =
            tape.tensors[id].sizes[d];
    try {
      return settle();
    } catch (const SizeDemand&) {  // one number more is known
    }
  }
}

bool Sizes::any_data() const {
  return std::any_of(symbols_.begin(), symbols_.end(),
                     [](const SymbolRow& s) { return s.from == From::data; });
}

SymbolTable Sizes::open() const {
  SymbolTable out;
  for (const SymbolRow& s : symbols_)
    if (!solved_.count(s.symbol)) out.push_back(s);
  return out;
}

std::vector<SizeFact> Sizes::facts() const {
  std::vector<SizeFact> out;
  for (const SymbolRow& s : symbols_)
    if (!solved_.count(s.symbol) && s.from == From::input)
      out.push_back({2, Relation::le, s.symbol, "a size of 0 or 1"});
  out.insert(out.end(), solved_facts_.begin(), solved_facts_.end());
  for (const SizeFact& f : facts_) out.push_back({resolve(f.a), f.relation, resolve(f.b), f.where});
  std::erase_if(out, [](const SizeFact& f) { return f.a.is_const() && f.b.is_const(); });
  return out;
}

}  // namespace bolt::lower
