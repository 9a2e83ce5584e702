// lower/functionalize.cpp
#include "lower/functionalize.h"

#include "autograd/checkpoint.h"
#include "lower/data_sizes.h"
#include "lower/entry_lowering.h"
#include "lower/lists.h"
#include "lower/results.h"
#include "lower/windows.h"
#include "support/error.h"

namespace bolt::lower {
namespace {

void lower_entries(Windows& w, EntryLowering& lowering) {
  const graph::Node* last_checked = nullptr;  // by rule_out_nothing
  for (const record::Entry& e : w.tape.entries) {
    if (autograd::checkpoint_mark(e)) continue;  // without gradients there is nothing to keep
    const record::SourceLine line = e.loc >= 0 ? w.tape.locs[e.loc] : record::SourceLine();
    w.loc = {line.file, line.line, line.function};
    try {
      lowering.lower(e);
    } catch (SizeDemand& demand) {
      demand.where = detail::concat(e.op.operator_name().name, " at ", w.loc.file, ":", w.loc.line);
      throw;
    }
    if (w.sizes.any_data()) rule_out_nothing(*w.out.graph, last_checked, w.sizes);
  }
}

}  // namespace

Lowered functionalize(const record::Tape& recorded, const std::vector<record::TensorId>& wanted,
                      const LowerOptions& options, Sizes& sizes) {
  const std::optional<record::Tape> of_single_tensors = without_lists(recorded);
  const record::Tape& tape = of_single_tensors ? *of_single_tensors : recorded;
  for (const record::TensorInfo& t : tape.tensors)
    if (!t.plain) throw_unsupported("a tensor that is not plain strided memory");
  for (record::TensorId id : wanted)
    if (tape.tensors[id].is_noted())
      throw_unsupported("a tensor that only notes its conjugates is given out");
  for (record::TensorId id : wanted)
    if (tape.tensors[id].zero) throw_unsupported("a tensor of zeros without memory is given out");
  Lowered out;
  out.graph = std::make_unique<graph::Graph>();
  Windows windows(tape, options, sizes, out);
  sizes.begin_again();
  for (record::TensorId id : tape.inputs) windows.set_input(id);
  EntryLowering lowering(windows, wanted);
  lower_entries(windows, lowering);
  lowering.end();
  give_outputs(windows, wanted);
  write_back(windows);
  give_reshaped(windows, lowering.turned());
  sizes.settle();
  out.constants = options.constants;
  out.graph->renumber();
  return out;
}

}  // namespace bolt::lower
