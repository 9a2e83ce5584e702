// loops/plan.cpp
#include "loops/plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "loops/arena.h"
#include "loops/build.h"
#include "loops/cost.h"
#include "loops/end_in_activations.h"
#include "loops/end_in_casts.h"
#include "loops/fuse.h"
#include "loops/in_bands.h"
#include "loops/in_place.h"
#include "loops/layout.h"
#include "loops/merge_products.h"
#include "loops/narrow_weights.h"
#include "loops/put_back.h"
#include "loops/roles.h"
#include "loops/scatter_onto.h"
#include "loops/space.h"
#include "loops/sum_outer_first.h"
#include "loops/together.h"
#include "support/error.h"
#include "support/parallel.h"
#include "support/symbols.h"

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

  /// All units as steps; where results go and where temporaries lie is open.
  PlanDraft& draft() {
    Graph& g = *plan_.graph;
    g.renumber();
    if (merge_products(g, options_)) g.renumber();
    if (end_in_activations(g, options_)) g.renumber();
    if (scatter_onto(g)) g.renumber();
    if (end_in_casts(g, options_)) g.renumber();
    choose_layouts(g, options_);
    if (sum_outer_first(g)) g.renumber();
    if (narrow_weights(g, options_)) g.renumber();
    give_bases_memory(g);
    fusion_ = fuse(g, options_);
    buffer_of_.assign(fusion_.strides.size(), -1);
    for (size_t i = 0; i < g.inputs.size(); ++i) add_input(static_cast<int>(i));
    mark_outputs();
    for (const Unit& u : fusion_.units) u.call ? call(u) : kernels(u);
    for (const graph::Output& o : g.outputs) draft_.results.push_back({result(o), o.write_to, o.value->type});
    return draft_;
  }

  Plan finish() {
    outputs(draft_.results);
    write_in_place(plan_, options_);
    compute_in_bands(plan_, options_);
    for (const auto* list : {&plan_.fold_steps, &plan_.steps})
      for (const Step& s : *list) plan_.kernels_before_fusion += s.node_count;
    launch_together(plan_, options_);
    lifetimes();
    place();
    for (const auto* list : {&plan_.fold_steps, &plan_.steps})
      for (const Step& s : *list) {
        const std::string wrong = out_of_reach(plan_, s);
        BOLT_CHECK(wrong.empty(), wrong);
      }
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
      if (!fusion_.usage.materialized[v->id] || part_of_result(outputs[i], fusion_.strides)) v = view_base(v);
      if (outputs[i].write_to < 0 && v->def && output_of_[v->id] < 0) output_of_[v->id] = static_cast<int>(i);
    }
    for (auto n = plan_.graph->nodes.rbegin(); n != plan_.graph->nodes.rend(); ++n)
      if (kind_of(n->get()) == OpKind::Scatter)
        output_of_[(*n)->operands[0]->id] = output_of_[(*n)->out()->id];
  }

  int define(const Value* v, bool fold) {
    if (buffer_of_[v->id] >= 0) return buffer_of_[v->id];
    if (v->def && kind_of(v->def) == OpKind::Scatter)
      return buffer_of_[v->id] = define(v->def->operands[0], fold);
    PlanBuffer b;
    b.type = v->type;
    b.type.strides = fusion_.strides[v->id];
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
    const std::optional<ShownOver> shown = shown_over(v, fusion_.strides);
    BOLT_CHECK(shown, "%", v->id, " is no strided view of what lies in memory");
    return buffer_of_[v->id] = alias(v, *shown);
  }
  int alias(const Value* v, const ShownOver& shown) {
    const int source = buffer_of_[shown.base->id];
    BOLT_CHECK(source >= 0, "%", v->id, " is needed in memory and nothing put it there");
    PlanBuffer b;
    b.type = v->type;
    // Where a dimension has size 1 the type's own stride stays: the caller sees what eager would show.
    for (int i = 0; i < b.type.rank(); ++i)
      if (!b.type.sizes[i].is_const(1)) b.type.strides[i] = shown.view.strides[i];
    b.kind = BufferKind::Alias;
    b.source = source;
    b.offset = shown.view.offset;
    return add_buffer(b);
  }
  /// Of what the caller sees, too, a part in larger memory is what is kept.
  int result(const graph::Output& o) {
    const std::optional<StridedView> part = part_of_result(o, fusion_.strides);
    if (!part) return show(o.value);
    auto [known, fresh] = parts_.try_emplace(o.value, -1);
    if (fresh) known->second = alias(o.value, {view_base(o.value), *part});
    return known->second;
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
      for (const Value* v : group.stored) define(v, false);  // memory, and nothing to put there
      return true;
    }
    std::optional<BuiltKernel> built =
        build_kernel({fusion_.usage, fusion_.strides, options_.rounds_as_eager}, group);
    if (!built) return false;
    Step s{};
    s.kind = StepKind::Kernel;
    for (size_t i = 0; i < built->buffers.size(); ++i) {
      bool read = built->kernel.buffers[i].role == BufferRole::In;
      s.buffers.push_back(read ? show(built->buffers[i]) : define(built->buffers[i], fold));
      s.operand_count += read;
    }
    s.loc = group.nodes.back()->loc;
    s.node_count = static_cast<int>(group.nodes.size());
    s.alone = instructions_of(group.nodes);
    s.device = group.nodes.back()->out()->type.device;
    s.kernel = add_kernel(std::move(built->kernel), s.device, std::nullopt, numbers_of(plan_, s));
    push(std::move(s), fold);
    return true;
  }

  /// A number on the processor that only kernels of another device read: launches hand it over.
  bool is_handed_over(const Node& n, bool fold) const {
    if (n.op != Op::transfer || fold || n.out()->type.rank() > 0 || is_opaque(n.out()->type.dtype))
      return false;
    return graph::is_processor(n.operands[0]->type.device) &&
           graph::facts_of(n.out()->type.device).takes_numbers && only_kernels_read(n.out());
  }
  bool only_kernels_read(const Value* v) const {
    for (const graph::Output& o : plan_.graph->outputs)
      if (o.value == v) return false;
    const auto& users = fusion_.usage.users[v->id];
    return std::all_of(users.begin(), users.end(), [&](const Node* user) {
      const Role role = fusion_.usage.role_of(user);
      return role == Role::Fused || (role == Role::Free && user->outputs.size() == 1 &&
                                     kind_of(user) == OpKind::View && only_kernels_read(user->out()));
    });
  }

  void call(const Unit& u) {
    if (u.packed) return contraction(u);
    const Node& n = *u.call;
    if (is_handed_over(n, u.fold)) {
      buffer_of_[n.out()->id] = show(n.operands[0]);
      return;
    }
    Step s{};
    s.kind = graph::op_info(n.op).kind == OpKind::Extern ? StepKind::Extern : StepKind::Library;
    s.node = &n;
    s.loc = n.loc;
    if (!n.outputs.empty()) s.device = n.out()->type.device;
    if (s.kind == StepKind::Extern) s.call = static_cast<int>(n.attr<int64_t>("call"));
    for (const Value* o : n.operands) s.buffers.push_back(show(o));
    s.operand_count = static_cast<int>(s.buffers.size());
    for (const auto& v : n.outputs) {
      s.buffers.push_back(define(v.get(), u.fold));
      plan_.buffers[s.buffers.back()].owned_by_step = true;
    }
    push(std::move(s), u.fold);
  }

  /// A contraction of our own: constant weights are packed once, its epilogue stores the result.
  void contraction(const Unit& u) {
    const Node& n = *u.call;
    const Group plain{{}, {n.out()}};
    std::optional<BuiltKernel> built = build_epilogue(u, u.group.nodes.empty() ? plain : u.group);
    bool separate = !built;  // together they are no kernel after all: the sums are stored, a kernel follows
    if (separate) built = build_epilogue(u, plain);
    BOLT_CHECK(built, graph::op_info(n.op).name, " has no epilogue");
    built->kernel.name = std::string(graph::op_info(n.op).name) +
                         (u.group.nodes.empty() || separate ? "" : "_" + built->kernel.name);
    Step s{};
    s.kind = StepKind::Contraction;
    s.node = &n;
    s.loc = n.loc;
    s.node_count = 1 + (separate ? 0 : static_cast<int>(u.group.nodes.size()));
    s.alone = separate ? 0 : instructions_of(u.group.nodes);
    PlannedContraction call = describe_call(fusion_, n);
    pass_symbols(call, built->kernel);
    s.device = n.out()->type.device;
    s.epilogue = add_kernel(std::move(built->kernel), s.device, std::move(call));
    for (size_t i = 0; i < n.operands.size(); ++i)
      s.buffers.push_back(i == 1 && *u.packed > 0 ? pack(n, *u.packed, s.epilogue) : show(n.operands[i]));
    s.operand_count = static_cast<int>(s.buffers.size());
    for (size_t i = 0; i < built->buffers.size(); ++i) {
      bool read = plan_.kernels[s.epilogue].buffers[i].role == BufferRole::In;
      s.buffers.push_back(read ? show(built->buffers[i]) : define(built->buffers[i], u.fold));
    }
    push(std::move(s), u.fold);
    if (separate) kernels(u);
  }
  std::optional<BuiltKernel> build_epilogue(const Unit& u, const Group& group) {
    return build_kernel({fusion_.usage, fusion_.strides, options_.rounds_as_eager, u.call->out(),
                         accumulator_column(*u.call)},
                        group);
  }

  /// The size symbols of the call's operands are the kernel's too.
  static void pass_symbols(const PlannedContraction& call, Kernel& epilogue) {
    Syms needed, &passed = epilogue.symbols;
    for (const graph::Type& t : call.operands)
      for (const auto* list : {&t.sizes, &t.strides})
        for (Sym x : *list) collect_symbols(x, &needed);
    for (Sym x : needed)
      if (std::find(passed.begin(), passed.end(), x) == passed.end()) passed.push_back(x);
  }

  /// Once for all calls that read the same weights in the same order.
  int pack(const Node& n, int64_t floats, int epilogue) {
    const int weights = show(n.operands[1]);
    auto [known, fresh] = packs_.try_emplace({weights, epilogue}, -1);
    if (!fresh) return known->second;
    PlanBuffer b;
    b.type = {DType::F32, n.out()->type.device, {floats}, {1}};
    b.kind = BufferKind::Fold;
    Step s{};
    s.kind = StepKind::Pack;
    s.node = &n;
    s.device = n.out()->type.device;
    s.loc = n.loc;
    s.epilogue = epilogue;
    s.buffers = {weights, known->second = add_buffer(b)};
    s.operand_count = 1;
    push(std::move(s), true);
    return known->second;
  }
  /// Steps that do the same on the same kind of device share a kernel: layers mostly do. `call`: the
  /// contraction that ends in it.
  int add_kernel(Kernel k, graph::Device device, std::optional<PlannedContraction> call = std::nullopt,
                 std::vector<char> numbers = {}) {
    std::vector<int>& alike = kernels_by_code_[hash_code(k)];
    for (int id : alike)
      if (kinds_[id] == device.kind && plan_.kernels[id].sources == k.sources &&
          same_code(plan_.kernels[id], k) && same(calls_[id], call) && numbers_[id] == numbers)
        return id;
    int id = static_cast<int>(plan_.kernels.size());
    k.name += "_" + std::to_string(id);
    plan_.kernels.push_back(std::move(k));
    calls_.push_back(std::move(call));
    kinds_.push_back(device.kind);
    numbers_.push_back(std::move(numbers));
    alike.push_back(id);
    return id;
  }
  static bool same(const std::optional<PlannedContraction>& a, const std::optional<PlannedContraction>& b) {
    if (!a || !b) return !a && !b;
    return a->node.op == b->node.op && a->node.attrs == b->node.attrs && a->operands == b->operands &&
           a->constant == b->constant && a->node.out()->type == b->node.out()->type;
  }

  void copy(int from, int to) {
    Step s{};
    s.kind = StepKind::Copy;
    s.device = plan_.buffers[to].type.device;
    s.buffers = {from, to};
    s.operand_count = 1;
    push(std::move(s), false);
  }

  // ---- outputs ----

  void outputs(const std::vector<PlanResult>& results) {
    std::vector<char> written(plan_.graph->inputs.size(), 0);
    for (const PlanResult& r : results)
      if (r.write_to >= 0) written[r.write_to] = 1;
    auto changes = [&](const PlanBuffer& b) { return b.kind == BufferKind::Input && written[b.source]; };
    // What is returned and would change under a write-back is copied before any write.
    for (size_t i = 0; i < results.size(); ++i) {
      const PlanResult& r = results[i];
      plan_.outputs.push_back({-1, r.write_to});
      if (r.write_to >= 0) continue;
      const PlanBuffer& owner = plan_.buffers[memory_of(plan_, r.buffer)];
      bool kept = owner.kind == BufferKind::Fold;
      bool lent = owner.kind == BufferKind::Temp && !owner.owned_by_step;
      bool as_it_is = !changes(owner) && !kept && !lent;
      plan_.outputs[i].buffer = as_it_is ? r.buffer : copied(r, static_cast<int>(i));
    }
    std::vector<std::pair<int, int>> writes;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].write_to < 0) continue;
      int to = buffer_of_[plan_.graph->inputs[results[i].write_to].value->id];
      int from = results[i].buffer;
      plan_.outputs[i].buffer = to;
      if (from == to) continue;
      // A source that another write-back changes first must be saved.
      if (changes(plan_.buffers[memory_of(plan_, from)])) {
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

  int copied(const PlanResult& r, int output) {
    PlanBuffer b;
    b.type = r.type;
    // Of a broadcast number, say: no copy can be stored where elements share their memory.
    if (!is_dense(b.type)) b.type.strides = graph::contiguous_strides(b.type.sizes);
    b.kind = BufferKind::Output;
    b.source = output;
    int fresh = add_buffer(b);
    copy(r.buffer, fresh);
    return fresh;
  }

  // ---- lifetimes and the arena ----

  void lifetimes() {
    for (size_t first = 0, end; first < plan_.steps.size(); first = end) {
      end = first + 1;  // the steps of a list run at once
      while (end < plan_.steps.size() && plan_.steps[first].list >= 0 &&
             plan_.steps[end].list == plan_.steps[first].list)
        ++end;
      for (size_t i = first; i < end; ++i)
        for (int b : plan_.steps[i].buffers) {
          touch(b, static_cast<int>(first));
          touch(b, static_cast<int>(end) - 1);
        }
    }
    // What is returned lives to the end.
    int last = static_cast<int>(plan_.steps.size()) - 1;
    for (const PlanOutput& o : plan_.outputs)
      if (last >= 0) touch(o.buffer, last);
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

  static bool lies_in_arena(const PlanBuffer& b) {
    if (b.kind != BufferKind::Temp || b.owned_by_step || b.first_step < 0 || b.over >= 0) return false;
    return !b.apart && !has_data_sizes(b);  // made when its size is known
  }
  const PlanBuffer& under(const PlanBuffer& b) const { return b.over < 0 ? b : under(plan_.buffers[b.over]); }
  /// What is made behind the first write that the caller can see would have to be there from then on.
  bool lies_apart(const PlanBuffer& b, int written) const {
    const PlanBuffer& memory = under(b);
    if (b.kind != BufferKind::Temp || b.owned_by_step) return false;
    return memory.owned_by_step || (memory.first_step < written &&
                                    options_.are_apart(estimate(span_bytes(memory.type)), b.type.device));
  }
  void place() {
    const int written = first_visible_write(plan_);
    for (PlanBuffer& b : plan_.buffers) b.apart = lies_apart(b, written);
    for (const PlanBuffer& b : plan_.buffers) {
      auto same = [&](const Arena& a) { return a.device == b.type.device; };
      if (lies_in_arena(b) && std::none_of(plan_.arenas.begin(), plan_.arenas.end(), same))
        plan_.arenas.push_back({b.type.device, 0});
    }
    for (Arena& arena : plan_.arenas) place_in(arena);
    for (PlanBuffer& b : plan_.buffers) b.arena_offset = under(b).arena_offset;
  }

  void place_in(Arena& arena) {
    std::vector<ArenaRequest> requests;
    std::vector<PlanBuffer*> which;
    for (PlanBuffer& b : plan_.buffers) {
      if (!lies_in_arena(b) || b.type.device != arena.device) continue;
      requests.push_back({span_bytes(b.type), b.first_step, b.last_step});
      which.push_back(&b);
    }
    const ArenaLayout layout = lay_out(requests);
    for (size_t i = 0; i < which.size(); ++i) which[i]->arena_offset = layout.offsets[i];
    arena.bytes = layout.bytes;
  }

  const PlanOptions& options_;
  PlanDraft draft_;
  Plan& plan_ = draft_.plan;
  Fusion fusion_;
  std::vector<int> buffer_of_;                            // by value id
  std::unordered_map<const Value*, int> parts_;           // results that lie in others' memory: their aliases
  std::vector<int> output_of_;                            // by value id: the output it is, or -1
  std::vector<std::optional<PlannedContraction>> calls_;  // by kernel: the contraction that ends in it
  std::vector<graph::DeviceKind> kinds_;                  // by kernel: of the device that it runs on
  std::vector<std::vector<char>> numbers_;                // by kernel: numbers_of its steps
  std::unordered_map<uint64_t, std::vector<int>> kernels_by_code_;
  std::map<std::pair<int, int>, int> packs_;  // weights and epilogue -> the packed weights
};

}  // namespace

Plan plan(std::unique_ptr<Graph> graph, const PlanOptions& options) {
  Planner planner(std::move(graph), options);
  planner.draft();
  return planner.finish();
}

std::optional<Plan> plan(graph::Shortened few, const PlanOptions& options) {
  Planner planner(std::move(few.graph), options), one_more(std::move(few.one_more), options);
  PlanDraft* drafts[2];
  in_parallel(2, [&](size_t i) { drafts[i] = &(i == 0 ? planner : one_more).draft(); });
  if (!put_back(*drafts[0], *drafts[1], few.repeats)) return std::nullopt;
  return planner.finish();
}

/// An operand of a kernel that is one number on the processor, where the kernel's device is given those.
static bool is_number(const Plan& plan, const Step& s, size_t i) {
  const graph::Type& type = plan.buffers[s.buffers[i]].type;
  return s.kind == StepKind::Kernel && i < static_cast<size_t>(s.operand_count) && type.rank() == 0 &&
         graph::facts_of(s.device).takes_numbers && graph::is_processor(type.device);
}

std::vector<char> numbers_of(const Plan& plan, const Step& s) {
  std::vector<char> numbers(s.buffers.size());
  bool any = false;
  for (size_t i = 0; i < numbers.size(); ++i) any |= numbers[i] = is_number(plan, s, i);
  return any ? numbers : std::vector<char>();
}

std::string out_of_reach(const Plan& plan, const Step& s) {
  if (s.kind != StepKind::Kernel) return "";
  for (size_t i = 0; i < s.buffers.size(); ++i) {
    const graph::Type& type = plan.buffers[s.buffers[i]].type;
    if (type.device != s.device && !is_number(plan, s, i))
      return "b" + std::to_string(s.buffers[i]) + " lies on " + graph::str(type.device) +
             ", and the kernel runs on " + graph::str(s.device);
  }
  return "";
}

int memory_of(const Plan& plan, int buffer) {
  while (plan.buffers[buffer].kind == BufferKind::Alias) buffer = plan.buffers[buffer].source;
  return buffer;
}

bool has_data_sizes(const PlanBuffer& b) {
  auto any = [](const Syms& list) { return std::any_of(list.begin(), list.end(), holds_data_size); };
  return any(b.type.sizes) || any(b.type.strides) || holds_data_size(b.offset);
}

}  // namespace bolt::loops
