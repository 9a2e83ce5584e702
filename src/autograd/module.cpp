// autograd/module.cpp: see module.h.
#include "autograd/module.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <memory>

#include "autograd/function.h"
#include "autograd/joint.h"
#include "autograd/split.h"
#include "python/py_ref.h"
#include "record/recorder.h"
#include "record/replay.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::TensorId;

struct Kept {
  std::unique_ptr<record::Recorder> recorder = std::make_unique<record::Recorder>();
  Joint joint;
};

void drop(PyObject* capsule) { delete static_cast<Kept*>(PyCapsule_GetPointer(capsule, "joint")); }
Kept* kept_in(PyObject* capsule) { return static_cast<Kept*>(PyCapsule_GetPointer(capsule, "joint")); }

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

PyObject* joint(PyObject*, PyObject* tuple) {
  PyObject *callable, *args;
  if (!PyArg_ParseTuple(tuple, "OO!", &callable, &PyTuple_Type, &args)) return nullptr;
  return guarded([&]() -> PyObject* {
    auto kept = std::make_unique<Kept>();
    record::Recorder& recorder = *kept->recorder;
    PyRef result;
    {
      const record::Recorder::Scope scope(recorder);
      result = PyRef::steal(PyObject_CallObject(callable, args));
    }
    if (!result) return nullptr;
    if (const Reason* why = recorder.escaped()) throw_unsupported("the run ended at ", why->text());
    std::vector<TensorId> wanted;
    for (const at::Tensor& t : tensors_in(result.get())) wanted.push_back(recorder.input_id(t));
    kept->joint = make_joint(recorder.tape(), wanted);
    return PyCapsule_New(kept.release(), "joint", drop);
  });
}

PyObject* joint_text(PyObject*, PyObject* capsule) {
  const Kept* kept = kept_in(capsule);
  return kept ? PyUnicode_FromString(print(kept->joint).c_str()) : nullptr;
}

PyObject* joint_inputs(PyObject*, PyObject* capsule) {
  const Kept* kept = kept_in(capsule);
  return kept ? list_of(kept->recorder->inputs()) : nullptr;
}

/// What the tape says of a result that it is not; "": it is.
std::string complaint(const record::Tape& tape, const record::Entry& entry, TensorId id,
                      const at::Tensor& t) {
  const record::TensorInfo& info = tape.tensors[static_cast<size_t>(id)];
  const at::IntArrayRef sizes(info.sizes), strides(info.strides);
  bool same = t.scalar_type() == info.dtype && t.device() == info.device && t.sizes() == sizes;
  for (int64_t d = 0; same && t.numel() && d < t.dim(); ++d)
    same = t.size(d) == 1 || t.stride(d) == strides[static_cast<size_t>(d)];
  if (same) return "";
  return detail::concat("%", id, " = ", entry.op.operator_name().name, ": ", t.toString(), t.sizes(), " by ",
                        t.strides(), " instead of ", c10::toString(info.dtype), sizes, " by ", strides);
}

record::ReplayWatch checking(const record::Tape& tape, std::vector<std::string>& complaints) {
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
          if (std::string what = complaint(tape, entry, id, tensors[k]); !what.empty())
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

struct Ran {
  Tensors outputs, gradients;
  std::vector<std::string> complaints;
};

Tensors run_tape(const record::Tape& tape, const Tensors& inputs, std::vector<TensorId> wanted,
                 const std::vector<TensorId>& more, Ran& ran) {
  wanted.insert(wanted.end(), more.begin(), more.end());
  record::ReplayOptions options;
  options.after = checking(tape, ran.complaints);
  return replay_watched(tape, inputs, wanted, std::move(options));
}

Ran run_whole(const Joint& joint, const Tensors& inputs, const Tensors& tangents, const Budget&) {
  Ran ran;
  ran.outputs = run_tape(joint.tape, joined(inputs, tangents), joint.outputs, joint.gradients, ran);
  ran.gradients = cut_off(ran.outputs, joint.outputs.size());
  return ran;
}

Ran run_parts(const Joint& joint, const Tensors& inputs, const Tensors& tangents, const Budget& budget) {
  Ran ran;
  const Split parts = split(joint, budget);
  ran.outputs = run_tape(parts.forward, inputs, parts.outputs, parts.saved, ran);
  const Tensors kept = cut_off(ran.outputs, parts.outputs.size());
  ran.gradients = run_tape(parts.backward, joined(kept, tangents), parts.gradients, {}, ran);
  return ran;
}

/// A float is a share, an integer a number of bytes, and None is no budget.
Budget budget_in(PyObject* object) {
  Budget budget;
  if (object && PyFloat_Check(object)) budget.share = PyFloat_AsDouble(object);
  if (object && PyLong_Check(object)) budget.bytes = PyLong_AsLongLong(object);
  return budget;
}

template <Ran (*kRun)(const Joint&, const Tensors&, const Tensors&, const Budget&)>
PyObject* joint_run(PyObject*, PyObject* tuple) {
  PyObject *capsule, *tangents, *budget = nullptr;
  if (!PyArg_ParseTuple(tuple, "OO|O", &capsule, &tangents, &budget)) return nullptr;
  const Kept* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const Ran ran = kRun(kept->joint, kept->recorder->inputs(), tensors_in(tangents), budget_in(budget));
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
  const Kept* kept = kept_in(capsule);
  if (!kept) return nullptr;
  const Joint& joint = kept->joint;
  auto storage = [&](TensorId id) { return joint.tape.tensors[static_cast<size_t>(id)].storage; };
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
  const Kept* kept = kept_in(capsule);
  if (!kept) return nullptr;
  const Saved found = saved(kept->joint);
  return Py_BuildValue("nL", static_cast<Py_ssize_t>(found.tensors.size()),
                       static_cast<long long>(found.bytes));
}

PyObject* numbers_of(const Memory& memory) {
  return Py_BuildValue("nLL", static_cast<Py_ssize_t>(memory.tensors), static_cast<long long>(memory.bytes),
                       static_cast<long long>(memory.peak));
}

PyObject* joint_partition(PyObject*, PyObject* tuple) {
  PyObject *capsule, *budget = nullptr;
  if (!PyArg_ParseTuple(tuple, "O|O", &capsule, &budget)) return nullptr;
  const Kept* kept = kept_in(capsule);
  if (!kept) return nullptr;
  return guarded([&]() -> PyObject* {
    const Partition made = partition(kept->joint, budget_in(budget));
    return Py_BuildValue("sNNn", print(kept->joint, made).c_str(), numbers_of(made.memory),
                         numbers_of(made.eager), static_cast<Py_ssize_t>(made.inputs_kept_anew.size()));
  });
}

PyObject* keep_function(PyObject*, PyObject* callable) {
  return PyLong_FromLongLong(keep_backward(callable));
}

PyMethodDef methods[] = {{"_joint", joint, METH_VARARGS, nullptr},
                         {"_joint_text", joint_text, METH_O, nullptr},
                         {"_joint_inputs", joint_inputs, METH_O, nullptr},
                         {"_joint_run", joint_run<run_whole>, METH_VARARGS, nullptr},
                         {"_joint_run_parts", joint_run<run_parts>, METH_VARARGS, nullptr},
                         {"_joint_tangents", joint_tangents, METH_O, nullptr},
                         {"_joint_saved", joint_saved, METH_O, nullptr},
                         {"_joint_partition", joint_partition, METH_VARARGS, nullptr},
                         {"_keep_backward", keep_function, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_joint_functions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace bolt::autograd
