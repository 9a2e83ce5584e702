// observe/calls/special_calls.cpp
#include "observe/calls/special_calls.h"

#include "interp/thread.h"

namespace bolt::observe {
namespace {

/// Thread state that a region leaves as it found it needs no guard of its own (see ThreadState).
PyObject* set_state(const SpecialCall& c) {
  c.recording.mark(c.frame);
  return nullptr;
}

const SpecialCalls& special_calls() {
  static const SpecialCalls table = [] {
    SpecialCalls all;
    for (auto add :
         {add_attribute_calls, add_class_calls, add_text_calls, add_container_calls, add_operator_calls,
          add_copy_calls, add_state_calls, add_flag_calls, add_async_calls, add_clock_calls})
      add(all);
    return all;
  }();
  return table;
}

}  // namespace

Handler handler_of(const std::string& name) {
  const auto at = special_calls().find(name);
  return at == special_calls().end() ? set_state : at->second;
}

PyObject* call_specially(const CFunction& row, const SpecialCall& call) {
  // A __repr__ that is object's __str__, which asks for __repr__.
  if (interp::check_c_stack(interp::this_thread()) < 0) return nullptr;
  if (Py_EnterRecursiveCall(" while calling a Python object")) return nullptr;
  PyObject* result = row.handler(call);
  Py_LeaveRecursiveCall();
  return result;
}

}  // namespace bolt::observe
