// loops/put_back.cpp
#include "loops/put_back.h"

#include <algorithm>
#include <cstdint>

#include "support/longest_run.h"

namespace bolt::loops {
namespace {

/// A copy of the full graph and a place in it; copy -1: belongs to no copy.
struct CopyPlace {
  int copy = -1, at = -1;
};

/// Steps, buffers and results of a longer plan. Results are those of the full graph, without a buffer where
/// it has none yet.
struct Longer {
  std::vector<PlanBuffer> buffers;
  std::vector<Step> steps, fold_steps;
  std::vector<PlanResult> results;
};

/// Slots of a step that it reads: its operands, and what its epilogue loads.
bool is_read(const std::vector<Kernel>& kernels, const Step& s, size_t slot) {
  const auto operands = static_cast<size_t>(s.operand_count);
  if (slot < operands || s.kind != StepKind::Contraction) return slot < operands;
  return kernels[s.epilogue].buffers[slot - operands].role == BufferRole::In;
}

/// What an earlier step has begun and this one goes on with: a scatter.
bool is_updated(const std::vector<Kernel>& kernels, const Step& s, size_t slot) {
  return s.kind == StepKind::Kernel && kernels[s.kernel].buffers[slot].role == BufferRole::InOut;
}

/// Do both steps the same, whichever kernel, call and buffers they name?
bool same_work(const Step& a, const Step& b) {
  if (a.kind != b.kind || a.device != b.device || a.operand_count != b.operand_count ||
      a.buffers.size() != b.buffers.size())
    return false;
  if (!a.node || !b.node) return !a.node && !b.node;
  if (a.node->op != b.node->op || a.node->outputs.size() != b.node->outputs.size()) return false;
  if (a.kind != StepKind::Extern && a.node->attrs != b.node->attrs) return false;
  for (size_t i = 0; i < a.node->outputs.size(); ++i)
    if (a.node->outputs[i]->type != b.node->outputs[i]->type) return false;
  return true;
}

class PutBack {
 public:
  PutBack(const PlanDraft& draft, const graph::Repeats& repeats)
      : p_(draft.plan), results_(draft.results), r_(repeats) {}

  /// Which steps repeat, and what one stretch of them reads and leaves.
  bool learn() {
    out_.buffers = p_.buffers;
    read_plan();
    const Run run = longest_run(step_keys(), [&](int i, int j) { return match(i, j); });
    first_ = run.first, period_ = run.period, end_ = first_ + period_;
    return run.copies() >= 2 && learn_what_is_left() && rest_reads_what_is_known();
  }

  /// The plan with so many copies more. Nothing where a result has no clear place.
  std::optional<Longer> with(int copies) {
    out_ = {p_.buffers, {}, p_.fold_steps, {}};
    moved_.assign(static_cast<size_t>(copies + 1) * p_.buffers.size(), -1);
    named_.clear();
    write_steps(copies);
    if (!write_results(copies)) return std::nullopt;
    drop_unused_folds();
    return std::move(out_);
  }

 private:
  const PlanBuffer& buffer(int b) const { return out_.buffers[b]; }
  const Step& step(int i) const { return p_.steps[i]; }
  int memory(int b) const {
    while (buffer(b).kind == BufferKind::Alias) b = buffer(b).source;
    return b;
  }
  template <typename F>
  void each_read(const Step& s, F&& f) const {
    for (size_t k = 0; k < s.buffers.size(); ++k)
      if (is_read(p_.kernels, s, k)) f(k);
  }
  template <typename F>
  void each_made(const Step& s, F&& f) const {
    for (size_t k = 0; k < s.buffers.size(); ++k)
      if (!is_read(p_.kernels, s, k)) f(k);
  }

  bool made_in_a(int b) const { return made_by(b) >= first_ && made_by(b) < end_; }
  int made_by(int b) const { return static_cast<size_t>(b) < made_by_.size() ? made_by_[b] : -1; }

  static std::vector<CopyPlace> places(const graph::Places& of, size_t count) {
    std::vector<CopyPlace> found(count);
    for (size_t c = 0; c < of.size(); ++c)
      for (size_t k = 0; k < of[c].size(); ++k) found[of[c][k]] = {static_cast<int>(c), static_cast<int>(k)};
    return found;
  }
  static int moved(const graph::Places& of, CopyPlace place, int copies) {
    return of[place.copy + copies][place.at];
  }

  void read_plan() {
    input_ = places(r_.inputs, p_.graph->inputs.size());
    output_ = places(r_.outputs, r_.full_outputs.size());
    int calls = 0;
    for (const auto& copy : r_.calls)
      for (int call : copy) calls = std::max(calls, call + 1);
    for (const Step& s : p_.steps) calls = std::max(calls, s.call + 1);
    for (const Step& s : p_.fold_steps) calls = std::max(calls, s.call + 1);
    call_ = places(r_.calls, static_cast<size_t>(calls));
    made_by_.assign(p_.buffers.size(), -1);
    folded_by_ = made_by_;
    buffer_of_input_.assign(p_.graph->inputs.size(), -1);
    auto note = [&](const std::vector<Step>& steps, std::vector<int>& by) {
      for (size_t i = 0; i < steps.size(); ++i)
        each_made(steps[i], [&](size_t k) { by[steps[i].buffers[k]] = static_cast<int>(i); });
    };
    note(p_.steps, made_by_);
    note(p_.fold_steps, folded_by_);
    for (size_t b = 0; b < p_.buffers.size(); ++b)
      if (p_.buffers[b].kind == BufferKind::Input)
        buffer_of_input_[p_.buffers[b].source] = static_cast<int>(b);
  }

  // ---- which steps are alike ----

  std::vector<uint64_t> step_keys() const {
    std::vector<uint64_t> keys;
    for (const Step& s : p_.steps) {
      uint64_t h = static_cast<uint64_t>(s.kind);
      auto mix = [&](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); };
      mix(s.buffers.size() << 16 | static_cast<uint64_t>(s.operand_count));
      if (s.node) mix(static_cast<uint64_t>(s.node->op));
      mix(static_cast<uint64_t>(s.kernel + 1) << 32 | static_cast<uint32_t>(s.epilogue + 1));
      keys.push_back(h);
    }
    return keys;
  }

  bool same_call(int x, int y) const {
    if (x == y) return true;
    const CopyPlace a = call_[x], b = call_[y];
    return a.copy >= 0 && b.copy == a.copy + 1 && a.at == b.at;
  }
  bool alike(const Step& a, const Step& b) const {
    return same_work(a, b) && a.kernel == b.kernel && a.epilogue == b.epilogue &&
           (a.call < 0 ? b.call < 0 : b.call >= 0 && same_call(a.call, b.call));
  }

  bool match(int i, int j) const {
    const Step &a = step(i), &b = step(j);
    if (!alike(a, b)) return false;
    for (size_t k = 0; k < a.buffers.size(); ++k)
      if (!match_buffers(a.buffers[k], b.buffers[k], j - i)) return false;
    return true;
  }
  bool match_buffers(int x, int y, int period) const {
    const PlanBuffer &a = buffer(x), &b = buffer(y);
    if (x == y) return a.kind != BufferKind::Input || input_[a.source].copy < 0;
    if (a.kind != b.kind || a.owned_by_step != b.owned_by_step || a.type != b.type) return false;
    switch (a.kind) {
      case BufferKind::Input: {
        const CopyPlace p = input_[a.source], q = input_[b.source];
        return p.copy >= 0 && q.copy == p.copy + 1 && p.at == q.at;
      }
      case BufferKind::Alias: return a.offset == b.offset && match_buffers(a.source, b.source, period);
      case BufferKind::Fold: return match_folds(x, y);
      case BufferKind::Output: {
        const CopyPlace p = place_of_output(a), q = place_of_output(b);
        return p.copy >= 0 && q.copy == p.copy + 1 && p.at == q.at && made_alike(x, y, period);
      }
      case BufferKind::Temp: return made_alike(x, y, period);
    }
    return false;
  }
  bool made_alike(int x, int y, int period) const {
    const int i = made_by(x), j = made_by(y);
    return i >= 0 && j == i + period && slot(step(i), x) == slot(step(j), y);
  }
  static size_t slot(const Step& s, int b) {
    return static_cast<size_t>(std::find(s.buffers.begin() + s.operand_count, s.buffers.end(), b) -
                               s.buffers.begin());
  }
  bool match_folds(int x, int y) const {
    const int i = folded_by_[x], j = folded_by_[y];
    if (i < 0 || j < 0) return false;
    const Step &a = p_.fold_steps[i], &b = p_.fold_steps[j];
    if (!alike(a, b) || slot(a, x) != slot(b, y)) return false;
    bool same = true;
    each_read(a, [&](size_t k) { same = same && match_buffers(a.buffers[k], b.buffers[k], 0); });
    return same;
  }
  /// Buffers name outputs of the short graph.
  CopyPlace place_of_output(const PlanBuffer& b) const { return output_[r_.output_of[b.source]]; }

  // ---- what one stretch leaves for the next ----

  /// What A reads of what stands before it, and what B reads in its place.
  bool learn_what_is_left() {
    next_.assign(p_.buffers.size(), -1);
    bool known = true;
    for (int i = first_; i < end_; ++i)
      each_read(step(i),
                [&](size_t k) { known = known && learn(step(i).buffers[k], step(i + period_).buffers[k]); });
    return known;
  }
  bool learn(int x, int y) {
    while (buffer(x).kind == BufferKind::Alias && x != y) x = buffer(x).source, y = buffer(y).source;
    if (x == y) x = y = memory(x);
    if (buffer(x).kind == BufferKind::Input || buffer(x).kind == BufferKind::Fold) return true;
    if (made_by(x) >= first_) return x != y;
    if (x != y && !made_in_a(y)) return false;
    int& next = next_[x];
    if (next >= 0 && next != y) return false;
    next = y;
    return true;
  }

  /// B and what follows read what A left, what all share, and what never belonged to a copy.
  bool rest_reads_what_is_known() const {
    std::vector<char> of_a_copy(p_.buffers.size(), 0);
    for (int i = 0; i < first_; ++i) {
      bool any = false;
      each_read(step(i), [&](size_t k) { any |= is_of_a_copy(step(i).buffers[k], of_a_copy); });
      if (any) each_made(step(i), [&](size_t k) { of_a_copy[step(i).buffers[k]] = 1; });
    }
    bool known = true;
    for (int i = end_; i < static_cast<int>(p_.steps.size()); ++i)
      each_read(step(i), [&](size_t k) {
        const int b = memory(step(i).buffers[k]);
        const BufferKind kind = buffer(b).kind;
        if (kind == BufferKind::Input || kind == BufferKind::Fold || made_by(b) >= first_) return;
        const int next = next_[b];
        known = known && (next >= 0 ? next == b : !of_a_copy[b]);
      });
    return known;
  }
  bool is_of_a_copy(int b, const std::vector<char>& of_a_copy) const {
    b = memory(b);
    if (buffer(b).kind == BufferKind::Input) return input_[buffer(b).source].copy >= 0;
    if (buffer(b).kind != BufferKind::Fold) return of_a_copy[b] != 0;
    bool any = false;
    const Step& s = p_.fold_steps[folded_by_[b]];
    each_read(s, [&](size_t k) { any |= is_of_a_copy(s.buffers[k], of_a_copy); });
    return any;
  }

  // ---- the full plan ----

  int add(PlanBuffer b) {
    out_.buffers.push_back(std::move(b));
    return static_cast<int>(out_.buffers.size()) - 1;
  }
  int& known_moved(int b, int copies) {
    return moved_[static_cast<size_t>(copies) * p_.buffers.size() + static_cast<size_t>(b)];
  }

  /// What `b` is for a step that was moved on by so many copies.
  int moved(int b, int copies) {
    if (copies == 0) return b;
    if (const int known = known_moved(b, copies); known >= 0) return known;
    return known_moved(b, copies) = find_moved(b, copies);
  }
  int find_moved(int b, int copies) {
    switch (buffer(b).kind) {
      case BufferKind::Input: {
        const CopyPlace place = input_[buffer(b).source];
        if (place.copy < 0) return b;
        return buffer_of_input_[moved(r_.inputs, place, copies)];
      }
      case BufferKind::Alias: {
        const int source = moved(buffer(b).source, copies);
        if (source == buffer(b).source) return b;
        PlanBuffer alias = buffer(b);
        alias.source = source;
        return add(std::move(alias));
      }
      case BufferKind::Fold: return moved_fold(b, copies);
      default: {
        // What A makes was entered when the stretch was written; what follows A keeps its own.
        const int next = made_by(b) < first_ ? next_[b] : b;
        return next < 0 || next == b ? b : moved(next, copies - 1);
      }
    }
  }
  int moved_fold(int b, int copies) {
    const auto at = static_cast<size_t>(folded_by_[b]);
    Step s = p_.fold_steps[at];
    if (!move_operands(s, copies)) return b;
    make_results(s, copies);
    out_.fold_steps.push_back(std::move(s));
    return known_moved(b, copies);
  }
  bool move_call(Step& s, int copies) const {
    if (s.call < 0 || call_[s.call].copy < 0) return false;
    s.call = moved(r_.calls, call_[s.call], copies);
    return true;
  }
  /// Buffers of its own for what a moved step makes.
  void make_results(Step& s, int copies) {
    each_made(s, [&](size_t k) {
      const int old = s.buffers[k];
      const bool begun = is_updated(p_.kernels, s, k) && known_moved(old, copies) >= 0;
      s.buffers[k] = begun ? known_moved(old, copies) : add(buffer(old));
      known_moved(old, copies) = s.buffers[k];
    });
  }

  void write_steps(int more) {
    out_.steps.assign(p_.steps.begin(), p_.steps.begin() + end_);
    for (int copies = 1; copies <= more; ++copies)
      for (int i = first_; i < end_; ++i) {
        Step s = step(i);
        move_operands(s, copies);
        make_results(s, copies);
        out_.steps.push_back(std::move(s));
      }
    for (int i = end_; i < static_cast<int>(p_.steps.size()); ++i) {
      Step s = step(i);
      move_operands(s, more);
      out_.steps.push_back(std::move(s));
    }
  }
  /// Does that change the step?
  bool move_operands(Step& s, int copies) {
    bool differs = move_call(s, copies);
    each_read(s, [&](size_t k) {
      const int m = moved(s.buffers[k], copies);
      differs |= m != s.buffers[k];
      s.buffers[k] = m;
    });
    return differs;
  }

  /// Fold steps of the short plan whose results only moved steps had wanted.
  void drop_unused_folds() {
    std::vector<char> used(out_.buffers.size(), 0), wanted(out_.fold_steps.size(), 0);
    auto use = [&](int b) { used[memory(b)] = 1; };
    for (const Step& s : out_.steps) each_read(s, [&](size_t k) { use(s.buffers[k]); });
    for (const PlanResult& r : out_.results)
      if (r.buffer >= 0) use(r.buffer);
    // Steps that were added stand behind what they read, as all steps do, so one walk backwards is enough.
    for (size_t i = wanted.size(); i-- > 0;) {
      const Step& s = out_.fold_steps[i];
      each_made(s, [&](size_t k) { wanted[i] |= used[memory(s.buffers[k])]; });
      if (wanted[i]) each_read(s, [&](size_t k) { use(s.buffers[k]); });
    }
    std::vector<Step> kept;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i]) kept.push_back(std::move(out_.fold_steps[i]));
    out_.fold_steps = std::move(kept);
  }

  /// Each result of the full graph: the buffer of the short one's, moved by as many copies as it lies behind
  /// it.
  bool write_results(int more) {
    out_.results.assign(r_.full_outputs.size(), {});
    auto put = [&](int output, int b, const graph::Type& type) {
      PlanResult& r = out_.results[output];
      r = {b, r_.full_outputs[output].write_to, type};
      if (buffer(memory(b)).kind == BufferKind::Output) named_.push_back({memory(b), output});
    };
    for (size_t i = 0; i < results_.size(); ++i) {
      const PlanResult& r = results_[i];
      const int output = r_.output_of[i], owner = memory(r.buffer);
      const CopyPlace place = output_[output];
      const bool computed = buffer(owner).kind != BufferKind::Input && buffer(owner).kind != BufferKind::Fold;
      if (place.copy < 0) {
        put(output, moved(r.buffer, computed && made_by(owner) < first_ ? 0 : more), r.type);
        continue;
      }
      if (!computed) return false;
      const int from = made_by(owner) < end_ ? 0 : more, to = made_by(owner) < first_ ? 0 : more;
      for (int copies = from; copies <= to; ++copies)
        put(moved(r_.outputs, place, copies), moved(r.buffer, copies), r.type);
    }
    // An output's buffer is called by the first output it serves.
    for (size_t i = named_.size(); i-- > 0;) out_.buffers[named_[i].first].source = named_[i].second;
    return true;
  }

  const Plan& p_;
  const std::vector<PlanResult>& results_;
  const graph::Repeats& r_;
  Longer out_;
  std::vector<CopyPlace> input_, output_, call_;  // by graph input, output of the full graph, call
  std::vector<int> made_by_, folded_by_;          // by buffer: its step, its fold step; -1: none
  std::vector<int> buffer_of_input_;
  std::vector<int> next_;   // by buffer that A finds made: what B finds in its place; -1: A does not read it
  std::vector<int> moved_;  // by copies and buffer of the short plan; -1: not asked yet
  std::vector<std::pair<int, int>> named_;  // buffer of kind Output, the output it serves
  int first_ = 0, period_ = 0, end_ = 0;    // A
};

/// Are two plans the same, step for step, whatever numbers their buffers and kernels have?
class Same {
 public:
  Same(const Longer& a, const std::vector<Kernel>& kernels, const PlanDraft& b,
       const std::vector<int>& output_of)
      : a_(a), kernels_(kernels), b_(b.plan), results_(b.results), output_of_(output_of) {}

  bool run() {
    if (a_.steps.size() != b_.steps.size()) return false;
    twin_.assign(a_.buffers.size(), -1);
    folded_by_a_ = folded_by(a_.fold_steps, kernels_, a_.buffers.size());
    folded_by_b_ = folded_by(b_.fold_steps, b_.kernels, b_.buffers.size());
    for (size_t i = 0; i < a_.steps.size(); ++i)
      if (!same_step(a_.steps[i], b_.steps[i])) return false;
    for (size_t i = 0; i < results_.size(); ++i) {
      const PlanResult& r = a_.results[output_of_[i]];
      if (r.buffer < 0 || !same_buffer(r.buffer, results_[i].buffer)) return false;
    }
    return true;
  }

 private:
  static std::vector<int> folded_by(const std::vector<Step>& folds, const std::vector<Kernel>& kernels,
                                    size_t buffers) {
    std::vector<int> by(buffers, -1);
    for (size_t i = 0; i < folds.size(); ++i)
      for (size_t k = 0; k < folds[i].buffers.size(); ++k)
        if (!is_read(kernels, folds[i], k)) by[folds[i].buffers[k]] = static_cast<int>(i);
    return by;
  }

  bool same_kernel(int a, int b) const {
    if (a < 0 || b < 0) return a < 0 && b < 0;
    return same_code(kernels_[a], b_.kernels[b]);
  }
  /// What they read is the same; then so is what they make.
  bool same_step(const Step& a, const Step& b) {
    if (!same_work(a, b) || a.call != b.call || !same_kernel(a.kernel, b.kernel) ||
        !same_kernel(a.epilogue, b.epilogue))
      return false;
    for (size_t k = 0; k < a.buffers.size(); ++k)
      if (is_read(kernels_, a, k) && !same_buffer(a.buffers[k], b.buffers[k])) return false;
    for (size_t k = 0; k < a.buffers.size(); ++k) {
      if (is_read(kernels_, a, k)) continue;
      if (!same_memory(a.buffers[k], b.buffers[k])) return false;
      if (is_updated(kernels_, a, k) && twin_[a.buffers[k]] != b.buffers[k]) return false;
      twin_[a.buffers[k]] = b.buffers[k];
    }
    return true;
  }
  bool same_memory(int x, int y) const {
    const PlanBuffer &a = a_.buffers[x], &b = b_.buffers[y];
    if (a.kind != b.kind || a.type != b.type || a.owned_by_step != b.owned_by_step) return false;
    if (a.kind == BufferKind::Output) return a.source == output_of_[b.source];
    return a.kind != BufferKind::Input || a.source == b.source;
  }
  bool same_buffer(int x, int y) {
    if (const int twin = twin_[x]; twin >= 0) return twin == y;
    if (!same_memory(x, y)) return false;
    const PlanBuffer &a = a_.buffers[x], &b = b_.buffers[y];
    if (a.kind == BufferKind::Alias) return a.offset == b.offset && same_buffer(a.source, b.source);
    if (a.kind != BufferKind::Fold) return a.kind == BufferKind::Input || a.type.numel().is_const(0);
    const int i = folded_by_a_[x], j = folded_by_b_[y];
    return i >= 0 && j >= 0 && same_step(a_.fold_steps[i], b_.fold_steps[j]) && twin_[x] == y;
  }

  const Longer& a_;
  const std::vector<Kernel>& kernels_;
  const Plan& b_;
  const std::vector<PlanResult>& results_;
  const std::vector<int>& output_of_;
  std::vector<int> twin_;  // by buffer of a: that of b which it is
  std::vector<int> folded_by_a_, folded_by_b_;
};

}  // namespace

bool put_back(PlanDraft& draft, const PlanDraft& one_more, const graph::Repeats& repeats) {
  PutBack work(draft, repeats);
  if (!work.learn()) return false;
  const std::optional<Longer> longer = work.with(1);
  if (!longer || !Same(*longer, draft.plan.kernels, one_more, repeats.output_of_longer).run()) return false;
  std::optional<Longer> full = work.with(repeats.left_out);
  auto is_missing = [](const PlanResult& r) { return r.buffer < 0; };
  if (!full || std::any_of(full->results.begin(), full->results.end(), is_missing)) return false;
  draft.plan.buffers = std::move(full->buffers);
  draft.plan.steps = std::move(full->steps);
  draft.plan.fold_steps = std::move(full->fold_steps);
  draft.plan.put_back = repeats.left_out;
  draft.results = std::move(full->results);
  return true;
}

}  // namespace bolt::loops
