// run/recordings.cpp
#include "run/recordings.h"

#include <algorithm>

#include "support/log.h"
#include "support/stats.h"

namespace bolt::run {

using device::GraphCall;
using device::GraphPolicy;

namespace {

/// Two elements in one place.
bool overlaps(const at::Tensor& t) {
  if (t.is_non_overlapping_and_dense()) return false;
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

Recordings::Recordings(const Prepared& prepared, std::string name) : p_(prepared), name_(std::move(name)) {
  divide();
}

std::string Recordings::obstacle() const {
  const std::lock_guard lock(mutex_);
  return sections_->why_none;
}

/// What is part of graphs, as far as is known now.
void Recordings::divide() {
  std::map<std::string, std::string> refused;
  for (const auto& [step, failure] : failed_)
    if (failure.first > 1) refused[step] = failure.second;
  auto made = std::make_shared<const Sections>(make_sections(p_, refused));
  sections_ = made;
  policy_.price(made->parts.launches, made->copies(), made->parts.graphs);
  say(made->why_none);
  if (made->left_out.empty() || !made->why_none.empty()) return;
  const std::string text = name_ + ": " + std::to_string(made->parts.graphs) +
                           " CUDA graphs, and steps that are launched in between: " + made->left_out;
  log("perf_hints", text);
  log("cudagraphs", text);
}

void Recordings::say(const std::string& why) const {
  if (why.empty()) return;
  const std::string text = name_ + ": no CUDA graph, because " + why;
  log("perf_hints", text);
  log("cudagraphs", text);
}

// ---- a call ----

GraphCall Recordings::described(const GraphedCall& call, const Sections& sections, int64_t order) const {
  GraphCall out{call.values, order, call.folded.get(), {}, {}, {}, {}};
  for (size_t i = 0; i < sections.results.size(); ++i) {
    int64_t bytes = 0;
    if (sections.results[i] != Sections::Result::elsewhere) {
      const int b = p_.plan.outputs[p_.lowered.outputs[i].index].buffer;
      bytes = dense_bytes(p_.buffer(b).type.dtype, call.shapes->buffers[b].sizes);
    }
    out.result_bytes.push_back(bytes);
    out.may_stay.push_back(sections.results[i] == Sections::Result::stays);
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const at::Tensor& t = call.inputs[i];
    const bool read =
        sections.inputs[i] && t.defined() && t.numel() && t.device() == p_.devices[sections.device].device;
    out.addresses.push_back(read ? reinterpret_cast<uintptr_t>(t.data_ptr()) : 0);
    out.bytes.push_back(!read ? 0 : overlaps(t) ? GraphCall::kCannotMove : static_cast<int64_t>(t.nbytes()));
  }
  return out;
}

/// For a call that is not repeated, the recording that nobody will ask for any more is taken out.
std::shared_ptr<RecordedCall> Recordings::made_of(const GraphPolicy::Decision& decision) {
  if (decision.slot == GraphPolicy::kSlots) return nullptr;
  made_.resize(GraphPolicy::kSlots);
  auto& made = made_[decision.slot];
  return decision.what == GraphPolicy::Do::replay ? made : std::move(made);
}

std::optional<std::vector<at::Tensor>> Recordings::run(
    const GraphedCall& call, const std::function<std::unique_ptr<Execution>()>& take_execution) {
  std::shared_ptr<const Sections> sections;
  {
    const std::lock_guard lock(mutex_);
    sections = sections_;
  }
  if (!sections->why_none.empty() || steps_are_timed()) return std::nullopt;
  const UsedDevice& device = p_.devices[sections->device];
  const std::unique_ptr<device::Queue> queue = device.driver->queue(device.device);
  queue->begin();
  if (queue->is_being_recorded()) return std::nullopt;
  const device::Turn turn = queue->turn();
  if (!turn) return std::nullopt;
  GraphPolicy::Decision decision;
  std::shared_ptr<RecordedCall> made;  // goes when mutex_ is free: that may need the GIL
  std::vector<char> copied, copied_out;
  {
    const std::lock_guard lock(mutex_);
    decision = policy_.decide(described(call, *sections, queue->order()), StillPlaces::contain);
    made = made_of(decision);
    if (decision.what == GraphPolicy::Do::record) {
      copied = policy_.copied(decision.slot);
      copied_out = policy_.copied_out(decision.slot);
    }
  }
  say(decision.why_not);
  auto attempt = [&](const auto& work) {
    return call.attempts(call.generators, work, [&] { return !made->has_written(); });
  };
  switch (decision.what) {
    case GraphPolicy::Do::launch: return std::nullopt;
    case GraphPolicy::Do::replay: {
      made->begin(call);  // a kernel's report is heard of here
      auto out = attempt([&] { return made->repeat(call, *queue, turn); });
      if (out) {
        ++Stats::get().graph_replays;
        return out;
      }
      log("cudagraphs", name_ + ": memory of " + std::to_string(made->in_use().size()) +
                            " results is in use; they are copied from now on");
      const std::lock_guard lock(mutex_);
      policy_.missed(decision.slot, made->in_use());
      return out;
    }
    case GraphPolicy::Do::record: break;
  }
  std::unique_ptr<Execution> execution = take_execution();
  execution->take_shapes(call.shapes);
  made = std::make_shared<RecordedCall>(p_, sections, std::move(execution), made.get());
  std::optional<std::vector<at::Tensor>> out;
  try {
    made->begin(call);
    out = attempt([&] { return made->record(call, *queue, turn, copied, copied_out); });
  } catch (...) {  // of a step that is launched: by data, as a rule
    note_failure(decision.slot, *made);
    throw;
  }
  if (made->failure()) {
    note_failure(decision.slot, *made);
    return out;
  }
  Stats::get().graphs += sections->parts.graphs;
  ++Stats::get().graph_replays;
  log("cudagraphs", name_ + ": recorded " + made->text());
  const std::lock_guard lock(mutex_);
  made_[decision.slot] = made;
  return out;
}

/// Of a step that could not be captured twice, it is said that it cannot be.
void Recordings::note_failure(size_t slot, const RecordedCall& recorded) {
  const auto& failure = recorded.failure();
  if (failure) say((failure->step.empty() ? "it" : failure->step) + " cannot be captured: " + failure->why);
  const std::lock_guard lock(mutex_);
  const bool taught = failure && !failure->step.empty();
  if (taught) {
    auto& known = failed_[failure->step];
    known.second = "cannot be captured: " + failure->why;
    if (++known.first == 2) divide();
  }
  policy_.failed(slot, taught);
}

}  // namespace bolt::run
