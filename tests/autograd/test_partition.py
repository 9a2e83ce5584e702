# tests/autograd/test_partition.py
"""What is kept between the parts of a joint tape, and what is computed again: never more memory than eager."""

import random

import pytest
import torch
from test_joint import BUDGETS, Block, Language, bytes_of_eager, check, leaf
from torch import nn
from torch.nn import functional as F

from torchbolt import _C


class Decided:
    def __init__(self, joint, budget=None):
        self.text, ours, eager, self.inputs_kept_anew = _C._joint_partition(joint, budget)
        self.tensors, self.bytes, self.peak = ours
        self.eager_tensors, self.eager_bytes, self.eager_peak = eager
        lines = self.text.splitlines()
        self.again = [line.split("::")[1] for line in lines if line.startswith("again")]
        self.kept = [line for line in lines if line.startswith("kept")]
        (self.of_step,) = (float(line.split()[-6]) for line in lines if "of the step's time" in line)


def decided(fn, *args, budget=None):
    return Decided(_C._joint(fn, args), budget)


def decided_and_checked(fn, *args, budget=None, **more):
    check(fn, *args, **more)
    return decided(fn, *args, budget=budget)


# --- What is computed again -------------------------------------------------------------------------------


def test_pointwise_results_come_again():
    w = leaf(8, 8)

    def run(x):
        for _ in range(6):
            x = F.gelu(x @ w)
        return x @ w

    found = decided_and_checked(run, leaf(64, 8), state=[w], budget=0.3)
    assert found.again.count("gelu") >= 4 and found.peak < 0.7 * found.eager_peak
    # Without a budget memory is spent to save time, up to a share of eager's.
    usual = decided(run, leaf(64, 8))
    assert found.peak < usual.peak <= 0.9 * usual.eager_peak


@pytest.mark.parametrize("budget", [None, 0.0])
@pytest.mark.parametrize("kind", ["batch", "group"])
def test_statistics_are_kept_where_what_they_normalise_comes_again(kind, budget):
    convs = [nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in ((3, 16), (16, 16), (16, 16))]
    norms = [nn.BatchNorm2d(16) if kind == "batch" else nn.GroupNorm(4, 16) for _ in convs]
    module = nn.ModuleList([*convs, *norms])

    def run(x):
        for conv, norm in zip(convs, norms, strict=True):
            x = F.relu(norm(conv(x)))
        return x.mean()

    found = decided_and_checked(run, leaf(8, 3, 32, 32), module=module, budget=budget)
    assert f"native_{kind}_norm" in found.again
    statistics = "Float[16]" if kind == "batch" else "Float[8, 4]"
    assert sum(line.endswith(statistics) for line in found.kept if "input" not in line) == 2 * len(norms)


def test_products_convolutions_attention_and_draws_do_not():
    conv = nn.Conv2d(4, 4, 3, padding=1)

    def run(x):
        y = F.dropout(conv(x), 0.5).tanh()
        return F.scaled_dot_product_attention(y, y, y).sin() @ y

    found = decided_and_checked(run, leaf(2, 4, 8, 8), state=list(conv.parameters()), budget=0.0)
    never = ("mm", "convolution", "attention", "bernoulli", "dropout", "rand")
    assert found.again and not [op for op in found.again for word in never if word in op]


def test_what_an_operator_of_the_users_gives_is_kept():
    @torch.library.custom_op("bolt_partition::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, g: g * 2)
    found = decided(lambda x: twice(x.sin()).cos(), leaf(100), budget=0.0)
    assert "kept %2: Float[100]" in found.kept


def test_views_cost_nothing():
    def run(x, w):
        y = x @ w
        return y.t().reshape(2, 8).expand(3, 2, 8).permute(2, 0, 1).exp() * y[1:, :2].flatten()[0]

    found = decided_and_checked(run, leaf(4, 4), leaf(4, 4), budget=0.0)
    assert {"t", "view", "expand", "permute"} & set(found.again)
    assert not [line for line in found.kept if "[8, 3, 2]" in line]


def test_no_memory_is_kept_twice():
    def run(x, w):
        y = x @ w
        a, b = y.split(2)
        return (a * b.t()[:, :2] * y[0, 0]).sum() * y.view(-1)[3:7].exp()

    joint = _C._joint(run, (leaf(4, 4), leaf(4, 2)))
    found = Decided(joint)
    sizes = [line for line in found.kept if "input" not in line]
    assert sizes.count("kept %2: Float[4, 2]") == 1 and found.bytes <= _C._joint_saved(joint)[1]


def test_cast_weights_are_cast_again():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    found = decided_and_checked(run, leaf(4, 32), module=model)
    assert found.again.count("_to_copy") >= 2
    assert not [line for line in found.kept if "BFloat16[32, 32]" in line]


def test_a_result_in_a_half_type_is_kept_as_a_copy():
    """The caller may write to the result; what is made of it in float32 would be twice as large."""

    def run(x, w):
        logits = x @ w
        return (logits.float().tanh() * logits.float().sin()).sum(), logits

    found = decided_and_checked(run, leaf(64, 8).bfloat16(), leaf(8, 64).bfloat16())
    assert [line for line in found.kept if line.endswith("BFloat16[64, 64]")]
    assert not [line for line in found.kept if line.endswith(" Float[64, 64]")]


def test_normalisation_comes_again_beside_its_kept_statistics():
    norm, w = nn.LayerNorm(64), leaf(64, 64)

    def run(x):
        for _ in range(4):
            x = x + norm(x) @ w
        return x

    found = decided_and_checked(run, leaf(8, 64), module=norm, state=[w], budget=0.0)
    assert found.again.count("native_layer_norm") >= 2 and "Float[8, 1]" in str(found.kept)


def test_a_long_chain_comes_again_piece_by_piece():
    def run(x, w):
        for _ in range(100):
            x = torch.tanh(x * w + x)
        return x

    found = decided_and_checked(run, leaf(10, 10), leaf(10, 10))
    assert found.peak < found.eager_peak / 3


def perceptron(width):
    w = leaf(width, width)

    def run(x):
        for _ in range(12):
            x = F.gelu(x @ w)
        return x @ w

    return run


def test_more_comes_again_where_products_take_the_step():
    again, peaks = [], []
    for width in (16, 128, 1024):
        found = decided(perceptron(width), leaf(64, width))
        again.append(found.again.count("gelu"))
        peaks.append(found.peak / found.eager_peak)
        assert 0 < found.of_step < 100
    assert again == sorted(again) and again[0] < again[-1], again
    assert max(peaks) <= 0.9, peaks


# --- Writes -----------------------------------------------------------------------------------------------


def test_what_was_written_to_comes_again_with_the_writes():
    def run(x, w):
        y = (x @ w).sin()
        y.mul_(2).add_(x)
        return y.relu_() @ w

    found = decided_and_checked(run, leaf(8, 8), leaf(8, 8), budget=0.0)
    assert found.again.count("mul_") <= 1


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Hardswish, nn.Mish])
def test_activations_in_place_keep_no_more_than_others(activation):
    """Autograd copies what they overwrite, and neither of the two could be made again as they stand."""

    def network(inplace):
        torch.manual_seed(0)
        stages = [(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), activation(inplace=inplace)) for a, b in CHANNELS]
        return nn.Sequential(*(module for stage in stages for module in stage))

    x = torch.randn(2, 3, 16, 16)
    for budget in (None, 0.0):
        model = network(inplace=True)
        found = decided_and_checked(model, x, module=model, budget=budget)
        plain = decided(network(inplace=False), x, budget=budget)
        assert "native_batch_norm" in found.again and "silu_" not in found.again
        assert found.bytes <= plain.bytes and found.peak <= plain.peak


CHANNELS = [(3, 8), (8, 8), (8, 8), (8, 4)]
OVERWRITTEN = {
    "handed out": lambda y: (y.clone(), F.silu(y, inplace=True)),
    "shown before": lambda y: (y[0], y.clone(), F.silu(y, inplace=True)),
    "shown after": lambda y: (y.clone() * 2, F.silu(y, inplace=True)[:, 1:].cos()),
    "read in between": lambda y: (y.clone().sin(), y.exp().sum(), F.silu(y, inplace=True) * 3),
    "copy written": lambda y: (y.clone().mul_(2).sin(), F.silu(y, inplace=True).cos()),
    "written twice": lambda y: (F.silu(F.hardswish(y, inplace=True), inplace=True),),
    "copied twice": lambda y: (y.clone().sin(), y.clone().cos(), F.mish(y, inplace=True)),
    "transposed": lambda y: (F.silu(y.t(), inplace=True), y.cos()),
    "by two": lambda y: (y.clone().cos(), y.mul_(y.detach().sin() + 1)),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
@pytest.mark.parametrize("budget", [None, 0.0])
def test_copies_of_what_is_written_to(name, budget):
    def run(x, w):
        y = (x @ w).sin()
        return tuple(part * 1 for part in OVERWRITTEN[name](y))

    decided_and_checked(run, leaf(6, 8), leaf(8, 4), budget=budget)


def test_what_read_a_buffer_before_it_was_written_is_kept():
    mean = torch.randn(16)

    def run(x, w):
        y = (x - mean).sin()
        with torch.no_grad():
            mean.mul_(0.5)
        return y @ w

    found = decided_and_checked(run, leaf(4, 16), leaf(16, 4), state=[mean], budget=0.0)
    assert "sub" not in [op.split(".")[0] for op in found.again]


def test_statistics_are_counted_once():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    decided_and_checked(model, torch.randn(2, 3, 9, 9), budget=0.0)


def test_an_output_is_not_kept_if_eager_does_not():
    """The caller may write to it."""

    def run(x, w):
        y = x @ w
        z = y + 1
        return z, z.sin().cos()

    x, w = leaf(4, 4), leaf(4, 4)
    joint = _C._joint(run, (x, w))
    text = _C._joint_text(joint)
    output = text.split("return ")[1].split(",")[0]
    assert "aten::sin(" + output + ")" in text  # eager keeps it for sin

    def other(x, w):
        y = x @ w
        z = y + 1
        return z, (z * 2).sin()

    found = decided(other, x, w)
    output = _C._joint_text(_C._joint(other, (x, w))).split("return ")[1].split(",")[0]
    assert not [line for line in found.kept if line.startswith(f"kept {output}:")]


# --- Checkpoints ------------------------------------------------------------------------------------------


def checkpointed(function, *args):
    torch.ops.torchbolt.begin_checkpoint()
    result = function(*args)
    torch.ops.torchbolt.end_checkpoint()
    return result


def twice(w):
    def run(x):
        return (x @ w).sin() @ w

    return run


def test_a_checkpoint_is_computed_again_with_its_products():
    w = leaf(8, 8)

    def run(x):
        for _ in range(4):
            x = checkpointed(twice(w), x).cos()
        return x

    x = leaf(64, 8)
    found = decided_and_checked(run, x, state=[w])
    assert found.again.count("mm") == 4  # the second of each is kept for cos(), or ends the checkpoint
    joint = _C._joint(run, (x,))
    plain = decided(lambda x: run_plainly(x, w), x)
    assert found.bytes <= plain.bytes and "checkpoint" not in found.text
    assert "torchbolt::begin_checkpoint" in _C._joint_text(joint)


def run_plainly(x, w):
    for _ in range(4):
        x = twice(w)(x).cos()
    return x


def test_nothing_within_a_checkpoint_is_kept():
    w = leaf(8, 8)

    def block(x):
        for _ in range(3):
            x = F.softmax(x @ w, -1) @ w
        return x

    def run(x):
        return checkpointed(block, checkpointed(block, x * 2)).sum()

    found = decided_and_checked(run, leaf(64, 8), state=[w])
    kept = [line for line in found.kept if "input" not in line]
    assert len(kept) == 1 and kept[0].endswith("Float[64, 8]")  # what the second is called with
    assert found.again.count("_softmax") == 6 and found.bytes == 64 * 8 * 4


def test_checkpoints_in_checkpoints():
    w = leaf(8, 8)

    def outer(x):
        return checkpointed(twice(w), checkpointed(twice(w), x) @ w)

    found = decided_and_checked(lambda x: checkpointed(outer, x).sum(), leaf(64, 8), state=[w])
    assert [line for line in found.kept if "input" not in line] == []


def test_draws_in_a_checkpoint_are_kept():
    w = leaf(8, 8)
    block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 8))

    def run(x):
        return checkpointed(block, checkpointed(lambda x: F.dropout(x @ w, 0.5).exp(), x))

    found = decided_and_checked(run, leaf(16, 8), module=block, state=[w])
    assert {"addmm", "native_batch_norm"} <= set(found.again)
    assert not [op for op in found.again if "bernoulli" in op]


def test_what_an_operator_of_the_users_gives_in_a_checkpoint_comes_again():
    @torch.library.custom_op("bolt_partition::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    thrice.register_fake(torch.empty_like)
    thrice.register_autograd(lambda ctx, g: g * 3)
    joint = _C._joint(lambda x: checkpointed(lambda x: thrice(x.sin()).cos().sum(), x), (leaf(100),))
    assert Decided(joint).bytes == 0 and "bolt_partition::thrice" in Decided(joint).text


# --- Budgets ----------------------------------------------------------------------------------------------

MODELS = {
    "transformer": lambda: (Language(lambda: Block(32, 4, True, True)), torch.randint(0, 50, (2, 9))),
    "attention by hand": lambda: (Language(lambda: Block(32, 4, False, True, 0.1)), torch.randint(0, 50, (2, 9))),
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.Sigmoid()),
        torch.randn(2, 3, 12, 12),
    ),
    "recurrent": lambda: (nn.GRU(4, 6), torch.randn(5, 2, 4)),
    "perceptron": lambda: (
        nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1)))),
        torch.randn(64, 16),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_less_is_never_more(name):
    model, x = MODELS[name]()
    joint = _C._joint(model, (x, x) if isinstance(model, Language) else (x,))
    shares = [Decided(joint, share / 20).peak for share in range(20, -1, -1)]
    assert shares == sorted(shares, reverse=True)
    usual = Decided(joint)
    assert shares[0] == usual.peak <= usual.eager_peak
    by_bytes = [Decided(joint, usual.eager_peak * part // 20).peak for part in range(21, 0, -1)]
    assert by_bytes == sorted(by_bytes, reverse=True)
    assert all(Decided(joint, peak).peak <= peak for peak in shares)


def test_eager_is_what_eager_keeps():
    model, x = MODELS["perceptron"]()
    _, expected = bytes_of_eager(model, x, known=[x, *model.parameters()])
    assert decided(model, x).eager_bytes == expected


def test_a_share_is_a_share():
    joint = _C._joint(lambda x: x.sin(), (leaf(3),))
    for share in (1.5, -0.1, float("nan")):
        with pytest.raises(RuntimeError, match="activation_memory_budget"):
            _C._joint_partition(joint, share)


# --- Random programs --------------------------------------------------------------------------------------


def random_program(seed):
    """A function of two square matrices: products, views, writes, draws and reductions in any order."""
    choose = random.Random(seed)
    steps = [(choose.choice(list(STEPS)), choose.random(), choose.random()) for _ in range(choose.randint(4, 25))]
    begin, end = sorted(choose.sample(range(30), 2))  # of a checkpoint, which may lie behind the last step

    def run(x, y):
        values = [x * 1, y * 1]
        for i, (name, a, b) in enumerate(steps):
            if i == begin:
                torch.ops.torchbolt.begin_checkpoint()
            first, second = values[int(a * len(values))], values[int(b * len(values))]
            values.append(STEPS[name](first, second))
            if i == end:
                torch.ops.torchbolt.end_checkpoint()
        return values[-1], sum(v.mean() for v in values[2:])

    return run


def written(step):
    """A step that writes to what nobody keeps, so that eager's backward pass is sound."""
    return lambda a, b: step((a + 0).contiguous(), b)


def write_through_view(a, b):
    a[:, 1:3].add_(b[:, :2])
    a.view(-1)[3:7] = b[0]
    return a


STEPS = {
    "add": torch.add,
    "mul": torch.mul,
    "sin": lambda a, b: a.sin() + b,
    "gelu": lambda a, b: F.gelu(a) - b,
    "product": lambda a, b: a @ b / 4,
    "softmax": lambda a, b: a.softmax(-1) * b,
    "transposed": lambda a, b: a.t() * b.t()[[1, 0, 3, 2]],
    "view": lambda a, b: a.contiguous().view(2, 8).t().reshape(4, 4) + b.flip(0),
    "pieces": lambda a, b: torch.cat([*a.split(2), b[1:3]])[1:5],
    "norm": lambda a, b: F.layer_norm(a, (4,)) * b.amax(1, keepdim=True),
    "where": lambda a, b: torch.where(a > b, a.tanh(), b),
    "dropout": lambda a, b: F.dropout(a, 0.4) + b,
    "detached": lambda a, b: a.detach().exp().clamp(max=3) * b,
    "expanded": lambda a, b: a[:1].expand(4, 4) * b[:, 2:3].expand(4, 4),
    "other type": lambda a, b: (a.double() * b).float(),
    "written": written(lambda a, b: a.mul_(0.5).add_(b)),
    "relu_": written(lambda a, b: a.relu_() * b),
    "through a view": written(write_through_view),
    "turned": written(lambda a, b: a.t_() + b),
    "filled": written(lambda a, b: a.masked_fill_(b > 0, 0.25)),
}


@pytest.mark.parametrize("seed", range(50))
def test_random_programs(seed):
    torch.manual_seed(seed)
    x, y = leaf(4, 4), leaf(4, 4)
    program = random_program(seed)
    check(program, x, y)
    joint = _C._joint(program, (x, y))
    peaks = [Decided(joint, budget).peak for budget in BUDGETS]
    assert peaks == sorted(peaks, reverse=True) and peaks[0] <= Decided(joint).eager_peak


# --- Statistics of rows -----------------------------------------------------------------------------------


def test_statistics_of_long_rows_are_kept_where_their_log_softmax_comes_again():
    w, labels = leaf(16, 2048), torch.randint(0, 2048, (64,))

    def run(x):
        return F.cross_entropy(5 * torch.tanh(x @ w), labels)

    joint = _C._joint(run, (leaf(64, 16),))
    before = Decided(joint)
    assert "_log_softmax" in before.again
    _C._joint_keeps_row_statistics(joint)
    after = Decided(joint)
    assert "log_softmax_with" in after.again and "log_softmax_statistics" not in after.again
    two_numbers_a_row = 2 * 64 * 4
    assert after.bytes - before.bytes == two_numbers_a_row and after.peak <= before.peak + two_numbers_a_row


def test_no_statistics_of_what_the_caller_is_given():
    w, labels = leaf(16, 2048), torch.randint(0, 2048, (64,))

    def run(x):
        shares = F.log_softmax(x @ w, -1)
        return shares, F.nll_loss(shares, labels)

    joint = _C._joint(run, (leaf(64, 16),))
    before = Decided(joint).text
    _C._joint_keeps_row_statistics(joint)
    assert Decided(joint).text == before
