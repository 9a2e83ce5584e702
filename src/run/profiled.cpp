// run/profiled.cpp
#include "run/profiled.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "record/convert.h"

namespace bolt::run {
namespace {

/// Profilers look at sizes, strides and types alone; tensors over the memory itself would be held by them.
std::vector<c10::IValue> inputs_of(const PreparedStep& p, const Prepared& program, const Shapes& shapes) {
  std::vector<c10::IValue> out;
  for (int i = 0; i < p.step->operand_count; ++i) {
    const auto b = static_cast<size_t>(p.step->buffers[i]);
    const Shapes::OfBuffer& shape = shapes.buffers[b];
    const c10::ScalarType dtype = record::to_torch(program.plan.buffers[b].type.dtype);
    out.emplace_back(at::Tensor(at::detail::empty_strided_meta(shape.sizes, shape.strides, dtype)));
  }
  return out;
}

}  // namespace

void show(at::RecordFunction& shown, const PreparedStep& p, const Prepared& program, const Shapes& shapes) {
  if (!shown.isActive()) return;
  if (!shown.needsInputs()) return shown.before(p.name.c_str());
  const graph::Loc& at = p.step->loc;
  std::unordered_map<std::string, c10::IValue> more;
  if (at.line > 0) {
    more["source"] = std::string(at.file) + ":" + std::to_string(at.line);
    if (!at.function.empty()) more["function"] = std::string(at.function);
  }
  const std::vector<c10::IValue> inputs = inputs_of(p, program, shapes);
  shown.before(p.name.c_str(), at::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()), &more);
}

}  // namespace bolt::run
