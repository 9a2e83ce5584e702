// run/recordings.cpp: see recordings.h.
#include "run/recordings.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "run/attempt.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::run {

using device::GraphCall;
using device::GraphPolicy;
using loops::StepKind;

/// Alive with everything that the graph reads: folded buffers, and the execution whose queue its kernels
/// report to.
struct Recordings::Made {
  std::unique_ptr<Execution> execution;
  std::shared_ptr<const FoldedBuffers> folded;
  std::vector<Place> inputs, outputs;
  std::unique_ptr<device::Recording> recording;
};

namespace {

constexpr size_t kDevice = 0;  // a program that is recorded has one

/// Some have the tag for a probability that may be 0.
bool draws(const lower::ExternCall& call) {
  if (!call.op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size() && i < call.args.size(); ++i)
    if (arguments[i].name() == "dropout_p")
      return !(call.args[i].value.isDouble() && call.args[i].value.toDouble() == 0);
  return true;
}

std::string obstacle_of(const PreparedStep& p) {
  if (p.learns >= 0) return p.name + " finds sizes out that are data";
  if (!p.call) return "";
  if (draws(*p.call)) return p.name + " draws random numbers";
  if (p.call->op.hasTag(at::Tag::cudagraph_unsafe)) return p.name + " is tagged as unsafe for CUDA graphs";
  if (p.call->op.hasTag(at::Tag::data_dependent_output)) return p.name + " reads data on the processor";
  return "";
}

/// As so many kernels of ours: calls of ATen take the host longer.
int64_t launches_of(const std::vector<PreparedStep>& steps) {
  constexpr int64_t kOfACall = 3;
  int64_t launches = 0;
  for (const PreparedStep& p : steps) launches += p.kernel >= 0 ? 1 : kOfACall;
  return launches;
}

int64_t fresh(const lower::Lowered& lowered) {
  return std::count_if(lowered.outputs.begin(), lowered.outputs.end(),
                       [](const auto& o) { return o.kind == lower::TensorOut::Kind::Fresh; });
}

bool is_dense(const at::Tensor& t) { return t.is_non_overlapping_and_dense(); }

/// Two elements in one place.
bool overlaps(const at::Tensor& t) {
  if (is_dense(t)) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // strides and sizes
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1) dims.emplace_back(t.stride(d), t.size(d));
  std::sort(dims.begin(), dims.end());
  int64_t reach = 1;
  for (auto [stride, size] : dims) {
    if (stride < reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

}  // namespace

Recordings::Recordings(const Prepared& prepared, std::string name)
    : p_(prepared),
      name_(std::move(name)),
      obstacle_(find_obstacle()),
      written_(p_.lowered.inputs.size()),
      policy_(launches_of(p_.steps), fresh(p_.lowered)) {
  for (const loops::PlanOutput& o : p_.plan.outputs)
    if (o.write_to >= 0) written_[static_cast<size_t>(o.write_to)] = 1;
  say(obstacle_);
}

std::string Recordings::find_obstacle() const {
  if (p_.devices.empty() || p_.steps.empty()) return "there is nothing to run";
  for (const UsedDevice& d : p_.devices)
    if (!d.driver->records()) return "some of it is on " + d.device.str();
  if (p_.devices.size() > 1) return "it works on several devices";
  if (!p_.data_sizes.empty()) return "some of its sizes are data";
  for (const PreparedStep& p : p_.steps)
    if (std::string why = obstacle_of(p); !why.empty()) return why;
  return "";
}

void Recordings::say(const std::string& why) const {
  if (why.empty()) return;
  const std::string text = name_ + ": no CUDA graph, because " + why;
  log("perf_hints", text);
  log("cudagraphs", text);
}

// ---- a call ----

GraphCall Recordings::described(const Call& call, int64_t order) const {
  GraphCall out{call.values, order, call.folded.get(), {}, {}, 0};
  for (const loops::PlanOutput& o : p_.plan.outputs) {
    if (o.write_to >= 0) continue;
    int64_t bytes = dtype_bytes(p_.buffer(o.buffer).type.dtype);
    for (int64_t size : call.shapes->buffers[static_cast<size_t>(o.buffer)].sizes) bytes *= size;
    out.result_bytes += bytes;
  }
  for (const at::Tensor& t : call.inputs) {
    out.addresses.push_back(t.defined() && t.numel() ? reinterpret_cast<uintptr_t>(t.data_ptr()) : 0);
    out.bytes.push_back(!t.defined()  ? 0
                        : overlaps(t) ? GraphCall::kCannotMove
                                      : static_cast<int64_t>(t.nbytes()));
  }
  return out;
}

/// For a call that is not repeated, the recording that nobody will ask for any more is taken out.
std::shared_ptr<Recordings::Made> Recordings::made_of(const GraphPolicy::Decision& decision) {
  if (decision.slot == GraphPolicy::kSlots) return nullptr;
  made_.resize(GraphPolicy::kSlots);
  auto& made = made_[decision.slot];
  return decision.what == GraphPolicy::Do::replay ? made : std::move(made);
}

std::optional<std::vector<at::Tensor>> Recordings::run(
    const Call& call, const std::function<std::unique_ptr<Execution>()>& take_execution) {
  if (!obstacle_.empty()) return std::nullopt;
  const std::unique_ptr<device::Queue> own = p_.devices[kDevice].driver->queue(p_.devices[kDevice].device);
  device::Queue& queue = *own;
  queue.begin();
  if (queue.is_being_recorded()) return std::nullopt;
  const auto turn = queue.turn();
  GraphPolicy::Decision decision;
  std::shared_ptr<Made> made;  // goes when mutex_ is free: that may need the GIL
  std::vector<char> copied;
  {
    const std::lock_guard lock(mutex_);
    decision = policy_.decide(described(call, queue.order()));
    made = made_of(decision);
    if (decision.what == GraphPolicy::Do::record) copied = policy_.copied(decision.slot);
  }
  say(decision.why_not);
  if (decision.what == GraphPolicy::Do::launch) return std::nullopt;
  if (decision.what == GraphPolicy::Do::record) {
    made = record(call, queue, copied, take_execution());
    const std::lock_guard lock(mutex_);
    if (!made) policy_.failed(decision.slot);
    made_[decision.slot] = made;
    if (!made) return std::nullopt;
  }
  return replay(*made, call);
}

// ---- recording ----

/// Nothing of a failure remains: the call is run step by step.
std::shared_ptr<Recordings::Made> Recordings::record(const Call& call, device::Queue& queue,
                                                     const std::vector<char>& copied,
                                                     std::unique_ptr<Execution> execution) const {
  auto made = std::make_shared<Made>();
  Execution& e = *execution;
  made->execution = std::move(execution);
  made->folded = call.folded;
  e.take_shapes(call.shapes);
  e.begin_queues();
  if (call.folded) e.use(*call.folded);
  auto place = [](size_t index, const at::Tensor& t) {
    return Place{index,           t.data_ptr(),
                 t.sizes().vec(), t.strides().vec(),
                 t.scalar_type(), is_dense(t) ? static_cast<int64_t>(t.nbytes()) : 0};
  };
  auto work = [&] {
    std::vector<at::Tensor> inputs = call.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!copied[i] || inputs[i].numel() == 0) continue;
      inputs[i] = at::empty_strided(inputs[i].sizes(), inputs[i].strides(), inputs[i].options());
      made->inputs.push_back(place(i, inputs[i]));
    }
    e.begin(call.values, {});
    e.bind(inputs);
    e.run(p_.steps);
    const auto out = e.collect({});
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].defined()) made->outputs.push_back(place(i, out[i]));
    e.end();
  };
  try {
    made->recording = p_.devices[kDevice].driver->record(queue, work);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    say("it cannot be captured: " + text.substr(0, text.find('\n')));
    return nullptr;
  } catch (const RunEagerly&) {
    say("it cannot be captured: it is given to eager");
    return nullptr;
  }
  ++Stats::get().graphs;
  log("cudagraphs", name_ + ": recorded " + std::to_string(p_.steps.size()) + " steps, " +
                        std::to_string(made->inputs.size()) + " of " + std::to_string(call.inputs.size()) +
                        " inputs copied, " + std::to_string(made->outputs.size()) + " outputs");
  return made;
}

// ---- repeating ----

std::vector<at::Tensor> Recordings::replay(Made& made, const Call& call) const {
  const at::AutoDispatchBelowADInplaceOrView is_announced;
  const UsedDevice& d = p_.devices[kDevice];
  device::Queue& queue = made.execution->begin_queues();  // a kernel's report is heard of here
  ++Stats::get().graph_replays;
  std::vector<at::Tensor> out(p_.lowered.outputs.size());
  for (const Place& to : made.outputs)  // first, since there may be no memory
    out[to.index] = d.driver->result(d.device, to.sizes, to.strides, to.dtype);
  for (const Place& to : made.inputs) copy(queue, to, call.inputs[to.index], true);
  made.recording->launch(queue);
  for (const Place& from : made.inputs)
    if (written_[from.index]) copy(queue, from, call.inputs[from.index], false);
  for (const Place& from : made.outputs) {
    copy(queue, from, out[from.index], false);
    const auto mode = from.index < call.modes.size() ? call.modes[from.index] : std::nullopt;
    out[from.index] = made_in(mode, std::move(out[from.index]));
  }
  return out;
}

at::Tensor Recordings::over(const Place& place) const {
  const auto options = at::TensorOptions().dtype(place.dtype).device(p_.devices[kDevice].device);
  return at::for_blob(place.data, place.sizes)
      .strides(place.strides)
      .target_device(options.device())
      .options(options)
      .make_tensor();
}

void Recordings::copy(device::Queue& queue, const Place& place, const at::Tensor& tensor,
                      bool to_place) const {
  if (tensor.numel() == 0) return;
  void* theirs = tensor.data_ptr();
  const bool alike = place.bytes && tensor.strides() == at::IntArrayRef(place.strides);
  if (alike)
    return to_place ? queue.copy(place.data, theirs, place.bytes)
                    : queue.copy(theirs, place.data, place.bytes);
  at::Tensor ours = over(place);
  if (to_place)
    ours.copy_(tensor);
  else
    at::Tensor(tensor).copy_(ours);
}

}  // namespace bolt::run
