// lower/settle.cpp
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

void resolve_arguments(record::Tape& tape, const Sizes& sizes) {
  for (record::Entry& entry : tape.entries)
    for (record::Arg& arg : entry.args)
      for (Sym& s : arg.syms) s = sizes.resolve(s);
}

}  // namespace

void settle(record::Tape& tape, const std::vector<record::TensorId>& wanted, const LowerOptions& options,
            const SymbolTable& computed, const std::string& why, Sizes& sizes) {
  if (!sizes.any() || !bind_sizes(tape, wanted, options, sizes)) sizes.give_up(tape, computed, why);
  resolve_arguments(tape, sizes);
}

void settle_inputs(const record::Tape& tape, Sizes& sizes) {
  while (true) {
    sizes.begin_again();
    try {
      for (record::TensorId id : tape.inputs) {
        const record::TensorInfo& info = tape.tensors[static_cast<size_t>(id)];
        sizes.bind(id, sizes.of_input(info));
        sizes.bind_strides(id, sizes.strides_of_input(info));
      }
      return sizes.settle();
    } catch (const SizeDemand& demand) {
      if (!sizes.solve(demand, demand.what())) throw;
    }
  }
}

OverInputs::OverInputs(record::Tape& tape, const std::vector<record::TensorId>& wanted,
                       const LowerOptions& options, SymbolTable& computed, const std::string& why,
                       Sizes& sizes)
    : tape_(tape), not_guessed_(sizes.not_guessed) {
  settle(tape, wanted, options, computed, why, sizes);
  find_what_differs(sizes);
  for (record::Entry& entry : tape.entries)
    for (record::Arg& arg : entry.args)
      for (Sym& s : arg.syms) s = over_inputs(s, sizes);
  for (SymbolRow& row : computed) row.symbol = over_inputs(sizes.final(row), sizes);
  for (const SizeFact& f : sizes.facts())
    facts_.push_back({over_inputs(f.a, sizes), f.relation, over_inputs(f.b, sizes), f.where});
}

Sym OverInputs::over_inputs(Sym s, const Sizes& sizes) const {
  const SymbolTable& all = sizes.all();
  return substitute(s, [&](Sym symbol) {
    const size_t place = place_in(all, *symbol.node());
    if (place == all.size() || all[place].from != SymbolRow::From::input) return symbol;
    const record::TensorId id = tape_.inputs[static_cast<size_t>(all[place].input)];
    return floordiv(tape_symbol(id, all[place].dim), all[place].divisor);
  });
}

void OverInputs::find_what_differs(const Sizes& sizes) {
  all_dims_.resize(tape_.inputs.size());
  dims_.resize(tape_.inputs.size());
  for (const SymbolRow& row : sizes.all()) {
    const bool differs = !sizes.resolve(row.symbol).is_const();
    any_ |= differs;
    if (row.from == SymbolRow::From::number) {
      all_numbers_.push_back(row);
      if (differs) numbers_.push_back(row);
    } else if (row.from == SymbolRow::From::input) {
      const auto input = static_cast<size_t>(row.input);
      all_dims_[input] |= uint64_t{1} << row.dim;
      if (differs) dims_[input] |= uint64_t{1} << row.dim;
    }
  }
}

Sizes OverInputs::anew(const std::vector<SizeFact>& more) const {
  std::vector<SizeFact> facts = facts_;
  facts.insert(facts.end(), more.begin(), more.end());
  Sizes sizes(tape_, all_dims_, all_numbers_, std::move(facts));
  sizes.not_guessed = not_guessed_;
  settle_inputs(tape_, sizes);
  return sizes;
}

void OverInputs::write_arguments(const Sizes& sizes) { resolve_arguments(tape_, sizes); }

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
