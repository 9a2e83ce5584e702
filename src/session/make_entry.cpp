// session/make_entry.cpp
#include "session/make_entry.h"

#include "session/compile_entry.h"
#include "session/exceptions.h"
#include "session/failures.h"
#include "session/settings.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

std::string describe_break(const observe::RegionEnd& end) {
  std::string text = end.reason.text();
  for (auto line = end.stack.rbegin(); line != end.stack.rend(); ++line)
    text += "\n  at " + line->file + ":" + std::to_string(line->line) + " in " + line->function;
  return text;
}

/// Counts and keeps why the region ended. Is such an end an error here?
bool note_breaks(Callable* self, const observe::Observation& seen) {
  bool breaks_are_errors = self->options->fullgraph;
  for (const auto& b : seen.breaks) {
    Stats::get().count_break(b.reason.text());
    if (constexpr size_t kMostEnds = 1000; self->state->ends.size() < kMostEnds)
      self->state->ends.push_back(b);
    breaks_are_errors |= b.is_error;
    if (log_wanted("graph_breaks")) log("graph_breaks", name_of(self) + ": " + describe_break(b));
  }
  return breaks_are_errors;
}

/// Nothing to compile, from a place where guards would be checked on numbers that only pass through. What
/// writes objects is kept once: where that does not fit, a loop over keys or a shuffled list comes along.
bool runs_plainly(Callable* self, const Site& site, const observe::Observation& seen, Bridge& bridge) {
  if (seen.idle) return bridge.recorder.tape().entries.empty();
  const bool plain = seen.end == observe::End::broke || &site != &self->state->start;
  const bool writes = !seen.recipe.effects.empty();
  return plain && !site.never_plain && bridge.recorder.tape().entries.empty() &&
         (!writes || count_computing(site) < static_cast<int64_t>(site.entries.size()));
}

/// All of an entry but its region.
std::shared_ptr<CallEntry> entry_of(const Given& given, observe::Observation& seen, const Bridge& bridge) {
  auto entry = std::make_shared<CallEntry>();
  entry->instructions = seen.instructions;
  entry->idle = seen.idle;
  entry->guards = std::move(seen.guards);
  entry->recipe = std::move(seen.recipe);
  entry->after = seen.after;
  entry->autocast_levels = seen.autocast_levels;
  entry->changes_thread = !(seen.after == seen.before) || seen.autocast_levels != 0;
  entry->breaks = std::move(seen.breaks);
  entry->generators = std::move(seen.generators);
  entry->nargs = given.nargs;
  entry->marked = bridge.marked;
  entry->kwnames = PyRef::share(given.kwnames);
  return entry;
}

/// What made a number of this size; null: nothing did.
const SizeFact* why_fixed(const run::Runnable& region, Sym size) {
  for (const SizeFact& f : region.size_facts)
    if (f.relation == Relation::eq && f.a == size && f.b.is_const()) return &f;
  return nullptr;
}

void raise_given_up(const CallEntry& entry, int slot, int dim, const SizeFact& why) {
  set_exception("ConstraintViolationError",
                "torchbolt: size " + std::to_string(dim) + " of " + entry.guards->place_of(slot) +
                    " was marked with mark_dynamic, but the program only holds for " + why.b.str() + "." +
                    (why.where.empty() ? "" : " What forced it: " + why.where) +
                    "\nRemove the mark, use maybe_mark_dynamic, or change that line.");
}

/// A dimension that mark_dynamic asked for and that became a number: an error that names what forced it.
bool gave_up_marked(const CallEntry& entry, const std::vector<Bridge::Refused>& refused) {
  if (Settings::get().allow_ignore_mark_dynamic) return false;
  if (!refused.empty()) {
    const auto& [slot, dim, size] = refused[0];
    return raise_given_up(entry, slot, dim, {size, Relation::eq, size, "its elements share memory"}), true;
  }
  if (!entry.region) return false;
  for (const SymbolRow& s : entry.region->size_symbols)
    for (const auto& [slot, dims] : entry.marked) {
      if (s.input < 0 || entry.tape_input_slot[s.input] != slot || !(dims >> s.dim & 1)) continue;
      if (const SizeFact* why = why_fixed(*entry.region, s.symbol))
        return raise_given_up(entry, slot, s.dim, *why), true;
    }
  return false;
}

}  // namespace

void note_plain_run(Site& site, observe::Observation& seen) {
  site.plain_end = std::move(seen.last);
  const bool whole = seen.end == observe::End::returned;
  site.plain_instructions = seen.idle ? observe::PlainSteps::kToAnOperator
                            : whole   ? observe::PlainSteps::kToTheEnd
                                      : seen.instructions;
  site.plain_breaks = std::move(seen.breaks);
  site.plain_serial = next_serial();
}

bool make_entry(Callable* self, Site& site, const Given& given, observe::Observation& seen, Bridge& bridge) {
  const bool breaks_are_errors = note_breaks(self, seen);
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
  if (seen.ended_in_its_loop && seen.advanced == 1) return site.ends_each_turn = true;
  if (runs_plainly(self, site, seen, bridge)) return note_plain_run(site, seen), true;
  std::shared_ptr<CallEntry> entry = entry_of(given, seen, bridge);
  if (PyObject* keep = self->options->guard_filter.get(); keep && !entry->guards->filter(keep)) return false;
  if (log_wanted("guards"))
    for (const std::string& line : entry->guards->describe()) log("guards", name_of(self) + ": " + line);
  if (!compile_entry(self, entry, bridge, seen, &site == &self->state->start ? &given : nullptr)) {
    if (!self->options->fullgraph) return true;
    set_exception("GraphBreak",
                  "what comes behind an operator whose result has as many elements as its data say "
                  "cannot be compiled for all numbers of them (TORCHBOLT_LOGS=dynamic says why)");
    return false;
  }
  if (gave_up_marked(*entry, bridge.refused)) return false;
  entry->has_other_sizes = bridge.has_other_sizes;
  site.advanced += seen.advanced > 0;
  auto& stats = Stats::get();
  ++stats.regions;
  if (!site.entries.empty()) ++stats.recompiles;
  site.entries.insert(site.entries.begin(), std::move(entry));
  return true;
}

}  // namespace bolt::session
