# tests/end_to_end/test_beside_eager.py
"""Programs are measured beside eager in their first calls, and those that are slower are given up.

An operator of the user's is slow here wherever the program runs it. Programs run without gradients, and the replayed tape as
it was recorded: that is how the operator can tell. Each call must be right, and done once, whoever answers it.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchbolt

RAN = []  # what ran the slow operator
SLOW = {"program": 0.15, "eager": 0.003}  # seconds


@torch.library.custom_op("beside_eager::note", mutates_args=())
def note(x: torch.Tensor) -> torch.Tensor:
    who = "eager" if torch.is_grad_enabled() else "program"
    RAN.append(who)
    time.sleep(SLOW[who])
    return x + 1


@note.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    torchbolt.reset()
    RAN.clear()
    monkeypatch.setitem(SLOW, "program", 0.15)
    monkeypatch.setitem(SLOW, "eager", 0.003)
    monkeypatch.setenv("TORCHBOLT_CACHE", "0")


def measured(fn, **options):
    return torchbolt.compile(fn, options={"measure": True, **options})


def regions_of(compiled):
    return torchbolt.api.compiled_of(compiled)._regions()


def until_settled(compiled, call, most=60):
    """Calls it until nothing is tried any more; how many calls that took."""
    for count in range(1, most):
        call(count)
        torchbolt.wait()
        if not any(region["is_trial"] for region in regions_of(compiled)):
            return count
    raise AssertionError("the trial has no end")


def reads_itself(x):
    """Less can be fused of it: both halves are read under other indices."""
    y = note(x).exp()
    return torch.cat([y[:, 4:], y[:, :4]], 1) + y


def check(compiled, fn):
    def call(count):
        x = torch.full((16, 8), count / 10)
        RAN.clear()
        got = compiled(x)
        assert len(RAN) == 1  # once
        torch.testing.assert_close(got, fn(x))

    return call


def test_a_slow_program_is_given_to_eager():
    compiled = measured(reads_itself)
    call = check(compiled, reads_itself)
    assert until_settled(compiled, call) <= 25
    (region,) = regions_of(compiled)
    assert not region["compiled"] and "it was measured to be faster: the program takes" in region["why_replayed"]
    assert "with less fusion" in region["why_replayed"]
    stats = torchbolt.stats()
    assert (stats["measured"], stats["planned_again"], stats["slower_than_eager"]) == (1, 1, 1)
    assert stats["eager_fallbacks"] == 1 and stats["recordings"] == 1
    RAN.clear()
    compiled(torch.ones(16, 8))
    assert RAN == ["eager"]


def test_less_fusion_may_be_enough():
    compiled = measured(reads_itself)
    call = check(compiled, reads_itself)

    def faster_once_planned_again(count):
        if torchbolt.stats()["planned_again"]:
            SLOW["program"] = 0.0
        call(count)

    until_settled(compiled, faster_once_planned_again)
    (region,) = regions_of(compiled)
    assert region["compiled"] and region["kernels"] == 2 and "the program with less fusion" in region["measured"]
    stats = torchbolt.stats()
    assert (stats["planned_again"], stats["slower_than_eager"], stats["eager_fallbacks"]) == (1, 0, 0)


def test_a_fast_program_stays():
    SLOW.update(program=0.0, eager=0.01)
    compiled = measured(reads_itself)
    assert until_settled(compiled, check(compiled, reads_itself)) <= 17  # two turns each at most
    (region,) = regions_of(compiled)
    assert region["compiled"] and "eager" in region["measured"] and torchbolt.stats()["measured"] == 1


def test_writes_are_done_once():
    def counts(x, total):
        total.add_(note(x).sum())
        return total * 2

    compiled, total = measured(counts), torch.zeros(())
    until_settled(compiled, lambda count: compiled(torch.ones(16, 8), total))
    before, calls = total.clone(), 3
    for _ in range(calls):
        compiled(torch.ones(16, 8), total)
    assert total - before == calls * 2 * 16 * 8 and total % (2 * 16 * 8) == 0
    assert not regions_of(compiled)[0]["compiled"]


def test_random_numbers_are_eagers_in_every_call():
    def draws(x):
        return note(x) * torch.rand(16, 8) + torch.randn(16, 8)

    compiled = measured(draws)
    torch.manual_seed(3)
    got = []
    until_settled(compiled, lambda count: got.append(compiled(torch.ones(16, 8))))
    torch.manual_seed(3)
    for each in got:
        torch.testing.assert_close(each, draws(torch.ones(16, 8)))


def test_an_error_is_the_callers_whoever_has_the_turn():
    def looks_up(x, i):
        return note(x)[i].sin()

    compiled, x = measured(looks_up), torch.randn(64, 64)

    def call(count):
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([count, 64]))
        torch.testing.assert_close(compiled(x, torch.tensor([count])), looks_up(x, torch.tensor([count])))

    compiled(x, torch.tensor([0]))
    for count in range(20):
        call(count)


def test_sizes_that_differ_are_tried_at_those_of_the_first_call():
    def softmax(x):
        return (x.tanh() * 2).softmax(-1).cos()

    compiled = torchbolt.compile(softmax, dynamic=True, options={"measure": True})
    inputs = [torch.randn(rows, 500) for rows in (160, 240)]

    def call(count):
        for x in inputs:
            torch.testing.assert_close(compiled(x), softmax(x))

    assert until_settled(compiled, call) >= 8  # calls with the second input do not count
    assert (torchbolt.stats()["recordings"], torchbolt.stats()["measured"]) == (1, 1)
    call(0)


def test_threads_come_to_one_verdict():
    compiled = measured(reads_itself)
    compiled(torch.ones(16, 8))

    def work(seed):
        for count in range(30):
            x = torch.full((16, 8), seed + count / 10)
            assert torch.allclose(compiled(x), reads_itself(x))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    until_settled(compiled, check(compiled, reads_itself))
    assert torchbolt.stats()["measured"] == 1


def test_short_programs_are_not_tried():
    compiled = measured(lambda x: x.sin() + 1)
    x = torch.ones(3)
    assert until_settled(compiled, lambda count: compiled(x)) <= 6
    assert regions_of(compiled)[0]["compiled"]


@pytest.mark.parametrize("asked", [False, None])
def test_nothing_is_tried_where_it_is_not_asked_for(asked, monkeypatch):
    monkeypatch.setenv("TORCHBOLT_STRICT", "1")
    compiled = torchbolt.compile(reads_itself, options={"measure": asked})
    compiled(torch.ones(16, 8))
    assert not regions_of(compiled)[0]["is_trial"]


def test_the_environment_asks(monkeypatch):
    def is_trial():
        torchbolt.reset()
        compiled = torchbolt.compile(reads_itself)
        compiled(torch.ones(16, 8))
        return regions_of(compiled)[0]["is_trial"]

    for strict, asked, trial in [("1", "auto", False), ("0", "auto", True), ("1", "1", True), ("0", "0", False)]:
        monkeypatch.setenv("TORCHBOLT_STRICT", strict)
        monkeypatch.setenv("TORCHBOLT_MEASURE", asked)
        assert is_trial() == trial


def test_bits_that_must_not_change_are_not_tried():
    torch.use_deterministic_algorithms(True)
    try:
        compiled = measured(reads_itself)
        compiled(torch.ones(16, 8))
        assert not regions_of(compiled)[0]["is_trial"]
    finally:
        torch.use_deterministic_algorithms(False)


def test_explain_says_what_came_of_it():
    seen = torchbolt.explain(reads_itself, measure=True, options={"measure": True})(torch.ones(16, 8))
    assert "Runs eagerly: it was measured to be faster" in str(seen) and seen.trials and seen.eager_regions


SCALAR = """
import torch, torchbolt
from tests_beside_eager import measured, regions_of, until_settled
torch.set_num_threads(1)
fn = lambda x: (x.exp() * 0.5).exp()
with torch.no_grad():
    compiled, x = measured(fn), torch.rand(700, 700)
    until_settled(compiled, lambda count: torch.testing.assert_close(compiled(x), fn(x)))
(region,) = regions_of(compiled)
assert not region["compiled"] and "less fusion" not in region["why_replayed"], region  # the same plan is not tried again
"""


def run(program, tmp_path, *arguments, **environment):
    (tmp_path / "tests_beside_eager.py").write_text(pathlib.Path(__file__).read_text())
    environment = os.environ | environment
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True)


def test_code_without_vectors_is_slower_than_eager(tmp_path):
    done = run(SCALAR, tmp_path, TORCHBOLT_ISA="scalar", TORCHBOLT_LOGS="perf_hints")
    assert done.returncode == 0, done.stderr
    assert "a region runs eager's operators, because it was measured to be faster: the program takes" in done.stderr


SECOND = """
import torch, torchbolt
from tests_beside_eager import measured, reads_itself, regions_of, until_settled
compiled = measured(reads_itself)
if __import__("sys").argv[1] == "first":
    until_settled(compiled, lambda count: compiled(torch.ones(16, 8)))
compiled(torch.ones(16, 8))
(region,) = regions_of(compiled)
assert not region["is_trial"] and not region["compiled"], region
assert "measured to be faster" in region["why_replayed"]
assert torchbolt.stats()["measured"] == (__import__("sys").argv[1] == "first")
"""


def test_another_process_does_not_try_again(tmp_path):
    for which in ("first", "second"):
        done = run(SECOND, tmp_path, which, TORCHBOLT_CACHE_DIR=str(tmp_path / "cache"), TORCHBOLT_CACHE="1")
        assert done.returncode == 0, done.stderr
