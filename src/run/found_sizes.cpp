// run/found_sizes.cpp
#include "run/found_sizes.h"

#include <algorithm>

#include "autograd/gradients.h"
#include "autograd/selected_rows.h"
#include "device/host/host.h"
#include "record/operator_facts.h"
#include "record/selected_sizes.h"

namespace bolt::run {

namespace {

/// Would regions not go on there if only what nobody differentiates, and lies on the host, had such sizes?
bool are_of_rows_alone(const record::Tape& tape) {
  auto info = [&](record::TensorId id) -> const record::TensorInfo& {
    return tape.tensors[static_cast<size_t>(id)];
  };
  bool any = false;
  for (const record::Entry& entry : tape.entries) {
    const bool selects = entry.facts->selects && info(entry.results[0].tensors[0]).data_sized;
    any |= selects || entry.facts->finds_places;
    if (entry.facts->finds_sizes && !entry.facts->finds_places) return false;
    if (!selects) continue;
    const record::TensorInfo& from = info(entry.args[0].tensors[0]);
    if (device::is_processor(from.device) && !(from.requires_grad && entry.grad_mode)) return false;
  }
  return any;
}

}  // namespace

FoundSizes::FoundSizes(Recorded& r)
    : differentiates_(autograd::has_gradients(r.tape) || record::needs_gradients(r.tape)),
      on_device_(record::has_data_sizes_on_device(r.tape)),
      ends_before_backward_(r.may_end_before_backward && autograd::has_gradients(r.tape)),
      of_rows_((differentiates_ || on_device_) && are_of_rows_alone(r.tape)),
      selects_(differentiates_ && (autograd::has_gradients(r.tape) || r.number_symbols.empty()) &&
               autograd::forget_selected_sizes(r.tape, r.wanted, r.dynamic, r.number_sizes, r.size_facts)) {}

bool FoundSizes::needs_gradients(const lower::Sizes& sizes) const {
  if (sizes.any_data() && on_device_) end_if_any(sizes, "they are found on a device");
  if (sizes.any_data() && ends_before_backward_) throw EndsBeforeBackward("sizes are data");
  return differentiates_;
}

void FoundSizes::end_if_any(const lower::Sizes& sizes, const std::string& why) const {
  if (selects_ || sizes.any_data()) throw EndsAtFoundSizes(why, of_rows_);
}

}  // namespace bolt::run
