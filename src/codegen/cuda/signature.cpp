// codegen/cuda/signature.cpp
// See signature.h.

#include "codegen/cuda/signature.h"

#include "codegen/cuda/lines.h"
#include "codegen/cuda/ops.h"
#include "codegen/cuda/values.h"

namespace bolt::codegen::cuda {
namespace {

class Signature : CudaValues, Lines {
 public:
  Signature(const loops::Kernel& k, const Schedule& s, int most, const std::vector<char>& numbers)
      : CudaValues(k, s), most_(most), numbers_(numbers) {}

  std::string run(const std::string& name) {
    most_ ? of_list(name) : of_one(name);
    return out_;
  }

 private:
  std::string pointer_type(const loops::Buffer& b) const {
    return (b.role == loops::BufferRole::In ? "const " : "") + memory_type(b.dtype) + "*";
  }
  /// Is a buffer of one number given as that number, among the arguments?
  bool is_number(size_t buffer) const { return !numbers_.empty() && numbers_[buffer]; }

  void of_one(const std::string& name) {
    std::string args;
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const loops::Buffer& b = k_.buffers[i];
      args += std::string(i ? ", " : "") + (is_number(i) ? "u64 bits" : pointer_type(b) + " b") +
              str(static_cast<int64_t>(i));
    }
    if (k_.has_checks()) args += ", i64* report";
    args += std::string(", ") + position_type() + " count";
    for (Sym s : k_.symbols) args += ", i64 " + text(s);
    const std::string cluster = s_.cluster > 1 ? " __cluster_dims__(" + str(s_.cluster) + ", 1, 1)" : "";
    line("extern \"C\" __global__ void __launch_bounds__(" + str(s_.threads) + ")" + cluster);
    line(name + "(" + args + ") {");
    depth_ = 1;
    declare_numbers();
  }
  void declare_numbers() {
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const std::string type = pointer_type(k_.buffers[i]), n = str(static_cast<int64_t>(i));
      if (is_number(i)) line(type + " const b" + n + " = reinterpret_cast<" + type + ">(&bits" + n + ");");
    }
  }
  /// A kernel in lists is given what others are given, in that order, out of the list of its launches.
  void of_list(const std::string& name) {
    const size_t arguments = k_.buffers.size() + 1 + k_.symbols.size();
    line("extern \"C\" __global__ void __launch_bounds__(" + str(s_.threads) + ")");
    line(name + "(const __grid_constant__ List<" + str(static_cast<int64_t>(arguments)) + ", " + str(most_) +
         "> list) {");
    depth_ = 1;
    line("const unsigned of_list = place_in(list);");
    line("const u64* const given = list.of[of_list];");
    line("const unsigned block_of_one = blockIdx.x - list.begin[of_list];");
    int64_t next = 0;
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const loops::Buffer& b = k_.buffers[i];
      line(pointer_type(b) + " const b" + str(static_cast<int64_t>(i)) + " = reinterpret_cast<" +
           pointer_type(b) + ">(" + (is_number(i) ? "&" : "") + "given[" + str(next++) + "]);");
    }
    line(std::string("const ") + position_type() + " count = " + position_type() + "(given[" + str(next++) +
         "]);");
    for (Sym s : k_.symbols) line("const i64 " + text(s) + " = i64(given[" + str(next++) + "]);");
  }

  const int most_;
  const std::vector<char>& numbers_;
};

}  // namespace

std::string signature(const loops::Kernel& kernel, const Schedule& schedule, const std::string& name,
                      int most, const std::vector<char>& numbers) {
  return Signature(kernel, schedule, most, numbers).run(name);
}

}  // namespace bolt::codegen::cuda
