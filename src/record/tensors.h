// record/tensors.h
// The tensors and storages of a run -> their numbers on the tape.
//
// Tensors are named by their TensorImpl. Only weak references are kept: data of intermediates is freed when
// eager frees it, and because a weakly held impl keeps its address, no address is ever two tensors. Soon
// after eager has freed one, its name is struck out and the impl let go of too: were they all kept until the
// end, each would take a bite of the memory that the next tensor's data should have gone to. Inputs are held
// strongly.
//
// One object may be several tensors of the tape, one after the other (x.t_()), and several objects one
// tensor, where they show the same memory in the same way.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/tape.h"
#include "support/pointer_map.h"

namespace bolt::record {

/// Strided memory that our program can describe as pointer, sizes and strides.
bool is_plain(const at::Tensor& t);

/// An operator reads a value, whichever tensor shows it, changes how one tensor shows it (t_()), or gives
/// one.
enum class Use : uint8_t { value, itself, result };

class Tensors {
 public:
  explicit Tensors(Tape& tape) : tape_(tape) {}
  Tensors(const Tensors&) = delete;

  /// The id of a tensor as it is now, or nullopt if no recorded operator touched it.
  std::optional<TensorId> find(const at::Tensor& t) const;
  /// Is it one that the tape has, or shows the memory of one?
  bool knows(const at::Tensor& t) const { return find(t) || find_same_memory(t); }
  /// Its id; a tensor not seen before becomes an input.
  TensorId input_id(const at::Tensor& t);
  /// Its id; `entry` makes it where it is a result not seen before. -1: it is undefined.
  TensorId id_of(const at::Tensor& t, Use use, int entry);
  /// A new id, whatever it was before. `entry` < 0: it is an input.
  TensorId add(const at::Tensor& t, int entry);

  /// Tape inputs in order, alive.
  const std::vector<at::Tensor>& inputs() const { return inputs_; }
  /// Tensors that were taken for another one, which shows the same memory, and for which.
  using Merged = std::pair<const c10::TensorImpl*, TensorId>;
  const std::vector<Merged>& merged() const { return merged_; }
  /// The first tensor that is not plain, in words; "": all are.
  const std::string& obstacle() const { return obstacle_; }

  /// Results that show zeros without memory have their place. Their sizes are those of the recorded run.
  bool takes_zeros = false;

  /// An operator wrote to it.
  void count_write(TensorId id);
  /// How often recorded operators wrote to its memory; -1: not that kind of tensor.
  int64_t writes(const at::Tensor& t) const;
  /// Its memory was filled unseen: it is none that the tape knows.
  void refilled(const at::Tensor& t);

  /// Entry number `entry` gave the tensor other sizes.
  void note_resized(TensorId id, size_t entry);
  /// Entries from there on are taken back: when the region ends, tensors that they resized are what they were
  /// before.
  void revert(size_t entry);

  /// From now on `t`, an input, shows what `id` is, which required no gradient when it was made.
  void becomes(const at::Tensor& t, TensorId id);
  /// Was it given the data of another one, though gradients are its own?
  bool was_given_data(const at::Tensor& t) const { return given_data_.contains(t.unsafeGetTensorImpl()); }
  bool any_given_data() const { return !given_data_.empty(); }

  /// Strikes out what eager has freed meanwhile. Called after every operator, does something at every few: to
  /// run the same code for several tensors in a row costs little more than to run it for one.
  void let_go();

 private:
  bool matches(const TensorInfo& info, const at::Tensor& t) const;
  std::optional<TensorId> find_same_memory(const at::Tensor& t) const;
  bool is_itself(TensorId id) const;
  int storage_id(const at::Tensor& t, bool from_outside);
  bool is_memory(int storage, const c10::StorageImpl& impl) const {
    return known_storages_[storage].impl == &impl;
  }

  Tape& tape_;
  std::string obstacle_;
  std::vector<at::Tensor> inputs_;
  PointerMap<TensorId> ids_;  ///< by implementation; -1: it has been let go of
  /// By tensor of the tape: the one that was seen first.
  struct Owner {
    c10::TensorImpl* impl;  ///< null: it has been let go of
    bool was_itself;        ///< and that was the last of the tensors it had been
  };
  std::vector<Owner> owners_;
  std::vector<Merged> merged_;
  struct Resized {
    const c10::TensorImpl* impl;
    TensorId before;
    size_t entry;
  };
  std::vector<Resized> resized_;
  std::unordered_map<const c10::TensorImpl*, TensorId> reverted_;

  std::unordered_map<const c10::TensorImpl*, at::Tensor> given_data_;

  PointerMap<int> storages_;  ///< by implementation
  /// By number of a storage.
  struct Storage {
    const c10::StorageImpl* impl;  ///< null: let go of, or its contents are a constant, with another number
    int64_t writes = 0;
  };
  std::vector<Storage> known_storages_;

  template <class Impl>
  struct Held {
    c10::weak_intrusive_ptr<Impl> keeps;
    const Impl* impl;
    int id;
  };
  /// Tensors and storages that may have been freed, in any order, looked through in turn.
  template <class Impl>
  struct AllHeld {
    std::vector<Held<Impl>> all;
    size_t next = 0;
    void add(const c10::intrusive_ptr<Impl>& object, int id) {
      all.push_back({c10::weak_intrusive_ptr<Impl>(object), object.get(), id});
    }
    template <class Gone>
    void let_go(Gone gone);
  };
  static constexpr size_t kEvery = 4;  ///< operators
  size_t since_let_go_ = 0;
  AllHeld<c10::TensorImpl> held_;
  AllHeld<c10::StorageImpl> held_storages_;
  /// As good as never freed: not looked through.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> inputs_storages_;
};

}  // namespace bolt::record
