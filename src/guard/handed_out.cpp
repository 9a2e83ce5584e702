// guard/handed_out.cpp
#include "guard/handed_out.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "python/py_ref.h"

namespace bolt::guard {
namespace {

struct Watched {
  c10::weak_intrusive_ptr<c10::StorageImpl> keeps_address;
  std::shared_ptr<HandedOut> handed_out;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Watched> all;
  size_t most = 64;  ///< then those whose memory is gone are dropped

  std::shared_ptr<HandedOut> get(const c10::Storage& storage) {
    if (all.size() >= most) {
      std::erase_if(all, [](const auto& each) { return each.second.keeps_address.expired(); });
      most = std::max<size_t>(64, 2 * all.size());
    }
    const auto [at, fresh] = all.try_emplace(
        storage.unsafeGetStorageImpl(), Watched{storage.getWeakStorageImpl(), std::make_shared<HandedOut>()});
    return at->second.handed_out;
  }
};

Table& table() {
  static Table* const table = new Table;  // weights may go after statics have
  return *table;
}

/// `for_good`: what was handed out keeps the tensor alive itself, so nothing tells when it goes.
void note(PyObject* object, bool for_good) {
  if (!object || !THPVariable_Check(object)) return;
  const c10::TensorImpl* impl = THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (!impl->has_storage()) return;
  const c10::Storage& storage = impl->unsafe_storage();
  std::lock_guard lock(table().mutex);
  const auto known = table().get(storage);
  if (for_good) known->for_good = true;
  ++known->times;
}

// What is wrapped, and by which of torch's ways of calling C.
enum Function { kNumpy, kPointer, kStorage, kDlpack, kDlpackVersioned, kCount };
PyCFunction originals[kCount];
getter original_data;

PyObject* data(PyObject* self, void* closure) {
  PyObject* out = original_data(self, closure);
  note(self, false);
  return out;
}

constexpr bool keeps(Function f) { return f == kDlpack || f == kDlpackVersioned; }

PyCFunction with_keywords(PyCFunctionWithKeywords f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

PyCFunctionWithKeywords takes_keywords(PyCFunction f) {
  return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(f));
}

template <Function f>
PyObject* of_self(PyObject* self, PyObject* none) {
  PyObject* out = originals[f](self, none);
  note(self, keeps(f));
  return out;
}

template <Function f>
PyObject* of_self_with_keywords(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* out = takes_keywords(originals[f])(self, args, kwargs);
  note(self, keeps(f));
  return out;
}

/// Functions of a module: the tensor is the first argument.
PyObject* first_of(PyObject* args) {
  return PyTuple_Check(args) && PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : args;
}

template <Function f>
PyObject* of_first(PyObject* module, PyObject* args) {
  PyObject* out = originals[f](module, args);
  note(first_of(args), keeps(f));
  return out;
}

template <Function f>
PyObject* of_first_with_keywords(PyObject* module, PyObject* args, PyObject* kwargs) {
  PyObject* out = takes_keywords(originals[f])(module, args, kwargs);
  note(first_of(args), keeps(f));
  return out;
}

/// A definition is what Python reads at every call, so what is put there is called.
void wrap(PyMethodDef* definition, Function f, PyCFunction plain, PyCFunctionWithKeywords keywords) {
  const int flags =
      definition->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL);
  if (flags & METH_FASTCALL) return;
  originals[f] = definition->ml_meth;
  definition->ml_meth = flags & METH_KEYWORDS ? with_keywords(keywords) : plain;
}

template <Function f>
void wrap_method(PyObject* type, const char* name) {
  const PyRef found = PyRef::steal(PyObject_GetAttrString(type, name));
  if (!found || !Py_IS_TYPE(found.get(), &PyMethodDescr_Type)) return PyErr_Clear();
  wrap(reinterpret_cast<PyMethodDescrObject*>(found.get())->d_method, f, of_self<f>,
       of_self_with_keywords<f>);
}

template <Function f>
void wrap_function(PyObject* module, const char* name) {
  const PyRef found = PyRef::steal(PyObject_GetAttrString(module, name));
  if (!found || !PyCFunction_Check(found.get())) return PyErr_Clear();
  wrap(reinterpret_cast<PyCFunctionObject*>(found.get())->m_ml, f, of_first<f>, of_first_with_keywords<f>);
}

}  // namespace

bool may_have_aliases(const c10::TensorImpl& impl, const HandedOut& handed_out) {
  return handed_out.for_good || (handed_out.times > 0 && impl.unsafe_storage().use_count() > 1);
}

const void* counter_of(const c10::VariableVersion& version) {
  static_assert(sizeof(version) == sizeof(const void*));
  if (!version.enabled()) return nullptr;
  const void* counter;
  std::memcpy(&counter, &version, sizeof(counter));
  return counter;
}

std::shared_ptr<HandedOut> watch(const c10::Storage& storage) {
  std::lock_guard lock(table().mutex);
  return table().get(storage);
}

void note_handed_out(const at::Tensor& t) {
  if (!t.has_storage()) return;
  std::lock_guard lock(table().mutex);
  const auto at = table().all.find(t.storage().unsafeGetStorageImpl());
  if (at != table().all.end()) ++at->second.handed_out->times;
}

bool is_borrowed(const c10::StorageImpl& storage) {
  static int nothing;
  static const c10::DeleterFnPtr from_blob =
      c10::InefficientStdFunctionContext::makeDataPtr(&nothing, [](void*) {}, c10::kCPU).get_deleter();
  return storage.data_ptr().get_deleter() == from_blob;
}

bool notice_hand_outs() {
  static bool done = false;
  if (std::exchange(done, true)) return true;
  const PyRef module = PyRef::steal(import_module("torch._C"));
  const PyRef base = PyRef::steal(module ? PyObject_GetAttrString(module.get(), "TensorBase") : nullptr);
  const PyRef getter = PyRef::steal(base ? PyObject_GetAttrString(base.get(), "data") : nullptr);
  if (!getter) return false;
  if (Py_IS_TYPE(getter.get(), &PyGetSetDescr_Type))
    original_data = std::exchange(reinterpret_cast<PyGetSetDescrObject*>(getter.get())->d_getset->get, data);
  wrap_method<kNumpy>(base.get(), "numpy");
  wrap_method<kPointer>(base.get(), "data_ptr");
  wrap_method<kStorage>(base.get(), "untyped_storage");
  wrap_function<kDlpack>(module.get(), "_to_dlpack");
  wrap_function<kDlpackVersioned>(module.get(), "_to_dlpack_versioned");
  return true;
}

}  // namespace bolt::guard
