// observe/rebuild/saved_recipe.h
// Recipe -> ArchiveWriter -> Recipe, in another process.
#pragma once

#include "observe/rebuild/recipe.h"
#include "python/archive.h"

namespace bolt::observe {

void write_recipe(ArchiveWriter& out, const Recipe& recipe);
/// Throws Error where it is not whole.
Recipe read_recipe(ArchiveReader& in);

}  // namespace bolt::observe
