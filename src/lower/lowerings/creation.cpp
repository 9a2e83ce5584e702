// lower/lowerings/creation.cpp
// Rows for tensors made from numbers.
#include "lower/families.h"
#include "lower/formula.h"
#include "record/convert.h"

namespace bolt::lower {
namespace {

// zeros(size), x.new_zeros(size), zeros_like(x); a number alone has no size.
Syms result_sizes(Call& c) {
  if (c.has("size")) return c.syms("size");
  return c.has("self") ? c.sizes("self") : Syms{};
}
std::vector<Value*> filled(Call& c, const c10::Scalar& s) {
  DType t = c.result_dtype();
  return {c.make(Op::full, {}, {{"value", number_as(s, t)}, {"dtype", t}, {"sizes", result_sizes(c)}})};
}
bool is_known(Call& c) { return !is_opaque(c.result_dtype()); }

std::vector<Value*> zeros(Call& c) { return filled(c, 0); }
std::vector<Value*> ones(Call& c) { return is_known(c) ? filled(c, 1) : std::vector<Value*>{}; }
std::vector<Value*> filled_by(Call& c, const char* name) {
  if (!is_known(c)) return {};
  if (!c.is_symbolic(name)) return filled(c, c.scalar(name));
  return {c.make(Op::expand, {c.number_value(name, c.result_dtype())}, {{"sizes", result_sizes(c)}})};
}
std::vector<Value*> full(Call& c) { return filled_by(c, "fill_value"); }
std::vector<Value*> scalar_tensor(Call& c) { return filled_by(c, "s"); }

std::vector<Value*> arange(Call& c) {
  if (!is_known(c)) return {};
  DType t = c.result_dtype();
  if (c.is_real("start") || c.is_real("end") || c.is_real("step")) c.demand_numbers();
  auto is_symbolic = [&](const char* name) { return c.has(name) && c.is_symbolic(name); };
  auto number = [&](const char* name, int64_t otherwise) {
    return c.has(name) && !is_symbolic(name) ? c.scalar(name) : c10::Scalar(otherwise);
  };
  const bool moves = is_symbolic("start"), strides = is_symbolic("step");
  const c10::Scalar start = strides ? c10::Scalar(0) : number("start", 0), step = number("step", 1);
  Sym size;
  if (c.is_static()) {
    size = c.static_sizes()[0];
  } else {  // whole numbers: a size among them has no fraction
    const Sym first = c.has("start") ? c.sym("start") : Sym(0), by = c.has("step") ? c.sym("step") : Sym(1);
    if (!c.decide(0, Relation::lt, by)) return {};
    const Sym end = c.sym("end");
    const bool any = c.decide(first, Relation::lt, end);
    if (!any) c.decide(first, Relation::eq, end);  // an end before the start is an error
    size = any ? ceildiv(end - first, by) : Sym(0);
  }
  Attrs attrs{{"size", Syms{size}}, {"dtype", t}};
  if (is_float(t)) {
    attrs["start"] = start.toDouble();
    attrs["step"] = step.toDouble();
  } else {
    if (start.isFloatingPoint() || step.isFloatingPoint()) return {};
    attrs["start"] = start.toLong();
    attrs["step"] = step.toLong();
  }
  Value* v = c.make(Op::iota, {}, std::move(attrs));
  if (strides) v = c.make(Op::mul, {v, c.number_value("step", t)});
  const bool begins = moves || (strides && c.has("start"));
  return {begins ? c.make(Op::add, {v, c.number_value("start", t)}) : v};
}

// Row index against column index.
std::vector<Value*> triangle(Call& c, Op keep) {
  Value* x = c.tensor("self");
  int rank = x->type.rank();
  if (rank < 2) return {};
  auto positions = [&](Sym size, Syms shape) {
    Value* i =
        c.make(Op::iota, {},
               {{"size", Syms{size}}, {"dtype", DType::I64}, {"start", int64_t{0}}, {"step", int64_t{1}}});
    return c.make(Op::reshape, {i}, {{"sizes", shape}});
  };
  Sym rows = x->type.sizes[rank - 2], cols = x->type.sizes[rank - 1];
  Value* r = positions(rows, {rows, 1});
  Value* col = positions(cols, {1, cols});
  Value* shifted = c.make(Op::sub, {col, c.scalar_value(c.integer("diagonal"), DType::I64)});
  Value* inside = c.make(keep, {shifted, r});
  return {c.make(Op::where, {inside, x, c.scalar_value(0, x->type.dtype)})};
}
std::vector<Value*> tril(Call& c) { return triangle(c, Op::le); }
std::vector<Value*> triu(Call& c) { return triangle(c, Op::ge); }

// From both ends, as ATen does. Half types and whole numbers it rounds by other rules: these stay its own.
std::vector<Value*> linspace(Call& c) {
  const DType t = c.result_dtype();
  const int64_t steps = c.integer("steps");
  if ((t != DType::F32 && t != DType::F64) || steps < 1) return {};
  auto rounded = [t](double v) { return t == DType::F64 ? v : static_cast<double>(static_cast<float>(v)); };
  const double start = rounded(c.number("start")), end = rounded(c.number("end"));
  const double step = steps > 1 ? rounded(rounded(end - start) / static_cast<double>(steps - 1)) : 0;
  const Formula f(c, t);
  const Term i = f.places(steps, 0, 1), at = i.as(t);
  if (steps == 1) return {f.full(start, {steps}).value};
  const Term back = (static_cast<double>(steps - 1) - i).as(t);
  return {where(i < static_cast<double>(steps / 2), at * step + start, end - back * step).value};
}

std::vector<Value*> eye(Call& c) {
  if (!is_known(c)) return {};
  const Formula f(c, DType::I64);
  const Sym rows = c.sym("n"), columns = c.has("m") ? c.sym("m") : rows;
  return {(f.places(rows, 0, 2) == f.places(columns, 1, 2)).as(c.result_dtype()).value};
}

std::vector<Value*> one_hot(Call& c) {
  const int64_t classes = c.integer("num_classes");
  const Value* index = c.tensor("self");
  if (classes <= 0 || index->type.dtype != DType::I64 || index->type.numel().is_const(0)) return {};
  const Formula f(c, DType::I64);
  Term which = f.checked(f("self"), classes);
  Syms column = which.sizes();
  column.push_back(1);
  return {
      (which.reshaped(column) == f.places(classes, static_cast<int64_t>(column.size()) - 1, column.size()))
          .as(DType::I64)
          .value};
}

}  // namespace

void add_creation(Table& t) {
  const RowsByName row{t};
  row.moving(zeros, {"zeros", "zeros_like", "new_zeros"});
  // Memory as it was holds what nobody may rely on; what is written to all of it leaves nothing to fill.
  row.moving(zeros, {"empty.memory_format", "empty_like", "empty_strided", "empty_permuted", "new_empty",
                     "new_empty_strided"});
  row(ones, {"ones", "ones_like", "new_ones"});
  row(full, {"full", "full_like", "new_full"});
  row(scalar_tensor, {"scalar_tensor"});
  row(arange, {"arange", "arange.start", "arange.start_step"});
  row(linspace, {"linspace"});
  row(eye, {"eye", "eye.m"});
  row(one_hot, {"one_hot"});
  row.moving(tril, {"tril"});
  row.moving(triu, {"triu"});
}

}  // namespace bolt::lower
