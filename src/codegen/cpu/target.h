// codegen/cpu/target.h
// The machine's features, TORCHBOLT_ISA -> Target: what code is emitted for, and whether it runs here.
//
// This is the only place that asks what the host can do. Code is emitted for any target on any machine, since
// emitting needs none of the target's instructions; it is mapped for execution (machine.h: load_object) only
// when the host, as TORCHBOLT_ISA leaves it, has all that the target needs. So a machine that hides its
// features behaves as one that never had them, in the product and in the tests.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "support/export.h"

namespace bolt::codegen::cpu {

struct Target {
  /// Each has all that those before it have. Amx: matrix registers for products of bfloat16; its vectors are
  /// those of Avx512.
  enum class Isa : uint8_t { Scalar, Avx2, Avx512, Amx };

  Isa isa = Isa::Scalar;
  bool avx512_bf16 = false, avx512_fp16 = false, f16c = false;
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;

  /// What this process may run. Error(User) when TORCHBOLT_ISA asks for what the machine does not have.
  static const Target& host();
  /// Names all that decides the code; enters the cache key.
  std::string key() const;
  /// This target without what is wider than `most`.
  Target narrowed(Isa most) const;
  /// What code for `other` needs that this target does not have, in words; empty when it has everything.
  std::string lacks(const Target& other) const;
};

/// Error(User) when code for `target` cannot run in this process.
BOLT_API void require_host_runs(const Target& target);

/// What a machine with these features (LLVM's names) may run when TORCHBOLT_ISA is `wanted`; cache sizes are
/// the defaults. Error(User) for a `wanted` that is no instruction set or that the machine does not have.
BOLT_API Target target_of_features(const std::set<std::string>& features, std::string_view wanted);

}  // namespace bolt::codegen::cpu
