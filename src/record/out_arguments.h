// record/out_arguments.h
// torch.cat(list, out=torch.empty(0)) -> torch.cat(list): an operator that writes to tensors of the run's own
// which had no elements may just as well make new ones. Nothing later has to know of tensors that grow.
#pragma once

#include <functional>

#include "record/tape.h"

namespace bolt::record {

/// Of a call that is about to be made: are all its out= arguments the run's own and without elements?
bool fills_new_tensors(const Entry& entry, const Tape& tape);

/// The call has been made, with `given`, and has results. Nothing was in them, so what was written is as good
/// as new tensors: the entry becomes that of the operator that gives them. False: they would be others.
/// `call` runs an operator unseen.
bool gives_new_tensors(Entry& entry, Tape& tape, const torch::jit::Stack& given,
                       const std::function<void(const c10::OperatorHandle&, torch::jit::Stack*)>& call);

}  // namespace bolt::record
