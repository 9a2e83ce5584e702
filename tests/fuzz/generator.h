// tests/fuzz/generator.h
// Seed -> a random graph with the data of its inputs, every value of which is finite and well conditioned.
//
// The graph grows node by node. Each attempt picks a family (families()), operands from the values there are
// (recent ones more often, so that chains form) and attributes; the node is computed at once and kept only if
// it is defined in the IR and rounding does not move it far (samples.h). What is undefined and so never asked
// for: division of integers by zero, shifts past the width, casts to integers out of range, NaN and
// infinities.
#pragma once

#include <algorithm>
#include <random>

#include "graph/pointwise.h"
#include "support/error.h"
#include "tests/fuzz/samples.h"

namespace bolt::fuzz {

struct Limits {
  int nodes = 14;
  int64_t size = 40;        // of one dimension
  int64_t numel = 1 << 12;  // of one value
};

struct Case {
  std::unique_ptr<Graph> graph;
  std::vector<HostTensor> inputs;
};

class Generator {
 public:
  Generator(unsigned seed, Limits limits) : limits_(limits), random_(seed) {}

  Case run() {
    case_.graph = std::make_unique<Graph>();
    case_.graph->name = "fuzz";
    for (int i = 0, n = 1 + below(3); i < n; ++i) new_input(random_sizes(), random_dtype());
    int wanted = 1 + below(limits_.nodes);
    // Refused attempts cost little; the bound is for pools in which nothing fits.
    for (int tries = 0; kept_ < wanted && tries < 20 * wanted; ++tries) (this->*any(families()))();
    choose_outputs();
    case_.graph->renumber();
    return std::move(case_);
  }

 private:
  using Family = void (Generator::*)();
  using Sizes = std::vector<int64_t>;

  static const std::vector<Family>& families() {
    using G = Generator;
    static const std::vector<Family> table = {
        &G::real_unary, &G::real_unary,   &G::whole_unary, &G::binary,     &G::binary,  &G::binary,
        &G::compare,    &G::select,       &G::cast,        &G::reshape,    &G::permute, &G::expand,
        &G::slice,      &G::flip,         &G::reduce,      &G::reduce,     &G::average, &G::cat,
        &G::pad,        &G::embedding,    &G::gather,      &G::scatter,    &G::softmax, &G::layer_norm,
        &G::group_norm, &G::batch_norm,   &G::pool,        &G::linear,     &G::matmul,  &G::conv,
        &G::create,     &G::index_select, &G::upsample,    &G::as_strided, &G::scan,    &G::scatter_at};
    return table;
  }

  // ---- chance ----

  int below(int64_t n) {
    return static_cast<int>(random_() % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  const T& any(const std::vector<T>& xs) {
    return xs[static_cast<size_t>(below(static_cast<int64_t>(xs.size())))];
  }
  double number() { return (below(33) - 16) / 8.0; }

  int64_t random_size() {
    // Around the widths of vectors and their tails; 1 for broadcasts.
    static const Sizes sizes = {1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40};
    return std::min(any(sizes), limits_.size);
  }
  Sizes random_sizes(int rank = -1) {
    Sizes sizes(static_cast<size_t>(rank < 0 ? below(5) : rank));
    int64_t numel = 1;
    for (int64_t& s : sizes) {
      s = std::min(random_size(), std::max<int64_t>(1, limits_.numel / numel));
      numel *= s;
    }
    std::shuffle(sizes.begin(), sizes.end(), random_);
    return sizes;
  }
  DType random_real() {
    return any<DType>({DType::F32, DType::F32, DType::F32, DType::F64, DType::BF16, DType::BF16, DType::F16});
  }
  DType random_dtype() {
    static const std::vector<DType> whole = {DType::I64, DType::I32, DType::I16,
                                             DType::I8,  DType::U8,  DType::Bool};
    return chance(75) ? random_real() : any(whole);
  }

  // ---- values ----

  static Sizes sizes_of(const Value* v) {
    Sizes out;
    for (Sym s : v->type.sizes) out.push_back(s.value());
    return out;
  }
  static Syms syms(const Sizes& xs) { return {xs.begin(), xs.end()}; }

  /// Strides of an input: row-major, a permutation, or with gaps between the rows.
  Syms random_strides(const Sizes& sizes) {
    Syms strides = graph::contiguous_strides(syms(sizes));
    if (sizes.size() < 2 || chance(60)) return strides;
    if (chance(50)) {
      std::vector<int> order(sizes.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      std::shuffle(order.begin(), order.end(), random_);
      return graph::strides_in_order(syms(sizes), order);
    }
    Syms larger = syms(sizes);
    larger.back() += Sym(1 + below(4));
    return graph::contiguous_strides(larger);
  }

  Value* new_input(const Sizes& sizes, DType t, int64_t limit = 6, int param_percent = 15) {
    graph::Type type{t, {}, syms(sizes), random_strides(sizes)};
    auto kind = chance(param_percent) ? graph::InputKind::Param : graph::InputKind::Arg;
    HostTensor data = graph::make_tensor(t, sizes);
    for (graph::Cell& c : data.cells) {
      if (data.is_real())
        c.real = static_cast<double>(below(129) - 64) / 32;  // exact in every floating type
      else
        c.whole = below(t == DType::Bool ? 2 : limit);
    }
    Value* v = case_.graph->add_input(type, kind);
    samples_[v] = samples_of_input(data);
    case_.inputs.push_back(std::move(data));
    pool_.push_back(v);
    return v;
  }

  Value* pick() {
    size_t n = pool_.size();
    size_t a = random_() % n, b = random_() % n;
    return pool_[std::max(a, b)];
  }
  template <typename Fits>
  Value* pick_where(Fits fits) {
    for (int i = 0; i < 12; ++i)
      if (Value* v = pick(); fits(v)) return v;
    return nullptr;
  }
  Value* pick_real() {
    Value* v = pick_where([](Value* x) { return is_float(x->type.dtype); });
    return v ? v : new_input(random_sizes(), random_real());
  }
  Value* pick_whole() {
    Value* v = pick_where([](Value* x) { return is_int(x->type.dtype); });
    return v ? v : new_input(random_sizes(), chance(60) ? DType::I64 : DType::I32);
  }
  Value* pick_ranked(int at_least) {
    Value* v = pick_where([&](Value* x) { return x->type.rank() >= at_least; });
    return v ? v : new_input(random_sizes(at_least), random_dtype());
  }
  Value* pick_real_ranked(int at_least) {
    Value* v = pick_where([&](Value* x) { return is_float(x->type.dtype) && x->type.rank() >= at_least; });
    return v ? v : new_input(random_sizes(at_least), random_real());
  }

  /// A value that broadcasts against `a`: one of the pool, a number, or a new input with some sizes 1.
  Value* partner(const Value* a) {
    DType t = a->type.dtype;
    if (chance(50)) {
      Value* v = pick_where([&](Value* x) { return x->type.dtype == t && broadcasts(x, a); });
      if (v) return v;
    }
    if (chance(40)) return scalar(t);
    Sizes sizes = sizes_of(a);
    sizes.erase(sizes.begin(), sizes.begin() + below(static_cast<int64_t>(sizes.size()) + 1));
    for (int64_t& s : sizes)
      if (chance(25)) s = 1;
    return new_input(sizes, t);
  }
  static bool broadcasts(const Value* a, const Value* b) {
    Sizes x = sizes_of(a), y = sizes_of(b);
    for (size_t i = 1; i <= std::min(x.size(), y.size()); ++i) {
      int64_t p = x[x.size() - i], q = y[y.size() - i];
      if (p != q && p != 1 && q != 1) return false;
    }
    return true;
  }
  Value* scalar(DType t) {
    graph::Attr value = is_float(t) ? graph::Attr(number()) : graph::Attr(static_cast<int64_t>(1 + below(4)));
    if (t == DType::Bool) value = chance(50);
    return keep(Op::scalar, {}, {{"value", value}, {"dtype", t}});
  }

  // ---- nodes ----

  /// Adds the node if it can be had; nullptr otherwise.
  Value* keep(Op op, std::vector<Value*> operands, graph::Attrs attrs = {}) {
    if (std::count(operands.begin(), operands.end(), nullptr)) return nullptr;
    Node* n = nullptr;
    try {
      n = case_.graph->make(op, std::move(operands), std::move(attrs));
    } catch (const Error&) {
      return nullptr;  // sizes or types do not fit
    }
    if (n->out()->type.numel().value() <= limits_.numel && defined(*n)) {
      Samples s = samples_of_node(*n, samples_);
      if (well_conditioned(s)) {
        samples_[n->out()] = std::move(s);
        pool_.push_back(n->out());
        ++kept_;
        return n->out();
      }
    }
    case_.graph->erase(n);
    return nullptr;
  }

  static bool well_conditioned(const Samples& s) {
    double spread = s.spread(), magnitude = s.magnitude();
    if (!s.exact.is_real()) return spread == 0;
    double most = s.exact.dtype == DType::F16 ? 1e3 : 1e4;
    for (const HostTensor& run : s.shaken)
      for (graph::Cell c : run.cells)
        if (!std::isfinite(c.real)) return false;
    return magnitude < most && spread <= 64 * shake_of(s.exact.dtype) * std::max(1.0, magnitude);
  }

  bool within(const Value* v, int64_t low, int64_t high) const {
    const HostTensor& t = samples_.at(v).exact;
    return std::all_of(t.cells.begin(), t.cells.end(),
                       [&](graph::Cell c) { return c.whole >= low && c.whole < high; });
  }
  bool defined(const Node& n) const {
    DType to = n.out()->type.dtype;
    bool whole = is_int(n.operands.empty() ? DType::F32 : n.operands[0]->type.dtype);
    switch (n.op) {
      case Op::cast: return cast_in_range(n.operands[0], to);
      case Op::floor_div:
      case Op::trunc_div:
      case Op::remainder:
      case Op::fmod: return !whole || within(n.operands[1], 1, 1000);
      case Op::shift_left:
      case Op::shift_right: return within(n.operands[1], 0, dtype_bytes(to) * 8 - 1);
      case Op::pow: return !whole || within(n.operands[1], 0, 5);
      default: return true;
    }
  }
  bool cast_in_range(const Value* v, DType to) const {
    const HostTensor& t = samples_.at(v).exact;
    if (!t.is_real() || is_float(to) || to == DType::Bool) return true;
    double low = is_signed_int(to) ? -100 : 0;
    return std::all_of(t.cells.begin(), t.cells.end(),
                       [&](graph::Cell c) { return c.real >= low && c.real < 100; });
  }

  // ---- families: pointwise ----

  void real_unary() {
    static const std::vector<Op> ops = [] {
      std::vector<Op> all;
      for (const graph::PointwiseRow& row : graph::pointwise_rows())
        if (row.operands == 1 && row.op != Op::cast && row.op != Op::bitwise_not && row.op != Op::from_bits)
          all.push_back(row.op);
      return all;
    }();
    Op op = any(ops);
    Value* x = pick_real();
    // Half of the time the operand is first brought to where all of these are defined.
    bool positive =
        op == Op::sqrt || op == Op::rsqrt || op == Op::reciprocal || (op >= Op::log && op <= Op::log1p);
    if (positive && chance(70)) x = keep(Op::add, {keep(Op::abs, {x}), half(x->type.dtype)});
    graph::Attrs attrs;
    if (op == Op::gelu && chance(50)) attrs["approximate"] = std::string("tanh");
    if (op == Op::hardtanh && chance(50)) attrs = {{"min", 0.0}, {"max", 1.5}};
    keep(op, {x}, attrs);
  }
  Value* half(DType t) { return keep(Op::scalar, {}, {{"value", 0.5}, {"dtype", t}}); }

  void whole_unary() {
    Value* x = pick_whole();
    keep(any<Op>({Op::neg, Op::abs, Op::sign, Op::bitwise_not, Op::relu, Op::logical_not}), {x});
  }

  void binary() {
    Value* a = pick();
    static const std::vector<Op> real = {
        Op::add,  Op::sub, Op::mul,   Op::mul,     Op::div,     Op::floor_div, Op::trunc_div, Op::remainder,
        Op::fmod, Op::pow, Op::atan2, Op::maximum, Op::minimum, Op::fmax,      Op::fmin,      Op::copysign};
    static const std::vector<Op> whole = {Op::add,        Op::sub,         Op::mul,        Op::floor_div,
                                          Op::trunc_div,  Op::remainder,   Op::fmod,       Op::maximum,
                                          Op::minimum,    Op::bitwise_and, Op::bitwise_or, Op::bitwise_xor,
                                          Op::shift_left, Op::shift_right, Op::pow};
    DType t = a->type.dtype;
    if (t == DType::Bool) {
      keep(any<Op>({Op::bitwise_and, Op::bitwise_or, Op::bitwise_xor}), {a, partner(a)});
    } else if (is_float(t) && chance(8)) {
      keep(Op::fma, {a, partner(a), partner(a)});
    } else {
      Value* b = partner(a);
      if (chance(30)) std::swap(a, b);
      keep(any(is_float(t) ? real : whole), {a, b});
    }
  }

  void compare() {
    Value* a = pick();
    Op op = any<Op>({Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge});
    if (a->type.dtype == DType::Bool && op != Op::eq) op = Op::ne;
    keep(op, {a, partner(a)});
  }

  void select() {
    Value* a = pick();
    Value* condition = pick_where([&](Value* c) { return c->type.dtype == DType::Bool && broadcasts(c, a); });
    if (!condition) {
      Value* b = partner(a);
      condition = b ? keep(a->type.dtype == DType::Bool ? Op::ne : Op::gt, {a, b}) : nullptr;
    }
    keep(Op::where, {condition, a, partner(a)});
  }

  void cast() {
    Value* a = pick();
    keep(Op::cast, {a}, {{"dtype", random_dtype()}});
  }

  void create() {
    DType t = random_dtype();
    if (t == DType::Bool) t = DType::I64;
    if (chance(50)) {
      keep(Op::iota, {},
           {{"size", random_size()},
            {"start", int64_t{below(4)}},
            {"step", int64_t{1 + below(2)}},
            {"dtype", t}});
    } else {
      keep(Op::full, {}, {{"value", int64_t{below(3)}}, {"sizes", syms(random_sizes())}, {"dtype", t}});
    }
  }

  // ---- families: views ----

  void reshape() {
    Value* a = pick();
    Sizes sizes = sizes_of(a);
    for (int i = 0, steps = 1 + below(3); i < steps; ++i) {
      size_t d = sizes.empty() ? 0 : static_cast<size_t>(below(static_cast<int64_t>(sizes.size())));
      auto at = sizes.begin() + static_cast<std::ptrdiff_t>(d);
      if (sizes.empty() || (chance(30) && sizes.size() < 5)) {
        sizes.insert(at, 1);
      } else if (chance(50) && d + 1 < sizes.size()) {  // join with the next
        sizes[d] *= sizes[d + 1];
        sizes.erase(at + 1);
      } else if (sizes.size() < 5) {  // split
        int64_t by = 2 + below(4);
        if (sizes[d] % by) continue;
        sizes[d] /= by;
        sizes.insert(at + below(2), by);
      }
    }
    keep(Op::reshape, {a}, {{"sizes", syms(sizes)}});
  }

  void permute() {
    Value* a = pick_ranked(2);
    Sizes dims;
    for (int i = 0; i < a->type.rank(); ++i) dims.push_back(i);
    std::shuffle(dims.begin(), dims.end(), random_);
    keep(Op::permute, {a}, {{"dims", syms(dims)}});
  }

  void expand() {
    Value* a = pick();
    Sizes sizes = sizes_of(a);
    for (int64_t& s : sizes)
      if (s == 1 && chance(60)) s = random_size();
    if (chance(30) && sizes.size() < 5) sizes.insert(sizes.begin(), random_size());
    keep(Op::expand, {a}, {{"sizes", syms(sizes)}});
  }

  void slice() {
    Value* a = pick_ranked(1);
    int64_t dim = below(a->type.rank()), size = sizes_of(a)[static_cast<size_t>(dim)];
    int64_t start = below(size), step = chance(70) ? 1 : 1 + below(3);
    int64_t length = 1 + below((size - start + step - 1) / step);
    keep(Op::slice, {a}, {{"dim", dim}, {"start", start}, {"length", length}, {"step", step}});
  }

  void flip() {
    Value* a = pick_ranked(1);
    keep(Op::flip, {a}, {{"dims", syms(some_dims(a))}});
  }

  void as_strided() {
    Value* a = pick_ranked(1);
    int64_t numel = a->type.numel().value();
    Sizes sizes = random_sizes(1 + below(2)), strides;
    int64_t last = 0;
    for (int64_t s : sizes) {
      strides.push_back(below(4));
      last += (s - 1) * strides.back();
    }
    if (last >= numel) return;
    keep(Op::as_strided, {a},
         {{"sizes", syms(sizes)}, {"strides", syms(strides)}, {"offset", int64_t{below(numel - last)}}});
  }

  // ---- families: reductions ----

  /// One or more dimensions, in order.
  Sizes some_dims(const Value* a) {
    Sizes dims;
    int64_t sure = below(a->type.rank());
    for (int64_t i = 0; i < a->type.rank(); ++i)
      if (i == sure || chance(30)) dims.push_back(i);
    return dims;
  }

  void reduce() {
    Value* a = pick_ranked(1);
    DType t = a->type.dtype;
    Op op =
        any<Op>({Op::sum, Op::sum, Op::prod, Op::amax, Op::amin, Op::any, Op::all, Op::argmax, Op::argmin});
    if (t == DType::Bool && op != Op::any) op = Op::all;
    // Eager sums and multiplies integers in 64 bits; the cast is part of the graph.
    if ((op == Op::sum || op == Op::prod) && is_int(t) && t != DType::I64)
      a = keep(Op::cast, {a}, {{"dtype", DType::I64}});
    if (!a) return;
    Sizes dims = some_dims(a);
    if (op == Op::argmax || op == Op::argmin) dims.resize(1);
    keep(op, {a}, {{"dims", syms(dims)}, {"keepdim", chance(50)}});
  }

  void average() {
    Value* a = pick_real_ranked(1);
    Op op = any<Op>({Op::mean, Op::mean, Op::var, Op::logsumexp});
    graph::Attrs attrs = {{"dims", syms(some_dims(a))}, {"keepdim", chance(50)}};
    if (op == Op::var) attrs["correction"] = static_cast<double>(below(2));
    keep(op, {a}, attrs);
  }

  // ---- families: indices ----

  void cat() {
    Value* a = pick_ranked(1);
    int64_t dim = below(a->type.rank());
    std::vector<Value*> parts = {a};
    for (int i = 0, n = 1 + below(3); i < n; ++i) {
      Value* b = chance(50) ? pick_where([&](Value* x) {
        if (x->type.dtype != a->type.dtype || x->type.rank() != a->type.rank()) return false;
        Sizes p = sizes_of(x), q = sizes_of(a);
        p[static_cast<size_t>(dim)] = q[static_cast<size_t>(dim)];
        return p == q;
      })
                            : nullptr;
      if (!b) {
        Sizes sizes = sizes_of(a);
        sizes[static_cast<size_t>(dim)] = 1 + below(5);
        b = new_input(sizes, a->type.dtype);
      }
      parts.push_back(b);
    }
    std::shuffle(parts.begin(), parts.end(), random_);
    keep(Op::cat, parts, {{"dim", dim}});
  }

  void pad() {
    Value* a = pick_ranked(1);
    Sizes low, high;
    for (int64_t s : sizes_of(a)) {
      low.push_back(chance(50) ? below(3) : 0);
      high.push_back(chance(50) ? below(4) - 1 : 0);
      if (low.back() + high.back() + s < 1) high.back() = 0;
    }
    graph::Attr value = is_float(a->type.dtype) ? graph::Attr(number()) : graph::Attr(int64_t{below(2)});
    keep(Op::pad, {a}, {{"low", syms(low)}, {"high", syms(high)}, {"value", value}});
  }

  Value* indices(const Sizes& sizes, int64_t limit) {
    return new_input(sizes, chance(70) ? DType::I64 : DType::I32, limit, 5);
  }

  void embedding() {
    Value* table = pick_ranked(1);
    keep(Op::embedding, {table, indices(random_sizes(1 + below(2)), sizes_of(table)[0])});
  }

  void index_select() {
    Value* a = pick_ranked(1);
    int64_t dim = below(a->type.rank());
    Value* index = indices({random_size()}, sizes_of(a)[static_cast<size_t>(dim)]);
    keep(Op::index_select, {a, index}, {{"dim", dim}});
  }

  void gather() {
    Value* a = pick_ranked(1);
    auto dim = static_cast<size_t>(below(a->type.rank()));
    Sizes sizes = sizes_of(a);
    int64_t limit = sizes[dim];
    for (int64_t& s : sizes) s = 1 + below(s);
    sizes[dim] = random_size();
    keep(Op::gather, {a, indices(sizes, limit)}, {{"dim", static_cast<int64_t>(dim)}});
  }

  void scatter() {
    Value* a = pick_ranked(1);
    auto dim = static_cast<size_t>(below(a->type.rank()));
    Sizes sizes = sizes_of(a);
    int64_t start = below(sizes[dim]), step = 1 + below(2);
    sizes[dim] = 1 + below((sizes[dim] - start + step - 1) / step);
    Value* source =
        pick_where([&](Value* x) { return x->type.dtype == a->type.dtype && sizes_of(x) == sizes; });
    if (!source) source = new_input(sizes, a->type.dtype);
    keep(Op::slice_scatter, {a, source},
         {{"dim", static_cast<int64_t>(dim)}, {"start", start}, {"step", step}});
  }

  static bool adds_up(DType t) { return is_float(t) || t == DType::I64 || t == DType::I32; }

  void scan() {
    Value* a = pick_ranked(1);
    if (!adds_up(a->type.dtype)) return;
    static const std::vector<std::string> ops = {"sum", "sum", "max", "min", "logaddexp"};
    const std::string op = any(ops);
    if (op == "logaddexp" && !is_float(a->type.dtype)) return;
    keep(Op::scan, {a}, {{"op", op}, {"dim", int64_t{below(a->type.rank())}}});
  }

  /// Where the last of several would stay, none meet: on some devices they come in any order.
  void scatter_at() {
    Value* a = pick_ranked(1);
    const auto dim = static_cast<size_t>(below(a->type.rank()));
    static const std::vector<std::string> ops = {"last", "sum", "sum", "max", "min"};
    const std::string op = adds_up(a->type.dtype) ? any(ops) : "last";
    Sizes sizes = sizes_of(a);
    const int64_t limit = sizes[dim];
    for (int64_t& s : sizes) s = 1 + below(s);
    sizes[dim] = op == "last" ? 1 : random_size();
    Value* source =
        pick_where([&](Value* x) { return x->type.dtype == a->type.dtype && sizes_of(x) == sizes; });
    if (!source) source = new_input(sizes, a->type.dtype);
    keep(Op::scatter, {a, indices(sizes, limit), source}, {{"op", op}, {"dim", static_cast<int64_t>(dim)}});
  }

  void upsample() {
    Value* a = pick_ranked(3);
    Sizes sizes = sizes_of(a), spatial(sizes.begin() + 2, sizes.end());
    for (int64_t& s : spatial) s = chance(50) ? 2 * s : 1 + below(2 * s);
    keep(Op::upsample_nearest, {a}, {{"sizes", syms(spatial)}});
  }

  // ---- families: normalisations and pools ----

  void softmax() {
    Value* a = pick_real_ranked(1);
    keep(chance(70) ? Op::softmax : Op::log_softmax, {a}, {{"dim", int64_t{below(a->type.rank())}}});
  }

  void layer_norm() {
    Value* a = pick_real_ranked(1);
    Sizes sizes = sizes_of(a);
    int64_t rank = 1 + below(std::min<int64_t>(2, a->type.rank()));
    sizes.erase(sizes.begin(), sizes.end() - rank);
    std::vector<Value*> operands = {a};
    bool weight = chance(60), bias = chance(50), rms = chance(40);
    if (weight) operands.push_back(new_input(sizes, a->type.dtype, 6, 70));
    if (rms) {
      keep(Op::rms_norm, operands, {{"normalized_rank", rank}, {"eps", 1e-2}});
      return;
    }
    if (bias) operands.push_back(new_input(sizes, a->type.dtype, 6, 70));
    keep(Op::layer_norm, operands,
         {{"normalized_rank", rank}, {"eps", 1e-2}, {"has_weight", weight}, {"has_bias", bias}});
  }

  void group_norm() {
    Value* a = pick_real_ranked(2);
    int64_t channels = sizes_of(a)[1];
    int64_t groups = channels % 2 == 0 && chance(50) ? channels / 2 : chance(50) ? 1 : channels;
    std::vector<Value*> operands = {a};
    bool weight = chance(60), bias = chance(50);
    for (bool has : {weight, bias})
      if (has) operands.push_back(new_input({channels}, a->type.dtype, 6, 70));
    keep(Op::group_norm, operands,
         {{"groups", groups}, {"eps", 1e-2}, {"has_weight", weight}, {"has_bias", bias}});
  }

  void batch_norm() {
    Value* a = pick_real_ranked(2);
    int64_t channels = sizes_of(a)[1];
    DType t = a->type.dtype;
    std::vector<Value*> operands = {a, new_input({channels}, t, 6, 80),
                                    keep(Op::abs, {new_input({channels}, t, 6, 80)})};
    bool weight = chance(60), bias = chance(50);
    for (bool has : {weight, bias})
      if (has) operands.push_back(new_input({channels}, t, 6, 80));
    keep(Op::batch_norm, operands, {{"eps", 0.5}, {"has_weight", weight}, {"has_bias", bias}});
  }

  void pool() {
    Value* a = pick_real_ranked(3);
    if (a->type.rank() > 4) return;
    Sizes sizes = sizes_of(a), kernel, stride, padding, dilation, to;
    for (size_t i = 2; i < sizes.size() && i < 4; ++i) {
      kernel.push_back(1 + below(std::min<int64_t>(3, sizes[i])));
      stride.push_back(1 + below(2));
      padding.push_back(below(kernel.back() / 2 + 1));
      dilation.push_back(1);
      to.push_back(1 + below(sizes[i]));
    }
    graph::Attrs attrs = {
        {"kernel", syms(kernel)}, {"stride", syms(stride)}, {"padding", syms(padding)}, {"ceil", chance(30)}};
    int which = below(3);
    if (which == 0) {
      keep(Op::adaptive_avg_pool, {a}, {{"sizes", syms(to)}});
    } else if (which == 1) {
      attrs["count_include_pad"] = chance(50);
      keep(Op::avg_pool, {a}, attrs);
    } else {
      attrs["dilation"] = syms(dilation);
      keep(Op::max_pool, {a}, attrs);
    }
  }

  // ---- families: contractions ----

  void linear() {
    Value* x = pick_real_ranked(2);
    int64_t k = sizes_of(x).back(), n = random_size();
    std::vector<Value*> operands = {x, new_input({n, k}, x->type.dtype, 6, 80)};
    if (chance(60)) operands.push_back(new_input({n}, x->type.dtype, 6, 80));
    keep(Op::linear, operands);
  }

  void matmul() {
    Value* a = pick_real_ranked(2);
    Sizes sizes = sizes_of(a);
    sizes[sizes.size() - 2] = sizes.back();
    sizes.back() = random_size();
    for (size_t i = 0; i + 2 < sizes.size(); ++i)
      if (chance(20)) sizes[i] = 1;
    keep(Op::matmul, {a, new_input(sizes, a->type.dtype)});
  }

  void conv() {
    Value* x = pick_real_ranked(3);
    if (x->type.rank() > 4) return;
    Sizes sizes = sizes_of(x), stride, padding, dilation, extra;
    int64_t groups = chance(25) ? sizes[1] : 1, out = groups * (1 + below(groups > 1 ? 2 : 20));
    Sizes weight = {out, sizes[1] / groups};
    for (size_t i = 2; i < sizes.size(); ++i) {
      weight.push_back(1 + below(std::min<int64_t>(3, sizes[i])));
      stride.push_back(1 + below(2));
      padding.push_back(below(2));
      dilation.push_back(1);
      extra.push_back(0);
    }
    std::vector<Value*> operands = {x, new_input(weight, x->type.dtype, 6, 80)};
    if (chance(50)) operands.push_back(new_input({out}, x->type.dtype, 6, 80));
    keep(Op::conv, operands,
         {{"stride", syms(stride)},
          {"padding", syms(padding)},
          {"dilation", syms(dilation)},
          {"output_padding", syms(extra)},
          {"groups", groups}});
  }

  // ---- outputs ----

  /// The last value always, some others, and a few of what fits an input as writes into it.
  void choose_outputs() {
    Graph& g = *case_.graph;
    g.outputs.push_back({pool_.back(), -1});
    for (Value* v : pool_)
      if (v != pool_.back() && chance(v->def ? 20 : 4)) g.outputs.push_back({v, -1});
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      const Value* to = g.inputs[i].value.get();
      // A parameter's folded values are of before the call: functionalize never writes one.
      if (g.inputs[i].kind == graph::InputKind::Param || !chance(40)) continue;
      Value* from = pick_where([&](Value* v) {
        return v != to && v->type.dtype == to->type.dtype && v->type.sizes == to->type.sizes;
      });
      if (from) g.outputs.push_back({from, static_cast<int>(i)});
    }
  }

  Limits limits_;
  std::mt19937 random_;
  Case case_;
  SampleMap samples_;
  std::vector<Value*> pool_;
  int kept_ = 0;
};

}  // namespace bolt::fuzz
