// run/recorded_call.cpp
#include "run/recorded_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "loops/roles.h"
#include "record/convert.h"

namespace bolt::run {

using lower::TensorOut;

namespace {

/// Element by element in the same order of memory.
bool lies_as(const at::Tensor& t, const GraphPlace& place) {
  if (t.sizes() != at::IntArrayRef(place.sizes)) return false;
  for (size_t d = 0; d < place.sizes.size(); ++d)
    if (place.sizes[d] > 1 && t.stride(static_cast<int64_t>(d)) != place.strides[d]) return false;
  return true;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int64_t dense_bytes(DType dtype, const Ints& sizes) {
  int64_t bytes = dtype_bytes(dtype);
  for (int64_t size : sizes) bytes *= size;
  return bytes;
}

// ---- places ----

GraphPlace::GraphPlace(size_t index_, const at::Tensor& t)
    : index(index_),
      data(t.data_ptr()),
      sizes(t.sizes().vec()),
      strides(t.strides().vec()),
      device(t.device()),
      dtype(t.scalar_type()),
      bytes(t.is_non_overlapping_and_dense() ? static_cast<int64_t>(t.nbytes()) : 0) {}

at::Tensor GraphPlace::tensor() const {
  return at::for_blob(data, sizes)
      .strides(strides)
      .target_device(device)
      .options(at::TensorOptions().dtype(dtype).device(device))
      .make_tensor();
}

void GraphPlace::fill(device::Queue& queue, const at::Tensor& from) const {
  if (from.numel() == 0) return;
  if (bytes && from.device() == device && lies_as(from, *this))
    return queue.copy(data, from.data_ptr(), bytes);
  const at::AutoDispatchBelowADInplaceOrView is_announced;
  tensor().copy_(from);
}

void GraphPlace::empty(device::Queue& queue, const at::Tensor& to) const {
  if (to.numel() == 0) return;
  if (bytes && to.device() == device && lies_as(to, *this)) return queue.copy(to.data_ptr(), data, bytes);
  const at::AutoDispatchBelowADInplaceOrView is_announced;
  at::Tensor(to).copy_(tensor());
}

// ---- recording ----

RecordedCall::RecordedCall(const Prepared& prepared, std::shared_ptr<const Sections> sections,
                           std::unique_ptr<Execution> execution, RecordedCall* before)
    : p_(prepared),
      sections_(std::move(sections)),
      execution_(std::move(execution)),
      parts_(sections_->parts.list.size()),
      collected_(p_.lowered.outputs.size()),
      written_(p_.lowered.inputs.size()),
      results_(before ? std::move(before->results_) : nullptr) {
  for (const loops::PlanOutput& o : p_.plan.outputs)
    if (o.write_to >= 0) written_[o.write_to] = 1;
}

void RecordedCall::begin(const GraphedCall& call) { execution_->begin(call.values, call.generators); }

std::optional<std::vector<at::Tensor>> RecordedCall::record(const GraphedCall& call, device::Queue& queue,
                                                            const Turn& turn, const std::vector<char>& copied,
                                                            const std::vector<char>& copied_out) {
  const auto end = c10::make_scope_exit([&] {
    if (!device().driver->keeps_arenas()) held_.clear();
    for (Staying& s : staying_) s.fresh.reset();
    execution_->end();
  });
  folded_ = call.folded;
  if (!make_memory(call, queue, copied, copied_out)) return std::nullopt;
  for (const GraphPlace& to : inputs_) to.fill(queue, call.inputs[to.index]);
  bind(call);
  const auto& sections = sections_->parts.list;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (!sections[i].graph || failure_ || !capture(i, queue))
      launch(sections[i], queue, turn);
    else
      parts_[i].recording->launch(queue);
  }
  note_outputs();
  Tensors out = make_copies(call);
  for (Staying& s : staying_) out[s.output] = std::move(s.fresh);
  give(call, queue, out);
  return out;
}

/// Attention gives a state of random numbers that nobody will read on the processor, whatever its program
/// says, and only calls of ATen are given it. What is copied with the device is not that.
bool RecordedCall::lies_elsewhere(const at::Tensor& t) const { return t.device() != device().device; }

int RecordedCall::buffer_of(size_t output) const {
  return p_.plan.outputs[p_.lowered.outputs[output].index].buffer;
}

/// All of the memory that it lies in, seen in other sizes: memory for the one is memory for the other.
bool RecordedCall::fills_its_owner(const Shapes& shapes, int buffer) const {
  auto fills = [&](int b) {
    const Shapes::OfBuffer& m = shapes.buffers[b];
    return record::elements_fill_memory(m.sizes, m.strides);
  };
  auto bytes = [&](int b) { return dense_bytes(p_.buffer(b).type.dtype, shapes.buffers[b].sizes); };
  const int owner = p_.owner(buffer);
  return shapes.buffers[buffer].offset == 0 && bytes(buffer) == bytes(owner) && fills(buffer) && fills(owner);
}

/// A part from the beginning of memory, of which little is nobody's.
bool RecordedCall::is_most_of_its_owner(const Shapes& shapes, int buffer) const {
  const int owner = p_.owner(buffer);
  auto elements = [&](int b) { return c10::multiply_integers(shapes.buffers[b].sizes); };
  const Shapes::OfBuffer& whole = shapes.buffers[owner];
  return shapes.buffers[buffer].offset == 0 && p_.buffer(buffer).type.dtype == p_.buffer(owner).type.dtype &&
         loops::is_most_of(elements(buffer), elements(owner)) &&
         record::elements_fill_memory(whole.sizes, whole.strides);
}

/// Outputs that the caller gets where the graphs make them.
void RecordedCall::choose_staying(const GraphedCall& call, const std::vector<char>& copied_out) {
  for (size_t i = 0; i < sections_->results.size(); ++i) {
    if (sections_->results[i] != Sections::Result::stays || copied_out[i]) continue;
    const Result& want = call.shapes->results[i];
    const int buffer = buffer_of(i);
    const auto b = static_cast<size_t>(buffer);
    const Shapes::OfBuffer& memory = call.shapes->buffers[b];
    if (memory.sizes != want.sizes || memory.strides != want.strides) continue;
    if (std::ranges::find(want.sizes, 0) != want.sizes.end()) continue;
    const bool is_part = p_.owner(buffer) != buffer && !fills_its_owner(*call.shapes, buffer);
    if (is_part && !is_most_of_its_owner(*call.shapes, buffer)) continue;
    const Ints& made = is_part ? call.shapes->buffers[p_.owner(buffer)].sizes : want.sizes;
    const int64_t bytes = dense_bytes(p_.plan.buffers[b].type.dtype, made);
    staying_.push_back({.output = i, .bytes = bytes, .is_part = is_part});
  }
  choose_memory(call);
  if (staying_.empty()) return results_.reset();
  if (!results_) results_ = device().driver->result_memory(device().device);
  if (!results_ || !settle(call)) return staying_.clear();
  std::vector<uintptr_t> places;
  for (const Staying& s : staying_)
    places.push_back(reinterpret_cast<uintptr_t>(memories_[s.memory].place + s.at));
  still_places_ = StillPlaces(std::move(places));
}

void RecordedCall::choose_memory(const GraphedCall& call) {
  constexpr int64_t kAligned = 512;  // as allocators do
  // The largest first: what is made anew for the first of many is then what the same requests find later.
  std::ranges::stable_sort(staying_, std::ranges::greater(), &Staying::bytes);
  int64_t unseen = 0;
  std::vector<Staying*> together;
  for (Staying& s : staying_) {
    if (p_.lowered.outputs[s.output].unseen) {
      s.at = unseen;
      unseen += (s.bytes + kAligned - 1) / kAligned * kAligned;
      together.push_back(&s);
      continue;
    }
    const Result& want = call.shapes->results[s.output];
    const Shapes::OfBuffer& whole = call.shapes->buffers[p_.owner(buffer_of(s.output))];
    s.memory = kinds_.size();
    kinds_.push_back({s.is_part ? whole.sizes : want.sizes, s.is_part ? whole.strides : want.strides,
                      record::to_torch(p_.buffer(buffer_of(s.output)).type.dtype)});
  }
  for (Staying* s : together) s->memory = kinds_.size();
  if (unseen > 0) kinds_.push_back({{unseen}, {1}, c10::kByte});
  memories_.resize(kinds_.size());
}

/// What an allocator that had none of the memory yet does for the first requests it need not do again. False:
/// it goes on giving other memory.
bool RecordedCall::settle(const GraphedCall& call) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    const Tensors fresh = results_->make(kinds_);
    bool same = true;
    for (size_t k = 0; k < memories_.size(); ++k) {
      char* const before = std::exchange(memories_[k].place, static_cast<char*>(fresh[k].data_ptr()));
      same &= i > 0 && before == memories_[k].place;
    }
    if (!same) continue;
    for (size_t k = 0; k < memories_.size(); ++k)
      memories_[k].given = fresh[k].storage().getWeakStorageImpl();
    for (Staying& s : staying_) s.fresh = given_as(s, call, fresh[s.memory]);
    return true;
  }
  return false;
}

/// Of what lies still. Where there is none, nothing has been done yet.
bool RecordedCall::make_memory(const GraphedCall& call, device::Queue& queue, const std::vector<char>& copied,
                               const std::vector<char>& copied_out) {
  Execution& e = *execution_;
  auto make = [&] {
    e.follow_queues();
    e.memory.make_arenas();
    for (int b : sections_->pinned) {
      if (e.memory.slots()[b].data) continue;
      e.memory.make_output(b);
      held_.push_back(e.memory.tensor(b));
    }
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const at::Tensor& t = call.inputs[i];
      if (!copied[i] || !sections_->inputs[i] || t.numel() == 0 || lies_elsewhere(t)) continue;
      held_.push_back(at::empty_strided(t.sizes(), t.strides(), t.options()));
      inputs_.emplace_back(i, held_.back());
    }
  };
  try {
    choose_staying(call, copied_out);
    for (const Staying& s : staying_) {
      const int b = p_.owner(buffer_of(s.output));
      const Shapes::OfBuffer& lies = call.shapes->buffers[b];
      at::Tensor memory = s.fresh.as_strided(lies.sizes, lies.strides);
      if (p_.buffer(b).owned_by_step)
        e.memory.place(b, std::move(memory));
      else
        e.memory.put(b, std::move(memory));
    }
    memory_.push_back(device().driver->reserve(queue, make));
  } catch (const std::exception& error) {
    failure_ = {"", "there is no memory for it: " + first_line(error.what())};
    return false;
  }
  e.follow_queues();
  for (size_t b = 0; b < p_.plan.buffers.size(); ++b)
    if (p_.lies_in_arena(b) && p_.device_of_buffer[b] == sections_->device && e.memory.slots()[b].data)
      still_.emplace_back(static_cast<int>(b), e.memory.slots()[b].data);
  for (int b : sections_->pinned)
    if (void* data = e.memory.slots()[b].data) still_.emplace_back(b, data);
  return true;
}

/// Buffers of a call that graphs do not make.
void RecordedCall::bind(const GraphedCall& call) {
  Tensors inputs = call.inputs;
  for (const GraphPlace& place : inputs_) inputs[place.index] = place.tensor();
  if (folded_) execution_->use(*folded_);
  execution_->bind(inputs);
}

/// False: it cannot be captured, and nothing of it has been run.
bool RecordedCall::capture(size_t section, device::Queue& queue) {
  Execution& e = *execution_;
  Part& part = parts_[section];
  const device::GraphSection& here = sections_->parts.list[section];
  std::vector<BufferInCall> before = e.memory.slots();
  bool runs = false;
  auto work = [&] {
    e.follow_queues();
    runs = true;
    e.run_recorded(steps(here));
    runs = false;
  };
  auto fail = [&](const std::string& why) {
    failure_ = {runs ? e.running()->name : "", why};
    e.memory.put(std::move(before));
    e.follow_queues();
    return false;
  };
  try {
    part.recording = device().driver->record(queue, sections_->draws[section] != 0, work);
  } catch (const std::exception& error) {
    return fail(first_line(error.what()));
  } catch (const RunEagerly&) {
    return fail("it is given to eager");
  }
  e.follow_queues();
  for (const PreparedStep& p : steps(here))
    for (int b : p.step->buffers) {
      const loops::PlanBuffer& memory = p_.buffer(b);
      const BufferInCall& made = e.memory.slots()[b];
      if (!memory.owned_by_step || memory.kind == loops::BufferKind::Fold || !made.data) continue;
      if (made.tensor.defined() && lies_elsewhere(made.tensor))
        part.elsewhere.emplace_back(b, made.tensor);
      else
        part.makes.emplace_back(b, made.data);
    }
  return true;
}

/// In the recorded call, and in each one that repeats it. Somebody's operator may do what it likes meanwhile.
void RecordedCall::launch(const Section& section, device::Queue& queue, const Turn& turn) {
  const Turn::Elsewhere elsewhere(turn);
  for (const PreparedStep& p : steps(section)) {
    execution_->run({&p, 1});
    for (int b : p.step->buffers)
      if (sections_->placed[b]) place(p, b, queue);
  }
}

/// What the step has made is copied to where graphs have it.
void RecordedCall::place(const PreparedStep& p, int buffer, device::Queue& queue) {
  const auto operands = p.step->buffers.begin() + p.step->operand_count;
  if (!p.step->node || std::find(operands, p.step->buffers.end(), buffer) == p.step->buffers.end()) return;
  const at::Tensor made = execution_->memory.tensor(buffer);
  if (made.numel() == 0 || lies_elsewhere(made)) return;
  const auto known = std::ranges::find(placed_, static_cast<size_t>(buffer), &GraphPlace::index);
  if (known != placed_.end()) {
    known->fill(queue, made);
    return execution_->memory.put(buffer, known->data);
  }
  at::Tensor there;
  memory_.push_back(device().driver->reserve(
      queue, [&] { there = at::empty_strided(made.sizes(), made.strides(), made.options()); }));
  placed_.emplace_back(static_cast<size_t>(buffer), there).fill(queue, made);
  if (device().driver->keeps_arenas()) held_.push_back(there);
  execution_->memory.put(buffer, there);  // which goes when its last reader has run
}

void RecordedCall::note_outputs() {
  binds_ = !sections_->is_whole();
  for (size_t i = 0; i < collected_.size(); ++i) {
    if (p_.lowered.outputs[i].kind != TensorOut::Kind::Fresh) continue;
    collected_[i] = sections_->results[i] == Sections::Result::elsewhere ||
                    lies_elsewhere(execution_->memory.tensor(buffer_of(i)));
    if (collected_[i])
      binds_ = true;
    else if (std::ranges::find(staying_, i, &Staying::output) == staying_.end())
      outputs_.emplace_back(i, execution_->memory.tensor(buffer_of(i)));
  }
}

std::string RecordedCall::text() const {
  size_t captured = 0, graphs = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].recording) continue;
    ++graphs;
    captured += steps(sections_->parts.list[i]).size();
  }
  return std::to_string(captured) + " of " + std::to_string(p_.steps.size()) + " steps in " +
         std::to_string(graphs) + (graphs == 1 ? " graph, " : " graphs, ") + std::to_string(inputs_.size()) +
         " of " + std::to_string(p_.lowered.inputs.size()) + " inputs copied, " +
         std::to_string(outputs_.size()) + " of " + std::to_string(outputs_.size() + staying_.size()) +
         " outputs";
}

// ---- repeating ----

std::optional<std::vector<at::Tensor>> RecordedCall::repeat(const GraphedCall& call, device::Queue& queue,
                                                            const Turn& turn) {
  Tensors out = make_copies(call);  // first, since there may be no memory
  const std::optional<Tensors> made = staying_.empty() ? Tensors() : make_staying();
  if (!made) return std::nullopt;
  const auto end = c10::make_scope_exit([&] {
    if (binds_) execution_->end();
  });
  if (binds_) {
    for (const auto& [buffer, data] : still_) execution_->memory.put(buffer, data);
    bind(call);
  }
  for (const GraphPlace& to : inputs_) to.fill(queue, call.inputs[to.index]);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].recording) {
      launch(sections_->parts.list[i], queue, turn);
      continue;
    }
    parts_[i].recording->launch(queue);
    if (!binds_) continue;
    for (const auto& [buffer, data] : parts_[i].makes) execution_->memory.put(buffer, data);
    for (const auto& [buffer, tensor] : parts_[i].elsewhere) execution_->memory.put(buffer, tensor.clone());
  }
  // The device is at work by now. There may be hundreds of them.
  for (const Staying& s : staying_) out[s.output] = given_as(s, call, (*made)[s.memory]);
  give(call, queue, out);
  return out;
}

// ---- results ----

/// What the caller gets of the memory that was made for it.
at::Tensor RecordedCall::given_as(const Staying& s, const GraphedCall& call, const at::Tensor& memory) const {
  const bool is_alone = !p_.lowered.outputs[s.output].unseen;
  if (is_alone && !s.is_part) return memory;
  const Result& want = call.shapes->results[s.output];
  const auto dtype =
      caffe2::TypeMeta::fromScalarType(record::to_torch(p_.buffer(buffer_of(s.output)).type.dtype));
  // A view would be known to autograd as one, and the way through the dispatcher is long.
  at::Tensor part =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(memory.storage()), memory.key_set(), dtype);
  part.unsafeGetTensorImpl()->set_sizes_and_strides(want.sizes, want.strides,
                                                    s.at / static_cast<int64_t>(dtype.itemsize()));
  return part;
}

/// By memories_. Nothing: some of it would lie elsewhere. Whoever has its memory is told from those that only
/// came later.
std::optional<std::vector<at::Tensor>> RecordedCall::make_staying() {
  Tensors made = results_->make(kinds_);
  std::vector<size_t> moved;
  for (const Staying& s : staying_) {
    const Memory& memory = memories_[s.memory];
    if (memory.given->use_count() > 0) in_use_.push_back(s.output);
    if (made[s.memory].data_ptr() != memory.place) moved.push_back(s.output);
  }
  if (in_use_.empty()) in_use_ = std::move(moved);
  if (!in_use_.empty()) return std::nullopt;
  for (size_t k = 0; k < memories_.size(); ++k) memories_[k].given = made[k].storage().getWeakStorageImpl();
  return made;
}

std::vector<at::Tensor> RecordedCall::make_copies(const GraphedCall& call) const {
  Tensors out(collected_.size());
  for (const GraphPlace& from : outputs_) {
    const Result& want = call.shapes->results[from.index];
    out[from.index] = device().driver->result(device().device, want.sizes, want.strides, from.dtype);
  }
  return out;
}

void RecordedCall::give(const GraphedCall& call, device::Queue& queue, Tensors& out) {
  for (const GraphPlace& from : inputs_)
    if (written_[from.index]) from.empty(queue, call.inputs[from.index]);
  auto finish = [&](size_t output) {
    const auto mode = output < call.modes.size() ? call.modes[output] : std::nullopt;
    out[output] = made_in(mode, std::move(out[output]));
  };
  for (const GraphPlace& from : outputs_) {
    from.empty(queue, out[from.index]);
    finish(from.index);
  }
  for (const Staying& s : staying_) finish(s.output);
  if (!binds_) return;
  Tensors others = execution_->collect(call.modes, collected_);
  for (size_t i = 0; i < others.size(); ++i)
    if (others[i].defined()) out[i] = std::move(others[i]);
}

}  // namespace bolt::run
