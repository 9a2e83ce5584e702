// tests/codegen/targets.h
// The targets that tests ask about -> those that run on this machine, and a look at the code of the others.
//
// A test goes over the instruction sets it has something to say of. Where the machine, as TORCHBOLT_ISA
// leaves it, runs one (runs_here), the test runs its code; where not, the code is emitted and assembled all
// the same, and look_at() finds instructions that the target does not have. What was left out so is counted,
// and targets_test.cpp prints it as one line at the end of the run. No gtest in here: the micro benchmark
// includes it through tests/gemm/harness.h.
#pragma once

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "codegen/cpu/jit.h"

namespace bolt::codegen::cpu::testing {

using Isa = Target::Isa;
/// By the width of their vectors; what has matrix registers has those of AVX-512.
inline constexpr Isa kIsas[] = {Isa::Scalar, Isa::Avx2, Isa::Avx512};
inline constexpr Isa kVectorIsas[] = {Isa::Avx2, Isa::Avx512};

/// No extensions and caches of common sizes: what is chosen for it is the same on every machine.
inline Target target_of(Isa isa) {
  Target target;
  target.isa = isa;
  return target;
}

/// The host's caches and another instruction set.
inline Target host_with(Isa isa) {
  Target target = Target::host();
  if (target.isa < isa) target.f16c = true;
  target.isa = isa;
  target.f16c = target.f16c && isa != Isa::Scalar;
  target.avx512_bf16 = target.avx512_fp16 = false;
  return target;
}

inline std::vector<Target> targets() {
  std::vector<Target> all;
  for (Isa isa : kIsas) all.push_back(host_with(isa));
  return all;
}

inline bool runs_here(const Target& target) { return Target::host().lacks(target).empty(); }

/// For tests to which any instruction set is as good as another.
inline Target widest_here() { return host_with(std::min(Target::host().isa, Isa::Avx512)); }

/// "avx512+bf16": the target without its caches.
inline std::string instructions_of(const Target& target) {
  const std::string key = target.key();
  return key.substr(0, key.find(' '));
}

// ---- code that cannot run here

/// Every mnemonic, register and "{...}" of an assembly text, once.
inline std::set<std::string> words_of(const std::string& assembly) {
  std::set<std::string> words;
  std::istringstream lines(assembly);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    const size_t start = line.find_first_not_of(" \t");
    // Instructions are indented, labels are not; directives begin with a dot.
    if (start == line.npos || start == 0 || line[start] == '.') continue;
    words.insert(line.substr(start, line.find_first_of(" \t", start) - start));
    for (size_t at = line.find_first_of("%{"); at != line.npos; at = line.find_first_of("%{", at + 1))
      words.insert(line.substr(at, line.find_first_of(",)} \t", at) - at));
  }
  return words;
}

struct Feature {
  const char* name;
  bool (*has)(const Target&);
  const char* words;  // of which at least one shows that the feature is used
};

inline const std::vector<Feature>& features() {
  static const std::vector<Feature> all = {
      {"SSE4", [](const Target& t) { return t.isa >= Isa::Avx2; },
       "(round[ps][sd]|p?blend.*|pmulld|pshufb|ptest|h(add|sub)p[sd]|pmov[sz]x.*|p(extr|insr)[bdq]|dpp[sd])"},
      {"BMI", [](const Target& t) { return t.isa >= Isa::Avx2; },
       "(andn[lq]|bextr|bls|bzhi|lzcnt|tzcnt|popcnt|movbe|mulx|pdep|pext|rorx|sarx|shlx|shrx).*"},
      {"AVX", [](const Target& t) { return t.isa >= Isa::Avx2; }, "(v.*|%ymm.*)"},
      {"AVX-512", [](const Target& t) { return t.isa >= Isa::Avx512; },
       "(%zmm.*|%[xy]mm(1[6-9]|2.|3.)|%k[0-7]|\\{(1to|r[nduz]-|z|sae).*|kmov.*|"
       "v(pternlog|scalef|rndscale|getexp|getmant|fixupimm|reduce|range|perm[it]2|pconflict|plzcnt).*)"},
      {"F16C", [](const Target& t) { return t.isa >= Isa::Avx512 || t.f16c; }, "vcvt(ph2ps|ps2ph)"},
      {"AVX512-BF16", [](const Target& t) { return t.avx512_bf16; }, "v(dpbf16|cvtne).*"},
      {"AVX512-FP16", [](const Target& t) { return t.avx512_fp16; }, "v(?!cvtps2ph)[a-z]+[0-9]*[ps]h"},
      {"AMX", [](const Target& t) { return t.isa >= Isa::Amx; }, "((ldtile|sttile|tile|tdp).*|%tmm[0-7])"},
  };
  return all;
}

/// The first word that the target does not have, with the feature it belongs to; empty when there is none.
inline std::string foreign_word(const std::string& assembly, const Target& target) {
  const std::set<std::string> words = words_of(assembly);
  for (const Feature& feature : features()) {
    if (feature.has(target)) continue;
    const std::regex pattern(feature.words);
    for (const std::string& word : words)
      if (std::regex_match(word, pattern)) return word + " of " + feature.name;
  }
  return "";
}

/// How often code was looked at instead of run, by instruction set.
inline std::map<std::string, int>& left_out() {
  static std::map<std::string, int> counts;
  return counts;
}

/// In place of a run: throws when the code has instructions that the target does not have.
inline void look_at(const Assembled& code, const Target& target) {
  ++left_out()[instructions_of(target)];
  if (code.object.substr(0, 4) != "\177ELF") throw std::logic_error("no object for " + target.key());
  const std::string word = foreign_word(code.text, target);
  if (!word.empty()) throw std::logic_error("code for " + target.key() + " has " + word);
}

}  // namespace bolt::codegen::cpu::testing
