// graph/repeats.cpp
#include "graph/repeats.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "support/longest_run.h"

namespace bolt::graph {
namespace {

// How many are kept: the first and the last become part of what stands before and behind them.
// Of short ones kernels reach over more than one end.
constexpr int kKept = 3, kKeptShort = 5, kShort = 16;
// As many and one more are planned besides: fewer copies than this are not worth it.
constexpr int least(int kept) { return 2 * kept + 4; }

class Shortener {
 public:
  Shortener(Graph& g, const SameCall& same_call) : g_(g), same_call_(same_call) {}

  std::optional<Shortened> run() {
    number_nodes();
    if (!find() || !read_places() || !read_outputs() || !is_closed()) return std::nullopt;
    Shortened s;
    s.graph = shortened(kept_, out_.output_of);
    s.one_more = shortened(kept_ + 1, out_.output_of_longer);
    s.repeats = std::move(out_);
    return s;
  }

 private:
  void number_nodes() {
    g_.renumber();
    node_of_.assign(g_.inputs.size(), -1);
    for (const auto& n : g_.nodes) {
      for (size_t i = 0; i < n->outputs.size(); ++i) node_of_.push_back(static_cast<int>(nodes_.size()));
      nodes_.push_back(n.get());
    }
  }
  int node_of(const Value* v) const { return node_of_[v->id]; }
  const Node& node(int i) const { return *nodes_[i]; }
  int copy_of(int node) const { return (node - first_) / period_; }

  // ---- where the copies are ----

  static uint64_t key_of(const Node& n) {
    uint64_t h = static_cast<uint64_t>(n.op);
    auto mix = [&](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); };
    mix(static_cast<uint64_t>(n.loc.line));
    mix(n.operands.size() << 8 | n.attrs.size());
    for (const auto& v : n.outputs) {
      mix(static_cast<uint64_t>(v->type.dtype));
      for (Sym s : v->type.sizes) mix(s.is_const() ? static_cast<uint64_t>(s.value()) : s.node()->id << 32);
    }
    return h;
  }

  bool same_attrs(const Node& a, const Node& b) const {
    if (a.op != Op::extern_call) return a.attrs == b.attrs;
    return same_call_(a.attr<int64_t>("call"), b.attr<int64_t>("call"));
  }

  /// May the nodes stand at one place of two neighbouring copies?
  bool match(int i, int j) const {
    const Node &a = node(i), &b = node(j);
    if (a.op != b.op || a.operands.size() != b.operands.size() || a.outputs.size() != b.outputs.size())
      return false;
    if (a.loc.line != b.loc.line || !(a.loc.file == b.loc.file) || !same_attrs(a, b)) return false;
    for (size_t k = 0; k < a.outputs.size(); ++k)
      if (a.out(static_cast<int>(k))->type != b.out(static_cast<int>(k))->type) return false;
    for (size_t k = 0; k < a.operands.size(); ++k)
      if (!match(a.operands[k], b.operands[k], j - i)) return false;
    return true;
  }
  bool match(const Value* x, const Value* y, int period) const {
    if (x == y) return true;
    const int from = node_of(x), to = node_of(y);
    if (from >= 0) return to == from + period && x->index == y->index;
    return to < 0 && g_.inputs[x->index].kind == g_.inputs[y->index].kind && x->type == y->type;
  }

  bool find() {
    std::vector<uint64_t> keys;
    keys.reserve(nodes_.size());
    for (const Node* n : nodes_) keys.push_back(key_of(*n));
    Run run = longest_run(keys, [&](int i, int j) { return match(i, j); });
    // What all copies read stands before the first of them.
    for (int i = run.first; i < run.first + run.matches; ++i)
      for (size_t k = 0; k < node(i).operands.size(); ++k) {
        const Value *x = node(i).operands[k], *y = node(i + run.period).operands[k];
        if (x != y || node_of(x) < run.first) continue;
        run.matches -= node_of(x) + 1 - run.first;
        run.first = node_of(x) + 1;
      }
    first_ = run.first, period_ = run.period, copies_ = run.matches > 0 ? run.copies() : 0;
    end_ = first_ + copies_ * period_;
    kept_ = period_ < kShort ? kKeptShort : kKept;
    out_.left_out = copies_ - kept_;
    return copies_ >= least(kept_);
  }

  // ---- what each copy has of its own ----

  bool read_places() {
    out_.inputs.resize(static_cast<size_t>(copies_));
    out_.calls.resize(static_cast<size_t>(copies_));
    place_.assign(g_.inputs.size(), {-1, -1});
    std::vector<char> shared(g_.inputs.size(), 0);
    for (int offset = 0; offset < period_; ++offset) {
      const Node& n = node(first_ + offset);
      for (size_t k = 0; k < n.operands.size(); ++k)
        if (!n.operands[k]->def && !read_input(offset, k, shared)) return false;
      if (n.op != Op::extern_call) continue;
      for (int c = 0; c < copies_; ++c)
        out_.calls[c].push_back(static_cast<int>(node(first_ + c * period_ + offset).attr<int64_t>("call")));
    }
    return true;
  }
  bool read_input(int offset, size_t operand, std::vector<char>& shared) {
    auto of = [&](int copy) { return node(first_ + copy * period_ + offset).operands[operand]->index; };
    const int own = of(0);
    if (of(1) == own) {
      for (int c = 2; c < copies_; ++c)
        if (of(c) != own) return false;
      shared[own] = 1;
      return place_[own].first < 0;
    }
    const bool known = place_[own].first >= 0;
    const int k = known ? place_[own].second : static_cast<int>(out_.inputs[0].size());
    for (int c = 0; c < copies_; ++c) {
      const auto input = static_cast<size_t>(of(c));
      if (known ? place_[input] != std::pair(c, k) : shared[input] || place_[input].first >= 0) return false;
      if (known) continue;
      place_[input] = {c, k};
      out_.inputs[c].push_back(of(c));
    }
    return true;
  }

  /// Outputs that every copy has, and those that only the last one has, which are no part of the repetition.
  bool read_outputs() {
    out_.full_outputs = g_.outputs;
    out_.outputs.resize(static_cast<size_t>(copies_));
    using Spot = std::tuple<int, int, int>;  // node of the copy, its result, which time
    std::map<Spot, std::vector<int>> found;
    std::map<const Value*, int> times;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const Output& o = g_.outputs[i];
      if (o.write_to >= 0) own_write_.push_back(o.write_to);
      const int at = node_of(o.value);
      if (at < 0 && place_[o.value->index].first >= 0) return false;
      if (at < first_ || at >= end_) continue;
      Spot spot{(at - first_) % period_, o.value->index, times[o.value]++};
      auto& list = found[spot];
      list.resize(static_cast<size_t>(copies_), -1);
      list[copy_of(at)] = static_cast<int>(i);
    }
    for (const auto& [spot, list] : found) {
      const auto missing = std::count(list.begin(), list.end(), -1);
      if (missing == copies_ - 1 && list.back() >= 0) continue;
      if (missing || !writes_alike(list) || !lie_alike(list)) return false;
      for (size_t c = 0; c < list.size(); ++c) out_.outputs[c].push_back(list[c]);
    }
    // An input of a copy's own that something else writes to is none of its own.
    for (int input : own_write_)
      if (place_[input].first >= 0) return false;
    return true;
  }
  bool lie_alike(const std::vector<int>& list) const {
    auto may_be_part = [&](int output) { return g_.outputs[output].may_be_part; };
    return std::ranges::all_of(list, may_be_part) || std::ranges::none_of(list, may_be_part);
  }
  bool writes_alike(const std::vector<int>& list) {
    auto target = [&](size_t c) { return g_.outputs[list[c]].write_to; };
    if (target(0) < 0) {
      for (size_t c = 1; c < list.size(); ++c)
        if (target(c) >= 0) return false;
      return true;
    }
    for (size_t c = 0; c < list.size(); ++c) {
      if (target(c) < 0 || place_[target(c)] != std::pair(static_cast<int>(c), place_[target(0)].second))
        return false;
      std::erase(own_write_, target(c));
    }
    return true;
  }

  /// Copies read their neighbour's values, what follows reads the last one's.
  bool is_closed() const {
    for (int i = first_ + period_; i < first_ + 2 * period_; ++i)
      for (size_t k = 0; k < node(i).operands.size(); ++k) {
        const Value* x = node(i).operands[k];
        if (node_of(x) >= 0 && node_of(x) < first_ && x != node(i + period_).operands[k]) return false;
      }
    auto outside = [&](int i) {
      for (const Value* v : node(i).operands) {
        if (!v->def && place_[v->index].first >= 0) return false;
        const int at = node_of(v);
        if (at >= first_ && at < end_ - 2 * period_) return false;
      }
      return true;
    };
    for (int i = 0; i < first_; ++i)
      if (!outside(i)) return false;
    for (int i = end_; i < static_cast<int>(nodes_.size()); ++i)
      if (!outside(i)) return false;
    return true;
  }

  // ---- the short graph ----

  std::unique_ptr<Graph> shortened(int kept, std::vector<int>& output_of) const {
    auto g = std::make_unique<Graph>();
    g->name = g_.name;
    for (const Input& in : g_.inputs) g->add_input(in);
    std::vector<Node*> made(nodes_.size(), nullptr);
    const int cut = first_ + kept * period_, missing = end_ - cut;
    auto value = [&](const Value* v) {
      const int at = node_of(v);
      if (at < 0) return g->inputs[v->index].value.get();
      return made[at >= cut && at < end_ ? at - missing : at]->out(v->index);
    };
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (i >= cut && i < end_) continue;
      const Node& n = node(i);
      std::vector<Value*> operands;
      for (const Value* v : n.operands) operands.push_back(value(v));
      std::vector<Type> types;
      for (const auto& v : n.outputs) types.push_back(v->type);
      made[i] = g->make_typed(n.op, std::move(operands), n.attrs, std::move(types), n.loc);
    }
    std::vector<char> dropped(g_.outputs.size(), 0);
    for (auto c = static_cast<size_t>(kept); c < out_.outputs.size(); ++c)
      for (int o : out_.outputs[c]) dropped[o] = 1;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      if (dropped[i]) continue;
      g->outputs.push_back(g_.outputs[i]);
      g->outputs.back().value = value(g_.outputs[i].value);
      output_of.push_back(static_cast<int>(i));
    }
    return g;
  }

  Graph& g_;
  const SameCall& same_call_;
  std::vector<const Node*> nodes_;
  std::vector<int> node_of_;                // by value id; -1: an input
  std::vector<std::pair<int, int>> place_;  // by input: its copy, its place there; -1: not of one copy
  std::vector<int> own_write_;              // inputs written to that no copy is known to write to
  int first_ = 0, period_ = 0, copies_ = 0, end_ = 0, kept_ = 0;
  Repeats out_;
};

}  // namespace

std::optional<Shortened> shorten(Graph& g, const SameCall& same_call) {
  return Shortener(g, same_call).run();
}

}  // namespace bolt::graph
