// codegen/cuda/nvrtc.h
// CUDA C++ text -> machine code of one architecture, by NVIDIA's runtime compiler.
//
// Nothing is linked: the library is found when it is first needed, so one build serves machines with and
// without CUDA. Where torch has CUDA it has a copy of NVRTC, which fits its driver; that one comes first.
// Compiling needs no GPU, no driver and no GIL, and any number of threads may do it at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/export.h"

namespace bolt::codegen::cuda {

class BOLT_API Nvrtc {
 public:
  /// The first that can be opened of: `paths` (a file, or a folder that holds one), a copy that this process
  /// has loaded, and what the loader finds by name. Null: there is none, and `*why` says what was tried.
  static std::shared_ptr<const Nvrtc> open(const std::vector<std::string>& paths, std::string* why);

  /// "13.0": part of every cache key.
  std::string version() const { return std::to_string(major_) + "." + std::to_string(minor_); }
  /// Machine code for a compute capability (90: sm_90). The newest one that this version knows serves a newer
  /// device only as PTX, so an unknown one is Unsupported; a text that does not compile is
  /// Error(Internal) with the lines at fault.
  std::string compile(const std::string& text, int capability) const;
  bool knows(int capability) const;

  struct Functions;  // nvrtc.cpp

 private:
  Nvrtc(void* library, std::shared_ptr<const Functions> functions);
  std::shared_ptr<const Functions> f_;
  int major_ = 0, minor_ = 0;
  std::vector<int> capabilities_;
};

/// Where the CUDA wheels beside a torch package keep NVRTC: `torch_folder` is that of torch's __init__.py.
BOLT_API std::vector<std::string> nvrtc_folders(const std::string& torch_folder);

}  // namespace bolt::codegen::cuda
