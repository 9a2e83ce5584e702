// codegen/cuda/values.cpp
// See values.h.

#include "codegen/cuda/values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "loops/kernel_ops.h"
#include "loops/normalise.h"

namespace bolt::codegen::cuda {

using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::GatherTerm;
using loops::kNone;

namespace {

/// The number that a mask compares the place along `inner` with, if it holds below that.
std::optional<int64_t> end_of(const loops::Kernel& k, ExprId mask, int inner) {
  const Expr& e = k.exprs[mask];
  if (e.kind != ExprKind::Op || e.op != loops::ScalarOp::lt) return std::nullopt;
  const Expr &place = k.exprs[e.args[0]], &end = k.exprs[e.args[1]];
  if (place.kind != ExprKind::Index || place.index != loops::Kernel::dim(inner) ||
      end.kind != ExprKind::Const)
    return std::nullopt;
  return end.ivalue;
}

}  // namespace

bool CudaValues::wide(ExprId id) const {
  const Expr& e = expr(id);
  return e.kind == ExprKind::Load && !turned(id) &&
         (is_wide(k_, s_, e.index, e.gather, e.mask) || between(id));
}

bool CudaValues::between(ExprId id) const {
  const Expr& e = expr(id);
  if (s_.vector == 1 || e.kind != ExprKind::Load || turned(id)) return false;
  if (s_.vector * dtype_bytes(e.dtype) % 16 != 0 || is_wide(k_, s_, e.index, e.gather, e.mask)) return false;
  const loops::LinearIn along = loops::linear_in(e.index, loops::Kernel::dim(s_.inner));
  if (!along.linear || !along.coef.is_const(1)) return false;
  for (const GatherTerm& g : e.gather)
    if (expr(g.value).dims >> s_.inner & 1) return false;
  return e.mask == kNone || is_same_in_vector(k_, s_, e.mask) ||
         (e.fill == 0 && !s_.shifted && end_of(k_, e.mask, s_.inner));
}

std::string CudaValues::read_of_vector(const Expr& load) const {
  if (s_.shifted) return within();
  if (load.mask == kNone || is_same_in_vector(k_, s_, load.mask)) return "0, " + str(s_.vector);
  return "0, int(" + str(*end_of(k_, load.mask, s_.inner)) + " - " + dim(s_.inner) + ")";
}

bool CudaValues::wide(const loops::Store& st) const {
  return !st.combines() && is_wide(k_, s_, st.index, st.gather, st.mask);
}

std::string CudaValues::dim(int d) const {
  return "d" + str(d) + (d == s_.inner && s_.vector > 1 && !in_lane_ ? "_at" : "");
}

NameOf CudaValues::names() const {
  return [this](const std::string& name) {
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (name == "d" + str(d)) return dim(d);
    // By their places, so that kernels which differ in the names of symbols have one text.
    for (size_t i = 0; i < k_.symbols.size(); ++i)
      if (name == k_.symbols[i].node()->name) return "n" + str(static_cast<int64_t>(i));
    return identifier(name);
  };
}

std::string CudaValues::position(Sym index, const std::vector<GatherTerm>& gather) const {
  std::string s = text(index);
  for (const GatherTerm& g : gather) s += " + " + ref(g.value) + " * " + text(g.coef);
  return s;
}

Sym CudaValues::points(const std::vector<int>& dims) const {
  Sym n = 1;
  for (int d : dims) n *= size(d);
  return n;
}

std::string CudaValues::within() const {
  const std::string first = dim(s_.inner);
  return "int(-" + first + "), int(" + text(size(s_.inner)) + " - " + first + ")";
}

std::string CudaValues::beyond_row(const std::string& first) const {
  return "unsigned(" + first + " + e) >= unsigned(" + text(size(s_.inner)) + ")";
}

std::string CudaValues::ref(ExprId id) const {
  const Expr& e = expr(id);
  if (e.kind == ExprKind::Const) return constant(e.dtype, e.value, e.ivalue);
  if (in_shared(id)) return from_memory(e.dtype, "x" + str(id) + ".at[" + lane_number() + "]");
  if (wide(id)) return from_memory(e.dtype, (kept(id) ? "k" + str(id) + "[c]" : "x" + str(id)) + ".at[e]");
  if (kept(id)) return "k" + str(id) + (s_.vector > 1 ? "[c][e]" : "[c]");
  return "v" + str(id) + (is_array(id) ? "[e]" : "");
}

std::string CudaValues::value(ExprId id) const {
  const Expr& e = expr(id);
  switch (e.kind) {
    case ExprKind::Index: return text(e.index);
    case ExprKind::Load: return load(id);
    case ExprKind::Cast: return cast(ref(e.args[0]), expr(e.args[0]).dtype, e.dtype);
    case ExprKind::Check:
      return "inside(" + ref(e.args[0]) + ", " + ref(e.args[1]) + ", " +
             (e.mask == kNone ? "true" : ref(e.mask)) + ", missed)";
    case ExprKind::Scan: return running(id);
    default: break;
  }
  if (is_drawn_wide(id)) return "r" + str(id) + ".at[e]";
  if (divides_by_row(e)) return "divided(" + ref(e.args[0]) + ", q" + str(e.args[1]) + ")";
  if (const auto inverse = inverse_divisor(e)) return ref(e.args[0]) + " * " + constant(e.dtype, *inverse, 0);
  std::vector<std::string> args;
  for (ExprId a : e.args)
    args.push_back(is_place_of_vector(e, a) ? "i64(" + text(expr(a).index) + ")" : ref(a));
  const DType operand = expr(e.args.back()).dtype;
  return operation(e.op, operand, args, loops::may_contract(k_, e));
}

std::string CudaValues::load(ExprId id) const {
  const Expr& e = expr(id);
  if (turned(id))
    return from_memory(e.dtype, square(id, "(" + dim(s_.inner) + " - first_inner)",
                                       "(" + dim(s_.across) + " - first_across)"));
  const std::string b = "b" + str(e.buffer), at = position(e.index, e.gather), n = str(s_.vector);
  const std::string fill = constant(e.dtype, e.fill, static_cast<int64_t>(e.fill));
  if (!wide(id)) {
    if (e.mask == kNone) return from_memory(e.dtype, b + "[" + at + "]");
    return from_memory(e.dtype, "get_if<1>(" + ref(e.mask) + ", " + b + " + " + at + ", " +
                                    memory_type(e.dtype) + "(" + to_memory(e.dtype, fill) + ")).at[0]");
  }
  const bool whole = !between(id);
  const std::string value = !whole
                                ? "get_between<" + n + ">(" + b + " + " + at + ", " + read_of_vector(e) + ")"
                            : s_.shifted ? "get_within<" + n + ">(" + b + " + " + at + ", " + within() + ")"
                                         : "get<" + n + ">(" + b + " + " + at + ")";
  if (e.mask == kNone || !is_same_in_vector(k_, s_, e.mask)) return value;
  const std::string otherwise = memory_type(e.dtype) + "(" + to_memory(e.dtype, fill) + ")";
  if (whole && !s_.shifted)
    return "get_if<" + n + ">(" + ref(e.mask) + ", " + b + " + " + at + ", " + otherwise + ")";
  return ref(e.mask) + " ? " + value + " : all_of<" + n + ">(" + otherwise + ")";
}

std::string CudaValues::running(ExprId id) const {
  const Expr& e = expr(id);
  const std::string op = combiner(e.reduce_op), x = ref(e.args[0]), before = "a" + str(id);
  if (s_.group == 1) return "running<" + op + ">(" + x + ", " + before + ")";
  const std::string mine = "here ? " + x + " : " + identity(e.reduce_op, e.dtype);
  const std::string who =
      is_block() ? "_in_block<" + op + ", " + str(s_.threads) + ">" : "_in_warp<" + op + ">";
  return "running" + who + "(" + mine + ", " + before + ")";
}

std::string CudaValues::square(ExprId id, const std::string& inner, const std::string& across) const {
  return "t" + str(id) + "[" + inner + "][" + across + "]";
}

std::string CudaValues::array(const std::string& type, const std::string& name) const {
  return type + " " + name + "[" + str(s_.vector) + "];";
}

bool CudaValues::is_place_of_vector(const Expr& user, ExprId id) const {
  return !in_lane_ && expr(id).kind == ExprKind::Index && per_lane(expr(id).dims) && per_lane(user.dims);
}

bool CudaValues::is_drawn_wide(ExprId id) const {
  const Expr& e = expr(id);
  if (e.kind != ExprKind::Op || e.op != loops::ScalarOp::random || s_.vector % 4 != 0 || s_.shifted)
    return false;
  const Expr &vector = expr(e.args[3]), &position = expr(e.args[4]);
  return vector.kind == ExprKind::Const && vector.ivalue % 4 == 0 && position.kind == ExprKind::Index &&
         is_wide(k_, s_, position.index, {}, kNone);
}

bool CudaValues::is_place_of_vectors(ExprId id) const {
  auto is_it = [id](ExprId other) { return other == id; };
  if (expr(id).kind != ExprKind::Index ||
      std::any_of(k_.stores.begin(), k_.stores.end(), [&](const auto& st) { return st.value == id; }))
    return false;
  bool any = false;
  for (ExprId user = id + 1; user < static_cast<ExprId>(k_.exprs.size()); ++user) {
    const Expr& e = expr(user);
    const bool reads = std::any_of(e.args.begin(), e.args.end(), is_it);
    const bool whole =
        (is_drawn_wide(user) && e.args[4] == id) || (reads && is_place_of_vector(e, id) && !per_lane(user));
    any |= whole;
    if (!whole && reads) return false;
    if (std::any_of(e.gather.begin(), e.gather.end(), [id](const auto& g) { return g.value == id; }))
      return false;
  }
  return any;
}

/// By a number eager's kernels divide so on a GPU, too: a division costs more than an exponential.
std::optional<double> CudaValues::inverse_divisor(const Expr& e) const {
  if (e.kind != ExprKind::Op || e.op != loops::ScalarOp::div) return std::nullopt;
  const Expr& by = expr(e.args[1]);
  if (by.kind != ExprKind::Const || (e.dtype != DType::F32 && e.dtype != DType::F64)) return std::nullopt;
  const bool single = e.dtype == DType::F32;
  const double inverse = single ? 1.0f / static_cast<float>(by.value) : 1.0 / by.value;
  const double least =
      single ? static_cast<double>(std::numeric_limits<float>::min()) : std::numeric_limits<double>::min();
  if (!std::isfinite(inverse) || std::abs(inverse) < least) return std::nullopt;
  return inverse;
}

bool CudaValues::divides_by_row(const Expr& e) const {
  if (e.kind != ExprKind::Op || e.op != loops::ScalarOp::div || e.dtype != DType::F32) return false;
  const Expr& by = expr(e.args[1]);
  return !pointwise() && along_row(e.dims) && !along_row(by.dims) && !is_array(e.args[1]) &&
         by.kind != ExprKind::Const;
}

}  // namespace bolt::codegen::cuda
