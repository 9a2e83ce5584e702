// run/trained/piece_sizes.h
// Where sizes differ between calls of a region that is made in pieces: what each piece knows of the sizes of
// its inputs, and what it takes for granted about them, said of the region's.
//
// To a piece what crosses into it is an input like any other, whose sizes are symbols of its own. What they
// are, over sizes of the region's inputs by their names (`t0_1`), is known when the earlier piece is made. Of
// the region's inputs that a piece does not have, sizes are numbers to it, as in a backward part.
#pragma once

#include <unordered_map>
#include <vector>

#include "lower/settle.h"
#include "record/tape.h"
#include "run/runnable.h"

namespace bolt::run {

class PieceSizes {
 public:
  /// Of what a piece gives, over its own symbols.
  struct Layout {
    Syms sizes, strides;
  };

  /// `sizes`: of the region, as they are before a piece is made.
  PieceSizes(const record::Tape& run, const lower::OverInputs& region, const lower::Sizes& sizes)
      : run_(run), region_(region), sizes_(sizes) {}

  /// Gives the piece arguments of its own, over sizes of its own inputs.
  lower::Sizes begin(record::Tape& piece);
  /// A piece has been made, and rests on `sizes`. Gives what the numbers are that it is to be given with each
  /// call. `results`: one for each that is wanted of it.
  Syms end(const lower::OverInputs& over, const lower::Sizes& sizes, const Runnable& made,
           const std::vector<Layout>& results);

  /// What pieces take for granted of the region's sizes.
  const std::vector<SizeFact>& facts() const { return facts_; }

 private:
  /// Of one input, by size or stride.
  template <class Each>
  void for_each_size(record::TensorId id, Each each) const;
  Sym over_region(Sym s, const lower::OverInputs& over, const lower::Sizes& sizes) const;
  std::unordered_map<Sym, Sym> names(const record::Tape& piece, std::vector<SizeFact>* equal) const;
  void rename_arguments(record::Tape& piece) const;
  SymbolTable numbers(const record::Tape& piece, const std::vector<SizeFact>& facts) const;
  int64_t recorded(Sym name) const;
  /// Of several names that mean the same size, always the same.
  Sym usual(Sym s) const { return region_.over_inputs(sizes_.resolve(s), sizes_); }

  const record::Tape& run_;
  const lower::OverInputs& region_;
  const lower::Sizes sizes_;
  std::unordered_map<record::TensorId, Layout> crossing_;  ///< over the names of the region's inputs
  std::unordered_map<Sym, Sym> known_;                     ///< names of sizes of those, as the same
  std::vector<SizeFact> facts_;
};

}  // namespace bolt::run
