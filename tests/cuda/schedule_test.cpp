// tests/cuda/schedule_test.cpp
// How kernels are put on a GPU (codegen/cuda/schedule.h), where the text does not show it at a glance.
#include "codegen/cuda/schedule.h"

#include <gtest/gtest.h>

namespace bolt::codegen::cuda {
namespace {

/// Rows of `length` elements, which two sweeps read; the second reads those of b0 only.
Schedule of_rows(const std::string& length) {
  const std::string row = "[" + length + "*d0 + d1]";
  ScheduleOptions options;
  options.capability = 90;
  return schedule(
      loops::parse_kernel("kernel @rows (in %b0: f32, in %b1: f32, in %b2: f32, out %b3: f32) space [3 d0, " +
                          length + " d1 reduce] {\n  %0 = load b0" + row + "\n  %1 = load b1" + row +
                          "\n  %2 = load b2" + row +
                          "\n  %3 = mul %1, %2\n  %4 = mul %0, %3\n  %5 = reduce sum %4 over d1\n"
                          "  %6 = mul %0, %5\n  store b3" +
                          row + " = %6\n}"),
      options);
}

TEST(CudaSchedule, AClusterIsAsLargeAsWhatItsRowsKeepNeeds) {
  const Schedule s = of_rows("60000");
  EXPECT_TRUE(s.in_shared);
  EXPECT_EQ(s.cluster, 4);
}

}  // namespace
}  // namespace bolt::codegen::cuda
