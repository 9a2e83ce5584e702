// run/call_memory.h
// The sizes and inputs of a call -> where each buffer of the program lies in it.
//
// Temporaries share one arena a device, which stays from call to call. Outputs, and temporaries that lie
// apart, are allocated in each call, when the first step needs them. What depends on parameters only comes
// from elsewhere (folds.h).
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "run/prepared.h"

namespace bolt::run {

/// A buffer in one call. `tensor` may be made lazily from `data`; `data` is there once the buffer is defined.
struct BufferInCall {
  void* data = nullptr;
  at::Tensor tensor;
};

class CallMemory {
 public:
  explicit CallMemory(const Prepared& prepared) : p_(prepared) {}

  // ---- a call
  /// From now on for these; memory of earlier calls is used again where it is large enough.
  void take_shapes(std::shared_ptr<const Shapes> shapes);
  /// Null: it has been for no call yet.
  const std::shared_ptr<const Shapes>& shapes() const { return shapes_; }
  const Shapes::OfBuffer& shape(int buffer) const { return shapes_->buffers[buffer]; }
  void make_arenas();
  /// Inputs lie where they lie, and outputs that no step makes get their memory.
  void bind(const std::vector<at::Tensor>& inputs);
  /// Lets go of everything but memory that the next call needs.
  void end();
  /// Instead of the above, for the fold steps alone, which run once.
  void bind_folds(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Shapes> shapes);

  // ---- one buffer
  BufferInCall& slot(int buffer) { return slots_[buffer]; }
  const at::Tensor& tensor(int buffer);
  void* pointer(int buffer);
  at::TensorOptions options(int buffer) const;
  /// The buffer as a tensor over memory that is somebody else's.
  at::Tensor over(int buffer, void* data) const;
  /// A buffer lies there. bind() makes no other memory for it.
  void put(int buffer, at::Tensor tensor);
  void put(int buffer, void* data) { slot(buffer) = {data, {}}; }
  /// Memory that is not the arena's.
  void make_output(int buffer);
  /// As make_output, or that of the buffer it takes the place of. Outputs of recordings are there already.
  void make(int buffer);
  /// In this call, the step that makes the buffer makes it there.
  void place(int buffer, at::Tensor tensor) { places_[buffer] = std::move(tensor); }
  /// Null: the step makes it wherever it likes.
  const at::Tensor* place_of(int buffer) const;
  /// Does any buffer have one? In most calls none has.
  bool has_places() const { return !places_.empty(); }

  // ---- all of them, as they are before a part of a call that may come to nothing
  const std::vector<BufferInCall>& slots() const { return slots_; }
  void put(std::vector<BufferInCall> slots) { slots_ = std::move(slots); }

 private:
  bool keeps(size_t arena) const { return p_.devices[p_.device_of_arena[arena]].driver->keeps_arenas(); }
  void make_arena(size_t arena);
  void drop_arena(size_t arena);

  const Prepared& p_;
  std::shared_ptr<const Shapes> shapes_;
  std::vector<BufferInCall> slots_;  // by buffer
  std::vector<at::Tensor> arenas_;
  std::map<int, at::Tensor> places_;  // of some buffers that calls make
};

}  // namespace bolt::run
