// lower/sizes.h
// The symbols of a region: which sizes of its inputs differ from call to call, what the recorded run showed
// for them, and what is taken for granted about them.
//
// Three kinds of Sym meet here. A *tape symbol* stands for size d of tensor t of the tape (`t12_0`): the
// recording knows no shape rules, so whatever it computes from an intermediate's size is written over these.
// A *size symbol* (`s0`) stands for one size of one input, as long as it is not solved: a row of the table
// that this file keeps (support/symbols.h). Lowering binds the first kind to expressions over the second.
//
// A demand (support/size_demand.h) is answered by solving symbols: `s1 := s0`, or `s0 := 8`, what it was in
// the recorded run; either leaves the fact that guards it, and lowering begins again. Numbers that happen to
// be equal in the recorded run are never taken for the same symbol without such a demand. A demand that a
// quotient is in the way of is answered by symbols for the quotients: of view(2, -1), `s0 := 2*s1`, of
// chunk(2) of an odd size, `s0 := 2*s1 + 1`, and of patches of an image one for each side; what guards them
// are the remainders.
//
// An *early* number (a random one) is drawn when the region runs, and a size that is data (`u12_0`) is known
// when an operator of the region has run. A demand for one of them cannot be answered, but that two sizes
// that are data agree (a mask is made twice), or one with a size that is known (as many graphs in a batch as
// labels). What is taken for granted about them the program checks, where it learns them.
//
// Strides of an input with gaps are symbols, too, where they are no product of sizes and other strides.
//
// Sizes 0 and 1 are never symbols, and an expression that was 2 or more stays so (`large` below):
// broadcasting, contiguity and the order of strides mean the same in every call then. Of a number that is no
// size nothing is known but that it is not negative (`n4`), or nothing at all (`f4`, the bits of a float). A
// size that is data may come to 0 or 1: it is broadcast against none but itself and 1, and what is computed
// from nothing (`reduces`) is ruled out where it matters.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "record/tape.h"
#include "support/size_demand.h"
#include "support/size_fact.h"
#include "support/symbols.h"

namespace bolt::lower {

class Sizes {
 public:
  Sizes() = default;
  /// `dynamic`: by tape input, a bit for each dimension that differs between calls. `numbers`: symbols of
  /// numbers that do, and their values.
  Sizes(const record::Tape& tape, const std::vector<uint64_t>& dynamic, const SymbolTable& numbers,
        std::vector<SizeFact> recorded);

  /// What probe_sizes found, by call and what it was given: lowering begins anew for each demand.
  std::unordered_map<std::string, std::optional<std::vector<Syms>>> probed;
  /// Operators that gave other sizes once than were thought: the sizes of their operands are demanded.
  std::set<std::string> not_guessed;
  bool guesses(const c10::OperatorHandle& op) const {
    return not_guessed.empty() || !not_guessed.count(c10::toString(op.operator_name()));
  }

  bool any() const { return !symbols_.empty(); }
  /// Sizes of a tape input.
  Syms of_input(const record::TensorInfo& info) const;
  /// Its strides, if it has gaps and may have others in other calls; or empty.
  Syms strides_of_input(const record::TensorInfo& info) const;
  /// What the recorded run had.
  int64_t hint(Sym s) const;
  /// Over size symbols, solved ones replaced.
  Sym resolve(Sym s) const;
  /// The sizes of tensor `id` are these.
  void bind(record::TensorId id, const Syms& sizes);
  void bind_strides(record::TensorId id, const Syms& strides);
  /// Forgets what one lowering bound and took for granted; what was solved stays.
  void begin_again();

  /// Did `a relation b` hold in the recorded run? It is taken for granted from now on, or its opposite. A
  /// demand for numbers of which nothing can be taken for granted.
  bool decide(Sym a, Relation relation, Sym b, const std::string& where);
  /// The recording's own facts, once everything is bound. Throws SizeDemand where they ask for a new
  /// beginning.
  void settle();

  /// Answers a demand; false: nothing can be solved.
  bool solve(const SizeDemand& demand, const std::string& where);
  /// Nothing can be solved, because the demand is for an early number.
  bool asks_early(const SizeDemand& demand) const {
    return holds_early(demand.a) || (demand.equal && holds_early(demand.b));
  }
  /// Neither a size nor what was computed from sizes differs between calls.
  bool are_numbers() const { return recorded_.empty() && symbols_.empty() && !computed_; }
  /// Are sizes of the region data?
  bool any_data() const;
  /// Every size becomes a number, as recorded. So do numbers that sizes may come from, where the recording
  /// computed with sizes of what it made (in arguments, facts, or `computed`); others stay what they are. A
  /// demand where a size is data, which is what it is in each call.
  void give_up(const record::Tape& tape, const SymbolTable& computed, const std::string& where);

  /// The symbols that are left, and what guards must check. Facts are over all symbols, solved ones included.
  SymbolTable open() const;
  const SymbolTable& all() const { return symbols_; }
  std::vector<SizeFact> facts() const;
  /// Over the symbols that are left; what it was in the recorded run where all have become numbers.
  Sym final(const SymbolRow& value) const;
  /// Which symbols were given up, and why.
  const std::vector<std::string>& given_up() const { return given_up_; }

 private:
  Sym next_symbol(size_t before = 0) const;
  bool computes_with_made_sizes(const record::Tape& tape, const SymbolTable& computed) const;
  const SymbolRow* find(Sym symbol) const;
  bool holds_early(Sym s) const;
  void cancel(Sym& a, Sym& b) const;
  bool equate(Sym a, Sym b, const std::string& where);
  bool match(const SymTerm& a, const SymTerm& b, const std::string& where);
  bool divide(Sym a, Sym b, const std::string& where);
  bool put_parts(Sym difference, const SymbolTable& wholes, const SymbolTable& parts,
                 const std::string& where);
  bool replace(Sym symbol, Sym with, const std::string& where);
  void note(std::vector<SizeFact>& into, SizeFact fact) const;

  SymbolTable symbols_;
  bool computed_ = false;  ///< some argument on the tape is an expression of sizes
  std::unordered_map<Sym, Sym> solved_, bound_;
  std::vector<SizeFact> recorded_;      ///< over tape symbols
  std::vector<SizeFact> solved_facts_;  ///< what solved_ rests on
  std::vector<SizeFact> facts_;         ///< of this lowering
  std::vector<std::string> given_up_;
};

}  // namespace bolt::lower
