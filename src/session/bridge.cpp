// session/bridge.cpp
#include "session/bridge.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_set>

#include "guard/handed_out.h"
#include "lower/entry_facts.h"
#include "record/backward.h"
#include "record/origins.h"
#include "record/selected_sizes.h"
#include "record/symint.h"
#include "run/attempt.h"
#include "run/double_backward.h"
#include "session/failures.h"
#include "session/settings.h"
#include "support/nesting.h"
#include "support/symbols.h"

namespace bolt::session {
namespace {

/// Which sizes of inputs are taken to differ between calls: the user's option decides, otherwise the settings
/// in force.
Dynamic sizes_wanted(const Options& options) {
  const Settings& s = Settings::get();
  if (!s.dynamic_shapes) return Dynamic::never;
  if (options.dynamic) return *options.dynamic ? Dynamic::always : Dynamic::never;
  if (!s.assume_static_by_default) return Dynamic::always;
  return s.automatic_dynamic_shapes ? Dynamic::changed : Dynamic::never;
}

std::vector<at::Tensor> tensors_of(PyObject* tuple) {
  std::vector<at::Tensor> tensors;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    tensors.push_back(THPVariable_Unpack(PyTuple_GET_ITEM(tuple, i)));
  return tensors;
}

}  // namespace

bool is_on_object(const guard::Source& source) {
  bool on_object = source.is_static;
  for (const guard::Source* s = &source; s; s = s->parent)
    on_object |= s->access == guard::Access::instance_dict;
  return on_object;
}

Bridge::Bridge(const Options& options, const guard::Differences& changed, bool may_advance)
    : options_(options), which_(sizes_wanted(options)), changed_(changed), may_advance_(may_advance) {
  recorder.on_escape = [this] {
    if (on_escape) on_escape();
  };
  if (lends_open()) lends_items_ = &recorder.lends_items;
  news_ = &recorder.news();
}

// ---- tensors and what operators did to them ----

void Bridge::input(PyObject* tensor, int slot, const guard::Source& source,
                   const std::vector<std::string>& names) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  slots_[t.unsafeGetTensorImpl()] = slot;
  if (t.unsafeGetTensorImpl()->is_python_dispatch()) return;  // its class may have ideas about its sizes
  const Marks marks = marks_of(tensor);
  const uint64_t dims = dynamic_dims(t, source, names, marks);
  if (uint64_t wanted = marks.dynamic & dims) marked.emplace_back(slot, wanted);
  if (marks.dynamic && which_ != Dynamic::never && t.layout() == c10::kStrided && t.numel() > 1 &&
      !nesting_of(t.sizes(), t.strides())) {
    const int dim = std::countr_zero(marks.dynamic);
    refused.push_back({slot, dim, t.size(dim)});
  }
  for (const auto& [dim, low, high] : marks.ranges)
    if (dims >> dim & 1) ranges_.push_back({slot, dim, low, high});
  if (!dims) return;
  dynamic_[slot] = dims;
  recorder.follows_sizes = sizes_differ_ = true;
}

int Bridge::output(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  auto id = recorder.find(t);
  // A class that sees operators (__torch_dispatch__) keeps more about its tensors than operators tell.
  if (!id || t.unsafeGetTensorImpl()->is_python_dispatch()) return -1;
  wanted.push_back(*id);
  results_.push_back(t);
  return static_cast<int>(wanted.size()) - 1;
}

void Bridge::note_backward_passes(const std::shared_ptr<run::DoubleBackward>& noted) const {
  for (const at::Tensor& t : results_) run::note_passes_over(t, first_node_, noted);
  for (const at::Tensor& t : recorder.inputs()) run::note_passes_over(t, first_node_, noted);
}

bool Bridge::knows(PyObject* tensor) { return recorder.find(THPVariable_Unpack(tensor)).has_value(); }

Py_ssize_t Bridge::references_to(PyObject* tensor) {
  const auto& inputs = recorder.inputs();
  return std::count_if(
      inputs.begin(), inputs.end(),
      [impl = guard::tensor_impl(tensor)](const at::Tensor& t) { return t.unsafeGetTensorImpl() == impl; });
}

int64_t Bridge::writes(PyObject* tensor) { return recorder.writes(THPVariable_Unpack(tensor)); }

void Bridge::own_version(PyObject* tensor) {
  recorder.own_version(THPVariable_Unpack(tensor));
  guard::note_handed_out(THPVariable_Unpack(tensor));
}

bool Bridge::given_data(PyObject* tensor, PyObject* data) {
  return recorder.given_data(THPVariable_Unpack(tensor), THPVariable_Unpack(data));
}

PyObject* Bridge::places_behind(PyObject* outputs, PyObject* asked) {
  if (options_.road != run::Road::compile || options_.backend || ends_before_backward) return nullptr;
  // Forward and backward pass would be replayed, and the update with them, which can be compiled apart.
  const bool sizes_differ = std::ranges::any_of(dynamic_, [](const auto& slot) { return slot.second != 0; });
  if (sizes_differ || record::is_better_apart(recorder.tape())) return nullptr;
  std::vector<at::Tensor> outside;  // what the run made of numbers has no history but the run's
  for (size_t i = 0; i < recorder.inputs().size(); ++i)
    if (!recorder.constants().contains(static_cast<int>(i))) outside.push_back(recorder.inputs()[i]);
  const auto places = record::places_behind(tensors_of(outputs), tensors_of(asked), outside, first_node_);
  if (!places) return nullptr;
  PyRef tuple = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(places->size())));
  for (size_t i = 0; tuple && i < places->size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), THPVariable_Wrap((*places)[i]));
  return tuple.release();
}

std::optional<std::pair<int64_t, int64_t>> Bridge::contents(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  const auto id = recorder.find(t);
  const int64_t writes = id ? recorder.writes(t) : -1;
  return writes < 0 ? std::nullopt : std::optional(std::pair(int64_t{*id}, writes));
}

std::optional<std::vector<PyRef>> Bridge::made_of(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  if (recorder.writes(t) != 0) return std::nullopt;
  const auto id = recorder.find(t);
  std::vector<PyRef> origins;
  if (!id) return origins.push_back(PyRef::share(tensor)), origins;
  const auto from = record::origins_of(recorder.tape(), *id);
  if (!from) return std::nullopt;
  for (record::TensorId each : *from) {
    const int input = recorder.tape().tensors[static_cast<size_t>(each)].input;
    if (recorder.constants().contains(input)) continue;
    origins.push_back(PyRef::steal(THPVariable_Wrap(recorder.inputs()[static_cast<size_t>(input)])));
  }
  return origins;
}

bool Bridge::differentiates() {
  const auto& entries = recorder.tape().entries;
  return std::any_of(entries.begin(), entries.end(), [](const record::Entry& e) { return e.grad_mode; });
}

bool Bridge::worked_since(size_t from) {
  const record::Tape& tape = recorder.tape();
  auto is_large = [&](record::TensorId id) { return tape.tensors[static_cast<size_t>(id)].elements() > 1; };
  for (size_t i = from; i < tape.entries.size(); ++i) {
    const record::Entry& entry = tape.entries[i];
    const bool large =
        record::any_tensor(entry.args, is_large) || record::any_tensor(entry.results, is_large);
    const bool is_view = lower::is_view(entry, tape) && record::written_arguments(entry).empty();
    if (large && !is_view) return true;
  }
  return false;
}

bool Bridge::gives_followed(size_t from) {
  const auto& tensors = recorder.tape().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [&](const record::TensorInfo& t) {
    return t.requires_grad && t.producer >= static_cast<int>(from);
  });
}

std::vector<bool> Bridge::memory_matters(size_t slots) {
  const record::Tape& tape = recorder.tape();
  std::unordered_set<int> storages;
  auto add = [&](record::TensorId id) {
    if (id >= 0) storages.insert(tape.tensors[static_cast<size_t>(id)].storage);
  };
  for (size_t i : run::VisibleWrites(tape).inputs) add(tape.inputs[i]);
  for (record::TensorId id : wanted) add(id);
  std::vector<bool> matters(slots, false);
  for (const auto& [merged, into] : recorder.merged())
    if (const int* slot = slots_.find(merged)) {
      matters[static_cast<size_t>(*slot)] = true;
      add(into);
    }
  for (record::TensorId id : tape.inputs) {
    const record::TensorInfo& info = tape.tensors[static_cast<size_t>(id)];
    const int slot = slot_of(recorder.inputs()[static_cast<size_t>(info.input)]);
    if (slot >= 0 && storages.count(info.storage)) matters[static_cast<size_t>(slot)] = true;
  }
  return matters;
}

std::string Bridge::trace() {
  if (recorder.transformed()) return "it was within a transform of torch.func";
  if (recorder.changed_inputs()) return "it changed a tensor's sizes or whether it requires a gradient";
  const auto written = run::VisibleWrites(recorder.tape(), recorder.constants()).entries;
  if (written.empty()) return "";
  return recorder.tape().entries[written[0].index].op.operator_name().name + " wrote to a tensor";
}

// ---- sizes and numbers ----

bool Bridge::rests_on_data(Sym size) {
  if (!recorder.has_data_sizes()) return false;
  Syms inside;
  collect_symbols(size, &inside);
  return std::any_of(inside.begin(), inside.end(), [&](Sym s) {
    const record::TensorId id = tensor_of_size(*s.node());
    return id >= 0 && recorder.tape().tensors[static_cast<size_t>(id)].data_sized;
  });
}

Sym Bridge::size_of(PyObject* tensor, int dim) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  auto id = recorder.find(t);
  if (!id && slot_of(t) >= 0 && !recorder.stopped()) id = recorder.input_id(t);
  return id ? size_of(*id, dim) : t.size(dim);
}

Sym Bridge::size_of(record::TensorId id, int dim) {
  const record::TensorInfo& info = recorder.tape().tensors[static_cast<size_t>(id)];
  const Sym recorded = info.sizes[static_cast<size_t>(dim)];
  if (!follows_sizes()) return recorded;
  if (info.input >= 0 && !(dynamic_of(recorder.inputs()[static_cast<size_t>(info.input)]) >> dim & 1))
    return recorded;
  record::SizeOrigin origin{id, dim};
  if (info.data_sized) origin = record::selected_size(recorder.tape(), id, dim).value_or(origin);
  return may_have_other_sizes(origin.tensor) ? tape_symbol(origin.tensor, origin.dim) : recorded;
}

/// In other calls. What an operator gives is as large as before where nothing that it is given differs but
/// numbers that it computes with.
bool Bridge::may_have_other_sizes(record::TensorId id) {
  const record::Tape& tape = recorder.tape();
  auto gives_others = [&](const record::Entry& entry) {
    const auto differs = [&](record::TensorId given) {
      return given >= 0 && may_have_other_sizes_[static_cast<size_t>(given)];
    };
    if (entry.facts->finds_sizes || record::may_be_sized_by_symbols(entry)) return true;
    return std::ranges::any_of(entry.args, [&](const record::Arg& arg) {
      const bool is_taken_out = arg.kind == record::Arg::Kind::Value && !arg.tensors.empty();
      return is_taken_out || std::ranges::any_of(arg.tensors, differs);
    });
  };
  // An operator is given what was there before.
  for (size_t next = may_have_other_sizes_.size(); next <= static_cast<size_t>(id); ++next) {
    const record::TensorInfo& info = tape.tensors[next];
    may_have_other_sizes_.push_back(info.input >= 0
                                        ? dynamic_of(recorder.inputs()[static_cast<size_t>(info.input)]) != 0
                                        : info.producer < 0 ||
                                              gives_others(tape.entries[static_cast<size_t>(info.producer)]));
  }
  return may_have_other_sizes_[static_cast<size_t>(id)];
}

std::vector<std::pair<Sym, int64_t>> Bridge::differing_strides() {
  std::vector<std::pair<Sym, int64_t>> strides;
  for (record::TensorId id : recorder.tape().inputs) {
    const record::TensorInfo& info = recorder.tape().tensors[static_cast<size_t>(id)];
    const uint64_t dims = dynamic_of(recorder.inputs()[static_cast<size_t>(info.input)]);
    for (size_t d = 0; d < info.strides.size() && d < kStrideBit; ++d)
      if (dims >> (d + kStrideBit) & 1)
        strides.emplace_back(tape_symbol(id, static_cast<int>(d) + kStrideBit), info.strides[d]);
  }
  return strides;
}

// Who asks for a size makes the tensor an input (size_of), as operators do.
std::vector<std::pair<int, uint64_t>> Bridge::unread_sizes() {
  std::map<int, uint64_t> unread(dynamic_.begin(), dynamic_.end());
  for (const at::Tensor& t : recorder.inputs()) unread.erase(slot_of(t));
  for (const auto& [merged, into] : recorder.merged())
    if (const int* slot = slots_.find(merged)) unread.erase(*slot);
  return {unread.begin(), unread.end()};
}

bool Bridge::follows_numbers() {
  return which_ == Dynamic::always || (which_ != Dynamic::never && !changed_.numbers.empty());
}

bool Bridge::follows_number(PyObject* object, const guard::Source& source,
                            const std::vector<std::string>& names) {
  if (!follows_numbers()) return false;
  const bool text = PyUnicode_Check(object);  // no size rests on it
  const bool follows =
      (which_ == Dynamic::always && !text && !is_on_object(source)) ||
      (!changed_.numbers.empty() && (changed_.numbers.count(source.str(names)) > 0 ||
                                     (!text && alike_.hold(changed_.numbers, source.str(names)))));
  if (follows && !text) recorder.follows_sizes = sizes_differ_ = true;
  return follows;
}

bool Bridge::may_know_number(const guard::Source& source, const std::vector<std::string>& names, int most) {
  if (changed_.times.empty()) return true;
  const auto at = changed_.times.find(source.str(names));
  return at == changed_.times.end() || at->second < most;
}

bool Bridge::follows_within(const guard::Source& source, const std::vector<std::string>& names) {
  if (which_ == Dynamic::always || !follows_numbers()) return follows_numbers();
  const std::string place = source.str(names);
  const auto at = changed_.numbers.lower_bound(place);
  return (at != changed_.numbers.end() && at->starts_with(place)) ||
         alike_.may_lie_within(changed_.numbers, place);
}

bool Bridge::follows_length(const guard::Source& source, const std::vector<std::string>& names) {
  if (which_ == Dynamic::never || changed_.numbers.empty()) return false;
  const bool follows = changed_.numbers.count(source.length_str(names)) > 0;
  if (follows) recorder.follows_sizes = sizes_differ_ = true;
  return follows;
}

PyObject* Bridge::lend(Sym size, int64_t value, const std::shared_ptr<SizeNotes>& notes) {
  HANDLE_TH_ERRORS
  return pybind11::cast(record::make_symint(size, value, notes)).release().ptr();
  END_HANDLE_TH_ERRORS
}

PyObject* Bridge::lend_float(Sym symbol, double value, const std::shared_ptr<SizeNotes>& notes) {
  HANDLE_TH_ERRORS
  recorder.follows_sizes = true;
  const c10::SymFloat number = record::make_symfloat(symbol, value, notes);
  return torch::get_symfloat_class()(pybind11::cast(number.toSymNodeImpl())).release().ptr();
  END_HANDLE_TH_ERRORS
}

PyObject* Bridge::lend_data(Sym symbol, PyObject* number, PyObject* tensor,
                            const std::shared_ptr<SizeNotes>& notes) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  auto id = recorder.find(t);
  if (!id || t.numel() != 1) return nullptr;
  recorder.data[symbol] = *id;
  recorder.follows_sizes = true;
  return PyFloat_CheckExact(number) ? lend_float(symbol, PyFloat_AS_DOUBLE(number), notes)
                                    : lend(symbol, PyLong_AsLongLong(number), notes);
}

std::optional<Sym> Bridge::size_in(PyObject* number) {
  const auto id = recorder.find(THPVariable_Unpack(number));
  const auto origin = id ? record::size_in(recorder.tape(), *id) : std::nullopt;
  if (!origin) return std::nullopt;
  const record::TensorInfo& info = recorder.tape().tensors[static_cast<size_t>(origin->tensor)];
  if (info.data_sized) return std::nullopt;
  return size_of(origin->tensor, origin->dim);
}

std::optional<Sym> Bridge::size_from(PyObject* tensor, int64_t element) {
  return lends_open() ? recorder.size_from(THPVariable_Unpack(tensor), element) : std::nullopt;
}

bool Bridge::expect(PyObject* tensor, bool value, const std::string& where) {
  return lends_open() && recorder.expect(THPVariable_Unpack(tensor), value, where);
}

// ---- the course of the recording ----

const Reason* Bridge::wants_end() {
  static const Reason very_long = Why::very_long;
  return recorder.is_very_long() ? &very_long : recorder.escaped();
}

bool Bridge::may_idle() { return !options_.fullgraph; }

bool Bridge::proves_guards() const { return strict(); }

// ---- for whoever makes an entry of it ----

int Bridge::slot_of(const at::Tensor& t) const {
  const int* slot = slots_.find(t.unsafeGetTensorImpl());
  return slot ? *slot : -1;
}

uint64_t Bridge::dynamic_of(const at::Tensor& t) const {
  auto dims = dynamic_.find(slot_of(t));
  return dims == dynamic_.end() ? 0 : dims->second;
}

std::vector<SizeFact> Bridge::further_facts() {
  std::vector<SizeFact> facts;
  for (const auto& [stride, value] : differing_strides())
    if (recorder.transformed()) facts.push_back({stride, Relation::eq, value, "a transform of torch.func"});
  for (const auto& id : recorder.tape().inputs) {
    const record::TensorInfo& info = recorder.tape().tensors[static_cast<size_t>(id)];
    const uint64_t dims = recorder.transformed() ? dynamic_of(recorder.inputs()[info.input]) : 0;
    for (size_t d = 0; d < info.sizes.size() && d < 64; ++d)
      if (dims >> d & 1)
        facts.push_back(
            {tape_symbol(id, static_cast<int>(d)), Relation::eq, info.sizes[d], "a transform of torch.func"});
  }
  for (const auto& id : recorder.tape().inputs) {
    const int input = recorder.tape().tensors[static_cast<size_t>(id)].input;
    const int slot = slot_of(recorder.inputs()[static_cast<size_t>(input)]);
    for (const auto& r : ranges_) {
      if (r.slot != slot) continue;
      const Sym size = tape_symbol(id, r.dim);
      if (r.low) facts.push_back({*r.low, Relation::le, size, "mark_dynamic(min=)"});
      if (r.high) facts.push_back({size, Relation::le, *r.high, "mark_dynamic(max=)"});
    }
  }
  return facts;
}

/// Of the tensor of a list: the sizes of which Python has seen other ones, as lengths.
static uint64_t lengths_that_differ(guard::Source& list, at::IntArrayRef sizes,
                                    const std::set<std::string>& changed,
                                    const std::vector<std::string>& names) {
  uint64_t dims = changed.count(list.length_str(names)) ? 1 : 0;
  for (int64_t i = 0; sizes.size() > 1 && i < sizes[0]; ++i) {
    guard::Source part = guard::item_of(list, i);
    dims |= lengths_that_differ(part, sizes.slice(1), changed, names) << 1;
  }
  return dims;
}

static uint64_t sizes_equal_to(const at::Tensor& t, PyObject* number) {
  uint64_t dims = 0;
  int overflow = 0;
  const long long value = PyLong_Check(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
  for (int64_t d = 0; d < t.dim() && d < kStrideBit; ++d)
    if (t.size(d) == value) dims |= uint64_t{1} << d;
  return dims;
}

// Which sizes are recorded as symbols, and which strides. 0 and 1 never are, nor those of strided windows.
uint64_t Bridge::dynamic_dims(const at::Tensor& t, const guard::Source& source,
                              const std::vector<std::string>& names, const Marks& marks) {
  if (which_ == Dynamic::never) return 0;
  const uint64_t lengths = source.access == guard::Access::list_tensor
                               ? lengths_that_differ(*source.parent, t.sizes(), changed_.numbers, names)
                               : 0;
  // Of what a number chooses, those that are that number: a mask for each length.
  const uint64_t chosen = source.access == guard::Access::chosen ? sizes_equal_to(t, source.start) : 0;
  if (which_ == Dynamic::changed && changed_.sizes.empty() && !marks.dynamic && !marks.maybe && !lengths &&
      !chosen)
    return 0;
  if (t.layout() != c10::kStrided || t.is_nested()) return 0;
  const auto nesting = nesting_of(t.sizes(), t.strides());
  // Another compiler is told of sizes only.
  const bool tells_gaps = !options_.backend && options_.road != run::Road::functional;
  if (!nesting || (!tells_gaps && !t.is_non_overlapping_and_dense())) return 0;
  uint64_t dims = lengths | chosen;
  // Where one size changes, the batch most likely does too, and costs a program little.
  if (auto found = changed_.sizes.find(source.str(names)); found != changed_.sizes.end())
    dims |= found->second | 1;
  if (which_ == Dynamic::always && !is_on_object(source)) dims = ~uint64_t{0};
  const bool any_stride = (marks.dynamic | marks.maybe) || which_ == Dynamic::always;
  const uint64_t gaps = tells_gaps ? nesting->gaps & (any_stride ? ~uint64_t{0} : dims >> kStrideBit) : 0;
  dims = (dims & ~marks.fixed) | marks.dynamic | marks.maybe;
  for (const auto& [d, low, high] : marks.ranges)  // what lies outside is compiled apart
    if (d < t.dim() && ((low && t.size(d) < *low) || (high && t.size(d) > *high)))
      dims &= ~(uint64_t{1} << d);
  for (int64_t d = 0; d < 64; ++d)
    if (d >= t.dim() || d >= kStrideBit || t.size(d) < 2) dims &= ~(uint64_t{1} << d);
  return dims || changed_.sizes.count(source.str(names)) ? dims | gaps << kStrideBit : 0;
}

}  // namespace bolt::session
