// loops/directions.cpp
#include "loops/directions.h"

#include <cstdlib>

#include "graph/device_facts.h"
#include "loops/normalise.h"

namespace bolt::loops {
namespace {

/// Elements that are taken out of whole vectors, and a dimension that fills half of one of the narrowest.
constexpr int64_t kNear = 4, kLeastSize = 4;

/// How many elements apart two neighbours along the atom lie; nothing: it is no one distance.
std::optional<int64_t> distance(const graph::Value* v, const Index& index, Sym atom) {
  int64_t total = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    const LinearIn along = linear_in(index[d], atom);
    if (!along.linear) return std::nullopt;
    const Sym step = along.coef * v->type.strides[d];
    if (!step.is_const()) return std::nullopt;
    total += step.value();
  }
  return total;
}

/// True where nothing is known.
bool runs_one_way(const Units& units, const Group& group) {
  const std::optional<Space> space = align(units.fusion.usage, group);
  if (!space) return true;
  const std::vector<const graph::Value*> sources = units.sources_of(group);
  std::vector<const graph::Value*> whole;
  for (const auto* values : {&sources, &group.stored})
    for (const graph::Value* v : *values)
      if (const Index* index = space->find(v); index && space->mask(*index) == space->all())
        whole.push_back(v);
  for (const Atom& atom : space->atoms) {
    if (estimate(atom.size) < kLeastSize) continue;
    bool all = true;
    for (const graph::Value* v : whole) {
      const auto step = distance(v, *space->find(v), atom.symbol);
      all &= step && std::abs(*step) <= kNear;
    }
    if (all) return true;
  }
  return false;
}

}  // namespace

bool crosses_rows(const Units& units, int a, int b, const Group& both) {
  const Units::Part &first = units.parts[a], &second = units.parts[b];
  if (graph::facts_of(second.device).reads_anywhere || !(first.reduces || second.reduces)) return false;
  return !runs_one_way(units, both) && (!first.reduces || runs_one_way(units, units.group(a))) &&
         (!second.reduces || runs_one_way(units, units.group(b)));
}

}  // namespace bolt::loops
