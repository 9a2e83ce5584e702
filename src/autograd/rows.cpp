// autograd/rows.cpp
#include "autograd/rows.h"

#include <ATen/core/Reduction.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "autograd/row_work.h"
#include "autograd/work.h"
#include "record/operator_facts.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::TensorId;
using record::TensorInfo;
using Kind = Member::Kind;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

TensorId result_of(const Entry& entry, size_t i = 0) {
  return entry.results.size() > i && entry.results[i].tensors.size() == 1 ? entry.results[i].tensors[0] : -1;
}

class Finding {
 public:
  Finding(const Flow& flow, size_t product, int64_t units)
      : flow_(flow), lies_(tensors().size()), of_little_(tensors().size()) {
    rows_.product = product;
    rows_.units = units;
    rows_.members.resize(flow.entries.size());
    rows_.level.resize(flow.entries.size());
    large_ = info(made_by(product)).elements() / kLarge;
  }

  ByRows find() {
    begin_at_product();
    for (size_t i = 0; i < flow_.entries.size(); ++i)
      if (i != rows_.product) look_at(i);
    drop_what_leads_nowhere();
    find_ends();
    check_writes();
    count_loops();
    return std::move(rows_);
  }

 private:
  /// What has this part of the product's elements is as large as it.
  static constexpr int64_t kLarge = 4;

  enum class Lies : uint8_t { Whole, Rows, Columns };

  const Growing<TensorInfo>& tensors() const { return flow_.joint.tape.tensors; }
  const TensorInfo& info(TensorId id) const { return flow_.info(id); }
  const Entry& entry(size_t i) const { return flow_.entry(static_cast<int>(i)); }
  Work work(size_t i) const { return flow_.entries[i].work; }
  Lies lies(TensorId id) const { return lies_[id]; }
  Member& member(size_t i) { return rows_.members[i]; }
  TensorId made_by(size_t i) const { return result_of(entry(i)); }
  size_t lead(TensorId id) const { return rows_.lead(info(id)); }
  bool is_large(TensorId id) const { return info(id).elements() >= large_; }
  bool is_contiguous(TensorId id) const {
    int64_t run = 1;
    const TensorInfo& it = info(id);
    for (size_t d = it.sizes.size(); d-- > 0; run *= it.sizes[d])
      if (it.sizes[d] != 1 && it.strides[d] != run) return false;
    return true;
  }
  /// Memory of its own, row by row, as a piece of it will have.
  bool is_plain(TensorId id) const { return is_contiguous(id) && info(id).offset == 0 && info(id).plain; }

  [[noreturn]] void refuse(size_t i, const std::string& why) const {
    throw_unsupported(entry(i).op.operator_name().name, ": ", why);
  }

  // ---- what each entry does with rows

  void begin_at_product() {
    const Entry& it = entry(rows_.product);
    const bool with_bias = base_name(it) == "addmm";
    const TensorId made = made_by(rows_.product);
    if (!is_plain(made) || lead(made) != 1) refuse(rows_.product, "rows that are no units");
    if (flow_.entries[rows_.product].checkpoint >= 0) refuse(rows_.product, "it is checkpointed");
    Member& first = member(rows_.product);
    if (with_bias && !is_the_same_in_rows(it.args[0].tensors[0], made))
      refuse(rows_.product, "a sum with another tensor by rows");
    if (with_bias) first.shares.push_back(Share::Whole);
    first.shares.push_back(Share::Rows);
    first.shares.push_back(Share::Whole);
    first.kind = Kind::Band;
    set(made, Lies::Rows);
  }

  void set(TensorId id, Lies how) { lies_[id] = how; }

  void look_at(size_t i) {
    const Entry& it = entry(i);
    bool any = false, large = false;
    for_each_tensor(it.args, [&](TensorId id) {
      any |= lies(id) != Lies::Whole;
      large |= is_head(id) && is_large(id);
    });
    if (!any && !is_made_of_little(i)) return;
    if (becomes_member(i)) {
      bool of_head = false;
      for_each_tensor(it.args, [&](TensorId id) { of_head |= is_head(id); });
      if (!of_head) for_each_tensor(it.results, [&](TensorId id) { of_little_[id] = true; });
      return;
    }
    member(i) = Member();
    if (large) refuse(i, "it is not computed by rows");
  }
  bool is_head(TensorId id) const { return lies(id) != Lies::Whole && !of_little_[id]; }

  /// Masks, gradients of means and the like: as large as what is computed by rows, and made where they are
  /// read.
  bool is_made_of_little(size_t i) const {
    const TensorId made = made_by(i);
    if (work(i) != Work::Pointwise || made < 0 || !is_large(made) || !flow_.entries[i].writes.empty())
      return false;
    bool little = true;
    for_each_tensor(entry(i).args, [&](TensorId id) {
      const Storage& storage = flow_.storages[flow_.storage_of(id)];
      little &= storage.bytes * kLarge <= info(made).elements();
    });
    return little && lead(made) > 0 && !entry(i).args.empty();
  }

  bool becomes_member(size_t i) {
    const Entry& it = entry(i);
    if (base_name(it).empty() || flow_.entries[i].checkpoint >= 0 || it.facts->draws || it.own_version)
      return false;
    for (const Arg& arg : it.args)
      if (arg.kind == Arg::Kind::TensorList || (arg.kind == Arg::Kind::Value && !arg.tensors.empty()))
        return false;
    member(i).kind = Kind::Band;
    if (any_written(it, [&](TensorId id) { return lies(id) == Lies::Whole; })) return false;
    const std::string_view name = base_name(it);
    if (name == "mm") return is_product(i, 0);
    if (name == "addmm") return is_product(i, 1);
    if (name == "nll_loss_forward") return is_loss(i);
    if (is_one_of(name, {"t", "transpose", "permute"})) return is_turned(i);
    if (is_one_of(name, {"view", "_unsafe_view", "unsqueeze", "detach", "alias"})) return is_flat(i);
    // A piece may have one row where the whole has more, and that is not squeezed.
    if (name == "squeeze") return squeezes_ones(i) && is_flat(i);
    if (name == "slice_backward") return is_inner(i);
    if (name == "nll_loss_backward") return is_loss_backward(i);
    if (is_one_of(name, {"new_zeros", "new_ones", "new_full"})) return is_filled(i);
    if (name == "expand") return is_expanded(i);
    switch (row_work_of(it)) {
      case RowWork::by_element: return is_pointwise(i);
      case RowWork::along_dim: return is_inner(i);
      case RowWork::sum: return is_sum(i);
      case RowWork::loss:
      case RowWork::loss_of_classes:
      case RowWork::unknown: return false;
    }
    return false;
  }

  bool gives_rows(size_t i) {
    const TensorId made = made_by(i);
    if (made < 0 || entry(i).results.size() != 1 || lead(made) == 0) return false;
    const bool is_new =
        std::ranges::find(flow_.entries[i].makes, flow_.storage_of(made)) != flow_.entries[i].makes.end();
    if (is_new && !is_plain(made)) return false;
    set(made, Lies::Rows);
    return true;
  }

  bool same_lead(TensorId id, TensorId of) const {
    const TensorInfo &a = info(id), &b = info(of);
    const size_t m = lead(of);
    return m > 0 && a.sizes.size() == b.sizes.size() &&
           std::equal(a.sizes.begin(), a.sizes.begin() + static_cast<std::ptrdiff_t>(m), b.sizes.begin());
  }
  /// Stretched over what counts the rows of `of`.
  bool is_the_same_in_rows(TensorId id, TensorId of) const {
    const TensorInfo &a = info(id), &b = info(of);
    const size_t missing = b.sizes.size() - std::min(a.sizes.size(), b.sizes.size());
    for (size_t d = missing; d < lead(of); ++d)
      if (a.sizes[d - missing] != 1) return false;
    return true;
  }

  /// Beside `of`, which has rows.
  bool takes(size_t i, TensorId id, TensorId of) {
    auto& shares = member(i).shares;
    if (id < 0 || (lies(id) == Lies::Whole && is_the_same_in_rows(id, of)))
      return shares.push_back(Share::Whole), true;
    if (lies(id) == Lies::Columns || !same_lead(id, of)) return false;
    return takes_rows(i, id);
  }
  bool takes_rows(size_t i, TensorId id) {
    if (lies(id) == Lies::Columns) return false;
    if (lies(id) == Lies::Whole && !can_be_cut(id)) return false;
    member(i).shares.push_back(lies(id) == Lies::Rows ? Share::Made : Share::Rows);
    return true;
  }
  /// Its first dimensions are one dimension, or only the first of them is cut.
  bool can_be_cut(TensorId id) const {
    const TensorInfo& it = info(id);
    const size_t m = lead(id);
    if (m == 0) return false;
    for (size_t d = 0; d + 1 < m; ++d)
      if (it.sizes[d] != 1 && it.strides[d] != it.strides[d + 1] * it.sizes[d + 1]) return false;
    return true;
  }

  bool all_take(size_t i, TensorId of) {
    for (const Arg& arg : entry(i).args)
      for (TensorId id : arg.tensors)
        if (!takes(i, id, of)) return false;
    return true;
  }

  bool is_pointwise(size_t i) {
    const TensorId made = made_by(i);
    return made >= 0 && lead(made) > 0 && all_take(i, made) && gives_rows(i);
  }

  bool is_filled(size_t i) {
    const TensorId of = entry(i).args[0].tensors[0];
    return made_by(i) >= 0 && same_lead(of, made_by(i)) && takes_rows(i, of) && gives_rows(i);
  }

  bool is_expanded(size_t i) {
    const TensorId of = entry(i).args[0].tensors[0], made = made_by(i);
    return made >= 0 && lies(of) == Lies::Rows && same_lead(of, made) && takes_rows(i, of) && gives_rows(i);
  }

  /// Elements keep their order, and so do units.
  bool is_flat(size_t i) {
    const TensorId of = entry(i).args[0].tensors[0], made = made_by(i);
    if (made < 0 || lies(of) != Lies::Rows) return false;
    // Others are views of parts of rows, which have gaps.
    if (base_name(entry(i)).ends_with("view") && !is_contiguous(of)) return false;
    member(i).shares.push_back(Share::Made);
    return gives_rows(i);
  }

  bool squeezes_ones(size_t i) const {
    const TensorInfo& of = info(entry(i).args[0].tensors[0]);
    return has_dims(i) && std::ranges::all_of(dims_of(entry(i), of.sizes.size()),
                                              [&](int64_t d) { return of.sizes[d] == 1; });
  }
  bool has_dims(size_t i) const { return value_of(entry(i), "dim"); }

  bool is_turned(size_t i) {
    const TensorId of = entry(i).args[0].tensors[0], made = made_by(i);
    if (made < 0 || info(of).sizes.size() != 2 || (lies(of) == Lies::Rows && lead(of) != 1)) return false;
    if (info(made).sizes[0] != info(of).sizes[1] || info(made).strides[0] != info(of).strides[1])
      return false;
    member(i).shares.push_back(Share::Made);
    set(made, lies(of) == Lies::Rows ? Lies::Columns : Lies::Rows);
    return true;
  }

  /// Along dimensions behind those that count rows.
  bool is_inner(size_t i) {
    const Entry& it = entry(i);
    const TensorId of = it.args[0].tensors[0];
    const TensorId made = made_by(i);
    const bool back = base_name(it) == "slice_backward";
    if (of < 0 || made < 0 || lead(made) == 0 || !has_dims(i)) return false;
    for (int64_t d : dims_of(it, info(of).sizes.size()))
      if (d < static_cast<int64_t>(back ? lead(made) : lead(of))) return false;
    if (any_tensor(it.args, [&](TensorId id) { return !same_lead(id, of) || !takes_rows(i, id); }))
      return false;
    if (lead(of) == 0 || lead(made) != lead(of)) return false;
    return gives_rows(i);
  }

  bool is_sum(size_t i) {
    const Entry& it = entry(i);
    const TensorId of = it.args[0].tensors[0];
    if (lies(of) != Lies::Rows) return false;
    const bool named = has_dims(i);
    const size_t rank = info(of).sizes.size();
    std::vector<int64_t> dims = named ? dims_of(it, rank) : std::vector<int64_t>();
    const auto m = static_cast<int64_t>(lead(of));
    if (named && std::ranges::all_of(dims, [&](int64_t d) { return d >= m; })) return is_inner(i);
    for (int64_t d = 0; named && d < m; ++d)
      if (std::ranges::find(dims, d) == dims.end()) return false;
    if (!is_large(of)) return false;  // what is left is summed up as a whole
    const bool mean = base_name(it) == "mean";
    if (mean && !info(made_by(i)).sizes.empty()) return false;
    member(i).shares.push_back(Share::Made);
    member(i).kind = mean ? Kind::Mean : Kind::Sum;
    return true;
  }

  bool is_product(size_t i, size_t first) {
    const Entry& it = entry(i);
    const TensorId a = it.args[first].tensors[0], b = it.args[first + 1].tensors[0], made = made_by(i);
    if (lies(a) == Lies::Rows && lies(b) == Lies::Whole) {
      if (first > 0 &&
          (lies(it.args[0].tensors[0]) != Lies::Whole || !is_the_same_in_rows(it.args[0].tensors[0], made)))
        return false;
      if (first > 0) member(i).shares.push_back(Share::Whole);
      member(i).shares.push_back(Share::Made);
      member(i).shares.push_back(Share::Whole);
      if (!is_plain(made)) return false;
      if (is_large(made) && i < flow_.joint.backward) return gives_rows(i);
      member(i).kind = Kind::Joined;
      return true;
    }
    const bool sums = first == 0 &&
                      (lies(a) == Lies::Columns || (lies(a) == Lies::Whole && is_cut_by_columns(a))) &&
                      (lies(b) == Lies::Rows || (lies(b) == Lies::Whole && lead(b) == 1));
    if (!sums) return false;
    member(i).shares.push_back(lies(a) == Lies::Columns ? Share::Made : Share::Columns);
    member(i).shares.push_back(lies(b) == Lies::Rows ? Share::Made : Share::Rows);
    member(i).kind = Kind::Contract;
    return true;
  }
  bool is_cut_by_columns(TensorId id) const { return info(id).sizes[1] % rows_.units == 0; }

  bool is_loss(size_t i) {
    const Entry& it = entry(i);
    const TensorId of = it.args[0].tensors[0], labels = it.args[1].tensors[0];
    if (lies(of) != Lies::Rows || info(of).sizes.size() != 2 || !has_label_each(labels, of)) return false;
    const bool of_each = value_of(it, "reduction")->toInt() == at::Reduction::None;
    for (Share share : {Share::Made, Share::Rows, Share::Whole}) member(i).shares.push_back(share);
    member(i).kind = of_each ? Kind::Joined : Kind::Loss;
    member(i).counts_labels = true;
    return true;
  }
  bool has_label_each(TensorId labels, TensorId of) const {
    return lies(labels) == Lies::Whole && info(labels).sizes.size() == 1 && lead(labels) == 1 &&
           info(labels).sizes[0] == info(of).sizes[0];
  }

  bool is_loss_backward(size_t i) {
    const Entry& it = entry(i);
    const TensorId gradient = it.args[0].tensors[0], of = it.args[1].tensors[0],
                   labels = it.args[2].tensors[0];
    if (lies(of) != Lies::Rows || info(of).sizes.size() != 2 || !has_label_each(labels, of)) return false;
    if (info(gradient).sizes.empty())
      member(i).shares.push_back(Share::Whole);
    else if (lead(gradient) != 1 || !takes_rows(i, gradient))
      return false;
    for (Share share : {Share::Made, Share::Rows, Share::Whole, Share::Whole})
      member(i).shares.push_back(share);
    return gives_rows(i);
  }

  // ---- which of these are computed so

  /// Few numbers a row are made of others as a whole, unless what is large is made of them.
  void drop_what_leads_nowhere() {
    std::vector<bool> read(tensors().size());
    for (size_t i = flow_.entries.size(); i-- > 0;) {
      Member& it = member(i);
      if (it.kind == Kind::None) continue;
      bool leads = it.ends();
      for_each_tensor(entry(i).results, [&](TensorId id) { leads |= is_large(id) || read[id]; });
      for_each_tensor(entry(i).args, [&](TensorId id) { leads |= is_head(id) && is_large(id); });
      if (!leads) {
        for_each_tensor(entry(i).results, [&](TensorId id) { set(id, Lies::Whole); });
        it = Member();
        continue;
      }
      for_each_tensor(entry(i).args, [&](TensorId id) { read[id] = true; });
    }
  }

  /// What others want as a whole is put together.
  void find_ends() {
    for (const auto* ids : {&flow_.joint.outputs, &flow_.joint.gradients})
      for (TensorId id : *ids)
        if (id >= 0) want_whole(id);
    for (size_t i = flow_.entries.size(); i-- > 0;)
      if (member(i).kind == Kind::None || member(i).also_whole)
        for_each_tensor(entry(i).args, [&](TensorId id) { want_whole(id); });
  }

  void want_whole(TensorId id) {
    const int producer = info(id).producer;
    if (info(id).input >= 0 || producer < 0) return;
    Member& it = member(static_cast<size_t>(producer));
    if (it.kind != Kind::Band) return;
    if (work(static_cast<size_t>(producer)) == Work::View || of_little_[id]) {
      it.also_whole = true;
      return;
    }
    if (is_large(id)) refuse(static_cast<size_t>(producer), "its result is wanted as a whole");
    it.kind = Kind::Joined;
    const Storage& storage = flow_.storages[flow_.storage_of(id)];
    if (storage.makers.size() != 1) refuse(static_cast<size_t>(producer), "its result is written to");
  }

  /// Members read later than they stand.
  void check_writes() const {
    std::set<int> read;
    for (size_t i = 0; i < flow_.entries.size(); ++i)
      if (rows_.members[i].kind != Kind::None)
        for (int s : flow_.entries[i].reads) read.insert(s);
    bool begun = false;
    for (size_t i = 0; i < flow_.entries.size(); ++i) {
      begun |= rows_.members[i].kind != Kind::None;
      if (!begun || rows_.members[i].kind != Kind::None) continue;
      for (int s : flow_.entries[i].writes)
        if (read.contains(s)) refuse(i, "it writes to what is read by rows");
    }
  }

  // ---- loops

  void count_loops() {
    whole_.resize(flow_.storages.size());
    std::vector<int> here(tensors().size());  // the same of some rows of a tensor
    int first_backward = 0;
    for (size_t i = 0; i < flow_.entries.size(); ++i) {
      const EntryFlow& it = flow_.entries[i];
      Member& m = member(i);
      if (m.kind == Kind::None || m.also_whole) {
        int& level = rows_.level[i];
        if (!fills_alike(entry(i)))
          for (const auto* list : {&it.reads, &it.writes})
            for (int s : *list) level = std::max(level, waits(s));
        for (const auto* list : {&it.makes, &it.writes})
          for (int s : *list) waits(s) = level;
      }
      if (m.kind == Kind::None) continue;
      int loops = m.ends() && i >= flow_.joint.backward ? first_backward : 0;
      size_t next = 0;
      for (const Arg& arg : entry(i).args)
        for (TensorId id : arg.tensors) {
          const bool is_here = m.shares.at(next++) == Share::Made;
          if (id >= 0) loops = std::max(loops, is_here ? here[id] : waits(flow_.storage_of(id)));
        }
      for_each_tensor(entry(i).results, [&](TensorId id) { here[id] = std::max(here[id], loops); });
      if (!m.ends()) continue;
      m.loop = loops;
      const auto count = static_cast<size_t>(loops) + 1;
      if (rows_.loop_backward.size() < count) rows_.loop_backward.resize(count, i >= flow_.joint.backward);
      if (i < flow_.joint.backward) first_backward = std::max(first_backward, loops + 1);
      for (int s : it.makes) waits(s) = loops + 1;
      // How many labels count is known before.
      if (const TensorId labels = m.counts_labels ? result_of(entry(i), 1) : -1; labels >= 0)
        waits(flow_.storage_of(labels)) = loops;
    }
    if (rows_.loop_backward.empty()) throw_unsupported("a product whose rows lead to nothing");
  }
  int& waits(int storage) { return whole_[storage]; }

  const Flow& flow_;
  ByRows rows_;
  std::vector<Lies> lies_;
  std::vector<int> whole_;       ///< by storage: how many loops it waits for
  std::vector<bool> of_little_;  ///< by tensor: it has rows, and is not made of the product
  int64_t large_ = 0;
};

/// In the order in which they are tried: rows, then sequences.
std::vector<int64_t> ways_to_count(const Flow& flow, size_t product) {
  const TensorInfo& made = flow.info(result_of(flow.entry(static_cast<int>(product))));
  const int64_t rows = made.sizes[0], count = made.elements();
  std::set<int64_t, std::greater<>> others;
  for (const Entry& entry : flow.joint.tape.entries)
    for_each_tensor(entry.results, [&](TensorId id) {
      const TensorInfo& info = flow.info(id);
      if (info.sizes.size() > 1 && info.elements() * 4 >= count && rows % info.sizes[0] == 0 &&
          info.sizes[0] > 1 && info.sizes[0] < rows)
        others.insert(info.sizes[0]);
    });
  std::vector<int64_t> ways{rows};
  ways.insert(ways.end(), others.begin(), others.end());
  return ways;
}

/// The forward part's product that gives most, and more than whatever else is made there of it.
std::optional<size_t> largest_product(const Flow& flow) {
  std::optional<size_t> found;
  int64_t most = 0;
  for (size_t i = 0; i < flow.joint.backward; ++i) {
    const std::string_view name = base_name(flow.entry(static_cast<int>(i)));
    const TensorId made = result_of(flow.entry(static_cast<int>(i)));
    if ((name != "mm" && name != "addmm") || made < 0 || flow.info(made).elements() <= most) continue;
    most = flow.info(made).elements();
    found = i;
  }
  return found;
}

}  // namespace

bool fills_alike(const Entry& entry) {
  return is_one_of(base_name(entry), {"ones_like", "zeros_like", "full_like"});
}

size_t ByRows::lead(const record::TensorInfo& info) const {
  int64_t count = 1;
  for (size_t d = 0; d < info.sizes.size(); ++d) {
    count *= info.sizes[d];
    if (count > 0 && count % units == 0) return d + 1;
  }
  return 0;
}

ByRows rows_of(const Flow& flow) {
  const auto product = largest_product(flow);
  if (!product) throw_unsupported("there is no product");
  std::string why;
  for (int64_t units : ways_to_count(flow, *product)) {
    try {
      return Finding(flow, *product, units).find();
    } catch (const Unsupported& error) {
      if (why.empty()) why = error.what();
    }
  }
  throw_unsupported(why);
}

}  // namespace bolt::autograd
