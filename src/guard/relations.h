// guard/relations.h
// Objects -> "is the same object found at the same places, and different ones where the run told them apart?"
//
// No word of a memory (memory.h) proves this: words prove that a place holds what it held, and what was found
// there by a walk may still be what lies at another place. So relations are asked after every walk, until
// they held once.
#pragma once

#include <string>
#include <vector>

#include "guard/source.h"

namespace bolt::guard {

/// Two places that held the same object, or two.
struct Alias {
  const Source *a, *b;
  bool same;
};

struct Relations {
  std::vector<Alias> aliases;
  std::vector<const Apart*> apart;

  bool empty() const { return aliases.empty() && apart.empty(); }
  /// `objects`: by register. `why`, where not null: the first that does not hold.
  bool hold(const std::vector<PyObject*>& objects, const std::vector<std::string>& root_names,
            std::string* why) const;
};

}  // namespace bolt::guard
