// tests/reference/graph.cpp
// The driver of the reference execution, host tensors, and views, reductions and
// indexing.
#include "tests/reference/graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "support/error.h"
#include "support/half.h"
#include "support/symbols.h"
#include "tests/reference/graph_ops.h"

namespace bolt::graph {
namespace reference {

Shape row_major(const Shape& sizes) {
  Shape strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

int64_t count(const Shape& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

void for_each(const Shape& sizes, const std::function<void(const Shape&)>& fn) {
  if (count(sizes) == 0) return;
  Shape index(sizes.size(), 0);
  while (true) {
    fn(index);
    size_t d = sizes.size();
    while (d-- > 0) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
      if (d == 0) return;
    }
    if (sizes.empty()) return;
  }
}

int64_t offset(const HostTensor& t, const Shape& index) {
  int64_t at = 0;
  size_t skip = index.size() - t.sizes.size();
  for (size_t d = 0; d < t.sizes.size(); ++d) at = at * t.sizes[d] + (t.sizes[d] == 1 ? 0 : index[skip + d]);
  return at;
}

void pointwise(ReferenceCall& c) {
  int64_t n = 0;
  Cell x[5];
  for_each(c.out.sizes, [&](const Shape& i) {
    for (size_t k = 0; k < c.in.size(); ++k) x[k] = at(*c.in[k], i);
    c.out.cells[n++] = pointwise_cell(c.node, x);
  });
}

// ---- views: where each element of the result is read ----

void view(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  if (c.op() == Op::reshape || c.op() == Op::keep) {
    c.out.cells = x.cells;
    return;
  }
  std::function<Cell(const Shape&)> read;
  if (c.op() == Op::permute) {
    Shape dims = c.ints("dims");
    read = [&, dims](const Shape& i) {
      Shape from(i.size());
      for (size_t d = 0; d < dims.size(); ++d) from[dims[d]] = i[d];
      return at(x, from);
    };
  } else if (c.op() == Op::expand) {
    read = [&](const Shape& i) { return at(x, i); };
  } else if (c.op() == Op::slice) {
    read = [&](const Shape& i) {
      Shape from = i;
      from[c.dim()] = c.sym("start") + i[c.dim()] * c.node.attr<int64_t>("step");
      return at(x, from);
    };
  } else if (c.op() == Op::flip) {
    Shape dims = c.ints("dims");
    read = [&, dims](const Shape& i) {
      Shape from = i;
      for (int64_t d : dims) from[d] = x.sizes[d] - 1 - i[d];
      return at(x, from);
    };
  } else {
    Shape strides = c.ints("strides");
    int64_t first = c.sym("offset");
    read = [&, strides, first](const Shape& i) {
      int64_t from = first;
      for (size_t d = 0; d < i.size(); ++d) from += i[d] * strides[d];
      return x.cells.at(from);
    };
  }
  int64_t n = 0;
  for_each(c.out.sizes, [&](const Shape& i) { c.out.cells[n++] = read(i); });
}

// ---- reductions ----

namespace {

Cell reduce_start(const ReferenceCall& c) {
  Cell r;
  bool real = c.arg().is_real();
  switch (c.op()) {
    case Op::prod: real ? (r.real = 1) : (r.whole = 1); break;
    case Op::all: r.whole = 1; break;
    case Op::amax: real ? (r.real = -INFINITY) : (r.whole = std::numeric_limits<int64_t>::min()); break;
    case Op::amin: real ? (r.real = INFINITY) : (r.whole = std::numeric_limits<int64_t>::max()); break;
    default: real&& c.op() == Op::sum ? (r.real = 0) : (r.whole = 0); break;
  }
  return r;
}

void accumulate(Op op, bool real, Cell& acc, Cell x) {
  bool set = real ? x.real != 0 : x.whole != 0;  // NaN is true
  switch (op) {
    case Op::sum: real ? (acc.real += x.real) : (acc.whole += x.whole); break;
    case Op::prod: real ? (acc.real *= x.real) : (acc.whole *= x.whole); break;
    case Op::any: acc.whole |= set; break;
    case Op::all: acc.whole &= set; break;
    case Op::amax:
    case Op::amin: {
      bool larger = op == Op::amax;
      if (real && (std::isnan(x.real) || (larger ? x.real > acc.real : x.real < acc.real))) acc.real = x.real;
      if (!real && (larger ? x.whole > acc.whole : x.whole < acc.whole)) acc.whole = x.whole;
      break;
    }
    default: BOLT_CHECK(false, "no reduction ", op_info(op).name);
  }
}

// The first of equals; NaN is larger and smaller than anything.
bool better(Op op, bool real, Cell x, Cell best) {
  if (!real) return op == Op::argmax ? x.whole > best.whole : x.whole < best.whole;
  if (std::isnan(best.real)) return false;
  return std::isnan(x.real) || (op == Op::argmax ? x.real > best.real : x.real < best.real);
}

}  // namespace

void reduce(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  Shape kept = x.sizes;
  Shape dims = c.ints("dims");
  for (int64_t d : dims) kept[d] = 1;
  bool arg = c.op() == Op::argmax || c.op() == Op::argmin;
  HostTensor acc{x.dtype, kept, std::vector<Cell>(count(kept), reduce_start(c))};
  std::vector<int64_t> winner(acc.cells.size(), -1);
  for_each(x.sizes, [&](const Shape& i) {
    int64_t to = offset(acc, i);
    Cell v = at(x, i);
    if (!arg) {
      accumulate(c.op(), x.is_real(), acc.cells[to], v);
    } else if (winner[to] < 0 || better(c.op(), x.is_real(), v, acc.cells[to])) {
      acc.cells[to] = v;
      winner[to] = i[dims[0]];
    }
  });
  for (size_t n = 0; n < acc.cells.size(); ++n) {
    c.out.cells[n] = acc.cells[n];
    if (arg) c.out.cells[n].whole = winner[n];
    if (!c.out.is_real()) c.out.cells[n].whole = wrap_to(c.out.dtype, c.out.cells[n].whole);
  }
}

// ---- computed and conditional indices ----

namespace {

int64_t row_of(const HostTensor& x, int64_t dim, Cell index) {
  int64_t i = index.whole;
  if (i < 0 || i >= x.sizes[dim])
    throw_user("index ", i, " is out of range for a dimension of ", x.sizes[dim]);
  return i;
}

Cell number_cell(const ReferenceCall& c, std::string_view name, DType t) {
  const Attr& a = c.node.attrs.find(name)->second;
  return graph::number_cell(std::holds_alternative<Syms>(a) ? Attr(c.sym(name)) : a, t);
}

Cell concatenated(const ReferenceCall& c, Shape i) {
  int64_t& position = i[c.dim()];
  for (const HostTensor* part : c.in) {
    if (position < part->sizes[c.dim()]) return at(*part, i);
    position -= part->sizes[c.dim()];
  }
  BOLT_CHECK(false, "cat out of range");
  return {};
}

Cell upsampled(const ReferenceCall& c, Shape i) {
  const HostTensor& x = c.arg();
  size_t n = c.ints("sizes").size(), first = i.size() - n;
  for (size_t d = 0; d < n; ++d) {
    int64_t from = x.sizes[first + d], to = c.out.sizes[first + d];
    double given = c.node.has_attr("scales") ? c.node.attr<std::vector<double>>("scales")[d] : 0;
    float scale = given > 0 ? static_cast<float>(given) : static_cast<float>(from) / static_cast<float>(to);
    auto source = static_cast<int64_t>(std::floor(static_cast<float>(i[first + d]) * scale));
    i[first + d] = std::min(source, from - 1);
  }
  return at(x, i);
}

Cell indexed(const ReferenceCall& c, Shape i) {
  const HostTensor& x = c.arg();
  switch (c.op()) {
    case Op::cat: return concatenated(c, std::move(i));
    case Op::upsample_nearest: return upsampled(c, std::move(i));
    case Op::pad: {
      Shape low = c.ints("low");
      for (size_t d = 0; d < i.size(); ++d) {
        i[d] -= low[d];
        if (i[d] < 0 || i[d] >= x.sizes[d]) return number_cell(c, "value", x.dtype);
      }
      return at(x, i);
    }
    case Op::embedding: {
      size_t ids = c.arg(1).sizes.size();
      Shape row(i.begin() + static_cast<std::ptrdiff_t>(ids), i.end());
      row.insert(row.begin(),
                 row_of(x, 0, at(c.arg(1), Shape(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(ids)))));
      return at(x, row);
    }
    case Op::gather: i[c.dim()] = row_of(x, c.dim(), at(c.arg(1), Shape(i))); return at(x, i);
    case Op::index_select: i[c.dim()] = row_of(x, c.dim(), at(c.arg(1), {i[c.dim()]})); return at(x, i);
    case Op::slice_scatter: {
      int64_t off = i[c.dim()] - c.sym("start"), step = c.node.attr<int64_t>("step");
      if (off < 0 || off % step || off / step >= c.arg(1).sizes[c.dim()]) return at(x, i);
      i[c.dim()] = off / step;
      return at(c.arg(1), i);
    }
    default: BOLT_CHECK(false, "no reference for ", op_info(c.op()).name);
  }
  return {};
}

}  // namespace

void index(ReferenceCall& c) {
  int64_t n = 0;
  for_each(c.out.sizes, [&](const Shape& i) { c.out.cells[n++] = indexed(c, i); });
}

// ---- running results and writes at computed places ----

namespace {

Cell combined(const std::string& op, bool real, Cell a, Cell b) {
  if (op == "last") return b;
  if (op == "logaddexp") {
    const double high = std::max(a.real, b.real), low = std::min(a.real, b.real);
    const bool nan = std::isnan(a.real) || std::isnan(b.real), same = high == low && std::isinf(high);
    a.real = nan ? std::nan("") : same ? high : high + std::log1p(std::exp(low - high));
    return a;
  }
  const bool high = op == "max";
  // Once NaN stays NaN.
  if (real && (op == "sum" || op == "prod" || !std::isnan(a.real)))
    accumulate(op == "sum" ? Op::sum : op == "prod" ? Op::prod : high ? Op::amax : Op::amin, true, a, b);
  if (!real)
    accumulate(op == "sum" ? Op::sum : op == "prod" ? Op::prod : high ? Op::amax : Op::amin, false, a, b);
  return a;
}

}  // namespace

void scan(ReferenceCall& c) {
  const HostTensor& x = c.arg();
  const std::string& op = c.node.attr<std::string>("op");
  for_each(x.sizes, [&](const Shape& i) {
    Cell v = at(x, i);
    if (i[c.dim()] > 0) {
      Shape before = i;
      --before[c.dim()];
      v = combined(op, x.is_real(), at(c.out, before), v);
    }
    if (!x.is_real()) v.whole = wrap_to(x.dtype, v.whole);
    c.out.cells[offset(c.out, i)] = v;
  });
}

void scatter(ReferenceCall& c) {
  const std::string& op = c.node.attr<std::string>("op");
  c.out.cells = c.arg().cells;
  for_each(c.arg(1).sizes, [&](Shape i) {
    const Cell v = at(c.arg(2), i);
    i[c.dim()] = row_of(c.out, c.dim(), at(c.arg(1), Shape(i)));
    Cell& to = c.out.cells[offset(c.out, i)];
    to = combined(op, c.out.is_real(), to, v);
    if (!c.out.is_real()) to.whole = wrap_to(c.out.dtype, to.whole);
  });
}

void create(ReferenceCall& c) {
  DType t = c.out.dtype;
  if (c.op() != Op::iota) {
    std::fill(c.out.cells.begin(), c.out.cells.end(), number_cell(c, "value", t));
    return;
  }
  auto number = [&](const char* name, double* real, int64_t* whole) {
    const Attr& a = c.node.attrs.find(name)->second;
    if (const double* v = std::get_if<double>(&a)) return *real = *v, false;
    *whole = std::holds_alternative<bool>(a) ? std::get<bool>(a) : std::get<int64_t>(a);
    *real = static_cast<double>(*whole);
    return true;
  };
  double start, step;
  int64_t start_whole = 0, step_whole = 0;
  bool first = number("start", &start, &start_whole), second = number("step", &step, &step_whole);
  bool whole = first && second;
  for (int64_t i = 0; i < c.out.numel(); ++i) {
    double real = start + static_cast<double>(i) * step;
    int64_t exact = whole ? start_whole + i * step_whole : static_cast<int64_t>(real);
    if (c.out.is_real()) {
      c.out.cells[i].real = round_to(t, whole ? static_cast<double>(exact) : real);
    } else {
      c.out.cells[i].whole = wrap_to(t, exact);
    }
  }
}

}  // namespace reference

// ---- host tensors ----

HostTensor make_tensor(DType dtype, std::vector<int64_t> sizes) {
  if (is_opaque(dtype))
    throw_unsupported("the reference execution does not compute with ", dtype_name(dtype));
  Cell zero;
  zero.whole = 0;  // the bits of 0.0 as well
  size_t n = static_cast<size_t>(reference::count(sizes));
  return {dtype, std::move(sizes), std::vector<Cell>(n, zero)};
}

namespace {

template <typename T>
T read_as(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

Cell load_cell(DType t, const char* p) {
  Cell c;
  switch (t) {
    case DType::F64: c.real = read_as<double>(p); break;
    case DType::F32: c.real = read_as<float>(p); break;
    case DType::BF16: c.real = bf16_to_float(read_as<uint16_t>(p)); break;
    case DType::F16: c.real = f16_to_float(read_as<uint16_t>(p)); break;
    case DType::I64: c.whole = read_as<int64_t>(p); break;
    case DType::I32: c.whole = read_as<int32_t>(p); break;
    case DType::I16: c.whole = read_as<int16_t>(p); break;
    case DType::I8: c.whole = read_as<int8_t>(p); break;
    default: c.whole = read_as<uint8_t>(p); break;
  }
  return c;
}

template <typename T>
void write_as(char* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

void store_cell(DType t, Cell c, char* p) {
  switch (t) {
    case DType::F64: write_as(p, c.real); break;
    case DType::F32: write_as(p, static_cast<float>(c.real)); break;
    case DType::BF16: write_as(p, float_to_bf16(static_cast<float>(c.real))); break;
    case DType::F16: write_as(p, float_to_f16(static_cast<float>(c.real))); break;
    case DType::I64: write_as(p, c.whole); break;
    case DType::I32: write_as(p, static_cast<int32_t>(c.whole)); break;
    case DType::I16: write_as(p, static_cast<int16_t>(c.whole)); break;
    default: write_as(p, static_cast<uint8_t>(c.whole)); break;
  }
}

int64_t strided(const std::vector<int64_t>& index, const std::vector<int64_t>& strides) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}

}  // namespace

HostTensor load_tensor(DType dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                       const void* data) {
  HostTensor t = make_tensor(dtype, sizes);
  const char* base = static_cast<const char*>(data);
  int64_t n = 0, bytes = dtype_bytes(dtype);
  reference::for_each(sizes, [&](const reference::Shape& i) {
    t.cells[n++] = load_cell(dtype, base + strided(i, strides) * bytes);
  });
  return t;
}

void store_tensor(const HostTensor& t, const std::vector<int64_t>& strides, void* data) {
  char* base = static_cast<char*>(data);
  int64_t n = 0, bytes = dtype_bytes(t.dtype);
  reference::for_each(t.sizes, [&](const reference::Shape& i) {
    store_cell(t.dtype, t.cells[n++], base + strided(i, strides) * bytes);
  });
}

double difference(const HostTensor& a, const HostTensor& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return INFINITY;
  double worst = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (!a.is_real()) {
      if (a.cells[i].whole != b.cells[i].whole) return INFINITY;
      continue;
    }
    double x = a.cells[i].real, y = b.cells[i].real;
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    double d = std::fabs(x - y) / std::max(1.0, std::fabs(y));
    if (!(d < INFINITY)) return INFINITY;
    worst = std::max(worst, d);
  }
  return worst;
}

// ---- the driver ----

namespace {

// Symbols that stand alone as a size of some input take that size's value.
SymbolTable bind_symbols(const Graph& g, const std::vector<HostTensor>& inputs) {
  SymbolTable symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Syms& sizes = g.inputs[i].value->type.sizes;
    BOLT_CHECK(sizes.size() == inputs[i].sizes.size(), "input ", i, " has another rank");
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d].node() && sizes[d].node()->op == SymOp::Symbol &&
          place_in(symbols, *sizes[d].node()) == symbols.size())
        symbols.push_back(SymbolRow::of_input(sizes[d], static_cast<int>(i), static_cast<int>(d),
                                              inputs[i].sizes[d], false));
  }
  return symbols;
}

void run_node(reference::ReferenceCall& call) {
  switch (op_info(call.op()).kind) {
    case OpKind::Pointwise: return reference::pointwise(call);
    case OpKind::Reduce: return reference::reduce(call);
    case OpKind::View: return reference::view(call);
    case OpKind::Create: return reference::create(call);
    case OpKind::Index: return reference::index(call);
    case OpKind::Scan: return reference::scan(call);
    case OpKind::Scatter: return reference::scatter(call);
    case OpKind::Composite: return reference::composite(call);
    case OpKind::Library: return reference::contraction(call);
    case OpKind::Extern: break;
  }
}

}  // namespace

std::vector<HostTensor> run_reference(const Graph& g, const std::vector<HostTensor>& inputs,
                                      bool rounds_as_eager) {
  BOLT_CHECK(inputs.size() == g.inputs.size(), "the graph takes ", g.inputs.size(), " inputs");
  const SymbolTable symbols = bind_symbols(g, inputs);
  std::function<int64_t(Sym)> number = [&](Sym s) {
    return evaluate(s, symbols, [&](size_t i) { return symbols[i].hint; });
  };
  std::unordered_map<const Value*, HostTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t d = 0; d < inputs[i].sizes.size(); ++d)
      BOLT_CHECK(number(g.inputs[i].value->type.sizes[d]) == inputs[i].sizes[d], "input ", i,
                 " has another size");
    values[g.inputs[i].value.get()] = inputs[i];
  }
  for (const auto& node : g.nodes) {
    if (node->op == Op::extern_call) throw_unsupported("the reference execution cannot run extern_call");
    reference::Operands operands;
    for (const Value* v : node->operands) operands.push_back(&values.at(v));
    reference::Shape sizes;
    for (Sym s : node->out()->type.sizes) sizes.push_back(number(s));
    reference::ReferenceCall call{*node, operands, number, make_tensor(node->out()->type.dtype, sizes)};
    run_node(call);
    const DType t = call.out.dtype;
    if (rounds_as_eager && is_half(t) && op_info(node->op).kind != OpKind::Create)
      for (Cell& cell : call.out.cells) cell.real = round_to(t, cell.real);
    values[node->out()] = std::move(call.out);
  }
  std::vector<HostTensor> out;
  for (const Output& o : g.outputs) out.push_back(values.at(o.value));
  return out;
}

}  // namespace bolt::graph
