// autograd/trial.cpp
#include "autograd/trial.h"

#include "support/error.h"
#include "support/nesting.h"

namespace bolt::autograd {
namespace {

using record::Dims;
using record::TensorId;
using record::TensorInfo;

/// How the dimensions lie one in the other stays, and so do the elements between them.
Dims other_strides(const TensorInfo& was, const Nesting& nesting, at::IntArrayRef sizes) {
  Dims strides = was.strides;
  int64_t run_was = 1, run = 1;
  for (const int d : nesting.order) {
    const auto i = static_cast<size_t>(d);
    strides[i] = was.strides[i] - run_was + run;
    run_was = was.strides[i] * std::max<int64_t>(was.sizes[i], 1);
    run = strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

/// Sizes become what `values` say, and strides what those make them, with the gaps that the run's have.
void take_sizes(TensorInfo& info, TensorId id, const Assignment& values) {
  const TensorInfo was = info;
  bool any = false;
  for (size_t d = 0; d < info.sizes.size(); ++d)
    if (const auto at = values.find(tape_symbol(id, static_cast<int>(d))); at != values.end())
      info.sizes[d] = at->second, any = true;
  const auto nesting = nesting_of(was.sizes, was.strides);
  if (any && !nesting) throw_unsupported("an input whose elements overlap");
  if (any) info.strides = other_strides(was, *nesting, at::IntArrayRef(info.sizes));
  for (size_t d = 0; d < info.strides.size(); ++d)
    if (const auto at = values.find(tape_symbol(id, static_cast<int>(d) + kStrideBit)); at != values.end())
      info.strides[d] = at->second;
}

}  // namespace

Trial::Trial(const record::Tape& recorded, Assignment given) : run(recorded), values(std::move(given)) {
  for (TensorId id : run.inputs) take_sizes(run.tensors[id], id, values);
}

int64_t Trial::value_of(Sym number) const {
  return evaluate(number, [&](const SymNode& symbol) -> int64_t {
    for (const auto& [known, value] : values)  // also a size of what only other pieces have
      if (known.node() == &symbol) return value;
    if (const int id = tensor_of_size(symbol); id >= 0) {
      const TensorInfo& info = run.tensors[id];
      const auto dim = static_cast<size_t>(symbol.what.part);
      return dim < kStrideBit ? info.sizes[dim] : info.strides[dim - kStrideBit];
    }
    throw_unsupported("the number ", symbol.name, ", of which only the run knows what it is");
  });
}

void Trial::learn(TensorId id, const at::Tensor& made, TensorInfo& info) {
  for (TensorInfo* each : {&run.tensors[id], &info}) {
    each->sizes = Dims(made.sizes().begin(), made.sizes().end());
    each->strides = Dims(made.strides().begin(), made.strides().end());
    each->offset = made.storage_offset();
  }
}

std::optional<Dims> Trial::strides_of(TensorId id, at::IntArrayRef sizes) const {
  const TensorInfo& was = run.tensors[id];
  if (was.sizes.size() != sizes.size()) return std::nullopt;
  const auto nesting = nesting_of(was.sizes, was.strides);
  if (!nesting || !nesting->is_tight()) return std::nullopt;
  return other_strides(was, *nesting, sizes);
}

}  // namespace bolt::autograd
