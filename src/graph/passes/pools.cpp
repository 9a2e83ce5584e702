// graph/passes/pools.cpp
// Pools of small windows -> pointwise operations on what lies at each place of the windows
//
//   max_pool(x, 3x3)  -> maximum of nine slices of padded(x)
//   avg_pool(x, 3x3)  -> their sum, by the number of elements that count
//
// On devices whose kernels read anywhere at the cost of what lies there. Their library's calls are passes of
// their own, the largest one's makes the places of the largest besides, which nobody asked for; as a kernel a
// pool is computed with what comes before and after it. Elements are added in the library's order.
#include <limits>
#include <vector>

#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

/// Of larger windows the library's call stays.
constexpr int64_t kLargestWindow = 32;

/// The windows along one dimension.
struct PooledAxis {
  int64_t dim, kernel, stride, padding, dilation;
  Sym size, count;
};

class Pool {
 public:
  Pool(Graph& g, Node* node) : maker_(g, node), node_(node) {
    const auto kernel = node->ints("kernel"), stride = node->ints("stride"), padding = node->ints("padding");
    const auto dilation = is_average() ? std::vector<int64_t>(kernel.size(), 1) : node->ints("dilation");
    const Type &x = node->operands[0]->type, &y = node->out()->type;
    const size_t lead = x.sizes.size() - kernel.size();
    for (size_t d = 0; d < kernel.size(); ++d)
      slides_.push_back({static_cast<int64_t>(lead + d), kernel[d], stride[d], padding[d], dilation[d],
                         x.sizes[lead + d], y.sizes[lead + d]});
  }

  Value* made() const {
    int64_t elements = 1;
    for (const PooledAxis& s : slides_) elements *= s.kernel;
    if (elements > kLargestWindow) return nullptr;
    const DType stored = node_->out()->type.dtype;
    const bool widened = is_average() && is_half(stored);
    Value* x = bordered(node_->operands[0]);
    Value* result = nullptr;
    for (int64_t k = 0; k < elements; ++k) {
      Value* element = at(x, k);
      if (widened) element = maker_.cast(element, DType::F32);
      result = !result ? element : maker_.make(is_average() ? Op::add : Op::maximum, {result, element});
    }
    if (is_average()) result = maker_.cast(maker_.div(result, divisor(result->type.dtype)), stored);
    if (result->def) result->type.strides = node_->out()->type.strides;
    return result;
  }

 private:
  bool is_average() const { return node_->op == Op::avg_pool; }
  bool hangs_over() const { return node_->attr<bool>("ceil"); }

  Value* bordered(Value* x) const {
    Syms low(x->type.sizes.size(), 0), high = low;
    bool any = false;
    for (const PooledAxis& s : slides_) {
      low[s.dim] = s.padding;
      high[s.dim] = s.padding + (hangs_over() ? s.stride - 1 : 0);
      any |= s.padding > 0 || hangs_over();
    }
    if (!any) return x;
    const double value = is_average() ? 0.0 : -std::numeric_limits<double>::infinity();
    return maker_.make(Op::pad, {x}, {{"low", std::move(low)}, {"high", std::move(high)}, {"value", value}});
  }

  /// What lies at place `k` of each window, counted row by row.
  Value* at(Value* x, int64_t k) const {
    for (size_t d = slides_.size(); d-- > 0;) {
      const PooledAxis& s = slides_[d];
      x = maker_.slice(x, s.dim, k % s.kernel * s.dilation, s.count, s.stride);
      k /= s.kernel;
    }
    return x;
  }

  /// How many elements count: all, or fewer at the image's borders.
  Value* divisor(DType type) const {
    Value* count = nullptr;
    for (const PooledAxis& s : slides_) {
      Value* along = elements_along(s, type);
      count = count ? maker_.mul(count, along) : along;
    }
    return count;
  }
  Value* elements_along(const PooledAxis& s, DType type) const {
    const bool counts_padding = node_->attr<bool>("count_include_pad");
    if (!hangs_over() && (counts_padding || s.padding == 0))
      return maker_.scalar(type, static_cast<double>(s.kernel));
    auto number = [&](Sym n) { return maker_.size(DType::I64, n); };
    Value* begin = maker_.make(
        Op::iota, {},
        {{"size", Syms{s.count}}, {"start", -s.padding}, {"step", s.stride}, {"dtype", DType::I64}});
    Value* end = maker_.make(Op::minimum, {maker_.add(begin, number(s.kernel)), number(s.size + s.padding)});
    if (!counts_padding) {
      begin = maker_.make(Op::maximum, {begin, number(0)});
      end = maker_.make(Op::minimum, {end, number(s.size)});
    }
    Syms sizes(node_->out()->type.sizes.size(), 1);
    sizes[s.dim] = s.count;
    return maker_.reshape(maker_.cast(maker_.sub(end, begin), type), std::move(sizes));
  }

  Maker maker_;
  Node* node_;
  std::vector<PooledAxis> slides_;
};

}  // namespace

bool pools(Graph& g) {
  return rewrite(g, [&](Node* node) -> Value* {
    if ((node->op != Op::max_pool && node->op != Op::avg_pool) || !is_float(node->out()->type.dtype))
      return nullptr;
    if (!facts_of(node->out()->type.device).pools_in_kernels) return nullptr;
    return Pool(g, node).made();
  });
}

}  // namespace bolt::graph
