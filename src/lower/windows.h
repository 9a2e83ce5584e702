// lower/windows.h
// The tensors of a tape -> windows on the values of their storages.
//
// Each storage has a root, the tensor that owned it when first seen, which holds a value. Other tensors hang
// on a parent by view steps. Reading one pushes the root's value through the steps; writing one computes the
// root's new value backwards through them, and goes up the storage's version, by which the others see at
// their next read that they are stale.
#pragma once

#include <functional>
#include <unordered_set>
#include <vector>

#include "graph/ir.h"
#include "lower/extern_sizes.h"
#include "lower/functionalize.h"
#include "lower/lowering.h"
#include "lower/view_layout.h"
#include "record/tape.h"

namespace bolt::lower {

class Windows {
 public:
  Windows(const record::Tape& tape, const LowerOptions& options, Sizes& sizes, Lowered& out);

  /// The value of a tensor as it is now. An input gets its value at its first use.
  Value* read(record::TensorId id);
  void write(record::TensorId id, Value* value);

  /// A result of the entry at hand: a tensor with memory of its own,
  void define_root(record::TensorId id, Value* v);
  /// a view of another one,
  void define_view(record::TensorId id, record::TensorId parent, std::vector<ViewStep> steps, bool detaches);
  /// or a view that steps cannot express: only its value as of now is known.
  void define_opaque(record::TensorId id, Value* v, bool detached);
  /// Of such a view of `of`: the value of `of` after this was written to the view.
  using Inverse = std::function<Value*(Value* before, Value* written)>;
  void define_inverse(record::TensorId id, record::TensorId of, Inverse inverse);
  /// Of one that is not defined yet. `step`: see eager_strides.
  void set_sizes(record::TensorId id, const Syms& sizes, int64_t step = 1);
  /// Of one that is a copy here, where eager has a slice of `of`, without that dimension where it is dropped.
  void set_slice(record::TensorId id, record::TensorId of, const SliceOfDim& cut, bool drops_dim);

  bool is_known(record::TensorId id) const { return states_[id].known; }
  bool is_sized(record::TensorId id) const { return states_[id].sized; }
  /// Requires no gradient, whatever it is a view of.
  bool is_detached(record::TensorId id) const { return states_[id].detached; }
  /// loops::PlanOptions::rounds_as_eager.
  bool rounds_as_eager() const { return options_.rounds_as_eager; }
  /// torch.tensor(...) inside the function: known contents, and memory of each call's own.
  bool is_constant(record::TensorId id) const;
  const Syms& sizes_of(record::TensorId id) const { return states_[id].layout.sizes; }
  /// The type of a tensor as eager has it.
  graph::Type type_of(record::TensorId id) const;
  /// Elements between the first elements of a view and of what it is a view of.
  Sym offset_in(record::TensorId id, record::TensorId base) const;
  /// Where a tensor lies in its storage is what it was in the recorded run.
  void demand_place(record::TensorId t) const;

  /// Sizes and strides of an input.
  void set_input(record::TensorId id);
  /// Nothing is known of how it lies in its storage, but what was recorded.
  void demand_strides(record::TensorId id) const;
  /// Whether a tensor can be shown with these sizes without a copy rests on which of its dimensions are one
  /// run and on how the sizes fit into the runs: as they did, in every call.
  void pin_reshape(const Call& c, record::TensorId id, const Syms& to) const;
  /// Outer dimensions have the larger strides, as in what is computed from it row by row.
  bool lies_in_order(record::TensorId id) const;

  record::TensorId root_of(record::TensorId id) const { return storage(id).root; }
  /// The tape input that owns its memory; -1: none.
  /// The one that it is a view of, where there are several.
  int input_of(record::TensorId id) const;
  bool is_written(record::TensorId id) const { return storage(id).version > 0; }

  Value* make(Op op, std::vector<Value*> operands, Attrs attrs);
  Value* apply(const std::vector<ViewStep>& steps, Value* v);
  /// Cast, where it is of another element type.
  Value* converted(Value* v, DType dtype);

  const record::Tape& tape;
  Sizes& sizes;
  Lowered& out;
  graph::Loc loc;  ///< of the entry at hand

 private:
  struct TensorState {
    bool known = false;
    record::TensorId parent = -1;  // -1: root
    std::vector<ViewStep> steps;   // from the parent
    bool detached = false;         // from what the root requires
    bool opaque = false;           // steps cannot express it: only the value at `version` is known
    record::TensorId of = -1;      // opaque: what it is a view of, if it can be written to by the inverse
    Inverse inverse;
    Value* value = nullptr;  // as of `version` of the storage
    int version = -1;
    bool sized = false;
    Layout layout;
  };
  struct StorageState {
    record::TensorId root = -1;
    int version = 0;
    int input = -1;       // tape input that owns it
    bool shared = false;  // by several inputs
    Syms gaps;            // strides of such inputs that differ between calls
  };

  StorageState& storage(record::TensorId id) { return storages_[tape.tensors[id].storage]; }
  const StorageState& storage(record::TensorId id) const { return storages_[tape.tensors[id].storage]; }
  void find_shared_inputs();
  void take_over_gaps(record::TensorId id);
  Value* input_value(record::TensorId id);
  Value* invert(const ViewStep& step, Value* before, Value* v);

  const LowerOptions& options_;
  std::vector<TensorState> states_;
  std::vector<StorageState> storages_;
  std::unordered_set<const Value*> laid_;  // whose order in memory is chosen
  bool any_gaps_ = false;
};

}  // namespace bolt::lower
