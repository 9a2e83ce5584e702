// record/expectation.h
// An operator that checks what a run went by where the other side is an error: `assert mask.all()`.
#pragma once

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>

namespace bolt::record {

/// What it throws: it is eager's turn, which raises the error the user wrote. Also thrown by a replay in
/// which data made an operator give another kind of result.
struct Unexpected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs it: torchbolt::expect(condition, value, where). `where` is the user's line.
void expect(const at::Tensor& condition, bool value, const std::string& where);

}  // namespace bolt::record
