// autograd/checkpoint.cpp
#include "autograd/checkpoint.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/library.h>

#include "autograd/function.h"
#include "python/gil.h"
#include "python/py_ref.h"
#include "record/argument.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

void begin(int64_t) {}
void end() {}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("begin_checkpoint(int policy=-1) -> ()");
  m.impl("begin_checkpoint", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(begin));
  m.def("end_checkpoint() -> ()");
  m.impl("end_checkpoint", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(end));
}

/// What a policy may ask of a tensor: anything but its data.
at::Tensor without_memory(const record::Tape& tape, record::TensorId id) {
  const record::TensorInfo& info = tape.tensors[id];
  return at::empty_strided(info.sizes, info.strides, at::TensorOptions(info.dtype).device(at::kMeta));
}

pybind11::tuple as_python(std::span<const record::Arg> args, const record::Tape& tape) {
  pybind11::tuple all(args.size());
  for (size_t i = 0; i < args.size(); ++i)
    all[i] = torch::jit::toPyObject(record::value_of(
        args[i], [&](record::TensorId id) { return without_memory(tape, id); },
        [](const record::Arg& arg) { return arg.value; }));
  return all;
}

}  // namespace

int checkpoint_mark(const record::Entry& entry) {
  if (entry.args.size() > 1 || !entry.results.empty()) return 0;
  const std::string& name = entry.op.operator_name().name;
  return name == "torchbolt::begin_checkpoint" ? 1 : name == "torchbolt::end_checkpoint" ? -1 : 0;
}

int64_t policy_of(const record::Entry& begin) {
  return begin.args.empty() ? -1 : begin.args[0].value.toInt();
}

bool is_to_be_saved(int64_t policy, const record::Entry& entry, const record::Tape& tape) {
  const WithGil gil;
  try {
    const c10::OperatorName& name = entry.op.operator_name();
    const auto asked = pybind11::reinterpret_borrow<pybind11::object>(kept_callable(policy).get());
    return asked(name.name, name.overload_name, as_python(entry.args, tape), as_python(entry.results, tape))
        .cast<bool>();
  } catch (const pybind11::error_already_set& error) {
    throw_unsupported(std::string("the policy of a selective checkpoint raises ") + error.what());
  }
}

}  // namespace bolt::autograd
