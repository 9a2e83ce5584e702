# tests/programs/test_contexts.py
"""What holds around a piece of a program: grad modes, autocast, defaults, function and dispatch modes, generators."""

import warnings

import pytest
import torch
from rows import Lazy, Rows, randn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import torchbolt

ROWS = Rows()


# -- Gradients on and off ----------------------------------------------------------------------------------------------
@ROWS(randn(4, requires_grad=True), grad=True)
def no_grad_for_a_part(x):
    y = x * 2
    with torch.no_grad():
        z = y.sum()
    return y * z, torch.is_grad_enabled()


@ROWS(randn(4, requires_grad=True), grad=True)
def no_grad_as_a_decorator(x):
    @torch.no_grad()
    def half(x):
        return x / 2

    return half(x) + x


@torch.no_grad()
def module_level_no_grad(x):
    return x * 3


@ROWS(randn(4, requires_grad=True), grad=True)
def decorated_at_the_module_level(x):
    return module_level_no_grad(x) + x


@ROWS(randn(4, requires_grad=True), grad=True)
def enable_grad_inside_no_grad(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
    return y, z


@ROWS(randn(4, requires_grad=True), grad=True)
def set_grad_enabled_by_a_flag(x):
    outs = []
    for flag in (True, False):
        with torch.set_grad_enabled(flag):
            outs.append(x * 2)
    return outs


@ROWS(randn(4, requires_grad=True), grad=True)
def grad_mode_set_and_left(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@ROWS(randn(4))
def inference_mode_inside(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1, y.is_inference(), torch.is_inference_mode_enabled()


@ROWS(randn(4))
def inference_mode_as_a_decorator(x):
    @torch.inference_mode()
    def double(x):
        return x * 2

    return double(x)


@ROWS(randn(4))
def inference_mode_switched_off(x):
    with torch.inference_mode(False):
        return x * 2


@ROWS(randn(4, requires_grad=True), grad=True)
def detached(x):
    return x.detach() * 2 + x


# -- Autocast ----------------------------------------------------------------------------------------------------------
@ROWS(randn(4, 4), near=1e-2)
def autocast_around_a_product(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        z = y.float() @ x
    return y, z, x @ x


@ROWS(randn(4, 4), near=1e-2)
def autocast_switched_off_inside(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ x
        return y, z, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@ROWS(randn(4, 4), near=1e-2)
def autocast_as_a_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(x):
        return x @ x

    return product(x)


@ROWS(randn(4, 4), near=1e-2)
def torch_amp_autocast(x):
    with torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16, cache_enabled=False):
        return torch.nn.functional.linear(x, x).softmax(-1)


@ROWS.made(randn(2, 8), near=2e-2)
def autocast_around_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))

    def run(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    return run


# -- Defaults ----------------------------------------------------------------------------------------------------------
@ROWS(randn(4))
def default_device_as_a_context(x):
    with torch.device("cpu"):
        return x + torch.arange(4) + torch.ones(4)


@ROWS(randn(4), replays="tensors on meta")
def tensors_made_on_meta(x):
    with torch.device("meta"):
        shape = torch.empty(4, 3).shape
    return x * shape[1]


@ROWS(randn(4), ends="_set_default_dtype", regions=2)
def default_dtype_set_and_put_back(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(4)
    finally:
        torch.set_default_dtype(before)
    return x + y


@ROWS(randn(4))
def default_dtype_read(x):
    return x.to(torch.get_default_dtype()) + torch.tensor(1.0), torch.finfo(torch.get_default_dtype()).eps


def test_other_defaults_are_other_programs():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: x + torch.ones(4))
    x = torch.zeros(4)
    with torch.no_grad():
        assert compiled(x).dtype == torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert compiled(x).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        assert compiled(x).dtype == torch.float32
        with torch.device("meta"):
            assert torchbolt.compile(lambda: torch.ones(4) * 2)().is_meta
    assert torchbolt.stats()["regions"] >= 2


# -- Modes -------------------------------------------------------------------------------------------------------------
class Doubling(TorchFunctionMode):
    """Every sum is doubled."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func in (torch.sum, torch.Tensor.sum) else out


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@ROWS(randn(4), ends="torch._C._push_on_torch_function_stack", regions=1)
def function_mode_inside(x):
    with Doubling():
        y = x.sum()
    return y + x.sum()


@ROWS(randn(4), ends="torch._C._push_on_torch_function_stack", regions=2)
def function_mode_and_ends_around_it(x):
    y = x * 2
    with Doubling():
        z = (y + 1).sum()
    return z * 3


@ROWS(
    randn(4),
    ends=("torch._C._push_on_torch_dispatch_stack", "set_is_in_mode_without_ignore_compile_internals"),
    regions=0,
)
def dispatch_mode_inside(x):
    with Counting() as mode:
        y = x * 2 + 1
    return y, mode.seen


@pytest.mark.parametrize("mode", [Doubling, Counting], ids=lambda m: m.__name__)
def test_a_mode_around_the_call(mode):
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: (x * 2).sum())
    x = torch.ones(4)
    with torch.no_grad():
        for _ in range(3):
            assert float(compiled(x)) == 8.0
        for _ in range(2):
            with mode() as entered:
                y = compiled(x)
            assert float(y) == (16.0 if mode is Doubling else 8.0)
            if mode is Counting:
                assert [name.split(".")[1] for name in entered.seen] == ["mul", "sum"]
        assert float(compiled(x)) == 8.0


# -- Checkpoints -------------------------------------------------------------------------------------------------------
@ROWS.made(randn(2, 4))
def checkpoint_in_inference():
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    return lambda x: checkpoint(block, x, use_reentrant=False) + checkpoint(block, x, use_reentrant=True)


@ROWS.made(randn(2, 4))
def checkpoint_with_keywords():
    block = torch.nn.Linear(4, 4)
    return lambda x: checkpoint(lambda a, b=1: block(a) * b, x, b=3, use_reentrant=False)


@ROWS.made(randn(2, 4))
def checkpoint_of_a_sequence():
    blocks = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(4)])
    return lambda x: checkpoint_sequential(blocks, 2, x, use_reentrant=False)


@ROWS.made(randn(2, 4, requires_grad=True), grad=True)
def checkpoint_with_gradients():
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    return lambda x: checkpoint(block, x * 2, use_reentrant=False).sum() * 3


@ROWS.made(randn(2, 4, requires_grad=True), grad=True)
def reentrant_checkpoint_with_gradients():
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    return lambda x: checkpoint(block, x * 2, use_reentrant=True).sum() * 3


@ROWS.made(randn(2, 4), grad=True)
def checkpoint_of_what_needs_no_gradients():
    block = torch.nn.Linear(4, 4).requires_grad_(False)
    return lambda x: checkpoint(block, x * 2, use_reentrant=False).sum() * 3


@ROWS.made(randn(2, 4), grad=True, regions=2, ends="checkpoint")
def reentrant_checkpoint_of_inputs_without_gradients():
    """It gives no gradients then, not even of the parameters."""
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    return lambda x: checkpoint(block, x * 2, use_reentrant=True).sum() * 3


# -- Random numbers ----------------------------------------------------------------------------------------------------
for text in (
    "torch.rand(4) + x",
    "torch.randn_like(x) * x",
    "torch.randint(0, 9, (4,)) + x",
    "torch.normal(x, 1.0)",
    "torch.bernoulli(x.sigmoid())",
    "F.dropout(x, 0.5, True)",
    "F.dropout(F.dropout(x, 0.5), 0.5)",
    "x.new_empty(4).uniform_() + x",
    "x[torch.randperm(4)]",
    "torch.multinomial(x.softmax(-1), 2)",
    "F.alpha_dropout(x, 0.3, True)",
    "F.gumbel_softmax(x, tau=0.5, hard=True)",
    "F.rrelu(x, training=True)",
    "x.clone().exponential_() + x.clone().cauchy_()",
    "torch.empty(4).normal_(0, 2) + x",
):
    ROWS.text(text, x=randn(4))


@ROWS(randn(4))
def the_same_numbers_as_without_us(x):
    a = torch.rand(4)
    y = x * a
    b = torch.rand(4)
    return y + b, torch.rand(2)


@ROWS(randn(4), ends="torch.random.manual_seed")
def seeded_inside(x):
    torch.manual_seed(3)
    return x + torch.rand(4)


@ROWS(randn(4))
def own_generator(x):
    generator = torch.Generator().manual_seed(3)
    return x + torch.rand(4, generator=generator)


class Noise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        return x + torch.randn(4, generator=self.generator)


@ROWS.made(randn(4))
def generator_on_a_module():
    return Noise()


@ROWS(randn(4), Lazy(lambda: torch.Generator().manual_seed(3)))
def generator_given(x, generator):
    return x + torch.rand(4, generator=generator)


@ROWS(
    randn(4),
    ends=(
        "torch.random.get_rng_state",
        "torch.random.manual_seed",
        "torch.random.set_rng_state",
        "a generator from outside",
    ),
    regions=2,
)
def forked_random_state(x):
    with torch.random.fork_rng(devices=[]):  # whatever this machine has
        torch.manual_seed(5)
        y = torch.rand(4)
    return x + y + torch.rand(4)


@ROWS(randn(4), ends=("torch.random.get_rng_state", "torch.random.set_rng_state"), regions=2)
def random_state_kept_and_put_back(x):
    state = torch.get_rng_state()
    y = torch.rand(4)
    torch.set_rng_state(state)
    return x + y - torch.rand(4)


@ROWS.made(randn(2, 8))
def dropout_in_training():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))


@ROWS(randn(3))
def warnings_are_filtered(x):
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("error", "no such", UserWarning)
            x = x.sin() * len(warnings.filters)
    return x, len(warnings.filters)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_contexts(row):
    row.check()


# -- Regions that end inside -------------------------------------------------------------------------------------------
class Deterministic:
    def __enter__(self):
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *error):
        torch.use_deterministic_algorithms(False)


def ends_inside_inference_mode(x):
    y = x * 2
    with torch.inference_mode():
        z = y @ x
        torchbolt.graph_break()
        z = z + y
    return z, z.is_inference(), torch.is_inference_mode_enabled(), y + 1


def ends_inside_a_default_device(x):
    y = x * 2
    with torch.device("cpu"):
        z = y @ torch.ones(3, 3)
        torchbolt.graph_break()
        z = z + torch.arange(3)
    return z, torch.get_default_device(), y + 1


def test_a_switch_of_the_grad_mode():
    """What was asked is no longer so when the call returns."""

    def switches(x):
        torch.set_grad_enabled(not torch.is_grad_enabled())
        return x * 2

    torchbolt.reset()
    compiled, x = torchbolt.compile(switches), torch.ones(2, requires_grad=True)
    with torch.enable_grad():
        for on in (False, True) * 3:
            assert compiled(x).requires_grad == torch.is_grad_enabled() == on
    assert torchbolt.stats()["recordings"] == 2 and torchbolt.stats()["eager_fallbacks"] == 0


def ends_inside_flags_of_cudnn(x):
    y = x * 2
    with torch.backends.cudnn.flags(enabled=False, deterministic=True):
        z = y @ y
        torchbolt.graph_break()
        z = z + torch.backends.cudnn.enabled
    return z, torch.backends.cudnn.enabled, y + 1


def ends_inside_deterministic_algorithms(x):
    y = x * 2
    with Deterministic():
        z = y.cumsum(0)
        torchbolt.graph_break()
        z = z + torch.are_deterministic_algorithms_enabled()
    return z, torch.are_deterministic_algorithms_enabled(), y + 1


INSIDE = [
    ends_inside_inference_mode,
    ends_inside_a_default_device,
    ends_inside_flags_of_cudnn,
    ends_inside_deterministic_algorithms,
]


@pytest.mark.parametrize("program", INSIDE, ids=lambda p: p.__name__)
def test_state_that_only_the_context_can_bring_about(program):
    """A few recordings find out where regions have to end; then there is one on each side of the context and of the
    end inside."""
    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for _ in range(5):
        x = torch.randn(3, 3)
        recordings = torchbolt.stats()["recordings"]
        for got, expected in zip(compiled(x), program(x), strict=True):
            same = torch.allclose(got, expected) if isinstance(got, torch.Tensor) else got == expected
            assert same, (got, expected)
    assert torchbolt.stats()["recordings"] == recordings and torchbolt.stats()["regions"] >= 2


@pytest.mark.skipif(torch._C._has_cuda, reason="where torch has CUDA, operators go by these flags: regions end")
def test_flags_of_cudnn_are_those_around_each_call():
    def fn(x, scores, labels, lengths):
        before = torch.backends.cudnn.deterministic
        with torch.backends.cudnn.flags(enabled=False, deterministic=True):
            inside = torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic
            scores = scores.log_softmax(-1).transpose(0, 1)
            loss = torch.nn.functional.ctc_loss(scores, labels, lengths, lengths // 4)
        return x * 2, loss, before, inside, torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic

    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    args = torch.randn(3), torch.randn(2, 12, 6), torch.randint(1, 6, (2, 3)), torch.tensor([12, 8])
    enabled, deterministic = torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic
    try:
        for flags in ((True, False), (True, False), (False, False), (True, True), (True, False), (False, False)):
            torch._C._set_cudnn_enabled(flags[0])
            torch._C._set_cudnn_deterministic(flags[1])
            torch.testing.assert_close(compiled(*args), fn(*args))
            assert (torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic) == flags
    finally:
        torch._C._set_cudnn_enabled(enabled)
        torch._C._set_cudnn_deterministic(deterministic)
    assert torchbolt.stats()["recordings"] == 3 and torchbolt.stats()["regions"] == 3


def test_what_has_as_many_elements_as_data_say_is_read_among_flags():
    """The context is in the region, behind the piece that finds the size."""

    def fn(scores, labels, lengths):
        known = labels.masked_select(labels > 0)
        scores = scores.log_softmax(-1).transpose(0, 1)
        with torch.backends.cudnn.flags(enabled=False):
            return torch.nn.functional.ctc_loss(scores, known, lengths, (labels > 0).sum(-1))

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        recordings = torchbolt.stats()["recordings"]
        labels = torch.randint(1, 6, (2, 3)) * torch.tensor([[1, 1, 1], [1, 1, 0]])
        args = torch.randn(2, 12, 6, requires_grad=True), labels, torch.tensor([12, 8])
        torch.testing.assert_close(compiled(*args), fn(*args))
    stats = torchbolt.stats()
    assert stats["recordings"] == recordings and stats["regions"] == 1 and stats["eager_fallbacks"] == 0


def test_a_flag_of_cudnn_that_stays_set():
    def fn(x):
        y = x * 2
        torch._C._set_cudnn_deterministic(not torch.backends.cudnn.deterministic)
        return y + 1, torch.backends.cudnn.deterministic

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x, before = torch.randn(3), torch.backends.cudnn.deterministic
    try:
        for n in range(6):
            got, flag = compiled(x)
            torch.testing.assert_close(got, x * 2 + 1)
            assert flag == torch.backends.cudnn.deterministic == (before if n % 2 else not before)
    finally:
        torch._C._set_cudnn_deterministic(before)


def test_filters_of_warnings_that_were_changed_forget_what_was_shown():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x.sin()

    def times_shown(call):
        registry = {}
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for _ in range(5):
                warnings.warn_explicit("old", UserWarning, "file", 1, registry=registry)
                call(torch.ones(2))
        return len(seen)

    torchbolt.reset()
    assert times_shown(torchbolt.compile(fn)) == times_shown(fn) == 5
    assert torchbolt.stats()["graph_breaks"] == 0
