// loops/plan_parser.cpp
// Text -> Plan: reads what plan_text.cpp prints, where the form is shown.
//
// Steps point to nodes of a graph, and a plan's text has no graph: each call becomes a node of its own, whose
// operands are values that stand for its buffers. Weights that were packed are given to it as they were
// before. Kernels stand at the end, so their names are looked up when all is read.
#include <map>
#include <unordered_map>

#include "graph/text.h"
#include "loops/kernel_text.h"
#include "loops/plan.h"

namespace bolt::loops {
namespace {

using graph::Op;
using graph::Value;

class PlanParser {
 public:
  explicit PlanParser(std::string_view text) : in_(text) { p_.graph = std::make_unique<graph::Graph>(); }

  Plan run() {
    try {
      header();
      while (!in_.sees("fold") && !in_.sees("run")) buffer();
      check_references();
      if (in_.accept("fold")) {
        in_.expect(":");
        while (!in_.sees("run")) step(p_.fold_steps);
      }
      in_.expect("run");
      in_.expect(":");
      while (number_of_step()) step(p_.steps);
      while (outputs()) continue;
      while (!in_.at_end()) kernel();
      find_kernels();
      find_calls_of_packs();
    } catch (const Error& e) {
      in_.rethrow(e);
    }
    p_.graph->renumber();
    return std::move(p_);
  }

 private:
  // ---- the first line ----

  void header() {
    in_.expect("plan");
    p_.graph->name = in_.name_after("@");
    if (!in_.accept(":")) return;
    do fact();
    while (in_.accept(","));
  }
  /// 3 kernels (of 14) | arena cuda:0 4096 bytes | 6 layers put back
  void fact() {
    if (in_.accept("arena")) {
      const graph::Device device = graph::read_device(in_);
      p_.arenas.push_back({device, in_.sym()});
      return in_.expect("bytes");
    }
    const int count = static_cast<int>(in_.integer());
    if (in_.accept("layers")) {
      p_.put_back = count;
      in_.expect("put");
      return in_.expect("back");
    }
    in_.expect("kernels");
    in_.expect("(");
    in_.expect("of");
    p_.kernels_before_fusion = static_cast<int>(in_.integer());
    in_.expect(")");
  }

  // ---- buffers ----

  int buffer_count() const { return static_cast<int>(p_.buffers.size()); }
  int known_buffer() {
    const int b = in_.number_after("b");
    if (b >= buffer_count()) in_.fail("there is no buffer b" + std::to_string(b) + " before");
    return b;
  }

  void buffer() {
    if (in_.number_after("b") != buffer_count()) in_.fail("buffers are numbered in order; got another");
    in_.expect("=");
    PlanBuffer b;
    place(b);
    in_.expect(":");
    b.type = graph::read_type(in_);
    if (b.kind == BufferKind::Input) input(b);
    if (in_.accept("steps")) {
      b.first_step = static_cast<int>(in_.integer());
      in_.expect("..");
      b.last_step = static_cast<int>(in_.integer());
    }
    p_.buffers.push_back(std::move(b));
  }

  void place(PlanBuffer& b) {
    if (in_.accept("input")) {
      b.kind = BufferKind::Input;
      b.source = static_cast<int>(in_.integer());
    } else if (in_.accept("output")) {
      b.kind = BufferKind::Output;
      b.source = static_cast<int>(in_.integer());
    } else if (in_.accept("fold")) {
      b.kind = BufferKind::Fold;
    } else if (in_.accept("alias")) {
      b.kind = BufferKind::Alias;
      b.source = in_.number_after("b");
      in_.expect("+");
      b.offset = in_.sym();
    } else {
      in_.expect("temp");
      b.apart = in_.accept("apart");
      if (in_.accept("@")) b.arena_offset = in_.sym();
    }
    if (in_.accept("(")) {
      for (const char* word : {"made", "by", "its", "step", ")"}) in_.expect(word);
      b.owned_by_step = true;
    }
    if (in_.accept("over")) b.over = in_.number_after("b");
  }

  /// An alias may stand before what it is a view of, but leads to some memory.
  void check_references() {
    for (int i = 0; i < buffer_count(); ++i) {
      int b = i;
      for (int links = 0; b >= 0 && b < buffer_count() && links <= buffer_count(); ++links) {
        const PlanBuffer& buffer = p_.buffers[b];
        b = buffer.kind == BufferKind::Alias ? buffer.source : buffer.over;
      }
      if (b >= 0)
        in_.fail("b" + std::to_string(i) + " lies in no memory: there is no b" + std::to_string(b) +
                 ", or it leads back;");
    }
  }

  void input(const PlanBuffer& b) {
    if (b.source != static_cast<int>(p_.graph->inputs.size()))
      in_.fail("inputs are numbered in order; got another");
    const graph::InputKind kind = graph::read_kind(in_);
    values_[buffer_count()] = p_.graph->add_input(b.type, kind, in_.sees("\"") ? in_.string() : "");
  }

  // ---- steps ----

  /// `3:`. The steps of `run:` have numbers, so that no kernel's own text is taken for one.
  bool number_of_step() {
    const std::string_view before = in_.place();
    const std::string_view w = in_.word();
    if (!w.empty() && w.find_first_not_of("0123456789") == w.npos && in_.accept(":")) return true;
    in_.go_to(before);
    return false;
  }

  void step(std::vector<Step>& list) {
    Step s{};
    s.device = graph::read_device(in_);
    const std::string_view kind = in_.name();
    if (kind == "copy")
      copy(s);
    else if (kind == "kernel")
      s.kind = StepKind::Kernel, kernel_name(list), lists(s), s.schedule = schedule(),
      s.list = number_of_list();
    else if (kind == "pack")
      s.kind = StepKind::Pack, in_.expect("for"), kernel_name(list), lists(s);
    else if (kind == "contraction")
      contraction(s, list);
    else if (kind == "library")
      s.kind = StepKind::Library, call(s, graph::read_op(in_));
    else if (kind == "extern")
      s.kind = StepKind::Extern, call(s, Op::extern_call);
    else
      in_.fail("no kind of step '" + std::string(kind) + "'");
    s.loc = graph::read_loc(in_);
    if (s.kind == StepKind::Pack && s.buffers.size() == 2) unpacked_[s.buffers[1]] = s.buffers[0];
    list.push_back(std::move(s));
  }

  int schedule() {
    if (!in_.accept("by")) return 0;
    in_.expect("schedule");
    return static_cast<int>(in_.integer());
  }

  int number_of_list() {
    if (!in_.accept("in")) return -1;
    in_.expect("list");
    return static_cast<int>(in_.integer());
  }

  void copy(Step& s) {
    s.kind = StepKind::Copy;
    s.buffers.push_back(known_buffer());
    in_.expect("->");
    s.buffers.push_back(known_buffer());
    s.operand_count = 1;
  }

  void contraction(Step& s, const std::vector<Step>& list) {
    s.kind = StepKind::Contraction;
    const Op op = graph::read_op(in_);
    in_.expect("with");
    kernel_name(list);
    call(s, op);
  }

  /// (b0, b2) -> (b3)
  void lists(Step& s) {
    list(s);
    s.operand_count = static_cast<int>(s.buffers.size());
    in_.expect("->");
    list(s);
  }
  void list(Step& s) {
    in_.expect("(");
    if (in_.accept(")")) return;
    do s.buffers.push_back(known_buffer());
    while (in_.accept(","));
    in_.expect(")");
  }

  void call(Step& s, Op op) {
    const std::string_view start = in_.place();
    lists(s);
    const graph::Attrs attrs = graph::read_attrs(in_, op);
    const std::string_view end = in_.place();
    in_.go_to(start);  // where faults of the whole call are reported
    std::vector<Value*> operands;
    for (int i = 0; i < s.operand_count; ++i) operands.push_back(value_of(s.buffers[i]));
    std::vector<graph::Type> results;
    for (size_t i = operands.size(); i < s.buffers.size(); ++i) results.push_back(type_of(s.buffers[i]));
    if (op == Op::extern_call) {
      s.node = p_.graph->make_typed(op, std::move(operands), attrs, std::move(results));
      s.call = static_cast<int>(s.node->attr<int64_t>("call"));
    } else {
      s.node = p_.graph->make(op, std::move(operands), attrs);
      if (s.kind == StepKind::Library) check_result(s.node->out()->type, results);
    }
    in_.go_to(end);
  }
  void check_result(const graph::Type& type, const std::vector<graph::Type>& buffers) {
    if (buffers.size() != 1) in_.fail("this operation has one result");
    if (type.sizes != buffers[0].sizes || type.dtype != buffers[0].dtype)
      in_.fail("the result is " + type.str() + ", not " + buffers[0].str());
  }

  const graph::Type& type_of(int buffer) const { return p_.buffers[buffer].type; }
  Value* value_of(int buffer) {
    if (auto packed = unpacked_.find(buffer); packed != unpacked_.end()) buffer = packed->second;
    Value*& v = values_[buffer];
    if (!v) v = p_.graph->add_input(type_of(buffer), graph::InputKind::Arg, "b" + std::to_string(buffer));
    return v;
  }

  // ---- results ----

  bool outputs() {
    const bool writes = in_.accept("write");
    if (!writes && !in_.accept("return")) return false;
    do {
      const int b = known_buffer();
      const PlanBuffer& buffer = p_.buffers[b];
      if (writes && buffer.kind != BufferKind::Input) in_.fail("write to something that is no input");
      p_.outputs.push_back({b, writes ? buffer.source : -1});
    } while (!writes && in_.accept(","));
    return true;
  }

  // ---- kernels ----

  void kernel_name(const std::vector<Step>& list) {
    named_.push_back({&list == &p_.fold_steps, list.size(), in_.name_after("@"), in_.place()});
  }

  void kernel() {
    const std::string_view start = in_.place();
    Kernel k = read_kernel(in_);
    const std::string_view end = in_.place();
    in_.go_to(start);
    verify(k);
    if (!kernels_.emplace(k.name, static_cast<int>(p_.kernels.size())).second)
      in_.fail("there is a kernel @" + k.name + " before");
    p_.kernels.push_back(std::move(k));
    in_.go_to(end);
  }

  void find_kernels() {
    const std::string_view end = in_.place();
    for (const Named& n : named_) {
      Step& s = (n.fold ? p_.fold_steps : p_.steps)[n.step];
      in_.go_to(n.place);
      const auto known = kernels_.find(n.kernel);
      if (known == kernels_.end()) in_.fail("there is no kernel @" + std::string(n.kernel) + ";");
      (s.kind == StepKind::Kernel ? s.kernel : s.epilogue) = known->second;
      check_buffers(s, p_.kernels[known->second]);
    }
    in_.go_to(end);
  }
  /// A kernel's buffers; behind a contraction's operands those of its epilogue.
  void check_buffers(const Step& s, const Kernel& k) {
    const auto reads = static_cast<size_t>(s.operand_count);
    const size_t given = s.kind == StepKind::Contraction ? s.buffers.size() - reads : s.buffers.size();
    if (s.kind == StepKind::Pack ? s.buffers.size() != 2 : given != k.buffers.size())
      in_.fail("@" + k.name + " is given " + std::to_string(given) + " buffers and has " +
               std::to_string(k.buffers.size()) + ";");
    if (const std::string wrong = out_of_reach(p_, s); !wrong.empty()) in_.fail(wrong + ";");
  }

  /// Weights are packed for a contraction, which says how.
  void find_calls_of_packs() {
    std::map<int, const graph::Node*> calls;
    for (const auto* list : {&p_.fold_steps, &p_.steps})
      for (const Step& s : *list)
        if (s.kind == StepKind::Contraction) calls.try_emplace(s.epilogue, s.node);
    for (Step& s : p_.fold_steps) {
      if (s.kind != StepKind::Pack) continue;
      s.node = calls[s.epilogue];
      if (!s.node) in_.fail("no contraction ends in the kernel that weights are packed for");
    }
  }

  struct Named {
    bool fold;  ///< a fold step
    size_t step;
    std::string_view kernel, place;
  };

  TextReader in_;
  Plan p_;
  std::unordered_map<int, Value*> values_;  // by buffer
  std::unordered_map<int, int> unpacked_;   // packed weights -> the weights
  std::vector<Named> named_;                // steps that name a kernel
  std::map<std::string, int, std::less<>> kernels_;
};

}  // namespace

Plan parse_plan(std::string_view text) { return PlanParser(text).run(); }

}  // namespace bolt::loops
