// autograd/row_work.h
// An operator -> whether each row of what it gives is made of one row of what it is given. It is asked by who
// computes some rows after others (rows.h), of joint tapes, and by who computes all rows where a mask selects
// some (selected_rows.h), of tapes of runs.
#pragma once

#include <cstdint>
#include <vector>

#include "record/tape.h"

namespace bolt::autograd {

enum class RowWork : uint8_t {
  unknown,
  by_element,       ///< each element of those at its place
  along_dim,        ///< it looks along its argument `dim`, or along all, and leaves the others apart
  sum,              ///< so, and adds up, or takes the mean
  loss,             ///< by element, and then its argument `reduction`
  loss_of_classes,  ///< (scores, labels, weight, reduction, ignored label, ...), of which dimension 1 is
                    ///< classes
};
RowWork row_work_of(const record::Entry& entry);

/// Null: the operator has no such argument.
const c10::IValue* value_of(const record::Entry& entry, const char* argument);
/// The dimensions that `dim` names, of so many, counted from the front. None named: all of them.
std::vector<int64_t> dims_of(const record::Entry& entry, size_t rank);

}  // namespace bolt::autograd
