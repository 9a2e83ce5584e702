// record/operator_facts.cpp
#include "record/operator_facts.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "support/pointer_map.h"
#include "support/text.h"

namespace bolt::record {
namespace {

struct FactByNames {
  bool OperatorFacts::* fact;
  /// "name": whatever its overload; "name.": the one without a name; "name.overload".
  std::string_view names;
  bool raises_by_data = false;
};

// Operators whose result a Python program can branch on, or whose output sizes are data: eager waits for the
// data here, and so do we. Those that give a tensor other memory: a tape knows each tensor's storage once and
// for all. And what else is told by name.
constexpr FactByNames kRows[] = {
    {&OperatorFacts::ends_region,
     "aten::resize_ aten::resize_as_ aten::set_ aten::as_strided_ aten::is_nonzero aten::equal "
     "aten::allclose aten::nonzero aten::nonzero_numpy aten::argwhere aten::masked_select aten::_unique "
     "aten::_unique2 aten::unique_dim aten::unique_consecutive aten::unique_dim_consecutive "
     "aten::combinations aten::where. aten::tensor_split.tensor_indices_or_sections"},
    {&OperatorFacts::recurrent, "aten::lstm aten::gru aten::rnn_tanh aten::rnn_relu"},
    {&OperatorFacts::ends_region,
     "aten::_local_scalar_dense aten::item aten::bincount aten::repeat_interleave.Tensor "
     "aten::repeat_interleave.Tensor_out aten::repeat_interleave.self_Tensor aten::linalg_lstsq.out "
     "aten::_pack_padded_sequence",
     true},
    {&OperatorFacts::is_sized_by_numbers, "aten::arange aten::range"},
    {&OperatorFacts::finds_rank, "aten::linalg_lstsq.", true},
    {&OperatorFacts::finds_sizes,
     "aten::nonzero. aten::nonzero_numpy. aten::argwhere. aten::where. aten::masked_select. "
     "aten::_unique2. aten::unique_consecutive. aten::bincount. aten::repeat_interleave.Tensor "
     "aten::repeat_interleave.self_Tensor aten::_pack_padded_sequence. torchbolt::size_of_data."},
    {&OperatorFacts::finds_several, "aten::_pack_padded_sequence."},
    {&OperatorFacts::finds_places, "aten::nonzero. aten::nonzero_numpy. aten::where. aten::masked_select."},
    {&OperatorFacts::keeps_sizes,
     "aten::index_add aten::index_copy aten::index_fill aten::index_put aten::scatter aten::scatter_add "
     "aten::scatter_reduce aten::masked_scatter"},
    {&OperatorFacts::selects, "aten::index"},
    {&OperatorFacts::counts_classes, "aten::one_hot", true},
    {&OperatorFacts::places,
     "aten::as_strided aten::as_strided_ aten::as_strided_copy aten::as_strided_scatter"},
    {&OperatorFacts::lifts, "aten::lift_fresh"},
    {&OperatorFacts::draws_in_graphs,
     "aten::bernoulli aten::bernoulli_ aten::dropout aten::dropout_ aten::exponential aten::exponential_ "
     "aten::native_dropout aten::normal aten::normal_ aten::rand aten::rand_like aten::randint "
     "aten::randint_like aten::randn aten::randn_like aten::uniform aten::uniform_ "
     "aten::_scaled_dot_product_cudnn_attention aten::_scaled_dot_product_flash_attention"},
    {&OperatorFacts::holds_rows,
     "aten::_softmax_backward_data aten::_log_softmax_backward_data aten::native_layer_norm_backward "
     "aten::_fused_rms_norm_backward"},
    {&OperatorFacts::uninitialised,
     "aten::empty aten::empty_like aten::empty_strided aten::empty_permuted aten::new_empty "
     "aten::new_empty_strided"},
    {&OperatorFacts::reads_memory, "aten::ctc_loss"},
    {&OperatorFacts::passes_on, "torchbolt::function."},
};

struct FloatsByNames {
  std::string_view arguments, operators;
};
constexpr FloatsByNames kComputedWith[] = {
    {"eps",
     "aten::layer_norm aten::rms_norm aten::group_norm aten::batch_norm aten::instance_norm "
     "aten::native_layer_norm aten::native_group_norm aten::native_batch_norm aten::pairwise_distance "
     "aten::cosine_similarity aten::poisson_nll_loss aten::triplet_margin_loss aten::logit aten::logit_ "
     "aten::special_logit"},
    {"momentum", "aten::batch_norm aten::instance_norm aten::native_batch_norm"},
    {"scale", "aten::scaled_dot_product_attention"},
    {"margin",
     "aten::cosine_embedding_loss aten::hinge_embedding_loss aten::margin_ranking_loss "
     "aten::triplet_margin_loss"},
    {"delta", "aten::huber_loss"},
    {"beta", "aten::smooth_l1_loss"},
    {"label_smoothing", "aten::cross_entropy_loss"},
    {"value", "aten::pad"},
    {"nan posinf neginf", "aten::nan_to_num aten::nan_to_num_"},
    {"q", "aten::quantile aten::nanquantile"},
    {"mean std", "aten::normal aten::normal_ aten::log_normal aten::log_normal_"},
    {"from to", "aten::uniform aten::uniform_"},
    {"lambd", "aten::exponential aten::exponential_"},
    {"p", "aten::bernoulli aten::bernoulli_ aten::geometric aten::geometric_"},
};

constexpr std::string_view kNormalisations[] = {"aten::batch_norm", "aten::instance_norm",
                                                "aten::native_batch_norm", "aten::_batch_norm_impl_index"};
constexpr int kMean = 3, kVariance = 4;  // of each of them

constexpr int kGradient = 0, kResult = 4;  // of attention's backward pass

bool has_word(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = split(words, ' ');
  return std::ranges::find(all, word) != all.end();
}

/// Does an operator that is none of ATen's give Python anything but tensors? Numbers, texts, and whether
/// there is a tensor at all, may be made of data. (ATen's are told by name.)
bool gives_numbers(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !is_atens(op) && std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
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
  const std::string full_name = name + "." + overload;
  auto is_among = [&](std::string_view names) { return has_word(names, name) || has_word(names, full_name); };
  for (const FactByNames& row : kRows) {
    if (!is_among(row.names)) continue;
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
  for (const auto& [floats, operators] : kComputedWith)
    for (size_t a = 0; a < arguments.size() && is_among(operators); ++a)
      if (has_word(floats, arguments[a].name())) facts.only_computes_with.push_back(a);
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
  facts.composite = facts.ordinary && !facts.recurrent && !facts.reads_memory && is_atens(op) &&
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
  const bool lasts = is_atens(op) || op.operator_name().name.starts_with("torchbolt::");
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
