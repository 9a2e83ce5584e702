// record/recorder.cpp
#include "record/recorder.h"

#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/index.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/unbind.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "guard/transforms.h"
#include "record/expectation.h"
#include "record/generators.h"
#include "record/operator_facts.h"
#include "record/size_of_data.h"
#include "record/symint.h"
#include "support/symbols.h"

namespace bolt::record {
namespace {

thread_local Recorder* active = nullptr;

/// Does a result that the schema says is an argument no longer match it?
bool has_new_geometry(const Entry& e) {
  const auto& handed_back = facts_of(e.op).handed_back;
  return std::any_of(handed_back.begin(), handed_back.end(), [&](const auto& same) {
    return e.args[static_cast<size_t>(same.second)].tensors !=
           e.results[static_cast<size_t>(same.first)].tensors;
  });
}

/// torch.cat(list, out=o): the operator that gives what this one writes to its out= arguments, if there is
/// one.
const c10::OperatorHandle* without_out(const c10::OperatorHandle& op) {
  // Operators run without the GIL.
  thread_local std::unordered_map<c10::OperatorName, std::optional<c10::OperatorHandle>> known;
  const auto [at, fresh] = known.try_emplace(op.operator_name());
  if (!fresh) return at->second ? &*at->second : nullptr;
  std::vector<c10::Argument> wanted;
  for (const c10::Argument& a : op.schema().arguments())
    if (!a.is_out()) wanted.push_back(a);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name != op.operator_name().name || name == op.operator_name()) continue;
    auto other = c10::Dispatcher::singleton().findSchema(name);
    if (!other || other->schema().is_mutable() ||
        other->schema().returns().size() != op.schema().returns().size())
      continue;
    if (std::equal(wanted.begin(), wanted.end(), other->schema().arguments().begin(),
                   other->schema().arguments().end(), [](const c10::Argument& a, const c10::Argument& b) {
                     return a.name() == b.name() && *a.type() == *b.type();
                   }))
      at->second = *other;
  }
  return at->second ? &*at->second : nullptr;
}

/// x[mask]: as many elements as the mask has ones.
bool has_mask(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  for (const c10::IValue& index : indices.toListRef())
    if (index.isTensor() && index.toTensor().defined() &&
        (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte))
      return true;
  return false;
}

/// Is it a tensor with elements that share memory? Of one place for all eager says no to writes by itself.
bool overlaps_itself(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor& t = value.toTensor();
  return t.layout() == c10::kStrided && !t.is_non_overlapping_and_dense() &&
         elements_share_memory(t.sizes(), t.strides());
}

c10::DispatchKeySet below_our_key(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

bool autocast_takes(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  for (auto key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
    if (keys.has(key) && op.hasKernelForDispatchKey(key)) return true;
  return false;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (active) return active->run(op, keys, stack);
  // Autograd's engine runs the backward pass of an accelerator on a thread of its own, with the keys of the
  // thread that asked for it.
  c10::impl::ExcludeDispatchKeyGuard off(kKey);
  op.redispatchBoxed(below_our_key(keys), stack);
}

// x + s with a torch.SymInt s: torch's argument parser makes a tensor of it that holds rubbish, and says so.
// Gives the operator the number and the tape the expression.
std::vector<Sym> take_wrapped_symbol(c10::IValue& argument) {
  if (!argument.isTensor()) return {};
  const at::Tensor& t = argument.toTensor();
  if (!t.defined() || !t.unsafeGetTensorImpl()->is_wrapped_number()) return {};
  pybind11::gil_scoped_acquire gil;
  pybind11::object object = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
  PyObject* found = PyObject_GetAttrString(object.ptr(), "_wrapped_number");
  if (!found) return PyErr_Clear(), std::vector<Sym>{};
  auto symbol = pybind11::reinterpret_steal<pybind11::object>(found);
  Sym taken;
  at::Tensor number;
  if (torch::is_symfloat(symbol)) {
    const Real real = take_apart(symbol.cast<c10::SymFloat>());
    taken = real.symbol, number = c10::scalar_to_tensor(real.value);
  } else {
    const Size size = take_apart(symbol.cast<c10::SymInt>());
    taken = size.size, number = c10::scalar_to_tensor(size.value);
  }
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  argument = number;
  return {taken};
}

// Strided memory that our program can describe as pointer, sizes and strides.
bool is_plain(const at::Tensor& t) {
  auto* impl = t.unsafeGetTensorImpl();
  if (impl->layout() != c10::kStrided || t.is_nested() || impl->is_python_dispatch() || t.is_quantized() ||
      !t.has_storage())
    return false;
  auto keys = impl->key_set();
  return !keys.has_any(
      c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                           c10::DispatchKey::ZeroTensor, c10::DispatchKey::FuncTorchBatched,
                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize}));
}

}  // namespace

bool elements_share_memory(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

const std::vector<int>& written_arguments(const Entry& entry) {
  const OperatorFacts& facts = facts_of(entry.op);
  if (facts.written_in_training.empty()) return facts.written;
  const c10::IValue& training = entry.args[kTrainingArgument].value;
  return training.isBool() && training.toBool() ? facts.written_in_training : facts.written;
}

bool writes_gradients(const Tape& tape, const Entry& entry) {
  auto requires_grad = [&](TensorId id) {
    return id >= 0 && tape.tensors[static_cast<size_t>(id)].requires_grad;
  };
  auto any = [&](const Arg& arg) {
    return std::any_of(arg.tensors.begin(), arg.tensors.end(), requires_grad);
  };
  return entry.grad_mode && std::any_of(entry.args.begin(), entry.args.end(), any) &&
         !written_arguments(entry).empty();
}

Recorder::Recorder() : outer_levels_(guard::transform_levels()) {}

Recorder* Recorder::current() { return active; }

void Recorder::drop_entries() {
  for (size_t i = tape_.tensors.size(); i-- > 0;) {
    TensorInfo& info = tape_.tensors[i];
    if (info.input >= 0) continue;
    if (info.producer < static_cast<int>(mark_)) break;
    info.producer = -1;
  }
  tape_.entries.erase(tape_.entries.begin() + static_cast<std::ptrdiff_t>(mark_), tape_.entries.end());
}

void Recorder::take_back() {
  drop_entries();
  escaped_.clear();
  lent_->facts.clear();
}

void Recorder::stop(bool drop) {
  stopped_ = true;
  if (!drop) return;
  if (raised_now_) raised_.clear();
  for (const Resized& r : resized_)
    if (r.entry >= mark_) reverted_[r.impl] = r.before;
  drop_entries();  // why it escaped is asked for afterwards
}

// Not c10's guard: code that runs inside may enter modes, whose keys must stay.
Recorder::Scope::Scope(Recorder& recorder)
    : previous_(active), included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  active = &recorder;
  // What autocast has cast before would come from nowhere. It is cast again.
  if (at::autocast::is_autocast_cache_enabled()) at::autocast::clear_cache();
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}
Recorder::Scope::~Scope() {
  active = previous_;
  c10::impl::tls_set_dispatch_key_included(kKey, included_);
}

/// Made by an entry that was taken back: nobody makes it any more.
static bool is_gone(const TensorInfo& info) { return info.input < 0 && info.producer < 0; }

bool Recorder::matches(const TensorInfo& info, const at::Tensor& t) const {
  if (info.dtype != t.scalar_type()) return false;
  if (!info.plain) return true;
  if (t.sizes() != info.sizes) return false;
  if (t.strides() != info.strides || t.storage_offset() != info.offset) return false;
  return is_memory(info.storage, *t.storage().unsafeGetStorageImpl());
}

std::optional<TensorId> Recorder::find(const at::Tensor& t) const {
  if (const auto at = reverted_.find(t.unsafeGetTensorImpl()); at != reverted_.end()) return at->second;
  const TensorId* id = ids_.find(t.unsafeGetTensorImpl());
  if (!id || *id < 0 || !matches(tape_.tensors[static_cast<size_t>(*id)], t)) return std::nullopt;
  return *id;
}

/// Is the tensor that was seen first still what it was then, or was until it was freed? One that has been
/// turned (x.t_()) is another.
bool Recorder::is_itself(TensorId id) const {
  const Owner& owner = owners_[static_cast<size_t>(id)];
  if (!owner.impl) return owner.was_itself;
  const TensorId* now = ids_.find(owner.impl);
  return now && *now == id;
}

template <class Impl>
template <class Gone>
void Recorder::AllHeld<Impl>::let_go(Gone gone) {
  constexpr int kAtOnce = 4;  // as many as an operator makes, and then some
  for (int i = 0; i < kAtOnce && !all.empty(); ++i) {
    if (next >= all.size()) next = 0;
    Held<Impl>& held = all[next];
    if (!held.keeps.expired()) {
      ++next;
      continue;
    }
    gone(held.impl, held.id);
    held = std::move(all.back());
    all.pop_back();
  }
}

/// Strikes out what eager has freed meanwhile.
void Recorder::let_go() {
  held_.let_go([&](const c10::TensorImpl* impl, TensorId id) {
    TensorId* now = ids_.find(impl);
    const bool itself = now && *now == id;
    if (itself) *now = -1;
    Owner& owner = owners_[static_cast<size_t>(id)];
    if (owner.impl == impl) owner = {nullptr, itself};
    std::erase_if(resized_, [&](const Resized& r) { return r.impl == impl; });
  });
  held_storages_.let_go([&](const c10::StorageImpl* impl, int id) {
    const c10::StorageImpl*& known = known_storages_[static_cast<size_t>(id)].impl;
    if (known == impl) known = nullptr;
  });
}

int Recorder::storage_id(const at::Tensor& t) {
  auto* impl = t.storage().unsafeGetStorageImpl();
  if (const int* known = storages_.find(impl); known && is_memory(*known, *impl)) return *known;
  const int id = static_cast<int>(known_storages_.size());
  known_storages_.push_back({impl});
  held_storages_.add(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(impl), id);
  return storages_[impl] = id;
}

static Dims dims(at::IntArrayRef values) { return {values.begin(), values.end()}; }

TensorId Recorder::add_tensor(const at::Tensor& t, int entry) {
  TensorInfo info;
  info.dtype = t.scalar_type();
  info.device = t.device();
  info.plain = is_plain(t);
  if (!t.is_nested()) info.sizes = dims(t.sizes());
  info.requires_grad = t.requires_grad();
  info.producer = entry;
  if (info.plain) {
    info.strides = dims(t.strides());
    info.offset = t.storage_offset();
    info.storage = storage_id(t);
  } else if (obstacle_.empty()) {
    obstacle_ = std::string("a tensor that is not plain strided memory (") + t.toString() + ")";
  }
  TensorId id = static_cast<TensorId>(tape_.tensors.size());
  auto* impl = t.unsafeGetTensorImpl();
  ids_[impl] = id;
  owners_.push_back({impl, true});
  if (entry < 0) {
    info.input = static_cast<int>(inputs_.size());
    inputs_.push_back(t);
    tape_.inputs.push_back(id);
  } else {
    held_.add(t.getIntrusivePtr(), id);
  }
  tape_.tensors.push_back(std::move(info));
  return id;
}

TensorId Recorder::input_id(const at::Tensor& t) {
  if (auto id = find(t)) return *id;
  return add_tensor(t, -1);
}

TensorId Recorder::tensor_id(const at::Tensor& t, Use use, int entry) {
  if (!t.defined()) return -1;
  const auto id = find(t);
  if (use == Use::itself)
    return id && owners_[static_cast<size_t>(*id)].impl == t.unsafeGetTensorImpl() ? *id : add_tensor(t, -1);
  if (id) return *id;
  if (use == Use::value && is_plain(t)) {
    // What autograd saved comes back as another object on the same memory. A detached tensor is none of what
    // it was detached from, and one that has been turned since (x.t_()) is another than it was.
    const bool known = storages_.find(t.storage().unsafeGetStorageImpl());
    auto requires_grad = [&](size_t i) { return owners_[i].impl && owners_[i].impl->requires_grad(); };
    for (size_t i = tape_.tensors.size(); known && i-- > 0;)
      if (tape_.tensors[i].plain && !is_gone(tape_.tensors[i]) && matches(tape_.tensors[i], t) &&
          requires_grad(i) == t.requires_grad() && is_itself(static_cast<TensorId>(i))) {
        ids_[t.unsafeGetTensorImpl()] = static_cast<TensorId>(i);
        held_.add(t.getIntrusivePtr(), static_cast<TensorId>(i));
        merged_.emplace_back(t.unsafeGetTensorImpl(), static_cast<TensorId>(i));
        return static_cast<TensorId>(i);
      }
  }
  return add_tensor(t, use == Use::result ? entry : -1);
}

Arg Recorder::take(const c10::IValue& v, Use use, int entry) {
  Arg arg;
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    // A Python number given where a tensor is expected: a constant of the program, and its weak type matters.
    if (t.defined() && use != Use::result && t.unsafeGetTensorImpl()->is_wrapped_number() && t.dim() == 0) {
      at::NoGradGuard no_grad;
      c10::impl::ExcludeDispatchKeyGuard off(kKey);
      arg.kind = Arg::Kind::WrappedNumber;
      arg.value = t.item();
      return arg;
    }
    arg.kind = Arg::Kind::Tensor;
    arg.tensors.push_back(tensor_id(t, use, entry));
  } else if (v.isTensorList()) {
    arg.kind = Arg::Kind::TensorList;
    for (const at::Tensor& t : v.toTensorVector()) arg.tensors.push_back(tensor_id(t, use, entry));
  } else if (v.isOptionalTensorList()) {
    arg.kind = Arg::Kind::OptionalTensorList;
    for (const std::optional<at::Tensor> t : v.toOptionalTensorList())
      arg.tensors.push_back(t ? tensor_id(*t, use, entry) : -1);
  } else {
    arg.value = v;
  }
  return arg;
}

int Recorder::line_id() {
  if (tape_.locs.empty() || tape_.locs.back().line != line_ || tape_.locs.back().function != function_ ||
      tape_.locs.back().file != file_)
    tape_.locs.push_back({file_, function_, line_});
  return static_cast<int>(tape_.locs.size()) - 1;
}

void Recorder::escape(const c10::OperatorHandle& op, const char* how) {
  escaped_ = op.operator_name().name + how;
  escaped_raises_ = facts_of(op).raises_by_data;
  if (on_escape) on_escape();
}

const std::string& Recorder::escaped() const {
  static const std::string item = "aten::item";
  return escaped_.empty() && !lent_->facts.empty() ? item : escaped_;
}

namespace {

/// Keeps the generators that an operator draws from.
void keep_drawn(GeneratorStates& states, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!facts_of(op).draws) return;
  states.keep_default(at::kCPU);
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    const c10::IValue& argument = stack[i];
    if (argument.isGenerator())
      states.keep(argument.toGenerator());
    else if (argument.isTensor() && argument.toTensor().defined() && argument.toTensor().is_cuda())
      states.keep_default(argument.toTensor().device());
    else if (argument.isDevice() && argument.toDevice().is_cuda())
      states.keep_default(argument.toDevice());
  }
}

}  // namespace

void Recorder::call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard off(kKey);
  struct Running {
    explicit Running(bool& flag) : flag(flag), before(flag) { flag = true; }
    ~Running() { flag = before; }
    bool& flag;
    bool before;
  } running(running_);
  keep_drawn(drawn_from_, op, *stack);
  op.callBoxed(stack);
}

namespace {

/// What decides which operators one is made of: how many tensors of which rank and type, texts (einsum's
/// equation), flags.
void add_form(const c10::IValue& argument, std::string& form) {
  if (argument.isTensor()) {
    const at::Tensor& t = argument.toTensor();
    form += t.defined() ? c10::toString(t.scalar_type()) + std::to_string(t.dim()) : "-";
  } else if (argument.isString()) {
    form += argument.toStringRef();
  } else if (argument.isBool()) {
    form += argument.toBool() ? "t" : "f";
  } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
    for (const c10::IValue& each : argument.toListRef()) add_form(each, form);
  }
  form += ",";
}

}  // namespace

/// Is it, in autocast, made of operators that autocast takes? Tried out once per operator and form: what it
/// computes is thrown away.
bool Recorder::casts_inside(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            const torch::jit::Stack& stack) {
  // Not told by the keys: those that an operator falls through are not among them.
  const int devices =
      at::autocast::is_autocast_enabled(at::kCPU) + 2 * at::autocast::is_autocast_enabled(at::kCUDA);
  if (!devices || op.schema().is_mutable() || !op.operator_name().name.starts_with("aten::")) return false;
  torch::jit::Stack arguments(stack.end() - static_cast<long>(op.schema().arguments().size()), stack.end());
  // By device, too: autocast takes other operators on each.
  std::string form =
      std::to_string(devices) + op.operator_name().name + "." + op.operator_name().overload_name;
  for (const c10::IValue& argument : arguments) add_form(argument, form);
  thread_local std::unordered_map<std::string, bool> known;  // operators run without the GIL
  if (const auto at = known.find(form); at != known.end()) return at->second;
  bool casts = false;
  const at::NoGradGuard no_grad;
  Undrawn drawn;
  keep_drawn(drawn, op, arguments);
  struct Trial {
    Trial(bool*& place, bool* flag) : place(place), before(std::exchange(place, flag)) {}
    ~Trial() { place = before; }
    bool*& place;
    bool* before;
  } trial(cast_, &casts);
  try {
    op.redispatchBoxed(below_our_key(keys), &arguments);
    known[form] = casts;
  } catch (...) {  // and will again, where it is not tried out
    casts = false;
  }
  at::autocast::clear_cache();  // nobody would see where the casts come from
  return casts;
}

/// Autograd's operators run as they are, and so do those on other kinds of tensors than a program computes
/// on.
bool Recorder::can_find_sizes(const at::Tensor& t) const {
  if (!goes_on_with_found_sizes || transformed_ || !obstacle_.empty()) return false;
  const bool grad_mode = grad_mode_.value_or(c10::GradMode::is_enabled());
  return t.is_cpu() && is_plain(t) && t.dim() > 0 && !(grad_mode && t.requires_grad());
}

bool Recorder::can_find_sizes(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
  auto fits = [&](const c10::IValue& value) {
    return !value.isTensor() || !value.toTensor().defined() || can_find_sizes(value.toTensor());
  };
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    if (!fits(stack[i])) return false;
    if (stack[i].isList())
      for (const c10::IValue& each : stack[i].toListRef())
        if (!fits(each)) return false;
  }
  return true;
}

/// x[mask], masked_select(x, mask), where(mask) and argwhere(mask) are made of the places where the mask is
/// not 0, as in ATen: those are recorded. True: all of it has been; false: `op` itself comes yet.
bool Recorder::select_by_places(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  const size_t begin = stack->size() - op.schema().arguments().size();
  auto places = [](const at::Tensor& mask) { return at::nonzero(mask).unbind(1); };
  auto give = [&](c10::IValue result) {
    stack->resize(begin);
    stack->push_back(std::move(result));
    return true;
  };
  const at::Tensor first = (*stack)[begin].toTensor();
  if (name == "aten::where" || name == "aten::nonzero_numpy") return give(places(first));
  if (name == "aten::argwhere") return give(at::nonzero(first));
  if (name == "aten::masked_select") {
    const at::Tensor mask = (*stack)[begin + 1].toTensor();
    if (mask.scalar_type() != at::kBool) return false;
    const std::vector<at::Tensor> same = at::broadcast_tensors({mask, first});
    c10::List<std::optional<at::Tensor>> indices;
    for (const at::Tensor& each : places(same[0])) indices.push_back(each);
    return give(at::index(same[1], indices));
  }
  if (name != "aten::index") return false;
  c10::List<std::optional<at::Tensor>> indices;
  int64_t dim = 0;
  for (const c10::IValue& index : (*stack)[begin + 1].toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) {
      indices.push_back(std::nullopt);
      ++dim;
      continue;
    }
    const at::Tensor& t = index.toTensor();
    if (t.scalar_type() == at::kByte) return false;
    if (t.scalar_type() != at::kBool) {
      indices.push_back(t);
      ++dim;
      continue;
    }
    for (int64_t d = 0; d < t.dim(); ++d, ++dim)
      if (dim >= first.dim() || t.size(d) != first.size(dim)) return false;  // raises
    for (const at::Tensor& each : places(t)) indices.push_back(each);
  }
  (*stack)[begin + 1] = indices;
  return false;
}

/// Which sizes of the results are data, or may rest on such sizes.
void Recorder::note_found_sizes(const Entry& entry) {
  const OperatorFacts& facts = facts_of(entry.op);
  auto is_data_sized = [&](TensorId id) {
    return id >= 0 && tape_.tensors[static_cast<size_t>(id)].data_sized;
  };
  bool rests_on_data = facts.finds_sizes;
  for (const Arg& arg : entry.args) {
    if (rests_on_data || (facts.keeps_sizes && &arg != &entry.args[0])) break;
    rests_on_data = std::any_of(arg.tensors.begin(), arg.tensors.end(), is_data_sized);
    for (Sym sym : arg.syms) {
      Syms inside;
      collect_symbols(sym, &inside);
      for (Sym s : inside) rests_on_data |= is_data_sized(tensor_of_size(*s.node()));
    }
  }
  if (!rests_on_data) return;
  const int index = static_cast<int>(tape_.entries.size());
  bool first = true;
  for (const Arg& result : entry.results)
    for (TensorId id : result.tensors) {
      if (id < 0) continue;
      TensorInfo& info = tape_.tensors[static_cast<size_t>(id)];
      if (info.producer != index || info.sizes.empty()) continue;
      info.data_sized = true;
      // 0 and 1 are sizes of their own: such a run says nothing of larger ones.
      if (facts.finds_sizes && info.sizes[0] < 2 && (first || info.sizes[0] == 1)) escape(entry.op, "");
      if (facts.finds_sizes && std::exchange(first, false)) info.data_dims = 1;
    }
  found_sizes_ = follows_sizes = true;
}

std::optional<Sym> Recorder::size_from(const at::Tensor& numbers, int64_t element) {
  const std::optional<TensorId> id = find(numbers);
  if (!id || stopped_ || paused_ || !escaped().empty()) return std::nullopt;
  for (const SizeOfData& known : sizes_of_data_)
    if (known.numbers == *id && known.element == element &&
        tape_.tensors[static_cast<size_t>(known.rows)].producer >= 0)
      return number_of_rows(tape_symbol(known.rows, 0));
  const at::Tensor all = numbers.dim() ? numbers : numbers.reshape({1});
  if (!can_find_sizes(all) || !c10::isIntegralType(all.scalar_type(), false)) return std::nullopt;
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    if (!is_size_of_data(element_of(all, element).toLong())) return std::nullopt;
  }
  const std::optional<TensorId> rows = find(size_of_data(all, element));
  if (!rows) return std::nullopt;
  sizes_of_data_.push_back({*id, element, *rows});
  return number_of_rows(tape_symbol(*rows, 0));
}

bool Recorder::expect(const at::Tensor& condition, bool value, const std::string& where) {
  if (stopped_ || paused_ || !escaped().empty() || condition.numel() != 1) return false;
  if (!goes_on_with_found_sizes || transformed_ || !obstacle_.empty()) return false;
  if (!condition.is_cpu() || !is_plain(condition)) return false;
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    if (condition.item().toBool() != value) return false;
  }
  const at::Tensor plain = condition.requires_grad() ? condition.detach() : condition;
  record::expect(plain, value, where);
  return true;
}

/// True: `op` is item(), and what it gives stands for the tensor.
bool Recorder::lend_item(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!lends_items || op.operator_name().name != "aten::item") return false;
  const at::Tensor t = stack->back().toTensor();
  const bool is_float = c10::isFloatingType(t.scalar_type());
  if (t.numel() != 1 || t.requires_grad() || !(is_float || c10::isIntegralType(t.scalar_type(), false)))
    return false;
  const Sym symbol = data_number(data.size());
  data[symbol] = input_id(t);
  follows_sizes = true;
  call(op, stack);
  const at::Scalar value = stack->back().toScalar();
  stack->back() = is_float ? c10::IValue(make_symfloat(symbol, value.toDouble(), lent_))
                           : c10::IValue(make_symint(symbol, value.toLong(), lent_));
  return true;
}

void Recorder::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (cast_) {
    *cast_ |= autocast_takes(op, keys);
    return op.redispatchBoxed(below_our_key(keys), stack);
  }
  // A transform of torch.func takes operators on its own kind of tensors apart into operators on plain ones,
  // level by level. What arrives below the levels that were entered since the recording began is recorded.
  constexpr c10::DispatchKeySet kTransforms(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  const bool transformed = keys.has_any(kTransforms) && guard::transform_levels() > outer_levels_;
  transformed_ |= transformed;
  const bool unseen = stopped_ || paused_;
  const bool casts = !transformed && !unseen && !autocast_takes(op, keys) && casts_inside(op, keys, *stack);
  const bool falls_apart = casts && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (transformed || autocast_takes(op, keys) || falls_apart) {
    // Autocast casts parameters with gradients even where nobody wants any.
    struct Around {
      explicit Around(std::optional<bool>& place) : place(place), before(place) {}
      ~Around() { place = before; }
      std::optional<bool>& place;
      std::optional<bool> before;
    } around(grad_mode_);
    if (!transformed && !grad_mode_) grad_mode_ = c10::GradMode::is_enabled();
    op.redispatchBoxed(below_our_key(keys), stack);
    return;
  }
  met_operator_ |= stopped_;
  const OperatorFacts& facts = facts_of(op);
  const bool masks = facts.selects && has_mask((*stack)[stack->size() - op.schema().arguments().size() + 1]);
  const bool finds_sizes =
      !unseen && escaped_.empty() && (facts.finds_sizes || masks) && can_find_sizes(op, *stack);
  if (finds_sizes && select_by_places(op, stack)) return;
  if (!unseen && escaped().empty() && lend_item(op, stack)) return;
  if (!unseen && escaped_.empty() && facts.ends_region && !finds_sizes) escape(op, "");
  std::vector<std::vector<Sym>> symbols;
  if (follows_sizes) {
    const size_t first = stack->size() - op.schema().arguments().size();
    for (size_t i = first; i < stack->size(); ++i) {
      symbols.push_back(take_symbols((*stack)[i]));
      const bool is_scalar = op.schema().arguments()[i - first].type()->kind() == c10::TypeKind::NumberType;
      for (Sym s : symbols.back())  // a size, or a place, must be known
        if (holds_data_number(s) && !(is_scalar && data.count(s))) lent_->add(s, Relation::eq, s);
      if (symbols.back().empty()) symbols.back() = take_wrapped_symbol((*stack)[i]);
    }
  }
  if (unseen) return call(op, stack);
  if (casts) escape(op, " that autocast reaches into");

  const auto& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  if (masks && has_mask((*stack)[begin + 1])) escape(op, " with a mask");
  placed_ |= facts.places && !stack->back().isNone();
  if (facts.counts_classes && (*stack)[begin + 1].isInt() && (*stack)[begin + 1].toInt() < 0)
    escape(op, " without a number of classes");
  const int index = static_cast<int>(tape_.entries.size());
  Entry entry{op, {}, {}};
  entry.grad_mode = grad_mode_.value_or(c10::GradMode::is_enabled());
  entry.inference_mode = c10::InferenceMode::is_enabled();
  entry.loc = line_id();
  entry.args.reserve(schema.arguments().size());
  for (size_t i = begin; i < stack->size(); ++i) {
    const bool itself = i == begin && facts.turns;
    entry.args.push_back(take((*stack)[i], itself ? Use::itself : Use::value, index));
    if (!follows_sizes) continue;
    auto from = symbols[i - begin].size() == 1 ? data.find(symbols[i - begin][0]) : data.end();
    if (from != data.end())
      entry.args.back().tensors = {from->second};
    else
      entry.args.back().syms = std::move(symbols[i - begin]);
  }
  for (int i : written_arguments(entry))  // unsqueeze_() only says it writes
    if (!facts.turns && overlaps_itself((*stack)[begin + static_cast<size_t>(i)]))
      escape(op, " that writes where elements share their memory");
  // torch.tensor([...]) fills its tensor through a pointer and announces it here: its contents are a constant
  // of the program. Its memory may have been seen made (aten::empty); that was another tensor, without them.
  if (facts.lifts && entry.args[0].kind == Arg::Kind::Tensor) {
    const at::Tensor& fresh = (*stack)[begin].toTensor();
    if (tape_.tensors[entry.args[0].tensors[0]].input < 0) {
      if (const int* made = storages_.find(fresh.storage().unsafeGetStorageImpl()))
        known_storages_[static_cast<size_t>(*made)].impl = nullptr;
      entry.args[0].tensors[0] = add_tensor(fresh, -1);
    }
    const TensorInfo& info = tape_.tensors[entry.args[0].tensors[0]];
    c10::impl::ExcludeDispatchKeyGuard off(kKey);
    constants_.try_emplace(info.input, inputs_[info.input].detach().clone());
  }
  const torch::jit::Stack given =
      fills_new_tensors(entry) ? torch::jit::Stack(stack->begin() + static_cast<long>(begin), stack->end())
                               : torch::jit::Stack();
  try {
    call(op, stack);
  } catch (...) {  // the entry never happened
    if (raised_.empty()) raised_ = op.operator_name().name, raised_now_ = true;
    throw;
  }
  if (stopped_) return;
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    entry.results.push_back(take((*stack)[i], Use::result, index));
  if (has_new_geometry(entry)) {
    if (facts.turns) {
      changed_inputs_ = true;
    } else {
      for (int i : written_arguments(entry))
        for (TensorId id : entry.args[static_cast<size_t>(i)].tensors)
          if (id >= 0)
            resized_.push_back({owners_[static_cast<size_t>(id)].impl, id, static_cast<size_t>(index)});
      if (given.empty() || !gives_new_tensors(entry, given)) escape(op, " that resizes its out= argument");
    }
  }
  changed_inputs_ |= writes_gradients(tape_, entry);
  note_writes(entry);
  if (found_sizes_ || finds_sizes) note_found_sizes(entry);
  tape_.entries.push_back(std::move(entry));
  let_go();
}

/// torch.cat(list, out=torch.empty(0)), of the run's own: are all out= arguments like that?
bool Recorder::fills_new_tensors(const Entry& entry) const {
  const auto& arguments = entry.op.schema().arguments();
  if (arguments.empty() || !arguments.back().is_out()) return false;  // they come last
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_out()) continue;
    if (entry.args[i].kind != Arg::Kind::Tensor || entry.args[i].tensors[0] < 0) return false;
    const TensorInfo& info = tape_.tensors[static_cast<size_t>(entry.args[i].tensors[0])];
    if (info.input >= 0 || std::find(info.sizes.begin(), info.sizes.end(), 0) == info.sizes.end())
      return false;
  }
  return true;
}

/// Nothing was in them, so what was written is as good as new tensors: the entry becomes that of the operator
/// that gives them. False: they would be others.
bool Recorder::gives_new_tensors(Entry& entry, const torch::jit::Stack& given) {
  const c10::OperatorHandle* op = without_out(entry.op);
  if (!op || op->hasTag(at::Tag::nondeterministic_seeded) ||
      !entry.op.operator_name().name.starts_with("aten::"))
    return false;
  std::vector<Arg> args;
  torch::jit::Stack stack;
  for (size_t i = 0; i < given.size(); ++i) {
    if (entry.op.schema().arguments()[i].is_out()) continue;
    args.push_back(entry.args[i]);
    stack.push_back(given[i]);
  }
  {
    // Nor has the one with out=.
    const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
    call(*op, &stack);
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!stack[i].isTensor() || entry.results[i].kind != Arg::Kind::Tensor) return false;
    const TensorInfo& written = tape_.tensors[static_cast<size_t>(entry.results[i].tensors[0])];
    const at::Tensor& fresh = stack[i].toTensor();
    if (!written.plain || !is_plain(fresh) || written.dtype != fresh.scalar_type() ||
        fresh.sizes() != written.sizes || fresh.strides() != written.strides)
      return false;
  }
  entry.op = *op;
  entry.args = std::move(args);
  return true;
}

void Recorder::note_writes(const Entry& entry) {
  for (int i : written_arguments(entry))
    for (TensorId id : entry.args[static_cast<size_t>(i)].tensors)
      if (id >= 0 && tape_.tensors[static_cast<size_t>(id)].plain)
        ++known_storages_[static_cast<size_t>(tape_.tensors[static_cast<size_t>(id)].storage)].writes;
}

void count_writes_apart(const at::Tensor& t) {
  if (!t.is_inference()) t.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
}

void Recorder::own_version(const at::Tensor& t) {
  count_writes_apart(t);
  if (find(t) && !tape_.entries.empty()) tape_.entries.back().own_version = true;
}

int64_t Recorder::writes(const at::Tensor& t) const {
  if (!is_plain(t)) return -1;
  const auto* impl = t.storage().unsafeGetStorageImpl();
  const int* storage = storages_.find(impl);
  return storage && is_memory(*storage, *impl) ? known_storages_[static_cast<size_t>(*storage)].writes : 0;
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace bolt::record
