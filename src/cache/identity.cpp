// cache/identity.cpp
#include "cache/identity.h"

#include <link.h>

#include <cstdint>

#include "cache/disk_cache.h"

namespace bolt::cache {

std::string identity_of(const void* inside) {
  struct Search {
    uintptr_t address;
    std::string found;
  } search{reinterpret_cast<uintptr_t>(inside), BOLT_VERSION};
  auto visit = [](dl_phdr_info* info, size_t, void* out) {
    auto& s = *static_cast<Search*>(out);
    bool holds = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& h = info->dlpi_phdr[i];
      const uintptr_t begin = info->dlpi_addr + h.p_vaddr;
      holds |= h.p_type == PT_LOAD && s.address >= begin && s.address < begin + h.p_memsz;
    }
    for (int i = 0; holds && i < info->dlpi_phnum; ++i) {
      const auto& h = info->dlpi_phdr[i];
      if (h.p_type != PT_NOTE) continue;
      const char* notes = reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr);
      s.found += " " + hash128({notes, h.p_memsz}).hex();
    }
    return holds ? 1 : 0;
  };
  dl_iterate_phdr(visit, &search);
  return search.found;
}

}  // namespace bolt::cache
