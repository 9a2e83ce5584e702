// record/operator_facts.cpp
#include "record/operator_facts.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "support/pointer_map.h"

namespace bolt::record {
namespace {

constexpr const char* kAny = nullptr;

struct FactByName {
  std::string_view name;
  const char* overload;
  bool OperatorFacts::* fact;
  bool raises_by_data = false;
};

// Operators whose result a Python program can branch on, or whose output sizes are data: eager waits for the
// data here, and so do we. Those that give a tensor other memory: a tape knows each tensor's storage once and
// for all. And what else is told by name.
constexpr FactByName kRows[] = {
    {"aten::resize_", kAny, &OperatorFacts::ends_region},
    {"aten::resize_as_", kAny, &OperatorFacts::ends_region},
    {"aten::lstm", kAny, &OperatorFacts::recurrent},
    {"aten::gru", kAny, &OperatorFacts::recurrent},
    {"aten::rnn_tanh", kAny, &OperatorFacts::recurrent},
    {"aten::rnn_relu", kAny, &OperatorFacts::recurrent},
    {"aten::set_", kAny, &OperatorFacts::ends_region},
    {"aten::as_strided_", kAny, &OperatorFacts::ends_region},
    {"aten::_local_scalar_dense", kAny, &OperatorFacts::ends_region, true},
    {"aten::item", kAny, &OperatorFacts::ends_region, true},
    {"aten::is_nonzero", kAny, &OperatorFacts::ends_region},
    {"aten::equal", kAny, &OperatorFacts::ends_region},
    {"aten::allclose", kAny, &OperatorFacts::ends_region},
    {"aten::nonzero", kAny, &OperatorFacts::ends_region},
    {"aten::nonzero_numpy", kAny, &OperatorFacts::ends_region},
    {"aten::argwhere", kAny, &OperatorFacts::ends_region},
    {"aten::masked_select", kAny, &OperatorFacts::ends_region},
    {"aten::_unique", kAny, &OperatorFacts::ends_region},
    {"aten::_unique2", kAny, &OperatorFacts::ends_region},
    {"aten::unique_dim", kAny, &OperatorFacts::ends_region},
    {"aten::unique_consecutive", kAny, &OperatorFacts::ends_region},
    {"aten::unique_dim_consecutive", kAny, &OperatorFacts::ends_region},
    {"aten::bincount", kAny, &OperatorFacts::ends_region, true},
    {"aten::repeat_interleave", "Tensor", &OperatorFacts::ends_region, true},
    {"aten::repeat_interleave", "Tensor_out", &OperatorFacts::ends_region, true},
    {"aten::repeat_interleave", "self_Tensor", &OperatorFacts::ends_region, true},
    {"aten::combinations", kAny, &OperatorFacts::ends_region},
    {"aten::linalg_lstsq", "", &OperatorFacts::finds_rank, true},
    {"aten::linalg_lstsq", "out", &OperatorFacts::ends_region, true},
    {"aten::where", "", &OperatorFacts::ends_region},
    {"aten::tensor_split", "tensor_indices_or_sections", &OperatorFacts::ends_region},
    {"aten::nonzero", "", &OperatorFacts::finds_sizes},
    {"aten::nonzero_numpy", "", &OperatorFacts::finds_sizes},
    {"aten::argwhere", "", &OperatorFacts::finds_sizes},
    {"aten::where", "", &OperatorFacts::finds_sizes},
    {"aten::masked_select", "", &OperatorFacts::finds_sizes},
    {"aten::nonzero", "", &OperatorFacts::finds_places},
    {"aten::nonzero_numpy", "", &OperatorFacts::finds_places},
    {"aten::where", "", &OperatorFacts::finds_places},
    {"aten::masked_select", "", &OperatorFacts::finds_places},
    {"aten::_unique2", "", &OperatorFacts::finds_sizes},
    {"aten::unique_consecutive", "", &OperatorFacts::finds_sizes},
    {"aten::bincount", "", &OperatorFacts::finds_sizes},
    {"torchbolt::size_of_data", "", &OperatorFacts::finds_sizes},
    {"aten::index_add", kAny, &OperatorFacts::keeps_sizes},
    {"aten::index_copy", kAny, &OperatorFacts::keeps_sizes},
    {"aten::index_fill", kAny, &OperatorFacts::keeps_sizes},
    {"aten::index_put", kAny, &OperatorFacts::keeps_sizes},
    {"aten::scatter", kAny, &OperatorFacts::keeps_sizes},
    {"aten::scatter_add", kAny, &OperatorFacts::keeps_sizes},
    {"aten::scatter_reduce", kAny, &OperatorFacts::keeps_sizes},
    {"aten::masked_scatter", kAny, &OperatorFacts::keeps_sizes},
    {"aten::index", kAny, &OperatorFacts::selects},
    {"aten::one_hot", kAny, &OperatorFacts::counts_classes, true},
    {"aten::as_strided", kAny, &OperatorFacts::places},
    {"aten::as_strided_", kAny, &OperatorFacts::places},
    {"aten::as_strided_copy", kAny, &OperatorFacts::places},
    {"aten::as_strided_scatter", kAny, &OperatorFacts::places},
    {"aten::lift_fresh", kAny, &OperatorFacts::lifts},
    {"aten::bernoulli", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::bernoulli_", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::dropout", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::dropout_", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::exponential", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::exponential_", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::native_dropout", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::normal", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::normal_", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::rand", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::rand_like", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::randint", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::randint_like", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::randn", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::randn_like", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::uniform", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::uniform_", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::_scaled_dot_product_cudnn_attention", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::_scaled_dot_product_flash_attention", kAny, &OperatorFacts::draws_in_graphs},
    {"aten::_softmax_backward_data", kAny, &OperatorFacts::holds_rows},
    {"aten::_log_softmax_backward_data", kAny, &OperatorFacts::holds_rows},
    {"aten::native_layer_norm_backward", kAny, &OperatorFacts::holds_rows},
    {"aten::_fused_rms_norm_backward", kAny, &OperatorFacts::holds_rows},
    {"aten::empty", kAny, &OperatorFacts::uninitialised},
    {"aten::empty_like", kAny, &OperatorFacts::uninitialised},
    {"aten::empty_strided", kAny, &OperatorFacts::uninitialised},
    {"aten::empty_permuted", kAny, &OperatorFacts::uninitialised},
    {"aten::new_empty", kAny, &OperatorFacts::uninitialised},
    {"aten::new_empty_strided", kAny, &OperatorFacts::uninitialised},
    {"aten::ctc_loss", kAny, &OperatorFacts::reads_memory},
    {"torchbolt::function", "", &OperatorFacts::passes_on},
};

constexpr std::string_view kNormalisations[] = {"aten::batch_norm", "aten::instance_norm",
                                                "aten::native_batch_norm", "aten::_batch_norm_impl_index"};
constexpr int kMean = 3, kVariance = 4;  // of each of them

constexpr int kGradient = 0, kResult = 4;  // of attention's backward pass

/// Does an operator that is none of ATen's give Python anything but tensors? Numbers, texts, and whether
/// there is a tensor at all, may be made of data. (ATen's are told by name.)
bool gives_numbers(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !op.operator_name().name.starts_with("aten::") &&
         std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
           return r.type()->kind() != c10::TypeKind::TensorType &&
                  !r.type()->isSubtypeOf(*c10::ListType::ofTensors());
         });
}

/// Collectives, and what is sent from one process to another.
void look_for_communication(std::string_view name, OperatorFacts& facts) {
  constexpr std::string_view kFunctional = "_c10d_functional::";
  facts.waits = name == "_c10d_functional::wait_tensor";
  if (facts.waits || name == "_c10d_functional::_wrap_tensor_autograd") return;
  facts.is_waited_for = name.starts_with(kFunctional) || name.starts_with("_c10d_functional_autograd::") ||
                        name.starts_with("c10d_functional::");
  facts.communicates = facts.is_waited_for || name.starts_with("_dtensor::") || name.starts_with("c10d::") ||
                       name.starts_with("symm_mem::");
  // What is sent is given to a library that wants it dense, and in one order on all processes.
  for (size_t a = 0; facts.communicates && a < facts.arguments; ++a)
    facts.lie_as_eagers.push_back(static_cast<int>(a));
}

bool is_ordinary(const OperatorFacts& facts) {
  return !(facts.ends_region || facts.finds_sizes || facts.selects || facts.counts_classes || facts.places ||
           facts.lifts || facts.draws || facts.finds_rank || facts.has_out || facts.turns ||
           facts.communicates) &&
         facts.written.empty() && facts.written_in_training.empty() && facts.handed_back.empty();
}

OperatorFacts look_up(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  facts.ends_region = gives_numbers(op);
  const auto& [name, overload] = op.operator_name();
  for (const FactByName& row : kRows) {
    if (row.name != name || (row.overload != kAny && row.overload != overload)) continue;
    facts.*row.fact = true;
    facts.raises_by_data |= row.raises_by_data;
  }
  facts.turns = op.hasTag(at::Tag::inplace_view);
  facts.draws = op.hasTag(at::Tag::nondeterministic_seeded);
  const auto &arguments = op.schema().arguments(), &returns = op.schema().returns();
  facts.arguments = arguments.size(), facts.returns = returns.size();
  facts.has_out = !arguments.empty() && arguments.back().is_out();
  auto is_written = [](const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); };
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (!arguments[a].alias_info()) continue;
    if (is_written(arguments[a])) facts.written.push_back(static_cast<int>(a));
    for (size_t r = 0; r < returns.size(); ++r)
      if (is_written(returns[r]) && *returns[r].alias_info() == *arguments[a].alias_info())
        facts.handed_back.emplace_back(static_cast<int>(r), static_cast<int>(a));
  }
  // cuDNN's plan of a backward pass is looked up by query, key and value alone (ATen's MHAParams).
  if (name == "aten::_scaled_dot_product_cudnn_attention_backward")
    facts.lie_as_eagers = {kGradient, kResult};
  // Two numbers are one only where they lie side by side.
  if (name == "aten::view_as_complex") facts.lie_as_eagers = {0};
  // Their arguments are read as if they were dense, which who calls them has seen to.
  const bool reads_as_dense = name.starts_with("aten::_embedding_bag") || name.starts_with("aten::_pdist_");
  for (size_t a = 0; reads_as_dense && a < facts.arguments; ++a)
    facts.lie_as_eagers.push_back(static_cast<int>(a));
  look_for_communication(name, facts);
  for (std::string_view normalisation : kNormalisations) {
    if (name != normalisation) continue;
    facts.written_in_training = facts.written;
    facts.written_in_training.insert(facts.written_in_training.end(), {kMean, kVariance});
  }
  facts.ordinary = is_ordinary(facts);
  facts.composite = facts.ordinary && !facts.recurrent && !facts.reads_memory && name.starts_with("aten::") &&
                    op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  return facts;
}

}  // namespace

const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  // ATen's own and ours stay what they are. Operators run without the GIL.
  thread_local PointerMap<const OperatorFacts*> of_lasting;
  if (const auto* facts = of_lasting.find(&schema)) return **facts;

  struct FactsOfSchema {
    const OperatorFacts* facts;
    std::optional<c10::FunctionSchema> schema;  ///< of those that may be defined anew at the same address
  };
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const c10::FunctionSchema*, FactsOfSchema>();
  const std::string& name = op.operator_name().name;
  const bool lasts = name.starts_with("aten::") || name.starts_with("torchbolt::");
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = known->try_emplace(&schema);
  FactsOfSchema& here = at->second;
  if (fresh || (here.schema && !(*here.schema == schema))) {
    here.facts = new OperatorFacts(look_up(op));  // tapes point to the one before
    here.schema.reset();
    if (!lasts) here.schema = schema;
  }
  if (lasts) of_lasting[&schema] = here.facts;
  return *here.facts;
}

}  // namespace bolt::record
