// record/tape.h
// What a recorded region did: its operators in order, as seen at the dispatcher above autograd.
//
// A tape can be replayed: calling every entry's operator again on other tensors, under the recorded thread
// state, is exactly eager's computation. That is what runs when gradients are needed (ATen's own autograd
// then differentiates the real operators) and what every compiled result is compared with.
//
// The real run has told us everything static about every tensor: dtype, sizes, strides, and which tensors
// share a storage and where in it they lie. So views, in-place operators and writes through views need no
// rules per operator later: functionalize (autograd/) reads them off `storage` and `offset` and the schema's
// alias annotations. Tensors are identified by TensorImpl while alive; the tape holds them weakly (a freed
// intermediate stays freed, peak memory is eager's) and a reused address gets a new id.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/growing.h"
#include "support/rare_vector.h"
#include "support/sym.h"
#include "support/text.h"

namespace bolt::record {

using TensorId = int;  // index into Tape::tensors
using TensorIds = ShortVector<TensorId, 2>;
using Dims = ShortVector<int64_t, 4>;

struct TensorInfo {
  at::ScalarType dtype;
  c10::Device device = c10::kCPU;
  Dims sizes, strides;
  int64_t offset = 0;          // storage offset in elements
  int storage = -1;            // equal for tensors that share memory
  bool requires_grad = false;  // when first seen
  bool plain = true;           // strided, dense implementation, no subclass, not quantised/sparse/nested
  bool zero = false;           // made by an operator, of nothing but zeros, and without memory to show them
  bool conjugated = false;     // a view that only notes that its memory holds the conjugates,
  bool negated = false;        // or the opposites
  int input = -1;              // >= 0: came from outside; index into Tape::inputs
  int producer = -1;           // entry that made it; -1 for inputs, and where it was taken back
  uint64_t data_dims = 0;      // a bit for each size that is data: the operator that made it found it out
  bool data_sized = false;     // its sizes may rest on such sizes
  bool chosen = false;         // an input that sizes and numbers say which it is (guard::Access::chosen)

  int64_t elements() const { return c10::multiply_integers(sizes); }
  /// Its memory holds other numbers than it does.
  bool is_noted() const { return conjugated || negated; }
};

/// An argument: an IValue in which tensors are replaced by ids.
struct Arg {
  enum class Kind : uint8_t { Value, Tensor, TensorList, OptionalTensorList, WrappedNumber };
  c10::IValue value;  // Value: numbers, lists, strings, dtypes, generators... WrappedNumber: the number
                      // (Python's 2 in x * 2, which does not take part in promotion as a tensor would)
  TensorIds tensors;  // -1: undefined or None. Of a number: the tensor it was taken out of
  // Where numbers among `value` were computed from sizes: an expression for each of them, over symbols
  // t<id>_<dim> (lower/sizes.h). Empty, as nearly always: `value` is all there is.
  RareVector<Sym> syms;
  Kind kind = Kind::Value;
  bool operator==(const Arg&) const = default;
};

/// Is a number among it computed from sizes or from numbers that may be others, or taken out of a tensor?
inline bool differs_between_calls(const Arg& arg) {
  const bool is_number = arg.kind == Arg::Kind::Value || arg.kind == Arg::Kind::WrappedNumber;
  return !arg.syms.empty() || (is_number && !arg.tensors.empty());
}

/// The arguments and results of a tape's entries, many to an allocation: one for each entry would lie between
/// the tensors' data, and what eager computes again and again in the same hot memory would move through all
/// of the heap while it is recorded.
class Args {
 public:
  /// Valid as long as the Args.
  std::span<Arg> take(size_t count) {
    if (free_.size() < count) {
      constexpr size_t kFewest = 32, kMost = 512;
      const size_t chunk = std::max(count, std::min(kFewest << chunks_.size(), kMost));
      free_ = {chunks_.emplace_back(std::make_unique<Arg[]>(chunk)).get(), chunk};
    }
    const std::span<Arg> taken = free_.first(count);
    free_ = free_.subspan(count);
    return taken;
  }

 private:
  std::vector<std::unique_ptr<Arg[]>> chunks_;
  std::span<Arg> free_;
};

struct OperatorFacts;

struct Entry {
  c10::OperatorHandle op;
  const OperatorFacts* facts;  // of `op`
  std::span<Arg> args;         // one per schema argument
  std::span<Arg> results;      // one per schema return (Tensor, TensorList or Value)
  bool grad_mode = true;
  bool inference_mode = false;
  bool own_version = false;  // the result counts the writes to it by itself: tensor.data
  int loc = -1;              // index into Tape::locs
};

/// Arguments, by index, that the operator writes to: those its schema says, and the running statistics of
/// normalisations, of which it says nothing.
const std::vector<int>& written_arguments(const Entry& entry);
/// May a number among the argument decide how large the results are? Whole numbers for sizes, lengths and
/// places may, and all that an operator is given that makes a tensor of nothing (arange); operands do not.
bool may_decide_sizes(const Entry& entry, size_t argument);
/// Is any that may computed from sizes or numbers that differ between calls?
bool may_be_sized_by_symbols(const Entry& entry);

/// Calls `each` with every tensor that there is among arguments or results.
template <class Each>
void for_each_tensor(std::span<const Arg> args, const Each& each) {
  for (const Arg& arg : args)
    for (TensorId id : arg.tensors)
      if (id >= 0) each(id);
}
/// Is it so of one of them?
template <class Holds>
bool any_tensor(std::span<const Arg> args, const Holds& holds) {
  return std::ranges::any_of(args, [&](const Arg& arg) {
    return std::ranges::any_of(arg.tensors, [&](TensorId id) { return id >= 0 && holds(id); });
  });
}
/// The same for those that the operator writes to.
template <class Each>
void for_each_written(const Entry& entry, const Each& each) {
  for (int a : written_arguments(entry)) for_each_tensor(entry.args.subspan(static_cast<size_t>(a), 1), each);
}
template <class Holds>
bool any_written(const Entry& entry, const Holds& holds) {
  return std::ranges::any_of(written_arguments(entry), [&](int a) {
    return any_tensor(entry.args.subspan(static_cast<size_t>(a), 1), holds);
  });
}

struct Tape;
/// Does autograd follow what it is given?
bool is_followed(const Tape& tape, const Entry& entry);
/// Does it write something that autograd follows, so that what is written to requires a gradient afterwards?
bool writes_gradients(const Tape& tape, const Entry& entry);
/// Does autograd follow any operator of the tape? Without grad mode nothing is differentiated, though a view
/// of a parameter still says that it requires a gradient.
bool needs_gradients(const Tape& tape);

/// expand() and overlapping windows: may two elements be one place in memory?
bool elements_share_memory(at::IntArrayRef sizes, at::IntArrayRef strides);
/// And none of the memory between the first and the last is anything else's.
bool elements_fill_memory(at::IntArrayRef sizes, at::IntArrayRef strides);

/// Normalisations write running statistics without a word to whoever looks for writes.
bool counts_no_write(const Entry& entry);
/// requires_grad_(), of what the run has made itself.
bool makes_leaf(const Entry& entry);

struct SourceLine {
  Interned file, function;
  int line = 0;
  bool operator==(const SourceLine&) const = default;
};

struct Tape {
  Growing<TensorInfo> tensors;
  std::vector<TensorId> inputs;  // from outside, in order of first use
  std::vector<Entry> entries;
  std::shared_ptr<Args> args = std::make_shared<Args>();  // what the entries' lie in
  std::vector<SourceLine> locs;
};

}  // namespace bolt::record
