// cache/choices.cpp
#include "cache/choices.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "support/knobs.h"
#include "support/version.h"

namespace bolt::cache {
namespace {

constexpr int kTurns = 3;
constexpr double kFarBehind = 1.3;  // after the first turn: times the best of all
constexpr double kWins = 0.97;      // times the usual way's best

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Runner {
  const Way* way;
  double best = std::numeric_limits<double>::infinity(), worst = 0;
  std::string failure;  // why it left the race

  void run() {
    try {
      const double taken = way->measure();
      best = std::min(best, taken);
      worst = std::max(worst, taken);
    } catch (const std::exception& e) {
      failure = e.what();
      failure = failure.substr(0, failure.find('\n'));
    }
  }
};

std::string in_words(const std::vector<Runner>& runners) {
  std::string text;
  for (const Runner& r : runners) {
    char time[48];
    std::snprintf(time, sizeof time, " %.4g us", r.best * 1e-3);
    text += (text.empty() ? "" : ", ") + r.way->name + (r.failure.empty() ? time : ": " + r.failure);
  }
  return text;
}

/// Nothing: the allowance is spent, or the usual way cannot be measured.
std::optional<Choice> measured(const std::vector<Way>& ways, Allowance& allowance) {
  std::vector<Runner> all;
  for (const Way& way : ways) all.push_back({&way, std::numeric_limits<double>::infinity(), 0, ""});
  Runner& usual = all.front();
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kTurns; ++turn) {
    size_t racing = 0;
    for (Runner& r : all) {
      const bool left = !r.failure.empty() || (turn > 0 && &r != &usual && r.best > kFarBehind * best);
      if (left) continue;
      if (allowance.is_spent()) return std::nullopt;
      allowance.spend([&] { r.run(); });
      if (&r == &usual && !r.failure.empty()) return std::nullopt;
      racing += r.failure.empty();
    }
    for (const Runner& r : all) best = std::min(best, r.best);
    if (racing < 2) break;
  }
  const Runner* winner = &usual;
  for (const Runner& r : all)
    if (r.failure.empty() && r.best < winner->best && r.best < kWins * usual.best && r.worst < usual.best)
      winner = &r;
  return Choice{winner->way->name, in_words(all)};
}

}  // namespace

Allowance::Allowance(double seconds, std::function<double()> now)
    : now_(now ? std::move(now) : steady_seconds), left_(seconds) {}

void Allowance::spend(const std::function<void()>& measuring) {
  const double begin = now_();
  measuring();
  left_ -= now_() - begin;
}

Choices& Choices::global() {
  // Never destroyed: programs are compiled on threads that may outlive static objects.
  static auto* global = new Choices(&DiskCache::global());
  return *global;
}

Choice Choices::choose(const std::string& question, const std::vector<Way>& ways, Allowance& allowance) {
  if (ways.size() == 1) return {ways.front().name, ""};
  std::string key = std::string("chosen by time\n") + version() + "\n" + question + "\n";
  for (const Way& way : ways) key += way.name + "\n";
  if (auto found = known(key, ways)) return *found;
  const std::lock_guard one_after_another(measuring_);
  if (auto found = known(key, ways)) return *found;
  const std::optional<Choice> choice = measured(ways, allowance);
  if (!choice) return {ways.front().name, ""};
  return kept(key, *choice);
}

std::optional<Choice> Choices::known(const std::string& key, const std::vector<Way>& ways) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
  }
  // The user may switch the cache off when it was used before.
  const auto text = disk_ && knob_bool("TORCHBOLT_CACHE") ? disk_->read(key) : std::nullopt;
  const size_t end = text ? text->find('\n') : std::string::npos;
  if (end == std::string::npos) return std::nullopt;
  Choice choice{text->substr(0, end), text->substr(end + 1)};
  if (std::ranges::none_of(ways, [&](const Way& way) { return way.name == choice.name; }))
    return std::nullopt;
  const std::lock_guard lock(mutex_);
  return known_.emplace(key, std::move(choice)).first->second;
}

Choice Choices::kept(const std::string& key, const Choice& choice) {
  {
    const std::lock_guard lock(mutex_);
    known_[key] = choice;
  }
  if (disk_ && knob_bool("TORCHBOLT_CACHE")) disk_->write(key, choice.name + "\n" + choice.times);
  return choice;
}

}  // namespace bolt::cache
