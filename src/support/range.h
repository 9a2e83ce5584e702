// support/range.h
// Where a number lies that is not known, such as a random one -> where what is computed from it lies, and
// which comparisons come out the same whatever it is.
//
//   if random.random() < self.layerdrop: continue      # layerdrop is 0: never
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace bolt {

/// Both ends belong to it. Sums and products of the ends round as those of the numbers do, which keeps their
/// order.
struct NumberRange {
  double low, high;
};

inline NumberRange operator+(NumberRange x, NumberRange y) { return {x.low + y.low, x.high + y.high}; }
inline NumberRange operator-(NumberRange x, NumberRange y) { return {x.low - y.high, x.high - y.low}; }
inline NumberRange operator*(NumberRange x, NumberRange y) {
  const auto [low, high] = std::minmax({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high});
  return {low, high};
}

enum class Inequality : uint8_t { less, less_or_equal, greater, greater_or_equal };

/// Of `range order with`; nothing: it depends on the number.
inline std::optional<bool> known_outcome(NumberRange range, Inequality order, double with) {
  const bool strictly_below = order == Inequality::less || order == Inequality::greater_or_equal;
  const bool below = strictly_below ? range.high < with : range.high <= with;
  const bool not_below = strictly_below ? range.low >= with : range.low > with;
  if (!below && !not_below) return std::nullopt;
  return below == (order == Inequality::less || order == Inequality::less_or_equal);
}

}  // namespace bolt
