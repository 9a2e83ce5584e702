// tests/loops/plan_files_test.cpp
// The files tests/loops/plans/*.ir: a plan as somebody writes it by hand.
//
//   ; check: text     the printed plan has this text
//   ; error: text     reading it fails with this text
//   ;; graph @...     lines of the graph whose results it gives when it is run
//   ; s0 = 5          a symbol's value for the run
//   ; kernels: text   what bolt-opt emits of it (also schedule:, cuda:) has this text
//
// What is printed of a plan that was read is the same when it is read again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "opt/opt.h"
#include "plan_runner.h"
#include "support/text.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::HostTensor;

struct File {
  std::string plan, graph;
  std::vector<std::pair<std::string, std::string>> directives;  // in their order
};

File read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  File f{text, "", {}};
  for (std::string_view line : split(text, '\n')) {
    if (starts_with(line, ";; ")) f.graph += std::string(line.substr(3)) + "\n";
    if (!starts_with(line, "; ")) continue;
    line.remove_prefix(2);
    const size_t equals = line.find(" = "), colon = line.find(": ");
    if (const size_t end = std::min(equals, colon); end != line.npos && line.find(' ') >= end)
      f.directives.emplace_back(line.substr(0, end), line.substr(end + (end == equals ? 3 : 2)));
  }
  return f;
}

std::string fault_of(const std::string& plan) {
  try {
    parse_plan(plan);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::User ? e.what() : std::string("another kind of error: ") + e.what();
  }
  return "no fault";
}

void run_as_the_graph(const Plan& p, const File& f, const std::map<std::string, int64_t>& symbols) {
  const std::unique_ptr<Graph> g = graph::parse(f.graph);
  const std::vector<HostTensor> inputs = testing::random_inputs(*g, symbols);
  const std::vector<HostTensor> expected = graph::run_reference(*g, inputs);
  const std::vector<HostTensor> got = testing::PlanRunner(p, inputs).run();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(graph::difference(got[i], expected[i]), 1e-5) << "output " << i;
}

void run_file(const File& f) {
  std::map<std::string, int64_t> symbols;
  bool faulty = false;
  for (const auto& [key, value] : f.directives) {
    if (key == "error") {
      faulty = true;
      EXPECT_NE(fault_of(f.plan).find(value), std::string::npos) << fault_of(f.plan);
    } else if (key[0] == 's' && key.size() <= 3) {
      symbols[key] = std::stoll(value);
    }
  }
  if (faulty) return;
  const Plan p = testing::through_text(parse_plan(f.plan));
  for (const auto& [key, value] : f.directives) {
    opt::OptOptions options;
    options.emit = key == "check" ? "plan" : key;
    if (symbols.count(key)) continue;
    const std::string made = opt::run(print(p), options).text;
    EXPECT_NE(made.find(value), std::string::npos) << "missing: " << value << "\n" << made;
  }
  if (!f.graph.empty()) run_as_the_graph(p, f, symbols);
}

TEST(PlanFiles, All) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BOLT_TEST_DIR "/loops/plans")) {
    SCOPED_TRACE(entry.path().filename().string());
    run_file(read_file(entry.path()));
    ++files;
  }
  EXPECT_GT(files, 5);
}

}  // namespace
}  // namespace bolt::loops
