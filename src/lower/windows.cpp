// lower/windows.cpp
#include "lower/windows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lower/view_layout.h"
#include "record/convert.h"
#include "support/error.h"
#include "support/nesting.h"

namespace bolt::lower {
namespace {

using graph::InputKind;
using graph::Type;
using record::TensorId;
using record::TensorInfo;

size_t storage_count(const record::Tape& tape) {
  int n = 0;
  for (const TensorInfo& t : tape.tensors) n = std::max(n, t.storage + 1);
  return static_cast<size_t>(n);
}

/// One row of elements out of each of `count` blocks that make up the operand of an as_strided.
struct Stripes {
  int64_t count, block, length, start, step;
};

std::optional<Stripes> stripes(const Syms& sizes, const Syms& strides, Sym offset, Sym elements) {
  if (sizes.empty() || !all_known(sizes) || !all_known(strides) || !offset.is_const() || !elements.is_const())
    return std::nullopt;
  Stripes s{1, elements.value(), sizes.back().value(), offset.value(), strides.back().value()};
  for (size_t d = 0; d + 1 < sizes.size(); ++d) s.count *= sizes[d].value();
  if (s.count == 0 || s.length == 0 || s.step <= 0 || s.block % s.count) return std::nullopt;
  s.block /= s.count;
  int64_t run = s.block;
  for (size_t d = sizes.size() - 1; d-- > 0; run *= sizes[d].value())
    if (!sizes[d].is_const(1) && strides[d].value() != run) return std::nullopt;
  return s.start + (s.length - 1) * s.step < s.block ? std::optional(s) : std::nullopt;
}

}  // namespace

Windows::Windows(const record::Tape& tape, const LowerOptions& options, Sizes& sizes, Lowered& out)
    : tape(tape),
      sizes(sizes),
      out(out),
      options_(options),
      states_(tape.tensors.size()),
      storages_(storage_count(tape)) {
  find_shared_inputs();
}

bool Windows::is_constant(TensorId id) const { return options_.constants.count(tape.tensors[id].input) > 0; }

// Two inputs on one storage: harmless while nobody writes it.
void Windows::find_shared_inputs() {
  for (TensorId id : tape.inputs) {
    if (is_constant(id)) continue;
    StorageState& s = storage(id);
    if (s.input >= 0) s.shared = true;
    s.input = tape.tensors[id].input;
  }
}

void Windows::set_sizes(TensorId id, const Syms& shown, int64_t step) {
  TensorState& t = states_[id];
  const TensorInfo& info = tape.tensors[id];
  BOLT_CHECK(shown.size() == info.sizes.size(), "a tensor of rank ", info.sizes.size(), " is computed with ",
             shown.size());
  for (size_t d = 0; d < shown.size(); ++d)
    BOLT_CHECK(sizes.hint(shown[d]) == info.sizes[d], "size ", d, " is computed as ", shown[d].str(), " (",
               sizes.hint(shown[d]), ") where eager had ", info.sizes[d]);
  sizes.bind(id, shown);
  t.sized = true;
  t.layout.sizes = shown;
  t.layout.strides = eager_strides(info, shown, sizes, step);
  take_over_gaps(id);
}

void Windows::set_slice(TensorId id, TensorId of, const SliceOfDim& cut, bool drops_dim) {
  Type type;
  type.sizes = states_[of].layout.sizes;
  std::vector<ViewStep> steps = {{Op::slice, graph::slice_attrs(cut.dim, cut.start, cut.length, cut.step)}};
  const auto at = type.sizes.begin() + cut.dim;
  if (drops_dim) {
    type.sizes.erase(at);
    steps.push_back({Op::reshape, {{"sizes", type.sizes}}});
  } else {
    *at = cut.length;
  }
  set_sizes(id, type.sizes);
  states_[id].layout =
      view_layout(tape.tensors[id], type, steps, tape.tensors[of], states_[of].layout, sizes);
}

// What keeps the layout of an operand, like clone(), is dense but for gaps of dimensions of size 1.
void Windows::take_over_gaps(TensorId id) {
  const TensorInfo& info = tape.tensors[id];
  Syms& strides = states_[id].layout.strides;
  if (!any_gaps_ || info.producer < 0 || strides.empty()) return;
  const auto nesting = nesting_of(info.sizes, info.strides);
  for (size_t d = 0; nesting && d < strides.size(); ++d) {
    if (info.sizes[d] != 1 || !(nesting->gaps >> d & 1)) continue;
    for_each_tensor(tape.entries[info.producer].args, [&](TensorId of) {
      if (strides[d].is_const()) strides[d] = stride_like(info.strides[d], states_[of].layout, sizes);
    });
  }
}

void Windows::set_input(TensorId id) {
  const TensorInfo& info = tape.tensors[id];
  set_sizes(id, sizes.of_input(info));
  const Syms strides = sizes.strides_of_input(info);
  if (strides.empty()) return;
  states_[id].layout.strides = strides;
  sizes.bind_strides(id, strides);
  for (Sym s : strides)
    if (!s.is_const()) storage(id).gaps.push_back(s);
  any_gaps_ = true;
}

void Windows::demand_strides(TensorId id) const {
  for (Sym s : storage(id).gaps) s.value();
}

/// Do its elements lie at one distance from each other, whatever the sizes?
static bool is_one_run(const Layout& t) {
  std::optional<Sym> run;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    if (t.sizes[d].is_const(1)) continue;
    if (run && t.strides[d] != *run) return false;
    run = t.strides[d] * t.sizes[d];
  }
  return true;
}

bool Windows::lies_in_order(TensorId id) const {
  const TensorInfo& info = tape.tensors[id];
  int64_t inside = 0;
  for (size_t d = info.sizes.size(); d-- > 0;) {
    if (info.sizes[d] == 1) continue;
    if (info.strides[d] < inside) return false;
    inside = info.strides[d];
  }
  return true;
}

// The questions of at::detail::computeStride, of the dimensions that change.
void Windows::pin_reshape(const Call& c, TensorId id, const Syms& to) const {
  const Layout& t = states_[id].layout;
  if (t.strides.size() != t.sizes.size()) return;
  if (std::any_of(t.sizes.begin(), t.sizes.end(), [](Sym size) { return size.is_const(0); })) return;
  auto hints = [&](const Syms& all) {
    std::vector<int64_t> numbers;
    for (Sym s : all) numbers.push_back(sizes.hint(s));
    return numbers;
  };
  if (is_one_run(t)) return;  // any sizes fit
  if (hints(t.sizes) == hints(to)) {
    for (size_t d = 0; d < to.size(); ++d) c.decide(t.sizes[d], Relation::eq, to[d]);
    return;
  }
  size_t begin = 0, end = t.sizes.size(), to_end = to.size();
  while (begin < std::min(end, to_end) && t.sizes[begin] == to[begin]) ++begin;
  while (std::min(end, to_end) > begin && t.sizes[end - 1] == to[to_end - 1]) --end, --to_end;
  Syms runs;  // how many elements, innermost first
  Sym elements = 1, innermost = begin < end ? t.strides[end - 1] : Sym(1);
  for (size_t d = end; d-- > begin;) {
    elements *= t.sizes[d];
    const bool goes_on = d > begin && (t.sizes[d - 1].is_const(1) ||
                                       c.decide(t.strides[d - 1], Relation::eq, elements * innermost));
    if (goes_on) continue;
    runs.push_back(elements);
    if (d > begin) innermost = t.strides[d - 1], elements = 1;
  }
  if (runs.size() <= 1) return;
  size_t j = to_end;
  for (Sym run : runs) {
    Sym fitted = 1;
    while (j > begin && (to[j - 1].is_const(1) || c.decide(fitted, Relation::lt, run))) fitted *= to[--j];
    if (!c.decide(fitted, Relation::eq, run)) return;  // a copy
  }
}

Type Windows::type_of(TensorId id) const {
  const TensorInfo& info = tape.tensors[id];
  const TensorState& state = states_[id];
  BOLT_CHECK(state.sized, "the sizes of tensor ", id, " are asked for before it is made");
  auto dtype = record::to_bolt(info.dtype);
  if (!dtype) throw_unsupported("element type ", c10::toString(info.dtype));
  Type t;
  t.dtype = *dtype;
  t.device = record::to_bolt(info.device);
  t.sizes = state.layout.sizes;
  t.strides = state.layout.strides;
  if (t.strides.size() != t.sizes.size())
    for (Sym s : t.sizes) s.value();
  return t;
}

Value* Windows::input_value(TensorId id) {
  const TensorInfo& info = tape.tensors[id];
  auto kind = InputKind::Arg;
  if (is_constant(id))
    kind = InputKind::Const;
  else if (info.input < static_cast<int>(options_.is_param.size()) && options_.is_param[info.input])
    kind = InputKind::Param;
  out.inputs.push_back(info.input);
  Value* made = out.graph->add_input(type_of(id), kind);
  if (kind == InputKind::Param && static_cast<size_t>(info.input) < options_.addresses.size())
    out.graph->inputs.back().address = options_.addresses[info.input];
  return made;
}

Value* Windows::make(Op op, std::vector<Value*> operands, Attrs attrs) {
  return out.graph->make(op, std::move(operands), std::move(attrs), loc)->out();
}

Value* Windows::apply(const std::vector<ViewStep>& steps, Value* v) {
  for (const ViewStep& step : steps) v = make(step.op, {v}, step.attrs);
  return v;
}

Value* Windows::converted(Value* v, DType dtype) {
  return v->type.dtype == dtype ? v : make(Op::cast, {v}, {{"dtype", dtype}});
}

Value* Windows::read(TensorId id) {
  TensorState& t = states_[id];
  StorageState& s = storage(id);
  if (!t.known) {  // an input at its first use
    BOLT_CHECK(tape.tensors[id].input >= 0, "tensor ", id, " is read before it is made");
    if (s.version > 0) throw_unsupported("an input that overlaps another input which was written");
    t.known = true;
    t.value = input_value(id);
    t.version = 0;
    if (s.root < 0) s.root = id;
    return t.value;
  }
  if (t.version == s.version) return t.value;
  if (t.opaque) throw_unsupported("a view whose base was written later");
  BOLT_CHECK(t.parent >= 0, "the root of a storage is always current");
  t.value = apply(t.steps, read(t.parent));
  t.version = s.version;
  return t.value;
}

void Windows::write(TensorId id, Value* value) {
  TensorState& t = states_[id];
  if (!t.known) read(id);
  StorageState& s = storage(id);
  if (s.shared) throw_unsupported("a write to an input whose memory another input shares");
  if (t.opaque && !t.inverse) throw_unsupported("a write through a view that has no inverse");
  if (t.opaque) {
    write(t.of, t.inverse(read(t.of), value));
  } else if (t.parent >= 0) {
    // Values on the way down, so that each step can be inverted against what it looked at.
    std::vector<Value*> chain{read(t.parent)};
    for (const ViewStep& step : t.steps) chain.push_back(make(step.op, {chain.back()}, step.attrs));
    Value* v = value;
    for (size_t i = t.steps.size(); i-- > 0;) v = invert(t.steps[i], chain[i], v);
    write(t.parent, v);
  } else {
    const TensorInfo& info = tape.tensors[id];
    if (record::elements_share_memory(info.sizes, info.strides))
      throw_unsupported("a write to a tensor whose elements share their memory");
    s.root = id;
    ++s.version;
  }
  t.value = value;
  t.version = s.version;
}

// The operand of `step` after its result became `v`.
Value* Windows::invert(const ViewStep& step, Value* before, Value* v) {
  auto attr = [&](const char* name) { return step.attrs.find(name)->second; };
  switch (step.op) {
    case Op::reshape: return make(Op::reshape, {v}, {{"sizes", before->type.sizes}});
    case Op::permute: {
      auto dims = std::get<Syms>(attr("dims"));
      Syms inverse(dims.size());
      for (size_t i = 0; i < dims.size(); ++i) inverse[dims[i].value()] = static_cast<int64_t>(i);
      return make(Op::permute, {v}, {{"dims", inverse}});
    }
    case Op::slice:
      return make(Op::slice_scatter, {before, v},
                  {{"dim", attr("dim")}, {"start", attr("start")}, {"step", attr("step")}});
    case Op::flip: return make(Op::flip, {v}, step.attrs);
    case Op::as_strided:
      if (step.inverse)
        return step.inverse(
            [&](Op op, auto operands, auto attrs) {
              Value* made = make(op, operands, attrs);
              if (made->def->operands.empty()) made->type.device = before->type.device;
              return made;
            },
            before, v);
      if (const auto s = stripes(std::get<Syms>(attr("sizes")), std::get<Syms>(attr("strides")),
                                 std::get<Syms>(attr("offset"))[0], before->type.numel())) {
        Value* blocks = make(Op::reshape, {before}, {{"sizes", Syms{s->count, s->block}}});
        Value* rows = make(Op::reshape, {v}, {{"sizes", Syms{s->count, s->length}}});
        Value* written = make(Op::slice_scatter, {blocks, rows},
                              {{"dim", int64_t{1}}, {"start", Syms{s->start}}, {"step", s->step}});
        return make(Op::reshape, {written}, {{"sizes", before->type.sizes}});
      }
      [[fallthrough]];
    default: throw_unsupported("a write through a view made by ", graph::op_info(step.op).name);
  }
}

void Windows::define_root(TensorId id, Value* v) {
  TensorState& t = states_[id];
  t.known = true;
  t.value = v;
  t.version = 0;
  StorageState& s = storage(id);
  s.root = id;
  s.version = 0;
  set_sizes(id, v->type.sizes);
  // The layout eager chose; the value may be laid out otherwise while it is only used inside. What a copy was
  // made of keeps its own: a call gives its results as it does, and other calls count on that.
  if (v->def && laid_.insert(v).second) v->type.strides = type_of(id).strides;
}

void Windows::define_view(TensorId id, TensorId parent, std::vector<ViewStep> steps, bool detaches) {
  TensorState& t = states_[id];
  t.known = true;
  t.detached = detaches || states_[parent].detached;
  t.parent = parent;
  t.steps = std::move(steps);
  t.value = apply(t.steps, read(parent));
  t.version = storage(id).version;
  sizes.bind(id, t.value->type.sizes);
  t.sized = true;
  t.layout = view_layout(tape.tensors[id], t.value->type, t.steps, tape.tensors[parent],
                         states_[parent].layout, sizes);
  if (!t.layout.placed) demand_strides(id);
}

void Windows::define_opaque(TensorId id, Value* v, bool detached) {
  TensorState& t = states_[id];
  t.known = t.opaque = true;
  t.detached |= detached;
  t.value = v;
  t.version = storage(id).version;
}

void Windows::define_inverse(TensorId id, TensorId of, Inverse inverse) {
  states_[id].of = of;
  states_[id].inverse = std::move(inverse);
}

int Windows::input_of(TensorId id) const {
  TensorId origin = id;
  while (states_[origin].parent >= 0) origin = states_[origin].parent;
  const int own = is_constant(origin) ? -1 : tape.tensors[origin].input;
  return own >= 0 ? own : storage(id).input;
}

Sym Windows::offset_in(TensorId id, TensorId base) const {
  const int64_t distance = tape.tensors[id].offset - tape.tensors[base].offset;
  const Layout &view = states_[id].layout, &of = states_[base].layout;
  const Sym computed = view.offset - of.offset;
  if (view.placed && of.placed && sizes.hint(computed) == distance) return computed;
  for (TensorId t : {id, base}) demand_place(t);
  return distance;
}

void Windows::demand_place(TensorId t) const {
  demand_strides(t);
  for (Sym s : sizes_of(t)) s.value();
  for (TensorId up = t; up >= 0; up = states_[up].parent)  // x[n:] begins somewhere else in each call
    for (const ViewStep& step : states_[up].steps)
      if (step.op == Op::slice) std::get<Syms>(step.attrs.find("start")->second)[0].value();
}

}  // namespace bolt::lower
