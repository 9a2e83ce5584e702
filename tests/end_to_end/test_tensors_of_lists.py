# tests/end_to_end/test_tensors_of_lists.py
"""torch.tensor(tokens): lists whose numbers differ from call to call, and how many they are, become inputs of the program.

The first call's list is a constant, the second shows that lists differ. One list more may be needed where a list was short.
"""

from __future__ import annotations

import copy
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchbolt

LENGTHS = (3, 4, 5, 6, 7, 4, 9, 10, 11, 12)
TABLE = torch.arange(200.0).view(50, 4)
EMBEDDING = torch.nn.Embedding(50, 4)


def ints(length, seed=0):
    return [random.Random(100 * length + seed).randrange(50) for _ in range(length)]


def floats(length, seed=0):
    return [random.Random(100 * length + seed).random() * 1000 for _ in range(length)]


def rows(length):
    return [ints(length), ints(length, 1)]


def batch(length):
    return [ints(3, i) for i in range(length)]


def ragged(length):
    return [ints(length), ints(length + 2)]


def appended(tokens):
    tokens.append(len(tokens))
    return torch.tensor(tokens)


def a_window(tokens):
    tokens.append(7)
    del tokens[0]
    first = tokens.pop(0)
    return first, torch.tensor(tokens)


def taken_behind(tokens):
    last = tokens.pop()
    return torch.tensor([tokens, tokens]), last


def next_token(tokens):
    tokens.append(EMBEDDING(torch.tensor([tokens])).sum(-1).argmax().item())
    return torch.tensor(tokens)


def written_in_place(tokens):
    a, b = torch.tensor(tokens), torch.tensor(tokens)
    a += 1
    a[0] = 5
    return a, b


def padded(lists):
    longest = max(len(each) for each in lists)
    out = torch.zeros(len(lists), longest, dtype=torch.long)
    for i, each in enumerate(lists):
        out[i, : len(each)] = torch.tensor(each)
    return EMBEDDING(out)


def rows_set(at):
    table = TABLE.clone()
    table[at] = 0
    table[at, 1] = torch.ones(len(at))
    return table


CASES = [
    (ints, lambda x: TABLE[x].sum(0)),
    (ints, lambda x: TABLE.t()[:, x] * 2),
    (ints, lambda x: TABLE[x, 1]),
    (ints, rows_set),
    (ints, lambda x: EMBEDDING(torch.tensor(x)).sum(0)),
    (ints, lambda x: torch.tensor([x, x])),
    (ints, lambda x: torch.tensor(x, dtype=torch.float32) / 3),
    (ints, lambda x: torch.tensor(x, dtype=torch.bool)),
    (ints, lambda x: torch.LongTensor(x) * 2),
    (ints, lambda x: torch.tensor(x) + torch.arange(len(x)) + x[0]),
    (ints, appended),
    (ints, a_window),
    (ints, taken_behind),
    (ints, next_token),
    (ints, written_in_place),
    (floats, lambda x: torch.tensor(x).mean()),
    (floats, lambda x: torch.as_tensor(x, dtype=torch.float64)),
    (floats, lambda x: torch.tensor(x, dtype=torch.bfloat16)),
    (floats, lambda x: torch.tensor(x, dtype=torch.float16)),
    (floats, lambda x: torch.ones(2).new_tensor(x)),
    (rows, lambda x: EMBEDDING(torch.tensor(x)).sum(1)),
    (batch, lambda x: EMBEDDING(torch.tensor(x)).sum(1)),
    (ragged, padded),
    (ragged, lambda x: torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in x], batch_first=True)),
]


@pytest.mark.parametrize("make, program", CASES)
def test_lists_of_any_length(make, program):
    torchbolt.reset()
    compiled = torchbolt.compile(program, fullgraph=True)
    with torch.no_grad():
        for length in LENGTHS:
            mine, other = make(length), make(length)
            torch.testing.assert_close(compiled(mine), program(other), rtol=1e-5, atol=1e-5)
            assert mine == other
    assert torchbolt.stats()["recordings"] == 2 and torchbolt.stats()["eager_fallbacks"] == 0


def test_many_numbers():
    """More than have steps of their own, though there are always as many."""

    def program(x):
        return EMBEDDING(torch.tensor(x)).sum(0)

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for seed in range(6):
        torch.testing.assert_close(compiled(ints(300, seed)), program(ints(300, seed)))
    assert torchbolt.stats()["recordings"] == 2


OTHERS = [[1, 2], [1, 2, 3], [4, 5, 6, 7], [1.0, 2, 3], [1, 2.5], [True, False, True], [], [1, None], ["a"], [2**70, 1]]
OTHERS += [
    [float("nan"), 1.0],
    [2**60, 1, 3],
    [[1, 2], [3, 4]],
    [[1, 2], [3]],
    [[1, 2.5], [3, 4]],
    [[]],
    [1, 2, 3, 4, 5],
]


def test_what_is_in_a_list_decides():
    def program(x):
        return torch.tensor(x) * 2

    def outcome(fn, x):
        try:
            return fn(x)
        except Exception as error:
            return repr(error)

    within = [1, 2, 3]
    within.append(within)
    compiled = torchbolt.compile(program)
    for x in [*OTHERS, within, *OTHERS[::-1]]:
        got, want = outcome(compiled, x), outcome(program, x)
        if isinstance(want, str):
            assert got == want
        else:
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_lists_that_are_no_index():
    def program(x):
        return TABLE[x]

    compiled = torchbolt.compile(program)
    for x in (
        [0, 1],
        [1, 2, 3],
        [1, 2, 3, 50],
        [-1, 2],
        [True, False],
        [],
        [[0, 1], [2, 3]],
        [[0, 1, 2]],
        [4, 5, 6, 7],
    ):
        try:
            want = program(x)
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error)[:20]):
                compiled(x)
        else:
            assert torch.equal(compiled(x), want)


def test_lists_that_are_one_in_some_calls():
    def program(x, y):
        x.append(1)
        return torch.tensor(x), torch.tensor(y)

    compiled = torchbolt.compile(program)
    for length in LENGTHS * 2:
        mine, other = [ints(length)] * 2, [ints(length)] * 2
        if length % 2:
            mine, other = copy.deepcopy(mine[:1]) + [ints(length)], copy.deepcopy(other[:1]) + [ints(length)]
        for got, want in zip(compiled(*mine), program(*other), strict=True):
            assert torch.equal(got, want)


def test_lists_of_a_module():
    class Chat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.tokens = EMBEDDING, [1, 2]

        def forward(self, token):
            self.tokens.append(token)
            return self.embedding(torch.tensor(self.tokens)).mean(0)

    torchbolt.reset()
    eager, chat = Chat(), Chat()
    compiled = torchbolt.compile(chat)
    for i in range(12):
        torch.testing.assert_close(compiled(i % 5), eager(i % 5))
        assert chat.tokens == eager.tokens
    assert torchbolt.stats()["recordings"] <= 3


def test_threads():
    """The tensor that guards make is a call's own."""

    def program(x):
        return EMBEDDING(torch.tensor(x)).sum(0)

    compiled = torchbolt.compile(program)

    def work(seed):
        with torch.no_grad():
            for i in range(60):
                x = ints(2 + (7 * i + seed) % 20, seed)
                torch.testing.assert_close(compiled(x), program(x))

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(work, range(5)))


def test_lists_of_tensors_that_have_become_empty():
    """What differs is looked for in what is there."""
    torchbolt.reset()
    fn = lambda x, w: x + sum(t.sum() for t in w) if w else x - 1
    compiled = torchbolt.compile(fn)
    for n in (3, 0, 2, 0, 3, 1, 0):
        x = torch.ones(4)
        torch.testing.assert_close(compiled(x, [torch.ones(64) for _ in range(n)]), fn(x, [torch.ones(64)] * n))
        del x
