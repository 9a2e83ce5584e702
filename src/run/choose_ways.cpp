// run/choose_ways.cpp
#include "run/choose_ways.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "device/device.h"
#include "device/measure.h"
#include "graph/device_facts.h"
#include "run/attention.h"
#include "run/products.h"
#include "run/questions.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt::run {
namespace {

using graph::Node;
using graph::Type;
using Tensors = std::vector<at::Tensor>;
using Merges = std::function<bool(const std::vector<const Node*>&)>;

constexpr int64_t kOverCaches = 128 << 20;  // bytes of weights, so that none are met in a cache
constexpr int64_t kMostCopies = 32;

// ---- attention ----

constexpr std::string_view kUsual = "as ATen chooses";

/// One call of a plan.
class AttentionCall {
 public:
  AttentionCall(const loops::Plan& plan, const loops::Step& step) : node_(*step.node), device_(step.device) {
    for (int b : step.buffers) types_.push_back(&plan.buffers[b].type);
    result_ = types_.back();
    types_.resize(static_cast<size_t>(step.operand_count));
  }

  bool is_a_question() const {
    return graph::facts_of(device_).has_several_ways && !node_.has_attr("way") && is_known(*result_) &&
           std::ranges::all_of(types_, [](const Type* t) { return is_known(*t); });
  }

  std::string question() const {
    std::string text = "sdpa(";
    for (size_t i = 0; i < types_.size(); ++i) text += (i ? ", " : "") + types_[i]->str();
    text += ") -> " + result_->str();
    return node_.attr<bool>("causal") ? text + " causal" : text;
  }

  cache::Choice answer(cache::Allowance& allowance) {
    Tensors looked_at;
    for (const Type* t : types_) looked_at.push_back(described(*t));
    std::vector<cache::Way> ways;
    for (const std::string& way : ways_of_attention(node_, looked_at))
      ways.push_back({way.empty() ? std::string(kUsual) : way, [this, way] { return time(way); }});
    return choose(question(), device_, ways, allowance);
  }

 private:
  double time(const std::string& way) {
    if (operands_.empty())
      for (const Type* t : types_) operands_.push_back(made_up(*t));
    const at::Tensor out = run(way);
    if (way.empty())
      usual_ = out;
    else
      check_alike(usual_, out);
    return device::nanoseconds_of(device::to_torch(device_), [&] { run(way); });
  }

  /// With what is done where the result does not lie as the plan has it.
  at::Tensor run(const std::string& way) const {
    at::Tensor out = attention(node_, operands_, way);
    const std::vector<int64_t> strides = to_numbers(result_->strides);
    if (out.strides() == at::IntArrayRef(strides)) return out;
    return at::empty_strided(to_numbers(result_->sizes), strides, out.options()).copy_(out);
  }

  const Node& node_;
  const graph::Device device_;
  std::vector<const Type*> types_;  // of operands, as they lie
  const Type* result_;
  Tensors operands_;
  at::Tensor usual_;
};

// ---- a product ----

/// One multiplication of a plan, by one of the ways that the library of matrices names for it. There are
/// several sets of weights, as layers have their own.
class ProductCall {
 public:
  ProductCall(const loops::Plan& plan, const loops::Step& step) {
    for (int b : step.buffers) types_.push_back(&plan.buffers[static_cast<size_t>(b)].type);
    device_ = types_.back()->device;
    driver_ = device::find(device_.kind);
    if (step.node->has_attr("way") ||
        !std::ranges::all_of(types_, [](const Type* t) { return is_known(*t); }))
      return;
    std::list<std::vector<int64_t>> numbers_of;
    auto kept = [&](const Syms& list) {
      return std::span<const int64_t>(numbers_of.emplace_back(to_numbers(list)));
    };
    product_ = multiplication_of(plan, step, [&](int b) {
      const Type& t = plan.buffers[static_cast<size_t>(b)].type;
      return device::driver::Strided{kept(t.sizes), kept(t.strides), t.dtype};
    });
  }

  bool is_a_question() const { return product_.has_value(); }

  std::string question() const {
    std::string text = product_->ending == device::driver::SumEnd::gelu   ? "gelu of a product of "
                       : product_->ending == device::driver::SumEnd::relu ? "relu of a product of "
                                                                          : "a product of ";
    for (size_t i = 0; i + 1 < types_.size(); ++i)
      text += (i == 0                        ? ""
               : i == 1                      ? " by "
               : i > 2 && product_->is_added ? " added to "
               : product_->has_bias          ? " and a bias "
                                             : " ") +
              types_[i]->str();
    text += " -> " + types_.back()->str();
    const bool is_short = product_->operands == DType::F32 && at::globalContext().allowTF32CuBLAS();
    return is_short ? text + " in TF32" : text;
  }

  cache::Choice answer(cache::Allowance& allowance) {
    std::vector<cache::Way> ways{{std::string(kUsual), [this] { return time(0); }}};
    // What there is to choose from is asked of memory that is there; so the other ways are as many as there
    // may be, and one that is not there has no time.
    for (int way = 1; way < device::driver::kMostWays; ++way)
      ways.push_back({name_of(way), [this, way] { return time(way); }});
    return choose(question(), device_, ways, allowance);
  }

  static std::string name_of(int way) { return "way " + std::to_string(way) + " of the library"; }
  /// 0: the usual one.
  static int way_named(const std::string& name) {
    for (int way = 1; way < device::driver::kMostWays; ++way)
      if (name == name_of(way)) return way;
    return 0;
  }

 private:
  struct Set {
    Tensors operands;
    device::driver::Multiplication product;
  };

  Set made() const {
    Set set{{}, *product_};
    for (size_t i = 0; i + 1 < types_.size(); ++i) set.operands.push_back(made_up(*types_[i]));
    if (set.product.batch > 1 && types_.size() > 3 && !set.product.has_bias) {
      // Several weights, at equal distances.
      const at::Tensor first = set.operands[1];
      Type all = *types_[1];
      all.sizes.insert(all.sizes.begin(), Sym(set.product.batch));
      all.strides.insert(all.strides.begin(), Sym(first.numel()));
      set.operands = {set.operands[0], made_up(all)};
      set.product.b.next = first.numel();
    }
    return set;
  }

  void make_all() {
    queue_ = driver_->queue(device::to_torch(device_));
    sets_.push_back(made());
    const int64_t bytes = std::max<int64_t>(static_cast<int64_t>(sets_[0].operands[1].nbytes()), 1);
    const int64_t sets = std::clamp<int64_t>(kOverCaches / bytes + 1, 2, kMostCopies);
    while (std::ssize(sets_) < sets) {
      Set next = made();
      next.operands[0] = sets_[0].operands[0];
      if (next.product.is_added) next.operands[3] = sets_[0].operands[3];
      sets_.push_back(std::move(next));
    }
    out_ = at::empty_strided(to_numbers(types_.back()->sizes), to_numbers(types_.back()->strides),
                             described(*types_.back()).options());
    const int there = driver_->ways_to_multiply(*queue_, sets_[0].product, places(sets_[0]));
    BOLT_CHECK(there > 0, "the library has no way for it");
    there_ = there;
  }

  device::DeviceInterface::Places places(const Set& set) const {
    const bool biased = set.product.has_bias;
    return {set.operands[0].data_ptr(), set.operands[1].data_ptr(),
            biased ? set.operands[2].data_ptr() : nullptr,
            set.product.is_added ? set.operands[3].data_ptr() : nullptr, out_.data_ptr()};
  }

  void run(const Set& set, int way) const {
    device::driver::Multiplication m = set.product;
    m.way = way;
    queue_->follow();
    BOLT_CHECK(driver_->multiply(*queue_, m, places(set)), "the library has no such way");
  }

  double time(int way) {
    if (sets_.empty()) make_all();
    BOLT_CHECK(way < there_, "the library has no such way");
    run(sets_[0], way);
    if (way == 0)
      usual_ = out_.clone();
    else
      check_alike(usual_, out_);
    size_t next = 0;
    return device::nanoseconds_of(device::to_torch(device_), [&] { run(sets_[next++ % sets_.size()], way); });
  }

  graph::Device device_;
  std::vector<const Type*> types_;  // of operands, and of the result, as they lie
  const device::DeviceInterface* driver_ = nullptr;
  std::optional<device::driver::Multiplication> product_;
  std::unique_ptr<device::Queue> queue_;
  std::vector<Set> sets_;
  at::Tensor out_, usual_;
  int there_ = 0;
};

// ---- products ----

/// Some products of one operand. There are several sets of weights, as layers have their own.
class Products {
 public:
  explicit Products(const std::vector<const Node*>& products) : products_(products) {}

  bool is_a_question() const {
    return graph::facts_of(x().device).has_several_ways && std::ranges::all_of(products_, [](const Node* n) {
             return is_known(n->operands[0]->type) && is_known(weight(n)) && weight(n).is_contiguous();
           });
  }
  std::string question() const {
    std::string text = "products of " + x().str() + " by";
    for (const Node* n : products_) text += " " + weight(n).str() + (has_bias(n) ? " and a bias" : "");
    return text;
  }
  bool answer(bool usual, cache::Allowance& allowance, std::string* line) {
    const cache::Way apart = {"apart", [this] { return time([this] { run_apart(next()); }); }};
    const cache::Way at_once = {"at once", [this] { return time([this] { run_at_once(next()); }); }};
    const auto choice = choose(question(), x().device,
                               usual ? std::vector{at_once, apart} : std::vector{apart, at_once}, allowance);
    if (!choice.times.empty()) *line = in_words(question(), choice);
    return choice.name == at_once.name;
  }

 private:
  struct Set {
    at::Tensor all, all_biases;  // side by side
    Tensors weights;
    std::vector<std::optional<at::Tensor>> biases;
  };

  const Type& x() const { return products_.front()->operands[0]->type; }
  static const Type& weight(const Node* n) { return n->operands[1]->type; }
  static bool has_bias(const Node* n) { return n->operands.size() > 2; }

  Set made() const {
    Type rows = weight(products_.front());
    rows.sizes[0] = 0;
    for (const Node* n : products_) rows.sizes[0] += weight(n).sizes[0];
    Set set;
    set.all = made_up(rows);
    if (has_bias(products_.front()))
      set.all_biases = made_up({rows.dtype, rows.device, {rows.sizes[0]}, {1}});
    int64_t row = 0;
    for (const Node* n : products_) {
      const int64_t width = weight(n).sizes[0].value();
      set.weights.push_back(set.all.narrow(0, row, width));
      set.biases.push_back(has_bias(n) ? std::optional(set.all_biases.narrow(0, row, width)) : std::nullopt);
      row += width;
    }
    return set;
  }
  void make_all() {
    x_ = made_up(x());
    sets_.push_back(made());
    const int64_t bytes = std::max<int64_t>(static_cast<int64_t>(sets_[0].all.nbytes()), 1);
    const int64_t sets = std::clamp<int64_t>(kOverCaches / bytes + 1, 2, kMostCopies);
    while (std::ssize(sets_) < sets) sets_.push_back(made());
  }
  double time(const std::function<void()>& work) {
    if (sets_.empty()) make_all();
    return device::nanoseconds_of(device::to_torch(x().device), work);
  }
  const Set& next() { return sets_[next_++ % sets_.size()]; }

  void run_apart(const Set& set) {
    for (size_t i = 0; i < set.weights.size(); ++i) at::linear(x_, set.weights[i], set.biases[i]);
  }
  void run_at_once(const Set& set) {
    const bool batch =
        !set.all_biases.defined() && std::ranges::all_of(set.weights, [&](const at::Tensor& w) {
          return w.sizes() == set.weights[0].sizes();
        });
    if (batch)
      products_of(x_, set.weights);
    else
      at::linear(x_, set.all, set.all_biases.defined() ? std::optional(set.all_biases) : std::nullopt);
  }

  const std::vector<const Node*>& products_;
  at::Tensor x_;
  std::vector<Set> sets_;
  size_t next_ = 0;
};

}  // namespace

namespace {

/// Answers to what the steps of one plan ask. Layers ask alike, once.
class Answers {
 public:
  Answers(cache::Allowance& allowance, const std::string& program)
      : allowance_(allowance), program_(program) {}

  /// The name of the way, "": nobody knows.
  template <typename Call>
  std::string of(Call& call) {
    const std::string question = call.question();
    const auto [answer, fresh] = answers_.try_emplace(question);
    if (!fresh) return answer->second.name;
    try {
      answer->second = call.answer(allowance_);
    } catch (const std::exception& e) {
      log("perf_hints", program_ + ": nothing was measured of " + question + ": " + e.what());
    }
    if (!answer->second.times.empty()) {
      lines.push_back(in_words(question, answer->second));
      log("perf_hints", program_ + ": " + lines.back());
    }
    return answer->second.name;
  }

  std::vector<std::string> lines;

 private:
  cache::Allowance& allowance_;
  const std::string& program_;
  std::map<std::string, cache::Choice> answers_;
};

}  // namespace

std::vector<std::string> choose_ways(loops::Plan& plan, cache::Allowance& allowance, const std::string& name,
                                     bool of_products) {
  const at::NoGradGuard no_gradients;
  std::unordered_map<const Node*, Node*> nodes;
  for (const auto& node : plan.graph->nodes) nodes[node.get()] = node.get();
  Answers answers(allowance, name);
  for (const loops::Step& step : plan.steps) {
    if (step.kind != loops::StepKind::Library) continue;
    if (step.node->op == graph::Op::sdpa) {
      AttentionCall call(plan, step);
      const std::string chosen = call.is_a_question() ? answers.of(call) : "";
      if (!chosen.empty() && chosen != kUsual) nodes[step.node]->attrs["way"] = chosen;
    } else if (of_products) {
      ProductCall call(plan, step);
      const int way = call.is_a_question() ? ProductCall::way_named(answers.of(call)) : 0;
      if (way > 0) nodes[step.node]->attrs["way"] = int64_t{way};
    }
  }
  return answers.lines;
}

Merges measured_merges(const loops::PlanOptions& options, std::shared_ptr<std::vector<std::string>> lines,
                       const std::string& name) {
  return [allowance = options.measuring, usual = options.merges, lines = std::move(lines),
          name](const std::vector<const Node*>& nodes) {
    const bool as_usual = usual && usual(nodes);
    Products products(nodes);
    if (!products.is_a_question()) return as_usual;
    const at::NoGradGuard no_gradients;
    try {
      std::string line;
      const bool at_once = products.answer(as_usual, *allowance, &line);
      static std::mutex saying;  // two forms of a graph are planned at the same time
      const std::lock_guard lock(saying);
      if (!line.empty() && std::ranges::find(*lines, line) == lines->end()) {
        log("perf_hints", name + ": " + line);
        lines->push_back(std::move(line));
      }
      return at_once;
    } catch (const std::exception& e) {
      log("perf_hints", name + ": nothing was measured of " + products.question() + ": " + e.what());
      return as_usual;
    }
  };
}

}  // namespace bolt::run
