// lower/settle.h
// What is left of a region's symbols when nothing more is decided: for tapes that are run as they are, and
// for the guards.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lower/functionalize.h"

namespace bolt::lower {

/// For a tape that is not compiled: who runs the operators computes sizes as eager does, so only their
/// arguments and the guards need expressions. They are what lowering finds, or all sizes are given up.
void settle(record::Tape& tape, const std::vector<record::TensorId>& wanted, const LowerOptions& options,
            const SymbolTable& computed, const std::string& why, Sizes& sizes);

/// The facts that `sizes` were given, about sizes of inputs alone, are used from the beginning. Otherwise
/// they are looked at in the end, when what they say was demanded and is a number.
void settle_inputs(const record::Tape& tape, Sizes& sizes);

/// Of a region that is compiled in parts: what each part knows of sizes are those of the region's inputs, by
/// their names on the tape (`t0_1`). So everything that is said of sizes is said over these, and `sizes` can
/// begin anew from it, as often as a part asks for more.
class OverInputs {
 public:
  /// Settles `sizes`, and writes the tape and `computed` over those names.
  OverInputs(record::Tape& tape, const std::vector<record::TensorId>& wanted, const LowerOptions& options,
             SymbolTable& computed, const std::string& why, Sizes& sizes);

  /// What differs between calls, and has not been given up.
  const std::vector<uint64_t>& dims() const { return dims_; }
  const SymbolTable& numbers() const { return numbers_; }
  bool any() const { return any_; }
  /// What holds of the sizes in any case, and this.
  Sizes anew(const std::vector<SizeFact>& more) const;
  /// Into the tape's arguments: what the region's symbols make of them.
  void write_arguments(const Sizes& sizes);
  /// An expression over symbols of `sizes`, by those names.
  Sym over_inputs(Sym s, const Sizes& sizes) const;

 private:
  void find_what_differs(const Sizes& sizes);

  record::Tape& tape_;
  std::vector<uint64_t> all_dims_, dims_;
  SymbolTable all_numbers_, numbers_;
  std::vector<SizeFact> facts_;
  std::set<std::string> not_guessed_;
  bool any_ = false;
};

/// What guards check, and what the program has to.
struct Settled {
  SymbolTable symbols;               ///< that were given to the region, solved ones included
  std::vector<SizeFact> facts;       ///< about these
  std::vector<SizeFact> about_data;  ///< about sizes that are data, which no guard knows
  Syms computed;                     ///< the numbers that Python goes on with
};
Settled settled(const Sizes& sizes, const SymbolTable& computed);

}  // namespace bolt::lower
