// autograd/flow.h
// A joint tape -> what its entries do to memory: who makes, writes and reads each storage, and which could be
// made again when the backward part runs.
//
// A tape is no list of values: an operator may write to what another has made, and views show the same
// memory. So what is kept or computed again is a whole storage, as the forward part leaves it. It is computed
// again by all of its makers, in their order: the operator that gave it, and those that wrote to it. That
// gives the same only if whatever else they read is still what they read then. Views cost nothing: a tensor
// that shows memory which is there is shown again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "autograd/joint.h"
#include "autograd/work.h"

namespace bolt::autograd {

struct EntryFlow {
  Work work = Work::Never;
  std::vector<int> reads, makes, writes;  ///< storages; what it makes is new
  std::vector<int> reads_again;           ///< what it reads when it is computed again
  int checkpoint = -1;                    ///< the innermost checkpointed function that it is part of
  /// Computed again it runs in the kernel that reads it: always, or because its statistics are kept.
  bool fuses_again = false;
  double price = 0;
};

struct Storage {
  int64_t bytes = 0;
  /// What the kernel that reads it reads of memory, where it makes it as well. -1: all of its bytes.
  int64_t bytes_behind = -1;
  bool given = false;            ///< an input lies in it: it is there whatever is kept
  bool held = false;             ///< such an input, which somebody else holds in any case
  bool keepable = false;         ///< such an input, which may be kept although eager does not
  bool output = false;           ///< a wanted tensor lies in it, so the caller may write to it
  bool kept_by_eager = false;    ///< the backward part reads it
  bool again = false;            ///< its makers may run again
  bool materialised = false;     ///< the forward part has to write it to memory anyway
  bool for_whole_calls = false;  ///< the backward part reads it in an operator that it cannot be made in
  bool odd = false;           ///< shown in ways that cannot be repeated: by t_(), or operators nobody knows
  bool passed = false;        ///< into a checkpointed function, which keeps what it is called with
  bool checkpointed = false;  ///< nobody but a checkpointed function reads it
  bool saved = false;         ///< of one, but its policy says that it is kept
  bool cast_weight = false;   ///< a copy, in another type, of an input that gets a gradient
  int last_write = -1;
  std::vector<int> makers;  ///< entries
};

class Flow {
 public:
  Flow(const Joint& joint, const Prices& prices);

  const Joint& joint;
  const Prices prices;
  std::vector<EntryFlow> entries;
  std::vector<Storage> storages;

  bool is_forward(int entry) const { return entry < static_cast<int>(joint.backward); }
  /// Is it there, or could it be, when the backward part begins?
  bool is_of_forward(record::TensorId id) const;
  int storage_of(record::TensorId id) const { return info(id).storage; }
  const record::TensorInfo& info(record::TensorId id) const { return joint.tape.tensors[id]; }
  const record::Entry& entry(int i) const { return joint.tape.entries[i]; }
  /// The entry that shows it as a view of another tensor; -1: it is shown by nobody, or not to be repeated.
  int shown_by(record::TensorId id) const;
  /// What it is a view of, and that of, and so on: the tensor that is kept so that it can be shown.
  record::TensorId root(record::TensorId id) const;
  /// What comes again anyway is not: within checkpoints, and copies of a weight. And where eager does not
  /// keep it: the caller may write to an output, and a buffer is written to by the next call, before the
  /// backward pass of this one.
  bool may_be_kept(int storage) const;

 private:
  void read_entry(int i);
  void note_views(int i);
  void decide_work(int i);
  int64_t bytes_read_of(int storage) const;
  bool takes_each_once(const record::Entry& entry) const;
  void note_demands();
  void note_statistics(int i);
  void find_checkpoints();
  void ask_policies();
  void note_checkpoints();
  int common_checkpoint(int a, int b) const;
  bool sums_up(const Storage& storage) const;
  bool can_come_again(int storage) const;
  bool is_view(int i) const;
  bool casts_weight(const Storage& storage) const;

  std::vector<int> outer_;  ///< by checkpointed function: the one that it is called in; -1: none
};

/// Calls `each` with the tensors that an entry reads when it is computed again.
template <class Each>
void for_each_read_again(const record::Entry& entry, Each each) {
  const bool statistics = counts_statistics(entry);
  for (size_t a = 0; a < entry.args.size(); ++a)
    if (!statistics || std::ranges::find(kStatistics, a) == std::end(kStatistics))
      for (record::TensorId id : entry.args[a].tensors)
        if (id >= 0) each(id);
}

}  // namespace bolt::autograd
