// tests/device/graph_policy_test.cpp
// Which calls are launched, recorded and repeated; and, through a device that is a few arrays, that what is
// repeated by those rules gives what launching gives.
#include "device/driver/graph_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace bolt::device {
namespace {

using Do = GraphPolicy::Do;

GraphCall call(std::vector<uintptr_t> addresses, std::vector<int64_t> values = {}, int64_t order = 0) {
  GraphCall out{std::move(values), order, nullptr, std::move(addresses), {}, {}, {}};
  out.bytes.assign(out.addresses.size(), 64);
  return out;
}

std::vector<Do> decisions(GraphPolicy& policy, const std::vector<GraphCall>& calls) {
  std::vector<Do> out;
  for (const GraphCall& c : calls) out.push_back(policy.decide(c).what);
  return out;
}

TEST(GraphPolicy, WatchesThenRecordsThenRepeats) {
  GraphPolicy policy(10);
  const GraphCall same = call({8, 16});
  EXPECT_EQ(decisions(policy, {same, same, same, same, same}),
            (std::vector{Do::launch, Do::launch, Do::record, Do::replay, Do::replay}));
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 0}));
}

TEST(GraphPolicy, CopiesWhatMoves) {
  GraphPolicy policy(10);
  EXPECT_EQ(decisions(policy, {call({8, 16}), call({8, 24}), call({8, 32}), call({8, 40})}),
            (std::vector{Do::launch, Do::launch, Do::record, Do::replay}));
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 1}));
}

TEST(GraphPolicy, WhatMovesLaterIsRecordedAnewAndThenCopied) {
  GraphPolicy policy(10);
  const GraphCall same = call({8, 16});
  decisions(policy, {same, same, same});
  EXPECT_EQ(decisions(policy, {call({8, 24}), same, call({8, 99})}),
            (std::vector{Do::record, Do::replay, Do::replay}));
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 1}));
}

TEST(GraphPolicy, WhatLiesStillAfterAllIsReadInPlaceOnce) {
  GraphPolicy policy(10);
  decisions(policy, {call({8, 16}), call({8, 24}), call({8, 32})});
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 1}));
  const GraphCall still = call({8, 32});
  std::vector<Do> done = decisions(policy, std::vector<GraphCall>(GraphPolicy::kLongStill + 2, still));
  EXPECT_EQ(std::ranges::count(done, Do::record), 1);
  EXPECT_EQ(done.back(), Do::replay);
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 0}));
  EXPECT_EQ(policy.decide(call({8, 40})).what, Do::record);
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 1}));
  done = decisions(policy, std::vector<GraphCall>(3 * GraphPolicy::kLongStill, still));
  EXPECT_EQ(std::ranges::count(done, Do::replay), static_cast<int>(done.size()));
}

TEST(GraphPolicy, WhatMovesToWhereAGraphMakesItIsReadInPlace) {
  GraphPolicy policy(10);
  const auto is_still = [](uintptr_t address) { return address >= 100; };
  auto next = [&](uintptr_t address) { return policy.decide(call({8, address}), is_still).what; };
  EXPECT_EQ(next(16), Do::launch);
  EXPECT_EQ(next(24), Do::launch);  // it moves, as what nobody has recorded does
  EXPECT_EQ(next(32), Do::record);
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 1}));
  for (int i = 0; i < GraphPolicy::kStillReplays; ++i) EXPECT_EQ(next(100), Do::replay);
  EXPECT_EQ(next(100), Do::record);
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 0}));
  EXPECT_EQ(next(100), Do::replay);
  for (uintptr_t address : {200, 300}) {  // its maker is launched or recorded anew
    EXPECT_EQ(next(address), Do::record);
    EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 0}));
  }
  EXPECT_EQ(next(400), Do::record);  // it goes on moving
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0, 1}));

  GraphPolicy at_once(10);
  for (uintptr_t address : {16, 24, 100}) at_once.decide(call({8, address}), is_still);
  EXPECT_EQ(at_once.copied(0), (std::vector<char>{0, 0}));
  EXPECT_EQ(at_once.decide(call({8, 100}), is_still).what, Do::replay);
}

TEST(GraphPolicy, ARecordingThatWasRepeatedOftenMayBeMadeAnew) {
  GraphPolicy policy(40);
  std::vector<uintptr_t> at(12, 8);
  for (int i = 0; i < 3; ++i) policy.decide(call(at));
  uintptr_t elsewhere = 16;
  for (size_t moving = 0; moving < at.size(); ++moving) {
    for (int k = 0; k < GraphPolicy::kWorthIt; ++k) {
      for (size_t i = 0; i < moving; ++i) at[i] = elsewhere += 8;
      EXPECT_EQ(policy.decide(call(at)).what, Do::replay);
    }
    at[moving] = elsewhere += 8;
    EXPECT_EQ(policy.decide(call(at)).what, Do::record);
  }
}

TEST(GraphPolicy, RecordingsOfASlotAreBounded) {
  GraphPolicy policy(40);
  std::vector<uintptr_t> at(12, 8);
  for (int i = 0; i < 2; ++i) policy.decide(call(at));
  int recorded = 0;
  std::string why;
  for (size_t i = 0; i < at.size(); ++i) {
    at[i] = 16;
    const auto decision = policy.decide(call(at));
    recorded += decision.what == Do::record;
    if (!decision.why_not.empty()) why = decision.why_not;
  }
  EXPECT_EQ(recorded, GraphPolicy::kRecordings);
  EXPECT_EQ(why, "its inputs keep moving in memory");
  EXPECT_EQ(policy.decide(call(at)).what, Do::launch);
}

TEST(GraphPolicy, SizesNumbersAndStreamsHaveGraphsOfTheirOwnUpToABound) {
  GraphPolicy policy(10);
  int recorded = 0, told = 0;
  for (int round = 0; round < 4; ++round)
    for (int64_t size = 0; size < 6; ++size)
      for (int64_t order = 0; order < 2; ++order) {
        const auto decision = policy.decide(call({8}, {size}, order));
        recorded += decision.what == Do::record;
        told += !decision.why_not.empty();
      }
  EXPECT_LE(recorded, static_cast<int>(GraphPolicy::kSlots));
  GraphPolicy few(10);
  for (int round = 0; round < 4; ++round)
    for (int64_t size = 0; size < 20; ++size)
      for (int again = 0; again < 3; ++again) {
        const auto decision = few.decide(call({8}, {size}));
        told += !decision.why_not.empty();
        EXPECT_TRUE(size < 8 || decision.what == Do::launch);
      }
  EXPECT_EQ(told, 1);
}

TEST(GraphPolicy, ValuesThatAlternateAreRecordedAfterManyThatDidNot) {
  GraphPolicy policy(10);
  for (int64_t number = 0; number < 30; ++number) policy.decide(call({8}, {number}));
  std::vector<GraphCall> calls;
  for (int i = 0; i < 3; ++i)
    for (int64_t number : {100, 200}) calls.push_back(call({8}, {number}));
  EXPECT_EQ(decisions(policy, calls),
            (std::vector{Do::launch, Do::launch, Do::launch, Do::launch, Do::record, Do::record}));
}

TEST(GraphPolicy, CopyingMoreThanLaunchingCostsIsNotDone) {
  GraphPolicy policy(4);
  GraphCall a = call({8}), b = call({16});
  a.bytes = b.bytes = {5 * GraphPolicy::kBytesALaunch};
  std::string why;
  for (int i = 0; i < 10; ++i)
    for (const GraphCall& moving : {a, b}) {
      const auto decision = policy.decide(moving);
      EXPECT_EQ(decision.what, Do::launch);
      why += decision.why_not;
    }
  EXPECT_NE(why.find("takes longer than 4 launches"), std::string::npos);
}

TEST(GraphPolicy, AGraphIsNoneWhereItsCopiesAreAsManyAsTheLaunches) {
  const GraphCall same = call({8});
  GraphPolicy few(3, 1), enough(4, 1);
  EXPECT_EQ(decisions(few, {same, same, same, same}),
            (std::vector{Do::launch, Do::launch, Do::launch, Do::launch}));
  EXPECT_EQ(decisions(enough, {same, same, same}), (std::vector{Do::launch, Do::launch, Do::record}));
}

TEST(GraphPolicy, ResultsAreCopiedToo) {
  GraphPolicy policy(10, 1);
  GraphCall large = call({8});
  large.result_bytes = {11 * GraphPolicy::kBytesALaunch};
  EXPECT_EQ(decisions(policy, {large, large, large}), (std::vector{Do::launch, Do::launch, Do::launch}));
}

TEST(GraphPolicy, ResultsThatMayStayAreCopiedOutWhenTheyWereHeld) {
  GraphPolicy policy(10, 1);
  GraphCall two = call({8});
  two.result_bytes = {64, 64};
  two.may_stay = {1, 1};
  EXPECT_EQ(decisions(policy, {two, two, two, two}),
            (std::vector{Do::launch, Do::launch, Do::record, Do::replay}));
  EXPECT_EQ(policy.copied_out(0), (std::vector<char>{0, 0}));
  policy.missed(0, {1});
  EXPECT_EQ(decisions(policy, {two, two}), (std::vector{Do::record, Do::replay}));
  EXPECT_EQ(policy.copied_out(0), (std::vector<char>{0, 1}));
  for (int i = 1; i < GraphPolicy::kMisses; ++i) policy.missed(0, {1});
  EXPECT_EQ(policy.copied_out(0), (std::vector<char>{1, 1}));
}

TEST(GraphPolicy, WhatIsTooLargeToCopyIsWaitedForUntilItLiesStill) {
  GraphPolicy policy(4);
  std::vector<GraphCall> calls;
  for (uintptr_t at : {8, 16, 24, 32, 32, 32}) {
    calls.push_back(call({at}));
    calls.back().bytes = {5 * GraphPolicy::kBytesALaunch};
  }
  EXPECT_EQ(decisions(policy, calls),
            (std::vector{Do::launch, Do::launch, Do::launch, Do::launch, Do::record, Do::replay}));
  EXPECT_EQ(policy.copied(0), (std::vector<char>{0}));
}

TEST(GraphPolicy, WhatCannotBeCopiedMayStayWhereItIs) {
  GraphPolicy policy(4);
  GraphCall a = call({8}), b = call({16});
  a.bytes = b.bytes = {GraphCall::kCannotMove};
  EXPECT_EQ(decisions(policy, {a, a, a, a, b, a}),
            (std::vector{Do::launch, Do::launch, Do::record, Do::replay, Do::launch, Do::launch}));
}

TEST(GraphPolicy, NewFoldedParametersTakeTheOldOnesSlot) {
  GraphPolicy policy(10);
  int one = 0, two = 0;
  GraphCall a = call({8}), b = call({8});
  a.folded = &one, b.folded = &two;
  decisions(policy, {a, a, a});
  const auto first = policy.decide(b);
  EXPECT_EQ(first.what, Do::launch);
  EXPECT_EQ(first.slot, 0U);
  EXPECT_EQ(decisions(policy, {b, b, b}), (std::vector{Do::launch, Do::record, Do::replay}));
}

TEST(GraphPolicy, FailuresThatTeachSomethingAreTriedAgainUpToABound) {
  GraphPolicy policy(10);
  const GraphCall same = call({8});
  decisions(policy, {same, same, same});
  int recorded = 1;
  for (int i = 0; i < 20; ++i) {
    policy.failed(0, true);
    recorded += decisions(policy, {same, same}).back() == Do::record;
  }
  EXPECT_EQ(recorded, GraphPolicy::kLessons);
}

TEST(GraphPolicy, SeveralGraphsCostMoreThanOne) {
  const GraphCall same = call({8});
  GraphPolicy one(7, 1), three(7, 1, 3);
  EXPECT_EQ(decisions(one, {same, same, same}).back(), Do::record);
  EXPECT_EQ(decisions(three, {same, same, same}).back(), Do::launch);
  three.price(8, 1, 3);
  EXPECT_EQ(decisions(three, {same}).back(), Do::launch);  // that was for good
}

TEST(GraphPolicy, AFailureIsTriedOnceMore) {
  GraphPolicy policy(10);
  const GraphCall same = call({8});
  decisions(policy, {same, same, same});
  policy.failed(0);
  EXPECT_EQ(decisions(policy, {same, same}), (std::vector{Do::launch, Do::record}));
  policy.failed(0);
  EXPECT_EQ(decisions(policy, {same, same, same, same}),
            (std::vector{Do::launch, Do::launch, Do::launch, Do::launch}));
}

/// Memory by address, and a program: out = 2 * a + b. A recording notes addresses.
class FakeDevice {
 public:
  std::map<uintptr_t, int> memory;

  int run(GraphPolicy& policy, uintptr_t a, uintptr_t b) {
    const auto decision = policy.decide(call({a, b}));
    if (decision.what == Do::launch) return 2 * memory[a] + memory[b];
    if (decision.what == Do::record) {
      recorded_ = {a, b};
      for (size_t i = 0; i < 2; ++i)
        if (policy.copied(decision.slot)[i]) recorded_[i] = kPlaces + i;
    }
    const uintptr_t given[] = {a, b};
    for (size_t i = 0; i < 2; ++i)
      if (policy.copied(decision.slot)[i]) memory[recorded_[i]] = memory[given[i]];
    return 2 * memory[recorded_[0]] + memory[recorded_[1]];
  }

 private:
  static constexpr uintptr_t kPlaces = 1 << 20;
  std::vector<uintptr_t> recorded_;
};

TEST(GraphPolicy, RepeatingGivesWhatLaunchingGives) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    GraphPolicy policy(10);
    FakeDevice device;
    unsigned state = seed;
    auto random = [&](unsigned below) { return (state = state * 1664525U + 1013904223U) / 65536 % below; };
    for (int step = 0; step < 40; ++step) {
      const uintptr_t a = 8 * (1 + random(seed % 3 + 1)), b = 800 + 8 * random(seed % 2 + 1);
      device.memory[a] = static_cast<int>(random(1000)), device.memory[b] = static_cast<int>(random(1000));
      const int want = 2 * device.memory[a] + device.memory[b];
      ASSERT_EQ(device.run(policy, a, b), want) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace bolt::device
