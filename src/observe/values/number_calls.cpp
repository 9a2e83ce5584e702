// observe/values/number_calls.cpp
// A function of C or of torch is called with numbers that differ between calls, or asks tensors for their
// sizes -> its result, followed where it can be.
//
// min, max, sum and products give expressions; torch's functions are lent the numbers. A function that is not
// treated here takes them for what they are in this run (World::use).
#include <algorithm>
#include <functional>
#include <span>

#include "guard/number_lists.h"
#include "guard/numpy_numbers.h"
#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/reads/membership.h"
#include "observe/recording.h"
#include "observe/values/arrays.h"
#include "observe/values/number_calls.h"
#include "observe/values/number_operations.h"

namespace bolt::observe {

namespace {

/// How many dimensions a part of an index is about; -1 means that it is not known.
int dims_of(PyObject* part) {
  if (part == Py_None || PyBool_Check(part) || part == Py_Ellipsis) return 0;
  if (PySlice_Check(part) || PyLong_CheckExact(part)) return 1;
  if (!guard::is_tensor(part)) return -1;
  const bool mask = guard::is_mask(*guard::tensor_impl(part));
  return mask ? guard::rank_of(*guard::tensor_impl(part)) : 1;
}

/// One part of an index, and the dimension that it is about; -1 means that it is not known.
struct IndexPart {
  PyObject* index;
  int dim;
};

std::vector<IndexPart> parts_of(PyObject* key, int rank) {
  std::vector<IndexPart> parts;
  const bool many = PyTuple_Check(key);
  for (Py_ssize_t i = 0; i < (many ? PyTuple_GET_SIZE(key) : 1); ++i)
    parts.push_back({many ? PyTuple_GET_ITEM(key, i) : key, -1});
  int left = rank;  // the ellipsis stands for the dimensions that no part is about
  for (const IndexPart& part : parts) {
    const int dims = dims_of(part.index);
    if (dims < 0) return parts;
    left -= dims;
  }
  if (left < 0) return parts;
  int at = 0;
  for (IndexPart& part : parts) {
    part.dim = at;
    at += part.index == Py_Ellipsis ? left : dims_of(part.index);
  }
  return parts;
}

}  // namespace

/// x[:8] of a tensor that is no longer than 8 is the tensor itself: torch calls no operator, so the recorder
/// does not learn that the length was compared. The fact is noted here.
void note_slices(Recording& recording, PyObject* tensor, PyObject* key) {
  World& world = recording.world;
  const c10::TensorImpl& impl = *guard::tensor_impl(tensor);
  const int rank = guard::rank_of(impl);
  for (const IndexPart& part : parts_of(key, rank)) {
    if (!PySlice_Check(part.index)) continue;
    PyObject* stop = reinterpret_cast<PySliceObject*>(part.index)->stop;
    if (!PyLong_CheckExact(stop) || world.followed(stop)) continue;
    int overflow = 0;
    const int64_t end = PyLong_AsLongLongAndOverflow(stop, &overflow);  // -1 if it is larger
    for (int d = 0; end >= 0 && d < rank; ++d) {
      if (part.dim >= 0 && d != part.dim) continue;
      if (Sym size = recording.hooks().size_of(tensor, d); !size.is_const())
        world.notes->answered(size, Relation::le, end, guard::size_of(impl, d) <= end);
    }
  }
}

namespace {

/// aten::slice with the bounds of a slice, which are lent. New, null with an exception.
PyRef sliced(World& world, PyObject* tensor, int dim, PyObject* bounds) {
  static PyObject* const slice = [] {
    const PyRef torch = PyRef::steal(import_module("torch"));
    const PyRef ops = PyRef::steal(torch ? PyObject_GetAttrString(torch.get(), "ops") : nullptr);
    const PyRef aten = PyRef::steal(ops ? PyObject_GetAttrString(ops.get(), "aten") : nullptr);
    const PyRef packet = PyRef::steal(aten ? PyObject_GetAttrString(aten.get(), "slice") : nullptr);
    const PyRef overload = PyRef::steal(packet ? PyObject_GetAttrString(packet.get(), "Tensor") : nullptr);
    return overload ? PyObject_GetAttrString(overload.get(), "_op") : nullptr;  // which is no Python
  }();
  auto* part = reinterpret_cast<PySliceObject*>(bounds);
  const PyRef start = PyRef::steal(world.lend(part->start));
  const PyRef stop = PyRef::steal(start ? world.lend(part->stop) : nullptr);
  return PyRef::steal(
      slice && stop ? PyObject_CallFunction(slice, "OiOO", tensor, dim, start.get(), stop.get()) : nullptr);
}

/// Is it a slice with a bound that guards do not know?
bool is_open_slice(World& world, PyObject* part) {
  if (!PySlice_Check(part)) return false;
  auto* slice = reinterpret_cast<PySliceObject*>(part);
  return slice->step == Py_None && (world.is_open(slice->start) || world.is_open(slice->stop));
}

}  // namespace

/// An int in an index, as the i of x[:, i], stands for a call of aten::select, which can be lent a number.
/// Torch's own indexing cannot: it asks what the number is, and whether a slice is all there is, which is
/// known of no open number. So select and slice are called here for each such part of the index, on `tensor`
/// and in the order in which indexing would, and `key` keeps the other parts, which only cut other dimensions
/// and may therefore come later.
bool select_followed(Recording& recording, Frame& frame, PyRef& tensor, PyRef& key) {
  World& world = recording.world;
  const std::vector<IndexPart> parts = parts_of(key.get(), guard::rank_of(*guard::tensor_impl(tensor.get())));
  auto selects = [&](const IndexPart& part) { return part.dim >= 0 && PyLong_CheckExact(part.index); };
  auto slices = [&](const IndexPart& part) { return part.dim >= 0 && is_open_slice(world, part.index); };
  auto follows = [&](const IndexPart& part) {
    return (selects(part) && (world.followed(part.index) || world.is_open(part.index))) || slices(part);
  };
  if (std::none_of(parts.begin(), parts.end(), follows)) return false;
  auto is_called = [&](const IndexPart& part) { return selects(part) || slices(part); };
  const auto last = std::find_if(parts.rbegin(), parts.rend(), is_called).base();
  recording.mark(frame);
  PyRef view = PyRef::share(tensor.get()), rest = PyRef::steal(PyList_New(0));
  int moved = 0;  // so many dimensions are gone by now: later parts lie that much further in front
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    PyObject* keep = part->index;
    if (selects(*part)) {
      PyRef lent = PyRef::steal(world.lend(part->index));
      if (lent)
        view = PyRef::steal(PyObject_CallMethod(view.get(), "select", "iO", part->dim + moved--, lent.get()));
      if (!lent || !view)
        return PyErr_Clear(), world.use(key.get()), false;  // torch's indexing raises, with its own words
      continue;
    }
    const bool is_slice = slices(*part);
    if (is_slice && !(view = sliced(world, view.get(), part->dim + moved, keep)))
      return PyErr_Clear(), world.use(key.get()), false;
    const bool adds = keep == Py_None && part < last;
    PyRef all = PyRef::steal(is_slice || adds ? PySlice_New(nullptr, nullptr, nullptr) : nullptr);
    if (adds) view = PyRef::steal(PyObject_CallMethod(view.get(), "unsqueeze", "i", part->dim + moved++));
    if (!view || PyList_Append(rest.get(), all ? all.get() : keep) < 0) return PyErr_Clear(), false;
  }
  key = PyRef::steal(PyList_GET_SIZE(rest.get()) ? PyList_AsTuple(rest.get()) : Py_NewRef(Py_Ellipsis));
  tensor = std::move(view);
  return true;
}

namespace {

/// The min, max, sum or product of followed numbers: of the arguments, or of the items where the only one is
/// a sequence.
PyObject* reduce(Recording& recording, const std::string& name, const std::vector<PyObject*>& all) {
  World& world = recording.world;
  std::vector<PyObject*> numbers = all;
  if (all.size() == 1 && is_sequence(all[0])) {
    numbers.clear();
    for (Py_ssize_t i = 0; i < Py_SIZE(all[0]); ++i) numbers.push_back(PySequence_Fast_GET_ITEM(all[0], i));
  }
  if (numbers.empty()) return nullptr;
  bool followed = false;
  for (PyObject* n : numbers) {
    int overflow = 0;
    if (!PyLong_CheckExact(n) || (world.follows_number(n) && !world.followed(n))) return nullptr;
    if (PyLong_AsLongLongAndOverflow(n, &overflow); overflow) return nullptr;
    followed |= world.followed(n) != nullptr;
  }
  if (!followed) return nullptr;
  if (all.size() == 1) world.read_whole(all[0]);
  for (PyObject* n : numbers)
    if (!world.follows_number(n)) world.use(n);
  Sym size = world.expression(numbers[0]);
  int64_t value = PyLong_AsLongLong(numbers[0]);
  for (size_t i = 1; i < numbers.size(); ++i) {
    const Sym next = world.expression(numbers[i]);
    const int64_t n = PyLong_AsLongLong(numbers[i]);
    if (name == "min") {
      size = min(size, next), value = std::min(value, n);
    } else if (name == "max") {
      size = max(size, next), value = std::max(value, n);
    } else if (name == "sum") {
      size += next, value += n;
    } else {
      size *= next, value *= n;
    }
  }
  return world.follow(PyLong_FromLongLong(value), size);
}

/// What divmod() gives for numbers one of which is followed; null without an exception where that is not
/// computed here.
PyObject* quotient_and_rest(Recording& recording, Frame& frame, const std::vector<PyObject*>& all) {
  if (all.size() != 2 || !is_number(all[0]) || !is_number(all[1]) ||
      (!recording.world.follows_number(all[0]) && !recording.world.follows_number(all[1])))
    return nullptr;
  PyRef parts[2];
  for (int i : {0, 1}) {
    const int op = i ? interp::Binary::remainder : interp::Binary::floor_divide;
    parts[i] = PyRef::steal(recording.binary_op(frame, op, all[0], all[1]));
    if (!parts[i]) return PyErr_Clear(), nullptr;  // divmod has error messages of its own
  }
  return PyTuple_Pack(2, parts[0].get(), parts[1].get());
}

/// What tensor.size(), tensor.size(1) and tensor.numel() give.
PyObject* size_query(Recording& recording, const CFunction& row, const std::vector<PyObject*>& all) {
  World& world = recording.world;
  PyObject* tensor = all[0];
  const int rank = guard::rank_of(*guard::tensor_impl(tensor));
  if (row.method == "size" && all.size() == 1) return world.tensor_sizes(tensor);
  if (row.method == "size" && all.size() == 2 && PyLong_CheckExact(all[1])) {
    world.use(all[1]);
    const long dim = PyLong_AsLong(all[1]);
    if (dim < -rank || dim >= rank) return nullptr;  // eager raises
    return world.tensor_size(tensor, static_cast<int>(dim < 0 ? dim + rank : dim));
  }
  if ((row.method == "numel" || row.method == "nelement") && all.size() == 1) {
    PyRef sizes = PyRef::steal(world.tensor_sizes(tensor));
    if (!sizes) return nullptr;
    if (rank == 0) return PyLong_FromLong(1);
    PyObject* product = reduce(recording, "prod", {sizes.get()});
    if (product || PyErr_Occurred()) return product;
  }
  return nullptr;
}

bool gives_tensors(PyObject* result) {
  if (result == Py_None || guard::is_tensor(result)) return true;
  if (!is_sequence(result)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i)
    if (!gives_tensors(PySequence_Fast_GET_ITEM(result, i))) return false;
  return true;
}

/// Is it a function that makes a tensor of a number as numpy sees it?
bool asks_numpy(const CFunction& row) {
  return row.method == "tensor" || row.method == "new_tensor" || row.method == "as_tensor" ||
         row.method == "asarray";
}

void use_numpys(World& world, PyObject* object) {
  if (guard::is_numpy_number(object)) return world.use(object);
  for (Py_ssize_t i = 0; is_sequence(object) && i < Py_SIZE(object); ++i)
    use_numpys(world, PySequence_Fast_GET_ITEM(object, i));
}

/// torch.tensor(data), torch.Tensor(data), tensor.new_tensor(data) and the like copy numbers through a
/// pointer, so no operator sees them. This says which argument the numbers are; -1 means that it is no such
/// call.
int numbers_argument(const CFunction& row, PyObject* kwnames, const std::vector<PyObject*>& all) {
  const bool alike = row.method == "new_tensor";
  const bool of_class = row.name == row.method && !all.empty() && is_sequence(all[0]);
  const bool makes = row.method == "tensor" || row.method == "as_tensor" || of_class;
  const size_t at = alike ? 1 : 0, named = interp::keyword_count(kwnames);
  if ((!alike && !makes) || all.size() != at + 1 + named) return -1;
  return of_class && (named || guard::is_torch_size(all[0])) ? -1 : static_cast<int>(at);
}

}  // namespace

/// Calls what stands in for the function, which is given `numbers` in the place of all[at] and gives
/// operators those that differ between calls (torchbolt.stand_ins). It gives null without an exception where
/// that cannot be done.
static PyObject* tensor_by_operators(Recording& recording, Frame& frame, const CFunction& row,
                                     PyObject* kwnames, std::vector<PyObject*> all, int at,
                                     const PyRef& numbers) {
  PyObject* function = recording.on && numbers ? stand_in(row.name) : nullptr;
  if (!function) return nullptr;
  all[at] = numbers.get();  // a method's object is passed as well
  const NativeWatch::Pause ours;
  PyRef result =
      PyRef::steal(PyObject_Vectorcall(function, all.data(), static_cast<size_t>(at) + 1, kwnames));
  if (result && result.get() == Py_None) return nullptr;
  recording.end_if_wanted(frame);
  return result.release();
}

static PyObject* tensor_call(Recording& recording, Frame& frame, const CFunction& row, PyObject* kwnames,
                             const std::vector<PyObject*>& all) {
  World& world = recording.world;
  const int at = numbers_argument(row, kwnames, all);
  PyObject* numbers = at < 0 ? nullptr : all[at];
  if (!numbers || !world.holds_followed(numbers)) return nullptr;
  for (PyObject* each : all) recording.touch(frame, each, true);
  if (!recording.on) return nullptr;
  recording.mark(frame);
  return tensor_by_operators(recording, frame, row, kwnames, all, at,
                             PyRef::steal(world.lend(numbers, true)));
}

/// Is it a list that guards make a tensor of, or one of the run's that holds such a list?
static bool holds_list_tensor(World& world, PyObject* data, int dims) {
  if (world.find(data)) return world.lists.tensor_of_list(data).get() != nullptr;
  for (Py_ssize_t i = 0; dims && is_sequence(data) && i < Py_SIZE(data); ++i)
    if (holds_list_tensor(world, PySequence_Fast_GET_ITEM(data, i), dims - 1)) return true;
  return false;
}

/// The tensor of a list without the items that the run has taken from its ends.
static PyRef left_of_list(PyRef tensor, const Window& window) {
  if (!window.front && !window.back) return tensor;
  const PyRef front = PyRef::steal(PyLong_FromSsize_t(window.front)),
              back = window.back ? PyRef::steal(PyLong_FromSsize_t(-window.back)) : PyRef();
  const PyRef slice = PyRef::steal(front ? PySlice_New(front.get(), back.get(), nullptr) : nullptr);
  return PyRef::steal(slice ? PyObject_GetItem(tensor.get(), slice.get()) : nullptr);
}

/// A copy of `data` with such tensors in the place of the lists; null with an exception, or where there are
/// too many dimensions.
static PyRef with_list_tensors(Recording& recording, Frame& frame, PyObject* data, int dims) {
  World& world = recording.world;
  const Known* known = world.find(data);
  if (PyRef tensor = known ? world.lists.tensor_of_list(data) : PyRef()) {
    if (!(tensor = left_of_list(std::move(tensor), known->window))) return {};
    PyRef rest = PyRef::steal(PyList_GetSlice(data, Lengths::parts_of(*known).old, PyList_GET_SIZE(data)));
    if (rest) rest = PyRef::steal(world.lend(rest.get(), true));
    if (!rest) return {};
    const NativeWatch::Pause ours;
    return PyRef::steal(
        PyObject_CallFunctionObjArgs(stand_in("list of numbers"), tensor.get(), rest.get(), nullptr));
  }
  if (known || !is_sequence(data))
    return recording.touch(frame, data, true), PyRef::steal(world.lend(data, true));
  PyRef list = PyRef::steal(dims ? PySequence_List(data) : nullptr);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    PyRef item = with_list_tensors(recording, frame, PyList_GET_ITEM(list.get(), i), dims - 1);
    if (!item || PyList_SetItem(list.get(), i, item.release()) < 0) return {};
  }
  return list;
}

PyObject* array_tensor_call(Recording& recording, Frame& frame, const Native& native, PyObject* const* args,
                            size_t nargs, PyObject* kwnames) {
  const CFunction& row = *native.row;
  const size_t first = Py_IS_TYPE(native.callable, &PyMethodDescr_Type) ? 1 : 0;  // it is given self
  if (!row.is(Trait::of_arrays) || nargs != first + 1 || !guard::is_array(args[first])) return nullptr;
  World& world = recording.world;
  auto another = [&](PyObject* array) {
    const PyRef memory = world.late(array) ? memory_of_array(world, array) : PyRef();
    return memory ? PyRef::steal(PyObject_CallMethod(memory.get(), "detach", nullptr))
                  : world.lists.another_tensor_of_array(array);
  };
  if (row.method == "from_numpy" && !kwnames) {
    recording.mark(frame);
    return another(args[0]).release();
  }
  const std::vector<PyObject*> all = interp::all_given(native.self, args, nargs, kwnames);
  const size_t at = native.self ? 1 : first;
  for (size_t i = 0; i < all.size(); ++i)
    if (i != at) recording.touch(frame, all[i], true);
  recording.mark(frame);
  const PyRef tensor = row.method == "as_tensor" ? another(args[first]) : memory_of_array(world, args[first]);
  return tensor_by_operators(recording, frame, row, kwnames, all, static_cast<int>(at), tensor);
}

PyObject* list_tensor_call(Recording& recording, Frame& frame, const Native& native, PyObject* const* args,
                           size_t nargs, PyObject* kwnames) {
  const std::vector<PyObject*> all = interp::all_given(native.self, args, nargs, kwnames);
  const int at = numbers_argument(*native.row, kwnames, all);
  if (at < 0 || !holds_list_tensor(recording.world, all[at], guard::kMostListed)) return nullptr;
  for (PyObject* each : all)
    if (each != all[at]) recording.touch(frame, each, true);
  recording.mark(frame);
  return tensor_by_operators(recording, frame, *native.row, kwnames, all, at,
                             with_list_tensors(recording, frame, all[at], guard::kMostListed));
}

/// What stands in for the function does, given numbers that differ; null also where it cannot.
static PyObject* by_operators(const CFunction& row, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  PyObject* function = stand_in(row.name);
  const NativeWatch::Pause ours;
  PyRef result = PyRef::steal(function ? PyObject_Vectorcall(function, args, nargs, kwnames) : nullptr);
  return result && result.get() == Py_None ? nullptr : result.release();
}

PyObject* size_call(Recording& recording, Frame& frame, const Native& native,
                    const std::vector<PyObject*>& all, PyObject* kwnames) {
  World& world = recording.world;
  const CFunction& row = *native.row;
  PyObject* const callable = native.callable;
  PyObject* result = nullptr;
  if (!kwnames) {
    if (row.name == "builtins.min" || row.name == "builtins.max" || row.name == "builtins.sum" ||
        row.name == "math.prod")
      if ((result = reduce(recording, row.method, all)) || PyErr_Occurred()) return result;
    if (all.size() == 1 && (is_sequence(all[0]) || is_deque(all[0]) || PyDictValues_Check(all[0]))) {
      result = reduction(recording, frame, row, callable, all[0]);
      if (result || PyErr_Occurred()) return result;
    }
    if (row.name == "builtins.len" && all.size() == 1 && (result = world.places.text_length(all[0])))
      return result;
    if (row.name == "torch.Size.numel" && all.size() == 1) return reduce(recording, "prod", all);
    if (row.name == "int" && all.size() == 1 && PyLong_CheckExact(all[0])) return Py_NewRef(all[0]);
    if (row.name == "bool" && all.size() == 1 && world.follows_number(all[0]))
      return Py_NewRef(recording.truth(frame, all[0]) ? Py_True : Py_False);
    if (row.name == "builtins.divmod" && (result = quotient_and_rest(recording, frame, all))) return result;
    if ((result = call_with_member(recording, row, all)) || PyErr_Occurred()) return result;
    if (row.kind == Kind::pure && !native.self) {
      result = number_call(recording, frame, callable, all);
      if (result || PyErr_Occurred()) return result;
    }
  }
  if (row.kind != Kind::tensor) return nullptr;
  for (PyObject* each : all)
    if (!row.is(Trait::hands_on) && !world.holds_followed(each)) world.use(each);
  if (asks_numpy(row))
    for (PyObject* each : all) use_numpys(world, each);
  if (!recording.on) return nullptr;
  if ((result = tensor_call(recording, frame, row, kwnames, all)) || PyErr_Occurred()) return result;
  if (!kwnames && !all.empty() && guard::is_tensor(all[0]))
    if ((result = size_query(recording, row, all)) || PyErr_Occurred()) return result;

  const bool lends =
      std::any_of(all.begin(), all.end(), [&](PyObject* each) { return world.holds_followed(each); });
  if (lends) {
    std::vector<PyRef> held;
    std::vector<PyObject*> passed;
    recording.mark(frame);
    for (size_t i = native.self ? 1 : 0; i < all.size(); ++i) {
      held.push_back(PyRef::steal(world.lend(all[i], PyFloat_CheckExact(all[i]))));
      if (!held.back()) return nullptr;
      passed.push_back(held.back().get());
    }
    for (PyObject* each : all) recording.touch(frame, each, true);
    if (!recording.on) return nullptr;
    const size_t before = recording.hooks().recorded();
    recording.hooks().begin_lent_call(row.method);
    const size_t nargs = passed.size() - interp::keyword_count(kwnames);
    result = row.is(Trait::by_operators) ? by_operators(row, passed.data(), nargs, kwnames)
                                         : recording.run_native(callable, passed.data(), nargs, kwnames, row);
    for (Sym symbol : recording.hooks().end_lent_call())
      if (const auto why = world.tell_0_and_1(symbol)) recording.end_here(frame, *why, true);
    if (!result && recording.hooks().recorded() == before) {
      // Not every function takes a torch.SymInt. Whether this one takes the number is found out by the call
      // below.
      PyErr_Clear();
      return nullptr;
    }
    recording.end_if_wanted(frame);
  }
  if (result) sizes_seen(world, row, all, result);
  return result;
}

/// A function that reports on tensors, rather than computing others, saw their sizes.
void sizes_seen(World& world, const CFunction& row, const std::vector<PyObject*>& all, PyObject* result) {
  if (row.is(Trait::ignores_sizes) || gives_tensors(result)) return;
  for (PyObject* each : all)
    if (guard::is_tensor(each)) world.use_sizes(each);
}

namespace {

/// Does it read nothing of a tensor without dimensions, as its argument `at`, but the number in it? The first
/// four of a normalisation are tensors and a shape.
bool takes_number(const CFunction& row, size_t at) {
  if (row.kind == Kind::pure) return row.name == "range" || row.name.starts_with("math.");
  return row.kind == Kind::tensor && at >= 4 && row.method.ends_with("_norm");
}

/// Is its argument `at` a size, or some? One of those may be a tensor's number, too.
bool takes_sizes(const Native& native, size_t at) {
  static constexpr std::string_view kMethods[] = {
      "view", "reshape", "expand", "repeat", "as_strided", "new_ones", "new_zeros", "new_empty", "tile"};
  static constexpr std::string_view kMakers[] = {"zeros", "ones", "empty", "rand", "randn", "arange"};
  auto is_among = [&](std::span<const std::string_view> names) {
    return std::ranges::find(names, native.row->method) != names.end();
  };
  if (native.row->kind != Kind::tensor) return false;
  return is_among(kMakers) || ((native.self || at > 0) && is_among(kMethods));
}

bool has_no_dimensions(PyObject* object) {
  return guard::is_plain_tensor(object) && guard::rank_of(*guard::tensor_impl(object)) == 0;
}

/// Is it a tensor without dimensions, or a tuple that holds one?
bool may_hold_number(PyObject* given) {
  if (!PyTuple_CheckExact(given)) return has_no_dimensions(given);
  PyObject** const items = &PyTuple_GET_ITEM(given, 0);
  return std::any_of(items, items + PyTuple_GET_SIZE(given), has_no_dimensions);
}

/// `given`, or a tuple of that, with the numbers that `number_of` (new; null: none) takes out of tensors in
/// their place. New; null: there are none, or not of all.
PyObject* with_numbers(PyObject* given, const std::function<PyObject*(PyObject*)>& number_of) {
  if (has_no_dimensions(given)) return number_of(given);
  if (!PyTuple_CheckExact(given)) return nullptr;
  std::vector<PyRef> items;
  bool any = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(given, i);
    const bool taken = has_no_dimensions(item);
    items.push_back(taken ? PyRef::steal(number_of(item)) : PyRef::share(item));
    if (!items.back()) return nullptr;
    any |= taken;
  }
  PyRef tuple = PyRef::steal(any ? PyTuple_New(PyTuple_GET_SIZE(given)) : nullptr);
  for (size_t i = 0; tuple && i < items.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), items[i].release());
  return tuple.release();
}

}  // namespace

bool takes_size_of_tensor(const Native& native, PyObject* const* args, size_t nargs) {
  for (size_t i = 0; i < nargs; ++i)
    if (may_hold_number(args[i]) && takes_sizes(native, i)) return true;
  return false;
}

StandIns numbers_taken(const Native& native, PyObject* const* args, size_t nargs, size_t total,
                       const std::function<PyObject*(PyObject*, bool)>& number_of) {
  StandIns taken(args, total);
  for (size_t i = 0; i < total && native.row; ++i) {
    if (!may_hold_number(args[i])) continue;
    const bool is_number = takes_number(*native.row, i) && has_no_dimensions(args[i]);
    if (!is_number && !(i < nargs && takes_sizes(native, i))) continue;
    auto number = [&](PyObject* tensor) { return number_of(tensor, !is_number); };
    if (PyRef with = PyRef::steal(with_numbers(args[i], number))) taken.put(i, std::move(with));
  }
  return taken;
}

}  // namespace bolt::observe
