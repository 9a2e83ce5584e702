// support/trace.cpp
#include "support/trace.h"

#include <atomic>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace bolt {

Trace::Trace(const std::string& root, const std::string& name) {
  if (root.empty()) return;
  static std::atomic<int> count{0};
  std::string last = name;
  for (char& c : last)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '_';
  char number[16];
  std::snprintf(number, sizeof number, "%03d_", count++);
  folder_ = root + "/" + number + last;
}

void Trace::write(const std::string& file, std::string_view text) const {
  if (!wanted()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::ofstream out(folder_ + "/" + file, std::ios::binary);
  if (!(out << text))
    std::fprintf(stderr, "torchbolt: cannot write the trace %s/%s\n", folder_.c_str(), file.c_str());
}

}  // namespace bolt
