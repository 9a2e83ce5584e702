// device/driver/multiplication.cpp
#include "device/driver/multiplication.h"

#include <algorithm>

namespace bolt::device::driver {
namespace {

/// Some dimensions as one.
struct OneDimension {
  int64_t size = 1, stride = 0;
};

std::optional<OneDimension> as_one(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  OneDimension run;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (run.size == 1)
      run.stride = strides[d];
    else if (strides[d] != run.stride * run.size)
      return std::nullopt;
    run.size *= sizes[d];
  }
  return run;
}

std::optional<Multiplication::Matrix> matrix(OneDimension rows, OneDimension columns) {
  // Of a single row or column nobody asks where the next one would be; libraries want a step that holds one.
  if (columns.size == 1 || columns.stride == 1) {
    const int64_t step = rows.size == 1 ? columns.size : rows.stride;
    if (step >= columns.size) return Multiplication::Matrix{false, step, 0};
  }
  if (rows.size == 1 || rows.stride == 1) {
    const int64_t step = columns.size == 1 ? rows.size : columns.stride;
    if (step >= rows.size) return Multiplication::Matrix{true, step, 0};
  }
  return std::nullopt;
}

/// A tensor as [batch, rows, columns], the last of its dimensions being columns and `batch_rank` of them the
/// batch.
struct MatrixParts {
  OneDimension batch;
  int64_t rows = 0, columns = 0;
  Multiplication::Matrix matrix;
};

std::optional<MatrixParts> parts(const Strided& t, size_t batch_rank) {
  const size_t last = t.sizes.size() - 1;
  const auto batch = as_one(t.sizes.first(batch_rank), t.strides.first(batch_rank));
  const auto rows = as_one(t.sizes.subspan(batch_rank, last - batch_rank),
                           t.strides.subspan(batch_rank, last - batch_rank));
  if (!batch || !rows) return std::nullopt;
  const OneDimension columns{t.sizes[last], t.strides[last]};
  auto found = matrix(*rows, columns);
  if (!found || batch->stride < 0) return std::nullopt;
  found->next = batch->size == 1 ? 0 : batch->stride;
  return MatrixParts{*batch, rows->size, columns.size, *found};
}

}  // namespace

std::optional<Multiplication> multiplication_of(Strided a, Strided b, Strided result) {
  if (a.dtype != b.dtype || a.sizes.size() < 2 || b.sizes.size() < 2) return std::nullopt;
  if (result.sizes.size() != a.sizes.size()) return std::nullopt;
  const size_t batch_rank = b.sizes.size() - 2;
  if (batch_rank > 0 && b.sizes.size() != a.sizes.size()) return std::nullopt;
  for (const Strided* t : {&a, &b, &result})
    if (std::ranges::find(t->sizes, 0) != t->sizes.end()) return std::nullopt;
  const auto x = parts(a, batch_rank), w = parts(b, batch_rank), y = parts(result, batch_rank);
  if (!x || !w || !y || y->matrix.by_columns) return std::nullopt;
  if (x->batch.size != w->batch.size || x->batch.size != y->batch.size) return std::nullopt;
  if (x->rows != y->rows || w->columns != y->columns || x->columns != w->rows) return std::nullopt;
  if (y->batch.size > 1 && y->matrix.next == 0) return std::nullopt;
  Multiplication m;
  m.operands = a.dtype;
  m.result_type = result.dtype;
  m.rows = y->rows, m.columns = y->columns, m.inner = x->columns, m.batch = y->batch.size;
  m.a = x->matrix, m.b = w->matrix, m.result = y->matrix;
  return m;
}

}  // namespace bolt::device::driver
