// interp/observe/showing.cpp: something the run writes to -> does what is shown to the user depend on it?
// What is shown is shown at the region's end (late.cpp): where it goes, and how it looks, must be then what
// it was at the call. So writes to that which come after such a call are counted, and a call that saw fewer
// of them than there were in the end is one that the next region ends before (Recording::check_awaited).
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "interp/observe/controls.h"
#include "interp/observe/recording.h"
#include "interp/special.h"

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

PyObject* module_name(PyObject* dict, PyObject* key) {
  return dict && PyDict_Check(dict) ? PyDict_GetItemWithError(dict, key) : nullptr;
}

bool is_class_that_shows(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* each = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (decides_showing(module_name(interp::type_dict(each), interned<"__module__">()))) return true;
  }
  return false;
}

/// Is `object`, a constant or found at `source`, what showing goes by?
bool shows_by(const Source& source) {
  if (source.access == Access::constant) {
    PyObject* object = source.key.get();
    if (PyType_Check(object)) return is_class_that_shows(reinterpret_cast<PyTypeObject*>(object));
    PyObject* names = is_module(object) ? PyModule_GetDict(object) : object;
    return decides_showing(module_name(names, interned<"__name__">()));
  }
  for (const guard::Assumption& each : source.assumptions)
    if (each.check == Check::type_is)
      return is_class_that_shows(reinterpret_cast<PyTypeObject*>(each.value.get()));
  return false;
}

}  // namespace

void World::note_showing(const Source* written) {
  if (calls.empty() && awaited.empty()) return;
  // Which levels a logger lets pass is found again without it.
  if (written->access == Access::dict_item && is_among(written->key.get(), {"_cache"})) return;
  for (const Source* at = written; at; at = at->parent)
    if (shows_by(*at)) {
      ++shown_otherwise;
      return;
    }
}

void Recording::check_shown() {
  const std::string why = "shows something, and how it is shown is changed before the region would end";
  auto check = [&](PyObject* code, int pc, int otherwise) {
    if (otherwise == world.shown_otherwise) return;
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
