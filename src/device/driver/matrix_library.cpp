// device/driver/matrix_library.cpp
#include "device/driver/matrix_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "support/bounded_map.h"

namespace bolt::device::driver {

namespace {

// The library's opaque handles and results. Their sizes and the numbers below are part of its binary
// interface, which has been the same from CUDA 12 on.
using Status = int;
using Handle = struct LtContext*;
using Description = struct LtMatmulDesc*;
using Layout = struct LtMatrixLayout*;
using Preference = struct LtPreference*;
struct Algorithm {
  uint64_t words[8];
};
struct LtWay {
  Algorithm algorithm;
  size_t scratch_bytes;
  Status state;
  float waves;
  int reserved[4];
};

constexpr Status kDone = 0;
constexpr int kCompute32 = 68, kComputeTf32 = 77;                                 // cublasComputeType_t
constexpr int kFloat32 = 0, kFloat16 = 2, kBfloat16 = 14;                         // cudaDataType
constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8;  // of a description
constexpr int kAsItIs = 0, kTransposed = 1;                                       // cublasOperation_t
constexpr int kNoEpilogue = 1, kReluEpilogue = 2, kBiasEpilogue = 4,
              kGeluEpilogue = 32;               // bits, but the first
constexpr int kBatchCount = 5, kBatchStep = 6;  // of a layout
constexpr int kMostScratch = 1, kReductions = 3, kAlignmentA = 5, kAlignmentB = 6, kAlignmentC = 7,
              kAlignmentD = 8;  // of a preference
/// Parts of a sum are added up in the type it is computed in, never in the result's.
constexpr uint32_t kExactReductions = 2;
constexpr uint64_t kScratchBytes = 32 << 20;  // as much as torch gives it on the largest devices

#define BOLT_FOR_EACH_MATRIX_FUNCTION(X)                                                                     \
  X(cublasLtCreate, (Handle*))                                                                               \
  X(cublasLtMatmulDescCreate, (Description*, int compute, int scale))                                        \
  X(cublasLtMatmulDescSetAttribute, (Description, int attribute, const void*, size_t))                       \
  X(cublasLtMatmulDescDestroy, (Description))                                                                \
  X(cublasLtMatrixLayoutCreate, (Layout*, int type, uint64_t rows, uint64_t columns, int64_t step))          \
  X(cublasLtMatrixLayoutSetAttribute, (Layout, int attribute, const void*, size_t))                          \
  X(cublasLtMatrixLayoutDestroy, (Layout))                                                                   \
  X(cublasLtMatmulPreferenceCreate, (Preference*))                                                           \
  X(cublasLtMatmulPreferenceSetAttribute, (Preference, int attribute, const void*, size_t))                  \
  X(cublasLtMatmulPreferenceDestroy, (Preference))                                                           \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                          \
    (Handle, Description, Layout, Layout, Layout, Layout, Preference, int wanted, LtWay*, int* found))       \
  X(cublasLtMatmul,                                                                                          \
    (Handle, Description, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta, \
     const void* c, Layout, void* d, Layout, const Algorithm*, void* scratch, size_t, CUstream))

struct Library {
#define X(name, arguments) Status(*name) arguments = nullptr;
  BOLT_FOR_EACH_MATRIX_FUNCTION(X)
#undef X
  bool is_whole = false;
};

Library open_matrices() {
  Library found;
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
    if ((library = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD))) break;
  if (!library) return found;
  found.is_whole = true;
#define X(name, arguments)                                                      \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(library, #name)); \
  found.is_whole = found.is_whole && found.name;
  BOLT_FOR_EACH_MATRIX_FUNCTION(X)
#undef X
  return found;
}

const Library& library() {
  static const Library once = open_matrices();
  return once;
}

std::optional<int> type_of(DType t) {
  switch (t) {
    case DType::F32: return kFloat32;
    case DType::F16: return kFloat16;
    case DType::BF16: return kBfloat16;
    default: return std::nullopt;
  }
}

int epilogue_of(const Multiplication& m) {
  const int bias = m.has_bias ? kBiasEpilogue : 0;
  switch (m.ending) {
    case SumEnd::none: return m.has_bias ? kBiasEpilogue : kNoEpilogue;
    case SumEnd::gelu: return kGeluEpilogue | bias;
    case SumEnd::relu: return kReluEpilogue | bias;
  }
  return kNoEpilogue;
}

/// Of an address, as far as the library asks.
uint32_t alignment(CUdeviceptr at) {
  constexpr int kMost = 8;  // 256 bytes
  return 1U << (at == 0 ? kMost : std::min(std::countr_zero(at), kMost));
}

using Key = std::array<int64_t, 16>;

Key key_of(const Multiplication& m, const MatrixLibrary::Places& p, MatrixLibrary::Allowed allowed) {
  const int64_t flags = static_cast<int64_t>(m.operands) | static_cast<int64_t>(m.result_type) << 8 |
                        int64_t{m.has_bias} << 16 | static_cast<int64_t>(m.ending) << 22 |
                        int64_t{m.is_added} << 17 | int64_t{m.a.by_columns} << 18 |
                        int64_t{m.b.by_columns} << 19 | int64_t{m.result.by_columns} << 20 |
                        int64_t{allowed.short_float32} << 21;
  return {m.rows,
          m.columns,
          m.inner,
          m.batch,
          m.a.step,
          m.a.next,
          m.b.step,
          m.b.next,
          m.result.step,
          m.result.next,
          flags,
          alignment(p.a),
          alignment(p.b),
          alignment(p.bias),
          alignment(p.added),
          alignment(p.result)};
}

struct HashOfKey {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9e3779b97f4a7c15;
    for (int64_t word : key) hash = (hash ^ static_cast<uint64_t>(word)) * 0x100000001b3;
    return hash ^ hash >> 29;
  }
};

}  // namespace

class MatrixLibrary::Ready {
 public:
  Ready() = default;
  Ready(const Ready&) = delete;
  ~Ready() {
    const Library& l = library();
    if (description) l.cublasLtMatmulDescDestroy(description);
    for (Layout layout : {first, second, result})
      if (layout) l.cublasLtMatrixLayoutDestroy(layout);
    if (preference) l.cublasLtMatmulPreferenceDestroy(preference);
  }

  Description description = nullptr;
  Layout first = nullptr, second = nullptr, result = nullptr;
  Preference preference = nullptr;
  bool is_added = false;  // Multiplication::is_added
  std::mutex mutex;       // guards what follows, and the description where there is a bias in it
  std::vector<LtWay> ways;
  bool knows_all = false;  // of the ways
};

namespace {

// The library's matrices lie by columns, ours mostly by rows, which are the columns of what is transposed. So
// it is asked for result^T = b^T a^T, and each operand is given as it lies: of a matrix that lies by rows the
// transposed one lies by columns.
class Lt final : public MatrixLibrary {
 public:
  explicit Lt(Handle handle) : handle_(handle) {}

  std::shared_ptr<Ready> find(const Multiplication& m, const Places& places, Allowed allowed) override {
    const Key key = key_of(m, places, allowed);
    const std::lock_guard lock(mutex_);
    const auto* known = known_.find(key);
    return known ? *known : known_.put(key, make(m, places, allowed));
  }

  int ways(Ready& ready) override {
    const std::lock_guard lock(ready.mutex);
    learn_all(ready);
    return static_cast<int>(ready.ways.size());
  }

  int64_t scratch_bytes(Ready& ready, int way) override {
    const std::lock_guard lock(ready.mutex);
    const LtWay* found = way_of(ready, way);
    return found ? static_cast<int64_t>(found->scratch_bytes) : 0;
  }

  bool launch(Ready& ready, int way, const Places& p, CUdeviceptr scratch, CUstream stream) override {
    static constexpr float kOne = 1, kZero = 0;
    const auto at = [](CUdeviceptr place) { return reinterpret_cast<void*>(place); };
    const std::lock_guard lock(ready.mutex);
    const LtWay* found = way_of(ready, way);
    if (!found) return false;
    const Library& l = library();
    if (p.bias &&
        l.cublasLtMatmulDescSetAttribute(ready.description, kBiasPointer, &p.bias, sizeof(p.bias)) != kDone)
      return false;
    return l.cublasLtMatmul(handle_, ready.description, &kOne, at(p.b), ready.first, at(p.a), ready.second,
                            ready.is_added ? &kOne : &kZero, at(ready.is_added ? p.added : p.result),
                            ready.result, at(p.result), ready.result, &found->algorithm, at(scratch),
                            found->scratch_bytes, stream) == kDone;
  }

 private:
  static Layout layout(int type, int64_t rows, int64_t columns, const Multiplication::Matrix& matrix,
                       int64_t batch) {
    Layout made = nullptr;
    const Library& l = library();
    // By rows: its transposed form by columns.
    const int64_t inner = matrix.by_columns ? rows : columns, outer = matrix.by_columns ? columns : rows;
    if (l.cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(inner), static_cast<uint64_t>(outer),
                                     matrix.step) != kDone)
      return nullptr;
    const auto count = static_cast<int32_t>(batch);
    if (batch > 1) {
      l.cublasLtMatrixLayoutSetAttribute(made, kBatchCount, &count, sizeof(count));
      l.cublasLtMatrixLayoutSetAttribute(made, kBatchStep, &matrix.next, sizeof(matrix.next));
    }
    return made;
  }

  std::shared_ptr<Ready> make(const Multiplication& m, const Places& p, Allowed allowed) const {
    const Library& l = library();
    const auto type = type_of(m.operands), result_type = type_of(m.result_type);
    const bool is_wide = m.operands != m.result_type;
    if (!type || !result_type || (is_wide && (m.result_type != DType::F32 || m.has_bias))) return nullptr;
    if (m.result.by_columns || m.batch > INT32_MAX) return nullptr;
    auto made = std::make_shared<Ready>();
    made->is_added = m.is_added;
    const int compute = allowed.short_float32 && m.operands == DType::F32 ? kComputeTf32 : kCompute32;
    if (l.cublasLtMatmulDescCreate(&made->description, compute, kFloat32) != kDone) return nullptr;
    auto set = [&](int attribute, int value) {
      return l.cublasLtMatmulDescSetAttribute(made->description, attribute, &value, sizeof(value)) == kDone;
    };
    bool done = set(kTransposeA, m.b.by_columns ? kTransposed : kAsItIs) &&
                set(kTransposeB, m.a.by_columns ? kTransposed : kAsItIs) && set(kEpilogue, epilogue_of(m));
    if (m.has_bias)
      done = done && l.cublasLtMatmulDescSetAttribute(made->description, kBiasPointer, &p.bias,
                                                      sizeof(p.bias)) == kDone;
    made->first = layout(*type, m.inner, m.columns, m.b, m.batch);
    made->second = layout(*type, m.rows, m.inner, m.a, m.batch);
    made->result = layout(*result_type, m.rows, m.columns, m.result, m.batch);
    done = done && made->first && made->second && made->result &&
           l.cublasLtMatmulPreferenceCreate(&made->preference) == kDone;
    if (!done) return nullptr;
    auto prefer = [&](int attribute, auto value) {
      l.cublasLtMatmulPreferenceSetAttribute(made->preference, attribute, &value, sizeof(value));
    };
    prefer(kMostScratch, kScratchBytes);
    prefer(kReductions, kExactReductions);
    prefer(kAlignmentA, alignment(p.b));
    prefer(kAlignmentB, alignment(p.a));
    prefer(kAlignmentC, alignment(m.is_added ? p.added : p.result));
    prefer(kAlignmentD, alignment(p.result));
    learn(*made, 1);
    if (made->ways.empty()) return nullptr;
    return made;
  }

  void learn(Ready& ready, int wanted) const {
    std::vector<LtWay> found(static_cast<size_t>(wanted));
    int count = 0;
    const Status status = library().cublasLtMatmulAlgoGetHeuristic(
        handle_, ready.description, ready.first, ready.second, ready.result, ready.result, ready.preference,
        wanted, found.data(), &count);
    found.resize(status == kDone ? static_cast<size_t>(count) : 0);
    std::erase_if(found, [](const LtWay& f) { return f.state != kDone; });
    ready.ways = std::move(found);
  }
  void learn_all(Ready& ready) const {
    if (!ready.knows_all) learn(ready, kMostWays);
    ready.knows_all = true;
  }
  /// A way that was measured may be none for memory that is less aligned: it is the first one then.
  const LtWay* way_of(Ready& ready, int way) const {
    const auto at = static_cast<size_t>(way);
    if (at > 0) learn_all(ready);
    if (ready.ways.empty()) return nullptr;
    return &ready.ways[at < ready.ways.size() ? at : 0];
  }

  const Handle handle_;
  std::mutex mutex_;
  BoundedMap<std::unordered_map<Key, std::shared_ptr<Ready>, HashOfKey>, 4096>
      known_;  // null: there is no way
};

}  // namespace

MatrixLibrary* MatrixLibrary::of(int ordinal, CUcontext context) {
  if (!library().is_whole) return nullptr;
  static std::mutex mutex;
  static std::map<int, MatrixLibrary*> known;  // as long as the process: programs may run after every static
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = known.try_emplace(ordinal, nullptr);
  if (fresh) {
    const ContextGuard current(context);
    Handle handle = nullptr;
    if (library().cublasLtCreate(&handle) == kDone) at->second = new Lt(handle);
  }
  return at->second;
}

}  // namespace bolt::device::driver
