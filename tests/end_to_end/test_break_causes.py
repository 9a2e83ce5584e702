# tests/end_to_end/test_break_causes.py
"""What ends regions in programs as people write them: eager's results and effects, one recording, truthful reports."""

from __future__ import annotations

import pytest
import torch

import torchbolt
from bench import causes
from bench.causes import CAUSES, run


@pytest.mark.parametrize("name", CAUSES)
def test_results_effects_and_no_recording_later(name):
    fn, _ = CAUSES[name]
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    inputs = torch.rand(14, 4, generator=torch.Generator().manual_seed(0)) + 0.5
    for round_, x in enumerate(inputs):
        if round_ == 11:
            settled = torchbolt.stats()
        want, got = run(fn, (x.clone(),)), run(compiled, (x.clone(),))
        torch.testing.assert_close(got[0], want[0], rtol=1e-6, atol=1e-6)
        assert got[1] == want[1]
        assert got[2] == want[2]
    stats = torchbolt.stats()
    assert stats["regions"] == settled["regions"] and stats["graph_breaks"] == settled["graph_breaks"]
    assert stats["eager_fallbacks"] == 0


@pytest.mark.parametrize("name", CAUSES)
def test_explain_and_fullgraph_agree(name):
    fn, ends = CAUSES[name]
    torchbolt.reset()
    x = torch.rand(4) + 0.5
    explained = run(torchbolt.explain(fn), (x,))[0]
    assert explained.graph_break_count == ends == torchbolt.stats()["region_ends"], explained
    for reason in explained.break_reasons:
        assert reason.user_stack[0][0] == causes.__file__ and reason.expression in reason.source, reason
        assert reason.hint, reason
    whole = torchbolt.compile(fn, fullgraph=True)
    if ends:
        with pytest.raises(torchbolt.exc.GraphBreak):
            run(whole, (x,))
    else:
        torch.testing.assert_close(run(whole, (x,))[0], run(fn, (x,))[0])


def test_most_are_one_region():
    assert len(CAUSES) == 19
    assert sum(ends == 0 for _, ends in CAUSES.values()) >= 15
