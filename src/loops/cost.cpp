// loops/cost.cpp
// See cost.h.
#include "loops/cost.h"

#include <algorithm>
#include <cmath>

#include "loops/kernel_ops.h"
#include "loops/roles.h"
#include "loops/scalar.h"
#include "loops/space.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;

constexpr double kMostWork = 1.2;
constexpr double kGathered = 4;  // instructions of a load whose address is computed for each element
constexpr double kScanned = 4;   // a chain of additions, or the steps in which neighbours do them together
constexpr double kLogAddExp = 40;
constexpr double kPlaced = 8;             // of a block: where it begins and ends, and a load under a mask
constexpr double kCallNs = 1000;          // of an operator of a library's
constexpr double kThreadsStartNs = 3000;  // until others share a library's work
constexpr double kRowBytesPerNs = 30;     // of a row that one block scans

double count_of_points(const Kernel& k, uint32_t mask) {
  double n = 1;
  for (size_t i = 0; i < k.dims.size(); ++i)
    if (mask >> i & 1) n *= static_cast<double>(estimate(k.dims[i].size));
  return n;
}

/// By expression: does it rest on loop variables and constants alone, and is it cheap? That is addressing.
std::vector<char> find_addressing(const std::vector<Expr>& exprs) {
  std::vector<char> found;
  for (const Expr& e : exprs) {
    bool addresses = e.kind == ExprKind::Index || e.kind == ExprKind::Const || e.kind == ExprKind::Cast ||
                     (e.kind == ExprKind::Op && !is_function(e.op));
    for (ExprId a : e.args) addresses &= found[a] != 0;
    found.push_back(addresses);
  }
  return found;
}

/// Instructions for one of its elements.
double instructions(const Expr& e) {
  switch (e.kind) {
    case ExprKind::Op: return loops::instructions(e.op);
    case ExprKind::Reduce:
    case ExprKind::Check: return 1;
    case ExprKind::Scan: return e.reduce_op == ReduceOp::LogAddExp ? kScanned + kLogAddExp : kScanned;
    case ExprKind::Load: return e.gather.empty() ? 0 : kGathered;
    default: return 0;
  }
}

double elements(const graph::Value* v) { return static_cast<double>(estimate(v->type.numel())); }

/// A number that the graph holds, or something that is read.
ExprId operand(ExprList& list, const graph::Value* v, int place) {
  const DType t = compute_type(v->type.dtype);
  const graph::Value* base = view_base(v);
  if (base->def && base->def->op == Op::scalar && is_float(t))
    if (const auto* number = std::get_if<double>(&base->def->attrs.find("value")->second))
      return list.real(t, *number);
  Expr load{};
  load.kind = ExprKind::Load;
  load.buffer = place;
  load.dtype = t;
  return list.add(std::move(load));
}

/// For one element of a pointwise node's result: what it is expanded to.
double expanded(const Node& n) {
  const Space nowhere;
  ExprList list(nowhere);
  std::vector<ExprId> args;
  for (const graph::Value* o : n.operands) args.push_back(operand(list, o, static_cast<int>(args.size())));
  expand_pointwise(list, n, args);
  double total = 0;
  for (const Expr& e : list.all()) total += instructions(e);
  return total;
}

/// For one element of an index node's result: the choices between its operands, or the computed addresses.
double chosen(const Node& n) {
  switch (n.op) {
    case Op::cat: return static_cast<double>(n.operands.size()) - 1;
    case Op::embedding:
    case Op::gather:
    case Op::index_select: return kGathered + 1;
    default: return 1;
  }
}

}  // namespace

double price(const MachineSpeed& m, const KernelWork& w) {
  return m.start_ns + std::max(w.bytes / m.bytes_per_ns, w.instructions / m.instructions_per_ns);
}

bool scans_well(const graph::Type& x, int dim, std::string_view op) {
  const graph::DeviceFacts& facts = graph::facts_of(x.device);
  if (!facts.scans_by_blocks) return true;
  // Threads that share a row combine each element with several others, each time by an exponential and a
  // logarithm. A library's kernel does less of it: 80 us where ours takes 101, for 4,096 rows of 1,024 on an
  // H100.
  if (op == "logaddexp") return false;
  const Sym length = x.sizes[dim];
  const double row = 2 * static_cast<double>(estimate(length)) * dtype_bytes(x.dtype);
  double rows = 1;
  for (int d = 0; d < x.rank(); ++d)
    if (d != dim) rows *= static_cast<double>(estimate(x.sizes[d]));
  // A library takes two launches for one row, and gives each of several a block as well.
  const MachineSpeed& m = facts.speed;
  return rows > 1 || row / kRowBytesPerNs <= m.start_ns + row / m.bytes_per_ns;
}

bool places_blocks_well(graph::Device device, DType type, Sym elements, size_t blocks) {
  const MachineSpeed& m = graph::facts_of(device).speed;
  const auto count = static_cast<double>(estimate(elements)), n = static_cast<double>(blocks);
  const double written = count * dtype_bytes(type) / m.bytes_per_ns;
  return count * kPlaced * n / m.instructions_per_ns <= n * std::max(kCallNs, m.start_ns) + 2 * written;
}

bool puts_well(graph::Device device, Sym runs, Sym elements) {
  const graph::DeviceFacts& facts = graph::facts_of(device);
  if (!facts.scatters_in_order || !elements.is_const(1)) return true;
  return static_cast<double>(estimate(runs)) * kGathered / facts.speed.instructions_per_ns <= kThreadsStartNs;
}

bool repeats_little(const MachineSpeed& m, double instructions, double alone) {
  return instructions <= kMostWork * alone || (instructions - alone) / m.instructions_per_ns <= m.start_ns;
}

KernelWork work_of(const Kernel& k) {
  KernelWork w;
  const std::vector<char> addressing = find_addressing(k.exprs);
  for (size_t i = 0; i < k.exprs.size(); ++i) {
    const Expr& e = k.exprs[i];
    if (addressing[i]) continue;
    const bool reduces = e.kind == ExprKind::Reduce;
    const double n = count_of_points(k, reduces ? k.exprs[e.args[0]].dims : e.dims);
    if (e.kind == ExprKind::Load) w.bytes += n * dtype_bytes(e.dtype);
    w.instructions += n * instructions(e);
  }
  for (const Store& s : k.stores) {
    const double n = count_of_points(k, k.dims_of(s));
    w.bytes += n * dtype_bytes(k.buffers[s.buffer].dtype) * (s.combines() ? 2 : 1);
    if (s.scatters()) w.instructions += n * kGathered;
  }
  return w;
}

double instructions_of(const Node& n) {
  switch (graph::op_info(n.op).kind) {
    case OpKind::Pointwise: return expanded(n) * elements(n.out());
    case OpKind::Reduce: return elements(n.operands[0]);
    case OpKind::Index: return chosen(n) * elements(n.out());
    case OpKind::Scan: {
      const bool logs = n.attr<std::string>("op") == "logaddexp";
      return (logs ? kScanned + kLogAddExp : kScanned) * elements(n.out());
    }
    case OpKind::Scatter: return (kGathered + 1) * elements(n.operands[1]);
    default: return 0;
  }
}

double instructions_of(const graph::Graph& g) {
  double total = 0;
  for (const auto& n : g.nodes) total += instructions_of(*n);
  return total;
}

double instructions_of(const std::vector<const Node*>& nodes) {
  double total = 0;
  for (const Node* n : nodes) total += instructions_of(*n);
  return total;
}

StepCost cost_of(const Plan& p, const Step& s) {
  const KernelWork w = work_of(p.kernels[kernel_of(s)]);
  const double repeated = w.instructions > s.alone ? 1 - s.alone / w.instructions : 0;
  return {w, repeated, price(graph::facts_of(s.device).speed, w)};
}

std::string print_costs(const Plan& p) {
  std::string rows;
  double work = 0, nanoseconds = 0;
  size_t longest = 0;
  auto number = [](double v) { return std::to_string(std::llround(v)); };
  for (const Step& s : p.steps) {
    if (kernel_of(s) < 0) continue;
    const Kernel& k = p.kernels[kernel_of(s)];
    const auto [w, repeated, time] = cost_of(p, s);
    rows += "  @" + k.name + ": " + number(w.bytes) + " bytes, " + number(w.instructions) +
            " instructions, " + std::to_string(k.exprs.size()) + " expressions, " + number(time) + " ns\n";
    longest = std::max(longest, k.exprs.size());
    work += w.instructions, nanoseconds += time;
  }
  return "costs: " + number(work) + " instructions (of " + number(instructions_of(*p.graph)) + "), at most " +
         std::to_string(longest) + " expressions, " + number(nanoseconds) + " ns\n" + rows;
}

}  // namespace bolt::loops
