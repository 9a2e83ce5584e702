// loops/kernel_text.cpp
// Kernel <-> text. The form is shown at the top of kernel.h; what it leaves out:
//
//   kernel @name (in %b0: f32 "x", inout %b1: i64) space [s0 d0, 8 d1 reduce] syms [s0] {
//     source "model.py:12"
//     %0 = const f32 -inf                     const b8 true, const i64 7
//     %1 = index d0 + 2*d1
//     %2 = load b1[d0; %1 * 8] if %3 else 0   computed index terms behind the `;`, the mask behind the `if`
//     %3 = lt %1, %4
//     %5 = cast f32 %2
//     %6 = reduce sum %5 over d0, d1
//     %7 = acc f32
//     %8 = check %1 below %4 if %3            the mask is optional
//     %9 = scan sum %5 along d1
//     store b1[d0; %1 * 8] = %2 if %3
//     scatter sum b1[d0; %1 * 8] = %2 if %3   or last, prod, max, min
//   }
//
// Dtypes that follow from the operands are not written. Expressions carry their number, which must be the
// next one: the parser fills the list as it stands and shares nothing, so that print(parse(text)) == text.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "loops/kernel_ops.h"
#include "loops/kernel_text.h"
#include "support/error.h"
#include "support/text.h"

namespace bolt::loops {
namespace {

std::string constant_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", v);
  double shorter;
  char brief[32];
  std::snprintf(brief, sizeof brief, "%.9g", v);
  shorter = std::strtod(brief, nullptr);
  return shorter == v ? brief : text;
}

class Printer {
 public:
  explicit Printer(const Kernel& k) : k_(k) {}

  std::string run() {
    out_ = "kernel @" + k_.name + " (";
    for (size_t i = 0; i < k_.buffers.size(); ++i) buffer(static_cast<int>(i));
    out_ += ") space [";
    for (size_t i = 0; i < k_.dims.size(); ++i) {
      if (i) out_ += ", ";
      out_ += k_.dims[i].size.str() + " d" + std::to_string(i) + (k_.dims[i].reduce ? " reduce" : "");
    }
    out_ += "]";
    if (!k_.symbols.empty()) {
      out_ += " syms [";
      for (size_t i = 0; i < k_.symbols.size(); ++i) out_ += (i ? ", " : "") + k_.symbols[i].str();
      out_ += "]";
    }
    out_ += " {\n";
    for (const std::string& s : k_.sources) out_ += "  source " + quoted(s) + "\n";
    for (size_t i = 0; i < k_.exprs.size(); ++i)
      out_ += "  %" + std::to_string(i) + " = " + expr(k_.exprs[i]) + "\n";
    for (const Store& s : k_.stores) store(s);
    return out_ + "}\n";
  }

 private:
  void buffer(int i) {
    const Buffer& b = k_.buffers[i];
    if (i) out_ += ", ";
    out_ += b.role == BufferRole::In ? "in" : b.role == BufferRole::Out ? "out" : "inout";
    out_ += " %b" + std::to_string(i) + ": " + std::string(dtype_name(b.dtype));
    if (!b.name.empty()) out_ += " " + quoted(b.name);
  }

  static std::string ref(ExprId id) { return "%" + std::to_string(id); }

  static std::string access(int buffer, Sym index, const std::vector<GatherTerm>& gather) {
    std::string s = "b" + std::to_string(buffer) + "[" + index.str();
    for (size_t i = 0; i < gather.size(); ++i)
      s += (i ? ", " : "; ") + ref(gather[i].value) + " * " + gather[i].coef.str();
    return s + "]";
  }

  std::string expr(const Expr& e) const {
    std::string dtype(dtype_name(e.dtype));
    switch (e.kind) {
      case ExprKind::Const:
        if (is_float(e.dtype)) return "const " + dtype + " " + constant_text(e.value);
        if (e.dtype == DType::Bool) return e.ivalue ? "const b8 true" : "const b8 false";
        return "const " + dtype + " " + std::to_string(e.ivalue);
      case ExprKind::Index: return "index " + e.index.str();
      case ExprKind::Load: {
        std::string s = "load " + access(e.buffer, e.index, e.gather);
        if (e.mask != kNone) s += " if " + ref(e.mask) + " else " + constant_text(e.fill);
        return s;
      }
      case ExprKind::Op: {
        std::string s(scalar_op_name(e.op));
        for (size_t i = 0; i < e.args.size(); ++i) s += (i ? ", " : " ") + ref(e.args[i]);
        return s;
      }
      case ExprKind::Cast: return "cast " + dtype + " " + ref(e.args[0]);
      case ExprKind::Reduce: {
        std::string s =
            "reduce " + std::string(reduce_op_name(e.reduce_op)) + " " + ref(e.args[0]) + " over ";
        bool first = true;
        for (size_t i = 0; i < k_.dims.size(); ++i) {
          if (!(e.reduce_dims >> i & 1)) continue;
          s += (first ? "d" : ", d") + std::to_string(i);
          first = false;
        }
        return s;
      }
      case ExprKind::Scan:
        return "scan " + std::string(reduce_op_name(e.reduce_op)) + " " + ref(e.args[0]) + " along d" +
               std::to_string(std::countr_zero(e.reduce_dims));
      case ExprKind::Check: {
        std::string s = "check " + ref(e.args[0]) + " below " + ref(e.args[1]);
        return e.mask == kNone ? s : s + " if " + ref(e.mask);
      }
      case ExprKind::Acc: return "acc " + dtype;
    }
    return "";
  }

  void store(const Store& s) {
    out_ += s.scatters() ? "  scatter " + std::string(into_name(s.into)) + " " : "  store ";
    out_ += access(s.buffer, s.index, s.gather) + " = " + ref(s.value);
    if (s.mask != kNone) out_ += " if " + ref(s.mask);
    out_ += "\n";
  }

  const Kernel& k_;
  std::string out_;
};

class Parser {
 public:
  explicit Parser(TextReader& in) : in_(in) {}

  Kernel run() {
    in_.expect("kernel");
    k_.name = in_.name_after("@");
    in_.expect("(");
    while (!in_.accept(")")) {
      buffer();
      in_.accept(",");
    }
    in_.expect("space");
    in_.expect("[");
    while (!in_.accept("]")) {
      dimension();
      in_.accept(",");
    }
    if (in_.accept("syms")) {
      in_.expect("[");
      k_.symbols = in_.syms("]");
    }
    in_.expect("{");
    while (!in_.accept("}")) statement();
    return std::move(k_);
  }

 private:
  ExprId ref() {
    int id = in_.number_after("%");
    if (id >= static_cast<int>(k_.exprs.size())) in_.fail("expression used before it is defined");
    return id;
  }

  void buffer() {
    BufferRole role = in_.accept("inout") ? BufferRole::InOut
                      : in_.accept("in")  ? BufferRole::In
                                          : BufferRole::Out;
    if (role == BufferRole::Out) in_.expect("out");
    if (in_.number_after("%b") != static_cast<int>(k_.buffers.size()))
      in_.fail("buffers are numbered in order; got another");
    in_.expect(":");
    Buffer b{in_.dtype(), role, ""};
    if (in_.sees("\"")) b.name = in_.string();
    k_.buffers.push_back(b);
  }
  void dimension() {
    Dim d{in_.sym(), false};
    if (in_.number_after("d") != static_cast<int>(k_.dims.size()))
      in_.fail("dimensions are numbered in order; got another");
    d.reduce = in_.accept("reduce");
    k_.dims.push_back(d);
  }
  void access(int* buffer, Sym* index, std::vector<GatherTerm>* gather) {
    *buffer = in_.number_after("b");
    if (*buffer >= static_cast<int>(k_.buffers.size())) in_.fail("unknown buffer before");
    in_.expect("[");
    *index = in_.sym();
    if (in_.accept(";")) {
      do {
        ExprId value = ref();
        in_.expect("*");
        gather->push_back({value, in_.sym()});
      } while (in_.accept(","));
    }
    in_.expect("]");
  }
  void statement() {
    if (in_.accept("source")) {
      k_.sources.push_back(in_.string());
    } else if (in_.sees("store") || in_.sees("scatter")) {
      Store s{};
      if (in_.name() == "scatter") {
        const auto into = into_from_name(in_.name());
        if (!into) in_.fail("unknown way to scatter before");
        s.into = *into;
      }
      access(&s.buffer, &s.index, &s.gather);
      in_.expect("=");
      s.value = ref();
      if (in_.accept("if")) s.mask = ref();
      k_.stores.push_back(s);
    } else {
      if (in_.number_after("%") != static_cast<int>(k_.exprs.size()))
        in_.fail("expressions are numbered in order; got another");
      in_.expect("=");
      Expr e = expr();
      e.dims = dims_of(k_, e);
      k_.exprs.push_back(std::move(e));
    }
  }
  Expr expr() {
    Expr e{};
    const std::string_view what = in_.name();
    if (what == "const")
      constant(&e);
    else if (what == "index")
      e.kind = ExprKind::Index, e.dtype = DType::I64, e.index = in_.sym();
    else if (what == "load")
      load(&e);
    else if (what == "cast")
      e.kind = ExprKind::Cast, e.dtype = in_.dtype(), e.args = {ref()};
    else if (what == "reduce")
      reduce(&e);
    else if (what == "scan")
      scan(&e);
    else if (what == "check")
      bounds_check(&e);
    else if (what == "acc")
      e.kind = ExprKind::Acc, e.dtype = in_.dtype();
    else
      operation(&e, what);
    return e;
  }
  void constant(Expr* e) {
    e->kind = ExprKind::Const;
    e->dtype = in_.dtype();
    if (is_float(e->dtype))
      e->value = in_.number();
    else if (e->dtype != DType::Bool)
      e->ivalue = in_.integer();
    else if (in_.accept("true"))
      e->ivalue = 1;
    else
      in_.expect("false");
  }
  void load(Expr* e) {
    e->kind = ExprKind::Load;
    access(&e->buffer, &e->index, &e->gather);
    e->dtype = k_.buffers[e->buffer].dtype;
    if (in_.accept("if")) {
      e->mask = ref();
      in_.expect("else");
      e->fill = in_.number();
    }
  }
  void bounds_check(Expr* e) {
    e->kind = ExprKind::Check;
    e->dtype = DType::I64;
    e->args = {ref()};
    in_.expect("below");
    e->args.push_back(ref());
    if (in_.accept("if")) e->mask = ref();
  }
  void reduce(Expr* e) {
    e->kind = ExprKind::Reduce;
    auto op = reduce_op_from_name(in_.name());
    if (!op) in_.fail("unknown reduction before");
    e->reduce_op = *op;
    e->args = {ref()};
    e->dtype = reduce_result_dtype(e->reduce_op, k_.exprs[e->args[0]].dtype);
    in_.expect("over");
    do {
      const int d = in_.number_after("d");
      if (d >= static_cast<int>(k_.dims.size())) in_.fail("no such dimension before");
      e->reduce_dims |= 1u << d;
    } while (in_.accept(","));
  }
  void scan(Expr* e) {
    e->kind = ExprKind::Scan;
    const auto op = reduce_op_from_name(in_.name());
    if (!op) in_.fail("unknown scan before");
    e->reduce_op = *op;
    e->args = {ref()};
    e->dtype = k_.exprs[e->args[0]].dtype;
    in_.expect("along");
    const int d = in_.number_after("d");
    if (d >= static_cast<int>(k_.dims.size())) in_.fail("no such dimension before");
    e->reduce_dims = 1u << d;
  }
  void operation(Expr* e, std::string_view name) {
    auto op = scalar_op_from_name(name);
    if (!op) in_.fail("unknown operation '" + std::string(name) + "'");
    e->kind = ExprKind::Op;
    e->op = *op;
    std::vector<DType> types;
    do {
      e->args.push_back(ref());
      types.push_back(k_.exprs[e->args.back()].dtype);
    } while (in_.accept(","));
    if (static_cast<int>(e->args.size()) != scalar_op_arity(e->op))
      in_.fail("wrong number of operands for '" + std::string(name) + "'");
    e->dtype = op_result_dtype(e->op, types);
  }

  TextReader& in_;
  Kernel k_;
};

}  // namespace

std::string print(const Kernel& k) { return Printer(k).run(); }
Kernel read_kernel(TextReader& in) { return Parser(in).run(); }
Kernel parse_kernel(std::string_view text) {
  TextReader in(text);
  try {
    return read_kernel(in);
  } catch (const Error& e) {
    in.rethrow(e);
  }
}

}  // namespace bolt::loops
