// session/backend.cpp
// The tape is walked here; torchbolt.backends.GraphBuilder makes the nodes.
#include "session/backend.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

#include "python/py_ref.h"
#include "run/foreign.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::session {
namespace {

using record::Arg;
using record::TensorId;
using record::TensorInfo;

PyRef checked(PyObject* object) {
  if (!object) throw PythonError();
  return PyRef::steal(object);
}

PyRef ints(const record::Dims& values) {
  PyRef out = checked(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  return out;
}

/// (dtype, sizes, strides, device, requires_grad)
PyRef facts_of(const TensorInfo& info) {
  return checked(Py_BuildValue("(ONNsN)", reinterpret_cast<PyObject*>(torch::getTHPDtype(info.dtype)),
                               ints(info.sizes).release(), ints(info.strides).release(),
                               info.device.str().c_str(), PyBool_FromLong(info.requires_grad)));
}

/// What a number's symbol stands for.
PyRef number_of(const SymbolRow& s, int64_t value) {
  return PyRef::steal(is_float_symbol(*s.symbol.node()) ? PyFloat_FromDouble(std::bit_cast<double>(value))
                                                        : PyLong_FromLongLong(value));
}

class TapeWalk {
 public:
  TapeWalk(PyObject* builder, const record::Tape& tape, const SymbolTable& symbols)
      : builder_(builder), tape_(tape), symbols_(symbols), nodes_(tape.tensors.size()) {}

  void input(TensorId id, const BackendInput& from) {
    PyRef tensor = checked(THPVariable_Wrap(from.tensor));
    nodes_[id] = checked(PyObject_CallMethod(builder_, "placeholder", "sOO", from.name.c_str(), tensor.get(),
                                             facts_of(tape_.tensors[id]).get()));
  }
  void constant(TensorId id, const at::Tensor& value) {
    PyRef tensor = checked(THPVariable_Wrap(value));
    nodes_[id] = checked(
        PyObject_CallMethod(builder_, "constant", "OO", tensor.get(), facts_of(tape_.tensors[id]).get()));
  }

  /// The number that symbol `i` stands for.
  void number(size_t i) {
    const SymbolRow& s = symbols_[i];
    PyRef value = checked(number_of(s, s.hint).release());
    sizes_[s.symbol] =
        checked(PyObject_CallMethod(builder_, "number", "sO", s.symbol.str().c_str(), value.get()));
  }

  void entry(const record::Entry& e) {
    const auto& schema = e.op.schema();
    PyRef args = checked(PyList_New(0)), kwargs = checked(PyDict_New()), results = checked(PyList_New(0));
    // What equals its default at the end is not written.
    size_t written = e.args.size();
    while (written > 0 && is_default(schema.arguments()[written - 1], e.args[written - 1])) --written;
    for (size_t i = 0; i < e.args.size(); ++i) {
      const auto& declared = schema.arguments()[i];
      if (declared.kwarg_only()) {
        if (!is_default(declared, e.args[i]))
          PyDict_SetItemString(kwargs.get(), declared.name().c_str(), argument(declared, e.args[i]).get());
      } else if (i < written) {
        PyList_Append(args.get(), argument(declared, e.args[i]).get());
      }
    }
    for (const Arg& r : e.results) PyList_Append(results.get(), result(r).get());
    const auto& name = e.op.operator_name();
    const record::SourceLine none;
    const record::SourceLine& line = e.loc >= 0 ? tape_.locs[e.loc] : none;
    PyRef made = checked(PyObject_CallMethod(builder_, "operator", "ssOOOi(sis)", name.name.c_str(),
                                             name.overload_name.c_str(), args.get(), kwargs.get(),
                                             results.get(), e.grad_mode ? 1 : 0, line.file.c_str(), line.line,
                                             line.function.c_str()));
    for (size_t r = 0; r < e.results.size(); ++r) {
      PyObject* node = PyList_GetItem(made.get(), static_cast<Py_ssize_t>(r));
      if (!node) throw PythonError();
      const auto& ids = e.results[r].tensors;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0) continue;
        PyObject* one =
            e.results[r].kind == Arg::Kind::Tensor ? node : PyList_GetItem(node, static_cast<Py_ssize_t>(i));
        if (!one) throw PythonError();
        nodes_[ids[i]] = PyRef::share(one);
      }
    }
  }

  PyObject* node(TensorId id) const { return id < 0 || !nodes_[id] ? Py_None : nodes_[id].get(); }

 private:
  static bool is_default(const c10::Argument& declared, const Arg& arg) {
    if (arg.kind != Arg::Kind::Value || !declared.default_value() || !arg.syms.empty()) return false;
    const c10::IValue &given = arg.value, &usual = *declared.default_value();
    if (given.isNone() || usual.isNone()) return given.isNone() && usual.isNone();
    return given.tagKind() == usual.tagKind() && given == usual;
  }

  /// The node that computes it; a plain number where it is known.
  PyRef size(Sym s) {
    if (s.is_const()) return checked(PyLong_FromLongLong(s.value()));
    if (const auto known = sizes_.find(s); known != sizes_.end()) return PyRef::share(known->second.get());
    const SymNode& n = *s.node();
    PyRef made;
    if (n.op == SymOp::Symbol) {
      const auto from =
          std::find_if(symbols_.begin(), symbols_.end(), [&](const auto& each) { return each.symbol == s; });
      if (from == symbols_.end()) throw Error(ErrorKind::Internal, "nothing gives the size " + s.str());
      PyObject* tensor = node(tape_.inputs[from->input]);
      if (tensor == Py_None) throw Error(ErrorKind::Internal, "no placeholder has the size " + s.str());
      made = checked(PyObject_CallMethod(builder_, "size", "OiL", tensor, from->dim,
                                         static_cast<long long>(from->hint * from->divisor)));
      if (from->divisor != 1) made = computed(SymOp::FloorDiv, made, size(from->divisor));
    } else {
      made = size(n.args[0]);
      for (size_t i = 1; i < n.args.size(); ++i) made = computed(n.op, made, size(n.args[i]));
    }
    sizes_[s] = PyRef::share(made.get());
    return made;
  }

  PyRef computed(SymOp op, const PyRef& x, const PyRef& y) {
    const char* const kNames[] = {"", "add", "mul", "floordiv", "mod", "min", "max"};
    return checked(
        PyObject_CallMethod(builder_, "computed", "sOO", kNames[static_cast<int>(op)], x.get(), y.get()));
  }

  PyRef list(const record::TensorIds& ids) const {
    PyRef out = checked(PyList_New(0));
    for (TensorId id : ids) PyList_Append(out.get(), node(id));
    return out;
  }

  PyRef argument(const c10::Argument& declared, const Arg& arg) {
    switch (arg.kind) {
      case Arg::Kind::Tensor: return PyRef::share(node(arg.tensors[0]));
      case Arg::Kind::TensorList:
      case Arg::Kind::OptionalTensorList: return list(arg.tensors);
      case Arg::Kind::Value:
      case Arg::Kind::WrappedNumber: break;
    }
    if (!arg.syms.empty()) {
      if (!arg.value.isList()) return size(arg.syms[0]);
      PyRef all = checked(PyList_New(0));
      for (Sym s : arg.syms) PyList_Append(all.get(), size(s).get());
      return all;
    }
    // A dtype, a layout and a memory format are numbers in a boxed call, and have names in Python.
    const c10::Type* type = declared.real_type().get();
    if (auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType().get();
    if (arg.value.isInt()) {
      const int64_t number = arg.value.toInt();
      if (type->kind() == c10::TypeKind::ScalarTypeType)
        return PyRef::share(
            reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(number))));
      if (type->kind() == c10::TypeKind::LayoutType)
        return PyRef::share(
            reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<at::Layout>(number))));
      if (type->kind() == c10::TypeKind::MemoryFormatType)
        return PyRef::share(torch::utils::getTHPMemoryFormat(static_cast<at::MemoryFormat>(number)));
    }
    return checked(torch::jit::toPyObject(arg.value).release().ptr());
  }

  PyRef result(const Arg& r) const {
    if (r.kind == Arg::Kind::Value) return PyRef::share(Py_None);
    if (r.kind == Arg::Kind::Tensor)
      return r.tensors[0] < 0 ? PyRef::share(Py_None) : facts_of(tape_.tensors[r.tensors[0]]);
    PyRef out = checked(PyList_New(0));
    for (TensorId id : r.tensors)
      PyList_Append(out.get(), id < 0 ? Py_None : facts_of(tape_.tensors[id]).get());
    return out;
  }

  PyObject* builder_;
  const record::Tape& tape_;
  const SymbolTable& symbols_;
  std::vector<PyRef> nodes_;
  std::unordered_map<Sym, PyRef> sizes_;
};

/// Calls `fn` with the inputs in `order`, and `numbers`.
std::vector<at::Tensor> call(const PyRef& fn, const std::vector<int>& order, size_t outputs,
                             const std::vector<at::Tensor>& inputs, std::vector<PyRef> numbers) {
  PyRef args = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(order.size() + numbers.size())));
  if (!args) throw python_error();
  for (size_t i = 0; i < numbers.size(); ++i)
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(order.size() + i), numbers[i].release());
  for (size_t i = 0; i < order.size(); ++i)
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(inputs[order[i]]));
  PyRef result = PyRef::steal(PyObject_CallObject(fn.get(), args.get()));
  if (!result) throw python_error();
  if (THPVariable_Check(result.get())) result = PyRef::steal(PyTuple_Pack(1, result.get()));
  PyRef all = PyRef::steal(PySequence_Fast(result.get(), "a backend's function returns a tuple of tensors"));
  if (!all) throw python_error();
  if (PySequence_Fast_GET_SIZE(all.get()) != static_cast<Py_ssize_t>(outputs)) {
    PyErr_Format(PyExc_TypeError, "the backend's function returned %zd results, its graph has %zu",
                 PySequence_Fast_GET_SIZE(all.get()), outputs);
    throw python_error();
  }
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < outputs; ++i) {
    PyObject* one = PySequence_Fast_GET_ITEM(all.get(), static_cast<Py_ssize_t>(i));
    out.push_back(THPVariable_Check(one) ? THPVariable_Unpack(one) : at::Tensor());
  }
  return out;
}

}  // namespace

std::shared_ptr<run::Runnable> compile_with_backend(PyObject* backend, run::Recorded& recorded,
                                                    const std::vector<BackendInput>& inputs,
                                                    const SymbolTable& symbols) {
  std::vector<int> order;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].tensor.defined()) order.push_back(static_cast<int>(i));
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return inputs[a].argument < inputs[b].argument; });

  PyRef module = checked(import_module("torchbolt.backends"));
  PyRef builder = checked(PyObject_CallMethod(module.get(), "GraphBuilder", nullptr));
  TapeWalk walk(builder.get(), recorded.tape, symbols);
  for (int i : order) walk.input(recorded.tape.inputs[i], inputs[i]);
  std::vector<size_t> numbers;
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i].from == SymbolRow::From::number) walk.number(i), numbers.push_back(i);
  for (const auto& [i, value] : recorded.constants) walk.constant(recorded.tape.inputs[i], value);
  for (const record::Entry& e : recorded.tape.entries) walk.entry(e);
  PyRef outputs = checked(PyList_New(0));
  for (TensorId id : recorded.wanted) PyList_Append(outputs.get(), walk.node(id));
  PyRef fn = checked(PyObject_CallMethod(builder.get(), "finish", "OO", outputs.get(), backend));

  const size_t count = recorded.wanted.size();
  auto run = [=](const std::vector<at::Tensor>& given, const std::vector<int64_t>& values,
                 const record::CallGenerators&) {
    std::vector<PyRef> others;
    for (size_t i : numbers) others.push_back(number_of(symbols[i], values[i]));
    return call(fn, order, count, given, std::move(others));
  };
  return std::make_shared<run::Foreign>(std::move(recorded.tape), std::move(recorded.wanted), run, symbols);
}

}  // namespace bolt::session
