# torchbolt/stand_ins/recurrent.py
"""Sequences that were packed for a recurrent layer are padded again by an operator to which their number and their
length are sizes: ATen's must be told the one and reads the other out of a tensor, so a region would end there.

ATen also asks which of several sequences is the longest. Where lengths differ between calls, they are padded by what
asks for nothing: each place is looked up among all steps of all sequences."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torchbolt.stand_ins.functions import _differs

_MOST = 64  # sequences whose lengths are followed: torch.tensor takes as many numbers
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


def _are_alike(sequences):
    """But for how many steps each has, which is not looked at."""
    first = sequences[0]
    for each in sequences:
        if each.dim() != first.dim() or each.dtype != first.dtype or each.device != first.device:
            return False
        for dim in range(1, first.dim()):
            if each.size(dim) != first.size(dim):
                return False
    return first.dim() > 0


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    if not isinstance(sequences, (list, tuple)) and not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = tuple(sequences)
    follows = sequences and len(sequences) <= _MOST and padding_side in ("left", "right") and _are_alike(sequences)
    lengths = [each.size(0) for each in sequences] if follows else []
    if not any(_differs(length) for length in lengths):
        return torch._C._nn.pad_sequence(sequences, batch_first, padding_value, padding_side)
    first = sequences[0]
    rest = [first.size(dim) for dim in range(1, first.dim())]
    steps = torch.cat([*sequences, first.new_full((1, *rest), padding_value)])
    counts = torch.tensor(lengths, device=first.device)
    ends = counts.cumsum(0)
    longest = counts.max().item()  # a size of its own: gradients are not computed over a maximum of sizes
    places = torch.arange(longest, device=first.device)
    if padding_side == "left":
        places = places - (longest - counts)[:, None]
        is_step = places >= 0
    else:
        is_step = places < counts[:, None]
    # What is no step of the sequence is the row behind all of them.
    rows = torch.where(is_step, (ends - counts)[:, None] + places, ends[-1])
    return steps[rows if batch_first else rows.t().contiguous()]


#: By module and qualified name.
FUNCTIONS = {
    "torch.nn.utils.rnn.pad_packed_sequence": pad_packed_sequence,
    "torch.nn.utils.rnn.pad_sequence": pad_sequence,
}
