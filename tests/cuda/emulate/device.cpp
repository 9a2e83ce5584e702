// tests/cuda/emulate/device.cpp
// A libcuda.so.1 whose device is this processor: what device/driver/driver.h asks of the driver, for programs
// that launch kernels and wait. So the product's own launcher decides on blocks, threads, clusters, memory
// and arguments, and is tried with them.
//
// Device memory lies between pages that nobody may touch: against the one behind it, but for what 16-byte
// alignment leaves over, or against the one before it (emulate_as). It is rubbish at first, and what is left
// over must stay so. A launch that goes wrong says by cuGetErrorString which kernel did what where.

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/driver/driver.h"
#include "threads.h"

namespace emulated {
namespace {

using namespace bolt::device::driver;  // NOLINT: the driver's own names

constexpr CUresult kInvalidValue = 1, kInvalidImage = 200, kNotFound = 500, kIllegalAddress = 700,
                   kNotSupported = 801;
constexpr size_t kPage = 4096, kGuard = 16 << 20, kLine = 16;
constexpr unsigned kMostThreads = 1024;
constexpr int kPortableCluster = 8, kMostCluster = 16;

bool against_end = true, backwards = false;
std::string wrong;  // of the last launch

CUresult failed(const std::string& what) {
  wrong = what;
  return kIllegalAddress;
}

// ---- memory

struct Allocation {
  char* mapped;  // with the pages around it
  size_t mapped_bytes;
  size_t bytes;
  char *begin, *end;  // of what may be touched; the allocation may be less
};

std::mutex mutex;
std::map<char*, Allocation> allocations;  // by where they begin

size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

char* allocate(size_t bytes) {
  Allocation a{};
  a.bytes = bytes;
  const size_t inside = up(std::max<size_t>(bytes, 1), kPage);
  a.mapped_bytes = inside + 2 * kGuard;
  void* at = mmap(nullptr, a.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  a.mapped = static_cast<char*>(at);
  a.begin = a.mapped + kGuard;
  a.end = a.begin + inside;
  mprotect(a.begin, inside, PROT_READ | PROT_WRITE);
  std::memset(a.begin, kRubbish, inside);
  char* const mine = against_end ? a.end - up(bytes, kLine) : a.begin;
  allocations[mine] = a;
  return mine;
}

/// Which one an address is meant for: the one whose pages, or the empty ones around them, it is in.
const std::pair<char* const, Allocation>* owner(const char* address) {
  for (const auto& one : allocations)
    if (one.second.mapped <= address && address < one.second.mapped + one.second.mapped_bytes) return &one;
  return nullptr;
}

bool is_rubbish(const char* begin, const char* end) {
  return std::all_of(begin, end, [](char c) { return static_cast<unsigned char>(c) == kRubbish; });
}

// ---- modules

struct Function;

struct Text {
  void* library = nullptr;
  std::map<std::string, std::unique_ptr<Function>> functions;
  Loaded loaded{};
  char* shared = nullptr;
  size_t shared_bytes = 0;
  ~Text();
};

struct Function {
  const Text* text;
  const Kernel* kernel;
  std::string name;
  /// A device gives 48 KB unasked. What the text declares is part of them, and how much that is, is not known
  /// here.
  unsigned most_shared = 0;
  bool wide_clusters = false;
};

Text::~Text() {
  if (library) dlclose(library);
}

/// The bytes of an ELF file: the table of its sections is its end.
size_t image_bytes(const void* image) {
  ElfW(Ehdr) head;
  std::memcpy(&head, image, sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
}

/// This thread's copy of a library's thread-local variables.
void find_shared(Text& text) {
  struct Search {
    Text& text;
    const char* inside;
  } search{text, text.loaded.shared};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        auto* const begin = static_cast<char*>(info->dlpi_tls_data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& head = info->dlpi_phdr[i];
          if (head.p_type != PT_TLS || !begin || s.inside < begin || s.inside >= begin + head.p_memsz)
            continue;
          s.text.shared = begin;
          s.text.shared_bytes = head.p_memsz;
          return 1;
        }
        return 0;
      },
      &search);
}

std::string described(const Function& f, void** arguments, const char* address) {
  const auto* found = owner(address);
  if (!found) return "an address that is nobody's";
  const auto& [mine, a] = *found;
  const auto from_begin = address - mine, bytes = static_cast<ptrdiff_t>(a.bytes);
  std::string text = from_begin < 0        ? std::to_string(-from_begin) + " bytes before"
                     : from_begin >= bytes ? std::to_string(from_begin - bytes) + " bytes behind"
                                           : std::to_string(from_begin) + " bytes into";
  text += " memory of " + std::to_string(bytes) + " bytes";
  // The argument of a list holds those of several launches.
  for (int i = 0; i < f.kernel->arguments; ++i)
    for (unsigned word = 0; 8 * (word + 1) <= f.kernel->bytes[i]; ++word) {
      char* argument = nullptr;
      std::memcpy(&argument, static_cast<char*>(arguments[i]) + 8 * word, sizeof argument);
      if (mine > argument || argument > mine + bytes) continue;
      return text + ", argument " + std::to_string(i) + (word > 0 ? ", word " + std::to_string(word) : "");
    }
  return text + ", no argument of " + f.name;
}

CUresult launch(Function& f, unsigned blocks, unsigned threads, unsigned shared, void** arguments) {
  const Kernel& k = *f.kernel;
  if (blocks == 0 || threads == 0 || threads > kMostThreads || threads > static_cast<unsigned>(k.threads))
    return kInvalidValue;
  if (shared > f.most_shared || blocks % static_cast<unsigned>(k.cluster) != 0) return kInvalidValue;
  if (k.cluster > (f.wide_clusters ? kMostCluster : kPortableCluster)) return kInvalidValue;
  if (shared > 0 && !f.text->loaded.dynamic) return kInvalidValue;
  Launch l;
  l.kernel = &k;
  l.module = f.text->loaded.module;
  l.arguments = arguments;
  l.blocks = blocks;
  l.threads = threads;
  l.shared = f.text->shared;
  l.shared_bytes = f.text->shared_bytes;
  l.dynamic = f.text->loaded.dynamic;
  l.dynamic_bytes = shared;
  l.backwards = backwards;
  l.place = [&](const char* address) { return described(f, arguments, address); };
  if (const std::string what = run(l); !what.empty()) return failed(f.name + ", " + what);
  for (const auto& [mine, a] : allocations)
    if (!is_rubbish(a.begin, mine) || !is_rubbish(mine + a.bytes, a.end))
      return failed(f.name + ": " + "wrote beside memory of " + std::to_string(a.bytes) + " bytes");
  return kSuccess;
}

CUresult load(Text& text, const void* image) {
  const size_t bytes = image_bytes(image);
  if (bytes == 0) return kInvalidImage;
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/emulated-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return kInvalidImage;
  const bool written = write(file, image, bytes) == static_cast<ssize_t>(bytes);
  close(file);
  text.library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!text.library) wrong = dlerror();
  unlink(path.c_str());
  if (!text.library) return kInvalidImage;
  const auto ask = reinterpret_cast<Loaded (*)()>(dlsym(text.library, "bolt_loaded"));
  if (!ask) return kInvalidImage;
  text.loaded = ask();
  find_shared(text);
  return kSuccess;
}

template <typename T>
T* pointer(CUdeviceptr at) {
  return reinterpret_cast<T*>(at);
}

}  // namespace
}  // namespace emulated

using namespace emulated;  // NOLINT: what follows is the library's surface

extern "C" {

/// Memory against the pages behind it or before it; blocks, warps and lanes from the first or from the last.
void emulate_as(int memory_against_end, int last_first) {
  against_end = memory_against_end != 0;
  backwards = last_first != 0;
}

CUresult cuInit(unsigned) { return kSuccess; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
CUresult cuGetErrorName(CUresult, const char** name) { return *name = "emulated", kSuccess; }
CUresult cuGetErrorString(CUresult result, const char** text) {
  *text = result == kIllegalAddress || result == kInvalidImage ? wrong.c_str() : "what CUDA would refuse";
  return kSuccess;
}
CUresult cuDeviceGetCount(int* count) { return *count = 1, kSuccess; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, kSuccess; }
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  if (length > 0) name[std::string("an emulated device").copy(name, static_cast<size_t>(length) - 1)] = 0;
  return kSuccess;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  *value = attribute == kMajor                 ? 9
           : attribute == kMinor               ? 0
           : attribute == kMultiprocessors     ? 132
           : attribute == kMaxSharedBytesOptin ? static_cast<int>(kMostShared)
                                               : 0;
  return kSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  static char one;
  return *context = reinterpret_cast<CUcontext>(&one), kSuccess;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return kSuccess; }
CUresult cuCtxGetCurrent(CUcontext* context) { return cuDevicePrimaryCtxRetain(context, 0); }
CUresult cuCtxSetCurrent(CUcontext) { return kSuccess; }
CUresult cuCtxPushCurrent_v2(CUcontext) { return kSuccess; }
CUresult cuCtxPopCurrent_v2(CUcontext* context) { return cuDevicePrimaryCtxRetain(context, 0); }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, kSuccess; }
CUresult cuCtxSynchronize() { return kSuccess; }

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  auto text = std::make_unique<Text>();
  const CUresult result = load(*text, image);
  if (result == kSuccess) *module = reinterpret_cast<CUmodule>(text.release());
  return result;
}
CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<Text*>(module);
  return kSuccess;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto* text = reinterpret_cast<Text*>(module);
  const void* kernel = dlsym(text->library, ("kernel_" + std::string(name)).c_str());
  if (!kernel) return kNotFound;
  auto& known = text->functions[name];
  if (!known) known.reset(new Function{text, static_cast<const Kernel*>(kernel), name});
  *function = reinterpret_cast<CUfunction>(known.get());
  return kSuccess;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  auto& f = *reinterpret_cast<Function*>(function);
  if (attribute == kWideClusters) f.wide_clusters = value != 0;
  if (attribute != kMaxDynamicSharedBytes) return kSuccess;
  if (value < 0 || static_cast<unsigned>(value) > kMostShared) return kInvalidValue;
  f.most_shared = static_cast<unsigned>(value);
  return kSuccess;
}
CUresult cuFuncGetAttribute(int* value, int, CUfunction) { return *value = 0, kSuccess; }
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned shared, CUstream, void** arguments,
                        void**) {
  if (y != 1 || z != 1 || threads_y != 1 || threads_z != 1) return kNotSupported;
  return launch(*reinterpret_cast<Function*>(function), x, threads, shared, arguments);
}

CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) {
  const std::lock_guard lock(mutex);
  char* const memory = allocate(bytes);
  *at = reinterpret_cast<CUdeviceptr>(memory);
  return memory ? kSuccess : kOutOfMemory;
}
CUresult cuMemFree_v2(CUdeviceptr at) {
  const std::lock_guard lock(mutex);
  const auto it = allocations.find(pointer<char>(at));
  if (it == allocations.end()) return kInvalidValue;
  munmap(it->second.mapped, it->second.mapped_bytes);
  allocations.erase(it);
  return kSuccess;
}
CUresult cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  return (*at = std::calloc(1, bytes)) ? kSuccess : kOutOfMemory;
}
CUresult cuMemFreeHost(void* at) { return std::free(at), kSuccess; }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memmove(pointer<void>(to), pointer<void>(from), bytes), kSuccess;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  return std::memcpy(pointer<void>(to), from, bytes), kSuccess;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memcpy(to, pointer<void>(from), bytes), kSuccess;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream) {
  return std::memset(pointer<void>(at), value, count), kSuccess;
}
CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream) {
  return std::fill_n(pointer<unsigned>(at), count, value), kSuccess;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) { return *stream = nullptr, kSuccess; }
CUresult cuStreamDestroy_v2(CUstream) { return kSuccess; }
CUresult cuStreamSynchronize(CUstream) { return kSuccess; }
CUresult cuStreamQuery(CUstream) { return kSuccess; }
CUresult cuStreamIsCapturing(CUstream, int* status) { return *status = 0, kSuccess; }

// Times, captures and graphs are none of its business.
#define BOLT_NOT_EMULATED(name) \
  CUresult name() { return kNotSupported; }
BOLT_NOT_EMULATED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
BOLT_NOT_EMULATED(cuStreamWaitEvent)
BOLT_NOT_EMULATED(cuStreamBeginCapture_v2)
BOLT_NOT_EMULATED(cuStreamEndCapture)
BOLT_NOT_EMULATED(cuThreadExchangeStreamCaptureMode)
BOLT_NOT_EMULATED(cuGraphInstantiateWithFlags)
BOLT_NOT_EMULATED(cuGraphLaunch)
BOLT_NOT_EMULATED(cuGraphExecDestroy)
BOLT_NOT_EMULATED(cuGraphDestroy)
BOLT_NOT_EMULATED(cuEventCreate)
BOLT_NOT_EMULATED(cuEventDestroy_v2)
BOLT_NOT_EMULATED(cuEventRecord)
BOLT_NOT_EMULATED(cuEventQuery)
BOLT_NOT_EMULATED(cuEventSynchronize)
BOLT_NOT_EMULATED(cuEventElapsedTime)
}
