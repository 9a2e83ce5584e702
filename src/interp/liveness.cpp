// interp/liveness.cpp
// Backward data flow over the decoded bytecode, to a fixed point.

#include "interp/liveness.h"

#include <cstring>
#include <string_view>

#include "interp/flow.h"

namespace bolt::interp {

namespace {

bool names_any_of(PyCodeObject* code, std::initializer_list<std::string_view> names) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_names, i));
    if (name && is_any_of(name, names)) return true;
  }
  return false;
}

/// Code that looks at its own locals by name reads them all.
bool asks_for_locals(PyCodeObject* code) {
  return names_any_of(code, {"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"});
}

// co_localspluskinds; CPython keeps the names internal.
constexpr int kCell = 0x40, kFree = 0x80;

using Set = std::vector<bool>;

bool add(Set& to, const Set& from) {
  bool changed = false;
  for (size_t i = 0; i < to.size(); ++i)
    if (from[i] && !to[i]) changed = to[i] = true;
  return changed;
}

/// live_in of one instruction from its live_out.
void apply(const Instr& instr, Set& live) {
  std::string_view name = opcode_name(instr.op);
  const size_t slot = static_cast<size_t>(instr.arg);
  if (slot >= live.size()) return;
  if (name == "STORE_FAST") live[slot] = false;
  // LOAD_FAST_AND_CLEAR saves what a comprehension's variable hides: the old value is read.
  if (is_any_of(name, {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"}))
    live[slot] = true;
}

}  // namespace

namespace {

Set find_live(PyCodeObject* code, const Code& prepared, int pc, bool after) {
  const size_t slots = static_cast<size_t>(prepared.nlocalsplus);
  const int count = static_cast<int>(prepared.instrs.size());
  std::vector<int> starts;  // of instructions: what lies between is theirs (AttributePlace)
  for (int at = 0; at < count; at += prepared.instrs[at].length) starts.push_back(at);
  if (asks_for_locals(code)) return Set(slots, true);
  std::vector<Set> in(static_cast<size_t>(count), Set(slots, false));
  auto out_of = [&](int at) {
    Set live(slots, false);
    const ControlFlow flow = flow_of(prepared.instrs[at], at);
    const int next = at + prepared.instrs[at].length;
    if (flow.falls_through && next < count) add(live, in[next]);
    if (flow.jump >= 0 && flow.jump < count) add(live, in[flow.jump]);
    if (const ExceptionRange* range = prepared.find_handler(at)) add(live, in[range->target]);
    return live;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto at = starts.rbegin(); at != starts.rend(); ++at) {
      Set live = out_of(*at);
      apply(prepared.instrs[*at], live);
      changed |= add(in[*at], live);
    }
  }
  Set live = after ? out_of(pc) : in[pc];
  if (slots > 0 && names_any_of(code, {"super"})) live[0] = true;  // super() looks there
  for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(code->co_localspluskinds); ++i)
    if (PyBytes_AS_STRING(code->co_localspluskinds)[i] & (kCell | kFree)) live[i] = true;
  return live;
}

}  // namespace

const std::vector<bool>& live_locals(PyCodeObject* code, const Code& prepared, int pc, bool after) {
  if (pc < 0) pc = 0;
  auto [at, fresh] = prepared.live.try_emplace(2 * pc + after);
  if (fresh) at->second = find_live(code, prepared, pc, after);
  return at->second;
}

}  // namespace bolt::interp
