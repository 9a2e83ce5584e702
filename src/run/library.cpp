// run/library.cpp
#include "run/library.h"

#include <ATen/Context.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/adaptive_avg_pool1d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/cudnn_convolution.h>
#include <ATen/ops/cudnn_convolution_add_relu.h>
#include <ATen/ops/cudnn_convolution_relu.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/var.h>

#include <algorithm>
#include <unordered_map>

#include "device/device.h"
#include "record/argument.h"
#include "record/communications.h"
#include "record/operator_facts.h"
#include "run/attention.h"
#include "run/products.h"
#include "support/error.h"

namespace bolt::run {
namespace {

using graph::Node;
using graph::Op;
using Tensors = std::vector<at::Tensor>;
using std::optional;

// Optional weight and bias follow the `skip` leading operands, as the has_* attributes say.
std::pair<at::Tensor, at::Tensor> affine(const Node& n, const Tensors& in, size_t skip) {
  std::pair<at::Tensor, at::Tensor> out;
  if (n.attr_or<bool>("has_weight", false)) out.first = in[skip++];
  if (n.attr_or<bool>("has_bias", false)) out.second = in[skip++];
  return out;
}
std::vector<int64_t> normalized_shape(const Node& n, const at::Tensor& x) {
  auto sizes = x.sizes();
  return sizes.slice(sizes.size() - n.attr<int64_t>("normalized_rank")).vec();
}

/// Of a product or convolution.
optional<at::Tensor> bias(const Tensors& in) { return in.size() > 2 ? optional(in[2]) : std::nullopt; }

/// Does a product store its sums of halves as they are?
bool is_wide(const Node& n) { return n.attr_or<bool>("wide", false); }

Tensors linear(const Node& n, const Tensors& in) {
  if (n.has_attr("activation")) {
    const bool is_relu = n.attr<std::string>("activation") == "relu";
    return {is_relu ? at::linear(in[0], in[1], bias(in)).relu_() : linear_gelu(in[0], in[1], bias(in))};
  }
  if (is_wide(n)) return {wide_product(in[0], in[1].t())};
  return {at::linear(in[0], in[1], bias(in))};
}
Tensors linear_of_parts(const Node&, const Tensors& in) {
  return {at::cat({at::linear(in[0], in[1]), at::linear(in[0], in[2])}, -1)};
}
Tensors linears(const Node&, const Tensors& in) { return {products_of(in[0], {in.begin() + 1, in.end()})}; }
Tensors join(const Node&, const Tensors& in) { return {joined(in)}; }
Tensors matmul(const Node& n, const Tensors& in) {
  return {is_wide(n) ? wide_product(in[0], in[1]) : at::matmul(in[0], in[1])};
}
bool is_by_cudnn(const Node& n, const Tensors& in) {
  const std::vector<int64_t> stride = n.ints("stride"), padding = n.ints("padding"),
                             dilation = n.ints("dilation"), more = n.ints("output_padding");
  const auto backend =
      at::native::select_conv_backend(in[0], in[1], {}, c10::fromIntArrayRefSlow(stride),
                                      c10::fromIntArrayRefSlow(padding), c10::fromIntArrayRefSlow(dilation),
                                      false, c10::fromIntArrayRefSlow(more), n.attr<int64_t>("groups"), {});
  return backend == at::native::ConvBackend::Cudnn;
}
bool asks_for_one_order() {
  const at::Context& settings = at::globalContext();
  return settings.deterministicCuDNN() || settings.deterministicAlgorithms();
}
/// relu(conv + bias + added), whoever computes it. ATen does not hand on to cuDNN that sums are to be added
/// up in one order.
Tensors conv_relu(const Node& n, const Tensors& in) {
  const std::vector<int64_t> stride = n.ints("stride"), padding = n.ints("padding"),
                             dilation = n.ints("dilation");
  const int64_t groups = n.attr<int64_t>("groups");
  const bool adds = in.size() > 3;
  if (asks_for_one_order() || !is_by_cudnn(n, in)) {
    at::Tensor sum = at::convolution(in[0], in[1], in[2], stride, padding, dilation, false,
                                     n.ints("output_padding"), groups);
    if (adds) sum.add_(in[3]);
    return {sum.relu_()};
  }
  if (!adds) return {at::cudnn_convolution_relu(in[0], in[1], in[2], stride, padding, dilation, groups)};
  return {at::cudnn_convolution_add_relu(in[0], in[1], in[3], 1, in[2], stride, padding, dilation, groups)};
}
Tensors conv(const Node& n, const Tensors& in) {
  if (n.has_attr("activation")) return conv_relu(n, in);
  const bool adds = in.size() > 3;
  at::Tensor x = in[0];
  std::vector<int64_t> padding = n.ints("padding");
  if (n.has_attr("padding_end")) {
    std::vector<int64_t> end = n.ints("padding_end"), both;  // of the last dimension first
    for (size_t d = padding.size(); d-- > 0;) both.insert(both.end(), {padding[d], end[d]});
    x = at::constant_pad_nd(x, both, 0);
    padding.assign(padding.size(), 0);
  }
  at::Tensor sum =
      at::convolution(x, in[1], bias(in), n.ints("stride"), padding, n.ints("dilation"),
                      n.attr<bool>("transposed"), n.ints("output_padding"), n.attr<int64_t>("groups"));
  return {adds ? sum.add_(in[3]) : sum};
}
/// By cuDNN, where ATen would take that.
bool conv_into(const Node& n, const Tensors& in, const at::Tensor& given) {
  at::Tensor out = given;
  if (in.size() > 2 || n.has_attr("padding_end") || n.attr<bool>("transposed")) return false;
  if (!is_by_cudnn(n, in)) return false;
  const at::Context& settings = at::globalContext();
  const at::AutoDispatchBelowADInplaceOrView is_no_write_of_the_callers;
  at::cudnn_convolution_out(out, in[0], in[1], n.ints("padding"), n.ints("stride"), n.ints("dilation"),
                            n.attr<int64_t>("groups"), settings.benchmarkCuDNN(), asks_for_one_order(),
                            settings.allowTF32CuDNN(at::Float32Op::CONV));
  return true;
}
Tensors sdpa(const Node& n, const Tensors& in) { return {attention(n, in)}; }
Tensors softmax(const Node& n, const Tensors& in) { return {at::softmax(in[0], n.attr<int64_t>("dim"))}; }
Tensors log_softmax(const Node& n, const Tensors& in) {
  return {at::log_softmax(in[0], n.attr<int64_t>("dim"))};
}
Tensors layer_norm(const Node& n, const Tensors& in) {
  auto [w, b] = affine(n, in, 1);
  return {at::layer_norm(in[0], normalized_shape(n, in[0]), w, b, n.attr<double>("eps"))};
}
Tensors rms_norm(const Node& n, const Tensors& in) {
  return {at::rms_norm(in[0], normalized_shape(n, in[0]), in.size() > 1 ? optional(in[1]) : std::nullopt,
                       n.attr<double>("eps"))};
}
Tensors group_norm(const Node& n, const Tensors& in) {
  auto [w, b] = affine(n, in, 1);
  return {at::group_norm(in[0], n.attr<int64_t>("groups"), w, b, n.attr<double>("eps"))};
}
Tensors batch_norm(const Node& n, const Tensors& in) {
  auto [w, b] = affine(n, in, 3);
  return {at::batch_norm(in[0], w, b, in[1], in[2], false, 0.0, n.attr<double>("eps"), false)};
}
Tensors mean(const Node& n, const Tensors& in) {
  return {at::mean(in[0], n.ints("dims"), n.attr<bool>("keepdim"))};
}
Tensors logsumexp(const Node& n, const Tensors& in) {
  return {at::logsumexp(in[0], n.ints("dims"), n.attr<bool>("keepdim"))};
}
Tensors var(const Node& n, const Tensors& in) {
  return {at::var(in[0], n.ints("dims"), optional<at::Scalar>(n.attr<double>("correction")),
                  n.attr<bool>("keepdim"))};
}
Tensors max_pool(const Node& n, const Tensors& in) {
  auto k = n.ints("kernel"), s = n.ints("stride"), p = n.ints("padding"), d = n.ints("dilation");
  bool ceil = n.attr<bool>("ceil");
  if (k.size() == 1) return {at::max_pool1d(in[0], k, s, p, d, ceil)};
  if (k.size() == 2) return {at::max_pool2d(in[0], k, s, p, d, ceil)};
  return {at::max_pool3d(in[0], k, s, p, d, ceil)};
}
Tensors avg_pool(const Node& n, const Tensors& in) {
  auto k = n.ints("kernel"), s = n.ints("stride"), p = n.ints("padding");
  bool ceil = n.attr<bool>("ceil"), pad = n.attr<bool>("count_include_pad");
  if (k.size() == 1) return {at::avg_pool1d(in[0], k, s, p, ceil, pad)};
  if (k.size() == 2) return {at::avg_pool2d(in[0], k, s, p, ceil, pad)};
  return {at::avg_pool3d(in[0], k, s, p, ceil, pad)};
}
Tensors adaptive_avg_pool(const Node& n, const Tensors& in) {
  auto sizes = n.ints("sizes");
  if (sizes.size() == 1) return {at::adaptive_avg_pool1d(in[0], sizes)};
  if (sizes.size() == 2) return {at::_adaptive_avg_pool2d(in[0], sizes)};
  return {at::adaptive_avg_pool3d(in[0], sizes)};
}
Tensors embedding(const Node&, const Tensors& in) { return {at::embedding(in[0], in[1])}; }
Tensors transfer(const Node& n, const Tensors& in) {
  return {in[0].to(device::to_torch(graph::parse_device(n.attr<std::string>("device"))))};
}
Tensors cat(const Node& n, const Tensors& in) { return {at::cat(in, n.attr<int64_t>("dim"))}; }
Tensors gather(const Node& n, const Tensors& in) {
  return {at::gather(in[0], n.attr<int64_t>("dim"), in[1])};
}
Tensors index_select(const Node& n, const Tensors& in) {
  return {at::index_select(in[0], n.attr<int64_t>("dim"), in[1])};
}
Tensors as_strided(const Node& n, const Tensors& in) {
  at::Tensor x = in[0].contiguous();
  return {at::as_strided(x, n.ints("sizes"), n.ints("strides"), x.storage_offset() + n.ints("offset")[0])
              .clone()};
}

constexpr LibraryRow kTable[] = {
    {Op::linear, linear},
    {Op::linears, linears},
    {Op::joined, join},
    {Op::linear_of_parts, linear_of_parts},
    {Op::matmul, matmul},
    {Op::conv, conv, conv_into},
    {Op::sdpa, sdpa},
    {Op::softmax, softmax},
    {Op::log_softmax, log_softmax},
    {Op::layer_norm, layer_norm},
    {Op::rms_norm, rms_norm},
    {Op::group_norm, group_norm},
    {Op::batch_norm, batch_norm},
    {Op::mean, mean},
    {Op::logsumexp, logsumexp},
    {Op::var, var},
    {Op::max_pool, max_pool},
    {Op::avg_pool, avg_pool},
    {Op::adaptive_avg_pool, adaptive_avg_pool},
    {Op::embedding, embedding},
    {Op::transfer, transfer},
    {Op::cat, cat},
    {Op::gather, gather},
    {Op::index_select, index_select},
    {Op::as_strided, as_strided},
};

/// `t`, or a copy of it, with its dimensions in this order of memory.
at::Tensor in_order(const at::Tensor& t, const std::vector<int>& order, bool copy) {
  std::vector<int64_t> strides(order.size());
  int64_t run = 1;
  bool same = true;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t size = t.size(order[i]);
    strides[order[i]] = run;
    same = same && (size == 1 || t.stride(order[i]) == run);
    run *= std::max<int64_t>(size, 1);
  }
  return same && !copy ? t : at::empty_strided(t.sizes(), strides, t.options()).copy_(t);
}

/// `number` is the next value of a symbol.
c10::IValue argument(const lower::ExternCall& call, const record::Arg& arg, const Tensors& operands,
                     bool copy, const int64_t*& number, record::CallGenerators& generators) {
  auto operand = [&](int i) {
    const auto at = static_cast<size_t>(i);
    if (at < call.orders.size() && !call.orders[at].empty())
      return in_order(operands[at], call.orders[at], copy);
    return copy ? operands[at].clone() : operands[at];
  };
  return record::value_of(arg, operand, [&](const record::Arg& a) -> c10::IValue {
    if (!a.tensors.empty()) return record::number_out_of(operands[a.tensors[0]], a);
    if (a.syms.empty()) return generators.given(call.op, a.value);
    return record::number_of(a, [&](Sym) { return *number++; });
  });
}

/// Programs expect dense results of what is a view, with its conjugates in memory; of parts of numbers such
/// as have gaps between them.
void append_tensors(const c10::IValue& v, bool is_view, bool is_part, bool shows, Tensors& out) {
  auto add = [&](const at::Tensor& t) {
    if (!t.defined()) return;
    const bool lies_so = is_part || t.is_non_overlapping_and_dense();
    const bool clone = is_view && !(shows && lies_so && !t.is_conj() && !t.is_neg());
    if (!clone)
      out.push_back(t);
    else if (is_part)
      out.push_back(at::empty_strided(t.sizes(), t.strides(), t.options()).copy_(t));
    else
      out.push_back(t.clone(at::MemoryFormat::Preserve));
  };
  if (v.isTensor())
    add(v.toTensor());
  else if (v.isTensorList())
    for (const at::Tensor& t : v.toTensorVector()) add(t);
}

}  // namespace

const LibraryRow& find_library(const graph::Node& node) {
  for (const LibraryRow& row : kTable)
    if (row.op == node.op) return row;
  throw Error(ErrorKind::Internal, detail::concat("no library function for ", graph::op_info(node.op).name));
}

std::vector<at::Tensor> run_extern(const lower::ExternCall& call, const std::vector<at::Tensor>& operands,
                                   const std::vector<int64_t>& numbers, record::CallGenerators& generators,
                                   bool shows) {
  torch::jit::Stack stack;
  std::vector<c10::IValue> written;
  const int64_t* number = numbers.data();
  for (size_t i = 0; i < call.args.size(); ++i) {
    const record::Arg& arg = call.args[i];
    BOLT_CHECK(numbers.data() + numbers.size() - number >= static_cast<std::ptrdiff_t>(arg.syms.size()),
               "a call of ATen has symbols that nobody gave values");
    bool copy =
        std::find(call.written.begin(), call.written.end(), static_cast<int>(i)) != call.written.end();
    stack.push_back(argument(call, arg, operands, copy, number, generators));
    if (copy) written.push_back(stack.back());
  }
  record::communications() += record::facts_of(call.op).communicates;
  call.op.callBoxed(&stack);
  std::vector<at::Tensor> out;
  for (const c10::IValue& v : stack) append_tensors(v, call.clone_results, call.shows_parts, shows, out);
  for (const c10::IValue& v : written) append_tensors(v, false, false, false, out);
  return out;
}

}  // namespace bolt::run
