// observe/calls/special_containers.cpp
// See special_calls.h. Items, lengths and iteration.
#include "interp/call.h"
#include "observe/calls/controls.h"
#include "observe/calls/special_calls.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

PyObject* length(const SpecialCall& c) {
  if (c.nargs != 1) return nullptr;
  if (c.recording.world.follows() && guard::is_tensor(c.args[0]) &&
      guard::rank_of(*guard::tensor_impl(c.args[0])) > 0)
    return c.recording.world.tensor_size(c.args[0], 0);
  if (is_understood_container(c.args[0]) && !is_python_class(Py_TYPE(c.args[0])))
    return c.recording.world.lengths.length(c.args[0]);
  Py_ssize_t n = c.recording.length(c.frame, c.args[0]);
  return n < 0 ? nullptr : PyLong_FromSsize_t(n);
}

/// next(iter(d)): is what the call in progress gives an argument of next() alone?
bool goes_to_next(const Frame& frame) {
  namespace op = interp::op;
  static PyObject* const next = PyDict_GetItemString(PyEval_GetBuiltins(), "next");
  const interp::Instr& instr = frame.instr();
  if (instr.op != op::CALL || instr.arg != 1 || frame.stack_depth() < 5) return false;
  int at = frame.pc() + instr.length;
  auto following = [&]() -> const interp::Instr& { return frame.prepared->instrs[at]; };
#if !BOLT_PY312
  if (following().op == op::PRECALL) at += following().length;
#endif
  return following().op == op::CALL && following().arg == 1 &&
         (frame.peek(4) == next || frame.peek(5) == next);
}

PyObject* iterate(const SpecialCall& c) {
  if (c.nargs != 1) return nullptr;
  if (goes_to_next(c.frame) && c.recording.world.places.has_first_key(c.args[0])) {
    PyObject* iterator = PyObject_GetIter(c.args[0]);
    if (iterator) c.recording.world.places.asks_first_key(iterator, c.args[0]);
    return iterator;
  }
  return c.recording.get_iter(c.frame, c.args[0]);
}

PyObject* next_item(const SpecialCall& c) {
  if (PyObject* key = c.nargs == 1 ? c.recording.world.places.first_key(c.args[0]) : nullptr) return key;
  if (c.nargs < 1 || c.nargs > 2 || c.kwnames || !Py_TYPE(c.args[0])->tp_iternext) return nullptr;
  PyObject* value = c.recording.iter_next(c.frame, c.args[0]);
  if (value || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_StopIteration))) return value;
  if (c.nargs > 1) {
    PyErr_Clear();
    return Py_NewRef(c.args[1]);
  }
  if (!PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
  return nullptr;
}

/// `for item in reversed(...)`: each item is read when its turn has come.
PyObject* reversed_in_loop(const SpecialCall& c, PyObject* sequence, Py_ssize_t length) {
  PyObject* function = stand_in("reversed");
  PyRef count = PyRef::steal(PyLong_FromSsize_t(length));
  if (!function || !count) return nullptr;
  c.recording.world.pin(function);
  c.recording.world.note_function(function);
  PyObject* args[] = {sequence, count.get()};
  return interp::run_to_end(c.recording,
                            interp::start_call(c.recording, c.frame, function, args, 2, nullptr));
}

/// Is a loop what goes through the result of the call in progress?
bool goes_to_loop(const Frame& frame) {
  const auto next = static_cast<size_t>(frame.pc() + frame.instr().length);
  return frame.prepared->instrs[next].op == interp::op::GET_ITER;
}

/// Reading ModuleList and the like shows nowhere, so that is done at once: loops through a list in which
/// regions end are one program for all turns.
bool is_of_torch(PyObject* function) {
  PyObject* module = reinterpret_cast<PyFunctionObject*>(function)->func_module;
  return module && PyUnicode_Check(module) &&
         std::string_view(PyUnicode_AsUTF8(module)).starts_with("torch.nn.");
}

/// reversed() of an object with a length and items in Python, and no `__reversed__`.
PyObject* reversed_items(const SpecialCall& c) {
  if (c.nargs != 1 || c.kwnames) return nullptr;
  PyObject* sequence = c.args[0];
  if (PyUnicode_Check(sequence)) c.recording.world.use(sequence);
  c.recording.world.own_numbers_of(sequence);
  c.recording.touch(c.frame, sequence);
  PyRef name = PyRef::steal(PyUnicode_InternFromString("__reversed__"));
  if (!is_heap_type(Py_TYPE(sequence)) || c.recording.world.type_attr(Py_TYPE(sequence), name.get()))
    return nullptr;
  PyObject* item_method = c.recording.world.type_attr(Py_TYPE(sequence), names_of.getitem_);
  if (!item_method || !PyFunction_Check(item_method)) return nullptr;
  const Py_ssize_t n = c.recording.length(c.frame, sequence);
  if (n >= 0 && goes_to_loop(c.frame) && !is_of_torch(item_method)) return reversed_in_loop(c, sequence, n);
  PyRef items = PyRef::steal(n < 0 ? nullptr : PyList_New(0));
  for (Py_ssize_t i = n - 1; items && i >= 0; --i) {
    PyRef index = PyRef::steal(PyLong_FromSsize_t(i));
    PyRef item = PyRef::steal(c.recording.get_item(c.frame, sequence, index.get()));
    const bool ends =
        !item && (PyErr_ExceptionMatches(PyExc_IndexError) || PyErr_ExceptionMatches(PyExc_StopIteration));
    if (ends) {
      PyErr_Clear();
      break;
    }
    if (!item || PyList_Append(items.get(), item.get()) < 0) return nullptr;
  }
  return items ? PyObject_GetIter(items.get()) : nullptr;
}

PyObject* set_item(const SpecialCall& c) {
  return c.nargs == 3 ? none_if(c.recording.set_item(c.frame, c.args[0], c.args[1], c.args[2])) : nullptr;
}

PyObject* delete_item(const SpecialCall& c) {
  return c.nargs == 2 ? none_if(c.recording.delete_item(c.frame, c.args[0], c.args[1])) : nullptr;
}

/// Does finding the key run Python code? Then CPython does it all; plain keys World::dict_get looks at
/// itself.
bool asks_the_key(const SpecialCall& c) {
  return !World::is_plain_key(c.args[1]) && !c.recording.world.dict_key(c.args[0], c.args[1]);
}

PyObject* dict_get(const SpecialCall& c) {
  if (c.nargs < 2 || c.nargs > 3 || c.kwnames || !PyDict_Check(c.args[0]) || asks_the_key(c)) return nullptr;
  PyObject* value = c.recording.world.dict_get(c.args[0], c.args[1]);
  if (!value && PyErr_Occurred()) return nullptr;
  return Py_NewRef(value ? value : c.nargs > 2 ? c.args[2] : Py_None);
}

PyObject* dict_contains(const SpecialCall& c) {
  if (c.nargs != 2 || !PyDict_Check(c.args[0]) || asks_the_key(c)) return nullptr;
  PyObject* value = c.recording.world.dict_get(c.args[0], c.args[1]);
  return PyErr_Occurred() ? nullptr : boolean(value != nullptr);
}

PyObject* dict_subscript(const SpecialCall& c) {
  if (c.nargs != 2 || !PyDict_Check(c.args[0]) || asks_the_key(c)) return nullptr;
  PyObject* value = c.recording.world.dict_get(c.args[0], c.args[1]);
  PyErr_Clear();
  if (value) return Py_NewRef(value);
  static PyObject* const name = PyUnicode_InternFromString("__missing__");
  const bool asks = is_python_class(Py_TYPE(c.args[0]));
  PyObject* missing = asks ? c.recording.world.type_attr(Py_TYPE(c.args[0]), name) : nullptr;
  if (missing && PyFunction_Check(missing)) return c.recording.call(c.frame, missing, c.args, 2, nullptr);
  c.recording.world.use_scalar(c.args[1]);  // the error tells of it
  return nullptr;
}

/// A read of the key, then maybe a write. A number that differs between calls is given as World knows it,
/// where the dict has it as it was found; what a class of its own gives is taken for what it is.
PyObject* read_then_write(const SpecialCall& c, bool takes) {
  if (c.nargs < 2 || !PyDict_Check(c.args[0]) || asks_the_key(c)) return nullptr;
  PyObject* dict = c.args[0];
  if (takes && drops_result(c.frame, dict) && c.recording.world.lengths.about_to_take_first(dict, c.args[1]))
    return PyObject_DelItem(dict, c.args[1]) < 0 ? nullptr : Py_NewRef(Py_None);
  PyRef there = PyRef::share(c.recording.world.dict_get(dict, c.args[1]));
  PyErr_Clear();
  const bool plain = PyDict_CheckExact(dict) && c.nargs <= 3;
  if (!plain) c.recording.world.use(there.get());
  if (takes && !there && c.nargs < 3) c.recording.world.use(c.args[1]);  // the error tells of it
  if (takes == static_cast<bool>(there))
    c.recording.world.writes.about_to_write_item(dict, c.args[1], static_cast<bool>(there));
  if (!there || !plain || (takes && PyDict_DelItem(dict, c.args[1]) < 0)) return nullptr;
  return there.release();
}

PyObject* dict_pop(const SpecialCall& c) { return read_then_write(c, true); }
PyObject* dict_set_default(const SpecialCall& c) { return read_then_write(c, false); }

/// Which element comes first depends on where in the set the last pop() stopped.
PyObject* pop_any(const SpecialCall& c) {
  if (c.nargs && c.recording.world.find(c.args[0])) c.recording.end_here(c.frame, Why::set_popped);
  return nullptr;
}

}  // namespace

void add_container_calls(SpecialCalls& table) {
  table.insert({
      {"builtins.len", length},
      {"builtins.iter", iterate},
      {"builtins.next", next_item},
      {"list_iterator.__next__", next_item},
      {"tuple_iterator.__next__", next_item},
      {"range_iterator.__next__", next_item},
      {"_operator.setitem", set_item},
      {"_operator.delitem", delete_item},
      {"set.pop", pop_any},
      {"reversed", reversed_items},
      {"dict.get", dict_get},
      {"dict.__contains__", dict_contains},
      {"dict.__getitem__", dict_subscript},
      {"dict.pop", dict_pop},
      {"dict.setdefault", dict_set_default},
      {"collections.OrderedDict.get", dict_get},
      {"collections.OrderedDict.__contains__", dict_contains},
      {"collections.OrderedDict.__getitem__", dict_subscript},
      {"collections.OrderedDict.pop", dict_pop},
      {"collections.OrderedDict.setdefault", dict_set_default},
  });
}

}  // namespace bolt::observe
