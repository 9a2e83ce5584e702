// codegen/cuda/lines.h
// Lines of CUDA C++ -> the text of a function, indented by the braces that are open.
#pragma once

#include <string>

namespace bolt::codegen::cuda {

class Lines {
 protected:
  std::string indent() const { return std::string(static_cast<size_t>(depth_) * 2, ' '); }
  void line(const std::string& text) { out_ += indent() + text + "\n"; }
  void open(const std::string& text) {
    line(text + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  /// The loop that comes next: whole, or so many times at once.
  void unroll(int times = 0) {
    out_ += "#pragma unroll" + (times ? " " + std::to_string(times) : std::string()) + "\n";
  }

  std::string out_;
  int depth_ = 0;
};

}  // namespace bolt::codegen::cuda
