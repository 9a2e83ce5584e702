// observe/rebuild/recipe.cpp
#include "observe/rebuild/recipe.h"

#include <cstddef>

#include "guard/iterators.h"
#include "guard/leaf.h"
#include "guard/source.h"
#include "guard/tensors.h"
#include "interp/async_generator.h"
#include "interp/call_site.h"
#include "interp/generator.h"

namespace bolt::observe {
namespace {

/// The values made so far.
struct Kitchen {
  const Recipe& recipe;
  const std::vector<PyRef>& objects;
  PyObject* const* tensors;
  const std::vector<PyRef>& numbers;
  std::vector<PyRef>& values;

  PyObject* at(int value) const { return value < 0 ? nullptr : values[value].get(); }

  PyObject* tuple_of(const std::vector<int>& parts, size_t from = 0) const {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(parts.size() - from));
    for (size_t i = from; tuple && i < parts.size(); ++i)
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i - from), Py_NewRef(at(parts[i])));
    return tuple;
  }

  PyObject* list_of(const std::vector<int>& parts) const {
    PyRef tuple = PyRef::steal(tuple_of(parts));
    return tuple ? PySequence_List(tuple.get()) : nullptr;
  }

  /// A bare instance of a built-in type's subclass: the built-in's own __new__, no user code.
  static PyObject* bare(PyObject* cls, PyTypeObject* base, PyObject* args) {
    PyRef none = PyRef::steal(args ? Py_NewRef(args) : PyTuple_New(0));
    return none ? base->tp_new(reinterpret_cast<PyTypeObject*>(cls), none.get(), nullptr) : nullptr;
  }

  static PyTypeObject* dict_base(PyObject* cls) {
    bool ordered = PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), &PyODict_Type);
    return ordered ? &PyODict_Type
           : reinterpret_cast<PyTypeObject*>(cls)->tp_new == PyDict_Type.tp_new
               ? &PyDict_Type
               : reinterpret_cast<PyTypeObject*>(cls);
  }

  PyObject* make_tuple(const MakeStep& step) const {
    PyRef plain = PyRef::steal(tuple_of(step.parts));
    if (!plain || !step.object) return plain.release();
    auto* cls = reinterpret_cast<PyTypeObject*>(step.object.get());
    PyRef args = PyRef::steal(PyTuple_Pack(1, plain.get()));
    if (!args) return nullptr;
    // Not through a `__new__` in Python: a namedtuple's takes the items one by one, others take what they
    // like.
    PyTypeObject* base = cls;
    while (base->tp_flags & Py_TPFLAGS_HEAPTYPE) base = base->tp_base;
    const bool python_class = base == &PyTuple_Type && cls != base && cls->tp_new != PyTuple_Type.tp_new;
    return python_class ? PyTuple_Type.tp_new(cls, args.get(), nullptr)
                        : cls->tp_new(cls, args.get(), nullptr);
  }

  static PyObject* deque_type() {
    static PyTypeObject* const type = native_type("collections", "deque");
    return reinterpret_cast<PyObject*>(type);
  }

  PyObject* make_deque(const MakeStep& step) const {
    PyRef items = PyRef::steal(list_of(step.parts));
    PyObject* native = deque_type();
    if (!native || !items) return nullptr;
    // A class in Python may have an __init__ of its own.
    PyObject* cls = step.object ? step.object.get() : native;
    PyRef made = PyRef::steal(bare(cls, reinterpret_cast<PyTypeObject*>(native), nullptr));
    PyRef limit = step.number < 0 ? PyRef::share(Py_None) : PyRef::steal(PyLong_FromSsize_t(step.number));
    PyRef done = PyRef::steal(
        made ? PyObject_CallMethod(native, "__init__", "OOO", made.get(), items.get(), limit.get())
             : nullptr);
    return done ? made.release() : nullptr;
  }

  PyObject* make_function(const MakeStep& step) const {
    PyObject* made = PyFunction_NewWithQualName(at(step.parts[0]), at(step.parts[1]), at(step.parts[3]));
    if (!made) return nullptr;
    auto* function = reinterpret_cast<PyFunctionObject*>(made);
    Py_XSETREF(function->func_name, Py_NewRef(at(step.parts[2])));
    if (at(step.parts[4])) PyFunction_SetClosure(made, at(step.parts[4]));
    return made;
  }

  PyObject* make_partial(const MakeStep& step) const {
    PyRef args = PyRef::steal(
        PySequence_Concat(PyRef::steal(PyTuple_Pack(1, at(step.parts[0]))).get(), at(step.parts[1])));
    return args ? PyObject_Call(step.object.get(), args.get(), at(step.parts[2])) : nullptr;
  }

  /// Of C's own __new__, which keeps the arguments; what __init__ made of them is filled in.
  PyObject* make_exception(const MakeStep& step) const {
    auto* cls = reinterpret_cast<PyTypeObject*>(step.object.get());
    PyTypeObject* native = cls;
    while (native->tp_flags & Py_TPFLAGS_HEAPTYPE) native = native->tp_base;
    PyObject* made = native->tp_new(cls, at(step.parts[0]), nullptr);
    if (!made) return nullptr;
    auto* exception = reinterpret_cast<PyBaseExceptionObject*>(made);
    exception->suppress_context = step.number != 0;
    Py_XSETREF(exception->args, Py_NewRef(at(step.parts[0])));  // MemoryError leaves them to its __init__
    return made;
  }

  /// The frames it names ran in a call long over: others stand for them, with the same code and line.
  PyObject* make_traceback(const MakeStep& step) const {
    auto* code = reinterpret_cast<PyCodeObject*>(step.object.get());
    PyRef frame = PyRef::steal(
        reinterpret_cast<PyObject*>(PyFrame_New(PyThreadState_Get(), code, at(step.parts[0]), nullptr)));
    PyObject* next = at(step.parts[1]);
    return frame ? PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyTraceBack_Type), "OOii",
                                         next ? next : Py_None, frame.get(),
                                         static_cast<int>(step.number >> 32),
                                         static_cast<int>(step.number & 0x7fffffff))
                 : nullptr;
  }

  PyObject* make_generator(const MakeStep& step) const {
    if (PyObject* function = at(step.parts[0])) return interp::make_bare_generator(function);
    PyRef globals = PyRef::steal(PyDict_New());
    PyRef function = PyRef::steal(globals ? PyFunction_New(step.object.get(), globals.get()) : nullptr);
    if (!function) return nullptr;
    // One that is over has let go of everything; making it takes the cells that its code asks for.
    if (const int cells = reinterpret_cast<PyCodeObject*>(step.object.get())->co_nfreevars) {
      PyRef closure = PyRef::steal(PyTuple_New(cells));
      for (int i = 0; closure && i < cells; ++i) PyTuple_SET_ITEM(closure.get(), i, PyCell_New(nullptr));
      if (!closure || PyFunction_SetClosure(function.get(), closure.get()) < 0) return nullptr;
    }
    return interp::make_bare_generator(function.get());
  }

  /// An output is nobody else's, so its class can be changed: where it is a leaf of autograd's graph, another
  /// object on its memory would not be.
  PyObject* make_tensor(const MakeStep& step) const {
    PyObject *tensor = tensors[step.number], *cls = step.object.get();
    if (tensor && cls && PyObject_SetAttrString(tensor, "__class__", cls) < 0) return nullptr;
    return Py_XNewRef(tensor);
  }

  PyObject* join(const MakeStep& step) const {
    PyRef nothing = PyRef::steal(PyUnicode_FromString(""));
    PyRef parts = PyRef::steal(tuple_of(step.parts));
    return nothing && parts ? PyUnicode_Join(nothing.get(), parts.get()) : nullptr;
  }

  void set_generator(PyObject* generator, Py_ssize_t index) const {
    const GeneratorRecipe& made = recipe.generators[index];
    interp::GeneratorState state;
    state.frame_state = made.frame_state;
    state.asked = made.asked;
    state.closed = made.closed;
    state.running = made.running;
    state.pc = made.pc;
    state.handled = at(made.handled);
    for (int value : made.locals) state.locals.push_back(at(value));
    for (int value : made.stack) state.stack.push_back(at(value));
    interp::set_generator_state(generator, state);
  }

  bool call(const EffectStep& step) const {
    std::vector<interp::Standing> callers;
    for (const auto& [function, pc] : recipe.call_sites[step.number]) callers.emplace_back(at(function), pc);
    std::vector<PyObject*> args;
    for (int part : step.parts) args.push_back(at(part));
    PyObject* names = at(step.key);
    const size_t named = names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0;
    return static_cast<bool>(
        PyRef::steal(interp::call_from(callers, at(step.target), args.data(), args.size() - named, names)));
  }

  PyObject* make(const MakeStep& step) const {
    PyObject* cls = step.object.get();
    switch (step.make) {
      case Make::constant: return Py_NewRef(cls);
      case Make::source: return Py_XNewRef(objects[step.number].get());
      case Make::tensor: return make_tensor(step);
      case Make::number: return Py_NewRef(numbers[step.number].get());
      case Make::tuple: return make_tuple(step);
      case Make::list: return cls ? bare(cls, &PyList_Type, nullptr) : PyList_New(0);
      case Make::dict: return cls ? bare(cls, dict_base(cls), nullptr) : PyDict_New();
      case Make::set: return cls ? bare(cls, &PySet_Type, nullptr) : PySet_New(nullptr);
      case Make::frozenset: {
        PyRef items = PyRef::steal(tuple_of(step.parts));
        return items ? PyFrozenSet_New(items.get()) : nullptr;
      }
      case Make::deque: return make_deque(step);
      case Make::slice: return PySlice_New(at(step.parts[0]), at(step.parts[1]), at(step.parts[2]));
      case Make::function: return make_function(step);
      case Make::method: return PyMethod_New(at(step.parts[0]), at(step.parts[1]));
      case Make::cell: return PyCell_New(nullptr);
      case Make::partial: return make_partial(step);
      case Make::instance: return bare(cls, &PyBaseObject_Type, nullptr);
      case Make::call: {
        PyRef args = PyRef::steal(tuple_of(step.parts, 1));
        return args ? PyObject_Call(at(step.parts[0]), args.get(), nullptr) : nullptr;
      }
      case Make::set_context: return PyContextVar_Set(at(step.parts[0]), at(step.parts[1]));
      case Make::exception: return make_exception(step);
      case Make::traceback: return make_traceback(step);
      case Make::generator: return make_generator(step);
      case Make::awaitable:
        return interp::make_awaitable(static_cast<interp::Awaitable>(step.number), at(step.parts[0]),
                                      at(step.parts[1]));
      case Make::item: return interp::wrap_yielded_item(at(step.parts[0]));
      case Make::format:
        return format_text(at(step.parts[0]), static_cast<int>(step.number), at(step.parts[1]));
      case Make::join: return join(step);
      case Make::interpolate: {
        if (step.number == 0) return PyUnicode_Format(at(step.parts[0]), at(step.parts[1]));
        PyRef format = PyRef::steal(PyObject_GetAttrString(at(step.parts[0]), "format"));
        PyRef args = PyRef::steal(tuple_of(step.parts, 1));
        return format && args ? PyObject_Call(format.get(), args.get(), nullptr) : nullptr;
      }
      case Make::iterator:
        return guard::make_iterator(*guard::iterator_kind(reinterpret_cast<PyTypeObject*>(cls)), step.number,
                                    at(step.parts[0]));
    }
    return nullptr;
  }

  bool fill(const FillStep& step) const {
    PyObject *container = at(step.container), *key = at(step.key), *value = at(step.value);
    switch (step.fill) {
      case Fill::append: return PyList_Append(container, value) == 0;
      case Fill::item:
        // An OrderedDict keeps its order only through its own setter; other subclasses must not run user
        // code.
        return (PyODict_Check(container) ? PyODict_SetItem(container, key, value)
                                         : PyDict_SetItem(container, key, value)) == 0;
      case Fill::add: return PySet_Add(container, value) == 0;
      case Fill::cell: return PyCell_Set(container, value) == 0;
      case Fill::attribute: {
        PyObject** slot = guard::instance_dict_slot(container);
        return slot && PyDict_SetItem(*slot, key, value) == 0;
      }
      case Fill::field: return set_field(container, step.number, value);
      case Fill::state: {
        PyRef done = PyRef::steal(PyObject_CallMethod(container, "__setstate__", "(O)", value));
        return static_cast<bool>(done);
      }
      case Fill::place: return guard::set_iterator_state(container, *guard::iterator_kind(container), value);
      case Fill::generator: return set_generator(container, step.number), true;
      case Fill::awaitable:
        return interp::set_awaitable_state(container, static_cast<int>(step.number)), true;
      case Fill::gradient:  // a replayed region's tensor requires it already
        return (guard::requires_grad(container) ||
                PyObject_SetAttrString(container, "requires_grad", Py_True) == 0) &&
               (!value || set_grad(container, value) == 0);
    }
    return false;
  }

  static bool set_field(PyObject* object, Py_ssize_t offset, PyObject* value) {
    PyObject** place = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
    PyObject* old = std::exchange(*place, Py_XNewRef(value));
    Py_XDECREF(old);
    return true;
  }

  static int set_item(PyObject* target, PyObject* key, PyObject* value) {
    if (PySet_Check(target)) return PySet_Add(target, key);
    if (PyList_Check(target)) return PyList_SetItem(target, PyLong_AsSsize_t(key), Py_NewRef(value));
    return PyODict_Check(target) ? PyODict_SetItem(target, key, value) : PyDict_SetItem(target, key, value);
  }

  static int delete_item(PyObject* target, PyObject* key) {
    if (PySet_Check(target)) return PySet_Discard(target, key);
    const int there = PyDict_Contains(target, key);
    if (there <= 0) return there;
    return PyODict_Check(target) ? PyODict_DelItem(target, key) : PyDict_DelItem(target, key);
  }

  bool replace(PyObject* target, const std::vector<int>& parts) const {
    PyRef items = PyRef::steal(list_of(parts));
    if (!items) return false;
    if (PyList_Check(target)) return PyList_SetSlice(target, 0, PyList_GET_SIZE(target), items.get()) == 0;
    if (PySet_Check(target)) return PySet_Clear(target) == 0 && _PySet_Update(target, items.get()) == 0;
    PyObject* native = deque_type();
    PyRef cleared = PyRef::steal(native ? PyObject_CallMethod(native, "clear", "O", target) : nullptr);
    return cleared && PyRef::steal(PyObject_CallMethod(native, "extend", "OO", target, items.get())).get();
  }

  static bool set_items(PyObject* deque, PyObject* items) {
    PyObject* native = deque_type();
    auto* set = native ? reinterpret_cast<PyTypeObject*>(native)->tp_as_sequence->sq_ass_item : nullptr;
    for (Py_ssize_t i = 0; set && i < PyList_GET_SIZE(items); ++i)
      if (set(deque, i, PyList_GET_ITEM(items, i)) < 0) return false;
    return set;
  }

  bool replace_dict(PyObject* target, const std::vector<int>& parts) const {
    if (PyODict_Check(target)) {
      auto* native = reinterpret_cast<PyObject*>(&PyODict_Type);
      PyRef cleared = PyRef::steal(PyObject_CallMethod(native, "clear", "O", target));
      if (!cleared) return false;
    } else {
      PyDict_Clear(target);
    }
    for (size_t i = 0; i + 1 < parts.size(); i += 2)
      if (set_item(target, at(parts[i]), at(parts[i + 1])) < 0) return false;
    return true;
  }

  /// Takes so many items of an iterator. The recorded run went on where it was over, or where what it goes
  /// through had been written to (RuntimeError): that is part of where it stands.
  static bool advance(PyObject* iterator, Py_ssize_t times) {
    for (; times > 0; --times) {
      PyRef::steal(Py_TYPE(iterator)->tp_iternext(iterator));
      if (!PyErr_Occurred()) continue;
      if (!PyErr_ExceptionMatches(PyExc_StopIteration) && !PyErr_ExceptionMatches(PyExc_RuntimeError))
        return false;
      PyErr_Clear();
    }
    return true;
  }

  /// A method of a class in C, whatever a class on top of it does.
  static bool call_method(PyTypeObject* native, const char* name, PyObject* target, PyObject* arg = nullptr) {
    auto* cls = reinterpret_cast<PyObject*>(native);
    return PyRef::steal(PyObject_CallMethod(cls, name, arg ? "OO" : "O", target, arg)).get() != nullptr;
  }

  bool put(PyObject* target, const std::vector<int>& parts, bool in_front) const {
    auto* native = reinterpret_cast<PyTypeObject*>(deque_type());
    const bool list = PyList_Check(target);
    for (size_t i = 0; i < parts.size(); ++i) {
      PyObject* item = at(parts[in_front ? parts.size() - 1 - i : i]);
      const bool done = !list      ? call_method(native, in_front ? "appendleft" : "append", target, item)
                        : in_front ? PyList_Insert(target, 0, item) == 0
                                   : PyList_Append(target, item) == 0;
      if (!done) return false;
    }
    return true;
  }

  static bool cut(PyObject* target, Py_ssize_t number) {
    if (PyList_Check(target)) {
      const Py_ssize_t size = PyList_GET_SIZE(target), first = number > 0 ? 0 : size + number;
      return PyList_SetSlice(target, first, number > 0 ? number : size, nullptr) == 0;
    }
    if (PyDict_Check(target) && !PyODict_Check(target)) {
      for (; number > 0; --number) {
        Py_ssize_t position = 0;
        PyObject *key, *value;
        if (!PyDict_Next(target, &position, &key, &value)) return false;
        if (const PyRef first = PyRef::share(key); PyDict_DelItem(target, first.get()) < 0) return false;
      }
      return true;
    }
    auto* deque = reinterpret_cast<PyTypeObject*>(deque_type());
    for (Py_ssize_t i = 0; i < std::abs(number); ++i)
      if (!(PyODict_Check(target) ? call_method(&PyODict_Type, "popitem", target, Py_False)
                                  : call_method(deque, number > 0 ? "popleft" : "pop", target)))
        return false;
    return true;
  }

  bool apply(const EffectStep& step) const {
    PyObject *target = at(step.target), *key = at(step.key), *value = at(step.value);
    switch (step.effect) {
      case Effect::set_item: return set_item(target, key, value) == 0;
      case Effect::delete_item: return delete_item(target, key) >= 0;
      case Effect::extend: return put(target, step.parts, false);
      case Effect::put_in_front: return put(target, step.parts, true);
      case Effect::cut: return cut(target, step.number);
      case Effect::move_to_end: return call_method(&PyODict_Type, "move_to_end", target, key);
      case Effect::replace: return replace(target, step.parts);
      case Effect::set_items: {
        PyRef items = PyRef::steal(list_of(step.parts));
        return items && set_items(target, items.get());
      }
      case Effect::set_cell: return PyCell_Set(target, value) == 0;
      case Effect::set_field: return set_field(target, step.number, value);
      case Effect::set_class: return PyType_Type.tp_setattro(target, key, value) == 0;
      case Effect::replace_dict: return replace_dict(target, step.parts);
      case Effect::set_context: return static_cast<bool>(PyRef::steal(PyContextVar_Set(target, value)));
      case Effect::set_grad: return set_grad(target, value) == 0;
      case Effect::set_data: return set_data(target, value) == 0;
      case Effect::generator: return set_generator(target, step.number), true;
      case Effect::awaitable: return interp::set_awaitable_state(target, static_cast<int>(step.number)), true;
      case Effect::advance: return advance(target, step.number);
      case Effect::call: return call(step);
    }
    return false;
  }
};

}  // namespace

int set_grad(PyObject* tensor, PyObject* value) {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  return PyObject_GenericSetAttr(tensor, name, value);
}

int set_data(PyObject* tensor, PyObject* value) {
  static PyObject* const name = PyUnicode_InternFromString("data");
  return PyObject_GenericSetAttr(tensor, name, value);
}

PyObject* format_text(PyObject* value, int conversion, PyObject* spec) {
  PyRef text = PyRef::steal(conversion == 1   ? PyObject_Str(value)
                            : conversion == 2 ? PyObject_Repr(value)
                            : conversion == 3 ? PyObject_ASCII(value)
                                              : Py_NewRef(value));
  return text ? PyObject_Format(text.get(), spec) : nullptr;
}

bool Recipe::run(const std::vector<PyRef>& objects, PyObject* const* tensors,
                 const std::vector<PyRef>& numbers, std::vector<PyRef>& values) const {
  values.clear();
  values.resize(makes.size());
  Kitchen kitchen{*this, objects, tensors, numbers, values};
  auto next = fills.begin();
  for (size_t i = 0;; ++i) {
    for (; next != fills.end() && next->after <= i; ++next)
      if (!kitchen.fill(*next)) return false;
    if (i == makes.size()) break;
    values[i] = PyRef::steal(kitchen.make(makes[i]));
    if (values[i]) continue;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "torchbolt: a recipe's ingredient is missing");
    return false;
  }
  for (const EffectStep& step : effects)
    if (!kitchen.apply(step)) return false;
  for (const FillStep& step : positions)
    if (!kitchen.fill(step)) return false;
  return true;
}

PyObject* Recipe::run_result(const std::vector<PyRef>& objects, PyObject* const* tensors,
                             const std::vector<PyRef>& numbers) const {
  std::vector<PyRef> values;
  if (!run(objects, tensors, numbers, values) || result < 0) return nullptr;
  return Py_NewRef(values[result].get());
}

std::vector<std::string> Recipe::describe() const {
  static const char* const make_names[] = {
      "constant",  "source",    "tensor", "number",      "tuple",       "list",      "dict",
      "set",       "frozenset", "deque",  "slice",       "function",    "method",    "cell",
      "partial",   "instance",  "call",   "set_context", "exception",   "traceback", "generator",
      "awaitable", "item",      "format", "join",        "interpolate", "iterator"};
  static const char* const effect_names[] = {
      "set_item",  "delete_item", "extend",    "put_in_front", "cut",          "move_to_end", "replace",
      "set_items", "set_cell",    "set_field", "set_class",    "replace_dict", "set_context", "set_grad",
      "set_data",  "generator",   "awaitable", "advance",      "call"};
  std::vector<std::string> lines;
  for (size_t i = 0; i < makes.size(); ++i) {
    std::string line = "v" + std::to_string(i) + " = " + make_names[static_cast<int>(makes[i].make)];
    if (makes[i].object) line += " " + guard::short_repr(makes[i].object.get());
    if (makes[i].make == Make::source || makes[i].make == Make::tensor || makes[i].make == Make::number)
      line += " " + std::to_string(makes[i].number);
    for (int part : makes[i].parts) line += " v" + std::to_string(part);
    lines.push_back(std::move(line));
  }
  for (const FillStep& step : fills)
    lines.push_back("fill v" + std::to_string(step.container) + " with v" + std::to_string(step.value));
  for (const EffectStep& step : effects)
    lines.push_back(std::string("effect ") + effect_names[static_cast<int>(step.effect)] + " on v" +
                    std::to_string(step.target));
  if (result >= 0) lines.push_back("return v" + std::to_string(result));
  return lines;
}

}  // namespace bolt::observe
