// lower/probe.cpp
#include "lower/probe.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <ctime>

#include "device/host/host.h"
#include "record/argument.h"
#include "record/generators.h"
#include "record/operator_facts.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::lower {
namespace {

using record::Arg;
using record::TensorId;
using Values = std::vector<int64_t>;               // of the symbols
using Shapes = std::vector<std::vector<int64_t>>;  // of the results

/// More than this on the CPU would be felt.
constexpr int64_t kMostElements = 1 << 18;
constexpr double kMostSeconds = 0.25;

/// Of this thread at work: how busy the machine is must not decide what is found out.
double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Operators that warn have warned the user, when they were recorded.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class Prober {
 public:
  explicit Prober(const Probed& call) : call_(call) {
    for (const Arg& a : call.entry.args) {
      for (TensorId id : a.tensors)
        if (id >= 0) given_.push_back(call.sizes(id));
      Syms numbers;
      for (Sym s : a.syms) {
        const Sym number = call.resolve(s);
        if (a.value.isInt() || a.value.isIntList())
          numbers.push_back(number);
        else if (is_float(number))
          floats_ = true;
        else if (!number.is_const())
          numbers.push_back(number);
      }
      given_.push_back(std::move(numbers));
    }
    for (const Syms& sizes : given_)
      for (Sym s : sizes) collect_symbols(s, &symbols_);
  }

  std::optional<std::vector<Syms>> run() {
    if ((symbols_.empty() && !floats_) || symbols_.size() > kMostSymbols || !can_be_tried())
      return std::nullopt;
    for (Sym s : symbols_) recorded_.push_back(call_.hint(s));
    samples_ = {{recorded_, recorded_shapes()}};
    for (const c10::DeviceType device : {c10::kMeta, device::kHost})
      if (is_safe_on(device) && sample(device))
        if (auto found = fit()) return found;
    return std::nullopt;
  }

 private:
  static constexpr size_t kMostSymbols = 6;

  /// With data, which takes memory and time.
  static bool is_run_on(c10::DeviceType device) { return device == device::kHost; }
  static bool is_float(Sym number) { return !number.is_const() && is_float_symbol(*number.node()); }

  /// Only ATen's own, of which nothing but the result is seen.
  bool can_be_tried() const {
    if (!record::is_atens(call_.entry.op)) return false;
    for (const Arg& a : call_.entry.args)
      if (a.value.isGenerator()) return false;
    for (const record::TensorInfo& t : call_.tape.tensors)
      if (!t.plain) return false;
    return true;
  }

  static bool is_float(const record::TensorInfo& t) {
    return c10::isFloatingType(t.dtype) || c10::isComplexType(t.dtype);
  }

  /// Sizes that are varied need not fit together, and integers that were made up need not be places: not
  /// every kernel of ATen looks before it reads (those of LSTMs in oneDNN corrupt the heap). Meta tensors
  /// have no memory that could be read beyond its end; but a kernel for all devices at once may take integers
  /// out of what has none. On the CPU one tensor of floats has nothing that it would have to fit.
  bool is_safe_on(c10::DeviceType device) const {
    int tensors = 0, integers = 0;
    for_each_tensor(call_.entry.args, [&](TensorId id) {
      ++tensors;
      integers += !is_float(call_.tape.tensors[id]);
    });
    if (is_run_on(device)) return tensors <= 1 && integers == 0;
    const c10::OperatorHandle& op = call_.entry.op;
    return integers == 0 || op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
           op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  }

  Shapes recorded_shapes() const {
    Shapes shapes;
    for (const Arg& r : call_.entry.results)
      for (TensorId id : r.tensors) {
        shapes.emplace_back();
        if (id < 0) continue;
        const record::Dims& sizes = call_.tape.tensors[id].sizes;
        shapes.back().assign(sizes.begin(), sizes.end());
      }
    return shapes;
  }

  // ---- trials ----

  /// On the CPU around small sizes, if those will do. Without memory all cost the same.
  bool sample(c10::DeviceType device) {
    Values small = recorded_;
    for (size_t i = 0; i < small.size(); ++i)
      small[i] = std::min<int64_t>(small[i], 4 + static_cast<int64_t>(i));
    if (is_run_on(device) && small != recorded_ && sample_around(small, device)) return true;
    return sample_around(recorded_, device);
  }

  /// Each symbol by itself, or else with those that were equal to it, then all at once. False: too few went
  /// well.
  bool sample_around(const Values& base, c10::DeviceType device) {
    samples_.resize(1);
    anchor_ = base == recorded_ ? 0 : 1;
    if (anchor_ == 1 && !attempt(base, device)) return false;
    for (size_t i = 0; i < symbols_.size(); ++i)
      if (vary(base, {i}, device) < 2 && vary(base, equal_to(i), device) < 2) return false;
    if (floats_ && !vary_floats(base, device)) return false;
    Values values = base;
    for (size_t k = 0; k < values.size(); ++k) values[k] += 2 * static_cast<int64_t>(k) + 1;
    if (!values.empty()) attempt(values, device);
    return !is_run_on(device) || spent_ <= kMostSeconds;  // too few fit many expressions
  }

  /// No size is a function of a float (but arange's): other floats must give the same.
  bool vary_floats(const Values& base, c10::DeviceType device) {
    bool well = false;
    for (auto [factor, more] : {std::pair(0.5, 0.0), {1.0, 1.0}}) {
      float_factor_ = factor, float_more_ = more;
      well |= attempt(base, device);
    }
    float_factor_ = 1, float_more_ = 0;
    return well;
  }

  std::vector<size_t> equal_to(size_t i) const {
    std::vector<size_t> equal;
    for (size_t k = 0; k < recorded_.size(); ++k)
      if (recorded_[k] == recorded_[i]) equal.push_back(k);
    return equal;
  }

  /// How many sizes of these symbols went well.
  int vary(const Values& base, const std::vector<size_t>& which, c10::DeviceType device) {
    int well = 0;
    for (int64_t more : {1, 2, 3, 5, 8, 13}) {
      Values values = base;
      for (size_t i : which) values[i] = base[which[0]] + more;
      if (attempt(values, device)) {
        ++well;
      } else if (more <= 2) {  // only some multiples may be allowed: those of the recorded one are
        for (size_t i : which) values[i] = recorded_[i] * (more + 1);
        well += attempt(values, device);
      }
    }
    return well;
  }

  bool attempt(const Values& values, c10::DeviceType device) {
    if (is_run_on(device) && spent_ > kMostSeconds) return false;
    try {
      torch::jit::Stack stack;
      elements_ = 0;
      for (const Arg& a : call_.entry.args) stack.push_back(argument(a, values, device));
      if (is_run_on(device) && elements_ > kMostElements) return false;
      if (is_run_on(device)) {
        const double begin = thread_seconds();
        record::Undrawn drawn;  // also operators that do not say so draw numbers (dropout within an LSTM)
        drawn.keep_default(device::kHost);
        call_.entry.op.callBoxed(&stack);
        spent_ += thread_seconds() - begin;
      } else {
        call_.entry.op.callBoxed(&stack);
      }
      Shapes shapes;
      for (const c10::IValue& v : stack) append(v, shapes);
      if (shapes.size() != samples_[0].shapes.size()) return false;
      for (size_t i = 0; i < shapes.size(); ++i)
        if (shapes[i].size() != samples_[0].shapes[i].size()) return false;
      samples_.push_back({values, std::move(shapes)});
    } catch (const std::exception&) {  // these sizes will not do, or it has no kernel there
      return false;
    }
    return true;
  }

  static void append(const c10::IValue& v, Shapes& shapes) {
    auto add = [&](const at::Tensor& t) {
      shapes.emplace_back();
      if (t.defined()) shapes.back() = t.sizes().vec();
    };
    if (v.isTensor()) add(v.toTensor());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector()) add(t);
  }

  int64_t value(Sym s, const Values& values) const {
    return evaluate(s, symbols_, [&](size_t i) { return values[i]; });
  }

  c10::IValue argument(const Arg& arg, const Values& values, c10::DeviceType device) {
    auto tensor = [&](TensorId id) { return made(id, values, device); };
    return record::value_of(arg, tensor, [&](const Arg& a) -> c10::IValue {
      if (a.syms.empty()) return a.value.isDevice() ? c10::IValue(c10::Device(device)) : a.value;
      return record::number_of(a, [&](Sym s) {
        const Sym number = call_.resolve(s);
        if (!is_float(number)) return value(number, values);
        return std::bit_cast<int64_t>(std::bit_cast<double>(call_.hint(number)) * float_factor_ +
                                      float_more_);
      });
    });
  }

  /// Different numbers, none of them large: what must be inverted can be.
  at::Tensor made(TensorId id, const Values& values, c10::DeviceType device) {
    const record::TensorInfo& info = call_.tape.tensors[id];
    std::vector<int64_t> sizes;
    for (Sym s : call_.sizes(id)) sizes.push_back(value(s, values));
    const int64_t numel = c10::multiply_integers(sizes);
    elements_ += numel;
    if (device == c10::kMeta || numel > kMostElements)
      return at::empty(sizes, at::TensorOptions().dtype(info.dtype).device(c10::kMeta));
    return at::arange(numel, at::kDouble).square_().mul_(1.7).sin_().to(info.dtype).reshape(sizes);
  }

  // ---- expressions ----

  std::optional<std::vector<Syms>> fit() const {
    Syms bases;
    auto add = [&](Sym s) {
      if (!s.is_const() && std::find(bases.begin(), bases.end(), s) == bases.end()) bases.push_back(s);
    };
    for (const Syms& sizes : given_)
      for (Sym s : sizes) add(s);
    const size_t single = bases.size();
    for (const Syms& sizes : given_) add(product(sizes));
    for (size_t i = 0; i < single && single <= 8; ++i)
      for (size_t k = i; k < single; ++k) {
        add(bases[i] * bases[k]);
        add(bases[i] + bases[k]);
        add(bases[i] - bases[k]);
        add(bases[k] - bases[i]);
        add(max(bases[i], bases[k]));
        add(min(bases[i], bases[k]));
      }
    std::vector<Syms> out;
    for (size_t r = 0; r < samples_[0].shapes.size(); ++r) {
      out.emplace_back();
      for (size_t d = 0; d < samples_[0].shapes[r].size(); ++d) {
        auto wanted = [&](const Sample& s) { return s.shapes[r][d]; };
        std::optional<Sym> found = fit(bases, wanted);
        if (!found) return std::nullopt;
        out.back().push_back(*found);
      }
    }
    return out;
  }

  struct Sample {
    Values values;
    Shapes shapes;
  };

  template <typename Wanted>
  bool holds(Sym s, Wanted wanted) const {
    return std::all_of(samples_.begin(), samples_.end(),
                       [&](const Sample& x) { return value(s, x.values) == wanted(x); });
  }

  /// A constant; a base; a base times a number and a number more; a quotient of such.
  template <typename Wanted>
  std::optional<Sym> fit(const Syms& bases, Wanted wanted) const {
    if (const Sym constant = wanted(samples_[0]); holds(constant, wanted)) return constant;
    for (Sym base : bases)
      if (holds(base, wanted)) return base;
    for (Sym base : bases)
      if (auto line = fit_line(base, wanted)) return line;
    const size_t few = std::min<size_t>(bases.size(), 8);  // the sizes themselves come first
    for (size_t i = 0; i < few; ++i)
      for (size_t k = i + 1; k < few; ++k)
        if (auto area = fit_area(bases[i], bases[k], wanted)) return area;
    for (Sym base : bases)
      for (int64_t divisor = 2; divisor <= 32; ++divisor)
        for (int64_t more = 0; more < divisor; ++more) {
          const Sym quotient = floordiv(base + Sym(more), divisor);
          const Sym rest = wanted(samples_[0]) - value(quotient, samples_[0].values);
          if (holds(quotient + rest, wanted)) return quotient + rest;
        }
    return std::nullopt;
  }

  template <typename Wanted>
  std::optional<Sym> fit_line(Sym base, Wanted wanted) const {
    const int64_t x0 = value(base, samples_[0].values), y0 = wanted(samples_[0]);
    for (const Sample& s : samples_) {
      const int64_t x = value(base, s.values), y = wanted(s);
      if (x == x0) continue;
      if ((y - y0) % (x - x0) != 0) return std::nullopt;
      const int64_t factor = (y - y0) / (x - x0);
      const Sym line = base * Sym(factor) + Sym(y0 - factor * x0);
      return factor != 0 && holds(line, wanted) ? std::optional(line) : std::nullopt;
    }
    return std::nullopt;
  }

  /// (x + a) * (y + b) and the like: a*x*y + b*x + c*y + d.
  template <typename Wanted>
  std::optional<Sym> fit_area(Sym x, Sym y, Wanted wanted) const {
    const Sample& from = samples_[anchor_];
    const int64_t x0 = value(x, from.values), y0 = value(y, from.values), v0 = wanted(from);
    std::optional<int64_t> along_x, along_y, both;  // what one more in x, in y and in their product adds
    auto set = [](std::optional<int64_t>& to, int64_t added, int64_t more) {
      if (!to && added % more == 0) to = added / more;
    };
    for (const Sample& s : samples_) {
      const int64_t dx = value(x, s.values) - x0, dy = value(y, s.values) - y0, dv = wanted(s) - v0;
      if (dx != 0 && dy == 0) set(along_x, dv, dx);
      if (dy != 0 && dx == 0) set(along_y, dv, dy);
      if (dx != 0 && dy != 0 && along_x && along_y) set(both, dv - *along_x * dx - *along_y * dy, dx * dy);
    }
    if (!along_x || !along_y || !both) return std::nullopt;
    const Sym area = x * y * Sym(*both) + x * Sym(*along_x - *both * y0) + y * Sym(*along_y - *both * x0) +
                     Sym(v0 - *along_x * x0 - *along_y * y0 + *both * x0 * y0);
    return holds(area, wanted) ? std::optional(area) : std::nullopt;
  }

  const Probed& call_;
  std::vector<Syms> given_;  ///< sizes of tensors, and numbers
  Syms symbols_;             ///< of ints
  bool floats_ = false;      ///< there are others
  double float_factor_ = 1, float_more_ = 0;
  Values recorded_;
  std::vector<Sample> samples_;  ///< the recorded run first
  size_t anchor_ = 0;            ///< the one that the others differ from in one symbol
  int64_t elements_ = 0;
  double spent_ = 0;
};

}  // namespace

std::optional<std::vector<Syms>> probe_sizes(const Probed& call) {
  const at::NoGradGuard no_grad;
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  return Prober(call).run();
}

}  // namespace bolt::lower
