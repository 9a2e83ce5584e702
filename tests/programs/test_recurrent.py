# tests/programs/test_recurrent.py
"""RNN, LSTM and GRU, their cells, and packed sequences."""

import pytest
import torch
from rows import Lazy, Rows, randn
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpad_sequence

ROWS = Rows()
MISS_MISS_HIT = ("MISS", "MISS", "HIT", "HIT")

for name, make in {
    "RNN": lambda: nn.RNN(4, 6),
    "RNN, relu": lambda: nn.RNN(4, 6, nonlinearity="relu"),
    "LSTM": lambda: nn.LSTM(4, 6),
    "LSTM of two layers": lambda: nn.LSTM(4, 6, 2),
    "LSTM in both directions": lambda: nn.LSTM(4, 6, bidirectional=True),
    "LSTM with a projection": lambda: nn.LSTM(4, 6, proj_size=3),
    "LSTM, batch first": lambda: nn.LSTM(4, 6, batch_first=True),
    "LSTM without bias": lambda: nn.LSTM(4, 6, bias=False),
    "GRU": lambda: nn.GRU(4, 6),
    "GRU of two layers in both directions": lambda: nn.GRU(4, 6, 2, bidirectional=True),
    "GRU in evaluation with dropout": lambda: nn.GRU(4, 6, 2, dropout=0.5).eval(),
}.items():
    ROWS.add(name, make, (randn(5, 2, 4),), {})


@ROWS.made(randn(5, 4))
def lstm_without_a_batch():
    return nn.LSTM(4, 6)


@ROWS.made(randn(5, 2, 4), (randn(1, 2, 6, seed=1), randn(1, 2, 6, seed=2)))
def lstm_with_a_state():
    return nn.LSTM(4, 6)


@ROWS.made(randn(5, 2, 4), randn(1, 2, 6, seed=1))
def gru_with_a_state():
    return nn.GRU(4, 6)


def with_states(batch, steps, count):
    states = tuple(randn(2, batch, 6, seed=i) for i in range(count))
    return randn(steps, batch, 4), states if count > 1 else states[0]


# The sizes of what it is given must fit together, and ATen does not look.
for layer, count in ((nn.LSTM, 2), (nn.GRU, 1), (nn.RNN, 1)):
    sizes = ((3, 5), (7, 8), (4, 6), (9, 9))
    ROWS.add(
        f"{layer.__name__} with states of other sizes",
        lambda layer=layer: layer(4, 6, num_layers=2).eval(),
        (),
        {
            "calls": tuple(with_states(b, t, count) for b, t in sizes),
            "expect": ("MISS", "MISS", "HIT", "HIT"),
            "regions": 2,
        },
    )


@ROWS.made(randn(5, 2, 4, requires_grad=True), grad=True, replays="recurrent layer")
def lstm_with_gradients():
    return nn.LSTM(4, 6)


@ROWS.made(randn(2, 4), randn(2, 6, seed=1))
def cells():
    rnn, gru, lstm = nn.RNNCell(4, 6), nn.GRUCell(4, 6), nn.LSTMCell(4, 6)
    return lambda x, h: (rnn(x, h), gru(x, h), lstm(x, (h, h * 2)))


@ROWS.made(randn(5, 2, 4))
def cell_in_a_loop():
    cell, head = nn.GRUCell(4, 6), nn.Linear(6, 3)

    def run(x):
        h, outs = torch.zeros(x.shape[1], 6), []
        for step in x:
            h = cell(step, h)
            outs.append(head(h))
        return torch.stack(outs), h

    return run


@ROWS.made(randn(2, 5, 4))
def text_classifier():
    lstm, head = nn.LSTM(4, 6, batch_first=True, bidirectional=True), nn.Linear(12, 3)

    def run(x):
        _, (h, _) = lstm(x)
        return head(torch.cat([h[-2], h[-1]], -1)).log_softmax(-1)

    return run


@ROWS.made(randn(2, 5, 4))
def encoder_and_decoder():
    encoder, decoder, head = nn.GRU(4, 6, batch_first=True), nn.GRU(4, 6, batch_first=True), nn.Linear(6, 4)

    def run(x):
        _, h = encoder(x)
        step, outs = x[:, -1:], []
        for _ in range(3):
            out, h = decoder(step, h)
            step = head(out)
            outs.append(step)
        return torch.cat(outs, 1)

    return run


# -- Packed sequences ---------------------------------------------------------------------------------------------------
def packs(**facts):
    return lambda body: ROWS.add(body.__name__, lambda: body(nn.LSTM(4, 6, batch_first=True)), (randn(3, 5, 4),), facts)


@packs()
def packed_by_a_list_of_lengths(lstm):
    def run(x):
        out, (h, c) = lstm(pack_padded_sequence(x, [5, 3, 2], batch_first=True))
        return pad_packed_sequence(out, batch_first=True), h, c

    return run


@packs()
def packed_by_a_tensor_of_lengths(lstm):
    lengths = torch.tensor([5, 3, 2])

    def run(x):
        out, _ = lstm(pack_padded_sequence(x, lengths, batch_first=True))
        return pad_packed_sequence(out, batch_first=True)[0]

    return run


@packs(
    calls=(
        (randn(3, 6, 4), torch.tensor([6, 4, 2])),
        (randn(2, 7, 4), torch.tensor([7, 3])),
        (randn(4, 5, 4), torch.tensor([5, 5, 2, 1])),
    ),
    expect=("MISS", "MISS", "HIT"),
    regions=2,
)
def packed_of_other_sizes(lstm):
    return lambda x, lengths: pad_packed_sequence(
        lstm(pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True
    )


@packs()
def packed_in_any_order(lstm):
    def run(x):
        out, (h, _) = lstm(pack_padded_sequence(x, torch.tensor([2, 5, 3]), batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(out, batch_first=True)[0], h

    return run


@packs()
def packed_sequence_of_tensors(lstm):
    def run(x):
        out, (h, _) = lstm(pack_sequence([x[0], x[1, :3], x[2, :2]]))
        return out.data, out.batch_sizes, h

    return run


@packs()
def packed_and_given_on(lstm):
    packed = pack_padded_sequence(torch.ones(3, 5, 4), [5, 3, 2], batch_first=True)
    return lambda x: lstm(packed)[0].data + x.sum()


def packed(*lengths):
    return Lazy(lambda: pack_sequence([torch.arange(4.0 * n).view(n, 4).sin() for n in lengths]))


@packs(
    calls=[(packed(5, 3, 2),), (packed(6, 2),), (packed(4, 4, 3, 3),), (packed(7, 7, 2),)],
    expect=MISS_MISS_HIT,
    regions=2,
)
def packed_outside(lstm):
    return lambda sequences: lstm(sequences)


def with_lengths(*lengths):
    return randn(len(lengths), 8, 4), Lazy(lambda: torch.tensor(lengths))


LENGTHS = [with_lengths(*each) for each in ((3, 5, 2, 8), (7, 2, 2, 4), (8, 6, 5, 2), (2, 7, 8, 3), (4, 6, 3, 7))]


@packs(calls=LENGTHS, expect=("MISS", "HIT", "HIT", "HIT", "HIT"))
def padded_by_lengths_that_are_data(lstm):
    def run(x, lengths):
        parts = [x[i, :n] for i, n in enumerate(lengths.tolist())]
        return pad_sequence(parts, batch_first=True, padding_value=-1.0), pad_sequence(parts, padding_side="left")

    return run


@packs(calls=LENGTHS, expect=("MISS", "HIT", "HIT", "HIT", "HIT"))
def slices_by_data(lstm):
    def run(x, lengths):
        n, m, *_ = lengths.tolist()
        y = x.clone()
        y[0, :n, 1] = 0
        return x[:, n - 1 :, 1], y, x[1, None, m:], x[0, :m].sum(-1)

    return run


@packs(
    calls=[([randn(n, 4, seed=n) for n in each],) for each in ((3, 5, 2), (7, 2, 4), (4, 6, 9), (2, 8, 8))],
    expect=MISS_MISS_HIT,
    regions=2,
)
def padded_sequences_of_any_length(lstm):
    return lambda parts: (pad_sequence(parts), pad_sequence(parts, batch_first=True, padding_side="left"))


@packs()
def padded(lstm):
    def run(x):
        both = pad_sequence([x[0], x[1, :3], x[2, :2]], batch_first=True, padding_value=-1.0)
        return both, lstm(both)[0], unpad_sequence(both, torch.tensor([5, 3, 2]), batch_first=True)

    return run


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_recurrent(row):
    row.check()
