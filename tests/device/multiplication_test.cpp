// tests/device/multiplication_test.cpp
// Tensors that lie in many ways -> one multiplication of matrices, or none. What it says is done here as a
// library of matrices would, and compared with the product by the tensors' own strides.
#include "device/driver/multiplication.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace bolt::device::driver {
namespace {

using Numbers = std::vector<int64_t>;

struct Tensor {
  Numbers sizes, strides;

  Strided lying(DType dtype = DType::F32) const { return {sizes, strides, dtype}; }
  int64_t at(const Numbers& index) const {
    int64_t place = 0;
    for (size_t d = 0; d < index.size(); ++d) place += index[d] * strides[d];
    return place;
  }
};

Tensor contiguous(Numbers sizes) {
  Numbers strides(sizes.size(), 1);
  for (size_t d = sizes.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * sizes[d + 1];
  return {std::move(sizes), std::move(strides)};
}
Tensor turned(Tensor t) {
  std::swap(t.sizes[t.sizes.size() - 1], t.sizes[t.sizes.size() - 2]);
  std::swap(t.strides[t.strides.size() - 1], t.strides[t.strides.size() - 2]);
  return t;
}

int64_t element(const Multiplication::Matrix& m, int64_t batch, int64_t row, int64_t column) {
  return batch * m.next + (m.by_columns ? column * m.step + row : row * m.step + column);
}

/// Do all elements of the matrices lie where those of the tensors do?
void expect_same_places(const Multiplication& m, const Tensor& a, const Tensor& b, const Tensor& result) {
  const bool batched = b.sizes.size() > 2;
  const size_t rank = a.sizes.size();
  for (int64_t batch = 0; batch < m.batch; ++batch)
    for (int64_t row = 0; row < m.rows; ++row) {
      // The leading index of this row, in a tensor and in its matrices.
      Numbers index(rank - 1);
      int64_t rest = batched ? batch * m.rows + row : row;
      for (size_t d = rank - 1; d-- > 0;) index[d] = rest % a.sizes[d], rest /= a.sizes[d];
      for (int64_t k = 0; k < m.inner; ++k) {
        Numbers of_a = index;
        of_a.push_back(k);
        EXPECT_EQ(a.at(of_a), element(m.a, batch, row, k));
      }
      for (int64_t column = 0; column < m.columns; ++column) {
        Numbers of_result = index;
        of_result.push_back(column);
        EXPECT_EQ(result.at(of_result), element(m.result, batch, row, column));
        for (int64_t k = 0; k < m.inner; ++k) {
          Numbers of_b(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(b.sizes.size() - 2));
          of_b.insert(of_b.end(), {k, column});
          EXPECT_EQ(b.at(of_b), element(m.b, batch, k, column));
        }
      }
    }
}

Multiplication expect_one(const Tensor& a, const Tensor& b, const Tensor& result) {
  const auto m = multiplication_of(a.lying(), b.lying(), result.lying());
  EXPECT_TRUE(m.has_value());
  if (!m) return {};
  expect_same_places(*m, a, b, result);
  return *m;
}

TEST(Multiplications, OfMatricesByRowsAndByColumns) {
  for (bool a_turned : {false, true})
    for (bool b_turned : {false, true}) {
      const Tensor a = a_turned ? turned(contiguous({5, 3})) : contiguous({3, 5});
      const Tensor b = b_turned ? turned(contiguous({4, 5})) : contiguous({5, 4});
      const Multiplication m = expect_one(a, b, contiguous({3, 4}));
      EXPECT_EQ(m.a.by_columns, a_turned);
      EXPECT_EQ(m.b.by_columns, b_turned);
    }
}

TEST(Multiplications, OfLeadingDimensionsAsOne) {
  const Multiplication m =
      expect_one(contiguous({2, 3, 5}), turned(contiguous({4, 5})), contiguous({2, 3, 4}));
  EXPECT_EQ(m.rows, 6);
  // A part of wider rows.
  expect_one({{2, 3, 5}, {30, 10, 1}}, contiguous({5, 4}), {{2, 3, 4}, {24, 8, 1}});
}

TEST(Multiplications, OfBatches) {
  const Multiplication m =
      expect_one(contiguous({2, 6, 3, 5}), contiguous({2, 6, 5, 4}), contiguous({2, 6, 3, 4}));
  EXPECT_EQ(m.batch, 12);
  // Keys as attention has them, and heads beside each other of one sequence.
  expect_one(contiguous({7, 3, 5}), turned(contiguous({7, 4, 5})), contiguous({7, 3, 4}));
  expect_one({{1, 6, 3, 5}, {90, 5, 30, 1}}, {{1, 6, 5, 3}, {90, 5, 1, 30}}, contiguous({1, 6, 3, 3}));
}

TEST(Multiplications, OfWhatIsShownAgainAndAgain) {
  const Multiplication m = expect_one({{4, 3, 5}, {0, 5, 1}}, contiguous({4, 5, 2}), contiguous({4, 3, 2}));
  EXPECT_EQ(m.a.next, 0);
}

TEST(Multiplications, OfSingleRowsAndColumns) {
  expect_one({{1, 5}, {1, 1}}, contiguous({5, 4}), {{1, 4}, {99, 1}});
  expect_one(contiguous({3, 1}), contiguous({1, 4}), contiguous({3, 4}));
  expect_one(contiguous({3, 5}), contiguous({5, 1}), contiguous({3, 1}));
}

TEST(Multiplications, AreNoneOfOtherTensors) {
  const auto none = [](const Tensor& a, const Tensor& b, const Tensor& result) {
    EXPECT_FALSE(multiplication_of(a.lying(), b.lying(), result.lying()));
  };
  none({{3, 5}, {10, 2}}, contiguous({5, 4}), contiguous({3, 4}));               // each second element
  none({{3, 5}, {3, 1}}, contiguous({5, 4}), contiguous({3, 4}));                // rows that overlap
  none({{2, 3, 5}, {5, 10, 1}}, contiguous({5, 4}), contiguous({2, 3, 4}));      // turned leading ones
  none({{3, 5}, {0, 1}}, contiguous({5, 4}), contiguous({3, 4}));                // one row, three times
  none(contiguous({3, 5}), contiguous({5, 4}), turned(contiguous({4, 3})));      // a result by columns
  none(contiguous({0, 5}), contiguous({5, 4}), contiguous({0, 4}));              // nothing
  none(contiguous({2, 3, 5}), {{2, 5, 4}, {20, 4, 1}}, {{2, 3, 4}, {0, 4, 1}});  // results in one place
  none(contiguous({2, 6, 3, 5}), {{2, 6, 5, 4}, {20, 40, 4, 1}},
       contiguous({2, 6, 3, 4}));  // unequal distances
  EXPECT_FALSE(multiplication_of(contiguous({3, 5}).lying(DType::BF16), contiguous({5, 4}).lying(),
                                 contiguous({3, 4}).lying()));
}

TEST(Multiplications, OfRandomTensors) {
  std::mt19937 draw(7);
  auto upto = [&](int64_t most) { return 1 + static_cast<int64_t>(draw() % static_cast<unsigned>(most)); };
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = upto(3), inner = upto(3), columns = upto(3), first = upto(3), second = upto(2);
    auto shuffled = [&](Numbers sizes) {  // lying in any order, with room between
      Numbers order(sizes.size()), strides(sizes.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
      std::ranges::shuffle(order, draw);
      int64_t stride = draw() % 4 == 0 ? 2 : 1;
      for (int64_t d : order) {
        strides[static_cast<size_t>(d)] = stride;
        stride *= sizes[static_cast<size_t>(d)] + (draw() % 4 == 0 ? 1 : 0);
      }
      return Tensor{std::move(sizes), std::move(strides)};
    };
    const bool batched = draw() % 2 == 0;
    const Tensor a = shuffled({first, second, rows, inner});
    const Tensor b = batched ? shuffled({first, second, inner, columns}) : shuffled({inner, columns});
    const Tensor result =
        draw() % 2 ? contiguous({first, second, rows, columns}) : shuffled({first, second, rows, columns});
    const auto m = multiplication_of(a.lying(), b.lying(), result.lying());
    if (!m) continue;
    ++found;
    // Rows of what is not batched are all leading dimensions.
    expect_same_places(*m, a, b, result);
    EXPECT_GE(m->a.step, m->a.by_columns ? m->rows : m->inner);
    EXPECT_GE(m->b.step, m->b.by_columns ? m->inner : m->columns);
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace bolt::device::driver
