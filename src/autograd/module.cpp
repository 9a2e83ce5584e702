// autograd/module.cpp
#include "autograd/module.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "autograd/fit.h"
#include "autograd/follow.h"
#include "autograd/function.h"
#include "autograd/head_in_pieces.h"
#include "autograd/joint.h"
#include "autograd/numbers.h"
#include "autograd/row_statistics.h"
#include "autograd/split.h"
#include "python/py_ref.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "record/text.h"
#include "support/error.h"
#include "support/nesting.h"

namespace bolt::autograd {
namespace {

using record::TensorId;

struct KeptJoint {
  std::unique_ptr<record::Recorder> recorder = std::make_unique<record::Recorder>();
  std::vector<TensorId> wanted;
  Varying dynamic;
  Joint joint;
};

void drop(PyObject* capsule) { delete static_cast<KeptJoint*>(PyCapsule_GetPointer(capsule, "joint")); }
KeptJoint* kept_in(PyObject* capsule) {
  return static_cast<KeptJoint*>(PyCapsule_GetPointer(capsule, "joint"));
}

PyObject* list_of(const std::vector<at::Tensor>& tensors) {
  PyObject* list = PyList_New(0);
  for (const at::Tensor& t : tensors) {
    const PyRef object = PyRef::steal(t.defined() ? THPVariable_Wrap(t) : Py_NewRef(Py_None));
    if (!object || PyList_Append(list, object.get()) < 0) return Py_DECREF(list), nullptr;
  }
  return list;
}

/// The tensors of a sequence; of anything but tensors it throws.
std::vector<at::Tensor> tensors_in(PyObject* object) {
  if (THPVariable_Check(object)) return {THPVariable_Unpack(object)};
  const PyRef items = PyRef::steal(PySequence_Fast(object, "tensors were expected"));
  std::vector<at::Tensor> tensors;
  for (Py_ssize_t i = 0; items && i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (!THPVariable_Check(item)) throw_user("tensors were expected");
    tensors.push_back(THPVariable_Unpack(item));
  }
  return tensors;
}

/// Runs `body`, and makes a Python exception of what it throws.
template <class Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

/// Of callable(*args). False: an exception of Python's.
bool record_run(PyObject* callable, PyObject* args, KeptJoint& kept) {
  record::Recorder& recorder = *kept.recorder;
  PyRef result;
  {
    const record::Recorder::Scope scope(recorder);
    result = PyRef::steal(PyObject_CallObject(callable, args));
  }
  if (!result) return false;
  if (const Reason* why = recorder.escaped()) throw_unsupported("the run ended at ", why->text());
  for (const at::Tensor& t : tensors_in(result.get())) kept.wanted.push_back(recorder.input_id(t));
  return true;
}

/// The run's tape in the form that numbers_of compares.
Joint as_joint(const KeptJoint& kept) {
  Joint joint;
  joint.tape = kept.recorder->tape();
  joint.outputs = kept.wanted;
  return joint;
}

/// An int, or the bits of a float, among the arguments of a call; nothing: it is something else.
std::optional<int64_t> number_in(PyObject* args, size_t place) {
  PyObject* item = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(place));
  if (PyFloat_Check(item)) return std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(item));
  if (PyLong_Check(item)) return PyLong_AsLongLong(item);
  return std::nullopt;
}

/// Adds a symbol for each number that calls differ in. That of the third argument is n2, or f2.
void add_numbers(const std::vector<PyObject*>& calls, Fit& fit, Varying& dynamic) {
  for (size_t place = 0; place < static_cast<size_t>(PyTuple_GET_SIZE(calls[0])); ++place) {
    Observed seen;
    for (PyObject* args : calls)
      if (const auto number = number_in(args, place)) seen.push_back(*number);
    if (std::ranges::adjacent_find(seen, std::not_equal_to<>()) == seen.end()) continue;
    const bool real = PyFloat_Check(PyTuple_GET_ITEM(calls[0], static_cast<Py_ssize_t>(place)));
    const Sym symbol = number_symbol(static_cast<int>(place), real);
    fit.add_symbol(symbol, seen);
    dynamic.numbers.push_back(SymbolRow::of_number(symbol, seen[0], false));
  }
}

/// The bits of an input's strides that have a gap, of another width in other calls.
uint64_t gaps_that_differ(const KeptJoint& kept, const std::vector<KeptJoint>& others, size_t input) {
  auto info = [&](const KeptJoint& of) -> const record::TensorInfo& {
    const record::Tape& tape = of.recorder->tape();
    return tape.tensors[tape.inputs.at(input)];
  };
  const auto nesting = nesting_of(info(kept).sizes, info(kept).strides);
  uint64_t bits = 0;
  for (size_t d = 0; nesting && d < info(kept).strides.size(); ++d)
    for (const KeptJoint& other : others)
      if ((nesting->gaps >> d & 1) && info(other).strides[d] != info(kept).strides[d])
        bits |= uint64_t{1} << (d + kStrideBit);
  return bits;
}

/// A run that was recorded with several sizes: where its inputs' differ are symbols, and its arguments are
/// written over them, as the observer would have it.
Varying with_symbols(const KeptJoint& kept, const std::vector<KeptJoint>& others,
                     const std::vector<PyObject*>& arguments) {
  Varying dynamic;
  Fit fit;
  add_numbers(arguments, fit, dynamic);
  Joint run = as_joint(kept);
  dynamic.dims.resize(run.tape.inputs.size());
  for (size_t i = 0; i < run.tape.inputs.size(); ++i) dynamic.dims[i] = gaps_that_differ(kept, others, i);
  std::vector<NumberPlace> places;
  std::vector<Observed> seen;
  const auto recorded = numbers_of(run, run, &places);
  for (int64_t number : *recorded) seen.push_back({number});
  for (const KeptJoint& other : others) {
    const auto numbers = numbers_of(as_joint(other), run);
    if (!numbers) throw_unsupported("a run with other sizes is another program");
    for (size_t i = 0; i < numbers->size(); ++i) seen[i].push_back((*numbers)[i]);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [tensor, arg, index, is_float] = places[i];
    if (std::ranges::adjacent_find(seen[i], std::not_equal_to<>()) == seen[i].end()) continue;
    if (arg) {
      const auto sym = fit.find(seen[i], is_float);
      if (!sym) throw_unsupported("an argument that is no simple expression of sizes");
      const size_t count = arg->value.isList() ? arg->value.toListRef().size() : 1;
      if (arg->syms.empty()) {
        arg->syms = std::vector<Sym>(count);
        for (size_t k = 0; k < count && arg->value.isList(); ++k)
          arg->syms[k] = arg->value.toListRef()[k].toInt();
      }
      arg->syms[index] = *sym;
    } else if (const int input = run.tape.tensors[tensor].input; input >= 0) {
      dynamic.dims[input] |= uint64_t{1} << index;
      fit.add_symbol(tape_symbol(tensor, static_cast<int>(index)), seen[i]);
    }
  }
  return dynamic;
}

/// (callable, args), and a list of args that differ from these in sizes: those differ between calls then.
PyObject* joint(PyObject*, PyObject* tuple) {
  PyObject *callable, *args, *more = nullptr;
  if (!PyArg_ParseTuple(tuple, "OO!|O!", &callable, &PyTuple_Type, &args, &PyList_Type, &more))
    return nullptr;
  return guarded([&]() -> PyObject* {
    auto kept = std::make_unique<KeptJoint>();
    if (!record_run(callable, args, *kept)) return nullptr;
    std::vector<KeptJoint> others;
    std::vector<PyObject*> arguments = {args};
    for (Py_ssize_t i = 0; more && i < PyList_GET_SIZE(more); ++i) {
      arguments.push_back(PyList_GET_ITEM(more, i));
      if (!record_run(callable, arguments.back(), others.emplace_back())) return nullptr;
    }
    if (!others.empty()) kept->dynamic = with_symbols(*kept, others, arguments);
    kept->joint = make_joint(kept->recorder->tape(), kept->wanted, {}, kept->dynamic);
    return PyCapsule_New(kept.release(), "joint", drop);
  });
}

/// What a joint tape is run on: its inputs, and the arguments of the call that they came from. Null: as in
/// the recorded run.
struct TapeInputs {
  std::vector<at::Tensor> inputs;
  PyObject* args = nullptr;

  std::vector<int64_t> values(const Joint& joint) const {
    std::vector<int64_t> all;
    for (const SymbolRow& s : joint.symbols) all.push_back(value(*s.symbol.node(), joint));
    return all;
  }

 private:
  int64_t value(const SymNode& symbol, const Joint& joint) const {
    const TensorId id = tensor_of_size(symbol);
    if (id < 0) return number_in(args, static_cast<size_t>(number_step(symbol))).value();
    const int input = joint.tape.tensors[id].input;
    const int64_t dim = symbol.what.part;
    const at::Tensor& t = inputs.at(static_cast<size_t>(input));
    return dim < kStrideBit ? t.size(dim) : t.stride(dim - kStrideBit);
  }
};

/// A number that is an expression over the joint's symbols.
std::function<int64_t(Sym)> numbers_with(const Joint& joint, const std::vector<int64_t>& all) {
  std::unordered_map<const SymNode*, int64_t> values;
  for (size_t i = 0; i < all.size(); ++i) values[joint.symbols[i].symbol.node()] = all[i];
  return [values](Sym s) { return evaluate(s, [&](const SymNode& n) { return values.at(&n); }); };
}

/// (joint, inputs, args) -> is it the joint tape for these?
PyObject* joint_agrees(PyObject*, PyObject* tuple) {
  PyObject *capsule, *inputs, *args;
  if (!PyArg_ParseTuple(tuple, "OOO!", &capsule, &inputs, &PyTuple_Type, &args)) return nullptr;
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const std::vector<int64_t> values = TapeInputs{tensors_in(inputs), args}.values(kept->joint);
    return PyBool_FromLong(agrees(kept->joint, {kept->recorder->tape(), kept->wanted, {}, {}, {}}, values));
  });
}

/// Of the joint: its symbols, and what is taken for granted about them.
PyObject* joint_symbols(PyObject*, PyObject* capsule) {
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  std::string text;
  for (const SymbolRow& s : kept->joint.symbols) text += s.symbol.str() + "\n";
  for (const SizeFact& fact : kept->joint.facts) text += str(fact) + ": " + fact.where + "\n";
  return PyUnicode_FromString(text.c_str());
}

PyObject* joint_text(PyObject*, PyObject* capsule) {
  const KeptJoint* kept = kept_in(capsule);
  return kept ? PyUnicode_FromString(print(kept->joint).c_str()) : nullptr;
}

/// The parts, with what lowering is told of their sizes.
PyObject* joint_parts(PyObject*, PyObject* capsule) {
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const Split parts = split(kept->joint);
    record::TapeContext forward, backward;
    forward.wanted = parts.outputs;
    forward.wanted.insert(forward.wanted.end(), parts.saved.begin(), parts.saved.end());
    forward.dynamic = kept->dynamic.dims;
    forward.numbers = kept->dynamic.numbers;
    forward.facts = kept->joint.facts;
    backward.wanted = parts.gradients;
    backward.dynamic = parts.dynamic.dims;
    backward.numbers = parts.dynamic.numbers;
    backward.facts = parts.facts;
    return Py_BuildValue("ss", record::print(parts.forward, forward).c_str(),
                         record::print(parts.backward, backward).c_str());
  });
}

PyObject* joint_inputs(PyObject*, PyObject* capsule) {
  const KeptJoint* kept = kept_in(capsule);
  return kept ? list_of(kept->recorder->inputs()) : nullptr;
}

/// A joint tape that is run, and what numbers are in this call.
struct JointCall {
  const Joint& joint;
  std::vector<at::Tensor> inputs, tangents;
  Budget budget;
  std::function<int64_t(Sym)> number;
  bool as_recorded;  ///< it is run on what it was recorded with

  record::Dims sizes_of(TensorId id, const record::TensorInfo& info) const {
    if (as_recorded || joint.sizes.empty() || joint.sizes[id].empty()) return info.sizes;
    record::Dims sizes;
    for (Sym size : joint.sizes[id]) sizes.push_back(number(size));
    return sizes;
  }
};

/// What the tape says of a result that it is not; "": it is.
std::string complaint(const JointCall& call, const record::Tape& tape, const record::Entry& entry,
                      TensorId id, const at::Tensor& t) {
  const record::TensorInfo& info = tape.tensors[id];
  const bool computed_again = static_cast<size_t>(id) >= call.joint.tape.tensors.size();
  if (computed_again && !call.as_recorded) return "";  // the joint tape says nothing of it
  const record::Dims here = call.sizes_of(id, info);
  const at::IntArrayRef sizes(here), strides(info.strides);
  bool same = t.scalar_type() == info.dtype && t.device() == info.device && t.sizes() == sizes;
  for (int64_t d = 0; same && call.as_recorded && t.numel() && d < t.dim(); ++d)
    same = t.size(d) == 1 || t.stride(d) == strides[d];
  if (same) return "";
  return detail::concat("%", id, " = ", entry.op.operator_name().name, ": ", t.toString(), t.sizes(), " by ",
                        t.strides(), " instead of ", c10::toString(info.dtype), sizes, " by ", strides);
}

record::ReplayWatch checking(const JointCall& call, const record::Tape& tape,
                             std::vector<std::string>& complaints) {
  return [&](size_t i, const torch::jit::Stack& results) {
    const record::Entry& entry = tape.entries[i];
    for (size_t r = 0; r < entry.results.size(); ++r) {
      if (entry.results[r].tensors.empty()) continue;
      const bool one = results[r].isTensor();
      const auto tensors = one ? std::vector{results[r].toTensor()} : results[r].toTensorVector();
      for (size_t k = 0; k < tensors.size(); ++k) {
        const TensorId id = entry.results[r].tensors[k];
        if ((id < 0) == tensors[k].defined())
          complaints.push_back(entry.op.operator_name().name + ": is there a result?");
        else if (id >= 0)
          if (std::string what = complaint(call, tape, entry, id, tensors[k]); !what.empty())
            complaints.push_back(std::move(what));
      }
    }
  };
}

using Tensors = std::vector<at::Tensor>;

Tensors joined(const Tensors& a, const Tensors& b) {
  Tensors all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/// Takes what is behind the first `count` away, and gives it.
Tensors cut_off(Tensors& tensors, size_t count) {
  const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(count);
  const Tensors rest(middle, tensors.end());
  tensors.erase(middle, tensors.end());
  return rest;
}

struct TapeRun {
  Tensors outputs, gradients;
  std::vector<std::string> complaints;
};

Tensors run_tape(const JointCall& call, const record::Tape& tape, const Tensors& inputs,
                 std::vector<TensorId> wanted, const std::vector<TensorId>& more, TapeRun& ran) {
  wanted.insert(wanted.end(), more.begin(), more.end());
  record::ReplayOptions options;
  options.after = checking(call, tape, ran.complaints);
  options.value = call.number;
  return replay_watched(tape, inputs, wanted, std::move(options));
}

TapeRun run_whole(const JointCall& call) {
  TapeRun ran;
  const Joint& joint = call.joint;
  const Tensors inputs = joined(call.inputs, call.tangents);
  ran.outputs = run_tape(call, joint.tape, inputs, joint.outputs, joint.gradients, ran);
  ran.gradients = cut_off(ran.outputs, joint.outputs.size());
  return ran;
}

TapeRun run_parts(const JointCall& call) {
  TapeRun ran;
  const Split parts = split(call.joint, call.budget);
  ran.outputs = run_tape(call, parts.forward, call.inputs, parts.outputs, parts.saved, ran);
  const Tensors kept = cut_off(ran.outputs, parts.outputs.size());
  ran.gradients = run_tape(call, parts.backward, joined(kept, call.tangents), parts.gradients, {}, ran);
  return ran;
}

/// A float is a share, an integer a number of bytes, and None is no budget.
Budget budget_in(PyObject* object) {
  Budget budget;
  if (object && PyFloat_Check(object)) budget.share = PyFloat_AsDouble(object);
  if (object && PyLong_Check(object)) budget.bytes = PyLong_AsLongLong(object);
  return budget;
}

/// (joint, tangents), and the inputs and arguments of another call than the recorded one.
template <TapeRun (*kRun)(const JointCall&)>
PyObject* joint_run(PyObject*, PyObject* tuple) {
  PyObject *capsule, *tangents, *budget = nullptr, *inputs = nullptr, *args = nullptr;
  if (!PyArg_ParseTuple(tuple, "OO|OOO!", &capsule, &tangents, &budget, &inputs, &PyTuple_Type, &args))
    return nullptr;
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const TapeInputs given{inputs ? tensors_in(inputs) : kept->recorder->inputs(), args};
    JointCall call{kept->joint, given.inputs, tensors_in(tangents), budget_in(budget), {}, !inputs};
    if (inputs) call.number = numbers_with(kept->joint, given.values(kept->joint));
    const TapeRun ran = kRun(call);
    PyRef texts = PyRef::steal(PyList_New(0));
    for (const std::string& line : ran.complaints) {
      const PyRef text = PyRef::steal(PyUnicode_FromString(line.c_str()));
      PyList_Append(texts.get(), text.get());
    }
    return Py_BuildValue("NNN", list_of(ran.outputs), list_of(ran.gradients), texts.release());
  });
}

/// For each tangent: the output that it is the gradient of, and whether of all that this is a part of.
PyObject* joint_tangents(PyObject*, PyObject* capsule) {
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  const Joint& joint = kept->joint;
  auto storage = [&](TensorId id) { return joint.tape.tensors[id].storage; };
  PyObject* list = PyList_New(0);
  for (TensorId id : joint.tangent_of) {
    const auto& outputs = joint.outputs;
    auto at = std::ranges::find(outputs, id);
    const bool whole = at == outputs.end();
    if (whole)
      at = std::ranges::find_if(outputs, [&](TensorId o) { return o >= 0 && storage(o) == storage(id); });
    const PyRef pair = PyRef::steal(
        Py_BuildValue("nO", static_cast<Py_ssize_t>(at - outputs.begin()), whole ? Py_True : Py_False));
    if (!pair || PyList_Append(list, pair.get()) < 0) return Py_DECREF(list), nullptr;
  }
  return list;
}

PyObject* joint_saved(PyObject*, PyObject* capsule) {
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  const Saved found = saved(kept->joint);
  return Py_BuildValue("nL", static_cast<Py_ssize_t>(found.tensors.size()),
                       static_cast<long long>(found.bytes));
}

PyObject* as_tuple(const MemoryUse& memory) {
  return Py_BuildValue("nLL", static_cast<Py_ssize_t>(memory.tensors), static_cast<long long>(memory.bytes),
                       static_cast<long long>(memory.peak));
}

PyObject* joint_partition(PyObject*, PyObject* tuple) {
  PyObject *capsule, *budget = nullptr;
  if (!PyArg_ParseTuple(tuple, "O|O", &capsule, &budget)) return nullptr;
  const KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const Partition made = partition(kept->joint, budget_in(budget));
    return Py_BuildValue("sNNn", print(kept->joint, made).c_str(), as_tuple(made.memory),
                         as_tuple(made.eager), static_cast<Py_ssize_t>(made.inputs_kept_anew.size()));
  });
}

/// Of what the backward part makes a log softmax again, from now on.
PyObject* joint_keeps_row_statistics(PyObject*, PyObject* capsule) {
  KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    keep_row_statistics(kept->joint);
    return Py_NewRef(Py_None);
  });
}

/// (joint, number): what is made of its largest product in so many pieces from now on.
PyObject* joint_in_pieces(PyObject*, PyObject* tuple) {
  PyObject* capsule;
  long long pieces;
  if (!PyArg_ParseTuple(tuple, "OL", &capsule, &pieces)) return nullptr;
  KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const Flow flow(kept->joint, Prices());
    Joint made = head_in_pieces(flow, rows_of(flow), pieces);
    kept->joint = std::move(made);
    return Py_NewRef(Py_None);
  });
}

/// (joint, budget): as a budget asks for it; how high its peak may be then.
PyObject* joint_head_planned(PyObject*, PyObject* tuple) {
  PyObject *capsule, *budget;
  if (!PyArg_ParseTuple(tuple, "OO", &capsule, &budget)) return nullptr;
  KeptJoint* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    HeadPlan plan = plan_head(kept->joint, budget_in(budget));
    if (plan.joint) kept->joint = *std::move(plan.joint);
    return plan.budget.bytes ? PyLong_FromLongLong(*plan.budget.bytes) : Py_NewRef(budget);
  });
}

PyObject* keep_function(PyObject*, PyObject* callable) {
  return PyLong_FromLongLong(keep_callable(callable));
}

std::vector<bool> flags_in(PyObject* list) {
  std::vector<bool> flags;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) flags.push_back(PyList_GET_ITEM(list, i) == Py_True);
  return flags;
}

FunctionInputs inputs_in(PyObject* list) {
  FunctionInputs inputs;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    inputs.push_back(THPVariable_Check(item) ? std::make_optional(THPVariable_Unpack(item)) : std::nullopt);
  }
  return inputs;
}

PyObject* function_tied(PyObject*, PyObject* tuple) {
  PyObject *callable, *inputs, *outputs, *saved, *differentiable, *written;
  int materialize;
  if (!PyArg_ParseTuple(tuple, "OO!O!O!O!O!p", &callable, &PyList_Type, &inputs, &PyList_Type, &outputs,
                        &PyList_Type, &saved, &PyList_Type, &differentiable, &PyList_Type, &written,
                        &materialize))
    return nullptr;
  return guarded([&]() -> PyObject* {
    return list_of(tie_function(callable, inputs_in(inputs), tensors_in(outputs), tensors_in(saved),
                                flags_in(differentiable), flags_in(written), materialize != 0));
  });
}

PyMethodDef methods[] = {{"_joint", joint, METH_VARARGS, nullptr},
                         {"_joint_agrees", joint_agrees, METH_VARARGS, nullptr},
                         {"_joint_symbols", joint_symbols, METH_O, nullptr},
                         {"_joint_parts", joint_parts, METH_O, nullptr},
                         {"_joint_text", joint_text, METH_O, nullptr},
                         {"_joint_inputs", joint_inputs, METH_O, nullptr},
                         {"_joint_run", joint_run<run_whole>, METH_VARARGS, nullptr},
                         {"_joint_run_parts", joint_run<run_parts>, METH_VARARGS, nullptr},
                         {"_joint_tangents", joint_tangents, METH_O, nullptr},
                         {"_joint_saved", joint_saved, METH_O, nullptr},
                         {"_joint_partition", joint_partition, METH_VARARGS, nullptr},
                         {"_joint_keeps_row_statistics", joint_keeps_row_statistics, METH_O, nullptr},
                         {"_joint_in_pieces", joint_in_pieces, METH_VARARGS, nullptr},
                         {"_joint_head_planned", joint_head_planned, METH_VARARGS, nullptr},
                         {"_keep_callable", keep_function, METH_O, nullptr},
                         {"_tie_function", function_tied, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_joint_functions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace bolt::autograd
