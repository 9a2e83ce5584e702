// run/trained/make_trained.h
// A recorded run that gradients are needed of -> the joint tape, its two parts, a program for each: Trained.
#pragma once

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "lower/settle.h"
#include "run/trained/trained.h"
#include "run/wishes.h"
#include "support/stages.h"
#include "support/trace.h"

namespace bolt::run {

/// A run, or a piece of one.
struct RunToTrain {
  const record::Tape& tape;
  const std::vector<record::TensorId>& wanted;
  const std::unordered_map<int, at::Tensor>& constants;
  const std::vector<bool>& is_param;  ///< by input of the tape
  const Wishes& wishes;
  const std::string& name;  ///< of the region
  const Trace& trace;
};

/// Of a region that is made in pieces (make_chain.h), which are compiled together: Trained::finish_code.
struct PieceOf {
  std::string file;  ///< begins the names of its files in a trace
  // By input of the tape; empty: none.
  std::vector<bool> made_inside;    ///< an earlier piece makes it
  std::vector<bool> passing;        ///< and nobody but the pieces sees it, nor is it kept so far
  std::vector<bool> written_later;  ///< a later piece writes to its memory
  std::vector<bool> written_again;  ///< it is the caller's, and an earlier piece writes to it in each call
  // Results.
  std::set<record::TensorId> inner;       ///< autograd::Inner, if the piece makes others of them
  std::set<record::TensorId> read_later;  ///< of those: a later piece reads it
};

/// Thrown where gradients need to know a float that differs between calls: as a rule it has yet another value
/// in the next one.
struct FloatDiffers : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `over_inputs`: of its tape, whose arguments are written over the
/// region's symbols afterwards; `sizes` are what is left of these, and what the parts rest on. Throws
/// Unsupported for what cannot be differentiated ahead of time, and SizeDemand where a number must be
/// known that cannot be.
std::shared_ptr<Trained> make_trained(const RunToTrain& run, lower::OverInputs& over_inputs,
                                      lower::Sizes& sizes, Stages& stages, const PieceOf& piece);

}  // namespace bolt::run
