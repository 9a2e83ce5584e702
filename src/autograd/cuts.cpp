// autograd/cuts.cpp
#include "autograd/cuts.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "autograd/flow.h"
#include "autograd/gradients.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

class Cutting {
 public:
  Cutting(const Tape& run, const std::vector<TensorId>& wanted, const std::set<int>& own)
      : run_(run), wanted_(wanted), leads_(run.entries.size()) {
    find_differentiable();
    auto add = [&](TensorId id) {
      if (is_input(id) ? rewritten_.contains(storage(id)) : is_differentiable(id)) results_.insert(id);
    };
    for (TensorId id : wanted)
      if (id >= 0 && (is_input(id) || info(id).producer >= 0)) add(id);
    for (TensorId id : run.inputs)
      if (!own.contains(info(id).input)) add(id);
  }

  Cuts cuts(bool joins) {
    const size_t passed = behind_passes();
    if (passed == 0 && results_.size() < 2) return {};
    find_leading();
    const auto goes_on = std::find(leads_.begin() + static_cast<std::ptrdiff_t>(passed), leads_.end(), true);
    if (passed > 0 && goes_on == leads_.end()) return {};
    const size_t begin = passed == 0 ? 0 : static_cast<size_t>(goes_on - leads_.begin());
    std::vector<Span> spans;
    Cuts all;
    for (TensorId id : results_) {
      const auto span = span_of(id);
      if (!span || span->first <= begin) continue;
      if (joins && passed == 0 && may_be_inner(id))
        all.inner.insert(id);
      else
        spans.push_back(*span);
    }
    all.places = cuts_in(std::move(spans));
    if (passed > 0) all.places.insert(all.places.begin(), begin);
    return all;
  }

 private:
  /// Of cuts that part a result from what is made of it.
  struct Span {
    size_t first, last;
  };

  /// In each there must be one. There are the fewest if one is taken when the next span begins behind it, and
  /// of the places that do for the same spans the first: views are made by the piece that reads them.
  static std::vector<size_t> cuts_in(std::vector<Span> spans) {
    std::ranges::sort(spans, {}, &Span::last);
    std::vector<Span> common;
    for (const Span& span : spans)
      if (common.empty() || common.back().last < span.first)
        common.push_back(span);
      else
        common.back().first = std::max(common.back().first, span.first);
    std::vector<size_t> out;
    for (const Span& places : common) out.push_back(places.first);
    return out;
  }

  /// The first entry behind the last backward pass; 0: there is none.
  size_t behind_passes() const {
    size_t behind = 0;
    for (size_t i = 0; i < run_.entries.size(); ++i)
      if (is_gradients(run_.entries[i])) behind = i + 1;
    return behind;
  }

  const TensorInfo& info(TensorId id) const { return run_.tensors[id]; }
  int storage(TensorId id) const { return info(id).storage; }
  bool is_input(TensorId id) const { return info(id).input >= 0; }

  /// Through an operator, or through what was written to its memory.
  bool is_differentiable(TensorId id) const {
    return info(id).requires_grad || written_.contains(storage(id));
  }

  void find_differentiable() {
    for (const Entry& entry : run_.entries) {
      bool flows = false;
      for_each_tensor(entry.args, [&](TensorId id) { flows |= is_differentiable(id); });
      if (record::makes_leaf(entry))
        for_each_written(entry, [&](TensorId id) { written_.insert(storage(id)); });
      if (!flows || !entry.grad_mode) continue;
      for_each_written(entry, [&](TensorId id) {
        written_.insert(storage(id));
        const bool numbers = at::isFloatingType(info(id).dtype) || at::isComplexType(info(id).dtype);
        if (numbers && !record::counts_no_write(entry)) rewritten_.insert(storage(id));
      });
    }
  }

  /// Which entries lie between a tensor and a result that its gradient comes from?
  void find_leading() {
    std::unordered_set<int> needed;  // storages
    for (TensorId id : results_) needed.insert(storage(id));
    for (size_t i = run_.entries.size(); i-- > 0;) {
      const Entry& entry = run_.entries[i];
      if (!entry.grad_mode) continue;
      bool leads = false;
      auto look = [&](TensorId id) { leads |= is_differentiable(id) && needed.contains(storage(id)); };
      for_each_tensor(entry.results, look);
      for_each_written(entry, look);
      leads_[i] = leads;
      if (!leads) continue;
      for_each_tensor(entry.args, [&](TensorId id) {
        if (is_differentiable(id)) needed.insert(storage(id));
      });
    }
  }

  /// It is what its operator made, whose memory no other result shows and nothing is written to afterwards.
  bool may_be_inner(TensorId id) const {
    if (is_input(id) || behind_writes(id) != static_cast<size_t>(info(id).producer) + 1) return false;
    return std::ranges::none_of(
        wanted_, [&](TensorId other) { return other >= 0 && other != id && storage(other) == storage(id); });
  }

  std::optional<Span> span_of(TensorId result) const {
    std::unordered_set<TensorId> shows = {result};
    const size_t first = behind_last_write(result, shows);
    for (size_t i = first; i < run_.entries.size(); ++i) {
      const Entry& entry = run_.entries[i];
      bool reads = false;
      for_each_tensor(entry.args, [&](TensorId id) { reads |= shows.contains(id); });
      if (!reads) continue;
      if (only_shows(entry, storage(result)))  // autograd makes the node of a view, whoever makes the view
        for_each_tensor(entry.results, [&](TensorId id) {
          if (is_differentiable(id)) shows.insert(id);
        });
      else if (leads_[i])
        return Span{first, i};
    }
    return std::nullopt;
  }

  /// From there on the result is what is handed out. Views of it that are older than the last write are views
  /// of what was written, unless it is itself one: then all are views of the same tensor.
  size_t behind_last_write(TensorId result, std::unordered_set<TensorId>& shows) const {
    const size_t made = is_input(result) ? 0 : static_cast<size_t>(info(result).producer) + 1;
    const size_t behind = behind_writes(result);
    if (behind == made || (!is_input(result) && is_view(result))) return behind;
    for (size_t i = made; i < behind; ++i)
      for_each_tensor(run_.entries[i].results, [&](TensorId id) {
        if (storage(id) == storage(result)) shows.insert(id);
      });
    return behind;
  }

  /// The entry behind the last that writes to its memory, its maker counting as one.
  size_t behind_writes(TensorId result) const {
    size_t behind = is_input(result) ? 0 : static_cast<size_t>(info(result).producer) + 1;
    for (size_t i = behind; i < run_.entries.size(); ++i)
      for_each_written(run_.entries[i], [&](TensorId id) {
        if (storage(id) == storage(result)) behind = i + 1;
      });
    return behind;
  }

  bool is_view(TensorId id) const {
    bool shared = false;
    for_each_tensor(run_.entries[info(id).producer].args,
                    [&](TensorId operand) { shared |= storage(operand) == storage(id); });
    return shared;
  }

  bool only_shows(const Entry& entry, int memory) const {
    bool shows = record::written_arguments(entry).empty();
    for_each_tensor(entry.results, [&](TensorId id) { shows &= storage(id) == memory; });
    return shows;
  }

  const Tape& run_;
  const std::vector<TensorId>& wanted_;
  std::unordered_set<int> written_;       ///< storages, by entries that autograd follows
  std::unordered_set<int> rewritten_;     ///< those of them that have another history behind such an entry
  std::unordered_set<TensorId> results_;  ///< that are made inside, or rewritten, and differentiable
  std::vector<bool> leads_;               ///< by entry
};

}  // namespace

Cuts cuts(const Tape& run, const std::vector<TensorId>& wanted, const std::set<int>& own) {
  return Cutting(run, wanted, own).cuts(/*joins=*/false);
}

Cuts fewest_cuts(const Tape& run, const std::vector<TensorId>& wanted, const std::set<int>& own) {
  return Cutting(run, wanted, own).cuts(/*joins=*/true);
}

}  // namespace bolt::autograd
