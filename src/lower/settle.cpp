// lower/settle.cpp: see settle.h.
#include "lower/settle.h"

#include "support/error.h"
#include "support/symbols.h"

namespace bolt::lower {
namespace {

/// Solves `sizes` until lowering can bind the sizes of every tensor of the tape. False: it cannot be lowered.
bool bind_sizes(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
                const LowerOptions& options, Sizes& sizes) {
  while (true) {
    try {
      functionalize(tape, wanted, options, sizes);
      return true;
    } catch (const SizeDemand& demand) {
      if (!sizes.solve(demand, demand.where + " (" + demand.what() + ")")) return false;
    } catch (const Error&) {
      return false;
    }
  }
}

}  // namespace

void settle(record::Tape& tape, const std::vector<record::TensorId>& wanted, const LowerOptions& options,
            const SymbolTable& computed, const std::string& why, Sizes& sizes) {
  if (!sizes.any() || !bind_sizes(tape, wanted, options, sizes)) sizes.give_up(tape, computed, why);
  for (record::Entry& entry : tape.entries)
    for (record::Arg& arg : entry.args)
      for (Sym& s : arg.syms) s = sizes.resolve(s);
}

Settled settled(const Sizes& sizes, const SymbolTable& computed) {
  Settled out;
  for (const SymbolRow& s : sizes.all())
    if (s.from != SymbolRow::From::data) out.symbols.push_back(s);
  for (SizeFact& f : sizes.facts())
    (holds_data_size(f.a) || holds_data_size(f.b) ? out.about_data : out.facts).push_back(std::move(f));
  for (const SymbolRow& v : computed) out.computed.push_back(sizes.final(v));
  return out;
}

}  // namespace bolt::lower
