# tests/api/test_saved.py
"""save() and load(): a new process takes over what was compiled and neither records nor compiles it, or says why not."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import textwrap
import typing

import pytest
import torch

import torchbolt
from torchbolt import exc, references

MODEL = """
import functools

import torch
import torchbolt


def pick(x, power=2, *, shift=1.0):
    z = torch.sin(x) ** power + shift
    return {"z": z, "parts": (z.sum(-1), [x, "text", power])}


def asks(x):
    return x * (1 + len(pick.__annotations__))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        x = self.norm(self.linear(x)).relu()
        for layer in self.layers:
            x = x + layer(x) * scale
        return x


def twice(function):
    @functools.wraps(function)
    def wrapper(*args):
        return 2 * function(*args)

    return wrapper


class Decorated(Net):
    @twice
    def forward(self, x):
        return self.norm(self.linear(x))


class Broken(Net):
    def forward(self, x):
        x = self.linear(x).relu()
        torchbolt.graph_break()
        return self.norm(x) * 2


def made(cls=Net):
    torch.manual_seed(0)
    return cls().eval()
"""

HEAD = """
import torch, torchbolt, model
torch.manual_seed(1)
x = torch.randn(4, 8)
"""
# No recording, no compilation: what is counted while `call` runs.
COUNTED = """
def counted(call):
    before = torchbolt.stats()
    result = call()
    after = torchbolt.stats()
    for name in ("recordings", "recompiles", "cache_misses", "cache_hits", "compile_seconds", "eager_fallbacks"):
        assert before.get(name) == after.get(name), (name, before.get(name), after.get(name))
    return result
"""


@pytest.fixture
def run(tmp_path):
    """Runs a script in a process and folder of its own; gives what it printed."""
    (tmp_path / "model.py").write_text(MODEL)

    def call(script: str, fails: bool = False, **environment) -> str:
        code = HEAD + COUNTED + textwrap.dedent(script)
        env = os.environ | {"TORCHBOLT_CACHE_DIR": str(tmp_path / "cache")} | environment
        env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return call


SAVE_NET = """
net = model.made()
compiled = torchbolt.compile(net)
with torch.no_grad():
    for _ in range(3):
        compiled(x)
print(torchbolt.save(compiled, "net.bolt"))
"""
LOAD_NET = """
net = model.made()
compiled = torchbolt.load("net.bolt", net)
with torch.no_grad():
    wanted = net(x)
    got = counted(lambda: compiled(x))
torch.testing.assert_close(got, wanted)
print(net.calls)
"""


def test_a_module_in_a_new_process_is_neither_recorded_nor_compiled(run):
    assert run(SAVE_NET).strip() != "0"
    assert run(LOAD_NET).strip() == "2"  # eager's call and ours: effects are repeated


def test_a_function_with_sizes_and_numbers_that_differ(run):
    run("""
        f = torchbolt.compile(model.pick)
        for n in (4, 5, 6):
            f(torch.randn(n, 8))
        torchbolt.save(f, "pick.bolt")
    """)
    run("""
        f = torchbolt.load("pick.bolt", model.pick)
        for n in (7, 9):
            y = torch.randn(n, 8)
            got, wanted = counted(lambda: f(y)), model.pick(y)
            torch.testing.assert_close(got["z"], wanted["z"])
            torch.testing.assert_close(got["parts"][0], wanted["parts"][0])
            assert got["parts"][1][0] is y and got["parts"][1][1:] == ["text", 2]
    """)


def test_what_does_not_fit_is_recorded_as_ever(run):
    run(SAVE_NET)
    run("""
        net = model.made()
        compiled = torchbolt.load("net.bolt", net)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x.double().float()[:, :8], 3.0), net(x, 3.0))
        net.train()
        torch.testing.assert_close(compiled(x), net(x))
        assert torchbolt.stats()["recordings"] > 0
    """)


def test_training(run):
    run("""
        net = model.made()
        compiled = torchbolt.compile(net)
        for _ in range(3):
            compiled(x).sum().backward()
        torchbolt.save(compiled, "net.bolt")
    """)
    run("""
        net, eager = model.made(), model.made()
        compiled = torchbolt.load("net.bolt", net)
        counted(lambda: compiled(x).square().sum().backward())
        eager(x).square().sum().backward()
        for ours, theirs in zip(net.parameters(), eager.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad)
    """)


STEP = """
def trained(take):
    net = model.made()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    step, watched = take(step)
    losses = []
    for _ in range(6):
        losses.append(watched(lambda: step(x)).item())
        schedule.step()
    return step, losses
"""


def test_a_whole_training_step(run):
    """Its optimizer's state is made by the first step, so the two have programs of their own."""
    run(STEP + "torchbolt.save(trained(lambda f: (torchbolt.compile(f), lambda call: call()))[0], 'step.bolt')")
    run(
        STEP
        + """
_, wanted = trained(lambda f: (f, lambda call: call()))
_, got = trained(lambda f: (torchbolt.load('step.bolt', f), counted))
torch.testing.assert_close(got, wanted, rtol=1e-4, atol=0.0)
assert got[-1] < got[0]
"""
    )


def test_regions_that_end_inside_a_call(run):
    run("""
        net = model.made(model.Broken)
        compiled = torchbolt.compile(net)
        for _ in range(3):
            compiled(x)
        assert len(torchbolt.explain(net)(x).regions) == 2
        print(torchbolt.save(compiled, "net.bolt"))
    """)
    run("""
        net = model.made(model.Broken)
        compiled = torchbolt.load("net.bolt", net)
        torch.testing.assert_close(counted(lambda: compiled(x)), net(x))
        assert torchbolt.stats()["regions"] == 2
    """)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("self.norm(self.linear(x)).relu()", "self.norm(self.linear(x)).sigmoid()"),
            "the code of .*is not what it was",
        ),
        (("class Net(", "class Renamed("), "it is of|is not there|not what it was|has no attribute"),
    ],
)
def test_other_code_is_refused(run, tmp_path, change, why):
    run(SAVE_NET)
    text = MODEL.replace(*change)
    (tmp_path / "model.py").write_text(text.replace("cls=Net", "cls=Renamed") if "Renamed" in text else text)
    if "Renamed" in text:
        (tmp_path / "model.py").write_text((tmp_path / "model.py").read_text().replace("(Net)", "(Renamed)"))
    error = run(LOAD_NET, fails=True)
    assert "ArtifactError" in error
    assert re.search(why, error), error


def test_another_machine_is_refused(run):
    run(SAVE_NET)
    error = run(
        """
        from torchbolt import saved
        saved._machine = lambda: "another one"
        torchbolt.load("net.bolt", model.made())
        """,
        fails=True,
    )
    assert "the machine is another one, and was" in error


def test_signatures(run, tmp_path):
    key = "0123456789abcdef0123"
    run(SAVE_NET, TORCHBOLT_CACHE_KEY=key)
    run(LOAD_NET, TORCHBOLT_CACHE_KEY=key)
    assert "signed with another" in run(LOAD_NET, fails=True, TORCHBOLT_CACHE_KEY="another key, as long")
    path = tmp_path / "net.bolt"
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    assert "or changed since" in run(LOAD_NET, fails=True, TORCHBOLT_CACHE_KEY=key)


def test_without_a_signature_nobody_else_may_write_it(run, tmp_path):
    run(SAVE_NET, TORCHBOLT_CACHE_KEY="")
    (tmp_path / "net.bolt").chmod(0o666)
    assert "others may write it" in run(LOAD_NET, fails=True, TORCHBOLT_CACHE_KEY="")


def test_what_cannot_be_saved_is_said(tmp_path):
    x = torch.randn(3)
    with pytest.raises(exc.ArtifactError, match="nothing that torchbolt.compile"):
        torchbolt.save(lambda: 0, tmp_path / "a")
    with pytest.raises(exc.ArtifactError, match="compiled nothing yet"):
        torchbolt.save(torchbolt.compile(lambda x: x + 1), tmp_path / "a")
    generator = torch.Generator()
    drawing = torchbolt.compile(lambda x: x + torch.rand(3, generator=generator))
    drawing(x)
    with pytest.raises(exc.ArtifactError, match="Generator"):
        torchbolt.save(drawing, tmp_path / "a")
    eager = torchbolt.compile(lambda x: x + 1, backend="eager")
    eager(x)
    with pytest.raises(exc.ArtifactError, match="another backend"):
        torchbolt.save(eager, tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "thing",
    [
        None, True, -3, 10**30, 0.1, float("inf"), 1 - 2j, "text\udc80", b"\0\xff", (1, ("a", None)), range(3), slice(1, None),
        frozenset({1, "b"}), torch.float16, torch.strided, torch.channels_last, torch.device("cpu"), torch.Size([2, 3]),
        torch.nn.Linear, torch.nn.Linear.forward, torch.nn.Linear.forward.__code__, torch.add, torch.Tensor.add, len, dict.get,
        torch.nn.functional.linear, vars(torch.nn.functional), torch, int | str, torch.nn.Module.__call__,
        typing.Optional[torch.Tensor], typing.ForwardRef("Tensor"), typing.Union[int, "torch.Tensor"],
    ],
    ids=lambda thing: repr(thing)[:40],
)  # fmt: skip
def test_objects_are_found_again(thing):
    told = references.Writer(references.Roots(test_signatures)).one(thing)
    found = references.Reader(references.Roots(test_signatures)).one(told)
    assert found is thing or (found == thing and type(found) is type(thing))


def test_annotations_that_nobody_has_asked_for_yet(run):
    """A function's dict of them is made when it is first asked for."""
    run("compiled = torchbolt.compile(model.asks); compiled(x); torchbolt.save(compiled, 'asks.bolt')")
    run("compiled = torchbolt.load('asks.bolt', model.asks); assert counted(lambda: compiled(x)).equal(x)")


def test_an_object_without_a_name_is_told(tmp_path):
    with pytest.raises(exc.ArtifactError, match="that no name leads to"):
        references.Writer(references.Roots(len)).one(object())


def test_the_search_for_an_object_has_an_end(monkeypatch):
    monkeypatch.setattr(references, "_MOST", 100)
    writer = references.Writer(references.Roots(len))
    with pytest.raises(exc.ArtifactError, match="among the first 100 objects"):
        writer.one(object())
    assert all(len(search._held) < 10_000 for search in writer._searches)


def _with_cell(value):
    """A decorator that makes a function of another name and file than the decorated one's."""

    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args), value

        return wrapper

    return decorator


@_with_cell(value=(1, 2))
def decorated(x):
    return x


class Priced:
    @property
    def price(self):
        return 3


def test_what_lies_beside_something_named_is_soon_found():
    cells, fget = decorated.__closure__, Priced.price.fget
    objects = [decorated, *cells, decorated.__code__, decorated.__wrapped__, Priced, Priced.price, fget, sys.modules]
    writer = references.Writer(references.Roots(len))
    told = writer.all(objects)
    (search,) = writer._searches
    assert len(search._held) < 5000
    found = references.Reader(references.Roots(len)).all(told)
    assert all(a is b for a, b in zip(found, objects, strict=True))


def test_ways_do_not_lead_through_the_main_program(run):
    """Which is another one in the process that loads."""
    run("""
        from model import Decorated
        net = model.made(Decorated)
        compiled = torchbolt.compile(net)
        for _ in range(3):
            compiled(x)
        torchbolt.save(compiled, "net.bolt")
    """)
    run("""
        net = model.made(model.Decorated)
        compiled = torchbolt.load("net.bolt", net)
        torch.testing.assert_close(counted(lambda: compiled(x)), net(x))
    """)


def test_classes_that_only_the_module_leads_to(run):
    """torch's parametrizations make one for each module."""
    made = """
        net = model.made()
        for layer in net.layers:
            torch.nn.utils.parametrizations.weight_norm(layer)
    """
    run(
        made
        + """
        compiled = torchbolt.compile(net)
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
        torchbolt.save(compiled, "net.bolt")
        del compiled
    """
    )
    run(
        made
        + """
        compiled = torchbolt.load("net.bolt", net)
        with torch.no_grad():
            torch.testing.assert_close(counted(lambda: compiled(x)), net(x))
    """
    )


PACKED = """
class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(16, 32, 3), torch.nn.BatchNorm2d(32)
        self.fc = torch.nn.Linear(32 * 14 * 14, 512)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).relu().flatten(1))


torch.manual_seed(0)
images, net = torch.randn(2, 16, 16, 16), Wide().eval()


def names_of(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        call()
    return sorted(event.name for event in seen.events() if event.name.startswith("torchbolt::"))
"""


@pytest.mark.parametrize("what", ["net", "lambda x: net(x).sin()", "net.forward"])
def test_weights_are_packed_when_it_is_loaded(run, what):
    run(
        PACKED
        + f"""
compiled = torchbolt.compile({what})
with torch.no_grad():
    calls = [names_of(lambda: compiled(images)) for _ in range(4)]
assert any(set(call) - set(calls[-1]) for call in calls), calls  # there is something to pack
torchbolt.save(compiled, "net.bolt")
"""
    )
    run(
        PACKED
        + f"""
what = {what}
compiled = torchbolt.load("net.bolt", what)
with torch.no_grad():
    first = counted(lambda: names_of(lambda: compiled(images)))
    assert first and first == names_of(lambda: compiled(images))
    torch.testing.assert_close(compiled(images), what(images), rtol=1e-4, atol=1e-4)
    net.fc.weight.mul_(2)  # and packed again when they change
    torch.testing.assert_close(compiled(images), what(images), rtol=1e-4, atol=1e-4)
"""
    )


def test_other_weights_than_those_of_the_saved_model(run):
    run(
        PACKED
        + """
compiled = torchbolt.compile(net)
with torch.no_grad():
    for _ in range(3):
        compiled(images)
torchbolt.save(compiled, "net.bolt")
"""
    )
    run(
        PACKED
        + """
other = Wide().eval().double()
with torch.no_grad():
    torch.testing.assert_close(torchbolt.load("net.bolt", other)(images.double()), other(images.double()))
"""
    )
