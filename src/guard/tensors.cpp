// guard/tensors.cpp
#include "guard/tensors.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "device/host/host.h"
#include "guard/overlap.h"
#include "guard/tensor_images.h"
#include "python/archive.h"
#include "support/nesting.h"
#include "support/pointer_map.h"
#include "support/short_vector.h"

namespace bolt::guard {
namespace {

using Dims = ShortVector<int64_t, 4>;

Dims dims_of(at::IntArrayRef list) { return {list.begin(), list.end()}; }

struct TensorFacts {
  uint64_t keys = 0;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
  PyTypeObject* type = nullptr;
  bool requires_grad = false;
  bool strided = false;
  bool is_chosen = false;  ///< may be missing
  Dims sizes, strides;
  uint64_t free = 0;       ///< dimensions of any size, and gaps of any length; in `order`
  std::vector<int> order;  ///< dimensions from the innermost
  uint64_t apart = 0;      ///< strides in no order, which must be as they were
  uint64_t gaps = 0;       ///< of those in `order`; where there are none, the tensor is dense
  int shares_with = -1;    ///< an earlier slot with the same storage
  int64_t distance = 0;    ///< storage offset minus that slot's
};

/// Of a class with a __torch_dispatch__ Python may say what its sizes, device or layout are. Guards do not
/// ask it; a program that does runs Python, which a recording sees.
struct Policy : c10::TensorImpl {
  static c10::Device device(const c10::TensorImpl& impl) { return (impl.*&Policy::device_default)(); }
  static bool is_pythons(const c10::TensorImpl& impl) {
    return impl.is_python_dispatch() && (impl.*&Policy::matches_policy)(SizesStridesPolicy::CustomStrides);
  }
};

/// Nested tensors call themselves strided.
bool has_sizes(const c10::TensorImpl& impl) {
  return !impl.has_symbolic_sizes_strides() && !impl.key_set().has(c10::DispatchKey::NestedTensor) &&
         !Policy::is_pythons(impl) && impl.layout() == c10::kStrided;
}

/// What a tensor without strides says of its sizes: -1 where its parts differ, as a nested one's may.
Dims told_sizes(const c10::TensorImpl& impl) {
  const bool is_nested = impl.key_set().has(c10::DispatchKey::NestedTensor);
  if (impl.has_symbolic_sizes_strides() || Policy::is_pythons(impl) ||
      (is_nested && impl.is_python_dispatch()))
    return {};
  if (!is_nested) return dims_of(impl.sizes());
  const auto& nested = static_cast<const at::native::NestedTensorImpl&>(impl);
  Dims sizes;
  for (int64_t d = 0; d < nested.dim(); ++d) sizes.push_back(nested.opt_size(d).value_or(-1));
  return sizes;
}

TensorFacts facts_of(const c10::TensorImpl& impl) {
  TensorFacts facts;
  facts.keys = impl.key_set().raw_repr();
  facts.dtype = c10::typeMetaToScalarType(impl.dtype());
  facts.device = Policy::device(impl);
  facts.requires_grad = impl.requires_grad();
  if (has_sizes(impl)) {
    facts.strided = true;
    facts.sizes = dims_of(impl.sizes());
    facts.strides = dims_of(impl.strides());
  } else {
    facts.sizes = told_sizes(impl);
  }
  return facts;
}

/// With a gap wherever there was one, and nowhere else.
bool lies_in_order(const TensorFacts& facts, at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t run = 1;
  for (int d : facts.order) {
    const int64_t stride = strides[d];
    if (!(facts.gaps >> d & 1)) {
      if (stride != run) return false;
    } else if (stride <= run || (stride != facts.strides[d] && !(facts.free >> (d + kStrideBit) & 1))) {
      return false;
    }
    run = stride * std::max<int64_t>(sizes[d], 1);
  }
  for (size_t d = 0; facts.apart && d < strides.size(); ++d)
    if ((facts.apart >> d & 1) && strides[d] != facts.strides[d]) return false;
  return true;
}

bool matches_freely(const TensorFacts& facts, const c10::TensorImpl& impl) {
  const at::IntArrayRef sizes = impl.sizes();
  if (sizes.size() != facts.sizes.size()) return false;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != facts.sizes[d] && !(facts.free >> d & 1)) return false;
  return lies_in_order(facts, sizes, impl.strides());
}

bool matches(const TensorFacts& facts, const c10::TensorImpl& impl, bool gradients) {
  if (impl.key_set().raw_repr() != facts.keys || Policy::device(impl) != facts.device ||
      c10::typeMetaToScalarType(impl.dtype()) != facts.dtype)
    return false;
  if (gradients && impl.requires_grad() != facts.requires_grad) return false;
  if (!facts.strided) return told_sizes(impl) == facts.sizes;
  if (facts.free) return matches_freely(facts, impl);
  return std::ranges::equal(impl.sizes(), facts.sizes) && std::ranges::equal(impl.strides(), facts.strides);
}

const void* storage_of(const c10::TensorImpl& impl) {
  return impl.has_storage() ? impl.unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

std::string text_of(const TensorFacts& facts) {
  std::ostringstream out;
  out << c10::toString(facts.dtype) << "[";
  for (size_t i = 0; i < facts.sizes.size(); ++i) {
    out << (i ? ", " : "");
    if (facts.free >> i & 1)
      out << "any";
    else
      out << facts.sizes[i];
  }
  out << "]";
  if (!facts.strided) {
    out << " without strides";
  } else if (facts.free) {
    out << (facts.gaps || facts.apart ? " with gaps as they were" : " dense");
  } else {
    out << " strides (";
    for (size_t i = 0; i < facts.strides.size(); ++i) out << (i ? ", " : "") << facts.strides[i];
    out << ")";
  }
  out << " on " << facts.device << (facts.requires_grad ? " requiring grad" : "");
  return out.str();
}

}  // namespace

struct TensorTable::Data {
  std::vector<TensorFacts> facts;
  PointerMap<int> first_of;  ///< slots by storage, as recorded; only asked while recording
  std::vector<int64_t> offsets;
  std::vector<int> sharing;  ///< slots with shares_with >= 0
  Overlap overlap;
  TensorImages images;      ///< of what matched
  bool images_fit = false;  ///< `facts` are those that they were made for

  bool fixed_offsets = false;
  bool gradients = true;  ///< whether it matters who requires them

  /// The first slot whose tensor is not as it should be, or -1.
  int first_unlike(PyObject* const* objects, c10::TensorImpl** impls) {
    int first = -1;
    for (const uint32_t i : images.unlike(objects, impls)) {
      if (facts[i].is_chosen && !objects[i]) continue;
      impls[i] = tensor_impl(objects[i]);  // torch.utils.swap_tensors gives it another one
      if (Py_TYPE(objects[i]) != facts[i].type || !matches(facts[i], *impls[i], gradients))
        first = first < 0 ? static_cast<int>(i) : std::min(first, static_cast<int>(i));
      else if (facts[i].strided && !facts[i].free && !facts[i].is_chosen)
        images.remember(i, objects[i], *impls[i]);
    }
    return first;
  }
};

bool has_numbers(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  if (!device::is_on_host(t) || t.layout() != c10::kStrided || t.unsafeGetTensorImpl()->is_python_dispatch())
    return false;
  switch (t.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte: return !t.is_neg() && !t.is_conj();
    default: return false;
  }
}

bool is_autograd_leaf(PyObject* tensor) { return THPVariable_Unpack(tensor).is_leaf(); }
bool requires_grad(PyObject* tensor) { return tensor_impl(tensor)->requires_grad(); }
bool may_be_given_data(PyObject* tensor, PyObject* other) {
  auto is_plain = [](const at::Tensor& t) {
    return t.layout() == c10::kStrided && t.has_storage() && !t.is_nested() && !t.is_quantized() &&
           !t.is_conj() && !t.is_neg() && !t.is_inference() && !t.unsafeGetTensorImpl()->is_python_dispatch();
  };
  const at::Tensor &a = THPVariable_Unpack(tensor), &b = THPVariable_Unpack(other);
  return is_plain(a) && is_plain(b) && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}
PyObject* base_of(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  return t.is_view() ? THPVariable_Wrap(t._base()) : nullptr;
}
PyObject* tensor_class() { return THPVariableClass; }
bool is_floating(PyObject* tensor) { return at::isFloatingType(THPVariable_Unpack(tensor).scalar_type()); }
bool is_long(PyObject* tensor) { return THPVariable_Unpack(tensor).scalar_type() == at::kLong; }
int64_t version_of(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  return t.is_inference() ? -1 : static_cast<int64_t>(t._version());
}

// Not THPVariable_Check: isinstance() throws where no Python call is left before the recursion limit.
bool is_tensor_subclass(PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  return type && Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE && is_instance_of(object, type);
}

bool is_torch_leaf(PyObject* object) {
  return THPDtype_Check(object) || THPDevice_Check(object) || THPLayout_Check(object) ||
         THPMemoryFormat_Check(object) || THPQScheme_Check(object) || THPSize_Check(object);
}

// The object holds the implementation, which holds the object as long as anything else in C++ holds it.
Py_ssize_t references_to(PyObject* tensor) {
  const auto in_cpp = static_cast<Py_ssize_t>(THPVariable_Unpack(tensor).use_count()) - 1;
  return Py_REFCNT(tensor) - (in_cpp > 0 ? 1 : 0) + in_cpp;
}

c10::TensorImpl* tensor_impl(PyObject* tensor) { return THPVariable_Unpack(tensor).unsafeGetTensorImpl(); }

const void* impl_slot(PyObject* tensor) {
  const char* at = reinterpret_cast<const char*>(&THPVariable_Unpack(tensor));
  const char* object = reinterpret_cast<const char*>(tensor);
  return at > object && at < object + sizeof(THPVariable) ? at : nullptr;
}

bool share_memory(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  if (!a.has_storage() || !b.has_storage()) return false;
  if (a.is_python_dispatch() || b.is_python_dispatch()) return storage_of(a) == storage_of(b);
  const c10::StorageImpl &x = *a.unsafe_storage().unsafeGetStorageImpl(),
                         &y = *b.unsafe_storage().unsafeGetStorageImpl();
  if (&x == &y) return true;
  // Of the memory of one array there may be several.
  const char *from_x = static_cast<const char*>(x.data()), *from_y = static_cast<const char*>(y.data());
  return from_x && from_y && from_x < from_y + y.nbytes() && from_y < from_x + x.nbytes();
}

bool owns_storage(PyObject* tensor) {
  const c10::TensorImpl& impl = *tensor_impl(tensor);
  if (!impl.has_storage() || impl.is_python_dispatch()) return false;
  const c10::Storage& storage = impl.unsafe_storage();
  const size_t bytes = static_cast<size_t>(impl.numel()) * impl.dtype().itemsize();
  // Once Python has seen the storage its object lives as long as that, held by nothing else.
  const bool unseen = storage.use_count() == 1;
  const bool seen =
      storage.use_count() == 2 && storage.unsafeGetStorageImpl()->pyobj_slot()->has_unique_reference();
  return (unseen || seen) && storage.nbytes() == bytes;
}

bool sees_operators(PyObject* tensor) { return tensor_impl(tensor)->is_python_dispatch(); }

int64_t size_of(const c10::TensorImpl& tensor, int dim) {
  return dim < kStrideBit ? tensor.size(dim) : tensor.stride(dim - kStrideBit);
}

int rank_of(const c10::TensorImpl& tensor) { return static_cast<int>(tensor.dim()); }

int64_t elements_of(PyObject* tensor) { return tensor_impl(tensor)->numel(); }
bool is_mask(const c10::TensorImpl& tensor) {
  return tensor.dtype() == caffe2::TypeMeta::Make<bool>() ||
         tensor.dtype() == caffe2::TypeMeta::Make<uint8_t>();
}

PyObject* make_torch_size(PyObject* sizes) {
  return PyObject_CallOneArg(reinterpret_cast<PyObject*>(&THPSizeType), sizes);
}

bool is_torch_size(PyObject* object) { return THPSize_Check(object); }

PyObject* tensor_grad(PyObject* tensor) {
  const at::Tensor& grad = tensor_impl(tensor)->grad();  // Tensor::grad() warns where it is no leaf's
  if (!grad.defined()) return nullptr;
  PyObject* wrapped = THPVariable_Wrap(grad);  // the tensor keeps it alive
  Py_DECREF(wrapped);
  return wrapped;
}

TensorTable::TensorTable() : data_(std::make_unique<Data>()) {}
TensorTable::TensorTable(TensorTable&&) noexcept = default;
TensorTable::~TensorTable() = default;

int TensorTable::add(PyObject* tensor) {
  const c10::TensorImpl& impl = *tensor_impl(tensor);
  TensorFacts facts = facts_of(impl);
  facts.type = Py_TYPE(tensor);
  const void* storage = Policy::is_pythons(impl) ? nullptr : storage_of(impl);
  int slot = static_cast<int>(data_->facts.size());
  int64_t offset = storage ? impl.storage_offset() : 0;
  if (storage) {
    if (const int* first = data_->first_of.find(storage)) {
      facts.shares_with = *first;
      facts.distance = offset - data_->offsets[*first];
      data_->sharing.push_back(slot);
    } else {
      data_->first_of[storage] = slot;
    }
  }
  data_->images_fit = false;
  data_->facts.push_back(std::move(facts));
  data_->offsets.push_back(offset);
  return slot;
}

bool TensorTable::set_free(int slot, uint64_t dims) {
  TensorFacts& facts = data_->facts[slot];
  auto nesting = nesting_of(facts.sizes, facts.strides);
  if (!nesting) return false;
  facts.order = std::move(nesting->order);
  facts.gaps = nesting->gaps, facts.apart = nesting->apart;
  facts.free = dims;
  data_->images_fit = false;
  return true;
}

void TensorTable::set_chosen(int slot) { data_->facts[slot].is_chosen = true; }

std::optional<uint64_t> TensorTable::size_differences(int slot, PyObject* tensor) const {
  const TensorFacts& facts = data_->facts[slot];
  const c10::TensorImpl& impl = *tensor_impl(tensor);
  const TensorFacts now = facts_of(impl);
  if (now.keys != facts.keys || now.dtype != facts.dtype || now.device != facts.device ||
      (data_->gradients && now.requires_grad != facts.requires_grad) ||
      now.sizes.size() != facts.sizes.size())
    return std::nullopt;
  if (!facts.strided) return now.sizes == facts.sizes ? std::optional<uint64_t>(0) : std::nullopt;
  uint64_t differ = 0;
  const auto nesting = nesting_of(now.sizes, now.strides);
  const uint64_t gaps = nesting ? nesting->gaps : 0;
  for (size_t d = 0; d < now.sizes.size() && d < kStrideBit; ++d) {
    if (now.sizes[d] != facts.sizes[d]) differ |= uint64_t{1} << d;
    if ((gaps >> d & 1) && now.strides[d] != facts.strides[d]) differ |= uint64_t{1} << (d + kStrideBit);
  }
  return differ;
}

void TensorTable::ignore_gradients() {
  data_->gradients = false;
  for (TensorFacts& facts : data_->facts) facts.requires_grad = false;
  data_->images_fit = false;
}

void TensorTable::fix_offsets() { data_->fixed_offsets = true; }

void TensorTable::forget_sharing(const std::vector<bool>& matters) {
  std::erase_if(data_->sharing, [&](int slot) {
    TensorFacts& facts = data_->facts[slot];
    if (matters[slot] || matters[facts.shares_with]) return false;
    facts.shares_with = -1;
    facts.distance = 0;
    return true;
  });
}

bool TensorTable::any_share() const { return !data_->sharing.empty(); }

size_t TensorTable::size() const { return data_->facts.size(); }

int TensorTable::first_difference(PyObject* const* objects, c10::TensorImpl** impls, bool all_found) const {
  Data& data = *data_;
  if (!data.images_fit) data.images.reset(data.facts.size(), data.gradients);
  data.images_fit = true;
  if (const int unlike = data.first_unlike(objects, impls); unlike >= 0) return unlike;
  if (!all_found) return -1;
  for (size_t i = 0; data.fixed_offsets && i < data.facts.size(); ++i)
    if (has_sizes(*impls[i]) && impls[i]->storage_offset() != data.offsets[i]) return static_cast<int>(i);
  for (int slot : data.sharing) {
    const TensorFacts& facts = data.facts[slot];
    const c10::TensorImpl &a = *impls[slot], &b = *impls[facts.shares_with];
    if (storage_of(a) != storage_of(b) || a.storage_offset() - b.storage_offset() != facts.distance)
      return slot;
  }
  return data.overlap.find(impls);
}

void TensorTable::forbid_new_overlap(const std::vector<int>& written_slots) {
  std::vector<uint32_t> family;
  for (size_t slot = 0; slot < data_->facts.size(); ++slot) {
    const int first = data_->facts[slot].shares_with;
    family.push_back(static_cast<uint32_t>(first >= 0 ? first : static_cast<int>(slot)));
  }
  data_->overlap.expect(std::move(family), written_slots);
}

std::string TensorTable::explain(int slot, PyObject* tensor) const {
  TensorFacts now = facts_of(*tensor_impl(tensor));
  now.requires_grad &= data_->gradients;
  std::string offset;
  if (data_->fixed_offsets) offset = " at element " + std::to_string(tensor_impl(tensor)->storage_offset());
  return describe(slot) + " (now " + text_of(now) + offset + ")";
}

std::string TensorTable::describe(int slot) const {
  const TensorFacts& facts = data_->facts[slot];
  std::string text = text_of(facts);
  if (data_->fixed_offsets) text += " at element " + std::to_string(data_->offsets[slot]);
  if (facts.shares_with >= 0) text += ", sharing memory with input " + std::to_string(facts.shares_with);
  return text;
}

void TensorTable::write(ArchiveWriter& out) const {
  out.number(data_->fixed_offsets);
  out.number(data_->gradients);
  out.integers(data_->offsets);
  out.integers(data_->sharing);
  out.list(data_->facts, [&](const TensorFacts& f) {
    out.number(static_cast<int64_t>(f.keys));
    out.number(static_cast<int64_t>(f.dtype));
    out.number(static_cast<int64_t>(f.device.type()));
    out.number(f.device.index());
    out.object(reinterpret_cast<PyObject*>(f.type));
    for (bool b : {f.requires_grad, f.strided, f.is_chosen}) out.number(b);
    out.integers(f.sizes);
    out.integers(f.strides);
    out.integers(f.order);
    for (uint64_t bits : {f.free, f.apart, f.gaps}) out.number(static_cast<int64_t>(bits));
    out.number(f.shares_with);
    out.number(f.distance);
  });
}

TensorTable TensorTable::read(ArchiveReader& in) {
  TensorTable table;
  Data& data = *table.data_;
  data.fixed_offsets = in.number() != 0;
  data.gradients = in.number() != 0;
  data.offsets = in.integers<std::vector<int64_t>>();
  data.sharing = in.integers<std::vector<int>>();
  in.list([&] {
    TensorFacts& f = data.facts.emplace_back();
    f.keys = in.as<uint64_t>();
    f.dtype = static_cast<at::ScalarType>(in.below(static_cast<size_t>(at::ScalarType::NumOptions)));
    const auto device = in.as<c10::DeviceType>();
    f.device = c10::Device(device, in.as<c10::DeviceIndex>());
    const PyRef type = in.object();
    if (!type || !PyType_Check(type.get())) ArchiveReader::fail();
    f.type = reinterpret_cast<PyTypeObject*>(type.get());  // pinned by the tree
    for (bool* flag : {&f.requires_grad, &f.strided, &f.is_chosen}) *flag = in.number() != 0;
    f.sizes = in.integers<Dims>();
    f.strides = in.integers<Dims>();
    f.order = in.integers<std::vector<int>>();
    for (uint64_t* bits : {&f.free, &f.apart, &f.gaps}) *bits = in.as<uint64_t>();
    f.shares_with = static_cast<int>(in.number());
    f.distance = in.number();
    if (f.shares_with >= static_cast<int>(data.facts.size())) ArchiveReader::fail();
  });
  if (data.offsets.size() != data.facts.size()) ArchiveReader::fail();
  for (int slot : data.sharing)
    if (slot < 0 || slot >= static_cast<int>(data.facts.size()) || data.facts[slot].shares_with < 0)
      ArchiveReader::fail();
  return table;
}

bool overrides_torch(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const bool plain =
      reinterpret_cast<PyObject*>(type) == THPVariableClass || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
  if (plain) return false;
  static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
  static PyObject* const disabled = [] {
    PyObject* module = import_module("torch._C");
    PyObject* found = module ? PyObject_GetAttrString(module, "_disabled_torch_function_impl") : nullptr;
    Py_XDECREF(module);
    if (!found) PyErr_Clear();
    return found;
  }();
  PyObject* found = _PyType_Lookup(type, name);
  return found && found != disabled;
}

}  // namespace bolt::guard
