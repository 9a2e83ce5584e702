// observe/ends/frames.cpp
#include "observe/ends/frames.h"

#include <string>
#include <string_view>

#include "interp/async_generator.h"
#include "interp/call.h"
#include "interp/generator.h"
#include "interp/liveness.h"
#include "observe/calls/controls.h"
#include "observe/calls/numpy_draws.h"
#include "observe/lifetimes/noticed.h"
#include "observe/observation.h"

namespace bolt::observe {

using interp::Frame;

namespace {

/// Code of torch's own files, or of ours?
bool look_up_library(PyCodeObject* code) {
  static const std::string folder = [] {
    const RaisedAside raised;
    PyRef module = PyRef::steal(import_module("torch"));
    PyRef file = PyRef::steal(module ? PyModule_GetFilenameObject(module.get()) : nullptr);
    if (!file) return PyErr_Clear(), std::string();
    const std::string path = PyUnicode_AsUTF8(file.get());
    return path.substr(0, path.rfind('/') + 1);
  }();
  const std::string_view file = PyUnicode_AsUTF8(code->co_filename);
  return file.starts_with("<torchbolt") || (!folder.empty() && file.starts_with(folder));
}

/// Asked of every frame for each native call, so each code remembers.
bool is_of_library(const Frame& frame) {
  enum : uint8_t { unknown, yes, no };
  uint8_t& known = frame.prepared->observers_note;
  if (known == unknown) known = look_up_library(frame.code()) ? yes : no;
  return known == yes;
}

}  // namespace

const Frame* users_frame(const Frame* innermost) {
  for (const Frame* frame = innermost; frame; frame = frame->back)
    if (!is_of_library(*frame)) return frame;
  return innermost;
}

interp::CallStart PlainSteps::start_call(Frame& frame, PyObject* callable, PyObject* const* args,
                                         size_t nargs, PyObject* kwnames) {
  const Controlled found = control_of(callable);
  switch (found.control) {
    case Control::asks_whether_compiling:
      if (asks_for_eager(frame.func()->func_globals)) break;
      return {Py_NewRef(says_compiling() ? Py_True : Py_False), nullptr};
    case Control::ignored: return {Py_NewRef(Py_None), nullptr};
    case Control::forbidden: return set_forbidden(callable), interp::CallStart{};
    case Control::engine:
    case Control::apart:
    case Control::apart_alone:
    case Control::allowed:
    case Control::constant:
    case Control::draws:
    case Control::draws_list:
    case Control::disabled:
      return {PyObject_Vectorcall(found.itself(callable), args, nargs, kwnames), nullptr};
    case Control::substituted: return interp::start_call(*this, frame, found.by, args, nargs, kwnames);
    case Control::stand_in: {
      const auto all = interp::all_given(PyCFunction_GET_SELF(callable), args, nargs, kwnames);
      return interp::start_call(*this, frame, found.by, all.data(), nargs + 1, kwnames);
    }
    case Control::none:
    case Control::asks_whether_differing:
    case Control::ends_region: break;
  }
  if (PyErr_Occurred()) return {};
  const size_t total = nargs + interp::keyword_count(kwnames);
  if (runs_whole(frame) || shows_whole(callable) || only_draws_with_numpy(callable, args, total))
    return {PyObject_Vectorcall(callable, args, nargs, kwnames), nullptr};
  return interp::start_call(*this, frame, callable, args, nargs, kwnames);
}

PyObject* PlainSteps::call_native(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                  PyObject* kwnames) {
  PyObject* result = Semantics::call_native(frame, callable, args, nargs, kwnames);
  return result || !says_compiling() ? result : call_with_stack(callable, args, nargs, kwnames);
}

std::vector<PyObject*> kept_of(PyObject* const* locals, size_t count, const std::vector<bool>& live) {
  std::vector<PyObject*> kept(count);
  for (size_t i = 0; i < count; ++i)
    if (locals[i] && (live[i] || end_is_noticed(locals[i]))) kept[i] = locals[i];
  return kept;
}

bool is_watched(const Frame& frame, const Frame& innermost) {
  auto* own = reinterpret_cast<PyObject*>(frame.raw->frame_obj);
  if (!own || Py_REFCNT(own) == 1) return false;
  for (const Frame* each : frames_of(innermost)) {
    PyObject** locals = each->locals();
    if (std::find(locals, locals + each->local_count(), own) != locals + each->local_count() ||
        std::find(each->stack_base(), each->sp, own) != each->sp)
      return true;
  }
  return false;
}

namespace {

bool is_operand(const Frame& frame, PyObject* object) {
  return std::find(frame.stack_base(), frame.sp, object) != frame.sp;
}

/// The instruction at hand, at which a region has ended or begins.
bool makes_weak_reference(const Frame& frame) {
  return std::any_of(frame.stack_base(), frame.sp, [](PyObject* each) {
    return each && PyType_Check(each) &&
           PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(each), &_PyWeakref_RefType);
  });
}

}  // namespace

std::vector<PyObject*> kept_locals_of(const Frame& frame, const Frame& innermost) {
  const auto count = static_cast<size_t>(frame.local_count());
  if (is_watched(frame, innermost)) return {frame.locals(), frame.locals() + count};
  std::vector<bool> kept =
      interp::live_locals(frame.code(), *frame.prepared, frame.pc(), &frame != &innermost);
  // Nobody would notice the end of what is to be referred to, until the instruction has run.
  if (&frame == &innermost && makes_weak_reference(frame))
    for (size_t i = 0; i < count; ++i) kept[i] = kept[i] || is_operand(frame, frame.locals()[i]);
  return kept_of(frame.locals(), count, kept);
}

namespace {

/// How the body of an asynchronous generator ends rests on what it was asked for.
uintptr_t asked_with(const Frame& frame) {
  if (!frame.awaitable) return 0;
  const bool closed = reinterpret_cast<PyAsyncGenObject*>(frame.generator)->ag_closed;
  return static_cast<uintptr_t>(interp::awaitable_kind(frame.awaitable)) | static_cast<uintptr_t>(closed)
                                                                               << 2;
}

}  // namespace

Place place_of(const Frame& innermost) {
  Place place;
  for (const Frame* frame : frames_of(innermost)) {
    auto* code = reinterpret_cast<PyObject*>(frame->code());
    place.key.insert(place.key.end(),
                     {reinterpret_cast<uintptr_t>(code), static_cast<uintptr_t>(frame->pc()),
                      static_cast<uintptr_t>(frame->stack_depth()),
                      static_cast<uintptr_t>(frame->instance != nullptr) |
                          static_cast<uintptr_t>(is_watched(*frame, innermost)) << 1 |
                          static_cast<uintptr_t>(frame->return_to) << 2 | asked_with(*frame) << 8});
    place.code.push_back(PyRef::share(code));
  }
  return place;
}

namespace {

/// Calls visit(object or null, name) for each root.
template <class Visit>
void visit_roots(const Frame& innermost, Visit visit) {
  visit(interp::bottom_of(innermost)->handled, [] { return "the exception being handled"; });
  for (const Frame* frame : frames_of(innermost)) {
    visit(reinterpret_cast<PyObject*>(frame->func()),
          [&] { return PyUnicode_AsUTF8(frame->code()->co_name); });
    visit(frame->instance, [] { return "self"; });
    visit(frame->namespace_dict(), [] { return "locals()"; });
    visit(frame->generator, [] { return "a running generator"; });
    visit(frame->awaitable, [] { return "what a running generator was asked with"; });
    visit(frame->generator ? interp::generator_handled(frame->generator) : nullptr,
          [] { return "the exception a generator is handling"; });
    const std::vector<PyObject*> kept = kept_locals_of(*frame, innermost);
    for (int i = 0; i < frame->local_count(); ++i) {
      PyObject* names = frame->code()->co_localsplusnames;
      visit(kept[i], [&] { return PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i)); });
    }
    for (PyObject** at = frame->stack_base(); at < frame->sp; ++at) visit(*at, [] { return "a temporary"; });
  }
}

}  // namespace

std::vector<PyObject*> roots_of(const Frame& innermost) {
  std::vector<PyObject*> roots;
  visit_roots(innermost, [&](PyObject* object, auto) { roots.push_back(object); });
  return roots;
}

std::vector<std::string> root_names_of(const Frame& innermost) {
  std::vector<std::string> names;
  visit_roots(innermost, [&](PyObject*, auto name) { names.emplace_back(name()); });
  return names;
}

}  // namespace bolt::observe
