// loops/plan_text.cpp
// Plan -> text, for dumps and tests:
//
//   plan @forward: 3 kernels (of 14), arena 4096 bytes
//     b0 = input 0: f32[2, 8]
//     b3 = temp @0: f32[2, 8] steps 0..1
//     b4 = alias b3 + 16: f32[8]{2}
//   fold:
//     kernel @cast_0 (b1) -> (b2)
//   run:
//     0: library matmul (b0, b2) -> (b3)
//     1: contraction linear with @linear_gelu_0 (b0, b2) -> (b3)
//     2: kernel @add_norm_1 (b3, b0) -> (b5)
//     3: copy b5 -> b0
//   return b5
//   <the kernels' own text>
#include "loops/plan.h"

namespace bolt::loops {
namespace {

std::string list(const Step& s, size_t from, size_t to) {
  std::string out = "(";
  for (size_t i = from; i < to; ++i) out += (i > from ? ", b" : "b") + std::to_string(s.buffers[i]);
  return out + ")";
}

/// "cuda:0 "; nothing for the processor.
std::string word(graph::Device d) { return d.kind == graph::DeviceKind::CPU ? "" : graph::str(d) + " "; }

std::string buffer_text(const PlanBuffer& b) {
  std::string s;
  switch (b.kind) {
    case BufferKind::Input: s = "input " + std::to_string(b.source); break;
    case BufferKind::Output: s = "output " + std::to_string(b.source); break;
    case BufferKind::Temp: s = b.owned_by_step ? "temp" : "temp @" + b.arena_offset.str(); break;
    case BufferKind::Fold: s = "fold"; break;
    case BufferKind::Alias: s = "alias b" + std::to_string(b.source) + " + " + b.offset.str(); break;
  }
  if (b.owned_by_step) s += " (made by its step)";
  if (b.over >= 0) s += " over b" + std::to_string(b.over);
  s += ": " + b.type.str();
  if (b.first_step >= 0) s += " steps " + std::to_string(b.first_step) + ".." + std::to_string(b.last_step);
  return s;
}

std::string step_text(const Plan& p, const Step& s) {
  size_t reads = static_cast<size_t>(s.operand_count), all = s.buffers.size();
  std::string op = s.node ? std::string(graph::op_info(s.node->op).name) : "";
  std::string args = list(s, 0, reads) + " -> " + list(s, reads, all);
  switch (s.kind) {
    case StepKind::Kernel: return word(s.device) + "kernel @" + p.kernels[s.kernel].name + " " + args;
    case StepKind::Contraction:
      return word(s.device) + "contraction " + op + " with @" + p.kernels[s.epilogue].name + " " + args;
    case StepKind::Pack: return "pack for @" + p.kernels[s.epilogue].name + " " + args;
    case StepKind::Library: return "library " + op + " " + args;
    case StepKind::Extern: return "extern " + s.node->attr_or<std::string>("name", "?") + " " + args;
    case StepKind::Copy:
      return "copy b" + std::to_string(s.buffers[0]) + " -> b" + std::to_string(s.buffers[1]);
  }
  return "";
}

std::string arenas_text(const Plan& p) {
  std::string s;
  for (const Arena& a : p.arenas)
    s += (s.empty() ? "" : ", ") + std::string("arena ") + word(a.device) + a.bytes.str() + " bytes";
  return s.empty() ? "arena 0 bytes" : s;
}

}  // namespace

std::string print(const Plan& p) {
  std::string out = "plan @" + p.graph->name + ": " + std::to_string(p.kernels.size()) + " kernels (of " +
                    std::to_string(p.kernels_before_fusion) + "), " + arenas_text(p) + "\n";
  for (size_t i = 0; i < p.buffers.size(); ++i)
    out += "  b" + std::to_string(i) + " = " + buffer_text(p.buffers[i]) + "\n";
  if (!p.fold_steps.empty()) out += "fold:\n";
  for (const Step& s : p.fold_steps) out += "  " + step_text(p, s) + "\n";
  out += "run:\n";
  for (size_t i = 0; i < p.steps.size(); ++i)
    out += "  " + std::to_string(i) + ": " + step_text(p, p.steps[i]) + "\n";
  out += "return";
  for (size_t i = 0; i < p.outputs.size(); ++i)
    out += (i ? ", b" : " b") + std::to_string(p.outputs[i].buffer);
  out += "\n";
  for (const Kernel& k : p.kernels) out += print(k);
  return out;
}

}  // namespace bolt::loops
