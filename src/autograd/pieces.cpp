// autograd/pieces.cpp
#include "autograd/pieces.h"

#include <algorithm>
#include <set>
#include <utility>

#include "autograd/flow.h"
#include "record/copy.h"
#include "record/generators.h"
#include "record/operator_facts.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

class Parting {
 public:
  Parting(const Tape& run, const std::vector<TensorId>& wanted, const std::vector<size_t>& cuts,
          const std::vector<size_t>& eagers)
      : run_(run),
        cuts_(cuts),
        eagers_(eagers),
        made_(run.tensors.size(), kNowhere),
        used_(run.tensors.size(), kNowhere) {
    for_each_entry([&](int piece, const Entry& entry) { note(piece, entry); });
    for (TensorId id : wanted)
      if (id >= 0) at(used_, id) = static_cast<int>(cuts.size()) + 1;  // behind the last
  }

  std::vector<Piece> make() {
    for_each_entry([&](int piece, const Entry& entry) { demand_parts(piece, entry); });
    std::vector<Piece> pieces(cuts_.size() + 1);
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].tape = record::tensors_alone(run_);
      pieces[i].first = i == 0 ? 0 : cuts_[i - 1];
    }
    for_each_entry(
        [&](int piece, const Entry& entry) { add(pieces[static_cast<size_t>(piece)].tape, piece, entry); });
    for (Piece& piece : pieces) know_data_sizes(piece.tape);
    for (size_t entry : eagers_) {
      const auto next = std::ranges::upper_bound(cuts_, entry);
      pieces[static_cast<size_t>(next - cuts_.begin())].is_eagers = true;
    }
    for (size_t id = 0; id < made_.size(); ++id)
      if (made_[id] >= 0 &&
          (used_[id] > made_[id] || run_.tensors[id].data_dims != 0))  // sizes are read, too
        pieces[static_cast<size_t>(made_[id])].results.push_back(static_cast<TensorId>(id));
    return pieces;
  }

 private:
  static constexpr int kNowhere = -1;

  template <class Each>
  void for_each_entry(Each each) const {
    int piece = 0;
    for (size_t i = 0; i < run_.entries.size(); ++i) {
      if (static_cast<size_t>(piece) < cuts_.size() && cuts_[static_cast<size_t>(piece)] == i) ++piece;
      each(piece, run_.entries[i]);
    }
  }

  static int& at(std::vector<int>& by_tensor, TensorId id) { return by_tensor[static_cast<size_t>(id)]; }
  const TensorInfo& info(TensorId id) const { return run_.tensors[static_cast<size_t>(id)]; }

  void note(int piece, const Entry& entry) {
    for_each_tensor(entry.args, [&](TensorId id) { at(used_, id) = piece; });
    for_each_tensor(entry.results, [&](TensorId id) {
      if (info(id).input < 0 && at(made_, id) == kNowhere) at(made_, id) = piece;
    });
  }

  /// An operator that changes what was there before its piece.
  void demand_parts(int piece, const Entry& entry) {
    if (entry.facts->turns && !(entry.args[0] == entry.results[0]) && !is_made_in(piece, entry.args[0]))
      throw_unsupported("a result made of another one, and a tensor whose sizes are changed in place");
    if (record::makes_generator(entry.op))
      throw_unsupported("a result made of another one, and a generator that is made inside");
    for_each_written(entry, [&](TensorId id) { demand_one(piece, info(id).storage); });
  }

  bool is_made_in(int piece, const record::Arg& arg) {
    bool made = true;
    for (TensorId id : arg.tensors) made &= id >= 0 && at(made_, id) == piece;
    return made;
  }

  /// Each piece makes its views of its own inputs anew: those of another one would not be views of what this
  /// one writes to.
  void demand_one(int piece, int storage) {
    if (!demanded_.insert({piece, storage}).second) return;
    int inside = 0, all = 0;
    for (size_t id = 0; id < made_.size(); ++id) {
      const TensorInfo& tensor = run_.tensors[id];
      const bool is_input = tensor.input >= 0, earlier = made_[id] >= 0 && made_[id] < piece;
      if (tensor.storage != storage || !(is_input || (earlier && used_[id] >= piece))) continue;
      inside += !is_input;
      ++all;
    }
    if (inside > 0 && all > 1)
      throw_unsupported(
          "results made of each other, with a write to memory that others show, too, in between");
  }

  /// What earlier pieces have found out are sizes of inputs.
  static void know_data_sizes(Tape& tape) {
    for (TensorInfo& info : tape.tensors) {
      info.data_sized = false;
      if (info.producer < 0) info.data_dims = 0;
    }
  }

  void add(Tape& tape, int piece, const Entry& entry) {
    for_each_tensor(entry.args, [&](TensorId id) {
      if (tape.tensors[static_cast<size_t>(id)].input >= 0 || at(made_, id) == piece) return;
      if (info(id).input < 0 && (at(made_, id) == kNowhere || at(made_, id) >= piece))
        throw_unsupported("a tensor that no operator has made");
      record::add_input(tape, id);
    });
    record::add_entry(tape, entry);
    // Nothing is said of how it lies (lower/attention_masks.h), so a piece must not say so either.
    for_each_tensor(entry.results, [&](TensorId id) {
      if (info(id).producer < 0) tape.tensors[static_cast<size_t>(id)].producer = -1;
    });
  }

  const Tape& run_;
  const std::vector<size_t>&cuts_, &eagers_;
  std::vector<int> made_, used_;  ///< by tensor: the piece that makes it, and the last that reads it
  std::set<std::pair<int, int>> demanded_;
};

}  // namespace

std::vector<Piece> pieces(const Tape& run, const std::vector<TensorId>& wanted, std::vector<size_t> cuts,
                          const std::vector<size_t>& eagers) {
  for (size_t entry : eagers) {
    if (entry > 0) cuts.push_back(entry);
    if (entry + 1 < run.entries.size()) cuts.push_back(entry + 1);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  return Parting(run, wanted, cuts, eagers).make();
}

}  // namespace bolt::autograd
