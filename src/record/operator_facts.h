// record/operator_facts.h
// What recording wants to know of an operator whatever it is called with. Looked up once in a process, asked
// for once for each call: who handles the call hands them on.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>
#include <vector>

namespace bolt::record {

struct OperatorFacts {
  size_t arguments = 0, returns = 0;  ///< how many its schema has
  bool ends_region = false;    ///< hands data to Python, sizes made of data, or gives a tensor other memory
  bool finds_sizes = false;    ///< gives sizes made of data, which a region can go on with
  bool finds_several = false;  ///< of these: each result has such a size of its own
  bool finds_places = false;   ///< of these: where a mask is not 0, or what lies there
  bool is_sized_by_numbers = false;  ///< by scalars, which others only compute with
  bool finds_rank = false;      ///< gives residuals where what it found to be the rank is full, else none
  bool keeps_sizes = false;     ///< its result is as large as its first argument, whatever else it is given
  bool selects = false;         ///< index: hands out such sizes where a mask is among the indices
  bool counts_classes = false;  ///< one_hot: looks for the largest class where it is not told their number
  bool raises_by_data = false;  ///< of all these: the data decide whether it raises
  bool places = false;          ///< its last argument says where in a storage a view begins
  bool lifts = false;           ///< lift_fresh: announces a tensor that was filled through a pointer
  bool draws = false;           ///< random numbers, from a generator
  /// CUDA graphs that it is recorded in draw as they should. Nothing is found out by trying: torch's
  /// generator does not get over a recording that fails.
  bool draws_in_graphs = false;
  /// Its lowering is a kernel that has each row which it reads before it until it is done with it: whatever
  /// makes the row may run there.
  bool holds_rows = false;
  bool recurrent = false;  ///< a whole layer over the steps of sequences
  bool has_out = false;    ///< its last argument is an out=
  bool turns = false;      ///< changes how a tensor shows its memory (t_()); only says that it writes
  /// Other processes take part in it: how often it is called, and in which order, is their affair, too.
  bool communicates = false;
  bool is_waited_for =
      false;               ///< what it gives is there behind a wait_tensor, and what it is given until then
  bool passes_on = false;  ///< its results are arguments of its, whatever sizes these have
  bool waits = false;      ///< wait_tensor: gives what it is given, once that is there
  bool ordinary = false;   ///< nothing of all this: it gives what it computes, and nobody asks more of it
  bool composite = false;  ///< ATen writes it as calls of others, above autograd (record/parts.cpp)
  bool uninitialised = false;  ///< gives memory as it was, which others write to, maybe unseen
  bool reads_memory = false;   ///< a composite that takes numbers out of its tensors' memory, unseen
  /// Floats that it only computes with: whatever they are, it gives new tensors of the same sizes. Of another
  /// one, as of dropout's p, 0 or 1 may decide what is made.
  std::vector<size_t> only_computes_with;
  std::vector<int> written;  ///< arguments that it writes to, by its schema
  /// Arguments that it writes to when it trains: normalisations write their running statistics then, of which
  /// the schema says nothing. Empty: it is none of them.
  std::vector<int> written_in_training;
  /// Arguments that must lie in memory as eager's do: the library keeps a plan for each set of shapes, and
  /// does not ask whether these lie as they did when the plan was made.
  std::vector<int> lie_as_eagers;
  std::vector<std::pair<int, int>> handed_back;  ///< a result, and the written argument that it is
};

/// Of the training flag among the arguments of what has `written_in_training`.
constexpr size_t kTrainingArgument = 5;

/// Where an operator's arguments begin, on top of the stack.
inline size_t first_argument(const OperatorFacts& facts, const torch::jit::Stack& stack) {
  return stack.size() - facts.arguments;
}

/// Stays valid, also where the operator is defined anew.
const OperatorFacts& facts_of(const c10::OperatorHandle& op);

/// Others are known by their schemas alone.
inline bool is_atens(const c10::OperatorHandle& op) { return op.operator_name().name.starts_with("aten::"); }

}  // namespace bolt::record
