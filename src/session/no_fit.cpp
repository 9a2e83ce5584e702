// session/no_fit.cpp
#include "session/no_fit.h"

#include <algorithm>
#include <utility>

#include "guard/iterators.h"
#include "guard/leaf.h"
#include "session/exceptions.h"
#include "session/failures.h"
#include "session/settings.h"
#include "session/stance.h"
#include "support/log.h"

namespace bolt::session {
namespace {

/// So many recordings of one place that could not be kept, and it is not tried again.
constexpr int kHopeless = 2;

/// After so many misses in a row entries are asked at each of so many times only.
constexpr int kManyMisses = 32, kNowAndThen = 16;

/// The guard of an entry that does not hold.
std::string why_not(const CallEntry& entry, const Given& given) {
  if (entry.nargs != given.nargs)
    return std::to_string(entry.nargs) + " positional arguments (now " + std::to_string(given.nargs) + ")";
  auto names = [](PyObject* keywords) { return keywords ? guard::short_repr(keywords) : std::string("()"); };
  if (!has_form_of(given, entry))
    return "keywords are " + names(entry.kwnames.get()) + " (now " + names(given.kwnames) + ")";
  return entry.guards->explain_failure(given.roots, given.count);
}

/// The guard that failed last, for messages.
std::string failed_guard(const Site& site, const Given& given) {
  return site.entries.empty() ? "" : why_not(*site.entries.front(), given);
}

/// Sets RecompileError. True.
bool refuse(const Site& site, const Given& given, const std::string& why) {
  const std::string failed = failed_guard(site, given);
  set_exception("RecompileError",
                "torchbolt: nothing compiled fits this call and " + why + ". " +
                    (failed.empty() ? "Nothing was compiled before." : "The guard that failed: " + failed));
  return true;
}

/// Of all places of a callable.
size_t count_entries(Callable* self) {
  size_t all = self->state->start.entries.size();
  for (const auto& [place, other] : self->state->sites) all += other->entries.size();
  return all;
}

/// Which limit keeps a place from getting one more entry.
enum class Limit : int8_t { none, of_place, of_callable };

std::string limit_message(Callable* self, const Site& site, const Given& given, Limit limit) {
  std::string message = "torchbolt: " + name_of(self);
  if (limit == Limit::none) return message + " could not be compiled and now runs eagerly.";
  const size_t count = limit == Limit::of_place ? site.entries.size() : count_entries(self);
  message += " was compiled " + std::to_string(count) + " times (" +
             (limit == Limit::of_place ? "recompile_limit" : "accumulated_recompile_limit") +
             ") and now runs eagerly where none of them fits.";
  if (const std::string failed = failed_guard(site, given); !failed.empty())
    message += " The last guard that failed: " + failed;
  return message + "\nIf this value changes often, pass it as a tensor, or raise " +
         (limit == Limit::of_place ? "recompile_limit." : "accumulated_recompile_limit.");
}

/// Does the run stand in a loop over what is counted or listed?
bool is_in_loop(const Given& given) {
  return std::any_of(given.roots, given.roots + given.count,
                     [](PyObject* root) { return root && guard::iterator_kind(root); });
}

/// Has so much been compiled that this place gets no further entry?
Limit reached_limit(Callable* self, const Site& site, const Given& given) {
  const Settings& settings = Settings::get();
  const int64_t limit =
      self->options->recompile_limit ? self->options->recompile_limit : settings.recompile_limit.load();
  // Behind the end of a region in a loop over modules lies one place for all of them: how many classes of
  // objects come along there is the program's, and no value that goes on changing.
  auto alike = [&](const auto& entry) {
    return !has_form_of(given, *entry) || !entry->guards->differs_in_class(given.roots, given.count);
  };
  constexpr int64_t kClasses = 8;  // times the limit; a class made anew for each call goes on changing, too
  // Each turn of a loop may have a constant of its own (`self.layers[i]`), and comes again in the next call.
  constexpr int64_t kTurns = 4;
  const auto here = static_cast<int64_t>(site.entries.size());
  const int64_t limit_alike = is_in_loop(given) ? kTurns * limit : limit;
  if (here >= kClasses * limit ||
      (here >= limit_alike && std::count_if(site.entries.begin(), site.entries.end(), alike) >= limit_alike))
    return Limit::of_place;
  const bool all = static_cast<int64_t>(count_entries(self)) >= settings.accumulated_recompile_limit;
  return all ? Limit::of_callable : Limit::none;
}

}  // namespace

bool stance_forbids(Callable* self, const Site& site, const Given& given) {
  switch (stance()) {
    case Stance::force_eager:
    case Stance::eager_on_recompile: return true;
    case Stance::eager_then_compile:
      if (!std::exchange(self->state->was_called, true)) return true;
      break;
    case Stance::fail_on_recompile: return refuse(site, given, "the stance is fail_on_recompile");
    case Stance::standard:
    case Stance::force_backend: break;
  }
  const bool again = !site.entries.empty();  // the first compilation is no recompilation
  return Settings::get().error_on_recompile && again &&
         refuse(site, given, "config.error_on_recompile is set");
}

bool is_full(Callable* self, Site& site, const Given& given) {
  const Limit limit = reached_limit(self, site, given);
  const bool full = limit != Limit::none;
  if (!full && site.hopeless < kHopeless) return site.misses = 0, false;
  note_miss(site);
  if (full && !site.entries.empty() && count_computing(site) == 0) return true;  // eager is given no operator
  note_eager_call(self, full ? Why::none_fits : Why::never_kept);
  if (full && (self->options->fullgraph || Settings::get().fail_on_recompile_limit_hit)) {
    set_exception("FailOnRecompileLimitHit", limit_message(self, site, given, limit));
    return true;
  }
  if (!std::exchange(site.warned, true)) warn(limit_message(self, site, given, limit));
  return true;
}

void note_miss(Site& site) {
  if (site.misses < kManyMisses) ++site.misses;
}

bool is_passed_over(Callable* self, Site& site) {
  if (site.misses < kManyMisses) return false;
  const Settings& settings = Settings::get();
  const bool may_be_error = self->options->fullgraph || settings.fail_on_recompile_limit_hit ||
                            settings.error_on_recompile || stance() != Stance::standard;
  if (may_be_error) return false;
  if (++site.misses == kManyMisses + kNowAndThen) {
    site.misses = kManyMisses;
    return false;
  }
  if (!site.plain_instructions && count_computing(site) > 0) note_eager_call(self, Why::none_fits);
  return true;
}

void note_recompile(Callable* self, Site& site, const Given& given) {
  if (site.entries.empty()) return;
  constexpr size_t kKept = 64;
  auto& kept = self->state->recompiles;
  if (kept.size() >= kKept) kept.erase(kept.begin());
  kept.push_back({name_of(self), failed_guard(site, given)});
  const char* name = log_wanted("recompiles") ? "recompiles" : "recompiles_verbose";
  log(name, kept.back().where + " is recorded again, because " + kept.back().guard);
  if (!log_wanted("recompiles_verbose") && !log_wanted("recompiles", true)) return;
  for (size_t i = 1; i < site.entries.size(); ++i)
    log(name, "  program " + std::to_string(i) + ": " + why_not(*site.entries[i], given));
}

}  // namespace bolt::session
