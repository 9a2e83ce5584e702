// observe/calls/cfunctions.cpp
#include "observe/calls/cfunctions.h"

#include <cstring>
#include <memory>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "python/compat.h"
#include "python/slots.h"
#include "support/pointer_map.h"

namespace bolt::observe {
namespace {

using Table = std::unordered_map<std::string, CFunction>;

void add(Table& table, const std::string& owner, Kind kind, int traits, const char* names) {
  std::istringstream in(names);
  for (std::string name; in >> name;) {
    CFunction row;
    row.kind = kind;
    row.traits = static_cast<uint32_t>(traits);
    table[owner + "." + name] = row;
  }
}

const Table& table() {
  static const Table rows = [] {
    using namespace Trait;
    Table made;
#define CF(owner, kind, names) add(made, owner, Kind::kind, 0, names);
#define CF_IS(owner, kind, traits, names) add(made, owner, Kind::kind, traits, names);
#include "observe/calls/cfunctions.def"
#undef CF
#undef CF_IS
    return made;
  }();
  return rows;
}

CFunction look_up(const std::string& owner, const std::string& method) {
  auto at = table().find(owner + "." + method);
  if (at == table().end()) at = table().find(owner + "." + method.substr(0, method.rfind('.')) + ".*");
  if (at == table().end()) at = table().find(owner + ".*");
  if (at == table().end()) at = table().find(owner.substr(0, owner.rfind('.')) + ".*.*");
  CFunction row = at == table().end() ? CFunction() : at->second;
  row.method = method;
  row.name = owner == "class" ? method : owner + "." + method;
  if (row.kind == Kind::special) row.handler = handler_of(row.name);
  constexpr uint32_t kOfResults = Trait::ignores_sizes | Trait::tells_offset | Trait::is_operator;
  // Of normalisations it is looked at whether a number is given in a tensor of the model's.
  row.plain_operator =
      row.kind == Kind::tensor && !row.is(~kOfResults) && !std::string_view(row.method).ends_with("_norm");
  return row;
}

using Remembered = PointerMap<std::unique_ptr<const CFunction>>;
Remembered& remembered_rows() {
  static auto* rows = new Remembered();
  return *rows;
}

/// Rows are looked up by name once per function: `owner` gives the first part of it.
template <class Owner>
const CFunction& remembered(const void* identity, Owner owner, const char* method) {
  if (const auto* row = remembered_rows().find(identity)) return **row;
  auto row = std::make_unique<const CFunction>(look_up(owner(), method));
  return *(remembered_rows()[identity] = std::move(row));
}
const CFunction& remembered(const void* identity, const char* owner, const char* method) {
  return remembered(identity, [&] { return std::string(owner); }, method);
}

/// The class whose method descriptor is `method`, of those on the mro. By identity: a subclass may have an
/// attribute of that name of its own (`super().get(k)`), or that very descriptor (torch.autograd.Function
/// since torch 2.14).
PyTypeObject* defining_class(PyTypeObject* type, PyMethodDef* method) {
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* descriptor = PyDict_GetItemString(type_dict(base), method->ml_name);
    bool is_method = descriptor && (Py_IS_TYPE(descriptor, &PyMethodDescr_Type) ||
                                    Py_IS_TYPE(descriptor, &PyClassMethodDescr_Type));
    if (is_method && reinterpret_cast<PyMethodDescrObject*>(descriptor)->d_method == method)
      return PyDescr_TYPE(descriptor);
  }
  return nullptr;
}

/// Whether what a function is bound to is no argument: its module, or a record that pybind11 binds its own
/// to.
bool is_record(PyObject* bound) {
  return is_module(bound) || PyCapsule_CheckExact(bound) ||
         std::strncmp(Py_TYPE(bound)->tp_name, "pybind11_", 9) == 0;
}

/// A class method's is no argument either. Which methods are a metaclass's is looked up once: torch's
/// operators are bound to a class.
PyObject* bound_argument(PyCFunctionObject* function) {
  PyObject* bound = function->m_self;
  if (!bound) return nullptr;
  if (!PyType_Check(bound)) return is_record(bound) ? nullptr : bound;
  static auto* of_metaclass = new PointerMap<bool>();
  const bool* known = of_metaclass->find(function->m_ml);
  if (!known)
    known = &((*of_metaclass)[function->m_ml] =
                  !is_record(bound) && defining_class(Py_TYPE(bound), function->m_ml));
  return *known ? bound : nullptr;
}

std::string builtin_owner(PyCFunctionObject* function) {
  PyObject* bound = function->m_self;
  if (bound && is_module(bound)) {
    const char* name = module_name(bound);
    return name ? name : "";
  }
  if (!bound || is_record(bound))
    return function->m_module && PyUnicode_Check(function->m_module) ? PyUnicode_AsUTF8(function->m_module)
                                                                     : "";
  if (PyTypeObject* owner = defining_class(Py_TYPE(bound), function->m_ml)) return owner->tp_name;
  if (!PyType_Check(bound)) return Py_TYPE(bound)->tp_name;
  auto* cls = reinterpret_cast<PyTypeObject*>(bound);
  PyTypeObject* owner = defining_class(cls, function->m_ml);
  return (owner ? owner : cls)->tp_name;
}

}  // namespace

bool CFunction::goes_through(size_t index, size_t nargs) const {
  using namespace Trait;
  // dict(a=x) keeps x, as zip_longest(fillvalue=x) does.
  if ((is(pairs) || is(through_all)) && index >= nargs) return false;
  return is(through_all) || (index == 0 && (is(through_first) || (is(through_only) && nargs == 1))) ||
         (index == 1 && is(through_second));
}

bool is_bound_method(PyObject* object) {
  if (Py_IS_TYPE(object, &_PyMethodWrapper_Type)) return true;
  return is_builtin_function(object) && bound_argument(reinterpret_cast<PyCFunctionObject*>(object));
}

Native find_cfunction(PyObject* callable) {
  PyTypeObject* type = Py_TYPE(callable);
  auto found = [&](const CFunction& row, PyObject* self = nullptr) { return Native{callable, &row, self}; };
  if (is_builtin_function(callable)) {
    auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
    auto owner = [&] { return builtin_owner(function); };
    // CPython has one method for the __new__ of all classes; only what it is bound to tells them apart.
    const bool makes = function->m_self && PyType_Check(function->m_self) &&
                       std::strcmp(function->m_ml->ml_name, "__new__") == 0;
    const void* identity = function->m_ml;
    if (makes) identity = reinterpret_cast<const char*>(function->m_self) + 2;
    return found(remembered(identity, owner, function->m_ml->ml_name), bound_argument(function));
  }
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type) {
    auto* descriptor = reinterpret_cast<PyMethodDescrObject*>(callable);
    return found(
        remembered(descriptor->d_method, PyDescr_TYPE(callable)->tp_name, descriptor->d_method->ml_name));
  }
  if (type == &PyWrapperDescr_Type)
    return found(
        remembered(callable, PyDescr_TYPE(callable)->tp_name, PyUnicode_AsUTF8(PyDescr_NAME(callable))));
  if (type == &_PyMethodWrapper_Type) {
    auto* wrapper = reinterpret_cast<WrapperObject*>(callable);
    PyObject* descriptor = reinterpret_cast<PyObject*>(wrapper->descr);
    return found(
        remembered(descriptor, PyDescr_TYPE(descriptor)->tp_name, PyUnicode_AsUTF8(PyDescr_NAME(descriptor))),
        wrapper->self);
  }
  if (PyType_Check(callable)) {
    // A Python class that leaves making to a native base.
    auto* cls = reinterpret_cast<PyTypeObject*>(callable);
    while (is_heap_type(cls) && cls->tp_base && cls->tp_new == cls->tp_base->tp_new &&
           cls->tp_init == cls->tp_base->tp_init)
      cls = cls->tp_base;
    // Exceptions only keep their arguments; groups go through what they are of.
    if (PyExceptionClass_Check(cls) && !is_heap_type(cls)) {
      const bool group = PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
      return group ? found(remembered(cls, cls->tp_name, "__new__"))
                   : found(remembered(PyExc_BaseException, "BaseException", "__new__"));
    }
    return found(remembered(cls, "class", cls->tp_name));
  }
  // Not under the type's own address: that is the row of calling the class.
  return found(remembered(reinterpret_cast<const char*>(type) + 1, "call", type->tp_name), callable);
}

TensorAttribute tensor_attribute(const char* name) {
  static const std::unordered_set<std::string> described = {
      "shape",     "dtype",        "device",    "layout",    "ndim",    "requires_grad", "is_leaf",
      "itemsize",  "nbytes",       "is_cuda",   "is_cpu",    "is_xla",  "is_mps",        "is_xpu",
      "is_hpu",    "is_ipu",       "is_mtia",   "is_maia",   "is_meta", "is_sparse",     "is_sparse_csr",
      "is_mkldnn", "is_quantized", "is_nested", "is_vulkan", "is_ort",  "__class__"};
  static const std::unordered_set<std::string> computed = {"T", "mT", "H", "mH", "real", "imag"};
  if (described.count(name)) return TensorAttribute::described;
  return computed.count(name) ? TensorAttribute::computed : TensorAttribute::unknown;
}

}  // namespace bolt::observe
