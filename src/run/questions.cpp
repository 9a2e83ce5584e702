// run/questions.cpp
#include "run/questions.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sin.h>

#include <algorithm>

#include "device/device.h"
#include "device/measure.h"
#include "record/convert.h"
#include "support/error.h"

namespace bolt::run {

using graph::Type;

constexpr double kTolerance = 0.03;  // of the largest result: both round to the same type on their way

bool is_known(const Type& type) {
  auto known = [](Sym s) { return s.is_const(); };
  return std::ranges::all_of(type.sizes, known) && std::ranges::all_of(type.strides, known);
}

namespace {

at::TensorOptions options_of(const Type& type) {
  return at::TensorOptions().dtype(record::to_torch(type.dtype)).device(device::to_torch(type.device));
}

}  // namespace

at::Tensor described(const Type& type) {
  return at::for_blob(nullptr, to_numbers(type.sizes))
      .strides(to_numbers(type.strides))
      .target_device(device::to_torch(type.device))
      .options(options_of(type))
      .make_tensor();
}

at::Tensor made_up(const Type& type) {
  const std::vector<int64_t> sizes = to_numbers(type.sizes), strides = to_numbers(type.strides);
  std::vector<int64_t> stored = sizes;  // without what is there once and shown many times
  for (size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] == 0) stored[d] = 1;
  at::Tensor out = at::empty_strided(stored, strides, options_of(type));
  at::Tensor values = at::sin(at::arange(out.numel(), out.options().dtype(at::kFloat)));
  if (!is_float(type.dtype)) values = values.gt(0);
  out.copy_(values.view(stored));
  return out.expand(sizes);
}

void check_alike(const at::Tensor& usual, const at::Tensor& other) {
  const at::Tensor a = usual.to(at::kDouble), b = other.to(at::kDouble);
  const at::Tensor alike =
      a.sub(b).abs().le(a.abs().max().mul(kTolerance)).logical_or(a.isnan().logical_and(b.isnan()));
  BOLT_CHECK(a.eq(b).logical_or(alike).all().item<bool>(), "its result is another one");
}

cache::Choice choose(const std::string& question, graph::Device on, const std::vector<cache::Way>& ways,
                     cache::Allowance& allowance) {
  const c10::Device device = device::to_torch(on);
  const std::string where = device::find(on.kind)->fingerprint(device);
  cache::Allowance nothing(0);
  return cache::Choices::global().choose(question + "\n" + where, ways,
                                         device::may_measure(device) ? allowance : nothing);
}

std::string in_words(const std::string& question, const cache::Choice& choice) {
  return question + ": " + choice.name + " (" + choice.times + ")";
}

}  // namespace bolt::run
