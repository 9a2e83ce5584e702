// tests/codegen/run_kernel.h
// Runs a kernel's machine code and the reference side by side and compares every buffer; for a target that
// does not run here, its code is only looked at.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codegen/cpu/schedule.h"
#include "loops/kernel.h"
#include "tests/codegen/targets.h"
#include "tests/reference/kernel.h"

namespace bolt::codegen::cpu::testing {

/// Typed bytes with a red zone behind them, `skew` elements after a multiple of 64 bytes.
class Data {
 public:
  static constexpr size_t kZone = 128;
  static constexpr uint8_t kPattern = 0xa5;
  Data(DType t, int64_t elements, int64_t skew = 0)
      : dtype(t),
        count(elements),
        memory_(payload() + kZone + 64 + static_cast<size_t>(skew * dtype_bytes(t)), kPattern),
        bytes_(memory_.data(), payload() + kZone) {
    const size_t from = reinterpret_cast<uintptr_t>(memory_.data());
    bytes_ = bytes_t(memory_.data() + (64 - from % 64) % 64 + skew * dtype_bytes(t), payload() + kZone);
  }
  Data(const Data& other) : Data(other.dtype, other.count, other.skew()) {
    std::copy(other.bytes_.begin(), other.bytes_.end(), bytes_.begin());
  }
  void* data() { return bytes_.data(); }
  size_t payload() const { return static_cast<size_t>(count * dtype_bytes(dtype)); }
  bool zone_intact() const {
    for (size_t i = payload(); i < bytes_.size(); ++i)
      if (bytes_[i] != kPattern) return false;
    return true;
  }
  double at(int64_t i) const {
    const uint8_t* p = bytes_.data() + i * dtype_bytes(dtype);
    auto as = [&]<typename T>(T v) {
      std::memcpy(&v, p, sizeof v);
      return v;
    };
    switch (dtype) {
      case DType::Bool:
      case DType::U8: return as(uint8_t{});
      case DType::I8: return as(int8_t{});
      case DType::I16: return as(int16_t{});
      case DType::I32: return as(int32_t{});
      case DType::I64: return static_cast<double>(as(int64_t{}));
      case DType::F32: return static_cast<double>(as(float{}));
      case DType::F64: return as(double{});
      case DType::BF16: {
        const uint32_t bits = static_cast<uint32_t>(as(uint16_t{})) << 16;
        float f;
        std::memcpy(&f, &bits, sizeof f);
        return static_cast<double>(f);
      }
      default: {
        const uint16_t h = as(uint16_t{});
        const double fraction = h & 1023;
        const int exponent = h >> 10 & 31;
        const double v = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                         : exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024 + fraction, exponent - 25);
        return h & 0x8000 ? -v : v;
      }
    }
  }
  void set(int64_t i, double v) {
    uint8_t* p = bytes_.data() + i * dtype_bytes(dtype);
    auto put = [&](auto value) { std::memcpy(p, &value, sizeof value); };
    switch (dtype) {
      case DType::Bool: return put(static_cast<uint8_t>(v != 0));
      case DType::U8: return put(static_cast<uint8_t>(v));
      case DType::I8: return put(static_cast<int8_t>(v));
      case DType::I16: return put(static_cast<int16_t>(v));
      case DType::I32: return put(static_cast<int32_t>(v));
      case DType::I64: return put(static_cast<int64_t>(v));
      case DType::F32: return put(static_cast<float>(v));
      case DType::F64: return put(v);
      case DType::BF16: {
        const float f = static_cast<float>(v);
        uint32_t bits;
        std::memcpy(&bits, &f, sizeof bits);
        return put(static_cast<uint16_t>(bits >> 16));
      }
      default: {  // a few f16 values are enough: small multiples of 1/8
        const double a = std::fabs(v);
        const int e = a < std::ldexp(1, -14) ? -14 : std::ilogb(a);
        const int mantissa = static_cast<int>(std::ldexp(a, 10 - e));
        const int field = e == -14 && mantissa < 1024 ? mantissa : ((e + 14) << 10) + mantissa;
        return put(static_cast<uint16_t>(field | (v < 0 ? 0x8000 : 0)));
      }
    }
  }
  DType dtype;
  int64_t count;

 private:
  using bytes_t = std::span<uint8_t>;
  int64_t skew() const {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes_.data()) % 64) / dtype_bytes(dtype);
  }
  std::vector<uint8_t> memory_;
  bytes_t bytes_;
};

/// How many elements of each buffer the kernel may touch: the largest index of its loads and stores, and 1.
inline std::vector<int64_t> extents(const loops::Kernel& k, const std::vector<int64_t>& syms) {
  auto value = [&](const SymNode& n, bool largest) -> int64_t {
    for (size_t i = 0; i < k.symbols.size(); ++i)
      if (k.symbols[i].node() == &n) return syms[i];
    for (size_t d = 0; d < k.dims.size(); ++d)
      if (loops::Kernel::dim(static_cast<int>(d)).node() == &n) {
        const int64_t size = evaluate(k.dims[d].size, [&](const SymNode& s) {
          for (size_t i = 0; i < k.symbols.size(); ++i)
            if (k.symbols[i].node() == &s) return syms[i];
          return int64_t{0};
        });
        return largest ? size - 1 : 0;
      }
    return 0;
  };
  std::vector<int64_t> result(k.buffers.size(), 1);
  auto touch = [&](int buffer, Sym index, size_t gathers) {
    int64_t end = 1 + std::max(evaluate(index, [&](const SymNode& n) { return value(n, true); }),
                               evaluate(index, [&](const SymNode& n) { return value(n, false); }));
    int64_t& extent = result[static_cast<size_t>(buffer)];
    extent = std::max(extent, end + static_cast<int64_t>(gathers) * 4096);
  };
  for (const loops::Expr& e : k.exprs)
    if (e.kind == loops::ExprKind::Load) touch(e.buffer, e.index, e.gather.size());
  for (const loops::Store& s : k.stores) touch(s.buffer, s.index, s.gather.size());
  return result;
}

inline double tolerance(DType t) {
  switch (t) {
    case DType::F64: return 1e-12;
    case DType::F32: return 2e-5;
    case DType::F16: return 4e-3;
    case DType::BF16: return 2e-2;
    default: return 0;
  }
}

struct Case {
  std::string text;
  std::vector<int64_t> syms;
  double lowest = -4, highest = 4;
  int64_t index_limit = 8;  // integer inputs lie in [0, limit)
  bool reports = false;     // an index is out of range
  int64_t skew = 0;         // elements from a multiple of 64 bytes to each buffer
};

struct Named {
  const char* name;
  Case c;
};

inline std::string softmax_of_rows(int64_t rows, int64_t columns) {
  const std::string n = std::to_string(columns), at = "[" + n + "*d0 + d1]";
  return "kernel @softmax (in %b0: f32, out %b1: f32) space [" + std::to_string(rows) + " d0, " + n +
         " d1 reduce] {\n  %0 = load b0" + at +
         "\n  %1 = reduce max %0 over d1\n  %2 = sub %0, %1\n  %3 = exp %2\n  %4 = reduce sum %3 over d1\n" +
         "  %5 = div %3, %4\n  store b1" + at + " = %5\n}";
}

inline void check_on(const Case& c, const Target& target) {
  const loops::Kernel k = loops::parse_kernel(c.text);
  loops::verify(k);
  SCOPED_TRACE(k.name + " on " + target.key() + "\n" + print(schedule(normalise(k), target)));
  if (!runs_here(target)) return look_at(assemble({k}, target), target);
  std::mt19937_64 random(7);
  const std::vector<int64_t> sizes = extents(k, c.syms);
  std::vector<Data> mine;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    mine.emplace_back(k.buffers[i].dtype, sizes[i], c.skew);
    std::uniform_real_distribution<double> real(c.lowest, c.highest);
    std::uniform_int_distribution<int64_t> whole(0, c.index_limit - 1);
    for (int64_t at = 0; at < sizes[i]; ++at)
      mine[i].set(at, is_float(k.buffers[i].dtype) ? std::round(real(random) * 64) / 64
                                                   : static_cast<double>(whole(random)));
  }
  std::vector<Data> reference = mine;
  std::vector<void*> p, q;
  for (Data& d : mine) p.push_back(d.data());
  for (Data& d : reference) q.push_back(d.data());
  int64_t reported = 0, expected_report = 0;
  p.push_back(&reported), q.push_back(&expected_report);
  std::vector<int64_t> syms = c.syms;
  syms.push_back(0);
  loops::run_reference(k, q.data(), syms.data());

  auto module = compile({k}, target);
  const CompiledKernel& compiled = module->kernels()[0];
  std::vector<uint8_t> scratch(static_cast<size_t>(compiled.scratch_bytes) + 64, Data::kPattern);
  if (!compiled.reports) p.back() = scratch.data();
  auto run = [&](KernelFn fn, Sym items) {
    const int64_t work = evaluate(items, [&](const SymNode& n) {
      for (size_t i = 0; i < k.symbols.size(); ++i)
        if (k.symbols[i].node() == &n) return c.syms[i];
      return int64_t{0};
    });
    const int64_t middle = work / 2;  // two ranges, the later one first: items may run in any order
    fn(p.data(), syms.data(), middle, work);
    fn(p.data(), syms.data(), 0, middle);
  };
  run(compiled.fn, compiled.work);
  if (compiled.second_fn) run(compiled.second_fn, compiled.second_work);

  ASSERT_EQ(reported, expected_report);
  ASSERT_EQ(reported, c.reports);
  for (size_t b = 0; b < mine.size(); ++b) {
    ASSERT_TRUE(mine[b].zone_intact()) << "wrote behind buffer " << b;
    if (reported) continue;  // results mean nothing
    for (int64_t i = 0; i < mine[b].count; ++i) {
      const double got = mine[b].at(i), want = reference[b].at(i);
      if (std::isnan(want) && std::isnan(got)) continue;
      if (got == want) continue;
      ASSERT_LE(std::fabs(got - want), tolerance(k.buffers[b].dtype) * std::max(1.0, std::fabs(want)))
          << "buffer " << b << " element " << i << " got " << got << " want " << want;
    }
  }
}

inline void check(const Case& c) {
  for (const Target& t : targets()) check_on(c, t);
}

}  // namespace bolt::codegen::cpu::testing
