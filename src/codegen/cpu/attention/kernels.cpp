// codegen/cpu/attention/kernels.cpp
// attention descriptions -> text, checks; see kernels.h
#include "codegen/cpu/attention/kernels.h"

#include <sstream>

#include "support/error.h"

namespace bolt::codegen::cpu::attention {
namespace {

void print_matrix(std::ostream& out, const char* name, const InnerDims& m) {
  out << ' ' << name << "=b" << m.buffer << '[' << m.row << ", " << m.col << ']';
}

}  // namespace

Sym AttentionKernel::rows() const {
  Sym rows = queries;
  for (const LeadDim& dim : lead) rows *= dim.size;
  return rows;
}

std::string print(const AttentionKernel& k) {
  std::ostringstream out;
  out << "attention @" << k.name << " [";
  for (const LeadDim& dim : k.lead) {
    out << dim.size.str() << " (q " << dim.q.str() << ", k " << dim.k.str() << ", v " << dim.v.str();
    if (k.mask) out << ", mask " << dim.mask.str();
    out << "), ";
  }
  out << k.queries.str() << " x " << k.keys.str() << " x " << k.depth << " -> " << k.value_depth << ']';
  print_matrix(out, "q", k.q);
  print_matrix(out, "k", k.k);
  print_matrix(out, "v", k.v);
  if (k.mask)
    out << (k.mask->boolean ? " allowed=b" : " mask=b") << k.mask->buffer << '[' << k.mask->row.str() << ", "
        << k.mask->col.str() << ']';
  out << " scale " << std::hexfloat << k.scale << std::defaultfloat;
  if (k.causal) out << " causal";
  if (k.pairs) out << " pairs";
  if (k.empty_rows_nan) out << " nan";
  return out.str();
}

void verify(const AttentionKernel& k) {
  BOLT_CHECK(k.depth > 0 && k.value_depth > 0, print(k), ": empty product");
  BOLT_CHECK(!k.queries.is_const(0) && !k.keys.is_const(0), print(k), ": nothing to attend to");
  BOLT_CHECK(!k.pairs || (k.q.col == 1 && k.k.col == 1), print(k), ": pairs that do not lie together");
  BOLT_CHECK(k.v.col == 1, print(k), ": values apart from each other");
}

}  // namespace bolt::codegen::cpu::attention
