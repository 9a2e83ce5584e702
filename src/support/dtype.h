// support/dtype.h
// Element types, as one table. The order is ours, not torch's: record/ translates once at the border.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "support/export.h"

namespace bolt {

// name in text form, bytes, is floating, is signed integer
#define BOLT_FOR_EACH_DTYPE(X)           \
  X(Bool, "b8", 1, false, false)         \
  X(U8, "u8", 1, false, false)           \
  X(I8, "i8", 1, false, true)            \
  X(I16, "i16", 2, false, true)          \
  X(I32, "i32", 4, false, true)          \
  X(I64, "i64", 8, false, true)          \
  X(F16, "f16", 2, true, false)          \
  X(BF16, "bf16", 2, true, false)        \
  X(F32, "f32", 4, true, false)          \
  X(F64, "f64", 8, true, false)          \
  X(C64, "c64", 8, false, false)         \
  X(C128, "c128", 16, false, false)      \
  X(U16, "u16", 2, false, false)         \
  X(U32, "u32", 4, false, false)         \
  X(U64, "u64", 8, false, false)         \
  X(F8E4M3, "f8e4m3fn", 1, false, false) \
  X(F8E5M2, "f8e5m2", 1, false, false)

enum class DType : uint8_t {
#define X(name, text, bytes, fp, si) name,
  BOLT_FOR_EACH_DTYPE(X)
#undef X
};

BOLT_API std::string_view dtype_name(DType t);
BOLT_API std::optional<DType> dtype_from_name(std::string_view text);
BOLT_API int dtype_bytes(DType t);
BOLT_API bool is_float(DType t);
BOLT_API bool is_signed_int(DType t);
inline bool is_complex(DType t) { return t == DType::C64 || t == DType::C128; }
/// No kernel of ours computes with it: it is moved about, and given to calls of ATen.
inline bool is_opaque(DType t) { return t >= DType::C64; }
inline bool is_int(DType t) { return !is_float(t) && !is_opaque(t) && t != DType::Bool; }
inline bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }
/// Halves are computed in f32, as ATen's opmath does; everything else in itself.
inline DType compute_type(DType t) { return is_half(t) ? DType::F32 : t; }

}  // namespace bolt
