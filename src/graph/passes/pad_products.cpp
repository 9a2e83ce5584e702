// graph/passes/pad_products.cpp
// Products of matrices whose rows begin between two accesses -> the same of padded matrices, and a view of it
//
//   linear(x, w[50257, 768])          -> slice(linear(x, pad(w)[50264, 768]), 0..50257)
//   matmul(permute(g[M, 50257]), h)   -> slice(matmul(permute(pad(g)[M, 50264]), h), 0..50257)
//   linear(x, w[50257, 768]), of much memory
//     -> slice(linear_of_parts(x, slice(w, 0..50256), pad(slice(w, 50256..50257))[8, 768]), 0..50257)
//
// On CUDA the library's kernels for half precision need rows that begin at multiples of 16 bytes, in both
// operands and in the result. A vocabulary of 50,257 gives it rows that do not, and it takes kernels at a
// fifth of the speed. What is padded is written so by the kernel that makes it, weights that do not change
// are padded once, and who reads the result reads aligned rows. Zeros are added to sums: results are the
// same. Whether the copies cost less than is won is told by prices of an H100, which stand to each other
// elsewhere much as there.
#include <algorithm>
#include <array>
#include <map>

#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

constexpr int64_t kManyRows = 4096;  // of an unknown number
constexpr double kBytesPerNanosecond = 2000;

/// What the library reaches where rows are so far from each other, in operations a nanosecond.
double speed_with_rows_of(int64_t length) {
  if (length % kAlignedElements == 0) return 600e3;
  if (length % 4 == 0) return 400e3;
  return length % 2 == 0 ? 240e3 : 110e3;
}

/// [..., M, K] @ [K, N], where `right` is [N, K] of a linear layer.
struct MatrixProduct {
  Value *left, *right;
  bool linear;
  int64_t m, k, n;

  /// Of the rows in memory.
  int64_t left_row() const { return is_transposed(left) ? m : k; }
  int64_t right_row() const { return linear != is_transposed(right) ? k : n; }
};

std::optional<MatrixProduct> product_of(const Node& node) {
  if (node.op != Op::linear && node.op != Op::matmul) return std::nullopt;
  Value *a = node.operands[0], *b = node.operands[1];
  const Type& out = node.out()->type;
  if (!facts_of(out.device).needs_aligned_rows || !is_half(out.dtype)) return std::nullopt;
  if (a->type.rank() < 2 || b->type.rank() != 2) return std::nullopt;
  const Sym k = a->type.sizes.back(), n = out.sizes.back();
  Sym m = 1;
  for (int d = 0; d + 1 < out.rank(); ++d) m *= out.sizes[d];
  if (!k.is_const() || !n.is_const() || (is_transposed(a) && !m.is_const())) return std::nullopt;
  return MatrixProduct{a, b, node.op == Op::linear, m.value_or(kManyRows), k.value(), n.value()};
}

bool padding_pays(const MatrixProduct& p) {
  const double m = static_cast<double>(p.m), k = static_cast<double>(p.k), n = static_cast<double>(p.n);
  double bytes = 0, now = speed_with_rows_of(0);
  auto copied = [&](int64_t row, double elements) {
    if (row % kAlignedElements == 0) return;
    bytes += 4 * elements;
    now = std::min(now, speed_with_rows_of(row));
  };
  copied(p.left_row(), m * k);
  copied(p.right_row(), k * n);
  copied(p.n, m * n);
  const double work = 2 * m * n * k;
  return work / now > work / speed_with_rows_of(0) + bytes / kBytesPerNanosecond;
}

/// By value, and by how many zeros stand behind its dimensions.
using Padded = std::map<std::pair<const Value*, std::vector<int64_t>>, Value*>;

class Padding {
 public:
  Padding(Graph& g, Padded& made) : g_(g), made_(made) {}

  Value* of(Node* node, const MatrixProduct& p) {
    if (is_large_head(*node, p)) return lying_as(by_parts(node, p), node->out());
    const int64_t m = is_transposed(p.left) ? aligned_row(p.m) : p.m, k = aligned_row(p.k),
                  n = aligned_row(p.n);
    const Maker maker(g_, node);
    std::vector<Value*> operands = {
        padded(maker, p.left, {m - p.m, k - p.k}),
        padded(maker, p.right, p.linear ? Pair{n - p.n, k - p.k} : Pair{k - p.k, n - p.n})};
    if (node->operands.size() > 2) operands.push_back(padded(maker, node->operands[2], {n - p.n}));
    Value* product = maker.make(node->op, std::move(operands));
    const int rank = product->type.rank();
    product = cut(maker, product, rank - 1, p.n);
    if (m != p.m) product = cut(maker, product, rank - 2, p.m);
    return lying_as(product, node->out());
  }

 private:
  using Pair = std::vector<int64_t>;

  /// Are there weights whose rows, all but the last few, may be read where they lie? What a kernel makes it
  /// makes padded.
  static bool is_large_head(const Node& node, const MatrixProduct& p) {
    constexpr int64_t kLarge = 32 << 20;
    return p.linear && !p.right->def && p.right->type.is_contiguous() && node.operands.size() == 2 &&
           node.attrs.empty() && p.k % kAlignedElements == 0 && p.n % kAlignedElements != 0 &&
           !is_transposed(p.left) && !is_transposed(p.right) &&
           p.n * p.k * dtype_bytes(p.right->type.dtype) >= kLarge;
  }

  /// The last rows are padded, and a product of their own, which takes little longer than none.
  Value* by_parts(Node* node, const MatrixProduct& p) {
    const Maker maker(g_, node);
    const int64_t whole = p.n - p.n % kAlignedElements;
    Value* last = maker.slice(p.right, 0, whole, p.n - whole);
    Value* product = maker.make(Op::linear_of_parts, {p.left, cut(maker, p.right, 0, whole),
                                                      padded(maker, last, {aligned_row(p.n) - p.n, 0})});
    return cut(maker, product, product->type.rank() - 1, p.n);
  }

  /// `v` with so many zeros behind its last dimensions. Of a transposed matrix what lies in memory is padded.
  Value* padded(const Maker& maker, Value* v, const std::vector<int64_t>& more) {
    if (std::ranges::all_of(more, [](int64_t n) { return n == 0; })) return v;
    if (is_transposed(v))
      return maker.make(Op::permute, {padded(maker, v->def->operands[0], {more[1], more[0]})},
                        {{"dims", Syms{1, 0}}});
    Value*& known = made_[{v, more}];
    if (!known) {
      Syms low(static_cast<size_t>(v->type.rank()), 0), high = low;
      std::ranges::copy(more, high.end() - static_cast<ptrdiff_t>(more.size()));
      known = maker.make(Op::pad, {v}, {{"low", std::move(low)}, {"high", std::move(high)}, {"value", 0.0}});
    }
    return known;
  }
  static Value* cut(const Maker& maker, Value* v, int64_t dim, int64_t length) {
    return v->type.sizes[dim].is_const(length) ? v : maker.slice(v, dim, 0, length);
  }

  Graph& g_;
  Padded& made_;
};

}  // namespace

bool pad_products(Graph& g) {
  Padded made;
  return rewrite(g, [&](Node* node) -> Value* {
    const auto product = product_of(*node);
    if (!product || !padding_pays(*product)) return nullptr;
    return Padding(g, made).of(node, *product);
  });
}

}  // namespace bolt::graph
