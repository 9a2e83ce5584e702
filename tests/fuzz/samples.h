// tests/fuzz/samples.h
// Node and values -> the exact result, and results under small disturbances: how far rounding may move it.
//
// A random graph may amplify rounding without bound (a difference of near numbers, a step function at its
// edge), so no fixed tolerance fits. Each value is therefore computed several times: once exactly, and a few
// times with every floating result that cannot be exact moved by some units in the last place of its type.
// Where the shaken runs agree, so must any correct compiler; where they do not, the generator does not keep
// the node. The tolerance of an output is read off the same way.
//
// Not moved are results that are exact for exact operands: views, selections, comparisons, and sums and
// products that fit the type. That lets step functions be used on them.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "tests/reference/graph.h"
#include "tests/reference/graph_ops.h"

namespace bolt::fuzz {

using graph::Graph;
using graph::HostTensor;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

constexpr size_t kShakes = 4;

struct Samples {
  HostTensor exact;
  std::vector<HostTensor> shaken;

  /// The largest distance of a shaken run, and the largest magnitude.
  double spread() const {
    double worst = 0;
    for (const HostTensor& s : shaken)
      for (size_t i = 0; i < s.cells.size(); ++i) {
        bool same = exact.is_real() || s.cells[i].whole == exact.cells[i].whole;
        double d = exact.is_real() ? std::fabs(s.cells[i].real - exact.cells[i].real) : same ? 0 : INFINITY;
        worst = d <= worst ? worst : d;
      }
    return worst;
  }
  double magnitude() const {
    double worst = 0;
    for (graph::Cell c : exact.cells) {
      double m = exact.is_real() ? std::fabs(c.real) : std::fabs(static_cast<double>(c.whole));
      worst = m <= worst ? worst : m;  // NaN stays
    }
    return worst;
  }
};

/// How far a value of the type is moved, relatively: far more than one rounding.
inline double shake_of(DType t) {
  switch (t) {
    case DType::F64: return 0x1p-40;
    case DType::F32: return 0x1p-19;
    case DType::F16: return 0x1p-9;
    default: return 0x1p-6;
  }
}

namespace detail {

/// What rounding does to an operation's result.
enum class Rounding { None, OfResult, Inside };

inline Rounding rounding_of(const Node& n) {
  switch (n.op) {
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
    case Op::round:
    case Op::relu:
    case Op::hardtanh:
    case Op::isnan:
    case Op::isinf:
    case Op::logical_not:
    case Op::maximum:
    case Op::minimum:
    case Op::fmax:
    case Op::fmin:
    case Op::copysign:
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::where:
    case Op::amax:
    case Op::amin:
    case Op::any:
    case Op::all:
    case Op::argmax:
    case Op::argmin:
    case Op::joined:
    case Op::max_pool: return Rounding::None;
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::fma:
    case Op::cast:
    case Op::sum:
    case Op::matmul:
    case Op::linear:
    case Op::linears:
    case Op::conv: return Rounding::OfResult;
    default: break;
  }
  OpKind kind = graph::op_info(n.op).kind;
  bool moves = kind == OpKind::View || kind == OpKind::Index || kind == OpKind::Create;
  return moves ? Rounding::None : Rounding::Inside;
}

inline void shake(HostTensor& t, std::mt19937& random) {
  std::uniform_real_distribution<double> by(-shake_of(t.dtype), shake_of(t.dtype));
  for (graph::Cell& c : t.cells) c.real *= 1 + by(random);
}

/// `n` by itself as a graph.
inline HostTensor run_alone(const Node& n, const std::vector<HostTensor>& args) {
  Graph g;
  std::vector<Value*> operands;
  for (const HostTensor& a : args) {
    graph::Type t{a.dtype, {}, {}, {}};
    for (int64_t s : a.sizes) t.sizes.push_back(s);
    t.strides = graph::contiguous_strides(t.sizes);
    operands.push_back(g.add_input(t, graph::InputKind::Arg));
  }
  g.outputs.push_back({g.make(n.op, operands, n.attrs)->out(), -1});
  g.renumber();
  return std::move(graph::run_reference(g, args)[0]);
}

inline HostTensor shaken_run(const Node& n, const std::vector<const Samples*>& operands,
                             const HostTensor& exact, size_t run) {
  std::mt19937 random(static_cast<unsigned>(run * 977 + 1));
  Rounding rounding = rounding_of(n);
  std::vector<HostTensor> args;
  for (const Samples* s : operands) {
    args.push_back(s->shaken[run]);
    if (rounding == Rounding::Inside && args.back().is_real()) shake(args.back(), random);
  }
  HostTensor out = run_alone(n, args);
  if (!out.is_real() || rounding == Rounding::None) return out;
  HostTensor moved = out;
  shake(moved, random);
  for (size_t i = 0; i < out.cells.size(); ++i) {
    double v = exact.cells[i].real;
    bool inexact = rounding == Rounding::Inside || graph::round_to(out.dtype, v) != v;
    // A cast rounds what rounding has moved: it may land on a neighbour.
    if (n.op == Op::cast && args[0].is_real())
      inexact |= args[0].cells[i].real != operands[0]->exact.cells[i].real;
    if (inexact) out.cells[i] = moved.cells[i];
  }
  return out;
}

}  // namespace detail

/// Inputs are taken as they are.
inline Samples samples_of_input(const HostTensor& t) { return {t, std::vector<HostTensor>(kShakes, t)}; }

inline Samples samples_of_node(const Node& n, const std::vector<const Samples*>& operands) {
  std::vector<HostTensor> args;
  for (const Samples* s : operands) args.push_back(s->exact);
  Samples out{detail::run_alone(n, args), {}};
  for (size_t run = 0; run < kShakes; ++run)
    out.shaken.push_back(detail::shaken_run(n, operands, out.exact, run));
  return out;
}

using SampleMap = std::unordered_map<const Value*, Samples>;

inline Samples samples_of_node(const Node& n, const SampleMap& values) {
  std::vector<const Samples*> operands;
  for (const Value* v : n.operands) operands.push_back(&values.at(v));
  return samples_of_node(n, operands);
}

/// Every value of a graph.
inline SampleMap samples_of(const Graph& g, const std::vector<HostTensor>& inputs) {
  SampleMap values;
  for (size_t i = 0; i < inputs.size(); ++i) values[g.inputs[i].value.get()] = samples_of_input(inputs[i]);
  for (const auto& n : g.nodes) values[n->out()] = samples_of_node(*n, values);
  return values;
}

/// How far a compiled result may lie from the exact one.
inline double tolerance(const Samples& s) {
  if (!s.exact.is_real()) return 0;
  return 2 * s.spread() + shake_of(s.exact.dtype) * std::max(1e-3, s.magnitude());
}

}  // namespace bolt::fuzz
