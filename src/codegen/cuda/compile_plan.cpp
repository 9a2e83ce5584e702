// codegen/cuda/compile_plan.cpp
// See compile_plan.h.

#include "codegen/cuda/compile_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "cache/disk_cache.h"
#include "codegen/cuda/emit.h"
#include "codegen/cuda/indices.h"
#include "codegen/cuda/prelude.h"
#include "loops/normalise.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/log.h"
#include "support/parallel.h"

namespace bolt::codegen::cuda {
namespace {

/// Stands for the function's name in texts that are compared.
constexpr const char* kAnyName = "bolt_kernel";

/// One function, whoever launches it.
struct Unit {
  std::string text;  // named kAnyName
  std::string name;
  std::shared_ptr<const Cubin> code;
};

/// Functions compiled in this process, by target and text; an entry dies with the last plan that uses it.
class Registry {
 public:
  static Registry& get() {
    static Registry registry;
    return registry;
  }
  bool find(const std::string& target, Unit& unit) {
    std::lock_guard lock(mutex_);
    const auto it = known_.find(target + unit.text);
    if (it == known_.end()) return false;
    unit.code = it->second.code.lock();
    if (unit.code)
      unit.name = it->second.name;
    else
      known_.erase(it);
    return unit.code != nullptr;
  }
  void add(const std::string& target, const Unit& unit) {
    std::lock_guard lock(mutex_);
    known_[target + unit.text] = {unit.code, unit.name};
  }

 private:
  struct Entry {
    std::weak_ptr<const Cubin> code;
    std::string name;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> known_;
};

std::string named(const Unit& unit) {
  std::string text = unit.text;
  return text.replace(text.find(kAnyName), std::strlen(kAnyName), unit.name);
}

/// Which units go into which text, so that all take about as long: the longest first, each to whom has least.
std::vector<std::vector<size_t>> shares(const std::vector<Unit*>& units, size_t count) {
  std::vector<size_t> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return units[a]->text.size() > units[b]->text.size(); });
  std::vector<std::vector<size_t>> out(count);
  std::vector<size_t> load(count, 0);
  for (size_t i : order) {
    const auto least = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    out[least].push_back(i);
    load[least] += units[i]->text.size();
  }
  return out;
}

std::vector<std::string> compile_shares(const std::vector<Unit*>& units, const Target& target) {
  const auto parts = shares(units, std::min(compile_threads(), units.size()));
  std::vector<std::string> cubins(parts.size());
  in_parallel(parts.size(), [&](size_t t) {
    std::string text(prelude());
    for (size_t i : parts[t]) text += named(*units[i]);
    cubins[t] = target.nvrtc->compile(text, target.capability);
  });
  return cubins;
}

void attach(const std::vector<Unit*>& units, std::vector<std::string> cubins) {
  const auto parts = shares(units, cubins.size());
  for (size_t t = 0; t < cubins.size(); ++t) {
    const auto code = std::make_shared<const Cubin>(Cubin{std::move(cubins[t])});
    for (size_t i : parts[t]) units[i]->code = code;
  }
}

// ---- the batch's file: number of cubins, their lengths, their bytes

std::string pack(const std::vector<std::string>& cubins) {
  std::string bytes;
  auto number = [&](uint64_t n) { bytes.append(reinterpret_cast<const char*>(&n), sizeof n); };
  number(cubins.size());
  for (const std::string& c : cubins) number(c.size());
  for (const std::string& c : cubins) bytes += c;
  return bytes;
}

/// Nothing where the bytes are not what `pack` makes of as many cubins as there can be.
std::vector<std::string> unpack(const std::string& bytes, size_t most) {
  auto number = [&](size_t i) {
    uint64_t n = 0;
    if (bytes.size() >= sizeof n * (i + 1)) std::memcpy(&n, bytes.data() + sizeof n * i, sizeof n);
    return static_cast<size_t>(n);
  };
  const size_t count = number(0);
  std::vector<std::string> cubins;
  if (count == 0 || count > most) return cubins;
  size_t at = sizeof(uint64_t) * (1 + count);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = number(1 + i);
    if (at > bytes.size() || length == 0 || length > bytes.size() - at) return {};
    cubins.push_back(bytes.substr(at, length));
    at += length;
  }
  return cubins;
}

/// The text says everything but what makes machine code of it.
std::string batch_key(const std::vector<Unit*>& units, const std::string& target) {
  std::string key = target + knobs_for_cache_key() + "\n" + std::string(prelude());
  for (const Unit* u : units) key += named(*u);
  return key;
}

/// False when everything was on disk.
bool compile_missing(const std::vector<Unit*>& units, const Target& target, const std::string& target_key) {
  const cache::DiskCache& disk = cache::DiskCache::global();
  const std::string key = batch_key(units, target_key);
  if (std::optional<std::string> bytes = disk.read(key)) {
    std::vector<std::string> cubins = unpack(*bytes, units.size());
    if (!cubins.empty()) {
      attach(units, std::move(cubins));
      return false;
    }
  }
  std::vector<std::string> cubins = compile_shares(units, target);
  disk.write(key, pack(cubins));
  attach(units, std::move(cubins));
  return true;
}

/// The kernels of one call of `compile`, and their functions.
class Batch {
 public:
  Batch(const Target& target)
      : target_(target),
        options_(target.options),
        target_key_("cuda sm_" + std::to_string(target.capability) + " nvrtc " + target.nvrtc->version() +
                    "\n") {
    options_.capability = target.capability;
  }

  void add(const loops::Kernel& kernel) {
    const loops::Kernel k = loops::normalise(kernel);
    CompiledKernel& c = code_.kernels.emplace_back();
    c.name = kernel.name;
    c.symbols = k.symbols;
    c.buffers = k.buffers.size();
    c.reports = k.has_checks();
    c.refused = refusal(k);
    std::vector<size_t>& units = unit_of_.emplace_back();
    if (!c.refused.empty()) return;
    Parts all = parts(k, options_);
    c.scratch = std::move(all.scratch);
    c.scratch_bytes = all.scratch_bytes;
    for (Part& part : all.list) units.push_back(add_launch(c, part));
  }

  PlanCode finish() {
    std::vector<Unit*> missing;
    for (Unit& u : units_)
      if (!Registry::get().find(target_key_, u)) missing.push_back(&u);
    if (!missing.empty()) code_.from_cache = !compile_missing(missing, target_, target_key_);
    for (const Unit* u : missing) Registry::get().add(target_key_, *u);
    for (size_t i = 0; i < code_.kernels.size(); ++i)
      for (size_t j = 0; j < unit_of_[i].size(); ++j) {
        const Unit& u = units_[unit_of_[i][j]];
        code_.kernels[i].launches[j].code = u.code;
        code_.kernels[i].launches[j].function = u.name;
      }
    count_bytes();
    return std::move(code_);
  }

 private:
  size_t add_launch(CompiledKernel& c, Part& part) {
    const Schedule s = schedule(part.kernel, options_);
    Launch& launch = c.launches.emplace_back();
    launch.buffers = std::move(part.buffers);
    launch.reports = part.kernel.has_checks();
    launch.narrow = s.narrow;
    launch.count = s.count;
    launch.blocks = s.blocks;
    launch.threads = s.threads;
    launch.shared_bytes = shared_bytes(part.kernel, s);
    launch.cluster = s.cluster;
    Unit unit{emit_kernel(part.kernel, s, kAnyName), "", nullptr};
    if (log_wanted("schedule")) log("schedule", c.name + ": " + print(s));
    if (log_wanted("output_code")) log("output_code", "// " + c.name + ": " + print(s) + "\n" + unit.text);
    const auto [it, fresh] = by_text_.try_emplace(unit.text, units_.size());
    if (fresh) {
      // Readable in a profile; the hash keeps functions of one text apart.
      unit.name = "bolt_" + identifier(c.name) + "_" + cache::hash128(unit.text).hex().substr(0, 8);
      units_.push_back(std::move(unit));
    }
    return it->second;
  }

  void count_bytes() {
    std::vector<const Cubin*> seen;
    for (const Unit& u : units_)
      if (std::find(seen.begin(), seen.end(), u.code.get()) == seen.end()) {
        seen.push_back(u.code.get());
        code_.code_bytes += u.code->bytes.size();
      }
  }

  const Target& target_;
  Options options_;
  const std::string target_key_;
  PlanCode code_;
  std::vector<Unit> units_;
  std::map<std::string, size_t> by_text_;
  std::vector<std::vector<size_t>> unit_of_;  // by kernel and launch
};

}  // namespace

PlanCode compile(const std::vector<loops::Kernel>& kernels, const Target& target) {
  BOLT_CHECK(target.nvrtc, "a CUDA target without a compiler");
  Batch batch(target);
  for (const loops::Kernel& k : kernels) batch.add(k);
  return batch.finish();
}

PlanCode compile(const loops::Plan& plan, const Target& target) { return compile(plan.kernels, target); }

}  // namespace bolt::codegen::cuda
