// run/choose_ways.cpp
#include "run/choose_ways.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linear.h>

#include <algorithm>
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
    for (int b : step.buffers) types_.push_back(&plan.buffers[static_cast<size_t>(b)].type);
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
    const std::vector<int64_t> strides = numbers(result_->strides);
    if (out.strides() == at::IntArrayRef(strides)) return out;
    return at::empty_strided(numbers(result_->sizes), strides, out.options()).copy_(out);
  }

  const Node& node_;
  const graph::Device device_;
  std::vector<const Type*> types_;  // of operands, as they lie
  const Type* result_;
  Tensors operands_;
  at::Tensor usual_;
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

std::vector<std::string> choose_ways(loops::Plan& plan, cache::Allowance& allowance,
                                     const std::string& name) {
  const at::NoGradGuard no_gradients;
  std::unordered_map<const Node*, Node*> nodes;
  for (const auto& node : plan.graph->nodes) nodes[node.get()] = node.get();
  std::map<std::string, cache::Choice> answers;  // layers ask alike
  std::vector<std::string> lines;
  for (const loops::Step& step : plan.steps) {
    if (step.kind != loops::StepKind::Library || step.node->op != graph::Op::sdpa) continue;
    AttentionCall call(plan, step);
    if (!call.is_a_question()) continue;
    const std::string question = call.question();
    const auto [answer, fresh] = answers.try_emplace(question);
    if (fresh) {
      try {
        answer->second = call.answer(allowance);
      } catch (const std::exception& e) {
        log("perf_hints", name + ": nothing was measured of " + question + ": " + e.what());
      }
      if (!answer->second.times.empty()) {
        lines.push_back(in_words(question, answer->second));
        log("perf_hints", name + ": " + lines.back());
      }
    }
    const std::string& chosen = answer->second.name;
    if (!chosen.empty() && chosen != kUsual) nodes[step.node]->attrs["way"] = chosen;
  }
  return lines;
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
