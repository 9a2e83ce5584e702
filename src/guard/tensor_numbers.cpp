// guard/tensor_numbers.cpp
#include "guard/tensor_numbers.h"

#include <ATen/RedispatchFunctions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <type_traits>

#include "device/host/host.h"
#include "guard/tensors.h"

namespace bolt::guard {
namespace {

/// Plain memory of numbers of up to 64 bits that shows them as they are.
bool is_readable(const c10::TensorImpl& impl) {
  const auto keys = impl.key_set();
  const auto dtype = c10::typeMetaToScalarType(impl.dtype());
  return impl.has_storage() && impl.layout() == c10::kStrided && impl.device_type() != c10::kMeta &&
         impl.unsafe_storage().data() && !keys.has_any(c10::python_ks) &&
         !keys.has(c10::DispatchKey::Negative) && dtype != c10::kUInt64 &&
         (c10::isIntegralType(dtype, true) || c10::isFloatingType(dtype)) && impl.dtype().itemsize() <= 8;
}

/// Of an element, in the order of indices, in elements of the storage.
int64_t offset_of(const c10::TensorImpl& impl, int64_t element) {
  int64_t offset = impl.storage_offset();
  for (int64_t dim = impl.dim() - 1; dim >= 0; --dim) {
    const int64_t size = impl.size(dim);
    offset += element % size * impl.stride(dim);
    element /= size;
  }
  return offset;
}

/// Null: there is no such element.
const std::byte* place_of(const c10::TensorImpl& impl, Py_ssize_t element) {
  if (!is_readable(impl) || element >= impl.numel() || (element == kOnlyElement && impl.numel() != 1))
    return nullptr;
  const auto bytes = static_cast<int64_t>(impl.dtype().itemsize());
  const int64_t at = offset_of(impl, element == kOnlyElement ? 0 : element) * bytes;
  const c10::Storage& storage = impl.unsafe_storage();
  if (at < 0 || at + bytes > static_cast<int64_t>(storage.nbytes())) return nullptr;
  return static_cast<const std::byte*>(storage.data()) + at;
}

template <typename T>
PyObject* python_number(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  if constexpr (std::is_same_v<T, bool>) return PyBool_FromLong(value);
  if constexpr (std::is_integral_v<T>) return PyLong_FromLongLong(static_cast<int64_t>(value));
  return PyFloat_FromDouble(static_cast<double>(value));
}

/// New; null: no number of Python's.
PyObject* number_at(const void* at, c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool: return python_number<bool>(at);
    case c10::kByte: return python_number<uint8_t>(at);
    case c10::kChar: return python_number<int8_t>(at);
    case c10::kShort: return python_number<int16_t>(at);
    case c10::kInt: return python_number<int32_t>(at);
    case c10::kLong: return python_number<int64_t>(at);
    case c10::kHalf: return python_number<c10::Half>(at);
    case c10::kBFloat16: return python_number<c10::BFloat16>(at);
    case c10::kFloat: return python_number<float>(at);
    case c10::kDouble: return python_number<double>(at);
    default: return nullptr;
  }
}

/// Waits for the device. Nobody who listens to operators is told of it.
PyObject* number_elsewhere(const c10::TensorImpl& impl, Py_ssize_t element) {
  const auto dtype = c10::typeMetaToScalarType(impl.dtype());
  const auto one = impl.shallow_copy_and_detach(c10::VariableVersion(0), false);
  one->set_sizes_and_strides(c10::IntArrayRef{}, c10::IntArrayRef{},
                             offset_of(impl, element == kOnlyElement ? 0 : element));
  const c10::DispatchKeySet backend(c10::computeDispatchKey(dtype, c10::kStrided, impl.device()));
  const c10::Scalar value = at::redispatch::_local_scalar_dense(backend, at::Tensor(one));
  if (value.isBoolean()) return PyBool_FromLong(value.toBool());
  return value.isIntegral(false) ? PyLong_FromLongLong(value.toLong()) : PyFloat_FromDouble(value.toDouble());
}

/// `number` (stolen) as one of the class `as`. New.
PyObject* made_one_of(PyObject* number, PyObject* as) {
  const PyRef held = PyRef::steal(number);
  if (!number || !as) return Py_XNewRef(number);
  if (as == reinterpret_cast<PyObject*>(&PyBool_Type)) return PyBool_FromLong(PyObject_IsTrue(number));
  return as == reinterpret_cast<PyObject*>(&PyFloat_Type) ? PyNumber_Float(number) : PyNumber_Long(number);
}

}  // namespace

std::optional<Py_ssize_t> element_of(PyObject* base, PyObject* view, Py_ssize_t element) {
  const c10::TensorImpl &of = *tensor_impl(base), &shown = *tensor_impl(view);
  if (!is_readable(of) || !is_readable(shown) || of.dtype() != shown.dtype() || !of.is_contiguous() ||
      of.unsafe_storage().data() != shown.unsafe_storage().data())
    return std::nullopt;
  const int64_t at = offset_of(shown, element) - of.storage_offset();
  return at >= 0 && at < of.numel() ? std::optional<Py_ssize_t>(at) : std::nullopt;
}

TensorNumber::TensorNumber(PyObject* tensor, Py_ssize_t element, PyObject* as) : element_(element) {
  if (!is_tensor(tensor)) return;
  const c10::TensorImpl& impl = *tensor_impl(tensor);
  const std::byte* place = place_of(impl, element);
  const bool is_here = device::is_on_host(impl);
  if (!place || !(is_here || impl.version_counter().enabled())) return;
  dtype_ = impl.dtype();
  place_ = place;
  if (is_here) {
    std::memcpy(bytes_.data(), place, dtype_.itemsize());
  } else {
    auto handed_out = watch(impl.unsafe_storage());
    const uint64_t times = handed_out->times;
    elsewhere_ = {&impl,
                  impl.version_counter(),
                  impl.unsafe_storage().getWeakStorageImpl(),
                  impl.version_counter().current_version(),
                  std::move(handed_out),
                  times};
  }
  PyObject* number =
      is_here ? number_at(place, c10::typeMetaToScalarType(dtype_)) : number_elsewhere(impl, element);
  number_ = PyRef::steal(made_one_of(number, as));
  if (!number_) PyErr_Clear();  // int(nan)
}

bool TensorNumber::is_in(PyObject* tensor) const {
  if (!number_ || !is_tensor(tensor)) return false;
  const c10::TensorImpl& impl = *tensor_impl(tensor);
  const std::byte* place = place_of(impl, element_);
  if (!place || impl.dtype() != dtype_) return false;
  if (elsewhere_) return place == place_ && is_unwritten(impl);
  return device::is_on_host(impl) && !std::memcmp(place, bytes_.data(), dtype_.itemsize());
}

bool TensorNumber::is_unwritten(const c10::TensorImpl& impl) const {
  const c10::VariableVersion& version = impl.version_counter();
  const HandedOut& handed_out = *elsewhere_->handed_out;
  return &impl == elsewhere_->tensor && version.enabled() &&
         counter_of(version) == counter_of(elsewhere_->version) &&
         version.current_version() == elsewhere_->writes && handed_out.times == elsewhere_->times &&
         !may_have_aliases(impl, handed_out);
}

}  // namespace bolt::guard
