// run/sections.h
// The steps of a prepared program -> those that are graphs, and those that are launched in between, each
// call.
//
// What a graph would freeze is launched: sizes that are data, work on the processor, random numbers that are
// not the default generator's, operators that torch calls unsafe, or of which a capture has shown it. What a
// launched step makes and a graph reads is copied to where the graph has it. Everything else that graphs
// touch lies still: the arena, results until they are copied out, and what calls within a graph allocate.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/driver/graph_policy.h"
#include "run/prepared.h"

namespace bolt::run {

struct Sections {
  device::GraphSections parts;
  size_t device = 0;         ///< among Prepared::devices: the one with graphs
  std::vector<char> inputs;  ///< by graph input: does a graph touch it?
  std::vector<char> placed;  ///< by buffer: a launched step's result, copied to where graphs have it
  std::vector<char>
      borrowed;  ///< by buffer that has memory of its own: the graphs' memory. Copied for the caller
  std::vector<int> pinned;  ///< of these, outputs that no call gives
  enum class Result : char { elsewhere, copied, stays };
  std::vector<Result> results;  ///< by output: not in graphs' memory, or there, where the caller may have it
  std::vector<char> draws;      ///< by section
  std::string why_none;         ///< no step is part of a graph; else ""
  std::string left_out;         ///< steps that are launched, and why; "": none

  bool is_whole() const { return parts.list.size() == 1; }
  /// Copies that each replay makes, beside those of inputs and results.
  int64_t copies() const { return static_cast<int64_t>(parts.placed.size()); }
};

/// `refused`: why steps of these names cannot be captured.
Sections make_sections(const Prepared& prepared, const std::map<std::string, std::string>& refused);

}  // namespace bolt::run
