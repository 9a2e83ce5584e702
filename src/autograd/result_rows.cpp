// autograd/result_rows.cpp
// What the results of operators are like that no C++ kernel of ATen's describes: one row for each, with the
// layout that ATen's kernels give. A row that is not sure gives up (false); then Python is asked.
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <numeric>

#include "autograd/results.h"
#include "device/host/host.h"
#include "support/by_name.h"

namespace bolt::autograd {

at::Tensor ResultCall::tensor(size_t i) const {
  return argument(i).isTensor() ? argument(i).toTensor() : at::Tensor();
}

at::ScalarType ResultCall::dtype(size_t i, at::ScalarType otherwise) const {
  return argument(i).isNone() ? otherwise : argument(i).toScalarType();
}

void ResultCall::give(at::IntArrayRef sizes, at::ScalarType dtype) {
  give(sizes, c10::contiguous_strides(sizes), dtype);
}

void ResultCall::give(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  results_.emplace_back(at::Tensor(at::detail::empty_strided_meta(sizes, strides, dtype)));
}

void ResultCall::give_like(const at::Tensor& t, at::ScalarType dtype) {
  if (t.is_non_overlapping_and_dense()) return give(t.sizes(), t.strides(), dtype);
  give(t.sizes(), at::infer_dense_strides(t.sizes(), t.strides()), dtype);
}

void ResultCall::give_format(at::IntArrayRef sizes, at::MemoryFormat format, at::ScalarType dtype) {
  if (format == at::MemoryFormat::ChannelsLast && sizes.size() == 4)
    return give(sizes, c10::get_channels_last_strides_2d(sizes), dtype);
  if (format == at::MemoryFormat::ChannelsLast3d && sizes.size() == 5)
    return give(sizes, c10::get_channels_last_strides_3d(sizes), dtype);
  give(sizes, dtype);
}

namespace {

using Call = ResultCall;
using at::Tensor;

// --- As large as an argument, and what is computed element by element ------------------------------------

bool like_first(Call& c) {
  c.give_like(c.tensor(0));
  return !c.tensor(0).is_complex();
}

void contiguous_as_first(Call& c) { c.give(c.tensor(0).sizes(), c.tensor(0).scalar_type()); }

void like_first_and_indices(Call& c) {
  c.give_like(c.tensor(0));
  c.give_like(c.tensor(0), at::kLong);
}

void like_first_and_mask(Call& c) {
  c.give_like(c.tensor(0));
  c.give_like(c.tensor(0), at::kBool);
}

/// The layout that TensorIterator gives to the result of these.
void give_pointwise(Call& c, std::initializer_list<Tensor> operands, at::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(dtype, at::kMeta)
      .add_owned_output(Tensor());
  for (const Tensor& operand : operands)
    if (operand.defined()) config.add_owned_const_input(operand);
  const at::TensorIterator iterator = config.build();
  c.give(iterator.output().sizes(), iterator.output().strides(), dtype);
}

/// A tensor and a tensor, or a number.
at::ScalarType promoted(const Call& c, size_t a, size_t b) {
  if (c.argument(b).isScalar()) return at::result_type(c.tensor(a), c.argument(b).toScalar());
  if (c.argument(a).isScalar()) return at::result_type(c.argument(a).toScalar(), c.tensor(b));
  return at::result_type(c.tensor(a), c.tensor(b));
}

void pointwise_of_two(Call& c) { give_pointwise(c, {c.tensor(0), c.tensor(1)}, promoted(c, 0, 1)); }

bool quotient(Call& c) {
  const at::ScalarType type = promoted(c, 0, 1);
  if (at::isIntegralType(type, true)) return false;
  give_pointwise(c, {c.tensor(0), c.tensor(1)}, type);
  return true;
}

void truth_of_one(Call& c) { c.give_like(c.tensor(0), at::kBool); }

void truth_of_two(Call& c) { give_pointwise(c, {c.tensor(0), c.tensor(1)}, at::kBool); }

void chosen(Call& c) { give_pointwise(c, {c.tensor(0), c.tensor(1), c.tensor(2)}, promoted(c, 1, 2)); }

/// However they lie, what is filled is contiguous.
void masked(Call& c) {
  const at::Tensor self = c.tensor(0);
  c.give(at::infer_size(self.sizes(), c.tensor(1).sizes()), self.scalar_type());
}

void prelu_backward(Call& c) {
  for (int i = 0; i < 2; ++i)
    give_pointwise(c, {c.tensor(0), c.tensor(1), c.tensor(2)}, c.tensor(1).scalar_type());
}

/// Only the CPU's kernel keeps a buffer for the gradient.
void log_sigmoid(Call& c) {
  const Tensor t = c.tensor(0);
  c.give_like(t);
  device::is_processor(t.device()) ? c.give_like(t) : c.give({0}, t.scalar_type());
}

// --- New tensors ------------------------------------------------------------------------------------------

/// `format`: the index of an optional memory format; None and preserve_format keep the layout.
bool copy_of(Call& c, size_t format, at::ScalarType dtype) {
  const Tensor t = c.tensor(0);
  if (c.argument(format).isNone() || c.argument(format).toMemoryFormat() == at::MemoryFormat::Preserve)
    c.give_like(t, dtype);
  else
    c.give_format(t.sizes(), c.argument(format).toMemoryFormat(), dtype);
  return true;
}

bool cloned(Call& c) { return copy_of(c, 1, c.tensor(0).scalar_type()); }
bool filled_like(Call& c) { return copy_of(c, 5, c.dtype(1, c.tensor(0).scalar_type())); }
bool full_like(Call& c) { return copy_of(c, 6, c.dtype(2, c.tensor(0).scalar_type())); }
bool converted(Call& c) { return copy_of(c, 6, c.dtype(1, c.tensor(0).scalar_type())); }

/// `kType`: the index of its element type.
template <size_t kType>
void new_of_size(Call& c) {
  c.give(c.integers(1), c.dtype(kType, c.tensor(0).scalar_type()));
}

void new_strided(Call& c) { c.give(c.integers(1), c.integers(2), c.dtype(3, c.tensor(0).scalar_type())); }

void of_size(Call& c) {
  c.give(c.integers(0), c.dtype(1, at::typeMetaToScalarType(at::get_default_dtype())));
}

bool full(Call& c) {
  if (c.argument(2).isNone()) return false;
  c.give(c.integers(0), c.argument(2).toScalarType());
  return true;
}

void scalar_tensor(Call& c) { c.give({}, c.dtype(1, at::typeMetaToScalarType(at::get_default_dtype()))); }

// --- Parts of tensors -------------------------------------------------------------------------------------

/// What gradients of views are written into: (grad, sizes, ...).
void of_given_sizes(Call& c) { c.give(c.integers(1), c.tensor(0).scalar_type()); }

void embedding(Call& c) {
  std::vector<int64_t> sizes = c.tensor(1).sizes().vec();
  const Tensor weight = c.tensor(0);
  sizes.insert(sizes.end(), weight.sizes().begin() + 1, weight.sizes().end());
  c.give(sizes, weight.scalar_type());
}

void embedding_backward(Call& c) {
  c.give({c.argument(2).toInt(), c.tensor(0).size(-1)}, c.tensor(0).scalar_type());
}

bool index_select(Call& c) {
  std::vector<int64_t> sizes = c.tensor(0).sizes().vec();
  if (sizes.empty()) return false;
  sizes[at::maybe_wrap_dim(c.argument(1).toInt(), c.tensor(0).dim())] = c.tensor(2).numel();
  c.give(sizes, c.tensor(0).scalar_type());
  return true;
}

bool stacked(Call& c) {
  const std::vector<Tensor> parts = c.argument(0).toTensorVector();
  if (parts.empty()) return false;
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  const int64_t dim = at::maybe_wrap_dim(c.argument(1).toInt(), parts[0].dim() + 1);
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(parts.size()));
  c.give(sizes, at::native::result_type(parts));
  return true;
}

bool padded(Call& c) {
  const Tensor t = c.tensor(0);
  const std::vector<int64_t> pads = c.integers(1);
  if (std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p <= 0; })) return false;
  std::vector<int64_t> sizes = t.sizes().vec();
  for (size_t i = 0; i < pads.size(); ++i) sizes[sizes.size() - 1 - i / 2] += pads[i];
  c.give_format(sizes, t.suggest_memory_format(), t.scalar_type());
  return true;
}

void repeated(Call& c) {
  std::vector<int64_t> sizes = c.integers(1);
  const Tensor t = c.tensor(0);
  for (int64_t d = 1; d <= t.dim(); ++d) sizes[sizes.size() - static_cast<size_t>(d)] *= t.size(-d);
  c.give(sizes, t.scalar_type());
}

// --- Reductions and products ------------------------------------------------------------------------------

void one_number(Call& c) { c.give({}, c.tensor(0).scalar_type()); }

void sum_of_all(Call& c) {
  const at::ScalarType type = c.tensor(0).scalar_type();
  c.give({}, c.dtype(1, at::isIntegralType(type, true) ? at::kLong : type));
}

void mean_of_all(Call& c) { c.give({}, c.dtype(1, c.tensor(0).scalar_type())); }

/// `dims`, `keep`: the indices of those arguments.
std::vector<int64_t> reduced(const Call& c, size_t dims, size_t keep) {
  const Tensor t = c.tensor(0);
  std::vector<int64_t> over = c.argument(dims).isNone() ? std::vector<int64_t>() : c.integers(dims);
  for (int64_t& d : over) d = at::maybe_wrap_dim(d, t.dim());
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < t.dim(); ++d) {
    const bool gone = over.empty() || std::find(over.begin(), over.end(), d) != over.end();
    if (!gone || c.flag(keep)) sizes.push_back(gone ? 1 : t.size(d));
  }
  return sizes;
}

template <int kResults>
bool spread(Call& c) {
  if (c.tensor(0).is_complex()) return false;
  for (int i = 0; i < kResults; ++i) c.give(reduced(c, 1, 3), c.tensor(0).scalar_type());
  return true;
}

bool logsumexp(Call& c) {
  if (!c.tensor(0).is_floating_point()) return false;
  c.give(reduced(c, 1, 2), c.tensor(0).scalar_type());
  return true;
}

void matrix_vector(Call& c) { c.give({c.tensor(0).size(0)}, c.tensor(0).scalar_type()); }

// --- Losses -----------------------------------------------------------------------------------------------

/// (input, target, reduction, ...), as large as both where it does not reduce.
void loss(Call& c) {
  const at::ScalarType type = c.tensor(0).scalar_type();
  c.argument(2).toInt() ? c.give({}, type) : give_pointwise(c, {c.tensor(0), c.tensor(1)}, type);
}

/// (grad, input, ...)
void contiguous_as_second(Call& c) { c.give(c.tensor(1).sizes(), c.tensor(1).scalar_type()); }

/// (scores by time, sequence and class, ...): of each sequence the loss, the slopes, and a divisor.
void ctc_losses(Call& c) {
  const Tensor scores = c.tensor(0);
  c.give({scores.size(1)}, scores.scalar_type());
  contiguous_as_first(c);
  c.give({scores.size(1)}, scores.scalar_type());
}

void like_second(Call& c) { c.give_like(c.tensor(1)); }

void weighted_loss(Call& c) {
  c.argument(3).toInt() ? c.give({}, c.tensor(0).scalar_type()) : c.give_like(c.tensor(0));
}

// --- Normalisations ---------------------------------------------------------------------------------------

/// Of the statistics: the CPU keeps those of half precision with float parameters in float, CUDA all in
/// float.
at::ScalarType statistics_type(const Tensor& input, const Tensor& weight) {
  const at::ScalarType type = input.scalar_type();
  if (!device::is_processor(input.device())) return at::toOpMathType(type);
  const bool half = at::isReducedFloatingType(type);
  return half && weight.defined() && weight.scalar_type() == at::kFloat ? at::kFloat : type;
}

void layer_norm(Call& c) {
  const Tensor input = c.tensor(0);
  const size_t outer = static_cast<size_t>(input.dim()) - c.integers(1).size();
  c.give(input.sizes(), input.scalar_type());
  std::vector<int64_t> sizes = input.sizes().vec();
  std::fill(sizes.begin() + static_cast<std::ptrdiff_t>(outer), sizes.end(), 1);
  for (int i = 0; i < 2; ++i) c.give(sizes, statistics_type(input, c.tensor(2)));
}

void give_formatted(Call& c, const Tensor& like) {
  c.give_format(like.sizes(), like.suggest_memory_format(), like.scalar_type());
}

void give_if(Call& c, bool wanted, const Tensor& like) {
  wanted&& like.defined() ? c.give_like(like) : c.give_nothing();
}

/// (grad, input, shape, mean, rstd, weight, bias, mask)
void layer_norm_backward(Call& c) {
  const auto mask = c.argument(7).toBoolList();
  mask[0] ? contiguous_as_second(c) : c.give_nothing();
  give_if(c, mask[1], c.tensor(5));
  give_if(c, mask[2], c.tensor(6));
}

/// (input, weight, bias, mean, var, training, momentum, eps). In evaluation the CPU keeps no statistics, and
/// CUDA those that it was given.
void batch_norm(Call& c) {
  const Tensor input = c.tensor(0);
  const int64_t kept = c.flag(5) || !device::is_processor(input.device()) ? input.size(1) : 0;
  give_formatted(c, input);
  for (int i = 0; i < 2; ++i) c.give({kept}, statistics_type(input, c.tensor(1)));
}

/// (grad, input, weight, mean, var, save_mean, save_invstd, train, eps, mask)
void batch_norm_backward(Call& c) {
  const Tensor input = c.tensor(1), weight = c.tensor(2);
  const auto mask = c.argument(9).toBoolList();
  const at::ScalarType type = weight.defined() ? weight.scalar_type() : input.scalar_type();
  mask[0] ? give_formatted(c, input) : c.give_nothing();
  for (size_t i = 1; i < 3; ++i) mask[i] ? c.give({input.size(1)}, type) : c.give_nothing();
}

/// Only the CPU's kernels know channels that are last.
void give_group_normal(Call& c, const Tensor& input) {
  device::is_processor(input.device()) ? give_formatted(c, input)
                                       : c.give(input.sizes(), input.scalar_type());
}

/// (input, weight, bias, N, C, HxW, groups, eps)
void group_norm(Call& c) {
  const Tensor input = c.tensor(0), weight = c.tensor(1);
  give_group_normal(c, input);
  const bool mixed = weight.defined() && weight.scalar_type() != input.scalar_type();
  for (int i = 0; i < 2; ++i)
    c.give({c.argument(3).toInt(), c.argument(6).toInt()}, mixed ? at::kFloat : input.scalar_type());
}

/// (grad, input, mean, rstd, weight, N, C, HxW, groups, mask)
void group_norm_backward(Call& c) {
  const Tensor input = c.tensor(1);
  const auto mask = c.argument(9).toBoolList();
  mask[0] ? give_group_normal(c, input) : c.give_nothing();
  for (size_t i = 1; i < 3; ++i) give_if(c, mask[i], c.tensor(4));
}

void draw_state(Call& c) { c.give({2}, at::kLong); }

void dropout_keep(Call& c) { c.give(c.integers(1), at::kBool); }

bool dropout(Call& c) {
  c.give_like(c.tensor(0));
  c.give_like(c.tensor(0), at::kBool);
  return !c.argument(2).isNone() && c.flag(2);
}

// --- Attention --------------------------------------------------------------------------------------------

bool attention(Call& c) {
  const Tensor q = c.tensor(0);
  const int64_t batch = q.size(0), heads = q.size(1), rows = q.size(2);
  if (c.tensor(2).size(3) != q.size(3)) return false;
  c.give_like(q);
  c.give({batch, heads, rows}, {heads * rows, 1, heads}, at::toOpMathType(q.scalar_type()));
  return true;
}

/// (grad, q, k, v, ...): gradients whose rows come before the heads, however the tensors lie.
void attention_backward(Call& c) {
  for (size_t i = 1; i < 4; ++i) {
    const Tensor t = c.tensor(i);
    const int64_t heads = t.size(1), rows = t.size(2), row = t.size(3);
    c.give(t.sizes(), {rows * heads * row, row, heads * row, 1}, t.scalar_type());
  }
}

/// (query, key, value, bias, logsumexp?, ...). ATen has its result lie as the query does, and so must
/// everyone: cuDNN's plan of the backward pass takes it for granted. Python's rule of ATen 2.11 has it
/// contiguous.
bool cudnn_attention(Call& c) {
  const Tensor q = c.tensor(0), k = c.tensor(1), v = c.tensor(2);
  if (q.dim() != 4 || v.size(3) != q.size(3)) return false;
  c.give_like(q);
  c.flag(4) ? c.give({q.size(0), q.size(1), q.size(2), 1}, at::kFloat) : c.give_nothing();
  c.give_nothing(), c.give_nothing();  // where sequences of a packed batch begin
  c.give_number(q.size(2)), c.give_number(k.size(2));
  c.give({}, at::kLong), c.give({}, at::kLong);  // the state of the random numbers
  c.give_nothing();                              // what dropout hides
  return true;
}

/// (grad, query, key, value, ...)
bool cudnn_attention_backward(Call& c) {
  for (size_t i = 1; i < 4; ++i) {
    if (c.tensor(i).dim() != 4) return false;
    c.give_like(c.tensor(i));
  }
  return true;
}

/// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last,
/// padding_idx).
///
/// The processor's kernel leaves out which bag an index belongs to where it sums rows up in a library, and
/// the backward pass works that out.
bool embedding_bag(Call& c) {
  enum { kSum, kMean, kMax };
  const Tensor weight = c.tensor(0), indices = c.tensor(1), offsets = c.tensor(2), factors = c.tensor(6);
  if (!device::is_processor(weight.device()) || indices.dim() != 1) return false;
  const int64_t mode = c.argument(4).toInt(), bags = offsets.size(0) - (c.flag(7) ? 1 : 0);
  const at::ScalarType type = weight.scalar_type(), numbers = offsets.scalar_type();
  const bool in_library =
      mode == kSum && (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) &&
      weight.stride(1) == 1 && c.argument(8).toInt() < 0 && (!factors.defined() || factors.stride(0) == 1);
  c.give({bags, weight.size(1)}, type);
  c.give({in_library ? 0 : indices.size(0)}, numbers);
  c.give({bags}, numbers);
  mode == kMax ? c.give({bags, weight.size(1)}, numbers) : c.give({bags}, numbers);
  return true;
}

// --- Images -----------------------------------------------------------------------------------------------

/// As ATen chooses it: either of the two has its channels last. Neither oneDNN nor cuDNN takes doubles so.
at::MemoryFormat convolution_format(const Tensor& input, const Tensor& weight) {
  if (input.dim() < 4 || input.scalar_type() == at::kDouble || weight.scalar_type() == at::kDouble)
    return at::MemoryFormat::Contiguous;
  for (const Tensor& t : {input, weight})
    if (t.suggest_memory_format() != at::MemoryFormat::Contiguous) return t.suggest_memory_format();
  return at::MemoryFormat::Contiguous;
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
bool convolution(Call& c) {
  const Tensor input = c.tensor(0), weight = c.tensor(1);
  const std::vector<int64_t> stride = c.integers(3), pad = c.integers(4), dilation = c.integers(5),
                             more = c.integers(7);
  const bool transposed = c.flag(6);
  const size_t dims = static_cast<size_t>(input.dim()) - 2;
  if (stride.size() != dims || pad.size() != dims || dilation.size() != dims) return false;
  std::vector<int64_t> sizes{input.size(0),
                             transposed ? weight.size(1) * c.argument(8).toInt() : weight.size(0)};
  for (size_t d = 0; d < dims; ++d) {
    const int64_t in = input.size(static_cast<int64_t>(d) + 2);
    const int64_t kernel = dilation[d] * (weight.size(static_cast<int64_t>(d) + 2) - 1) + 1;
    sizes.push_back(transposed ? (in - 1) * stride[d] - 2 * pad[d] + kernel + more[d]
                               : (in + 2 * pad[d] - kernel) / stride[d] + 1);
  }
  c.give_format(sizes, convolution_format(input, weight), input.scalar_type());
  return true;
}

/// (grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
void convolution_backward(Call& c) {
  const Tensor input = c.tensor(1), weight = c.tensor(2);
  const auto mask = c.argument(10).toBoolList();
  const at::MemoryFormat format = convolution_format(input, weight);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor& of = i ? weight : input;
    mask[i] ? c.give_format(of.sizes(), format, of.scalar_type()) : c.give_nothing();
  }
  const int64_t channels = c.tensor(0).size(1);
  mask[2] ? c.give({channels}, weight.scalar_type()) : c.give_nothing();
}

void pooled(Call& c) {
  const Tensor t = c.tensor(0);
  std::vector<int64_t> sizes = t.sizes().vec();
  const std::vector<int64_t> to = c.integers(1);
  std::copy(to.begin(), to.end(), sizes.end() - static_cast<std::ptrdiff_t>(to.size()));
  c.give_format(sizes, t.suggest_memory_format(), t.scalar_type());
}

void pooled_backward(Call& c) { give_formatted(c, c.tensor(1)); }

/// A row that never gives up.
template <void (*row)(Call&)>
bool sure(Call& c) {
  row(c);
  return true;
}

constexpr std::pair<ResultRow, std::string_view> kRows[] = {
    {like_first,
     "aten::relu aten::abs aten::hardtanh aten::hardswish aten::nan_to_num aten::flip aten::bernoulli "
     "aten::bernoulli.p aten::index_put aten::_unsafe_index_put aten::_safe_softmax "
     "aten::log_sigmoid_backward aten::native_dropout_backward aten::_masked_softmax_backward"},
    {sure<contiguous_as_first>, "aten::roll"},
    {embedding_bag, "aten::_embedding_bag"},
    {sure<like_first_and_indices>, "aten::sort"},
    {sure<pointwise_of_two>,
     "aten::add.Scalar aten::sub.Scalar aten::mul.Scalar aten::rsub.Scalar aten::rsub.Tensor "
     "aten::_prelu_kernel aten::hardtanh_backward aten::hardswish_backward aten::mish_backward"},
    {quotient, "aten::div.Scalar"},
    {sure<truth_of_one>, "aten::isnan aten::isinf aten::logical_not"},
    {sure<truth_of_two>, "aten::logical_and aten::logical_or aten::logical_xor"},
    {sure<chosen>, "aten::where.self"},
    {sure<masked>, "aten::masked_fill.Scalar aten::masked_fill.Tensor"},
    {sure<prelu_backward>, "aten::_prelu_kernel_backward"},
    {sure<log_sigmoid>, "aten::log_sigmoid_forward"},
    {cloned, "aten::clone"},
    {converted, "aten::_to_copy"},
    {filled_like, "aten::zeros_like aten::ones_like aten::empty_like aten::rand_like aten::randn_like"},
    {full_like, "aten::full_like"},
    {sure<new_of_size<2>>, "aten::new_zeros aten::new_ones aten::new_empty"},
    {sure<new_of_size<3>>, "aten::new_full"},
    {sure<new_strided>, "aten::new_empty_strided"},
    {sure<of_size>, "aten::zeros aten::ones aten::rand aten::randn"},
    {full, "aten::full"},
    {sure<scalar_tensor>, "aten::scalar_tensor"},
    {sure<of_given_sizes>,
     "aten::select_backward aten::slice_backward aten::diagonal_backward aten::unfold_backward"},
    {sure<embedding>, "aten::embedding"},
    {sure<embedding_backward>, "aten::embedding_dense_backward"},
    {index_select, "aten::index_select"},
    {stacked, "aten::stack"},
    {padded, "aten::constant_pad_nd"},
    {sure<repeated>, "aten::repeat"},
    {sure<sum_of_all>, "aten::sum aten::prod"},
    {sure<mean_of_all>, "aten::mean"},
    {sure<one_number>, "aten::max aten::min aten::dot"},
    {spread<1>, "aten::var.correction aten::std.correction"},
    {spread<2>, "aten::var_mean.correction aten::std_mean.correction"},
    {logsumexp, "aten::logsumexp"},
    {sure<matrix_vector>, "aten::mv"},
    {sure<loss>, "aten::huber_loss"},
    {sure<contiguous_as_second>,
     "aten::mse_loss_backward aten::smooth_l1_loss_backward aten::huber_loss_backward aten::glu_backward "
     "aten::multi_margin_loss_backward aten::multilabel_margin_loss_backward aten::_ctc_loss_backward "
     "aten::_ctc_loss_backward.Tensor aten::fractional_max_pool3d_backward"},
    {sure<like_first_and_mask>,
     "aten::fake_quantize_per_tensor_affine_cachemask "
     "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams "
     "aten::fake_quantize_per_channel_affine_cachemask"},
    {sure<weighted_loss>, "aten::binary_cross_entropy"},
    {sure<like_second>, "aten::binary_cross_entropy_backward"},
    {sure<layer_norm>, "aten::native_layer_norm"},
    {sure<layer_norm_backward>, "aten::native_layer_norm_backward"},
    {sure<batch_norm>, "aten::native_batch_norm"},
    {sure<batch_norm_backward>, "aten::native_batch_norm_backward"},
    {sure<group_norm>, "aten::native_group_norm"},
    {sure<group_norm_backward>, "aten::native_group_norm_backward"},
    {dropout, "aten::native_dropout"},
    {sure<draw_state>, "torchbolt::draw_state"},
    {sure<ctc_losses>, "torchbolt::ctc_losses torchbolt::ctc_losses.lists"},
    {sure<dropout_keep>, "torchbolt::dropout_keep"},
    {attention, "aten::_scaled_dot_product_flash_attention_for_cpu"},
    {sure<attention_backward>, "aten::_scaled_dot_product_flash_attention_for_cpu_backward"},
    {cudnn_attention, "aten::_scaled_dot_product_cudnn_attention"},
    {cudnn_attention_backward, "aten::_scaled_dot_product_cudnn_attention_backward"},
    {convolution, "aten::convolution"},
    {sure<convolution_backward>, "aten::convolution_backward"},
    {sure<pooled>, "aten::_adaptive_avg_pool2d"},
    {sure<pooled_backward>, "aten::_adaptive_avg_pool2d_backward"},
};

}  // namespace

const std::unordered_map<std::string_view, ResultRow>& result_rows() {
  static const auto* const all = new auto(by_name(kRows));
  return *all;
}

}  // namespace bolt::autograd
