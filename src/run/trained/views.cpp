// run/trained/views.cpp
#include "run/trained/views.h"

#include <algorithm>
#include <set>

#include "record/copy.h"
#include "record/operator_facts.h"
#include "record/recorder.h"

namespace bolt::run {

using record::Entry;
using record::Tape;
using record::TensorId;

/// Which entries lead from the bases to a tensor.
class Views::Finding {
 public:
  Finding(const Tape& tape, const std::vector<TensorId>& bases) : tape_(tape), bases_(bases) {}

  bool reach(TensorId id) {
    if (std::ranges::find(bases_, id) != bases_.end()) return true;
    const int producer = info(id).producer;
    if (producer < 0) return false;
    const Entry& entry = tape_.entries[producer];
    if (!record::written_arguments(entry).empty() || entry.facts->turns) return false;
    bool from_a_view = false;
    const bool from_others = any_tensor(entry.args, [&](TensorId operand) {
      from_a_view = true;
      return info(operand).storage != info(id).storage || !reach(operand);
    });
    if (from_others || !from_a_view) return false;
    entries_.insert(producer);
    return true;
  }

  const std::set<int>& entries() const { return entries_; }

 private:
  const record::TensorInfo& info(TensorId id) const { return tape_.tensors[id]; }

  const Tape& tape_;
  const std::vector<TensorId>& bases_;
  std::set<int> entries_;
};

bool Views::reaches(const Tape& tape, const std::vector<TensorId>& bases, TensorId id) {
  return Finding(tape, bases).reach(id);
}

Views::Views(const Tape& tape, const std::vector<TensorId>& bases, const std::vector<TensorId>& wanted) {
  Finding finding(tape, bases);
  for (TensorId id : wanted) {
    const bool is_base = id < 0 || std::ranges::find(bases, id) != bases.end();
    made_.push_back(!is_base && finding.reach(id) ? static_cast<int>(ids_.size()) : -1);
    if (made_.back() >= 0) ids_.push_back(id);
  }
  if (ids_.empty()) return;
  tape_ = record::without_entries(tape);
  tape_.inputs = bases;
  for (int entry : finding.entries()) tape_.entries.push_back(tape.entries[entry]);
}

void Views::make(const std::vector<at::Tensor>& bases, const std::function<int64_t(Sym)>& value,
                 const std::function<void(size_t, at::Tensor)>& give) const {
  std::vector<at::Tensor> views = record::replay(tape_, bases, ids_, value);
  for (size_t i = 0; i < made_.size(); ++i)
    if (made_[i] >= 0) give(i, views[made_[i]]);
}

}  // namespace bolt::run
