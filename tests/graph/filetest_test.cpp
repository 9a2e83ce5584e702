// tests/graph/filetest_test.cpp
// Runs tests/graph/files/*.ir. The first line names the passes: "; test graph passes=decompose,cse". Then a
// graph, and
//
//   ; check: text     the printed result has this text, after the text of the check before
//   ; not: text       and this nowhere
//   ; error: text     reading or verifying the input fails with this text
//   ; run             the result computes what the input computed, on random inputs (reference execution)
//
// The processor is one without instructions for products of half precision.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "graph/passes/passes.h"
#include "graph/verify.h"
#include "support/error.h"
#include "support/text.h"
#include "tests/graph/random_inputs.h"

namespace bolt::graph {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string_view> directives(std::string_view text, std::string_view name) {
  std::vector<std::string_view> out;
  for (std::string_view line : split(text, '\n')) {
    std::string_view t = trim(line);
    if (!starts_with(t, "; ")) continue;
    t.remove_prefix(2);
    if (starts_with(t, name)) out.push_back(trim(t.substr(name.size())));
  }
  return out;
}

void run_file(const std::string& text) {
  std::vector<std::string_view> header = directives(text, "test graph passes=");
  ASSERT_EQ(header.size(), 1u) << "the first line must be '; test graph passes=...'";
  std::vector<std::string_view> errors = directives(text, "error:"), checks = directives(text, "check:");
  if (!errors.empty()) {
    try {
      parse(text);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(errors[0]), std::string::npos) << e.what();
    }
    return;
  }
  std::unique_ptr<Graph> before = parse(text), after = clone(*before);
  auto on_cpu = [](const Node& node) { return node.out()->type.device.kind == DeviceKind::CPU; };
  run_passes(*after, split(header[0], ','), true, {.widens = on_cpu});
  std::string printed = print(*after);
  EXPECT_EQ(print(*parse(printed)), printed);
  size_t at = 0;
  for (std::string_view check : checks) {
    size_t found = printed.find(check, at);
    ASSERT_NE(found, std::string::npos) << "missing: " << check << "\n" << printed;
    at = found + check.size();
  }
  for (std::string_view absent : directives(text, "not:"))
    EXPECT_EQ(printed.find(absent), std::string::npos) << "unwanted: " << absent << "\n" << printed;
  bool runs = !directives(text, "run").empty();
  ASSERT_TRUE(runs || !checks.empty()) << "the file tests nothing";
  for (unsigned seed = 1; runs && seed <= 3; ++seed)
    EXPECT_LT(compare_graphs(*before, *after, seed), 1e-9) << printed;
}

TEST(GraphFiles, All) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BOLT_TEST_DIR "/graph/files")) {
    SCOPED_TRACE(entry.path().filename().string());
    run_file(contents(entry.path()));
    ++files;
  }
  EXPECT_GT(files, 5);
}

}  // namespace
}  // namespace bolt::graph
