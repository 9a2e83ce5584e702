// tests/loops/put_back_test.cpp
// Graphs of equal layers: their plan is made from a few layers (graph/repeats.h, loops/put_back.h) and
// computes what the graph computes, with as many steps as the plan of the whole graph has.
#include "loops/put_back.h"

#include <gtest/gtest.h>

#include <random>

#include "graph/passes/passes.h"
#include "graph/verify.h"
#include "plan_runner.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::HostTensor;

/// A graph in pieces. {i} is a layer's number, {j} and {k} are the next ones; behind the layers their count.
struct Layers {
  std::string inputs, input, head, layer, tail, outputs, output;
  std::string every_second = "";  // takes the place of `layer`
};

std::string numbered(std::string text, int i) {
  for (auto [mark, n] : {std::pair("{i}", i), std::pair("{j}", i + 1), std::pair("{k}", i + 2)})
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark))
      text.replace(at, 3, std::to_string(n));
  return text;
}

std::string written(const Layers& l, int count) {
  std::string inputs = l.inputs, body = l.head, outputs = l.outputs;
  for (int i = 0; i < count; ++i) {
    inputs += l.input.empty() ? "" : ", " + numbered(l.input, i);
    body += numbered(i % 2 && !l.every_second.empty() ? l.every_second : l.layer, i);
    outputs += l.output.empty() ? "" : numbered(l.output, i);
  }
  return "graph @layers(" + inputs + ") {\n" + body + numbered(l.tail, count) + numbered(outputs, count) +
         "}\n";
}

PlanOptions with_epilogues() {
  PlanOptions options;
  options.generates = [](const Call& call) {
    return call.constant[1] ? std::optional(call.operands[1].numel().value()) : std::nullopt;
  };
  options.accepts_epilogue = [](const Call&, const Kernel&) { return true; };
  return options;
}

std::vector<HostTensor> random_inputs(const Graph& g) {
  std::mt19937 rng(7);
  std::vector<HostTensor> out;
  for (const graph::Input& in : g.inputs) {
    std::vector<int64_t> sizes;
    for (Sym s : in.value->type.sizes) sizes.push_back(s.value());
    HostTensor t = graph::make_tensor(in.value->type.dtype, sizes);
    for (auto& cell : t.cells) cell.real = static_cast<double>(rng() % 256) / 256 - 0.5;
    out.push_back(std::move(t));
  }
  return out;
}

/// Expects that so many layers are left out, and that the plan is right and as long as the whole graph's.
void check(const Layers& l, int count, int left_out, const PlanOptions& options = with_epilogues()) {
  const std::string text = written(l, count);
  SCOPED_TRACE(text);
  std::unique_ptr<Graph> g = graph::parse(text);
  const std::vector<HostTensor> inputs = random_inputs(*g);
  const std::vector<HostTensor> expected = graph::run_reference(*g, inputs);
  auto few = graph::shorten(*g, [](int64_t a, int64_t b) { return a == b; });
  ASSERT_EQ(few ? few->repeats.left_out : 0, left_out);
  if (!few) return;
  graph::verify(*few->graph);
  graph::optimize(*few->graph);
  std::optional<Plan> p = plan(std::move(few->graph), options, few->repeats);
  ASSERT_TRUE(p.has_value());
  graph::optimize(*g);
  const Plan whole = plan(std::move(g), options);
  SCOPED_TRACE(print(*p));
  EXPECT_EQ(p->steps.size(), whole.steps.size()) << print(whole);
  EXPECT_LE(p->fold_steps.size(), whole.fold_steps.size());  // a weight that all share is packed less often
  EXPECT_EQ(p->kernels_before_fusion, whole.kernels_before_fusion);
  EXPECT_EQ(p->arena_bytes, whole.arena_bytes);
  EXPECT_LT(p->kernels.size(), whole.kernels.size());
  std::vector<HostTensor> got = testing::PlanRunner(*p, inputs).run();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(graph::difference(got[i], expected[i]), 1e-4) << "output " << i;
}

const std::string kNorm =
    "  %s{i} = sum(%x{i}) {dims=[1], keepdim=true}\n  %m{i} = div(%s{i}, %n)\n  %c{i} = sub(%x{i}, %m{i})\n";

Layers residual() {
  return {"%in: f32[3, 8]",
          "%w{i}: f32[8, 8] param, %v{i}: f32[8, 8] param",
          "  %n = scalar() {value=8.0, dtype=f32}\n  %x0 = exp(%in)\n",
          kNorm +
              "  %a{i} = linear(%c{i}, %w{i})\n  %r{i} = relu(%a{i})\n  %b{i} = linear(%r{i}, %v{i})\n"
              "  %x{j} = add(%x{i}, %b{i})\n",
          "  %y = tanh(%x{i})\n",
          "  return %y\n",
          ""};
}

TEST(PutBack, Residual) {
  for (int count : {8, 9, 13, 30}) check(residual(), count, count - 5);
}

TEST(PutBack, TooFew) { check(residual(), 6, 0); }

TEST(PutBack, EveryKernelAlone) {
  PlanOptions options;
  options.fuse = false;
  check(residual(), 12, 7, options);
}

TEST(PutBack, LibraryCalls) { check(residual(), 12, 7, {}); }

// The outputs of all layers, and of what stands before them.
TEST(PutBack, StatesOfAllLayers) {
  Layers l = residual();
  l.outputs = "  return %x0\n";
  l.output = "  return %x{j}\n";
  l.tail = "  %y = tanh(%x{i})\n  return %y\n";
  check(l, 11, 6);
  l.output = "  return %r{i}\n  return %x{j}\n";
  check(l, 11, 6);
}

TEST(PutBack, TheLastStateAlone) {
  Layers l = residual();
  l.tail = "";
  l.outputs = "  return %x{i}\n";
  check(l, 11, 6);
  // What the second layer gives is no part of a repetition.
  l.outputs = "  return %x2\n  return %x{i}\n";
  check(l, 11, 0);
}

// Views of what layers compute: keys and values as a cache keeps them.
TEST(PutBack, ViewsOfAllLayers) {
  Layers l = residual();
  l.layer += "  %k{i} = permute(%a{i}) {dims=[1, 0]}\n";
  l.output = "  return %k{i}\n";
  check(l, 11, 5);
}

// A buffer of each layer is changed.
TEST(PutBack, WritesOfAllLayers) {
  Layers l = residual();
  l.input += ", %t{i}: f32[3, 8]";
  l.layer += "  %u{i} = add(%t{i}, %a{i})\n";
  l.output = "  write %t{i} <- %u{i}\n";
  check(l, 11, 5);
  // One more write to the last one's.
  l.tail += "  %z = neg(%x{i})\n";
  l.outputs += "  return %z\n";
  check(l, 11, 5);
}

// Two values go from layer to layer, and all layers read a third and share a weight.
TEST(PutBack, SharedByAll) {
  Layers l = residual();
  l.inputs += ", %mask: f32[3, 8], %all: f32[8, 8] param";
  l.head += "  %big = exp(%mask)\n  %k0 = sin(%in)\n";
  l.layer = kNorm +
            "  %a{i} = linear(%c{i}, %w{i})\n  %d{i} = mul(%a{i}, %big)\n  %e{i} = linear(%d{i}, %all)\n"
            "  %k{j} = add(%k{i}, %e{i})\n  %b{i} = linear(%k{j}, %v{i})\n  %x{j} = add(%x{i}, %b{i})\n";
  l.tail = "  %y0 = tanh(%x{i})\n  %y = add(%y0, %k{i})\n";
  check(l, 12, 6);
  l.tail = "  %y0 = mul(%x{i}, %big)\n  %y1 = add(%y0, %x0)\n  %y = linear(%y1, %all)\n";
  check(l, 12, 6);
}

// Weights that are worked on before they are packed.
TEST(PutBack, FoldedWeights) {
  Layers l = residual();
  l.input += ", %g{i}: f32[8, 1] param";
  l.layer = kNorm +
            "  %f{i} = mul(%w{i}, %g{i})\n  %a{i} = linear(%c{i}, %f{i})\n  %r{i} = relu(%a{i})\n"
            "  %b{i} = linear(%r{i}, %v{i})\n  %x{j} = add(%x{i}, %b{i})\n";
  check(l, 12, 7);
}

// The stretch that repeats is two layers.
TEST(PutBack, EverySecondLayerDiffers) {
  Layers l = residual();
  l.every_second = kNorm +
                   "  %a{i} = linear(%c{i}, %w{i})\n  %r{i} = tanh(%a{i})\n  %b{i} = linear(%r{i}, %v{i})\n"
                   "  %p{i} = mul(%b{i}, %b{i})\n  %x{j} = add(%x{i}, %p{i})\n";
  check(l, 20, 5);
  check(l, 21, 5);
}

TEST(PutBack, AValueFromTwoLayersBack) {
  Layers l = residual();
  l.head += "  %x1 = sin(%x0)\n";
  l.layer =
      "  %a{i} = linear(%x{j}, %w{i})\n  %r{i} = relu(%a{i})\n  %b{i} = linear(%r{i}, %v{i})\n"
      "  %t{i} = tanh(%b{i})\n  %x{k} = add(%x{i}, %t{i})\n";
  l.tail = "  %y = tanh(%x{j})\n";
  check(l, 12, 0);
}

TEST(PutBack, TheLayersStatesAreWantedAtTheEnd) {
  Layers l = residual();
  l.tail = "  %y0 = add(%x1, %x2)\n  %y1 = add(%y0, %x7)\n  %y = tanh(%y1)\n";
  check(l, 12, 0);
}

TEST(PutBack, NeighboursShareAWeight) {
  Layers l = residual();
  l.inputs += ", %w_0: f32[8, 8] param";
  l.input = "%w_{j}: f32[8, 8] param";
  l.layer =
      kNorm + "  %a{i} = linear(%c{i}, %w_{i})\n  %r{i} = relu(%a{i})\n  %x{j} = linear(%r{i}, %w_{j})\n";
  check(l, 12, 0);
}

TEST(PutBack, AWeightOfOneLayerIsUsedAtTheEnd) {
  Layers l = residual();
  l.tail = "  %y = linear(%x{i}, %w3)\n";
  check(l, 12, 0);
}

}  // namespace
}  // namespace bolt::loops
