// autograd/row_plan.cpp
// A tape on which masks select rows -> what becomes of each of its entries. Only sizes and names are looked
// at: whoever carries the plan out finds nothing that could refuse it.
#include <ATen/core/Reduction.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "autograd/row_work.h"
#include "autograd/selected_rows.h"
#include "autograd/work.h"
#include "record/operator_facts.h"
#include "record/selected_sizes.h"
#include "support/symbols.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorIds;
using record::TensorInfo;

class RowPlanning {
  using Kind = RowPlan::Kind;
  using Of = RowPlan::Of;
  using Step = RowPlan::Step;

 public:
  RowPlanning(const Tape& run, const std::vector<TensorId>& wanted) : run_(run), wanted_(wanted) {
    plan_.tensors.resize(run.tensors.size());
    plan_.steps.resize(run.entries.size(), Step::plain);
    plan_.groups.resize(run.entries.size(), -1);
    plan_.along.resize(run.entries.size(), 0);
  }

  std::optional<RowPlan> make() {
    for (at_ = 0; at_ < run_.entries.size(); ++at_) {
      const Entry& entry = run_.entries[at_];
      if (rests_on_sizes(entry)) return std::nullopt;
      const bool finds = entry.op.operator_name().name == "aten::nonzero" && is_data_sized(entry);
      if (!finds && !is_touched(entry)) continue;
      if (!(finds ? find(entry) : take(entry))) return std::nullopt;
    }
    auto is_made = [&](TensorId id) { return id < 0 || of(id).kind == Kind::none; };
    if (plan_.masks.empty() || !std::ranges::all_of(wanted_, is_made)) return std::nullopt;
    return std::move(plan_);
  }

 private:
  const TensorInfo& info(TensorId id) const { return run_.tensors[id]; }
  Of& of(TensorId id) { return plan_.tensors[id]; }
  int rank(TensorId id) const { return static_cast<int>(info(id).sizes.size()); }

  bool is_data_sized(const Entry& entry) const {
    return std::ranges::any_of(entry.results, [&](const Arg& result) {
      return std::ranges::any_of(result.tensors, [&](TensorId id) { return id >= 0 && info(id).data_sized; });
    });
  }
  bool is_touched(const Entry& entry) {
    return std::ranges::any_of(entry.args, [&](const Arg& arg) {
      return std::ranges::any_of(arg.tensors,
                                 [&](TensorId id) { return id >= 0 && of(id).kind != Kind::none; });
    });
  }
  bool rests_on_sizes(const Entry& entry) {
    return std::ranges::any_of(entry.args, [&](const Arg& arg) {
      Syms inside;
      for (Sym s : arg.syms) collect_symbols(s, &inside);
      return std::ranges::any_of(inside, [&](Sym s) {
        const TensorId id = tensor_of_size(*s.node());
        return id >= 0 && of(id).kind != Kind::none;
      });
    });
  }

  void note(Step step, int group, int along = 0) {
    plan_.steps[at_] = step, plan_.groups[at_] = group, plan_.along[at_] = along;
  }
  bool give(const Entry& entry, Of what) {
    for (const Arg& result : entry.results)
      for (TensorId id : result.tensors)
        if (id >= 0) of(id) = what;
    return true;
  }
  /// Rows that lie along this dimension, counted from the last one.
  bool give_rows(const Entry& entry, int group, int along) {
    for (const Arg& result : entry.results)
      for (TensorId id : result.tensors)
        if (id >= 0) of(id) = {Kind::rows, group, rank(id) - along};
    return true;
  }

  // ---- masks

  int group_of(TensorId mask) const {
    for (size_t g = 0; g < plan_.masks.size(); ++g)
      if (record::hold_the_same(run_, plan_.masks[g], mask)) return static_cast<int>(g);
    return -1;
  }
  const record::Dims& mask_sizes(int group) const { return info(plan_.masks[group]).sizes; }
  int mask_rank(int group) const { return static_cast<int>(mask_sizes(group).size()); }

  bool find(const Entry& entry) {
    const TensorId mask = entry.args[0].tensors[0];
    if (of(mask).kind != Kind::none || info(mask).sizes.empty() || info(mask).data_sized) return false;
    int group = group_of(mask);
    if (group < 0) {
      group = static_cast<int>(plan_.masks.size());
      plan_.masks.push_back(mask);
    }
    note(Step::find, group);
    return give(entry, {Kind::matrix, group, 0});
  }

  /// What Python and the recorder make of nonzero's matrix, whose columns are the places.
  bool take_places(const Entry& entry, std::string_view name) {
    const Of what = of(entry.args[0].tensors[0]);
    note(Step::hand_on, what.group);
    auto is_column = [&](size_t argument) {
      const c10::IValue& dim = entry.args[argument].value;
      return dim.isInt() && (dim.toInt() == 1 || dim.toInt() == -1);
    };
    const TensorId first = entry.results[0].tensors.empty() ? -1 : entry.results[0].tensors[0];
    if (first < 0) return false;
    if (what.kind == Kind::matrix && name == "aten::unbind" && is_column(1)) {
      int column = 0;
      for (TensorId id : entry.results[0].tensors) of(id) = {Kind::places, what.group, column++};
      return true;
    }
    if (what.kind == Kind::matrix && name == "aten::select" && is_column(1)) {
      const int64_t column = entry.args[2].value.toInt(), columns = mask_rank(what.group);
      return give(entry,
                  {Kind::places, what.group, static_cast<int>(column < 0 ? column + columns : column)});
    }
    const bool shows_again = name == "aten::squeeze" || name == "aten::view" || name == "aten::reshape" ||
                             name == "aten::flatten" || name == "aten::to" || name == "aten::contiguous";
    if (!shows_again || (what.kind == Kind::matrix && mask_rank(what.group) != 1)) return false;
    if (rank(first) == 2 && what.kind == Kind::matrix) return give(entry, what);
    return rank(first) == 1 &&
           give(entry, {Kind::places, what.group, what.kind == Kind::matrix ? 0 : what.dim});
  }

  // ---- what is selected

  bool lies_as_mask(int group, TensorId x, size_t first) const {
    const record::Dims &mask = mask_sizes(group), &sizes = info(x).sizes;
    return first + mask.size() <= sizes.size() &&
           std::equal(mask.begin(), mask.end(), sizes.begin() + static_cast<std::ptrdiff_t>(first));
  }

  /// The dimension at which all places of one mask begin among indices, and none else are; -1: others are.
  int first_place(const TensorIds& indices, int* group) {
    int first = -1, column = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 0) {
        if (first >= 0 && column < mask_rank(*group)) return -1;
        continue;
      }
      const Of& place = of(indices[i]);
      if (place.kind != Kind::places || place.dim != column) return -1;
      if (first < 0) first = static_cast<int>(i), *group = place.group;
      if (place.group != *group || static_cast<int>(i) != first + column) return -1;
      ++column;
    }
    return first >= 0 && column == mask_rank(*group) ? first : -1;
  }
  bool select(const Entry& entry) {
    const TensorId x = entry.args[0].tensors[0];
    if (of(x).kind != Kind::none || !is_fillable(x)) return false;
    int group = -1;
    const int first = first_place(entry.args[1].tensors, &group);
    if (first < 0 || !lies_as_mask(group, x, static_cast<size_t>(first))) return false;
    const int along = rank(x) - first - mask_rank(group) + 1;
    note(Step::select, group, along);
    return give_rows(entry, group, along);
  }

  bool select_by_places(const Entry& entry) {
    const TensorId x = entry.args[0].tensors[0], places = entry.args[2].tensors[0];
    const int group = of(places).group;
    if (of(x).kind != Kind::none || of(places).kind != Kind::places || mask_rank(group) != 1) return false;
    int64_t dim = entry.args[1].value.toInt();
    if (dim < 0) dim += rank(x);
    if (!is_fillable(x) || !lies_as_mask(group, x, static_cast<size_t>(dim))) return false;
    const int along = rank(x) - static_cast<int>(dim);
    note(Step::select, group, along);
    return give_rows(entry, group, along);
  }

  bool is_fillable(TensorId x) const { return info(x).plain && !c10::isComplexType(info(x).dtype); }

  /// x[mask] = rows, of as many elements as are selected.
  bool put(const Entry& entry) {
    const TensorId x = entry.args[0].tensors[0], rows = entry.args[2].tensors[0];
    const TensorIds& indices = entry.args[1].tensors;
    if (of(x).kind != Kind::none || of(rows).kind != Kind::rows || entry.args[3].value.toBool()) return false;
    int group = -1, first = 0;
    if (indices.size() == 1 && indices[0] >= 0 && of(indices[0]).kind == Kind::none)
      group = info(indices[0]).dtype == at::kBool ? group_of(indices[0]) : -1;
    else
      first = first_place(indices, &group);
    if (group < 0 || first != 0 || group != of(rows).group || of(rows).dim != 0) return false;
    if (!lies_as_mask(group, x, 0) || rank(rows) != rank(x) - mask_rank(group) + 1) return false;
    if (!std::equal(info(rows).sizes.begin() + 1, info(rows).sizes.end(),
                    info(x).sizes.begin() + mask_rank(group)))
      return false;
    note(Step::put, group, rank(rows));
    return true;
  }

  // ---- what is made of rows

  /// Rows lie along one dimension of all that have them, and what else there is has one element there and no
  /// gradient.
  bool are_aligned(const Entry& entry, int* group, int* along) {
    auto fits = [&](TensorId id) {
      if (id < 0) return true;
      const Of& what = of(id);
      if (what.kind == Kind::none) return true;
      if (what.kind != Kind::rows) return false;
      const int here = rank(id) - what.dim;
      if (*along == 0) *along = here, *group = what.group;
      return *along == here && *group == what.group;
    };
    auto is_beside = [&](TensorId id) {
      if (id < 0 || of(id).kind != Kind::none) return true;
      if (info(id).requires_grad && entry.grad_mode) return false;
      return rank(id) < *along || info(id).sizes[rank(id) - *along] == 1;
    };
    for (const Arg& arg : entry.args)
      if (!std::ranges::all_of(arg.tensors, fits)) return false;
    return *along > 0 && std::ranges::all_of(entry.args, [&](const Arg& arg) {
      return std::ranges::all_of(arg.tensors, is_beside);
    });
  }

  /// Of whole numbers, rows that do not count are 0.
  bool may_divide_by_zero(const Entry& entry) const {
    const std::string_view name = base_name(entry);
    return (name == "div" || name == "floor_divide" || name == "remainder" || name == "fmod") &&
           c10::isIntegralType(info(entry.results[0].tensors[0]).dtype, true);
  }

  bool by_row(const Entry& entry) {
    int group = -1, along = 0;
    if (!are_aligned(entry, &group, &along) || may_divide_by_zero(entry)) return false;
    note(Step::by_row, group, along);
    return give_rows(entry, group, along);
  }

  /// Along some dimensions, which are not theirs, unless it `adds_up`.
  bool along_dims(const Entry& entry, bool adds_up) {
    const TensorId rows = entry.args[0].tensors[0];
    int group = -1, along = 0;
    if (!are_aligned(entry, &group, &along)) return false;
    // Nothing is stretched here: an index of one row is of the first of them.
    if (record::any_tensor(entry.args, [&](TensorId id) { return of(id).kind == Kind::none; })) return false;
    const std::vector<int64_t> dims = dims_of(entry, static_cast<size_t>(rank(rows)));
    const int here = of(rows).dim;
    const bool is_over_rows = std::ranges::find(dims, here) != dims.end();
    if (is_over_rows && !adds_up) return false;
    note(is_over_rows ? Step::reduce : Step::by_row, group, along);
    if (is_over_rows) return true;
    const c10::IValue* keeps = value_of(entry, "keepdim");
    const auto behind = std::ranges::count_if(dims, [&](int64_t dim) { return dim > here; });
    return give_rows(entry, group, along - (keeps && !keeps->toBool() ? static_cast<int>(behind) : 0));
  }

  bool loss(const Entry& entry) {
    int group = -1, along = 0;
    if (!are_aligned(entry, &group, &along)) return false;
    const bool reduces = value_of(entry, "reduction")->toInt() != at::Reduction::None;
    note(reduces ? Step::loss : Step::by_row, group, along);
    return reduces || give_rows(entry, group, along);
  }

  bool loss_of_classes(const Entry& entry) {
    const TensorId scores = entry.args[0].tensors[0], labels = entry.args[1].tensors[0];
    const TensorId weight = entry.args[2].tensors.empty() ? -1 : entry.args[2].tensors[0];
    const Of &a = of(scores), &b = of(labels);
    if (a.kind != Kind::rows || b.kind != Kind::rows || a.group != b.group || a.dim != 0 || b.dim != 0)
      return false;
    if (rank(scores) < 2) return false;
    const int64_t reduction = entry.args[3].value.toInt();
    // A mean is one by the weights of those labels that count.
    if (weight >= 0 && (reduction == at::Reduction::Mean || of(weight).kind != Kind::none ||
                        (info(weight).requires_grad && entry.grad_mode)))
      return false;
    const int along = rank(scores) - 1;
    note(reduction == at::Reduction::None ? Step::by_row : Step::loss, a.group, along);
    return reduction != at::Reduction::None || give_rows(entry, a.group, along);
  }

  /// A view that shows the rows as they are, with or without dimensions of one element.
  bool shown(const Entry& entry, std::string_view name) {
    const TensorId rows = entry.args[0].tensors[0], result = entry.results[0].tensors[0];
    const Of what = of(rows);
    auto dim_of = [&](size_t argument, int count) {
      const int64_t dim = entry.args[argument].value.toInt();
      return static_cast<int>(dim < 0 ? dim + count : dim);
    };
    int along = rank(rows) - what.dim;
    if (name == "aten::unsqueeze") {
      along += dim_of(1, rank(rows) + 1) > what.dim;
    } else if (name == "aten::squeeze" && entry.op.operator_name().overload_name == "dim") {
      const int dim = dim_of(1, rank(rows));
      if (dim == what.dim) return false;
      along -= dim > what.dim && info(rows).sizes[dim] == 1;
    } else if (name == "aten::select") {
      const int dim = dim_of(1, rank(rows));
      if (dim == what.dim) return false;
      along -= dim > what.dim;
    } else if (name == "aten::transpose" && entry.op.operator_name().overload_name == "int") {
      const int a = dim_of(1, rank(rows)), b = dim_of(2, rank(rows));
      if (what.dim == a || what.dim == b) along = rank(rows) - (what.dim == a ? b : a);
    } else if (info(rows).sizes == info(result).sizes) {
      note(Step::hand_on, what.group, along);  // a view as large as itself
      return give_rows(entry, what.group, along);
    } else {
      return false;
    }
    note(Step::by_row, what.group, along);
    return give_rows(entry, what.group, along);
  }

  bool take(const Entry& entry) {
    const std::string_view name = entry.op.operator_name().name;
    const record::OperatorFacts& facts = *entry.facts;
    const bool puts = name == "aten::index_put_" || name == "aten::index_put";
    if (puts) return put(entry);
    if (facts.draws || facts.has_out || facts.turns || !facts.written.empty() || entry.inference_mode)
      return false;
    const TensorId first =
        entry.args.empty() || entry.args[0].tensors.empty() ? -1 : entry.args[0].tensors[0];
    if (first < 0) return false;
    if (name == "aten::index") return select(entry);
    if (name == "aten::index_select") return select_by_places(entry);
    if (of(first).kind == Kind::places || of(first).kind == Kind::matrix) return take_places(entry, name);
    const RowWork work = row_work_of(entry);
    if (work == RowWork::loss_of_classes) return loss_of_classes(entry);
    if (work == RowWork::loss) return loss(entry);
    if (work == RowWork::by_element) return by_row(entry);
    if (of(first).kind != Kind::rows) return false;
    if (work == RowWork::along_dim || work == RowWork::sum) return along_dims(entry, work == RowWork::sum);
    if (name == "aten::unsqueeze" || name == "aten::squeeze" || name == "aten::select" ||
        name == "aten::transpose" || name == "aten::view" || name == "aten::reshape" ||
        name == "aten::flatten" || name == "aten::expand_as")
      return shown(entry, name);
    return false;
  }

  const Tape& run_;
  const std::vector<TensorId>& wanted_;
  size_t at_ = 0;
  RowPlan plan_;
};

/// Of sizes that are the same in each call: as many rows as one mask selects, or no rows.
bool always_holds(const SizeFact& fact, const RowPlan& plan) {
  Syms inside;
  collect_symbols(fact.a, &inside);
  collect_symbols(fact.b, &inside);
  using Kind = RowPlan::Kind;
  auto is_size_of_rows = [&](Sym s, RowPlan::Of* what) {
    const TensorId id = s.is_const() ? -1 : tensor_of_size(*s.node());
    if (id < 0) return false;
    *what = plan.tensors[id];
    return what->kind == Kind::rows || what->kind == Kind::places || what->kind == Kind::matrix;
  };
  auto counts_rows = [&](Sym s, RowPlan::Of* what) {
    return is_size_of_rows(s, what) && s.node()->what.part == (what->kind == Kind::rows ? what->dim : 0);
  };
  RowPlan::Of a, b;
  if (counts_rows(fact.a, &a) && counts_rows(fact.b, &b))
    return fact.relation == Relation::eq && a.group == b.group;
  return std::ranges::none_of(inside, [&](Sym s) { return counts_rows(s, &a); });
}

bool is_about_rows(Sym expression, const RowPlan& plan) {
  Syms inside;
  collect_symbols(expression, &inside);
  return std::ranges::any_of(inside, [&](Sym s) {
    const TensorId id = tensor_of_size(*s.node());
    return id >= 0 && plan.tensors[id].kind != RowPlan::Kind::none;
  });
}
bool is_about_rows(const SizeFact& fact, const RowPlan& plan) {
  return is_about_rows(fact.a, plan) || is_about_rows(fact.b, plan);
}

}  // namespace

bool RowPlan::gives_rows(const Entry& entry) const {
  return std::ranges::any_of(entry.results, [&](const Arg& result) {
    return std::ranges::any_of(
        result.tensors, [&](TensorId id) { return id >= 0 && tensors[id].kind != RowPlan::Kind::none; });
  });
}

std::optional<RowPlan> plan_of_rows(const Tape& run, const std::vector<TensorId>& wanted) {
  if (std::ranges::none_of(run.tensors, [](const TensorInfo& t) { return t.data_sized; }))
    return std::nullopt;
  return RowPlanning(run, wanted).make();
}

bool forget_selected_sizes(Tape& run, const std::vector<TensorId>& wanted,
                           const std::vector<uint64_t>& dynamic, const SymbolTable& numbers,
                           std::vector<SizeFact>& facts) {
  // Where others differ, what a tape's sizes rest on is found by lowering it, and these it does not know.
  if (std::ranges::any_of(dynamic, [](uint64_t dims) { return dims != 0; })) return false;
  const std::optional<RowPlan> plan = plan_of_rows(run, wanted);
  if (!plan) return false;
  if (std::ranges::any_of(numbers, [&](const SymbolRow& n) { return is_about_rows(n.symbol, *plan); }))
    return false;
  for (const SizeFact& fact : facts)
    if (is_about_rows(fact, *plan) && !always_holds(fact, *plan)) return false;
  for (size_t id = 0; id < run.tensors.size(); ++id) {
    const bool is_rows = plan->tensors[id].kind != RowPlan::Kind::none;
    if (run.tensors[id].data_dims && !is_rows) return false;  // another operator found it
  }
  for (size_t id = 0; id < run.tensors.size(); ++id) {
    run.tensors[id].data_sized = plan->tensors[id].kind != RowPlan::Kind::none;
    run.tensors[id].data_dims = 0;
  }
  std::erase_if(facts, [&](const SizeFact& fact) { return is_about_rows(fact, *plan); });
  return true;
}

}  // namespace bolt::autograd
