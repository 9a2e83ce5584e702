// record/selected_sizes.cpp
#include "record/selected_sizes.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string_view>

#include "device/host/host.h"
#include "record/operator_facts.h"

namespace bolt::record {
namespace {

constexpr int kMostMakers = 16;

const TensorInfo& info_of(const Tape& tape, TensorId id) { return tape.tensors[static_cast<size_t>(id)]; }

const Entry* maker_of(const Tape& tape, TensorId id) {
  const int producer = id < 0 ? -1 : info_of(tape, id).producer;
  const bool is_known = producer >= 0 && static_cast<size_t>(producer) < tape.entries.size();
  return is_known ? &tape.entries[static_cast<size_t>(producer)] : nullptr;
}

bool is_written(const Tape& tape, TensorId id) {
  const int storage = info_of(tape, id).storage;
  return std::ranges::any_of(tape.entries, [&](const Entry& entry) {
    return !entry.facts->turns && std::ranges::any_of(written_arguments(entry), [&](int a) {
      return std::ranges::any_of(entry.args[static_cast<size_t>(a)].tensors, [&](TensorId written) {
        return written >= 0 && info_of(tape, written).storage == storage;
      });
    });
  });
}

bool are_made_alike(const Tape& tape, TensorId a, TensorId b, int steps) {
  if (a == b) return a < 0 || !is_written(tape, a);
  const Entry *x = maker_of(tape, a), *y = maker_of(tape, b);
  if (!x || !y || steps == kMostMakers || !(x->op == y->op)) return false;
  if (!x->facts->ordinary || x->facts->uninitialised || x->facts->returns != 1) return false;
  if (is_written(tape, a) || is_written(tape, b)) return false;
  for (size_t i = 0; i < x->args.size(); ++i) {
    const Arg &p = x->args[i], &q = y->args[i];
    if (p.kind != q.kind || p.tensors.size() != q.tensors.size() || !p.syms.empty() || !q.syms.empty())
      return false;
    const bool is_number = p.kind == Arg::Kind::Value || p.kind == Arg::Kind::WrappedNumber;
    if (is_number && !(p.tensors.empty() && p.value == q.value)) return false;
    for (size_t t = 0; t < p.tensors.size(); ++t)
      if (!are_made_alike(tape, p.tensors[t], q.tensors[t], steps + 1)) return false;
  }
  return true;
}

/// What nonzero gave, of which these are places.
TensorId matrix_behind(const Tape& tape, TensorId places) {
  for (int steps = 0; steps < kMostMakers; ++steps) {
    const Entry* maker = maker_of(tape, places);
    if (!maker || maker->args.empty() || maker->args[0].tensors.empty()) return -1;
    const std::string_view name = maker->op.operator_name().name;
    if (name == "aten::nonzero") return places;
    if (name != "aten::unbind" && name != "aten::squeeze" && name != "aten::select") return -1;
    places = maker->args[0].tensors[0];
  }
  return -1;
}

/// Of x[places]: the dimension along which it has a row for each place, how many of x's these are, and whose
/// places they are.
struct IndexedRows {
  int dim, count;
  TensorId matrix;
};
std::optional<IndexedRows> rows_of_index(const Tape& tape, const Entry& entry) {
  const TensorIds& indices = entry.args[1].tensors;
  std::optional<IndexedRows> found;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0) continue;
    const TensorId matrix = matrix_behind(tape, indices[i]);
    if (matrix < 0) return std::nullopt;
    if (!found)
      found = {static_cast<int>(i), 1, matrix};
    else if (matrix == found->matrix && found->dim + found->count == static_cast<int>(i))
      ++found->count;
    else
      return std::nullopt;
  }
  return found;
}

/// The first that was found of the same mask.
TensorId first_alike(const Tape& tape, TensorId matrix) {
  const TensorId mask = maker_of(tape, matrix)->args[0].tensors[0];
  for (const Entry& entry : tape.entries)
    if (entry.op.operator_name().name == "aten::nonzero" &&
        hold_the_same(tape, entry.args[0].tensors[0], mask))
      return entry.results[0].tensors[0];
  return matrix;
}

/// Is its result as large as its only argument, element by element?
bool shows_all(const Entry& entry) {
  const std::string& name = entry.op.operator_name().name;
  return name == "aten::alias" || name == "aten::detach" || name == "aten::clone" || name == "aten::_to_copy";
}

std::optional<SizeOrigin> behind(const Tape& tape, TensorId tensor, int dim, int steps) {
  if (!info_of(tape, tensor).data_sized) return SizeOrigin{tensor, dim};
  const Entry* maker = maker_of(tape, tensor);
  if (!maker || steps == kMostMakers) return std::nullopt;
  if (maker->op.operator_name().name == "aten::index") {
    const auto rows = rows_of_index(tape, *maker);
    if (!rows) return std::nullopt;
    if (rows->dim == dim) return SizeOrigin{first_alike(tape, rows->matrix), 0};
    return behind(tape, maker->args[0].tensors[0], dim < rows->dim ? dim : dim + rows->count - 1, steps + 1);
  }
  if (maker->op.operator_name().name == "aten::index_select") {
    const TensorId x = maker->args[0].tensors[0], matrix = matrix_behind(tape, maker->args[2].tensors[0]);
    const auto rank = static_cast<int64_t>(info_of(tape, x).sizes.size());
    const int64_t along = maker->args[1].value.toInt();
    const bool is_selected = dim == (along < 0 ? along + rank : along);
    if (!is_selected) return behind(tape, x, dim, steps + 1);
    return matrix < 0 ? std::nullopt : std::optional(SizeOrigin{first_alike(tape, matrix), 0});
  }
  if (maker->facts->keeps_sizes || shows_all(*maker))
    return behind(tape, maker->args[0].tensors[0], dim, steps + 1);
  const bool selects = maker->op.operator_name().name == "aten::select";
  if (selects || maker->op.operator_name().name == "aten::slice") {
    const TensorId x = maker->args[0].tensors[0];
    const auto rank = static_cast<int64_t>(info_of(tape, x).sizes.size());
    const int64_t given = maker->args[1].value.toInt(), along = given < 0 ? given + rank : given;
    if (!selects && dim == along) return std::nullopt;
    return behind(tape, x, selects && dim >= along ? dim + 1 : dim, steps + 1);
  }
  if (!maker->op.hasTag(at::Tag::pointwise) || !written_arguments(*maker).empty()) return std::nullopt;
  const int along = static_cast<int>(info_of(tape, tensor).sizes.size()) - dim;
  for (const Arg& arg : maker->args)
    for (TensorId id : arg.tensors) {
      const int here = id < 0 ? -1 : static_cast<int>(info_of(tape, id).sizes.size()) - along;
      if (here < 0 || info_of(tape, id).sizes[static_cast<size_t>(here)] == 1) continue;
      if (const auto found = behind(tape, id, here, steps + 1)) return found;
    }
  return std::nullopt;
}

}  // namespace

bool hold_the_same(const Tape& tape, TensorId a, TensorId b) { return are_made_alike(tape, a, b, 0); }

bool has_data_sizes_on_device(const Tape& tape) {
  return std::ranges::any_of(tape.tensors, [](const TensorInfo& info) {
    return info.data_sized && !device::is_processor(info.device);
  });
}

std::optional<SizeOrigin> selected_size(const Tape& tape, TensorId tensor, int dim) {
  return behind(tape, tensor, dim, 0);
}

std::optional<SizeOrigin> size_in(const Tape& tape, TensorId number) {
  const Entry* first = maker_of(tape, number);
  if (!first || first->op.operator_name().name != "aten::select" || !first->args[2].value.isInt() ||
      first->args[2].value.toInt() != 0)
    return std::nullopt;
  const TensorId counts = first->args[0].tensors[0];
  const Entry* pack = maker_of(tape, counts);
  if (!pack || pack->op.operator_name().name != "aten::_pack_padded_sequence" ||
      pack->results[1].tensors[0] != counts || is_written(tape, counts))
    return std::nullopt;
  return SizeOrigin{pack->args[0].tensors[0], pack->args[2].value.toBool() ? 0 : 1};
}

}  // namespace bolt::record
