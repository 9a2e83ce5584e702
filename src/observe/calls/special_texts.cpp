// observe/calls/special_texts.cpp
// See special_calls.h. Texts of objects.
#include <string_view>

#include "interp/special.h"
#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

/// Does a format string ask for attributes ("{0.name}")?
bool asks_for_attributes(std::string_view format) {
  bool in_name = false;
  for (const char each : format) {
    if (in_name && each == '.') return true;
    in_name = each == '{' || (in_name && each != '}' && each != ':' && each != '!');
  }
  return false;
}

PyObject* format_fields(const SpecialCall& c) {
  const size_t total = c.nargs + interp::keyword_count(c.kwnames);
  const char* format = PyUnicode_Check(c.args[0]) ? PyUnicode_AsUTF8(c.args[0]) : nullptr;
  if (!format || asks_for_attributes(format)) c.recording.end_here(c.frame, Why::format_attributes);
  PyErr_Clear();
  for (size_t i = 0; c.recording.on && i < total; ++i) {
    c.recording.world.use(c.args[i]);
    c.recording.touch(c.frame, c.args[i], true);
  }
  return nullptr;
}

/// What a method written in Python gives, which str() and repr() leave what it is: formatting makes a plain
/// str of one of a derived class. Null without an exception: the class has none.
PyObject* own_text(const SpecialCall& c, PyObject* name) {
  PyTypeObject* type = Py_TYPE(c.args[0]);
  if (!is_python_class(type) || guard::is_tensor(c.args[0])) return nullptr;  // a tensor's are late
  PyObject* method = c.recording.world.type_attr(type, name);
  if (!method || !PyFunction_Check(method)) return nullptr;
  PyRef made = PyRef::steal(interp::call_required(c.recording, c.frame, c.args[0], name, {}));
  if (made && !PyUnicode_Check(made.get()))
    return PyErr_Format(PyExc_TypeError, "%U returned non-string (type %.200s)", name,
                        Py_TYPE(made.get())->tp_name);
  return made.release();
}

PyObject* representation(const SpecialCall& c) {
  if (c.nargs != 1) return nullptr;
  PyObject* made = own_text(c, names_of.repr_);
  return made || PyErr_Occurred() ? made : c.recording.format_value(c.frame, c.args[0], 2, nullptr);
}

PyObject* text(const SpecialCall& c) {
  if (c.nargs != 1 || c.kwnames) return nullptr;
  PyObject* made = own_text(c, names_of.str_);
  if (made || PyErr_Occurred()) return made;
  const bool of_object = Py_TYPE(c.args[0])->tp_str == PyBaseObject_Type.tp_str;
  return of_object ? representation(c) : c.recording.format_value(c.frame, c.args[0], 1, nullptr);
}

PyObject* formatted(const SpecialCall& c) {
  if (!c.nargs || c.nargs > 2 || c.kwnames || (c.nargs == 2 && !PyUnicode_Check(c.args[1]))) return nullptr;
  return c.recording.format_value(c.frame, c.args[0], 0, c.nargs > 1 ? c.args[1] : nullptr);
}

/// Without a spec it is str(); with one, an error that object words.
PyObject* object_format(const SpecialCall& c) {
  const bool plain =
      c.nargs == 2 && !c.kwnames && PyUnicode_Check(c.args[1]) && !PyUnicode_GET_LENGTH(c.args[1]);
  return plain ? c.recording.format_value(c.frame, c.args[0], 1, nullptr) : nullptr;
}

}  // namespace

void add_text_calls(SpecialCalls& table) {
  table.insert({
      {"builtins.repr", representation},
      {"builtins.format", formatted},
      {"str", text},
      {"str.format", format_fields},
      {"str.format_map", format_fields},
      {"object.__str__", representation},
      {"object.__format__", object_format},
  });
}

}  // namespace bolt::observe
