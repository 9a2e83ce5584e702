// run/trained/make_chain.cpp
#include "run/trained/make_chain.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "autograd/gradients.h"
#include "autograd/joint.h"
#include "autograd/pieces.h"
#include "autograd/step.h"
#include "record/copy.h"
#include "run/make_compiled.h"
#include "run/plan_options.h"
#include "run/recorded.h"
#include "run/trained/make_step.h"
#include "run/trained/piece_sizes.h"
#include "support/error.h"

namespace bolt::run {
namespace {

using autograd::Piece;
using record::Tape;
using record::TensorId;
using Constants = std::unordered_map<int, at::Tensor>;

class Linking {
 public:
  Linking(const RunToTrain& run, const autograd::Cuts& cuts, const std::vector<size_t>& eagers)
      : run_(run),
        inner_(cuts.inner),
        pieces_(autograd::pieces(run.tape, run.wanted, cuts.places, eagers)),
        shared_(run.constants),
        requires_grad_(run.tape.tensors.size()) {
    for (TensorId id : run.wanted)
      if (id >= 0) seen_.insert(storage(id));
    for (TensorId id : run.tape.inputs) of_inputs_.insert(storage(id));
    seen_.insert(of_inputs_.begin(), of_inputs_.end());
    for (size_t i = 0; i < pieces_.size(); ++i) note_writes(i);
    share_constants();
  }

  std::vector<Chain::Piece> make(PieceSizes& sizes, Stages& stages) {
    std::vector<Chain::Piece> made;
    std::vector<std::shared_ptr<Trained>> trained;  // of those
    for (size_t at = 0; at < pieces_.size(); ++at) {
      Piece& piece = pieces_[at];
      const std::string number = std::to_string(made.size() + 1);
      const PieceOf place = {"piece" + number + "_", told_of_inputs(piece.tape), passing(piece.tape),
                             written_later(at),      written_again(at),          inner_,
                             read_later(at)};
      const Constants constants = constants_of(piece.tape);
      lower::Sizes known = sizes.begin(piece.tape);
      SymbolTable computed;
      lower::OverInputs over(piece.tape, piece.results,
                             {std::vector<bool>(piece.tape.inputs.size()), constants}, computed, "", known);
      known = over.anew({});
      if (piece.is_eagers) {
        made.push_back(left_to_eager(piece, over, known, constants, sizes));
        continue;
      }
      if (autograd::has_gradients(piece.tape)) {
        made.push_back(whole_step(piece, over, known, constants, sizes, stages));
        continue;
      }
      auto region = of_run(piece, [&] {
        return make_trained(
            {piece.tape, piece.results, constants, keepable(piece.tape), run_.wishes, run_.name, run_.trace},
            over, known, stages, place);
      });
      note_gradients(piece, *region);
      for (TensorId id : region->saved()) kept_.insert(storage(id));
      std::vector<PieceSizes::Layout> results;
      for (size_t i = 0; i < piece.results.size(); ++i)
        results.push_back({region->shown_as(i).sizes, region->shown_as(i).strides});
      made.push_back({region, sizes.end(over, known, *region, results)});
      trained.push_back(std::move(region));
    }
    for (size_t i = 0; i < trained.size(); ++i)
      trained[i]->finish_code(run_.name + ", piece " + std::to_string(i + 1), stages);
    return made;
  }

  /// Which no piece has to itself.
  Constants shared_constants() && { return std::move(shared_); }

 private:
  /// The first and the last piece that writes to a storage.
  struct Writers {
    size_t first, last;
  };

  /// Of all pieces in order.
  void note_writes(size_t piece) {
    for (const record::Entry& entry : pieces_[piece].tape.entries)
      for (int a : record::written_arguments(entry))
        for (TensorId id : entry.args[a].tensors)
          if (id >= 0) written_.try_emplace(storage(id), Writers{piece, piece}).first->second.last = piece;
  }

  /// The entry that cannot be followed is one of the run's.
  template <class Make>
  static std::shared_ptr<Trained> of_run(const Piece& piece, Make make) {
    try {
      return make();
    } catch (const autograd::NotFollowed& error) {
      throw autograd::NotFollowed(piece.first + error.entry, error.what());
    }
  }

  /// Its operator is called where autograd sees it, which keeps what it keeps in eager.
  Chain::Piece left_to_eager(Piece& piece, lower::OverInputs& over, lower::Sizes& known,
                             const Constants& constants, PieceSizes& sizes) {
    const std::vector<PieceSizes::Layout> results = layouts_by_eager(piece, known, constants);
    over.write_arguments(known);
    auto region =
        std::make_shared<Replayed>(record::copy_of(piece.tape), piece.results, "", constants, known.open());
    region->facts.extern_calls = 1;
    region->facts.functional_text = piece.tape.entries[0].op.operator_name().name + ", by eager\n";
    for (TensorId id : piece.results) {
      requires_grad_[id] = piece.tape.tensors[id].requires_grad;
      kept_.insert(storage(id));
    }
    for (TensorId id : piece.tape.inputs) kept_.insert(storage(id));
    return {region, sizes.end(over, known, *region, results)};
  }

  /// Up to the last backward pass. What goes on behind it is the next pieces'.
  Chain::Piece whole_step(Piece& piece, lower::OverInputs& over, lower::Sizes& known,
                          const Constants& constants, PieceSizes& sizes, Stages& stages) {
    stages.enter("joint");
    for (const record::Entry& entry : piece.tape.entries)  // no result of the piece, which could say so
      if (record::makes_leaf(entry) && input(entry.args[0].tensors[0]) >= 0)
        throw_unsupported("a leaf made of a number, beside a backward pass that more is made behind");
    autograd::StepTape step =
        autograd::make_step(piece.tape, piece.results, run_.wishes.budget, made_of_numbers(constants));
    for (size_t i = 0; i < piece.results.size(); ++i)
      requires_grad_[piece.results[i]] = step.used_up[i] || step.leaves_made[i];
    Tape tape = record::copy_of(piece.tape);
    std::vector<TensorId> wanted = piece.results;
    const StepOf region_of = begin_step(tape, wanted, std::move(step));
    stages.enter("functionalize");
    lower::Lowered lowered = lower::functionalize(
        tape, wanted, {std::vector<bool>(tape.inputs.size()), constants, {}, run_.wishes.rounds_as_eager},
        known);
    std::vector<PieceSizes::Layout> results;
    for (size_t i = 0; i < piece.results.size(); ++i)
      results.push_back({lowered.outputs[i].sizes, lowered.outputs[i].strides});
    auto region = region_of(make_compiled(std::move(lowered), tape, wanted, known.open(),
                                          run_.name + ", step", plan_options_of_part(run_.wishes), stages));
    over.write_arguments(known);
    return {region, sizes.end(over, known, *region, results)};
  }

  /// As lowering knows them, where any size differs between calls.
  static std::vector<PieceSizes::Layout> layouts_by_eager(const Piece& piece, lower::Sizes& known,
                                                          const Constants& constants) {
    std::vector<PieceSizes::Layout> layouts;
    if (known.open().empty()) {
      for (TensorId id : piece.results) {
        const record::TensorInfo& info = piece.tape.tensors[id];
        layouts.push_back(
            {{info.sizes.begin(), info.sizes.end()}, {info.strides.begin(), info.strides.end()}});
      }
      return layouts;
    }
    const lower::LowerOptions options{std::vector<bool>(piece.tape.inputs.size()), constants};
    const lower::Lowered lowered = lower::functionalize(piece.tape, piece.results, options, known);
    for (size_t i = 0; i < piece.results.size(); ++i)
      layouts.push_back({lowered.outputs[i].sizes, lowered.outputs[i].strides});
    return layouts;
  }

  void note_gradients(const Piece& piece, const Trained& region) {
    for (size_t i = 0; i < piece.results.size(); ++i)
      requires_grad_[piece.results[i]] = region.requires_gradient(i);
    for (size_t input : region.rewritten()) requires_grad_[region.tape().inputs[input]] = true;
  }

  /// Tensors of a joint tape alone lie in no memory of the run's, or that of another one there.
  int storage(TensorId id) const {
    return static_cast<size_t>(id) < run_.tape.tensors.size() ? run_.tape.tensors[id].storage : -1;
  }
  /// Of the run's inputs; -1: an earlier piece makes it.
  int input(TensorId id) const { return run_.tape.tensors[id].input; }

  /// One that a single piece reads, and nobody is given, is part of that piece's program.
  void share_constants() {
    std::unordered_map<int, int> readers;
    for (const Piece& piece : pieces_)
      for (TensorId id : piece.tape.inputs) ++readers[input(id)];
    for (TensorId id : run_.wanted)
      if (id >= 0) ++readers[input(id)];
    own_ = std::move(shared_);
    shared_.clear();
    for (const auto& [at, value] : own_)
      if (readers[at] > 1) shared_.insert({at, value});
    for (const auto& [at, value] : shared_) own_.erase(at);
  }

  Constants constants_of(const Tape& piece) const {
    Constants out;
    for (size_t i = 0; i < piece.inputs.size(); ++i)
      if (const auto own = own_.find(input(piece.inputs[i])); own != own_.end())
        out.insert({static_cast<int>(i), own->second});
    return out;
  }

  /// By input: does an earlier piece make it? Those know whether it requires a gradient, also of an input of
  /// the run that they write to.
  std::vector<bool> told_of_inputs(Tape& piece) const {
    std::vector<bool> made_inside;
    for (TensorId id : piece.inputs) {
      made_inside.push_back(input(id) < 0);
      bool& known = piece.tensors[id].requires_grad;
      if (input(id) < 0) known = false;
      known |= requires_grad_[id];
    }
    return made_inside;
  }

  /// An earlier piece makes it, and the caller never sees it.
  bool is_hidden(TensorId id) const { return input(id) < 0 && !seen_.contains(storage(id)); }

  /// By input: is it gone behind the piece, unless this one keeps it?
  std::vector<bool> passing(const Tape& piece) const {
    std::vector<bool> out;
    for (TensorId id : piece.inputs) out.push_back(is_hidden(id) && !kept_.contains(storage(id)));
    return out;
  }

  /// By input: does a later piece write to its memory?
  std::vector<bool> written_later(size_t piece) const {
    std::vector<bool> out;
    for (TensorId id : pieces_[piece].tape.inputs) {
      const auto writers = written_.find(storage(id));
      out.push_back(writers != written_.end() && writers->second.last > piece);
    }
    return out;
  }

  /// Inner results whose gradient comes through a later piece, too.
  std::set<TensorId> read_later(size_t piece) const {
    std::set<TensorId> out;
    for (size_t later = piece + 1; later < pieces_.size(); ++later)
      for (TensorId id : pieces_[later].tape.inputs)
        if (inner_.contains(id)) out.insert(id);
    return out;
  }

  /// By input: is it memory of the run's inputs that an earlier piece has written to?
  std::vector<bool> written_again(size_t piece) const {
    std::vector<bool> out;
    for (TensorId id : pieces_[piece].tape.inputs) {
      const auto writers = written_.find(storage(id));
      out.push_back(writers != written_.end() && writers->second.first < piece &&
                    of_inputs_.contains(storage(id)));
    }
    return out;
  }

  /// By input: may it be kept where eager would not keep it? A parameter that no piece writes, and what
  /// nobody but the pieces ever sees.
  std::vector<bool> keepable(const Tape& piece) const {
    std::vector<bool> out;
    for (TensorId id : piece.inputs) {
      const int of_run = input(id);
      const bool hidden = is_hidden(id);
      const bool param = of_run >= 0 && run_.is_param[of_run];
      out.push_back((hidden || param) && !written_.contains(storage(id)));
    }
    return out;
  }

  const RunToTrain& run_;
  const std::set<TensorId>& inner_;
  std::vector<Piece> pieces_;
  Constants shared_, own_;
  std::vector<bool> requires_grad_;           ///< by tensor that a piece gives or rewrites
  std::unordered_map<int, Writers> written_;  ///< by storage
  std::unordered_set<int> of_inputs_, seen_;  ///< storages: of the run's inputs; the caller has them
  std::unordered_set<int> kept_;              ///< storages: a piece that was made keeps them
};

}  // namespace

std::shared_ptr<Chain> make_chain(const RunToTrain& run, const autograd::Cuts& cuts,
                                  const std::vector<size_t>& eagers, lower::OverInputs& over_inputs,
                                  lower::Sizes& sizes, Stages& stages) {
  Linking linking(run, cuts, eagers);
  PieceSizes of_pieces(run.tape, over_inputs, sizes);
  auto pieces = linking.make(of_pieces, stages);
  sizes = over_inputs.anew(of_pieces.facts());
  over_inputs.write_arguments(sizes);
  for (Chain::Piece& piece : pieces)
    for (Sym& number : piece.numbers) number = sizes.resolve(number);
  SymbolTable symbols = sizes.open();
  for (const SymbolRow& row : sizes.all())  // also those that are taken for others, which is looked at
    if (row.from == SymbolRow::From::data && sizes.resolve(row.symbol) != row.symbol) symbols.push_back(row);
  return std::make_shared<Chain>(record::copy_of(run.tape), run.wanted, std::move(pieces),
                                 std::move(linking).shared_constants(), std::move(symbols));
}

}  // namespace bolt::run
