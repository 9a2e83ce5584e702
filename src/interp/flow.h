// interp/flow.h
// Where control goes from one instruction. Told by the opcodes' names, so the tables of the versions need
// nothing of their own here.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "interp/code.h"

namespace bolt::interp {

struct ControlFlow {
  bool falls_through = true;
  int jump = -1;                  ///< target, or -1
  std::optional<bool> condition;  ///< it pops a value and jumps if its truth is this
};

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names);

ControlFlow flow_of(const Instr& instr, int pc);

/// Do all ways from `pc` on lead to a raise: an assertion's, or that of `if bad: raise ValueError(...)`?
/// Not where the same function handles it.
bool only_raises(const Code& code, int pc);

/// The instructions of a `for` loop, the first of which asks its iterator for the next item.
struct ForLoop {
  int first, last;
};
/// Those around the instruction at `pc`, which may be their first one: innermost first.
std::vector<ForLoop> loops_around(const Code& code, int pc);

}  // namespace bolt::interp
