// lower/families.h
// Families of rows that share more than the table: who adds them, and which images they take.
//
// A read at places that do not follow one another takes an instruction for each element on the processor,
// where ATen's kernels copy runs. So rows that read images so are for those whose channels lie innermost,
// each place being a run of them: as they are given, or as convolutions will have them lie (loops/layout.h).
// On other devices any order is as good.
#pragma once

#include "lower/lowering.h"

namespace bolt::lower {

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

/// Of a batch_norm, and the running statistics that it writes.
std::vector<Value*> native_batch_norm(Call& c);
/// Of a pad that continues what is inside: `aten::pad` by its mode.
std::vector<Value*> bordered_pad(Call& c);
/// Is an image [N, C, ...] one that is read at places, by what is said above?
bool is_read_at_places(const Call& c, std::string_view name);

}  // namespace bolt::lower
