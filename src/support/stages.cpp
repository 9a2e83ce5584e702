// support/stages.cpp
#include "support/stages.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "support/size_demand.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace bolt {
namespace {

constexpr int64_t kMuchMemory = 32 << 20;

/// Of this process, in bytes. 0: there is no telling.
int64_t resident_memory() {
  int64_t pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %" SCNd64, &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

void Stages::enter(const char* name) {
  finish();
  name_ = name;
  begin_ = Clock::now();
}

void Stages::finish() {
  if (!name_) return;
  const double taken = std::chrono::duration<double>(Clock::now() - begin_).count();
  auto known = std::find_if(seconds.begin(), seconds.end(), [&](auto& s) { return s.first == name_; });
  if (known == seconds.end())
    seconds.emplace_back(name_, taken);
  else
    known->second += taken;
  name_ = nullptr;
}

std::string Stages::where(const SizeDemand& demand) const {
  const std::string stage = name_ ? name_ : "";
  return (demand.where.empty() ? "the " + stage + " stage" : demand.where) + " (" + demand.what() + ")";
}

GiveMemoryBack::GiveMemoryBack() : before_(resident_memory()) {}

GiveMemoryBack::~GiveMemoryBack() {
#ifdef __GLIBC__
  if (resident_memory() - before_ > kMuchMemory) malloc_trim(0);
#endif
}

}  // namespace bolt
