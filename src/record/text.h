// record/text.h
// Tape <-> text, for logs, traces and trying by hand (python -m torchbolt.opt).
//
//   tape @forward {
//     %0 = input f32[2, 3] requires_grad dynamic [0]
//     %1 = input f32[3, 4] param
//     %2 = input i64[3] const [4, 0, -1]
//     number n3 = 5
//     fact t0_0 <= 512  # where it was taken for granted
//     mode no_grad
//     %3: f32[2, 4] = aten::mm(%0, %1)                             # model.py:12 in forward
//     %4: f32[4] over %3 at 4 = aten::select.int(%3, 0, 1)
//     %3 = aten::add_.Tensor(%3, 5 is n3, alpha=1)
//     [%5: f32[1, 4] over %3, %6: f32[1, 4] over %3 at 4] = aten::split.Tensor(%3, 1 is t0_0 - 1, 0)
//     return %3, %5
//   }
//
// Tensors have the tape's numbers. What the recorded run showed of a tensor stands where it is first named:
// of a type as in a graph's text, then `over %3`, the first tensor that has this memory, `at 4`, where in the
// storage it begins, and words for what is rare. A result without a type was there before: the operator wrote
// to it.
//
// Arguments stand as the schema orders them, those that are given by name with their names; the reader takes
// any by its name and fills in defaults. `undefined` is a tensor that is none, None no argument. A number
// where a tensor is expected is one of Python's (2 in x * 2). `5 is n3` was 5 in the recorded run and is the
// value of an expression, which for a float gives its bits; `0.5 from %7` was taken out of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "record/tape.h"
#include "support/size_fact.h"
#include "support/symbols.h"

namespace bolt::record {

/// A line for the reader in front of an input or an entry, or, past the last entry, of what is returned. It
/// is a comment, so nobody reads it back.
struct TapeNote {
  bool entry;
  size_t at;
  std::string text;
};

/// What lowering takes beside a tape. Each may be left out.
struct TapeContext {
  std::string name;
  std::vector<TensorId> wanted;                   // what `return` gives
  std::vector<bool> is_param;                     // per tape input
  std::unordered_map<int, at::Tensor> constants;  // tape input -> contents
  std::vector<uint64_t> dynamic;                  // per tape input: a bit for each dimension that differs
  SymbolTable numbers;                            // symbols of numbers that differ
  std::vector<SizeFact> facts;                    // over tape symbols
  std::vector<TapeNote> notes;
};

std::string print(const Tape& tape, const TapeContext& context);

struct ReadTape {
  Tape tape;
  TapeContext context;
};
/// Throws Error(User) with the line number and the text at fault. Operators are looked up in torch's
/// dispatcher. What no text can hold (an object of Python's among the arguments) is printed as <kind> and is
/// a fault here.
ReadTape parse_tape(std::string_view text);

}  // namespace bolt::record
