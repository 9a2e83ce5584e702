// autograd/head_in_pieces.cpp
#include "autograd/head_in_pieces.h"

#include <ATen/core/Reduction.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "device/host/host.h"
#include "record/copy.h"
#include "record/make_entry.h"
#include "record/unary.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Dims;
using record::Entry;
using record::list_arg;
using record::sizes_arg;
using record::Tape;
using record::tensor_arg;
using record::TensorId;
using record::TensorInfo;
using record::value_arg;
using Kind = Member::Kind;

Dims dims_of_list(at::IntArrayRef list) {
  Dims dims;
  for (int64_t each : list) dims.push_back(each);
  return dims;
}

bool is_half_type(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

/// Units of all rows: from one to behind another.
struct UnitRange {
  int64_t from = 0, behind = 0;
};

class PieceWriter {
 public:
  PieceWriter(const Flow& flow, const ByRows& rows, int64_t pieces)
      : flow_(flow), rows_(rows), from_(flow.joint.tape), each_((rows.units + pieces - 1) / pieces) {
    joint_.tape = record::tensors_alone(from_);
    for (TensorId id : from_.inputs) record::add_input(joint_.tape, id);
    storages_ = record::count_storages(from_);
    last_.assign(rows.loop_backward.size(), 0);
    for (size_t i = 0; i < rows.members.size(); ++i)
      if (const int loop = rows.members[i].loop; loop >= 0) last_[loop] = i;
  }

  Joint make() {
    const Joint& of = flow_.joint;
    write_part(0, of.backward, false);
    joint_.backward = joint_.tape.entries.size();
    write_part(of.backward, from_.entries.size(), true);
    Tape tape = std::move(joint_.tape);
    const size_t backward = joint_.backward;
    joint_ = of;
    joint_.tape = std::move(tape);
    joint_.backward = backward;
    return std::move(joint_);
  }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }
  TensorInfo& info(TensorId id) { return joint_.tape.tensors[id]; }
  const Entry& entry(size_t i) const { return from_.entries[i]; }
  const Member& member(size_t i) const { return rows_.members[i]; }
  void add(const Entry& made) { record::add_entry(joint_.tape, made); }

  // ---- order

  void write_part(size_t first, size_t behind, bool backward) {
    for (size_t i = first; i < behind; ++i) {
      if (member(i).kind == Kind::None || member(i).also_whole) place(i);
      while (next_loop_ < last_.size() && rows_.loop_backward[next_loop_] == backward &&
             last_[next_loop_] <= i) {
        write_loop();
        ++next_loop_;
        flush();
      }
    }
    BOLT_CHECK(waiting_.empty(), "an entry waits for what no piece gives");
  }

  bool is_ready(size_t i) const { return at(rows_.level[i]) <= next_loop_; }

  /// What waits for the pieces stands behind them.
  void place(size_t i) {
    const Entry& it = entry(i);
    if (!is_ready(i)) {
      if (it.facts->draws || it.facts->communicates)
        throw_unsupported("the order of ", it.op.operator_name().name, " among others would change");
      waiting_.push_back(i);
      return;
    }
    for (int s : flow_.entries[i].writes)
      for (size_t other : waiting_)
        if (std::ranges::find(flow_.entries[other].reads, s) != flow_.entries[other].reads.end())
          throw_unsupported("a write to what is read before it");
    put(it);
  }

  void put(const Entry& it) {
    if (!fills_alike(it)) return add(it);
    const TensorId like = it.args[0].tensors[0], result = it.results[0].tensors[0];
    if (info(like).input >= 0 || info(like).producer >= 0) return add(it);
    const std::string& name = it.op.operator_name().name;
    const c10::IValue value =
        name == "aten::full_like" ? it.args[1].value : int64_t{name == "aten::ones_like"};
    lay_row_by_row(result);
    call("aten::full", "",
         {sizes_arg(info(result).sizes), value_arg(value),
          value_arg(static_cast<int64_t>(info(result).dtype)), value_arg({}), value_arg(info(result).device)},
         result, it.loc);
  }

  void flush() {
    std::vector<size_t> still;
    for (size_t i : waiting_) is_ready(i) ? put(entry(i)) : still.push_back(i);
    waiting_ = std::move(still);
  }

  // ---- pieces

  void write_loop() {
    const auto loop = static_cast<int>(next_loop_);
    const std::vector<size_t> order = what_is_needed(loop);
    stand_ins_.clear();
    sums_.clear();
    parts_.clear();
    // The same product a second time would be found to be equal, and its result kept.
    if (loop > 0) keep_states();
    for (size_t i : order)
      if (member(i).loop == loop && member(i).counts_labels) count_labels(i);
    for (here_.from = 0; here_.from < rows_.units; here_.from = here_.behind) {
      here_.behind = std::min(here_.from + each_, rows_.units);
      made_.clear();
      cut_.clear();
      turned_.clear();
      for (size_t i : order) write_piece(i, loop);
      end_piece();
    }
    for (size_t i : order)
      if (member(i).loop == loop) member(i).kind == Kind::Joined ? join(i) : finish_sum(i);
  }

  /// In their order: the loop's ends, and what they are made of, with all that writes to it.
  std::vector<size_t> what_is_needed(int loop) const {
    std::set<size_t> found;
    std::vector<size_t> open;
    const auto need = [&](size_t i) {
      if (found.insert(i).second) open.push_back(i);
    };
    for (size_t i = 0; i < rows_.members.size(); ++i)
      if (member(i).loop == loop) need(i);
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      size_t next = 0;
      for (const Arg& arg : entry(i).args)
        for (TensorId id : arg.tensors) {
          if (member(i).shares[next++] != Share::Made) continue;
          need(at(from_.tensors[id].producer));
          for (int maker : flow_.storages[flow_.storage_of(id)].makers)
            if (member(at(maker)).kind != Kind::None && at(maker) < i) need(at(maker));
        }
    }
    return {found.begin(), found.end()};
  }

  void keep_states() {
    const Entry& product = entry(rows_.product);
    const size_t states = product.args.size() > 2 && product.args[2].kind == Arg::Kind::Tensor ? 1 : 0;
    const TensorId id = product.args[states].tensors[0];
    stand_ins_[id] = kept(id, product.loc);
  }

  TensorId kept(TensorId id, int loc, const char* name = "torchbolt::keep") {
    return kept_as(record::add_contiguous(joint_.tape, id), id, loc, name);
  }
  TensorId kept_as(TensorId to, TensorId from, int loc, const char* name = "torchbolt::keep") {
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    storages_ = std::max(storages_, info(to).storage + 1);
    info(to).requires_grad = false;
    add(record::unary(joint_.tape, op, from, to, loc));
    return to;
  }

  void write_piece(size_t i, int loop) {
    const Entry& of = entry(i);
    const Member& m = member(i);
    loc_ = of.loc;
    const bool ends = m.loop == loop;
    Entry made = of;
    made.grad_mode = false;
    made.args = joint_.tape.args->take(of.args.size());
    std::ranges::copy(of.args, made.args.begin());
    size_t next = 0;
    for (Arg& arg : made.args)
      for (TensorId& id : arg.tensors) id = share_of(id, m.shares[next++]);
    made.results = joint_.tape.args->take(of.results.size());
    std::ranges::copy(of.results, made.results.begin());
    const bool sums = ends && m.kind != Kind::Joined;
    for (size_t r = 0; r < made.results.size(); ++r)
      for (TensorId& id : made.results[r].tensors)
        if (id >= 0) id = sums || (m.counts_labels && r > 0) ? alike(id) : piece_of(i, id);
    if (!sums) give_sizes(made);
    if (ends && m.kind == Kind::Loss) argument(made, "reduction").value = int64_t{at::Reduction::Sum};
    if (ends && m.kind == Kind::Mean)
      add_sum_of(made.args[0].tensors[0], made.results[0].tensors[0]);
    else
      add(made);
    if (sums) sum_up(i, made.results[0].tensors[0]);
    if (ends && !sums) take_part(i, made.results[0].tensors[0]);
  }

  void add_sum_of(TensorId id, TensorId to) {
    if (is_half_type(info(to).dtype)) info(to).dtype = at::kFloat;
    call("aten::sum", "", {tensor_arg(id), value_arg(static_cast<int64_t>(info(to).dtype))}, to, loc_);
  }

  static Arg& argument(Entry& made, const char* name) {
    return made.args[*made.op.schema().argumentIndexWithName(name)];
  }

  /// Sizes that the operator is told are those of what it gives.
  void give_sizes(Entry& made) {
    for (const char* name : {"size", "sizes", "input_sizes"})
      if (const auto where = made.op.schema().argumentIndexWithName(name))
        made.args[*where] = sizes_arg(info(made.results[0].tensors[0]).sizes);
  }

  TensorId share_of(TensorId id, Share share) {
    if (id < 0) return id;
    if (share == Share::Made) return made_.at(id);
    if (const auto known = stand_ins_.find(id); known != stand_ins_.end()) id = known->second;
    if (share == Share::Whole) return id;
    const auto [known, is_new] = cut_.try_emplace({id, share}, -1);
    if (is_new) known->second = share == Share::Rows ? rows_here(id) : columns_here(id);
    return known->second;
  }

  /// How a piece of a tensor lies whose first dimensions, `lead` of them, are counted by units.
  struct Cutting {
    size_t lead = 0, dim = 0;      ///< the one that is shorter; those before it are one
    int64_t from = 0, behind = 0;  ///< of that dimension's elements
    int64_t row = 0, rows = 0;     ///< of all lead dimensions as one
  };
  Cutting cutting_of(const TensorInfo& it) const {
    Cutting cut;
    cut.lead = rows_.lead(it);
    const at::IntArrayRef sizes = it.sizes;
    const int64_t a_unit = c10::multiply_integers(sizes.slice(0, cut.lead)) / rows_.units;
    cut.row = here_.from * a_unit;
    cut.rows = (here_.behind - here_.from) * a_unit;
    for (;; ++cut.dim) {
      const int64_t inside = c10::multiply_integers(sizes.slice(cut.dim + 1, cut.lead - cut.dim - 1));
      if (cut.row % inside != 0 || cut.rows % inside != 0) continue;
      cut.from = cut.row / inside;
      cut.behind = cut.from + cut.rows / inside;
      return cut;
    }
  }
  Dims sizes_here(const TensorInfo& it) const {
    const Cutting cut = cutting_of(it);
    Dims sizes = it.sizes;
    for (size_t d = 0; d < cut.dim; ++d) sizes[d] = 1;
    sizes[cut.dim] = cut.behind - cut.from;
    return sizes;
  }

  /// Of what is there as a whole.
  TensorId rows_here(TensorId id) {
    const Cutting cut = cutting_of(info(id));
    if (cut.dim == 0) return sliced(id, 0, cut.from, cut.behind);
    const Dims sizes = sizes_here(info(id));
    const TensorId cut_rows = sliced(flat(id), 0, cut.row, cut.row + cut.rows);
    Dims strides = info(id).strides;
    return viewed(cut_rows, sizes, strides);
  }

  /// Its lead dimensions as one.
  TensorId flat(TensorId id) {
    const TensorInfo it = info(id);
    const size_t lead = rows_.lead(it);
    if (lead == 1) return id;
    Dims sizes, strides;
    sizes.push_back(c10::multiply_integers(at::IntArrayRef(it.sizes).slice(0, lead)));
    strides.push_back(it.strides[lead - 1]);
    for (size_t d = 0; d < lead; ++d)
      if (it.sizes[d] != 1) strides[0] = it.strides[d];
    for (size_t d = lead; d < it.sizes.size(); ++d) {
      sizes.push_back(it.sizes[d]);
      strides.push_back(it.strides[d]);
    }
    return viewed(id, sizes, strides);
  }

  TensorId viewed(TensorId id, const Dims& sizes, const Dims& strides) {
    const TensorId made = shown(id, sizes, strides, info(id).offset);
    call("aten::view", "", {tensor_arg(id), sizes_arg(sizes)}, made, loc_);
    return made;
  }
  TensorId sliced(TensorId id, int64_t dim, int64_t from, int64_t behind) {
    Dims sizes = info(id).sizes;
    sizes[dim] = behind - from;
    const int64_t offset = info(id).offset + from * info(id).strides[dim];
    const TensorId made = shown(id, sizes, info(id).strides, offset);
    call("aten::slice", "Tensor",
         {tensor_arg(id), value_arg(dim), value_arg(from), value_arg(behind), value_arg(int64_t{1})}, made,
         loc_);
    return made;
  }
  TensorId columns_here(TensorId id) {
    const int64_t a_unit = info(id).sizes[1] / rows_.units;
    return sliced(id, 1, here_.from * a_unit, here_.behind * a_unit);
  }
  TensorId shown(TensorId id, Dims sizes, Dims strides, int64_t offset) {
    const TensorId made = record::add_like(joint_.tape, id, info(id).storage);
    info(made).sizes = std::move(sizes);
    info(made).strides = std::move(strides);
    info(made).offset = offset;
    info(made).requires_grad = false;
    return made;
  }

  /// A tensor as large as that, of this piece alone.
  TensorId alike(TensorId id) {
    const TensorId made = record::add_like(joint_.tape, id, storages_++);
    info(made).requires_grad = false;
    return made;
  }

  TensorId piece_of(size_t i, TensorId id) {
    if (const auto known = made_.find(id); known != made_.end()) return known->second;  // it is written to
    const int storage = flow_.storage_of(id);
    TensorId shows = -1;
    for_each_tensor(entry(i).args, [&](TensorId other) {
      if (flow_.storage_of(other) == storage) shows = made_.at(other);
    });
    const bool turns = shows >= 0 && is_turned(i) && !turned_.contains(entry(i).args[0].tensors[0]);
    const TensorId made = record::add_like(joint_.tape, id, shows >= 0 ? info(shows).storage : storages_++);
    TensorInfo& it = info(made);
    it.requires_grad = false;
    if (turns) {
      turned_.insert(id);
      it.sizes[1] = it.sizes[1] / rows_.units * (here_.behind - here_.from);
    } else {
      it.sizes = sizes_here(it);
    }
    if (shows < 0) it.strides = dims_of_list(c10::contiguous_strides(it.sizes));
    return made_[id] = made;
  }
  bool is_turned(size_t i) const {
    const std::string& name = entry(i).op.operator_name().name;
    return name == "aten::t" || name == "aten::transpose" || name == "aten::permute";
  }

  // ---- what the pieces give

  void sum_up(size_t i, TensorId part) {
    const int loc = entry(i).loc;
    if (is_half_type(info(part).dtype)) part = kept(cast(part, at::kFloat, loc), loc);
    const auto [sum, is_first] = sums_.try_emplace(i, part);
    if (is_first) return;
    call("aten::add_", "Tensor", {tensor_arg(sum->second), tensor_arg(part)}, sum->second, loc);
  }

  /// All that the piece gives is kept, and so nothing of it waits for the next one's.
  void end_piece() {
    std::vector<TensorId*> given;
    for (auto& [_, sum] : sums_) given.push_back(&sum);
    for (auto& [_, parts] : parts_) given.push_back(&parts.back());
    for (TensorId* id : given)
      *id = kept(*id, loc_, id == given.back() ? "torchbolt::keep_of_piece" : "torchbolt::keep");
  }

  TensorId cast(TensorId id, at::ScalarType to, int loc) {
    const TensorId made = alike(id);
    info(made).dtype = to;
    cast_to(id, made, loc);
    return made;
  }
  void cast_to(TensorId id, TensorId made, int loc) {
    call("aten::_to_copy", "", {tensor_arg(id), value_arg(static_cast<int64_t>(info(made).dtype))}, made,
         loc);
  }

  void finish_sum(size_t i) {
    const Entry& of = entry(i);
    const TensorId result = of.results[0].tensors[0];
    const bool narrow = is_half_type(info(result).dtype);
    TensorId sum = sums_.at(i);
    const bool divides = member(i).kind == Kind::Mean || counts_.contains(i);
    if (divides) {
      TensorId quotient = result;
      if (narrow) {
        quotient = alike(result);
        info(quotient).dtype = at::kFloat;
      }
      if (member(i).kind == Kind::Mean)
        call("aten::div", "Scalar",
             {tensor_arg(sum), value_arg(from_.tensors[of.args[0].tensors[0]].elements())}, quotient, of.loc);
      else
        call("aten::div", "Tensor", {tensor_arg(sum), tensor_arg(counts_.at(i))}, quotient, of.loc);
      sum = quotient;
    }
    if (narrow)
      cast_to(sum, result, of.loc);
    else if (!divides)
      kept_as(result, sum, of.loc);
  }

  /// By their weights; in eager the loss finds it out on its way.
  void count_labels(size_t i) {
    const Entry& of = entry(i);
    const TensorId labels = of.args[1].tensors[0], result = of.results[1].tensors[0];
    const TensorId weight = of.args[2].tensors.empty() ? -1 : of.args[2].tensors[0];
    const c10::IValue ignored = of.args[4].value;
    const bool narrow = is_half_type(info(result).dtype);
    TensorId count = result;
    if (narrow) {
      count = alike(result);
      info(count).dtype = at::kFloat;
    }
    TensorId counted = alike(labels);
    lay_row_by_row(counted);
    info(counted).dtype = at::kBool;
    call("aten::ne", "Scalar", {tensor_arg(labels), value_arg(ignored)}, counted, of.loc);
    if (weight >= 0) {
      const TensorId safe = alike(labels), picked = alike(counted), weighed = alike(counted);
      lay_row_by_row(safe);
      info(picked).dtype = info(weighed).dtype = info(weight).dtype;
      call("aten::mul", "Tensor", {tensor_arg(labels), tensor_arg(counted)}, safe, of.loc);
      call("aten::index_select", "", {tensor_arg(weight), value_arg(int64_t{0}), tensor_arg(safe)}, picked,
           of.loc);
      call("aten::mul", "Tensor", {tensor_arg(picked), tensor_arg(counted)}, weighed, of.loc);
      counted = weighed;
    }
    loc_ = of.loc;
    add_sum_of(counted, count);
    if (narrow) cast_to(count, result, of.loc);
    if (of.args[3].value.toInt() == at::Reduction::Mean) counts_[i] = count;
  }
  void lay_row_by_row(TensorId id) {
    info(id).strides = dims_of_list(c10::contiguous_strides(info(id).sizes));
    info(id).offset = 0;
  }

  void take_part(size_t i, TensorId part) {
    loc_ = entry(i).loc;
    parts_[i].push_back(flat_piece(i, part));
  }
  /// Pieces may begin within a sequence, so they are put together as rows.
  TensorId flat_piece(size_t i, TensorId part) {
    const TensorInfo& whole = from_.tensors[entry(i).results[0].tensors[0]];
    if (rows_.lead(whole) == 1) return part;
    const Cutting cut = cutting_of(whole);
    Dims sizes;
    sizes.push_back(cut.rows);
    for (size_t d = cut.lead; d < whole.sizes.size(); ++d) sizes.push_back(whole.sizes[d]);
    return viewed(part, sizes, dims_of_list(c10::contiguous_strides(sizes)));
  }

  void join(size_t i) {
    const Entry& of = entry(i);
    const TensorId result = of.results[0].tensors[0];
    const TensorInfo whole = info(result);
    const size_t lead = rows_.lead(whole);
    TensorId all = result;
    if (lead > 1) {
      all = record::add_like(joint_.tape, result, whole.storage);
      Dims sizes;
      sizes.push_back(c10::multiply_integers(at::IntArrayRef(whole.sizes).slice(0, lead)));
      for (size_t d = lead; d < whole.sizes.size(); ++d) sizes.push_back(whole.sizes[d]);
      info(all).strides = dims_of_list(c10::contiguous_strides(sizes));
      info(all).sizes = std::move(sizes);
      info(all).requires_grad = false;
    }
    call("aten::cat", "", {list_arg(parts_.at(i)), value_arg(int64_t{0})}, all, of.loc);
    if (lead > 1) call("aten::view", "", {tensor_arg(all), sizes_arg(whole.sizes)}, result, of.loc);
  }

  void call(const char* name, const char* overload, const std::vector<Arg>& args, TensorId result, int loc) {
    add(record::make_entry(joint_.tape, name, overload, args, {result}, loc));
  }

  const Flow& flow_;
  const ByRows& rows_;
  const Tape& from_;
  const int64_t each_;  ///< units of a piece
  Joint joint_;
  int storages_ = 0;
  std::vector<size_t> last_;  ///< by loop: where the last of its ends stands
  size_t next_loop_ = 0;
  std::vector<size_t> waiting_;
  // Of the loop at hand.
  std::map<TensorId, TensorId> stand_ins_;
  std::map<size_t, TensorId> sums_, counts_;       ///< by entry
  std::map<size_t, std::vector<TensorId>> parts_;  ///< by entry
  // Of the piece.
  UnitRange here_;
  std::map<TensorId, TensorId> made_;
  std::map<std::pair<TensorId, Share>, TensorId> cut_;
  std::set<TensorId> turned_;
  int loc_ = -1;
};

/// A piece's products should still be large ones, and there are not to be many kernels.
int64_t most_pieces(const Flow& flow, const ByRows& rows) {
  const Entry& product = flow.entry(static_cast<int>(rows.product));
  const TensorInfo& made = flow.info(product.results[0].tensors[0]);
  const int64_t fewest_rows = device::is_processor(made.device) ? 128 : 512;
  constexpr int64_t kMost = 32;
  return std::min({rows.units, made.sizes[0] / fewest_rows, kMost});
}

/// The tape in so many pieces, or as it is, and where each has its peak.
class Choosing {
 public:
  Choosing(const Joint& joint, const Prices& prices) : joint_(joint), prices_(prices), flow_(joint, prices) {}

  HeadPlan choose(const Budget& budget) {
    const ByRows rows = rows_of(flow_);
    const int64_t most = most_pieces(flow_, rows);
    if (most < 2) throw_unsupported("its rows are few");
    Budget within = budget;
    if (!budget.bytes) {
      const int64_t usual = peak(joint_, {}),
                    least = std::min(peak(joint_, kLeast), peak(head_in_pieces(flow_, rows, most), kLeast));
      within.share.reset();
      within.bytes = least + static_cast<int64_t>(*budget.share * static_cast<double>(usual - least));
    }
    HeadPlan best{{}, within};
    int64_t lowest = peak(joint_, within);
    for (int64_t pieces = 2; lowest > *within.bytes && pieces <= most; pieces = next(pieces, most)) {
      Joint tried = head_in_pieces(flow_, rows, pieces);
      const int64_t its = peak(tried, within);
      if (its >= lowest) continue;
      lowest = its;
      best.joint = std::move(tried);
    }
    return best;
  }

 private:
  static int64_t next(int64_t pieces, int64_t most) {
    return pieces < most ? std::min(2 * pieces, most) : most + 1;
  }
  int64_t peak(const Joint& joint, const Budget& budget) const {
    return partition(joint, budget, prices_).memory.peak;
  }

  const Budget kLeast{.share = 0.0, .bytes = {}};
  const Joint& joint_;
  const Prices& prices_;
  const Flow flow_;
};

}  // namespace

Joint head_in_pieces(const Flow& flow, const ByRows& rows, int64_t pieces) {
  return PieceWriter(flow, rows, pieces).make();
}

HeadPlan plan_head(const Joint& joint, const Budget& budget, const Prices& prices) {
  const bool asked = budget.bytes || (budget.share && *budget.share < 1);
  if (!asked || (budget.share && !(*budget.share >= 0))) return {{}, budget};
  try {
    if (!joint.symbols.empty()) throw_unsupported("sizes or numbers differ between calls");
    return Choosing(joint, prices).choose(budget);
  } catch (const Unsupported& error) {
    if (log_wanted("perf_hints"))
      log("perf_hints", std::string("the largest product is not computed in pieces: ") + error.what());
    return {{}, budget};
  }
}

}  // namespace bolt::autograd
