// record/parsed_floats.h
// Floats that differ between calls, where a schema says `float`: dropout's p, an eps, normal_'s mean and std.
//
// A `Scalar` reaches the operator as the torch.SymFloat it was lent as. For a `float` torch's argument parser
// asks the SymFloat what it is, and the operator is given a double that says nothing of where it came from.
// What torch generates for a function in Python does nothing with that double but to call the operator of the
// same name. So where the first operator of the call has that name, an argument of the very same bits is the
// symbol: if there are as many such arguments as the parser asked for. Two numbers of the same bits stay
// equal in later calls, since nobody can tell which argument is which. Whatever else was asked is taken for
// what it is, as anywhere.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/operator_facts.h"
#include "support/size_fact.h"

namespace bolt::record {

class ParsedFloats {
 public:
  /// A call of torch's `function` begins that is lent numbers.
  void begin(std::string function);
  /// The call is over. Gives the symbols that its operator was given and may decide by.
  std::vector<Sym> end();
  /// In `file`, torch asks what `symbol` is. False: it is not the parser, or in no such call.
  static bool asked(std::string_view file, Sym symbol, double value, const std::shared_ptr<SizeNotes>& notes);
  /// An operator is met, with its arguments on the stack: puts the symbols among those of its arguments.
  void give(const c10::OperatorHandle& op, const OperatorFacts& facts, const torch::jit::Stack& stack,
            std::vector<std::vector<Sym>>& symbols);
  /// Was nothing asked since the last operator?
  bool idle() const { return asked_.empty(); }
  /// What was asked so far is not what an operator is given.
  void give_up();

 private:
  struct Asked {
    Sym symbol;
    double value;
    std::shared_ptr<SizeNotes> notes;
  };
  std::string function_;
  std::vector<Asked> asked_;
  std::vector<Sym> given_;
};

}  // namespace bolt::record
