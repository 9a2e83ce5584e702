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
  options.generates = [](const PlannedContraction& call) {
    return call.constant[1] ? std::optional(call.operands[1].numel().value()) : std::nullopt;
  };
  options.accepts_epilogue = [](const PlannedContraction&, const Kernel&) { return true; };
  return options;
}

/// The plan by way of the short graph, where there is one and its steps repeat.
std::optional<Plan> by_layers(Graph& g, const PlanOptions& options, int* left_out) {
  auto few = graph::shorten(g, [](int64_t a, int64_t b) { return a == b; });
  *left_out = few ? few->repeats.left_out : 0;
  if (!few) return std::nullopt;
  for (Graph* one : {few->graph.get(), few->one_more.get()}) {
    graph::verify(*one);
    graph::optimize(*one);
  }
  return plan(std::move(*few), options);
}

/// Expects that the plan computes what the graph does.
void expect_right(const Plan& p, const std::vector<HostTensor>& inputs,
                  const std::vector<HostTensor>& expected, double bound) {
  SCOPED_TRACE(print(p));
  const Plan read = testing::through_text(p);
  const std::vector<HostTensor> got = testing::PlanRunner(read, inputs).run();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(graph::difference(got[i], expected[i]), bound) << "output " << i;
}

/// Checks the layers where a plan can be made by them, and says whether it could. `left_out`: whether layers
/// repeat at all.
bool check_if_planned(const Layers& l, int count, const PlanOptions& options, int* left_out) {
  const std::string text = written(l, count);
  SCOPED_TRACE(text);
  const std::unique_ptr<Graph> g = graph::parse(text);
  const std::vector<HostTensor> inputs = testing::random_inputs(*g, {}, 3, 0.25);
  const std::optional<Plan> p = by_layers(*g, options, left_out);
  if (p) expect_right(*p, inputs, graph::run_reference(*g, inputs), 1e-3);
  return p.has_value();
}

/// Expects that so many layers are left out, and that the plan is right and as long as the whole graph's.
void check(const Layers& l, int count, int expected_left_out, const PlanOptions& options = with_epilogues()) {
  const std::string text = written(l, count);
  SCOPED_TRACE(text);
  std::unique_ptr<Graph> g = graph::parse(text);
  const std::vector<HostTensor> inputs = testing::random_inputs(*g, {}, 3, 0.25);
  const std::vector<HostTensor> expected = graph::run_reference(*g, inputs);
  int left_out = 0;
  std::optional<Plan> p = by_layers(*g, options, &left_out);
  ASSERT_EQ(left_out, expected_left_out);
  if (left_out == 0) return;
  ASSERT_TRUE(p.has_value());
  graph::optimize(*g);
  const Plan whole = plan(std::move(g), options);
  EXPECT_EQ(p->steps.size(), whole.steps.size()) << print(whole);
  EXPECT_EQ(p->fold_steps.size(), whole.fold_steps.size());
  EXPECT_EQ(p->kernels_before_fusion, whole.kernels_before_fusion);
  ASSERT_EQ(p->arenas.size(), whole.arenas.size());
  for (size_t i = 0; i < p->arenas.size(); ++i) EXPECT_EQ(p->arenas[i].bytes, whole.arenas[i].bytes);
  EXPECT_EQ(p->kernels.size(), whole.kernels.size());
  expect_right(*p, inputs, expected, 1e-4);
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
  for (int count : {14, 15, 18, 30}) check(residual(), count, count - 5);
}

TEST(PutBack, TooFew) { check(residual(), 13, 0); }

TEST(PutBack, EveryKernelAlone) {
  PlanOptions options;
  options.fuse = false;
  check(residual(), 18, 13, options);
}

TEST(PutBack, LibraryCalls) { check(residual(), 18, 13, {}); }

// The outputs of all layers, and of what stands before them.
TEST(PutBack, StatesOfAllLayers) {
  Layers l = residual();
  l.outputs = "  return %x0\n";
  l.tail = "  %y = tanh(%x{i})\n  return %y\n";
  for (const char* output : {"  return %x{j}\n", "  return %r{i}\n  return %x{j}\n"}) {
    l.output = output;
    check(l, 18, 13);
  }
}

TEST(PutBack, TheLastStateAlone) {
  Layers l = residual();
  l.tail = "";
  l.outputs = "  return %x{i}\n";
  check(l, 18, 13);
  // What the second layer gives is no part of a repetition.
  l.outputs = "  return %x2\n  return %x{i}\n";
  check(l, 18, 0);
}

// Views of what layers compute: keys and values as a cache keeps them.
TEST(PutBack, ViewsOfAllLayers) {
  Layers l = residual();
  l.layer += "  %k{i} = permute(%a{i}) {dims=[1, 0]}\n";
  l.output = "  return %k{i}\n";
  check(l, 18, 12);
}

// A buffer of each layer is changed.
TEST(PutBack, WritesOfAllLayers) {
  Layers l = residual();
  l.input += ", %t{i}: f32[3, 8]";
  l.layer += "  %u{i} = add(%t{i}, %a{i})\n";
  l.output = "  write %t{i} <- %u{i}\n";
  check(l, 18, 12);
  // One more write to the last one's.
  l.tail += "  %z = neg(%x{i})\n";
  l.outputs += "  return %z\n";
  check(l, 18, 12);
}

// Two values go from layer to layer, and all layers read a third and share a weight.
TEST(PutBack, SharedByAll) {
  Layers l = residual();
  l.inputs += ", %mask: f32[3, 8], %all: f32[8, 8] param";
  l.head += "  %big = exp(%mask)\n  %k0 = sin(%in)\n";
  l.layer = kNorm +
            "  %a{i} = linear(%c{i}, %w{i})\n  %d{i} = mul(%a{i}, %big)\n  %e{i} = linear(%d{i}, %all)\n"
            "  %k{j} = add(%k{i}, %e{i})\n  %b{i} = linear(%k{j}, %v{i})\n  %x{j} = add(%x{i}, %b{i})\n";
  for (const char* tail : {"  %y0 = tanh(%x{i})\n  %y = add(%y0, %k{i})\n",
                           "  %y0 = mul(%x{i}, %big)\n  %y1 = add(%y0, %x0)\n  %y = linear(%y1, %all)\n"}) {
    l.tail = tail;
    check(l, 18, 12);
  }
}

// Weights that are worked on before they are packed.
TEST(PutBack, FoldedWeights) {
  Layers l = residual();
  l.input += ", %g{i}: f32[8, 1] param";
  l.layer = kNorm +
            "  %f{i} = mul(%w{i}, %g{i})\n  %a{i} = linear(%c{i}, %f{i})\n  %r{i} = relu(%a{i})\n"
            "  %b{i} = linear(%r{i}, %v{i})\n  %x{j} = add(%x{i}, %b{i})\n";
  check(l, 18, 13);
}

// The stretch that repeats is two layers.
TEST(PutBack, EverySecondLayerDiffers) {
  Layers l = residual();
  l.every_second = kNorm +
                   "  %a{i} = linear(%c{i}, %w{i})\n  %r{i} = tanh(%a{i})\n  %b{i} = linear(%r{i}, %v{i})\n"
                   "  %p{i} = mul(%b{i}, %b{i})\n  %x{j} = add(%x{i}, %p{i})\n";
  check(l, 36, 13);
  check(l, 37, 13);
}

TEST(PutBack, AValueFromTwoLayersBack) {
  Layers l = residual();
  l.head += "  %x1 = sin(%x0)\n";
  l.layer =
      "  %a{i} = linear(%x{j}, %w{i})\n  %r{i} = relu(%a{i})\n  %b{i} = linear(%r{i}, %v{i})\n"
      "  %t{i} = tanh(%b{i})\n  %x{k} = add(%x{i}, %t{i})\n";
  l.tail = "  %y = tanh(%x{j})\n";
  check(l, 18, 0);
}

TEST(PutBack, TheLayersStatesAreWantedAtTheEnd) {
  Layers l = residual();
  l.tail = "  %y0 = add(%x1, %x2)\n  %y1 = add(%y0, %x7)\n  %y = tanh(%y1)\n";
  check(l, 18, 0);
}

// The layers repeat; what is left of them at the end depends on how many there are.
TEST(PutBack, CountedLayers) {
  for (const char* step : {"  %k{j} = add(%k{i}, %one)\n", "  %k{j} = permute(%k{i}) {dims=[1, 0]}\n",
                           "  %k{j} = add(%k{i}, %t{i})\n", "  %k{j} = add(%k{i}, %r{i})\n"}) {
    Layers l = residual();
    l.inputs += ", %square: f32[8, 8]";
    l.input += ", %t{i}: f32[3, 8]";
    l.head += "  %one = scalar() {value=1.0, dtype=f32}\n";
    l.head += std::string(step).find("permute") != std::string::npos ? "  %k0 = exp(%square)\n"
              : std::string(step).find("one") != std::string::npos   ? "  %k0 = add(%one, %one)\n"
                                                                     : "  %k0 = exp(%in)\n";
    l.layer += step;
    l.tail = "  %y = tanh(%x{i})\n  %z = sin(%k{i})\n";
    l.outputs = "  return %y, %z\n";
    int left_out = 0;
    for (int count = 16; count < 20; ++count) check_if_planned(l, count, with_epilogues(), &left_out);
  }
}

TEST(PutBack, NeighboursShareAWeight) {
  Layers l = residual();
  l.inputs += ", %w_0: f32[8, 8] param";
  l.input = "%w_{j}: f32[8, 8] param";
  l.layer =
      kNorm + "  %a{i} = linear(%c{i}, %w_{i})\n  %r{i} = relu(%a{i})\n  %x{j} = linear(%r{i}, %w_{j})\n";
  check(l, 18, 0);
}

TEST(PutBack, AWeightOfOneLayerIsUsedAtTheEnd) {
  Layers l = residual();
  l.tail = "  %y = linear(%x{i}, %w3)\n";
  check(l, 18, 0);
}

/// Two values go from layer to layer; what a layer does with them is drawn.
Layers random_layers(uint32_t seed) {
  std::mt19937 rng(seed);
  auto one_of = [&](std::initializer_list<const char*> words) {
    return std::string(words.begin()[rng() % words.size()]);
  };
  Layers l = residual();
  l.inputs += ", %mask: f32[3, 8], %all: f32[8, 8] param";
  l.input += ", %g{i}: f32[8] param, %t{i}: f32[3, 8]";
  // Nothing that grows from layer to layer: differences would, too.
  l.head += "  %half = scalar() {value=0.5, dtype=f32}\n  %k0 = sin(%in)\n";
  l.layer = "";
  std::vector<std::string> values = {"%x{i}", "%k{i}"};
  const int count = 3 + static_cast<int>(rng() % 8);
  for (int n = 0; n < count; ++n) {
    const std::string a = values[values.size() - 1 - rng() % std::min<size_t>(values.size(), 4)];
    const std::string b =
        rng() % 3 ? values[rng() % values.size()] : one_of({"%mask", "%t{i}", "%g{i}", "%x0"});
    const std::string name = "%v" + std::to_string(n) + "_{i}";
    switch (rng() % 6) {
      case 0:
        l.layer += "  " + name + " = linear(" + a + ", " + one_of({"%w{i}", "%v{i}", "%all"}) + ")\n";
        break;
      case 1:
        l.layer += "  " + name + " = " + one_of({"add", "sub", "maximum"}) + "(" + a + ", " + b + ")\n";
        break;
      case 2: l.layer += "  " + name + " = " + one_of({"tanh", "relu", "sin"}) + "(" + a + ")\n"; break;
      case 3:
        l.layer += "  %s" + name.substr(1) + " = amax(" + a + ") {dims=[1], keepdim=true}\n  " + name +
                   " = sub(" + a + ", %s" + name.substr(1) + ")\n";
        break;
      case 4:
        l.layer += "  %p" + name.substr(1) + " = permute(" + a + ") {dims=[1, 0]}\n  %q" + name.substr(1) +
                   " = tanh(%p" + name.substr(1) + ")\n  " + name + " = permute(%q" + name.substr(1) +
                   ") {dims=[1, 0]}\n";
        break;
      default: l.layer += "  " + name + " = mul(" + a + ", %half)\n"; break;
    }
    values.push_back(name);
  }
  l.layer += "  %z{i} = tanh(" + values.back() + ")\n  %x{j} = add(%x{i}, %z{i})\n  %k{j} = relu(" +
             values[rng() % values.size()] + ")\n";
  l.tail = rng() % 2 ? "  %y = tanh(%x{i})\n" : "  %y = add(%x{i}, %k{i})\n";
  if (rng() % 3 == 0) l.output = "  return " + values.back() + "\n";
  if (rng() % 3 == 0) l.output += "  write %t{i} <- " + values[2 + rng() % (values.size() - 2)] + "\n";
  return l;
}

TEST(PutBack, RandomLayers) {
  int planned = 0, asked = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    int left_out = 0;
    planned += check_if_planned(random_layers(seed), 16 + static_cast<int>(seed % 5),
                                seed % 4 ? with_epilogues() : PlanOptions{}, &left_out);
    asked += left_out > 0;
  }
  // Many are one kernel, of so many layers as fit into one.
  EXPECT_GT(asked, 600);
  EXPECT_GT(planned, 80);
}

}  // namespace
}  // namespace bolt::loops
