// session/compile_entry.cpp
#include "session/compile_entry.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>

#include "autograd/early_cuts.h"
#include "guard/handed_out.h"
#include "guard/tensors.h"
#include "python/gil.h"
#include "run/attempt.h"
#include "run/eager_trial.h"
#include "session/backend.h"
#include "session/failures.h"
#include "session/settings.h"
#include "support/background.h"
#include "support/error.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

std::vector<bool> used_inputs(const record::Tape& tape, const std::vector<record::TensorId>& wanted) {
  std::vector<bool> used(tape.inputs.size(), false);
  auto mark = [&](record::TensorId id) {
    if (id >= 0 && tape.tensors[id].input >= 0) used[tape.tensors[id].input] = true;
  };
  for (const auto& e : tape.entries) for_each_tensor(e.args, mark);
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

/// Tensors that the guards come to when they know sizes and numbers.
std::vector<bool> chosen_slots(const guard::Program& guards) {
  std::vector<bool> out(guards.tensor_count(), false);
  for (const auto& source : guards.tree().tops())
    for (const auto& a : source->assumptions)
      if (source->access == guard::Access::chosen && a.check == guard::Check::tensor) out[a.number] = true;
  return out;
}

/// An array's owner writes it when he likes; that of a parameter gave it away, and is asked each time.
bool may_be_folded(const at::Tensor& t) {
  return t.requires_grad() || !t.has_storage() || !guard::is_borrowed(*t.storage().unsafeGetStorageImpl());
}

uintptr_t address_of(const at::Tensor& t) {
  return t.has_storage() ? reinterpret_cast<uintptr_t>(t.unsafeGetTensorImpl()->data()) : 0;
}

/// Where the tape's inputs come from and what is known of each.
void describe_inputs(CallEntry& entry, Bridge& bridge, run::Recorded& recorded) {
  record::Recorder& recorder = bridge.recorder;
  std::optional<std::vector<bool>> used;  // found when it is asked for: a walk over the tape
  const auto on_objects = slots_on_objects(*entry.guards), chosen = chosen_slots(*entry.guards);
  for (size_t i = 0; i < recorder.inputs().size(); ++i) {
    const int slot = bridge.slot_of(recorder.inputs()[i]);
    auto constant = recorder.constants().find(static_cast<int>(i));
    if (slot < 0 && !used) used = used_inputs(recorder.tape(), bridge.wanted);
    if (slot < 0 && (*used)[i]) {
      if (constant == recorder.constants().end())
        throw Error(ErrorKind::Internal,
                    "an operator used a tensor that came from nowhere the recording knows (input " +
                        std::to_string(i) + ")");
      recorded.constants.insert(*constant);
    }
    entry.tape_input_slot.push_back(slot);
    recorded.is_param.push_back(slot >= 0 && on_objects[slot] && may_be_folded(recorder.inputs()[i]));
    recorded.addresses.push_back(address_of(recorder.inputs()[i]));
    recorded.is_awaited.push_back(autograd::is_awaited(recorder.inputs()[i]));
    recorder.tape().tensors[recorder.tape().inputs[i]].chosen = slot >= 0 && chosen[slot];
    recorded.dynamic.push_back(bridge.dynamic_of(recorder.inputs()[i]));
  }
}

/// A tape takes storages for apart. Where one is written that lies in the memory of another they are not.
bool writes_through_two_storages(const record::Recorder& recorder, const record::Tape& tape) {
  const auto& inputs = recorder.inputs();
  for (const size_t written : run::VisibleWrites(tape).inputs)
    for (const at::Tensor& other : inputs)
      if (other.has_storage() && !other.is_alias_of(inputs[written]) &&
          guard::share_memory(*other.unsafeGetTensorImpl(), *inputs[written].unsafeGetTensorImpl()))
        return true;
  return false;
}

autograd::Budget budget_of(const Options& options) {
  const double asked =
      std::isnan(options.memory_budget) ? Settings::get().memory_budget.load() : options.memory_budget;
  autograd::Budget budget;
  if (asked <= 1) budget.share = asked;
  if (asked > 1) budget.bytes = static_cast<int64_t>(std::min(asked, 1e18));
  return budget;
}

/// What the user asked for.
void describe_wishes(Callable* self, run::Recorded& recorded) {
  recorded.name = name_of(self);
  recorded.road = self->options->road;
  const bool rounds = self->options->rounds_as_eager.value_or(Settings::get().rounds_as_eager != 0);
  recorded.wishes = {budget_of(*self->options), self->options->launch_at_once, rounds};
  recorded.tuned = self->options->tune;
  recorded.measured = self->options->measure.value_or(run::measures_by_default());
  recorded.trace = Trace(self->options->trace, recorded.name);
}

/// All but the tape and its inputs.
void describe_region(Callable* self, const CallEntry& entry, Bridge& bridge, observe::Observation& seen,
                     run::Recorded& recorded) {
  recorded.obstacle = bridge.recorder.obstacle();
  if (recorded.obstacle.empty() && writes_through_two_storages(bridge.recorder, bridge.recorder.tape()))
    recorded.obstacle = "a write to an input whose memory another input shares, through a storage of its own";
  recorded.size_facts = std::move(seen.size_facts);
  for (SizeFact& f : bridge.further_facts()) recorded.size_facts.push_back(std::move(f));
  recorded.number_sizes = std::move(seen.number_sizes);
  recorded.number_symbols = std::move(seen.number_symbols);
  recorded.not_guessed = self->state->not_guessed;
  recorded.wanted = bridge.wanted;
  recorded.may_end_before_backward = !self->options->fullgraph;
  describe_wishes(self, recorded);
  if (!recorded.trace.wanted()) return;
  std::string guards;
  for (const std::string& line : entry.guards->describe()) guards += line + "\n";
  recorded.trace.write("0_guards.txt", guards);
}

/// May the region fit other sizes and numbers, too? Which, its guards know when it has been compiled.
bool varies(const run::Recorded& recorded) {
  return !recorded.number_symbols.empty() || std::ranges::any_of(recorded.dynamic, std::identity());
}

/// What it takes to compile a region again elsewhere. Where sizes or numbers differ, compiling writes into
/// the tape.
CompiledFrom compiled_from(const run::Recorded& recorded) {
  CompiledFrom from{{recorded.name,
                     recorded.wanted,
                     recorded.is_param,
                     recorded.constants,
                     recorded.dynamic,
                     recorded.number_symbols,
                     recorded.size_facts,
                     {}},
                    "",
                    recorded.number_sizes,
                    recorded.not_guessed,
                    recorded.obstacle};
  const bool differs = varies(recorded) || std::ranges::any_of(recorded.tape.tensors, [](const auto& t) {
                         return t.data_sized || t.data_dims;
                       });
  if (differs) from.text = record::print(recorded.tape, from.context);
  return from;
}

/// Which argument it is, or is found in. The state of an object (a module's parameters) is none.
int argument_of(const guard::Source* source) {
  for (; source->parent; source = source->parent)
    if (source->access == guard::Access::instance_dict) return BackendInput::kNoArgument;
  return source->access == guard::Access::root ? static_cast<int>(source->index) : BackendInput::kNoArgument;
}

std::vector<BackendInput> backend_inputs(const CallEntry& entry, const std::vector<at::Tensor>& tensors,
                                         const run::Recorded& recorded) {
  std::vector<BackendInput> out(tensors.size());
  const std::vector<bool> used = used_inputs(recorded.tape, recorded.wanted);
  const guard::SourceTree& tree = entry.guards->tree();
  for (guard::Source* source : tree.all())
    for (const auto& a : source->assumptions) {
      if (a.check != guard::Check::tensor) continue;
      for (size_t i = 0; i < out.size(); ++i) {
        const bool asked = used[i] || recorded.dynamic[i];  // for its values, or its sizes
        if (entry.tape_input_slot[i] != a.number || !asked) continue;
        out[i] = {tensors[i], source->str(tree.root_names), argument_of(source)};
      }
    }
  return out;
}

/// The region is ready: calls may take the entry.
void adopt(CallEntry& entry, std::shared_ptr<run::Runnable> region) {
  if (region->facts.fallback) ++Stats::get().eager_fallbacks;
  std::vector<int> written;
  for (int i : region->written_inputs())
    if (entry.tape_input_slot[i] >= 0) written.push_back(entry.tape_input_slot[i]);
  entry.guards->forbid_new_overlap(written);
  SymbolTable symbols = region->size_symbols;
  for (SymbolRow& s : symbols)
    if (s.from == SymbolRow::From::input) s.input = entry.tape_input_slot[s.input];
  entry.guards->free_sizes(std::move(symbols), region->size_facts, region->number_sizes);
  entry.region = std::move(region);
}

/// compile(), with whatever it throws as text.
Built try_compile(run::Recorded recorded) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  try {
    return {compile(std::move(recorded)), ""};
  } catch (const EndsAtFoundSizes& e) {
    return {nullptr, e.what(), e.of_rows ? EndsEarlier::at_selected_rows : EndsEarlier::at_data_sizes};
  } catch (const EndsBeforeBackward& e) {
    return {nullptr, e.what(), EndsEarlier::before_backward};
  } catch (const Error& e) {
    return {nullptr, e.what(), EndsEarlier::no, e.kind() == ErrorKind::User};
  } catch (const std::exception& e) {
    return {nullptr, e.what()};
  } catch (const abi::__forced_unwind&) {
    wait_for_end_of_process();
  } catch (...) {
    return {nullptr, "the compiler threw something that is not a std::exception"};
  }
}

void compile_in_background(CallEntry& entry, run::Recorded recorded) {
  auto pending = entry.pending = std::make_shared<Pending>(varies(recorded));
  run_in_background([pending, recorded = std::make_shared<run::Recorded>(std::move(recorded))] {
    Built built = try_compile(std::move(*recorded));
    std::lock_guard lock(pending->mutex);
    pending->built = std::move(built);
  });
}

/// Nothing: the process ends.
std::optional<Built> build(run::Recorded recorded) {
  const WithoutGil others_go_on;
  const CompilationHere compilation;
  if (!compilation.may_begin()) return std::nullopt;
  return try_compile(std::move(recorded));
}

bool compile_now(Callable* self, CallEntry& entry, run::Recorded recorded) {
  std::optional<Built> done = build(std::move(recorded));
  if (!done) return false;
  Built& built = *done;
  if (built.ends != EndsEarlier::no) return end_earlier(self, built.ends, built.failure), false;
  if (!built.region) throw Error(built.is_users ? ErrorKind::User : ErrorKind::Internal, built.failure);
  adopt(entry, std::move(built.region));
  return true;
}

/// Of a call that has just been recorded: would the same call come another way now?
bool has_moved(const CallEntry& entry, const Given& given) {
  guard::Found found;
  return !entry.guards->check(given.roots, given.count, found);
}

/// What compiling `entry` has come to, as settle() says.
bool take_over(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry, Built built) {
  if (built.region) {
    adopt(*entry, std::move(built.region));
    return true;
  }
  std::erase(site.entries, entry);
  --Stats::get().regions;
  if (built.ends != EndsEarlier::no) return end_earlier(self, built.ends, built.failure), true;
  ++site.hopeless;
  return report_failure(self, built.failure, built.is_users);
}

}  // namespace

bool compile_entry(Callable* self, const std::shared_ptr<CallEntry>& entry, Bridge& bridge,
                   observe::Observation& seen, const Given* given) {
  run::Recorded recorded;
  describe_inputs(*entry, bridge, recorded);
  describe_region(self, *entry, bridge, seen, recorded);
  recorded.tape = std::move(bridge.recorder.tape());
  bridge.note_backward_passes(recorded.double_backward);
  entry->from = compiled_from(recorded);

  if (self->options->backend && !recorded.tape.entries.empty()) {
    std::vector<BackendInput> inputs = backend_inputs(*entry, bridge.recorder.inputs(), recorded);
    adopt(*entry, compile(std::move(recorded), [&](run::Recorded& what, const auto& symbols) {
      return compile_with_backend(self->options->backend.get(), what, inputs, symbols);
    }));
    return true;
  }
  if (self->options->background) return compile_in_background(*entry, std::move(recorded)), true;
  // Sizes that were marked are looked at when they are compiled, and so is what fullgraph forbids.
  const bool may_wait = given && recorded.road == run::Road::compile && !recorded.tape.entries.empty() &&
                        !self->options->fullgraph && entry->marked.empty() && !varies(recorded);
  if (may_wait && has_moved(*entry, *given)) {
    entry->waiting = std::make_unique<run::Recorded>(std::move(recorded));
    return true;
  }
  return compile_now(self, *entry, std::move(recorded));
}

bool compile_waiting(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry) {
  if (!entry->waiting) return true;
  const std::unique_ptr<run::Recorded> recorded = std::move(entry->waiting);
  entry->pending = std::make_shared<Pending>(false);  // calls of other threads do without it meanwhile
  std::optional<Built> built = build(std::move(*recorded));
  entry->pending = nullptr;
  return take_over(self, site, entry, built ? std::move(*built) : Built{nullptr, "the process ends"});
}

void compile_again(Callable* self, CallEntry& entry) {
  record::ReadTape read = record::parse_tape(entry.from.text);
  const record::TapeContext& context = entry.from.context = std::move(read.context);
  run::Recorded recorded;
  recorded.tape = std::move(read.tape);
  recorded.wanted = context.wanted;
  recorded.is_param = context.is_param;
  recorded.constants = context.constants;
  recorded.dynamic = context.dynamic;
  recorded.number_symbols = context.numbers;
  recorded.size_facts = context.facts;
  recorded.number_sizes = entry.from.number_sizes;
  recorded.not_guessed = entry.from.not_guessed;
  recorded.obstacle = entry.from.obstacle;
  describe_wishes(self, recorded);
  if (entry.tape_input_slot.size() != recorded.tape.inputs.size())
    throw Error(ErrorKind::User, "what was saved is not whole");
  if (!compile_now(self, entry, std::move(recorded)))
    throw Error(ErrorKind::User, "it cannot be compiled here as it was where it was saved");
}

bool settle(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry) {
  if (entry->region || !entry->pending) return true;
  Built built;
  {
    std::lock_guard lock(entry->pending->mutex);
    if (!entry->pending->built) return true;
    built = std::move(*entry->pending->built);
  }
  entry->pending = nullptr;
  return take_over(self, site, entry, std::move(built));
}

}  // namespace bolt::session
