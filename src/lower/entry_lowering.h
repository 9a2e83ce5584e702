// lower/entry_lowering.h
// An entry of the tape -> nodes of the graph: by the row of its operator, by the row of the functional
// operator whose in-place form it is, or as one call of ATen.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "lower/extern_calls.h"
#include "lower/windows.h"
#include "support/pointer_map.h"

namespace bolt::lower {

class EntryLowering {
 public:
  /// `wanted`: what is given out.
  EntryLowering(Windows& windows, const std::vector<record::TensorId>& wanted);

  /// Throws SizeDemand where it cannot go on with the sizes as they are.
  void lower(const record::Entry& e);
  /// Behind the last entry.
  void end() const { extern_.check_all_are_waited_for(); }
  /// Tensors whose geometry was changed in place (x.t_()): the object's first id -> its last one.
  const std::map<record::TensorId, record::TensorId>& turned() const { return now_; }

 private:
  const Lowering* row_of(const record::Entry& e);
  bool lower_zeros(const record::TensorIds& ids);
  bool lower_by_row(const record::Entry& e, const Lowering& row);
  bool changes_device(const record::Entry& e) const;
  bool changes_notes(const record::Entry& e) const;
  bool lower_view(const record::Entry& e, const Lowering& row, Call& c);
  void pin_reshape(const Lowering& row, const Call& c, record::TensorId parent, record::TensorId result,
                   const ViewStep& step);
  bool lower_number(const record::Entry& e, const Call& c);
  bool lower_in_place(const record::Entry& e, const Lowering& row);
  std::vector<Value*> built(const record::Entry& e, const Lowering& row, Call& c);
  void check_shape(const Call& c, Value* v, record::TensorId id) const;
  Value* fitted(Value* v, record::TensorId id);
  void became(record::TensorId before, record::TensorId after, const record::Entry& e);

  Windows& w_;
  const std::vector<record::TensorId>& wanted_;
  /// Found when the first reshape asks: a walk over the tape.
  struct Seen {
    std::set<int> written;                 ///< storages
    std::set<record::TensorId> given_out;  ///< and what is given out as a view of
  };
  std::optional<Seen> seen_;
  const Seen& seen();
  ExternCalls extern_;
  PointerMap<const Lowering*> rows_;                        ///< by the operator's facts
  std::map<record::TensorId, record::TensorId> object_of_;  // of those: id -> the object's first id
  std::map<record::TensorId, record::TensorId> now_;
};

}  // namespace bolt::lower
