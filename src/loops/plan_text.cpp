// loops/plan_text.cpp
// Plan -> text, for dumps, tests and trying by hand; plan_parser.cpp reads it back.
//
//   plan @forward: 3 kernels (of 14), arena 4096 bytes
//     b0 = input 0: f32[2, 8] "x" steps 0..1
//     b1 = input 1: f32[8, 8] param "fc.weight"
//     b2 = fold: f32[128]
//     b3 = temp @0: f32[2, 8] steps 0..1
//     b4 = alias b3 + 16: f32[8]{2}
//     b5 = output 0 (made by its step): f32[2, 8] cuda:0 steps 1..3
//     b6 = temp @0 over b3: f32[2, 8] steps 1..2
//   fold:
//     pack for @linear_gelu_0 (b1) -> (b2)
//   run:
//     0: library matmul (b0, b2) -> (b3)                         # model.py:12 in forward
//     1: contraction linear with @linear_gelu_0 (b0, b2) -> (b3)
//     2: extern (b3) -> (b7, b8) {call=0, name="aten::topk"}
//     3: kernel @add_norm_1 (b3, b0) -> (b5)                      in list 0, where steps are one launch
//     4: kernel @softmax_2 (b7) -> (b9) by schedule 1             another than it follows by itself
//     5: copy b5 -> b0
//   return b5
//   write b0
//   <the kernels' own text>
//
// A buffer's device is its type's last word and left out for the CPU. That of a step, or of an arena, stands
// in front: `3: cuda:0 kernel @k`, `arena cuda:0 4096 bytes`. The numbers in front of steps are for the
// reader, and so is the count of kernels. Sizes that differ between calls are symbols (s0) in the types of
// inputs.
#include "graph/device_facts.h"
#include "graph/text.h"
#include "loops/plan.h"
#include "support/text.h"

namespace bolt::loops {
namespace {

std::string name_of(int buffer) { return "b" + std::to_string(buffer); }

std::string list(const Step& s, size_t from, size_t to) {
  std::string out = "(";
  for (size_t i = from; i < to; ++i) out += (i > from ? ", " : "") + name_of(s.buffers[i]);
  return out + ")";
}

/// "cuda:0 "; nothing for the processor.
std::string word(graph::Device d) { return graph::is_processor(d) ? "" : graph::str(d) + " "; }

std::string place_text(const PlanBuffer& b) {
  switch (b.kind) {
    case BufferKind::Input: return "input " + std::to_string(b.source);
    case BufferKind::Output: return "output " + std::to_string(b.source);
    case BufferKind::Temp:
      return b.owned_by_step ? "temp" : b.apart ? "temp apart" : "temp @" + b.arena_offset.str();
    case BufferKind::Fold: return "fold";
    case BufferKind::Alias: return "alias " + name_of(b.source) + " + " + b.offset.str();
  }
  return "";
}

std::string buffer_text(const Plan& p, const PlanBuffer& b) {
  std::string s = place_text(b);
  if (b.owned_by_step) s += " (made by its step)";
  if (b.over >= 0) s += " over " + name_of(b.over);
  s += ": " + b.type.str();
  if (b.kind == BufferKind::Input) {
    const graph::Input& in = p.graph->inputs[b.source];
    s += graph::kind_text(in.kind);
    if (!in.value->name.empty()) s += " " + quoted(in.value->name);
  }
  if (b.first_step >= 0) s += " steps " + std::to_string(b.first_step) + ".." + std::to_string(b.last_step);
  return s;
}

std::string what_text(const Plan& p, const Step& s) {
  switch (s.kind) {
    case StepKind::Kernel: return "kernel @" + p.kernels[s.kernel].name;
    case StepKind::Contraction:
      return "contraction " + std::string(graph::op_info(s.node->op).name) + " with @" +
             p.kernels[s.epilogue].name;
    case StepKind::Pack: return "pack for @" + p.kernels[s.epilogue].name;
    case StepKind::Library: return "library " + std::string(graph::op_info(s.node->op).name);
    case StepKind::Extern: return "extern";
    case StepKind::Copy: break;
  }
  return "";
}

std::string step_text(const Plan& p, const Step& s) {
  if (s.kind == StepKind::Copy)
    return word(s.device) + "copy " + name_of(s.buffers[0]) + " -> " + name_of(s.buffers[1]);
  const auto reads = static_cast<size_t>(s.operand_count);
  std::string out =
      word(s.device) + what_text(p, s) + " " + list(s, 0, reads) + " -> " + list(s, reads, s.buffers.size());
  if (s.node && s.kind != StepKind::Pack) out += graph::attrs_text(*s.node);
  if (s.schedule > 0) out += " by schedule " + std::to_string(s.schedule);
  if (s.list >= 0) out += " in list " + std::to_string(s.list);
  return out;
}

std::string header(const Plan& p) {
  std::string name = graph::identifier(p.graph->name);
  std::string out = "plan @" + (name.empty() ? "region" : name) + ": " + std::to_string(p.kernels.size()) +
                    " kernels (of " + std::to_string(p.kernels_before_fusion) + ")";
  for (const Arena& a : p.arenas) out += ", arena " + word(a.device) + a.bytes.str() + " bytes";
  if (p.put_back > 0) out += ", " + std::to_string(p.put_back) + " layers put back";
  return out + "\n";
}

/// Results, and inputs that are written back into, in their order; neighbours that are returned share a line.
std::string outputs_text(const Plan& p) {
  std::string out;
  bool returning = false;
  for (const PlanOutput& o : p.outputs) {
    const bool returned = o.write_to < 0;
    out +=
        returned && returning ? ", " : std::string(returning ? "\n" : "") + (returned ? "return " : "write ");
    out += name_of(o.buffer) + (returned ? "" : "\n");
    returning = returned;
  }
  return out + (returning ? "\n" : "");
}

}  // namespace

std::string print(const Plan& p) {
  std::string out = header(p);
  auto add = [&](std::string line, const graph::Loc& loc) {
    graph::append_loc(line, loc);
    out += line + "\n";
  };
  for (size_t i = 0; i < p.buffers.size(); ++i)
    add("  " + name_of(static_cast<int>(i)) + " = " + buffer_text(p, p.buffers[i]), {});
  if (!p.fold_steps.empty()) out += "fold:\n";
  for (const Step& s : p.fold_steps) add("  " + step_text(p, s), s.loc);
  out += "run:\n";
  for (size_t i = 0; i < p.steps.size(); ++i)
    add("  " + std::to_string(i) + ": " + step_text(p, p.steps[i]), p.steps[i].loc);
  out += outputs_text(p);
  for (const Kernel& k : p.kernels) out += print(k);
  return out;
}

}  // namespace bolt::loops
