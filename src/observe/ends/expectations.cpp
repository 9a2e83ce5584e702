// observe/ends/expectations.cpp
// A branch on data whose other side is an error -> a check that the program makes, so that the region need
// not end: `assert mask.all()`, `if loss.item() > 1e4: raise ...`, `torch._check(n < 100)`. Where the check
// fails in a later call eager runs that call, and raises what the user wrote.
#include <string_view>

#include "interp/flow.h"
#include "observe/ends/expectations.h"
#include "observe/recording.h"

namespace bolt::observe {
namespace {

/// torch._check, torch._check_value, ...
bool is_torch_check(PyObject* callable) {
  if (!callable || !PyFunction_Check(callable)) return false;
  auto is = [](PyObject* text, std::string_view beginning, bool whole) {
    const char* said = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
    return said && (whole ? said == beginning : std::string_view(said).starts_with(beginning));
  };
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  return is(function->func_name, "_check", false) && is(function->func_module, "torch", true);
}

/// Entries of the value stack that the instruction takes; -1: not known here.
int operands_of(const interp::Instr& instr) {
  const std::string_view name = interp::opcode_name(instr.op);
  if (name == "COMPARE_OP") return 2;
  if (name == "UNARY_NOT") return 1;
  if (name == "CALL") return instr.arg + 2;
  return -1;
}

}  // namespace

bool expects(const Recording& recording, const Frame& frame, bool answer) {
  if (!recording.on) return false;
  const interp::Code& code = *frame.prepared;
  int pc = frame.pc();
  const interp::Instr* instr = &frame.instr();
  auto passes = [&] {
    const std::string_view name = interp::opcode_name(instr->op);
    return name == "EXTENDED_ARG" || name == "UNARY_NOT";
  };
  const int operands = operands_of(*instr);
  if (!interp::flow_of(*instr, pc).condition) {
    do {  // what the next instruction makes of the answer
      if (instr->op == interp::op::UNARY_NOT) answer = !answer;
      pc += instr->length;
      instr = &code.instrs[pc];
    } while (passes());
  }
  const interp::ControlFlow flow = interp::flow_of(*instr, pc);
  if (flow.condition)
    return interp::only_raises(code, answer == *flow.condition ? pc + instr->length : flow.jump);
  return answer && operands >= 0 && frame.stack_depth() > operands &&
         is_torch_check(frame.peek(operands + 1));
}

/// False: nothing was done.
bool expect_truth(Recording& recording, Frame& frame, PyObject* tensor, bool answer) {
  return expects(recording, frame, answer) &&
         recording.hooks().expect(tensor, answer, recording.world.notes->where());
}

/// False: nothing was done that is seen.
bool expect_comparison(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right,
                       bool answer) {
  World& world = recording.world;
  recording.mark(frame);
  const PyRef tensor = world.open_numbers.compared_tensor(op, left, right);
  if (tensor && recording.hooks().expect(tensor.get(), answer, world.notes->where())) return true;
  return world.open_numbers.compared_sizes(op, left, right, answer);
}

}  // namespace bolt::observe
