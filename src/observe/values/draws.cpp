// observe/values/draws.cpp
// A call of a function of Python's module `random` -> steps by which each call draws numbers of its own, once
// its guards held (guard::Phase::early).
//
//   random.random(), randint(0, 9)                         a step that draws
//   choices(scales), sample(range(9), 3), shuffle(order)   a step that draws a list, and one for each in it
//   np.random.beta(a, a), rng.uniform(0.5, 1)              numpy's generators, where they are asked for one
//   number
//
// A function that hands out other things than numbers is called whole, between two regions, since what
// follows depends on them.
#include <algorithm>
#include <string_view>

#include "guard/numpy_numbers.h"
#include "observe/calls/native_watch.h"
#include "observe/recording.h"

namespace bolt::observe {
namespace {

using guard::NumberOp;

constexpr Py_ssize_t kMostDrawn = 64;  // numbers in a list that is drawn from, or drawn

/// (generator, numbers... or a range) -> the list that a method of random.Random makes of them. `how`: the
/// method, what else it was given, by place and by name, and whether it writes the list it is given.
PyObject* drawn(PyObject* how, PyObject* const* args, Py_ssize_t nargs) {
  PyRef from = nargs == 2 && PyRange_Check(args[1]) ? PyRef::share(args[1]) : PyRef::steal(PyList_New(0));
  for (Py_ssize_t i = 1; from && PyList_Check(from.get()) && i < nargs; ++i)
    if (PyList_Append(from.get(), args[i]) < 0) return nullptr;
  PyRef first = PyRef::steal(from ? PyTuple_Pack(2, args[0], from.get()) : nullptr);
  PyRef all = PyRef::steal(first ? PySequence_Concat(first.get(), PyTuple_GET_ITEM(how, 1)) : nullptr);
  PyRef result = PyRef::steal(
      all ? PyObject_Call(PyTuple_GET_ITEM(how, 0), all.get(), PyTuple_GET_ITEM(how, 2)) : nullptr);
  return result && PyTuple_GET_ITEM(how, 3) == Py_True ? from.release() : result.release();
}

PyMethodDef drawn_def = {"drawn", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(drawn)),
                         METH_FASTCALL, nullptr};

/// A random.Random from outside. One that was given functions of its own may draw from anywhere, which nobody
/// puts back: it is none.
Known* known_generator(World& world, PyObject* object) {
  static PyObject* const plain = PyObject_GetAttrString(import_module("random"), "Random");
  Known* known = reinterpret_cast<PyObject*>(Py_TYPE(object)) == plain ? world.find(object) : nullptr;
  PyObject* own = known ? world.instance_dict(object) : nullptr;
  for (const char* name : {"random", "getrandbits", "_randbelow"})
    if (own && world.dict_get(own, PyRef::steal(PyUnicode_InternFromString(name)).get())) return nullptr;
  return known;
}

/// Are there numbers of one kind in a list or tuple, known when guards are checked?
bool are_alike(World& world, PyObject* numbers) {
  if (!is_sequence(numbers) || Py_SIZE(numbers) == 0 || Py_SIZE(numbers) > kMostDrawn) return false;
  PyTypeObject* const type = Py_TYPE(PySequence_Fast_GET_ITEM(numbers, 0));
  for (Py_ssize_t i = 0; i < Py_SIZE(numbers); ++i) {
    PyObject* each = PySequence_Fast_GET_ITEM(numbers, i);
    if (!is_exact_number(each) || Py_TYPE(each) != type || world.is_open(each)) return false;
  }
  return true;
}

/// How many are drawn, or with which weights: taken for what it is. False: it may be something else.
bool use_how(World& world, PyObject* how) {
  if (how == Py_None) return true;
  if (is_sequence(how)) {
    world.read_whole(how);
    for (Py_ssize_t i = 0; i < Py_SIZE(how); ++i) {
      PyObject* each = PySequence_Fast_GET_ITEM(how, i);
      if (!is_exact_number(each) || world.is_open(each)) return false;
      world.use(each);
    }
    return true;
  }
  if (!PyLong_CheckExact(how) || world.is_open(how)) return false;
  const Py_ssize_t number = PyLong_AsSsize_t(how);
  if (PyErr_Occurred()) PyErr_Clear();
  return number >= 0 && number <= kMostDrawn && (world.use(how), true);
}

/// As it is handed to `drawn`; null: it was given more than that tells of.
PyRef how_to_draw(World& world, PyObject* method, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  const size_t named = interp::keyword_count(kwnames);
  for (size_t i = 2; i < nargs + named; ++i)
    if (!use_how(world, args[i])) return {};
  // Lists among it are the caller's to change.
  auto own = [](PyObject* each) { return PyList_Check(each) ? PySequence_Tuple(each) : Py_NewRef(each); };
  PyRef rest = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(nargs) - 2)),
        keywords = PyRef::steal(PyDict_New());
  for (size_t i = 2; rest && i < nargs; ++i)
    PyTuple_SET_ITEM(rest.get(), static_cast<Py_ssize_t>(i) - 2, own(args[i]));
  for (size_t i = 0; keywords && i < named; ++i)
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i)),
                       PyRef::steal(own(args[nargs + i])).get()) < 0)
      return {};
  PyRef name = PyRef::steal(PyObject_GetAttrString(method, "__name__"));
  const bool in_place = name && PyUnicode_CompareWithASCIIString(name.get(), "shuffle") == 0;
  return PyRef::steal(rest && keywords && name
                          ? PyTuple_Pack(4, method, rest.get(), keywords.get(), in_place ? Py_True : Py_False)
                          : nullptr);
}

/// A method of numpy's generators that draws a number, if it is given as many numbers at most as say from
/// what.
struct NumpyDraw {
  std::string_view name;
  size_t most;
};
constexpr NumpyDraw kNumpyDraws[] = {
    {"rand", 0},
    {"randn", 0},
    {"random", 0},
    {"random_sample", 0},
    {"standard_exponential", 0},
    {"standard_normal", 0},
    {"choice", 1},
    {"exponential", 1},
    {"geometric", 1},
    {"poisson", 1},
    {"standard_gamma", 1},
    {"beta", 2},
    {"binomial", 2},
    {"gamma", 2},
    {"gumbel", 2},
    {"integers", 2},
    {"laplace", 2},
    {"logistic", 2},
    {"lognormal", 2},
    {"normal", 2},
    {"randint", 2},
    {"uniform", 2},
    {"triangular", 3},
};

/// Is it such a method, given the generator and numbers that guards know?
bool draws_numpy_number(World& world, PyObject* method, PyObject* const* args, size_t nargs,
                        PyObject* kwnames) {
  const bool of_cython = std::string_view(Py_TYPE(method)->tp_name).ends_with("cython_function_or_method");
  if (!of_cython || !nargs || !guard::is_numpy_generator(args[0]) || !world.find(args[0])) return false;
  const PyRef name = PyRef::steal(PyObject_GetAttrString(method, "__name__"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text) return PyErr_Clear(), false;
  const auto row = std::ranges::find(kNumpyDraws, std::string_view(text), &NumpyDraw::name);
  if (row == std::end(kNumpyDraws) || nargs - 1 > row->most) return false;
  const size_t named = interp::keyword_count(kwnames);
  for (size_t i = 0; i < named; ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i)), "size") == 0)
      return false;
  return std::all_of(args + 1, args + nargs + named,
                     [&](PyObject* each) { return is_exact_number(each) && !world.is_open(each); });
}

}  // namespace

const guard::NumberStep* drawn_list(const guard::Numbers& numbers, const guard::NumberStep& step) {
  if (step.op != NumberOp::call || step.args.empty()) return nullptr;
  const guard::NumberStep& list = numbers.steps[step.args[0]];
  const bool is_drawn = list.op == NumberOp::call && PyCFunction_Check(list.object.get()) &&
                        reinterpret_cast<PyCFunctionObject*>(list.object.get())->m_ml == &drawn_def;
  return is_drawn ? &list : nullptr;
}

/// The class that random.Random derives from.
static PyObject* random_base() { return PyObject_GetAttrString(import_module("_random"), "Random"); }

/// random.random(): drawn only once the guards of a call held, since nobody can put a number back. Nothing
/// else in a region can change what it gives, so it is drawn before the program runs, whose operators may be
/// given it. Null without an exception: not here.
PyObject* early_call(World& world, const CFunction& row, PyObject* callable,
                     const std::vector<PyObject*>& all, PyObject* self, PyObject* kwnames) {
  if (all.size() != 1 || kwnames || row.name != "_random.Random.random") return nullptr;
  // A method that is bound, known or just made, or the method of the class and the generator.
  static PyObject* const method = PyObject_GetAttrString(random_base(), "random");
  const bool is_known = self && world.find(callable);
  PyObject* const from = is_known ? callable : all[0];
  Known* known = world.find(from);
  if (!known || (known->source->access == Access::constant) != is_known) return nullptr;
  PyObject* value = self ? PyObject_CallNoArgs(callable) : PyObject_CallOneArg(callable, all[0]);
  if (!value) return nullptr;
  guard::NumberStep draw{
      NumberOp::call, 0, PyRef::share(is_known || !self ? callable : method), {}, {}, 0, guard::Phase::early};
  if (!is_known)
    draw.args = {world.numbers.add({NumberOp::source, world.tree->keep(known->source), {}, {}, {}})};
  return world.computed(value, std::move(draw));
}

/// A method of random.Random in Python that goes by what it draws: it is called anew by later calls, whole.
/// Null without an exception: not here.
PyObject* draw(World& world, PyObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  const Known* known = nargs && !kwnames ? known_generator(world, args[0]) : nullptr;
  const bool can = known && std::all_of(args + 1, args + nargs, [&](PyObject* each) {
                     return (PyLong_CheckExact(each) || PyFloat_CheckExact(each)) && !world.is_open(each);
                   });
  if (!can) return nullptr;
  const NativeWatch::Pause pause;
  PyObject* value = PyObject_Vectorcall(function, args, nargs, nullptr);
  if (!value) return nullptr;
  const int generator = world.numbers.add({NumberOp::source, world.tree->keep(known->source), {}, {}, {}});
  guard::NumberStep step{NumberOp::call, 0, PyRef::share(function), {}, {generator}, 0, guard::Phase::early};
  for (size_t i = 1; i < nargs; ++i) {
    world.numbers.early_may_raise |= world.follows_number(args[i]) && !PyLong_CheckExact(value);
    step.args.push_back(world.step_of(args[i]));
  }
  return world.computed(value, std::move(step));
}

PyObject* numpy_draw(World& world, PyObject* method, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  if (!draws_numpy_number(world, method, args, nargs, kwnames)) return nullptr;
  const size_t named = interp::keyword_count(kwnames);
  for (size_t i = nargs; i < nargs + named; ++i) world.use(args[i]);
  const NativeWatch::Pause numpys;
  PyRef function = with_keywords(method, args + nargs, kwnames);
  PyRef value = PyRef::steal(function ? PyObject_Vectorcall(method, args, nargs, kwnames) : nullptr);
  if (!value) return nullptr;
  const Known& generator = *world.find(args[0]);
  generator.source->assume(guard::Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(args[0])));
  if (Known* known = world.find(method)) known->source->assume(guard::Check::is, method);
  guard::NumberStep step{NumberOp::call, 0, std::move(function), {}, {}, 0, guard::Phase::early};
  step.args.push_back(world.numbers.add({NumberOp::source, world.tree->keep(generator.source), {}, {}, {}}));
  for (size_t i = 1; i < nargs; ++i) {
    world.numbers.early_may_raise |= world.follows_number(args[i]);
    step.args.push_back(world.step_of(args[i]));
  }
  return world.computed(value.release(), std::move(step));
}

/// shuffle, sample and choices of numbers, by a step that draws all of them. Null without an exception: not
/// here.
PyObject* draw_list(World& world, PyObject* method, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  const Known* known = nargs < 2 ? nullptr : known_generator(world, args[0]);
  if (!known || !(PyRange_Check(args[1]) || are_alike(world, args[1]))) return nullptr;
  const PyRef how = how_to_draw(world, method, args, nargs, kwnames);
  const bool in_place = how && PyTuple_GET_ITEM(how.get(), 3) == Py_True;
  if (!how || (in_place && !PyList_CheckExact(args[1]))) return PyErr_Clear(), nullptr;
  const PyRef function = PyRef::steal(PyCFunction_New(&drawn_def, how.get()));
  guard::NumberStep draw{NumberOp::call, 0, PyRef::share(function.get()), {}, {}, 0, guard::Phase::early};
  draw.args.push_back(world.numbers.add({NumberOp::source, world.tree->keep(known->source), {}, {}, {}}));
  std::vector<PyObject*> from = {args[0]};
  const PyRef followed = world.with_followed(args[1]);
  PyObject* const numbers = followed ? followed.get() : args[1];
  if (PyRange_Check(numbers)) {
    from.push_back(numbers);
    draw.args.push_back(world.numbers.add({NumberOp::constant, 0, PyRef::share(numbers), {}, {}}));
  } else {
    world.read_whole(numbers);
    for (Py_ssize_t i = 0; i < Py_SIZE(numbers); ++i) {
      from.push_back(PySequence_Fast_GET_ITEM(numbers, i));
      draw.args.push_back(world.step_of(from.back()));
    }
  }
  const NativeWatch::Pause pause;
  PyRef items = PyRef::steal(PyObject_Vectorcall(function.get(), from.data(), from.size(), nullptr));
  if (!items) return nullptr;
  if (!world.lists.follow_items(items.get(), world.numbers.add(std::move(draw)))) return nullptr;
  if (!in_place) return items.release();
  world.writes.about_to_write(args[1]);
  if (PyList_SetSlice(args[1], 0, PyList_GET_SIZE(args[1]), items.get()) < 0) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace bolt::observe
