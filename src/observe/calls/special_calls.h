// observe/calls/special_calls.h
// Calls of built-ins (getattr, len, isinstance, dict.get) -> the operations of Semantics that they are.
//
// A row is (the name of a `special` row of cfunctions.def, handler); each file adds those of its family. What
// a handler reads goes through the recording as the operation of the language would.
#pragma once

#include <string>
#include <unordered_map>

#include "observe/recording.h"

namespace bolt::observe {

struct SpecialCall {
  Recording& recording;
  Frame& frame;
  PyObject* const* args;
  size_t nargs;
  PyObject* kwnames;
  PyObject* callable = nullptr;  ///< where the program itself calls it
};

/// A handler gives the result, or null without an exception: let the native function do it.
using SpecialCalls = std::unordered_map<std::string, Handler>;
PyObject* call_specially(const CFunction& row, const SpecialCall& call);

inline PyObject* none_if(int status) { return status < 0 ? nullptr : Py_NewRef(Py_None); }
inline PyObject* boolean(int status) { return status < 0 ? nullptr : Py_NewRef(status ? Py_True : Py_False); }

void add_attribute_calls(SpecialCalls& table);
void add_class_calls(SpecialCalls& table);
void add_text_calls(SpecialCalls& table);
void add_container_calls(SpecialCalls& table);
void add_operator_calls(SpecialCalls& table);
void add_copy_calls(SpecialCalls& table);
void add_state_calls(SpecialCalls& table);
void add_flag_calls(SpecialCalls& table);
void add_async_calls(SpecialCalls& table);
void add_clock_calls(SpecialCalls& table);

}  // namespace bolt::observe
