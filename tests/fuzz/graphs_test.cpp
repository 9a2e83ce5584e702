// tests/fuzz/graphs_test.cpp
// Random graphs: optimised, planned, compiled and run, against the reference execution of the graph as it was
// made. A failure prints the seed and a shrunk graph that can be pasted into tests/loops/*.ir.
//
//   BOLT_FUZZ_CASES=2000 BOLT_FUZZ_SEED=1000 bolt_tests --gtest_filter='Fuzz.*'
//
// runs the seeds 1000 ... 2999 and names each before it runs, for the case that kills the process.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "graph/passes/passes.h"
#include "tests/fuzz/compiled_runner.h"
#include "tests/fuzz/shrink.h"

namespace bolt::fuzz {
namespace {

using codegen::cpu::Target;

unsigned from_environment(const char* name, unsigned fallback) {
  const char* text = std::getenv(name);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : fallback;
}

/// Most cases for the machine as it is; some for less, and some without fusion.
struct Setting {
  Target target = Target::host();
  bool fuse = true;

  explicit Setting(unsigned seed) {
    if (seed % 8 == 3) target = target.narrowed(Target::Isa::Avx2);
    if (seed % 8 == 5) target = target.narrowed(Target::Isa::Scalar);
    fuse = seed % 8 != 7;
  }
};

using Results = std::vector<HostTensor>;

/// What differs, empty when nothing does.
std::string compare(const char* stage, const Results& got, const Graph& g, const SampleMap& expected) {
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const Samples& s = expected.at(g.outputs[i].value);
    if (got[i].dtype != s.exact.dtype || got[i].sizes != s.exact.sizes) return std::string(stage) + ": type";
    for (size_t at = 0; at < s.exact.cells.size(); ++at) {
      graph::Cell a = got[i].cells[at], b = s.exact.cells[at];
      bool close = s.exact.is_real() ? std::fabs(a.real - b.real) <= tolerance(s) : a.whole == b.whole;
      if (close) continue;
      double x = s.exact.is_real() ? a.real : static_cast<double>(a.whole);
      double y = s.exact.is_real() ? b.real : static_cast<double>(b.whole);
      return bolt::detail::concat(stage, ": output ", i, " element ", at, " is ", x, ", not ", y, " +- ",
                                  tolerance(s));
    }
  }
  return "";
}

std::string run(const Case& c, const Setting& setting) {
  try {
    SampleMap expected = samples_of(*c.graph, c.inputs);
    std::unique_ptr<Graph> g = graph::parse(graph::print(*c.graph));
    graph::optimize(*g);
    std::string text = graph::print(*g);
    std::string fault = compare("passes", graph::run_reference(*g, c.inputs), *c.graph, expected);
    loops::PlanOptions options = codegen::cpu::options_that_generate(setting.target);
    options.fuse = setting.fuse;
    loops::Plan plan = loops::testing::through_text(loops::plan(std::move(g), options));
    if (fault.empty()) {
      loops::PlanOptions plain;
      plain.fuse = setting.fuse;
      loops::Plan p = loops::plan(graph::parse(text), plain);
      fault = compare("plan", loops::testing::PlanRunner(p, c.inputs).run(), *c.graph, expected);
    }
    if (fault.empty()) {
      codegen::cpu::PlanFunctions code = codegen::cpu::compile(plan, setting.target);
      fault = compare("code", CompiledRunner(plan, code, c.inputs).run(), *c.graph, expected);
    }
    return fault;
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

void check(unsigned seed) {
  const Limits limits;
  Setting setting(seed);
  if (run(Generator(seed, limits).run(), setting).empty()) return;
  Fails fails = [&](const Case& c) { return !run(c, setting).empty(); };
  Case small = shrink(tighten(seed, limits, fails), fails);
  ADD_FAILURE() << "BOLT_FUZZ_SEED=" << seed << " on " << setting.target.key()
                << (setting.fuse ? "" : " without fusion") << "\n"
                << run(small, setting) << "\n"
                << graph::print(*small.graph);
}

TEST(Fuzz, RandomGraphs) {
  bool asked = std::getenv("BOLT_FUZZ_CASES") || std::getenv("BOLT_FUZZ_SEED");
  unsigned first = from_environment("BOLT_FUZZ_SEED", 1);
  unsigned cases = from_environment("BOLT_FUZZ_CASES", std::getenv("BOLT_FUZZ_SEED") ? 1 : 80);
  for (unsigned seed = first; seed < first + cases; ++seed) {
    if (asked) std::fprintf(stderr, "seed %u\n", seed);
    check(seed);
  }
}

}  // namespace
}  // namespace bolt::fuzz
