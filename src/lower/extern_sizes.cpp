// lower/extern_sizes.cpp
#include "lower/extern_sizes.h"

#include <algorithm>
#include <cmath>

#include "graph/op_rules.h"
#include "support/by_name.h"
#include "support/size_demand.h"

namespace bolt::lower {
namespace {

using ResultSizes = std::optional<std::vector<Syms>>;

ResultSizes all_results(const Call& c, const Syms& sizes) {
  return std::vector<Syms>(static_cast<size_t>(c.result_count()), sizes);
}

/// As large as the first tensor, whatever else they are given.
ResultSizes as_first(const Call& c) { return all_results(c, c.first_tensor()->type.sizes); }

/// What a function of the user's gave, with a node of autograd's behind it.
ResultSizes outputs(const Call& c) {
  std::vector<Syms> sizes;
  for (const Value* v : c.tensors("outputs")) sizes.push_back(v->type.sizes);
  return sizes;
}

ResultSizes broadcast(const Call& c) {
  Syms sizes;
  for (const Value* v : c.all_tensors()) sizes = graph::broadcast(sizes, v->type.sizes);
  return all_results(c, sizes);
}

/// A number, or a loss for each element.
ResultSizes loss(const Call& c) {
  if (c.integer("reduction") == 0) return std::nullopt;
  return all_results(c, {});
}

ResultSizes slice(const Call& c) {
  const SliceOfDim cut = cut_by_slice(c);
  Syms sizes = c.sizes("self");
  sizes[cut.dim] = cut.length;
  return all_results(c, sizes);
}

ResultSizes select(const Call& c) {
  Syms sizes = c.sizes("self");
  sizes.erase(sizes.begin() + place_by_select(c).dim);
  return all_results(c, sizes);
}

ResultSizes diff(const Call& c) {
  Syms sizes = c.sizes("self");
  const int64_t dim = Call::wrap(c.integer("dim"), c.rank("self"));
  for (const char* more : {"prepend", "append"})
    if (c.has(more)) sizes[dim] += c.sizes(more)[dim];
  sizes[dim] = max(sizes[dim] - Sym(c.integer("n")), 0);
  return all_results(c, sizes);
}

ResultSizes topk(const Call& c) {
  Syms sizes = c.sizes("self");
  if (!sizes.empty()) sizes[Call::wrap(c.integer("dim"), c.rank("self"))] = c.sym("k");
  return all_results(c, sizes);
}

/// Of the last dimension, the one before it, and so on: how much more in front and behind.
ResultSizes pad(const Call& c) {
  Syms sizes = c.sizes("self");
  const Syms more = c.syms(c.has("padding") ? "padding" : "pad");
  if (c.name() == "aten::constant_pad_nd" || (c.name() == "aten::pad" && c.text("mode") == "constant"))
    c.decide_layout_of_pad();
  for (size_t i = 0; i < more.size(); ++i) sizes[sizes.size() - 1 - i / 2] += more[i];
  return all_results(c, sizes);
}

/// The shares of all processes, one behind the other.
ResultSizes gathered(const Call& c) {
  Syms sizes = c.first_tensor()->type.sizes;
  if (sizes.empty()) sizes = {1};
  sizes[0] *= c.sym("group_size");
  return all_results(c, sizes);
}

/// Of so many shares the one of this process.
ResultSizes scattered(const Call& c) {
  Syms sizes = c.first_tensor()->type.sizes;
  if (sizes.empty()) return std::nullopt;
  sizes[0] = floordiv(sizes[0], c.sym("group_size"));
  return all_results(c, sizes);
}

/// x[i, :, j]: the indices' common shape in the place of the dimensions they index, in front where these are
/// apart.
ResultSizes index(const Call& c) {
  const std::vector<Value*> indices = c.tensors("indices");
  const Syms& self = c.sizes("self");
  Syms common, out;
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
ResultSizes nonzero(const Call& c) { return all_results(c, {0, c.rank("self")}); }

/// A number for each place that is counted.
ResultSizes bincount(const Call& c) { return all_results(c, {0}); }

/// As many rows as a number says, without columns.
ResultSizes size_of_data(const Call& c) { return all_results(c, {0, 0}); }

/// The values, where each element is among them, how often each is there.
ResultSizes unique(const Call& c) {
  const Syms none = {0};
  return std::vector<Syms>{none, c.flag("return_inverse") ? c.sizes("self") : none, none};
}

/// The place of each row, as often as it is repeated.
ResultSizes repeated(const Call& c) { return all_results(c, {0}); }

/// Rows of all sequences, step by step, and how many sequences each step has.
ResultSizes packed(const Call& c) {
  Syms rows = c.sizes("input");
  rows.erase(rows.begin());
  rows[0] = 0;
  return std::vector<Syms>{rows, {0}};
}

/// The sequences, each with that many steps, and how many steps each had.
ResultSizes padded(const Call& c) {
  const Sym steps = c.sym("total_length"), sequences = c.sym("sequences");
  Syms sizes = c.sizes("data");
  sizes[0] = c.flag("batch_first") ? steps : sequences;
  sizes.insert(sizes.begin(), c.flag("batch_first") ? sequences : steps);
  return std::vector<Syms>{sizes, {sequences}};
}

/// LSTM, GRU, RNN: what each place of the sequence gives, then the states after the last one. Of packed
/// sequences only the states know how many there are.
ResultSizes recurrent(const Call& c) {
  const bool packed = c.has("data");
  const std::vector<Value*> states = c.tensors("hx");
  Syms sequence = c.sizes(packed ? "data" : "input"), state = states[0]->type.sizes;
  if (sequence.size() != (packed ? 2 : 3) || state.size() != 3) return std::nullopt;
  sequence.back() = state[2] * Sym(c.flag("bidirectional") ? 2 : 1);
  std::vector<Syms> out = {sequence};
  for (const Value* v : states) {
    out.push_back(v->type.sizes);
    if (!packed) out.back()[1] = sequence[c.flag("batch_first") ? 0 : 1];
  }
  return out;
}

/// The i-th of one number for each dimension, or of one for all of them.
int64_t for_dim(const std::vector<int64_t>& numbers, size_t i) {
  return numbers[numbers.size() == 1 ? 0 : i];
}

/// Squares of an image as columns, as many as places that the square takes.
ResultSizes im2col(const Call& c) {
  const auto kernel = c.integers("kernel_size"), dilation = c.integers("dilation");
  const auto padding = c.integers("padding"), stride = c.integers("stride");
  Syms sizes = c.sizes("self");
  Sym square = 1, places = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t more = 2 * for_dim(padding, i) - for_dim(dilation, i) * (for_dim(kernel, i) - 1) - 1;
    places *= floordiv(sizes[sizes.size() - 2 + i] + Sym(more), for_dim(stride, i)) + Sym(1);
    square *= Sym(for_dim(kernel, i));
  }
  sizes.resize(sizes.size() - 2);
  sizes.back() *= square;
  sizes.push_back(places);
  return all_results(c, sizes);
}

/// As many frames as fit: torch has padded where they are centred.
ResultSizes stft(const Call& c) {
  if (!c.has("return_complex") || c.has("center") || c.has("align_to_window")) return std::nullopt;
  const bool onesided = c.has("onesided") ? c.flag("onesided") : !is_complex(c.first_tensor()->type.dtype);
  Syms sizes = c.sizes("self");
  const int64_t length = c.integer("n_fft");
  const Sym hop = c.has("hop_length") ? c.sym("hop_length") : Sym(length / 4);
  const Sym frames = floordiv(sizes.back() - Sym(length), hop) + Sym(1);
  sizes.back() = onesided ? length / 2 + 1 : length;
  sizes.push_back(frames);
  if (!c.flag("return_complex")) sizes.push_back(2);
  return all_results(c, sizes);
}

/// Frames as they overlap; centred ones reach past both ends by half of themselves.
ResultSizes istft(const Call& c) {
  Syms sizes = c.sizes("self");
  const int64_t length = c.integer("n_fft");
  const Sym hop = c.has("hop_length") ? c.sym("hop_length") : Sym(length / 4);
  const Sym samples = Sym(c.flag("center") ? length % 2 : length) + hop * (sizes.back() - Sym(1));
  sizes.pop_back();
  sizes.back() = c.has("length") ? c.sym("length") : samples;
  return all_results(c, sizes);
}

/// One number, or one for each sequence of the batch.
ResultSizes ctc_loss(const Call& c) {
  if (c.integer("reduction") != 0 || c.rank("log_probs") != 3) return all_results(c, {});
  return all_results(c, {c.sizes("log_probs")[1]});
}

/// The losses, their slopes, and divisors.
ResultSizes ctc_losses(const Call& c) {
  const Syms scores = c.sizes("scores"), sequences{scores[1]};
  return std::vector<Syms>{sequences, scores, sequences};
}

/// The bags; whose each index is, where anybody has to know; how many each has, and which was the largest.
ResultSizes embedding_bag(const Call& c) {
  const Syms &weight = c.sizes("weight"), &given = c.sizes("indices");
  if (given.size() != 1) return std::nullopt;
  const Sym offsets = c.sizes("offsets")[0];
  const Sym bags = offsets - Sym(c.flag("include_last_offset") ? 1 : 0);
  auto recorded_as = [&](int result, Sym size) { return c.result_size(result, 0) == c.hint(size); };
  const Syms counted = {recorded_as(2, bags) ? bags : offsets};
  const Syms places = {recorded_as(1, given[0]) ? given[0] : Sym(0)};
  return std::vector<Syms>{
      {bags, weight[1]}, places, counted, c.result_rank(3) == 2 ? Syms{bags, weight[1]} : counted};
}

ResultSizes embedding_bag_gradient(const Call& c) {
  return std::vector<Syms>{{c.sym("num_weights"), c.sizes("grad")[1]}};
}
ResultSizes gradient_of_factors(const Call& c) { return std::vector<Syms>{{c.sizes("indices")[0]}}; }

ResultSizes pdist(const Call& c) {
  const Sym rows = c.sizes("self")[0];
  return all_results(c, {floordiv(rows * (rows - Sym(1)), 2)});
}

ResultSizes multi_dot(const Call& c) {
  const std::vector<Value*> all = c.tensors("tensors");
  const Syms &first = all.front()->type.sizes, &last = all.back()->type.sizes;
  Syms sizes;
  if (first.size() == 2) sizes.push_back(first[0]);
  if (last.size() == 2) sizes.push_back(last[1]);
  return all_results(c, sizes);
}

/// The sizes that are given, or floor(size * scale) of scales that are whole numbers of eighths: there is no
/// expression over floats.
ResultSizes resample(const Call& c) {
  Syms sizes = c.first_tensor()->type.sizes;
  if (c.has("output_size")) {
    const Syms given = c.syms("output_size");
    std::copy(given.begin(), given.end(), sizes.begin() + 2);
    return all_results(c, sizes);
  }
  if (c.is_symbolic("scale_factors")) return std::nullopt;
  const std::vector<double> scales = c.numbers("scale_factors");
  for (size_t i = 0; i < scales.size(); ++i) {
    const double eighths = scales[i] * 8;
    if (eighths != std::floor(eighths) || eighths < 1 || eighths > 1024) return std::nullopt;
    Sym& size = sizes[2 + i];
    size = floordiv(size * Sym(static_cast<int64_t>(eighths)), 8);
  }
  return all_results(c, sizes);
}

/// Seed and offset, however many numbers are drawn.
ResultSizes state_of_draws(const Call& c) { return all_results(c, {2}); }

using SizeRule = ResultSizes (*)(const Call&);

/// Names of ATen's without its namespace.
constexpr std::pair<SizeRule, std::string_view> kRules[] = {
    {as_first,
     "cumsum cumprod cummax cummin logcumsumexp sort argsort rand_like randn_like bernoulli dropout "
     "native_dropout alpha_dropout masked_scatter scatter scatter_add scatter_reduce index_fill "
     "index_add index_copy index_put put index_put_ scatter_ scatter_add_ index_fill_ index_add_ "
     "index_copy_ bernoulli_ uniform_ normal_ random_ erfinv lgamma digamma nan_to_num frac i0 logit "
     "hardshrink softshrink celu prelu threshold rrelu batch_norm instance_norm bitwise_not round sgn "
     "sinc deg2rad rad2deg special_ndtri polygamma frexp special_erfcx special_i0e flipud fliplr "
     "masked_fill_ copy_ channel_shuffle "
     "native_channel_shuffle cumsum_ clone conj _conj _neg_view conj_physical "
     "_c10d_functional::all_reduce _c10d_functional::broadcast _c10d_functional::all_reduce_ "
     "_c10d_functional::broadcast_"},
    {broadcast,
     "lerp addcmul addcdiv igamma igammac special_zeta xlogy logaddexp logaddexp2 hypot nextafter gcd lcm "
     "float_power ldexp isclose "
     "clamp clamp_min clamp_max logical_xor heaviside"},
    {loss,
     "cross_entropy_loss nll_loss_nd nll_loss mse_loss l1_loss smooth_l1_loss huber_loss "
     "binary_cross_entropy binary_cross_entropy_with_logits kl_div soft_margin_loss"},
    {slice, "slice"},
    {select, "select"},
    {diff, "diff"},
    {topk, "topk"},
    {pad,
     "pad constant_pad_nd _pad_circular reflection_pad1d reflection_pad2d reflection_pad3d "
     "replication_pad1d replication_pad2d replication_pad3d"},
    {index, "index"},
    {recurrent, "lstm gru rnn_tanh rnn_relu"},
    {nonzero, "nonzero"},
    {bincount, "bincount"},
    {unique, "_unique2 unique_consecutive"},
    {repeated, "repeat_interleave"},
    {packed, "_pack_padded_sequence"},
    {padded, "torchbolt::pad_packed_sequence"},
    {im2col, "im2col"},
    {stft, "stft"},
    {istft, "istft"},
    {ctc_loss, "ctc_loss"},
    {ctc_losses, "torchbolt::ctc_losses"},
    {embedding_bag, "embedding_bag _embedding_bag _embedding_bag_forward_only"},
    {embedding_bag_gradient, "_embedding_bag_dense_backward"},
    {gradient_of_factors, "_embedding_bag_per_sample_weights_backward"},
    {pdist, "pdist"},
    {multi_dot, "linalg_multi_dot"},
    {resample,
     "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
     "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
     "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"},
    {size_of_data, "torchbolt::size_of_data"},
    {outputs, "torchbolt::function"},
    {state_of_draws, "torchbolt::draw_state"},
    {gathered, "_c10d_functional::all_gather_into_tensor _c10d_functional_autograd::all_gather_into_tensor"},
    {scattered, "_c10d_functional::reduce_scatter_tensor _c10d_functional_autograd::reduce_scatter_tensor"},
};

Sym clamped(const Call& c, Sym at, Sym size) {
  at = from_start(c, at, size);
  if (c.decide(at, Relation::lt, 0)) return 0;
  // At the end exactly, a number stands for the end, and an expression for itself.
  if (at.is_const()) return c.decide(size, Relation::le, at) ? size : at;
  return c.decide(at, Relation::le, size) ? at : size;
}

}  // namespace

Sym from_start(const Call& c, Sym at, Sym size) { return c.decide(at, Relation::lt, 0) ? at + size : at; }

SliceOfDim cut_by_slice(const Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), c.rank("self")), step = c.integer("step");
  const Sym size = c.sizes("self")[dim];
  const Sym start = c.has("start") ? clamped(c, c.sym("start"), size) : Sym(0);
  const Sym end = c.has("end") && !c.sym("end").is_const(INT64_MAX) ? clamped(c, c.sym("end"), size) : size;
  const Sym length = c.decide(start, Relation::lt, end) ? ceildiv(end - start, step) : Sym(0);
  return {dim, start, length, step};
}

SliceOfDim place_by_select(const Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), c.rank("self"));
  return {dim, from_start(c, c.sym("index"), c.sizes("self")[dim]), 1, 1};
}

std::optional<std::vector<Syms>> extern_sizes(const Call& c) {
  std::string_view name = c.name();
  constexpr std::string_view kAtens = "aten::";
  if (name.starts_with(kAtens)) name.remove_prefix(kAtens.size());
  static const auto* const rules = new auto(by_name(kRules));
  if (const auto rule = rules->find(name); rule != rules->end()) return rule->second(c);
  return std::nullopt;
}

}  // namespace bolt::lower
