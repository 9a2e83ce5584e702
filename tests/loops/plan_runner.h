// tests/loops/plan_runner.h
// Runs a Plan on host memory: kernels by their reference execution, calls by the graph's. Temporaries lie in
// one arena filled with rubbish, so that a wrong lifetime or a missing store shows in the results; every
// allocation ends in a zone that nobody may write. tests/fuzz runs machine code in place of the references.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "loops/plan.h"
#include "support/error.h"
#include "tests/reference/graph.h"
#include "tests/reference/kernel.h"

namespace bolt::loops::testing {

using graph::HostTensor;

/// The plan by way of its text, which says all that running it and making its code need.
inline Plan through_text(const Plan& p) {
  const std::string text = print(p);
  Plan read = parse_plan(text);
  BOLT_CHECK(print(read) == text, "the plan is read back as\n", print(read), "and was\n", text);
  return read;
}

/// Of the symbols' sizes. Numbers are multiples of 1/64 up to 2, which are exact in every floating type, or
/// of `scale` times that; integers are below `ints`.
inline std::vector<HostTensor> random_inputs(const graph::Graph& g,
                                             const std::map<std::string, int64_t>& symbols = {},
                                             int64_t ints = 3, double scale = 1) {
  std::mt19937 rng(7);
  std::vector<HostTensor> out;
  for (const graph::Input& in : g.inputs) {
    std::vector<int64_t> sizes;
    for (Sym s : in.value->type.sizes)
      sizes.push_back(evaluate(s, [&](const SymNode& n) { return symbols.at(n.name); }));
    HostTensor t = graph::make_tensor(in.value->type.dtype, sizes);
    for (auto& cell : t.cells) {
      if (t.is_real())
        cell.real = (static_cast<double>(rng() % 256) / 64 - 2) * scale;
      else
        cell.whole = static_cast<int64_t>(rng() % static_cast<uint64_t>(t.dtype == DType::Bool ? 2 : ints));
    }
    out.push_back(std::move(t));
  }
  return out;
}

class PlanRunner {
 public:
  virtual ~PlanRunner() = default;
  PlanRunner(const Plan& plan, const std::vector<HostTensor>& inputs) : inputs_(inputs), p_(plan) {
    for (size_t i = 0; i < inputs.size(); ++i)
      for (size_t d = 0; d < inputs[i].sizes.size(); ++d) {
        Sym s = plan.graph->inputs[i].value->type.sizes[d];
        if (!s.is_const() && s.node()->op == SymOp::Symbol) sizes_[s.node()->name] = inputs[i].sizes[d];
      }
  }

  /// One tensor per graph output; a write-back's is what the input holds afterwards.
  std::vector<HostTensor> run() {
    allocate();
    for (const Step& s : p_.fold_steps) step(s);
    for (const Step& s : p_.steps) step(s);
    std::vector<HostTensor> out;
    for (const PlanOutput& o : p_.outputs) out.push_back(load(o.buffer));
    for (auto [zone, from] : zones_)
      for (int64_t i = from; i < from + kZone; ++i)
        BOLT_CHECK(zone[i] == kRubbish, "a kernel wrote beside its memory");
    return out;
  }

 protected:
  int64_t value(Sym s) const {
    return evaluate(s, [&](const SymNode& n) { return sizes_.at(n.name); });
  }
  std::vector<int64_t> values(const Syms& xs) const {
    std::vector<int64_t> out;
    for (Sym s : xs) out.push_back(value(s));
    return out;
  }

  /// Aligned as the program's own memory, with a zone on either side.
  char* rubbish(int64_t bytes) {
    auto all = static_cast<size_t>(bytes + 3 * kZone);
    memory_.push_back(std::make_unique<char[]>(all));
    std::memset(memory_.back().get(), kRubbish, all);
    char* start = memory_.back().get() + kZone;
    start += (kZone - reinterpret_cast<uintptr_t>(start) % kZone) % kZone;
    zones_.emplace_back(start, -kZone);
    zones_.emplace_back(start, bytes);
    return start;
  }

 private:
  void allocate() {
    std::vector<char*> arenas;
    for (const Arena& a : p_.arenas) arenas.push_back(rubbish(value(a.bytes)));
    auto arena_of = [&](const graph::Device& device) {
      size_t i = 0;
      while (p_.arenas.at(i).device != device) ++i;
      return arenas[i];
    };
    for (const PlanBuffer& b : p_.buffers) {
      std::vector<int64_t> sizes = values(b.type.sizes), strides = values(b.type.strides);
      int64_t span = 1;
      for (size_t i = 0; i < sizes.size(); ++i) span += (sizes[i] - 1) * strides[i];
      for (int64_t n : sizes)
        if (n == 0) span = 0;
      int64_t bytes = span * dtype_bytes(b.type.dtype);
      for (size_t i = 0; i < sizes.size(); ++i)
        BOLT_CHECK(b.kind != BufferKind::Output || sizes[i] < 2 || strides[i] > 0, "an output of broadcasts");
      if (b.kind == BufferKind::Alias) {
        base_.push_back(base_[b.source] + value(b.offset) * dtype_bytes(b.type.dtype));
      } else if (b.apart && b.over >= 0) {
        base_.push_back(base_.at(b.over));
      } else if (b.kind == BufferKind::Temp && !b.owned_by_step && !b.apart) {
        base_.push_back(b.first_step < 0 ? nullptr : arena_of(b.type.device) + value(b.arena_offset));
      } else {
        base_.push_back(rubbish(bytes));
      }
      if (b.kind == BufferKind::Input) store_tensor(inputs_[b.source], strides, base_.back());
    }
  }

  HostTensor load(int buffer) const {
    const graph::Type& t = p_.buffers[buffer].type;
    return graph::load_tensor(t.dtype, values(t.sizes), values(t.strides), base_[buffer]);
  }
  void store(int buffer, const HostTensor& x) {
    graph::store_tensor(x, values(p_.buffers[buffer].type.strides), base_[buffer]);
  }

  void step(const Step& s) {
    switch (s.kind) {
      case StepKind::Kernel: return kernel(s);
      case StepKind::Copy: return store(s.buffers[1], load(s.buffers[0]));
      case StepKind::Contraction: return contraction(s);
      case StepKind::Library: return call(s);
      case StepKind::Pack: return pack(s);
      case StepKind::Extern: BOLT_CHECK(false, "an extern cannot be run here");
    }
  }

  virtual void kernel(const Step& s) {
    const Kernel& k = p_.kernels[s.kernel];
    verify(k);
    std::vector<void*> bases;
    for (int b : s.buffers) bases.push_back(base_[b]);
    int64_t report = 0;
    bases.push_back(&report);
    std::vector<int64_t> syms = values(k.symbols);
    run_reference(k, bases.data(), syms.data());
    BOLT_CHECK(!report, "kernel @", k.name, " met an index out of range");
  }

  /// Here the packed form is the row-major one.
  virtual void pack(const Step& s) {
    HostTensor weights = load(s.buffers[0]);
    graph::store_tensor(weights, dense_strides(weights.sizes), base_[s.buffers[1]]);
  }
  virtual void contraction(const Step& s) { call(s); }
  static std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> dense(sizes.size(), 1);
    for (size_t i = dense.size(); i-- > 1;) dense[i - 1] = dense[i] * sizes[i];
    return dense;
  }
  HostTensor operand(const Step& s, int i) const {
    const bool packed = s.kind == StepKind::Contraction && i == 1 &&
                        p_.buffers[s.buffers[i]].type.sizes != s.node->operands[1]->type.sizes;
    if (!packed) return load(s.buffers[i]);
    std::vector<int64_t> sizes = values(s.node->operands[1]->type.sizes);
    return graph::load_tensor(s.node->operands[1]->type.dtype, sizes, dense_strides(sizes),
                              base_[s.buffers[i]]);
  }

  /// A graph of the one node.
  void call(const Step& s) {
    graph::Graph g;
    std::vector<graph::Value*> operands;
    std::vector<HostTensor> args;
    for (int i = 0; i < s.operand_count; ++i) {
      args.push_back(operand(s, i));
      graph::Type t{args.back().dtype, {}, {}, {}};
      for (int64_t n : args.back().sizes) t.sizes.push_back(n);
      t.strides = graph::contiguous_strides(t.sizes);
      operands.push_back(g.add_input(t, graph::InputKind::Arg));
    }
    graph::Node* n = g.make(s.node->op, operands, s.node->attrs);
    g.outputs.push_back({n->out(), -1});
    g.renumber();
    HostTensor result = graph::run_reference(g, args)[0];
    if (s.epilogue < 0) return store(s.buffers[s.operand_count], result);
    finish(s, result);
  }

  /// The epilogue on a stored result: `acc` becomes a load of a row-major copy of it.
  void finish(const Step& s, const HostTensor& result) {
    Kernel k = p_.kernels[s.epilogue];
    verify(k);
    Sym at = 0, stride = 1;
    for (size_t i = k.dims.size(); i-- > 0;) {
      at += Kernel::dim(static_cast<int>(i)) * stride;
      stride *= k.dims[i].size;
    }
    // Rows in order, the column last: a convolution's channels move behind the pixels.
    HostTensor acc = result;
    if (s.node->op == graph::Op::conv) acc = channels_last(result);
    std::vector<int64_t> dense = dense_strides(acc.sizes);
    std::vector<void*> bases;
    for (size_t i = s.operand_count; i < s.buffers.size(); ++i) bases.push_back(base_[s.buffers[i]]);
    for (Expr& e : k.exprs) {
      if (e.kind != ExprKind::Acc) continue;
      e.kind = ExprKind::Load;
      e.buffer = static_cast<int>(k.buffers.size());
      e.index = at;
    }
    k.buffers.push_back({DType::F32, BufferRole::In, "acc"});
    acc.dtype = DType::F32;
    char* copy = rubbish(acc.numel() * 4);
    graph::store_tensor(acc, dense, copy);
    bases.push_back(copy);
    std::vector<int64_t> syms = values(k.symbols);
    run_reference(k, bases.data(), syms.data());
  }
  static HostTensor channels_last(const HostTensor& x) {
    int64_t pixels = 1, channels = x.sizes[1];
    for (size_t i = 2; i < x.sizes.size(); ++i) pixels *= x.sizes[i];
    HostTensor out = graph::make_tensor(x.dtype, {x.sizes[0], pixels, channels});
    for (int64_t n = 0; n < x.sizes[0]; ++n)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t p = 0; p < pixels; ++p)
          out.cells[(n * pixels + p) * channels + c] = x.cells[(n * channels + c) * pixels + p];
    return out;
  }

  static constexpr int64_t kZone = 64;
  static constexpr char kRubbish = 0x7b;
  const std::vector<HostTensor>& inputs_;
  std::map<std::string, int64_t> sizes_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<std::pair<const char*, int64_t>> zones_;  // a base and where from it kZone bytes begin

 protected:
  const Plan& p_;
  std::vector<char*> base_;  // by buffer
};

}  // namespace bolt::loops::testing
