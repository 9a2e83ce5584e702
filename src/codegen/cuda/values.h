// codegen/cuda/values.h
// (Kernel, Schedule) -> what an expression is in a kernel's text: the name by which it is read, and what
// computes it. Whoever writes the text (emit.cpp) says only whether it stands in a loop over the lanes of a
// vector.
//
// Names: d<i> the index of dimension i (d<i>_at that of the vector's first element), v<n> expression n, x<n>
// a wide load, k<n> what is kept from sweep to sweep (sweeps.h), a<n> an accumulator, y<n> what store n
// writes at once, t<n> a square of load n that is being turned, r<n> the random numbers of a vector, m<n>
// what a<n> was before a vector.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/indices.h"
#include "codegen/cuda/ops.h"
#include "codegen/cuda/schedule.h"

namespace bolt::codegen::cuda {

class CudaValues {
 protected:
  CudaValues(const loops::Kernel& k, const Schedule& s) : k_(k), s_(s), elements_(element_dims(k, s)) {}

  static std::string str(int64_t n) { return std::to_string(n); }
  bool pointwise() const { return s_.pointwise(); }
  const loops::Expr& expr(loops::ExprId id) const { return k_.exprs[id]; }
  const loops::Store& store_of(int i) const { return k_.stores[i]; }
  bool kept(loops::ExprId id) const { return s_.sweeps.kept[id]; }
  DType dtype_of(int buffer) const { return k_.buffers[buffer].dtype; }
  Sym size(int d) const { return k_.dims[d].size; }
  bool along_row(uint32_t dims) const { return dims & elements_; }
  bool per_lane(uint32_t dims) const { return s_.vector > 1 && (dims >> s_.inner & 1); }
  bool per_lane(loops::ExprId id) const { return !is_same_in_vector(k_, s_, id); }
  /// Of what a thread knows once per row: is it one value for each row of the vector?
  bool is_array(loops::ExprId id) const { return per_lane(id) && !along_row(expr(id).dims); }
  /// Do the vectors lie along the row, and not across rows?
  bool vector_in_row() const { return s_.inner >= 0 && (elements_ >> s_.inner & 1); }
  bool wide(loops::ExprId id) const;
  /// Is it a vector in memory that does not begin where an access does?
  bool between(loops::ExprId id) const;
  /// Of a load that is: which of the vector's elements are read.
  std::string read_of_vector(const loops::Expr& load) const;
  bool wide(const loops::Store& st) const;
  bool turned(loops::ExprId id) const { return is_turned(s_, expr(id)); }
  bool is_block() const { return s_.way == Mapping::Block; }
  bool in_shared(loops::ExprId id) const { return s_.in_shared && kept(id); }

  // ---- names and indices

  std::string dim(int d) const;
  NameOf names() const;
  std::string text(Sym s) const { return index_text(s, names()); }
  std::string position(Sym index, const std::vector<loops::GatherTerm>& gather) const;
  Sym points(const std::vector<int>& dims) const;
  const char* position_type() const { return s_.narrow ? "unsigned" : "i64"; }
  /// Of a place in a row: the first vector may begin before it.
  const char* row_type() const { return s_.narrow && s_.shifted ? "int" : position_type(); }
  /// The elements of this vector that are of the row, as from and to.
  std::string within() const;
  /// Is this element of a shifted row's vector none of the row's?
  std::string beyond_row(const std::string& first) const;

  // ---- values

  std::string ref(loops::ExprId id) const;
  std::string value(loops::ExprId id) const;
  std::string load(loops::ExprId id) const;
  /// The element and all before it; what is known of them so far is the accumulator. Threads beyond the end
  /// of the row take part, and add nothing.
  std::string running(loops::ExprId id) const;
  /// The element of load `id` at these places of the square.
  std::string square(loops::ExprId id, const std::string& inner, const std::string& across) const;
  std::string pack(DType t) const { return "pack<" + memory_type(t) + ", " + str(s_.vector) + ">"; }
  std::string array(const std::string& type, const std::string& name) const;
  /// What this thread keeps of a load: each has its own place, so nobody waits for anybody.
  std::string place_of(loops::ExprId id) const { return "k" + str(id) + "[c * " + str(s_.threads) + "]"; }
  std::string lane_number() const { return s_.vector > 1 ? "e" : "0"; }
  /// What is known of a whole vector is asked of its first element's place.
  bool is_place_of_vector(const loops::Expr& user, loops::ExprId id) const;
  /// Random numbers come four at a time: are those of a vector the numbers of neighbours? Then a quarter of
  /// the work does.
  bool is_drawn_wide(loops::ExprId id) const;
  /// A position that is only asked for of whole vectors (where their random numbers begin, which side of a
  /// border they lie on) is no value of a lane.
  bool is_place_of_vectors(loops::ExprId id) const;
  /// Elements of a row divided by one number.
  bool divides_by_row(const loops::Expr& e) const;
  std::optional<double> inverse_divisor(const loops::Expr& e) const;

  const loops::Kernel& k_;
  const Schedule& s_;
  const uint32_t elements_;  // dimensions along the row
  bool in_lane_ = false;     // the text stands in a loop over lanes
};

}  // namespace bolt::codegen::cuda
