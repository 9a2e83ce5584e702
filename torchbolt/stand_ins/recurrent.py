# torchbolt/stand_ins/recurrent.py
"""Sequences that were packed for a recurrent layer are padded again by an operator to which their number and their
length are sizes: ATen's must be told the one and reads the other out of a tensor, so a region would end there."""

from __future__ import annotations

import torch

_PAD = torch.ops.torchbolt.pad_packed_sequence.default


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    longest = sequence.batch_sizes.size(0)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {longest}"
            )
        longest = total_length
    sequences = int(sequence.batch_sizes[0])
    padded, lengths = _PAD(sequence.data, sequence.batch_sizes, batch_first, padding_value, longest, sequences)
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


#: By module and qualified name.
FUNCTIONS = {"torch.nn.utils.rnn.pad_packed_sequence": pad_packed_sequence}
