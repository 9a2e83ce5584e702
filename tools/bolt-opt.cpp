// tools/bolt-opt.cpp
// The text form of a graph, a plan or kernels -> that of any later stage, so that each stage can be tried by
// hand. What it can do is opt/opt.h; here are files and exit codes.
//
//   bolt-opt --passes=canonicalize,cse --verify-each --time file.ir     (- reads standard input)
//   bolt-opt --passes=standard --emit=plan file.ir
//   bolt-opt --emit=cuda file.ir     CUDA C++ of its kernels, whatever stage the file is of
//   bolt-opt --list
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "opt/opt.h"
#include "support/error.h"

namespace {

using namespace bolt;

std::string read_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(path);
  if (!in) throw_user("cannot read ", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const opt::OptOptions& o) {
  if (o.help || o.list) {
    std::fputs((o.help ? opt::help() : opt::list_of_passes()).c_str(), stdout);
    return;
  }
  const opt::OptResult result = opt::run(read_file(o.file), o);
  std::fputs(result.text.c_str(), stdout);
  std::fputs(result.report.c_str(), stderr);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(opt::read_options({argv + 1, argv + argc}));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bolt-opt: %s\n", e.what());
    return 1;
  }
}
