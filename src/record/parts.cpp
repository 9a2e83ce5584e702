// record/parts.cpp
// A composite operator -> the operators that it is made of, on the tape in its place.
//
// ATen writes many operators as a few others, above autograd: nanmean, cosine_similarity, kron. As a whole
// each would be a call of its own, while most of its parts are pointwise work and reductions, which fuse. So
// those that nobody knows as a whole (Recorder::has_row) run with our key still on, and what arrives is
// recorded. Autograd takes the parts in eager, too, so gradients are the same.
//
// Only a run tells whether the parts say all that the whole does. They do not where one looks at the data,
// draws, or gets a tensor that came about unseen, and where a result did: then they are taken off the tape,
// and the whole stands there. So it does where a part only looks whether all is well (linalg.cholesky), which
// the whole does in each call. It also does where several parts have no row either, which would be more calls
// than the whole; where numbers are complex, with which no kernel computes; and where sizes differ between
// calls, since ATen's code computes the arguments of the parts from plain sizes.
#include <algorithm>
#include <utility>

#include "record/autocast.h"
#include "record/operator_facts.h"
#include "record/recorder.h"

namespace bolt::record {
namespace {

/// Calls `does` with each tensor among the last `count` values; false once it is.
template <class Does>
bool all_tensors(const torch::jit::Stack& stack, size_t count, Does does) {
  auto of = [&](const at::Tensor& t) { return !t.defined() || does(t); };
  return std::all_of(
      stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(), [&](const c10::IValue& v) {
        if (v.isTensor()) return of(v.toTensor());
        if (v.isTensorList()) return std::ranges::all_of(v.toTensorVector(), of);
        if (v.isOptionalTensorList())
          return std::ranges::all_of(v.toOptionalTensorVector(), [&](const auto& t) { return !t || of(*t); });
        return true;
      });
}

/// Of numbers that kernels compute with, in memory that they read: the parts of others have rows in vain, and
/// regions end at sparse tensors by the names of operators that the user has called.
bool suits_kernels(const at::Tensor& t) { return !t.is_complex() && t.layout() == at::kStrided; }

}  // namespace

bool Recorder::falls_apart(const c10::OperatorHandle& op, const OperatorFacts& facts,
                           const torch::jit::Stack& stack) const {
  return has_row && !has_row(op) && all_tensors(stack, facts.arguments, suits_kernels);
}

bool Recorder::can_be_part(const OperatorFacts& facts, const torch::jit::Stack& stack) const {
  if (facts.draws || facts.has_out || facts.turns || facts.places || facts.lifts || facts.recurrent ||
      !facts.written_in_training.empty())
    return false;
  return all_tensors(stack, facts.arguments, [&](const at::Tensor& t) {
    return (t.dim() == 0 && t.unsafeGetTensorImpl()->is_wrapped_number()) || tensors_.knows(t);
  });
}

void Recorder::run_parts(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) {
  Entry entry = begin_entry(op, facts, *stack, {});
  const size_t first = tape_.entries.size(), first_tensor = tape_.tensors.size();
  const bool raised_before = !raised_.empty();
  bool whole = false;
  bool* const outer = std::exchange(whole_, &whole);
  try {
    op.redispatchBoxed(below_our_key(keys), stack);
  } catch (...) {
    whole_ = outer;
    drop_entries(first);
    if (!raised_before) raised_.clear();  // it is the user's operator that raised
    note_raised(op);
    throw;
  }
  whole_ = outer;
  if (stopped_) return drop_entries(first);
  if (!whole && say_all(first, first_tensor, *stack, facts.returns)) return;
  drop_entries(first);
  if (ends_at_result(op, facts, *stack)) return;
  add_whole(std::move(entry), *stack);
}

/// Is the memory that entry `maker` gives as it was written to by an entry behind it? If not, it was unseen.
bool Recorder::is_filled(size_t maker) const {
  auto storage = [&](TensorId id) { return tape_.tensors[id].storage; };
  const int made = storage(tape_.entries[maker].results[0].tensors[0]);
  for (size_t i = maker + 1; i < tape_.entries.size(); ++i)
    if (any_written(tape_.entries[i], [&](TensorId id) { return storage(id) == made; })) return true;
  return false;
}

/// Do the parts, which begin there on the tape, give the results, in no more calls?
bool Recorder::say_all(size_t first, size_t first_tensor, const torch::jit::Stack& stack,
                       size_t returns) const {
  size_t calls = 0;
  for (size_t i = first; i < tape_.entries.size(); ++i) {
    const Entry& part = tape_.entries[i];
    calls += !has_row(part.op);
    if (part.facts->uninitialised && !is_filled(i)) return false;
    if (part.facts->returns == 0 && written_arguments(part).empty())
      return false;  // it raises, or it does not
  }
  for (size_t i = first_tensor; i < tape_.tensors.size(); ++i)
    if (c10::isComplexType(tape_.tensors[i].dtype)) return false;
  return calls <= 1 &&
         all_tensors(stack, returns, [&](const at::Tensor& t) { return tensors_.find(t).has_value(); });
}

/// It has run, in parts that are no longer on the tape.
void Recorder::add_whole(Entry entry, const torch::jit::Stack& stack) {
  const int index = static_cast<int>(tape_.entries.size());
  const size_t returns = entry.facts->returns;
  entry.results = tape_.args->take(returns);
  for (size_t i = 0; i < returns; ++i) {
    take(stack[stack.size() - returns + i], Use::result, index, entry.results[i]);
    for (TensorId id : entry.results[i].tensors)
      if (TensorInfo* info = id < 0 ? nullptr : &tape_.tensors[id];
          info && info->input < 0 && info->producer < 0)
        info->producer = index;  // a part's until now
  }
  tape_.entries.push_back(std::move(entry));
  news_ |= is_very_long();
  tensors_.let_go();
}

}  // namespace bolt::record
