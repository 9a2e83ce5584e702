// lower/results.h
// What the caller sees of a region -> outputs of the graph: the wanted tensors, the inputs that were written,
// and those that became views of themselves.
#pragma once

#include <map>
#include <vector>

#include "lower/windows.h"

namespace bolt::lower {

/// Outputs that share a storage must share it again: the storage's root is made whole and they are views of
/// it. One alone is made as it is, however large the storage it had in eager.
void give_outputs(Windows& w, const std::vector<record::TensorId>& wanted);

/// Inputs whose storage was written become `write` outputs. After the wanted ones.
void write_back(Windows& w);

/// `turned`: EntryLowering::turned().
void give_reshaped(Windows& w, const std::map<record::TensorId, record::TensorId>& turned);

}  // namespace bolt::lower
