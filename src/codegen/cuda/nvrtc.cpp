// codegen/cuda/nvrtc.cpp
// See nvrtc.h. A call costs some 30 ms before it reads a line, so callers put many kernels into one text.

#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "support/error.h"

namespace bolt::codegen::cuda {

namespace fs = std::filesystem;
using NvrtcProgram = void*;

struct Nvrtc::Functions {
  int (*version)(int*, int*);
  const char* (*error)(int);
  int (*create)(NvrtcProgram*, const char* text, const char* name, int, const char* const*,
                const char* const*);
  int (*destroy)(NvrtcProgram*);
  int (*compile)(NvrtcProgram, int count, const char* const* options);
  int (*cubin_size)(NvrtcProgram, size_t*);
  int (*cubin)(NvrtcProgram, char*);
  int (*log_size)(NvrtcProgram, size_t*);
  int (*log)(NvrtcProgram, char*);
  int (*arch_count)(int*);
  int (*archs)(int*);
};

namespace {

/// Newest first: the names that the wheels and the toolkit give the library.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
/// Ours is not to be bothered by symbols of a second version in the process.
constexpr int kHow = RTLD_NOW | RTLD_LOCAL;

constexpr int kInvalidOption = 5;

bool starts_with_name(const fs::path& file, const char* name) {
  return file.filename().string().rfind(name, 0) == 0;
}

/// NVRTC opens its table of built-in functions by name alone, and a wheel's copy does not say where that
/// lies. Once it is open under that name, the loader finds it.
void open_builtins_beside(const fs::path& library) {
  std::error_code ignored;
  for (const fs::directory_entry& e : fs::directory_iterator(library.parent_path(), ignored))
    if (starts_with_name(e.path(), "libnvrtc-builtins.so")) ::dlopen(e.path().c_str(), kHow);
}

void* open_file(const fs::path& path) {
  open_builtins_beside(path);
  return ::dlopen(path.c_str(), kHow);
}

void* open_path(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return fs::exists(path, ignored) ? open_file(path) : nullptr;
  for (const char* name : kNames)
    if (fs::exists(fs::path(path) / name, ignored))
      if (void* library = open_file(fs::path(path) / name)) return library;
  return nullptr;
}

void* open_by_name(int how) {
  for (const char* name : kNames)
    if (void* library = ::dlopen(name, how)) return library;
  return nullptr;
}

std::shared_ptr<const Nvrtc::Functions> functions_of(void* library) {
  auto f = std::make_shared<Nvrtc::Functions>();
  bool all = true;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    all = all && function;
  };
  find(f->version, "nvrtcVersion");
  find(f->error, "nvrtcGetErrorString");
  find(f->create, "nvrtcCreateProgram");
  find(f->destroy, "nvrtcDestroyProgram");
  find(f->compile, "nvrtcCompileProgram");
  find(f->cubin_size, "nvrtcGetCUBINSize");
  find(f->cubin, "nvrtcGetCUBIN");
  find(f->log_size, "nvrtcGetProgramLogSize");
  find(f->log, "nvrtcGetProgramLog");
  find(f->arch_count, "nvrtcGetNumSupportedArchs");
  find(f->archs, "nvrtcGetSupportedArchs");
  return all ? f : nullptr;
}

/// The log, each of its messages followed by the line of the text that it is about.
std::string with_lines(const std::string& log, const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::string out;
  std::istringstream messages(log);
  for (std::string message; std::getline(messages, message);) {
    out += message + "\n";
    const size_t at = message.find(".cu(");
    const long number = at == message.npos ? 0 : std::strtol(message.c_str() + at + 4, nullptr, 10);
    if (number > 0 && number <= static_cast<long>(lines.size()))
      out += "  " + std::to_string(number) + ": " + lines[static_cast<size_t>(number) - 1] + "\n";
  }
  return out;
}

/// A program that is destroyed whatever happens.
struct Owned {
  const Nvrtc::Functions& f;
  NvrtcProgram program = nullptr;
  ~Owned() {
    if (program) f.destroy(&program);
  }
};

}  // namespace

Nvrtc::Nvrtc(void*, std::shared_ptr<const Functions> functions) : f_(std::move(functions)) {
  f_->version(&major_, &minor_);
  int count = 0;
  if (f_->arch_count(&count) == 0 && count > 0) {
    capabilities_.resize(static_cast<size_t>(count));
    if (f_->archs(capabilities_.data()) != 0) capabilities_.clear();
  }
}

std::shared_ptr<const Nvrtc> Nvrtc::open(const std::vector<std::string>& paths, std::string* why) {
  void* library = nullptr;
  for (const std::string& path : paths)
    if (!library) library = open_path(path);
  if (!library) library = open_by_name(kHow | RTLD_NOLOAD);
  if (!library) library = open_by_name(kHow);
  const auto functions = library ? functions_of(library) : nullptr;
  if (functions) return std::shared_ptr<const Nvrtc>(new Nvrtc(library, functions));
  *why = library ? "NVRTC (" + std::string(kNames[0]) + ") is older than 11.2"
                 : "NVRTC (" + std::string(kNames[0]) + ") was not found: install nvidia-cuda-nvrtc";
  if (!paths.empty()) *why += "; looked in";
  for (const std::string& path : paths) *why += " " + path;
  return nullptr;
}

bool Nvrtc::knows(int capability) const {
  return std::find(capabilities_.begin(), capabilities_.end(), capability) != capabilities_.end();
}

std::string Nvrtc::compile(const std::string& text, int capability) const {
  if (!knows(capability))
    throw_unsupported("NVRTC ", version(), " has no code for compute capability ", capability / 10, ".",
                      capability % 10);
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
  // --minimal leaves out what our text never uses (textures, the device's runtime): a part of the 30 ms. It
  // stands last, so that a version that does not know it is asked again without.
  const char* options[] = {architecture.c_str(), "--std=c++17", "--minimal"};
  Owned owned{*f_};
  int result = f_->create(&owned.program, text.c_str(), "kernels.cu", 0, nullptr, nullptr);
  BOLT_CHECK(result == 0, "NVRTC: ", f_->error(result));
  result = f_->compile(owned.program, 3, options);
  if (result == kInvalidOption) result = f_->compile(owned.program, 2, options);
  size_t size = 0;
  if (result != 0) {
    std::string log;
    if (f_->log_size(owned.program, &size) == 0 && size > 0) {
      log.resize(size);
      f_->log(owned.program, log.data());
      log.resize(std::min(log.find('\0'), log.size()));
    }
    BOLT_CHECK(false, "NVRTC ", version(), ": ", f_->error(result), "\n", with_lines(log, text));
  }
  result = f_->cubin_size(owned.program, &size);
  BOLT_CHECK(result == 0 && size > 0, "NVRTC ", version(), " gave no machine code: ", f_->error(result));
  std::string code(size, '\0');
  result = f_->cubin(owned.program, code.data());
  BOLT_CHECK(result == 0, "NVRTC: ", f_->error(result));
  return code;
}

std::vector<std::string> nvrtc_folders(const std::string& torch_folder) {
  const fs::path packages = fs::path(torch_folder).parent_path();
  std::vector<std::string> folders = {(fs::path(torch_folder) / "lib").string()};
  for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"})
    folders.push_back((packages / wheel).string());
  return folders;
}

}  // namespace bolt::codegen::cuda
