// lower/round_once.h
// What a row made of one operator -> the same, rounded to a half type once, at its end.
//
// A kernel of ATen reads halves, computes in float32 and rounds what it stores. With numerics="eager" every
// value of a half type is rounded where it is made (loops::PlanOptions::rounds_as_eager), so what stands
// between an operator's operands and its results may be none: it becomes float32 here, and the results are
// casts of that.
//
//   lerp(a, b, w)    sub: bf16, mul: bf16, add: bf16  ->  sub: f32, mul: f32, add: f32, cast: bf16
//
// Numbers stand in arithmetic as they were given, as ATen has them in its compute type, but are rounded where
// they are results: a tensor filled with 0.1 does not hold 0.1.
//
// Some of ATen's kernels round on their way, too, as those of most losses do, which compute with halves as
// such. Where it is known, and no row says how they do it, they are eager's: one call each.
#pragma once

#include <vector>

#include "graph/ir.h"
#include "lower/lowering.h"

namespace bolt::lower {

/// Is it an operator of halves whose kernel rounds on its way?
bool rounds_on_its_way(const Call& c);

/// `last_before`: the graph's last node before the row made its own; null: there was none. `values`: what the
/// row gave.
void round_once(graph::Graph& g, const graph::Node* last_before, std::vector<graph::Value*>& values);

}  // namespace bolt::lower
