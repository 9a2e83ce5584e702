# tests/end_to_end/test_indices.py
"""An index out of range raises what eager raises, with the user's line; the next good call is right again."""

import traceback

import pytest
import torch
import torch.nn.functional as F

import torchbolt

WEIGHT = torch.arange(20.0).view(5, 4)


def embed(w, i):
    return F.embedding(i, w).relu() + 1


def subscript(w, i):
    return w[i] * 2


def select_rows(w, i):
    return torch.index_select(w, 0, i).exp()


def gather_rows(w, i):
    return w.gather(0, i[:, None]) - 1


def joined(w, i):
    return torch.cat([w, w[i]], 0) * 3


def written(w, i):
    i.add_(1)
    return w[i - 1] + 1


def embed_ones(w, i):
    return F.embedding(i, torch.ones(5, 4))


def zeros(w, i):
    return torch.zeros(5).gather(0, i.long()) + w.sum()


FUNCTIONS = [embed, subscript, select_rows, gather_rows, joined, written, embed_ones, zeros]


def outcome(fn, *args):
    try:
        return fn(*args), None
    except (IndexError, RuntimeError) as error:
        return None, error


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("bad", [5, -1, -5, -6, 1 << 30])
def test_raises_as_eager(fn, dtype, bad):
    compiled = torchbolt.compile(fn, fullgraph=True)
    good = torch.tensor([0, 4, 2, 1, 3, 3, 0], dtype=dtype)
    wrong = good.clone()
    wrong[3] = bad
    for indices in [good, good, wrong, good]:
        mine, theirs = indices.clone(), indices.clone()
        got, error = outcome(compiled, WEIGHT, mine)
        expected, expected_error = outcome(fn, WEIGHT, theirs)
        assert type(error) is type(expected_error)
        assert torch.equal(mine, theirs)
        if error is None:
            torch.testing.assert_close(got, expected)
        else:
            assert str(error) == str(expected_error)
            assert any(frame.name == fn.__name__ for frame in traceback.extract_tb(error.__traceback__))
    regions = torchbolt.api.compiled_of(compiled)._regions()
    assert len(regions) == 1 and regions[0]["compiled"] and regions[0]["extern_calls"] == 0
