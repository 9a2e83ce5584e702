// codegen/cpu/batch.cpp
// See batch.h.

#include "codegen/cpu/batch.h"

#include <link.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <mutex>

#include "cache/disk_cache.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/parallel.h"

namespace bolt::codegen::cpu {
namespace {

struct Unit {
  const Job* job;
  std::string key;  // the target's and the job's
  std::shared_ptr<Code> code;
  KernelFn fn = nullptr;
};

class CompiledModule final : public Module {
 public:
  const std::vector<CompiledKernel>& kernels() const override { return kernels_; }
  size_t code_bytes() const override {
    size_t total = 0;
    for (const std::shared_ptr<Code>& c : codes_) total += c->bytes();
    return total;
  }
  bool from_cache() const override { return from_cache_; }

  std::vector<CompiledKernel> kernels_;
  std::vector<std::shared_ptr<Code>> codes_;
  bool from_cache_ = true;
};

/// Kernels compiled in this process, by content; an entry dies with the last module that uses it.
class Registry {
 public:
  static Registry& get() {
    static Registry registry;
    return registry;
  }
  bool find(Unit& unit) {
    std::lock_guard lock(mutex_);
    auto it = known_.find(unit.key);
    if (it == known_.end()) return false;
    unit.code = it->second.code.lock();
    if (!unit.code) {
      known_.erase(it);
      return false;
    }
    unit.fn = it->second.fn;
    return true;
  }
  void add(const Unit& unit) {
    std::lock_guard lock(mutex_);
    known_[unit.key] = {unit.code, unit.fn};
  }

 private:
  struct Entry {
    std::weak_ptr<Code> code;
    KernelFn fn;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> known_;
};

/// Sizes that are data have names of their own in every layer (`u12_0`, support/symbols.h), and code
/// does not depend on what they are called: here they are numbered as they come.
std::string with_data_sizes_renamed(const std::string& key) {
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::vector<std::string> met;
  std::string out;
  size_t copied = 0;
  for (size_t i = key.find('u'); i != key.npos; i = key.find('u', i + 1)) {
    if (i > 0 && is_word(key[i - 1])) continue;
    const size_t end = std::min(key.find_first_not_of("0123456789_", i + 1), key.size());
    if (end == i + 1 || key[i + 1] == '_' || (end < key.size() && is_word(key[end]))) continue;
    const std::string name = key.substr(i, end - i);
    const auto at = std::find(met.begin(), met.end(), name);
    out.append(key, copied, i - copied).append("u" + std::to_string(at - met.begin()));
    if (at == met.end()) met.push_back(name);
    copied = end;
  }
  return copied == 0 ? key : out.append(key, copied);
}

std::string symbol_name(size_t unit) { return "k" + std::to_string(unit); }

/// Names this very library: the linker's build id, found in its ELF notes.
std::string build_id() {
  static const std::string id = [] {
    std::string text = BOLT_VERSION;
    auto visit = [](dl_phdr_info* info, size_t, void* out) {
      const auto here = reinterpret_cast<uintptr_t>(&symbol_name);
      bool ours = false;
      for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& h = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + h.p_vaddr;
        ours |= h.p_type == PT_LOAD && here >= begin && here < begin + h.p_memsz;
      }
      for (int i = 0; ours && i < info->dlpi_phnum; ++i) {
        const auto& h = info->dlpi_phdr[i];
        if (h.p_type != PT_NOTE) continue;
        const char* notes = reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr);
        static_cast<std::string*>(out)->append(" ").append(cache::hash128({notes, h.p_memsz}).hex());
      }
      return ours ? 1 : 0;
    };
    dl_iterate_phdr(visit, &text);
    return text;
  }();
  return id;
}

std::string compile_part(const std::vector<Unit*>& units, const std::vector<size_t>& part,
                         const Target& target) {
  Machine machine(target);
  llvm::LLVMContext context;
  auto module = machine.make_module(context, "kernels");
  for (size_t i : part) units[i]->job->emit(machine, *module, symbol_name(i));
  machine.optimise(*module);
  return machine.object(*module);
}

/// Object t holds the units t, t + threads, ...
std::vector<std::string> compile_objects(const std::vector<Unit*>& units, const Target& target) {
  const size_t threads = std::min(compile_threads(), std::max<size_t>(1, units.size() / 2));
  std::vector<std::vector<size_t>> parts(threads);
  for (size_t i = 0; i < units.size(); ++i) parts[i % threads].push_back(i);
  std::vector<std::string> objects(threads);
  in_parallel(threads, [&](size_t t) { objects[t] = compile_part(units, parts[t], target); });
  return objects;
}

void attach(const std::vector<Unit*>& units, const std::vector<std::string>& objects) {
  for (size_t t = 0; t < objects.size(); ++t) {
    std::shared_ptr<Code> code = load_object(objects[t]);
    for (size_t i = t; i < units.size(); i += objects.size()) {
      units[i]->code = code;
      units[i]->fn = reinterpret_cast<KernelFn>(code->address(symbol_name(i)));
    }
  }
}

// ---- the batch's file: number of objects, their lengths, their bytes

std::string pack(const std::vector<std::string>& objects) {
  std::string bytes;
  auto number = [&](uint64_t n) { bytes.append(reinterpret_cast<const char*>(&n), sizeof n); };
  number(objects.size());
  for (const std::string& o : objects) number(o.size());
  for (const std::string& o : objects) bytes += o;
  return bytes;
}

std::vector<std::string> unpack(const std::string& bytes) {
  std::vector<std::string> objects;
  uint64_t count = 0;
  if (bytes.size() < sizeof count) return objects;
  std::memcpy(&count, bytes.data(), sizeof count);
  size_t at = sizeof count * (1 + count);
  for (uint64_t i = 0; i < count && at <= bytes.size(); ++i) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + sizeof length * (1 + i), sizeof length);
    objects.push_back(bytes.substr(at, length));
    at += length;
  }
  return objects;
}

std::string batch_key(const std::vector<Unit*>& units) {
  std::string key = "cpu " + build_id() + "\n" + knobs_for_cache_key() + "\n";
  for (const Unit* u : units) key += u->key;
  return key;
}

/// False when everything was on disk.
bool compile_missing(const std::vector<Unit*>& units, const Target& target) {
  const cache::DiskCache& disk = cache::DiskCache::global();
  const std::string key = batch_key(units);
  if (std::optional<std::string> bytes = disk.read(key)) {
    try {
      attach(units, unpack(*bytes));
      return false;
    } catch (const Error&) {
      // Checked by its sum and yet unusable: compile and write it again.
    }
  }
  const std::vector<std::string> objects = compile_objects(units, target);
  attach(units, objects);
  disk.write(key, pack(objects));
  return true;
}

}  // namespace

std::unique_ptr<Module> compile(const std::vector<Job>& jobs, const Target& target) {
  std::vector<Unit> units;
  std::map<std::string, size_t> by_key;
  std::map<const Job*, size_t> unit_of;
  auto add = [&](const Job& job) {
    Unit unit{&job, target.key() + "\n" + with_data_sizes_renamed(job.key), nullptr};
    auto [it, fresh] = by_key.try_emplace(unit.key, units.size());
    if (fresh) units.push_back(std::move(unit));
    unit_of[&job] = it->second;
  };
  for (const Job& job : jobs) {
    add(job);
    if (job.second) add(*job.second);
  }
  std::vector<Unit*> missing;
  for (Unit& u : units)
    if (!Registry::get().find(u)) missing.push_back(&u);
  auto module = std::make_unique<CompiledModule>();
  if (!missing.empty()) module->from_cache_ = !compile_missing(missing, target);
  for (const Unit* u : missing) Registry::get().add(*u);

  for (const Unit& u : units)
    if (std::find(module->codes_.begin(), module->codes_.end(), u.code) == module->codes_.end())
      module->codes_.push_back(u.code);
  for (const Job& job : jobs) {
    CompiledKernel compiled;
    compiled.name = job.name;
    compiled.fn = units[unit_of.at(&job)].fn;
    compiled.work = job.work;
    compiled.grain = job.grain;
    compiled.reports = job.reports;
    compiled.scratch_bytes = job.scratch_bytes;
    if (job.second) {
      compiled.second_fn = units[unit_of.at(job.second.get())].fn;
      compiled.second_work = job.second->work;
      compiled.second_grain = job.second->grain;
    }
    module->kernels_.push_back(std::move(compiled));
  }
  return module;
}

}  // namespace bolt::codegen::cpu
