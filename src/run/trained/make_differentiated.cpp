// run/trained/make_differentiated.cpp
#include "run/trained/make_differentiated.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/cuts.h"
#include "autograd/early_cuts.h"
#include "autograd/gradients.h"
#include "autograd/joint.h"
#include "lower/attention_masks.h"
#include "record/left_to_eager.h"
#include "record/operator_facts.h"
#include "run/eager_trial.h"
#include "run/trained/make_chain.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt::run {
namespace {

using Made = std::shared_ptr<Runnable>;

/// What such a pass goes through would be an earlier piece's, of which the piece with the pass sees results
/// alone.
void check_passes_stay_whole(const record::Tape& tape, const autograd::Cuts& cuts,
                             const std::vector<size_t>& eagers) {
  const size_t first = std::min(cuts.places.empty() ? tape.entries.size() : cuts.places.front(),
                                eagers.empty() ? tape.entries.size() : eagers.front());
  if (std::any_of(tape.entries.begin() + static_cast<std::ptrdiff_t>(first), tape.entries.end(),
                  autograd::is_followed_pass))
    throw_unsupported("gradients that are differentiated, in a region of several pieces");
}

Made in_pieces(const Recorded& r, const record::Tape& tape, const autograd::Cuts& cuts,
               const std::vector<size_t>& eagers, lower::OverInputs& over_inputs, lower::Sizes& sizes,
               Stages& stages) {
  // Where they cannot be made, nothing holds of what was found out of sizes.
  lower::Sizes of_parts = over_inputs.anew({});
  Made region;
  check_passes_stay_whole(tape, cuts, eagers);
  const RunToTrain run{tape, r.wanted, r.constants, r.is_param, r.wishes, r.name, r.trace};
  PieceOf all;
  all.inner = cuts.inner;
  if (cuts.places.empty() && eagers.empty())
    region = make_trained(run, over_inputs, of_parts, stages, all);
  else
    region = make_chain(run, cuts, eagers, over_inputs, of_parts, stages);
  sizes = std::move(of_parts);
  return region;
}

constexpr size_t kMostLeft = 16;  // operators that are found out one by one, each by making all again

/// What shows only when it is tried is left to eager as well (an operator of the user's whose gradient looks
/// at the data).
Made and_the_rest_by_eager(const Recorded& r, const record::Tape& tape, const autograd::Cuts& cuts,
                           lower::OverInputs& over_inputs, lower::Sizes& sizes, Stages& stages) {
  std::vector<size_t> eagers = record::left_to_eager(tape, over_inputs.any());
  const bool is_step = autograd::has_gradients(tape);
  if (is_step)  // in a whole step they are calls of it
    std::erase_if(eagers, [&](size_t entry) { return cuts.places.empty() || entry < cuts.places[0]; });
  for (size_t left = 0;; ++left) {
    try {
      return in_pieces(r, tape, cuts, eagers, over_inputs, sizes, stages);
    } catch (const autograd::NotFollowed& error) {
      if (is_step || left == kMostLeft || std::ranges::binary_search(eagers, error.entry)) throw;
      eagers.insert(std::ranges::upper_bound(eagers, error.entry), error.entry);
      log("perf_hints", r.name + ": " + tape.entries[error.entry].op.operator_name().name +
                            " is left to eager, because " + error.what());
    }
  }
}

/// Hooks that wait for gradients send them to other processes, between the collectives that the backward pass
/// has itself. The order of all these is the same on each process only where it is eager's, since one of them
/// may be replaying a tape.
void check_order_of_collectives(const Recorded& r, const record::Tape& tape) {
  if (std::ranges::find(r.is_awaited, true) == r.is_awaited.end()) return;
  for (const record::Entry& e : tape.entries)
    if (e.facts->communicates && record::is_followed(tape, e))
      throw_unsupported("gradients through ", e.op.operator_name().name,
                        ", beside hooks that wait for others");
}

autograd::Cuts united(autograd::Cuts cuts, const std::vector<size_t>& more) {
  cuts.places.insert(cuts.places.end(), more.begin(), more.end());
  return cuts;
}

/// Cut where hooks wait for gradients, too, if that can be done.
Made cut(const Recorded& r, const record::Tape& tape, const autograd::Cuts& cuts,
         lower::OverInputs& over_inputs, lower::Sizes& sizes, Stages& stages) {
  const bool is_step = autograd::has_gradients(tape);
  const std::vector<size_t> more = is_step ? std::vector<size_t>() : autograd::early_cuts(tape, r.is_awaited);
  if (more.empty()) return and_the_rest_by_eager(r, tape, cuts, over_inputs, sizes, stages);
  try {
    return and_the_rest_by_eager(r, tape, united(cuts, more), over_inputs, sizes, stages);
  } catch (const Unsupported&) {
    return and_the_rest_by_eager(r, tape, cuts, over_inputs, sizes, stages);
  }
}

/// Where results that others are made of cannot be inner ones, the tape is cut there, too.
Made joined(const Recorded& r, const record::Tape& tape, lower::OverInputs& over_inputs, lower::Sizes& sizes,
            Stages& stages) {
  check_order_of_collectives(r, tape);
  const std::set<int> own = made_of_numbers(r.constants);
  const autograd::Cuts fewest = autograd::fewest_cuts(tape, r.wanted, own);
  try {
    return cut(r, tape, fewest, over_inputs, sizes, stages);
  } catch (const Unsupported& error) {
    if (fewest.inner.empty()) throw;
    log("perf_hints",
        r.name + ": is cut between results that are made of each other, because " + error.what());
    return cut(r, tape, autograd::cuts(tape, r.wanted, own), over_inputs, sizes, stages);
  }
}

}  // namespace

Made make_differentiated(const Recorded& recorded, lower::OverInputs& over_inputs, lower::Sizes& sizes,
                         Stages& stages) {
  Made made = lower::rather_unmasked(
      recorded.tape, over_inputs.anew({}), recorded.name,
      [&](const record::Tape& tape) { return joined(recorded, tape, over_inputs, sizes, stages); });
  return make_trial_with_passes(std::move(made), recorded, sizes);
}

}  // namespace bolt::run
