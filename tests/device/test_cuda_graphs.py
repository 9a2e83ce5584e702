# tests/device/test_cuda_graphs.py
"""mode="reduce-overhead": calls that repeat one before them are launched by a CUDA graph, and nobody can tell.

Needs a CUDA device. Each case prints what happened: `python tests/device/test_cuda_graphs.py` shows all of it.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from on_cuda import convolutional, randn

import torchbolt

F = torch.nn.functional


def fast(function, **options):
    return torchbolt.compile(function, mode="reduce-overhead", **options)


def counts():
    stats = torchbolt.stats()
    return {key: stats[key] for key in ("regions", "graphs", "graph_replays", "eager_fallbacks")}


@pytest.fixture(autouse=True)
def told(anew, request):
    torchbolt.set_logs("cudagraphs")
    yield
    torch.cuda.synchronize()
    print(f"\n{request.node.name}: {counts()}, {torch.cuda.memory_allocated() >> 10} KiB allocated", flush=True)
    torchbolt.set_logs("")


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def chain(x, w):
    for _ in range(4):
        x = F.gelu(F.layer_norm(x @ w, (64,))) + x
    return x


# ---- what is repeated


def test_a_call_is_repeated():
    compiled, w = fast(chain), randn(64, 64)
    with torch.no_grad():
        for _ in range(10):
            x = randn(32, 64)
            close(compiled(x, w), chain(x, w))
    assert counts()["graphs"] >= 1 and counts()["graph_replays"] >= 6


def test_an_input_that_moves_later():
    compiled, w = fast(chain), randn(64, 64)
    stays = randn(32, 64)
    with torch.no_grad():
        for _ in range(5):
            close(compiled(stays, w), chain(stays, w))
            stays.mul_(1.1)
        kept = []
        for _ in range(5):
            kept.append(randn(32, 64))
            close(compiled(kept[-1], w), chain(kept[-1], w))
        close(compiled(stays, w), chain(stays, w))
    assert 1 <= counts()["graphs"] <= 4 and counts()["graph_replays"] >= 6


def layouts():
    yield "plain", lambda: randn(64, 64)
    yield "transposed", lambda: randn(64, 64).t()
    yield "sliced", lambda: randn(128, 130)[::2, 2:66]
    yield "expanded", lambda: randn(64).expand(64, 64)
    yield "off_alignment", lambda: randn(64 * 64 + 1)[1:].view(64, 64)


@pytest.mark.parametrize("name, make", list(layouts()), ids=lambda x: x if isinstance(x, str) else "")
def test_inputs_lie_in_many_ways(name, make):
    compiled, kept, w = fast(chain), [], randn(64, 64)
    with torch.no_grad():
        for _ in range(8):
            kept.append(make())
            close(compiled(kept[-1], w), chain(kept[-1], w))
    assert counts()["graph_replays"] >= 5 or name == "expanded"  # which shows parts of its memory twice


def models():
    yield (
        "mlp",
        lambda: torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)),
        (8, 64),
    )
    yield "cnn", convolutional, (4, 3, 32, 32)
    yield (
        "norms",
        lambda: torch.nn.Sequential(
            torch.nn.Linear(64, 128),
            torch.nn.LayerNorm(128),
            torch.nn.GELU(),
            torch.nn.Linear(128, 64),
            torch.nn.LayerNorm(64),
            torch.nn.Softmax(-1),
        ),
        (2, 16, 64),
    )


@pytest.mark.parametrize("name, make, sizes", list(models()), ids=lambda x: x if isinstance(x, str) else "")
def test_models_and_their_parameters_change(name, make, sizes):
    model = make().cuda().eval()
    compiled = fast(model)
    with torch.no_grad():
        for step in range(12):
            x = randn(*sizes)
            close(compiled(x), model(x))
            if step in (5, 8):
                for parameter in model.parameters():
                    parameter.mul_(1.1)
    assert counts()["graph_replays"] >= 2


# ---- the pitfalls


def test_results_are_held_across_steps():
    compiled, w = fast(chain), randn(64, 64)
    with torch.no_grad():
        inputs = [randn(32, 64) for _ in range(12)]
        held = [compiled(x, w) for x in inputs]
        views = [compiled(x, w)[1:, ::2] for x in inputs]
        for x, y, v in zip(inputs, held, views, strict=True):
            close(y, chain(x, w))
            close(v, chain(x, w)[1:, ::2])
    assert counts()["graph_replays"] >= 20


def test_many_results_of_many_sizes_lie_where_graphs_make_them(capfd):
    """The allocator gives the same requests the same addresses, once it has the memory for them."""
    draw = torch.Generator().manual_seed(3)
    sizes = list(set((2 ** (torch.rand(150, generator=draw) * 14 + 2)).long().tolist()))
    x, w = randn(max(sizes), 64), randn(64, 64)
    call = fast(lambda x, w: [x[:n] @ w for n in sizes])
    for _ in range(6):
        for got, want in zip(call(x, w), [x[:n] @ w for n in sizes], strict=True):
            close(got, want)
        del got
    said = capfd.readouterr().err
    assert f"inputs copied, 0 of {len(sizes)} outputs" in said, said


def test_what_is_kept_in_padded_rows_lies_where_graphs_make_it(capfd):
    """Logits that the caller is given, and may write to, while the backward pass reads the product in its rows."""

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.map = torch.nn.Linear(512, 1001, bias=False)

        def forward(self, x, labels):
            logits = self.map(x)
            return logits, F.cross_entropy(logits.float(), labels)

    torch.manual_seed(0)
    model = Head().cuda().bfloat16()
    call = fast(model)
    for _ in range(8):
        x, labels = randn(512, 512, dtype=torch.bfloat16), torch.randint(1001, (512,), device="cuda")
        gradients = []
        for run in (model, call):
            model.zero_grad()
            logits, loss = run(x, labels)
            logits.detach().zero_()
            loss.backward()
            gradients.append(model.map.weight.grad)
        torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-5)
        del logits, loss
    said = capfd.readouterr().err
    assert "inputs copied, 0 of" in said and counts()["graph_replays"] >= 4, said


def test_results_are_given_to_the_next_call():
    first, second, w = fast(chain), fast(lambda x, w: torch.tanh(chain(x, w)) * 2 + 1), randn(64, 64)
    with torch.no_grad():
        got = want = randn(32, 64)
        for _ in range(12):
            torchbolt.cudagraph_mark_step_begin()
            got, want = second(first(got, w), w), torch.tanh(chain(chain(want, w), w)) * 2 + 1
            close(got, want)
            want = got
    assert counts()["graph_replays"] >= 16


def test_results_are_copied_to_the_processor_later():
    compiled, w = fast(chain), randn(256, 256)[:64, :64].contiguous()
    with torch.no_grad():
        inputs, side, copies, last = [randn(4096, 64) for _ in range(12)], torch.cuda.Stream(), [], None
        for x in inputs:
            now = compiled(x, w)
            if last is not None:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    copies.append(last.to("cpu", non_blocking=True))
                last.record_stream(side)
            last = now
        torch.cuda.synchronize()
        for x, copy in zip(inputs, copies, strict=False):
            close(copy, chain(x, w).cpu())


def test_inputs_are_written():
    def write(x, y):
        x.add_(chain(y, w))
        return x @ y

    compiled, stays, w = fast(write), randn(64, 64), randn(64, 64)
    alike = stays.clone()
    with torch.no_grad():
        for step in range(14):
            y = randn(64, 64)
            if step == 7:  # from now on another tensor each time
                held = [stays]
            if step >= 7:
                stays = randn(64, 64)
                held.append(stays)
                alike = stays.clone()
            version = stays._version
            close(compiled(stays, y), write(alike, y))
            close(stays, alike)
            assert stays._version > version
    assert counts()["graph_replays"] >= 6


def test_inputs_are_written_through_views():
    w = randn(64, 64)

    def write(x):
        x[:, ::2].mul_(2)
        x.add_(chain(x, w))
        x.t_()
        return x.sum()

    compiled = fast(write)
    with torch.no_grad():
        for _ in range(8):
            x = randn(16, 64)
            alike = x.clone()
            close(compiled(x), write(alike))
            close(x, alike)


def test_sizes_that_keep_changing():
    compiled, w = fast(chain), randn(64, 64)
    with torch.no_grad():
        for _ in range(6):
            for rows in range(2, 40):
                x = randn(rows, 64)
                close(compiled(x, w), chain(x, w))
    assert counts()["graphs"] <= 8 + 4 and counts()["regions"] <= 4


def test_sizes_that_alternate():
    compiled, w = fast(chain), randn(64, 64)
    with torch.no_grad():
        for _ in range(12):
            for rows in (16, 32, 48):
                x = randn(rows, 64)
                close(compiled(x, w), chain(x, w))
    assert counts()["graph_replays"] >= 12


def test_numbers_that_keep_changing():
    compiled, w = fast(lambda x, w, s: chain(x * s, w) + s), randn(64, 64)
    with torch.no_grad():
        for step in range(40):
            x, s = randn(32, 64), 0.1 * step
            close(compiled(x, w, s), chain(x * s, w) + s)
    with torch.no_grad():
        for step in range(12):
            close(compiled(x, w, step % 2 + 0.5), chain(x * (step % 2 + 0.5), w) + (step % 2 + 0.5))


def test_training_and_gradients_that_accumulate():
    def made():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()

    ours, eager = made(), made()
    compiled = fast(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (ours, eager)]
    for step in range(16):
        x = randn(32, 64)
        for run, model in ((compiled, ours), (eager, eager)):
            run(x).square().mean().backward()
        for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
            close(a.grad, b.grad)
        if step % 3 == 2:  # so they accumulate over three steps
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=step % 2 == 0)
    for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
        close(a, b)


def twins(make):
    torch.manual_seed(3)
    ours = make().cuda().double()
    eager = make().cuda().double()
    eager.load_state_dict(ours.state_dict())
    return ours, eager


def trained():
    nn = torch.nn
    yield "mlp", lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 32)), (8, 32)
    yield (
        "cnn",
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 32)
        ),
        (4, 3, 16, 16),
    )
    yield "encoder", lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True), (4, 12, 32)


@pytest.mark.parametrize("several", [1, 3])
@pytest.mark.parametrize("name, make, sizes", list(trained()), ids=lambda x: x if isinstance(x, str) else "")
def test_steps_of_training_are_those_of_eager(name, make, sizes, several):
    """In doubles, so that steps do not drift apart; `several` forward passes before their backward passes."""
    ours, eager = twins(make)
    compiled = fast(ours)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (ours, eager)]
    for step in range(10):
        batches = [torch.randn(*sizes, device="cuda", dtype=torch.float64) for _ in range(several)]
        for run, model, optimizer in ((compiled, ours, optimizers[0]), (eager, eager, optimizers[1])):
            torch.manual_seed(step)
            losses = [run(x).square().mean() for x in batches]
            for loss in losses:
                loss.backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=step % 4 == 1)
        for (key, a), b in zip(ours.named_parameters(), eager.parameters(), strict=True):
            if b.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-10, msg=lambda m, k=key: f"{k}: {m}")
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10, msg=lambda m, k=key: f"{k}, step {step}: {m}")
    assert counts()["graph_replays"] >= 5 or name != "encoder"  # the others may be too few launches


# ---- random numbers in graphs


def noisy(x, w):
    return chain(F.dropout(chain(x, w), 0.5), w) + torch.rand_like(x)


def test_random_numbers_are_those_of_plain_launches():
    compiled, x, w = fast(noisy), randn(32, 64), randn(64, 64)
    with torch.no_grad():
        for step in range(12):
            torch.manual_seed(step % 4)
            got, after = compiled(x, w), torch.rand(5, device="cuda")
            torch.manual_seed(step % 4)
            close(got, noisy(x, w))
            assert torch.equal(after, torch.rand(5, device="cuda")), "the generator is elsewhere afterwards"
        assert not torch.equal(compiled(x, w), compiled(x, w))
        torch.manual_seed(9)  # and the seed holds for a run of calls
        got = [compiled(x, w) for _ in range(6)]
        torch.manual_seed(9)
        for y in got:
            close(y, noisy(x, w))
    assert counts()["graph_replays"] >= 10


def test_random_numbers_and_the_generators_state():
    compiled, x, w = fast(noisy), randn(32, 64), randn(64, 64)
    with torch.no_grad():
        for _ in range(6):
            state = torch.cuda.get_rng_state()
            got = compiled(x, w)
            torch.cuda.set_rng_state(state)
            close(got, compiled(x, w))
            torch.cuda.set_rng_state(state)
            close(got, noisy(x, w))


def test_random_numbers_in_results_that_are_held():
    """The call is recorded anew, when the first recording with its memory is gone."""
    compiled, x, w = fast(noisy), randn(32, 64), randn(64, 64)
    with torch.no_grad():
        torch.manual_seed(9)
        got = [compiled(x, w) for _ in range(12)]
        torch.manual_seed(9)
        for y in got:
            close(y, noisy(x, w))
    assert counts()["graph_replays"] >= 6
    assert torch.rand(3, device="cuda").isfinite().all()


def attended(q, k, v, dropout):
    a = F.scaled_dot_product_attention(q * 1.1, k, v, dropout_p=dropout)
    for _ in range(8):
        a = F.layer_norm(a.tanh(), (64,))
    return a


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attentions_state_of_random_numbers(dtype, dropout):
    """Where it lies rests on whether the forward call was captured: ATen gives it on the processor if not."""
    compiled, error = fast(attended), 1e-4 if dtype == torch.float32 else 5e-2

    def gradients(function, inputs, step):
        leaves = [t.clone().requires_grad_() for t in inputs]
        torch.manual_seed(step)
        out = function(*leaves, dropout)
        return [out.detach(), *torch.autograd.grad(out.float().pow(3).sum(), leaves)]

    for step in range(10):
        inputs = [randn(2, 4, 128, 64).to(dtype) for _ in range(3)]
        for a, b in zip(gradients(compiled, inputs, step), gradients(attended, inputs, step), strict=True):
            torch.testing.assert_close(a, b, rtol=error, atol=error * b.abs().max().item())
    assert dropout or counts()["graph_replays"] >= 8  # what draws for attention is launched


def test_dropout_of_a_whole_network_is_in_its_graphs():
    """Attention's, in what kernel ATen takes, and that of the layers: one graph each way, and eager's numbers."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda().bfloat16()
    compiled, x = fast(model), randn(4, 64, 128).bfloat16()

    def gradients(run, step):
        model.zero_grad()
        torch.manual_seed(step)
        out = run(x)
        out.float().pow(3).mean().backward()
        return [out.detach(), torch.rand(3, device="cuda"), *(p.grad for p in model.parameters())]

    for step in range(12):
        before = counts()["graph_replays"] if step > 7 else 0
        got = gradients(compiled, step % 5)
        if step > 7:
            assert counts()["graph_replays"] - before == 2
        for a, b in zip(got, gradients(model, step % 5), strict=True):
            assert (a - b).norm() <= 0.1 * b.norm()


def test_random_numbers_on_streams():
    """All graphs of a device read seed and offset in one place."""
    compiled, w = fast(noisy), randn(64, 64)
    streams = [torch.cuda.Stream() for _ in range(2)]
    with torch.no_grad():
        inputs = [randn(512, 64) for _ in range(24)]
        torch.cuda.synchronize()
        torch.manual_seed(5)
        got = []
        for i, x in enumerate(inputs):
            with torch.cuda.stream(streams[i % 2]):
                got.append(compiled(x, w))
        torch.cuda.synchronize()
        torch.manual_seed(5)
        for x, y in zip(inputs, got, strict=True):
            close(y, noisy(x, w))
    assert counts()["graph_replays"] >= 12


def test_random_numbers_while_nothing_is_captured_any_more():
    """What capturing changes in torch's generator is over when it ends."""
    compiled, x, w = fast(noisy), randn(32, 64), randn(64, 64)
    with torch.no_grad():
        for _ in range(5):
            compiled(x, w)
    torch.rand(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.rand(4, device="cuda")
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)


# ---- parts of a program


@torch.library.custom_op("graph_tests::host", mutates_args=())
def host(x: torch.Tensor) -> torch.Tensor:
    return x * float(x.abs().max().item() >= 0)


@host.register_fake
def _(x):
    return torch.empty_like(x)


def test_parts_around_an_operator_that_waits(capfd):
    """Found out by trying, twice; from then on there are graphs around it."""

    def function(x, w):
        y = host(chain(x, w))
        return chain(y, w), y[1:], y.sum()

    compiled, w, kept = fast(function), randn(64, 64), []
    with torch.no_grad():
        for _ in range(14):
            x = randn(32, 64)
            kept.append((compiled(x, w), function(x, w)))
        for got, want in kept:
            for a, b in zip(got, want, strict=True):
                close(a, b)
    text = capfd.readouterr().err
    print(text)
    assert "2 CUDA graphs, and steps that are launched in between" in text and "graph_tests::host" in text
    assert counts()["graph_replays"] >= 4


def test_parts_and_inputs_that_are_written():
    def function(x, w, out):
        y = host(chain(x, w))
        out.copy_(chain(y, w))
        x.mul_(2)
        return y + 1

    compiled, w = fast(function), randn(64, 64)
    with torch.no_grad():
        for step in range(14):
            given = [randn(32, 64), w, randn(32, 64)]
            alike = [t.clone() for t in given]
            close(compiled(*given), function(*alike))
            for a, b in zip(given, alike, strict=True):
                close(a, b)


def test_parts_and_training():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

        def forward(self, x):
            for _ in range(3):
                x = torch.tanh(self.first(x)) + x
            x = x * torch.poisson(torch.ones_like(x))
            for _ in range(3):
                x = torch.tanh(self.second(x)) + x
            return x

    ours, eager = twins(Net)
    compiled = fast(ours)
    for step in range(10):
        x = torch.randn(16, 32, device="cuda", dtype=torch.float64)
        for run in (compiled, eager):
            torch.manual_seed(step)
            run(x).square().mean().backward()
        for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-10)


# ---- what is not recorded


def said(capfd, compiled, *arguments):
    for _ in range(5):
        compiled(*arguments)
    text = capfd.readouterr().err
    print(text)
    return [line for line in text.splitlines() if "no CUDA graph" in line]


def test_random_numbers_that_no_graph_draws(capfd):
    compiled = fast(lambda x: torch.poisson(x) * 2)
    with torch.no_grad():
        x = randn(64, 64).abs()
        assert any("random" in line for line in said(capfd, compiled, x))
        for seed in range(3):
            torch.manual_seed(seed)
            got = compiled(x)
            torch.manual_seed(seed)
            close(got, torch.poisson(x) * 2)
    assert counts()["graphs"] == 0


def test_sizes_that_are_data():
    def function(x):
        return x[x > 0].exp().sum() + x.sum()

    compiled = fast(function)
    with torch.no_grad():
        for _ in range(8):
            x = randn(64)
            close(compiled(x), function(x))


def test_work_on_the_processor(capfd):
    compiled, s = fast(lambda x, s: (x * s).softmax(-1) + s), torch.tensor(2.0)
    with torch.no_grad():
        x = randn(64, 64)
        print(said(capfd, compiled, x, s))
        for _ in range(5):
            s.add_(1)
            close(compiled(x, s), (x * s).softmax(-1) + s)


@torch.library.custom_op("graph_tests::waits", mutates_args=())
def waits(x: torch.Tensor) -> torch.Tensor:
    return x * float(x.sum().item() > 0)


@waits.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_that_waits(capfd):
    """It cannot be captured: found out by trying, and nothing of the attempt remains."""
    compiled, w = fast(lambda x: waits(torch.tanh(x)) @ w), randn(64, 64)
    with torch.no_grad():
        x = randn(64, 64).abs()
        assert said(capfd, compiled, x)
        close(compiled(x), torch.tanh(x) @ w)
        close(compiled(-x), torch.zeros_like(x))
        other = fast(chain)
        for _ in range(5):
            close(other(x, w), chain(x, w))
    assert counts()["graphs"] == 1


def test_explain_says_why():
    with torch.no_grad():
        seen = torchbolt.explain(lambda x: torch.poisson(x), mode="reduce-overhead")(randn(4, 4).abs())
    print(seen.no_graphs)
    assert seen.no_graphs and "random" in seen.no_graphs[0]


def test_the_user_captures():
    compiled, w, x = fast(chain), randn(64, 64), randn(32, 64)
    with torch.no_grad():
        for _ in range(5):
            compiled(x, w)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                compiled(x, w)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = compiled(x, w)
        for _ in range(3):
            x.copy_(randn(32, 64))
            graph.replay()
            close(y, chain(x, w))


def test_an_index_out_of_range_is_told_later():
    table, w = randn(10, 64), randn(64, 64)
    compiled = fast(lambda i: chain(table[i] * 2, w))
    with torch.no_grad():
        for _ in range(5):
            compiled(torch.tensor([1, 2], device="cuda"))
        compiled(torch.tensor([1, 99], device="cuda"))
        torch.cuda.synchronize()
        with pytest.raises(IndexError):
            compiled(torch.tensor([1, 2], device="cuda"))


def test_a_few_launches_are_not_worth_it(capfd):
    with torch.no_grad():
        assert "copies" in said(capfd, fast(lambda x: x + 1), randn(8))[0]
    assert counts()["graphs"] == 0


# ---- where and by whom


def test_streams():
    compiled, w = fast(chain), randn(64, 64)
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.no_grad():
        inputs = [randn(512, 64) for _ in range(60)]
        want = [chain(x, w) for x in inputs]
        torch.cuda.synchronize()
        got = []
        for i, x in enumerate(inputs):
            with torch.cuda.stream(streams[i % 3]):
                got.append(compiled(x, w))
        torch.cuda.synchronize()
    for a, b in zip(got, want, strict=True):
        close(a, b)
    assert counts()["graph_replays"] >= 30


@pytest.mark.parametrize("own_streams", [False, True])
def test_threads(own_streams):
    compiled, w = fast(chain), randn(64, 64)
    with torch.no_grad():
        compiled(randn(32, 64), w)
    torch.cuda.synchronize()

    def work(seed):
        generator = torch.Generator("cuda").manual_seed(seed)
        stream = torch.cuda.Stream() if own_streams else torch.cuda.current_stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(60):
                x = torch.randn(32, 64, device="cuda", generator=generator)
                y = compiled(x, w)
                close(y, chain(x, w))

    torch.cuda.synchronize()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices():
    compiled = fast(chain)
    with torch.no_grad():
        for _ in range(8):
            for device in ("cuda:0", "cuda:1"):
                x, w = torch.randn(32, 64, device=device), torch.randn(64, 64, device=device)
                close(compiled(x, w), chain(x, w))


# ---- memory


def test_nothing_is_left_behind():
    compiled, w = fast(chain), randn(64, 64)
    with torch.no_grad():
        for _ in range(6):
            compiled(randn(1024, 64), w)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for i in range(50):
            x = randn(1024, 64)
            y = compiled(x, w)
            if i % 10 == 0:
                torch.cuda.empty_cache()
                torch._C._cuda_clearCublasWorkspaces()
            close(y, chain(x, w))
        del x, y
        torch.cuda.synchronize()
        print("left behind:", torch.cuda.memory_allocated() - before, "bytes")
        torch._C._cuda_clearCublasWorkspaces()
        assert torch.cuda.memory_allocated() - before <= 1 << 20


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(256, 768), torch.nn.Linear(256, 256)

    def forward(self, x):
        q, k, v = self.first(x).view(*x.shape[:2], 3, 4, 64).permute(2, 0, 3, 1, 4)
        return x + self.last(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_what_a_call_keeps_is_made_where_it_stays(dtype):
    """Attention keeps its result, the sums of its rows and the state of its random numbers for the backward pass."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Attending() for _ in range(3))).cuda().to(dtype)
    compiled, x = fast(model), randn(4, 512, 256, dtype=dtype)

    def gradients(call):
        model.zero_grad()
        call(x).float().square().mean().backward()
        return [p.grad for p in model.parameters()]

    want = [g.clone() for g in gradients(model)]
    for _ in range(8):
        for got, eager in zip(gradients(compiled), want, strict=True):
            torch.testing.assert_close(got, eager, rtol=3e-2, atol=2e-3)
    del got, eager
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        gradients(compiled)
        torch.cuda.synchronize()
    # What graphs and eager hand each other is copied, and nothing of the six that attention keeps.
    assert sum("Memcpy DtoD" in event.name for event in seen.events()) <= 3


def test_inference_mode():
    compiled, w = fast(chain), randn(64, 64)
    for _ in range(8):
        with torch.inference_mode():
            x = randn(32, 64)
            y = compiled(x, w)
            assert y.is_inference()
            close(y, chain(x, w))


# ---- times, for who reads them


def median(function, *arguments):
    for _ in range(20):
        function(*arguments)
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            function(*arguments)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 10)
    return f"{sorted(times)[len(times) // 2] * 1e6:.1f} us"


def test_times():
    def norms(x):
        for _ in range(100):
            x = F.layer_norm(x, (16,)) + 1
        return x

    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)]
    encoder = torch.nn.Sequential(*layers).cuda().eval().bfloat16()
    w = randn(64, 64)
    cases = {
        "100 LayerNorms of 4x16": (norms, (randn(4, 16),)),
        "chain 32x64": (chain, (randn(32, 64), w)),
        "one addition": (lambda x: x + 1, (randn(32, 64),)),
        "6 encoder layers 2x64x512 bf16": (encoder, (randn(2, 64, 512, dtype=torch.bfloat16),)),
    }
    torchbolt.set_logs("")
    with torch.no_grad():
        for name, (function, arguments) in cases.items():
            plain, at_once = torchbolt.compile(function), fast(function)
            print(
                f"\n{name}: eager {median(function, *arguments)}, default {median(plain, *arguments)}, "
                f"reduce-overhead {median(at_once, *arguments)}",
                flush=True,
            )
    assert counts()["graphs"] >= 3


if __name__ == "__main__":
    sys.exit(pytest.main(["-v", "-s", "-rA", "--tb=short", __file__, *sys.argv[1:]]))
