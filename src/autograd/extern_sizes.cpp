// autograd/extern_sizes.cpp: see extern_sizes.h.
#include "autograd/extern_sizes.h"

#include <algorithm>

#include "graph/op_rules.h"
#include "support/size_demand.h"

namespace bolt::autograd {
namespace {

using Sizes = Syms;
using Results = std::optional<std::vector<Sizes>>;

Results all_results(const Call& c, const Sizes& sizes) {
  return std::vector<Sizes>(static_cast<size_t>(c.result_count()), sizes);
}

/// As large as the first tensor, whatever else they are given.
Results as_first(const Call& c) { return all_results(c, c.first_tensor()->type.sizes); }

Results broadcast(const Call& c) {
  Sizes sizes;
  for (const Value* v : c.all_tensors()) sizes = graph::broadcast(sizes, v->type.sizes);
  return all_results(c, sizes);
}

/// A number, or a loss for each element.
Results loss(const Call& c) {
  if (c.integer("reduction") == 0) return std::nullopt;
  return all_results(c, {});
}

Results diff(const Call& c) {
  Sizes sizes = c.sizes("self");
  const int64_t dim = Call::wrap(c.integer("dim"), c.rank("self"));
  for (const char* more : {"prepend", "append"})
    if (c.has(more)) sizes[dim] += c.sizes(more)[dim];
  sizes[dim] = max(sizes[dim] - Sym(c.integer("n")), 0);
  return all_results(c, sizes);
}

Results topk(const Call& c) {
  Sizes sizes = c.sizes("self");
  if (!sizes.empty()) sizes[Call::wrap(c.integer("dim"), c.rank("self"))] = c.sym("k");
  return all_results(c, sizes);
}

/// Of the last dimension, the one before it, and so on: how much more in front and behind.
Results pad(const Call& c) {
  Sizes sizes = c.sizes("self");
  const Sizes more = c.syms(c.has("padding") ? "padding" : "pad");
  if (c.name() == "aten::constant_pad_nd" || (c.name() == "aten::pad" && c.text("mode") == "constant"))
    c.decide_layout_of_pad();
  for (size_t i = 0; i < more.size(); ++i) sizes[sizes.size() - 1 - i / 2] += more[i];
  return all_results(c, sizes);
}

/// x[i, :, j]: the indices' common shape in the place of the dimensions they index, in front where these are
/// apart.
Results index(const Call& c) {
  const std::vector<Value*> indices = c.tensors("indices");
  const Sizes& self = c.sizes("self");
  Sizes common, out;
  size_t first = indices.size(), last = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    if (indices[d]->type.dtype == DType::Bool || indices[d]->type.dtype == DType::U8) return std::nullopt;
    common = graph::broadcast(common, indices[d]->type.sizes);
    first = std::min(first, d);
    last = d;
  }
  bool apart = false;
  for (size_t d = first; d < last; ++d) apart |= !indices[d];
  for (size_t d = 0; d <= self.size(); ++d) {
    if (d == (apart ? 0 : first)) out.insert(out.end(), common.begin(), common.end());
    if (d < self.size() && (d >= indices.size() || !indices[d])) out.push_back(self[d]);
  }
  return all_results(c, out);
}

/// A row for each element that is not 0. How many is data: the caller puts a symbol there.
Results nonzero(const Call& c) { return all_results(c, {0, c.rank("self")}); }

/// As many rows as a number says, without columns.
Results size_of_data(const Call& c) { return all_results(c, {0, 0}); }

/// The values, where each element is among them, how often each is there.
Results unique(const Call& c) {
  const Sizes none = {0};
  return std::vector<Sizes>{none, c.flag("return_inverse") ? c.sizes("self") : none, none};
}

/// LSTM, GRU, RNN: what each place of the sequence gives, then the states after the last one. Of packed
/// sequences only the states know how many there are.
Results recurrent(const Call& c) {
  const bool packed = c.has("data");
  const std::vector<Value*> states = c.tensors("hx");
  Sizes sequence = c.sizes(packed ? "data" : "input"), state = states[0]->type.sizes;
  if (sequence.size() != (packed ? 2 : 3) || state.size() != 3) return std::nullopt;
  sequence.back() = state[2] * Sym(c.flag("bidirectional") ? 2 : 1);
  std::vector<Sizes> out = {sequence};
  for (const Value* v : states) {
    out.push_back(v->type.sizes);
    if (!packed) out.back()[1] = sequence[c.flag("batch_first") ? 0 : 1];
  }
  return out;
}

struct Rule {
  Results (*sizes)(const Call&);
  std::vector<std::string_view> names;  ///< those of ATen without its namespace
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {as_first,
       {"cumsum",
        "cumprod",
        "cummax",
        "cummin",
        "logcumsumexp",
        "sort",
        "argsort",
        "rand_like",
        "randn_like",
        "bernoulli",
        "dropout",
        "native_dropout",
        "alpha_dropout",
        "masked_scatter",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "index_fill",
        "index_add",
        "index_copy",
        "index_put",
        "put",
        "index_put_",
        "scatter_",
        "scatter_add_",
        "index_fill_",
        "index_add_",
        "index_copy_",
        "bernoulli_",
        "uniform_",
        "normal_",
        "random_",
        "erfinv",
        "lgamma",
        "digamma",
        "nan_to_num",
        "frac",
        "i0",
        "logit",
        "hardshrink",
        "softshrink",
        "celu",
        "prelu",
        "threshold",
        "rrelu",
        "batch_norm",
        "instance_norm",
        "bitwise_not",
        "round",
        "sgn",
        "sinc",
        "deg2rad",
        "rad2deg",
        "special_erfcx",
        "special_i0e",
        "flipud",
        "fliplr",
        "masked_fill_",
        "copy_",
        "channel_shuffle",
        "native_channel_shuffle",
        "cumsum_",
        "clone"}},
      {broadcast,
       {"lerp", "addcmul", "addcdiv", "xlogy", "logaddexp", "logaddexp2", "hypot", "nextafter", "gcd", "lcm",
        "float_power", "ldexp", "isclose", "clamp", "clamp_min", "clamp_max", "logical_xor", "heaviside"}},
      {loss,
       {"cross_entropy_loss", "nll_loss_nd", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss",
        "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
        "soft_margin_loss"}},
      {diff, {"diff"}},
      {topk, {"topk"}},
      {pad,
       {"pad", "constant_pad_nd", "_pad_circular", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
        "replication_pad1d", "replication_pad2d", "replication_pad3d"}},
      {index, {"index"}},
      {recurrent, {"lstm", "gru", "rnn_tanh", "rnn_relu"}},
      {nonzero, {"nonzero"}},
      {unique, {"_unique2", "unique_consecutive"}},
      {size_of_data, {"torchbolt::size_of_data"}},
  };
  return table;
}

}  // namespace

std::optional<std::vector<Syms>> extern_sizes(const Call& c) {
  std::string_view name = c.name();
  constexpr std::string_view kAtens = "aten::";
  if (name.starts_with(kAtens)) name.remove_prefix(kAtens.size());
  for (const Rule& rule : rules())
    if (std::find(rule.names.begin(), rule.names.end(), name) != rule.names.end()) return rule.sizes(c);
  return std::nullopt;
}

}  // namespace bolt::autograd
