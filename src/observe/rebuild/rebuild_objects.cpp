// observe/rebuild/rebuild_objects.cpp
// See rebuild.h. Functions, methods, instances and what C code holds.
#include "observe/rebuild/rebuild.h"

#include <structmember.h>

#include <string_view>

#include "guard/iterators.h"
#include "observe/calls/controls.h"
#include "python/slots.h"

namespace bolt::observe {

namespace {

/// What Python 3.12 says of pickling these is for those who do so on purpose.
bool warns_of_pickling(PyObject* object) {
  return std::string_view(Py_TYPE(object)->tp_name).starts_with("itertools.");
}

/// object.__reduce__(). Null without an exception: there is none.
PyObject* reduced(PyObject* object) {
  PyObject* reduce = warns_of_pickling(object) ? stand_in("reduce") : nullptr;
  PyObject* state =
      reduce ? PyObject_CallOneArg(reduce, object) : PyObject_CallMethod(object, "__reduce__", nullptr);
  if (!state) forget_error();
  return state;
}

PyObject* doc_of(PyObject* code) {
  PyObject* constants = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  PyObject* first = PyTuple_GET_SIZE(constants) ? PyTuple_GET_ITEM(constants, 0) : nullptr;
  return first && PyUnicode_Check(first) ? first : Py_None;
}

/// What pybind11 binds a function to, which belongs to a class or a module: what it knows of it.
bool is_record_of_pybind(PyObject* object) {
  return PyCapsule_CheckExact(object) ||
         std::string_view(Py_TYPE(object)->tp_name).find("pybind11_detail_function_record") !=
             std::string_view::npos;
}

}  // namespace

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
  part(function->func_annotations, offsetof(PyFunctionObject, func_annotations));
  // By default these are what the code and the globals say.
  if (function->func_doc != doc_of(function->func_code))
    part(function->func_doc, offsetof(PyFunctionObject, func_doc));
  if (function->func_module != PyDict_GetItemString(function->func_globals, "__name__"))
    part(function->func_module, offsetof(PyFunctionObject, func_module));
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

int Rebuilder::method_value(PyObject* object) {
  return add(Make::method, nullptr, 0,
             {value(PyMethod_GET_FUNCTION(object)), value(PyMethod_GET_SELF(object))});
}

/// getattr(owner, name)
int Rebuilder::attribute_of(int owner, PyObject* name) {
  const int getter = value(PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"));
  return add(Make::call, nullptr, 0, {getter, owner, value(name)});
}

/// A method in C, bound to an object: found on it again under its name.
int Rebuilder::builtin_method_value(PyObject* object) {
  auto* function = reinterpret_cast<PyCFunctionObject*>(object);
  PyObject* self = function->m_self;
  if (!self || is_module(self) || PyType_Check(self) || is_record_of_pybind(self))
    return add(Make::constant, object);
  PyRef name = PyRef::steal(PyUnicode_InternFromString(function->m_ml->ml_name));
  PyObject* found = _PyType_Lookup(Py_TYPE(self), name.get());
  const bool same = found && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
                    reinterpret_cast<PyMethodDescrObject*>(found)->d_method == function->m_ml;
  if (!same) return fail(object);
  return attribute_of(value(self), name.get());
}

/// A slot of C bound to an object: found on it again under its name.
int Rebuilder::method_wrapper_value(PyObject* object) {
  PyRef self = PyRef::steal(PyObject_GetAttrString(object, "__self__"));
  PyRef name = PyRef::steal(PyObject_GetAttrString(object, "__name__"));
  PyRef again = PyRef::steal(self && name ? PyObject_GetAttr(self.get(), name.get()) : nullptr);
  if (again && Py_IS_TYPE(again.get(), &_PyMethodWrapper_Type))
    return attribute_of(value(self.get()), name.get());
  return PyErr_Clear(), fail(object);
}

int Rebuilder::partial_value(PyObject* object) {
  auto part = [&](const char* name) {
    PyRef held = PyRef::steal(PyObject_GetAttrString(object, name));
    return value(held.get());
  };
  return add(Make::partial, reinterpret_cast<PyObject*>(Py_TYPE(object)), 0,
             {part("func"), part("args"), part("keywords")});
}

int Rebuilder::reference_value(PyObject* object) {
  PyObject* referent = reinterpret_cast<PyWeakReference*>(object)->wr_object;
  if (referent == Py_None) return fail(object, "whose object is gone cannot be made again");
  const int inside = value(referent);
  return add(Make::call, nullptr, 0, {value(class_of(object)), inside});
}

int Rebuilder::namespace_value(PyObject* object) {
  const int made = made_[object] = add(Make::call, nullptr, 0, {value(class_of(object))});
  fill_attributes(made, object);
  return made;
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

/// Does a set filled with its elements in their order have them in that order? What lay in it before may have
/// left them elsewhere, and the addresses that most objects are hashed by are others in each call.
bool Rebuilder::keeps_order(PyObject* set) {
  const Known* known = world_.find(set);
  if (known && !known->before) return true;
  PyRef items = native_items(set), again = PyRef::steal(PySet_New(nullptr));
  if (!items || !again) return PyErr_Clear(), false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    if (!guard::is_leaf(item) && !PyType_Check(item)) return false;
    if (PySet_Add(again.get(), item) < 0) return PyErr_Clear(), false;
  }
  PyRef order = native_items(again.get());
  for (Py_ssize_t i = 0; order && i < PyList_GET_SIZE(items.get()); ++i)
    if (PyList_GET_ITEM(order.get(), i) != PyList_GET_ITEM(items.get(), i)) return false;
  return true;
}

/// Another one through the same container, which sees what is written to it later. It is set to its place
/// when the container is as the run left it.
int Rebuilder::iterator_value(PyObject* object) {
  const guard::IteratorKind& kind = *guard::iterator_kind(object);
  PyObject* inside = guard::iterator_inside(object, kind);
  if (inside && is_set(inside) && !keeps_order(inside)) {
    const bool alone = Py_REFCNT(inside) == 1;  // nobody can write to the set: what is left is all there is
    return alone ? described_value(object) : fail(object, "through objects cannot be made again");
  }
  auto* type = reinterpret_cast<PyObject*>(kind.type);
  const int made = add(Make::iterator, type, guard::iterator_flavour(object, kind), {value(inside)});
  PyRef state = PyRef::steal(inside ? guard::iterator_state(object, kind) : nullptr);
  if (state) recipe.positions.push_back({Fill::place, made, -1, add(Make::constant, state.get())});
  return made;
}

int Rebuilder::instance_value(PyObject* object) {
  int made = made_[object] = add(Make::instance, class_of(object));
  fill_own(made, object);
  return made;
}

/// An instance of a Python class on top of int, str, ...
int Rebuilder::immutable_value(PyObject* object) {
  auto* native = reinterpret_cast<PyObject*>(immutable_base(Py_TYPE(object)));
  PyRef args = PyRef::steal(PyObject_CallMethod(native, "__getnewargs__", "O", object));
  PyRef make = PyRef::steal(PyObject_GetAttrString(native, "__new__"));
  if (!args || !make) return PyErr_Clear(), fail(object, "cannot be made again");
  std::vector<int> parts = {value(make.get()), value(class_of(object))};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i)
    parts.push_back(value(PyTuple_GET_ITEM(args.get(), i)));
  const int made = add(Make::call, nullptr, 0, std::move(parts));
  fill_attributes(made, object);
  return made;
}

/// Errors about encodings keep numbers in C that their arguments do not tell once changed.
int Rebuilder::exception_value(PyObject* object) {
  if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(PyExc_UnicodeError))) return fail(object);
  auto* exception = reinterpret_cast<PyBaseExceptionObject*>(object);
  int args = value(exception->args);
  int made = made_[object] = add(Make::exception, class_of(object), exception->suppress_context, {args});
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

/// A token comes from setting its variable: making it again sets the variable again.
int Rebuilder::token_value(PyObject* object) {
  PyRef variable = PyRef::steal(PyObject_GetAttrString(object, "var"));
  PyRef old = PyRef::steal(PyObject_GetAttrString(object, "old_value"));
  PyObject* now = variable ? guard::context_value(variable.get()) : nullptr;
  for (const WrittenContext& written : world_.writes.written_context) {
    if (written.variable.get() != variable.get() || !now || now == written.before.get() ||
        written.set_to_what_it_was || !old || !written.gives_back_before(old.get()))
      continue;
    tokens_.insert(variable.get());
    int target = value(variable.get()), inside = value(now);
    return add(Make::set_context, nullptr, 0, {target, inside});
  }
  return fail(object);
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
    PyMemberDef* member = native || is_python_class(type) ? type->tp_members : nullptr;
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

}  // namespace bolt::observe
