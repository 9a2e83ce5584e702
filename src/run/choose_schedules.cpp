// run/choose_schedules.cpp
#include "run/choose_schedules.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "device/device.h"
#include "device/measure.h"
#include "loops/cost.h"
#include "run/evaluate.h"
#include "run/questions.h"
#include "support/log.h"

namespace bolt::run {
namespace {

using loops::BufferRole;
using loops::Kernel;
using loops::Plan;
using loops::Step;
using loops::StepKind;

constexpr size_t kMostKernels = 32;  // that take most of a call

bool reads_at_data(const Kernel& k) {
  auto gathers = [](const auto& access) { return !access.gather.empty(); };
  return std::ranges::any_of(k.exprs, gathers) || std::ranges::any_of(k.stores, gathers) || k.has_checks();
}

/// Every run begins with what the one before it left.
bool changes_operands(const Kernel& k) {
  return std::ranges::any_of(k.buffers, [](const loops::Buffer& b) { return b.role == BufferRole::InOut; });
}

/// A kernel of the plan, by its first step, and what it takes in a call by the model of costs.
struct Candidate {
  const Step* step;
  double nanoseconds = 0;
};

class Chooser {
 public:
  Chooser(Plan& plan, cache::Allowance& allowance, const std::string& name)
      : plan_(plan), allowance_(allowance), name_(name) {}

  std::vector<std::string> run() {
    const at::NoGradGuard no_gradients;
    for (const Candidate& c : candidates()) {
      if (allowance_.is_spent()) break;
      try {
        answer(*c.step);
      } catch (const std::exception& e) {
        log("perf_hints", name_ + ": nothing was measured of " + kernel(*c.step).name + ": " + e.what());
      }
    }
    for (Step& step : plan_.steps)
      if (step.kind == StepKind::Kernel)
        if (const auto chosen = chosen_.find(step.kernel); chosen != chosen_.end())
          step.schedule = chosen->second;
    return std::move(lines_);
  }

 private:
  const Kernel& kernel(const Step& step) const { return plan_.kernels[step.kernel]; }
  const graph::Type& type(int buffer) const { return plan_.buffers[buffer].type; }

  std::vector<Candidate> candidates() const {
    std::map<int, Candidate> found;
    for (const Step& step : plan_.steps) {
      if (!is_a_question(step)) continue;
      Candidate& c = found.try_emplace(step.kernel, Candidate{&step}).first->second;
      c.nanoseconds += loops::cost_of(plan_, step).nanoseconds;
    }
    for (const Step& step : plan_.steps)
      if (step.kind == StepKind::Kernel && step.list >= 0) found.erase(step.kernel);
    std::vector<Candidate> all;
    for (const auto& [id, c] : found) all.push_back(c);
    std::ranges::stable_sort(all, std::greater(), &Candidate::nanoseconds);
    if (all.size() > kMostKernels) all.resize(kMostKernels);
    return all;
  }
  bool is_a_question(const Step& step) const {
    if (step.kind != StepKind::Kernel || step.list >= 0 || !loops::numbers_of(plan_, step).empty())
      return false;
    const Kernel& k = kernel(step);
    return device::find(step.device.kind)->schedules(k) > 1 && k.symbols.empty() && !reads_at_data(k) &&
           !changes_operands(k) && std::ranges::all_of(step.buffers, [&](int b) {
             return is_known(type(b)) && !is_opaque(type(b).dtype);
           });
  }

  void answer(const Step& step) {
    const Kernel& k = kernel(step);
    const int schedules = device::find(step.device.kind)->schedules(k);
    std::vector<cache::Way> ways;
    for (int i = 0; i < schedules; ++i)
      ways.push_back({"schedule " + std::to_string(i), [this, &step, i] { return time(step, i); }});
    Kernel unnamed = k;
    unnamed.name = "kernel";
    std::string question = loops::print(unnamed);
    for (int b : step.buffers) question += type(b).str() + "\n";
    const cache::Choice choice = choose(question, step.device, ways, allowance_);
    code_ = {};
    buffers_.clear();
    usual_.clear();
    for (int i = 1; i < schedules; ++i)
      if (choice.name == ways[i].name) chosen_[step.kernel] = i;
    if (choice.times.empty()) return;
    lines_.push_back(in_words("kernel " + k.name, choice));
    log("perf_hints", name_ + ": " + lines_.back());
  }

  /// A plan of this step alone, by each of the schedules: all of them are compiled at once.
  void compile(const Step& step) {
    Plan alone;
    alone.graph = std::make_unique<graph::Graph>();
    alone.buffers = plan_.buffers;
    for (int i = 0; i < device::find(step.device.kind)->schedules(kernel(step)); ++i) {
      alone.kernels.push_back(kernel(step));
      Step by = step;
      by.kernel = i;
      by.schedule = i;
      alone.steps.push_back(std::move(by));
    }
    code_ = device::PlanCode(alone);
    code_->finish();
    for (int b : step.buffers) buffers_.push_back(made_up(type(b)));
  }

  double time(const Step& step, int schedule) {
    if (!code_) compile(step);
    const device::DeviceCode& code = code_->of(step.device);
    const c10::Device on = device::to_torch(step.device);
    const std::unique_ptr<device::Queue> queue = device::find(step.device.kind)->queue(on);
    const SymbolTable no_symbols;
    const Ints no_values, extents = Evaluate{no_symbols, no_values}(code.facts(schedule).extents);
    std::vector<void*> pointers;
    auto work = [&] {
      queue->follow();
      pointers.clear();
      for (const at::Tensor& t : buffers_) pointers.push_back(t.data_ptr());
      code.launch(schedule, *queue, {pointers, nullptr, extents.data()});
    };
    work();
    compare(kernel(step), schedule);
    return device::nanoseconds_of(on, work);
  }

  /// What it stored, which every schedule stores over what the one before it did.
  void compare(const Kernel& k, int schedule) {
    for (size_t i = 0, of = 0; i < buffers_.size(); ++i) {
      if (k.buffers[i].role == BufferRole::In) continue;
      if (schedule == 0)
        usual_.push_back(buffers_[i].clone());
      else
        check_alike(usual_[of], buffers_[i]);
      ++of;
    }
  }

  Plan& plan_;
  cache::Allowance& allowance_;
  const std::string& name_;
  std::map<int, int> chosen_;  // by kernel
  std::vector<std::string> lines_;
  // Of the question that is being answered:
  std::optional<device::PlanCode> code_;
  std::vector<at::Tensor> buffers_, usual_;
};

}  // namespace

std::vector<std::string> choose_schedules(Plan& plan, cache::Allowance& allowance, const std::string& name) {
  return Chooser(plan, allowance, name).run();
}

}  // namespace bolt::run
