// run/eager_trial.cpp
#include "run/eager_trial.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

#include "autograd/gradients.h"
#include "cache/disk_cache.h"
#include "device/device.h"
#include "device/host/host.h"
#include "lower/settle.h"
#include "record/convert.h"
#include "record/copy.h"
#include "record/operator_facts.h"
#include "run/time_of_pass.h"
#include "support/background.h"
#include "support/knobs.h"
#include "support/log.h"
#include "support/stats.h"
#include "support/version.h"

namespace bolt::run {
namespace {

constexpr int kWarmUp = 1, kCalls = 3;  // of a turn
constexpr double kNoise = 1.1;          // the program is slower: by more than this
constexpr double kShort = 20e3;         // nanoseconds
constexpr int kMostWithoutPass = 64;    // calls

/// All of its work is done when a call returns: no device of it goes on behind the host's back.
bool is_done_at_return(const Compiled& program) {
  return std::ranges::none_of(program.prepared().devices,
                              [](const UsedDevice& d) { return d.driver->works_behind_host(); });
}

bool worth_trying(const Runnable& program) {
  return program.facts.kernels > 0 && !at::globalContext().deterministicAlgorithms();
}

/// A region with gradients: is it the same in each call and to each process, and done when it returns?
bool is_alike(const Recorded& recorded, const record::Tape& tape, const lower::Sizes& sizes) {
  const bool varies = sizes.any_data() || !sizes.open().empty() || !recorded.number_symbols.empty() ||
                      std::ranges::any_of(recorded.dynamic, std::identity());
  // Hooks that wait for gradients, and collectives, have the order of the program on each process.
  const bool waits = std::ranges::find(recorded.is_awaited, true) != recorded.is_awaited.end() ||
                     std::ranges::any_of(tape.entries, [](const auto& e) { return e.facts->communicates; });
  return !varies && !waits && !autograd::has_passes(tape) &&
         std::ranges::all_of(tape.tensors, [](const auto& t) { return t.device.type() == device::kHost; });
}

// ---- what is kept in the disk cache ----

constexpr std::string_view kKeep = "program", kCautious = "cautious", kEager = "eager";

std::string plan_of(const Compiled& program) { return loops::print(program.prepared().plan); }

/// All that the verdict rests on.
std::string key_of(const std::string& devices, const std::string& plan) {
  return std::string("measured beside eager\n") + version() + "\n" + devices +
         std::to_string(at::get_num_threads()) + " threads\n" + plan;
}
std::string key_of(const Compiled& program) {
  std::string devices;
  for (const UsedDevice& d : program.prepared().devices) devices += d.driver->fingerprint(d.device) + "\n";
  return key_of(devices, plan_of(program));
}

/// The user may switch the cache off when it was used before.
bool is_kept() { return knob_bool("TORCHBOLT_CACHE"); }

void remember(const std::string& key, std::string_view verdict, const std::string& times) {
  if (is_kept()) cache::DiskCache::global().write(key, std::string(verdict) + "\n" + times);
}

// ---- verdicts ----

std::string milliseconds(double nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", nanoseconds * 1e-6);
  return text;
}

std::shared_ptr<Runnable> kept(std::shared_ptr<Runnable> program, const Runnable& other,
                               const std::string& times) {
  if (&other != program.get()) {
    Runnable::Facts own = program->facts;
    program->take_facts(other);
    program->facts.kernels = own.kernels;
    program->facts.bytes_moved = own.bytes_moved;
  }
  program->facts.measured = times;
  return program;
}

std::shared_ptr<Runnable> given_to_eager(std::shared_ptr<Replayed> eager, const Runnable& other,
                                         const std::string& times, const std::string& name) {
  eager->take_facts(other);
  Runnable::Facts& f = eager->facts;
  f.kernels = f.kernels_before_fusion = f.library_calls = f.extern_calls = 0;
  f.bytes_moved = 0;
  f.compiled = false;
  f.fallback = true;
  f.measured = times;
  f.why_replayed = "it was measured to be faster: " + times;
  ++Stats::get().slower_than_eager;
  log("perf_hints", name + ": a region runs eager's operators, because " + f.why_replayed);
  return eager;
}

/// What an earlier process came to; null: nothing.
std::shared_ptr<Runnable> remembered(const std::string& key, const std::shared_ptr<Runnable>& program,
                                     const std::shared_ptr<Compiled>& adapts,
                                     const std::shared_ptr<Replayed>& eager, const std::string& name) {
  const auto found = is_kept() ? cache::DiskCache::global().read(key) : std::nullopt;
  if (!found) return nullptr;
  const size_t end = found->find('\n');
  const std::string verdict = found->substr(0, end);
  const std::string times = end == std::string::npos ? "" : found->substr(end + 1);
  if (verdict == kKeep) return kept(program, *program, times);
  if (verdict == kEager) return given_to_eager(eager, *program, times, name);
  const bool is_cautious = verdict == kCautious && adapts && adapts->cautious;
  std::shared_ptr<Compiled> cautious = is_cautious ? adapts->cautious() : nullptr;
  return cautious ? kept(cautious, *program, times) : nullptr;
}

}  // namespace

bool measures_by_default() {
  return knob("TORCHBOLT_MEASURE") == "auto" ? !knob_bool("TORCHBOLT_STRICT")
                                             : knob_bool("TORCHBOLT_MEASURE");
}

std::shared_ptr<Runnable> make_trial(std::shared_ptr<Compiled> program, const lower::LowerOptions& options,
                                     const SymbolTable& computed, lower::Sizes& sizes,
                                     const std::string& name) {
  const auto made_once = c10::make_scope_exit([&] {
    if (program) program->cautious = nullptr;
  });
  if (!worth_trying(*program) || !is_done_at_return(*program)) return kept(program, *program, "");
  record::Tape tape = record::copy_of(program->tape());
  lower::settle(tape, program->wanted(), options, computed, "", sizes);
  auto eager = std::make_shared<Replayed>(std::move(tape), program->wanted(), "", options.constants,
                                          program->symbols());
  std::string key = key_of(*program);
  if (auto known = remembered(key, program, program, eager, name)) return known;
  const auto adapts = std::exchange(program, nullptr);
  return std::make_shared<EagerTrial>(adapts, adapts, std::move(eager), name, std::move(key));
}

std::shared_ptr<Runnable> make_trial_with_passes(std::shared_ptr<Runnable> program, const Recorded& recorded,
                                                 const lower::Sizes& sizes) {
  if (!recorded.measured || !worth_trying(*program) || !is_alike(recorded, program->tape(), sizes))
    return program;
  auto eager = std::make_shared<Replayed>(record::copy_of(program->tape()), program->wanted(), "",
                                          recorded.constants, program->symbols());
  const auto* host = device::find(record::to_bolt(device::kHost).kind);
  std::string key =
      key_of(host->fingerprint(device::kHost) + "\n", "with backward passes\n" + program->texts().plan);
  if (auto known = remembered(key, program, nullptr, eager, recorded.name)) return known;
  return std::make_shared<EagerTrial>(std::move(program), nullptr, std::move(eager), recorded.name,
                                      std::move(key));
}

EagerTrial::EagerTrial(std::shared_ptr<Runnable> program, std::shared_ptr<Compiled> adapts,
                       std::shared_ptr<Replayed> eager, std::string name, std::string key)
    : Runnable(record::copy_of(program->tape()), program->wanted(), program->symbols()),
      name_(std::move(name)),
      key_(std::move(key)),
      has_passes_(!adapts),
      written_inputs_(program->written_inputs()),
      program_(std::move(program)),
      adapts_(std::move(adapts)),
      eager_(std::move(eager)) {
  facts = program_->facts;
}

// ---- calls ----

std::vector<at::Tensor> EagerTrial::call(const std::vector<at::Tensor>& inputs,
                                         const std::vector<int64_t>& values,
                                         record::CallGenerators generators) {
  const Turn turn = begin(values);
  const auto no_longer = c10::make_scope_exit([&] {
    std::lock_guard lock(mutex_);
    --running_;
  });
  const uint64_t first_node = at::sequence_number::peek();
  const auto from = std::chrono::steady_clock::now();
  std::vector<at::Tensor> out = turn.who->run_for(inputs, values, std::move(generators));
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - from;
  if (has_passes_)
    end_with_pass(turn, out, first_node, taken.count());
  else
    end(turn, taken.count());
  return out;
}

EagerTrial::Turn EagerTrial::begin(const std::vector<int64_t>& values) {
  std::lock_guard lock(mutex_);
  ++begun_;
  const bool alone = ++running_ == 1;
  if (phase_ == Phase::over) return {successor_, phase_, {}};
  if (phase_ == Phase::planning) return {eager_, phase_, {}};
  if (has_passes_ && ++without_pass_ > kMostWithoutPass) {
    keep_program("no backward passes came that could be measured");
    return {successor_, phase_, {}};
  }
  const Ints sizes = adapts_ ? adapts_->prepared().shaping_values(values) : Ints();
  if (!sizes_) sizes_ = sizes;
  if (sizes != *sizes_) return {program_, phase_, {}};
  return {phase_ == Phase::program ? std::shared_ptr<Runnable>(program_) : eager_, phase_,
          alone ? std::optional(begun_) : std::nullopt};
}

bool EagerTrial::Timed::done() const { return calls >= kWarmUp + kCalls; }

void EagerTrial::Timed::add(double nanoseconds) {
  if (calls++ < kWarmUp) return;
  best = std::min(best, nanoseconds);
  worst = std::max(worst, nanoseconds);
}

void EagerTrial::end(const Turn& turn, double nanoseconds) {
  std::lock_guard lock(mutex_);
  if (turn.alone == begun_) add(turn.phase, nanoseconds);
}

void EagerTrial::end_with_pass(const Turn& turn, const std::vector<at::Tensor>& results, uint64_t first_node,
                               double nanoseconds) {
  {
    std::lock_guard lock(mutex_);
    if (turn.alone != begun_) return;
  }
  time_pass_over(results, first_node,
                 [weak = weak_from_this(), phase = turn.phase, nanoseconds](double pass) {
                   const auto trial = weak.lock();
                   if (!trial) return;
                   std::lock_guard lock(trial->mutex_);
                   trial->add(phase, nanoseconds + pass);
                 });
}

void EagerTrial::add(Phase phase, double nanoseconds) {
  if (phase != phase_ || phase == Phase::over) return;
  without_pass_ = 0;
  Timed& side = phase_ == Phase::program ? ours_ : eagers_;
  side.add(nanoseconds);
  if (!again_) {
    if (side.done()) turn_is_over();
  } else if (ours_.done() && eagers_.done()) {
    judge(ours_.best > kNoise * eagers_.worst);
  } else {
    phase_ = phase_ == Phase::program ? Phase::eager : Phase::program;
  }
}

void EagerTrial::turn_is_over() {
  if (phase_ == Phase::program && ours_.best < kShort) return keep_program();
  if (phase_ == Phase::eager || first_) return judge(ours_.best > kNoise * eagers_.best);
  if (adapts_) adapts_->drop_idle_memory();
  phase_ = Phase::eager;
}

/// Program and eager have both had their turns.
void EagerTrial::judge(bool is_slower) {
  if (!is_slower) return keep_program();
  if (first_ || (again_ && !adapts_)) return give_to_eager();
  if (again_) return plan_again();
  again_ = true;
  ours_ = eagers_ = {};
  phase_ = Phase::program;
}

// ---- what comes of it ----

void EagerTrial::plan_again() {
  phase_ = Phase::planning;
  again_ = false;
  log("perf_hints", name_ + ": a region is planned again with less fusion, because " + times());
  first_ = ours_.best;
  ours_ = {};
  ++Stats::get().planned_again;
  // Of the two programs one is alive at a time: each packs the weights for itself.
  run_in_background([weak = weak_from_this(), make = adapts_->cautious, before = plan_of(*adapts_)] {
    auto made = make ? make() : nullptr;
    if (auto trial = weak.lock()) trial->take_cautious(std::move(made), before);
  });
  program_.reset();
  adapts_.reset();
}

void EagerTrial::take_cautious(std::shared_ptr<Compiled> made, const std::string& before) {
  std::lock_guard lock(mutex_);
  if (!made || plan_of(*made) == before) return give_to_eager();
  program_ = adapts_ = std::move(made);
  ours_ = {};
  phase_ = Phase::program;
}

void EagerTrial::keep_program(const std::string& why) {
  phase_ = Phase::over;
  ++Stats::get().measured;
  const std::string said = why.empty() ? times() : why;
  if (why.empty()) remember(key_, first_ ? kCautious : kKeep, said);
  if (adapts_) adapts_->cautious = nullptr;
  successor_ = kept(program_, *this, said);
  eager_.reset();
}

void EagerTrial::give_to_eager() {
  phase_ = Phase::over;
  ++Stats::get().measured;
  ++Stats::get().eager_fallbacks;
  const std::string said = times();
  remember(key_, kEager, said);
  successor_ = given_to_eager(eager_, *this, said, name_);
  program_.reset();
  adapts_.reset();
}

/// In words.
std::string EagerTrial::times() const {
  const double program = first_.value_or(ours_.best);
  std::string text = "the program takes " + milliseconds(program);
  if (has_passes_) text += " with its backward pass";
  if (ours_.best < kShort) return text + ", too little to be measured beside eager";
  text += ", eager " + milliseconds(eagers_.best);
  if (first_ && ours_.calls > 0) text += ", the program with less fusion " + milliseconds(ours_.best);
  return text + " (the best of some calls)";
}

std::shared_ptr<Runnable> EagerTrial::program() const {
  std::lock_guard lock(mutex_);
  return program_;
}

std::shared_ptr<Runnable> EagerTrial::successor() const {
  std::lock_guard lock(mutex_);
  return successor_;
}

Runnable::Texts EagerTrial::texts() const {
  const auto now = program();
  return now ? now->texts() : Texts();
}

std::vector<int> EagerTrial::weights() const {
  const auto now = program();
  return now ? now->weights() : std::vector<int>();
}

void EagerTrial::prepare(const std::vector<at::Tensor>& inputs) {
  if (const auto now = program()) now->prepare(inputs);
}

void EagerTrial::note_passes_in(const std::shared_ptr<DoubleBackward>& noted) {
  if (const auto now = program()) now->note_passes_in(noted);
}

std::vector<StepFacts> EagerTrial::costs() const {
  const auto now = program();
  return now ? now->costs() : std::vector<StepFacts>();
}

}  // namespace bolt::run
