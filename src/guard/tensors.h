// guard/tensors.h
// What guards must ask torch of a tensor. (Only tensors.cpp and tensor_images.cpp include torch's headers for
// that.)
//
// A tensor input is pinned by dtype, device, key set (which covers layout, subclass dispatch, conj and
// negative bits, inference), sizes, strides and requires_grad; its values and its address never are. Inputs
// that shared a storage in the recorded run must share it again, at the same distance.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/py_ref.h"

namespace c10 {
struct TensorImpl;
}
namespace bolt {
class ArchiveReader;
class ArchiveWriter;
}  // namespace bolt

/// torch.Tensor, of torch/csrc/autograd/python_variable.h; null before torch is imported.
extern __attribute__((visibility("default"))) PyObject* THPVariableClass;

namespace bolt::guard {

bool is_tensor_subclass(PyObject* object);
/// Is it of torch.Tensor itself, no subclass?
inline bool is_plain_tensor(PyObject* object) {
  return Py_IS_TYPE(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}
inline bool is_tensor(PyObject* object) { return is_plain_tensor(object) || is_tensor_subclass(object); }
/// torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme: immutable, compared by ==.
bool is_torch_leaf(PyObject* object);
c10::TensorImpl* tensor_impl(PyObject* tensor);
/// The word of the object that is the address of its implementation; null if none is.
const void* impl_slot(PyObject* tensor);
/// Do the storages lie in the same memory, in whole or in part? Also different ones may (from_numpy).
bool share_memory(const c10::TensorImpl& a, const c10::TensorImpl& b);
/// References to it, Python's and C++'s; those of its object and its implementation to each other are none.
Py_ssize_t references_to(PyObject* tensor);
/// Has nobody else its storage, which is as large as its elements are?
bool owns_storage(PyObject* tensor);
/// Its class has a __torch_dispatch__: Python code runs for every operator.
bool sees_operators(PyObject* tensor);
/// Size `dim`; from kStrideBit on (support/nesting.h) dimensions stand for strides.
int64_t size_of(const c10::TensorImpl& tensor, int dim);
/// Of bool or bytes: an index with it selects by dimensions of its own.
bool is_mask(const c10::TensorImpl& tensor);
int rank_of(const c10::TensorImpl& tensor);
int64_t elements_of(PyObject* tensor);
/// torch.Size of a tuple of ints, which stay the objects they are. New.
PyObject* make_torch_size(PyObject* sizes);
bool is_torch_size(PyObject* object);
/// A plain tensor on the CPU whose elements are floats or ints.
bool has_numbers(PyObject* tensor);
bool is_floating(PyObject* tensor);
bool is_long(PyObject* tensor);
/// Whether autograd knows of no operator that made it; and whether it requires a gradient.
bool is_autograd_leaf(PyObject* tensor);
bool requires_grad(PyObject* tensor);
/// Plain strided memory, of one element type and device: tensor.data = other changes nothing but the memory.
bool may_be_given_data(PyObject* tensor, PyObject* other);
/// The tensor it is a view of; null: of none. New.
PyObject* base_of(PyObject* tensor);
/// torch.Tensor itself.
PyObject* tensor_class();
/// Goes up with every write to its memory; -1: this tensor does not count them (inference mode).
int64_t version_of(PyObject* tensor);
/// .grad of a tensor, borrowed, null when None.
PyObject* tensor_grad(PyObject* tensor);

class TensorTable {
 public:
  TensorTable();
  TensorTable(TensorTable&&) noexcept;
  ~TensorTable();

  /// Adds what `tensor` is now; returns its slot.
  int add(PyObject* tensor);
  /// The sizes of `slot` that need not be as recorded, and the strides (a bit for each): its dimensions must
  /// then lie one in the other as recorded, with gaps where there were some. False: they did not.
  bool set_free(int slot, uint64_t dims);
  /// The tensor of `slot` is found after the others (Access::chosen).
  void set_chosen(int slot);
  /// Nothing was differentiated and nobody asked: it does not matter which of them require gradients.
  void ignore_gradients();
  /// Somebody asked where in its storage a tensor begins.
  void fix_offsets();
  /// Whether two share their memory, and where in it they lie, is of no interest if neither slot is among
  /// these.
  void forget_sharing(const std::vector<bool>& matters);
  bool any_share() const;
  /// Where `tensor` differs from the one recorded, a bit for each size, and for each stride where there are
  /// gaps, if sizes and strides are all that differs.
  std::optional<uint64_t> size_differences(int slot, PyObject* tensor) const;
  size_t size() const;
  /// Compares all, their classes too; the slot of the first that differs, or -1. `impls`: their
  /// implementations, where they are known; brought up to date.
  /// Where some that are chosen are not found yet nothing is asked of them, nor of who shares memory.
  int first_difference(PyObject* const* objects, c10::TensorImpl** impls, bool all_found = true) const;
  /// The written inputs must not overlap others; see Program::forbid_new_overlap.
  void forbid_new_overlap(const std::vector<int>& written_slots);
  /// "float32[2, 3] (now float32[2, 4])".
  std::string explain(int slot, PyObject* tensor) const;
  std::string describe(int slot) const;
  /// For another process (saved.h). What is written is not part of it: the program's compilation tells again.
  void write(ArchiveWriter& out) const;
  static TensorTable read(ArchiveReader& in);

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

/// Does a class take torch's functions on its instances into its own hands (__torch_function__ in Python)?
bool overrides_torch(PyObject* object);

}  // namespace bolt::guard
