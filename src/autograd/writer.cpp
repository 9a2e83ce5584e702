// autograd/writer.cpp
#include "autograd/writer.h"

#include <ATen/ops/scalar_tensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "autograd/attention_of_four.h"
#include "autograd/circular_pads.h"
#include "autograd/flow.h"
#include "autograd/formulas_without_data.h"
#include "autograd/product_formulas.h"
#include "autograd/results.h"
#include "autograd/sequence_losses.h"
#include "device/host/host.h"
#include "record/operator_facts.h"
#include "record/take.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Dims;
using record::Entry;
using record::OperatorFacts;
using record::Tape;
using record::TensorId;
using record::TensorInfo;
using Stack = torch::jit::Stack;

std::string full_name(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  return overload.empty() ? name : name + "." + overload;
}

/// Calls `each` with every tensor, also those in lists.
template <class Each>
void for_tensors(const Stack& stack, Each each) {
  for (const c10::IValue& v : stack) {
    if (v.isTensor()) {
      each(v.toTensor());
    } else if (v.isTensorList() || v.isOptionalTensorList()) {
      for (const c10::IValue& element : v.toListRef())
        if (element.isTensor()) each(element.toTensor());
    }
  }
}

/// `stack` with other tensors, and nothing of a device but meta.
template <class Map>
Stack mapped(const Stack& stack, Map map) {
  Stack made;
  for (const c10::IValue& v : stack) {
    if (v.isTensor()) {
      made.emplace_back(map(v.toTensor()));
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(map(t));
      made.emplace_back(std::move(list));
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor> t : v.toOptionalTensorList())
        list.push_back(t ? std::optional(map(*t)) : std::nullopt);
      made.emplace_back(std::move(list));
    } else {
      made.push_back(v.isDevice() ? c10::IValue(c10::Device(c10::kMeta)) : v);
    }
  }
  return made;
}

/// Of what an operator makes of these: the one it is told, or that of its tensors. Numbers lie anywhere.
c10::Device device_for(const Stack& arguments) {
  for (const c10::IValue& v : arguments)
    if (v.isDevice()) return v.toDevice();
  const Fake* found = nullptr;
  for_tensors(arguments, [&](const at::Tensor& t) {
    const Fake* fake = as_fake(t);
    if (fake && (!found || (found->dim() == 0 && fake->dim() > 0))) found = fake;
  });
  return found ? found->device() : c10::Device(device::kHost);
}

FakeLayout place_of(const TensorInfo& info) { return {info.sizes, info.strides, info.offset}; }
FakeLayout place_of(const at::Tensor& t) { return {t.sizes(), t.strides(), t.storage_offset()}; }

/// Does it give nothing but what it was given and writes to, as large as it was?
bool gives_back(const OperatorFacts& facts) {
  return facts.returns > 0 && facts.handed_back.size() == facts.returns && !facts.turns && !facts.has_out;
}

std::vector<size_t> bytes_by_storage(const Tape& run) {
  std::vector<size_t> bytes;
  for (const TensorInfo& info : run.tensors) {
    if (info.storage < 0) continue;
    bytes.resize(std::max(bytes.size(), static_cast<size_t>(info.storage) + 1));
    size_t& known = bytes[info.storage];
    known = std::max(known, bytes_reached(info));
  }
  return bytes;
}

/// Strides of dimensions with one element say nothing.
bool lies_as(const TensorInfo& info, const at::Tensor& t) {
  if (t.scalar_type() != info.dtype || t.sizes() != at::IntArrayRef(info.sizes)) return false;
  if (t.device() != info.device) return false;
  if (t.numel() == 0) return true;
  bool same = t.storage_offset() == info.offset;
  for (size_t d = 0; same && d < info.sizes.size(); ++d)
    same = info.sizes[d] == 1 || info.strides[d] == t.stride(static_cast<int64_t>(d));
  return same;
}

}  // namespace

Writer::Writer(const Tape& run, Joint& joint, Trial* trial)
    : run_(run), joint_(joint), trial_(trial), bytes_in_run_(bytes_by_storage(run)) {
  Tape& tape = joint_.tape;
  tape.locs = run.locs;
  for (const TensorInfo& info : run.tensors) {
    TensorInfo& copy = tape.tensors.emplace_back();
    copy = info;
    copy.requires_grad = false;
    copy.producer = copy.storage = -1;
    // Nodes ask for the streams of their tensors' device, also where there is none.
    if (info.device.is_cuda()) c10::impl::ensureCUDADeviceGuardSet();
  }
}

void Writer::refuse(const std::string& why) const {
  if (loc_ < 0) throw_unsupported(why);
  const record::SourceLine& line = run_.locs[loc_];
  throw_unsupported(why, " (", line.file, ":", line.line, ")");
}

void check_inference(const Tape& run, const std::vector<TensorId>& wanted) {
  std::set<int> made;  // storages
  for (const Entry& entry : run.entries)
    if (entry.inference_mode)
      for_each_tensor(entry.results, [&](TensorId id) { made.insert(run.tensors[id].storage); });
  for (TensorId id : wanted)
    if (id >= 0 && made.contains(run.tensors[id].storage))
      throw_unsupported("a tensor of inference mode, beside what gradients are wanted of");
}

// --- Tensors and storages ---------------------------------------------------------------------------------

int Writer::number_of(const c10::Storage& storage) {
  const auto [at, fresh] =
      numbers_.try_emplace(storage.unsafeGetStorageImpl(), static_cast<int>(storages_.size()));
  if (fresh) storages_.push_back(storage);
  return at->second;
}

const c10::Storage& Writer::storage_of_run(int storage) {
  const auto at = now_.find(storage);
  const int number = at != now_.end() ? at->second : number_of(make_storage(bytes_in_run_[storage]));
  match_storages(storage, number);
  return storages_[number];
}

TensorId Writer::add(at::ScalarType dtype, c10::Device device, const FakeLayout& place,
                     const c10::Storage& storage) {
  const auto id = static_cast<TensorId>(joint_.tape.tensors.size());
  TensorInfo& info = joint_.tape.tensors.emplace_back();
  info.dtype = dtype;
  info.device = device;
  info.sizes = Dims(place.sizes.begin(), place.sizes.end());
  info.strides = Dims(place.strides.begin(), place.strides.end());
  info.offset = place.offset;
  info.storage = number_of(storage);
  info.producer = static_cast<int>(joint_.tape.entries.size());
  return id;
}

at::Tensor Writer::recorded_fake(TensorId id) {
  const TensorInfo& info = run_.tensors[id];
  if (!info.plain || info.zero || info.is_noted()) refuse("a tensor that is not plain strided memory");
  if (info.data_sized) refuse("gradients of tensors as large as their data say");
  const c10::Storage& storage = storage_of_run(info.storage);
  TensorInfo& known = joint_.tape.tensors[id];
  known.storage = number_of(storage);
  if (info.input < 0) known.producer = static_cast<int>(joint_.tape.entries.size());
  return make_fake(storage, info.dtype, info.device, place_of(info), id);
}

at::Tensor Writer::input(TensorId id) {
  joint_.tape.inputs.push_back(id);
  return recorded_fake(id);
}

at::Tensor Writer::tangent(const at::Tensor& t) {
  c10::DimVector strides(t.strides());
  if (!t.is_non_overlapping_and_dense()) strides = c10::contiguous_strides(t.sizes());
  const FakeLayout place{t.sizes(), strides, 0};
  const c10::Storage storage = make_storage(static_cast<size_t>(t.numel()) * t.element_size());
  const TensorId id = add(t.scalar_type(), t.device(), place, storage);
  TensorInfo& info = joint_.tape.tensors[id];
  info.producer = -1;
  info.input = static_cast<int>(joint_.tape.inputs.size());
  joint_.tape.inputs.push_back(id);
  return make_fake(storage, t.scalar_type(), t.device(), place, id);
}

TensorId Writer::id_of(const at::Tensor& t) {
  if (!t.defined()) return -1;
  if (const Fake* fake = as_fake(t)) return fake->id;
  if (followed_number(t)) refuse("gradients that rest on a number that differs between calls");
  if (!device::is_number_on_host(t)) refuse("a tensor that no operator of the recording has made");
  at::Scalar number;
  {
    const Below below;
    number = t.item();
  }
  return id_of(at::scalar_tensor(number, at::TensorOptions(t.scalar_type()).device(device::kHost)));
}

bool holds_followed(const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() && v.toTensor().requires_grad();
  return (v.isTensorList() || v.isOptionalTensorList()) && std::ranges::any_of(v.toListRef(), holds_followed);
}

// --- The run's entries ------------------------------------------------------------------------------------

void Writer::begin(size_t index) {
  entry_ = &run_.entries[index];
  loc_ = entry_->loc;
  if (entry_->inference_mode && !record::written_arguments(*entry_).empty())
    refuse("a write in inference mode among what gradients are wanted of");
}

void Writer::end(size_t index, const Stack& results) {
  entry_ = nullptr;
  const Entry& entry = run_.entries[index];
  size_t from = 0;
  record::TensorIds recorded;
  for (const Arg& result : entry.results)
    recorded.insert(recorded.end(), result.tensors.begin(), result.tensors.end());
  for_tensors(results, [&](const at::Tensor& t) {
    const TensorId id = from < recorded.size() ? recorded[from] : -1;
    ++from;
    if (id >= 0 && run_.tensors[id].producer == static_cast<int>(index)) match(id, t);
  });
}

void Writer::follow_number(const at::Tensor& number, const Arg& recorded) {
  followed_numbers_.emplace(number.storage().unsafeGetStorageImpl(), std::pair(number, &recorded));
}

const Arg* Writer::followed_number(const at::Tensor& t) const {
  if (followed_numbers_.empty() || !t.defined() || as_fake(t) || !t.has_storage()) return nullptr;
  const auto at = followed_numbers_.find(t.storage().unsafeGetStorageImpl());
  return at == followed_numbers_.end() ? nullptr : at->second.second;
}

void Writer::go_on_at(int loc) {
  entry_ = nullptr;
  loc_ = loc;
}

void Writer::match_storages(int recorded, int made) {
  const bool same = now_.try_emplace(recorded, made).first->second == made &&
                    in_run_.try_emplace(made, recorded).first->second == recorded;
  if (!same) refuse("an operator shares memory otherwise than in the recorded run");
}

std::string Writer::last_operator() const {
  return joint_.tape.entries.empty() ? "an input" : full_name(joint_.tape.entries.back().op);
}

/// The tensor of the run is what was made for it.
void Writer::match(TensorId recorded, const at::Tensor& made) {
  const TensorInfo& info = run_.tensors[recorded];
  const Fake* fake = as_fake(made);
  if (!fake || !info.plain) refuse("a result that is no plain tensor");
  if (trial_)
    trial_->learn(recorded, made, joint_.tape.tensors[recorded]);
  else if (!lies_as(info, made) && !take_recorded_layout(info, made))
    refuse(detail::concat("a result is ", made.toString(), made.sizes(), " by ", made.strides(), " (",
                          last_operator(), "), and was ", c10::toString(info.dtype),
                          at::IntArrayRef(info.sizes), " by ", at::IntArrayRef(info.strides)));
  match_storages(info.storage, number_of(made.storage()));
  if (made.requires_grad() != info.requires_grad)
    refuse("a tensor whose gradient is none of ATen's operators (autograd.Function, requires_grad_())");
  if (fake->id == recorded) return;
  const bool is_new = fake->id >= static_cast<TensorId>(run_.tensors.size());
  if (is_new && renamed_.try_emplace(fake->id, recorded).second) return;
  refuse("two tensors of the recorded run are one");
}

TensorId Writer::renamed(TensorId id) const {
  const auto at = renamed_.find(id);
  return at == renamed_.end() ? id : at->second;
}

void Writer::finish() {
  Tape& tape = joint_.tape;
  for (const auto& [made, recorded] : renamed_) {
    TensorInfo &from = tape.tensors[made], &to = tape.tensors[recorded];
    to.producer = std::exchange(from.producer, -1);
    to.storage = from.storage;
  }
  auto rename = [&](std::span<Arg> args) {
    for (Arg& arg : args)
      for (TensorId& id : arg.tensors) id = renamed(id);
  };
  for (Entry& entry : tape.entries) rename(entry.args), rename(entry.results);
  for (auto* ids : {&joint_.outputs, &joint_.tangent_of, &joint_.gradients})
    for (TensorId& id : *ids) id = renamed(id);
  for (Inner& inner : joint_.inner) {
    inner.through = renamed(inner.through);
    inner.whole = renamed(inner.whole);
  }
}

// --- Calls ------------------------------------------------------------------------------------------------

void Writer::take(const c10::IValue& v, Arg& arg) {
  if (v.isTensor() && v.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
    const Below below;
    arg.kind = Arg::Kind::WrappedNumber;
    arg.value = v.toTensor().item();
    if (const Arg* recorded = followed_number(v.toTensor())) {
      arg.tensors = recorded->tensors;
      arg.syms = recorded->syms;
    }
    return;
  }
  take_value(v, arg, [&](const at::Tensor& t) { return id_of(t); });
}

Entry Writer::take_arguments(const c10::OperatorHandle& op, const Stack& arguments) {
  const OperatorFacts& facts = record::facts_of(op);
  if (facts.ends_region || facts.finds_sizes)
    refuse(full_name(op) +
           ", which hands out a tensor's data or gives it other memory, is part of what gradients are "
           "computed by");
  // What it leaves for its backward pass is there or not by what autograd sees of its arguments.
  if (op.operator_name().name == "aten::mkldnn_rnn_layer") refuse("a library's recurrent layer");
  Entry entry{op, &facts, joint_.tape.args->take(facts.arguments), {}};
  entry.grad_mode = false;
  entry.loc = loc_;
  for (size_t i = 0; i < arguments.size(); ++i) {
    take(arguments[i], entry.args[i]);
    // A number out of a tensor that is no operand.
    if (entry_ && op == entry_->op && entry.args[i].kind == Arg::Kind::Value)
      entry.args[i].tensors = entry_->args[i].tensors;
  }
  return entry;
}

/// as_strided_() makes another tensor of the tape out of the object that it is called on, and is written as
/// the operator that gives that tensor: it is all that ATen's composites have use for of those that end a
/// region.
void Writer::call_turning(Stack& stack) {
  static const c10::OperatorHandle shown =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::as_strided", "");
  const at::Tensor object = torch::jit::peek(stack, 0, 4).toTensor();
  call(shown, stack);
  const at::Tensor result = torch::jit::pop(stack).toTensor();
  turn(object, place_of(result), as_fake(result)->id);
  stack.emplace_back(object);
}

void Writer::turn(const at::Tensor& object, const FakeLayout& place, TensorId id) {
  as_fake(object)->set_sizes_and_strides(place.sizes, place.strides, place.offset);
  as_fake(object)->id = id;
}

namespace {

/// (grad, input, weight, mean, var, save_mean, save_invstd, train, eps, mask)
///
/// In training the pass has no use for them, and it may come after further forward passes, which write them:
/// saved, they would be values that were changed since.
void forget_running_statistics(Stack& arguments) {
  if (!arguments[7].toBool()) return;
  arguments[3] = c10::IValue();
  arguments[4] = c10::IValue();
}

}  // namespace

/// Numbers among the operands come from Python, and what ATen computes of them alone are numbers again: the
/// conjugate of a complex one that something was multiplied with.
bool Writer::computes_numbers(const c10::OperatorHandle& op, Stack& stack) {
  bool any = false, all = true, followed = false;
  for_tensors(Stack(stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()), stack.end()),
              [&](const at::Tensor& t) {
                any = true;
                followed |= followed_number(t) != nullptr;
                all &= t.defined() && !as_fake(t) && t.unsafeGetTensorImpl()->is_wrapped_number();
              });
  const bool recorded = entry_ && op == entry_->op;  // whose result is a tensor of the run
  if (!any || !all || recorded) return false;
  if (followed) refuse("gradients that rest on a number that differs between calls");
  if (record::facts_of(op).ends_region) return false;
  const Below below;
  op.callBoxed(&stack);
  if (op.schema().returns().size() != 1 || !stack.back().isTensor()) refuse("numbers out of numbers");
  at::Tensor number = stack.back().toTensor().resolve_conj().resolve_neg();
  number.unsafeGetTensorImpl()->set_wrapped_number(number.dim() == 0);
  stack.back() = std::move(number);
  return true;
}

bool Writer::call_by_formula(const Entry& entry, Stack& stack) {
  const auto plainly = [this](const c10::OperatorHandle& op, Stack& given) { call(op, given); };
  return call_product(entry, stack, plainly) || call_without_data(entry, stack) ||
         call_circular_pad(entry, stack) || call_sequence_loss(entry, stack, plainly) ||
         call_attention_of_four(entry, stack);
}

void Writer::write(const c10::OperatorHandle& op, Stack& stack) {
  const size_t count = op.schema().arguments().size();
  Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  const std::string& name = op.operator_name().name;
  if (name == "aten::native_batch_norm_backward" || name == "aten::batch_norm_backward")
    forget_running_statistics(arguments);
  Entry entry = take_arguments(op, arguments);
  const Stack results = results_of(entry, arguments);
  entry.results = joint_.tape.args->take(results.size());
  for (size_t i = 0; i < results.size(); ++i) take(results[i], entry.results[i]);
  joint_.tape.entries.push_back(std::move(entry));
  stack.insert(stack.end(), results.begin(), results.end());
}

void Writer::copy(Stack& stack) {
  const Entry& recorded = *entry_;
  Entry entry{recorded.op, recorded.facts, joint_.tape.args->take(recorded.args.size()), {}};
  std::ranges::copy(recorded.args, entry.args.begin());
  entry.grad_mode = false;
  entry.loc = loc_;
  Stack results = recorded_results(entry, stack);
  entry.results = joint_.tape.args->take(results.size());
  for (size_t i = 0; i < results.size(); ++i) take(results[i], entry.results[i]);
  joint_.tape.entries.push_back(std::move(entry));
  stack = std::move(results);
}

/// Is it what the run recorded, of the same tensors? Where a composite operator calls itself it is not.
bool Writer::is_of_run(const Entry& entry) const {
  if (!entry_ || !(entry.op == entry_->op)) return false;
  return std::ranges::equal(entry.args, entry_->args, [&](const Arg& a, const Arg& b) {
    return a.kind == b.kind &&
           std::ranges::equal(a.tensors, b.tensors, [&](TensorId x, TensorId y) { return renamed(x) == y; });
  });
}

Stack Writer::results_of(Entry& entry, const Stack& arguments) {
  if (is_of_run(entry)) return trial_ ? tried_results(entry, arguments) : recorded_results(entry, arguments);
  return as_rules_say(entry, arguments);
}

Stack Writer::as_rules_say(const Entry& entry, const Stack& arguments) {
  if (entry.facts->returns == 0)
    return {};  // a check, or a write: no rule is needed, and some would look at data
  if (!gives_back(*entry.facts)) return described(entry, arguments);
  Stack results;
  for (const auto& [result, argument] : entry.facts->handed_back) results.push_back(arguments[argument]);
  return results;
}

/// The same of what a composite operator gives.
bool Writer::take_recorded_layout(const TensorInfo& info, const at::Tensor& made) {
  Fake* fake = as_fake(made);
  TensorInfo& written = joint_.tape.tensors[fake->id];
  const auto of_its_memory = std::ranges::count(joint_.tape.tensors, written.storage, &TensorInfo::storage);
  if (fake->id < static_cast<TensorId>(run_.tensors.size()) || of_its_memory != 1) return false;
  if (info.dtype != written.dtype || info.device != written.device || info.sizes != written.sizes ||
      !fills_its_memory(info) || !fills_its_memory(written))
    return false;
  fake->set_sizes_and_strides(info.sizes, info.strides, 0);
  written.strides = info.strides;
  return true;
}

Stack Writer::tried_results(Entry& entry, const Stack& arguments) {
  const Entry& recorded = *std::exchange(entry_, nullptr);
  entry.own_version = recorded.own_version;
  Stack results = as_rules_say(entry, arguments);
  lay_as_recorded(recorded, results, arguments);
  return results;
}

/// Of what is new and dense, the run has shown how its dimensions lie one in the other: not every rule does
/// as the kernel that ran.
void Writer::lay_as_recorded(const Entry& recorded, const Stack& results, const Stack& arguments) {
  std::unordered_set<const c10::StorageImpl*> given;
  for_tensors(arguments, [&](const at::Tensor& t) {
    if (t.defined()) given.insert(t.storage().unsafeGetStorageImpl());
  });
  record::TensorIds ids;
  for (const Arg& result : recorded.results)
    ids.insert(ids.end(), result.tensors.begin(), result.tensors.end());
  size_t at = 0;
  for_tensors(results, [&](const at::Tensor& t) {
    const TensorId id = at < ids.size() ? ids[at] : -1;
    ++at;
    if (id < 0 || !t.defined() || given.contains(t.storage().unsafeGetStorageImpl())) return;
    const auto strides = trial_->strides_of(id, t.sizes());
    if (!strides) return;
    as_fake(t)->set_sizes_and_strides(t.sizes(), *strides, 0);
    joint_.tape.tensors[as_fake(t)->id].strides = *strides;
  });
}

/// Also takes over the expressions that numbers among the arguments are.
Stack Writer::recorded_results(Entry& entry, const Stack& arguments) {
  const Entry& recorded = *std::exchange(entry_, nullptr);
  for (size_t i = 0; i < entry.args.size(); ++i) entry.args[i].syms = recorded.args[i].syms;
  entry.own_version = recorded.own_version;
  Stack results;
  for (const Arg& result : recorded.results) {
    if (result.kind == Arg::Kind::Tensor) {
      results.emplace_back(recorded_result(result.tensors[0], arguments));
    } else if (result.kind == Arg::Kind::TensorList) {
      c10::List<at::Tensor> list;
      for (TensorId id : result.tensors) list.push_back(recorded_result(id, arguments));
      results.emplace_back(std::move(list));
    } else {
      results.push_back(result.value);
    }
  }
  if (!entry.facts->turns) return results;
  // An operator that turns changes how the tensor it is given shows its memory, and gives that one.
  const at::Tensor turned = arguments[0].toTensor(), shown = results[0].toTensor();
  turn(turned, place_of(shown), as_fake(shown)->id);
  return {turned};
}

/// What it gave was new, or it was one of the arguments.
at::Tensor Writer::recorded_result(TensorId id, const Stack& arguments) {
  if (id < 0) return {};
  at::Tensor found;
  for_tensors(arguments, [&](const at::Tensor& t) {
    if (const Fake* fake = as_fake(t); fake && renamed(fake->id) == id) found = t;
  });
  return found.defined() ? found : recorded_fake(id);
}

/// Results as a rule says they are.
Stack Writer::described(const Entry& entry, const Stack& arguments) {
  const std::string name = full_name(entry.op);
  const c10::Device device = device_for(arguments);
  if (const auto row = result_rows().find(name); row != result_rows().end()) {
    ResultCall call(arguments, 0);
    const Below below;
    if (row->second(call)) return adopted(call.take_results(), device);
  }
  struct StandsFor {
    at::Tensor meta, fake;
  };
  // By address, so none of them may be let go: a result would lie where it was, and be taken for it.
  std::unordered_map<const c10::TensorImpl*, StandsFor> given;
  Stack stack = mapped(arguments, [&](const at::Tensor& t) {
    if (!as_fake(t)) return t;
    const at::Tensor meta = make_meta(t.storage(), t.scalar_type(), place_of(t));
    given.emplace(meta.unsafeGetTensorImpl(), StandsFor{meta, t});
    return meta;
  });
  {
    const Below below;
    const auto kernel = meta_kernels().find(name);
    const c10::DispatchKeySet meta(c10::DispatchKey::Meta);
    kernel == meta_kernels().end() ? entry.op.redispatchBoxed(meta, &stack)
                                   : kernel->second.callBoxed(entry.op, meta, &stack);
  }
  for (auto& [address, argument] : given) {
    auto& [meta, fake] = argument;
    const bool same = meta.sizes() == fake.sizes() && meta.strides() == fake.strides();
    if (same) continue;
    if (!entry.facts->turns) refuse(name + ", which gives a tensor another size");
    const FakeLayout place = place_of(meta);
    turn(fake, place, add(fake.scalar_type(), fake.device(), place, fake.storage()));
  }
  return mapped(stack, [&](const at::Tensor& t) {
    const auto at = given.find(t.unsafeGetTensorImpl());
    return at == given.end() ? adopted(t, device) : at->second.fake;
  });
}

Stack Writer::adopted(const Stack& metas, c10::Device device) {
  return mapped(metas, [&](const at::Tensor& t) { return adopted(t, device); });
}

at::Tensor Writer::adopted(const at::Tensor& meta, c10::Device device) {
  if (!meta.defined()) return meta;
  if (!meta.is_meta()) refuse("a result that is a real tensor");
  if (meta.is_conj() || meta.is_neg()) refuse("a tensor that shows other memory conjugated or negated");
  const TensorId id = add(meta.scalar_type(), device, place_of(meta), meta.storage());
  return make_fake(meta.storage(), meta.scalar_type(), device, place_of(meta), id);
}

}  // namespace bolt::autograd
