// observe/writes/showing.cpp
// Something the run writes to -> does what is shown to the user depend on it?
// What is shown is shown at the region's end (late.cpp): where it goes, and how it looks, must be then what
// it was at the call. So writes to that which come after such a call are counted, and a call that saw fewer
// of them than there were in the end is one that the next region ends before (Recording::check_awaited).
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/recording.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

bool is_among(PyObject* name, std::initializer_list<std::string_view> names) {
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  return text && std::find(names.begin(), names.end(), text) != names.end();
}

/// A module's name, or that of the module that a class is written in: streams, filters, levels, precision.
bool decides_showing(PyObject* name) {
  return is_among(name, {"sys", "warnings", "logging", "logging.handlers", "torch._tensor_str"});
}

PyObject* module_named_by(PyObject* dict, PyObject* key) {
  return dict && PyDict_Check(dict) ? PyDict_GetItemWithError(dict, key) : nullptr;
}

bool is_class_that_shows(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* each = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (decides_showing(module_named_by(type_dict(each), interned<"__module__">()))) return true;
  }
  return false;
}

/// Is `object`, a constant or found at `source`, what showing goes by?
bool shows_by(const Source& source) {
  if (source.access == Access::constant) {
    PyObject* object = source.key.get();
    if (PyType_Check(object)) return is_class_that_shows(reinterpret_cast<PyTypeObject*>(object));
    PyObject* names = is_module(object) ? PyModule_GetDict(object) : object;
    return decides_showing(module_named_by(names, interned<"__name__">()));
  }
  for (const guard::Assumption& each : source.assumptions)
    if (each.check == Check::type_is)
      return is_class_that_shows(reinterpret_cast<PyTypeObject*>(each.value.get()));
  return false;
}

/// One of these methods of the object's class, or the object itself, is Python that is not logging's.
bool is_users(PyObject* object) {
  auto is_written = [](PyObject* function) {
    PyObject* globals = function && PyFunction_Check(function) ? PyFunction_GET_GLOBALS(function) : nullptr;
    return globals && !decides_showing(module_named_by(globals, interned<"__name__">()));
  };
  if (is_written(object)) return true;
  for (const char* name : {"handle", "emit", "filter", "format", "write"}) {
    PyRef key = PyRef::steal(PyUnicode_InternFromString(name));
    if (is_written(_PyType_Lookup(Py_TYPE(object), key.get()))) return true;
  }
  return false;
}

PyRef attribute(PyObject* object, const char* name) {
  PyRef value = PyRef::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value;
}

bool has_users(PyObject* owner, const char* name) {
  PyRef list = attribute(owner, name);
  for (Py_ssize_t i = 0; list && PyList_Check(list.get()) && i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* each = PyList_GET_ITEM(list.get(), i);
    PyRef formatter = attribute(each, "formatter");
    if (is_users(each) || has_users(each, "filters") || (formatter && is_users(formatter.get()))) return true;
  }
  return false;
}

/// The logger that a method is called on, or that a function of module logging tells: the root.
PyRef logger_told(PyObject* function, PyObject* const* args, size_t nargs) {
  if (PyMethod_Check(function)) return PyRef::share(PyMethod_GET_SELF(function));
  if (nargs && !PyUnicode_Check(args[0])) return PyRef::share(args[0]);
  PyRef module = PyRef::steal(import_module("logging"));
  return attribute(module.get(), "root");
}

/// Does the logger let pass what this function of logging's tells it? Of `log` the level is an argument.
bool lets_pass(PyObject* logger, PyFunctionObject* function) {
  constexpr std::pair<const char*, int> kLevels[] = {{"debug", 10}, {"info", 20},  {"warning", 30},
                                                     {"warn", 30},  {"error", 40}, {"critical", 50}};
  for (const auto& [name, level] : kLevels) {
    if (!is_among(function->func_name, {name})) continue;
    PyRef passes = PyRef::steal(PyObject_CallMethod(logger, "isEnabledFor", "i", level));
    if (!passes) PyErr_Clear();
    return passes.get() != Py_False;
  }
  return true;
}

}  // namespace

bool reaches_users_code(PyObject* callable, PyObject* const* args, size_t nargs) {
  PyObject* function = PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable;
  if (!PyFunction_Check(function) ||
      !is_among(module_named_by(PyFunction_GET_GLOBALS(function), interned<"__name__">()), {"logging"}))
    return false;
  const NativeWatch::Pause unwatched;
  PyRef logger = logger_told(callable, args, nargs);
  if (!logger || !lets_pass(logger.get(), reinterpret_cast<PyFunctionObject*>(function))) return false;
  if (PyRef adapted = attribute(logger.get(), "logger")) logger = std::move(adapted);
  for (bool first = true; logger && logger.get() != Py_None; first = false) {
    if (has_users(logger.get(), "handlers") || (first && has_users(logger.get(), "filters"))) return true;
    PyRef goes_on = attribute(logger.get(), "propagate");
    if (!goes_on || PyObject_IsTrue(goes_on.get()) != 1) return false;
    logger = attribute(logger.get(), "parent");
  }
  return false;
}

/// A handler of the user's may keep what it was told, which it is told at the region's end.
void World::note_reading(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const bool own = decides_showing(module_named_by(type_dict(type), interned<"__module__">()));
  shown_otherwise += !own && is_class_that_shows(type);
}

void Writes::note_showing(const Source* written) {
  if (world_.calls.empty() && world_.awaited.empty()) return;
  if (world_.users_code_shows) {  // any object may be what it goes by
    ++world_.shown_otherwise;
    return;
  }
  // Which levels a logger lets pass is found again without it.
  if (written->access == Access::dict_item && is_among(written->key.get(), {"_cache"})) return;
  for (const Source* at = written; at; at = at->parent)
    if (shows_by(*at)) {
      ++world_.shown_otherwise;
      return;
    }
}

void Recording::check_shown() {
  constexpr Why why = Why::showing_changed;
  auto check = [&](PyObject* code, int pc, std::optional<int> otherwise) {
    if (!otherwise || *otherwise == world.shown_otherwise) return;
    breaks.push_back({why, {line_of(reinterpret_cast<PyCodeObject*>(code), pc)}, breaks_are_errors()});
    not_past(code, pc, why);
  };
  for (const Awaited& each : world.awaited) check(each.code.get(), each.pc, each.otherwise);
  for (const DelayedCall& each : world.calls) {
    const auto& [function, pc] = each.callers.back();
    check(reinterpret_cast<PyFunctionObject*>(function.get())->func_code, pc, each.otherwise);
  }
}

}  // namespace bolt::observe
