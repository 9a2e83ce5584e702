// tests/gemm/run_graph.h
// graph text -> its plan, the plan's machine code run on random numbers, and how far that is from the
// reference; for a target that does not run here, its code is only looked at
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "codegen/cpu/compile_plan.h"
#include "tests/codegen/targets.h"
#include "tests/fuzz/compiled_runner.h"

namespace bolt::codegen::cpu::test {

using Sizes = std::vector<int64_t>;

inline graph::HostTensor random_tensor(DType dtype, const Sizes& sizes, std::mt19937& random) {
  graph::HostTensor t = graph::make_tensor(dtype, sizes);
  std::uniform_int_distribution<int> eighths(-16, 16);  // exact in every type
  std::uniform_real_distribution<float> number(-2, 2);
  for (graph::Cell& cell : t.cells) {
    if (t.is_real())
      cell.real = dtype == DType::F32 ? number(random) : eighths(random) / 8.0;
    else
      cell.whole = random() % 3 != 0;
  }
  return t;
}

struct Ran {
  std::string plan;
  int contractions = 0;
  double difference = 0;
};

/// `sizes` of the graph's inputs, as symbols stand for them.
inline Ran run_graph(const std::string& text, const std::vector<Sizes>& sizes, const Target& target,
                     const std::function<void(std::vector<graph::HostTensor>&)>& change = nullptr) {
  std::unique_ptr<graph::Graph> g = graph::parse(text);
  std::mt19937 random(7);
  std::vector<graph::HostTensor> inputs;
  for (size_t i = 0; i < sizes.size(); ++i)
    inputs.push_back(random_tensor(g->inputs[i].value->type.dtype, sizes[i], random));
  if (change) change(inputs);
  const bool runs = testing::runs_here(target);
  std::vector<graph::HostTensor> expected;
  if (runs) expected = graph::run_reference(*g, inputs);
  const loops::Plan plan =
      loops::testing::through_text(loops::plan(std::move(g), options_that_generate(target)));
  Ran ran;
  ran.plan = loops::print(plan);
  for (const loops::Step& s : plan.steps) ran.contractions += s.kind == loops::StepKind::Contraction;
  if (!runs) {
    testing::look_at(assemble(plan, target), target);
    return ran;
  }
  const PlanFunctions code = compile(plan, target);
  const std::vector<graph::HostTensor> got = fuzz::CompiledRunner(plan, code, inputs).run();
  for (size_t i = 0; i < got.size(); ++i)
    ran.difference = std::max(ran.difference, graph::difference(got[i], expected[i]));
  return ran;
}

}  // namespace bolt::codegen::cpu::test
