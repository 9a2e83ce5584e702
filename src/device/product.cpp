// device/product.cpp: see product.h.
#include "device/product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

namespace bolt::device {
namespace {

constexpr int64_t kAligned = 8;  // elements of 2 bytes: 16 bytes

/// Between two rows of a matrix that lies in rows or in columns; nothing: it lies otherwise.
std::optional<int64_t> gap_of(const at::Tensor& m) {
  if (m.stride(1) == 1 && m.stride(0) >= m.size(1)) return m.stride(0);
  if (m.stride(0) == 1 && m.stride(1) >= m.size(0)) return m.stride(1);
  return std::nullopt;
}

/// What the library reaches with the best kernels for rows that lie so, in operations a nanosecond. Measured
/// on an H100; elsewhere the numbers are smaller, and stand to each other much as these.
double speed_with(int64_t gap) {
  if (gap % kAligned == 0) return 600e3;
  if (gap % 4 == 0) return 400e3;
  return gap % 2 == 0 ? 240e3 : 110e3;
}
constexpr double kBytesPerNanosecond = 2000;

int64_t rounded(int64_t size) { return (size + kAligned - 1) / kAligned * kAligned; }

/// The same contents in rows, or columns, that begin where they should, with zeros in the further rows and
/// columns.
at::Tensor padded(const at::Tensor& m, int64_t rows, int64_t columns) {
  if (m.size(0) == rows && m.size(1) == columns && *gap_of(m) % kAligned == 0) return m;
  const bool in_rows = m.stride(1) == 1;
  const at::Tensor lying = in_rows ? m : m.t();
  const int64_t outer = in_rows ? rows : columns, inner = in_rows ? columns : rows;
  const at::Tensor made = at::empty({outer, rounded(inner)}, m.options());
  made.narrow(0, 0, lying.size(0)).narrow(1, 0, lying.size(1)).copy_(lying);
  if (outer > lying.size(0)) made.narrow(0, lying.size(0), outer - lying.size(0)).zero_();
  if (inner > lying.size(1))
    made.narrow(0, 0, lying.size(0)).narrow(1, lying.size(1), inner - lying.size(1)).zero_();
  const at::Tensor wanted = made.narrow(1, 0, inner);
  return in_rows ? wanted : wanted.t();
}

/// Is it faster to copy first and afterwards?
bool pays(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cuda() || a.dim() != 2 || b.dim() != 2 || a.element_size() != 2 || !a.is_floating_point())
    return false;
  const auto of_a = gap_of(a), of_b = gap_of(b);
  if (!of_a || !of_b) return false;
  double bytes = 0, now = speed_with(kAligned);
  auto copied = [&](int64_t gap, int64_t elements) {
    if (gap % kAligned == 0) return;
    bytes += 4.0 * static_cast<double>(elements);
    now = std::min(now, speed_with(gap));
  };
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  copied(*of_a % kAligned ? *of_a : k, a.numel());
  copied(*of_b % kAligned ? *of_b : k % kAligned ? k : n, b.numel());
  copied(n, m * n);
  const double work = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return work / now > work / speed_with(kAligned) + bytes / kBytesPerNanosecond;
}

/// The library asks for aligned sizes too, of what is summed over and of the result's rows.
at::Tensor apart(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const int64_t m = a.size(0), k = rounded(a.size(1)), n = b.size(1);
  const at::Tensor left = padded(a, m, k), right = padded(b, k, rounded(n));
  const at::Tensor out =
      bias ? at::addmm(at::constant_pad_nd(*bias, {0, rounded(n) - n}), left, right) : at::mm(left, right);
  return out.narrow(1, 0, n).contiguous();
}

/// With the leading dimensions as one.
at::Tensor as_matrix(const at::Tensor& a) { return a.dim() > 2 && a.is_contiguous() ? a.flatten(0, -2) : a; }

at::Tensor shaped_as(const at::Tensor& out, const at::Tensor& a) {
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.back() = out.size(1);
  return out.view(sizes);
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor matrix = as_matrix(a);
  return pays(matrix, b) ? shaped_as(apart(matrix, b, {}), a) : at::matmul(a, b);
}

at::Tensor linear(const at::Tensor& a, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const at::Tensor matrix = as_matrix(a);
  if (weight.dim() == 2 && pays(matrix, weight.t())) return shaped_as(apart(matrix, weight.t(), bias), a);
  return at::linear(a, weight, bias);
}

}  // namespace bolt::device
