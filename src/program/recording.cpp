// program/recording.cpp
// A run, recorded -> an entry: joins the observer of Python with the recorder of operators, hands both their
// findings to the compiler, and deals with what cannot be kept.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "compile.h"
#include "guard/leaf.h"
#include "program/attempt.h"
#include "program/backend.h"
#include "program/background.h"
#include "program/compiled.h"
#include "program/exceptions.h"
#include "program/marks.h"
#include "program/settings.h"
#include "program/stats.h"
#include "record/recorder.h"
#include "record/symint.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/log.h"
#include "support/pointer_map.h"
#include "support/symbols.h"

namespace bolt::program {
namespace {

/// A loop unrolled further than this is cut, rather than compiled for minutes.
constexpr size_t kMostOperators = 20000;

/// A tensor found on an object (a module's parameter or buffer, a global) rather than among the arguments: it
/// is the same at every call, most likely.
bool is_on_object(const guard::Source& source) {
  bool on_object = source.is_static;
  for (const guard::Source* s = &source; s; s = s->parent)
    on_object |= s->access == guard::Access::instance_dict;
  return on_object;
}

/// A dimension that mark_dynamic asked for and that became a number: an error that names what forced it.
bool raise_given_up(const Entry& entry) {
  if (!entry.region || Settings::get().allow_ignore_mark_dynamic) return false;
  const auto& region = *entry.region;
  for (const autograd::SizeSymbol& s : region.size_symbols)
    for (const auto& [slot, dims] : entry.marked) {
      if (s.input < 0 || entry.tape_input_slot[static_cast<size_t>(s.input)] != slot || !(dims >> s.dim & 1))
        continue;
      for (const SizeFact& f : region.size_facts) {
        if (f.relation != Relation::eq || f.a != s.symbol || !f.b.is_const()) continue;
        set_exception("ConstraintViolationError",
                      "torchbolt: size " + std::to_string(s.dim) + " of " + entry.guards->place_of(slot) +
                          " was marked with mark_dynamic, but the program only holds for " + f.b.str() + "." +
                          (f.where.empty() ? "" : " What forced it: " + f.where) +
                          "\nRemove the mark, use maybe_mark_dynamic, or change that line.");
        return true;
      }
    }
  return false;
}

bool strict() { return knob_bool("TORCHBOLT_STRICT") || !Settings::get().suppress_errors; }

/// As the settings are now.
Dynamic sizes_wanted(const Options& options) {
  const Settings& s = Settings::get();
  if (!s.dynamic_shapes) return Dynamic::never;
  if (options.dynamic) return *options.dynamic ? Dynamic::always : Dynamic::never;
  if (!s.assume_static_by_default) return Dynamic::always;
  return s.automatic_dynamic_shapes ? Dynamic::changed : Dynamic::never;
}

/// Joins the observer of Python with the recorder of operators.
class Bridge final : public observe::RecorderHooks {
 public:
  Bridge(const Options& options, const guard::Differences& changed)
      : options_(options), which_(sizes_wanted(options)), changed_(changed) {
    recorder.on_escape = [this] {
      if (on_escape) on_escape();
    };
  }
  Dynamic which() const { return which_; }

  void input(PyObject* tensor, int slot, const guard::Source& source,
             const std::vector<std::string>& names) override {
    const at::Tensor& t = THPVariable_Unpack(tensor);
    slots_[t.unsafeGetTensorImpl()] = slot;
    const Marks marks = marks_of(tensor);
    const uint64_t dims = dynamic_dims(t, source, names, marks);
    if (uint64_t wanted = marks.dynamic & dims) marked.emplace_back(slot, wanted);
    for (const auto& [dim, low, high] : marks.ranges)
      if (dims >> dim & 1) ranges_.push_back({slot, dim, low, high});
    if (!dims) return;
    dynamic_[slot] = dims;
    recorder.follows_sizes = sizes_differ_ = true;
  }
  bool follows_sizes() override { return sizes_differ_ |= recorder.found_sizes(); }
  bool is_open(Sym size) override {
    if (!recorder.found_sizes()) return false;
    Syms inside;
    collect_symbols(size, &inside);
    return std::any_of(inside.begin(), inside.end(), [&](Sym s) {
      const record::TensorId id = tensor_of_size(*s.node());
      return id >= 0 && recorder.tape().tensors[static_cast<size_t>(id)].data_sized;
    });
  }
  Sym size_of(PyObject* tensor, int dim) override {
    const at::Tensor& t = THPVariable_Unpack(tensor);
    auto id = recorder.find(t);
    if (!id && slot_of(t) >= 0 && !recorder.stopped()) id = recorder.input_id(t);
    if (!id || !follows_sizes()) return t.size(dim);
    const record::TensorInfo& info = recorder.tape().tensors[static_cast<size_t>(*id)];
    if (info.input >= 0) {
      auto dims = dynamic_.find(slot_of(t));
      if (dims == dynamic_.end() || !(dims->second >> dim & 1)) return t.size(dim);
    }
    return tape_symbol(*id, dim);
  }
  PyObject* lend(Sym size, int64_t value, const std::shared_ptr<SizeNotes>& notes) override {
    HANDLE_TH_ERRORS
    return pybind11::cast(record::make_symint(size, value, notes)).release().ptr();
    END_HANDLE_TH_ERRORS
  }
  PyObject* lend_float(Sym symbol, double value, const std::shared_ptr<SizeNotes>& notes) override {
    HANDLE_TH_ERRORS
    recorder.follows_sizes = true;
    const c10::SymFloat number = record::make_symfloat(symbol, value, notes);
    return torch::get_symfloat_class()(pybind11::cast(number.toSymNodeImpl())).release().ptr();
    END_HANDLE_TH_ERRORS
  }
  PyObject* lend_data(Sym symbol, PyObject* number, PyObject* tensor,
                      const std::shared_ptr<SizeNotes>& notes) override {
    const at::Tensor& t = THPVariable_Unpack(tensor);
    auto id = recorder.find(t);
    if (!id || t.numel() != 1) return nullptr;
    recorder.data[symbol] = *id;
    recorder.follows_sizes = true;
    return PyFloat_CheckExact(number) ? lend_float(symbol, PyFloat_AS_DOUBLE(number), notes)
                                      : lend(symbol, PyLong_AsLongLong(number), notes);
  }
  std::optional<Sym> size_from(PyObject* tensor, int64_t element) override {
    return lends_open() ? recorder.size_from(THPVariable_Unpack(tensor), element) : std::nullopt;
  }
  bool expect(PyObject* tensor, bool value, const std::string& where) override {
    return lends_open() && recorder.expect(THPVariable_Unpack(tensor), value, where);
  }
  std::optional<std::pair<int64_t, int64_t>> contents(PyObject* tensor) override {
    const at::Tensor& t = THPVariable_Unpack(tensor);
    const auto id = recorder.find(t);
    const int64_t writes = id ? recorder.writes(t) : -1;
    return writes < 0 ? std::nullopt : std::optional(std::pair(int64_t{*id}, writes));
  }
  void lend_items(bool on) override { recorder.lends_items = on && lends_open(); }
  bool lends_open() override { return options_.road == Road::compile && !options_.backend; }
  bool follows_numbers() override {
    return which_ == Dynamic::always || (which_ != Dynamic::never && !changed_.numbers.empty());
  }
  bool follows_number(PyObject*, const guard::Source& source,
                      const std::vector<std::string>& names) override {
    if (!follows_numbers()) return false;
    const bool follows = (which_ == Dynamic::always && !is_on_object(source)) ||
                         (!changed_.numbers.empty() && changed_.numbers.count(source.str(names)) > 0);
    if (follows) recorder.follows_sizes = sizes_differ_ = true;
    return follows;
  }
  size_t recorded() override { return recorder.tape().entries.size(); }
  /// Of a tape input.
  uint64_t dynamic_of(const at::Tensor& t) const {
    auto dims = dynamic_.find(slot_of(t));
    return dims == dynamic_.end() ? 0 : dims->second;
  }
  int output(PyObject* tensor) override {
    const at::Tensor& t = THPVariable_Unpack(tensor);
    auto id = recorder.find(t);
    // A class that sees operators (__torch_dispatch__) keeps more about its tensors than operators tell.
    if (!id || t.unsafeGetTensorImpl()->is_python_dispatch()) return -1;
    wanted.push_back(*id);
    return static_cast<int>(wanted.size()) - 1;
  }
  int64_t writes(PyObject* tensor) override { return recorder.writes(THPVariable_Unpack(tensor)); }
  void own_version(PyObject* tensor) override { recorder.own_version(THPVariable_Unpack(tensor)); }
  void take_back() override { recorder.take_back(); }
  bool knows(PyObject* tensor) override { return recorder.find(THPVariable_Unpack(tensor)).has_value(); }
  void instruction(const char* file, const char* function, int line) override {
    recorder.instruction(file, function, line);
  }
  const char* wants_end() override {
    if (recorder.tape().entries.size() >= kMostOperators) return "the region has become very long";
    return recorder.escaped().empty() ? nullptr : recorder.escaped().c_str();
  }
  bool end_may_raise() override { return recorder.escaped_raises(); }
  const char* raised() override { return recorder.raised().empty() ? nullptr : recorder.raised().c_str(); }
  bool in_operator() const override { return recorder.in_operator(); }
  bool changed_inputs() override { return recorder.changed_inputs(); }
  bool placed() override { return recorder.placed(); }
  std::string trace() override {
    if (recorder.transformed()) return "it was within a transform of torch.func";
    if (recorder.changed_inputs()) return "it changed a tensor's sizes or whether it requires a gradient";
    const auto written = VisibleWrites(recorder.tape(), recorder.constants()).entries;
    if (written.empty()) return "";
    return recorder.tape().entries[written[0].index].op.operator_name().name + " wrote to a tensor";
  }
  bool proves_guards() const override { return strict(); }
  void pause(bool on) override { recorder.pause(on); }
  bool differentiates() override {
    const auto& entries = recorder.tape().entries;
    return std::any_of(entries.begin(), entries.end(), [](const record::Entry& e) { return e.grad_mode; });
  }
  void end_region(bool before_instruction) override { recorder.stop(before_instruction); }
  std::vector<bool> memory_matters(size_t slots) override {
    const record::Tape& tape = recorder.tape();
    std::unordered_set<int> storages;
    auto add = [&](record::TensorId id) {
      if (id >= 0) storages.insert(tape.tensors[static_cast<size_t>(id)].storage);
    };
    for (size_t i : VisibleWrites(tape).inputs) add(tape.inputs[i]);
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

  // Who asks for a size makes the tensor an input (size_of), as operators do.
  std::vector<std::pair<int, uint64_t>> unread_sizes() override {
    std::map<int, uint64_t> unread(dynamic_.begin(), dynamic_.end());
    for (const at::Tensor& t : recorder.inputs()) unread.erase(slot_of(t));
    for (const auto& [merged, into] : recorder.merged())
      if (const int* slot = slots_.find(merged)) unread.erase(*slot);
    return {unread.begin(), unread.end()};
  }

  int slot_of(const at::Tensor& t) const {
    const int* slot = slots_.find(t.unsafeGetTensorImpl());
    return slot ? *slot : -1;
  }

  /// What is known of sizes beyond what was asked: mark_dynamic's limits, and sizes that must be what they
  /// were.
  std::vector<SizeFact> further_facts() {
    std::vector<SizeFact> facts;
    for (const auto& id : recorder.tape().inputs) {
      const record::TensorInfo& info = recorder.tape().tensors[static_cast<size_t>(id)];
      const uint64_t dims = recorder.transformed() ? dynamic_of(recorder.inputs()[info.input]) : 0;
      for (size_t d = 0; d < info.sizes.size() && d < 64; ++d)
        if (dims >> d & 1)
          facts.push_back({tape_symbol(id, static_cast<int>(d)), Relation::eq, info.sizes[d],
                           "a transform of torch.func"});
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

  record::Recorder recorder;
  std::vector<record::TensorId> wanted;
  std::vector<std::pair<int, uint64_t>> marked;  ///< dimensions the user wants to be symbols, by slot

 private:
  // Which sizes are recorded as symbols. 0 and 1 never are, nor those of strided windows.
  uint64_t dynamic_dims(const at::Tensor& t, const guard::Source& source,
                        const std::vector<std::string>& names, const Marks& marks) {
    if (which_ == Dynamic::never) return 0;
    if (which_ == Dynamic::changed && changed_.sizes.empty() && !marks.dynamic && !marks.maybe) return 0;
    if (t.layout() != c10::kStrided || !t.is_non_overlapping_and_dense()) return 0;
    uint64_t dims = 0;
    // Where one size changes, the batch most likely does too, and costs a program little.
    if (auto found = changed_.sizes.find(source.str(names)); found != changed_.sizes.end())
      dims = found->second | 1;
    if (which_ == Dynamic::always && !is_on_object(source)) dims = ~uint64_t{0};
    dims = (dims & ~marks.fixed) | marks.dynamic | marks.maybe;
    for (const auto& [d, low, high] : marks.ranges)  // what lies outside is compiled apart
      if (d < t.dim() && ((low && t.size(d) < *low) || (high && t.size(d) > *high)))
        dims &= ~(uint64_t{1} << d);
    for (int64_t d = 0; d < 64; ++d)
      if (d >= t.dim() || t.size(d) < 2) dims &= ~(uint64_t{1} << d);
    return dims;
  }

  struct Range {
    int slot, dim;
    std::optional<int64_t> low, high;
  };
  const Options& options_;
  const Dynamic which_;
  const guard::Differences& changed_;
  std::vector<Range> ranges_;
  bool sizes_differ_ = false;  ///< between calls: some size, or a number that sizes may come from
  PointerMap<int> slots_;      ///< by implementation
  std::unordered_map<int, uint64_t> dynamic_;  ///< by slot
};

std::vector<bool> used_inputs(const record::Tape& tape, const std::vector<record::TensorId>& wanted) {
  std::vector<bool> used(tape.inputs.size(), false);
  auto mark = [&](record::TensorId id) {
    if (id >= 0 && tape.tensors[id].input >= 0) used[tape.tensors[id].input] = true;
  };
  for (const auto& e : tape.entries)
    for (const auto& a : e.args)
      for (auto id : a.tensors) mark(id);
  for (auto id : wanted) mark(id);
  return used;
}

std::vector<bool> slots_on_objects(const guard::Program& guards) {
  std::vector<bool> out(guards.tensor_count(), false);
  for (const auto& source : guards.tree().all())
    for (const auto& a : source->assumptions) {
      if (a.check == guard::Check::tensor) out[a.number] = is_on_object(*source);
    }
  return out;
}

void warn(PyObject* category, const std::string& text) {
  if (PyErr_WarnEx(category, text.c_str(), 1) == 0) return;
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return interp::forget_error();
  PyErr_WriteUnraisable(nullptr);
}

std::string describe_break(const observe::BreakReason& reason) {
  std::string text = reason.what;
  for (auto line = reason.stack.rbegin(); line != reason.stack.rend(); ++line)
    text += "\n  at " + line->file + ":" + std::to_string(line->line) + " in " + line->function;
  return text;
}

std::string name_of(Compiled* self) {
  if (!self->options->name.empty()) return self->options->name;
  PyRef name = PyRef::steal(PyObject_GetAttrString(self->target, "__qualname__"));
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "a function";
}

/// A region could not be compiled, and the user already has eager's result: loud once.
void fall_back(Compiled* self, const std::string& what, const char* advice = "") {
  note_eager_call(self, what);
  if (!std::exchange(self->state->warned_failure, true))
    warn(PyExc_RuntimeWarning, "torchbolt could not compile a region and runs it eagerly: " + what + advice);
}

/// A failure of ours; raised in strict mode.
bool report_failure(Compiled* self, const std::string& what) {
  if (strict()) {
    note_eager_call(self, what);
    set_exception("InternalError", "torchbolt: " + what);
    return false;
  }
  fall_back(self, what, "\nPlease report this, with the output of TORCHBOLT_LOGS=+all.");
  return true;
}

/// A Python exception is set. False: it is the user's to see, and no failure of a backend that is to be
/// suppressed.
bool suppress_backends_failure(Compiled* self) {
  if (knob_bool("TORCHBOLT_STRICT") || Settings::get().suppress_errors != 1) return false;
  PyRef failure = PyRef::steal(interp::take_raised());
  PyRef exc = PyRef::steal(import_module("torchbolt.exc"));
  PyRef type = PyRef::steal(exc ? PyObject_GetAttrString(exc.get(), "BackendCompilerFailed") : nullptr);
  if (!type || !PyErr_GivenExceptionMatches(failure.get(), type.get()))
    return interp::set_raised(failure.release()), false;
  PyRef text = PyRef::steal(PyObject_Str(failure.get()));
  const char* what = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (what) fall_back(self, what);
  return what != nullptr;
}

/// So many recordings of one place that could not be kept, and it is not tried again.
constexpr int kHopeless = 2;

/// The region is ready: calls may take the entry.
void adopt(Entry& entry, std::shared_ptr<Region> region) {
  if (region->facts.fallback) ++Stats::get().eager_fallbacks;
  std::vector<int> written;
  for (int i : region->written_inputs())
    if (entry.tape_input_slot[static_cast<size_t>(i)] >= 0)
      written.push_back(entry.tape_input_slot[static_cast<size_t>(i)]);
  entry.guards->forbid_new_overlap(written);
  std::vector<guard::SizeSource> sizes;
  for (const autograd::SizeSymbol& s : region->size_symbols)
    sizes.push_back(
        {s.symbol, s.input < 0 ? -1 : entry.tape_input_slot[static_cast<size_t>(s.input)], s.dim, s.divisor});
  entry.guards->free_sizes(std::move(sizes), region->size_facts, region->number_sizes);
  entry.region = std::move(region);
}

/// compile(), with whatever it throws as text.
void try_compile(Recorded recorded, std::shared_ptr<Region>& region, std::string& failure,
                 bool& ends_at_found_sizes) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  try {
    region = compile(std::move(recorded));
  } catch (const EndsAtFoundSizes& e) {
    failure = e.what();
    ends_at_found_sizes = true;
  } catch (const std::exception& e) {
    failure = e.what();
  } catch (...) {
    failure = "the compiler threw something that is not a std::exception";
  }
}

/// Which argument it is, or is found in. The state of an object (a module's parameters) is none.
int argument_of(const guard::Source* source) {
  for (; source->parent; source = source->parent)
    if (source->access == guard::Access::instance_dict) return BackendInput::kNoArgument;
  return source->access == guard::Access::root ? static_cast<int>(source->index) : BackendInput::kNoArgument;
}

std::vector<BackendInput> backend_inputs(const Entry& entry, const std::vector<at::Tensor>& tensors,
                                         const std::vector<bool>& used) {
  std::vector<BackendInput> out(tensors.size());
  const guard::SourceTree& tree = entry.guards->tree();
  for (guard::Source* source : tree.all())
    for (const auto& a : source->assumptions) {
      if (a.check != guard::Check::tensor) continue;
      for (size_t i = 0; i < out.size(); ++i) {
        if (entry.tape_input_slot[i] != a.number || !used[i]) continue;
        out[i] = {tensors[i], source->str(tree.root_names), argument_of(source)};
      }
    }
  return out;
}

/// Compiles what was recorded into `entry`, now or in the background. False: it is of no use.
bool build_region(Compiled* self, const std::shared_ptr<Entry>& entry, Bridge& bridge,
                  observe::Observation& seen) {
  record::Recorder& recorder = bridge.recorder;
  Recorded recorded;
  recorded.obstacle = recorder.obstacle();
  auto used = used_inputs(recorder.tape(), bridge.wanted);
  auto on_objects = slots_on_objects(*entry->guards);
  for (size_t i = 0; i < recorder.inputs().size(); ++i) {
    const int slot = bridge.slot_of(recorder.inputs()[i]);
    auto constant = recorder.constants().find(static_cast<int>(i));
    if (slot < 0 && used[i]) {
      if (constant == recorder.constants().end())
        throw Error(ErrorKind::Internal,
                    "an operator used a tensor that came from nowhere the recording knows (input " +
                        std::to_string(i) + ")");
      recorded.constants.insert(*constant);
    }
    entry->tape_input_slot.push_back(slot);
    recorded.is_param.push_back(slot >= 0 && on_objects[slot]);
    recorded.dynamic.push_back(bridge.dynamic_of(recorder.inputs()[i]));
    used[i] = used[i] || recorded.dynamic.back();  // its sizes may be asked for
  }
  recorded.size_facts = std::move(seen.size_facts);
  for (SizeFact& f : bridge.further_facts()) recorded.size_facts.push_back(std::move(f));
  recorded.number_sizes = std::move(seen.number_sizes);
  recorded.number_symbols = std::move(seen.number_symbols);
  recorded.wanted = bridge.wanted;
  recorded.name = name_of(self);
  recorded.road = self->options->road;
  recorded.trace = Trace(self->options->trace, recorded.name);
  if (recorded.trace.wanted()) {
    std::string guards;
    for (const std::string& line : entry->guards->describe()) guards += line + "\n";
    recorded.trace.write("0_guards.txt", guards);
  }
  recorded.tape = std::move(recorder.tape());

  if (self->options->backend) {
    std::vector<BackendInput> inputs = backend_inputs(*entry, recorder.inputs(), used);
    adopt(*entry, compile(std::move(recorded), [&](Recorded& what, const auto& symbols) {
      return compile_with_backend(self->options->backend.get(), what, inputs, symbols);
    }));
    return true;
  }
  if (self->options->background) {
    const bool open = !recorded.number_symbols.empty() ||
                      std::any_of(recorded.dynamic.begin(), recorded.dynamic.end(), std::identity());
    auto pending = entry->pending = std::make_shared<Pending>(open);
    run_in_background([pending, recorded = std::make_shared<Recorded>(std::move(recorded))] {
      std::shared_ptr<Region> region;
      std::string failure;
      bool ends_at_found_sizes = false;
      try_compile(std::move(*recorded), region, failure, ends_at_found_sizes);
      std::lock_guard lock(pending->mutex);
      pending->ends_at_found_sizes = ends_at_found_sizes;
      pending->region = std::move(region);
      pending->failure = std::move(failure);
      pending->done = true;
    });
    return true;
  }
  std::shared_ptr<Region> region;
  std::string failure;
  bool ends_at_found_sizes = false;
  Py_BEGIN_ALLOW_THREADS;
  try_compile(std::move(recorded), region, failure, ends_at_found_sizes);
  Py_END_ALLOW_THREADS;
  if (ends_at_found_sizes) return give_up_found_sizes(self, failure), false;
  if (!region) throw std::runtime_error(failure);
  adopt(*entry, std::move(region));
  return true;
}

/// Does it run operators? One that is still being compiled does.
bool computes(const std::shared_ptr<Entry>& entry) {
  return !entry->region || !entry->region->tape().entries.empty();
}
int64_t count_computing(const Site& site) {
  return std::count_if(site.entries.begin(), site.entries.end(), computes);
}

/// Makes an entry of what was seen. False with an exception only in strict mode or for fullgraph.
bool keep(Compiled* self, Site& site, observe::Observation& seen, Bridge& bridge, size_t nargs,
          PyObject* kwnames) {
  auto& stats = Stats::get();
  bool breaks_are_errors = self->options->fullgraph;
  for (const auto& b : seen.breaks) {
    stats.count_break(b.what);
    if (constexpr size_t kMostEnds = 1000; self->state->ends.size() < kMostEnds)
      self->state->ends.push_back(b);
    breaks_are_errors |= b.is_error;
    if (log_wanted("graph_breaks")) log("graph_breaks", name_of(self) + ": " + describe_break(b));
  }
  if (breaks_are_errors && (seen.end == observe::End::broke || !seen.unsound.empty())) {
    set_exception("GraphBreak", seen.breaks.empty() ? seen.unsound : describe_break(seen.breaks[0]));
    return false;
  }
  if (seen.end == observe::End::raised) return true;
  if (!seen.cacheable() && seen.retry) return true;
  if (!seen.cacheable()) {
    ++site.hopeless;
    return report_failure(self, seen.unsound);
  }
  // Nothing to compile, from a place where guards would be checked on numbers that only pass through. What
  // writes objects is kept once: where that does not fit, a loop over keys or a shuffled list comes along.
  const bool plain = seen.end == observe::End::broke || &site != &self->state->start;
  const bool writes = !seen.recipe.effects.empty();
  if (plain && !site.never_plain && bridge.recorder.tape().entries.empty() &&
      (!writes || count_computing(site) < static_cast<int64_t>(site.entries.size()))) {
    site.plain_end = std::move(seen.last);
    const bool whole = seen.end == observe::End::returned;
    site.plain_instructions = whole ? observe::Step::kToTheEnd : seen.instructions;
    site.plain_breaks = std::move(seen.breaks);
    site.plain_serial = next_serial();
    return true;
  }
  auto entry = std::make_shared<Entry>();
  entry->instructions = seen.instructions;
  entry->guards = std::move(seen.guards);
  if (PyObject* keep = self->options->guard_filter.get(); keep && !entry->guards->filter(keep)) return false;
  entry->recipe = std::move(seen.recipe);
  entry->after = seen.after;
  entry->autocast_levels = seen.autocast_levels;
  entry->changes_thread = !(seen.after == seen.before) || seen.autocast_levels != 0;
  entry->breaks = std::move(seen.breaks);
  entry->nargs = nargs;
  entry->marked = bridge.marked;
  entry->kwnames = PyRef::share(kwnames);
  if (log_wanted("guards"))
    for (const std::string& line : entry->guards->describe()) log("guards", name_of(self) + ": " + line);
  if (!build_region(self, entry, bridge, seen)) {
    if (!self->options->fullgraph) return true;
    set_exception("GraphBreak",
                  "what comes behind an operator whose result has as many elements as its data say "
                  "cannot be compiled for all numbers of them (TORCHBOLT_LOGS=dynamic says why)");
    return false;
  }
  if (raise_given_up(*entry)) return false;
  ++stats.regions;
  if (!site.entries.empty()) ++stats.recompiles;
  site.entries.insert(site.entries.begin(), std::move(entry));
  return true;
}

/// Runs `observe` under a recorder and keeps what it saw. `misled`: it raised, may not do so where
/// is_compiling() is answered with no, and left no trace.
template <class Observe>
Outcome record(Compiled* self, Site& site, PyObject* const* roots, size_t count, size_t nargs,
               PyObject* kwnames, bool& misled, Observe observe) {
  ++Stats::get().recordings;
  // What differs between this call and those recorded before becomes a symbol.
  Bridge bridge(*self->options, site.changed);
  if (bridge.which() != Dynamic::never)
    for (const auto& entry : site.entries) entry->guards->add_differences(roots, count, site.changed);
  bridge.recorder.goes_on_with_found_sizes = self->options->road == Road::compile &&
                                             !self->options->backend && bridge.which() != Dynamic::never &&
                                             !self->state->ends_at_found_sizes;
  observe::Ran ran;
  std::unique_ptr<observe::Observation> seen;
  std::string failure;
  try {
    record::Recorder::Scope scope(bridge.recorder);
    seen = observe(bridge, ran);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  if (!ran.result && !ran.suspended) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_SystemError, "torchbolt: recording failed: %s", failure.c_str());
    if (!seen || !seen->trace || !PyErr_ExceptionMatches(PyExc_Exception)) return {};
    misled = seen->trace->empty();
    if (misled) bridge.recorder.put_back_draws();
    if (!misled && log_wanted("graph_breaks"))
      log("graph_breaks", name_of(self) +
                              ": raised where is_compiling() is true, and cannot be run again with another "
                              "answer: " +
                              *seen->trace);
    return {};
  }
  bool kept = false;
  try {
    kept = seen ? keep(self, site, *seen, bridge, nargs, kwnames) : report_failure(self, failure);
  } catch (const PythonError&) {
    kept = suppress_backends_failure(self);
    if (kept) ++site.hopeless;
  } catch (const std::exception& e) {
    ++site.hopeless;
    kept = report_failure(self, e.what());
  }
  if (kept) return {ran.result, ran.suspended};
  Py_CLEAR(ran.result);
  if (ran.suspended) interp::close_run(*ran.suspended);
  return {};
}

bool same_keywords(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b) return (a ? PyTuple_GET_SIZE(a) : 0) == (b ? PyTuple_GET_SIZE(b) : 0);
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

/// The guard of an entry that does not hold.
std::string why_not(const Entry& entry, const Given& given) {
  if (entry.nargs != given.nargs)
    return std::to_string(entry.nargs) + " positional arguments (now " + std::to_string(given.nargs) + ")";
  auto names = [](PyObject* keywords) { return keywords ? guard::short_repr(keywords) : std::string("()"); };
  if (!same_keywords(given.kwnames, entry.kwnames.get()))
    return "keywords are " + names(entry.kwnames.get()) + " (now " + names(given.kwnames) + ")";
  return entry.guards->explain_failure(given.roots, given.count);
}

std::string limit_message(Compiled* self, const Site& site, const Given& given) {
  std::string message = "torchbolt: " + name_of(self);
  if (site.entries.empty()) return message + " could not be compiled and now runs eagerly.";
  return message + " was compiled " + std::to_string(site.entries.size()) +
         " times (recompile_limit) and now runs eagerly where none of them fits. The last guard that "
         "failed: " +
         failed_guard(site, given) +
         "\nIf this value changes often, pass it as a tensor, or raise recompile_limit.";
}

}  // namespace

RecordedCall record_call(Compiled* self, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  std::vector<PyObject*> roots = {self->target};
  roots.insert(roots.end(), args, args + nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  bool misled = false;
  auto run = [&] {
    return record(self, self->state->start, roots.data(), roots.size(), nargs, kwnames, misled,
                  [&](Bridge& bridge, observe::Ran& ran) {
                    return observe::observe_call(self->target, args, nargs, kwnames, bridge, ran);
                  });
  };
  RecordedCall call{run()};
  if (!misled) return call;
  call.raised = PyRef::steal(interp::take_raised());
  Site& site = self->state->start;
  const std::shared_ptr<Entry> before = site.entries.empty() ? nullptr : site.entries.front();
  call.ends = observe::count_of_ends();
  observe::says_compiling() = false;  // until the call is over
  call.outcome = run();
  if (!site.entries.empty() && site.entries.front() != before) call.entry = site.entries.front();
  return call;
}

void settle_answer(Compiled* self, const RecordedCall& call, bool raised) {
  if (!call.raised) return;
  if (raised) {
    std::erase(self->state->start.entries, call.entry);
    observe::forget_ends_since(call.ends);
    return;
  }
  self->state->says_compiling = false;
  log("graph_breaks", name_of(self) + ": raised " + Py_TYPE(call.raised.get())->tp_name +
                          " where is_compiling() is true; from here on it is answered with no");
}

Outcome record_frames(Compiled* self, Site& site, interp::Frame* innermost) {
  const std::vector<PyObject*> roots = observe::roots_of(*innermost);
  bool misled = false;  // what came before cannot be run again
  return record(
      self, site, roots.data(), roots.size(), 0, nullptr, misled,
      [&](Bridge& bridge, observe::Ran& ran) { return observe::observe_frames(*innermost, bridge, ran); });
}

bool settle(Compiled* self, Site& site, const std::shared_ptr<Entry>& entry) {
  if (entry->region || !entry->pending) return true;
  std::shared_ptr<Region> region;
  std::string failure;
  bool ends_at_found_sizes = false;
  {
    std::lock_guard lock(entry->pending->mutex);
    if (!entry->pending->done) return true;
    ends_at_found_sizes = entry->pending->ends_at_found_sizes;
    region = std::move(entry->pending->region);
    failure = std::move(entry->pending->failure);
  }
  entry->pending = nullptr;
  if (region) {
    adopt(*entry, std::move(region));
    return true;
  }
  std::erase(site.entries, entry);
  --Stats::get().regions;
  if (ends_at_found_sizes) return give_up_found_sizes(self, failure), true;
  ++site.hopeless;
  return report_failure(self, failure);
}

void note_recompile(Compiled* self, Site& site, const Given& given) {
  if (site.entries.empty()) return;
  constexpr size_t kKept = 64;
  auto& kept = self->state->recompiles;
  if (kept.size() >= kKept) kept.erase(kept.begin());
  kept.push_back({name_of(self), failed_guard(site, given)});
  log("recompiles", kept.back().where + " is recorded again, because " + kept.back().guard);
  if (!log_wanted("recompiles_verbose") && !log_wanted("recompiles", true)) return;
  for (size_t i = 1; i < site.entries.size(); ++i)
    log(log_wanted("recompiles", true) ? "recompiles" : "recompiles_verbose",
        "  program " + std::to_string(i) + ": " + why_not(*site.entries[i], given));
}

void give_up_found_sizes(Compiled* self, const std::string& why) {
  self->state->ends_at_found_sizes = true;
  log("dynamic", name_of(self) + ": regions end where sizes are data: " + why);
}

void note_eager_call(Compiled* self, const std::string& why) {
  constexpr size_t kKept = 64;
  ++Stats::get().eager_fallbacks;
  if (log_wanted("perf_hints")) log("perf_hints", name_of(self) + " is run by eager: " + why);
  auto& kept = self->state->eager_calls;
  auto known = std::find_if(kept.begin(), kept.end(), [&](const auto& each) { return each.first == why; });
  if (known != kept.end())
    ++known->second;
  else if (kept.size() < kKept)
    kept.emplace_back(why, 1);
}

bool has_form_of(const Given& given, const Entry& entry) {
  return given.nargs == entry.nargs && same_keywords(given.kwnames, entry.kwnames.get());
}

std::string failed_guard(const Site& site, const Given& given) {
  return site.entries.empty() ? "" : why_not(*site.entries.front(), given);
}

bool is_full(Compiled* self, Site& site, const Given& given) {
  const Settings& settings = Settings::get();
  const int64_t limit =
      self->options->recompile_limit ? self->options->recompile_limit : settings.recompile_limit.load();
  size_t all = self->state->start.entries.size();
  for (const auto& [place, other] : self->state->sites) all += other->entries.size();
  // Behind the end of a region in a loop over modules lies one place for all of them: how many classes of
  // objects come along there is the program's, and no value that goes on changing.
  auto alike = [&](const auto& entry) {
    return !has_form_of(given, *entry) || !entry->guards->differs_in_class(given.roots, given.count);
  };
  constexpr int64_t kClasses = 8;  // times the limit; a class made anew for each call goes on changing, too
  const auto here = static_cast<int64_t>(site.entries.size());
  const bool full =
      here >= kClasses * limit ||
      (here >= limit && std::count_if(site.entries.begin(), site.entries.end(), alike) >= limit) ||
      static_cast<int64_t>(all) >= settings.accumulated_recompile_limit;
  if (!full && site.hopeless < kHopeless) return false;
  if (full && !site.entries.empty() && count_computing(site) == 0) return true;  // eager is given no operator
  note_eager_call(self, full ? "recompile_limit programs were compiled, and none of them fits"
                             : "its recordings could not be kept");
  if (full && (self->options->fullgraph || settings.fail_on_recompile_limit_hit)) {
    set_exception("FailOnRecompileLimitHit", limit_message(self, site, given));
    return true;
  }
  if (!std::exchange(site.warned, true)) warn(PyExc_RuntimeWarning, limit_message(self, site, given));
  return true;
}

}  // namespace bolt::program
