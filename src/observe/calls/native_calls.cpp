// observe/calls/native_calls.cpp
// A native callable with its arguments -> its result, and notes of what it read and wrote, which its row in
// cfunctions.def says.

#include "guard/assumption.h"
#include "interp/call.h"

#include <algorithm>
#include <string>
#include <vector>

#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/calls/special_calls.h"
#include "observe/recording.h"
#include "observe/values/draws.h"
#include "observe/values/late.h"
#include "observe/values/number_calls.h"
#include "python/slots.h"

namespace bolt::observe {

using interp::Semantics;

namespace {

bool is_cached_function(PyObject* object) {
  static PyTypeObject* const type = native_type("functools", "_lru_cache_wrapper");
  return Py_IS_TYPE(object, type);
}

/// A list out of `spare`, which gets it back empty: there is one for each native call in progress.
struct Reused {
  explicit Reused(std::vector<std::vector<PyObject*>>& spare) : spare(spare) {
    if (spare.empty()) return;
    list = std::move(spare.back());
    spare.pop_back();
  }
  Reused(const Reused&) = delete;
  ~Reused() {
    list.clear();
    spare.push_back(std::move(list));
  }
  std::vector<std::vector<PyObject*>>& spare;
  std::vector<PyObject*> list;
};

bool names_keyword(PyObject* kwnames, const char* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), name) == 0) return true;
  return false;
}

/// World::own_numbers_of, also of lists within lists, which a tensor is made of.
void own_numbers_within(World& world, PyObject* object, int depth = 4) {
  world.own_numbers_of(object);
  if (depth == 0 || !is_sequence(object) || Py_SIZE(object) == 0 ||
      !is_sequence(PySequence_Fast_GET_ITEM(object, 0)))
    return;
  world.read_whole(object);
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    own_numbers_within(world, PySequence_Fast_GET_ITEM(object, i), depth - 1);
}

/// A dict is made of `pairs`: only their keys are read.
void use_keys_of_pairs(World& world, PyObject* pairs) {
  if (PyDictItems_Check(pairs) || (PyDict_Check(pairs) && Py_TYPE(pairs)->tp_iter == PyDict_Type.tp_iter))
    return;  // told apart where they were put
  if (!is_sequence(pairs)) return world.use(pairs);
  for (Py_ssize_t i = 0; i < Py_SIZE(pairs); ++i) {
    PyObject* pair = PySequence_Fast_GET_ITEM(pairs, i);
    world.use(is_sequence(pair) && Py_SIZE(pair) == 2 ? PySequence_Fast_GET_ITEM(pair, 0) : pair);
  }
}

/// Will World::of_list be asked what the function gives, which then reads none of the numbers?
bool is_told_as_a_whole(World& world, const CFunction& row, PyObject* container) {
  const bool orders = row.method == "sorted" || row.method == "sort";
  return row.is(Trait::of_numbers) && !orders && world.lists.has_any_length(container);
}

/// With numbers that are followed in those that the function goes through.
StandIns followed_items(World& world, const Native& native, PyObject* const* args, size_t nargs, size_t total,
                        size_t first) {
  StandIns made(args, total);
  const CFunction& row = *native.row;
  const bool reads_all = row.kind == Kind::tensor || row.is(Trait::only_items);
  if (native.self && reads_all) world.own_numbers_of(native.self);
  for (size_t i = 0; i < total; ++i) {
    if (!reads_all && !row.goes_through(i - first, nargs - first)) continue;
    if (row.kind == Kind::tensor) own_numbers_within(world, args[i]);
    if (is_told_as_a_whole(world, row, args[i])) continue;
    PyRef tuple = world.with_followed(args[i]);
    if (!tuple) continue;
    made.put(i, std::move(tuple));
  }
  return made;
}

PyObject* item_of(PyObject* tensor) { return PyObject_CallMethod(tensor, "item", nullptr); }

/// What it is given is read, but for what it only hands on. `unnamed`: so many of `all` have no names.
void use_arguments(World& world, const CFunction& row, const std::vector<PyObject*>& all, size_t nargs,
                   size_t unnamed, bool special) {
  // Of what is only stored in a place nothing is read either, nor of what is there: only which place it is.
  const bool places = row.is(Trait::places);
  const bool copies = all.size() == 2 && is_sequence(all[1]) && row.name == "tuple.__new__";
  const bool pairs = row.is(Trait::pairs);
  // What goes through items hands those on; where it begins to count, and how often it repeats, it reads.
  const bool goes_through = row.is(Trait::through_first) || row.is(Trait::through_all);
  auto is_read = [&](size_t i) {
    if (row.kind == Kind::appends) return false;
    // The name of an attribute, a key; of a class.
    if (special && PyUnicode_Check(all[i]) && !world.followed_keys.may_follow_keys(all[0]) &&
        i == (all.size() == 3 && row.name == "type" ? 0 : 1))
      return true;
    if (row.is(Trait::hands_on)) return goes_through && !(i < nargs && row.goes_through(i, nargs));
    if (pairs) return i < unnamed && !PyDict_CheckExact(all[i]) && !PyODict_CheckExact(all[i]);
    // What hangs on the keys stays or goes as it is; popitem gives it as a dict from outside has it.
    if (i == 0 && row.is(Trait::takes) && row.method != "_count_elements")
      return row.method == "popitem" && world.find(all[0]);
    return places ? i == 1 && !(PyDict_Check(all[0]) && world.followed_keys.may_follow_keys(all[0]))
                  : !copies;
  };
  for (size_t i = 0; i < all.size() && !world.all_are_read(); ++i)
    if (goes_through && PyUnicode_Check(all[i]))  // each letter is read
      world.use(all[i]);
    else if (pairs && is_read(i))
      use_keys_of_pairs(world, all[i]);
    else if (is_read(i) && row.is(Trait::tells_apart))
      World::is_told_by_identity(all[i]) ? void() : world.use_elements(all[i]);
    else if (is_read(i))
      special ? world.use_scalar(all[i]) : world.use(all[i]);
}

}  // namespace

PyObject* Recording::run_native(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                                const CFunction& row) {
  NativeWatch watch(hooks_);
  const NativeReader reader(*this, row.is(Trait::hands_on));
  reads_later_ |= PyType_Check(callable) && row.is(Trait::inside);
  const bool watches = ends.leaves_thread_changed;
  const guard::ThreadState state = watches ? guard::ThreadState::now() : guard::ThreadState();
  hooks_.lend_items(row.kind == Kind::tensor && !row.is(Trait::ignores_sizes | Trait::is_operator));
  PyObject* result = PyObject_Vectorcall(callable, args, nargs, kwnames);
  if (!result && says_compiling()) result = call_with_stack(callable, args, nargs, kwnames);
  hooks_.lend_items(false);
  if (watches && on && !guard::ThreadState::now().can_follow(state)) {
    const RaisedAside raised;
    not_past_here(*interp::current_frame(), {Why::changes_thread, row.name});
  }
  if (!watch.seen().empty() && on) {
    const Reason why(Why::ran_python, watch.seen(), row.name);
    const RaisedAside raised;
    end_here(*interp::current_frame(), why);
    not_past_here(*interp::current_frame(), why);
  }
  return result;
}

namespace {

PyRef question_of(PyObject* const* args, size_t nargs) {
  PyRef question = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(nargs)));
  for (size_t i = 0; question && i < nargs; ++i)
    PyTuple_SET_ITEM(question.get(), static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
  return question;
}

}  // namespace

PyRef with_keywords(PyObject* function, PyObject* const* values, PyObject* kwnames) {
  if (!kwnames || PyTuple_GET_SIZE(kwnames) == 0) return PyRef::share(function);
  PyRef keywords = PyRef::steal(PyDict_New());
  for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, i), values[i]) < 0) return {};
  PyRef tools = PyRef::steal(import_module("functools"));
  PyRef partial = PyRef::steal(tools ? PyObject_GetAttrString(tools.get(), "partial") : nullptr);
  PyRef first = PyRef::steal(keywords && partial ? PyTuple_Pack(1, function) : nullptr);
  return PyRef::steal(first ? PyObject_Call(partial.get(), first.get(), keywords.get()) : nullptr);
}

/// A cached function is a constant as long as it gives the same again: its cache may be cleared.
PyObject* Recording::call_cached(PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  PyObject* result = call_for_constant(function, args, nargs, kwnames);
  PyRef question = result ? question_of(args, nargs) : PyRef();
  PyRef asked = question ? with_keywords(function, args + nargs, kwnames) : PyRef();
  if (asked) world.tree->constant(asked.get())->assume_answer(question.get(), result);
  return result && !asked ? Py_DECREF(result), nullptr : result;
}

/// Calls what tells of the process or the thread. Null without an exception: there is no telling whether a
/// later answer is the same.
PyObject* Recording::ask(PyObject* function, PyObject* const* args, size_t nargs) {
  PyRef question = question_of(args, nargs);
  PyRef answer = PyRef::steal(question ? guard::ask(function, question.get()) : nullptr);
  if (!answer || !guard::is_leaf(question.get()) || !guard::is_telling(answer.get())) return nullptr;
  if (!flags.are_set(function, question.get()))
    world.tree->constant(function)->assume_answer(question.get(), answer.get());
  return PyList_CheckExact(answer.get()) ? PySequence_List(answer.get())
                                         : answer.release();  // theirs to change
}

/// An argument that a result is remembered for must be the same in later calls.
void Recording::use_as_key(Frame& frame, PyObject* object) {
  world.use(object);
  if (guard::is_leaf(object)) return;
  if (Py_IS_TYPE(object, &Py_GenericAliasType)) {  // list[int]: equal to every other one of the same classes
    PyRef args = PyRef::steal(PyObject_GetAttrString(object, "__args__"));
    return args ? use_as_key(frame, args.get()) : PyErr_Clear();
  }
  Known* known = world.find(object);
  if (PyTuple_CheckExact(object)) {
    world.read_whole(object);
    for (Py_ssize_t i = 0; on && i < PyTuple_GET_SIZE(object); ++i)
      use_as_key(frame, PyTuple_GET_ITEM(object, i));
  } else if (known) {
    known->source->assume(Check::is, object);
  } else if (!PyType_Check(object) && !is_module(object)) {
    end_here(frame, {Why::calls_cached, Py_TYPE(object)->tp_name});
  }
}

/// all[0].update(...): keys of both that differ between calls.
static void note_update(World& world, const std::vector<PyObject*>& all, PyObject* kwnames) {
  const bool of_dicts =
      !kwnames && std::all_of(all.begin(), all.end(), [](PyObject* each) { return PyDict_Check(each); });
  for (PyObject* each : all)
    if (!of_dicts)
      world.followed_keys.use_keys(each);
    else if (each != all[0])
      world.followed_keys.puts_keys(all[0], each);
}

bool drops_result(const Frame& frame, PyObject* called) {
  namespace op = interp::op;
  const interp::Instr& instr = frame.instr();
  if (instr.op != op::CALL || frame.stack_depth() < instr.arg + 2) return false;
  if (frame.peek(instr.arg + 2) != called && frame.peek(instr.arg + 1) != called) return false;
  return frame.prepared->instrs[static_cast<size_t>(frame.pc() + instr.length)].op == op::POP_TOP;
}

namespace {

/// The first item or the last, as an index says; nothing: another.
std::optional<bool> is_first(PyObject* index) {
  if (!PyLong_CheckExact(index)) return std::nullopt;
  int overflow = 0;
  const long at = PyLong_AsLongAndOverflow(index, &overflow);
  return overflow || (at != 0 && at != -1) ? std::nullopt : std::optional(at == 0);
}

}  // namespace

/// Methods of lists and deques that put or take something at one of their ends. False: it is none of these.
static bool note_end_write(World& world, const Frame& frame, PyObject* callable, const CFunction& row,
                           const std::vector<PyObject*>& all) {
  const bool list = PyList_Check(all[0]);
  if (!list && !is_deque(all[0])) return false;
  const auto first = all.size() > 1 ? is_first(all[1]) : std::nullopt;
  const bool puts = !list && (row.method == "append" || row.method == "appendleft") && all.size() == 2;
  if (puts)
    world.lengths.about_to_put(all[0], row.method == "appendleft");
  else if (list && row.method == "insert" && all.size() == 3 && first.value_or(false))
    world.lengths.about_to_put(all[0], true);
  else if (row.method == "clear" && all.size() == 1)
    return world.lengths.about_to_clear(all[0]);
  else if ((row.method == "pop" || row.method == "popleft") && (all.size() == 1 || (list && first)))
    world.lengths.about_to_take(all[0], first.value_or(row.method == "popleft"),
                                !drops_result(frame, callable));
  else
    return false;
  return true;
}

/// Notes what a call writes to a dict from outside, and what an OrderedDict does with its order. False: that
/// is not followed.
static bool note_dict_write(World& world, const Frame& frame, PyObject* callable, const CFunction& row,
                            const std::vector<PyObject*>& all) {
  if (!row.is(Trait::takes) || all.empty() || !PyDict_Check(all[0])) return false;
  if (row.method == "clear" && all.size() == 1) return world.lengths.about_to_clear(all[0]);
  if (row.method == "popitem" && all.size() == 1) return world.lengths.about_to_take_last(all[0]);
  if (all.size() != 2 || !PyODict_CheckExact(all[0])) return false;
  if (row.method == "move_to_end" && all[1] != Py_False) return world.lengths.about_to_move(all[0], all[1]);
  return row.method == "popitem" && all[1] == Py_False && drops_result(frame, callable) &&
         world.lengths.about_to_take_first(all[0]);
}

/// Notes that a call puts one element into a set from outside, or takes it out. False: that is not followed.
static bool note_set_write(World& world, const CFunction& row, const std::vector<PyObject*>& all) {
  if (all.size() != 2 || !PySet_CheckExact(all[0]) || !world.follows()) return false;
  const bool adds = row.name == "set.add";
  if (!adds && row.name != "set.discard" && row.name != "set.remove") return false;
  if (row.name == "set.remove" && PySet_Contains(all[0], all[1]) != 1) return PyErr_Clear(), false;
  return world.followed_keys.about_to_write_element(all[0], all[1], !adds);
}

/// What a native function of kind `writes` or `appends` is about to do to its first argument.
static void note_write(World& world, const CFunction& row, const std::vector<PyObject*>& all,
                       PyObject* kwnames) {
  PyObject* container = all[0];
  if (!PyDict_Check(container) || row.is(Trait::takes))
    return world.writes.about_to_write(container, row.kind == Kind::appends);
  const size_t named = interp::keyword_count(kwnames);
  if (row.method == "__setitem__" || row.method == "__delitem__" || row.method == "__missing__") {
    if (all.size() > 1) world.writes.about_to_write_item(container, all[1], row.method == "__delitem__");
    return;
  }
  for (size_t i = 1; i < all.size() - named; ++i) world.writes.about_to_update(container, all[i]);
  for (size_t i = 0; i < named; ++i)
    world.writes.about_to_write_item(container, PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i)));
}

/// Operators look inside what they are given.
void Recording::touch_operand(Frame& frame, PyObject* operand) {
  if (guard::is_plain_tensor(operand)) return;
  if (PyList_CheckExact(operand) || PyTuple_CheckExact(operand))
    for (Py_ssize_t i = 0; on && i < Py_SIZE(operand); ++i)
      end_if_overridden(frame, PySequence_Fast_GET_ITEM(operand, i));
  touch(frame, operand, true);
}

/// An operator gave `result` (stolen). Returns it; null: eager raises.
PyObject* Recording::note_result(Frame& frame, const Native& native, PyObject* const* args, size_t nargs,
                                 PyObject* kwnames, PyObject* result) {
  // zeros(..., requires_grad=True): what is asked of the new tensor is no operator.
  if (on && kwnames && guard::is_tensor(result) && names_keyword(kwnames, "requires_grad") &&
      guard::requires_grad(result) && !world.find(result) && !require_grad(frame, result, true)) {
    if (PyErr_Occurred()) return Py_DECREF(result), nullptr;
    end_here(frame, {Why::calls_with_gradients, native.row->name});
  }
  const bool may_be_late = on && !native.self && hooks_.has_news() && hooks_.wants_end();
  if (!world.follows() && !may_be_late) return result;
  const std::vector<PyObject*> all = interp::all_given(native.self, args, nargs, kwnames);
  if (world.follows()) sizes_seen(world, *native.row, all, result);
  if (may_be_late) late_operator(*this, native.callable, all, kwnames, result, frame);
  return result;
}

/// Nothing matters of the call but what it is of: no number among what it is given is followed, or will be.
bool Recording::is_plain_call(const Native& native, PyObject* const* args, size_t nargs) {
  return native.row && native.row->plain_operator && !PyType_Check(native.callable) && world.all_are_read() &&
         !world.follows() && !follows_numbers_ && !takes_size_of_tensor(native, args, nargs);
}

PyObject* Recording::call_operator(Frame& frame, const Native& native, PyObject* const* args, size_t nargs,
                                   PyObject* kwnames) {
  PyObject* callable = native.callable;
  const size_t total = nargs + interp::keyword_count(kwnames);
  if (native.self) touch_operand(frame, native.self);
  for (size_t i = 0; on && i < total; ++i) touch_operand(frame, args[i]);
  if (!on) return Semantics::call_native(frame, callable, args, nargs, kwnames);
  world.asked_offsets |= native.row->is(Trait::tells_offset);
  mark(frame);
  PyObject* result = run_native(callable, args, nargs, kwnames, *native.row);
  const bool news = hooks_.has_news() || world.open_numbers.lent_open() || world.wants_watch();
  if (!news && !kwnames && result && guard::is_plain_tensor(result)) return result;
  if (result) note_given(frame, result);
  if (result && !(result = note_result(frame, native, args, nargs, kwnames, result))) return nullptr;
  end_if_wanted(frame);
  return result;
}

PyObject* Recording::call_native(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                 PyObject* kwnames) {
  auto natively = [&] { return Semantics::call_native(frame, callable, args, nargs, kwnames); };
  if (!on) return natively();
  size_t total = nargs + interp::keyword_count(kwnames);
  const Native native = calling_.callable == callable ? calling_ : find_cfunction(callable);
  const StandIns taken = numbers_taken(native, args, nargs, total, [&](PyObject* tensor, bool is_size) {
    PyObject* number = on ? model_data(frame, tensor, item_of, nullptr) : nullptr;
    const bool may_be_open = !number && !PyErr_Occurred() && is_size;
    return may_be_open ? late_data(frame, tensor, item_of, false) : number;
  });
  args = taken.args();
  if (!on) return natively();
  if (is_plain_call(native, args, nargs)) return call_operator(frame, native, args, nargs, kwnames);
  if (PyObject* number = numpy_call(frame, callable, args, nargs, kwnames); number || PyErr_Occurred())
    return number;
  if (!on) return natively();
  // A cached function's result depends on its arguments only: that is what its author says.
  if (is_cached_function(callable)) {
    // The answer is that of this function, not of any other that is found in its place.
    if (Known* known = world.find(callable)) known->source->assume(Check::is, callable);
    for (size_t i = 0; on && i < total; ++i) use_as_key(frame, args[i]);
    return on ? call_cached(callable, args, nargs, kwnames) : natively();
  }
  if (PyType_Check(callable) && (callable != reinterpret_cast<PyObject*>(&PyType_Type) || total != 1) &&
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(callable), &PyType_Type))
    make_class(frame);
  const CFunction& row = *native.row;
  PyObject* self = native.self;
  // A list known by its ends is not read whole for what C says of its numbers.
  if (!kwnames && row.is(Trait::of_numbers) &&
      world.lengths.known_by_ends(self    ? self
                                  : nargs ? args[0]
                                          : callable)) {
    std::vector<PyObject*> of_list(args, args + nargs);
    if (self) of_list.insert(of_list.begin(), self);
    PyObject* result = world.lists.of_list(row.method, callable, of_list);
    if (result || PyErr_Occurred()) return result;
  }
  const size_t first = Py_IS_TYPE(callable, &PyMethodDescr_Type) && nargs ? 1 : 0;
  if (PyObject* result = array_tensor_call(*this, frame, native, args, nargs, kwnames);
      result || PyErr_Occurred())
    return result;
  if (row.kind == Kind::tensor && hooks_.follows_numbers())
    if (PyObject* result = list_tensor_call(*this, frame, native, args, nargs, kwnames);
        result || PyErr_Occurred())
      return result;
  if (!on) return natively();
  const StandIns followed = followed_items(world, native, args, nargs, total, first);
  args = followed.args();
  Reused reused(argument_lists_);
  std::vector<PyObject*>& all = reused.list;  // with self first
  if (self) all.push_back(self);
  all.insert(all.end(), args, args + total);
  // A Python class on top of a native one makes more than that does.
  const bool derived = PyType_Check(callable) && callable != guard::tensor_class() &&
                       is_python_class(reinterpret_cast<PyTypeObject*>(callable));
  if (!derived && !kwnames && all.size() == nargs + (self ? 1 : 0)) {
    PyObject* number = take_data(frame, row, all);
    if (!number && !PyErr_Occurred()) number = early_call(world, row, callable, all, self, kwnames);
    if (number || PyErr_Occurred()) return number;
    if (on) number = late_text(*this, frame, row, all);
    if (number || PyErr_Occurred()) return number;
  }
  if (on && !kwnames && row.is(Trait::of_numbers)) {
    PyObject* result = world.lists.of_list(row.method, callable, all);
    if (result || PyErr_Occurred()) return result;
    for (PyObject* each : all) world.own_numbers_of(each);
  }
  if (!derived && world.follows() && on) {
    PyObject* result = size_call(*this, frame, native, all, kwnames);
    if (result || PyErr_Occurred()) return result;
  }
  if (!derived && on &&
      (note_dict_write(world, frame, callable, row, all) || note_set_write(world, row, all))) {
    mark(frame);
    return run_native(callable, args, nargs, kwnames, row);
  }
  // Putting a number into a list reads nothing of it, nor does asking for its type; whatever else is native
  // may. Operations in disguise look inside their operands by themselves.
  const bool special = row.kind == Kind::special && !derived;
  use_arguments(world, row, all, nargs, nargs + (self ? 1 : 0), special);
  for (size_t i = 0; i < all.size() && !special && !row.is(Trait::calls); ++i) use_unseen(all[i]);
  const bool pairs = on && row.is(Trait::pairs);
  if (pairs && !PyType_Check(callable))
    note_update(world, all, kwnames);
  else if (pairs && (all.size() > 1 || derived))  // dict(other) has its keys
    for (PyObject* each : all) world.followed_keys.use_keys(each);
  if (!on) return natively();
  if (special) {
    PyObject* result =
        call_specially(row, {*this, frame, all.data(), nargs + (self ? 1 : 0), kwnames, callable});
    if (result || PyErr_Occurred()) return result;
    if (!on) return natively();
  }
  // What torch.Tensor itself makes operators make; a class of the user's has a name that they do not know.
  const bool is_another = derived && (row.kind == Kind::tensor || row.is(Trait::itself));
  if (row.kind == Kind::ends || row.kind == Kind::unknown || is_another) {
    end_here(frame, {row.kind == Kind::ends ? Why::calls : Why::calls_unknown, row.name});
    return natively();
  }
  bool writes = row.kind == Kind::writes || row.kind == Kind::appends;
  const bool deep = row.kind == Kind::deep;
  // Python that it calls looks for itself.
  const bool inside =
      row.is(Trait::inside) && !(row.is(Trait::calls) && std::any_of(args, args + total, calls_python));
  for (size_t i = writes || special ? 1 : 0; on && i < all.size(); ++i)
    if (!row.is(Trait::by_class) || !is_understood_container(all[i]))
      row.kind == Kind::tensor ? touch_operand(frame, all[i])
                               : touch(frame, all[i], deep || (inside && !PyDict_Check(all[i])));
  for (size_t i = 0; on && row.is(Trait::pairs) && i < all.size(); ++i)
    if (is_sequence(all[i])) world.read_deep(all[i], 2);
  if (on && inside && writes) world.read_deep(all[0]);
  if (on && row.is(Trait::tells_apart)) {
    for (PyObject* each : all) {
      world.told_apart(each);
      for (Py_ssize_t i = 0; is_sequence(each) && i < Py_SIZE(each); ++i)
        world.told_apart(PySequence_Fast_GET_ITEM(each, i));
    }
  }
  if (on && row.is(Trait::takes) && !all.empty())
    world.followed_keys.use_keys(all[0]), world.read_whole(all[0]);
  if (on && writes && !all.empty() && !note_end_write(world, frame, callable, row, all))
    note_write(world, row, all, kwnames);
  if (!on) return natively();
  if (row.is(Trait::asked)) {
    if (PyObject* answer = kwnames ? nullptr : ask(callable, args, nargs)) return answer;
    if (PyErr_Occurred()) return nullptr;
    end_here(frame, {Why::calls, row.name});
    return natively();
  }

  // C code must not meet Python functions and Python iterables as they are: it would have CPython run them.
  StandIns passed(args, total);
  for (size_t i = 0; i < total; ++i) {
    PyObject* arg = args[i];
    PyRef stand_in;
    if (row.is(Trait::calls) && (interp::is_our_function(arg) || is_partial(arg) || PyMethod_Check(arg)))
      stand_in = PyRef::steal(interp::make_interpreted_function(arg));
    else if (Py_TYPE(arg)->tp_iter == python_slots.iter && row.goes_through(i - first, nargs - first))
      stand_in = PyRef::steal(row.is(Trait::begins_late) ? interp::make_interpreted_function(arg)
                                                         : get_iter(frame, arg));
    if (PyErr_Occurred()) return nullptr;
    if (stand_in) passed.put(i, std::move(stand_in));
  }
  world.asked_offsets |= row.is(Trait::tells_offset);
  mark(frame);
  PyObject* result = run_native(callable, passed.args(), nargs, kwnames, row);
  if (result) note_given(frame, result);
  if (result && row.kind == Kind::tensor &&
      !(result = note_result(frame, native, args, nargs, kwnames, result)))
    return nullptr;
  auto advances = [](PyObject* each) { return PyIter_Check(each) != 0; };
  end_if_wanted(frame, writes || std::any_of(all.begin(), all.end(), advances));
  return result;
}

}  // namespace bolt::observe
