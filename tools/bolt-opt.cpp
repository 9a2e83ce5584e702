// tools/bolt-opt.cpp
// Text form of a graph -> passes -> text: every graph pass can be tried by hand.
//
//   bolt-opt --passes=canonicalize,cse --verify-each --time file.ir     (- reads standard input)
//   bolt-opt --passes=standard file.ir
//   bolt-opt --list
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "graph/ir.h"
#include "graph/passes/passes.h"
#include "support/error.h"
#include "support/text.h"

namespace {

using namespace bolt;

struct Options {
  std::string passes, file;
  bool verify_each = false, time = false, list = false;
};

Options read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    if (starts_with(arg, "--passes=")) {
      o.passes = arg.substr(9);
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
    throw_user("usage: bolt-opt [--passes=a,b|standard] [--verify-each] [--time] [--list] FILE");
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

void run(const Options& o) {
  std::unique_ptr<graph::Graph> g = graph::parse(read_file(o.file));
  std::vector<std::string_view> names =
      o.passes == "standard" ? graph::standard_passes() : split(o.passes, ',');
  std::vector<graph::PassTime> times = graph::run_passes(*g, names, o.verify_each);
  std::fputs(graph::print(*g).c_str(), stdout);
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
