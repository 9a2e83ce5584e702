// codegen/cuda/indices.cpp
// See indices.h.

#include "codegen/cuda/indices.h"

#include <cctype>

namespace bolt::codegen::cuda {
namespace {

bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Symbols are not negative, so only a sum with a minus in it can be.
bool may_be_negative(Sym s) {
  int64_t constant = 0;
  for (const SymTerm& t : sum_terms(s, &constant))
    if (t.coef < 0) return true;
  return constant < 0;
}

std::string joined(const SymNode& node, const char* between, const NameOf& name) {
  std::string s = "(";
  for (size_t i = 0; i < node.args.size(); ++i) s += (i ? between : "") + index_text(node.args[i], name);
  return s + ")";
}

std::string called(const char* f, const SymNode& node, const NameOf& name) {
  return std::string(f) + "(i64(" + index_text(node.args[0], name) + "), i64(" +
         index_text(node.args[1], name) + "))";
}

}  // namespace

std::string index_text(Sym s, const NameOf& name) {
  if (s.is_const()) {
    const int64_t v = s.value();
    std::string text = std::to_string(v) + (v >> 31 == 0 || v >> 31 == -1 ? "" : "ll");
    return v < 0 ? "(" + text + ")" : text;
  }
  const SymNode& node = *s.node();
  switch (node.op) {
    case SymOp::Symbol: return name(node.name);
    case SymOp::Add: return joined(node, " + ", name);
    case SymOp::Mul: return joined(node, " * ", name);
    case SymOp::Min: return called("bolt_minimum", node, name);
    case SymOp::Max: return called("bolt_maximum", node, name);
    case SymOp::FloorDiv:
      return may_be_negative(node.args[0]) ? called("bolt_floor_div", node, name) : joined(node, " / ", name);
    case SymOp::Mod:
      return may_be_negative(node.args[0]) ? called("bolt_remainder", node, name) : joined(node, " % ", name);
  }
  return "";
}

std::string identifier(const std::string& name) {
  std::string s = name;
  for (char& c : s)
    if (!word_char(c)) c = '_';
  return s;
}

bool uses(const std::string& text, const std::string& variable) {
  for (size_t at = text.find(variable); at != std::string::npos; at = text.find(variable, at + 1)) {
    const size_t end = at + variable.size();
    if ((at == 0 || !word_char(text[at - 1])) && (end == text.size() || !word_char(text[end]))) return true;
  }
  return false;
}

std::string index_at(const loops::Kernel& k, const std::vector<int>& dims, size_t which,
                     const std::string& position, const NameOf& name) {
  Sym inside = 1;
  for (size_t i = which + 1; i < dims.size(); ++i) inside *= k.dims[dims[i]].size;
  std::string s = position;
  if (!inside.is_const(1)) s += " / " + index_text(inside, name);
  if (which > 0) s += " % " + index_text(k.dims[dims[which]].size, name);
  return s;
}

}  // namespace bolt::codegen::cuda
