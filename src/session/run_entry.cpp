// session/run_entry.cpp
#include "session/run_entry.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <vector>

#include "autograd/gradients.h"
#include "observe/ends/frames.h"
#include "python/gil.h"
#include "record/size_of_data.h"
#include "run/attempt.h"

namespace bolt::session {
namespace {

/// The frames of a recipe as a run that stands at the instruction which ended the region.
interp::Frame* suspended_run(const observe::Recipe& recipe, const std::vector<PyRef>& values) {
  auto value = [&](int at) { return at < 0 ? nullptr : Py_NewRef(values[at].get()); };
  interp::Frame* innermost = nullptr;
  for (const observe::FrameRecipe& made : recipe.frames) {
    interp::FrameState state;
    state.function = value(made.function);
    state.generator = value(made.generator);
    state.awaitable = value(made.awaitable);
    state.handled = value(made.handled);
    state.namespace_dict = value(made.namespace_dict);
    state.instance = value(made.instance);
    state.kw_names = value(made.kw_names);
    for (int at : made.locals) state.locals.push_back(value(at));
    for (int at : made.stack) state.stack.push_back(value(at));
    state.pc = made.pc;
    state.return_to = innermost ? static_cast<interp::ReturnTo>(made.return_to) : interp::ReturnTo::entry;
    state.call_started = &made != &recipe.frames.back();
    interp::Frame* frame = interp::restore(state, innermost);
    if (!frame) {
      if (innermost) interp::discard_run(innermost);
      return nullptr;
    }
    innermost = frame;
  }
  return innermost;
}

std::vector<at::Tensor> inputs_of(const CallEntry& entry, const guard::Found& found) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(entry.tape_input_slot.size());
  for (int slot : entry.tape_input_slot)
    inputs.push_back(slot < 0 ? at::Tensor()
                              : at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(
                                    found.tensors[slot])));
  return inputs;
}

/// Of the symbols that are numbers.
std::vector<int64_t> values_of(const run::Runnable& region, const std::vector<PyRef>& numbers) {
  std::vector<int64_t> values;
  for (const SymbolRow& s : region.symbols())
    if (s.from == SymbolRow::From::number) guard::symbol_value(numbers[s.dim].get(), &values.emplace_back());
  return values;
}

/// Torch's generators of this call, by those that were recorded.
record::CallGenerators generators_of(const CallEntry& entry, const guard::Found& found) {
  record::CallGenerators generators;
  for (const auto& [recorded, place] : entry.generators) {
    PyObject* now = found.objects[place].get();
    if (!PyObject_TypeCheck(now, reinterpret_cast<PyTypeObject*>(THPGeneratorClass)))
      throw run::RunEagerly{Why::other_generator};
    generators.add(THPGenerator_Unwrap(recorded.get()), THPGenerator_Unwrap(now));
  }
  return generators;
}

/// A whole step that lacks memory has not begun. Eager would need more, and leave it half done. Code that
/// would catch it on the way lies in no such region (observe/calls/backward.cpp).
void raise_if_step_lacks_memory(const run::Runnable& region, const run::RunEagerly& why) {
  if (why.no_memory && autograd::has_gradients(region.tape())) std::rethrow_exception(why.no_memory);
}

std::vector<at::Tensor> run_region(run::Runnable& region, const std::vector<at::Tensor>& inputs,
                                   const std::vector<int64_t>& values, record::CallGenerators torchs,
                                   const guard::Generators& generators) {
  const record::Communications told;
  try {
    if (!region.releases_gil()) return region.run(inputs, values, std::move(torchs));
    const WithoutGil no_gil;
    return region.run(inputs, values, std::move(torchs));
  } catch (const run::RunEagerly& why) {
    run::check_nobody_was_told(told, why);
    generators.put_back();
    raise_if_step_lacks_memory(region, why);
    throw;
  }
}

/// New, null with an exception.
PyObject* number_object(const at::Scalar& number) {
  return number.isFloatingPoint() ? PyFloat_FromDouble(number.toDouble())
                                  : PyLong_FromLongLong(number.toLong());
}

/// What is known when the program has run: numbers, then the result or the frames.
Outcome finish(const CallEntry& entry, guard::Found& found, std::vector<at::Tensor> outputs) {
  std::vector<PyRef> tensors;
  std::vector<PyObject*> borrowed;
  for (at::Tensor& t : outputs) {
    tensors.push_back(PyRef::steal(THPVariable_Wrap(std::move(t))));
    borrowed.push_back(tensors.back().get());
  }
  auto taken = [&](const guard::NumberStep& step) {
    const at::Tensor& output = THPVariable_Unpack(borrowed[static_cast<size_t>(step.kind)]);
    return step.op == guard::NumberOp::data ? number_object(record::element_of(output, step.element))
                                            : PyLong_FromLongLong(output.size(step.element));
  };
  std::vector<PyRef>& numbers = found.numbers;
  if (!entry.guards->numbers().go_on(guard::Phase::late, numbers, taken)) return {};
  // Operators that the recipe calls (x[mask]) were called in the state that the region began in.
  auto leave = [&] {
    if (entry.changes_thread) entry.after.enter(entry.autocast_levels);
  };
  if (entry.recipe.frames.empty()) {
    PyObject* result = entry.recipe.run_result(found.objects, borrowed.data(), numbers);
    return leave(), Outcome{result};
  }
  std::vector<PyRef> made;
  if (!entry.recipe.run(found.objects, borrowed.data(), numbers, made)) return {};
  leave();
  return {nullptr, suspended_run(entry.recipe, made)};
}

/// The user's Python is called in the middle, for each tensor that autograd saves, and may raise there to
/// have done with it, as torch.utils.checkpoint does when it has made again what it needs. What the program
/// did to objects before has to be done by then, and what comes later not: the call is eager's.
void check_order_of_effects(const CallEntry& entry) {
  if (!entry.recipe.effects.empty() && entry.region->is_differentiated() && !run::saves_unseen())
    throw run::RunEagerly{Why::hooks_between_effects};
}

Outcome run(const CallEntry& entry, guard::Found& found) {
  check_order_of_effects(entry);
  const std::vector<at::Tensor> inputs = inputs_of(entry, found);
  record::CallGenerators torchs = generators_of(entry, found);
  const guard::Numbers& steps = entry.guards->numbers();
  const bool may_fail = entry.region->can_fail() || steps.early_may_raise;
  const guard::Generators generators =
      may_fail ? guard::Generators(steps, found.numbers) : guard::Generators();
  if (!steps.go_on(guard::Phase::early, found.numbers)) {
    if (!steps.early_may_raise || !PyErr_ExceptionMatches(PyExc_Exception)) return {};
    PyErr_Clear();
    generators.put_back();
    throw run::RunEagerly{Why::random_step_raised};
  }
  const std::vector<int64_t> values = values_of(*entry.region, found.numbers);
  return finish(entry, found, run_region(*entry.region, inputs, values, std::move(torchs), generators));
}

}  // namespace

void keep_frame_objects(const CallEntry& entry, interp::Frame& before, interp::Frame& after) {
  const interp::Frame* at = &before;
  while (!at->raw->frame_obj && at->return_to != interp::ReturnTo::entry && at->back) at = at->back;
  if (!at->raw->frame_obj) return;
  const std::vector<interp::Frame*> from = observe::frames_of(before), to = observe::frames_of(after);
  for (size_t i = 0; i < std::min(from.size(), to.size()) && entry.recipe.frames[i].stays; ++i)
    interp::take_frame_object(*to[i], *from[i]);
}

Outcome run_entry(const CallEntry& entry, guard::Found& found) {
  Outcome outcome;
  auto translated = [&] {
    HANDLE_TH_ERRORS
    outcome = run(entry, found);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  };
  if (translated()) return outcome;
  // A warning of torch's that the user made an error is raised when everything is done.
  Py_CLEAR(outcome.result);
  if (outcome.frames) interp::discard_run(outcome.frames);
  return {};
}

}  // namespace bolt::session
