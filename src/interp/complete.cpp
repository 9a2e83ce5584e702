// interp/complete.cpp
// Finishing an instruction from outside the loop, with a result that was computed elsewhere; see frame.h.

#include "interp/frame.h"

namespace bolt::interp {

namespace {

/// What an instruction takes from the stack, and how many values it leaves: 1 the result, 0 none. Only
/// instructions with one outcome have a row.
struct StackEffect {
  int operands;
  int results;
};

constexpr StackEffect kNoEffect = {-1, 0};

StackEffect effect_of(const Instr& instr) {
  const int arg = instr.arg;
  switch (instr.op) {
    case op::CALL: return {arg + 2, 1};
    case op::CALL_FUNCTION_EX: return {3 + (arg & 1), 1};
    case op::BINARY_OP:
    case op::COMPARE_OP:
    case op::IS_OP:
    case op::CONTAINS_OP:
    case op::BINARY_SUBSCR: return {2, 1};
    case op::UNARY_NEGATIVE:
    case op::UNARY_INVERT:
    case op::UNARY_NOT:
    case op::GET_ITER: return {1, 1};
    case op::IMPORT_NAME: return {2, 1};
    case op::LOAD_NAME:
    case op::LOAD_DEREF:
    case op::GET_LEN:
    case op::IMPORT_FROM:
    case op::WITH_EXCEPT_START: return {0, 1};
    case op::FORMAT_VALUE: return {(arg & 4) ? 2 : 1, 1};
    case op::BUILD_STRING:
    case op::BUILD_LIST:
    case op::BUILD_TUPLE:
    case op::BUILD_SET:
    case op::BUILD_SLICE: return {arg, 1};
    case op::BUILD_MAP: return {2 * arg, 1};
    case op::BUILD_CONST_KEY_MAP: return {arg + 1, 1};
    case op::STORE_SUBSCR: return {3, 0};
    case op::STORE_ATTR:
    case op::DELETE_SUBSCR: return {2, 0};
    case op::DELETE_ATTR:
    case op::STORE_NAME:
    case op::STORE_GLOBAL:
    case op::STORE_DEREF:
    case op::LIST_APPEND:
    case op::LIST_EXTEND:
    case op::SET_ADD:
    case op::SET_UPDATE:
    case op::DICT_UPDATE:
    case op::DICT_MERGE: return {1, 0};
    case op::MAP_ADD: return {2, 0};
#if BOLT_PY312
    case op::LOAD_ATTR: return (arg & 1) ? kNoEffect : StackEffect{1, 1};
    case op::BINARY_SLICE: return {3, 1};
    case op::STORE_SLICE: return {4, 0};
#else
    case op::LOAD_ATTR:
    case op::UNARY_POSITIVE:
    case op::LIST_TO_TUPLE: return {1, 1};
#endif
    default: return kNoEffect;
  }
}

}  // namespace

bool complete_instruction(Frame& frame, PyObject* result) {
  const Instr& instr = frame.instr();
  const StackEffect effect = effect_of(instr);
  if (effect.operands < 0) {
    Py_XDECREF(result);
    PyErr_Format(PyExc_SystemError, "torchbolt: %s cannot be completed from outside", opcode_name(instr.op));
    return false;
  }
  // A call that was started has its operands off the stack already.
  for (int n = frame.call_started ? 0 : effect.operands; n > 0; --n) Py_XDECREF(*--frame.sp);
  frame.call_started = false;
  if (instr.op == op::CALL) frame.kw_names = nullptr;
  if (effect.results) {
    *frame.sp++ = result;
  } else {
    Py_XDECREF(result);
  }
  frame.set_pc(frame.pc() + instr.length);
  return true;
}

}  // namespace bolt::interp
