// record/convert.h
// The one place where torch's names for element types and devices meet ours.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "graph/ir.h"
#include "support/dtype.h"

namespace bolt::record {

inline std::optional<DType> to_bolt(c10::ScalarType t) {
  switch (t) {
    case c10::ScalarType::Bool: return DType::Bool;
    case c10::ScalarType::Byte: return DType::U8;
    case c10::ScalarType::Char: return DType::I8;
    case c10::ScalarType::Short: return DType::I16;
    case c10::ScalarType::Int: return DType::I32;
    case c10::ScalarType::Long: return DType::I64;
    case c10::ScalarType::Half: return DType::F16;
    case c10::ScalarType::BFloat16: return DType::BF16;
    case c10::ScalarType::Float: return DType::F32;
    case c10::ScalarType::Double: return DType::F64;
    case c10::ScalarType::ComplexFloat: return DType::C64;
    case c10::ScalarType::ComplexDouble: return DType::C128;
    case c10::ScalarType::UInt16: return DType::U16;
    case c10::ScalarType::UInt32: return DType::U32;
    case c10::ScalarType::UInt64: return DType::U64;
    case c10::ScalarType::Float8_e4m3fn: return DType::F8E4M3;
    case c10::ScalarType::Float8_e5m2: return DType::F8E5M2;
    default: return std::nullopt;
  }
}

inline c10::ScalarType to_torch(DType t) {
  switch (t) {
    case DType::Bool: return c10::ScalarType::Bool;
    case DType::U8: return c10::ScalarType::Byte;
    case DType::I8: return c10::ScalarType::Char;
    case DType::I16: return c10::ScalarType::Short;
    case DType::I32: return c10::ScalarType::Int;
    case DType::I64: return c10::ScalarType::Long;
    case DType::F16: return c10::ScalarType::Half;
    case DType::BF16: return c10::ScalarType::BFloat16;
    case DType::F32: return c10::ScalarType::Float;
    case DType::F64: return c10::ScalarType::Double;
    case DType::C64: return c10::ScalarType::ComplexFloat;
    case DType::C128: return c10::ScalarType::ComplexDouble;
    case DType::U16: return c10::ScalarType::UInt16;
    case DType::U32: return c10::ScalarType::UInt32;
    case DType::U64: return c10::ScalarType::UInt64;
    case DType::F8E4M3: return c10::ScalarType::Float8_e4m3fn;
    case DType::F8E5M2: return c10::ScalarType::Float8_e5m2;
  }
  return c10::ScalarType::Undefined;
}

inline graph::Device to_bolt(c10::Device d) {
  auto kind = d.is_cpu()    ? graph::DeviceKind::CPU
              : d.is_cuda() ? graph::DeviceKind::CUDA
                            : graph::DeviceKind::Other;
  return {kind, d.has_index() ? d.index() : 0};
}

}  // namespace bolt::record
