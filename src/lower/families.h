// lower/families.h
// The families of rows: who adds them, how, and what they share, as which images they take.
//
// A read at places that do not follow one another takes an instruction for each element on the processor,
// where ATen's kernels copy runs. So rows that read images so are for those whose channels lie innermost,
// each place being a run of them, which is stored as a run as well: as eager's images and results lie, or as
// convolutions will have them lie (loops/layout.h). On other devices any order is as good.
#pragma once

#include "lower/formula.h"

namespace bolt::lower {

// One file per family adds its rows.
void add_pointwise(Table& t);
void add_views(Table& t);
void add_reductions(Table& t);
void add_creation(Table& t);
void add_indexing(Table& t);
void add_nn(Table& t);
void add_resample(Table& t);
void add_borders(Table& t);
void add_grid_samples(Table& t);
void add_patches(Table& t);
void add_pools(Table& t);
void add_scans(Table& t);
void add_scatters(Table& t);
void add_distances(Table& t);
void add_named_products(Table& t);
void add_short_formulas(Table& t);
void add_special_functions(Table& t);
// Of what only occurs below autograd and in backward passes.
void add_activations(Table& t);
void add_normalisations(Table& t);
void add_losses(Table& t);
void add_movements(Table& t);
// Of lists of tensors.
void add_optimizers(Table& t);

/// Adds rows by the names of ATen's operators, with each of the overloads.
struct RowsByName {
  Table& table;
  std::vector<const char*> overloads = {""};

  void operator()(Builder build, const std::vector<std::string>& names) const {
    add({.build = build}, names);
  }
  /// Rows that look at no element.
  void moving(Builder build, const std::vector<std::string>& names) const {
    add({.build = build, .moves = true}, names);
  }
  void operator()(Viewer view, const std::vector<std::string>& names) const { add({.view = view}, names); }
  void add(const Lowering& row, const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      for (const char* overload : overloads) table["aten::" + name + overload] = row;
  }
};

/// Of a batch_norm, and the running statistics that it writes.
std::vector<Value*> native_batch_norm(Call& c);
/// As formulas, whose epsilon may differ between calls.
std::vector<Value*> native_layer_norm(Call& c);
std::vector<Value*> native_rms_norm(Call& c);
std::vector<Value*> native_group_norm(Call& c);
/// Of a pad that continues what is inside: `aten::pad` by its mode.
std::vector<Value*> bordered_pad(Call& c);
/// x[:, i, j] with whole numbers for dimensions side by side: these as one dimension `dim`, in which i * size
/// + j is the `place`. Negative numbers count from the end.
struct Indexed {
  int64_t dim;
  Term place;
  Syms flat;   ///< sizes of x with that dimension
  Syms whole;  ///< of what lies there: those of the places instead of it
};
/// Nothing: it has other indices.
std::optional<Indexed> indexed(Call& c, const Syms& sizes);
/// An index counted from the end where it is negative.
Term from_start(const Formula& f, Term number, Sym size);
/// Are kernels as quick as ATen's norm over groups of this image's channels? On the processor a vector is
/// filled by channels of one group, where these lie innermost: not by a few.
bool fills_vectors(const Call& c, std::string_view name, int64_t groups);
/// Is an image [N, C, ...] one that is read at places, by what is said above?
bool is_read_at_places(const Call& c, std::string_view name);

}  // namespace bolt::lower
