// support/log.cpp
#include "support/log.h"

#include <cstdio>
#include <map>
#include <mutex>

#include "support/knobs.h"
#include "support/text.h"

namespace bolt {

const std::vector<LogName>& log_names() {
  static const std::vector<LogName> table = {
      {"dynamo", "all", "all of the front end: the names below up to dynamic"},
      {"graph_breaks", "dynamo", "where and why a region ended"},
      {"guards", "dynamo", "what each new program rests on"},
      {"recompiles", "dynamo", "the guard that failed where a call is recorded again, and the values"},
      {"recompiles_verbose", "", "the same for every program that did not fit, not only the last"},
      {"graph_code", "dynamo", "the operators that were recorded, with their lines"},
      {"graph", "graph_code", "another name of graph_code", true},
      {"graph_code_verbose", "graph_code", "another name of graph_code", true},
      {"pre_grad_graphs", "graph_code", "another name of graph_code", true},
      {"verbose_guards", "guards", "another name of guards", true},
      {"dynamic", "dynamo", "what decides between static and symbolic sizes"},
      {"inductor", "all", "all of the compiler behind the front end: the names below"},
      {"aot_joint_graph", "inductor", "forward and backward pass of a region, as one tape"},
      {"aot_graphs", "inductor", "the functional graph before the passes"},
      {"aot", "aot_graphs", "another name of aot_graphs", true},
      {"post_grad_graphs", "inductor", "the graph after the passes"},
      {"ir_pre_fusion", "post_grad_graphs", "another name of post_grad_graphs", true},
      {"fusion", "inductor", "the plan: kernels, what was fused into them, library calls, memory"},
      {"ir_post_fusion", "fusion", "another name of fusion", true},
      {"schedule", "inductor", "how each kernel is mapped to sweeps, vectors and threads"},
      {"output_code", "inductor", "the LLVM IR of the kernels"},
      {"kernel_code", "output_code", "another name of output_code", true},
      {"perf_hints", "all", "what keeps a region from being fast: replays, calls of single operators"},
      {"cache", "inductor", "what came from the disk cache: machine code, plans"},
      {"caching", "cache", "another name of cache", true},
      {"cudagraphs", "all", "recordings of CUDA graphs, and why there is none"},
  };
  return table;
}

namespace {

struct Wanted {
  std::map<std::string_view, int> level;  ///< of the table's names: 1, or 2 with a plus
  std::string unknown;
};

std::mutex mutex;
std::string given;  // by set_logs

/// Torch's own variable may hold names of torch's that mean nothing here; ours may not.
void read(const std::string& text, bool ours, Wanted& wanted) {
  for (std::string_view item : split(text, ',')) {
    item = trim(item);
    if (item.empty()) continue;
    const char sign = item[0];
    if (sign == '+' || sign == '-') item.remove_prefix(1);
    const int level = sign == '-' ? 0 : sign == '+' ? 2 : 1;
    bool found = item == "help";
    if (found) std::fputs(log_help().c_str(), stderr);
    auto set = [&](auto&& self, std::string_view name) -> void {
      for (const LogName& row : log_names())
        if (row.part_of == name) wanted.level[row.name] = level, self(self, row.name);
    };
    for (const LogName& row : log_names())
      if (row.name == item) found = true, wanted.level[row.other_name ? row.part_of : row.name] = level;
    if (item == "all") found = true;
    if (found) set(set, item);
    if (!found && ours) wanted.unknown += " " + std::string(item);
  }
}

const Wanted& wanted() {
  // Never destroyed: a compilation may log while the process ends.
  static auto* cache = new std::map<std::string, Wanted>();
  std::lock_guard lock(mutex);
  const std::string ours = given.empty() ? knob("TORCHBOLT_LOGS") : given, torchs = knob("TORCH_LOGS");
  auto [it, first] = cache->try_emplace(torchs + "\n" + ours);
  if (!first) return it->second;
  read(torchs, false, it->second);
  read(ours, true, it->second);
  if (!it->second.unknown.empty())
    std::fprintf(stderr, "torchbolt: TORCHBOLT_LOGS has unknown names:%s\n%s", it->second.unknown.c_str(),
                 log_help().c_str());
  return it->second;
}

}  // namespace

bool log_wanted(std::string_view name, bool more) {
  const Wanted& w = wanted();
  if (w.level.empty()) return false;
  auto it = w.level.find(name);
  return it != w.level.end() && it->second >= (more ? 2 : 1);
}

void log(std::string_view name, std::string_view text) {
  if (!log_wanted(name)) return;
  std::string out;
  for (std::string_view line : split(text, '\n')) {
    if (line.empty() && line.data() + line.size() == text.data() + text.size()) break;
    out += "[torchbolt " + std::string(name) + "] " + std::string(line) + "\n";
  }
  const std::string ours = knob("TORCHBOLT_LOGS_OUT"), path = ours.empty() ? knob("TORCH_LOGS_OUT") : ours;
  std::lock_guard lock(mutex);
  std::FILE* file = path.empty() ? stderr : std::fopen(path.c_str(), "a");
  if (!file) file = stderr;
  std::fwrite(out.data(), 1, out.size(), file);
  if (file != stderr) std::fclose(file);
}

void set_logs(const std::string& text) {
  std::lock_guard lock(mutex);
  given = text;
}

std::string log_help() {
  std::string out =
      "TORCHBOLT_LOGS takes these names, separated by commas (+name: more of it, -name: none, all):\n";
  for (const LogName& row : log_names()) {
    out += "  " + std::string(row.name);
    out.append(row.name.size() < 20 ? 20 - row.name.size() : 1, ' ');
    out += std::string(row.meaning) + "\n";
  }
  return out;
}

}  // namespace bolt
