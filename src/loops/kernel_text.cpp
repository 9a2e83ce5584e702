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
//     store b1[d0; %1 * 8] = %2 if %3
//   }
//
// Dtypes that follow from the operands are not written. Expressions carry their number, which must be the
// next one: the parser fills the list as it stands and shares nothing, so that print(parse(text)) == text.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "loops/kernel.h"
#include "loops/kernel_ops.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

std::string number(double v) {
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
    for (const std::string& s : k_.sources) out_ += "  source \"" + s + "\"\n";
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
    if (!b.name.empty()) out_ += " \"" + b.name + "\"";
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
        if (is_float(e.dtype)) return "const " + dtype + " " + number(e.value);
        if (e.dtype == DType::Bool) return e.ivalue ? "const b8 true" : "const b8 false";
        return "const " + dtype + " " + std::to_string(e.ivalue);
      case ExprKind::Index: return "index " + e.index.str();
      case ExprKind::Load: {
        std::string s = "load " + access(e.buffer, e.index, e.gather);
        if (e.mask != kNone) s += " if " + ref(e.mask) + " else " + number(e.fill);
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
      case ExprKind::Check: {
        std::string s = "check " + ref(e.args[0]) + " below " + ref(e.args[1]);
        return e.mask == kNone ? s : s + " if " + ref(e.mask);
      }
      case ExprKind::Acc: return "acc " + dtype;
    }
    return "";
  }

  void store(const Store& s) {
    out_ += "  store " + access(s.buffer, s.index, s.gather) + " = " + ref(s.value);
    if (s.mask != kNone) out_ += " if " + ref(s.mask);
    out_ += "\n";
  }

  const Kernel& k_;
  std::string out_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : all_(text), rest_(text) {}

  Kernel run() {
    expect("kernel");
    expect("@");
    k_.name = word();
    expect("(");
    while (!accept(")")) {
      buffer();
      accept(",");
    }
    expect("space");
    expect("[");
    while (!accept("]")) {
      dimension();
      accept(",");
    }
    if (accept("syms")) {
      expect("[");
      while (!accept("]")) {
        k_.symbols.push_back(Sym::symbol(word()));
        accept(",");
      }
    }
    expect("{");
    while (!accept("}")) statement();
    return std::move(k_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    size_t done = all_.size() - rest_.size();
    int line = 1;
    for (char c : all_.substr(0, done)) line += c == '\n';
    throw_user("kernel text, line ", line, ": ", what, " at '",
               rest_.substr(0, std::min<size_t>(rest_.size(), 30)), "'");
  }
  void space() {
    while (!rest_.empty()) {
      if (std::isspace(static_cast<unsigned char>(rest_[0])))
        rest_.remove_prefix(1);
      else if (rest_[0] == '#')
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      else
        break;
    }
  }
  static bool word_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  }
  bool accept(std::string_view token) {
    space();
    if (!rest_.starts_with(token)) return false;
    // A word must end where the token ends: `in` is no prefix of `inout`.
    if (word_char(token.back()) && rest_.size() > token.size() && word_char(rest_[token.size()]))
      return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }
  std::string word() {
    space();
    size_t n = 0;
    while (n < rest_.size() && word_char(rest_[n])) ++n;
    if (n == 0) fail("expected a name");
    std::string w(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return w;
  }
  std::string quoted() {
    expect("\"");
    size_t n = rest_.find('"');
    if (n == std::string_view::npos) fail("string without end");
    std::string s(rest_.substr(0, n));
    rest_.remove_prefix(n + 1);
    return s;
  }
  int integer_after(std::string_view prefix) {
    space();
    if (!rest_.starts_with(prefix)) fail("expected '" + std::string(prefix) + "<number>'");
    rest_.remove_prefix(prefix.size());
    return static_cast<int>(integer());
  }
  int64_t integer() {
    space();
    std::string digits(rest_.substr(0, 24));
    char* end;
    int64_t v = std::strtoll(digits.c_str(), &end, 10);
    if (end == digits.c_str()) fail("expected an integer");
    rest_.remove_prefix(end - digits.c_str());
    return v;
  }
  double real() {
    space();
    std::string digits(rest_.substr(0, 40));
    char* end;
    double v = std::strtod(digits.c_str(), &end);
    if (end == digits.c_str()) fail("expected a number");
    rest_.remove_prefix(end - digits.c_str());
    return v;
  }
  DType dtype() {
    auto t = dtype_from_name(word());
    if (!t) fail("unknown dtype before");
    return *t;
  }
  Sym sym() {
    space();
    return parse_sym(rest_);
  }
  ExprId ref() {
    int id = integer_after("%");
    if (id < 0 || id >= static_cast<int>(k_.exprs.size())) fail("expression used before it is defined");
    return id;
  }

  void buffer() {
    BufferRole role = accept("inout") ? BufferRole::InOut : accept("in") ? BufferRole::In : BufferRole::Out;
    if (role == BufferRole::Out) expect("out");
    if (integer_after("%b") != static_cast<int>(k_.buffers.size()))
      fail("buffers are numbered in order; got another");
    expect(":");
    Buffer b{dtype(), role, ""};
    space();
    if (rest_.starts_with("\"")) b.name = quoted();
    k_.buffers.push_back(b);
  }
  void dimension() {
    Dim d{sym(), false};
    if (integer_after("d") != static_cast<int>(k_.dims.size()))
      fail("dimensions are numbered in order; got another");
    d.reduce = accept("reduce");
    k_.dims.push_back(d);
  }
  void access(int* buffer, Sym* index, std::vector<GatherTerm>* gather) {
    *buffer = integer_after("b");
    if (*buffer < 0 || *buffer >= static_cast<int>(k_.buffers.size())) fail("unknown buffer before");
    expect("[");
    *index = sym();
    if (accept(";")) {
      do {
        ExprId value = ref();
        expect("*");
        gather->push_back({value, sym()});
      } while (accept(","));
    }
    expect("]");
  }
  void statement() {
    if (accept("source")) {
      k_.sources.push_back(quoted());
    } else if (accept("store")) {
      Store s{};
      access(&s.buffer, &s.index, &s.gather);
      expect("=");
      s.value = ref();
      if (accept("if")) s.mask = ref();
      k_.stores.push_back(s);
    } else {
      if (integer_after("%") != static_cast<int>(k_.exprs.size()))
        fail("expressions are numbered in order; got another");
      expect("=");
      Expr e = expr();
      e.dims = dims_of(k_, e);
      k_.exprs.push_back(std::move(e));
    }
  }
  Expr expr() {
    Expr e{};
    std::string what = word();
    if (what == "const")
      constant(&e);
    else if (what == "index")
      e.kind = ExprKind::Index, e.dtype = DType::I64, e.index = sym();
    else if (what == "load")
      load(&e);
    else if (what == "cast")
      e.kind = ExprKind::Cast, e.dtype = dtype(), e.args = {ref()};
    else if (what == "reduce")
      reduce(&e);
    else if (what == "check")
      bounds_check(&e);
    else if (what == "acc")
      e.kind = ExprKind::Acc, e.dtype = dtype();
    else
      operation(&e, what);
    return e;
  }
  void constant(Expr* e) {
    e->kind = ExprKind::Const;
    e->dtype = dtype();
    if (is_float(e->dtype))
      e->value = real();
    else if (e->dtype != DType::Bool)
      e->ivalue = integer();
    else if (accept("true"))
      e->ivalue = 1;
    else
      expect("false");
  }
  void load(Expr* e) {
    e->kind = ExprKind::Load;
    access(&e->buffer, &e->index, &e->gather);
    e->dtype = k_.buffers[e->buffer].dtype;
    if (accept("if")) {
      e->mask = ref();
      expect("else");
      e->fill = real();
    }
  }
  void bounds_check(Expr* e) {
    e->kind = ExprKind::Check;
    e->dtype = DType::I64;
    e->args = {ref()};
    expect("below");
    e->args.push_back(ref());
    if (accept("if")) e->mask = ref();
  }
  void reduce(Expr* e) {
    e->kind = ExprKind::Reduce;
    auto op = reduce_op_from_name(word());
    if (!op) fail("unknown reduction before");
    e->reduce_op = *op;
    e->args = {ref()};
    e->dtype = reduce_result_dtype(e->reduce_op, k_.exprs[e->args[0]].dtype);
    expect("over");
    do e->reduce_dims |= 1u << integer_after("d");
    while (accept(","));
  }
  void operation(Expr* e, const std::string& name) {
    auto op = scalar_op_from_name(name);
    if (!op) fail("unknown operation '" + name + "'");
    e->kind = ExprKind::Op;
    e->op = *op;
    std::vector<DType> types;
    do {
      e->args.push_back(ref());
      types.push_back(k_.exprs[e->args.back()].dtype);
    } while (accept(","));
    if (static_cast<int>(e->args.size()) != scalar_op_arity(e->op))
      fail("wrong number of operands for '" + name + "'");
    e->dtype = op_result_dtype(e->op, types);
  }

  std::string_view all_, rest_;
  Kernel k_;
};

}  // namespace

std::string print(const Kernel& k) { return Printer(k).run(); }
Kernel parse_kernel(std::string_view text) { return Parser(text).run(); }

}  // namespace bolt::loops
