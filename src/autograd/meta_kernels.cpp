// autograd/meta_kernels.cpp
// The operators whose results ATen's own C++ kernels describe, without going through the dispatcher.
//
// A line is an operator of at::_ops and the function of at::meta that describes its result. Where an
// operator's sizes may be symbols in its schema, the function is the one that takes them.
#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>

#include "autograd/results.h"

namespace bolt::autograd {
namespace {

template <class Operator>
void add(MetaKernels& table, typename Operator::schema* kernel) {
  std::string name = Operator::name;
  if (*Operator::overload_name) name += std::string(".") + Operator::overload_name;
  table.emplace(std::move(name), c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel));
}

#define BOLT_SAME(name) add<at::_ops::name>(table, at::meta::name);
#define BOLT_TENSOR(name) add<at::_ops::name##_Tensor>(table, at::meta::name);
#define BOLT_OVERLOAD(overload, name) add<at::_ops::overload>(table, at::meta::name);

void add_pointwise(MetaKernels& table) {
  BOLT_TENSOR(add)
  BOLT_TENSOR(sub)
  BOLT_TENSOR(mul)
  BOLT_TENSOR(div)
  BOLT_OVERLOAD(div_Tensor_mode, div) BOLT_TENSOR(eq) BOLT_TENSOR(ne) BOLT_TENSOR(lt) BOLT_TENSOR(
      le) BOLT_TENSOR(gt) BOLT_TENSOR(ge) BOLT_OVERLOAD(eq_Scalar, eq) BOLT_OVERLOAD(ne_Scalar, ne)
      BOLT_OVERLOAD(lt_Scalar, lt) BOLT_OVERLOAD(le_Scalar, le) BOLT_OVERLOAD(gt_Scalar, gt) BOLT_OVERLOAD(
          ge_Scalar, ge) BOLT_OVERLOAD(pow_Tensor_Scalar, pow) BOLT_OVERLOAD(pow_Tensor_Tensor,
                                                                             pow) BOLT_OVERLOAD(pow_Scalar,
                                                                                                pow)
          BOLT_SAME(maximum) BOLT_SAME(minimum) BOLT_SAME(fmax) BOLT_SAME(fmin) BOLT_SAME(atan2) BOLT_SAME(
              clamp) BOLT_SAME(clamp_min) BOLT_SAME(clamp_max) BOLT_OVERLOAD(clamp_Tensor, clamp)
              BOLT_OVERLOAD(clamp_min_Tensor, clamp_min) BOLT_OVERLOAD(clamp_max_Tensor, clamp_max) BOLT_SAME(
                  exp) BOLT_SAME(exp2) BOLT_SAME(expm1) BOLT_SAME(log) BOLT_SAME(log2) BOLT_SAME(log10)
                  BOLT_SAME(log1p) BOLT_SAME(sqrt) BOLT_SAME(rsqrt) BOLT_SAME(reciprocal) BOLT_SAME(
                      neg) BOLT_SAME(sgn) BOLT_SAME(sign) BOLT_SAME(sin) BOLT_SAME(cos) BOLT_SAME(tan)
                      BOLT_SAME(sinh) BOLT_SAME(cosh) BOLT_SAME(tanh) BOLT_SAME(asin) BOLT_SAME(
                          acos) BOLT_SAME(atan) BOLT_SAME(asinh) BOLT_SAME(acosh) BOLT_SAME(atanh)
                          BOLT_SAME(erf) BOLT_SAME(erfc) BOLT_SAME(erfinv) BOLT_SAME(sigmoid) BOLT_SAME(
                              lgamma) BOLT_SAME(digamma) BOLT_SAME(polygamma) BOLT_SAME(floor) BOLT_SAME(ceil)
                              BOLT_SAME(round) BOLT_SAME(trunc) BOLT_SAME(frac) BOLT_SAME(sinc) BOLT_SAME(
                                  bitwise_not) BOLT_SAME(gelu) BOLT_SAME(silu) BOLT_SAME(mish) BOLT_SAME(elu)
                                  BOLT_SAME(leaky_relu) BOLT_SAME(softplus) BOLT_SAME(
                                      softshrink) BOLT_SAME(hardsigmoid) BOLT_SAME(threshold)
                                      BOLT_SAME(gelu_backward) BOLT_SAME(silu_backward) BOLT_SAME(
                                          elu_backward) BOLT_SAME(leaky_relu_backward)
                                          BOLT_SAME(softplus_backward) BOLT_SAME(softshrink_backward)
                                              BOLT_SAME(hardshrink_backward) BOLT_SAME(
                                                  hardsigmoid_backward) BOLT_SAME(threshold_backward)
                                                  BOLT_SAME(tanh_backward) BOLT_SAME(
                                                      sigmoid_backward) BOLT_SAME(logit_backward)
                                                      BOLT_SAME(addcmul) BOLT_SAME(addcdiv) BOLT_OVERLOAD(
                                                          lerp_Tensor, lerp) BOLT_OVERLOAD(lerp_Scalar, lerp)
                                                          BOLT_OVERLOAD(bitwise_and_Tensor, bitwise_and)
                                                              BOLT_OVERLOAD(bitwise_or_Tensor, bitwise_or)
                                                                  BOLT_OVERLOAD(bitwise_xor_Tensor,
                                                                                bitwise_xor)
                                                                      BOLT_OVERLOAD(remainder_Tensor,
                                                                                    remainder)
                                                                          BOLT_OVERLOAD(fmod_Tensor, fmod)
                                                                              BOLT_OVERLOAD(xlogy_Tensor,
                                                                                            xlogy)
                                                                                  BOLT_SAME(logaddexp)
                                                                                      BOLT_SAME(logaddexp2)
}

void add_products_and_reductions(MetaKernels& table) {
  BOLT_SAME(mm)
  BOLT_SAME(bmm)
  BOLT_SAME(addmm)
  BOLT_SAME(addmv)
  BOLT_SAME(baddbmm) BOLT_OVERLOAD(sum_dim_IntList, sum) BOLT_OVERLOAD(mean_dim, mean)
      BOLT_OVERLOAD(prod_dim_int, prod) BOLT_OVERLOAD(max_dim, max) BOLT_OVERLOAD(min_dim, min)
          BOLT_SAME(amax) BOLT_SAME(amin) BOLT_SAME(argmax) BOLT_SAME(argmin) BOLT_OVERLOAD(any_dim, any)
              BOLT_OVERLOAD(all_dim, all) BOLT_OVERLOAD(norm_ScalarOpt_dim, norm)
                  BOLT_SAME(linalg_vector_norm) BOLT_SAME(cumsum) BOLT_SAME(cumprod)
                      BOLT_OVERLOAD(sort_stable, sort) BOLT_SAME(_softmax) BOLT_SAME(_log_softmax)
                          BOLT_SAME(_softmax_backward_data) BOLT_SAME(_log_softmax_backward_data)
                              BOLT_SAME(mse_loss) BOLT_SAME(smooth_l1_loss)
                                  BOLT_OVERLOAD(nll_loss_forward, nll_loss_forward_symint)
                                      BOLT_OVERLOAD(nll_loss_backward, nll_loss_backward_symint)
}

void add_indexing(MetaKernels& table) {
  BOLT_SAME(gather)
  BOLT_OVERLOAD(scatter_src, scatter)
  BOLT_OVERLOAD(scatter_value, scatter)
  BOLT_SAME(scatter_add)
  BOLT_OVERLOAD(scatter_reduce_two, scatter_reduce) BOLT_SAME(index_add) BOLT_SAME(index_copy)
      BOLT_OVERLOAD(index_Tensor, index) BOLT_SAME(cat) BOLT_OVERLOAD(tril, tril_symint)
          BOLT_OVERLOAD(triu, triu_symint) BOLT_SAME(renorm) BOLT_OVERLOAD(topk, topk_symint)
}

void add_images(MetaKernels& table) {
  BOLT_SAME(max_pool2d_with_indices)
  BOLT_SAME(max_pool2d_with_indices_backward)
  BOLT_SAME(avg_pool2d)
  BOLT_SAME(avg_pool2d_backward)
  BOLT_SAME(avg_pool3d) BOLT_SAME(avg_pool3d_backward) BOLT_SAME(adaptive_max_pool2d)
      BOLT_SAME(adaptive_max_pool2d_backward) BOLT_SAME(glu)
          BOLT_OVERLOAD(upsample_nearest2d, upsample_nearest2d_symint)
              BOLT_OVERLOAD(upsample_nearest2d_backward, upsample_nearest2d_backward_symint)
                  BOLT_OVERLOAD(upsample_bilinear2d, upsample_bilinear2d_symint)
                      BOLT_OVERLOAD(upsample_bilinear2d_backward, upsample_bilinear2d_backward_symint)
                          BOLT_OVERLOAD(upsample_bicubic2d, upsample_bicubic2d_symint)
                              BOLT_OVERLOAD(upsample_bicubic2d_backward, upsample_bicubic2d_backward_symint)
                                  BOLT_OVERLOAD(reflection_pad1d, reflection_pad1d_symint) BOLT_OVERLOAD(
                                      reflection_pad1d_backward, reflection_pad1d_backward_symint)
}

}  // namespace

const MetaKernels& meta_kernels() {
  static const MetaKernels* const all = [] {
    auto* table = new MetaKernels();
    add_pointwise(*table);
    add_products_and_reductions(*table);
    add_indexing(*table);
    add_images(*table);
    return table;
  }();
  return *all;
}

}  // namespace bolt::autograd
