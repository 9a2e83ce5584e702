// tests/reference/graph_nn.cpp
// Composites by their definitions, and contractions as plain loops.
#include <algorithm>
#include <cmath>

#include "support/error.h"
#include "tests/reference/graph_ops.h"

namespace bolt::graph::reference {
namespace {

// Positions of x that share everything but the dimensions in `dims` form one group; fn sees the cells of each
// in turn.
void for_each_group(const HostTensor& x, const Shape& dims,
                    const std::function<void(const std::vector<int64_t>&)>& fn) {
  Shape outer = x.sizes, inner(x.sizes.size(), 1);
  for (int64_t d : dims) {
    outer[d] = 1;
    inner[d] = x.sizes[d];
  }
  for_each(outer, [&](const Shape& o) {
    std::vector<int64_t> members;
    for_each(inner, [&](const Shape& i) {
      Shape full = o;
      for (int64_t d : dims) full[d] = i[d];
      members.push_back(offset(x, full));
    });
    fn(members);
  });
}

struct Moments {
  double mean = 0, squares = 0;  // squares: the sum of squared differences from the mean
};
Moments moments(const HostTensor& x, const std::vector<int64_t>& members) {
  Moments m;
  for (int64_t i : members) m.mean += x.cells[i].real;
  m.mean /= static_cast<double>(members.size());
  for (int64_t i : members) m.squares += (x.cells[i].real - m.mean) * (x.cells[i].real - m.mean);
  return m;
}

double log_sum_exp(const HostTensor& x, const std::vector<int64_t>& members) {
  double top = -INFINITY;
  for (int64_t i : members) top = std::isnan(x.cells[i].real) ? NAN : std::max(top, x.cells[i].real);
  if (std::isinf(top)) return top;
  double sum = 0;
  for (int64_t i : members) sum += std::exp(x.cells[i].real - top);
  return top + std::log(sum);
}

void softmax(ReferenceCall& c) {
  for_each_group(c.arg(), {c.dim()}, [&](const std::vector<int64_t>& members) {
    double total = log_sum_exp(c.arg(), members);
    for (int64_t i : members) {
      double log = c.arg().cells[i].real - total;
      c.out.cells[i].real = c.op() == Op::softmax ? std::exp(log) : log;
    }
  });
}

void reduced(ReferenceCall& c) {
  int64_t n = 0;
  for_each_group(c.arg(), c.ints("dims"), [&](const std::vector<int64_t>& members) {
    double& out = c.out.cells[n++].real;
    if (c.op() == Op::logsumexp) {
      out = log_sum_exp(c.arg(), members);
      return;
    }
    Moments m = moments(c.arg(), members);
    double divisor = static_cast<double>(members.size());
    if (c.op() == Op::var) divisor = std::max(divisor - c.node.attr<double>("correction"), 0.0);
    out = c.op() == Op::mean ? m.mean : m.squares / divisor;
  });
}

struct Affine {
  const HostTensor* weight = nullptr;
  const HostTensor* bias = nullptr;
};
Affine affine(const ReferenceCall& c, size_t first) {
  Affine a;
  if (c.op() == Op::rms_norm) {
    if (c.in.size() > 1) a.weight = c.in[1];
    return a;
  }
  if (c.node.attr<bool>("has_weight")) a.weight = c.in.at(first++);
  if (c.node.attr<bool>("has_bias")) a.bias = c.in.at(first++);
  return a;
}

void layer_norm(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  double eps = c.node.attr<double>("eps");
  Shape dims;
  for (auto d = static_cast<int64_t>(x.sizes.size()) - c.node.attr<int64_t>("normalized_rank");
       d < static_cast<int64_t>(x.sizes.size()); ++d)
    dims.push_back(d);
  Affine a = affine(c, 1);
  for_each_group(x, dims, [&](const std::vector<int64_t>& members) {
    double n = static_cast<double>(members.size()), shift = 0, squares = 0;
    if (c.op() == Op::layer_norm) {
      Moments m = moments(x, members);
      shift = m.mean;
      squares = m.squares;
    } else {
      for (int64_t i : members) squares += x.cells[i].real * x.cells[i].real;
    }
    double scale = 1 / std::sqrt(squares / n + eps);
    for (size_t k = 0; k < members.size(); ++k) {
      double v = (x.cells[members[k]].real - shift) * scale;
      if (a.weight) v *= a.weight->cells[k].real;
      if (a.bias) v += a.bias->cells[k].real;
      c.out.cells[members[k]].real = v;
    }
  });
}

void group_norm(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  int64_t groups = c.node.attr<int64_t>("groups"), channels = x.sizes[1];
  Affine a = affine(c, 1);
  // As [N, groups, everything else of the group].
  int64_t per_group = x.sizes[0] * groups > 0 ? x.numel() / (x.sizes[0] * groups) : 0;
  int64_t per_channel = channels ? per_group / std::max<int64_t>(channels / groups, 1) : 0;
  HostTensor rows{x.dtype, {x.sizes[0] * groups, per_group}, x.cells};
  for_each_group(rows, {1}, [&](const std::vector<int64_t>& members) {
    Moments m = moments(rows, members);
    double scale =
        1 / std::sqrt(m.squares / static_cast<double>(members.size()) + c.node.attr<double>("eps"));
    for (int64_t i : members) {
      int64_t channel = i / per_channel % channels;
      double v = (rows.cells[i].real - m.mean) * scale;
      if (a.weight) v *= a.weight->cells[channel].real;
      if (a.bias) v += a.bias->cells[channel].real;
      c.out.cells[i].real = v;
    }
  });
}

void batch_norm(ReferenceCall& c) {
  Affine a = affine(c, 3);
  int64_t n = 0;
  for_each(c.out.sizes, [&](const Shape& i) {
    int64_t ch = i[1];
    double scale = 1 / std::sqrt(c.arg(2).cells[ch].real + c.node.attr<double>("eps"));
    double v = (c.arg().cells[n].real - c.arg(1).cells[ch].real) * scale;
    if (a.weight) v *= a.weight->cells[ch].real;
    if (a.bias) v += a.bias->cells[ch].real;
    c.out.cells[n++].real = v;
  });
}

void pool(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  Shape kernel = c.ints("kernel"), stride = c.ints("stride"), padding = c.ints("padding");
  bool average = c.op() == Op::avg_pool;
  Shape dilation = average ? Shape(kernel.size(), 1) : c.ints("dilation");
  size_t first = x.sizes.size() - kernel.size();
  int64_t n = 0;
  for_each(c.out.sizes, [&](const Shape& o) {
    double sum = 0, top = -INFINITY;
    int64_t inside = 0, padded = 0;
    for_each(kernel, [&](const Shape& k) {
      Shape i = o;
      bool in = true, in_padding = true;
      for (size_t d = 0; d < k.size(); ++d) {
        int64_t& at_d = i[first + d];
        at_d = o[first + d] * stride[d] - padding[d] + k[d] * dilation[d];
        in &= at_d >= 0 && at_d < x.sizes[first + d];
        in_padding &= at_d < x.sizes[first + d] + padding[d];
      }
      padded += in_padding;
      if (!in) return;
      double v = at(x, i).real;
      ++inside;
      sum += v;
      top = std::isnan(v) || std::isnan(top) ? NAN : std::max(top, v);
    });
    bool all = average && c.node.attr<bool>("count_include_pad");
    c.out.cells[n++].real = average ? sum / static_cast<double>(all ? padded : inside) : top;
  });
}

void adaptive_pool(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  size_t spatial = c.ints("sizes").size(), first = x.sizes.size() - spatial;
  int64_t n = 0;
  for_each(c.out.sizes, [&](const Shape& o) {
    Shape start(spatial), length(spatial);
    for (size_t d = 0; d < spatial; ++d) {
      int64_t in = x.sizes[first + d], out = c.out.sizes[first + d];
      start[d] = o[first + d] * in / out;
      length[d] = ((o[first + d] + 1) * in + out - 1) / out - start[d];
    }
    double sum = 0;
    for_each(length, [&](const Shape& k) {
      Shape i = o;
      for (size_t d = 0; d < spatial; ++d) i[first + d] = start[d] + k[d];
      sum += at(x, i).real;
    });
    c.out.cells[n++].real = sum / static_cast<double>(count(length));
  });
}

// ---- contractions ----

void matmul(ReferenceCall& c) {
  const HostTensor &a = c.arg(0), &b = c.arg(1);
  int64_t n = 0, inner = a.sizes.back();
  for_each(c.out.sizes, [&](const Shape& o) {
    Shape i = o, j = o;
    Cell sum = c.out.cells[n];
    for (int64_t k = 0; k < inner; ++k) {
      i.back() = k;
      j[j.size() - 2] = k;
      if (c.out.is_real()) {
        sum.real += at(a, i).real * at(b, j).real;
      } else {
        sum.whole += at(a, i).whole * at(b, j).whole;
      }
    }
    c.out.cells[n++] = sum;
  });
}

void linear(ReferenceCall& c) {
  const HostTensor &x = c.arg(0), &w = c.arg(1);
  int64_t inner = w.sizes[1], width = w.sizes[0], rows = width ? c.out.numel() / width : 0;
  const std::string end = c.node.attr_or<std::string>("activation", "");
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < width; ++j) {
      double sum = c.in.size() > 2 ? c.arg(2).cells[j].real : 0;
      for (int64_t k = 0; k < inner; ++k) sum += x.cells[r * inner + k].real * w.cells[j * inner + k].real;
      if (end == "relu") sum = sum < 0 ? 0 : sum;
      if (end == "gelu_tanh")
        sum *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
      c.out.cells[r * width + j].real = sum;
    }
}

void linears(ReferenceCall& c) {
  const HostTensor& x = c.arg(0);
  const int64_t inner = x.sizes.back(), width = c.out.sizes.back(), rows = inner ? x.numel() / inner : 0;
  int64_t n = 0;
  for (size_t i = 1; i < c.in.size(); ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < width; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += x.cells[r * inner + k].real * c.in[i]->cells[j * inner + k].real;
        c.out.cells[n++].real = sum;
      }
}

void linear_of_parts(ReferenceCall& c) {
  const HostTensor &x = c.arg(0), &w = c.arg(1), &v = c.arg(2);
  const int64_t inner = x.sizes.back(), width = c.out.sizes.back(), first = w.sizes[0];
  for (int64_t n = 0; n < c.out.numel(); ++n) {
    const int64_t r = n / width, j = n % width;
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += x.cells[r * inner + k].real *
             (j < first ? w.cells[j * inner + k] : v.cells[(j - first) * inner + k]).real;
    c.out.cells[n].real = sum;
  }
}

void joined(ReferenceCall& c) {
  c.out.cells.clear();
  for (const HostTensor* part : c.in)
    c.out.cells.insert(c.out.cells.end(), part->cells.begin(), part->cells.end());
}

struct ConvWindow {
  Shape stride, padding, dilation;
};

// Where tap k of output o reads; false outside the input.
bool tap(const ConvWindow& w, const Shape& o, const Shape& k, const Shape& input, Shape& i) {
  for (size_t d = 0; d < k.size(); ++d) {
    i[d + 2] = o[d + 2] * w.stride[d] - w.padding[d] + k[d] * w.dilation[d];
    if (i[d + 2] < 0 || i[d + 2] >= input[d + 2]) return false;
  }
  return true;
}

void conv(ReferenceCall& c) {
  const HostTensor &x = c.arg(0), &w = c.arg(1);
  ConvWindow window{c.ints("stride"), c.ints("padding"), c.ints("dilation")};
  int64_t groups = c.node.attr<int64_t>("groups");
  bool transposed = c.node.attr<bool>("transposed");
  Shape taps(w.sizes.begin() + 2, w.sizes.end());
  if (c.in.size() > 2) {
    int64_t n = 0;
    for_each(c.out.sizes, [&](const Shape& o) { c.out.cells[n++].real = c.arg(2).cells[o[1]].real; });
  }
  // A transposed convolution scatters what a plain one gathers: `near` is the side that the window slides
  // over.
  const HostTensor& near = transposed ? x : c.out;
  const Shape& far_sizes = transposed ? c.out.sizes : x.sizes;
  int64_t near_group = near.sizes[1] / groups, far_group = far_sizes[1] / groups;
  for_each(near.sizes, [&](const Shape& o) {
    int64_t group = o[1] / near_group;
    for (int64_t k = 0; k < far_group; ++k)
      for_each(taps, [&](const Shape& t) {
        Shape i = o, wi{o[1], k};
        wi.insert(wi.end(), t.begin(), t.end());
        i[1] = group * far_group + k;
        if (!tap(window, o, t, far_sizes, i)) return;
        double weight = at(w, wi).real;
        if (transposed) {
          c.out.cells[offset(c.out, i)].real += at(x, o).real * weight;
        } else {
          c.out.cells[offset(c.out, o)].real += at(x, i).real * weight;
        }
      });
  });
  for (size_t n = 0; n < c.out.cells.size(); ++n) {
    double& sum = c.out.cells[n].real;
    if (c.in.size() > 3) sum += c.arg(3).cells[n].real;
    if (c.node.has_attr("activation")) sum = sum < 0 ? 0 : sum;
  }
}

void attention(ReferenceCall& c) {
  const HostTensor &q = c.arg(0), &k = c.arg(1), &v = c.arg(2);
  size_t r = q.sizes.size();
  int64_t depth = q.sizes[r - 1], keys = k.sizes[r - 2];
  double scale = c.node.attr_or<double>("scale", 1 / std::sqrt(static_cast<double>(depth)));
  bool causal = c.node.attr<bool>("causal");
  Shape rows = c.out.sizes;
  rows.back() = 1;
  for_each(rows, [&](const Shape& row) {
    Shape kv = row;  // grouped heads share keys and values
    if (c.node.attr<bool>("enable_gqa")) kv[r - 3] = row[r - 3] / (q.sizes[r - 3] / k.sizes[r - 3]);
    HostTensor scores = make_tensor(DType::F64, {keys});
    for (int64_t s = 0; s < keys; ++s) {
      Shape qi = row, ki = kv, mi = row;
      ki[r - 2] = mi[r - 1] = s;
      double dot = 0;
      for (int64_t e = 0; e < depth; ++e) {
        qi[r - 1] = ki[r - 1] = e;
        dot += at(q, qi).real * at(k, ki).real;
      }
      dot *= scale;
      if (causal && s > row[r - 2]) dot = -INFINITY;
      if (c.in.size() > 3) {
        Cell m = at(c.arg(3), mi);
        dot = c.arg(3).is_real() ? dot + m.real : m.whole ? dot : -INFINITY;
      }
      scores.cells[s].real = dot;
    }
    // Not through log(sum): next to scores as low as numbers go, it would be lost.
    double most = -INFINITY, total = 0;
    for (const Cell& score : scores.cells) most = std::isnan(score.real) ? NAN : std::max(most, score.real);
    for (Cell& score : scores.cells) total += score.real = std::exp(score.real - most);
    const bool sees_nothing = std::isinf(most) && most < 0;
    const double nothing = c.node.attr<bool>("empty_rows_nan") ? NAN : 0;
    for (int64_t e = 0; e < c.out.sizes.back(); ++e) {
      double sum = 0;
      for (int64_t s = 0; s < keys; ++s) {
        Shape vi = kv;
        vi[r - 2] = s;
        vi[r - 1] = e;
        sum += (sees_nothing ? nothing : scores.cells[s].real / total) * at(v, vi).real;
      }
      Shape o = row;
      o.back() = e;
      c.out.cells[offset(c.out, o)].real = sum;
    }
  });
}

}  // namespace

void composite(ReferenceCall& c) {
  switch (c.op()) {
    case Op::softmax:
    case Op::log_softmax: return softmax(c);
    case Op::mean:
    case Op::var:
    case Op::logsumexp: return reduced(c);
    case Op::layer_norm:
    case Op::rms_norm: return layer_norm(c);
    case Op::group_norm: return group_norm(c);
    case Op::batch_norm: return batch_norm(c);
    case Op::avg_pool:
    case Op::max_pool: return pool(c);
    case Op::adaptive_avg_pool: return adaptive_pool(c);
    default: BOLT_CHECK(false, "no reference for ", op_info(c.op()).name);
  }
}

/// There is one device here.
void transfer(ReferenceCall& c) { c.out.cells = c.arg().cells; }

void contraction(ReferenceCall& c) {
  switch (c.op()) {
    case Op::matmul: return matmul(c);
    case Op::linear: return linear(c);
    case Op::linears: return linears(c);
    case Op::linear_of_parts: return linear_of_parts(c);
    case Op::joined: return joined(c);
    case Op::conv: return conv(c);
    case Op::sdpa: return attention(c);
    case Op::transfer: return transfer(c);
    default: BOLT_CHECK(false, "no reference for ", op_info(c.op()).name);
  }
}

}  // namespace bolt::graph::reference
