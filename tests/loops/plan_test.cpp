// tests/loops/plan_test.cpp
// The files tests/loops/*.ir: a graph, what its plan must look like, and the plan's results against the
// graph's.
//
//   ; kernels: 2           kernels that the plan runs, all together
//   ; fold: 1              steps of the fold part
//   ; first write: 1       the step from which on the caller sees writes
//   ; epilogues            contractions with weights are generated and take the pointwise work behind them
//   ; merges               a library takes products of one operand at once
//   ; ends in activations  libraries end products in a gelu, convolutions in a relu
//   ; ends in float        a library stores the sums of products of halves as they are
//   ; numerics: eager      halves are rounded where they are made
//   ; apart: 256           temporaries of so many bytes lie apart from the arena
//   ; bands: 512           products of four times as many bytes are computed in bands of twice as many
//   ; free: 1              this result may lie in any order of memory (a line each)
//   ; s0 = 5               a symbol's value for the run
//   ; ints: 7              integer inputs are below this (3 if not said)
//   ; tolerance: 1e-2
//   ; check: text          the plan's text holds this
//   ; never: text          no kernel holds this (the arena's size may: it is rounded up)
//   graph @name(...) { ... }
//
// Each graph is planned with and without fusion, and run both ways, also as the plan's text is read back.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "loops/arena.h"
#include "loops/in_place.h"
#include "loops/layout.h"
#include "loops/library_layout.h"
#include "plan_runner.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::HostTensor;

struct Case {
  int kernels = -1, fold = -1, first_write = -1;
  bool epilogues = false, merges = false, activations = false, floats = false, rounds_as_eager = false;
  std::vector<int> free;
  int64_t ints = 3, apart = 0, bands = 0;
  double tolerance = 1e-5;
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> check, never;
  std::string text;
};

Case read_case(const std::filesystem::path& path) {
  Case c;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    c.text += line + "\n";
    if (line.rfind("; ", 0) != 0) continue;
    std::string rest = line.substr(2);
    size_t colon = rest.find(": ");
    std::string key = rest.substr(0, colon), value = colon == std::string::npos ? "" : rest.substr(colon + 2);
    if (key == "kernels")
      c.kernels = std::stoi(value);
    else if (key == "fold")
      c.fold = std::stoi(value);
    else if (key == "first write")
      c.first_write = std::stoi(value);
    else if (key == "epilogues")
      c.epilogues = true;
    else if (key == "merges")
      c.merges = true;
    else if (key == "ends in activations")
      c.activations = true;
    else if (key == "ends in float")
      c.floats = true;
    else if (key == "numerics")
      c.rounds_as_eager = value == "eager";
    else if (key == "apart")
      c.apart = std::stoll(value);
    else if (key == "bands")
      c.bands = std::stoll(value);
    else if (key == "free")
      c.free.push_back(std::stoi(value));
    else if (key == "ints")
      c.ints = std::stoll(value);
    else if (key == "tolerance")
      c.tolerance = std::stod(value);
    else if (key == "check")
      c.check.push_back(value);
    else if (key == "never")
      c.never.push_back(value);
    else if (size_t eq = rest.find(" = "); eq != std::string::npos && rest.find(' ') == eq)
      c.sizes[rest.substr(0, eq)] = std::stoll(rest.substr(eq + 3));
  }
  return c;
}

void run_and_compare(const Case& c, const PlanOptions& options, const std::vector<HostTensor>& inputs,
                     const std::vector<HostTensor>& expected) {
  std::unique_ptr<Graph> graph = graph::parse(c.text);
  if (!c.free.empty()) choose_layouts(*graph, options, c.free);
  const Plan p = plan(std::move(graph), options);
  SCOPED_TRACE(print(p));
  const Plan read = testing::through_text(p);
  for (const Plan* each : {&p, &read}) {
    std::vector<HostTensor> got = testing::PlanRunner(*each, inputs).run();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(graph::difference(got[i], expected[i]), c.tolerance) << "output " << i;
  }
  if (!options.fuse) return;
  int kernels = 0;
  for (const auto* list : {&p.fold_steps, &p.steps})
    for (const Step& s : *list) kernels += s.kind == StepKind::Kernel || s.kind == StepKind::Contraction;
  if (c.kernels >= 0) {
    EXPECT_EQ(kernels, c.kernels);
  }
  EXPECT_LE(kernels, p.kernels_before_fusion) << "products are counted in both";
  if (c.fold >= 0) {
    EXPECT_EQ(static_cast<int>(p.fold_steps.size()), c.fold);
  }
  if (c.first_write >= 0) {
    EXPECT_EQ(first_visible_write(p), c.first_write);
  }
  std::string text = print(p);
  for (const std::string& s : c.check) EXPECT_NE(text.find(s), std::string::npos) << "missing: " << s;
  for (const Kernel& k : p.kernels)
    for (const std::string& s : c.never)
      EXPECT_EQ(print(k).find(s), std::string::npos) << "not wanted: " << s;
}

class PlanFile : public ::testing::TestWithParam<std::string> {};

TEST_P(PlanFile, RunsAsTheGraph) {
  Case c = read_case(std::string(BOLT_TEST_DIR) + "/loops/" + GetParam() + ".ir");
  std::unique_ptr<Graph> g = graph::parse(c.text);
  std::vector<HostTensor> inputs = testing::random_inputs(*g, c.sizes, c.ints);
  std::vector<HostTensor> expected = graph::run_reference(*g, inputs, c.rounds_as_eager);
  PlanOptions options;
  options.bytes_apart = c.apart;
  if (c.bands > 0) options.bands = graph::BandBytes{c.bands, 2 * c.bands};
  options.rounds_as_eager = c.rounds_as_eager;
  if (c.epilogues) {
    options.generates = [](const PlannedContraction& call) {
      Sym floats = call.operands[1].numel();
      return call.constant[1] ? std::optional(floats.value()) : std::nullopt;
    };
    options.accepts_epilogue = [](const PlannedContraction&, const Kernel&) { return true; };
  }
  if (c.activations)
    options.ends_in = [](const graph::Node& call, graph::Op ending) { return ends_in_library(call, ending); };
  if (c.floats) options.ends_in_float = [](const auto&) { return true; };
  if (c.merges) options.merges = [](const auto&) { return true; };
  run_and_compare(c, options, inputs, expected);
  options.fuse = false;
  run_and_compare(c, options, inputs, expected);
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(std::string(BOLT_TEST_DIR) + "/loops"))
    if (e.path().extension() == ".ir") names.push_back(e.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, PlanFile, ::testing::ValuesIn(files()),
                         [](const auto& info) { return info.param; });

TEST(Arena, NeighboursInTimeNeverShareBytes) {
  std::mt19937 rng(3);
  std::vector<ArenaRequest> requests;
  for (int i = 0; i < 60; ++i) {
    int first = static_cast<int>(rng() % 40);
    requests.push_back({static_cast<int64_t>(rng() % 1000 + 1), first, first + static_cast<int>(rng() % 6)});
  }
  ArenaLayout l = lay_out(requests);
  int64_t sum = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    sum += requests[i].bytes.value();
    EXPECT_EQ(l.offsets[i].value() % 64, 0);
    EXPECT_LE(l.offsets[i].value() + requests[i].bytes.value(), l.bytes.value());
    for (size_t j = 0; j < i; ++j) {
      bool together =
          requests[i].first_step <= requests[j].last_step && requests[j].first_step <= requests[i].last_step;
      bool apart = l.offsets[i].value() + requests[i].bytes.value() <= l.offsets[j].value() ||
                   l.offsets[j].value() + requests[j].bytes.value() <= l.offsets[i].value();
      EXPECT_TRUE(!together || apart);
    }
  }
  EXPECT_LT(l.bytes.value(), sum);
}

TEST(Arena, SymbolicSlotsAreUsedAgain) {
  Sym n = Sym::symbol("s0") * Sym(4);
  ArenaLayout l = lay_out({{n, 0, 1}, {n, 1, 2}, {n, 2, 3}, {100, 0, 3}});
  EXPECT_EQ(l.offsets[0], l.offsets[2]);
  EXPECT_NE(l.offsets[0], l.offsets[1]);
  EXPECT_EQ(l.offsets[3], Sym(0));
}

}  // namespace
}  // namespace bolt::loops
