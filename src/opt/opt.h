// opt/opt.h
// The text of one stage -> the text of a later one: what bolt-opt does, and torchbolt.opt behind the tape.
//
//   graph --passes--> graph --> plan --> kernels --> schedule, llvm, asm (CPU) or cuda
//
// Which stage a text is of is said by its first word: tape, graph, plan or kernel. A tape needs ATen, which
// the core does not know: the extension lowers it and goes on with `run` of its graph.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir.h"
#include "support/export.h"

namespace bolt::opt {

struct OptOptions {
  std::string file;      ///< -: standard input
  std::string emit;      ///< the stage to print; "": that of the text
  std::string passes;    ///< with commas between them, or "standard"
  std::string target;    ///< cpu, cuda: no contraction is generated; "": cpu, but cuda where that is printed
  std::string fuel;      ///< at most so many fusions; "": any number
  std::string numerics;  ///< loops::PlanOptions::rounds_as_eager where it is "eager"; else "fast" or ""
  std::string apart;     ///< temporaries of so many bytes lie apart; "": none do
  std::string free;      ///< with commas: results by number that may lie in any order (loops/layout.h)
  bool no_fuse = false, verify_each = false, time = false, list = false, help = false;
};

struct OptResult {
  std::string text;
  std::string report;  ///< what --time says of the passes
};

/// Of a command line, without the program's name. Throws Error(User).
BOLT_API OptOptions read_options(const std::vector<std::string>& arguments);
BOLT_API std::string help();
/// One line a pass.
BOLT_API std::string list_of_passes();
/// The stage of a text: "tape", "graph", "plan" or "kernels". Throws Error(User).
BOLT_API std::string_view stage_of(std::string_view text);

/// Of a text that is no tape.
BOLT_API OptResult run(std::string_view text, const OptOptions& options);
BOLT_API OptResult run(std::unique_ptr<graph::Graph> graph, const OptOptions& options);

}  // namespace bolt::opt
