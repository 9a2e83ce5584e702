// loops/in_place.cpp
#include "loops/in_place.h"

#include <algorithm>

#include "loops/library_layout.h"
#include "loops/roles.h"

namespace bolt::loops {
namespace {

class InPlace {
 public:
  InPlace(Plan& p, const PlanOptions& options) : p_(p), options_(options) {}

  void run() {
    find_uses();
    for (int i = 0; i < count(); ++i) {
      const int before = count();
      if (step(i).kind != StepKind::Copy || (!write_back(i) && !scatter_back(i))) continue;
      find_uses();
      i -= before - count();  // this step is gone, and perhaps one before it
    }
    written_ = first_visible_write(p_);
    for (int i = 0; i < count(); ++i) {
      if (step(i).kind == StepKind::Kernel) over_dying(step(i), i);
      if (step(i).kind == StepKind::Library && multiplies_and_adds(*step(i).node)) over_added(step(i), i);
    }
  }

 private:
  int count() const { return static_cast<int>(p_.steps.size()); }
  Step& step(int i) { return p_.steps[i]; }
  PlanBuffer& buffer(int b) { return p_.buffers[b]; }
  int memory(int b) const { return memory_of(p_, b); }
  bool is_temp(int b) { return buffer(b).kind == BufferKind::Temp && !buffer(b).owned_by_step; }

  bool touches(const Step& s, int b) {
    return std::any_of(s.buffers.begin(), s.buffers.end(), [&](int x) { return memory(x) == b; });
  }
  void find_uses() {
    uses_.assign(p_.buffers.size(), {});
    for (int i = 0; i < count(); ++i) {
      const Step& s = step(i);
      for (size_t j = 0; j < s.buffers.size(); ++j) {
        Uses& u = uses_[memory(s.buffers[j])];
        u.last = i;
        if (j < static_cast<size_t>(s.operand_count)) continue;
        u.several |= u.writer >= 0 || memory(s.buffers[j]) != s.buffers[j];
        u.writer = i;
      }
    }
    for (const PlanOutput& o : p_.outputs)
      if (o.buffer >= 0) uses_[memory(o.buffer)].last = count();
  }
  /// The only step that writes `b`, or -1.
  int writer(int b) const {
    const Uses& u = uses_[b];
    return u.several ? -1 : u.writer;
  }

  static bool same_layout(const graph::Type& a, const graph::Type& b) {
    if (a.dtype != b.dtype || a.sizes != b.sizes || a.device != b.device) return false;
    for (int i = 0; i < a.rank(); ++i)
      if (!a.sizes[i].is_const(1) && a.strides[i] != b.strides[i]) return false;
    return true;
  }

  /// May the kernel store into slot `out` what it means for `target`, whose memory it may read?
  bool may_overwrite(const Step& s, size_t out, int target) {
    const Kernel& k = p_.kernels[s.kernel];
    const Store* into = nullptr;
    for (const Store& st : k.stores) {
      if (st.buffer != static_cast<int>(out)) continue;
      if (into) return false;
      into = &st;
    }
    const uint32_t all = (1u << k.dims.size()) - 1;
    bool reads = false;
    for (size_t i = 0; i < s.buffers.size(); ++i) {
      if (i == out || memory(s.buffers[i]) != target) continue;
      if (s.buffers[i] != target || k.buffers[i].role != BufferRole::In) return false;
      reads = true;
    }
    if (!reads) return true;
    if (!into || !into->gather.empty() || into->mask != kNone || k.varies(into->index) != all) return false;
    for (const Expr& e : k.exprs) {
      if (e.kind == ExprKind::Reduce || e.kind == ExprKind::Scan) return false;
      if (e.kind != ExprKind::Load || s.buffers[e.buffer] != target) continue;
      if (e.index != into->index || !e.gather.empty()) return false;
    }
    return true;
  }

  // ---- write-backs

  bool write_back(int copy) {
    const int from = step(copy).buffers[0], to = step(copy).buffers[1];
    if (!is_temp(from) || buffer(to).kind != BufferKind::Input) return false;
    if (!same_layout(buffer(from).type, buffer(to).type) || !is_dense(buffer(to).type)) return false;
    const int made = writer(from);
    if (made < 0 || made > copy || step(made).kind != StepKind::Kernel) return false;
    const Step& s = step(made);
    if (p_.kernels[s.kernel].has_checks()) return false;
    for (int i = made + 1; i < count(); ++i)
      if (can_fail(p_, step(i)) || (i != copy && touches(step(i), to))) return false;
    const size_t out =
        static_cast<size_t>(std::find(s.buffers.begin(), s.buffers.end(), from) - s.buffers.begin());
    if (!may_overwrite(s, out, to)) return false;
    replace(from, to);
    p_.steps.erase(p_.steps.begin() + copy);
    return true;
  }

  /// The slot of a kernel's step whose memory it scatters into; nothing: it does not.
  const Store* scatter_into(const Step& s, int b) {
    if (s.kind != StepKind::Kernel) return nullptr;
    for (const Store& st : p_.kernels[s.kernel].stores)
      if (st.scatters() && s.buffers[st.buffer] == b) return &st;
    return nullptr;
  }
  /// Does the step copy `from`, and nothing else?
  bool copies(const Step& s, int from, int to) {
    if (s.kind != StepKind::Kernel || s.buffers != std::vector<int>{from, to}) return false;
    const Kernel& k = p_.kernels[s.kernel];
    if (k.stores.size() != 1 || k.exprs.size() != 1 || k.exprs[0].kind != ExprKind::Load) return false;
    const Store& st = k.stores[0];
    return !st.scatters() && st.mask == kNone && st.gather.empty() && k.exprs[0].mask == kNone &&
           k.exprs[0].gather.empty() && k.exprs[0].index == st.index &&
           k.varies(st.index) == (1u << k.dims.size()) - 1;
  }

  /// An input is copied, scattered into, and copied back: it is scattered into where it lies. A kernel that
  /// finds an index out of range has then written the others: that is no harm where eager, which runs the
  /// call again and raises, writes the same.
  bool scatter_back(int copy) {
    const int from = step(copy).buffers[0], to = step(copy).buffers[1];
    if (!is_temp(from) || buffer(to).kind != BufferKind::Input) return false;
    if (!same_layout(buffer(from).type, buffer(to).type) || !is_dense(buffer(to).type)) return false;
    int made = -1, first = -1;
    for (int i = 0; i < copy; ++i) {
      const Step& s = step(i);
      const Store* into = scatter_into(s, from);
      if (!into && std::count(s.buffers.begin() + s.operand_count, s.buffers.end(), from)) {
        if (made >= 0 || !copies(s, to, from)) return false;
        made = i;
      }
      if (into && first < 0) first = i;
      if (into && can_fail(p_, s) && (into->into != Into::Last || i != first)) return false;
    }
    if (made < 0 || first < made) return false;
    for (int i = first; i < count(); ++i)
      if ((i > first && can_fail(p_, step(i))) || (i != copy && touches(step(i), to))) return false;
    replace(from, to);
    const int kernel = step(made).kernel;
    p_.steps.erase(p_.steps.begin() + copy);
    p_.steps.erase(p_.steps.begin() + made);
    drop_unused(p_, kernel);
    return true;
  }
  void replace(int from, int to) {
    for (Step& s : p_.steps) std::replace(s.buffers.begin(), s.buffers.end(), from, to);
    for (PlanBuffer& b : p_.buffers)
      if (b.kind == BufferKind::Alias && b.source == from) b.source = to;
  }

  // ---- dying operands

  /// Memory that a library's call made for its result and nobody else has, of a kernel at this step.
  bool is_made_for_us(int b, int at) {
    const PlanBuffer& made = buffer(b);
    if (made.kind != BufferKind::Temp || !made.owned_by_step || at >= written_ || writer(b) < 0) return false;
    const Step& call = step(writer(b));
    return call.node && graph::op_info(call.node->op).gives_fresh_memory &&
           options_.are_apart(estimate(made.type.numel()) * dtype_bytes(made.type.dtype), made.type.device);
  }
  bool dies_at(int b, int at) const { return uses_[b].last <= at; }

  void over_dying(const Step& s, int at) {
    std::vector<int> taken;
    for (size_t out = static_cast<size_t>(s.operand_count); out < s.buffers.size(); ++out) {
      const int result = s.buffers[out];
      if (!is_temp(result) || writer(result) != at) continue;
      for (int i = 0; i < s.operand_count; ++i) {
        const int operand = s.buffers[i];
        if (!is_temp(operand) && !is_made_for_us(operand, at)) continue;
        if (std::count(taken.begin(), taken.end(), operand)) continue;
        if (!same_layout(buffer(result).type, buffer(operand).type) || !is_dense(buffer(operand).type))
          continue;
        if (!dies_at(operand, at) || !may_overwrite(s, out, operand)) continue;
        buffer(result).over = operand;
        taken.push_back(operand);
        break;
      }
    }
  }

  void over_added(const Step& s, int at) {
    const int result = s.buffers.back(), added = s.buffers[static_cast<size_t>(s.operand_count) - 1];
    if (buffer(result).kind != BufferKind::Temp || !dies_at(added, at)) return;
    if (!is_temp(added) && !is_made_for_us(added, at)) return;
    if (!same_layout(buffer(result).type, buffer(added).type) || !is_dense(buffer(added).type)) return;
    const auto lies_there = [&](int b) { return memory(b) == added; };
    if (std::count_if(s.buffers.begin(), s.buffers.begin() + s.operand_count, lies_there) > 1) return;
    buffer(result).over = added;
    buffer(result).owned_by_step = false;
  }

  /// Of a memory.
  struct Uses {
    int writer = -1, last = -1;  ///< steps; the end if it is returned
    bool several = false;        ///< writers, or one that writes a view of it
  };

  Plan& p_;
  const PlanOptions& options_;
  int written_ = 0;         ///< first_visible_write
  std::vector<Uses> uses_;  ///< by buffer
};

}  // namespace

bool can_fail(const Plan& plan, const Step& s) {
  if (s.kind == StepKind::Library || s.kind == StepKind::Extern) return true;
  const int kernel = s.kind == StepKind::Kernel ? s.kernel : s.epilogue;
  return kernel >= 0 && plan.kernels[kernel].has_checks();
}

int first_visible_write(const Plan& plan) {
  auto is_input = [&](int b) { return plan.buffers[memory_of(plan, b)].kind == BufferKind::Input; };
  auto writes = [&](const Step& s) {
    if (s.kind == StepKind::Copy) return is_input(s.buffers[1]);
    if (kernel_of(s) < 0) return false;
    const size_t operands = s.kind == StepKind::Contraction ? s.operand_count : 0;
    const auto& buffers = plan.kernels[kernel_of(s)].buffers;
    for (size_t b = operands; b < s.buffers.size(); ++b)
      if (buffers[b - operands].role != BufferRole::In && is_input(s.buffers[b])) return true;
    return false;
  };
  const auto first = std::find_if(plan.steps.begin(), plan.steps.end(), writes);
  return static_cast<int>(first - plan.steps.begin());
}

void drop_unused(Plan& plan, int kernel) {
  auto each = [&](auto&& f) {
    for (auto* list : {&plan.fold_steps, &plan.steps})
      for (Step& s : *list)
        for (int* k : {&s.kernel, &s.epilogue}) f(*k);
  };
  bool used = false;
  each([&](int k) { used |= k == kernel; });
  if (used) return;
  plan.kernels.erase(plan.kernels.begin() + kernel);
  each([&](int& k) { k -= k > kernel; });
}

void write_in_place(Plan& plan, const PlanOptions& options) { InPlace(plan, options).run(); }

}  // namespace bolt::loops
