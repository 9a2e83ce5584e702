// run/execution.cpp
#include "run/execution.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <array>

#include "record/convert.h"
#include "record/operator_facts.h"
#include "run/attempt.h"
#include "run/given_memory.h"
#include "run/products.h"
#include "run/profiled.h"
#include "run/stopwatch.h"
#include "support/symbols.h"

namespace bolt::run {

using loops::BufferKind;
using loops::PlanBuffer;
using loops::StepKind;

namespace {

constexpr size_t kMostWeights = 15;  // of one operand, by one call; more are ATen's

/// The device of the step's work, where that goes on when the step has returned.
std::optional<c10::Device> goes_on_behind(const Prepared& program, const PreparedStep& p) {
  if (p.kernel < 0 && p.step->buffers.empty()) return std::nullopt;
  const size_t place =
      p.kernel >= 0 ? p.queue : program.device_of_buffer[static_cast<size_t>(p.step->buffers[0])];
  const UsedDevice& used = program.devices[place];
  return used.driver->works_behind_host() ? std::optional(used.device) : std::nullopt;
}

/// Behind the copies from `first` on that write what the program made into inputs: none of them reads what
/// another writes, and no input is written twice.
size_t end_of_write_backs(const Prepared& program, std::span<const PreparedStep> steps, size_t first) {
  size_t i = first;
  for (; i < steps.size() && steps[i].step->kind == StepKind::Copy; ++i) {
    const std::vector<int>& buffers = steps[i].step->buffers;
    const BufferKind from = program.buffer(program.owner(buffers[0])).kind;
    if (from == BufferKind::Input || program.buffer(buffers[1]).kind != BufferKind::Input) break;
  }
  return i;
}

/// In one launch where a device has such (running statistics of a network's normalisations), for each device
/// and element type.
void copy_all(CallMemory& memory, std::span<const PreparedStep> steps) {
  const at::AutoDispatchBelowADInplaceOrView is_announced;  // announce_write: of an input
  std::vector<std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> lists;
  for (const PreparedStep& p : steps) {
    const at::Tensor& source = memory.tensor(p.step->buffers[0]);
    const at::Tensor& target = memory.tensor(p.step->buffers[1]);
    auto alike = [&](const auto& list) {
      return list.first[0].scalar_type() == target.scalar_type() && list.first[0].device() == target.device();
    };
    auto at = std::find_if(lists.begin(), lists.end(), alike);
    if (at == lists.end()) at = lists.emplace(lists.end());
    at->first.push_back(target);
    at->second.push_back(source);
  }
  for (const auto& [targets, sources] : lists) {
    // ATen's kernel of lists counts the writes itself; who runs the program does, and not all of them.
    std::vector<uint32_t> versions;
    auto counter = [](const at::Tensor& t) { return t.unsafeGetTensorImpl()->version_counter(); };
    for (const at::Tensor& t : targets)
      versions.push_back(t.is_inference() ? 0 : counter(t).current_version());
    at::_foreach_copy_(targets, sources);
    for (size_t i = 0; i < targets.size(); ++i)
      if (!targets[i].is_inference()) counter(targets[i]).set_version(versions[i]);
  }
}

bool stores_nothing(const CallMemory& memory, const PreparedStep& p) {
  auto nothing = [&](int b) {
    const Ints& sizes = memory.shape(b).sizes;
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  };
  return !p.stores.empty() && std::all_of(p.stores.begin(), p.stores.end(), nothing);
}

/// By the device's library of matrices itself, straight to where the result lies.
bool multiplied(const Prepared& program, const PreparedStep& p, device::driver::Multiplication product,
                CallMemory& memory, device::Queue& queue) {
  const std::vector<int>& buffers = p.step->buffers;
  const auto operands = static_cast<size_t>(p.step->operand_count);
  std::array<void*, kMostWeights + 1> places{};
  if (operands > places.size()) return false;
  for (size_t i = 0; i < operands; ++i) places[i] = memory.pointer(buffers[i]);
  if (p.step->node->op == graph::Op::linears) {
    const auto distance = distance_of(std::span(places).subspan(1, operands - 1),
                                      dtype_bytes(program.buffer(buffers[1]).type.dtype));
    if (!distance) return false;
    product.b.next = *distance;
  }
  const int result = buffers[operands];
  const PlanBuffer& made = program.buffer(result);
  if (const at::Tensor* place = memory.place_of(result))
    memory.put(result, *place);
  else if (made.owned_by_step || made.kind == BufferKind::Fold)
    memory.make_output(result);
  const device::DeviceInterface& driver =
      *program.devices[program.device_of_buffer[static_cast<size_t>(result)]].driver;
  device::DeviceInterface::Places lying{places[0], places[1], product.has_bias ? places[2] : nullptr,
                                        product.is_added ? places[3] : nullptr, memory.pointer(result)};
  if (!driver.multiply(queue, product, lying)) return false;
  if (p.step->node->op != graph::Op::linear_of_parts) return true;
  // The other part's columns stand behind those of the first.
  lying.b = places[2];
  lying.result = static_cast<char*>(lying.result) + product.columns * dtype_bytes(product.result_type);
  product.columns = memory.shape(buffers[2]).sizes[0];
  product.way = 0;
  return driver.multiply(queue, product, lying);
}

/// Of the results of a call of ATen's, on devices that repeat what they did there. The user's operators may
/// keep what they make.
std::vector<at::Tensor> places_of(const PreparedStep& p, const CallMemory& memory) {
  if (!memory.has_places() || (p.call && !record::is_atens(p.call->op))) return {};
  const std::vector<int>& buffers = p.step->buffers;
  std::vector<at::Tensor> places;
  for (size_t i = static_cast<size_t>(p.step->operand_count); i < buffers.size(); ++i) {
    const at::Tensor* place = memory.place_of(buffers[i]);
    places.push_back(place && !place->is_cpu() ? *place : at::Tensor());
  }
  return places;
}

/// An operator of the user's may give other tensors for other data.
void check_kind(const Prepared& program, const PreparedStep& p, const std::vector<at::Tensor>& results) {
  bool same = results.size() == p.call->gives;
  for (size_t i = 0; same && i < results.size(); ++i) {
    const int buffer = p.step->buffers[static_cast<size_t>(p.step->operand_count) + i];
    same = results[i].scalar_type() == record::to_torch(program.buffer(buffer).type.dtype);
  }
  if (!same) throw RunEagerly{{Why::other_result, p.name}, true};
}

}  // namespace

Execution::Execution(const Prepared& prepared) : memory(prepared), p_(prepared) {
  for (const UsedDevice& d : p_.devices) queues_.push_back(d.driver->queue(d.device));
}

// ---- a call ----

void Execution::follow_queues() {
  for (const auto& queue : queues_) queue->follow();
}

void Execution::begin(Ints values, record::CallGenerators generators) {
  values_ = std::move(values);
  generators_ = std::move(generators);
  running_ = nullptr;
  for (const auto& queue : queues_) queue->begin();
}

void Execution::take_shapes(std::shared_ptr<const Shapes> shapes) {
  if (!p_.data_sizes.empty()) shapes = own_ = std::make_shared<Shapes>(*shapes);
  memory.take_shapes(std::move(shapes));
  if (!p_.data_sizes.empty()) return;
  for (const PreparedStep& p : p_.steps)
    if (p.kernel >= 0 && p.step->kind != StepKind::Pack)
      p.code->reserve(p.kernel, *queues_[p.queue], of_step(p).extents.data());
}

void Execution::bind(const std::vector<at::Tensor>& inputs) {
  memory.bind(inputs);
  if (p_.data_sizes.empty()) outputs_.make_copies(memory);
}

void Execution::use(const FoldedBuffers& folded) {
  for (const auto& [buffer, kept] : folded.slots) {
    memory.slot(buffer) = kept;
    const size_t device = p_.device_of_buffer[static_cast<size_t>(buffer)];
    if (queues_[device]->order() != folded.orders[device]) queues_[device]->keep(kept.tensor);
  }
}

void Execution::end() {
  memory.end();
  operands_.clear();
  outputs_.drop_copies();
  generators_ = {};
}

FoldedBuffers Execution::fold(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Shapes> shapes) {
  for (const auto& queue : queues_) queue->begin();
  memory.bind_folds(inputs, std::move(shapes));
  run(p_.fold_steps);
  FoldedBuffers folded;
  for (size_t i = 0; i < p_.plan.buffers.size(); ++i)
    if (p_.plan.buffers[i].kind == BufferKind::Fold && p_.plan.buffers[i].first_step >= 0)
      folded.slots.emplace_back(static_cast<int>(i), memory.slots()[i]);
  for (const auto& queue : queues_) {
    queue->finish();  // the user knows of no work that a later call on another stream should wait for
    folded.orders.push_back(queue->order());
  }
  return folded;
}

// ---- steps ----

void Execution::run(std::span<const PreparedStep> steps) {
  // Of those that are launched together, a part may be another section's.
  auto together = [&](const PreparedStep& p) {
    const auto left = static_cast<size_t>(steps.data() + steps.size() - &p);
    return std::min(left, static_cast<size_t>(p.together));
  };
  auto run = [&](const PreparedStep& p) {
    running_ = &p;
    const std::span<const PreparedStep> list(&p, together(p));
    for (const PreparedStep& one : list)
      for (int b : one.makes) memory.make(b);
    if (list.size() > 1)
      launch_list(list);
    else if (!tells_of_calls_ || !keep_call(p))
      run_step(p);
    for (const PreparedStep& one : list)
      for (int b : one.frees) memory.slot(b) = {};
  };
  auto for_each = [&](auto each) {
    for (size_t i = 0; i < steps.size(); i += together(steps[i])) each(steps[i]);
  };
  auto run_copies = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      for (int b : steps[i].makes) memory.make(b);
    bool kept = tells_of_calls_;
    for (size_t i = from; tells_of_calls_ && i < to; ++i) kept = keep_call(steps[i]) && kept;
    if (!kept) copy_all(memory, steps.subspan(from, to - from));
    for (size_t i = from; i < to; ++i)
      for (int b : steps[i].frees) memory.slot(b) = {};
  };
  if (steps_are_timed() && steps.data() == p_.steps.data() && steps.size() == p_.steps.size()) {
    Stopwatch watch;
    for_each([&](const PreparedStep& p) {
      watch.time(goes_on_behind(p_, p), [&] { run(p); });
      for (size_t i = 1; i < together(p); ++i) watch.time(goes_on_behind(p_, p), [] {});
    });
    return p_.times.add(watch.times());
  }
  const bool is_watched = at::hasCallbacks();  // a profiler looks on
  for (size_t i = 0; i < steps.size();) {
    const size_t behind = i + together(steps[i]);
    const size_t next = std::max(behind, end_of_write_backs(p_, steps, i));
    auto run_these = [&] { next == behind ? run(steps[i]) : run_copies(i, next); };
    if (is_watched) {
      at::RecordFunction shown(at::RecordScope::FUNCTION);
      show(shown, steps[i], p_, *memory.shapes());
      run_these();
    } else {
      run_these();
    }
    i = next;
  }
}

bool Execution::has_written() const {
  const auto at = std::ranges::find_if(p_.steps, [&](const PreparedStep& p) { return &p == running_; });
  return at != p_.steps.end() &&
         at - p_.steps.begin() > p_.first_visible_write;  // a step of the fold part is none
}

void Execution::run_step(const PreparedStep& p) {
  const std::vector<int>& buffers = p.step->buffers;
  switch (p.step->kind) {
    case StepKind::Kernel:
    case StepKind::Contraction: return launch(p);
    case StepKind::Library:
    case StepKind::Extern: return call(p);
    case StepKind::Pack:
      return p.code->pack(p.step->epilogue, *queues_[p.queue], memory.pointer(buffers[0]),
                          memory.shape(buffers[0]).strides, memory.pointer(buffers[1]));
    case StepKind::Copy: {
      const at::AutoDispatchBelowADInplaceOrView is_announced;  // announce_write: of an input
      memory.tensor(buffers[1]).copy_(memory.tensor(buffers[0]));
      return;
    }
  }
}

void Execution::run_recorded(std::span<const PreparedStep> steps) {
  tells_of_calls_ = std::ranges::any_of(queues_, [](const auto& queue) { return queue->keeps_calls(); });
  const auto end = c10::make_scope_exit([&] { tells_of_calls_ = false; });
  run(steps);
}

/// For recordings that are told of calls: what does the step again, with the same operands, to the same
/// places. False: it is not recorded so. Like a launch that is recorded, what writes to the caller's memory
/// is not run yet; of a call something is made here that later steps find in its place, and its contents are
/// made when it is repeated.
bool Execution::keep_call(const PreparedStep& p) {
  const loops::Step& s = *p.step;
  if (s.kind == StepKind::Kernel || s.kind == StepKind::Contraction || s.buffers.empty()) return false;
  device::Queue& queue = *queues_[p_.device_of_buffer[static_cast<size_t>(s.buffers[0])]];
  if (!queue.keeps_calls()) return false;
  const bool makes = s.kind == StepKind::Library || s.kind == StepKind::Extern;
  if (makes) run_step(p);
  std::vector<at::Tensor> all;
  for (int b : s.buffers) {
    // The caller's memory is not kept: neither what he gave nor results that he gets. All else is kept with
    // the recording.
    const int owner = p_.owner(b);
    const PlanBuffer& kept = p_.buffer(owner);
    const bool is_his = kept.kind == BufferKind::Input || memory.place_of(owner) ||
                        (kept.kind == BufferKind::Output && !kept.owned_by_step);
    all.push_back(is_his ? memory.over(b, memory.pointer(b)) : memory.tensor(b));
  }
  if (s.kind == StepKind::Pack) {
    queue.keep_call([&p, &queue, all] {
      p.code->pack(p.step->epilogue, queue, all[0].data_ptr(), all[0].strides().vec(), all[1].data_ptr());
    });
  } else if (s.kind == StepKind::Copy) {
    queue.keep_call([all] {
      const at::AutoDispatchBelowADInplaceOrView is_announced;
      at::Tensor(all[1]).copy_(all[0]);
    });
  } else {
    queue.keep_call([&p, all, given = numbers(p), generators = generators_]() mutable {
      const auto first = static_cast<size_t>(p.step->operand_count);
      const std::vector<at::Tensor> operands(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first));
      const auto results = p.library ? p.library->run(*p.step->node, operands)
                                     : run_extern(*p.call, operands, given, generators);
      const at::AutoDispatchBelowADInplaceOrView is_no_write_of_the_callers;
      for (size_t i = 0; i < results.size() && first + i < all.size(); ++i)
        if (all[first + i].data_ptr() != results[i].data_ptr()) at::Tensor(all[first + i]).copy_(results[i]);
    });
  }
  return true;
}

/// What a kernel, or a call of ATen, is given in this call. Valid until the next step.
const Ints& Execution::numbers(const PreparedStep& p) {
  const Ints& known = of_step(p).numbers;
  if (p.numbers.empty()) return known;
  numbers_ = known;
  for (auto [at, symbol] : p.numbers) numbers_[at] = values_[symbol];
  return numbers_;
}

void Execution::launch(const PreparedStep& p) {
  if (stores_nothing(memory, p)) return;
  pointers_.clear();
  for (int b : p.step->buffers) pointers_.push_back(memory.pointer(b));
  device::Queue& queue = *queues_[p.queue];
  const Ints& extents = of_step(p).extents;
  p.code->launch(p.kernel, queue, {pointers_, numbers(p).data(), extents.data()});
  if (queue.reported()) throw RunEagerly{{Why::out_of_range, p.name}};
}

/// What none of the others reads or writes: in as few launches as the device needs for them.
void Execution::launch_list(std::span<const PreparedStep> list) {
  std::vector<std::vector<void*>> all_pointers(list.size());
  std::vector<Ints> all_numbers(list.size());
  std::vector<device::DeviceCode::OfList> launches;
  launches.reserve(list.size());
  for (const PreparedStep& p : list) {
    if (stores_nothing(memory, p)) continue;
    std::vector<void*>& pointers = all_pointers[launches.size()];
    Ints& given = all_numbers[launches.size()];
    pointers.clear();
    for (int b : p.step->buffers) pointers.push_back(memory.pointer(b));
    given = numbers(p);
    const Ints& extents = of_step(p).extents;
    launches.push_back({p.kernel, {pointers, given.data(), extents.data()}});
  }
  if (!launches.empty()) list.front().code->launch_list(launches, *queues_[list.front().queue]);
}

void Execution::call(const PreparedStep& p) {
  const loops::Step& s = *p.step;
  if (const auto& product = of_step(p).product) {
    const auto result = static_cast<size_t>(s.buffers[static_cast<size_t>(s.operand_count)]);
    if (multiplied(p_, p, *product, memory, *queues_[p_.device_of_buffer[result]])) return;
  }
  operands_.clear();
  for (int i = 0; i < s.operand_count; ++i)
    operands_.push_back(memory.tensor(s.buffers[static_cast<size_t>(i)]));
  if (made_in_place(p)) return operands_.clear();
  const auto results = made_at(places_of(p, memory), [&] {
    return p.library ? p.library->run(*s.node, operands_)
                     : run_extern(*p.call, operands_, numbers(p), generators_, p.shows);
  });
  if (p.call) check_kind(p_, p, results);
  if (p.learns >= 0) learn(p, results);
  const auto first = static_cast<size_t>(s.operand_count);
  for (size_t i = 0; i < results.size() && first + i < s.buffers.size(); ++i)
    take(p, s.buffers[first + i], results[i]);
  operands_.clear();
}

/// The libraries' heavy work can be told where to write to.
bool Execution::made_in_place(const PreparedStep& p) {
  if (!p.library || !p.library->run_into) return false;
  const int buffer = p.step->buffers[static_cast<size_t>(p.step->operand_count)];
  const at::Tensor* place = memory.place_of(buffer);
  if (!place || !p.library->run_into(*p.step->node, operands_, *place)) return false;
  memory.put(buffer, *place);
  return true;
}

/// A result of a call is the buffer itself, where that has no memory of its own, or is copied into it.
void Execution::take(const PreparedStep& p, int buffer, const at::Tensor& result) {
  const PlanBuffer& b = p_.buffer(buffer);
  if (!b.owned_by_step && b.kind != BufferKind::Fold) {
    memory.tensor(buffer).copy_(result);
    return;
  }
  // The planner indexed this memory by the strides it expected.
  const Shapes::OfBuffer& want = memory.shape(buffer);
  if (result.sizes() != at::IntArrayRef(want.sizes)) {
    BOLT_CHECK(p.call, graph::op_info(p.step->node->op).name, " gave ", result.sizes(), ", not ",
               at::IntArrayRef(want.sizes));
    const bool finds_sizes = record::facts_of(p.call->op).finds_sizes;
    if (p_.symbols.empty() || finds_sizes) throw RunEagerly{{Why::result_is_data, p.name}, finds_sizes};
    throw RunEagerly{{Why::wrong_guess, p.name}, false, c10::toString(p.call->op.operator_name())};
  }
  const bool fits = result.strides() == at::IntArrayRef(want.strides) || result.numel() == 0;
  BOLT_CHECK(fits || !p.call || !record::facts_of(p.call->op).is_waited_for, p.name, " gave strides ",
             result.strides(), ", not ", at::IntArrayRef(want.strides), ", and is under way");
  const at::Tensor* place = memory.place_of(buffer);
  if (place && place->device() == result.device()) {
    const at::AutoDispatchBelowADInplaceOrView is_no_write_of_the_callers;
    return memory.put(buffer, result.data_ptr() == place->data_ptr() ? *place : place->copy_(result));
  }
  memory.put(buffer,
             fits ? result : at::empty_strided(want.sizes, want.strides, result.options()).copy_(result));
}

/// A step has found sizes out that nobody knew before: what rests on them is evaluated and gets its memory.
void Execution::learn(const PreparedStep& p, const std::vector<at::Tensor>& results) {
  const DataSizes& here = p_.data_sizes[static_cast<size_t>(p.learns)];
  for (size_t i = 0; i < values_.size(); ++i)
    if (const SymbolRow& s = p_.symbols[i]; s.found_by == p.learns)
      values_[i] = results[static_cast<size_t>(s.result)].size(s.dim);
  const Evaluate value{p_.symbols, values_};
  for (const SizeFact& f : here.facts)
    if (!holds(value(f.a), f.relation, value(f.b))) throw unfit(p.name, f);
  // Strides of what has no elements are as torch has them: as if there were one.
  Ints ones = values_;
  for (size_t i = 0; i < ones.size(); ++i)
    if (p_.symbols[i].from == SymbolRow::From::data) ones[i] = std::max<int64_t>(ones[i], 1);
  const Evaluate stride{p_.symbols, ones};
  for (int b : here.buffers) {
    Shapes::OfBuffer& known = own_->buffers[static_cast<size_t>(b)];
    known = Shapes::of(p_.buffer(b), value);
    known.strides = stride(p_.buffer(b).type.strides);
  }
  for (auto [step, shape] : here.steps)
    own_->steps[static_cast<size_t>(shape)] = Shapes::of(*step, p_.plan, value);
  for (int r : here.results) {
    const size_t outputs = p_.lowered.outputs.size(), i = static_cast<size_t>(r);
    const lower::TensorOut& out = i < outputs ? p_.lowered.outputs[i] : p_.lowered.reshaped[i - outputs];
    own_->results[i] = Shapes::of(out, value);
    own_->results[i].strides = stride(out.strides);
  }
  for (int b : here.buffers)
    if (p_.buffer(b).kind == BufferKind::Output && !p_.buffer(b).owned_by_step) memory.make_output(b);
}

}  // namespace bolt::run
