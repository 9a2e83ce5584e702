// record/recorder.cpp
#include "record/recorder.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "device/host/host.h"
#include "guard/transforms.h"
#include "record/data_sizes.h"
#include "record/operator_facts.h"
#include "record/other_kinds.h"
#include "record/out_arguments.h"
#include "record/ranges.h"
#include "record/symint.h"
#include "record/take.h"
#include "support/symbols.h"

namespace bolt::record {
namespace {

thread_local Recorder* active = nullptr;

constexpr c10::DispatchKeySet kTransforms({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                           c10::DispatchKey::FuncTorchDynamicLayerBackMode});
constexpr c10::DispatchKeySet kAutocast({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA});

/// Sets a variable back when it goes.
template <class T>
struct Restored {
  explicit Restored(T& place) : place(place), before(place) {}
  ~Restored() { place = before; }
  Restored(const Restored&) = delete;
  T& place;
  const T before;
};

/// Does a result that the schema says is an argument no longer match it?
bool has_new_geometry(const Entry& e) {
  const auto& handed_back = e.facts->handed_back;
  return std::any_of(handed_back.begin(), handed_back.end(), [&](const auto& same) {
    return e.args[same.second].tensors != e.results[same.first].tensors;
  });
}

/// Read where it lies: item() is an operator, which profilers would see.
at::Scalar wrapped_number(const at::Tensor& t) {
  const bool lies_here = device::is_on_host(t) && is_plain(t);
  if (lies_here && t.scalar_type() == at::kDouble) return *t.const_data_ptr<double>();
  if (lies_here && t.scalar_type() == at::kLong) return *t.const_data_ptr<int64_t>();
  if (lies_here && t.scalar_type() == at::kBool) return *t.const_data_ptr<bool>();
  at::NoGradGuard no_grad;
  c10::impl::ExcludeDispatchKeyGuard off(kKey);
  return t.item();
}

/// Is it a tensor with elements that share memory? Of one place for all eager says no to writes by itself.
bool overlaps_itself(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor& t = value.toTensor();
  return t.layout() == c10::kStrided && !t.is_non_overlapping_and_dense() &&
         elements_share_memory(t.sizes(), t.strides());
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (active) return active->run(op, keys, stack);
  // Autograd's engine runs the backward pass of an accelerator on a thread of its own, with the keys of the
  // thread that asked for it.
  c10::impl::ExcludeDispatchKeyGuard off(kKey);
  op.redispatchBoxed(below_our_key(keys), stack);
}

}  // namespace

Recorder::Recorder() : outer_levels_(guard::transform_levels()) {}

Recorder* Recorder::current() { return active; }

void Recorder::drop_entries(size_t from) {
  for (size_t i = tape_.tensors.size(); i-- > 0;) {
    TensorInfo& info = tape_.tensors[i];
    if (info.producer < 0) continue;  // an input, or dropped before
    if (info.producer < static_cast<int>(from)) break;
    info.producer = -1;
  }
  tape_.entries.erase(tape_.entries.begin() + static_cast<std::ptrdiff_t>(from), tape_.entries.end());
}

void Recorder::take_back() {
  drop_entries(mark_);
  escaped_.reset();
  lent_->facts.clear();
}

void Recorder::note_met() {
  met_operator_ |= stopped_;
  if (stopped_ && wakes) *wakes = true;
}

void Recorder::stop(bool drop) {
  stopped_ = true;
  if (!drop) return;
  if (raised_now_) raised_.clear();
  tensors_.revert(mark_);
  drop_entries(mark_);  // why it escaped is asked for afterwards
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

void Recorder::take(const c10::IValue& v, Use use, int entry, Arg& arg) {
  if (v.isTensor() && use != Use::result) {
    const at::Tensor& t = v.toTensor();
    if (t.unsafeGetTensorImpl()->is_wrapped_number() && t.dim() == 0) return take_wrapped_number(t, arg);
  }
  take_value(v, arg, [&](const at::Tensor& t) { return tensors_.id_of(t, use, entry); });
}

/// A Python number given where a tensor is expected: a constant of the program, and its weak type matters.
void Recorder::take_wrapped_number(const at::Tensor& t, Arg& arg) {
  arg.kind = Arg::Kind::WrappedNumber;
  arg.value = wrapped_number(t);
}

int Recorder::line_id() {
  Seen& seen = seen_[static_cast<size_t>(here_.line) % seen_.size()];
  if (seen.id >= 0 && seen.line == here_) return seen.id;
  tape_.locs.push_back({Interned(here_.file), Interned(here_.function), here_.line});
  seen = {here_, static_cast<int>(tape_.locs.size()) - 1};
  return seen.id;
}

void Recorder::escape(const c10::OperatorHandle& op, const char* how) {
  if (whole_) {  // it is no part of a region, but the whole may be
    *whole_ = true;
    return;
  }
  news_ = true;
  escaped_ =
      Reason(is_atens(op) ? Why::operator_ends : Why::other_operator_ends, op.operator_name().name, how);
  escaped_raises_ = facts_of(op).raises_by_data;
  if (on_escape) on_escape();
}

const Reason* Recorder::escaped() const {
  static const Reason item(Why::operator_ends, "aten::item", "");
  if (escaped_) return &*escaped_;
  return lent_->facts.empty() ? nullptr : &item;
}

void Recorder::call(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard off(kKey);
  const Restored running(running_);
  running_ = true;
  if (facts.draws) drawn_from_.keep_drawn(facts, *stack);
  op.redispatchBoxed(below_our_key(keys), stack);
}

/// A transform of torch.func takes operators on its own kind of tensors apart into operators on plain ones,
/// level by level. What arrives below the levels that were entered since the recording began is recorded.
/// Tensors whose level is over (those that the function from vjp() keeps) are plain ones in a wrapper.
bool Recorder::is_transformed(c10::DispatchKeySet keys) const {
  const size_t levels = guard::transform_levels();
  if (keys.has_any(kTransforms) && levels > outer_levels_) return true;
  return levels == 0 && keys.has(c10::DispatchKey::FuncTorchGradWrapper);
}

/// Is nothing going on that an operator would be asked about? Then those that are ordinary are taken down as
/// they come, as nearly all are: what the others are asked costs more than to take one down.
bool Recorder::asks_nothing(c10::DispatchKeySet keys) const {
  constexpr c10::DispatchKeySet kAsked =
      kTransforms | kAutocast | c10::DispatchKeySet(c10::DispatchKey::FuncTorchGradWrapper);
  return !(cast_ || stopped_ || paused_ || follows_sizes || transformed_ || has_data_sizes_) &&
         parsed.idle() && !tensors_.any_given_data() && !keys.has_any(kAsked) &&
         c10::impl::tls_local_dispatch_key_set().excluded_.has_all(kAutocast);
}

void Recorder::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OperatorFacts& facts = facts_of(op);
  if (whole_ && (*whole_ |= !can_be_part(facts, *stack))) return call(op, facts, keys, stack);
  if (!facts.ordinary || !asks_nothing(keys)) return run_asking(op, facts, keys, stack);
  if (ends_at_other_kinds && meets_other_kind(op, facts, *stack)) return call(op, facts, keys, stack);
  if (facts.composite && falls_apart(op, facts, *stack)) return run_parts(op, facts, keys, stack);
  add_entry(op, facts, keys, stack, {}, false);
}

void Recorder::run_asking(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                          torch::jit::Stack* stack) {
  if (cast_) {
    *cast_ |= autocast_takes(op, keys);
    return op.redispatchBoxed(below_our_key(keys), stack);
  }
  const bool transformed = is_transformed(keys);
  if (transformed && !transformed_ && guard::transform_levels() == 0) {
    note_met();
    if (!stopped_ && !paused_ && !escaped_)
      escape_from(op, " of a ", "tensor that a transform of torch.func has left");
    return call(op, facts, keys, stack);
  }
  transformed_ |= transformed;
  tensors_.takes_zeros = transformed_;
  const bool unseen = stopped_ || paused_;
  const bool taken = autocast_takes(op, keys);
  const bool casts = !transformed && !unseen && !taken && casts_inside(op, keys, *stack, cast_);
  const bool falls_apart = casts && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (transformed || taken || falls_apart) {
    // Autocast casts parameters with gradients even where nobody wants any.
    const Restored around(grad_mode_);
    if (!transformed && !grad_mode_) grad_mode_ = c10::GradMode::is_enabled();
    parsed.give_up();  // who knows what it does with them
    op.redispatchBoxed(below_our_key(keys), stack);
    return;
  }
  note_met();
  const bool finds_sizes = !unseen && !escaped_ && (facts.finds_sizes || selects_by_mask(facts, *stack)) &&
                           can_find_sizes(facts, *stack) && !types_rest_on_data(op, facts, *stack);
  const bool constant = !unseen && !escaped_ && are_masks_constant(facts, *stack);
  if ((finds_sizes || constant) && find_by_others(op, facts, constant, stack)) return;
  if (!unseen && !escaped() && lend_item(op, facts, keys, stack)) return;
  // Nobody needs to look where the answer is always the same.
  if (!unseen && op.operator_name().name == "aten::is_nonzero")
    if (const auto id = find(stack->back().toTensor()); id && known_outcome(tape_, *id))
      return call(op, facts, keys, stack);
  if (!unseen && !escaped_ && facts.ends_region && !finds_sizes) escape(op, "");
  Symbols symbols;
  if (follows_sizes) symbols = take_all_symbols(op, facts, *stack);
  if (!unseen) parsed.give(op, facts, *stack, symbols);
  if (unseen || (ends_at_other_kinds && meets_other_kind(op, facts, *stack)))
    return call(op, facts, keys, stack);
  if (casts) escape(op, " that autocast reaches into");
  add_entry(op, facts, keys, stack, std::move(symbols), finds_sizes);
  if (facts.finds_rank) expect_full_rank(op, *stack);
}

/// Ends the region before a call with tensors that no region computes with. What it gives may be plain.
bool Recorder::meets_other_kind(const c10::OperatorHandle& op, const OperatorFacts& facts,
                                const torch::jit::Stack& stack) {
  const char* kind = other_kind(stack, facts.arguments);
  if (kind && !escaped_) escape_from(op, " of a ", kind);
  return kind;
}

/// The call may raise, and do whatever its class has in mind: it has to run where it stands.
void Recorder::escape_from(const c10::OperatorHandle& op, const char* how, const char* kind) {
  escape(op, (std::string(how) + kind).c_str());
  escaped_raises_ = true;
}

/// A number out of a tensor is taken for what it is, which ends the region.
void Recorder::ask_data(const c10::IValue& v) {
  if (v.isSymFloat() && data.contains(take_apart(v.toSymFloat()).symbol))
    v.toSymFloat().guard_float(__FILE__, __LINE__);
  else if (v.isSymInt() && data.contains(take_apart(v.toSymInt()).size))
    v.toSymInt().guard_int(__FILE__, __LINE__);
  else
    return;
  news_ = true;
}

/// Out of the arguments, which are numbers then. One list for each.
Recorder::Symbols Recorder::take_all_symbols(const c10::OperatorHandle& op, const OperatorFacts& facts,
                                             torch::jit::Stack& stack) {
  Symbols symbols;
  const size_t first = first_argument(facts, stack);
  for (size_t i = first; i < stack.size(); ++i) {
    if (facts.is_sized_by_numbers) ask_data(stack[i]);
    symbols.push_back(take_symbols(stack[i]));
    const bool is_scalar = op.schema().arguments()[i - first].type()->kind() == c10::TypeKind::NumberType;
    for (Sym s : symbols.back())  // a size, or a place, must be known
      if (holds_data_number(s) && !(is_scalar && data.count(s))) lent_->add(s, Relation::eq, s), news_ = true;
    if (symbols.back().empty()) symbols.back() = take_wrapped_symbol(stack[i]);
  }
  return symbols;
}

/// The entry of a call that is about to be made: all but its results.
Entry Recorder::begin_entry(const c10::OperatorHandle& op, const OperatorFacts& facts,
                            const torch::jit::Stack& stack, Symbols symbols) {
  const int index = static_cast<int>(tape_.entries.size());
  const size_t begin = first_argument(facts, stack);
  const c10::AutogradState& mode = c10::AutogradState::get_tls_state();
  Entry entry{op, &facts, {}, {}};
  entry.grad_mode = grad_mode_.value_or(mode.get_grad_mode());
  entry.inference_mode = mode.get_inference_mode();
  entry.loc = line_id();
  entry.args = tape_.args->take(facts.arguments);
  for (size_t i = begin; i < stack.size(); ++i) {
    const bool itself = i == begin && facts.turns;
    take(stack[i], itself ? Use::itself : Use::value, index, entry.args[i - begin]);
  }
  if (entry.grad_mode && !kept_casts_.empty()) follow_kept_casts(entry);
  if (!symbols.empty()) give_symbols(entry, std::move(symbols));
  return entry;
}

/// What a cast that autocast keeps gives has a gradient even where it was made for an operator that has none.
/// It counts as made without one (run_asking), until somebody reads it who wants one.
void Recorder::note_kept_cast(const Entry& cast) {
  for_each_tensor(cast.results, [&](TensorId id) {
    bool& requires_grad = tape_.tensors[static_cast<size_t>(id)].requires_grad;
    if (std::exchange(requires_grad, false)) kept_casts_.push_back(id);
  });
}
void Recorder::follow_kept_casts(const Entry& reader) {
  for_each_tensor(reader.args, [&](TensorId id) {
    if (std::erase(kept_casts_, id) == 0) return;
    TensorInfo& cast = tape_.tensors[static_cast<size_t>(id)];
    cast.requires_grad = true;
    if (cast.producer >= 0) tape_.entries[static_cast<size_t>(cast.producer)].grad_mode = true;
  });
}

/// Numbers among the arguments are these expressions, or elements of tensors.
void Recorder::give_symbols(Entry& entry, Symbols symbols) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    auto from = symbols[i].size() == 1 ? data.find(symbols[i][0]) : data.end();
    if (from != data.end())
      entry.args[i].tensors = {from->second};
    else
      entry.args[i].syms = std::move(symbols[i]);
  }
}

/// torch.tensor([...]) fills its tensor through a pointer and announces it here: its contents are a constant
/// of the program. Its memory may have been seen made (aten::empty); that was another tensor, without them.
void Recorder::note_constant(Entry& entry, const at::Tensor& fresh) {
  if (tape_.tensors[entry.args[0].tensors[0]].input < 0) {
    tensors_.refilled(fresh);
    entry.args[0].tensors[0] = tensors_.add(fresh, -1);
  }
  const TensorInfo& info = tape_.tensors[entry.args[0].tensors[0]];
  c10::impl::ExcludeDispatchKeyGuard off(kKey);
  constants_.try_emplace(info.input, inputs()[info.input].detach().clone());
}

/// A result is not as large as the argument it is. `given`: what the operator was called with, if it fills
/// new tensors.
void Recorder::note_new_geometry(Entry& entry, const torch::jit::Stack& given) {
  if (entry.facts->turns) {
    changed_inputs_ = true;
    return;
  }
  for_each_written(entry, [&](TensorId id) { tensors_.note_resized(id, tape_.entries.size()); });
  auto unseen = [](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard off(kKey);
    op.callBoxed(stack);
  };
  if (given.empty() || !gives_new_tensors(entry, tape_, given, unseen))
    escape(entry.op, " that resizes its out= argument");
}

/// On the tape what a tensor was given is another tensor, which no gradient comes back from.
bool Recorder::differentiates_given(const c10::OperatorHandle& op, const OperatorFacts& facts,
                                    const torch::jit::Stack& stack) const {
  auto is_given = [&](const at::Tensor& t) {
    return t.defined() && t.requires_grad() && tensors_.was_given_data(t);
  };
  if (op.operator_name().name == "aten::detach") return false;
  return std::any_of(stack.begin() + static_cast<std::ptrdiff_t>(first_argument(facts, stack)), stack.end(),
                     [&](const c10::IValue& v) {
                       if (v.isTensor()) return is_given(v.toTensor());
                       if (v.isTensorList()) return std::ranges::any_of(v.toTensorVector(), is_given);
                       return v.isOptionalTensorList() &&
                              std::ranges::any_of(v.toOptionalTensorVector(),
                                                  [&](const auto& t) { return t && is_given(*t); });
                     });
}

/// Ends the region where only the data, or nobody, can tell what the call does.
void Recorder::escape_by_arguments(const c10::OperatorHandle& op, const OperatorFacts& facts,
                                   const torch::jit::Stack& stack) {
  const size_t begin = first_argument(facts, stack);
  if (selects_by_mask(facts, stack)) escape(op, " with a mask");
  if (tensors_.any_given_data() && grad_mode_.value_or(c10::GradMode::is_enabled()) &&
      differentiates_given(op, facts, stack))
    escape(op, " of a tensor that was given other data, with gradients");
  if (facts.counts_classes && stack[begin + 1].isInt() && stack[begin + 1].toInt() < 0)
    escape(op, " without a number of classes");
}

/// What is to be known of the arguments before a call that is not ordinary. Returns them, if it fills new
/// tensors.
torch::jit::Stack Recorder::before_call(Entry& entry, const torch::jit::Stack& stack) {
  const OperatorFacts& facts = *entry.facts;
  const size_t begin = first_argument(facts, stack);
  placed_ |= facts.places && !stack.back().isNone();
  for (int i : written_arguments(entry))  // unsqueeze_() and requires_grad_() only say they write
    if (!facts.turns && !makes_leaf(entry) && overlaps_itself(stack[begin + static_cast<size_t>(i)]))
      escape(entry.op, " that writes where elements share their memory");
  if (facts.lifts && entry.args[0].kind == Arg::Kind::Tensor) note_constant(entry, stack[begin].toTensor());
  if (!fills_new_tensors(entry, tape_)) return {};
  return {stack.begin() + static_cast<long>(begin), stack.end()};
}

/// What it has done to its arguments. `given`: what before_call returned.
void Recorder::after_call(Entry& entry, const torch::jit::Stack& given) {
  if (has_new_geometry(entry)) note_new_geometry(entry, given);
  changed_inputs_ |= writes_gradients(tape_, entry);
  for_each_written(entry, [&](TensorId id) { tensors_.count_write(id); });
}

void Recorder::note_raised(const c10::OperatorHandle& op) {
  news_ = true;
  if (raised_.empty()) raised_ = op.operator_name().name, raised_now_ = true;
}

/// A region ends behind an operator that makes a tensor of another kind; of a composite's part it is the
/// whole that does.
bool Recorder::ends_at_result(const c10::OperatorHandle& op, const OperatorFacts& facts,
                              const torch::jit::Stack& stack) {
  const char* kind = ends_at_other_kinds ? other_kind(stack, facts.returns) : nullptr;
  if (!kind) return false;
  whole_ ? void(*whole_ = true) : escape_from(op, " that makes a ", kind);
  return true;
}

void Recorder::add_entry(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack, Symbols symbols, bool finds_sizes) {
  if (!facts.ordinary || tensors_.any_given_data()) escape_by_arguments(op, facts, *stack);
  const int index = static_cast<int>(tape_.entries.size());
  Entry entry = begin_entry(op, facts, *stack, std::move(symbols));
  torch::jit::Stack given;
  if (!facts.ordinary) given = before_call(entry, *stack);
  try {
    call(op, facts, keys, stack);
  } catch (...) {  // the entry never happened
    note_raised(op);
    throw;
  }
  if (stopped_) return;
  if (ends_at_result(op, facts, *stack)) return;
  entry.results = tape_.args->take(facts.returns);
  for (size_t i = 0; i < facts.returns; ++i)
    take((*stack)[stack->size() - facts.returns + i], Use::result, index, entry.results[i]);
  if (grad_mode_ == false && c10::GradMode::is_enabled()) note_kept_cast(entry);
  if (!facts.ordinary) after_call(entry, given);
  if (has_data_sizes_ || finds_sizes) note_data_sizes(entry);
  tape_.entries.push_back(std::move(entry));
  news_ |= is_very_long();
  tensors_.let_go();
}

void count_writes_apart(const at::Tensor& t) {
  if (!t.is_inference()) t.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
}

void Recorder::own_version(const at::Tensor& t) {
  count_writes_apart(t);
  if (find(t) && !tape_.entries.empty()) tape_.entries.back().own_version = true;
}

bool Recorder::given_data(const at::Tensor& t, const at::Tensor& data) {
  const auto id = find(data);
  if (!id || !is_plain(data)) return false;
  tensors_.becomes(t, *id);
  return changed_inputs_ = true;
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace bolt::record
