# tests/device/test_cuda_failures.py
"""What goes wrong on CUDA is the caller's to catch, in eager's words, and the next call works. Needs a CUDA device.

TORCHBOLT_STRESS_SECONDS=20 is how long threads go on at the same time.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
import torch
from on_cuda import randn

import torchbolt

F = torch.nn.functional
MODES = ["default", "reduce-overhead"]


@pytest.fixture(autouse=True)
def all_memory_again():
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def chain(x, w):
    for _ in range(4):
        x = F.gelu(F.layer_norm(x @ w, (64,))) + x
    return x


# ---- out of memory


def limit(further):
    """From here on torch may have so many more bytes than it has now."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + further) / total)


def outer(x):
    y = x[:, None] * x[None, :]
    for _ in range(4):
        y = torch.softmax(y, -1) + y
    return y


@pytest.mark.parametrize("mode", MODES)
def test_out_of_memory_in_a_call(mode):
    """Of calls that were launched, recorded and repeated."""
    compiled = torchbolt.compile(outer, mode=mode, dynamic=False)
    with torch.no_grad():
        x = randn(4096)  # 64 MiB each
        want = outer(x)
        for calls in range(6):
            torch.testing.assert_close(compiled(x), want)
            limit(8 << 20)
            with pytest.raises(torch.OutOfMemoryError):
                compiled(x)
            torch.cuda.set_per_process_memory_fraction(1.0)
        for _ in range(4):
            torch.testing.assert_close(compiled(x), want)


@pytest.mark.parametrize("mode", MODES)
def test_out_of_memory_where_it_is_recorded(mode):
    compiled = torchbolt.compile(outer, mode=mode, dynamic=False)
    with torch.no_grad():
        x = randn(8192)
        limit(64 << 20)
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                compiled(x)
        torch.cuda.set_per_process_memory_fraction(1.0)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), outer(x))


def test_out_of_memory_in_a_backward_pass():
    compiled = torchbolt.compile(outer, dynamic=False)
    x = randn(4096).requires_grad_()
    for _ in range(3):
        loss = compiled(x).sum()
        limit(0)
        with pytest.raises(torch.OutOfMemoryError):
            loss.backward()
        torch.cuda.set_per_process_memory_fraction(1.0)
        del loss
        x.grad = None
        compiled(x).sum().backward()
        got, x.grad = x.grad, None
        outer(x).sum().backward()
        torch.testing.assert_close(got, x.grad, rtol=1e-3, atol=1e-3)
        x.grad = None


@pytest.mark.skipif(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1, reason="it takes others' memory")
def test_no_memory_left_for_code():
    """Torch has all of it, most of it in reserve: code is loaded where some of that is given back."""
    x = randn(64, 64)
    outer(x[0])
    held = []
    for bytes_ in (1 << 30, 64 << 20, 4 << 20):
        while True:
            try:
                held.append(torch.empty(bytes_, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                break
    held = held[1:]  # that much is in reserve
    with torch.no_grad():
        compiled = torchbolt.compile(lambda x: torch.softmax(x * 3 + 1, -1).cumsum(0))
        for _ in range(3):
            torch.testing.assert_close(compiled(x), torch.softmax(x * 3 + 1, -1).cumsum(0))
    del held


# ---- a tensor on the wrong device


def mixed(x, w):
    y = x * 2
    return y @ w  # here


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", [True, False])
def test_a_tensor_on_the_wrong_device(mode, first):
    compiled = torchbolt.compile(mixed, mode=mode)
    x, w = randn(64, 64), randn(64, 64)
    with torch.no_grad():
        if not first:
            for _ in range(4):
                torch.testing.assert_close(compiled(x, w), mixed(x, w))
        for given in ((x.cpu(), w), (x, w.cpu())):
            with pytest.raises(RuntimeError) as want:
                mixed(*given)
            with pytest.raises(RuntimeError) as got:
                compiled(*given)
            assert str(got.value) == str(want.value)
            last = traceback.extract_tb(got.tb)[-1]
            assert last.name == "mixed" and "# here" in last.line, traceback.format_tb(got.tb)
        for _ in range(3):
            torch.testing.assert_close(compiled(x, w), mixed(x, w))
            torch.testing.assert_close(compiled(x.cpu(), w.cpu()), mixed(x.cpu(), w.cpu()))


# ---- a context that a kernel has left unusable

BROKEN = """
    import torch, torchbolt
    def function(x):
        return torch.softmax(x * 2, -1) + 1  # here
    compiled = torchbolt.compile(function, mode={mode!r})
    x = torch.randn(8, 8, device="cuda")
    with torch.no_grad():
        for _ in range({calls}):
            compiled(x)
        try:
            torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")].sum().item()
        except RuntimeError:
            pass
        compiled(x)
"""


@pytest.mark.parametrize("calls", [1, 5])
@pytest.mark.parametrize("mode", MODES)
def test_a_fault_of_an_earlier_kernel(mode, calls, tmp_path):
    """Torch's error, at the user's line; no call of it is a fault of the compiler's."""
    script = tmp_path / "broken.py"
    script.write_text(textwrap.dedent(BROKEN).format(mode=mode, calls=calls))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    print(ran.stderr)
    assert ran.returncode == 1, (ran.returncode, ran.stdout, ran.stderr)
    assert "device-side assert" in ran.stderr and "# here" in ran.stderr


# ---- many threads


def functions():
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda().eval()
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()

    def writes(x):
        x.mul_(0.5)
        return chain(x, layer.linear1.weight[:64])

    def gradient(x):
        return torch.autograd.grad(net(x).square().sum(), list(net.parameters()))[0]

    w = randn(64, 64)
    yield lambda x: chain(x, w)
    yield lambda x: torch.softmax(x, -1).cumsum(0)
    yield lambda x: layer(x[None])[0]
    yield writes
    yield lambda x: x[x.argmax(0) % x.shape[0]] + 1
    yield lambda x: (x.sum(0), x.sum(), x[::2].t() * 2)
    yield gradient
    yield lambda x: (x * 2).cpu().sum() + 1


def test_threads_under_stress():
    """32 threads, 8 functions in both modes, on streams of their own or the default one, sizes that differ."""
    seconds = float(os.environ.get("TORCHBOLT_STRESS_SECONDS", "20"))
    plain = list(functions())
    compiled = [torchbolt.compile(f, mode=MODES[i % 2]) for i, f in enumerate(plain)]
    until, wrong, calls = time.monotonic() + seconds, [], [0] * 32
    torch.cuda.synchronize()

    def work(thread):
        chosen = random.Random(thread)
        stream = torch.cuda.Stream() if thread % 2 else torch.cuda.default_stream()
        generator = torch.Generator("cuda").manual_seed(thread)
        try:
            with torch.cuda.stream(stream):
                while time.monotonic() < until and not wrong:
                    i = chosen.randrange(len(plain))
                    x = torch.randn(chosen.choice([16, 24, 32]), 64, device="cuda", generator=generator)
                    alike = x.clone()
                    with torch.set_grad_enabled(i == 6):
                        torch.testing.assert_close(compiled[i](x), plain[i](alike), rtol=1e-3, atol=1e-4)
                    torch.testing.assert_close(x, alike)
                    calls[thread] += 1
        except BaseException as error:
            wrong.append((thread, i, error))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(seconds + 120)
    assert not any(t.is_alive() for t in threads), "a thread waits for ever"
    print(f"{sum(calls)} calls, at least {min(calls)} a thread; {torchbolt.stats()}", flush=True)
    if wrong:
        raise AssertionError(f"thread {wrong[0][0]}, function {wrong[0][1]}") from wrong[0][2]
    assert min(calls) > 0


if __name__ == "__main__":
    sys.exit(pytest.main(["-v", "-s", "-rA", "--tb=short", __file__, *sys.argv[1:]]))
