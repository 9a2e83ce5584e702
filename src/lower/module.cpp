// lower/module.cpp
#include "lower/module.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gradients.h"
#include "autograd/step.h"
#include "guard/tensors.h"
#include "lower/functionalize.h"
#include "opt/opt.h"
#include "record/recorder.h"
#include "record/text.h"
#include "support/error.h"
#include "support/size_demand.h"

namespace bolt::lower {
namespace {

/// Nodes of autograd's ask for the streams of their tensors' device. Here it need not be there, and torch
/// need not know of it.
void stand_in_for_cuda() {
  static const c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> none;
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA))
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(&none);
}

/// Lowered as compiling does it: what demands a size gives the sizes up, until nothing does.
std::unique_ptr<graph::Graph> lowered(record::ReadTape read, bool rounds_as_eager) {
  record::TapeContext& c = read.context;
  if (c.wanted.empty()) throw_user("the tape gives nothing: a line `return %3` is missing");
  if (autograd::has_passes(read.tape)) {
    stand_in_for_cuda();
    autograd::StepTape step = autograd::make_step(read.tape, c.wanted);
    read.tape = std::move(step.tape);
    c.wanted = std::move(step.wanted);
  }
  Sizes sizes(read.tape, c.dynamic, c.numbers, std::move(c.facts));
  const LowerOptions options{std::move(c.is_param), std::move(c.constants), {}, rounds_as_eager};
  while (true) {
    try {
      Lowered out = functionalize(read.tape, c.wanted, options, sizes);
      if (!c.name.empty()) out.graph->name = c.name;
      return std::move(out.graph);
    } catch (const SizeDemand& demand) {
      if (!sizes.solve(demand, demand.where)) throw_user(demand.where, ": ", demand.what());
    }
  }
}

opt::OptResult opt_of(std::string_view text, const opt::OptOptions& options) {
  if (opt::stage_of(text) != "tape") return opt::run(text, options);
  record::ReadTape read = record::parse_tape(text);
  if (options.emit.empty() || options.emit == "tape") return {record::print(read.tape, read.context), ""};
  return opt::run(lowered(std::move(read), options.numerics == "eager"), options);
}

PyObject* opt(PyObject*, PyObject* tuple) {
  PyObject *given, *list;
  if (!PyArg_ParseTuple(tuple, "UO!", &given, &PyList_Type, &list)) return nullptr;
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(given, &length);
  if (!text) return nullptr;
  std::vector<std::string> arguments;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const char* argument = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i));
    if (!argument) return nullptr;
    arguments.emplace_back(argument);
  }
  try {
    const opt::OptOptions options = opt::read_options(arguments);
    if (options.help) return Py_BuildValue("ss", opt::help().c_str(), "");
    if (options.list) return Py_BuildValue("ss", opt::list_of_passes().c_str(), "");
    const opt::OptResult result = opt_of(std::string_view(text, static_cast<size_t>(length)), options);
    return Py_BuildValue("ss", result.text.c_str(), result.report.c_str());
  } catch (const std::exception& e) {
    return PyErr_SetString(PyExc_ValueError, e.what()), nullptr;
  }
}

at::Tensor tensor_of(PyObject* object) {
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(
          guard::tensor_impl(object)));
}

/// The tensors that a call gave: itself, or in a tuple or list.
std::vector<at::Tensor> tensors_in(PyObject* result) {
  if (guard::is_tensor(result)) return {tensor_of(result)};
  std::vector<at::Tensor> out;
  PyRef items = PyRef::steal(PySequence_Fast(result, "neither a tensor nor a sequence of tensors"));
  if (!items) return PyErr_Clear(), out;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    if (PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i); guard::is_tensor(item))
      out.push_back(tensor_of(item));
  return out;
}

PyObject* record_tape(PyObject*, PyObject* tuple) {
  PyObject *callable, *args, *parameters;
  if (!PyArg_ParseTuple(tuple, "OO!O", &callable, &PyTuple_Type, &args, &parameters)) return nullptr;
  record::Recorder recorder;
  PyRef result;
  {
    record::Recorder::Scope scope(recorder);
    result = PyRef::steal(PyObject_CallObject(callable, args));
  }
  if (!result) return nullptr;
  record::TapeContext context;
  for (const at::Tensor& t : tensors_in(result.get())) context.wanted.push_back(recorder.input_id(t));
  const std::vector<at::Tensor> known = tensors_in(parameters);
  for (const at::Tensor& input : recorder.inputs())
    context.is_param.push_back(
        std::any_of(known.begin(), known.end(), [&](const at::Tensor& t) { return t.is_same(input); }));
  context.constants = recorder.constants();
  return PyUnicode_FromString(record::print(recorder.tape(), context).c_str());
}

PyMethodDef methods[] = {
    {"_opt", opt, METH_VARARGS, "_opt(text, arguments): (text, report); see torchbolt.opt."},
    {"_record_tape", record_tape, METH_VARARGS, "_record_tape(callable, args, parameters): the tape's text."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_lower_functions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace bolt::lower
