// record/data_sizes.cpp
#include "record/data_sizes.h"

#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/index.h>
#include <ATen/ops/lift_fresh.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/unbind.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "device/host/host.h"
#include "record/expectation.h"
#include "record/operator_facts.h"
#include "record/origins.h"
#include "record/recorder.h"
#include "record/size_of_data.h"
#include "record/symint.h"
#include "support/symbols.h"

namespace bolt::record {
namespace {

/// Of a constant it is announced as one, as torch.tensor() announces what it makes of numbers. Those lie on
/// the processor.
at::Tensor matrix_of_places(const at::Tensor& mask, bool constant) {
  if (!constant) return at::nonzero(mask);
  at::Tensor found;
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    found = at::nonzero(mask).to(at::Device(device::kHost)).clone();
  }
  found = at::lift_fresh(found);
  return device::is_on_host(mask) ? found : found.to(mask.device());
}

std::vector<at::Tensor> places(const at::Tensor& mask, bool constant) {
  return matrix_of_places(mask, constant).unbind(1);
}

bool is_mask(const c10::IValue& index) {
  return index.isTensor() && index.toTensor().defined() &&
         (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
}

bool has_mask(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  return std::ranges::any_of(indices.toListRef(), is_mask);
}

/// Takes places for the masks among the indices of x[...]. Where that would raise, the masks stay.
void find_places(const at::Tensor& x, bool constant, c10::IValue& argument) {
  c10::List<std::optional<at::Tensor>> indices;
  int64_t dim = 0;
  for (const c10::IValue& index : argument.toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) {
      indices.push_back(std::nullopt);
      ++dim;
      continue;
    }
    const at::Tensor& t = index.toTensor();
    if (t.scalar_type() == at::kByte) return;
    if (t.scalar_type() != at::kBool) {
      indices.push_back(t);
      ++dim;
      continue;
    }
    for (int64_t d = 0; d < t.dim(); ++d, ++dim)
      if (dim >= x.dim() || t.size(d) != x.size(dim)) return;  // raises
    for (const at::Tensor& each : places(t, constant)) indices.push_back(each);
  }
  argument = indices;
}

/// How often each number below `count` is among these, if all are: undefined, if not.
at::Tensor counted_below(const at::Tensor& places, int64_t count) {
  if (places.dim() != 1 || places.numel() == 0 || !c10::isIntegralType(places.scalar_type(), false))
    return {};
  // Bytes cannot be compared with a count that is none.
  auto all_are = [&](const at::Tensor& found) { return found.ge(0).logical_and(found.lt(count)).all(); };
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    if (!all_are(places.to(at::kLong)).item().toBool()) return {};
  }
  const at::Tensor found = places.to(at::kLong);
  expect(all_are(found), true, "what torch.bincount counts is below minlength");
  return at::zeros({count}, found.options()).index_add(0, found, at::ones_like(found));
}

}  // namespace

bool selects_by_mask(const OperatorFacts& facts, const torch::jit::Stack& stack) {
  return facts.selects && has_mask(stack[first_argument(facts, stack) + 1]);
}

bool types_rest_on_data(const c10::OperatorHandle& op, const OperatorFacts& facts,
                        const torch::jit::Stack& stack) {
  return op.operator_name().name == "aten::bincount" && !stack[first_argument(facts, stack) + 1].isNone();
}

bool find_by_others(const c10::OperatorHandle& op, const OperatorFacts& facts, bool constant,
                    torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  const size_t begin = first_argument(facts, *stack);
  auto give = [&](c10::IValue result) {
    stack->resize(begin);
    stack->push_back(std::move(result));
    return true;
  };
  const at::Tensor first = (*stack)[begin].toTensor();
  if (name == "aten::where" || name == "aten::nonzero_numpy") return give(places(first, constant));
  if (name == "aten::nonzero" && constant) return give(matrix_of_places(first, constant));
  if (name == "aten::argwhere") return give(at::nonzero(first));
  if (const c10::IValue& least = stack->back();
      name == "aten::bincount" && least.isInt() && least.toInt() > 0) {
    const at::Tensor counted = counted_below(first, least.toInt());
    return counted.defined() && give(counted);
  }
  if (op.operator_name().overload_name == "self_Tensor") {  // repeat_interleave
    const auto given = (*stack)[begin + 2].toOptional<int64_t>();
    const int64_t dim = given.value_or(0);
    const at::Tensor rows = given ? first : first.flatten();
    at::Tensor repeats = (*stack)[begin + 1].toTensor();
    if (repeats.numel() == 1) repeats = repeats.expand({rows.size(dim)});
    return give(rows.index_select(dim, at::repeat_interleave(repeats, std::nullopt)));
  }
  if (name == "aten::masked_select") {
    const at::Tensor mask = (*stack)[begin + 1].toTensor();
    if (mask.scalar_type() != at::kBool) return false;
    const std::vector<at::Tensor> same = at::broadcast_tensors({mask, first});
    c10::List<std::optional<at::Tensor>> indices;
    for (const at::Tensor& each : places(same[0], constant)) indices.push_back(each);
    return give(at::index(same[1], indices));
  }
  if (name == "aten::index") find_places(first, constant, (*stack)[begin + 1]);
  return false;
}

/// Where data turn out to be others than a program takes them for, the call is begun anew, by eager.
bool Recorder::may_rest_on_data() const {
  if (!goes_on_with_data_sizes || transformed_ || !obstacle().empty()) return false;
  return std::ranges::none_of(tape_.entries, [](const Entry& e) { return e.facts->communicates; });
}

/// Operators on other kinds of tensors than a program computes on run as they are. A size that a device
/// computes would have to be waited for.
bool Recorder::can_find_sizes(const at::Tensor& t) const {
  return may_rest_on_data() && device::is_on_host(t) && is_plain(t) && t.dim() > 0;
}

/// Here the size does not matter as long as all rows can be computed with in the place of some.
bool Recorder::can_select_rows(const at::Tensor& t) const {
  if (!goes_on_with_selected_rows || !may_rest_on_data()) return false;
  return grad_mode_.value_or(c10::GradMode::is_enabled()) && is_plain(t) && t.dim() > 0 && t.is_cuda();
}

/// A mask of numbers in the code (`~torch.eye(n, dtype=torch.bool)`) selects the same in each call.
bool Recorder::are_masks_constant(const OperatorFacts& facts, const torch::jit::Stack& stack) const {
  constexpr int64_t kMost = int64_t{1} << 20;  // the places are kept, and take eight bytes each
  const bool is_index = facts.selects && selects_by_mask(facts, stack);
  if (!(is_index || facts.finds_places) || !has_row || transformed_ || !obstacle().empty()) return false;
  const size_t begin = first_argument(facts, stack);
  auto is_constant_mask = [&](const c10::IValue& value) {
    const at::Tensor mask = value.toTensor();
    const auto id = mask.numel() <= kMost ? tensors_.find(mask) : std::nullopt;
    return id && is_constant(*id);
  };
  if (!is_index) return is_constant_mask(stack[begin + (facts.arguments == 2 ? 1 : 0)]);
  return std::ranges::all_of(stack[begin + 1].toListRef(), [&](const c10::IValue& index) {
    return !is_mask(index) || is_constant_mask(index);
  });
}

bool Recorder::can_find_sizes(const OperatorFacts& facts, const torch::jit::Stack& stack) const {
  const bool selects = facts.selects || facts.finds_places;
  auto fits = [&](const c10::IValue& value) {
    return !value.isTensor() || !value.toTensor().defined() || can_find_sizes(value.toTensor()) ||
           (selects && can_select_rows(value.toTensor()));
  };
  for (size_t i = first_argument(facts, stack); i < stack.size(); ++i) {
    if (!fits(stack[i])) return false;
    if (stack[i].isList())
      for (const c10::IValue& each : stack[i].toListRef())
        if (!fits(each)) return false;
  }
  return true;
}

/// Which sizes of the results are data, or may rest on such sizes.
void Recorder::note_data_sizes(const Entry& entry) {
  const OperatorFacts& facts = *entry.facts;
  auto is_data_sized = [&](TensorId id) {
    return id >= 0 && tape_.tensors[static_cast<size_t>(id)].data_sized;
  };
  bool rests_on_data = facts.finds_sizes;
  for (const Arg& arg : entry.args) {
    if (rests_on_data || (facts.keeps_sizes && &arg != &entry.args[0])) break;
    rests_on_data = std::any_of(arg.tensors.begin(), arg.tensors.end(), is_data_sized);
    for (Sym sym : arg.syms) {
      Syms inside;
      collect_symbols(sym, &inside);
      for (Sym s : inside) rests_on_data |= is_data_sized(tensor_of_size(*s.node()));
    }
  }
  if (!rests_on_data) return;
  const int index = static_cast<int>(tape_.entries.size());
  bool first = true;
  for_each_tensor(entry.results, [&](TensorId id) {
    TensorInfo& info = tape_.tensors[static_cast<size_t>(id)];
    if (info.producer != index || info.sizes.empty()) return;
    info.data_sized = true;
    // 0 and 1 are sizes of their own: such a run says nothing of larger ones.
    if (facts.finds_sizes && info.sizes[0] < 2 && (first || info.sizes[0] == 1)) escape(entry.op, "");
    if (facts.finds_sizes && (std::exchange(first, false) || facts.finds_several)) info.data_dims = 1;
  });
  has_data_sizes_ = follows_sizes = true;
}

std::optional<Sym> Recorder::size_from(const at::Tensor& numbers, int64_t element) {
  const std::optional<TensorId> id = find(numbers);
  if (!id || stopped_ || paused_ || escaped()) return std::nullopt;
  for (const SizeOfData& known : sizes_of_data_)
    if (known.numbers == *id && known.element == element &&
        tape_.tensors[static_cast<size_t>(known.rows)].producer >= 0)
      return number_of_rows(tape_symbol(known.rows, 0));
  const at::Tensor all = numbers.dim() ? numbers : numbers.reshape({1});
  if (!can_find_sizes(all) || !c10::isIntegralType(all.scalar_type(), false)) return std::nullopt;
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    if (!is_size_of_data(element_of(all, element).toLong())) return std::nullopt;
  }
  const std::optional<TensorId> rows = find(size_of_data(all, element));
  if (!rows) return std::nullopt;
  sizes_of_data_.push_back({*id, element, *rows});
  return number_of_rows(tape_symbol(*rows, 0));
}

bool Recorder::expect(const at::Tensor& condition, bool value, const std::string& where) {
  if (stopped_ || paused_ || escaped() || condition.numel() != 1) return false;
  if (!may_rest_on_data()) return false;
  // On a device the program waits for the answer, as eager does. That is worth it where a step would be two.
  const bool in_step = std::ranges::any_of(tape_.entries, [](const Entry& entry) {
    return entry.op.operator_name().name == "torchbolt::gradients";
  });
  if (!device::is_on_host(condition) && !(condition.is_cuda() && in_step)) return false;
  if (!is_plain(condition)) return false;
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    if (condition.item().toBool() != value) return false;
  }
  const at::Tensor plain = condition.requires_grad() ? condition.detach() : condition;
  record::expect(plain, value, where);
  return true;
}

/// (solution, residuals, rank, singular values), which least squares have given. Two of the library's ways
/// give residuals where there are more equations than unknowns and the rank is full, as it nearly always is:
/// later calls check it. The others do not look.
void Recorder::expect_full_rank(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (stopped_ || paused_ || escaped()) return;
  const size_t first = stack.size() - 4;
  const at::Tensor residuals = stack[first + 1].toTensor(), rank = stack[first + 2].toTensor();
  const Entry& entry = tape_.entries.back();
  const Dims& sizes = tape_.tensors[static_cast<size_t>(entry.args[0].tensors[0])].sizes;
  const int64_t unknowns = sizes.back();
  const c10::IValue& driver = entry.args[3].value;
  const bool looks =
      driver.isString() && (driver.toStringRef() == "gelss" || driver.toStringRef() == "gelsd");
  if (!looks || sizes[sizes.size() - 2] <= unknowns) return;
  const bool full = residuals.numel() > 0 &&
                    expect(rank.eq(unknowns).all(), true, "what torch.linalg.lstsq solves has full rank");
  if (!full) escape(op, "");
}

/// Is it made of numbers in the code alone (`ends[0] - begins[-1]` of what arange gave)? Then it holds the
/// same in each call.
bool Recorder::is_constant(TensorId id) const {
  const auto origins = origins_of(tape_, id);
  return origins && std::ranges::all_of(*origins, [&](TensorId origin) {
           return constants_.contains(tape_.tensors[static_cast<size_t>(origin)].input);
         });
}

/// True: `op` is item(), and what it gives stands for the tensor.
bool Recorder::lend_item(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) {
  if (!lends_items || op.operator_name().name != "aten::item") return false;
  const at::Tensor t = stack->back().toTensor();
  const bool is_float = c10::isFloatingType(t.scalar_type());
  if (t.numel() != 1 || t.requires_grad() || !(is_float || c10::isIntegralType(t.scalar_type(), false)))
    return false;
  const TensorId id = input_id(t);
  if (is_constant(id)) return call(op, facts, keys, stack), true;
  news_ = true;
  const Sym symbol = data_number(data.size());
  data[symbol] = id;
  follows_sizes = true;
  call(op, facts, keys, stack);
  const at::Scalar value = stack->back().toScalar();
  stack->back() = is_float ? c10::IValue(make_symfloat(symbol, value.toDouble(), lent_))
                           : c10::IValue(make_symint(symbol, value.toLong(), lent_));
  return true;
}

}  // namespace bolt::record
