// interp/observe/rebuild.cpp: see rebuild.h.
#include "interp/observe/rebuild.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "interp/call.h"
#include "interp/generator.h"
#include "interp/liveness.h"
#include "interp/observe/controls.h"
#include "interp/observe/frames.h"
#include "interp/special.h"

namespace bolt::observe {

using guard::Effect;
using guard::Fill;
using guard::Make;

namespace {

/// Made while a tuple's parts are being made: meeting it again means a cycle no recipe can close.
constexpr int kInProgress = -2;

bool is_instance_of(PyObject* object, const char* type_name) {
  return std::string(Py_TYPE(object)->tp_name) == type_name;
}

bool is_struct_sequence(PyTypeObject* type) {
  return type->tp_base == &PyTuple_Type && type->tp_new != PyTuple_Type.tp_new &&
         PyDict_GetItemString(interp::type_dict(type), "n_sequence_fields");
}

/// No C state beyond object's own: a dict and `__slots__` are all there is to an instance.
bool is_plain_class(PyTypeObject* type) {
  while (interp::is_python_class(type)) type = type->tp_base;
  return type == &PyBaseObject_Type;
}

/// A tuple and perhaps a dict: no C state of its own (namedtuples, and classes made of them).
bool is_tuple_class(PyTypeObject* type) {
  while (interp::is_heap_type(type)) type = type->tp_base;
  return type == &PyTuple_Type;
}

/// Objects of C whose __reduce__ says all about them: iterators, and the functions that module operator
/// makes.
bool describes_itself(PyObject* object) {
  static const char* const names[] = {
      "list_iterator", "tuple_iterator", "range_iterator", "enumerate", "zip", "list_reverseiterator",
      "reversed", "map", "filter", "str_ascii_iterator", "str_iterator", "bytes_iterator", "iterator",
      "callable_iterator", "types.GenericAlias", "_collections._deque_iterator",
      "_collections._deque_reverse_iterator", "collections._deque_iterator",
      "collections._deque_reverse_iterator",
      // These give what is left as a list.
      "dict_keyiterator", "dict_valueiterator", "dict_itemiterator", "dict_reversekeyiterator",
      "dict_reversevalueiterator", "dict_reverseitemiterator", "set_iterator", "odict_iterator"};
  for (const char* name : names)
    if (is_instance_of(object, name)) return true;
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name.starts_with("itertools.") || name.starts_with("operator.");
}

/// A class of C with a __reduce__ of its own: dates, decimals, iterators that are not listed above.
bool tells_how_to_make(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (interp::is_python_class(type)) return false;
  PyObject* own = _PyType_Lookup(type, PyRef::steal(PyUnicode_InternFromString("__reduce__")).get());
  return own && own != PyDict_GetItemString(interp::type_dict(&PyBaseObject_Type), "__reduce__");
}

/// What a Python class is derived from where its instances are immutable values; null.
PyTypeObject* immutable_base(PyTypeObject* type) {
  while (interp::is_python_class(type)) type = type->tp_base;
  static const auto bases = std::to_array<PyTypeObject*>(
      {&PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyUnicode_Type, &PyBytes_Type});
  return std::find(bases.begin(), bases.end(), type) != bases.end() ? type : nullptr;
}

/// The elements as C has them: a Python class may have an __iter__ of its own.
PyRef native_list(PyObject* object, PyTypeObject* native) {
  PyRef iterator = PyRef::steal(native->tp_iter(object));
  return PyRef::steal(iterator ? PySequence_List(iterator.get()) : nullptr);
}

/// What Python 3.12 says of pickling these is for those who do so on purpose.
bool warns_of_pickling(PyObject* object) {
  return std::string_view(Py_TYPE(object)->tp_name).starts_with("itertools.");
}

/// object.__reduce__(). Null without an exception: there is none.
PyObject* reduced(PyObject* object) {
  PyObject* reduce = warns_of_pickling(object) ? stand_in("reduce") : nullptr;
  PyObject* state =
      reduce ? PyObject_CallOneArg(reduce, object) : PyObject_CallMethod(object, "__reduce__", nullptr);
  if (!state) interp::forget_error();
  return state;
}

}  // namespace

int Rebuilder::add(Make make, PyObject* object, Py_ssize_t number, std::vector<int> parts) {
  recipe.makes.push_back({make, PyRef::share(object), number, std::move(parts)});
  return static_cast<int>(recipe.makes.size()) - 1;
}

void Rebuilder::fill(guard::FillStep step) {
  step.after = recipe.makes.size();
  recipe.fills.push_back(step);
}

int Rebuilder::fail(PyObject* object, const char* why) {
  if (!failure.empty()) return -1;
  failure = std::string("a ") + Py_TYPE(object)->tp_name + " " + why;
  failed_on = object;
  return -1;
}

std::vector<int> Rebuilder::items(PyObject* sequence) {
  std::vector<int> values;
  for (Py_ssize_t i = 0; i < Py_SIZE(sequence); ++i)
    values.push_back(
        value(PyList_Check(sequence) ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i)));
  return values;
}

int Rebuilder::value(PyObject* object) {
  if (!object) return -1;
  auto at = made_.find(object);
  if (at != made_.end()) return at->second == kInProgress ? fail(object, "contains itself") : at->second;
  if (PyLong_CheckExact(object))
    if (const World::Identity* identity = world_.identity(object)) {
      if (!identity->of) return fail(object, "from id() is kept");
      const int ask = value(PyDict_GetItemString(PyEval_GetBuiltins(), "id"));
      return add(Make::call, nullptr, 0, {ask, value(identity->of)});
    }
  held_.push_back(PyRef::share(object));
  made_[object] = kInProgress;
  // What C code was given to call us back with is a matter of this run.
  if (PyObject* function = interp::interpreted_function_target(object))
    return made_[object] = value(function);
  if (PyObject* own = guard::has_parts(object) ? world_.original(object) : object; own != object)
    return made_[object] = value(own);
  if (const Late* late = world_.late(object)) return made_[object] = late_value(*late);
  if (is_number(object) && world_.follows_number(object))
    return made_[object] = add(Make::number, nullptr, world_.step_of(object));
  if ((PyTuple_Check(object) || PySlice_Check(object)) && !world_.find(object) &&
      (world_.holds_followed(object, 8) || world_.holds_late(object)))
    return made_[object] = fresh_value(object);
  // A number alone may be carried along unread; everything else that is a leaf becomes a constant.
  if (guard::is_leaf(object) && !is_number(object)) world_.use(object);
  Known* known = world_.find(object);
  int made = known ? known_value(object, *known)
             : guard::is_leaf(object) || PyType_Check(object) || is_module(object)
                 ? add(Make::constant, object)
                 : fresh_value(object);
  made_[object] = made;
  return made;
}

int Rebuilder::known_value(PyObject* object, Known& known) {
  if (known.source->access == Access::constant) return add(Make::constant, object);
  return add(Make::source, nullptr, world_.tree->keep(known.source));
}

int Rebuilder::tensor_value(PyObject* object) {
  int output = hooks_.output(object);
  if (output < 0) return fail(object, "did not come from the region's operators");
  auto* cls = reinterpret_cast<PyObject*>(Py_TYPE(object));
  int made = add(Make::tensor, cls == guard::tensor_class() ? nullptr : cls, output);
  // A view of what was there before requires in every call what that requires.
  const PyRef base = PyRef::steal(guard::base_of(object));
  if (guard::requires_grad(object) && guard::is_autograd_leaf(object) && !(base && world_.find(base.get())))
    fill({Fill::gradient, made, -1, -1, 0});
  fill_attributes(made, object);
  return made;
}

int Rebuilder::fresh_value(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  auto* cls = reinterpret_cast<PyObject*>(type);
  if (guard::is_tensor(object)) return tensor_value(object);
  if (PyTuple_Check(object)) {
    bool exact = PyTuple_CheckExact(object);
    if (!exact && !is_struct_sequence(type) && type->tp_base != &PyTuple_Type && !is_tuple_class(type))
      return fail(object, "made by the region cannot be made again");
    int made = add(Make::tuple, exact ? nullptr : cls, 0, items(object));
    if (!exact) fill_own(made, object);
    return made;
  }
  if (PyList_Check(object)) return list_value(object);
  if (PyDict_Check(object)) return dict_value(object);
  if (is_set(object)) return set_value(object);
  if (is_deque(object)) {
    PyRef list = native_list(object, native_type("collections", "deque"));
    PyRef limit = PyRef::steal(PyObject_GetAttrString(object, "maxlen"));
    Py_ssize_t maxlen = limit && limit.get() != Py_None ? PyLong_AsSsize_t(limit.get()) : -1;
    if (!list) return PyErr_Clear(), fail(object, "cannot be made again");
    const bool exact = Py_IS_TYPE(object, native_type("collections", "deque"));
    const int made = add(Make::deque, exact ? nullptr : cls, maxlen, items(list.get()));
    if (!exact) fill_own(made, object);
    return made;
  }
  if (PyWeakref_CheckRefExact(object) && !reinterpret_cast<PyWeakReference*>(object)->wr_callback) {
    PyObject* referent = reinterpret_cast<PyWeakReference*>(object)->wr_object;
    if (referent == Py_None) return fail(object, "whose object is gone cannot be made again");
    const int inside = value(referent);
    return add(Make::call, nullptr, 0, {value(cls), inside});
  }
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return add(Make::slice, nullptr, 0, {value(slice->start), value(slice->stop), value(slice->step)});
  }
  if (PyFunction_Check(object)) return function_value(object);
  if (PyCell_Check(object)) return cell_value(object);
  if (PyMethod_Check(object))
    return add(Make::method, nullptr, 0,
               {value(PyMethod_GET_FUNCTION(object)), value(PyMethod_GET_SELF(object))});
  if (is_instance_of(object, "functools.partial")) {
    auto part = [&](const char* name) {
      PyRef held = PyRef::steal(PyObject_GetAttrString(object, name));
      return value(held.get());
    };
    return add(Make::partial, nullptr, 0, {part("func"), part("args"), part("keywords")});
  }
  if (PyCFunction_Check(object)) return builtin_method_value(object);
  if (describes_itself(object)) return described_value(object);
  if (is_instance_of(object, "types.SimpleNamespace")) {
    const int made = made_[object] = add(Make::call, nullptr, 0, {value(cls)});
    fill_attributes(made, object);
    return made;
  }
  if (PyContextToken_CheckExact(object)) return token_value(object);
  if (interp::is_interpreted_generator(object) || PyGen_CheckExact(object) || PyCoro_CheckExact(object) ||
      PyAsyncGen_CheckExact(object))
    return generator_value(object);
  if (PyExceptionInstance_Check(object)) return exception_value(object);
  if (PyTraceBack_Check(object)) return traceback_value(object);
  if (Py_IS_TYPE(object, &_PyMethodWrapper_Type)) {
    PyRef getattr = PyRef::share(PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"));
    PyRef self = PyRef::steal(PyObject_GetAttrString(object, "__self__"));
    PyRef name = PyRef::steal(PyObject_GetAttrString(object, "__name__"));
    PyRef again = PyRef::steal(self && name ? PyObject_GetAttr(self.get(), name.get()) : nullptr);
    if (again && Py_IS_TYPE(again.get(), &_PyMethodWrapper_Type))
      return add(Make::call, nullptr, 0, {value(getattr.get()), value(self.get()), value(name.get())});
    return PyErr_Clear(), fail(object, "made by the region cannot be made again");
  }
  if (is_plain_class(type)) return instance_value(object);
  if (PyTypeObject* base = immutable_base(type)) return immutable_value(object, base);
  if (PyDictKeys_Check(object)) return view_value(object, "keys");
  if (PyDictValues_Check(object)) return view_value(object, "values");
  if (PyDictItems_Check(object)) return view_value(object, "items");
  if (PyByteArray_CheckExact(object)) {
    PyRef bytes = PyRef::steal(PyBytes_FromObject(object));
    return add(Make::call, nullptr, 0, {value(cls), value(bytes.get())});
  }
  if (tells_how_to_make(object)) return described_value(object);
  return fail(object, "made by the region cannot be made again");
}

/// An instance of a Python class on top of int, str, ...
int Rebuilder::immutable_value(PyObject* object, PyTypeObject* base) {
  auto* native = reinterpret_cast<PyObject*>(base);
  PyRef args = PyRef::steal(PyObject_CallMethod(native, "__getnewargs__", "O", object));
  PyRef make = PyRef::steal(PyObject_GetAttrString(native, "__new__"));
  if (!args || !make) return PyErr_Clear(), fail(object, "cannot be made again");
  std::vector<int> parts = {value(make.get()), value(reinterpret_cast<PyObject*>(Py_TYPE(object)))};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i)
    parts.push_back(value(PyTuple_GET_ITEM(args.get(), i)));
  const int made = add(Make::call, nullptr, 0, std::move(parts));
  fill_attributes(made, object);
  return made;
}

/// keys(), values() or items() of a dict.
int Rebuilder::view_value(PyObject* object, const char* method) {
  const int dict = value(reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict));
  const int getter = value(PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"));
  PyRef name = PyRef::steal(PyUnicode_InternFromString(method));
  return add(Make::call, nullptr, 0, {add(Make::call, nullptr, 0, {getter, dict, value(name.get())})});
}

/// A token comes from setting its variable: making it again sets the variable again.
int Rebuilder::token_value(PyObject* object) {
  PyRef variable = PyRef::steal(PyObject_GetAttrString(object, "var"));
  PyRef old = PyRef::steal(PyObject_GetAttrString(object, "old_value"));
  PyObject* now = variable ? guard::context_value(variable.get()) : nullptr;
  for (const WrittenContext& written : world_.written_context) {
    if (written.variable.get() != variable.get() || !now || now == written.before.get() ||
        written.set_to_what_it_was || !old || !written.gives_back_before(old.get()))
      continue;
    tokens_.insert(variable.get());
    int target = value(variable.get()), inside = value(now);
    return add(Make::set_context, nullptr, 0, {target, inside});
  }
  return fail(object, "made by the region cannot be made again");
}

int Rebuilder::list_value(PyObject* object) {
  bool exact = PyList_CheckExact(object);
  int made = made_[object] = add(Make::list, exact ? nullptr : reinterpret_cast<PyObject*>(Py_TYPE(object)));
  for (int part : items(object)) fill({Fill::append, made, -1, part, 0});
  if (!exact) fill_own(made, object);
  return made;
}

int Rebuilder::dict_value(PyObject* object) {
  int made;
  if (is_instance_of(object, "collections.defaultdict")) {
    PyRef factory = PyRef::steal(PyObject_GetAttrString(object, "default_factory"));
    made = add(Make::call, nullptr, 0,
               {value(reinterpret_cast<PyObject*>(Py_TYPE(object))), value(factory.get())});
  } else {
    bool exact = PyDict_CheckExact(object);
    made = add(Make::dict, exact ? nullptr : reinterpret_cast<PyObject*>(Py_TYPE(object)));
  }
  made_[object] = made;
  PyRef keys = PyRef::steal(PyODict_Check(object) ? PyODict_Type.tp_iter(object) : nullptr);
  PyRef list = PyRef::steal(keys ? PySequence_List(keys.get()) : PyDict_Keys(object));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(list.get(), i);
    int key_value = value(key), item = value(PyDict_GetItemWithError(object, key));
    fill({Fill::item, made, key_value, item, 0});
  }
  if (!PyDict_CheckExact(object)) fill_own(made, object);
  return made;
}

int Rebuilder::set_value(PyObject* object) {
  PyRef list = native_list(object, &PySet_Type);
  if (!list) return PyErr_Clear(), fail(object, "cannot be made again");
  if (PyFrozenSet_CheckExact(object)) return add(Make::frozenset, nullptr, 0, items(list.get()));
  bool exact = PySet_CheckExact(object);
  int made = made_[object] = add(Make::set, exact ? nullptr : reinterpret_cast<PyObject*>(Py_TYPE(object)));
  for (int part : items(list.get())) fill({Fill::add, made, -1, part, 0});
  if (!exact) fill_own(made, object);
  return made;
}

int Rebuilder::function_value(PyObject* object) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  // Whatever it holds may hold the function. Its cells must be there when it is made, since generators of it
  // take them; what is in them, and the rest, comes after.
  std::vector<PyObject*> cells;
  PyObject* closure = function->func_closure;
  for (Py_ssize_t i = 0; closure && i < PyTuple_GET_SIZE(closure); ++i) {
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    if (world_.find(cell) || made_.count(cell)) continue;
    held_.push_back(PyRef::share(cell));
    made_[cell] = add(Make::cell);
    cells.push_back(cell);
  }
  const int made = made_[object] =
      add(Make::function, nullptr, 0,
          {value(function->func_code),
           value(reinterpret_cast<PyObject*>(world_.pin(function->func_globals).object.get())),
           value(function->func_name), value(function->func_qualname), value(closure)});
  for (PyObject* cell : cells) fill_cell(cell);
  auto part = [&](PyObject* held, size_t offset) {
    const int inside = value(held);
    if (held) fill({Fill::field, made, -1, inside, static_cast<Py_ssize_t>(offset)});
  };
  part(function->func_defaults, offsetof(PyFunctionObject, func_defaults));
  part(function->func_kwdefaults, offsetof(PyFunctionObject, func_kwdefaults));
  fill_attributes(made, object);
  return made;
}

void Rebuilder::fill_cell(PyObject* cell) {
  PyObject* contents = PyCell_GET(cell);
  if (!contents) return;
  const int target = made_[cell], inside = value(contents);
  fill({Fill::cell, target, -1, inside, 0});
}

int Rebuilder::cell_value(PyObject* object) {
  const int made = made_[object] = add(Make::cell);
  fill_cell(object);
  return made;
}

/// A method in C, bound to an object: found on it again under its name.
int Rebuilder::builtin_method_value(PyObject* object) {
  auto* function = reinterpret_cast<PyCFunctionObject*>(object);
  PyObject* self = function->m_self;
  if (!self || is_module(self) || PyType_Check(self)) return add(Make::constant, object);
  PyRef name = PyRef::steal(PyUnicode_InternFromString(function->m_ml->ml_name));
  PyObject* found = _PyType_Lookup(Py_TYPE(self), name.get());
  const bool same = found && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
                    reinterpret_cast<PyMethodDescrObject*>(found)->d_method == function->m_ml;
  if (!same) return fail(object, "made by the region cannot be made again");
  int getter = value(PyDict_GetItemString(PyEval_GetBuiltins(), "getattr")), owner = value(self);
  return add(Make::call, nullptr, 0, {getter, owner, value(name.get())});
}

/// By its own description: (iter, (what is left,)[, position]).
int Rebuilder::described_value(PyObject* object) {
  PyRef state = PyRef::steal(reduced(object));
  const Py_ssize_t said = state && PyTuple_Check(state.get()) ? PyTuple_GET_SIZE(state.get()) : 0;
  if (said < 2 || said > 3) return fail(object, "cannot be made again");
  PyObject* args = PyTuple_GET_ITEM(state.get(), 1);
  // What module operator makes never changes: one that rests on constants alone is itself one.
  const bool constant = !Py_TYPE(object)->tp_iternext && guard::is_leaf(args);
  if (constant && PyType_Check(PyTuple_GET_ITEM(state.get(), 0))) return add(Make::constant, object);
  std::vector<int> parts = {value(PyTuple_GET_ITEM(state.get(), 0))};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) parts.push_back(value(PyTuple_GET_ITEM(args, i)));
  int made = add(Make::call, nullptr, 0, std::move(parts));
  if (PyTuple_GET_SIZE(state.get()) <= 2 || PyTuple_GET_ITEM(state.get(), 2) == Py_None) return made;
  int position = value(PyTuple_GET_ITEM(state.get(), 2));
  PyObject* setter = warns_of_pickling(object) ? stand_in("set state") : nullptr;
  if (setter) return add(Make::call, nullptr, 0, {add(Make::constant, setter), made, position});
  recipe.positions.push_back({Fill::state, made, -1, position});
  return made;
}

int Rebuilder::instance_value(PyObject* object) {
  int made = made_[object] = add(Make::instance, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  fill_own(made, object);
  return made;
}

/// What instances of Python classes have beyond the native part.
void Rebuilder::fill_own(int made, PyObject* object) {
  fill_attributes(made, object);
  fill_members(made, object, false);
}

/// Slots of its classes; with `native`, of those that are not Python classes too.
void Rebuilder::fill_members(int made, PyObject* object, bool native) {
  PyObject* mro = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    PyMemberDef* member = native || interp::is_python_class(type) ? type->tp_members : nullptr;
    if (!member) continue;
    for (; member->name; ++member) {
      if (member->type != T_OBJECT_EX && member->type != T_OBJECT) continue;
      PyObject* slot = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + member->offset);
      if (!slot) continue;
      int inside = value(slot);
      fill({Fill::field, made, -1, inside, member->offset});
    }
  }
}

/// Errors about encodings keep numbers in C that their arguments do not tell once changed.
int Rebuilder::exception_value(PyObject* object) {
  if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(PyExc_UnicodeError)))
    return fail(object, "made by the region cannot be made again");
  auto* exception = reinterpret_cast<PyBaseExceptionObject*>(object);
  int args = value(exception->args);
  int made = made_[object] =
      add(Make::exception, reinterpret_cast<PyObject*>(Py_TYPE(object)), exception->suppress_context, {args});
  fill_attributes(made, object);
  fill_members(made, object, true);
  auto fill_field = [&](PyObject* field, size_t offset) {
    if (!field) return;
    int inside = value(field);
    fill({Fill::field, made, -1, inside, static_cast<Py_ssize_t>(offset)});
  };
  fill_field(exception->traceback, offsetof(PyBaseExceptionObject, traceback));
  fill_field(exception->context, offsetof(PyBaseExceptionObject, context));
  fill_field(exception->cause, offsetof(PyBaseExceptionObject, cause));
  return made;
}

int Rebuilder::traceback_value(PyObject* object) {
  auto* entry = reinterpret_cast<PyTracebackObject*>(object);
  PyRef code = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(entry->tb_frame)));
  PyRef globals = PyRef::steal(PyFrame_GetGlobals(entry->tb_frame));
  int next = value(reinterpret_cast<PyObject*>(entry->tb_next));
  int names = value(world_.pin(globals.get()).object.get());
  PyRef line = PyRef::steal(PyObject_GetAttrString(object, "tb_lineno"));
  const Py_ssize_t place =
      static_cast<Py_ssize_t>(entry->tb_lasti) << 32 | (PyLong_AsLong(line.get()) & 0x7fffffff);
  return add(Make::traceback, code.get(), place, {names, next});
}

/// How far a generator has got; an index into recipe.generators.
Py_ssize_t Rebuilder::generator_state(PyObject* generator) {
  auto body = bodies_.find(generator);
  const interp::Frame* frame = body == bodies_.end() ? nullptr : body->second;
  guard::GeneratorRecipe made;
  made.frame_state = reinterpret_cast<PyGenObject*>(generator)->gi_frame_state;
  if (made.frame_state == FRAME_EXECUTING && !frame) fail(generator, "is running where the region ends");
  if (made.frame_state < FRAME_COMPLETED && failure.empty()) {
    const interp::GeneratorState state = interp::generator_state(generator, frame);
    PyCodeObject* code = interp::generator_code(generator);
    made.pc = state.pc;
    made.handled = value(state.handled == Py_None ? nullptr : state.handled);
    const std::vector<bool>& live =
        interp::live_locals(code, *interp::prepare(code), state.pc, !frame || frame != innermost_);
    for (size_t i = 0; i < state.locals.size(); ++i)
      made.locals.push_back(live[i] ? value(state.locals[i]) : -1);
    for (PyObject* object : state.stack) made.stack.push_back(value(object));
  }
  recipe.generators.push_back(std::move(made));
  return static_cast<Py_ssize_t>(recipe.generators.size()) - 1;
}

int Rebuilder::generator_value(PyObject* object) {
  const bool over = reinterpret_cast<PyGenObject*>(object)->gi_frame_state >= FRAME_COMPLETED;
  PyObject* function =
      over ? nullptr
           : reinterpret_cast<PyObject*>(interp::raw_function(
                 reinterpret_cast<interp::RawFrame*>(reinterpret_cast<PyGenObject*>(object)->gi_iframe)));
  int body = value(function);
  int made = made_[object] =
      add(Make::generator, reinterpret_cast<PyObject*>(interp::generator_code(object)), 0, {body});
  fill({Fill::generator, made, -1, -1, generator_state(object)});
  return made;
}

int Rebuilder::late_value(const Late& late) {
  std::vector<int> parts;
  for (const PyRef& part : late.parts) parts.push_back(value(part.get()));
  return add(late.make, nullptr, late.number, std::move(parts));
}

void Rebuilder::fill_attributes(int made, PyObject* object) {
  made_[object] = made;
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (!slot || !*slot) return;
  Py_ssize_t position = 0;
  PyObject *key, *item;
  while (PyDict_Next(*slot, &position, &key, &item)) {
    int name = value(key), inside = value(item);
    fill({Fill::attribute, made, name, inside, 0});
  }
}

void Rebuilder::dict_effect(int target, const Known& known, PyObject* now) {
  PyObject *before = known.before.get(), *keys = known.keys.get();
  for (PyObject* dict : {before, now})
    if (!World::has_plain_keys(dict)) {
      fail(now, "is written that has keys which Python code compares");
      return;
    }
  auto repeat = [&](PyObject* key, bool removed) {
    PyObject* item = PyDict_GetItemWithError(now, key);
    const int name = value(key);
    if (!item || removed) recipe.effects.push_back({Effect::delete_item, target, name, -1, 0, {}});
    if (!item) return;
    const int inside = value(item);
    recipe.effects.push_back({Effect::set_item, target, name, inside, 0, {}});
  };
  Py_ssize_t position = 0;
  PyObject *key, *item;
  while (keys && PyDict_Next(keys, &position, &key, &item)) repeat(key, item == Py_True);
  // What was not written key by key was read whole before.
  auto other = [&](PyObject* key) { return !keys || PyDict_Contains(keys, key) == 0; };
  position = 0;
  while (PyDict_Next(before, &position, &key, &item))
    if (other(key) && !PyDict_GetItemWithError(now, key)) repeat(key, true);
  position = 0;
  while (PyDict_Next(now, &position, &key, &item))
    if (other(key) && PyDict_GetItemWithError(before, key) != item) repeat(key, false);
}

void Rebuilder::effect_on(PyObject* container, Known& known) {
  PyObject* before = known.before.get();
  int target = value(container);
  if (PyODict_Check(container)) {  // its order is part of its value
    world_.read_whole(container);
    std::vector<int> parts;
    PyRef keys = PyRef::steal(PySequence_List(container));
    for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys.get()); ++i) {
      PyObject* key = PyList_GET_ITEM(keys.get(), i);
      parts.push_back(value(key));
      parts.push_back(value(PyDict_GetItemWithError(container, key)));
    }
    recipe.effects.push_back({Effect::replace_dict, target, -1, -1, 0, std::move(parts)});
  } else if (PyDict_Check(container)) {
    dict_effect(target, known, container);
  } else if (PyCell_Check(container)) {
    recipe.effects.push_back({Effect::set_cell, target, -1, value(PyCell_GET(container)), 0, {}});
  } else {
    if (is_set(container) && PyObject_RichCompareBool(container, before, Py_EQ) == 1) return;
    PyRef now = PyRef::steal(PySequence_List(container));
    Py_ssize_t old_size = PyList_Check(before) ? PyList_GET_SIZE(before) : -1;
    bool extended = PyList_Check(container) && old_size >= 0 && PyList_GET_SIZE(now.get()) >= old_size;
    for (Py_ssize_t i = 0; extended && i < old_size; ++i)
      extended = PyList_GET_ITEM(before, i) == PyList_GET_ITEM(now.get(), i);
    std::vector<int> parts;
    for (Py_ssize_t i = extended ? old_size : 0; i < PyList_GET_SIZE(now.get()); ++i)
      parts.push_back(value(PyList_GET_ITEM(now.get(), i)));
    if (extended && parts.empty()) return;
    recipe.effects.push_back(
        {extended ? Effect::extend : Effect::replace, target, -1, -1, 0, std::move(parts)});
  }
}

void Rebuilder::effects() {
  for (size_t i = 0; i < world_.written.size(); ++i)
    effect_on(world_.written[i], *world_.find(world_.written[i]));
  for (const WrittenField& written : world_.written_fields) {
    PyObject* object = written.object.get();
    PyObject* now = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + written.offset);
    int target = value(object), inside = value(now);
    recipe.effects.push_back({Effect::set_field, target, -1, inside, written.offset, {}});
  }
  for (const auto& [variable, before, restored, _] : world_.written_context) {
    if (restored || tokens_.count(variable.get())) continue;
    PyObject* now = guard::context_value(variable.get());
    if (!now) fail(variable.get(), "is left unset by the region");
    int target = value(variable.get()), inside = value(now);
    recipe.effects.push_back({Effect::set_context, target, -1, inside, 0, {}});
  }
  for (const Advanced& each : world_.advanced)
    recipe.effects.push_back({Effect::advance, value(each.iterator.get()), -1, -1, each.times, {}});
  for (PyObject* generator : world_.resumed) {
    int target = value(generator);
    recipe.effects.push_back({Effect::generator, target, -1, -1, generator_state(generator), {}});
  }
  for (const PyRef& lock : world_.locks) {
    PyRef acquire = PyRef::steal(PyObject_GetAttrString(lock.get(), "acquire"));
    const int target = value(acquire.get());
    recipe.call_sites.emplace_back();
    recipe.effects.push_back(
        {Effect::call, target, -1, -1, static_cast<Py_ssize_t>(recipe.call_sites.size()) - 1, {}});
  }
  for (const DelayedCall& call : world_.calls) {
    std::vector<int> args;
    for (const PyRef& arg : call.args) args.push_back(value(arg.get()));
    guard::CallSite site;
    for (const auto& [function, pc] : call.callers) site.emplace_back(value(function.get()), pc);
    recipe.call_sites.push_back(std::move(site));
    int target = value(call.callable.get()), names = value(call.kwnames.get());
    recipe.effects.push_back({Effect::call, target, names, -1,
                              static_cast<Py_ssize_t>(recipe.call_sites.size()) - 1, std::move(args)});
  }
}

void Rebuilder::frames(const std::vector<const interp::Frame*>& frames) {
  innermost_ = frames.back();
  // The exception the run handles is below those of the generators on top of it (interp/run.cpp).
  const _PyErr_StackItem* item = interp::thread_state()->exc_info;
  for (const interp::Frame* each : frames) {
    if (!each->generator) continue;
    bodies_[each->generator] = each;
    item = item->previous_item;
  }
  for (size_t i = 0; i < frames.size() && failure.empty(); ++i) {
    frame(*frames[i], frames[i] == innermost_);
    if (!failure.empty() && i) failed_below = frames[i - 1];
  }
  if (!failure.empty()) return;
  recipe.frames.front().handled = value(item->exc_value == Py_None ? nullptr : item->exc_value);
}

void Rebuilder::frame(const interp::Frame& frame, bool innermost) {
  guard::FrameRecipe made;
  made.function = value(reinterpret_cast<PyObject*>(frame.func()));
  made.generator = value(frame.generator);
  made.instance = value(frame.instance);
  made.namespace_dict = value(frame.namespace_dict());
  made.kw_names = value(frame.kw_names);
  made.pc = frame.pc();
  made.return_to = static_cast<uint8_t>(frame.return_to);
  if (!frame.generator) {
    const std::vector<bool>& live = live_locals_of(frame, innermost);
    for (int i = 0; i < frame.local_count(); ++i)
      made.locals.push_back(live[static_cast<size_t>(i)] ? value(frame.locals()[i]) : -1);
    for (PyObject** at = frame.stack_base(); at < frame.sp; ++at) made.stack.push_back(value(*at));
  }
  recipe.frames.push_back(std::move(made));
}

}  // namespace bolt::observe
