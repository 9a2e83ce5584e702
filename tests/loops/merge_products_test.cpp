// tests/loops/merge_products_test.cpp
// Weights that lie side by side are one matrix; the few layers of a kind where they do not follow the others.
#include "loops/merge_products.h"

#include <gtest/gtest.h>

#include <string>

#include "graph/verify.h"
#include "plan_runner.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::HostTensor;

/// Queries, keys and values of so many layers. Input 0 is x; each layer has three weights and three biases.
std::unique_ptr<Graph> layers(int count) {
  std::string inputs = "%x: f32[2, 3, 8]", nodes, x = "%x";
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    for (const char* w : {"q", "k", "v"})
      inputs += ", %" + (w + n) + ": f32[" + (*w == 'q' ? "8" : "4") + ", 8] param";
    for (const char* b : {"a", "b", "c"})
      inputs += ", %" + (b + n) + ": f32[" + (*b == 'a' ? "8" : "4") + "] param";
    nodes += "  %Q" + n + " = linear(" + x + ", %q" + n + ", %a" + n + ")\n";
    nodes += "  %E" + n + " = exp(%Q" + n + ")\n";
    nodes += "  %K" + n + " = linear(" + x + ", %k" + n + ", %b" + n + ")\n";
    nodes += "  %V" + n + " = linear(" + x + ", %v" + n + ", %c" + n + ")\n";
    nodes += "  %M" + n + " = mul(%K" + n + ", %V" + n + ")\n";
    nodes += "  %C" + n + " = cat(%M" + n + ", %M" + n + ") {dim=2}\n";
    nodes += "  %S" + n + " = add(%E" + n + ", %C" + n + ")\n";
    nodes += "  %T" + n + " = tanh(%S" + n + ")\n";
    x = "%T" + n;
  }
  return graph::parse("graph @layers(" + inputs + ") {\n" + nodes + "  return " + x + "\n}");
}

/// Weights from `at` on, one behind the other in this order.
void lay(Graph& g, uintptr_t at, const std::vector<int>& inputs) {
  for (int i : inputs) {
    graph::Input& in = g.inputs[static_cast<size_t>(i)];
    in.address = at;
    at += static_cast<uintptr_t>(in.value->type.numel().value()) * 4;
  }
}

std::string planned(std::unique_ptr<Graph> graph, bool merges = true) {
  const std::unique_ptr<Graph> before = graph::clone(*graph);
  const std::vector<HostTensor> inputs = testing::random_inputs(*graph, {}, 3, 0.25);
  PlanOptions options;
  options.merges = [=](const auto& products) { return merges && products.size() > 1; };
  const Plan p = plan(std::move(graph), options);
  const std::vector<HostTensor> expected = graph::run_reference(*before, inputs);
  const std::vector<HostTensor> got = testing::PlanRunner(testing::through_text(p), inputs).run();
  EXPECT_LE(graph::difference(got[0], expected[0]), 1e-5);
  return print(p);
}

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(MergeProducts, WeightsSideBySideAreOneMatrix) {
  auto g = layers(2);
  lay(*g, 4096, {1, 2, 3});
  lay(*g, 65536, {7, 8, 9});
  const std::string text = planned(std::move(g));
  EXPECT_EQ(count(text, "library joined (b1, b2, b3)"), 1) << text;
  EXPECT_EQ(count(text, "library joined (b7, b8, b9)"), 1) << text;
  EXPECT_EQ(count(text, "library linear "), 2) << text;
}

TEST(MergeProducts, InTheOrderInWhichTheyLie) {
  auto g = layers(2);
  lay(*g, 4096, {3, 1, 2});
  lay(*g, 65536, {9, 7, 8});
  const std::string text = planned(std::move(g));
  EXPECT_EQ(count(text, "library joined (b3, b1, b2)"), 1) << text;
  EXPECT_EQ(count(text, "library joined (b9, b7, b8)"), 1) << text;
}

TEST(MergeProducts, NotWhereMostLieElsewhere) {
  auto g = layers(2);
  lay(*g, 4096, {1, 2, 3});
  lay(*g, 65536, {7, 9, 8});
  lay(*g, 16384, {8});
  const std::string text = planned(std::move(g));
  // Those of one size have biases, which batches do not take.
  EXPECT_EQ(count(text, "library linear "), 6) << text;
  EXPECT_EQ(count(text, "joined"), 0) << text;
}

TEST(MergeProducts, TheFewFollowTheMany) {
  auto g = layers(3);
  lay(*g, 4096, {2, 3, 1});
  lay(*g, 65536, {13, 14});
  lay(*g, 16384, {8, 9, 7});
  const std::string text = planned(std::move(g));
  EXPECT_EQ(count(text, "library linear "), 3) << text;
  EXPECT_EQ(count(text, "library joined (b14, b15, b13)"), 1) << text;
}

TEST(MergeProducts, NothingIsJoinedOfWhichNobodyKnowsWhereItLies) {
  EXPECT_EQ(count(planned(layers(2)), "library linear "), 6);
}

TEST(MergeProducts, NothingIsMergedWhereTheDeviceDoesNotWantIt) {
  auto g = layers(2);
  lay(*g, 4096, {1, 2, 3});
  lay(*g, 65536, {7, 8, 9});
  EXPECT_EQ(count(planned(std::move(g), false), "library linear "), 6);
}

}  // namespace
}  // namespace bolt::loops
