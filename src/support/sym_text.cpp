// support/sym_text.cpp
// Sym <-> text: 512*d0 + d1, (d0 + 1)//4, min(s0, 8). What str() writes, parse_sym reads back as the same
// node (except the bounds of symbols whose kind has none, which the text does not carry).
#include <cctype>
#include <charconv>

#include "support/error.h"
#include "support/sym.h"
#include "support/symbols.h"

namespace bolt {
namespace {

void write(Sym a, std::string& out);

// Operands of * // % that are themselves expressions go in parentheses, whether precedence needs them or not.
void write_operand(Sym a, std::string& out) {
  bool atom = a.is_const()
                  ? a.value_or(0) >= 0
                  : a.node()->op == SymOp::Symbol || a.node()->op == SymOp::Min || a.node()->op == SymOp::Max;
  if (!atom) out += '(';
  write(a, out);
  if (!atom) out += ')';
}

void write_product(const Syms& factors, bool negate, std::string& out) {
  size_t count = factors.size();
  if (factors.back().is_const()) {  // the coefficient goes first, as people write it
    int64_t c = factors.back().value();
    if (negate) c = -c;
    --count;
    if (c == -1) {
      out += '-';
    } else if (c != 1) {
      out += std::to_string(c) + '*';
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (i) out += '*';
    write_operand(factors[i], out);
  }
}

bool is_negative(Sym a) {
  if (a.is_const()) return a.value() < 0 && a.value() != INT64_MIN;
  const SymNode& n = *a.node();
  return n.op == SymOp::Mul && n.args.back().is_const() && is_negative(n.args.back());
}

void write_sum(const Syms& args, std::string& out) {
  for (size_t i = 0; i < args.size(); ++i) {
    bool minus = i && is_negative(args[i]);
    if (i) out += minus ? " - " : " + ";
    if (!minus) {
      write(args[i], out);
    } else if (args[i].is_const()) {
      out += std::to_string(-args[i].value());
    } else {
      write_product(args[i].node()->args, true, out);
    }
  }
}

void write(Sym a, std::string& out) {
  if (a.is_const()) {
    out += std::to_string(a.value());
    return;
  }
  const SymNode& n = *a.node();
  switch (n.op) {
    case SymOp::Symbol: out += n.name; break;
    case SymOp::Add: write_sum(n.args, out); break;
    case SymOp::Mul: write_product(n.args, false, out); break;
    case SymOp::FloorDiv:
    case SymOp::Mod:
      write_operand(n.args[0], out);
      out += n.op == SymOp::Mod ? "%" : "//";
      write_operand(n.args[1], out);
      break;
    case SymOp::Min:
    case SymOp::Max:
      out += n.op == SymOp::Min ? "min(" : "max(";
      write(n.args[0], out);
      out += ", ";
      write(n.args[1], out);
      out += ')';
      break;
  }
}

class Reader {
 public:
  explicit Reader(std::string_view& text) : text_(text) {}

  Sym sum() {
    Sym r = product();
    while (true) {
      if (accept("+")) {
        r += product();
      } else if (accept("-")) {
        r = r - product();
      } else {
        return r;
      }
    }
  }

 private:
  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\t')) text_.remove_prefix(1);
  }
  // After the expression something else may follow, so blanks are only eaten together with what they precede.
  bool accept(std::string_view token) {
    std::string_view saved = text_;
    skip_space();
    if (text_.substr(0, token.size()) == token && !(token == "-" && text_.substr(0, 2) == "->")) {
      text_.remove_prefix(token.size());
      return true;
    }
    text_ = saved;
    return false;
  }
  void expect(std::string_view token) {
    if (!accept(token)) throw_user("expected '", token, "' in a size at '", text_.substr(0, 20), "'");
  }

  Sym product() {
    Sym r = factor();
    while (true) {
      if (accept("//")) {
        r = floordiv(r, nonzero(factor()));
      } else if (accept("*")) {
        r *= factor();
      } else if (accept("%")) {
        r = mod(r, nonzero(factor()));
      } else {
        return r;
      }
    }
  }
  static Sym nonzero(Sym a) {
    if (a.is_const(0)) throw_user("division by zero in a size");
    return a;
  }

  Sym factor() {
    if (++depth_ > kMaxDepth) throw_user("a size is nested too deeply");
    Sym r = factor_unchecked();
    --depth_;
    return r;
  }

  Sym factor_unchecked() {
    if (accept("-")) return factor() * Sym(-1);
    if (accept("(")) {
      Sym r = sum();
      expect(")");
      return r;
    }
    skip_space();
    if (!text_.empty() && std::isdigit(static_cast<unsigned char>(text_[0]))) return integer();
    std::string_view name = identifier();
    if ((name == "min" || name == "max") && accept("(")) {
      Sym a = sum();
      expect(",");
      Sym b = sum();
      expect(")");
      return name == "min" ? min(a, b) : max(a, b);
    }
    return symbol_named(name);
  }

  Sym integer() {
    int64_t v = 0;
    auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), v);
    if (error != std::errc()) throw_user("a size out of range at '", text_.substr(0, 24), "'");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return v;
  }

  std::string_view identifier() {
    size_t n = 0;
    auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    while (n < text_.size() && letter(text_[n])) ++n;
    if (n == 0) throw_user("expected a size at '", text_.substr(0, 20), "'");
    std::string_view name = text_.substr(0, n);
    text_.remove_prefix(n);
    return name;
  }

  static constexpr int kMaxDepth = 200;
  std::string_view& text_;
  int depth_ = 0;
};

}  // namespace

std::string Sym::str() const {
  std::string out;
  write(*this, out);
  return out;
}

Sym parse_sym(std::string_view& text) { return Reader(text).sum(); }

}  // namespace bolt
