// run/functional.cpp
#include "run/functional.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>

#include "device/device.h"
#include "graph/verify.h"
#include "record/convert.h"
#include "record/dropout.h"
#include "run/library.h"
#include "run/results.h"
#include "support/error.h"

namespace bolt::run {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;
using Tensors = std::vector<at::Tensor>;
using torch::jit::Stack;

at::Tensor call(const char* name, const char* overload, Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(&stack);
  return stack.at(0).toTensor();
}

c10::IValue scalar_of(const Node& n, const char* name) {
  const graph::Attr& a = n.attrs.find(name)->second;
  if (const auto* d = std::get_if<double>(&a)) return at::Scalar(*d);
  if (const auto* i = std::get_if<int64_t>(&a)) return at::Scalar(*i);
  if (const auto* b = std::get_if<bool>(&a)) return at::Scalar(*b);
  return at::Scalar(std::get<Syms>(a)[0].value());
}

int64_t dtype_of(const Node& n) { return static_cast<int64_t>(record::to_torch(n.out()->type.dtype)); }

std::vector<int64_t> sizes_of(const Node& n) { return to_numbers(n.out()->type.sizes); }

/// Operators whose name and operands are ATen's; the overload of those with two operands.
struct Alike {
  Op op;
  const char *name, *overload;
};
constexpr Alike kAlike[] = {
    {Op::mul, "aten::mul", "Tensor"},
    {Op::div, "aten::div", "Tensor"},
    {Op::floor_div, "aten::floor_divide", ""},
    {Op::remainder, "aten::remainder", "Tensor"},
    {Op::fmod, "aten::fmod", "Tensor"},
    {Op::pow, "aten::pow", "Tensor_Tensor"},
    {Op::copysign, "aten::copysign", "Tensor"},
    {Op::eq, "aten::eq", "Tensor"},
    {Op::ne, "aten::ne", "Tensor"},
    {Op::lt, "aten::lt", "Tensor"},
    {Op::le, "aten::le", "Tensor"},
    {Op::gt, "aten::gt", "Tensor"},
    {Op::ge, "aten::ge", "Tensor"},
    {Op::bitwise_and, "aten::bitwise_and", "Tensor"},
    {Op::bitwise_or, "aten::bitwise_or", "Tensor"},
    {Op::bitwise_xor, "aten::bitwise_xor", "Tensor"},
    {Op::shift_left, "aten::bitwise_left_shift", "Tensor"},
    {Op::shift_right, "aten::bitwise_right_shift", "Tensor"},
    {Op::where, "aten::where", "self"},
};

at::Tensor pointwise(const Node& n, const Tensors& in) {
  for (const Alike& row : kAlike)
    if (row.op == n.op) return call(row.name, row.overload, Stack(in.begin(), in.end()));
  auto real = [&](const char* name) { return c10::IValue(at::Scalar(n.attr<double>(name))); };
  switch (n.op) {
    case Op::cast: return in[0].to(record::to_torch(n.attr<DType>("dtype")));
    case Op::add: return call("aten::add", "Tensor", {in[0], in[1], 1});
    case Op::from_bits: return in[0].view(at::kDouble);
    case Op::random: return record::random_numbers(in[0], in[1], in[2], in[3], in[4]);
    case Op::sub: return call("aten::sub", "Tensor", {in[0], in[1], 1});
    case Op::trunc_div: return call("aten::div", "Tensor_mode", {in[0], in[1], "trunc"});
    case Op::fma: return call("aten::add", "Tensor", {call("aten::mul", "Tensor", {in[0], in[1]}), in[2], 1});
    case Op::gelu: return call("aten::gelu", "", {in[0], n.attr<std::string>("approximate")});
    case Op::hardtanh: return call("aten::hardtanh", "", {in[0], real("min"), real("max")});
    case Op::leaky_relu: return call("aten::leaky_relu", "", {in[0], real("slope")});
    case Op::elu: return call("aten::elu", "", {in[0], real("alpha"), real("scale"), real("input_scale")});
    case Op::softplus: return call("aten::softplus", "", {in[0], real("beta"), real("threshold")});
    default:  // the others are called in ATen what they are called here
      return call(("aten::" + std::string(graph::op_info(n.op).name)).c_str(), "",
                  Stack(in.begin(), in.end()));
  }
}

at::Tensor create(const Node& n) {
  const c10::IValue none, device = device::to_torch(n.out()->type.device);
  if (n.op == Op::iota) {
    at::Tensor steps =
        call("aten::arange", "", {at::Scalar(sizes_of(n)[0]), dtype_of(n), none, device, none});
    return call("aten::add", "Scalar",
                {call("aten::mul", "Scalar", {steps, scalar_of(n, "step")}), scalar_of(n, "start"), 1})
        .to(record::to_torch(n.out()->type.dtype));
  }
  return call("aten::full", "", {sizes_of(n), scalar_of(n, "value"), dtype_of(n), none, device, none});
}

at::Tensor view(const Node& n, const at::Tensor& x) {
  switch (n.op) {
    case Op::reshape: return x.reshape(sizes_of(n));
    case Op::permute: return x.permute(n.ints("dims"));
    case Op::expand: return x.expand(sizes_of(n));
    case Op::flip: return call("aten::flip", "", {x, n.ints("dims")});
    case Op::keep: return x.clone();
    case Op::slice: {
      const int64_t start = n.sym("start").value(), step = n.attr<int64_t>("step");
      return x.slice(n.attr<int64_t>("dim"), start, start + (n.sym("length").value() - 1) * step + 1, step);
    }
    default: return find_library(n).run(n, {x})[0];
  }
}

at::Tensor reduce(const Node& n, const at::Tensor& x) {
  const std::vector<int64_t> dims = n.ints("dims");
  const bool keep = n.attr<bool>("keepdim");
  const std::string name = "aten::" + std::string(graph::op_info(n.op).name);
  switch (n.op) {
    case Op::sum: return call("aten::sum", "dim_IntList", {x, dims, keep, dtype_of(n)});
    case Op::amax:
    case Op::amin: return call(name.c_str(), "", {x, dims, keep});
    case Op::any:
    case Op::all: return call(name.c_str(), "dims", {x, dims, keep});
    case Op::prod: {
      at::Tensor out = x;
      for (size_t i = dims.size(); i-- > 0;)
        out = call("aten::prod", "dim_int", {out, dims[i], keep, dtype_of(n)});
      return out;
    }
    default:  // argmax, argmin: over one dimension, or all of them in order
      return call(name.c_str(), "",
                  {dims.size() == 1 ? x : x.reshape({-1}),
                   dims.size() == 1 ? c10::IValue(dims[0]) : c10::IValue(), dims.size() == 1 && keep})
          .reshape(sizes_of(n));
  }
}

at::Tensor index(const Node& n, const Tensors& in) {
  switch (n.op) {
    case Op::pad: {
      const std::vector<int64_t> low = n.ints("low"), high = n.ints("high");
      std::vector<int64_t> both;  // of the last dimension first
      for (size_t d = low.size(); d-- > 0;) both.insert(both.end(), {low[d], high[d]});
      return call("aten::constant_pad_nd", "", {in[0], both, scalar_of(n, "value")});
    }
    case Op::slice_scatter: {
      const int64_t dim = n.attr<int64_t>("dim"), start = n.sym("start").value(),
                    step = n.attr<int64_t>("step");
      return call("aten::slice_scatter", "",
                  {in[0], in[1], dim, start, start + (in[1].size(dim) - 1) * step + 1, step});
    }
    case Op::upsample_nearest: {
      std::vector<int64_t> sizes = sizes_of(n);
      sizes.erase(sizes.begin(), sizes.begin() + 2);
      Stack stack{in[0], sizes};
      for (size_t i = 0; i < sizes.size(); ++i)
        stack.push_back(n.has_attr("scales")
                            ? c10::IValue(1 / n.attr<std::vector<double>>("scales")[i])
                            : c10::IValue());  // ATen's are of the result, ours of the source
      return call(("aten::upsample_nearest" + std::to_string(sizes.size()) + "d").c_str(), "", stack);
    }
    default: return find_library(n).run(n, in)[0];
  }
}

at::Tensor scan(const Node& n, const at::Tensor& x) {
  const std::string& op = n.attr<std::string>("op");
  const int64_t dim = n.attr<int64_t>("dim");
  if (op == "sum") return call("aten::cumsum", "", {x, dim, dtype_of(n)});
  if (op == "prod") return call("aten::cumprod", "", {x, dim, dtype_of(n)});
  return call(op == "max"   ? "aten::cummax"
              : op == "min" ? "aten::cummin"
                            : "aten::logcumsumexp",
              "", {x, dim});
}

at::Tensor scatter(const Node& n, const Tensors& in) {
  const std::string& op = n.attr<std::string>("op");
  const int64_t dim = n.attr<int64_t>("dim");
  const at::Tensor index = in[1].to(at::kLong);
  if (op == "last") return call("aten::scatter", "src", {in[0], dim, index, in[2]});
  const char* const name = op == "max" ? "amax" : op == "min" ? "amin" : op.c_str();
  return call("aten::scatter_reduce", "two", {in[0], dim, index, in[2], name, true});
}

Tensors run_node(const Node& n, const Tensors& in, const std::vector<lower::ExternCall>& calls,
                 record::CallGenerators& generators) {
  switch (graph::op_info(n.op).kind) {
    case OpKind::Pointwise: return {pointwise(n, in)};
    case OpKind::Create: return {create(n)};
    case OpKind::View: return {view(n, in[0])};
    case OpKind::Reduce: return {reduce(n, in[0])};
    case OpKind::Index: return {index(n, in)};
    case OpKind::Scan: return {scan(n, in[0])};
    case OpKind::Scatter: return {scatter(n, in)};
    case OpKind::Extern: {
      const lower::ExternCall& call = calls[n.attr<int64_t>("call")];
      std::vector<int64_t> numbers;
      for (const record::Arg& arg : call.args)
        for (Sym s : arg.syms) numbers.push_back(s.value());
      return run_extern(call, in, numbers, generators);
    }
    case OpKind::Composite:
    case OpKind::Library: return find_library(n).run(n, in);
  }
  return {};
}

/// The sizes are those of the call.
std::vector<Result> results_of(const lower::Lowered& lowered) {
  auto known = [](const Syms& sizes) {
    std::vector<int64_t> numbers;
    for (Sym size : sizes) numbers.push_back(size.value());
    return numbers;
  };
  std::vector<Result> results;
  for (const auto* list : {&lowered.outputs, &lowered.reshaped})
    for (const lower::TensorOut& o : *list)
      results.push_back({known(o.sizes), known(o.strides), o.offset.value()});
  return results;
}

/// The values of the graph's outputs.
Tensors run_graph(const lower::Lowered& lowered, const Attempts& attempt, const Tensors& inputs,
                  record::CallGenerators generators) {
  const graph::Graph& g = *lowered.graph;
  std::unordered_map<const graph::Value*, at::Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[g.inputs[i].value.get()] = inputs[i];
  auto nodes = [&] {
    for (const auto& node : g.nodes) {
      Tensors operands;
      for (const graph::Value* v : node->operands) operands.push_back(values.at(v));
      Tensors results = run_node(*node, operands, lowered.calls, generators);
      for (size_t i = 0; i < results.size(); ++i) values[node->outputs.at(i).get()] = results[i];
    }
  };
  attempt(generators, nodes, [] { return true; });
  // Results that are views of inputs are made of what is written, and after it is, so all values are read
  // before.
  Tensors out;
  for (const auto& o : g.outputs)
    out.push_back(o.write_to < 0 ? values.at(o.value) : values.at(o.value).clone());
  return out;
}

Tensors run(const lower::Lowered& lowered, size_t wanted, const Attempts& attempt, const Tensors& tape_inputs,
            record::CallGenerators generators) {
  const bool grad_mode = c10::GradMode::is_enabled();
  at::NoGradGuard no_grad;
  const Tensors inputs = graph_inputs(lowered, tape_inputs);
  const Tensors values = run_graph(lowered, attempt, inputs, std::move(generators));
  const std::vector<Result> results = results_of(lowered);
  Tensors out(lowered.outputs.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (lowered.outputs[i].kind != lower::TensorOut::Kind::Fresh) continue;
    const at::Tensor& value = values[lowered.outputs[i].index];
    out[i] = at::empty_strided(results[i].sizes, results[i].strides, value.options()).copy_(value);
  }
  const auto& outputs = lowered.graph->outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (int to = outputs[i].write_to; to >= 0) {
      const at::AutoDispatchBelowADInplaceOrView is_announced;
      inputs[to].copy_(values[i]);
      announce_write(lowered, inputs, to);
    }
  announce_reshaped(lowered, tape_inputs);
  give_views(lowered, results, tape_inputs, grad_mode, out);
  reshape(lowered, results, tape_inputs);
  out.resize(wanted);
  return out;
}

/// What a region runs; `wanted` of lowered's outputs are results.
Foreign::Function run_functional(lower::Lowered lowered, size_t wanted, Attempts attempt,
                                 SymbolTable symbols) {
  using Known = std::pair<std::vector<int64_t>, std::shared_ptr<const lower::Lowered>>;
  struct State {
    lower::Lowered general;
    size_t wanted;
    Attempts attempt;
    SymbolTable symbols;
    std::deque<Known> known;  // last used first
  };
  auto state =
      std::make_shared<State>(State{std::move(lowered), wanted, std::move(attempt), std::move(symbols), {}});
  return [state](const Tensors& inputs, const std::vector<int64_t>& values, auto generators) {
    constexpr size_t kMostKnown = 64;
    if (state->symbols.empty())
      return run(state->general, state->wanted, state->attempt, inputs, std::move(generators));
    auto& known = state->known;
    auto at =
        std::find_if(known.begin(), known.end(), [&](const Known& each) { return each.first == values; });
    if (at == known.end()) {
      auto value = [&](Sym s) {
        for (size_t i = 0; i < values.size(); ++i)
          if (state->symbols[i].symbol == s) return Sym(values[i]);
        return s;
      };
      auto one = std::make_shared<lower::Lowered>(
          lower::substituted(*state->general.graph, lower::without_graph(state->general), value));
      if (known.size() >= kMostKnown) known.pop_back();
      known.emplace_front(values, std::move(one));
    } else if (at != known.begin()) {
      std::rotate(known.begin(), at, at + 1);
    }
    const std::shared_ptr<const lower::Lowered> held = known.front().second;
    return run(*held, state->wanted, state->attempt, inputs, std::move(generators));
  };
}

}  // namespace

std::shared_ptr<Foreign> make_functional(lower::Lowered lowered, Recorded& recorded, SymbolTable symbols) {
  graph::verify(*lowered.graph);
  std::string text = graph::print(*lowered.graph);
  auto function =
      run_functional(std::move(lowered), recorded.wanted.size(), Attempts(recorded.tape), symbols);
  auto region = std::make_shared<Foreign>(std::move(recorded.tape), std::move(recorded.wanted),
                                          std::move(function), std::move(symbols));
  region->facts.functional_text = std::move(text);
  return region;
}

}  // namespace bolt::run
