// run/sections.cpp
#include "run/sections.h"

#include <algorithm>
#include <string_view>

#include "record/cuda_numbers.h"
#include "record/operator_facts.h"

namespace bolt::run {

using loops::BufferKind;

namespace {

/// May the call drop something? Some have a probability that may be 0.
bool has_dropout(const lower::ExternCall& call) {
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size() && i < call.args.size(); ++i)
    if (arguments[i].name() == "dropout_p")
      return !(call.args[i].value.isDouble() && call.args[i].value.toDouble() == 0);
  return true;
}

/// Backward calls of attention are given the state that the forward call drew, and draw nothing.
bool is_given_its_numbers(const lower::ExternCall& call) {
  return std::ranges::any_of(call.op.schema().arguments(),
                             [](const c10::Argument& a) { return a.name() == "philox_seed"; });
}

bool draws(const lower::ExternCall& call) {
  return call.op.hasTag(at::Tag::nondeterministic_seeded) && has_dropout(call) && !is_given_its_numbers(call);
}

/// Its numbers are those of the forward call, whose seed and offset it reads while it is called: on the
/// processor, unless they are being captured.
bool draws_again_from_processor(const lower::ExternCall& call) {
  return call.op.schema().name() == "aten::_scaled_dot_product_efficient_attention_backward" &&
         has_dropout(call);
}

bool draws_in_graphs(const lower::ExternCall& call) {
  return call.op.schema().name() == "torchbolt::draw_state" ? record::reserves_in_graphs()
                                                            : record::facts_of(call.op).draws_in_graphs;
}

bool draws_from_another(const lower::ExternCall& call) {
  return std::ranges::any_of(call.args, [](const record::Arg& a) { return a.value.isGenerator(); });
}

/// Is it somebody's operator, which may do anything as far as we know?
bool is_somebodys(const PreparedStep& p) {
  if (!p.call) return false;
  const c10::OperatorHandle& op = p.call->op;
  return !record::is_atens(op) && !op.operator_name().name.starts_with("torchbolt::");
}

/// As so many kernels of ours: calls of ATen take the host longer.
int64_t launches_of(const PreparedStep& p) {
  constexpr int64_t kOfACall = 3;
  return p.kernel >= 0 ? 1 : kOfACall;
}

class Sectioning {
 public:
  Sectioning(const Prepared& p, const std::map<std::string, std::string>& refused)
      : p_(p), refused_(refused), copied_(p.plan.buffers.size()) {
    out_.inputs.resize(p_.lowered.inputs.size());
    out_.placed.resize(p_.plan.buffers.size());
    out_.borrowed.resize(p_.plan.buffers.size());
    somebodys_ = std::ranges::any_of(p_.steps, is_somebodys) || !refused.empty();
  }

  Sections make() {
    out_.why_none = of_all();
    if (!out_.why_none.empty()) return std::move(out_);
    note_results();
    std::vector<device::GraphStep> steps;
    for (const PreparedStep& p : p_.steps) steps.push_back(described(p));
    out_.parts = device::sections_of(steps);
    if (out_.parts.graphs == 0) out_.why_none = first_reason_;
    for (int b : out_.parts.placed) out_.placed[b] = 1;
    for (const device::GraphSection& s : out_.parts.list) note(s, steps);
    for (size_t b = 0; b < copied_.size(); ++b)
      if (p_.plan.buffers[b].kind == BufferKind::Output && !p_.plan.buffers[b].owned_by_step &&
          out_.borrowed[b])
        out_.pinned.push_back(static_cast<int>(b));
    for (size_t i = 0; i < out_.results.size(); ++i) settle(out_.results[i], p_.lowered.outputs[i]);
    return std::move(out_);
  }

 private:
  size_t memory(int buffer) const { return static_cast<size_t>(p_.owner(buffer)); }

  std::string of_all() {
    if (p_.devices.empty() || p_.steps.empty()) return "there is nothing to run";
    size_t that_record = 0;
    for (size_t i = 0; i < p_.devices.size(); ++i) {
      if (!p_.devices[i].driver->records()) continue;
      out_.device = i;
      ++that_record;
    }
    if (that_record == 0) return "all of it is on " + p_.devices[0].device.str();
    if (that_record > 1) return "it works on several devices";
    if (std::ranges::any_of(p_.plan.buffers, [](const auto& b) { return b.apart; }))
      return "its temporaries come and go";
    return p_.data_sizes.empty() ? "" : "some of its sizes are data";
  }

  std::string obstacle(const PreparedStep& p) const {
    for (int b : p.step->buffers)
      if (const size_t at = p_.device_of_buffer[b]; at != out_.device)
        return "works on " + p_.devices[at].device.str();
    if (const auto known = refused_.find(p.name); known != refused_.end()) return known->second;
    if (p.kernel < 0 && !p_.devices[out_.device].driver->records_calls()) return "is launched by ATen";
    if (!p.call) return "";
    if (draws(*p.call)) {
      if (draws_from_another(*p.call)) return "draws random numbers of a generator of its own";
      if (somebodys_ || !draws_in_graphs(*p.call)) return "draws random numbers";
    }
    if (draws_again_from_processor(*p.call)) return "reads its state of random numbers on the processor";
    if (p.call->op.hasTag(at::Tag::cudagraph_unsafe)) return "is tagged as unsafe for CUDA graphs";
    if (p.call->op.hasTag(at::Tag::data_dependent_output)) return "reads data on the processor";
    return "";
  }

  device::GraphStep described(const PreparedStep& p) {
    device::GraphStep step{launches_of(p), false, {}, {}, {}};
    if (const std::string why = obstacle(p); !why.empty()) {
      step.apart = true;
      if (first_reason_.empty()) first_reason_ = p.name + " " + why;
      std::string text = p.name + " (" + why + ")";
      if (out_.left_out.find(text) == std::string::npos)
        out_.left_out += (out_.left_out.empty() ? "" : ", ") + text;
    }
    for (size_t i = 0; i < p.step->buffers.size(); ++i) {
      const size_t m = memory(p.step->buffers[i]);
      const bool gives = p.step->node && i >= static_cast<size_t>(p.step->operand_count);
      step.touches.push_back(static_cast<int>(m));
      if (gives && p_.plan.buffers[m].owned_by_step) step.makes.push_back(static_cast<int>(m));
      if (copied_[m]) step.results.push_back(static_cast<int>(m));
    }
    return step;
  }

  /// What a graph touches or makes, and whether it draws.
  void note(const device::GraphSection& s, const std::vector<device::GraphStep>& steps) {
    bool any = false;
    for (size_t i = s.begin; s.graph && i < s.end; ++i) {
      any |= p_.steps[i].call && draws(*p_.steps[i].call);
      for (int m : steps[i].touches) note_memory(m);
      // Outputs that no step writes have no elements, and those of later steps are made before a write that
      // the caller can see. A repeated graph makes neither.
      for (int m : p_.steps[i].makes) note_memory(m);
    }
    out_.draws.push_back(any);
  }

  void note_memory(int m) {
    const loops::PlanBuffer& b = p_.buffer(m);
    if (b.kind == BufferKind::Input) out_.inputs[b.source] = 1;
    if (b.kind == BufferKind::Output || (b.owned_by_step && b.kind != BufferKind::Fold)) out_.borrowed[m] = 1;
  }

  /// Memory that calls make which go on when they have returned.
  std::vector<char> waited_for() const {
    std::vector<char> found(p_.plan.buffers.size());
    for (const PreparedStep& p : p_.steps) {
      if (!p.call || !record::facts_of(p.call->op).is_waited_for) continue;
      for (size_t i = static_cast<size_t>(p.step->operand_count); i < p.step->buffers.size(); ++i)
        found[memory(p.step->buffers[i])] = 1;
    }
    return found;
  }

  /// As if graphs made all of them. The caller may have memory that is a result's alone, whatever made it.
  /// Only not what is under way when its operator has returned.
  void note_results() {
    out_.results.assign(p_.lowered.outputs.size(), Sections::Result::elsewhere);
    std::vector<char> given(p_.plan.buffers.size());
    const std::vector<char> under_way = waited_for();
    for (size_t i = 0; i < out_.results.size(); ++i) {
      const lower::TensorOut& o = p_.lowered.outputs[i];
      if (o.kind != lower::TensorOut::Kind::Fresh) continue;
      const int b = p_.plan.outputs[o.index].buffer;
      const size_t m = memory(b);
      const bool is_first = !given[m]++;
      const bool stays = is_first && !in_arena(m) && !under_way[m];
      out_.results[i] = stays ? Sections::Result::stays : Sections::Result::copied;
      if (!stays) copied_[m] = 1;
    }
  }
  bool in_arena(size_t m) const { return p_.lies_in_arena(m) && p_.device_of_buffer[m] == out_.device; }

  /// What no graph touches lies elsewhere, and what is copied to where graphs have it stays there.
  void settle(Sections::Result& result, const lower::TensorOut& o) const {
    if (result == Sections::Result::elsewhere) return;
    const size_t m = memory(p_.plan.outputs[o.index].buffer);
    if (!out_.borrowed[m] && !in_arena(m))
      result = Sections::Result::elsewhere;
    else if (out_.placed[m])
      result = Sections::Result::copied;
  }

  const Prepared& p_;
  const std::map<std::string, std::string>& refused_;
  std::vector<char> copied_;  ///< by memory: it is copied for the caller
  bool somebodys_ = false;    ///< there is an operator that may turn out not to be captured
  std::string first_reason_;
  Sections out_;
};

}  // namespace

Sections make_sections(const Prepared& prepared, const std::map<std::string, std::string>& refused) {
  return Sectioning(prepared, refused).make();
}

}  // namespace bolt::run
