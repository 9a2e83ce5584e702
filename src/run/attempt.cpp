// run/attempt.cpp
#include "run/attempt.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <unordered_set>

#include "python/gil.h"
#include "record/expectation.h"
#include "record/operator_facts.h"

namespace bolt::run {

Attempts::Attempts(const record::Tape& tape) {
  auto add = [](auto& list, const auto& each) {
    if (std::find(list.begin(), list.end(), each) == list.end()) list.push_back(each);
  };
  auto draws_on = [&](c10::Device device) { add(drawn_from_, device); };
  std::vector<at::Generator> own;  // nobody sees those
  for (const record::Entry& e : tape.entries) {
    if (!e.facts->draws) continue;
    for (const record::Arg& arg : e.args) {
      if (!arg.value.isGenerator()) continue;
      const at::Generator generator = arg.value.toGenerator();
      if (record::makes_generator(e.op)) add(own, generator);
      if (std::find(own.begin(), own.end(), generator) == own.end()) add(generators_, generator);
    }
    for_each_tensor(e.results, [&](record::TensorId id) { draws_on(tape.tensors[id].device); });
  }
}

record::GeneratorStates Attempts::states(const record::CallGenerators& generators) const {
  record::GeneratorStates out;
  for (const at::Generator& recorded : generators_) out.keep(generators.of(recorded));
  for (c10::Device device : drawn_from_) {
    try {
      out.keep_default(device);
    } catch (const c10::Error&) {  // while a CUDA graph is captured, which no error survives
    }
  }
  return out;
}

namespace {

/// The processor's allocator has no class of error of its own.
bool lacked_memory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string_view(error.what_without_backtrace()).find("DefaultCPUAllocator: can't allocate") !=
             std::string_view::npos;
}

}  // namespace

std::optional<RunEagerly> Attempts::reason() {
  // Python's errors come in two forms, and are objects: only who holds the GIL may look at them.
  auto of_python = [](PyObject* type) -> std::optional<RunEagerly> {
    if (!type || !PyErr_GivenExceptionMatches(type, PyExc_Exception)) return std::nullopt;
    return RunEagerly{{Why::python_operator_raised, reinterpret_cast<PyTypeObject*>(type)->tp_name}};
  };
  try {
    throw;
  } catch (const python_error& e) {
    const WithGil gil;
    return of_python(e.type);
  } catch (const pybind11::error_already_set& e) {
    const WithGil gil;
    return of_python(e.type().ptr());
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    RunEagerly why{{Why::operator_raised_in_call, text.substr(0, text.find('\n'))}};
    if (lacked_memory(e)) why.no_memory = std::current_exception();
    return why;
  } catch (const std::bad_alloc& e) {
    return RunEagerly{{Why::operator_raised_in_call, e.what()}, false, {}, std::current_exception()};
  } catch (const record::Unexpected& e) {
    return RunEagerly{{Why::check_fails, e.what()}, true};
  } catch (const std::exception& e) {
    return RunEagerly{{Why::operator_raised_in_call, e.what()}};
  } catch (...) {
    return std::nullopt;
  }
}

void check_nobody_was_told(const record::Communications& since, const RunEagerly& why) {
  if (!since.any()) return;
  const std::string text = why.why.text();
  TORCH_CHECK_INDEX(why.why.why != Why::out_of_range, "index out of range in self (", text, ")");
  TORCH_CHECK(false, "torchbolt: behind a collective in a compiled region: ", text);
}

VisibleWrites::VisibleWrites(const record::Tape& tape, const std::unordered_map<int, at::Tensor>& own) {
  if (std::ranges::all_of(tape.entries, [](const auto& e) { return record::written_arguments(e).empty(); }))
    return;
  auto storage_of = [&](record::TensorId id) { return id < 0 ? -1 : tape.tensors[id].storage; };
  std::unordered_set<int> outside, written;
  for (record::TensorId id : tape.inputs)
    if (!own.contains(tape.tensors[id].input)) outside.insert(storage_of(id));
  for (size_t i = 0; i < tape.entries.size(); ++i) {
    const record::Entry& e = tape.entries[i];
    Entry visible{i, {}, e.facts->turns};
    for (int argument : record::written_arguments(e)) {
      const auto& ids = e.args[argument].tensors;
      const bool shows =
          std::any_of(ids.begin(), ids.end(), [&](auto id) { return outside.contains(storage_of(id)); });
      if (!shows) continue;
      visible.arguments.push_back(argument);
      for (record::TensorId id : ids) written.insert(storage_of(id));
    }
    if (!visible.arguments.empty()) entries.push_back(std::move(visible));
  }
  for (size_t i = 0; i < tape.inputs.size(); ++i)
    if (written.contains(storage_of(tape.inputs[i]))) inputs.push_back(i);
}

std::vector<bool> VisibleWrites::are_read(const record::Tape& tape,
                                          const std::vector<record::TensorId>& wanted) const {
  std::unordered_set<int> needed;
  auto storage_of = [&](record::TensorId id) { return tape.tensors[id].storage; };
  auto need = [&](const auto& ids) {
    for (record::TensorId id : ids)
      if (id >= 0) needed.insert(storage_of(id));
  };
  auto any_needed = [&](const record::Arg& arg) {
    return std::ranges::any_of(
        arg.tensors, [&](record::TensorId id) { return id >= 0 && needed.contains(storage_of(id)); });
  };
  need(wanted);
  for (size_t i = tape.entries.size(); i-- > 0;) {
    const record::Entry& e = tape.entries[i];
    const std::vector<int> written = record::written_arguments(e);
    const bool gives = std::ranges::any_of(e.results, any_needed) ||
                       std::ranges::any_of(written, [&](int a) { return any_needed(e.args[a]); });
    if (!gives) continue;
    for (size_t a = 0; a < e.args.size(); ++a) {
      const bool counts_only =
          record::counts_no_write(e) && std::ranges::find(written, static_cast<int>(a)) != written.end();
      if (!counts_only) need(e.args[a].tensors);
    }
  }
  std::vector<bool> out;
  for (size_t input : inputs) out.push_back(needed.contains(storage_of(tape.inputs[input])));
  return out;
}

struct Undo::Contents {
  at::Tensor tensor, copy;  ///< no copy: only its geometry
  std::vector<int64_t> sizes, strides;
  int64_t offset;
};

struct Histories::History {
  at::Tensor tensor;
  int64_t version;
  decltype(torch::autograd::AutogradMeta::grad_fn_) grad_fn;
  uint32_t output_nr = 0, view_version = 0;
  bool requires_grad = false;
};

Histories::Histories() = default;
Histories::~Histories() = default;
void Histories::forget() { kept_.clear(); }

Undo::Undo(const VisibleWrites& writes, const std::vector<at::Tensor>& inputs, size_t certain_from)
    : writes_(writes), inputs_(inputs), certain_from_(certain_from) {}

Undo::~Undo() = default;

void Undo::before(size_t index, const torch::jit::Stack& arguments) {
  if (next_ == writes_.entries.size() || writes_.entries[next_].index != index) return;
  if (index >= certain_from_) {
    is_final_ = true;
    contents_.clear();
    histories_.forget();
    next_ = writes_.entries.size();
    return;
  }
  if (next_ == 0)
    for (size_t input : writes_.inputs) histories_.keep(inputs_[input]);
  const VisibleWrites::Entry& entry = writes_.entries[next_++];
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto keep = [&](const at::Tensor& t) {
    if (t.defined())
      contents_.push_back({t, entry.geometry ? at::Tensor() : t.clone(), t.sizes().vec(), t.strides().vec(),
                           t.storage_offset()});
  };
  for (int argument : entry.arguments) {
    const c10::IValue& given = arguments[argument];
    if (given.isTensor()) keep(given.toTensor());
    if (given.isTensorList())
      for (const at::Tensor& t : given.toTensorVector()) keep(t);
  }
}

void Histories::keep(const at::Tensor& t) {
  if (!t.defined()) return;
  if (t.is_view()) keep(at::Tensor(t._base()));
  History h{t, t.is_inference() ? -1 : t._version(), nullptr};
  if (const auto* meta = torch::autograd::impl::get_autograd_meta(t)) {
    h.grad_fn = meta->grad_fn_;
    h.output_nr = meta->output_nr_;
    h.requires_grad = meta->requires_grad_;
  }
  const auto* view = torch::autograd::impl::get_view_autograd_meta(t);
  if (view && view->has_bw_view()) h.view_version = view->get_attr_version();
  kept_.push_back(std::move(h));
}

bool Undo::take_back() {
  if (is_final_) return false;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (auto c = contents_.rbegin(); c != contents_.rend(); ++c) {
      if (c->copy.defined())
        c->tensor.copy_(c->copy);
      else
        c->tensor.unsafeGetTensorImpl()->set_sizes_and_strides(c->sizes, c->strides, c->offset);
    }
  }
  histories_.put_back();
  return true;
}

void Histories::put_back() const {
  for (const History& h : kept_) {
    if (h.version >= 0) {
      c10::VariableVersion counter = h.tensor.unsafeGetTensorImpl()->version_counter();  // shared
      counter.set_version(h.version);
    }
    if (auto* meta = torch::autograd::impl::get_autograd_meta(h.tensor)) {
      meta->grad_fn_ = h.grad_fn;
      meta->output_nr_ = h.output_nr;
      meta->requires_grad_ = h.requires_grad;
    }
    auto* view = torch::autograd::impl::get_view_autograd_meta(h.tensor);
    if (view && view->has_bw_view()) view->set_attr_version(h.view_version);
  }
}

bool saves_unseen() { return !c10::GradMode::is_enabled() || !at::SavedTensorDefaultHooks::get_hooks(); }

}  // namespace bolt::run
