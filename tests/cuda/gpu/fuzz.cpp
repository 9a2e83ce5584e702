// tests/cuda/gpu/fuzz.cpp
// Random graphs of tests/fuzz, each in one of the ways in which its plan may be compiled and run -> what
// differs.

#include <cmath>
#include <cstdio>
#include <sstream>

#include "graph/passes/passes.h"
#include "support/text.h"
#include "tests/cuda/gpu/gpu.h"
#include "tests/fuzz/generator.h"

namespace bolt::gpu {
namespace {

std::string values_differ(const graph::Graph& g, const std::vector<HostTensor>& got,
                          const fuzz::SampleMap& expected) {
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const fuzz::Samples& s = expected.at(g.outputs[i].value);
    for (size_t at = 0; at < s.exact.cells.size(); ++at) {
      const graph::Cell a = got[i].cells[at], b = s.exact.cells[at];
      const bool real = s.exact.is_real();
      // What CUDA's functions may be off by beyond the CPU's.
      if (real ? std::fabs(a.real - b.real) <= 2 * fuzz::tolerance(s) : a.whole == b.whole) continue;
      std::ostringstream text;
      text << "output " << i << " element " << at << " is " << (real ? a.real : static_cast<double>(a.whole))
           << ", not " << (real ? b.real : static_cast<double>(b.whole)) << " +- " << 2 * fuzz::tolerance(s);
      return text.str();
    }
  }
  return "";
}

/// One random graph, planned, and the way in which it is run.
struct Seed {
  unsigned seed;
  fuzz::Case given;
  std::string text;
  loops::Plan plan;
  Way way;

  Seed(const Tool& tool, unsigned number)
      : seed(number),
        given(fuzz::Generator(number, limits(number)).run()),
        text(graph::print(*given.graph)),
        way(tool.ways()[number % tool.ways().size()]) {
    std::unique_ptr<graph::Graph> g = graph::parse(text);
    graph::optimize(*g);
    loops::PlanOptions options;
    options.fuse = number % 8 != 7;
    plan = loops::plan(std::move(g), options);
  }
  /// Some of them beyond a block.
  static fuzz::Limits limits(unsigned number) {
    fuzz::Limits usual;
    if (number % 4 == 3) usual = {.nodes = 6, .size = 600, .numel = 1 << 13};
    return usual;
  }
};

std::string seed_differs(const Tool& tool, const Seed& s) {
  const Kernels kernels(s.plan);
  const codegen::cuda::PlanLaunches code = compile(tool.target, kernels, s.way);
  if (!tool.device) return "";
  tool.device->go(s.way);
  const fuzz::SampleMap expected = fuzz::samples_of(*s.given.graph, s.given.inputs);
  return values_differ(*s.given.graph, run_plan(tool, s.plan, s.given.inputs, kernels, code), expected);
}

}  // namespace

void fuzz_seeds(Tool& tool, const std::string& range) {
  constexpr unsigned kTogether = 32;
  const auto first = static_cast<unsigned>(std::stoul(range));
  const auto count = static_cast<unsigned>(std::stoul(range.substr(range.find(':') + 1)));
  for (unsigned begin = first; begin < first + count; begin += kTogether) {
    std::vector<std::unique_ptr<Seed>> seeds;
    std::vector<Wanted> wanted;
    auto report = [&](unsigned seed, const std::string& wrong) {
      if (!wrong.empty()) say(tool, "seed " + std::to_string(seed), wrong);
    };
    auto tried = [&](unsigned seed, const auto& f) {
      try {
        return f();
      } catch (const std::exception& e) {
        report(seed, e.what());
      }
    };
    for (unsigned seed = begin; seed < std::min(begin + kTogether, first + count); ++seed)
      tried(seed, [&] { seeds.push_back(std::make_unique<Seed>(tool, seed)); });
    for (const auto& s : seeds) wanted.push_back({Kernels(s->plan), {s->way}});
    if (tool.emulator.as) make_ready(tool, wanted);
    for (const auto& s : seeds) {
      tried(s->seed, [&] {
        const std::string wrong = seed_differs(tool, *s);
        if (!wrong.empty())
          throw std::runtime_error(std::string(s->way.name) + ", " + wrong + "\n" + s->text);
      });
    }
  }
  std::printf("%u random graphs from seed %u\n", count, first);
}

}  // namespace bolt::gpu
