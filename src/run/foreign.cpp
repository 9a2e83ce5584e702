// run/foreign.cpp
#include "run/foreign.h"

namespace bolt::run {

Foreign::Foreign(record::Tape tape, std::vector<record::TensorId> wanted, Function function,
                 SymbolTable symbols)
    : Runnable(std::move(tape), std::move(wanted), std::move(symbols)), function_(std::move(function)) {
  releases_gil_ = false;
  facts.compiled = true;
}

std::vector<int> Foreign::written_inputs() const {
  std::vector<int> out;
  for (size_t i : VisibleWrites(tape_).inputs) out.push_back(static_cast<int>(i));
  return out;
}

}  // namespace bolt::run
