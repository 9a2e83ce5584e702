// support/sym.cpp
// Sym expressions: interning and the canonical form.
//
// Every expression is kept as a polynomial: a sum of integer * monomial, a monomial being a sorted product of
// atoms (symbols, floor divisions, moduli, minima, maxima). Sums are multiplied out, so that (s0 + 1)*s1 and
// s0*s1 + s1 are one node; only products of very long sums stay factored (kMaxExpand), which costs precision,
// never correctness.
//
// The order of terms and factors is structural (names, then shape), not the order of creation: the text of an
// expression, and with it every cache key, is the same in every process and under any thread timing.
//
// Division is floor division, so (c*q + r)//c = q + r//c holds for any signs. Rules that need more (x//c = 0,
// x%c = x) ask the bounds, which each node carries.
#include "support/sym.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "support/error.h"
#include "support/size_demand.h"

namespace bolt {

Sym make_sym(const SymNode* node) {
  Sym s;
  s.node_ = node;
  return s;
}

namespace {

constexpr int64_t kNoLower = INT64_MIN;
constexpr size_t kMaxExpand = 64;

// Two's complement wrap instead of undefined behaviour: an absurd size must give an absurd size, not a crash.
int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t floor_quotient(int64_t a, int64_t b) {
  BOLT_CHECK(b != 0, "division of a size by zero");
  if (b == -1) return wrap_mul(a, -1);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
int64_t floor_remainder(int64_t a, int64_t b) { return wrap_add(a, -wrap_mul(floor_quotient(a, b), b)); }

// ---- interning ----

struct NodeHash {
  size_t operator()(const SymNode* n) const {
    size_t h = static_cast<size_t>(n->op) * 0x9e3779b97f4a7c15ull + std::hash<std::string>()(n->name);
    for (Sym a : n->args) h = (h ^ std::hash<Sym>()(a)) * 0x100000001b3ull + (h >> 29);
    if (n->op != SymOp::Symbol) return h;
    return h ^ static_cast<size_t>(n->upper) ^ static_cast<size_t>(n->what.kind) << 56;
  }
};
struct NodeEqual {
  bool operator()(const SymNode* a, const SymNode* b) const {
    return a->op == b->op && a->name == b->name && a->args == b->args &&
           (a->op != SymOp::Symbol || (a->upper == b->upper && a->what.kind == b->what.kind));
  }
};

struct Table {
  std::mutex mutex;
  std::deque<SymNode> nodes;
  std::unordered_set<const SymNode*, NodeHash, NodeEqual> index;
};
Table& table() {
  static Table* t = new Table;  // never destroyed: static objects may hold Syms
  return *t;
}

// ---- bounds ----

struct Bounds {
  int64_t lower = kNoLower;  // inclusive
  int64_t upper = 0;         // exclusive, 0 unknown (so a maximum of -1 is not expressed)
  bool has_lower() const { return lower != kNoLower; }
  bool has_upper() const { return upper != 0; }
};

Bounds bounds_of(Sym a) {
  if (a.is_const()) {
    int64_t v = a.value();
    return {v, v == INT64_MAX ? 0 : v + 1};
  }
  return {a.node()->lower, a.node()->upper};
}

Bounds from_wide(std::optional<__int128> lower, std::optional<__int128> maximum) {
  Bounds b;
  if (lower && *lower > INT64_MIN && *lower <= INT64_MAX) b.lower = static_cast<int64_t>(*lower);
  if (maximum && *maximum + 1 > INT64_MIN && *maximum < INT64_MAX)
    b.upper = static_cast<int64_t>(*maximum + 1);
  return b;
}

Bounds add_bounds(const Syms& args) {
  std::optional<__int128> lo = 0, hi = 0;
  for (Sym a : args) {
    Bounds b = bounds_of(a);
    lo = lo && b.has_lower() ? std::optional<__int128>(*lo + b.lower) : std::nullopt;
    hi = hi && b.has_upper() ? std::optional<__int128>(*hi + b.upper - 1) : std::nullopt;
  }
  return from_wide(lo, hi);
}

// Products: exact for non-negative factors, times one constant of any sign (it is the last factor).
Bounds mul_bounds(const Syms& args) {
  std::optional<__int128> lo = 1, hi = 1;
  for (Sym a : args) {
    Bounds b = bounds_of(a);
    if (a.is_const() && b.lower < 0) {
      std::optional<__int128> old_lo = lo;
      lo = hi ? std::optional<__int128>(*hi * b.lower) : std::nullopt;
      hi = old_lo ? std::optional<__int128>(*old_lo * b.lower) : std::nullopt;
      continue;
    }
    if (!b.has_lower() || b.lower < 0) return {};
    lo = lo ? std::optional<__int128>(*lo * b.lower) : std::nullopt;
    hi = hi && b.has_upper() ? std::optional<__int128>(*hi * (b.upper - 1)) : std::nullopt;
    if (lo && *lo > INT64_MAX) lo = 0;
    if (hi && *hi > INT64_MAX) hi = std::nullopt;
  }
  return from_wide(lo, hi);
}

Bounds division_bounds(SymOp op, Sym a, Sym b) {
  Bounds x = bounds_of(a), y = bounds_of(b);
  if (!y.has_lower() || y.lower < 0) return {};
  if (op == SymOp::Mod) {
    Bounds r{0, y.has_upper() ? y.upper - 1 : 0};  // below the divisor, and not above the dividend
    if (x.has_lower() && x.lower >= 0 && x.has_upper() && (!r.upper || x.upper < r.upper)) r.upper = x.upper;
    return r;
  }
  int64_t divisor = std::max<int64_t>(y.lower, 1);  // the smallest divisor gives the largest quotient
  Bounds r;
  if (x.has_lower() && x.lower >= 0) r.lower = b.is_const() ? floor_quotient(x.lower, divisor) : 0;
  if (x.has_lower() && x.lower < 0) r.lower = floor_quotient(x.lower, divisor);
  if (x.has_upper() && x.upper > 0) r.upper = floor_quotient(x.upper - 1, divisor) + 1;
  return r;
}

Bounds extremum_bounds(SymOp op, Sym a, Sym b) {
  Bounds x = bounds_of(a), y = bounds_of(b), r;
  bool is_min = op == SymOp::Min;
  if (x.has_lower() && y.has_lower())
    r.lower = is_min ? std::min(x.lower, y.lower) : std::max(x.lower, y.lower);
  if (!is_min && !r.has_lower()) r.lower = x.has_lower() ? x.lower : y.lower;
  if (x.has_upper() && y.has_upper())
    r.upper = is_min ? std::min(x.upper, y.upper) : std::max(x.upper, y.upper);
  if (is_min && !r.has_upper()) r.upper = x.has_upper() ? x.upper : y.upper;
  return r;
}

Bounds node_bounds(SymOp op, const Syms& args) {
  switch (op) {
    case SymOp::Add: return add_bounds(args);
    case SymOp::Mul: return mul_bounds(args);
    case SymOp::FloorDiv:
    case SymOp::Mod: return division_bounds(op, args[0], args[1]);
    case SymOp::Min:
    case SymOp::Max: return extremum_bounds(op, args[0], args[1]);
    case SymOp::Symbol: break;
  }
  return {};
}

Sym intern(SymOp op, std::string name, Syms args, int64_t upper, SymbolId what) {
  SymNode probe{op, std::move(name), std::move(args), 0, upper, 0, what};
  Bounds b = op == SymOp::Symbol ? Bounds{0, upper} : node_bounds(op, probe.args);
  probe.lower = b.lower;
  probe.upper = b.upper;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  if (auto it = t.index.find(&probe); it != t.index.end()) return make_sym(*it);
  probe.id = t.nodes.size();
  const SymNode& node = t.nodes.emplace_back(std::move(probe));
  t.index.insert(&node);
  return make_sym(&node);
}
Sym intern(SymOp op, Syms args) { return intern(op, {}, std::move(args), 0, {}); }

// ---- structural order ----

int compare(Sym a, Sym b) {
  if (a == b) return 0;
  if (a.is_const() || b.is_const()) {
    if (a.is_const() != b.is_const()) return a.is_const() ? 1 : -1;
    return a.value() < b.value() ? -1 : 1;
  }
  const SymNode &x = *a.node(), &y = *b.node();
  if (x.op != y.op) return x.op < y.op ? -1 : 1;
  if (x.op == SymOp::Symbol) {  // d2 before d10
    if (x.name.size() != y.name.size()) return x.name.size() < y.name.size() ? -1 : 1;
    if (int c = x.name.compare(y.name)) return c;
    if (x.upper != y.upper) return x.upper < y.upper ? -1 : 1;
    return x.what.kind < y.what.kind ? -1 : 1;
  }
  for (size_t i = 0; i < std::min(x.args.size(), y.args.size()); ++i)
    if (int c = compare(x.args[i], y.args[i])) return c;
  return x.args.size() > y.args.size() ? -1 : 1;
}
bool before(Sym a, Sym b) { return compare(a, b) < 0; }

// ---- polynomials ----

Syms factors_of(Sym term) {
  if (term.node()->op == SymOp::Mul) return term.node()->args;
  return {term};
}

// Monomials: factor by factor, the longer product first where one is a prefix of the other.
bool monomial_before(Sym a, Sym b) {
  if (a == b) return false;
  bool product_a = a.node()->op == SymOp::Mul, product_b = b.node()->op == SymOp::Mul;
  if (!product_a && !product_b) return before(a, b);
  Syms x = factors_of(a), y = factors_of(b);
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (int c = compare(x[i], y[i])) return c < 0;
  return x.size() > y.size();
}

struct Poly {
  std::vector<SymTerm> terms;
  int64_t constant = 0;
};

Sym monomial(Syms factors) {
  if (factors.size() == 1) return factors[0];
  std::sort(factors.begin(), factors.end(), before);
  return intern(SymOp::Mul, std::move(factors));
}

SymTerm split_coefficient(Sym a) {
  const SymNode& n = *a.node();
  if (n.op != SymOp::Mul || !n.args.back().is_const()) return {1, a};
  return {n.args.back().value(), monomial(Syms(n.args.begin(), n.args.end() - 1))};
}

Poly to_poly(Sym a) {
  Poly p;
  if (a.is_const()) {
    p.constant = a.value();
  } else if (a.node()->op == SymOp::Add) {
    for (Sym arg : a.node()->args) {
      if (arg.is_const()) {
        p.constant = arg.value();
      } else {
        p.terms.push_back(split_coefficient(arg));
      }
    }
  } else {
    p.terms.push_back(split_coefficient(a));
  }
  return p;
}

Sym scaled(SymTerm t) {
  if (t.coef == 1) return t.term;
  Syms factors = factors_of(t.term);
  factors.push_back(t.coef);
  return intern(SymOp::Mul, std::move(factors));
}

bool collect_like_terms(Poly& p) {
  std::sort(p.terms.begin(), p.terms.end(),
            [](const SymTerm& a, const SymTerm& b) { return monomial_before(a.term, b.term); });
  std::vector<SymTerm> out;
  for (const SymTerm& t : p.terms) {
    if (!out.empty() && out.back().term == t.term) {
      out.back().coef = wrap_add(out.back().coef, t.coef);
    } else {
      out.push_back(t);
    }
  }
  std::erase_if(out, [](const SymTerm& t) { return t.coef == 0; });
  bool changed = out.size() != p.terms.size();
  p.terms = std::move(out);
  return changed;
}

// k*(x%m) + k*m*(x//m) = k*x, and the same with the quotient itself under a modulus:
// k*(x%m) + k*m*((x//m)%n) = k*(x%(m*n)). Undoes what a reshape and its inverse did to an index.
std::optional<Sym> recombine(const SymTerm& low, const SymTerm& high) {
  const SymNode& mod_node = *low.term.node();
  if (mod_node.op != SymOp::Mod || !mod_node.args[1].is_const()) return std::nullopt;
  Sym x = mod_node.args[0];
  int64_t m = mod_node.args[1].value();
  if (high.coef != wrap_mul(low.coef, m)) return std::nullopt;
  Sym quotient = floordiv(x, m);
  if (high.term == quotient) return x * Sym(low.coef);
  const SymNode& h = *high.term.node();
  if (h.op != SymOp::Mod || h.args[0] != quotient || !h.args[1].is_const()) return std::nullopt;
  return mod(x, wrap_mul(m, h.args[1].value())) * Sym(low.coef);
}

Sym from_poly(Poly p);

// k*(x%m) - k*x = -k*m*(x//m), k being a number or a product, and the terms of x standing anywhere in the
// sum, beside multiples of k*m: s + (-s)%m is a multiple of m, and so is s - s%m.
std::optional<Sym> round(const Poly& p, size_t at) {
  const Syms factors = factors_of(p.terms[at].term);
  for (size_t f = 0; f < factors.size(); ++f) {
    const SymNode& n = *factors[f].node();
    if (n.op != SymOp::Mod || !n.args[1].is_const()) continue;
    Sym k = p.terms[at].coef;
    for (size_t i = 0; i < factors.size(); ++i)
      if (i != f) k *= factors[i];
    const Poly x = to_poly(n.args[0] * k);
    const int64_t step = wrap_mul(p.terms[at].coef, n.args[1].value());
    Poly rest;
    rest.constant = wrap_add(p.constant, x.constant);
    size_t met = 0;  // terms of x
    for (size_t i = 0; i < p.terms.size(); ++i) {
      if (i == at) continue;
      SymTerm t = p.terms[i];
      for (const SymTerm& u : x.terms) {
        if (u.term != t.term || wrap_add(u.coef, t.coef) % step != 0) continue;
        t.coef = wrap_add(u.coef, t.coef);
        ++met;
      }
      if (t.coef != 0) rest.terms.push_back(t);
    }
    if (met != x.terms.size()) continue;
    return from_poly(std::move(rest)) - k * n.args[1] * floordiv(n.args[0], n.args[1]);
  }
  return std::nullopt;
}

std::optional<Sym> recombine_any(const Poly& p) {
  for (size_t i = 0; i < p.terms.size(); ++i) {
    if (std::optional<Sym> rounded = round(p, i)) return rounded;
    if (p.terms[i].term.node()->op != SymOp::Mod) continue;
    for (size_t j = 0; j < p.terms.size(); ++j) {
      if (i == j) continue;
      std::optional<Sym> joined = recombine(p.terms[i], p.terms[j]);
      if (!joined) continue;
      Poly rest;
      rest.constant = p.constant;
      for (size_t k = 0; k < p.terms.size(); ++k)
        if (k != i && k != j) rest.terms.push_back(p.terms[k]);
      return from_poly(std::move(rest)) + *joined;
    }
  }
  return std::nullopt;
}

Sym from_poly(Poly p) {
  collect_like_terms(p);
  if (p.terms.empty()) return p.constant;
  if (p.terms.size() > 1)
    if (std::optional<Sym> joined = recombine_any(p)) return *joined;
  if (p.terms.size() == 1 && p.constant == 0) return scaled(p.terms[0]);
  Syms args;
  args.reserve(p.terms.size() + 1);
  for (const SymTerm& t : p.terms) args.push_back(scaled(t));
  if (p.constant != 0) args.push_back(p.constant);
  return intern(SymOp::Add, std::move(args));
}

Sym multiply_monomials(Sym a, Sym b) {
  Syms factors = factors_of(a), more = factors_of(b);
  factors.insert(factors.end(), more.begin(), more.end());
  return monomial(std::move(factors));
}

// ---- division ----

/// term/divisor where divisor's factors all occur in term; 1 has no node, hence the Sym result.
std::optional<Sym> divide_monomial(SymTerm t, SymTerm divisor) {
  if (divisor.coef == 0 || t.coef % divisor.coef != 0) return std::nullopt;
  Syms factors = factors_of(t.term);
  for (Sym f : factors_of(divisor.term)) {
    auto it = std::find(factors.begin(), factors.end(), f);
    if (it == factors.end()) return std::nullopt;
    factors.erase(it);
  }
  Sym rest = factors.empty() ? Sym(1) : monomial(std::move(factors));
  return rest * Sym(t.coef / divisor.coef);
}

struct Division {
  Sym quotient;
  Poly remainder;
};

/// a = quotient*b + remainder, taking out whatever is plainly a multiple of b.
Division divide(Sym a, Sym b) {
  Poly p = to_poly(a);
  Division d;
  if (b.is_const()) {
    int64_t c = b.value();
    for (const SymTerm& t : p.terms) {
      if (t.coef % c == 0) {
        d.quotient += t.term * Sym(t.coef / c);
      } else {
        d.remainder.terms.push_back(t);
      }
    }
    d.quotient += floor_quotient(p.constant, c);
    d.remainder.constant = floor_remainder(p.constant, c);
    return d;
  }
  d.remainder.constant = p.constant;
  SymTerm divisor = split_coefficient(b);
  if (b.node()->op == SymOp::Add) divisor = {1, b};
  for (const SymTerm& t : p.terms) {
    if (std::optional<Sym> q = divide_monomial(t, divisor)) {
      d.quotient += *q;
    } else {
      d.remainder.terms.push_back(t);
    }
  }
  return d;
}

bool in_range(Sym r, int64_t c) {
  Bounds b = bounds_of(r);
  return b.has_lower() && b.lower >= 0 && b.has_upper() && b.upper <= c;
}

int64_t common_factor(const Poly& p, int64_t c) {
  int64_t g = c;
  for (const SymTerm& t : p.terms) g = std::gcd(g, t.coef);
  return g;
}

Poly divided(Poly p, int64_t g) {
  for (SymTerm& t : p.terms) t.coef /= g;
  p.constant = floor_quotient(p.constant, g);
  return p;
}

/// r = step*whole + part with 0 <= part < step and step a divisor of c: what reshaping over several
/// dimensions leaves.
struct Peeled {
  int64_t step;
  Sym whole, part;
};
std::optional<Peeled> peel(Sym r, int64_t c) {
  Poly p = to_poly(r);
  std::vector<int64_t> steps;
  for (const SymTerm& t : p.terms)
    if (int64_t g = std::gcd(t.coef, c); g > 1) steps.push_back(g);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  for (int64_t g : steps) {
    Poly whole, part;
    for (const SymTerm& t : p.terms)
      if (t.coef % g == 0)
        whole.terms.push_back({t.coef / g, t.term});
      else
        part.terms.push_back(t);
    whole.constant = floor_quotient(p.constant, g);
    part.constant = floor_remainder(p.constant, g);
    Sym rest = from_poly(std::move(part));
    if (in_range(rest, g)) return Peeled{g, from_poly(std::move(whole)), rest};
  }
  return std::nullopt;
}

Sym floordiv_rest(Sym r, int64_t c) {
  if (r.is_const() || in_range(r, c)) return r.is_const() ? Sym(floor_quotient(r.value(), c)) : Sym(0);
  const SymNode& n = *r.node();
  if (n.op == SymOp::FloorDiv && n.args[1].is_const() && n.args[1].value() > 0)
    return floordiv(n.args[0], wrap_mul(n.args[1].value(), c));
  if (n.op == SymOp::Mod && n.args[1].is_const() && n.args[1].value() % c == 0)
    return mod(floordiv(n.args[0], c), n.args[1].value() / c);
  // (g*q + k) // (g*c) = q // c for 0 <= k < g
  if (std::optional<Peeled> p = peel(r, c)) return floordiv(p->whole, c / p->step);
  // Of a negative number rounding down is rounding up: one form for (x + c - 1)//c and -(-x//c).
  const Poly terms = to_poly(r);
  if (std::all_of(terms.terms.begin(), terms.terms.end(), [](const SymTerm& t) { return t.coef < 0; }))
    return floordiv(Sym(c - 1) - r, c) * Sym(-1);
  return intern(SymOp::FloorDiv, {r, c});
}

/// k*(x%m) is k*x under a modulus that divides k*m.
Sym without_moduli(Sym r, int64_t c) {
  Poly p = to_poly(r), plain;
  Sym opened = 0;
  for (const SymTerm& t : p.terms) {
    const SymNode& n = *t.term.node();
    if (n.op == SymOp::Mod && n.args[1].is_const() && wrap_mul(t.coef, n.args[1].value()) % c == 0)
      opened += n.args[0] * Sym(t.coef);
    else
      plain.terms.push_back(t);
  }
  if (plain.terms.size() == p.terms.size()) return r;
  plain.constant = p.constant;
  return from_poly(std::move(plain)) + opened;
}

Sym mod_rest(Sym r, int64_t c) {
  if (r.is_const()) return floor_remainder(r.value(), c);
  if (in_range(r, c)) return r;
  const SymNode& n = *r.node();
  if (n.op == SymOp::Mod && n.args[1].is_const() && n.args[1].value() % c == 0) return mod(n.args[0], c);
  // (g*q + k) % (g*c) = g*(q % c) + k for 0 <= k < g
  if (std::optional<Peeled> p = peel(r, c)) return mod(p->whole, c / p->step) * Sym(p->step) + p->part;
  if (Sym inner = without_moduli(r, c); inner != r) return mod(inner, c);
  return intern(SymOp::Mod, {r, c});
}

}  // namespace

// ---- the interface ----

Sym Sym::symbol(std::string_view name, int64_t upper, SymbolId what) {
  return intern(SymOp::Symbol, std::string(name), {}, upper, what);
}

int64_t Sym::value() const {
  if (node_) throw SizeDemand(*this);
  return value_;
}

SizeDemand::SizeDemand(Sym known)
    : Error(ErrorKind::Internal, "the size " + known.str() + " is not known here"), a(known) {}
SizeDemand::SizeDemand(Sym x, Sym y)
    : Error(ErrorKind::Internal, "the sizes " + x.str() + " and " + y.str() + " may differ"),
      a(x),
      b(y),
      equal(true) {}
SizeDemand::~SizeDemand() = default;

bool same_size(Sym a, Sym b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return false;
  throw SizeDemand(a, b);
}

Sym operator+(Sym a, Sym b) {
  if (a.is_const() && b.is_const()) return wrap_add(a.value_, b.value_);
  if (a.is_const(0)) return b;
  if (b.is_const(0)) return a;
  Poly p = to_poly(a), q = to_poly(b);
  p.terms.insert(p.terms.end(), q.terms.begin(), q.terms.end());
  p.constant = wrap_add(p.constant, q.constant);
  return from_poly(std::move(p));
}

Sym operator*(Sym a, Sym b) {
  if (a.is_const() && b.is_const()) return wrap_mul(a.value_, b.value_);
  if (a.is_const()) std::swap(a, b);
  if (b.is_const(0)) return 0;
  if (b.is_const(1)) return a;
  Poly p = to_poly(a), q = to_poly(b), out;
  if (!b.is_const() && (p.terms.size() + 1) * (q.terms.size() + 1) > kMaxExpand) return monomial({a, b});
  out.constant = wrap_mul(p.constant, q.constant);
  for (const SymTerm& t : p.terms) {
    if (q.constant) out.terms.push_back({wrap_mul(t.coef, q.constant), t.term});
    for (const SymTerm& u : q.terms)
      out.terms.push_back({wrap_mul(t.coef, u.coef), multiply_monomials(t.term, u.term)});
  }
  for (const SymTerm& u : q.terms)
    if (p.constant) out.terms.push_back({wrap_mul(p.constant, u.coef), u.term});
  return from_poly(std::move(out));
}

Sym floordiv(Sym a, Sym b) {
  if (a.is_const() && b.is_const()) return floor_quotient(a.value(), b.value());
  if (b.is_const(1)) return a;
  if (a == b) return 1;
  if (a.is_const(0)) return 0;
  BOLT_CHECK(!b.is_const(0), "division of a size by zero");
  if (b.is_const() && b.value() < 0) return floordiv(a * Sym(-1), b * Sym(-1));
  Division d = divide(a, b);
  if (!b.is_const()) {
    Sym r = from_poly(std::move(d.remainder));
    return r.is_const(0) ? d.quotient : d.quotient + intern(SymOp::FloorDiv, {r, b});
  }
  int64_t g = common_factor(d.remainder, b.value());
  return d.quotient + floordiv_rest(from_poly(divided(std::move(d.remainder), g)), b.value() / g);
}

Sym mod(Sym a, Sym b) {
  if (a.is_const() && b.is_const()) return floor_remainder(a.value(), b.value());
  if (b.is_const(1) || a == b || a.is_const(0)) return 0;
  BOLT_CHECK(!b.is_const(0), "division of a size by zero");
  Division d = divide(a, b);
  if (!b.is_const()) {
    Sym r = from_poly(std::move(d.remainder));
    return r.is_const(0) ? Sym(0) : intern(SymOp::Mod, {r, b});
  }
  int64_t c = b.value();
  if (c < 0) return intern(SymOp::Mod, {a, b});
  for (SymTerm& t : d.remainder.terms) t.coef %= c;
  // (g*r + k) % (g*c) = g*((r + k//g) % c) + k%g
  int64_t g = common_factor(d.remainder, c);
  int64_t offset = floor_remainder(d.remainder.constant, g);
  return mod_rest(from_poly(divided(std::move(d.remainder), g)), c / g) * Sym(g) + Sym(offset);
}

namespace {
Sym extremum(SymOp op, Sym a, Sym b) {
  if (a == b) return a;
  // Both ways by the lower bound: an upper bound cannot say that a difference is at most -1.
  Bounds over = bounds_of(a - b), under = bounds_of(b - a);
  bool a_larger = over.has_lower() && over.lower >= 0;
  bool b_larger = under.has_lower() && under.lower >= 0;
  if (a_larger) return op == SymOp::Max ? a : b;
  if (b_larger) return op == SymOp::Max ? b : a;
  if (before(b, a)) std::swap(a, b);
  return intern(op, {a, b});
}
}  // namespace

Sym min(Sym a, Sym b) { return extremum(SymOp::Min, a, b); }
Sym max(Sym a, Sym b) { return extremum(SymOp::Max, a, b); }

Sym product(const Syms& xs) {
  Sym r = 1;
  for (Sym x : xs) r *= x;
  return r;
}

bool all_known(const Syms& xs) {
  return std::all_of(xs.begin(), xs.end(), [](Sym x) { return x.is_const(); });
}

std::vector<int64_t> to_numbers(const Syms& xs) {
  std::vector<int64_t> out;
  for (Sym x : xs) out.push_back(x.value());
  return out;
}

int64_t upper_bound(Sym a) { return bounds_of(a).upper; }
int64_t lower_bound(Sym a) { return bounds_of(a).lower; }

bool divisible(Sym a, int64_t c) {
  if (c == 1 || c == -1) return true;
  if (c == 0) return a.is_const(0);
  if (a.is_const()) return a.value() % c == 0;
  const SymNode& n = *a.node();
  switch (n.op) {
    case SymOp::Symbol:
    case SymOp::FloorDiv: return false;
    case SymOp::Mul: {
      int64_t g = n.args.back().is_const() ? std::gcd(n.args.back().value(), c) : 1;
      return std::any_of(n.args.begin(), n.args.end(),
                         [&](Sym f) { return !f.is_const() && divisible(f, c / g); }) ||
             g == std::abs(c);
    }
    case SymOp::Mod:
    case SymOp::Add:
    case SymOp::Min:
    case SymOp::Max: return std::all_of(n.args.begin(), n.args.end(), [&](Sym x) { return divisible(x, c); });
  }
  return false;
}

std::vector<SymTerm> sum_terms(Sym a, int64_t* constant) {
  Poly p = to_poly(a);
  if (constant) *constant = p.constant;
  return p.terms;
}

Sym substitute(Sym a, const std::function<Sym(Sym)>& fn) {
  if (a.is_const()) return a;
  const SymNode& n = *a.node();
  if (n.op == SymOp::Symbol) return fn(a);
  Syms args;
  args.reserve(n.args.size());
  for (Sym arg : n.args) args.push_back(substitute(arg, fn));
  if (args == n.args) return a;
  Sym r = args[0];
  switch (n.op) {
    case SymOp::Add:
      for (size_t i = 1; i < args.size(); ++i) r += args[i];
      return r;
    case SymOp::Mul: return product(args);
    case SymOp::FloorDiv: return floordiv(args[0], args[1]);
    case SymOp::Mod: return mod(args[0], args[1]);
    case SymOp::Min: return min(args[0], args[1]);
    case SymOp::Max: return max(args[0], args[1]);
    case SymOp::Symbol: break;
  }
  return r;
}

void collect_symbols(Sym a, Syms* out) {
  if (a.is_const()) return;
  if (a.node()->op == SymOp::Symbol) {
    if (std::find(out->begin(), out->end(), a) == out->end()) out->push_back(a);
    return;
  }
  for (Sym arg : a.node()->args) collect_symbols(arg, out);
}

int64_t evaluate(Sym a, const std::function<int64_t(const SymNode&)>& fn) {
  if (a.is_const()) return a.value();
  const SymNode& n = *a.node();
  if (n.op == SymOp::Symbol) return fn(n);
  int64_t r = evaluate(n.args[0], fn);
  for (size_t i = 1; i < n.args.size(); ++i) {
    int64_t x = evaluate(n.args[i], fn);
    switch (n.op) {
      case SymOp::Add: r = wrap_add(r, x); break;
      case SymOp::Mul: r = wrap_mul(r, x); break;
      case SymOp::FloorDiv: r = floor_quotient(r, x); break;
      case SymOp::Mod: r = floor_remainder(r, x); break;
      case SymOp::Min: r = std::min(r, x); break;
      case SymOp::Max: r = std::max(r, x); break;
      case SymOp::Symbol: break;
    }
  }
  return r;
}

}  // namespace bolt
