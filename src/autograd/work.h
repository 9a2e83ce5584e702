// autograd/work.h
// An entry of a joint tape -> what computing it a second time costs, and whether that may be done at all.
//
// Only operators that are known here are ever computed again: those of ATen's that give the same values
// whenever they are called. Products, convolutions and attention cost more than any memory they save; draws
// give other numbers; an operator that nobody knows may do anything. They have no row. Inside of a
// checkpointed function the program has said that it wants its operators called again, whatever they cost:
// there only draws and what writes are excepted.
#pragma once

#include <cstdint>
#include <string_view>

#include "record/tape.h"

namespace bolt::autograd {

enum class Work : uint8_t {
  Never,           ///< it may not be computed again
  View,            ///< it only shows memory that is there
  Pointwise,       ///< each element of an element: it runs in the kernel of whoever reads it
  Gather,          ///< the same, of elements that data choose: it raises where there is no such element
  Transcendental,  ///< the same, of a function that takes many instructions
  Call,            ///< an operator of any kind: it is computed again where the program asks for that
  Pass,            ///< it reads all of what it is given before it has a result: sums, normalisations
};

/// "aten::add_" -> "add". Empty: it is not ATen's.
std::string_view base_name(const record::Entry& entry);

/// By its name and tags. Whether what it reads is still there is not asked.
Work work_of(const record::Entry& entry);

/// Does it give the same values whenever it is called with the same? Also of operators that have no row.
bool is_repeatable(const record::Entry& entry);

/// A normalisation that trains counts statistics beside: it writes to two of its arguments, which its results
/// do not rest on, and which are left out when it is computed again.
bool counts_statistics(const record::Entry& entry);
constexpr size_t kStatistics[] = {3, 4};

/// Does it run in the kernel of what reads it?
inline bool fuses(Work work) { return work != Work::Never && work != Work::Pass && work != Work::Call; }

/// What decides between keeping and computing: everything in bytes of memory traffic that take as long.
/// These are rules of thumb for processors and GPUs of today, not measurements.
struct Prices {
  double kept = 1;                 ///< a byte that is kept
  double materialised = 1;         ///< a byte written that no kernel would have to write otherwise, or read
  double pointwise = 0.5;          ///< an element of a result
  double transcendental = 2;       ///< an element of a result
  double exponential_on_host = 8;  ///< an element that a pass takes the exponential of, on a processor
};

/// Does a pass take exponentials of all that it reads? To a GPU these are little beside reading.
bool takes_exponentials(const record::Entry& entry);

/// The price of a call that reads and makes so much.
double price_of(Work work, int64_t bytes_read, int64_t elements_made, const Prices& prices);

}  // namespace bolt::autograd
