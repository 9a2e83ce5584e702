// record/symint.h
// Numbers that differ between calls, as torch takes them: c10::SymInt over a node of ours.
//
// They live for one call: the observer lends them to a function of torch, whose argument parser hands them to
// the operator, and the recorder takes them apart again (an expression for the tape, the number for the
// operator). Code of torch in between that asks what the number is, or how it compares, gets the answer of
// this run, and the question goes to the notes.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <memory>
#include <optional>

#include "support/size_fact.h"

namespace bolt::record {

c10::SymInt make_symint(Sym size, int64_t value, std::shared_ptr<SizeNotes> notes);
/// A float: `symbol` stands for the bits of the double.
c10::SymFloat make_symfloat(Sym symbol, double value, std::shared_ptr<SizeNotes> notes);

struct Size {
  Sym size;
  int64_t value;
};
/// A SymInt of ours, or a plain one.
Size take_apart(const c10::SymInt& number);
struct Real {
  Sym symbol;  ///< of the bits
  double value;
};
Real take_apart(const c10::SymFloat& number);
/// Takes the SymInts out of an argument: what it was computed from, element by element, and numbers in their
/// place. Empty: there are none.
std::vector<Sym> take_symbols(c10::IValue& argument);
/// x + s with a torch.SymInt s: torch's argument parser makes a tensor of it that holds rubbish, and says so.
/// Gives the operator the number and the tape the expression.
std::vector<Sym> take_wrapped_symbol(c10::IValue& argument);

}  // namespace bolt::record
