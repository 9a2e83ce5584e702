// observe/values/late.cpp
// A call that only shows something to the user, a text or tensor that nothing of the region looks at -> done,
// or made, at the region's end, which it need not cause. (Numbers taken out of tensors, and random ones, are
// followed: number_operations.cpp.)
//
//   print(f"loss {loss.item():.3f}")      item() gives an open number, the format a late text, print is
//   delayed
//
// A *delayed call* (print, warnings.warn, a logger's methods, what config.reorderable_logging_functions
// names) runs at once in the recorded run; the recipe of the region repeats it, in order, after everything
// else it does. So what it is given must be the same then: numbers, texts and tuples of them; tensors that
// the region does not write afterwards; anything else print would turn into text is turned into text here and
// now.
//
// A *late value* has its real value in the recorded run, under an address of its own, and a description of
// how it is made at the region's end. It may be kept, returned, formatted and shown. What reads it (a
// comparison, an index, C code) ends the region first: World::use is asked before anything reads a number,
// and here also before text is read.
//
// Both rest on tensors keeping their contents until the region ends. Where one is written after all, that is
// found out at the end: the recording is not kept, and the next one ends before the instruction that wanted
// the tensor (Recording::not_past).
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "guard/number_lists.h"
#include "observe/calls/native_watch.h"
#include "observe/ends/frames.h"
#include "observe/recording.h"
#include "observe/values/clocks.h"
#include "observe/values/late.h"
#include "python/slots.h"
#include "support/pointer_map.h"

namespace bolt::observe {

using interp::Semantics;

// -- Late values

PyObject* World::make_late(PyObject* object, Make make, std::vector<PyRef> parts, Py_ssize_t number) {
  PyRef held = PyRef::steal(object);
  if (!object) return nullptr;
  late_[object] = {held, make, std::move(parts), number};
  return held.release();
}

bool World::holds_late(PyObject* object) const {
  if (late_.empty() || !object) return false;
  if (late(object)) return true;
  if (!PyTuple_Check(object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
    if (holds_late(PyTuple_GET_ITEM(object, i))) return true;
  return false;
}

/// `part` is something that a text is made of: do later calls know it when they check their guards?
bool World::is_known_when_checked(PyObject* part) const {
  if (!part) return true;
  if (const Late* made = late(part))
    return PyUnicode_Check(part) &&
           std::all_of(made->parts.begin(), made->parts.end(),
                       [&](const PyRef& each) { return is_known_when_checked(each.get()); });
  if (PyTuple_CheckExact(part))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(part); ++i)
      if (!is_known_when_checked(PyTuple_GET_ITEM(part, i))) return false;
  return !guard::is_tensor(part) && !is_open(part);
}

/// A text that is made of numbers guards know is what it is as long as those are.
void World::use_late(const Late& made) {
  if (!is_known_when_checked(made.object.get())) return end_region(Why::late_read);
  for (const PyRef& part : made.parts) use(part.get());
}

void World::await(PyObject* tensor, PyObject* code, int pc, bool is_followed) {
  awaited.push_back({PyRef::share(tensor), version_of(tensor), PyRef::share(code), pc, shown_otherwise,
                     is_followed ? std::optional(hooks_.recorded()) : std::nullopt});
}

bool World::is_awaited(PyObject* tensor) const {
  return std::ranges::any_of(awaited, [&](const Awaited& each) { return each.tensor.get() == tensor; });
}

int64_t World::version_of(PyObject* tensor) const {
  // x.data counts its writes apart and inference tensors count none: the recorder counts those to the memory.
  const int64_t version = guard::version_of(tensor), writes = hooks_.writes(tensor);
  return version < 0 ? writes : version + std::max<int64_t>(writes, 0);
}

namespace {

/// What `show` gives, whose operators belong to showing a tensor, not to the region.
template <class Show>
PyObject* while_showing(Recording& recording, const Show& show) {
  const NativeWatch::Pause unwatched;
  return recording.hooks().unseen(show);
}

/// `text` at an address of its own: of one letter, CPython has one object for all who have it, and what
/// `"%s" % word` gives is the word itself. Null: there is none (the empty text), or an exception.
PyRef own_text(PyRef text) {
  if (!text || !PyUnicode_CheckExact(text.get()) || PyUnicode_GET_LENGTH(text.get()) == 0) return {};
  if (Py_REFCNT(text.get()) == 1) return text;
  const Py_ssize_t length = PyUnicode_GET_LENGTH(text.get());
  PyRef copy = PyRef::steal(PyUnicode_New(length, PyUnicode_MAX_CHAR_VALUE(text.get())));
  if (copy && PyUnicode_CopyCharacters(copy.get(), 0, text.get(), 0, length) < 0) return {};
  return copy;
}

}  // namespace

/// Does the format ask for the letter with this number, as "{:c}" does? It raises for most numbers.
static bool raises_for_some(PyObject* number, PyObject* spec) {
  if (!PyLong_Check(number) || !PyUnicode_Check(spec) || !PyUnicode_GET_LENGTH(spec)) return false;
  return PyUnicode_READ_CHAR(spec, PyUnicode_GET_LENGTH(spec) - 1) == 'c';
}

bool can_show(Recording& recording, PyObject* tensor) {
  World& world = recording.world;
  // The recipe makes texts before it gives the tensor its data: the text would show the old ones.
  if (world.writes.was_given(Effect::set_data, tensor)) return false;
  return !world.late(tensor) && world.version_of(tensor) >= 0 &&
         (world.find(tensor) || recording.hooks().knows(tensor));
}

PyObject* late_format(Recording& recording, Frame& frame, PyObject* value, int conversion, PyObject* spec) {
  World& world = recording.world;
  if (spec && world.is_unread(spec)) return nullptr;
  if (guard::is_array(value)) return nullptr;  // it may be written before the region ends
  const bool tensor = guard::is_tensor(value) && !world.late(value);
  if (tensor ? !can_show(recording, value) : !world.is_unread(value)) return nullptr;
  if (spec && raises_for_some(value, spec)) return nullptr;
  PyRef text = PyRef::steal(while_showing(recording, [&] { return format_text(value, conversion, spec); }));
  // A text that is as wide as the format wants is given back as it is; padded ones are new texts.
  const bool as_it_is = !spec || (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0);
  if (text.get() == value && as_it_is) return text.release();
  text = own_text(std::move(text));
  if (!text) return nullptr;
  if (tensor) world.await(value, reinterpret_cast<PyObject*>(frame.code()), frame.pc());
  return world.make_late(text.release(), Make::format, {PyRef::share(value), PyRef::share(spec)}, conversion);
}

PyObject* late_join(World& world, PyObject* text, PyObject* const* items, Py_ssize_t n) {
  bool any = false;
  for (Py_ssize_t i = 0; i < n; ++i) any |= world.is_unread(items[i]);
  if (!any || !text || world.is_unread(text)) return text;  // "" + text gives the very object `text`
  std::vector<PyRef> parts;
  for (Py_ssize_t i = 0; i < n; ++i) parts.push_back(PyRef::share(items[i]));
  return world.make_late(text, Make::join, std::move(parts));
}

namespace {

bool is_delayable_leaf(PyObject* object) {
  if (guard::is_leaf(object)) return true;
  if (!PyTuple_Check(object) || _PyObject_GetDictPtr(object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
    if (!is_delayable_leaf(PyTuple_GET_ITEM(object, i))) return false;
  return true;
}

/// May `format % items` raise for other numbers than these, as "%d" does for inf?
bool asks_for_ints(PyObject* format, PyObject* const* items, Py_ssize_t n) {
  std::string_view text = PyUnicode_AsUTF8(format);
  Py_ssize_t next = 0;
  for (size_t at = text.find('%'); at < text.size(); at = text.find('%', at + 1)) {
    at = text.find_first_not_of(" #0-+.123456789hlL", at + 1);
    if (at >= text.size()) return true;
    if (text[at] == '%') continue;
    if (next == n || !std::strchr("srafFgGeEdi", text[at])) return true;
    if (std::strchr("di", text[at]) && !PyLong_Check(items[next])) return true;
    ++next;
  }
  return false;
}

}  // namespace

static bool shows_late(const World& world, PyObject* object) {
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object))
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      if (world.is_unread(PySequence_Fast_GET_ITEM(object, i))) return true;
  return world.is_unread(object);
}

/// Are all of them numbers or texts, late or not, or other leaves?
static bool can_interpolate(const World& world, PyObject* const* items, Py_ssize_t n) {
  return std::all_of(items, items + n, [&](PyObject* item) {
    return is_delayable_leaf(item) || (world.late(item) && PyUnicode_Check(item));
  });
}

/// The late text that `text % args` or `text.format(*args)` gives; null without an exception where it is
/// none.
static PyObject* late_interpolation(Recording& recording, PyObject* text, PyObject* const* items,
                                    Py_ssize_t n, PyObject* args) {
  World& world = recording.world;
  if (!can_interpolate(world, items, n)) return nullptr;
  if (args && asks_for_ints(text, items, n)) return nullptr;
  if (!args && PyUnicode_FindChar(text, '[', 0, PyUnicode_GET_LENGTH(text), 1) >= 0)
    return nullptr;  // as "{[3]}" would be given a letter of a text
  world.use(text);
  PyRef made = PyRef::steal(while_showing(recording, [&] {
    const PyRef format = PyRef::steal(args ? nullptr : PyObject_GetAttrString(text, "format"));
    return args ? PyUnicode_Format(text, args)
                : PyObject_Vectorcall(format.get(), items, static_cast<size_t>(n), nullptr);
  }));
  made = own_text(std::move(made));
  if (!made) return PyErr_Clear(), nullptr;  // it raises again when C code does it
  std::vector<PyRef> parts = {PyRef::share(text)};
  if (args)
    parts.push_back(PyRef::share(args));
  else
    for (Py_ssize_t i = 0; i < n; ++i) parts.push_back(PyRef::share(items[i]));
  return world.make_late(made.release(), Make::interpolate, std::move(parts), args ? 0 : 1);
}

/// The late text that an operator of texts gives; null without an exception where no operand is late, or one
/// is read.
PyObject* late_operation(Recording& recording, int kind, PyObject* left, PyObject* right) {
  World& world = recording.world;
  if (!PyUnicode_CheckExact(left)) return nullptr;
  if (kind == interp::Binary::remainder && !world.late(left) && shows_late(world, right) &&
      !PyList_Check(right)) {
    if (!PyTuple_CheckExact(right)) return late_interpolation(recording, left, &right, 1, right);
    return late_interpolation(recording, left, &PyTuple_GET_ITEM(right, 0), PyTuple_GET_SIZE(right), right);
  }
  if (kind != interp::Binary::add || !PyUnicode_CheckExact(right) ||
      !(world.is_unread(left) || world.is_unread(right)))
    return nullptr;
  PyObject* const both[] = {left, right};
  return late_join(world, PyUnicode_Concat(left, right), both, 2);
}

/// The late text that str(n), repr(n), format(n, spec), text.format(n, ...) or text.join(texts) gives, where
/// `all` is what C code is given; null without an exception where it is none.
PyObject* late_text(Recording& recording, Frame& frame, const CFunction& row,
                    const std::vector<PyObject*>& all) {
  if (!row.is(Trait::makes_text)) return nullptr;
  if (std::none_of(all.begin(), all.end(), [&](PyObject* each) { return shows_late(recording.world, each); }))
    return nullptr;
  const size_t n = all.size();
  if (n == 1 && row.name == "str") return late_format(recording, frame, all[0], 1, nullptr);
  if (n == 1 && row.name == "builtins.repr") return late_format(recording, frame, all[0], 2, nullptr);
  if (n <= 2 && row.name == "builtins.format")
    return late_format(recording, frame, all[0], 0, n == 2 ? all[1] : nullptr);
  if (n < 2 || !PyUnicode_CheckExact(all[0]) || recording.world.late(all[0])) return nullptr;
  if (row.name == "str.format")
    return late_interpolation(recording, all[0], &all[1], static_cast<Py_ssize_t>(n) - 1, nullptr);
  if (row.name != "str.join" || n != 2 || !(PyList_CheckExact(all[1]) || PyTuple_CheckExact(all[1])))
    return nullptr;
  recording.touch(frame, all[1]);
  std::vector<PyObject*> parts;
  for (Py_ssize_t i = 0; i < Py_SIZE(all[1]); ++i) {
    if (i > 0) parts.push_back(all[0]);
    parts.push_back(PySequence_Fast_GET_ITEM(all[1], i));
    if (!PyUnicode_CheckExact(parts.back())) return nullptr;
  }
  return recording.on ? late_join(recording.world, PyUnicode_Join(all[0], all[1]), parts.data(),
                                  static_cast<Py_ssize_t>(parts.size()))
                      : nullptr;
}

/// Only the data decide how large the result of x.nonzero() or x[mask] is, so the region would end there. It
/// goes on instead: the result is a late value, which the region may hand on but not look at.
bool late_operator(Recording& recording, PyObject* callable, const std::vector<PyObject*>& args,
                   PyObject* kwnames, PyObject* result, const Frame& frame) {
  World& world = recording.world;
  // An operator of ATen's gave data to Python; another reason is that the region has become long.
  if (kwnames || recording.hooks().wants_end()->why != Why::operator_ends || !guard::is_tensor(result))
    return false;
  if (guard::ThreadState::now() != recording.before)
    return false;  // at the region's end it would run in another state
  if (recording.hooks().end_may_raise())
    return false;  // at the region's end nobody would catch the error who would catch it here
  if (!world.find(callable) || std::find(args.begin(), args.end(), result) != args.end()) return false;
  for (PyObject* arg : args)
    if (world.late(arg) || !(guard::is_tensor(arg) ? can_show(recording, arg) : guard::is_leaf(arg)))
      return false;
  recording.hooks().take_back();
  std::vector<PyRef> parts = {PyRef::share(callable)};
  for (PyObject* arg : args) {
    if (guard::is_tensor(arg))
      world.await(arg, reinterpret_cast<PyObject*>(frame.code()), frame.pc(), guard::requires_grad(result));
    parts.push_back(PyRef::share(arg));
  }
  Py_XDECREF(world.make_late(Py_NewRef(result), Make::call, std::move(parts)));
  return true;
}

// -- Delayed calls

namespace {

/// What a call shows: print shows the text of any object; loggers, and what the user named, show what they
/// are given. What is shown `here` is not delayed. Notice is given of a change, which shows nothing.
enum class Shows : uint8_t { nothing, text, message, here, named, notice };

struct ShowingCalls {
  const char *module, *cls;
  const char* names;
  Shows shows;
};
constexpr ShowingCalls kShowing[] = {
    {"builtins", nullptr, "print", Shows::text},
    {"warnings", nullptr, "warn", Shows::message},
    {"_warnings", nullptr, "_filters_mutated _filters_mutated_lock_held", Shows::notice},
    {"logging", "Logger", "debug info warning warn error critical log", Shows::message},
    {"logging", "LoggerAdapter", "debug info warning warn error critical log", Shows::message},
    {"logging", nullptr, "debug info warning warn error critical log", Shows::message},
    // Calls of a logger that are not delayed come here where their level is logged.
    {"logging", "Logger", "_log", Shows::here},
};

PointerMap<Shows>& showing() {
  static auto* all = new PointerMap<Shows>();
  return *all;
}

/// Adds the rows of modules that have been loaded since.
void look_up_showing() {
  static std::unordered_set<const ShowingCalls*> done;
  // This is asked at every call of a recording, and only a new module can change the answer.
  static Py_ssize_t loaded = 0;
  PyObject* modules = PyImport_GetModuleDict();
  if (std::exchange(loaded, PyDict_GET_SIZE(modules)) == PyDict_GET_SIZE(modules)) return;
  for (const ShowingCalls& row : kShowing) {
    PyObject* module = PyDict_GetItemString(modules, row.module);
    if (!module || !done.insert(&row).second) continue;
    PyRef owner = row.cls ? PyRef::steal(PyObject_GetAttrString(module, row.cls)) : PyRef::share(module);
    std::string_view names = row.names;
    while (owner && !names.empty()) {
      const size_t end = names.find(' ');
      PyRef function =
          PyRef::steal(PyObject_GetAttrString(owner.get(), std::string(names.substr(0, end)).c_str()));
      if (function) showing()[function.release()] = row.shows;
      names = end == names.npos ? std::string_view() : names.substr(end + 1);
    }
  }
  PyErr_Clear();
}

}  // namespace

bool& delays_calls() {
  static bool yes = true;
  return yes;
}

void show_with(PyObject* callable, bool yes) {
  look_up_showing();
  if (!showing().find(callable)) Py_INCREF(callable);  // its row stays for good, so it is held
  Shows& shows = showing()[callable];
  if (yes && shows == Shows::nothing)
    shows = Shows::named;
  else if (!yes && shows == Shows::named)
    shows = Shows::nothing;
}

namespace {

/// What a function or method shows, and how.
Shows shown_by(PyObject* callable) {
  PyObject* function = PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable;
  if (!PyFunction_Check(function) && !is_builtin_function(function)) return Shows::nothing;
  look_up_showing();
  const Shows* shows = showing().find(function);
  return shows ? *shows : Shows::nothing;
}

bool shows_whole(PyObject* callable, Shows shows) {
  return (shows == Shows::here || shows == Shows::named) && !PyCFunction_Check(callable);
}

}  // namespace

bool shows_whole(PyObject* callable) { return shows_whole(callable, shown_by(callable)); }

namespace {

/// How an argument is shown at the region's end. `itself` is for loggers and streams, which may have changed
/// by then.
enum class ShownAs : uint8_t { itself, tensor, text, copy, nothing };

}  // namespace

/// `depth` says how far into lists, tuples and dicts to look.
static ShownAs shown_as(Recording& recording, PyObject* arg, bool as_text, int depth = 4) {
  if (guard::is_array(arg)) return ShownAs::nothing;  // it may be written before the region ends
  if (recording.world.late(arg) || is_delayable_leaf(arg)) return ShownAs::itself;
  if (guard::is_tensor(arg)) return can_show(recording, arg) ? ShownAs::tensor : ShownAs::nothing;
  if (as_text) return ShownAs::text;
  if (depth == 0) return ShownAs::nothing;
  auto cannot = [&](PyObject* inside) {
    return shown_as(recording, inside, false, depth - 1) == ShownAs::nothing;
  };
  if (PyDict_CheckExact(arg)) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(arg, &position, &key, &value))
      if (!guard::is_leaf(key) || cannot(value)) return ShownAs::nothing;
    return ShownAs::copy;
  }
  if (!PyList_CheckExact(arg) && !PyTuple_CheckExact(arg)) return ShownAs::nothing;
  for (Py_ssize_t i = 0; i < Py_SIZE(arg); ++i)
    if (cannot(PySequence_Fast_GET_ITEM(arg, i))) return ShownAs::nothing;
  return ShownAs::copy;
}

/// How each argument is shown; nothing where one of them cannot be shown at the region's end.
static std::vector<ShownAs> all_shown_as(Recording& recording, PyObject* const* args, size_t nargs,
                                         PyObject* kwnames, bool as_text) {
  std::vector<ShownAs> all;
  const size_t total = nargs + interp::keyword_count(kwnames);
  for (size_t i = 0; i < total; ++i) {
    const bool named = i >= nargs;
    PyObject* name = named ? PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - nargs)) : nullptr;
    if (name && !PyUnicode_CompareWithASCIIString(name, "exc_info") && args[i] != Py_False &&
        args[i] != Py_None)
      return {};
    const bool object =
        recording.world.find(args[i]) && !guard::is_tensor(args[i]) && !is_understood_container(args[i]);
    const bool is_itself = object && (as_text ? named : i == 0);
    all.push_back(is_itself ? ShownAs::itself : shown_as(recording, args[i], as_text && !named));
    if (all.back() == ShownAs::nothing) return {};
  }
  return all;
}

static PyRef delayed_argument(Recording& recording, Frame& frame, PyObject* arg, ShownAs how);

/// A copy of a list, tuple or dict as it is now, with all that is in it; null where the region has ended or
/// there is an exception.
static PyRef delayed_copy(Recording& recording, Frame& frame, PyObject* container) {
  recording.touch(frame, container);
  if (!recording.on) return {};
  const bool dict = PyDict_CheckExact(container);
  PyRef items = PyRef::steal(dict ? PyDict_Copy(container) : PySequence_List(container));
  if (!items) return {};
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (dict && PyDict_Next(container, &position, &key, &value)) {
    PyRef copy = delayed_argument(recording, frame, value, shown_as(recording, value, false));
    if (!copy || PyDict_SetItem(items.get(), key, copy.get()) < 0) return {};
  }
  for (Py_ssize_t i = 0; !dict && i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    PyRef copy = delayed_argument(recording, frame, item, shown_as(recording, item, false));
    if (!copy) return {};
    PyList_SetItem(items.get(), i, copy.release());
  }
  return PyTuple_CheckExact(container) ? PyRef::steal(PyList_AsTuple(items.get())) : std::move(items);
}

/// What the delayed call is given for an argument; null as delayed_copy is.
static PyRef delayed_argument(Recording& recording, Frame& frame, PyObject* arg, ShownAs how) {
  if (how == ShownAs::copy) return delayed_copy(recording, frame, arg);
  if (how == ShownAs::text) return PyRef::steal(recording.format_value(frame, arg, 1, nullptr));
  if (how == ShownAs::tensor)
    recording.world.await(arg, reinterpret_cast<PyObject*>(frame.code()), frame.pc());
  return PyRef::share(arg);
}

/// Null without an exception: it cannot be delayed.
static PyObject* delay(Recording& recording, Frame& frame, PyObject* callable, PyObject* const* args,
                       size_t nargs, PyObject* kwnames, Shows shows) {
  World& world = recording.world;
  const bool as_text = shows == Shows::text;
  const std::vector<ShownAs> how = all_shown_as(recording, args, nargs, kwnames, as_text);
  if (how.empty() && (nargs || kwnames)) return nullptr;
  DelayedCall call{PyRef::share(callable), {}, PyRef::share(kwnames), {}, std::nullopt};
  if (shows != Shows::notice) call.otherwise = world.shown_otherwise;
  std::vector<PyObject*> shown;
  for (size_t i = 0; i < how.size(); ++i) {
    PyRef arg = delayed_argument(recording, frame, args[i], how[i]);
    if (!arg) return nullptr;
    shown.push_back(arg.get());
    call.args.push_back(std::move(arg));
  }
  for (const Frame* each : frames_of(frame))
    call.callers.emplace_back(PyRef::share(reinterpret_cast<PyObject*>(each->func())), each->pc());
  // Making the texts may have run code that ended the region: then the call is no part of it.
  const bool delayed = recording.on;
  PyObject* result =
      while_showing(recording, [&] { return PyObject_Vectorcall(callable, shown.data(), nargs, kwnames); });
  if (result && result != Py_None) world.distrust("a delayed call returned something");
  if (result && delayed) world.calls.push_back(std::move(call));
  return result;
}

PyObject* show_later(Recording& recording, Frame& frame, PyObject* callable, PyObject* const* args,
                     size_t nargs, PyObject* kwnames) {
  World& world = recording.world;
  const Shows shows = shown_by(callable);
  if (shows == Shows::nothing) return nullptr;
  bool may_wait = shows != Shows::here && delays_calls() && interp::bottom_of(frame) == recording.entry;
  if (may_wait && shows == Shows::message && reaches_users_code(callable, args, nargs)) {
    // The user's code may go by what the region writes, or write there itself.
    world.users_code_shows = true;
    may_wait = world.writes.written.empty() && world.writes.written_fields.empty();
  }
  if (may_wait) {
    PyObject* result = delay(recording, frame, callable, args, nargs, kwnames, shows);
    if (result || PyErr_Occurred()) return result;
  }
  if (!shows_whole(callable, shows)) return nullptr;
  recording.end_here(frame, {Why::cannot_wait, full_name(callable)});
  return PyObject_Vectorcall(callable, args, nargs, kwnames);
}

// Tensors whose contents are shown must still hold them. (Autograd adds up gradients in the opposite order of
// the operators, which the layout of the sum, and its last digits, go by. Where no region may end that is all
// that differs.)
void Recording::check_awaited() {
  for (const Awaited& each : world.awaited) {
    const bool written = world.version_of(each.tensor.get()) != each.version;
    const bool overtaken =
        each.followed_from && !breaks_are_errors() && hooks_.gives_followed(*each.followed_from);
    if (!written && !overtaken) continue;
    const Why why = written ? Why::shown_written : Why::shown_followed;
    auto* code = reinterpret_cast<PyCodeObject*>(each.code.get());
    breaks.push_back({why, {line_of(code, each.pc)}, breaks_are_errors()});
    not_past(each.code.get(), each.pc, why);
  }
  check_clocks(*this);
  check_shown();
}

}  // namespace bolt::observe
