// codegen/cuda/emit.cpp
// See emit.h. The text has three places, one inside the other:
//
//   thread   one value per row (pointwise: values that never vary)
//   vector   one value per `vector` elements: wide loads, and what does not vary along `inner`
//   lane     one value per element: an unrolled loop over the vector
//
// An expression stands in the outermost place that its dimensions allow. Names: d<i> the index of dimension i
// (d<i>_at that of the vector's first element), v<n> expression n, x<n> a wide load, k<n> what is kept from
// sweep to sweep (sweeps.h), a<n> an accumulator, y<n> what store n writes at once.

#include "codegen/cuda/emit.h"

#include "codegen/cuda/indices.h"
#include "codegen/cuda/ops.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/sweeps.h"
#include "loops/kernel_ops.h"
#include "loops/normalise.h"

namespace bolt::codegen::cuda {

using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::GatherTerm;
using loops::Kernel;
using loops::kNone;

namespace {

std::string str(int64_t n) { return std::to_string(n); }

class Emitter {
 public:
  Emitter(const Kernel& k, const Schedule& s)
      : k_(k), s_(s), elements_(element_dims(k, s)), sweeps_(plan_sweeps(k, s)) {}

  std::string run(const std::string& name) {
    signature(name);
    depth_ = 1;
    pointwise() ? locate_point() : locate_row();
    const size_t body = out_.size();
    if (k_.has_checks()) line("bool missed = false;");
    for (size_t i = 0; i < k_.exprs.size(); ++i)
      if (sweeps_.kept[i]) keep(static_cast<ExprId>(i));
    for (const Sweep& sweep : sweeps_.list) this->sweep(sweep, &sweep == &sweeps_.list.back());
    if (k_.has_checks()) line("if (missed) *report = 1;");
    declare_used(body, s_.outer, pointwise() ? "at" : "row");
    if (s_.group == s_.threads) out_.insert(body, declaration(body, position_type(), "row", block_number()));
    depth_ = 0;
    line("}");
    return out_;
  }

 private:
  enum class Place { Thread, Vector, Lane };

  bool pointwise() const { return s_.row.empty(); }
  const Expr& expr(ExprId id) const { return k_.exprs[static_cast<size_t>(id)]; }
  bool kept(ExprId id) const { return sweeps_.kept[static_cast<size_t>(id)]; }
  DType dtype_of(int buffer) const { return k_.buffers[static_cast<size_t>(buffer)].dtype; }
  Place place(uint32_t dims) const {
    if (!(dims & elements_)) return Place::Thread;
    return s_.vector > 1 && (dims >> s_.inner & 1) ? Place::Lane : Place::Vector;
  }
  bool wide(ExprId id) const {
    const Expr& e = expr(id);
    return e.kind == ExprKind::Load && is_wide(k_, s_, e.index, e.gather, e.mask);
  }
  bool wide(const loops::Store& st) const { return is_wide(k_, s_, st.index, st.gather, st.mask); }

  // ---- lines

  void line(const std::string& text) {
    out_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + "\n";
  }
  void open(const std::string& text) {
    line(text + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  void unroll() { out_ += "#pragma unroll\n"; }

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
    return std::string(static_cast<size_t>(depth_) * 2, ' ') + "const " + type + " " + name + " = " + value +
           ";\n";
  }

  // ---- names and indices

  std::string dim(int d) const {
    return "d" + str(d) + (d == s_.inner && s_.vector > 1 && !in_lane_ ? "_at" : "");
  }
  NameOf names() const {
    return [this](const std::string& name) {
      for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
        if (name == "d" + str(d)) return dim(d);
      return identifier(name);
    };
  }
  std::string text(Sym s) const { return index_text(s, names()); }
  std::string position(Sym index, const std::vector<GatherTerm>& gather) const {
    std::string s = text(index);
    for (const GatherTerm& g : gather) s += " + " + ref(g.value) + " * " + text(g.coef);
    return s;
  }
  Sym points(const std::vector<int>& dims) const {
    Sym n = 1;
    for (int d : dims) n *= k_.dims[static_cast<size_t>(d)].size;
    return n;
  }
  const char* position_type() const { return s_.narrow ? "unsigned" : "i64"; }

  // ---- values

  std::string ref(ExprId id) const {
    const Expr& e = expr(id);
    if (e.kind == ExprKind::Const) return constant(e.dtype, e.value, e.ivalue);
    if (wide(id)) return from_memory(e.dtype, (kept(id) ? "k" + str(id) + "[c]" : "x" + str(id)) + ".at[e]");
    if (kept(id)) return "k" + str(id) + (s_.vector > 1 ? "[c][e]" : "[c]");
    return "v" + str(id);
  }

  std::string load(ExprId id) const {
    const Expr& e = expr(id);
    const std::string b = "b" + str(e.buffer), at = position(e.index, e.gather), n = str(s_.vector);
    const std::string fill = constant(e.dtype, e.fill, static_cast<int64_t>(e.fill));
    if (!wide(id)) {
      const std::string value = from_memory(e.dtype, b + "[" + at + "]");
      return e.mask == kNone ? value : ref(e.mask) + " ? " + value + " : " + fill;
    }
    std::string value = "get<" + n + ">(" + b + " + " + at + ")";
    if (e.mask == kNone) return value;
    return ref(e.mask) + " ? " + value + " : all_of<" + n + ">(" + to_memory(e.dtype, fill) + ")";
  }

  std::string value(ExprId id) const {
    const Expr& e = expr(id);
    switch (e.kind) {
      case ExprKind::Index: return text(e.index);
      case ExprKind::Load: return load(id);
      case ExprKind::Cast: return cast(ref(e.args[0]), expr(e.args[0]).dtype, e.dtype);
      case ExprKind::Check:
        return "inside(" + ref(e.args[0]) + ", " + ref(e.args[1]) + ", " +
               (e.mask == kNone ? "true" : ref(e.mask)) + ", missed)";
      default: break;
    }
    std::vector<std::string> args;
    for (ExprId a : e.args) args.push_back(ref(a));
    return operation(e.op, expr(e.args.back()).dtype, args);
  }

  std::string pack(DType t) const { return "pack<" + memory_type(t) + ", " + str(s_.vector) + ">"; }

  void keep(ExprId id) {
    const std::string name = "k" + str(id) + "[" + str(s_.held) + "]";
    if (wide(id))
      line(pack(expr(id).dtype) + " " + name + ";");
    else
      line(value_type(expr(id).dtype) + " " + name + (s_.vector > 1 ? "[" + str(s_.vector) + "];" : ";"));
  }

  void define(ExprId id) {
    const Expr& e = expr(id);
    if (e.kind == ExprKind::Const || e.kind == ExprKind::Reduce) return;
    if (kept(id))
      line((wide(id) ? "k" + str(id) + "[c]" : ref(id)) + " = " + value(id) + ";");
    else if (wide(id))
      line("const " + pack(e.dtype) + " x" + str(id) + " = " + value(id) + ";");
    else
      line("const " + value_type(e.dtype) + " v" + str(id) + " = " + value(id) + ";");
  }

  // ---- skeleton

  void signature(const std::string& name) {
    std::string args;
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const loops::Buffer& b = k_.buffers[i];
      args += std::string(i ? ", " : "") + (b.role == loops::BufferRole::In ? "const " : "") +
              memory_type(b.dtype) + "* b" + str(static_cast<int64_t>(i));
    }
    if (k_.has_checks()) args += ", i64* report";
    for (Sym s : k_.symbols) args += ", i64 " + text(s);
    line("extern \"C\" __global__ void __launch_bounds__(" + str(s_.threads) + ")");
    line(name + "(" + args + ") {");
  }

  std::string block_number() const { return s_.narrow ? "blockIdx.x" : "i64(blockIdx.x)"; }
  std::string thread_number() const { return block_number() + " * " + str(s_.threads) + " + threadIdx.x"; }
  void locate_point() {
    const std::string at = s_.vector == 1 ? thread_number() : "(" + thread_number() + ") * " + str(s_.vector);
    line(std::string("const ") + position_type() + " at = " + at + ";");
    line("if (at >= " + text(points(s_.outer)) + ") return;");
  }
  // Whole warps return, so that the others' shuffles have all their lanes. A block's row is its number.
  void locate_row() {
    if (s_.group == s_.threads) {
      line("const int lane = threadIdx.x;");
      return;
    }
    std::string row = thread_number();
    if (s_.group > 1) {
      line("const int lane = threadIdx.x % 32;");
      row = block_number() + " * " + str(s_.threads / 32) + " + threadIdx.x / 32";
    }
    line(std::string("const ") + position_type() + " row = " + row + ";");
    line("if (row >= " + text(points(s_.outer)) + ") return;");
  }

  /// A loop over the row, or over what a thread holds of it. `j`: position of the vector's first element.
  void along_row(const Sweep& sweep, bool last) {
    const Sym length = points(s_.row);
    if (length.is_const(0)) return;  // what is reduced over nothing is its operator's identity
    const std::string by_vector = s_.vector > 1 ? " * " + str(s_.vector) : "",
                      stride = str(s_.group * s_.vector);
    if (s_.held) {
      unroll();
      open("for (int c = 0; c < " + str(s_.held) + "; ++c)");
    } else {
      open(std::string("for (") + position_type() + " j = " + (s_.group > 1 ? "lane" + by_vector : "0") +
           "; j < " + text(length) + "; j += " + stride + ")");
    }
    const size_t body = out_.size();
    if (s_.held && length.value() % (s_.group * s_.vector) != 0)
      line("if (j >= " + text(length) + ") continue;");
    elements(sweep, last);
    declare_used(body, s_.row, "j");
    if (s_.held) {
      std::string vector = s_.group > 1 ? "c * " + str(s_.group) + " + lane" : "c";
      if (s_.vector > 1) vector = "(" + vector + ")" + by_vector;
      out_.insert(body, declaration(body, position_type(), "j", vector));
    }
    close();
  }

  void sweep(const Sweep& sweep, bool last) {
    for (ExprId id : sweep.before) define(id);
    if (pointwise()) {
      elements(sweep, last);
      return;
    }
    if (!sweep.reductions.empty() || (last && stores_elements())) {
      for (ExprId id : sweep.reductions) accumulator(id);
      along_row(sweep, last);
      for (ExprId id : sweep.reductions) result(id);
    }
    if (!last) return;
    for (size_t i = 0; i < k_.stores.size(); ++i)
      if (place(store_dims(k_.stores[i])) == Place::Thread) store(static_cast<int>(i));
  }

  // ---- reductions

  std::string accumulator_type(const Expr& e) const {
    const std::string t = value_type(expr(e.args[0]).dtype);
    return loops::is_arg_reduce(e.reduce_op) ? "Best<" + t + ">" : t;
  }
  void accumulator(ExprId id) {
    const Expr& e = expr(id);
    const std::string start = identity(e.reduce_op, expr(e.args[0]).dtype);
    line(accumulator_type(e) + " a" + str(id) + " = " +
         (loops::is_arg_reduce(e.reduce_op) ? "{" + start + ", kNowhere}" : start) + ";");
  }
  void accumulate(ExprId id) {
    const Expr& e = expr(id);
    const std::string a = "a" + str(id), x = ref(e.args[0]);
    const std::string next =
        loops::is_arg_reduce(e.reduce_op) ? accumulator_type(e) + "{" + x + ", " + dim(s_.inner) + "}" : x;
    line(a + " = " + combiner(e.reduce_op) + "::of(" + a + ", " + next + ");");
  }
  void result(ExprId id) {
    const Expr& e = expr(id);
    std::string all = "a" + str(id);
    if (s_.group > 1 && s_.group == s_.threads)
      all = "across_block<" + combiner(e.reduce_op) + ", " + str(s_.threads) + ">(" + all + ")";
    else if (s_.group > 1)
      all = "across_warp<" + combiner(e.reduce_op) + ">(" + all + ")";
    if (loops::is_arg_reduce(e.reduce_op)) all += ".at";
    line("const " + value_type(e.dtype) + " v" + str(id) + " = " + all + ";");
  }

  // ---- elements and stores

  void elements(const Sweep& sweep, bool last) {
    std::vector<ExprId> lanes;
    for (ExprId id : sweep.needed) {
      if (place(expr(id).dims) != Place::Lane || wide(id))
        define(id);
      else
        lanes.push_back(id);
    }
    std::vector<int> outside, inside, packed;
    for (int i = 0; last && i < static_cast<int>(k_.stores.size()); ++i) {
      const loops::Store& st = k_.stores[static_cast<size_t>(i)];
      const Place p = place(store_dims(st));
      if (p == Place::Thread && !pointwise()) continue;
      (p != Place::Lane ? outside : wide(st) ? packed : inside).push_back(i);
    }
    for (int i : packed) line(pack(dtype_of(k_.stores[static_cast<size_t>(i)].buffer)) + " y" + str(i) + ";");
    if (s_.vector == 1) {
      for (ExprId id : sweep.reductions) accumulate(id);
    } else if (!lanes.empty() || !sweep.reductions.empty() || !inside.empty() || !packed.empty()) {
      lane_loop(lanes, sweep.reductions, inside, packed);
    }
    for (int i : packed) put(i);
    for (int i : outside) store(i);
  }

  void lane_loop(const std::vector<ExprId>& values, const std::vector<ExprId>& reductions,
                 const std::vector<int>& stores, const std::vector<int>& packed) {
    unroll();
    open("for (int e = 0; e < " + str(s_.vector) + "; ++e)");
    const size_t body = out_.size();
    const std::string first = dim(s_.inner);
    in_lane_ = true;
    for (ExprId id : values) define(id);
    for (ExprId id : reductions) accumulate(id);
    for (int i : stores) store(i);
    for (int i : packed) {
      const loops::Store& st = k_.stores[static_cast<size_t>(i)];
      line("y" + str(i) + ".at[e] = " + to_memory(dtype_of(st.buffer), ref(st.value)) + ";");
    }
    out_.insert(body, declaration(body, "i64", dim(s_.inner), first + " + e"));
    in_lane_ = false;
    close();
  }

  uint32_t store_dims(const loops::Store& st) const {
    uint32_t dims = k_.varies(st.index) | expr(st.value).dims;
    for (const GatherTerm& g : st.gather) dims |= expr(g.value).dims;
    if (st.mask != kNone) dims |= expr(st.mask).dims;
    return dims;
  }
  bool stores_elements() const {
    for (const loops::Store& st : k_.stores)
      if (place(store_dims(st)) != Place::Thread) return true;
    return false;
  }

  /// A store that varies over fewer dimensions than the space is done once: at the first index of the others.
  std::string condition(const loops::Store& st) const {
    const uint32_t dims = store_dims(st);
    const bool once_a_row = !pointwise() && place(dims) == Place::Thread;
    std::string s = once_a_row && s_.group > 1 ? "lane == 0" : "";
    auto also = [&](const std::string& c) { s += (s.empty() ? "" : " && ") + c; };
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      if ((dims >> d & 1) || (once_a_row && (elements_ >> d & 1))) continue;
      also(dim(d) + " == 0");
    }
    if (st.mask != kNone) also(ref(st.mask));
    return s.empty() ? "" : "if (" + s + ") ";
  }
  void store(int i) {
    const loops::Store& st = k_.stores[static_cast<size_t>(i)];
    line(condition(st) + "b" + str(st.buffer) + "[" + position(st.index, st.gather) +
         "] = " + to_memory(dtype_of(st.buffer), ref(st.value)) + ";");
  }
  void put(int i) {
    const loops::Store& st = k_.stores[static_cast<size_t>(i)];
    line(condition(st) + "put(b" + str(st.buffer) + " + " + position(st.index, st.gather) + ", y" + str(i) +
         ");");
  }

  const Kernel& k_;
  const Schedule& s_;
  const uint32_t elements_;
  const Sweeps sweeps_;
  std::string out_;
  int depth_ = 0;
  bool in_lane_ = false;
};

}  // namespace

std::string emit_kernel(const Kernel& kernel, const Schedule& schedule, const std::string& name) {
  return Emitter(kernel, schedule).run(name);
}

Program emit(const std::vector<Kernel>& kernels, const Options& options) {
  Program p{std::string(prelude()), {}};
  for (const Kernel& kernel : kernels) {
    const Kernel k = loops::normalise(kernel);
    Launch launch{"bolt_" + identifier(kernel.name), refusal(k), {}};
    if (launch.refused.empty()) {
      launch.schedule = schedule(k, options);
      p.text += "\n// " + print(launch.schedule) + "\n" + emit_kernel(k, launch.schedule, launch.name);
    } else {
      p.text += "\n// " + launch.name + " is not generated: " + launch.refused + "\n";
    }
    p.launches.push_back(std::move(launch));
  }
  return p;
}

}  // namespace bolt::codegen::cuda
