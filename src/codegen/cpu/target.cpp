// codegen/cpu/target.cpp
// The machine we run on -> Target. Asked once; TORCHBOLT_ISA lowers it so that tests and users can try the
// smaller ones.

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <unistd.h>

#include <fstream>

#include "codegen/cpu/jit.h"
#include "support/error.h"
#include "support/knobs.h"

namespace bolt::codegen::cpu {
namespace {

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

Target detect() {
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  auto has = [&](const char* feature) { return features.lookup(feature); };
  Target t{.isa = Target::Isa::Scalar};
  if (has("avx2") && has("fma") && has("bmi2")) t.isa = Target::Isa::Avx2;
  if (t.isa == Target::Isa::Avx2 && has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq"))
    t.isa = Target::Isa::Avx512;

  const std::string isa = knob("TORCHBOLT_ISA");
  if (isa == "scalar") t.isa = Target::Isa::Scalar;
  if (isa == "avx2" && t.isa == Target::Isa::Avx512) t.isa = Target::Isa::Avx2;
  if (isa != "native" && isa != "avx512" && isa != "avx2" && isa != "scalar")
    throw_user("TORCHBOLT_ISA must be native, avx512, avx2 or scalar, not '", isa, "'");

  t.f16c = t.isa != Target::Isa::Scalar && has("f16c");
  t.avx512_bf16 = t.isa == Target::Isa::Avx512 && has("avx512bf16");
  t.avx512_fp16 = t.isa == Target::Isa::Avx512 && has("avx512fp16");
  t.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, t.l1_bytes);
  t.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, t.l2_bytes);
  t.l3_bytes = last_level_bytes(t.l3_bytes);
  return t;
}

}  // namespace

const Target& Target::host() {
  static const Target target = detect();
  return target;
}

std::string Target::key() const {
  static constexpr const char* kNames[] = {"scalar", "avx2", "avx512"};
  std::string key = kNames[static_cast<int>(isa)];
  if (f16c) key += "+f16c";
  if (avx512_bf16) key += "+bf16";
  if (avx512_fp16) key += "+fp16";
  return key + " l1=" + std::to_string(l1_bytes) + " l2=" + std::to_string(l2_bytes) +
         " l3=" + std::to_string(l3_bytes);
}

}  // namespace bolt::codegen::cpu
