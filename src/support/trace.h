// support/trace.h
// options={"trace.enabled": True}: what became of each region, stage by stage, as files in a folder of its
// own.
#pragma once

#include <string>
#include <string_view>

namespace bolt {

/// A folder for one region below `root`, made when the first file is written. An empty root: nothing is
/// written.
class Trace {
 public:
  Trace() = default;
  Trace(const std::string& root, const std::string& name);
  bool wanted() const { return !folder_.empty(); }
  /// What cannot be written is left out, with one line on standard error.
  void write(const std::string& file, std::string_view text) const;

 private:
  std::string folder_;
};

}  // namespace bolt
