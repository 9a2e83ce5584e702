# tests/device/test_recordings.py
"""Calls of which parts are repeated: what is recorded, what is run in between, what is copied. Without a GPU.

Launches of kernels on the processor are recorded as a CUDA graph does it (TORCHBOLT_CPU_RECORDINGS), with the
addresses and numbers of the recorded call. Calls of ATen are not, so they divide programs.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchbolt


@pytest.fixture(autouse=True)
def recording(anew, monkeypatch):
    monkeypatch.setenv("TORCHBOLT_CPU_RECORDINGS", "1")
    torchbolt.set_logs("cudagraphs")
    yield
    torchbolt.set_logs("")


def fast(function, **options):
    return torchbolt.compile(function, mode="reduce-overhead", **options)


WIDTHS = (24, 32)
WEIGHTS = {n: torch.nn.Parameter(torch.randn(n, n, generator=torch.Generator().manual_seed(n)) * 0.2) for n in WIDTHS}


def kernels(x, n=6):
    """So many launches: products with weights that are packed."""
    for _ in range(n):
        x = torch.tanh(torch.nn.functional.linear(x, WEIGHTS[x.shape[-1]]))
    return x


def counts():
    stats = torchbolt.stats()
    return stats["graphs"], stats["graph_replays"]


def agree(compiled, function, make, calls=9):
    with torch.no_grad():
        got, want = [], []
        for _ in range(calls):
            given = make()
            alike = [t.clone() for t in given]
            got.append((compiled(*given), *given))
            want.append((function(*alike), *alike))
        for a, b in zip(got, want, strict=True):  # those of earlier calls too: nothing was written over
            torch.testing.assert_close(a, b)


def one():
    return (torch.randn(16, 32),)


def test_a_whole_program():
    """Its results are kept, so one more recording has them copied out."""
    agree(fast(kernels), kernels, one)
    assert counts() == (2, 5)


def let_go(compiled, function, make, calls=9):
    """Where the results of each call lay."""
    places = []
    with torch.no_grad():
        for _ in range(calls):
            given = make()
            got = compiled(*given)
            torch.testing.assert_close(got, function(*given))
            places.append(tuple(t.data_ptr() for t in (got if isinstance(got, tuple) else (got,))))
            del got
    return places


def test_results_that_are_let_go_are_given_where_graphs_make_them():
    places = let_go(fast(kernels), kernels, one)
    assert len(set(places[3:])) == 1
    assert counts() == (1, 6)


def test_a_result_in_other_sizes_than_its_maker_has_is_given_where_graphs_make_it(capfd):
    """Who multiplies a batch of sequences makes rows, and the caller gets sequences."""

    def function(x):
        return torch.nn.functional.linear(kernels(x), WEIGHTS[24]), kernels(x).transpose(0, 1)

    compiled = fast(function)
    places = []
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(2, 12, 24)
            first, second = compiled(x)
            torch.testing.assert_close((first, second), function(x))
            assert first.stride() == (288, 24, 1) and second.stride() == function(x)[1].stride()
            places.append(first.data_ptr())
            del first, second
    assert len(set(places[3:])) == 1
    said = [line for line in capfd.readouterr().err.splitlines() if "recorded" in line]
    assert len(said) == 1 and "0 of 2 outputs" in said[0], said


def test_what_another_program_makes_is_read_in_place(capfd):
    """Its results lie elsewhere as soon as they are a graph's, and stay there: nothing is copied meanwhile."""
    first, second = fast(kernels), fast(lambda x: kernels(x) + 1)
    with torch.no_grad():
        for _ in range(16):
            (x,) = one()
            got = second(first(x))
            torch.testing.assert_close(got, kernels(kernels(x)) + 1)
            del got
    said = [line for line in capfd.readouterr().err.splitlines() if "recorded" in line]
    assert len(said) == 2 and "<lambda>" in said[-1] and "0 of 2 inputs copied" in said[-1], said


def test_one_result_that_is_held_is_copied_and_the_others_are_not():
    def function(x):
        y = kernels(x)
        return y, y * 2, torch.linalg.matrix_exp(y * 0.01)

    held = []
    compiled = fast(function)
    places = []
    with torch.no_grad():
        for _ in range(12):
            x = torch.randn(24, 24)
            first, second, third = compiled(x)
            torch.testing.assert_close((first, second, third), function(x))
            held.append((second, function(x)[1]))
            places.append((first.data_ptr(), second.data_ptr()))
            del first, second, third
    for got, want in held:
        torch.testing.assert_close(got, want)
    assert len({a for a, _ in places[-5:]}) == 1 and len({b for _, b in places[-5:]}) == 5
    assert counts()[0] == 2


def test_what_a_result_was_made_of_is_not_written_over():
    """A view keeps its memory, and so does a reference to the storage alone."""
    compiled = fast(kernels)
    with torch.no_grad():
        for keep in (lambda y: y[3:5].t(), lambda y: y.untyped_storage()):
            torchbolt.reset()
            for _ in range(4):
                compiled(*one())
            (x,) = one()
            y = compiled(x)
            kept, want = keep(y), keep(kernels(x))
            del y
            compiled(*one())
            if not isinstance(kept, torch.Tensor):
                kept, want = (
                    torch.empty(0).set_(torch.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True))
                    for storage in (kept, want)
                )
            torch.testing.assert_close(kept, want)


def test_calls_between_graphs():
    def function(x):
        x = torch.linalg.matrix_exp(kernels(x) * 0.01)
        y = torch.linalg.matrix_exp(kernels(x) * 0.01)
        return kernels(y), x, y[1:], (y * 2).t()

    agree(fast(function), function, lambda: (torch.randn(24, 24),))
    graphs, replays = counts()
    assert graphs == 6 and replays == 5


def test_a_call_at_either_end():
    def function(x):
        return torch.linalg.matrix_exp(kernels(torch.linalg.matrix_exp(x * 0.1)) * 0.01)

    agree(fast(function), function, lambda: (torch.randn(24, 24),))
    assert counts() == (1, 6)


def test_small_runs_are_launched(capfd):
    def function(x):
        return torch.linalg.matrix_exp(torch.linalg.matrix_exp(x) + 1)

    agree(fast(function), function, lambda: (torch.randn(8, 8) * 0.1,))
    assert counts() == (0, 0)
    assert "no CUDA graph, because" in capfd.readouterr().err


def test_what_is_left_out_is_said(capfd):
    torchbolt.set_logs("perf_hints")
    compiled = fast(lambda x: kernels(torch.linalg.matrix_exp(kernels(x) * 0.01)))
    with torch.no_grad():
        compiled(torch.randn(24, 24))
    text = capfd.readouterr().err
    assert "2 CUDA graphs, and steps that are launched in between: torchbolt::aten::linalg_matrix_exp" in text, text


def test_inputs_that_stay_and_inputs_that_move():
    stays = torch.randn(24, 24)

    def function(x, w):
        return kernels(torch.linalg.matrix_exp(kernels(x) * 0.01) + w) @ w

    agree(fast(function), function, lambda: (torch.randn(24, 24), stays))
    kept = []

    def moves():
        kept.append(torch.randn(24, 24))
        return torch.randn(24, 24), kept[-1]

    agree(fast(function), function, moves)


def test_inputs_that_are_written():
    def function(x, y):
        y.add_(torch.linalg.matrix_exp(kernels(x) * 0.01))
        z = kernels(y)
        x.copy_(z)
        return z * 2

    stays = [torch.randn(24, 24), torch.randn(24, 24)]
    agree(fast(function), function, lambda: (torch.randn(24, 24), torch.randn(24, 24)))
    compiled, alike = fast(function), [t.clone() for t in stays]
    with torch.no_grad():
        for _ in range(9):
            torch.testing.assert_close(compiled(*stays), function(*alike))
            torch.testing.assert_close(stays, alike)
            for t in (*stays, *alike):
                t.mul_(0.01)


def test_results_without_elements():
    """No step writes them."""

    def function(x):
        return kernels(x), x[:0] + 1.0

    agree(fast(function), function, one)
    assert counts()[0] > 0


def test_an_operator_that_raises_in_between():
    @torch.library.custom_op("recording_tests::choosy", mutates_args=())
    def choosy(x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise ValueError("not this one")
        return x * 2

    choosy.register_fake(lambda x: torch.empty_like(x))

    def function(x):
        return kernels(choosy(kernels(x)))

    compiled = fast(function)
    agree(compiled, function, one)
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(ValueError, match="not this one"):
                compiled(torch.full((16, 32), float("nan")))
            agree(compiled, function, one, 2)
    assert counts()[1] >= 8


def test_an_operator_that_calls_the_same_program():
    inner = fast(kernels)

    @torch.library.custom_op("recording_tests::nested", mutates_args=())
    def nested(x: torch.Tensor) -> torch.Tensor:
        found = []
        thread = threading.Thread(target=lambda: found.append(inner(x)))  # which waits for nobody
        thread.start()
        thread.join(20)
        return found[0] + inner(x)

    nested.register_fake(lambda x: torch.empty_like(x))
    with torch.no_grad():
        for _ in range(4):
            inner(torch.randn(16, 32))
    agree(fast(lambda x: kernels(nested(kernels(x)))), lambda x: kernels(2 * kernels(kernels(x))), one)


def test_random_numbers_within_graphs(monkeypatch):
    """The call that records draws them once, as every other call does."""
    monkeypatch.setenv("TORCHBOLT_CPU_RECORDINGS", "calls")

    def function(x):
        return kernels(torch.nn.functional.dropout(kernels(x), 0.5) + torch.randn_like(x))

    compiled = fast(function)
    for step in range(8):
        x = torch.randn(16, 32)
        found = []
        for run in (function, compiled):
            torch.manual_seed(step)
            found.append((run(x), torch.get_rng_state()))
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)
    assert torchbolt.stats()["graph_replays"] > 0


def test_random_numbers_between_graphs():
    def function(x):
        return kernels(torch.nn.functional.dropout(kernels(x), 0.5))

    compiled = fast(function)
    with torch.no_grad():
        for seed in range(9):
            x = torch.randn(16, 32)
            torch.manual_seed(seed)
            got, after = compiled(x), torch.rand(3)
            torch.manual_seed(seed)
            torch.testing.assert_close((got, after), (function(x), torch.rand(3)))
    assert counts()[1] >= 5


def test_sizes_that_alternate():
    compiled = fast(kernels)
    with torch.no_grad():
        for _ in range(8):
            for rows in (8, 16, 24):
                x = torch.randn(rows, 32)
                torch.testing.assert_close(compiled(x), kernels(x))
    assert counts()[1] >= 6


def test_training_with_several_forwards_before_the_backwards():
    def made():
        torch.manual_seed(3)
        return torch.nn.Sequential(
            torch.nn.Linear(32, 32),
            torch.nn.LayerNorm(32),
            torch.nn.Tanh(),
            torch.nn.LayerNorm(32),
            torch.nn.Linear(32, 8),
        )

    ours, eager = made(), made()
    compiled = fast(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (ours, eager)]
    for step in range(12):
        batches = [torch.randn(16, 32) for _ in range(1 + step % 3)]
        for run, model in ((compiled, ours), (eager, eager)):
            losses = [run(x).square().mean() for x in batches]
            for loss in reversed(losses):
                loss.backward()
        for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
        if step % 2:  # so they accumulate over two steps
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()


@pytest.mark.parametrize("sizes", [[16], [16, 9, 24]])
def test_passes_through_some_results(monkeypatch, capfd, sizes):
    """What another result would make of its missing gradient is left out, in a backward part with graphs of its own."""
    monkeypatch.setenv("TORCHBOLT_CPU_RECORDINGS", "calls")
    w = torch.randn(32, 32) * 0.2

    def function(x):
        h = kernels(x)
        return (h @ w).sin(), h.abs().sqrt()

    compiled = fast(function)
    for turn in range(9 * len(sizes)):
        x = torch.randn(sizes[turn % len(sizes)], 32, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x)[0].sum(), x)
        (want,) = torch.autograd.grad(function(x)[0].sum(), x)
        torch.testing.assert_close(got, want)
    assert "backward of some results: recorded" in capfd.readouterr().err


def test_threads():
    compiled = fast(lambda x: kernels(torch.linalg.matrix_exp(kernels(x) * 0.01)))

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(40):
                x = torch.randn(24, 24, generator=generator)
                want = kernels(torch.linalg.matrix_exp(kernels(x) * 0.01))
                torch.testing.assert_close(compiled(x), want)

    with torch.no_grad():
        compiled(torch.randn(24, 24))
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


def block():
    torch.manual_seed(0)
    return torch.nn.ModuleList(
        [torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 32), torch.nn.Linear(32, 5, bias=False)]
    )


def test_calls_of_aten_are_part_of_what_is_repeated(monkeypatch):
    """Training through operators that are ATen's, each of whose results lies where it lay."""
    monkeypatch.setenv("TORCHBOLT_CPU_RECORDINGS", "calls")

    def loss(m, x, y):
        h = x + m[2](torch.nn.functional.gelu(m[1](m[0](x))))
        best, at = h.topk(4, dim=1)
        h = h.gather(1, at.sort(dim=1).values) + best
        return torch.nn.functional.cross_entropy(m[3](h.repeat(1, 8)), y)

    model, other = block(), block()
    compiled = fast(lambda x, y: loss(model, x, y))
    generator = torch.Generator().manual_seed(1)
    for _ in range(12):
        x, y = torch.randn(16, 32, generator=generator), torch.randint(5, (16,), generator=generator)
        for m, f in ((model, compiled), (other, lambda x, y: loss(other, x, y))):
            f(x, y).backward()
            with torch.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad
            m.zero_grad()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p, q)
    graphs, replays = counts()
    assert graphs > 0 and replays > 8


def test_calls_and_inputs_that_are_written_to(monkeypatch):
    monkeypatch.setenv("TORCHBOLT_CPU_RECORDINGS", "calls")

    def function(x, y):
        best = kernels(x).topk(8, dim=1).values
        x.add_(best.repeat(1, 4))
        y.copy_(x.sort(dim=1).values)
        return best * 2

    agree(fast(function), function, lambda: (torch.randn(16, 32), torch.zeros(16, 32)))
    graphs, replays = counts()
    assert graphs > 0 and replays > 4
