// support/size_fact.h
// What a program took for granted about sizes: `s0 <= 512`, `s0 == s1`. A guard, once its symbols are those
// of inputs.
#pragma once

#include <string>
#include <vector>

#include "support/sym.h"

namespace bolt {

enum class Relation : uint8_t { eq, ne, lt, le };

inline bool holds(int64_t a, Relation relation, int64_t b) {
  switch (relation) {
    case Relation::eq: return a == b;
    case Relation::ne: return a != b;
    case Relation::lt: return a < b;
    case Relation::le: return a <= b;
  }
  return false;
}
inline Relation opposite(Relation r) {  // of a < b: b <= a, so the sides change with lt and le
  return r == Relation::eq   ? Relation::ne
         : r == Relation::ne ? Relation::eq
         : r == Relation::lt ? Relation::le
                             : Relation::lt;
}

struct SizeFact {
  Sym a;
  Relation relation;
  Sym b;
  std::string where;  ///< what forced it: a line of the user's, or a stage
  bool operator==(const SizeFact& o) const { return a == o.a && b == o.b && relation == o.relation; }
};

/// The facts of a recording in progress.
struct SizeNotes {
  std::vector<SizeFact> facts;
  std::string (*line)() = nullptr;  ///< gives the user's line that is running
  std::string where() const { return line ? line() : std::string(); }
  void add(Sym a, Relation relation, Sym b) { facts.push_back({a, relation, b, where()}); }
  /// `a relation b` was asked and the answer was this.
  void answered(Sym a, Relation relation, Sym b, bool yes) {
    const bool turn = relation == Relation::lt || relation == Relation::le;
    if (yes)
      add(a, relation, b);
    else
      add(turn ? b : a, opposite(relation), turn ? a : b);
  }
};

inline std::string str(const SizeFact& f) {
  const char* sign[] = {" == ", " != ", " < ", " <= "};
  return f.a.str() + sign[static_cast<int>(f.relation)] + f.b.str();
}

}  // namespace bolt
