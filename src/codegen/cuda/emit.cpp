// codegen/cuda/emit.cpp
// See emit.h. The text has two levels, and in each a loop over a vector:
//
//   thread   what is known once per row (pointwise: what never varies)
//   element  a loop over the row, or over what a thread has of it
//   lane     in either: an unrolled loop over the `vector` elements of dimension `inner`
//
// An expression stands at the outermost level that its dimensions allow, outside the lane loop where it does
// not vary along `inner` or is a wide load. Where rows lie side by side (Mapping::Columns) `inner` counts
// rows, so a thread has `vector` of them and what is known once per row is an array. What an
// expression is called and made of: values.h.

#include "codegen/cuda/emit.h"

#include <algorithm>
#include <bit>
#include <set>

#include "codegen/cuda/lines.h"
#include "codegen/cuda/ops.h"
#include "codegen/cuda/parts.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/signature.h"
#include "codegen/cuda/values.h"
#include "loops/kernel_ops.h"
#include "loops/normalise.h"

namespace bolt::codegen::cuda {

using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;
using loops::kNone;

namespace {

class CudaEmitter : CudaValues, Lines {
 public:
  CudaEmitter(const Kernel& k, const Schedule& s, int most, const std::vector<char>& numbers)
      : CudaValues(k, s), most_(most), numbers_(numbers) {}

  std::string run(const std::string& name) {
    out_ = signature(k_, s_, name, most_, numbers_);
    depth_ = 1;
    s_.way == Mapping::Tile ? tile() : rows_or_points();
    depth_ = 0;
    line("}");
    return out_;
  }

 private:
  /// Threads without a row of their own take part in what a block does together.
  bool stays() const { return s_.way == Mapping::Columns && s_.group > 1; }

  // ---- declarations

  /// Declares the indices of `dims` at `position` that the text behind `from` uses.
  void declare_used(size_t from, const std::vector<int>& dims, const std::string& position) {
    std::string declared;
    for (size_t i = 0; i < dims.size(); ++i)
      declared += declaration(from, "i64", dim(dims[i]), index_at(k_, dims, i, position, names()));
    out_.insert(from, declared);
  }
  std::string declaration(size_t from, const std::string& type, const std::string& name,
                          const std::string& value) const {
    if (!uses(out_.substr(from), name)) return "";
    return indent() + "const " + type + " " + name + " = " + value + ";\n";
  }

  // ---- values

  void draw_wide(ExprId id) {
    const Expr& e = expr(id);
    std::string args;
    for (size_t i = 0; i < 4; ++i) args += ref(e.args[i]) + ", ";
    line("const pack<float, " + str(s_.vector) + "> r" + str(id) + " = random_numbers<" + str(s_.vector) +
         ">(" + args + text(expr(e.args[4]).index) + ");");
  }

  void declare_divisor(ExprId id) {
    if (along_row(expr(id).dims)) return;
    for (const Expr& e : k_.exprs)
      if (divides_by_row(e) && e.args[1] == id) {
        line("const Divisor q" + str(id) + " = divisor(v" + str(id) + ");");
        return;
      }
  }

  void keep_in_shared(ExprId id) {
    const std::string type = pack(expr(id).dtype);
    line(type + "* const k" + str(id) + " = reinterpret_cast<" + type + "*>(kept + " + str(kept_bytes_) +
         ") + threadIdx.x;");
    kept_bytes_ += turns_of(k_, s_) * s_.threads * s_.vector * dtype_bytes(expr(id).dtype);
  }
  void keep(ExprId id) {
    if (s_.in_shared) return keep_in_shared(id);
    const std::string name = "k" + str(id) + "[" + str(s_.held) + "]";
    if (wide(id))
      line(pack(expr(id).dtype) + " " + name + ";");
    else
      line(value_type(expr(id).dtype) + " " + name + (s_.vector > 1 ? "[" + str(s_.vector) + "];" : ";"));
  }

  void define(ExprId id) {
    const Expr& e = expr(id);
    if (e.kind == ExprKind::Const || e.kind == ExprKind::Reduce) return;
    if (in_shared(id))
      line("x" + str(id) + (wide(id) ? "" : ".at[" + lane_number() + "]") + " = " +
           (wide(id) ? value(id) : to_memory(e.dtype, value(id))) + ";");
    else if (kept(id))
      line((wide(id) ? "k" + str(id) + "[c]" : ref(id)) + " = " + value(id) + ";");
    else if (wide(id))
      line("const " + pack(e.dtype) + " x" + str(id) + " = " + value(id) + ";");
    else if (is_array(id))
      line(ref(id) + " = " + value(id) + ";");
    else
      line("const " + value_type(e.dtype) + " v" + str(id) + " = " + value(id) + ";");
    declare_divisor(id);
  }

  // ---- skeleton

  std::string block_number() const {
    const std::string block = most_ ? "block_of_one" : "blockIdx.x";
    return s_.narrow ? block : "i64(" + block + ")";
  }

  void rows_or_points() {
    pointwise() ? locate_point() : locate_row();
    const size_t body = out_.size();
    all_sweeps();
    const bool side_by_side = !pointwise() && !vector_in_row() && s_.vector > 1;
    const std::string row = side_by_side ? "row * " + str(s_.vector) : "row";
    if (pointwise() && s_.shifted)
      place_in_row(body);
    else
      declare_used(body, s_.outer, pointwise() ? "at" : row);
    const std::string by_cluster = s_.cluster > 1 ? " / " + str(s_.cluster) : "";
    if (is_block()) out_.insert(body, declaration(body, position_type(), "row", block_number() + by_cluster));
  }
  /// Points of shifted rows: the position counts vectors.
  void place_in_row(size_t body) {
    const std::string inner = dim(s_.inner), vectors = text(vectors_of(s_, size(s_.inner)));
    std::vector<int> rows(s_.outer.begin(), s_.outer.end() - 1);
    std::string place = indent() + "const i64 " + inner + " = i64(at % (" + vectors + ") * " +
                        str(s_.vector) + ") - shift;\n" + indent() + "if (" + inner +
                        " >= " + text(size(s_.inner)) + ") return;\n";
    out_.insert(body, place);
    out_.insert(body, shift());
    declare_used(body, rows, "row");
    out_.insert(body, declaration(body, position_type(), "row", "at / (" + vectors + ")"));
  }
  std::string shift() const {
    return indent() + "const int shift = int(" + text(mod(s_.shift, s_.vector)) + ");\n";
  }
  void all_sweeps() {
    if (s_.shifted && !pointwise()) out_ += shift();
    if (k_.has_checks()) line("bool missed = false;");
    if (s_.in_shared) line("extern __shared__ uint4 kept_rows[];");
    if (s_.in_shared) line("char* const kept = reinterpret_cast<char*>(kept_rows);");
    for (size_t i = 0; i < k_.exprs.size(); ++i)
      if (s_.sweeps.kept[i]) keep(static_cast<ExprId>(i));
    for (const Sweep& sweep : s_.sweeps.list) this->sweep(sweep, &sweep == &s_.sweeps.list.back());
    if (k_.has_checks()) line("if (missed) *report = 1;");
    if (s_.cluster > 1) line("cluster_wait();");
  }

  void locate_point() {
    std::string at = block_number() + " * " + str(s_.threads) + " + threadIdx.x";
    if (s_.vector > 1 && !s_.shifted) at = "(" + at + ") * " + str(s_.vector);
    line(std::string("const ") + position_type() + " at = " + at + ";");
    line("if (at >= count) return;");
  }
  // Whole warps return, so that the others' shuffles have all their lanes. A block's row is its number. Where
  // threads of a block wait for one another, none returns: those beyond the end do the first row again and
  // store nothing.
  void locate_row() {
    if (is_block()) {
      const std::string before =
          s_.cluster > 1 ? "blockIdx.x % " + str(s_.cluster) + " * " + str(s_.threads) + " + " : "";
      line("const int lane = " + before + "threadIdx.x;");
      return;
    }
    const std::string rows = str(s_.rows());
    const bool beside = s_.way == Mapping::Columns;
    if (s_.group > 1)
      line("const int lane = threadIdx.x " + (beside ? "/ " + rows : "% " + str(s_.group)) + ";");
    const std::string mine = s_.group == 1 ? "threadIdx.x"
                             : beside      ? "threadIdx.x % " + rows
                                           : "threadIdx.x / " + str(s_.group);
    const std::string row = block_number() + " * " + rows + " + " + mine;
    const std::string type = std::string("const ") + position_type();
    if (stays()) {
      line(type + " place = " + row + ";");
      line("const bool here = place < count;");
      line(type + " row = here ? place : 0;");
      return;
    }
    line(type + " row = " + row + ";");
    line("if (row >= count) return;");
  }

  /// A loop over the row, or over what a thread holds of it. `j`: position of the vector's first element.
  void go_along_row(const Sweep& sweep, bool stores) {
    const Sym length = points(s_.row);
    if (length.is_const(0)) return;  // what is reduced over nothing is its operator's identity
    const int step = vector_in_row() ? s_.vector : 1;
    const std::string by_vector = step > 1 ? " * " + str(step) : "", stride = str(s_.group * step);
    if (s_.held) {
      unroll();
      open("for (int c = 0; c < " + str(s_.held) + "; ++c)");
    } else {
      std::string end = text(length);
      if (!length.is_const()) {
        line(std::string("const ") + row_type() + " length_" + str(sweep_) + " = " + end + ";");
        end = "length_" + str(sweep_);
      }
      if (loads_ahead(sweep) || s_.in_shared) unroll(4);
      const std::string before = s_.shifted ? " - shift" : "";
      open(std::string("for (") + row_type() + " j = " + (s_.group > 1 ? "lane" + by_vector : "0") + before +
           (s_.in_shared ? ", c = 0" : "") + "; j < " + end + "; j += " + stride +
           (s_.in_shared ? ", ++c)" : ")"));
    }
    const size_t body = out_.size();
    if (s_.held && (s_.shifted || length.value() % (s_.group * step) != 0))
      line("if (j >= " + text(length) + ") continue;");
    elements(sweep, stores);
    if (s_.in_shared) read_kept(sweep, body);
    declare_used(body, s_.row, "j");
    if (s_.held) {
      std::string vector = s_.group > 1 ? "c * " + str(s_.group) + " + lane" : "c";
      if (step > 1) vector = "(" + vector + ")" + by_vector;
      if (s_.shifted) vector += " - shift";
      out_.insert(body, declaration(body, row_type(), "j", vector));
    }
    close();
  }
  /// What earlier sweeps have kept and this one uses.
  void read_kept(const Sweep& sweep, size_t body) {
    for (ExprId id = 0; id < static_cast<ExprId>(k_.exprs.size()); ++id) {
      const bool here = std::find(sweep.needed.begin(), sweep.needed.end(), id) != sweep.needed.end();
      if (in_shared(id) && !here)
        out_.insert(body, declaration(body, pack(expr(id).dtype), "x" + str(id), place_of(id)));
    }
  }
  /// Short bodies that read much: several loads are in flight before the first is used.
  bool loads_ahead(const Sweep& sweep) const {
    return !sweep.reductions.empty() && sweep.needed.size() <= 12;
  }

  // ---- scans

  void scan_row(const Sweep& sweep, bool stores) {
    for (ExprId id : sweep.needed)
      if (expr(id).kind == ExprKind::Scan)
        line(value_type(expr(id).dtype) + " a" + str(id) + " = " +
             identity(expr(id).reduce_op, expr(id).dtype) + ";");
    const Sym length = points(s_.row);
    if (length.is_const(0)) return;
    const std::string type = row_type(), end = text(length);
    if (s_.group == 1) {
      open("for (" + type + " j = 0; j < " + end + "; ++j)");
    } else {
      open("for (" + type + " first = 0; first < " + end + "; first += " + str(s_.group) + ")");
      line("const bool here = first + lane < " + end + ";");
      line("const " + type + " j = here ? first + lane : 0;");
    }
    const size_t body = out_.size();
    elements(sweep, stores);
    declare_used(body, s_.row, "j");
    close();
  }

  void sweep(const Sweep& sweep, bool last) {
    ++sweep_;
    const bool stores = sweep_ == s_.sweeps.stores;
    work(sweep.before, {}, {});
    if (pointwise()) {
      elements(sweep, stores);
      return;
    }
    if (!sweep.reductions.empty() || (stores && stores_elements())) {
      for (ExprId id : sweep.reductions) accumulator(id);
      s_.scans ? scan_row(sweep, stores) : go_along_row(sweep, stores);
      for (ExprId id : sweep.reductions) result(id);
      // What others read of this block must stay until they have.
      if (s_.cluster > 1 && sweep_ + 2 == static_cast<int>(s_.sweeps.list.size())) line("cluster_arrive();");
    }
    if (last) work({}, {}, stores_at(false));
  }

  // ---- squares that are turned

  /// Elements along `across` that one access of a turned load takes.
  int turned_vector(ExprId id) const {
    const Expr& e = expr(id);
    Schedule along = s_;
    along.inner = s_.across;
    for (along.vector = 16 / dtype_bytes(e.dtype); along.vector > 1; along.vector /= 2)
      if (s_.vector > 1 && divisible(size(s_.across), along.vector) &&
          is_wide(k_, along, e.index, e.gather, e.mask))
        return along.vector;
    return 1;
  }

  // A block reads its squares along `across`, waits, and goes on along `inner`.
  void tile() {
    const size_t body = out_.size();
    for (ExprId id = 0; id < static_cast<ExprId>(k_.exprs.size()); ++id)
      if (turned(id)) read_square(id);
    line("__syncthreads();");
    const int steps = s_.tile * s_.tile / s_.vector;
    unroll();
    open("for (int p = threadIdx.x; p < " + str(steps) + "; p += " + str(s_.threads) + ")");
    const std::string along = str(s_.tile / s_.vector);
    const std::string inner = dim(s_.inner), across = dim(s_.across);
    line("const i64 " + inner + " = first_inner + p % " + along +
         (s_.vector > 1 ? " * " + str(s_.vector) : "") + ";");
    line("const i64 " + across + " = first_across + p / " + along + ";");
    line("if (" + inner + " >= " + text(size(s_.inner)) + " || " + across + " >= " + text(size(s_.across)) +
         ") continue;");
    all_sweeps();
    close();
    place_tile(body);
  }
  void read_square(ExprId id) {
    const Expr& e = expr(id);
    const std::string type = memory_type(e.dtype);
    const int n = turned_vector(id), tile = s_.tile;
    line("__shared__ " + type + " t" + str(id) + "[" + str(tile) + "][" + str(row_of_square(s_, e.dtype)) +
         "];");
    unroll();
    open("for (int p = threadIdx.x; p < " + str(tile * tile / n) + "; p += " + str(s_.threads) + ")");
    const std::string along = str(tile / n), inner = dim(s_.inner), across = dim(s_.across);
    line("const int r = p / " + along + ", c = p % " + along + (n > 1 ? " * " + str(n) : "") + ";");
    line("const i64 " + inner + " = first_inner + r, " + across + " = first_across + c;");
    line("if (" + inner + " >= " + text(size(s_.inner)) + " || " + across + " >= " + text(size(s_.across)) +
         ") continue;");
    const std::string at = "b" + str(e.buffer) + " + " + text(e.index);
    if (n == 1) {
      line(square(id, "r", "c") + " = *(" + at + ");");
    } else {
      line("const pack<" + type + ", " + str(n) + "> x = get<" + str(n) + ">(" + at + ");");
      unroll();
      line("for (int i = 0; i < " + str(n) + "; ++i) " + square(id, "r", "c + i") + " = x.at[i];");
    }
    close();
  }
  /// The block's number counts squares: those along inner fastest, then across, then the other dimensions.
  void place_tile(size_t body) {
    const std::string type = std::string("const ") + position_type(), tile = str(s_.tile);
    const std::string beside = text(ceildiv(size(s_.inner), s_.tile)),
                      below = text(ceildiv(size(s_.across), s_.tile));
    std::vector<int> others;
    for (int d : s_.outer)
      if (d != s_.inner && d != s_.across) others.push_back(d);
    declare_used(body, others, "others");
    std::string head = declaration(body, position_type(), "others", "block / (" + below + ")");
    std::string place;
    place += indent() + type + " number = " + block_number() + ", block = number / (" + beside + ");\n";
    place += indent() + "const i64 first_inner = number % (" + beside + ") * " + tile + ";\n";
    place += indent() + "const i64 first_across = block % (" + below + ") * " + tile + ";\n";
    out_.insert(body, place + head);
  }

  // ---- reductions

  std::string accumulator_type(const Expr& e) const {
    const std::string t = value_type(expr(e.args[0]).dtype);
    return loops::is_arg_reduce(e.reduce_op) ? "Best<" + t + ">" : t;
  }
  void accumulator(ExprId id) {
    const Expr& e = expr(id);
    std::string start = identity(e.reduce_op, expr(e.args[0]).dtype);
    if (loops::is_arg_reduce(e.reduce_op)) start = "{" + start + ", kNowhere}";
    const std::string name = "a" + str(id);
    if (!is_array(id)) {
      line(accumulator_type(e) + " " + name + " = " + start + ";");
      return;
    }
    line(array(accumulator_type(e), name));
    unroll();
    line("for (int e = 0; e < " + str(s_.vector) + "; ++e) " + name + "[e] = " + start + ";");
  }
  /// `first`: of the vector, where the element may be none of the row's.
  void accumulate(ExprId id, const std::string& first = "") {
    const Expr& e = expr(id);
    const std::string a = "a" + str(id) + (is_array(id) ? "[e]" : ""), x = ref(e.args[0]);
    std::string next = x;
    if (const ExprId most = followed_by(id); most != kNone)
      next = operation(loops::ScalarOp::exp, e.dtype,
                       {"less(" + ref(expr(most).args[0]) + ", a" + str(most) + ")"}, false);
    if (loops::is_arg_reduce(e.reduce_op))
      next = accumulator_type(e) + "{" + x + ", " + dim(std::countr_zero(e.reduce_dims)) + "}";
    const std::string only = s_.shifted && vector_in_row() ? "if (!(" + beyond_row(first) + ")) " : "";
    line(only + a + " = " + combiner(e.reduce_op) + "::of(" + a + ", " + next + ");");
  }
  ExprId followed_by(ExprId sum) const { return s_.sweeps.follows[sum]; }
  /// The maximum that a sum follows was `before` and is `now`.
  void scale(ExprId sum, const std::string& before, const std::string& now) {
    line("a" + str(sum) + " = scaled(a" + str(sum) + ", " + before + ", " + now + ");");
  }
  /// Adds to sums that follow a maximum what has been compared with it: elements of a vector, or one.
  void follow(const std::vector<ExprId>& lanes, const std::vector<ExprId>& sums) {
    std::vector<bool> wanted(k_.exprs.size(), false);
    for (ExprId id : sums) {
      const ExprId most = followed_by(id);
      scale(id, "m" + str(most), "a" + str(most));
      wanted[expr(most).args[0]] = true;
    }
    if (s_.vector == 1) {
      for (ExprId id : sums) accumulate(id);
      return;
    }
    std::vector<ExprId> again;  // their names end with the loop over the vector that has compared them
    for (size_t i = lanes.size(); i-- > 0;) {
      if (!wanted[lanes[i]] || in_shared(lanes[i])) continue;
      again.insert(again.begin(), lanes[i]);
      each_operand(expr(lanes[i]), [&](ExprId a) { wanted[a] = true; });
    }
    lane_loop(again, sums, {}, {});
  }
  void result(ExprId id) {
    const Expr& e = expr(id);
    const bool many = is_array(id);
    std::string all = "a" + str(id) + (many ? "[e]" : "");
    const std::string op = combiner(e.reduce_op);
    const ExprId most = followed_by(id);
    if (most != kNone) scale(id, "a" + str(most), "v" + str(most));
    if (s_.cluster > 1)
      all = "across_cluster<" + op + ", " + str(s_.threads) + ", " + str(s_.cluster) + ", " + str(id) + ">(" +
            all + ")";
    else if (is_block())
      all = "across_block<" + op + ", " + str(s_.threads) + ">(" + all + ")";
    else if (s_.way == Mapping::Warp)
      all = "across_warp<" + op + ">(" + all + ")";
    else if (s_.group > 1)
      all = "across_rows<" + op + ", " + str(s_.rows()) + ", " + str(s_.group) + ">(" + all + ")";
    if (loops::is_arg_reduce(e.reduce_op)) all += ".at";
    if (most != kNone) all = "sum_below(v" + str(most) + ", " + all + ")";
    const std::string type = value_type(e.dtype), name = "v" + str(id);
    if (!many) {
      line("const " + type + " " + name + " = " + all + ";");
      declare_divisor(id);
      return;
    }
    line(array(type, name));
    unroll();
    line("for (int e = 0; e < " + str(s_.vector) + "; ++e) " + name + "[e] = " + all + ";");
  }

  // ---- elements and stores

  void elements(const Sweep& sweep, bool stores) {
    work(sweep.needed, sweep.reductions, stores ? stores_at(true) : std::vector<int>());
  }
  /// Stores of each element, or of each row.
  std::vector<int> stores_at(bool of_elements) const {
    std::vector<int> list;
    for (int i = 0; i < static_cast<int>(k_.stores.size()); ++i)
      if ((pointwise() || along_row(store_dims(store_of(i)))) == of_elements) list.push_back(i);
    return list;
  }
  bool stores_elements() const { return !stores_at(true).empty(); }

  /// Defines values, adds to accumulators and stores, at the level where the text stands: what varies along
  /// the vector in one loop over it, the rest outside.
  void work(const std::vector<ExprId>& values, const std::vector<ExprId>& reductions,
            const std::vector<int>& stores) {
    std::vector<ExprId> lanes, sums, plain_sums, following;
    for (ExprId id : values) {
      if (is_place_of_vectors(id)) continue;
      if (in_shared(id)) line(pack(expr(id).dtype) + " x" + str(id) + ";");
      if (!per_lane(id) || wide(id) || expr(id).kind == ExprKind::Const ||
          expr(id).kind == ExprKind::Reduce) {
        define(id);
        continue;
      }
      lanes.push_back(id);
      if (is_drawn_wide(id)) draw_wide(id);
      if (is_array(id)) line(array(value_type(expr(id).dtype), "v" + str(id)));
    }
    for (ExprId id : reductions)
      (followed_by(id) != kNone                             ? following
       : s_.vector > 1 && (vector_in_row() || is_array(id)) ? sums
                                                            : plain_sums)
          .push_back(id);
    std::set<ExprId> maxima;
    for (ExprId id : following) maxima.insert(followed_by(id));
    for (ExprId id : maxima)
      line("const " + value_type(expr(id).dtype) + " m" + str(id) + " = a" + str(id) + ";");
    std::vector<int> outside, inside, packed;
    for (int i : stores)
      (!per_lane(store_dims(store_of(i))) ? outside : wide(store_of(i)) ? packed : inside).push_back(i);
    for (int i : packed) line(pack(dtype_of(store_of(i).buffer)) + " y" + str(i) + ";");
    if (!lanes.empty() || !sums.empty() || !inside.empty() || !packed.empty())
      lane_loop(lanes, sums, inside, packed);
    for (ExprId id : values)
      if (in_shared(id)) line(place_of(id) + " = x" + str(id) + ";");
    for (ExprId id : plain_sums) accumulate(id);
    if (!following.empty()) follow(lanes, following);
    for (int i : packed) put(i);
    for (int i : outside) store(i);
  }

  void lane_loop(const std::vector<ExprId>& values, const std::vector<ExprId>& reductions,
                 const std::vector<int>& stores, const std::vector<int>& packed) {
    unroll();
    open("for (int e = 0; e < " + str(s_.vector) + "; ++e)");
    const size_t body = out_.size();
    const std::string first = dim(s_.inner);
    if (s_.shifted && touches_memory(values, stores)) line("if (" + beyond_row(first) + ") continue;");
    in_lane_ = true;
    for (ExprId id : values) define(id);
    for (ExprId id : reductions) accumulate(id, first);
    for (int i : stores) store(i);
    for (int i : packed)
      line("y" + str(i) + ".at[e] = " + to_memory(dtype_of(store_of(i).buffer), ref(store_of(i).value)) +
           ";");
    out_.insert(body, declaration(body, "i64", dim(s_.inner), first + " + e"));
    in_lane_ = false;
    close();
  }

  /// Elements of a vector that are not the row's are computed from zeros, but touch nothing.
  bool touches_memory(const std::vector<ExprId>& values, const std::vector<int>& stores) const {
    return !stores.empty() || std::any_of(values.begin(), values.end(), [&](ExprId id) {
      return expr(id).kind == ExprKind::Load || expr(id).kind == ExprKind::Check;
    });
  }

  uint32_t store_dims(const loops::Store& st) const { return k_.dims_of(st); }

  /// A store that varies over fewer dimensions than the space is done once: at the first index of the others.
  std::string condition(const loops::Store& st) const {
    const uint32_t dims = store_dims(st);
    const bool once_a_row = !pointwise() && !along_row(dims);
    std::string s = once_a_row && s_.group > 1 ? "lane == 0" : "";
    auto also = [&](const std::string& c) { s += (s.empty() ? "" : " && ") + c; };
    if (stays() || (s_.scans && s_.group > 1 && along_row(dims))) also("here");
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      if ((dims >> d & 1) || (once_a_row && (elements_ >> d & 1))) continue;
      also(dim(d) + (s_.shifted && d == s_.inner && !in_lane_ ? " <= 0" : " == 0"));
    }
    if (st.mask != kNone) also(ref(st.mask));
    return s.empty() ? "" : "if (" + s + ") ";
  }
  void store(int i) {
    const loops::Store& st = store_of(i);
    if (st.combines()) return combine(st);
    line(condition(st) + "b" + str(st.buffer) + "[" + position(st.index, st.gather) +
         "] = " + to_memory(dtype_of(st.buffer), ref(st.value)) + ";");
  }
  /// Others may do so at the same time.
  void combine(const loops::Store& st) {
    const DType t = dtype_of(st.buffer);
    const std::string op = combiner(loops::combiner_of(st.into));
    const std::string to = "b" + str(st.buffer) + " + " + position(st.index, st.gather);
    const std::string half = value_type(t), x = cast(ref(st.value), t, compute_type(t));
    if (compute_type(t) != t)
      line(condition(st) + "into_half<" + op + ">(" + to + ", " + x + ", from_" + half + ", to_" + half +
           ");");
    else
      line(condition(st) + "Into<" + op + ", " + half + ">::at(" + to + ", " + x + ");");
  }
  void put(int i) {
    const loops::Store& st = store_of(i);
    line(condition(st) + (s_.shifted ? "put_within(b" : "put(b") + str(st.buffer) + " + " +
         position(st.index, st.gather) + ", y" + str(i) + (s_.shifted ? ", " + within() : "") + ");");
  }

  const int most_;  // launches that one may be; 0: it is no list
  const std::vector<char>& numbers_;
  int sweep_ = -1;
  int64_t kept_bytes_ = 0;
};

}  // namespace

std::string emit_kernel(const Kernel& kernel, const Schedule& schedule, const std::string& name, int most,
                        const std::vector<char>& numbers) {
  return CudaEmitter(kernel, schedule, most, numbers).run(name);
}

CudaSource emit(const std::vector<Kernel>& kernels, const ScheduleOptions& options) {
  CudaSource p{std::string(prelude()), {}};
  for (const Kernel& kernel : kernels) {
    const Kernel k = loops::normalise(kernel);
    const std::string name = "bolt_" + identifier(kernel.name), refused = refusal(k);
    if (!refused.empty()) {
      p.text += "\n// " + name + " is not generated: " + refused + "\n";
      continue;
    }
    const Parts all = parts(k, options);
    for (size_t i = 0; i < all.list.size(); ++i) {
      const Schedule s = schedule(all.list[i].kernel, options);
      const std::string of = all.list.size() > 1 ? "_part" + std::to_string(i) : "";
      p.names.push_back(name + of);
      p.text += "\n// " + print(s) + "\n" + emit_kernel(all.list[i].kernel, s, name + of);
    }
  }
  return p;
}

}  // namespace bolt::codegen::cuda
