// tests/cuda/compile_test.cpp
// NVRTC found at run time, and plans compiled with it (codegen/cuda/nvrtc.h, compile_plan.h). BOLT_TEST_NVRTC
// names the library, or a folder that holds it, where the loader does not find it by itself; without one,
// these tests are skipped.
#include "codegen/cuda/compile_plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "codegen/cuda/lists.h"
#include "device/driver/driver.h"
#include "support/error.h"
#include "support/parallel.h"

namespace bolt::codegen::cuda {
namespace {

std::shared_ptr<const Nvrtc> nvrtc() {
  const char* path = std::getenv("BOLT_TEST_NVRTC");
  std::string why;
  return Nvrtc::open(path ? std::vector<std::string>{path} : std::vector<std::string>{}, &why);
}

loops::Kernel exp_of(const std::string& name, const std::string& sizes, const std::string& index) {
  return loops::parse_kernel("kernel @" + name + " (in %b0: f32, out %b1: f32) space [" + sizes +
                             "] {\n  %0 = load b0[" + index + "]\n  %1 = exp %0\n  store b1[" + index +
                             "] = %1\n}");
}

class CudaCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    target.nvrtc = nvrtc();
    if (!target.nvrtc) GTEST_SKIP() << "no NVRTC: set BOLT_TEST_NVRTC";
  }
  CudaTarget target;
};

TEST_F(CudaCompile, AnErrorShowsTheLineAtFault) {
  try {
    target.nvrtc->compile("extern \"C\" __global__ void f(int* x) {\n  *x = wrong;\n}\n", 90);
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Internal);
    EXPECT_NE(std::string(e.what()).find("2:   *x = wrong;"), std::string::npos) << e.what();
  }
}

TEST_F(CudaCompile, AnUnknownArchitectureIsUnsupported) {
  try {
    target.nvrtc->compile("", 57);
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(e.what()).find("5.7"), std::string::npos) << e.what();
  }
}

TEST_F(CudaCompile, KernelsThatDifferInNamesAndOutermostSizeAreOneFunction) {
  const PlanLaunches code =
      compile({exp_of("one", "64 d0, 96 d1", "100*d0 + d1"), exp_of("two", "32 d0, 96 d1", "100*d0 + d1"),
               exp_of("other", "64 d0, 48 d1", "100*d0 + d1")},
              target);
  ASSERT_EQ(code.kernels.size(), 3u);
  auto launch = [&](size_t i) -> const GridLaunch& { return code.kernels[i].launches.at(0); };
  EXPECT_EQ(launch(0).function, launch(1).function);
  EXPECT_EQ(launch(0).code, launch(1).code);
  EXPECT_NE(launch(0).function, launch(2).function);
  EXPECT_EQ(launch(0).count.value(), 64 * 96);
  EXPECT_EQ(launch(1).count.value(), 32 * 96);
  EXPECT_NE(launch(0).code->image().find(launch(0).function), std::string::npos);
}

TEST_F(CudaCompile, EachScheduleIsCodeOfOtherBlocks) {
  int differ = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BOLT_TEST_DIR "/cuda")) {
    if (entry.path().extension() != ".ir") continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream in(entry.path());
    const loops::Plan plan =
        loops::plan(graph::parse(std::string{std::istreambuf_iterator<char>(in), {}}), {});
    std::vector<int> usual;
    for (int schedule = 0; schedule < static_cast<int>(std::size(kWider)); ++schedule) {
      const std::vector<int> schedules(plan.kernels.size(), schedule);
      const PlanLaunches code = Compilation(plan.kernels, target, {}, {}, schedules).finish();
      for (size_t i = 0; i < code.kernels.size(); ++i) {
        ASSERT_EQ(code.kernels[i].refused, "");
        const int threads = code.kernels[i].launches.at(0).threads;
        if (schedule == 0)
          usual.push_back(threads);
        else
          differ += threads != usual[i];
        EXPECT_LE(threads, 1024);
      }
    }
  }
  EXPECT_GT(differ, 10);
}

TEST_F(CudaCompile, KernelsInListsAreOneFunctionForAllSizes) {
  auto sum_of = [](const std::string& name, const std::string& size) {
    return loops::parse_kernel("kernel @" + name + " (in %b0: f32, out %b1: f32) space [" + size +
                               " d0 reduce] {\n  %0 = load b0[d0]\n  %1 = reduce sum %0 over d0\n"
                               "  store b1[0] = %1\n}");
  };
  const std::vector<loops::Kernel> kernels = {exp_of("one", "64 d0, 96 d1", "96*d0 + d1"),
                                              exp_of("two", "100 d0", "d0"),
                                              sum_of("short", "1000"),
                                              sum_of("shorter", "8"),
                                              sum_of("long", "1048576"),
                                              sum_of("longer", "4194304"),
                                              sum_of("odd", "1001")};
  const PlanLaunches code = compile(kernels, target, std::vector<char>(kernels.size(), 1));
  auto launch = [&](size_t i, size_t part = 0) -> const GridLaunch& {
    return code.kernels[i].launches.at(part);
  };
  for (const KernelLaunches& k : code.kernels)
    for (const GridLaunch& l : k.launches) {
      EXPECT_GE(l.most, 50) << k.name;
      EXPECT_TRUE(l.blocks.is_const() && l.count.is_const()) << k.name;
    }
  for (auto [a, b] : {std::pair{0, 1}, {2, 3}, {4, 5}}) EXPECT_EQ(launch(a).function, launch(b).function);
  EXPECT_EQ(launch(4, 1).function, launch(5, 1).function);
  EXPECT_EQ(code.kernels[2].launches.size(), 1u);
  EXPECT_EQ(code.kernels[4].launches.size(), 2u);
  EXPECT_NE(launch(2).function, launch(6).function);
  EXPECT_EQ(code.kernels[5].values, std::vector<int64_t>{4194304 / 8});
  EXPECT_EQ(list_key(kernels[0], target.options), list_key(kernels[1], target.options));
  EXPECT_EQ(list_key(kernels[4], target.options), list_key(kernels[5], target.options));
  EXPECT_NE(list_key(kernels[0], target.options), list_key(kernels[4], target.options));
}

TEST_F(CudaCompile, NumbersOfTheProcessorAreArguments) {
  const loops::Kernel kernel = loops::parse_kernel(
      "kernel @scaled (in %b0: f32, in %b1: bf16, out %b2: f32) space [100 d0] {\n  %0 = load b0[d0]\n"
      "  %1 = load b1[0]\n  %2 = cast f32 %1\n  %3 = mul %0, %2\n  store b2[d0] = %3\n}");
  const std::vector<char> numbers = {0, 1, 0};
  for (char listed : {'\0', '\1'}) {
    const PlanLaunches code = compile({kernel}, target, {listed}, {numbers});
    EXPECT_EQ(code.kernels[0].number_bytes, (std::vector<char>{0, 2, 0}));
    EXPECT_EQ(code.kernels[0].launches.at(0).most > 0, listed == 1);
  }
  EXPECT_NE(list_key(kernel, target.options), list_key(kernel, target.options, numbers));
}

TEST_F(CudaCompile, WhatThisProcessHasCompiledIsNotCompiledAgain) {
  const std::vector<loops::Kernel> kernels = {exp_of("first", "7 d0, 33 d1", "40*d0 + d1")};
  const PlanLaunches once = compile(kernels, target), again = compile(kernels, target);
  EXPECT_TRUE(again.from_cache);
  EXPECT_EQ(once.kernels[0].launches[0].code, again.kernels[0].launches[0].code);
}

TEST_F(CudaCompile, WhatTwoPlansHaveInCommonIsCompiledOnce) {
  const std::vector<loops::Kernel> kernels = {exp_of("first", "7 d0, 35 d1", "41*d0 + d1")};
  Compilation one(kernels, target), two(kernels, target);
  EXPECT_EQ(one.kernels()[0].extents(), two.kernels()[0].extents());
  auto under_way = started([&] { return one.finish(); });
  const PlanLaunches second = two.finish(), first = under_way.get();
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(first.kernels[0].launches[0].code, second.kernels[0].launches[0].code);
}

TEST(CudaDriver, IsThereOrSaysWhyNot) {
  namespace driver = device::driver;
  if (driver::find()) {
    EXPECT_EQ(driver::missing(), "");
    return;
  }
  EXPECT_NE(driver::missing(), "");
  try {
    driver::get();
    FAIL() << "a driver out of nothing";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::User);
    EXPECT_EQ(e.what(), driver::missing());
  }
}

TEST(CudaCompiler, ThatIsMissingSaysWhereItWasLookedFor) {
  std::string why;
  if (Nvrtc::open({}, &why)) GTEST_SKIP() << "the loader finds one by name";
  EXPECT_FALSE(Nvrtc::open({"/nowhere/lib"}, &why));
  EXPECT_NE(why.find("/nowhere/lib"), std::string::npos) << why;
}

}  // namespace
}  // namespace bolt::codegen::cuda
