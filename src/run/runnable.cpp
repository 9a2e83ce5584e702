// run/runnable.cpp
#include "run/runnable.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "support/error.h"
#include "support/nesting.h"

namespace bolt::run {

Runnable::Runnable(record::Tape tape, std::vector<record::TensorId> wanted, SymbolTable symbols)
    : tape_(std::move(tape)), wanted_(std::move(wanted)), symbols_(std::move(symbols)) {
  facts.ops = static_cast<int>(tape_.entries.size());
}

Runnable::~Runnable() = default;

void Runnable::Facts::add(const Facts& part) {
  kernels += part.kernels;
  kernels_before_fusion += part.kernels_before_fusion;
  library_calls += part.library_calls;
  extern_calls += part.extern_calls;
  bytes_moved += part.bytes_moved;
  from_cache &= part.from_cache;
}

void Runnable::check_data_sizes(const std::vector<SizeFact>& taken_for_granted) {
  BOLT_CHECK(taken_for_granted.empty(), "sizes that are data are not looked at where the region runs");
}

void Runnable::launch_at_once(const std::string&) {
  facts.why_no_graph = facts.why_replayed.empty() ? "somebody else's function runs it" : facts.why_replayed;
}

std::vector<at::Tensor> Runnable::run(const std::vector<at::Tensor>& inputs,
                                      const std::vector<int64_t>& numbers,
                                      record::CallGenerators generators) {
  return run_for(inputs, values_of(inputs, numbers), std::move(generators));
}

std::vector<at::Tensor> Runnable::run_for(const std::vector<at::Tensor>& inputs,
                                          const std::vector<int64_t>& values,
                                          record::CallGenerators generators) {
  // The casts are among what was recorded; what was run without autocast is not to be cast now.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return call(inputs, values, std::move(generators));
}

void Runnable::take_facts(const Runnable& other) {
  facts = other.facts;
  size_symbols = other.size_symbols;
  size_facts = other.size_facts;
  number_sizes = other.number_sizes;
}

std::vector<int64_t> Runnable::values_of(const std::vector<at::Tensor>& tape_inputs,
                                         const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> values;
  size_t next = 0;
  for (const SymbolRow& s : symbols_) switch (s.from) {
      case SymbolRow::From::number: values.push_back(numbers[next++]); break;
      case SymbolRow::From::data: values.push_back(s.hint); break;  // until it is known
      case SymbolRow::From::computed: break;                        // no row of a region's own
      case SymbolRow::From::input: {
        const at::Tensor& t = tape_inputs[s.input];
        values.push_back(s.of(s.dim < kStrideBit ? t.size(s.dim) : t.stride(s.dim - kStrideBit)));
      }
    }
  return values;
}

}  // namespace bolt::run
