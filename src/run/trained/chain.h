// run/trained/chain.h
// Chain: a region in pieces, one after another, each with a node of autograd's of its own. So a result that
// another one is made of has a place in autograd's graph: hooks on it see what comes through the other, and
// gradients of it are found.
//
// What crosses from one piece to the next is a tensor like any other, with its gradient where it has one. It
// is let go of when the last piece that reads it has run. Where a piece fails the whole region has not begun:
// what earlier ones wrote to the caller's tensors is put back.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "run/trained/trained.h"

namespace bolt::run {

class Chain final : public Runnable {
 public:
  struct Piece {
    std::shared_ptr<Runnable> region;  ///< Trained; Replayed of what is left to eager; a WholeStep
    Syms numbers;                      ///< what it is given for those among its symbols, over the region's
  };
  /// `tape`, `wanted`: of the whole run. The pieces' tapes have its tensors' numbers; their inputs are those
  /// of the run and what earlier pieces give. `constants`: inputs of the run that the recorded run made of
  /// numbers, and no piece has to itself.
  Chain(record::Tape tape, std::vector<record::TensorId> wanted, std::vector<Piece> pieces,
        std::unordered_map<int, at::Tensor> constants, SymbolTable symbols);

  std::vector<int> written_inputs() const override;
  Texts texts() const override;
  std::vector<StepFacts> costs() const override;
  void launch_at_once(const std::string& name) override;
  void note_passes_in(const std::shared_ptr<DoubleBackward>& noted) override;
  void check_data_sizes(const std::vector<SizeFact>& taken_for_granted) override;

 private:
  /// A size that is data: what it is of, and which symbol stands for it.
  struct Found {
    size_t place;
    int dim;
    size_t symbol;
  };
  /// Places of tensors: the region's inputs come first.
  struct Link {
    std::shared_ptr<Runnable> piece;
    Syms numbers;
    std::vector<size_t> inputs, results;
    std::vector<size_t> last;  ///< nobody reads these afterwards
    std::vector<Found> found;
    std::vector<SizeFact> facts;  ///< about the sizes that are data, of which it finds the last
  };
  class Before;

  void find_places(std::vector<Piece> pieces);
  void find_last_readers();
  void find_early_writes();
  void find_data_sizes();
  static void learn(const Link& link, const Tensors& at, std::vector<int64_t>& values);
  Tensors call(const Tensors& inputs, const std::vector<int64_t>& values,
               record::CallGenerators generators) override;
  Tensors run_links(const Tensors& inputs, std::vector<int64_t> values,
                    const record::CallGenerators& generators) const;

  std::vector<Link> links_;
  std::vector<int> outputs_;  ///< by wanted tensor: its place; -1: there is none
  size_t places_ = 0;
  const std::unordered_map<int, at::Tensor> constants_;
  // Before a piece that may fail,
  std::vector<size_t> written_early_;    ///< inputs that pieces write
  std::vector<size_t> rewritten_early_;  ///< and those of them that have another history afterwards
};

}  // namespace bolt::run
