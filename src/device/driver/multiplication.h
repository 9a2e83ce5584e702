// device/driver/multiplication.h
// How operands of a product and its result lie in memory -> one multiplication of matrices, as libraries of
// matrices have it; nothing where it is none.
//
// Such libraries know matrices whose rows, or whose columns, lie at equal distances, and batches of them at
// equal distances. A tensor of more dimensions is one where its leading dimensions are as one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "support/dtype.h"
#include "support/export.h"

namespace bolt::device::driver {

/// A tensor, without its memory.
struct Strided {
  std::span<const int64_t> sizes, strides;
  DType dtype;
};

/// A library is asked for no more ways to do one multiplication.
constexpr int kMostWays = 8;

/// What is done with a sum once the bias is added. The gelu is its approximation.
enum class SumEnd : uint8_t { none, gelu, relu };

/// result[batch, rows, columns] = a[batch, rows, inner] @ b[batch, inner, columns]
struct Multiplication {
  struct Matrix {
    bool by_columns = false;  ///< elements of a column lie one behind the other; else those of a row
    int64_t step = 0;         ///< from one column to the next, or from one row
    int64_t next = 0;         ///< from one matrix of a batch to the next

    bool operator==(const Matrix&) const = default;
  };
  DType operands = DType::F32, result_type = DType::F32;
  int64_t rows = 0, columns = 0, inner = 0, batch = 1;
  Matrix a, b, result;
  bool has_bias = false;  ///< [columns], of the operands' type, added to each row
  SumEnd ending = SumEnd::none;
  bool is_added = false;  ///< to what lies as the result does, perhaps in its place, before the ending
  int way = 0;            ///< which of those that the library names for it; 0: what it names first

  bool operator==(const Multiplication&) const = default;
};

/// a[..., inner] @ b[inner, columns], or a[..., rows, inner] @ b[..., inner, columns] of as many matrices.
BOLT_API std::optional<Multiplication> multiplication_of(Strided a, Strided b, Strided result);

}  // namespace bolt::device::driver
