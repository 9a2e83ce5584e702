// tests/device/graph_sections_test.cpp
// Which steps become graphs, by what they cost; and that copies for graphs are those that are needed.
#include <gtest/gtest.h>

#include "device/driver/graph_policy.h"

namespace bolt::device {
namespace {

/// "aab" etc.: a letter a step; `a` is part of graphs, `X` is launched, each reads what the one before made.
std::vector<GraphStep> chain(const std::string& text, int64_t launches = 1) {
  std::vector<GraphStep> steps;
  for (size_t i = 0; i < text.size(); ++i) {
    const int here = static_cast<int>(i);
    GraphStep s{launches, text[i] == 'X', {here}, {here}, {}};
    if (i > 0) s.touches.push_back(here - 1);
    steps.push_back(s);
  }
  return steps;
}

std::string sections(const std::vector<GraphStep>& steps) {
  std::string out;
  for (const GraphSection& s : sections_of(steps).list)
    out += (out.empty() ? "" : " ") + std::string(s.end - s.begin, s.graph ? 'g' : 'x');
  return out;
}

TEST(GraphSections, AProgramWithoutObstaclesIsOneGraphWhateverItIsWorth) {
  EXPECT_EQ(sections(chain("a")), "g");
  EXPECT_EQ(sections(chain("aaaaaa")), "gggggg");
}

TEST(GraphSections, StepsThatCannotBeCapturedDivideIt) {
  EXPECT_EQ(sections(chain("aaaaXaaaa")), "gggg x gggg");
  EXPECT_EQ(sections(chain("XaaaaXXaaaa")), "x gggg xx gggg");
}

TEST(GraphSections, AFewLaunchesAreNoGraph) {
  EXPECT_EQ(sections(chain("aaXaaaa")), "xxx gggg");    // two launches are what a graph costs
  EXPECT_EQ(sections(chain("aaaaXaaa")), "gggg xxxx");  // and three, with a copy of what X made
  EXPECT_EQ(sections(chain("aXa")), "xxx");
  EXPECT_EQ(sections(chain("aXa", 5)), "g x g");
}

TEST(GraphSections, WhatALaunchedStepMakesIsPlacedForGraphsAlone) {
  const GraphSections found = sections_of(chain("aaaaXXaaaa"));
  EXPECT_EQ(found.placed, std::vector<int>{5});  // 4 is read by X alone
  EXPECT_EQ(found.launches, 8);
  EXPECT_EQ(found.graphs, 2);
}

TEST(GraphSections, AStepThatJoinsLaunchedOnesMayCostAnotherGraphItsWorth) {
  // The second run makes what the third reads: once it is launched, that has to be copied, as what X made.
  auto steps = chain("XaaXaaaa");
  EXPECT_EQ(sections(steps), "xxxx gggg");
  steps.back().touches.push_back(2);
  EXPECT_EQ(sections(steps), "xxxxxxxx");
}

TEST(GraphSections, ResultsOfGraphsCountAsCopies) {
  auto steps = chain("Xaaaa");
  steps[4].results = {4};
  EXPECT_EQ(sections(steps), "xxxxx");
  steps = chain("Xaaaaa");
  steps[5].results = {5};
  EXPECT_EQ(sections(steps), "x ggggg");
}

}  // namespace
}  // namespace bolt::device
