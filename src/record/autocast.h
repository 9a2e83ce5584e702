// record/autocast.h
// What autocast does to an operator: has it a kernel for it, or for operators that it is made of?
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace bolt::record {

/// The recorder's own key.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// For redispatching: our key sits above autocast and autograd.
c10::DispatchKeySet below_our_key(c10::DispatchKeySet keys);

bool autocast_takes(const c10::OperatorHandle& op, c10::DispatchKeySet keys);

/// Is it, in autocast, made of operators that autocast takes? Tried out once per operator and form: what it
/// computes is thrown away. Meanwhile `trial` says where the fallback notes whether autocast took one.
bool casts_inside(const c10::OperatorHandle& op, c10::DispatchKeySet keys, const torch::jit::Stack& stack,
                  bool*& trial);

}  // namespace bolt::record
