// codegen/cpu/target.cpp
// See target.h. The machine is asked once.

#include "codegen/cpu/target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "support/error.h"
#include "support/knobs.h"

namespace bolt::codegen::cpu {
namespace {

using Isa = Target::Isa;

struct InstructionSet {
  Isa isa;
  const char* name;
  /// Beyond those of the set before: all that LLVM emits unasked for the CPU that machine.cpp names.
  std::vector<const char*> features;
};

/// From the smallest on.
const std::vector<InstructionSet>& instruction_sets() {
  static const std::vector<InstructionSet> sets = {
      {Isa::Scalar, "scalar", {}},
      {Isa::Avx2, "avx2", {"avx", "avx2", "fma", "bmi", "bmi2", "lzcnt", "movbe", "popcnt"}},
      {Isa::Avx512, "avx512", {"f16c", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}},
      {Isa::Amx, "amx", {"amx-tile", "amx-bf16", "avx512bf16"}},
  };
  return sets;
}

const char* name_of(Isa isa) { return instruction_sets()[static_cast<size_t>(isa)].name; }

/// The extensions a target may have beside its instruction set.
struct Extension {
  const char* name;
  const char* feature;
  Isa least;
  bool Target::* has;
};
constexpr Extension kExtensions[] = {
    {"f16c", "f16c", Isa::Avx2, &Target::f16c},
    {"bf16", "avx512bf16", Isa::Avx512, &Target::avx512_bf16},
    {"fp16", "avx512fp16", Isa::Avx512, &Target::avx512_fp16},
};

Isa widest(const std::set<std::string>& features) {
  Isa found = Isa::Scalar;
  for (const InstructionSet& set : instruction_sets()) {
    auto has = [&](const char* feature) { return features.contains(feature); };
    if (!std::all_of(set.features.begin(), set.features.end(), has)) break;
    found = set.isa;
  }
  return found;
}

/// The instruction set that TORCHBOLT_ISA names; `native` is the machine's own.
Isa wanted_isa(std::string_view wanted, Isa native) {
  if (wanted == "native") return native;
  for (const InstructionSet& set : instruction_sets())
    if (wanted == set.name) return set.isa;
  throw_user("TORCHBOLT_ISA must be native, amx, avx512, avx2 or scalar, not '", wanted, "'");
}

int64_t cache_bytes(int name, int64_t fallback) {
  long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

/// What one core reaches. sysconf adds up the last-level caches of the whole package, of which there may be
/// many.
int64_t last_level_bytes(int64_t fallback) {
  std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t size = 0;
  char unit = 0;
  if (!(in >> size >> unit) || size <= 0) return fallback;
  return size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
}

/// Matrix registers are eight kilobytes of state, which Linux keeps only for a process that has asked for it.
bool matrix_registers_are_granted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Target detect() {
  std::set<std::string> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    if (feature.second) features.insert(feature.first().str());
  if (features.contains("amx-tile") && !matrix_registers_are_granted()) features.erase("amx-tile");
  Target t = target_of_features(features, knob("TORCHBOLT_ISA"));
  t.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, t.l1_bytes);
  t.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, t.l2_bytes);
  t.l3_bytes = last_level_bytes(t.l3_bytes);
  return t;
}

}  // namespace

Target target_of_features(const std::set<std::string>& features, std::string_view wanted) {
  Target machine{.isa = widest(features)};
  for (const Extension& e : kExtensions) machine.*e.has = features.contains(e.feature);
  const Isa isa = wanted_isa(wanted, machine.isa);
  if (isa > machine.isa)
    throw_user("TORCHBOLT_ISA=", wanted, ": this machine runs at most ", name_of(machine.isa),
               "; leave the variable out to use what the machine has");
  return machine.narrowed(isa);
}

const Target& Target::host() {
  static const Target target = detect();
  return target;
}

std::string Target::key() const {
  std::string key = name_of(isa);
  for (const Extension& e : kExtensions)
    if (this->*e.has) key += std::string("+") + e.name;
  return key + " l1=" + std::to_string(l1_bytes) + " l2=" + std::to_string(l2_bytes) +
         " l3=" + std::to_string(l3_bytes);
}

Target Target::narrowed(Isa most) const {
  Target t = *this;
  t.isa = std::min(isa, most);
  for (const Extension& e : kExtensions) t.*e.has = t.*e.has && t.isa >= e.least;
  return t;
}

std::string Target::lacks(const Target& other) const {
  std::string words;
  auto add = [&](const char* name) { words += (words.empty() ? "" : ", ") + std::string(name); };
  if (other.isa > isa) add(name_of(other.isa));
  for (const Extension& e : kExtensions)
    if (other.*e.has && !(this->*e.has)) add(e.name);
  return words;
}

void require_host_runs(const Target& target) {
  const std::string missing = Target::host().lacks(target);
  if (missing.empty()) return;
  throw_user("code for ", target.key(), " cannot run here: there is no ", missing,
             " (TORCHBOLT_ISA=", knob("TORCHBOLT_ISA"), "); compile for Target::host()");
}

}  // namespace bolt::codegen::cpu
