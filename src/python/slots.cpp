// python/slots.cpp
#include "python/slots.h"

#include <cstddef>
#include <string>

namespace bolt {

PythonSlots python_slots{};
SpecialNames names_of{};

namespace {

Py_ssize_t property_get_offset = -1;
Py_ssize_t property_set_offset = -1;

/// A class that defines every special method in Python, and one each for the two ways of reading attributes.
const char* const kProbeSource = R"(
def _f(*args): pass
_names = '''add and floordiv lshift matmul mul mod or pow rshift sub truediv xor'''.split()
_d = {'__%s__' % n: _f for n in '''neg pos invert bool len getitem setitem delitem contains lt le eq ne gt ge getattr
setattr delattr get set delete iter next call init new str repr await aiter anext'''.split()}
for _n in _names:
    _d['__%s__' % _n] = _d['__r%s__' % _n] = _d['__i%s__' % _n] = _f
_d['__hash__'] = None
Probe = type('Probe', (), _d)
ReadProbe = type('ReadProbe', (), {'__getattribute__': _f})
)";

struct MemberOffset {
  const char* name;
  Py_ssize_t* offset;
};

void find_property_members() {
  const MemberOffset wanted[] = {{"fget", &property_get_offset}, {"fset", &property_set_offset}};
  for (PyMemberDef* member = PyProperty_Type.tp_members; member && member->name; ++member) {
    for (const MemberOffset& want : wanted) {
      if (std::string(member->name) == want.name) *want.offset = member->offset;
    }
  }
}

void read_slots(PyTypeObject* probe, PyTypeObject* read_probe) {
  PyNumberMethods* number = probe->tp_as_number;
#define BINARY(name, cpython_name, index, stem, function, slot, symbol)                                  \
  python_slots.binary[index] = reinterpret_cast<binaryfunc>(reinterpret_cast<void*>(number->nb_##slot)); \
  python_slots.inplace[index] =                                                                          \
      reinterpret_cast<binaryfunc>(reinterpret_cast<void*>(number->nb_inplace_##slot));
#include "python/binary_ops.def"
#undef BINARY
  python_slots.negative = number->nb_negative;
  python_slots.positive = number->nb_positive;
  python_slots.invert = number->nb_invert;
  python_slots.boolean = number->nb_bool;
  python_slots.length = probe->tp_as_mapping->mp_length;
  python_slots.get_item = probe->tp_as_mapping->mp_subscript;
  python_slots.set_item = probe->tp_as_mapping->mp_ass_subscript;
  python_slots.contains = probe->tp_as_sequence->sq_contains;
  python_slots.compare = probe->tp_richcompare;
  python_slots.get_attr_hook = probe->tp_getattro;
  python_slots.get_attr = read_probe->tp_getattro;
  python_slots.set_attr = probe->tp_setattro;
  python_slots.descr_get = probe->tp_descr_get;
  python_slots.descr_set = probe->tp_descr_set;
  python_slots.iter = probe->tp_iter;
  python_slots.next = probe->tp_iternext;
  python_slots.call = probe->tp_call;
  python_slots.init = probe->tp_init;
  python_slots.make = probe->tp_new;
  python_slots.dealloc = probe->tp_dealloc;
  python_slots.str = probe->tp_str;
  python_slots.repr = probe->tp_repr;
  python_slots.await = probe->tp_as_async->am_await;
  python_slots.async_iter = probe->tp_as_async->am_aiter;
  python_slots.async_next = probe->tp_as_async->am_anext;
  python_slots.property_get = PyProperty_Type.tp_descr_get;
  python_slots.property_set = PyProperty_Type.tp_descr_set;
}

int init_slots() {
  PyObject* globals = PyDict_New();
  PyObject* done = globals ? PyRun_String(kProbeSource, Py_file_input, globals, globals) : nullptr;
  PyObject* probe = done ? PyDict_GetItemString(globals, "Probe") : nullptr;
  PyObject* read_probe = done ? PyDict_GetItemString(globals, "ReadProbe") : nullptr;
  if (probe && read_probe) {
    // A class keeps the hook until the first read shows that there is no `__getattr__`.
    Py_XDECREF(PyObject_GetAttrString(read_probe, "__name__"));
    PyTypeObject* read_type = reinterpret_cast<PyTypeObject*>(read_probe);
    PyObject* instance = read_type->tp_alloc(read_type, 0);
    if (instance) Py_XDECREF(PyObject_GetAttrString(instance, "anything"));
    Py_XDECREF(instance);
    read_slots(reinterpret_cast<PyTypeObject*>(probe), read_type);
    find_property_members();
  }
  const bool ok = probe && read_probe;
  Py_XDECREF(done);
  Py_XDECREF(globals);
  return ok ? 0 : -1;
}

PyObject* special_name(const std::string& stem) {
  return PyUnicode_InternFromString(("__" + stem + "__").c_str());
}

int init_names() {
#define SPECIAL(name) names_of.name##_ = special_name(#name);
#include "python/special_names.def"
#undef SPECIAL
#define BINARY(name, cpython_name, index, stem, function, slot, symbol) \
  names_of.binary[index] = special_name(#stem);                         \
  names_of.reflected[index] = special_name("r" #stem);                  \
  names_of.inplace[index] = special_name("i" #stem);
#include "python/binary_ops.def"
#undef BINARY
  const char* const comparisons[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  for (int op = Py_LT; op <= Py_GE; ++op) names_of.compare[op] = special_name(comparisons[op]);
  return PyErr_Occurred() ? -1 : 0;
}

PyObject* member_at(PyObject* object, Py_ssize_t offset) {
  return offset < 0 ? nullptr : *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

}  // namespace

int init_special() {
  if (names_of.len_) return 0;
  return init_names() < 0 ? -1 : init_slots();
}

PyObject* lookup_special(PyObject* self, PyObject* name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(self), name);
  descrgetfunc get = found ? Py_TYPE(found)->tp_descr_get : nullptr;
  return get ? get(found, self, reinterpret_cast<PyObject*>(Py_TYPE(self))) : Py_XNewRef(found);
}

PyObject* property_getter(PyObject* descriptor) {
  if (Py_TYPE(descriptor)->tp_descr_get != python_slots.property_get) return nullptr;
  PyObject* function = member_at(descriptor, property_get_offset);
  return function && PyFunction_Check(function) ? function : nullptr;
}

PyObject* property_setter(PyObject* descriptor) {
  if (Py_TYPE(descriptor)->tp_descr_set != python_slots.property_set) return nullptr;
  PyObject* function = member_at(descriptor, property_set_offset);
  return function && PyFunction_Check(function) ? function : nullptr;
}

bool getter_is_python(PyObject* descriptor) {
  descrgetfunc get = Py_TYPE(descriptor)->tp_descr_get;
  if (!get) return false;
  if (get == python_slots.property_get) return property_getter(descriptor) != nullptr;
  return get == python_slots.descr_get;
}

}  // namespace bolt
