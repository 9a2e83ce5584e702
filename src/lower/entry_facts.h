// lower/entry_facts.h
// An entry of the tape -> what lowering asks of it, whoever lowers it: its results, and what they share.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "record/tape.h"

namespace bolt::lower {

/// "aten::add.Tensor"
std::string full_name(const record::Entry& e);

/// Flattened over lists; -1 where there is no tensor.
record::TensorIds results(const record::Entry& e);

/// -1: it was given none.
record::TensorId first_tensor(const record::Entry& e);

std::set<int> operand_storages(const record::Entry& e, const record::Tape& tape);

/// Do its results lie in what it was given?
bool is_view(const record::Entry& e, const record::Tape& tape);

/// Does it draw random numbers?
bool draws(const record::Entry& e);

/// Must it be called though nobody uses what it gives? Also what gives and writes nothing: it is there to
/// raise
/// (_assert_async).
bool has_effects(const record::Entry& e);

/// Are there no complex numbers? `moves`: or only such as a row that looks at no element moves about.
bool is_compilable(const record::Entry& e, const record::Tape& tape, bool moves);

}  // namespace bolt::lower
