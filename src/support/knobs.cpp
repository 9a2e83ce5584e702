// support/knobs.cpp
// The table of environment variables, and its reader.
#include "support/knobs.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "support/error.h"
#include "support/text.h"

namespace bolt {

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> table = {
      {"TORCHBOLT_CACHE_DIR", "", false,
       "folder of the disk cache, which nobody but you and root may write; default torchbolt under the "
       "user's cache folder"},
      {"TORCHINDUCTOR_CACHE_DIR", "", false,
       "the same, in a folder torchbolt below it, where TORCHBOLT_CACHE_DIR is not set"},
      {"TORCHBOLT_CACHE_LIMIT_MB", "1024", false, "the disk cache is trimmed to this size, oldest use first"},
      {"TORCHBOLT_CACHE", "1", false, "0: neither read nor write the disk cache"},
      {"TORCHBOLT_CACHE_KEY", "", false,
       "signs what is carried from cache to cache (torchbolt/artifacts.py) and entries of a shared cache: "
       "the "
       "same secret on all machines"},
      {"TORCHBOLT_REMOTE_CACHE", "", false,
       "a Redis server that machines share behind their disk caches: "
       "redis://[[user]:password@]host[:port][/database]"},
      {"TORCHBOLT_REMOTE_CACHE_TIMEOUT_MS", "250", false,
       "how long one question to it may take; one that takes longer is the last"},
      {"TORCHBOLT_STRICT", "0", false, "1: an internal error is raised instead of falling back to eager"},
      {"TORCHBOLT_CPU_RECORDINGS", "0", false,
       "1: launches on the processor may be recorded and repeated as by CUDA graphs, which tests their "
       "rules; calls: calls of ATen as well"},
      {"TORCHBOLT_MEASURE", "auto", false,
       "1: first calls measure programs beside eager, and those that are slower are given up; 0: they do "
       "not; "
       "auto: they do unless TORCHBOLT_STRICT is set"},
      {"TORCHBOLT_NUMERICS", "fast", false,
       "eager: what torchbolt.config.numerics is at first; values of half types are rounded as in eager"},
      {"TORCHBOLT_ISA", "native", true,
       "native, amx, avx512, avx2 or scalar: the widest instructions to emit"},
      {"TORCHBOLT_DISABLE", "0", false, "1: torchbolt.compile returns its argument's own behaviour, eager"},
      {"TORCHBOLT_CHANNELS_LAST", "auto", true,
       "auto: convolutions that a library computes on CUDA are given images whose channels are innermost; 1: "
       "on "
       "every device; 0: nowhere"},
      {"TORCHBOLT_MERGE_PRODUCTS", "auto", true,
       "auto: products of one operand by several weights are one call where that takes less time; 1: "
       "always; 0: never"},
      {"TORCHBOLT_DISABLE_PASSES", "", true, "names of graph passes to leave out, separated by commas"},
      {"TORCHBOLT_FUEL", "-1", true, "at most so many fusions in a program; to bisect a bug"},
      {"TORCHBOLT_VERIFY", "0", false, "1: the verifier runs after every graph pass"},
      {"TORCHBOLT_THREADS", "16", false, "at most so many compile threads, and no more than there are cores"},
      {"TORCHBOLT_RESULT_CACHE_MB", "256", false,
       "memory of large results that the caller let go, kept for the next ones"},
      {"TORCHBOLT_DUMP", "", false,
       "stages to print: stage, stage:pass or stage:pass@name, separated by commas"},
      {"TORCHBOLT_DUMP_DIR", "", false, "write dumps to files in this folder instead of standard error"},
      {"TORCHBOLT_LOGS", "", false,
       "what to log: graph_breaks, guards, +recompiles, all, help, ... (support/log.cpp)"},
      {"TORCH_LOGS", "", false,
       "the same, as torch.compile's users know it; names unknown here are passed over"},
      {"TORCHBOLT_LOGS_OUT", "", false, "write logs to this file instead of standard error"},
      {"TORCH_LOGS_OUT", "", false, "the same, where TORCHBOLT_LOGS_OUT is not set"},
  };
  return table;
}

namespace {
const Knob& find(std::string_view name) {
  const std::vector<Knob>& table = knobs();
  auto it = std::find_if(table.begin(), table.end(), [&](const Knob& k) { return k.name == name; });
  BOLT_CHECK(it != table.end(), "the environment variable ", name,
             " is not in the table of support/knobs.cpp");
  return *it;
}
std::string read(const Knob& k) {
  // Rows are literals, so the name ends with a NUL.
  const char* value = std::getenv(k.name.data());
  return value && *value ? std::string(value) : std::string(k.fallback);
}
}  // namespace

std::string knob(std::string_view name) { return read(find(name)); }

int64_t knob_int(std::string_view name) {
  std::string text = knob(name);
  int64_t v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size())
    throw_user(name, " must be an integer, not '", text, "'");
  return v;
}

bool knob_bool(std::string_view name) {
  std::string text = knob(name);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  throw_user(name, " must be 0 or 1, not '", text, "'");
}

bool knob_has(std::string_view name, std::string_view item) {
  std::string text = knob(name);
  for (std::string_view part : split(text, ','))
    if (trim(part) == item) return true;
  return false;
}

std::string knobs_for_cache_key() {
  std::string out;
  for (const Knob& k : knobs()) {
    if (!k.changes_code) continue;
    std::string value = read(k);
    if (value != k.fallback) out += std::string(k.name) + "=" + value + ";";
  }
  return out;
}

}  // namespace bolt
