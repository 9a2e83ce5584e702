// observe/calls/special_state.cpp
// See special_calls.h. State of the thread and of the process: locks,
// contexts, modules.
#include "observe/calls/native_watch.h"
#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

/// CPython looks into the cells by itself.
PyObject* all_locals(const SpecialCall& c) {
  for (int i = 0; i < c.frame.local_count(); ++i)
    if (PyObject* local = c.frame.locals()[i]; local && PyCell_Check(local))
      c.recording.world.cell_get(local);
  return nullptr;
}

/// vars(), which is locals(), or an object's `__dict__`.
PyObject* names_within(const SpecialCall& c) {
  if (c.nargs != 1 || c.kwnames) return all_locals(c);
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  PyObject* names = c.recording.get_attr(c.frame, c.args[0], name);
  if (!names && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();  // vars() words the error
  return names;
}

/// Contexts of C++ that change what operators do. Inference mode is recorded with them and guarded; the rest
/// is not.
PyObject* native_context(const SpecialCall& c) {
  if (!c.nargs || std::string(Py_TYPE(c.args[0])->tp_name) != "torch._C._InferenceMode")
    c.recording.end_here(c.frame, Why::native_context);
  return nullptr;
}

/// functools.cached_property guards its dict with a lock, which a compiled call has no need of, unless the
/// region ends while it is held.
bool is_lock_of_functools(const SpecialCall& c) {
  PyObject* module = PyDict_GetItemString(c.frame.func()->func_globals, "__name__");
  return module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "functools") == 0;
}

PyObject* enter_lock(const SpecialCall& c) {
  if (is_lock_of_functools(c) && c.nargs == 1)
    c.recording.world.locks.push_back(PyRef::share(c.args[0]));
  else
    c.recording.end_here(c.frame, Why::lock_used);
  return nullptr;
}

PyObject* leave_lock(const SpecialCall& c) {
  auto& locks = c.recording.world.locks;
  if (is_lock_of_functools(c) && c.nargs && !locks.empty() && locks.back().get() == c.args[0])
    locks.pop_back();
  else
    c.recording.end_here(c.frame, Why::lock_released);
  return nullptr;
}

/// What an import statement does. Of the globals it is given it reads the package's name only. Python code
/// that finds and runs a module does so once in a process.
PyObject* import_statement(const SpecialCall& c) {
  if (!c.nargs || c.nargs > 5 || c.kwnames || (c.nargs == 5 && !PyLong_Check(c.args[4]))) return nullptr;
  PyObject* const globals = c.nargs > 1 ? c.args[1] : nullptr;
  PyObject* const from = c.nargs > 3 ? c.args[3] : nullptr;
  const int level = c.nargs > 4 ? static_cast<int>(PyLong_AsLong(c.args[4])) : 0;
  const NativeWatch::Pause pause;
  PyObject* module = PyImport_ImportModuleLevelObject(c.args[0], globals, nullptr, from, level);
  c.recording.world.imported(module);
  return module;
}

PyObject* context_get(const SpecialCall& c) {
  if (!c.nargs || !PyContextVar_CheckExact(c.args[0])) return nullptr;
  return Py_XNewRef(c.recording.world.context_value(c.args[0]));
}

PyObject* context_set(const SpecialCall& c) {
  if (c.nargs && PyContextVar_CheckExact(c.args[0])) c.recording.world.writes.about_to_set_context(c.args[0]);
  return nullptr;
}

/// Reset by the end of the region (`try: token = v.set(x) ... finally: v.reset(token)`), it is no effect.
PyObject* context_reset(const SpecialCall& c) {
  if (c.nargs == 2 && PyContextVar_CheckExact(c.args[0]) &&
      !c.recording.world.writes.about_to_reset_context(c.args[0], c.args[1]))
    c.recording.end_here(c.frame, Why::context_reset);
  return nullptr;
}

/// traceback.clear_frames(), as assertRaises calls it. A frame that runs refuses; what others held is let go
/// of, and tracebacks that are made again have frames that hold nothing.
PyObject* clear_frame(const SpecialCall& c) {
  if (c.nargs != 1 || !PyFrame_Check(c.args[0])) return nullptr;
  const bool runs = reinterpret_cast<PyFrameObject*>(c.args[0])->f_frame->owner == FRAME_OWNED_BY_THREAD;
  if (!runs && c.recording.world.find(c.args[0])) c.recording.end_here(c.frame, Why::frame_cleared);
  return nullptr;
}

/// torchbolt::name, as the function in C that torch.ops calls; new.
PyObject* our_operator(const char* name) {
  const NativeWatch::Pause pause;  // torch.ops finds it in Python
  static PyObject* const all = [] {
    PyRef torch = PyRef::steal(bolt::import_module("torch"));
    PyRef ops = PyRef::steal(torch ? PyObject_GetAttrString(torch.get(), "ops") : nullptr);
    return ops ? PyObject_GetAttrString(ops.get(), "torchbolt") : nullptr;
  }();
  PyRef packet = PyRef::steal(all ? PyObject_GetAttrString(all, name) : nullptr);
  return packet ? PyObject_GetAttrString(packet.get(), "_op") : nullptr;
}

bool is_on_cpu(PyObject* generator) {
  PyRef device = PyRef::steal(PyObject_GetAttrString(generator, "device"));
  PyRef type = PyRef::steal(device ? PyObject_GetAttrString(device.get(), "type") : nullptr);
  if (!type) PyErr_Clear();
  return type && PyUnicode_Check(type.get()) && !PyUnicode_CompareWithASCIIString(type.get(), "cpu");
}

/// torch.Generator(): each call makes its own (record::CallGenerators), which nobody sees but operators.
PyObject* make_generator(const SpecialCall& c) {
  auto* const cls = reinterpret_cast<PyObject*>(native_type("torch._C", "Generator"));
  const bool can = c.recording.hooks().names_generators();
  PyRef made = PyRef::steal(can ? PyObject_Vectorcall(cls, c.args, c.nargs, c.kwnames) : nullptr);
  if (can && !made) return nullptr;
  PyRef op = PyRef::steal(made && is_on_cpu(made.get()) ? our_operator("make_generator") : nullptr);
  if (!op) {
    if (!PyErr_Occurred()) c.recording.end_here(c.frame, Why::generator_made);
    return nullptr;
  }
  PyObject* const args[] = {made.get()};
  PyRef done = PyRef::steal(c.recording.call_native(c.frame, op.get(), args, 1, nullptr));
  if (!done) return nullptr;
  c.recording.note_given(c.frame, made.get());
  return made.release();
}

PyObject* seed_generator(const SpecialCall& c) {
  int overflow = 0;
  const bool is_int = c.nargs == 2 && !c.kwnames && PyLong_CheckExact(c.args[1]);
  if (is_int) PyLong_AsLongLongAndOverflow(c.args[1], &overflow);
  const bool can = is_int && !overflow && !c.recording.world.is_open(c.args[1]) && is_on_cpu(c.args[0]) &&
                   c.recording.hooks().names_generators();
  PyRef op = PyRef::steal(can ? our_operator("seed_generator") : nullptr);
  if (!op) {
    if (!PyErr_Occurred()) c.recording.end_here(c.frame, {Why::calls, "torch.Generator.manual_seed"});
    return nullptr;
  }
  PyRef done = PyRef::steal(c.recording.call_native(c.frame, op.get(), c.args, 2, nullptr));
  return done ? Py_NewRef(c.args[0]) : nullptr;
}

}  // namespace

void add_state_calls(SpecialCalls& table) {
  table.insert({
      {"builtins.locals", all_locals},
      {"builtins.vars", names_within},
      {"builtins.__import__", import_statement},
      {"torch._C.__enter__", native_context},
      {"torch._C.__exit__", native_context},
      {"frame.clear", clear_frame},
      {"torch._C.Generator", make_generator},
      {"torch._C.Generator.manual_seed", seed_generator},
      {"_thread.RLock.__enter__", enter_lock},
      {"_thread.RLock.__exit__", leave_lock},
      {"_contextvars.ContextVar.get", context_get},
      {"_contextvars.ContextVar.set", context_set},
      {"_contextvars.ContextVar.reset", context_reset},
  });
}

}  // namespace bolt::observe
