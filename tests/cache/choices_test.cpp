// tests/cache/choices_test.cpp
// The fastest way is taken where it is clearly faster, measured once, and by no process a second time.
#include "cache/choices.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "tests/cache/folder.h"

namespace bolt::cache {
namespace {

/// Ways that take the times written down for them, one after another, on a clock of their own.
class Race {
 public:
  void add(const std::string& name, std::vector<double> times) {
    ways.push_back({name, [this, name, times] {
                      const size_t turn = static_cast<size_t>(turns[name]++);
                      now += 1;
                      if (turn >= times.size()) throw std::runtime_error("no such kernel\nand a trace");
                      return times[turn];
                    }});
  }
  Choice choose(Choices& choices, double seconds = 1000) {
    Allowance allowance(seconds, [this] { return now; });
    return choices.choose("a question", ways, allowance);
  }

  std::vector<Way> ways;
  std::map<std::string, int> turns;
  double now = 0;
};

TEST(Choices, TakesWhatIsClearlyFaster) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {100, 101, 102});
  race.add("fast", {80, 79, 99});
  const Choice choice = race.choose(choices);
  EXPECT_EQ(choice.name, "fast");
  EXPECT_EQ(choice.times, "usual 0.1 us, fast 0.079 us");
}

TEST(Choices, KeepsTheUsualWayWhereTheOtherIsHardlyFaster) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {100, 100, 100});
  race.add("other", {98, 98, 98});
  EXPECT_EQ(race.choose(choices).name, "usual");
}

TEST(Choices, KeepsTheUsualWayWhereTimesOverlap) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {100, 130, 100});
  race.add("other", {80, 110, 80});
  EXPECT_EQ(race.choose(choices).name, "usual");
}

TEST(Choices, WhatIsFarBehindLeavesAfterOneTurn) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {200, 200, 200});
  race.add("slow", {900});
  race.add("fast", {100, 100, 100});
  EXPECT_EQ(race.choose(choices).name, "fast");
  EXPECT_EQ(race.turns["slow"], 1);
  EXPECT_EQ(race.turns["usual"], 3);
}

TEST(Choices, WhatCannotBeDoneLeavesAndIsNamed) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {100, 100, 100});
  race.add("broken", {});
  const Choice choice = race.choose(choices);
  EXPECT_EQ(choice.name, "usual");
  EXPECT_EQ(choice.times, "usual 0.1 us, broken: no such kernel");
  EXPECT_EQ(race.turns["usual"], 1) << "nobody else is left to be compared with";
}

TEST(Choices, WhereTheUsualWayFailsNothingIsChosen) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {});
  race.add("other", {10, 10, 10});
  EXPECT_EQ(race.choose(choices).name, "usual");
  EXPECT_EQ(race.choose(choices).times, "");
}

TEST(Choices, MeasuresOnceAndOtherProcessesNotAtAll) {
  testing::Folder folder;
  const DiskCache disk(folder.path(), 1 << 20);
  Choices first(&disk), second(&disk);
  Race race;
  race.add("usual", {100, 100, 100});
  race.add("fast", {50, 50, 50});
  const Choice choice = race.choose(first);
  for (Choices* choices : {&first, &second}) {
    const Choice again = race.choose(*choices);
    EXPECT_EQ(again.name, choice.name);
    EXPECT_EQ(again.times, choice.times);
  }
  EXPECT_EQ(race.turns["fast"], 3);
  race.ways.pop_back();
  race.add("another", {10, 10, 10});
  EXPECT_EQ(race.choose(second).name, "usual") << "of these ways nothing is known, and its times are used up";
}

TEST(Choices, AnAllowanceThatIsSpentLeavesTheQuestionOpen) {
  testing::Folder folder;
  const DiskCache disk(folder.path(), 1 << 20);
  Choices choices(&disk);
  Race race;
  race.add("usual", {100, 100, 100, 100, 100});
  race.add("fast", {50, 50, 50, 50, 50});
  EXPECT_EQ(race.choose(choices, 3).name, "usual");
  EXPECT_EQ(race.now, 3);
  EXPECT_EQ(race.choose(choices, 0).name, "usual");
  EXPECT_EQ(race.now, 3);
  race.turns.clear();
  EXPECT_EQ(race.choose(choices).name, "fast");
  EXPECT_EQ(race.choose(choices, 0).name, "fast") << "it is known, and costs nothing";
}

TEST(Choices, OneWayIsNoQuestion) {
  Choices choices(nullptr);
  Race race;
  race.add("usual", {});
  EXPECT_EQ(race.choose(choices).name, "usual");
  EXPECT_TRUE(race.turns.empty());
}

}  // namespace
}  // namespace bolt::cache
