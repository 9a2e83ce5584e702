// guard/numbers.cpp
#include "guard/numbers.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "guard/leaf.h"
#include "guard/numpy_numbers.h"
#include "support/short_vector.h"

namespace bolt::guard {
namespace {

template <auto function>
PyObject* apply(PyObject* a, PyObject* b) {
  if constexpr (std::is_invocable_v<decltype(function), PyObject*, PyObject*>)
    return function(a, b);
  else
    return function(a, b, Py_None);  // pow's modulus
}

struct Binary {
  PyObject* (*call)(PyObject*, PyObject*);
  const char* name;
};
constexpr Binary kBinary[] = {
#define BINARY(name, cpython_name, number, stem, function, slot, symbol) {apply<PyNumber_##function>, symbol},
#include "python/binary_ops.def"
#undef BINARY
};
constexpr const char* kCompare[] = {"<", "<=", "==", "!=", ">", ">="};

std::string sign(int kind) {
  std::string name = kBinary[kind].name;  // "** or pow()"
  return name.substr(0, name.find(' '));
}

PyObject* call(const NumberStep& step, const std::vector<PyRef>& values) {
  ShortVector<PyObject*, 8> args;
  for (int arg : step.args) args.push_back(values[arg].get());
  return PyObject_Vectorcall(step.object.get(), args.data(), args.size(), nullptr);
}

}  // namespace

Phase Numbers::phase_of(const NumberStep& step) const {
  Phase phase = is_of_output(step) ? Phase::late : step.phase;
  for (int arg : step.args) phase = std::max(phase, steps[arg].phase);
  return phase;
}

bool Numbers::draws(const NumberStep& step) const {
  return step.op == NumberOp::call && step.phase == Phase::early &&
         std::all_of(step.args.begin(), step.args.end(),
                     [&](int arg) { return steps[arg].phase == Phase::check; });
}

int Numbers::add(NumberStep step) {
  step.phase = phase_of(step);
  steps.push_back(std::move(step));
  return static_cast<int>(steps.size()) - 1;
}

namespace {

/// New; null with an exception.
PyObject* compute_step(const NumberStep& step, const std::vector<PyRef>& values) {
  auto arg = [&](size_t i) { return values[step.args[i]].get(); };
  switch (step.op) {
    case NumberOp::source:
    case NumberOp::size:
    case NumberOp::data:
    case NumberOp::data_size: break;
    case NumberOp::constant: return Py_NewRef(step.object.get());
    case NumberOp::binary: return kBinary[step.kind].call(arg(0), arg(1));
    case NumberOp::negative: return PyNumber_Negative(arg(0));
    case NumberOp::positive: return PyNumber_Positive(arg(0));
    case NumberOp::invert: return PyNumber_Invert(arg(0));
    case NumberOp::compare: return PyObject_RichCompare(arg(0), arg(1), step.kind);
    case NumberOp::call: return call(step, values);
  }
  return nullptr;
}

}  // namespace

bool Numbers::go_on(Phase phase, std::vector<PyRef>& values,
                    const std::function<PyObject*(const NumberStep&)>& data) const {
  for (size_t i = 0; i < steps.size(); ++i) {
    const NumberStep& step = steps[i];
    if (step.phase != phase) continue;
    values[i] = PyRef::steal(is_of_output(step) ? data(step) : compute_step(step, values));
    if (step.op == NumberOp::data && values[i] &&
        step.object.get() == reinterpret_cast<PyObject*>(&PyFloat_Type))
      values[i] = PyRef::steal(PyNumber_Float(values[i].get()));
    if (!values[i]) return false;
    if (phase == Phase::early && step.type && !Py_IS_TYPE(values[i].get(), step.type))
      return PyErr_SetString(PyExc_TypeError, "a number is of another kind than in the recorded run"), false;
  }
  return true;
}

bool Numbers::compute(const std::vector<PyObject*>& registers,
                      const std::function<std::optional<int64_t>(Sym, const std::vector<PyRef>&)>& size_of,
                      std::vector<PyRef>& values) const {
  values.clear();
  for (const NumberStep& step : steps) {
    if (step.phase != Phase::check) {
      values.emplace_back();
      continue;
    }
    PyObject* value = nullptr;
    if (step.op == NumberOp::source) {
      value = Py_XNewRef(registers[static_cast<size_t>(step.kind)]);
    } else if (step.op == NumberOp::size) {
      if (const auto size = size_of(step.size, values)) value = PyLong_FromLongLong(*size);
    } else {
      value = compute_step(step, values);
    }
    if (!value) return PyErr_Clear(), false;
    PyRef held = PyRef::steal(value);
    if (step.type && !Py_IS_TYPE(value, step.type)) return false;
    values.push_back(std::move(held));
  }
  return true;
}

const NumberFact* Numbers::broken(const std::vector<PyRef>& values) const {
  for (const NumberFact& fact : facts)
    if (!same_leaf(values[fact.step].get(), fact.value.get())) return &fact;
  return nullptr;
}

std::string Numbers::text(int at, const std::function<std::string(int)>& source) const {
  const NumberStep& step = steps[at];
  auto arg = [&](size_t i) {
    const NumberStep& inner = steps[step.args[i]];
    std::string s = text(step.args[i], source);
    return inner.op == NumberOp::binary || inner.op == NumberOp::compare ? "(" + s + ")" : s;
  };
  switch (step.op) {
    case NumberOp::source: return source(step.kind);
    case NumberOp::size: return step.size.str();
    case NumberOp::data: return "an element of output " + std::to_string(step.kind);
    case NumberOp::data_size: return "a size of output " + std::to_string(step.kind);
    case NumberOp::constant: return short_repr(step.object.get());
    case NumberOp::binary: return arg(0) + " " + sign(step.kind) + " " + arg(1);
    case NumberOp::negative: return "-" + arg(0);
    case NumberOp::positive: return "+" + arg(0);
    case NumberOp::invert: return "~" + arg(0);
    case NumberOp::compare: return arg(0) + " " + kCompare[step.kind] + " " + arg(1);
    case NumberOp::call: break;
  }
  std::string s = PyType_Check(step.object.get())
                      ? reinterpret_cast<PyTypeObject*>(step.object.get())->tp_name
                  : PyCFunction_Check(step.object.get())
                      ? reinterpret_cast<PyCFunctionObject*>(step.object.get())->m_ml->ml_name
                      : Py_TYPE(step.object.get())->tp_name;
  s += "(";
  for (size_t i = 0; i < step.args.size(); ++i) s += (i ? ", " : "") + text(step.args[i], source);
  return s + ")";
}

namespace {

/// A method of the class that random.Random derives from: what a subclass makes of it is no concern here.
PyObject* generators_method(const char* name) {
  PyRef module = PyRef::steal(import_module("_random"));
  PyRef type = PyRef::steal(module ? PyObject_GetAttrString(module.get(), "Random") : nullptr);
  return type ? PyObject_GetAttrString(type.get(), name) : nullptr;
}

/// What gives the state of one of numpy's generators and takes it back. RandomState has more of it than its
/// source of bits has; Generator has none of its own.
struct NumpyState {
  PyRef owner = {};
  bool is_attribute = false;

  explicit NumpyState(PyObject* generator) {
    is_attribute = !PyObject_HasAttrString(generator, "get_state");
    owner = is_attribute ? PyRef::steal(PyObject_GetAttrString(generator, "bit_generator"))
                         : PyRef::share(generator);
  }
  PyRef now() const {
    if (!owner) return {};
    return PyRef::steal(is_attribute ? PyObject_GetAttrString(owner.get(), "state")
                                     : PyObject_CallMethod(owner.get(), "get_state", "O", Py_False));
  }
  void set(PyObject* state) const {
    if (!owner) return;
    if (is_attribute)
      PyObject_SetAttrString(owner.get(), "state", state);
    else
      PyRef::steal(PyObject_CallMethod(owner.get(), "set_state", "O", state));
  }
};

PyRef generator_state(PyObject* generator) {
  static PyObject* const getstate = generators_method("getstate");
  return is_numpy_generator(generator) ? NumpyState(generator).now()
                                       : PyRef::steal(PyObject_CallOneArg(getstate, generator));
}

}  // namespace

Generators::Generators(const Numbers& numbers, const std::vector<PyRef>& values) {
  for (const NumberStep& step : numbers.steps) {
    if (!numbers.draws(step)) continue;
    PyObject* generator =
        PyCFunction_Check(step.object.get()) ? PyCFunction_GET_SELF(step.object.get()) : nullptr;
    if (!step.args.empty()) generator = values[step.args[0]].get();
    const bool known = std::any_of(states_.begin(), states_.end(),
                                   [&](const auto& each) { return each.first.get() == generator; });
    if (!generator || known) continue;
    if (PyRef state = generator_state(generator))
      states_.emplace_back(PyRef::share(generator), std::move(state));
    else
      PyErr_Clear();  // not one of Python's: nothing to put back
  }
}

void Generators::put_back() const {
  static PyObject* const setstate = generators_method("setstate");
  for (const auto& [generator, state] : states_) {
    PyObject* const args[] = {generator.get(), state.get()};
    if (is_numpy_generator(generator.get()))
      NumpyState(generator.get()).set(state.get());
    else
      PyRef::steal(PyObject_Vectorcall(setstate, args, 2, nullptr));
    PyErr_Clear();
  }
}

bool symbol_value(PyObject* number, int64_t* value) {
  if (PyFloat_CheckExact(number)) {
    *value = std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(number));
    return true;
  }
  if (!PyLong_CheckExact(number)) return false;
  int overflow = 0;
  *value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return !overflow && *value >= 0 && *value < kNumberLimit;
}

}  // namespace bolt::guard
