// codegen/cuda/sweeps.cpp
// See sweeps.h.

#include "codegen/cuda/sweeps.h"

#include <algorithm>

#include "codegen/cuda/schedule.h"
#include "loops/analysis.h"
#include "loops/kernel_ops.h"

namespace bolt::codegen::cuda {

using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;
using loops::kNone;

namespace {

constexpr int kManyInstructions = 32;  // tanh, erf, logarithms; not an exponential

/// The maximum m that a sum of exp(x - m) over the same elements x subtracts, or kNone.
ExprId largest_in(const Kernel& k, const Expr& sum) {
  auto expr = [&](ExprId id) -> const Expr& { return k.exprs[id]; };
  if (sum.kind != ExprKind::Reduce || sum.reduce_op != loops::ReduceOp::Sum) return kNone;
  const Expr& exp = expr(sum.args[0]);
  if (exp.kind != ExprKind::Op || exp.op != loops::ScalarOp::exp) return kNone;
  const Expr& difference = expr(exp.args[0]);
  if (difference.kind != ExprKind::Op || difference.op != loops::ScalarOp::sub) return kNone;
  const Expr& most = expr(difference.args[1]);
  const bool fits = most.kind == ExprKind::Reduce && most.reduce_op == loops::ReduceOp::Max &&
                    most.args[0] == difference.args[0] && most.reduce_dims == sum.reduce_dims &&
                    most.dtype == sum.dtype && (sum.dtype == DType::F32 || sum.dtype == DType::F64);
  return fits ? difference.args[1] : kNone;
}

/// A row that is held is as quickly looked at again.
std::vector<ExprId> sums_that_follow(const Kernel& k, const Schedule& s) {
  std::vector<ExprId> follows(k.exprs.size(), kNone);
  if (s.way != Mapping::Block || s.held || s.in_shared || s.scans) return follows;
  const std::vector<int> level = loops::reduction_levels(k);
  std::vector<bool> stays(k.exprs.size() + 1, false);  // by level: the sweep of another reduction
  for (size_t i = 0; i < k.exprs.size(); ++i) {
    follows[i] = largest_in(k, k.exprs[i]);
    if (k.exprs[i].kind == ExprKind::Reduce && follows[i] == kNone) stays[level[i]] = true;
  }
  // A sweep that stays for another reduction may as well do these.
  for (size_t i = 0; i < k.exprs.size(); ++i)
    if (stays[level[i]]) follows[i] = kNone;
  return follows;
}

class Planner {
 public:
  Planner(const Kernel& k, const Schedule& s)
      : k_(k),
        s_(s),
        elements_(element_dims(k, s)),
        follows_(sums_that_follow(k, s)),
        level_(loops::reduction_levels(k, follows_)),
        live_(loops::with_operands(k, loops::taken_by_stores(k), [](ExprId) { return false; })) {}

  Sweeps run() {
    Sweeps out;
    out.follows = follows_;
    out.kept.assign(k_.exprs.size(), false);
    std::vector<bool> computed(k_.exprs.size(), false);
    int last = 0;
    for (size_t i = 0; i < k_.exprs.size(); ++i)
      if (live_[i]) last = std::max(last, level_[i]);
    out.stores = s_.scans ? last : last_of_elements();
    for (int level = 0; level <= last; ++level) {
      Sweep sweep = make(level, level == out.stores, computed, &out.kept);
      for (ExprId id : sweep.needed) computed[id] = true;
      out.list.push_back(std::move(sweep));
    }
    return out;
  }

 private:
  const Expr& expr(ExprId id) const { return k_.exprs[id]; }
  bool along_row(ExprId id) const { return expr(id).dims & elements_; }

  /// The sweep after which no element is looked at.
  int last_of_elements() const {
    int last = 0;
    auto stored = [&](ExprId id) { last = std::max(last, level_[id]); };
    for (const loops::Store& st : k_.stores)
      if (k_.dims_of(st) & elements_) each_operand(st, stored);
    for (size_t i = 0; i < k_.exprs.size(); ++i)
      if (live_[i] && k_.exprs[i].kind == ExprKind::Reduce) last = std::max(last, level_[i] - 1);
    return last;
  }

  /// Worth registers: neither free nor a conversion of what is kept itself. Where vectors are wide, a value
  /// that is one for the whole vector is cheap too.
  bool may_keep(ExprId id) const {
    const ExprKind kind = expr(id).kind;
    if (s_.in_shared)
      return is_of_one_row(k_, s_, expr(id)) && (kind == ExprKind::Load || is_held_function(expr(id)));
    if (!s_.held || kind == ExprKind::Const || kind == ExprKind::Index || kind == ExprKind::Cast)
      return false;
    return s_.vector == 1 || !is_same_in_vector(k_, s_, id);
  }

  /// More instructions than it takes to store it and to read it again, if it is so wide.
  bool is_held_function(const Expr& e) const {
    return s_.holds_functions && e.kind == ExprKind::Op && loops::instructions(e.op) >= kManyInstructions;
  }

  Sweep make(int level, bool stores, const std::vector<bool>& computed, std::vector<bool>* kept) const {
    Sweep sweep;
    std::vector<bool> wanted(k_.exprs.size(), false);
    auto want = [&](ExprId id) {
      if (along_row(id)) wanted[id] = true;
    };
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      const ExprId id = static_cast<ExprId>(i);
      if (!live_[i]) continue;
      if (e.kind == ExprKind::Reduce) {
        if (level_[i] != level + 1) continue;
        sweep.reductions.push_back(id);
        const ExprId most = follows_[i];
        want(most == kNone ? e.args[0] : expr(most).args[0]);
      } else if (!along_row(id) && level_[i] == level) {
        sweep.before.push_back(id);
      }
    }
    if (stores)
      for (const loops::Store& st : k_.stores) each_operand(st, want);
    for (size_t i = k_.exprs.size(); i-- > 0;) {
      const ExprId id = static_cast<ExprId>(i);
      if (!wanted[i]) continue;
      if (computed[i] && may_keep(id)) {
        (*kept)[i] = true;
        continue;
      }
      sweep.needed.push_back(id);
      each_operand(k_.exprs[i], want);
    }
    std::reverse(sweep.needed.begin(), sweep.needed.end());
    return sweep;
  }

  const Kernel& k_;
  const Schedule& s_;
  const uint32_t elements_;
  const std::vector<ExprId> follows_;
  const std::vector<int> level_;
  const std::vector<bool> live_;
};

}  // namespace

uint32_t element_dims(const Kernel& k, const Schedule& s) {
  if (s.row.empty()) return (1u << k.dims.size()) - 1;
  uint32_t mask = 0;
  for (int d : s.row) mask |= 1u << d;
  return mask;
}

bool is_of_one_row(const Kernel& k, const Schedule& s, const Expr& e) {
  if (!(e.dims >> s.inner & 1)) return false;
  const uint32_t others = ((1u << k.dims.size()) - 1) & ~element_dims(k, s);
  return others == 0 || (e.dims & others);
}

Sweeps plan_sweeps(const Kernel& k, const Schedule& s) { return Planner(k, s).run(); }

}  // namespace bolt::codegen::cuda
