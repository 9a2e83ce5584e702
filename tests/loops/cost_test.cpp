// tests/loops/cost_test.cpp
// What kernels and nodes cost, and what the planner makes of it: nothing is worked out again where that takes
// longer than to store and load it, on whichever device, and no kernel grows with the depth of a recursion.
#include <gtest/gtest.h>

#include "graph/text.h"
#include "loops/cost.h"
#include "loops/plan.h"

namespace bolt::loops {
namespace {

Plan plan_of(const std::string& text) {
  PlanOptions options;
  return plan(graph::parse(text), options);
}

double instructions_of_steps(const Plan& p) {
  double total = 0;
  for (const Step& s : p.steps)
    if (kernel_of(s) >= 0) total += work_of(p.kernels[static_cast<size_t>(kernel_of(s))]).instructions;
  return total;
}

size_t longest(const Plan& p) {
  size_t most = 0;
  for (const Kernel& k : p.kernels) most = std::max(most, k.exprs.size());
  return most;
}

double node_cost(const std::string& type, const std::string& node) {
  auto g = graph::parse("graph @g(%x: " + type + ") {\n  %y = " + node + "\n  return %y\n}\n");
  return instructions_of(*g->nodes.back());
}

constexpr const char* kTwoHalves = R"(graph @g(%x: f32[16, 8]) {
  %y = exp(%x)
  %a = slice(%y) {dim=1, start=4, length=4}
  %b = slice(%y) {dim=1, start=0, length=4}
  %z = cat(%a, %b) {dim=1}
  return %z
}
)";

TEST(Cost, AStepSaysWhatItRepeats) {
  const Plan p = plan_of(kTwoHalves);
  ASSERT_EQ(p.steps.size(), 1u);
  const StepCost cost = cost_of(p, p.steps[0]);
  EXPECT_GT(cost.repeated, 0.3);
  EXPECT_LT(cost.repeated, 0.6);
  EXPECT_GT(cost.nanoseconds, 200);
}

TEST(Cost, NothingIsRepeatedWhereThatIsNotAllowed) {
  PlanOptions options;
  options.repeats = false;
  const Plan p = plan(graph::parse(kTwoHalves), options);
  ASSERT_EQ(p.steps.size(), 2u);
  for (const Step& s : p.steps) EXPECT_EQ(cost_of(p, s).repeated, 0);
}

TEST(Cost, NodesByThemselves) {
  EXPECT_EQ(node_cost("f32[10, 4]", "neg(%x)"), 40);
  EXPECT_EQ(node_cost("f32[10, 4]", "exp(%x)"), 24 * 40);
  EXPECT_EQ(node_cost("f32[10, 4]", "silu(%x)"), (1 + 24 + 1 + 8) * 40);  // x / (1 + exp(-x))
  EXPECT_EQ(node_cost("f32[10, 4]", "sum(%x) {dims=[1]}"), 40);
  EXPECT_EQ(node_cost("f32[10, 4]", "cat(%x, %x, %x) {dim=0}"), 2 * 120);
  EXPECT_EQ(node_cost("f32[10, 4]", "slice(%x) {dim=0, start=0, length=5}"), 0);
}

TEST(Cost, KernelsCountWhatTheyRepeat) {
  const Kernel k = parse_kernel(R"(kernel @k (in %b0: f32, out %b1: f32) space [10 d0, 4 d1] {
  %0 = index d0
  %1 = const i64 5
  %2 = lt %0, %1
  %3 = load b0[4*d0 + d1]
  %4 = exp %3
  %5 = load b0[4*d0]
  %6 = exp %5
  %7 = where %2, %4, %6
  store b1[4*d0 + d1] = %7
}
)");
  const KernelWork w = work_of(k);
  EXPECT_EQ(w.instructions, 24 * 40 + 24 * 10 + 40);  // the comparison is addressing
  EXPECT_EQ(w.bytes, 4 * (40 + 10 + 40));
}

TEST(Cost, PriceIsTheLongerOfMovingAndComputing) {
  const MachineSpeed m{
      .bytes_per_ns = 10, .instructions_per_ns = 100, .multiply_adds_per_ns = 1000, .start_ns = 1000};
  EXPECT_EQ(price(m, {5000, 100}), 1500);
  EXPECT_EQ(price(m, {100, 500000}), 6000);
  EXPECT_TRUE(repeats_little(m, 1200000, 1000000));
  EXPECT_FALSE(repeats_little(m, 1300000, 1000000));
  EXPECT_TRUE(repeats_little(m, 130000, 100000)) << "30 thousand instructions take less than a start";
}

TEST(Cost, ScansAreOursWhereALibraryIsNoQuicker) {
  const auto scans = [](const std::string& type, std::string_view op) {
    const auto g = graph::parse("graph @scan(%x: " + type + ") {\n  return %x\n}\n");
    return scans_well(g->inputs[0].value->type, 1, op);
  };
  for (const char* op : {"sum", "logaddexp"}) EXPECT_TRUE(scans("f32[1, 1000000]", op)) << op;
  EXPECT_TRUE(scans("f32[64, 1000] cuda:0", "sum"));
  EXPECT_FALSE(scans("f32[1, 1000000] cuda:0", "sum")) << "one block would have it all";
  EXPECT_FALSE(scans("f32[64, 1000] cuda:0", "logaddexp"));
}

/// exp of one value, and sin of another, behind each other in a cat: in one kernel both are worked out
/// everywhere.
std::string two_halves(int rows, const std::string& device) {
  const std::string type = "f32[" + std::to_string(rows) + ", 64]" + device;
  return "graph @halves(%x: " + type + ", %y: " + type + R"() {
  %a = exp(%x)
  %b = sin(%y)
  %c = cat(%a, %b) {dim=0}
  %d = neg(%c)
  return %d
}
)";
}

TEST(Cost, HeavyWorkIsRepeatedOnlyWhereAStartCostsMore) {
  const Plan large = plan_of(two_halves(4096, ""));
  EXPECT_GT(large.kernels.size(), 1u);
  EXPECT_LE(instructions_of_steps(large), 1.2 * instructions_of(*large.graph));
  EXPECT_EQ(plan_of(two_halves(1, "")).kernels.size(), 1u);
}

TEST(Cost, EachDeviceHasItsPrices) {
  EXPECT_GT(plan_of(two_halves(512, "")).kernels.size(), 1u);
  EXPECT_EQ(plan_of(two_halves(512, " cuda:0")).kernels.size(), 1u);
}

/// A prefix scan of pairs as Python writes it: neighbours are combined, their scan is taken, and what lies
/// between is filled in by slices and cats. Each level reads the one below it twice.
class Scan {
 public:
  std::string text(int length) {
    const std::string type = "f32[64, " + std::to_string(length) + "]";
    const auto [a, b] = scan("a", "b", length);
    return "graph @scan(%a: " + type + ", %b: " + type + ") {\n" + out_ + "  return %" + a + ", %" + b +
           "\n}\n";
  }

 private:
  using Pair = std::pair<std::string, std::string>;
  std::string node(const std::string& what) {
    const std::string name = "t" + std::to_string(next_++);
    out_ += "  %" + name + " = " + what + "\n";
    return name;
  }
  std::string slice(const std::string& x, int start, int length, int step) {
    return node("slice(%" + x + ") {dim=1, start=" + std::to_string(start) +
                ", length=" + std::to_string(length) + ", step=" + std::to_string(step) + "}");
  }
  Pair combine(const Pair& l, const Pair& r) {
    return {node("mul(%" + r.first + ", %" + l.first + ")"),
            node("add(%" + node("mul(%" + r.first + ", %" + l.second + ")") + ", %" + r.second + ")")};
  }
  template <typename F>
  static Pair both(const Pair& x, F f) {
    return {f(x.first), f(x.second)};
  }
  std::string interleave(const std::string& even, const std::string& odd, int half) {
    const std::string shape = ") {sizes=[64, " + std::to_string(half) + ", 1]}";
    const std::string all = node("cat(%" + node("reshape(%" + even + shape) + ", %" +
                                 node("reshape(%" + odd + shape) + ") {dim=2}");
    return node("reshape(%" + all + ") {sizes=[64, " + std::to_string(2 * half) + "]}");
  }
  Pair scan(const std::string& a, const std::string& b, int n) {
    const Pair all{a, b};
    if (n == 1) return all;
    const int half = n / 2;
    const Pair first = both(all, [&](auto& x) { return slice(x, 0, half, 2); });
    const Pair second = both(all, [&](auto& x) { return slice(x, 1, half, 2); });
    const Pair pairs = combine(first, second), odd = scan(pairs.first, pairs.second, half);
    if (half == 1) return {interleave(first.first, odd.first, 1), interleave(first.second, odd.second, 1)};
    const Pair before = both(odd, [&](auto& x) { return slice(x, 0, half - 1, 1); });
    const Pair later = both(all, [&](auto& x) { return slice(x, 2, half - 1, 2); });
    const Pair rest = combine(before, later), head = both(all, [&](auto& x) { return slice(x, 0, 1, 1); });
    const std::string even_a = node("cat(%" + head.first + ", %" + rest.first + ") {dim=1}");
    const std::string even_b = node("cat(%" + head.second + ", %" + rest.second + ") {dim=1}");
    return {interleave(even_a, odd.first, half), interleave(even_b, odd.second, half)};
  }

  std::string out_;
  int next_ = 0;
};

TEST(Cost, NoKernelGrowsWithTheDepthOfARecursion) {
  for (int length : {16, 64, 256, 512}) {
    const Plan p = plan_of(Scan().text(length));
    EXPECT_LE(instructions_of_steps(p), 1.2 * instructions_of(*p.graph) + 200 * 48 * p.kernels.size())
        << length;
    EXPECT_LE(longest(p), 256u) << length;
    EXPECT_LT(p.kernels.size(), static_cast<size_t>(p.kernels_before_fusion)) << "something is fused";
  }
}

TEST(Cost, TheTableHasEachKernelAndTheSum) {
  const std::string text = print_costs(plan_of(two_halves(1, "")));
  EXPECT_NE(text.find("costs: "), std::string::npos) << text;
  EXPECT_NE(text.find("(of "), std::string::npos) << text;
  EXPECT_NE(text.find("  @exp_sin_cat_0: 1024 bytes"), std::string::npos) << text;
}

}  // namespace
}  // namespace bolt::loops
