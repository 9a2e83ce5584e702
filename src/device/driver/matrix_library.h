// device/driver/matrix_library.h
// Multiplications of matrices by cuBLASLt, called without ATen: a few microseconds of host time each, where a
// call through ATen's operators takes twenty; and with any of the ways that the library knows, where ATen has
// the first.
//
// The library is the one that torch has loaded, found by its name; where it is linked into torch, or is of a
// version that is not known here, there is none, and who asks goes through ATen.
#pragma once

#include <cstdint>
#include <memory>

#include "device/driver/driver.h"
#include "device/driver/multiplication.h"

namespace bolt::device::driver {

class BOLT_API MatrixLibrary {
 public:
  struct Places {
    CUdeviceptr a, b, bias, added, result;
  };
  /// What may be done to numbers on their way, and in which order sums are added up.
  struct Allowed {
    bool short_float32 = false;  ///< factors of float32 are rounded to TF32
  };
  /// A multiplication that is ready to be launched: some ways to do it, the library's first choice first.
  class Ready;

  virtual ~MatrixLibrary() = default;
  /// Of the device whose primary context this is. Null: there is none.
  static MatrixLibrary* of(int ordinal, CUcontext context);

  /// For memory that is as aligned as these places. Null: the library has no way. The ones asked for last are
  /// remembered, a few thousand.
  virtual std::shared_ptr<Ready> find(const Multiplication& m, const Places& places, Allowed allowed) = 0;
  /// How many ways there are, at most a few.
  virtual int ways(Ready& ready) = 0;
  /// Memory beside the operands, at a multiple of 256 bytes.
  virtual int64_t scratch_bytes(Ready& ready, int way) = 0;
  /// False: nothing was launched; the library has no such way for these places after all.
  virtual bool launch(Ready& ready, int way, const Places& places, CUdeviceptr scratch, CUstream stream) = 0;
};

}  // namespace bolt::device::driver
