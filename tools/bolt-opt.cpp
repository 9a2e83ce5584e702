// tools/bolt-opt.cpp
// Text form of a graph -> passes -> text: every graph pass can be tried by hand.
//
//   bolt-opt --passes=canonicalize,cse --verify-each --time file.ir     (- reads standard input)
//   bolt-opt --passes=standard file.ir
//   bolt-opt --emit=cuda file.ir     CUDA C++ of its kernels; the file holds a graph, or kernels as plans
//   print them bolt-opt --list
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "codegen/cuda/emit.h"
#include "graph/ir.h"
#include "graph/passes/passes.h"
#include "loops/plan.h"
#include "support/error.h"
#include "support/text.h"

namespace {

using namespace bolt;

struct Options {
  std::string passes, file, emit;
  bool verify_each = false, time = false, list = false;
};

Options read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    if (starts_with(arg, "--passes=")) {
      o.passes = arg.substr(9);
    } else if (starts_with(arg, "--emit=")) {
      o.emit = arg.substr(7);
      if (o.emit != "cuda") throw_user("cannot emit ", o.emit, "; there is: cuda");
    } else if (arg == "--stage=graph") {
      continue;
    } else if (arg == "--verify-each") {
      o.verify_each = true;
    } else if (arg == "--time") {
      o.time = true;
    } else if (arg == "--list") {
      o.list = true;
    } else if (starts_with(arg, "--")) {
      throw_user("unknown option ", arg);
    } else {
      o.file = arg;
    }
  }
  if (o.file.empty() && !o.list)
    throw_user(
        "usage: bolt-opt [--passes=a,b|standard] [--emit=cuda] [--verify-each] [--time] [--list] FILE");
  return o;
}

std::string read_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(path);
  if (!in) throw_user("cannot read ", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void list_passes() {
  for (const graph::Pass& p : graph::passes())
    std::printf("%-18s %s\n", std::string(p.name).c_str(), std::string(p.summary).c_str());
}

/// Every kernel in a text: from `kernel @` at the start of a line to the `}` that stands alone.
std::vector<loops::Kernel> read_kernels(const std::string& text) {
  std::vector<loops::Kernel> kernels;
  std::string lines = "\n" + text;
  for (size_t at = lines.find("\nkernel @"); at != std::string::npos; at = lines.find("\nkernel @", at)) {
    const size_t end = lines.find("\n}", at);
    if (end == std::string::npos) throw_user("a kernel without end");
    kernels.push_back(loops::parse_kernel(std::string_view(lines).substr(at, end + 2 - at)));
    loops::verify(kernels.back());
    at = end;
  }
  return kernels;
}

void run(const Options& o) {
  const std::string text = read_file(o.file);
  if (std::vector<loops::Kernel> kernels = read_kernels(text); !kernels.empty()) {
    if (o.emit.empty()) throw_user("kernels can only be emitted: --emit=cuda");
    std::fputs(codegen::cuda::emit(kernels).text.c_str(), stdout);
    return;
  }
  std::unique_ptr<graph::Graph> g = graph::parse(text);
  std::vector<std::string_view> names =
      o.passes == "standard" ? graph::standard_passes() : split(o.passes, ',');
  std::vector<graph::PassTime> times = graph::run_passes(*g, names, o.verify_each);
  if (o.emit.empty())
    std::fputs(graph::print(*g).c_str(), stdout);
  else
    std::fputs(codegen::cuda::emit(loops::plan(std::move(g), {}).kernels).text.c_str(), stdout);
  if (!o.time) return;
  for (const graph::PassTime& t : times)
    std::fprintf(stderr, "%-18s %9.1f us%s\n", std::string(t.name).c_str(), t.seconds * 1e6,
                 t.changed ? "  changed" : "");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options o = read_options(argc, argv);
    if (o.list) {
      list_passes();
    } else {
      run(o);
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bolt-opt: %s\n", e.what());
    return 1;
  }
}
