// interp/flow.cpp
#include "interp/flow.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <vector>

namespace bolt::interp {

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

ControlFlow flow_of(const Instr& instr, int pc) {
  std::string_view name = opcode_name(instr.op);
  ControlFlow flow;
  const int next = pc + instr.length;
  if (is_any_of(name, {"RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS"}))
    flow.falls_through = false;
  const bool jumps = name.find("JUMP") != name.npos || name == "FOR_ITER" || name == "SEND";
  if (!jumps) return flow;
  if (name.starts_with("POP_JUMP") && name.ends_with("IF_TRUE")) flow.condition = true;
  if (name.starts_with("POP_JUMP") && name.ends_with("IF_FALSE")) flow.condition = false;
  flow.jump = name.find("BACKWARD") != name.npos ? next - instr.arg : next + instr.arg;
  if (is_any_of(name, {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}))
    flow.falls_through = false;
  return flow;
}

bool only_raises(const Code& code, int pc) {
  constexpr size_t kMost = 1000;  // instructions: a message may be long
  std::vector<int> open = {pc};
  std::unordered_set<int> seen = {pc};
  while (!open.empty() && seen.size() < kMost) {
    const int at = open.back();
    open.pop_back();
    const Instr& instr = code.instrs[at];
    const std::string_view name = opcode_name(instr.op);
    if (name == "RAISE_VARARGS" && !code.handles_at(at)) continue;
    const ControlFlow flow = flow_of(instr, at);
    const bool ends = !flow.falls_through && flow.jump < 0;
    if (ends || is_any_of(name, {"YIELD_VALUE", "BEFORE_WITH", "BEFORE_ASYNC_WITH"})) return false;
    if (flow.falls_through && seen.insert(at + instr.length).second) open.push_back(at + instr.length);
    if (flow.jump >= 0 && seen.insert(flow.jump).second) open.push_back(flow.jump);
  }
  return open.empty();
}

std::vector<ForLoop> loops_around(const Code& code, int pc) {
  std::vector<ForLoop> loops;
  const int count = static_cast<int>(code.instrs.size());
  for (int at = pc; at < count; at += std::max<int>(code.instrs[at].length, 1)) {
    const int first = flow_of(code.instrs[at], at).jump;
    if (first < 0 || first > pc || code.instrs[first].op != op::FOR_ITER) continue;
    std::erase_if(loops, [&](const ForLoop& inner) { return inner.first == first; });  // by `continue`
    loops.push_back({first, at});
  }
  std::ranges::stable_sort(loops, std::greater(), &ForLoop::first);
  return loops;
}

}  // namespace bolt::interp
