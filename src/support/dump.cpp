// support/dump.cpp
#include "support/dump.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "support/knobs.h"
#include "support/text.h"

namespace bolt {
namespace {

bool matches(std::string_view pattern, std::string_view text) {
  return pattern.empty() || pattern == "*" || pattern == "all" || pattern == text;
}

bool item_matches(std::string_view item, std::string_view stage, std::string_view pass,
                  std::string_view name) {
  size_t at = item.find('@');
  std::string_view wanted_name = at == std::string_view::npos ? "" : item.substr(at + 1);
  item = item.substr(0, at);
  size_t colon = item.find(':');
  std::string_view wanted_pass = colon == std::string_view::npos ? "" : item.substr(colon + 1);
  return matches(item.substr(0, colon), stage) && matches(wanted_pass, pass) && matches(wanted_name, name);
}

std::string file_name(std::string_view stage, std::string_view pass, std::string_view name) {
  static std::atomic<int> counter{0};
  char number[16];
  std::snprintf(number, sizeof number, "%04d_", counter++);
  std::string out = std::string(number) + std::string(stage);
  for (std::string_view part : {pass, name})
    if (!part.empty()) out += "_" + std::string(part);
  for (char& c : out)
    if (c == '/' || c == ' ') c = '_';
  return out + ".txt";
}

}  // namespace

bool dump_wanted(std::string_view stage, std::string_view pass, std::string_view name) {
  const std::string wanted = knob("TORCHBOLT_DUMP");
  if (wanted.empty()) return false;
  for (std::string_view item : split(wanted, ','))
    if (item_matches(trim(item), stage, pass, name)) return true;
  return false;
}

void dump(std::string_view stage, std::string_view pass, std::string_view name, std::string_view text) {
  if (!dump_wanted(stage, pass, name)) return;
  const std::string folder = knob("TORCHBOLT_DUMP_DIR");
  if (folder.empty()) {
    std::string out =
        "; ---- " + std::string(stage) + " after " + std::string(pass) + " @" + std::string(name) + "\n";
    out += text;
    std::fwrite(out.data(), 1, out.size(), stderr);
    return;
  }
  std::string path = folder + "/" + file_name(stage, pass, name);
  if (std::FILE* f = std::fopen(path.c_str(), "w")) {
    std::fwrite(text.data(), 1, text.size(), f);
    std::fclose(f);
  } else {
    std::fprintf(stderr, "torchbolt: cannot write the dump %s\n", path.c_str());
  }
}

}  // namespace bolt
