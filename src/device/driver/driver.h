// device/driver/driver.h
// libcuda as a table of function pointers: everything that this program asks of a CUDA device.
//
// Nothing is linked, and no header of CUDA's is needed: the library is opened when CUDA is first wanted, and
// a machine without it gets one clear message and is otherwise unharmed. Torch's runtime works on the primary
// context of each device, and so do we: memory, streams and events are the same objects under both.
//
// The driver's functions return a code; `check` turns one into Error(Internal) with the driver's own words,
// or, where no fault of ours need be behind it, into Unwell: who runs a program then gives the call to eager,
// which meets the same at the user's line, in torch's words, or does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "support/export.h"

namespace bolt::device::driver {

// The driver's opaque handles, under its own names so that its manual applies.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

constexpr CUresult kSuccess = 0, kOutOfMemory = 2, kDeinitialized = 4, kNotReady = 600;

// Of enumerations in cuda.h; their values are part of the driver's binary interface.
constexpr int kMaxSharedBytesOptin = 97, kMultiprocessors = 16, kMajor = 75, kMinor = 76;  // of a device
constexpr int kMaxDynamicSharedBytes = 8, kWideClusters = 14;                              // of a function
constexpr int kRegisters = 4, kLocalBytes = 3;                                             // of a function
constexpr unsigned kEventDisableTiming = 2, kCaptureRelaxed = 2, kStreamNonBlocking = 1;

struct Functions {
  // name in the library, member, arguments
#define BOLT_FOR_EACH_DRIVER_FUNCTION(X)                                                                \
  X(cuInit, (unsigned flags))                                                                           \
  X(cuDriverGetVersion, (int* version))                                                                 \
  X(cuGetErrorName, (CUresult, const char** name))                                                      \
  X(cuGetErrorString, (CUresult, const char** text))                                                    \
  X(cuDeviceGetCount, (int* count))                                                                     \
  X(cuDeviceGet, (CUdevice*, int ordinal))                                                              \
  X(cuDeviceGetName, (char* name, int length, CUdevice))                                                \
  X(cuDeviceGetAttribute, (int* value, int attribute, CUdevice))                                        \
  X(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                                                   \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                           \
  X(cuCtxGetCurrent, (CUcontext*))                                                                      \
  X(cuCtxSetCurrent, (CUcontext))                                                                       \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                                   \
  X(cuCtxPopCurrent_v2, (CUcontext*))                                                                   \
  X(cuCtxGetDevice, (CUdevice*))                                                                        \
  X(cuCtxSynchronize, ())                                                                               \
  X(cuModuleLoadData, (CUmodule*, const void* image))                                                   \
  X(cuModuleUnload, (CUmodule))                                                                         \
  X(cuModuleGetFunction, (CUfunction*, CUmodule, const char* name))                                     \
  X(cuFuncSetAttribute, (CUfunction, int attribute, int value))                                         \
  X(cuFuncGetAttribute, (int* value, int attribute, CUfunction))                                        \
  X(cuLaunchKernel,                                                                                     \
    (CUfunction, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CUstream, void** arguments, void** extra))                \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                        \
    (int* blocks, CUfunction, int threads, size_t shared_bytes))                                        \
  X(cuMemAlloc_v2, (CUdeviceptr*, size_t bytes))                                                        \
  X(cuMemFree_v2, (CUdeviceptr))                                                                        \
  X(cuMemHostAlloc, (void** at, size_t bytes, unsigned flags))                                          \
  X(cuMemFreeHost, (void* at))                                                                          \
  X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream))                          \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream))                   \
  X(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream))                         \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream))                   \
  X(cuMemsetD8Async, (CUdeviceptr, unsigned char value, size_t count, CUstream))                        \
  X(cuMemsetD32Async, (CUdeviceptr, unsigned value, size_t count, CUstream))                            \
  X(cuStreamCreate, (CUstream*, unsigned flags))                                                        \
  X(cuStreamDestroy_v2, (CUstream))                                                                     \
  X(cuStreamSynchronize, (CUstream))                                                                    \
  X(cuStreamQuery, (CUstream))                                                                          \
  X(cuStreamWaitEvent, (CUstream, CUevent, unsigned flags))                                             \
  X(cuStreamBeginCapture_v2, (CUstream, int mode))                                                      \
  X(cuStreamEndCapture, (CUstream, CUgraph*))                                                           \
  X(cuStreamIsCapturing, (CUstream, int* status))                                                       \
  X(cuThreadExchangeStreamCaptureMode, (int* mode))                                                     \
  X(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long flags))                     \
  X(cuGraphLaunch, (CUgraphExec, CUstream))                                                             \
  X(cuGraphExecDestroy, (CUgraphExec))                                                                  \
  X(cuGraphDestroy, (CUgraph))                                                                          \
  X(cuEventCreate, (CUevent*, unsigned flags))                                                          \
  X(cuEventDestroy_v2, (CUevent))                                                                       \
  X(cuEventRecord, (CUevent, CUstream))                                                                 \
  X(cuEventQuery, (CUevent))                                                                            \
  X(cuEventSynchronize, (CUevent))                                                                      \
  X(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to))
#define X(name, arguments) CUresult(*name) arguments;
  BOLT_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
};

/// The driver, opened and initialised at the first call that finds it. Null: this machine has none that
/// works, for the reason `missing()` gives.
BOLT_API const Functions* find();
BOLT_API std::string missing();
/// As `find`, but Error(User) with that reason.
BOLT_API const Functions& get();

/// The device has no memory left, or a kernel that ran before, anybody's, has left the context unusable.
class BOLT_API Unwell : public std::runtime_error {
 public:
  Unwell(CUresult code_, const std::string& what) : std::runtime_error(what), code(code_) {}
  ~Unwell() override;
  const CUresult code;
};
BOLT_API bool is_unwell(CUresult result);

/// Unwell or Error(Internal) that says what was tried and what the driver answered, unless `result` is
/// success.
BOLT_API void check(CUresult result, const char* what);

/// 90 for compute capability 9.0.
BOLT_API int capability(CUdevice device);
BOLT_API int attribute(CUdevice device, int which);
/// The primary context of a device, which torch's runtime uses; made where it is not there yet, and kept as
/// long as the process lives.
BOLT_API CUcontext primary_context(int ordinal);

/// Makes a context the thread's current one for as long as it lives. Costs nothing where it is already.
class BOLT_API ContextGuard {
 public:
  explicit ContextGuard(CUcontext context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace bolt::device::driver
