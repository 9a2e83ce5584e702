// loops/plan.cpp
#include "loops/plan.h"

#include <algorithm>
#include <unordered_map>

#include "loops/arena.h"
#include "loops/build.h"
#include "loops/fuse.h"
#include "loops/in_place.h"
#include "loops/layout.h"
#include "loops/roles.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

class Planner {
 public:
  Planner(std::unique_ptr<Graph> graph, const PlanOptions& options) : options_(options) {
    plan_.graph = std::move(graph);
  }

  Plan run() {
    Graph& g = *plan_.graph;
    g.renumber();
    choose_layouts(g, options_);
    fusion_ = fuse(g, options_);
    plan_.kernels_before_fusion = fusion_.kernels_before;
    buffer_of_.assign(fusion_.strides.size(), -1);
    for (size_t i = 0; i < g.inputs.size(); ++i) add_input(static_cast<int>(i));
    mark_outputs();
    for (const Unit& u : fusion_.units) u.call ? call(u) : kernels(u);
    outputs();
    write_in_place(plan_);
    lifetimes();
    place();
    return std::move(plan_);
  }

 private:
  // ---- buffers ----

  int add_buffer(PlanBuffer b) {
    plan_.buffers.push_back(std::move(b));
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  void add_input(int i) {
    const Value* v = plan_.graph->inputs[i].value.get();
    PlanBuffer b;
    b.type = v->type;
    b.kind = BufferKind::Input;
    b.source = i;
    buffer_of_[v->id] = add_buffer(b);
  }

  /// Which values are returned, themselves or through a view: their memory is an output's from the start.
  void mark_outputs() {
    output_of_.assign(fusion_.strides.size(), -1);
    const auto& outputs = plan_.graph->outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value* v = outputs[i].value;
      if (!fusion_.usage.materialized[v->id]) v = view_base(v);
      if (outputs[i].write_to < 0 && v->def && output_of_[v->id] < 0) output_of_[v->id] = static_cast<int>(i);
    }
  }

  int define(const Value* v, bool fold, bool owned_by_step) {
    if (buffer_of_[v->id] >= 0) return buffer_of_[v->id];
    PlanBuffer b;
    b.type = v->type;
    b.type.strides = fusion_.strides[v->id];
    b.owned_by_step = owned_by_step;
    if (fold) {
      b.kind = BufferKind::Fold;  // if it is returned too, a copy of it is
    } else if (output_of_[v->id] >= 0) {
      b.kind = BufferKind::Output;
      b.source = output_of_[v->id];
    }
    return buffer_of_[v->id] = add_buffer(b);
  }

  /// The buffer that shows `v`: its own, or an alias of the memory it is a view of.
  int show(const Value* v) {
    if (buffer_of_[v->id] >= 0) return buffer_of_[v->id];
    const Value* base = view_base(v);
    int source = buffer_of_[base->id];
    BOLT_CHECK(source >= 0, "%", v->id, " is needed in memory and nothing put it there");
    auto view = over_base(v, fusion_.strides[base->id]);
    BOLT_CHECK(view, "%", v->id, " is no strided view of %", base->id);
    PlanBuffer b;
    b.type = v->type;
    // Where a dimension has size 1 the type's own stride stays: the caller sees what eager would show.
    for (int i = 0; i < b.type.rank(); ++i)
      if (!b.type.sizes[i].is_const(1)) b.type.strides[i] = view->strides[i];
    b.kind = BufferKind::Alias;
    b.source = source;
    b.offset = view->offset;
    return buffer_of_[v->id] = add_buffer(b);
  }

  // ---- steps ----

  void push(Step s, bool fold) { (fold ? plan_.fold_steps : plan_.steps).push_back(std::move(s)); }

  void kernels(const Unit& u) {
    if (kernel(u.group, u.fold)) return;
    // Together they are no kernel: each node by itself, everything the others read stored.
    std::vector<Group> alone;
    for (const Node* n : u.group.nodes) {
      const Value* v = n->out();
      fusion_.usage.materialized[v->id] = 1;
      if (fusion_.strides[v->id].empty())
        fusion_.strides[v->id] =
            is_dense(v->type) ? v->type.strides : graph::contiguous_strides(v->type.sizes);
      alone.push_back({{n}, {v}});
    }
    for (const Group& g : alone)
      if (!kernel(g, u.fold)) throw_unsupported("no kernel for ", graph::op_info(g.nodes[0]->op).name);
  }

  bool kernel(const Group& group, bool fold) {
    auto no_elements = [](const Value* v) { return v->type.numel().is_const(0); };
    if (std::all_of(group.stored.begin(), group.stored.end(), no_elements)) {
      for (const Value* v : group.stored) define(v, false, false);  // memory, and nothing to put there
      return true;
    }
    std::optional<Built> built = build_kernel({fusion_.usage, fusion_.strides}, group);
    if (!built) return false;
    Step s{};
    s.kind = StepKind::Kernel;
    for (size_t i = 0; i < built->buffers.size(); ++i) {
      bool read = built->kernel.buffers[i].role == BufferRole::In;
      s.buffers.push_back(read ? show(built->buffers[i]) : define(built->buffers[i], fold, false));
      s.operand_count += read;
    }
    s.loc = group.nodes.back()->loc;
    s.kernel = add_kernel(std::move(built->kernel));
    push(std::move(s), fold);
    return true;
  }

  void call(const Unit& u) {
    if (u.packed) return contraction(u);
    const Node& n = *u.call;
    Step s{};
    s.kind = graph::op_info(n.op).kind == OpKind::Extern ? StepKind::Extern : StepKind::Library;
    s.node = &n;
    s.loc = n.loc;
    for (const Value* o : n.operands) s.buffers.push_back(show(o));
    s.operand_count = static_cast<int>(s.buffers.size());
    for (const auto& v : n.outputs) s.buffers.push_back(define(v.get(), u.fold, true));
    push(std::move(s), u.fold);
  }

  /// A contraction of our own: constant weights are packed once, its epilogue stores the result.
  void contraction(const Unit& u) {
    const Node& n = *u.call;
    const Group plain{{}, {n.out()}};
    std::optional<Built> built = build_epilogue(u, u.group.nodes.empty() ? plain : u.group);
    bool separate = !built;  // together they are no kernel after all: the sums are stored, a kernel follows
    if (separate) built = build_epilogue(u, plain);
    BOLT_CHECK(built, graph::op_info(n.op).name, " has no epilogue");
    built->kernel.name = std::string(graph::op_info(n.op).name) +
                         (u.group.nodes.empty() || separate ? "" : "_" + built->kernel.name);
    Step s{};
    s.kind = StepKind::Contraction;
    s.node = &n;
    s.loc = n.loc;
    s.epilogue = add_kernel(std::move(built->kernel));
    for (size_t i = 0; i < n.operands.size(); ++i)
      s.buffers.push_back(i == 1 && *u.packed > 0 ? pack(n, *u.packed, s.epilogue) : show(n.operands[i]));
    s.operand_count = static_cast<int>(s.buffers.size());
    pass_symbols(s);
    for (size_t i = 0; i < built->buffers.size(); ++i) {
      bool read = plan_.kernels[s.epilogue].buffers[i].role == BufferRole::In;
      s.buffers.push_back(read ? show(built->buffers[i]) : define(built->buffers[i], u.fold, false));
    }
    push(std::move(s), u.fold);
    if (separate) kernels(u);
  }
  std::optional<Built> build_epilogue(const Unit& u, const Group& group) {
    return build_kernel({fusion_.usage, fusion_.strides, u.call->out(), accumulator_column(*u.call)}, group);
  }

  /// The size symbols of the call's operands are the kernel's too.
  void pass_symbols(const Step& s) {
    std::vector<Sym> needed, &passed = plan_.kernels[s.epilogue].symbols;
    for (int i = 0; i < s.operand_count; ++i) {
      const graph::Type& t = plan_.buffers[s.buffers[i]].type;
      for (const auto* list : {&t.sizes, &t.strides})
        for (Sym x : *list) collect_symbols(x, &needed);
    }
    for (Sym x : needed)
      if (std::find(passed.begin(), passed.end(), x) == passed.end()) passed.push_back(x);
  }

  int pack(const Node& n, int64_t floats, int epilogue) {
    PlanBuffer b;
    b.type = {DType::F32, n.out()->type.device, {floats}, {1}};
    b.kind = BufferKind::Fold;
    Step s{};
    s.kind = StepKind::Pack;
    s.node = &n;
    s.loc = n.loc;
    s.epilogue = epilogue;
    s.buffers = {show(n.operands[1]), add_buffer(b)};
    s.operand_count = 1;
    int packed = s.buffers[1];
    push(std::move(s), true);
    return packed;
  }
  int add_kernel(Kernel k) {
    int id = static_cast<int>(plan_.kernels.size());
    k.name += "_" + std::to_string(id);
    plan_.kernels.push_back(std::move(k));
    return id;
  }

  void copy(int from, int to) {
    Step s{};
    s.kind = StepKind::Copy;
    s.buffers = {from, to};
    s.operand_count = 1;
    push(std::move(s), false);
  }

  // ---- outputs ----

  bool is_written(int input) const {
    const auto& outputs = plan_.graph->outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const graph::Output& o) { return o.write_to == input; });
  }

  int memory_owner(int buffer) const {
    while (plan_.buffers[buffer].kind == BufferKind::Alias) buffer = plan_.buffers[buffer].source;
    return buffer;
  }

  void outputs() {
    const auto& outputs = plan_.graph->outputs;
    plan_.output_buffers.assign(outputs.size(), -1);
    // What is returned and would change under a write-back is copied before any write.
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].write_to < 0) plan_.output_buffers[i] = returned(static_cast<int>(i));
    std::vector<std::pair<int, int>> writes;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].write_to < 0) continue;
      int to = buffer_of_[plan_.graph->inputs[outputs[i].write_to].value->id];
      int from = show(outputs[i].value);
      plan_.output_buffers[i] = to;
      if (from == to) continue;
      // A source that another write-back changes first must be saved.
      int owner = memory_owner(from);
      if (plan_.buffers[owner].kind == BufferKind::Input && is_written(plan_.buffers[owner].source)) {
        int saved = add_buffer(temp_like(from));
        copy(from, saved);
        from = saved;
      }
      writes.push_back({from, to});
    }
    for (auto [from, to] : writes) copy(from, to);
  }
  PlanBuffer temp_like(int buffer) const {
    PlanBuffer b;
    b.type = plan_.buffers[buffer].type;
    b.type.strides = graph::contiguous_strides(b.type.sizes);
    return b;
  }

  int returned(int i) {
    const Value* v = plan_.graph->outputs[i].value;
    int buffer = show(v);
    const PlanBuffer& owner = plan_.buffers[memory_owner(buffer)];
    bool changes = owner.kind == BufferKind::Input && is_written(owner.source);
    bool kept = owner.kind == BufferKind::Fold;
    bool lent = owner.kind == BufferKind::Temp && !owner.owned_by_step;
    if (!changes && !kept && !lent) return buffer;
    PlanBuffer b;
    b.type = v->type;
    // Of a broadcast number, say: no copy can be stored where elements share their memory.
    if (!is_dense(b.type)) b.type.strides = graph::contiguous_strides(b.type.sizes);
    b.kind = BufferKind::Output;
    b.source = i;
    int fresh = add_buffer(b);
    copy(buffer, fresh);
    return fresh;
  }

  // ---- lifetimes and the arena ----

  void lifetimes() {
    for (size_t i = 0; i < plan_.steps.size(); ++i)
      for (int b : plan_.steps[i].buffers) touch(b, static_cast<int>(i));
    // What is returned lives to the end.
    int last = static_cast<int>(plan_.steps.size()) - 1;
    for (int b : plan_.output_buffers)
      if (b >= 0 && last >= 0) touch(b, last);
  }
  void touch(int buffer, int step) {
    for (int b = buffer;; b = plan_.buffers[b].source) {
      PlanBuffer& p = plan_.buffers[b];
      if (p.first_step < 0) p.first_step = step;
      p.last_step = std::max(p.last_step, step);
      if (p.over >= 0) touch(p.over, step);
      if (p.kind != BufferKind::Alias) return;
    }
  }

  static Sym span_bytes(const graph::Type& t) {
    Sym last = 1;
    for (int i = 0; i < t.rank(); ++i) {
      if (t.sizes[i].is_const(0)) return 0;
      last += (t.sizes[i] - 1) * t.strides[i];
    }
    return last * Sym(dtype_bytes(t.dtype));
  }

  void place() {
    std::vector<ArenaRequest> requests;
    std::vector<int> which;
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& b = plan_.buffers[i];
      if (b.kind != BufferKind::Temp || b.owned_by_step || b.first_step < 0 || b.over >= 0) continue;
      requests.push_back({span_bytes(b.type), b.first_step, b.last_step});
      which.push_back(static_cast<int>(i));
    }
    ArenaLayout layout = lay_out(requests);
    for (size_t i = 0; i < which.size(); ++i) plan_.buffers[which[i]].arena_offset = layout.offsets[i];
    plan_.arena_bytes = layout.bytes;
    for (PlanBuffer& b : plan_.buffers) {
      const PlanBuffer* under = &b;
      while (under->over >= 0) under = &plan_.buffers[under->over];
      b.arena_offset = under->arena_offset;
    }
  }

  const PlanOptions& options_;
  Plan plan_;
  Fusion fusion_;
  std::vector<int> buffer_of_;  // by value id
  std::vector<int> output_of_;  // by value id: the output it is, or -1
};

}  // namespace

Plan plan(std::unique_ptr<Graph> graph, const PlanOptions& options) {
  return Planner(std::move(graph), options).run();
}

}  // namespace bolt::loops
