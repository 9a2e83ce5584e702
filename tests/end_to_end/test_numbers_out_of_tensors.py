# tests/end_to_end/test_numbers_out_of_tensors.py
"""item(), float(t), int(t), tolist(): the number is known when the program has run, and ends no region by itself."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import functional as F

import torchbolt


def check(fn, inputs, regions, breaks=0):
    """fn gives eager's results on each of the inputs, twice; so many regions, and ends of regions a call."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(2):
        for x in inputs:
            want, got = fn(x.clone()), compiled(x.clone())
            assert repr(got) == repr(want)
    stats = torchbolt.stats()
    assert (stats["regions"], stats["eager_fallbacks"]) == (regions, 0)
    seen = torchbolt.explain(fn)(inputs[0].clone())
    assert seen.graph_break_count == breaks
    return stats


FLOATS = [torch.tensor([1.0, 5.0, 2.0]), torch.tensor([-4.0, 0.5, 0.25]), torch.tensor([0.0, 1.0, 8.0])]
WHOLE = [torch.tensor([3, 1, 2]), torch.tensor([-7, 5, 9]), torch.tensor([0, 0, 1])]


@pytest.mark.parametrize("inputs", [FLOATS, WHOLE], ids=["floats", "ints"])
def test_returned(inputs):
    check(lambda x: x.sum().item(), inputs, 1)
    check(lambda x: (x * 2, x.max().item(), {"least": x.min().item()}), inputs, 1)
    check(lambda x: x.tolist(), inputs, 1)
    check(lambda x: (x.reshape(3, 1) + 1).tolist(), inputs, 1)
    check(lambda x: float(x.sum()), inputs, 1)


def test_int_of_whole_tensors():
    check(lambda x: int(x.argmax()), FLOATS, 1)
    check(lambda x: int(x.sum()) + 1, WHOLE, 1)


def test_sums_and_products():
    def fn(x):
        total = 0.0
        for i in range(3):
            total += (x * i).sum().item()
        return total * 2 - 1, -total

    check(fn, FLOATS, 1)


def test_given_to_operators():
    def fn(x):
        top = x.abs().max().item()
        k = int(x.argmax())
        return x / top, x * k, top - x, x + k, x > top * 1.0, k * x

    check(fn, FLOATS, 1)


NUMBERS_OF_OPERATORS = {  # steps that are calls of ATen, which reads the number itself
    "F.layer_norm(x, (4,), x[0] + 1, x[1], eps=n)": 0,
    "F.rms_norm(x, (4,), x[0] + 1, eps=n)": 0,
    "F.group_norm(x.view(2, 2, 6), 2, eps=n)": 0,
    "F.batch_norm(x, x.mean(0), x.var(0), x[0], x[1], eps=n)": 0,
    "F.batch_norm(x, None, None, x[0], x[1], training=True, eps=n)": 0,
    "F.batch_norm(x, mean := x.mean(0), var := x.var(0), training=True, momentum=n), mean, var": 0,
    "F.instance_norm(x.view(1, 2, 12), eps=n)": 1,
    "F.scaled_dot_product_attention(x[None], x[None], x[None], scale=n)": 0,
    "(x.abs() ** n, n**x, torch.pow(x.half().abs(), n))": 0,
    "F.leaky_relu(x, n)": 0,
    "F.elu(x, n)": 0,
    "F.softplus(x, n)": 0,
    "F.hardtanh(x, -n, n)": 0,
    "torch.addmm(x, x, x[:4], beta=n, alpha=-n)": 1,
    "x.norm(p=n + 1)": 1,
    "F.pairwise_distance(x, x + 1, eps=n)": 1,
    "F.margin_ranking_loss(x, x + 1, x.sign(), margin=n)": 1,
    "F.pad(x, (1, 2), value=n)": 1,
    "F.huber_loss(x, x + 1, delta=n)": 1,
    "F.cross_entropy(x, x.argmax(1), label_smoothing=n)": 1,
    "torch.nan_to_num(x / 0, n, n, -n)": 1,
    "x.quantile(n)": 1,
}


@pytest.mark.parametrize("text", NUMBERS_OF_OPERATORS)
def test_operators_read_their_numbers(text):
    body = eval(f"lambda x, n: ({text})", {"torch": torch, "F": F})

    def fn(x):
        return body(x * 1.5, x.abs().max().item() / 8)

    torch.manual_seed(0)
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x), fn(x))
        exact, got = fn(x.double()), compiled(x)
        torch.testing.assert_close(got, exact, check_dtype=False, rtol=1e-5, atol=1e-5)
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["eager_fallbacks"], stats["region_ends"]) == (1, 0, 0)
    seen = torchbolt.explain(fn)(x)
    assert str(seen).count("extern aten") == NUMBERS_OF_OPERATORS[text]


def test_bounds_of_draws():
    def fn(x):
        n = x.abs().max().item()
        return torch.empty_like(x).uniform_(-n, n) + torch.normal(n, 0.5, (3,)), x.new_empty(3).exponential_(n + 1)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for seed, x in enumerate(FLOATS * 2):
        torch.manual_seed(seed)
        want = fn(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), want)
    assert torchbolt.stats()["region_ends"] == torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "text", ["F.huber_loss(y, x, delta=n)", "y.quantile(n)", "F.cross_entropy(y, x, label_smoothing=n)"]
)
def test_numbers_that_operators_refuse(text, grad):
    body = eval(f"lambda x, y, n: ({text})", {"F": F})

    def fn(x, w, number, log):
        log.add_(1)
        return body(x, x * w, number.item()) * 2

    torchbolt.reset()
    compiled, logs = torchbolt.compile(fn), [torch.zeros(2), torch.zeros(2)]
    for n in (0.5, 0.25, 0.75, -1.5, 0.5):
        x, w = FLOATS[0] / 8, torch.ones(3, requires_grad=grad)
        seen = []
        for f, log in zip((fn, compiled), logs):
            try:
                seen.append(f(x, w, torch.tensor(n), log).detach())
            except (RuntimeError, ValueError) as error:
                seen.append((type(error), str(error).splitlines()[0]))
        if n > 0:
            torch.testing.assert_close(*seen)
        else:
            assert seen[0] == seen[1]
        assert torch.equal(*logs)


def test_what_decides_what_is_made_still_ends_the_region():
    check(lambda x: F.dropout(x, 0.0 * x.sum().item()) + 1, FLOATS, 2, 1)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("trains", [True, False])
def test_a_rate_between_0_and_1_stays_data(trains, gradients):
    def fn(x, w, rate):
        y = F.dropout(x * w, rate.item(), trains)
        return y.relu() + 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for seed, p in enumerate((0.5, 0.25, 0.1, 0.0, 0.3, 1.0, 0.7)):  # with 0 and 1 a call is eager's
        x, rate, seen = torch.randn(5, 4), torch.tensor(p, dtype=torch.float64), []
        for f in (fn, compiled):
            torch.manual_seed(seed)
            w = torch.ones(4, requires_grad=gradients)
            y = f(x, w, rate)
            seen.append([y.detach(), torch.rand(3)])
            if gradients:
                seen[-1] += torch.autograd.grad(y.sum(), w)
        for want, got in zip(*seen):
            torch.testing.assert_close(got, want)
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["region_ends"]) == (1, 0)


def test_computed_and_given_to_operators():
    def fn(x, rate=0.1):
        top = x.abs().max().item()
        scale = top / 127.0
        first, second, _ = (x * 0.5).tolist()
        return (
            (x * scale).round() + scale,
            x * (2.0 - top) - -scale,
            x + (first - second) * 3,
            x > top / x.shape[0],
            torch.full((2,), top * rate + 1),
            scale,
        )

    check(fn, FLOATS, 1)
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for i, x in enumerate(FLOATS * 2):
        assert repr(compiled(x, 0.1 * i)) == repr(fn(x, 0.1 * i))
    assert torchbolt.stats()["regions"] == 2  # for one rate, and for any


def test_computed_in_ways_of_pythons_own():
    # Python's integers have no end, and its floor division rounds in its own way.
    check(lambda x: x * (x.sum().item() // 0.3), FLOATS, 1, breaks=1)
    check(lambda x: x * (x.sum().item() * 2**70), FLOATS, 1, breaks=1)


@pytest.mark.parametrize("inputs", [FLOATS, WHOLE], ids=["floats", "ints"])
def test_a_tensor_where_an_operator_takes_a_number(inputs):
    def fn(x):
        top = x.max()
        y = x.double().addcdiv(x / 2, x * x + 1.5, value=top).add_(x, alpha=-top)
        y.add_(y, alpha=y[0].long() + 1)
        return y, torch._foreach_add([y, x.double()], [y, y], alpha=x.sum())

    check(fn, inputs, 1)


def test_a_tensor_where_torch_must_know_the_number():
    check(lambda x: (x * 2).expand(x.argmax() * 0 + 2, 3) + 1, FLOATS, 1)  # lent as a size that is data
    check(lambda x: F.pad(x * 2, (1, 0), value=x.sum()) + 1, FLOATS, 1, 1)
    check(lambda x: (x.sum().__float__(), x.argmax().__index__(), x * x.sum().is_nonzero()), FLOATS, 4, 3)


def test_the_tensor_is_written_later():
    def fn(x):
        total = x.sum()
        before = total.item()
        total.add_(10)
        x.mul_(2)
        return before, total.item(), x.sum().item()

    check(fn, FLOATS, 1)


def test_a_branch_ends_the_region():
    def fn(x):
        loss = (x * x).sum()
        value = loss.item()
        if value > 10:
            return x * 2, value
        return x - 1, value

    check(fn, [*FLOATS[1:], torch.ones(3)], 3, breaks=1)


def test_kept_on_a_module_whose_parts_are_gone_through():
    model = torch.nn.Linear(3, 3)

    def fn(x):
        model.logged = {"loss": x.max().item()}  # as trainers log a step
        return [p.detach() * 2 for p in model.parameters()], model.logged

    check(fn, FLOATS, 1)


def test_kept_in_a_list_from_outside():
    losses = []

    def fn(x):
        y = x * 3
        losses.append(y.mean().item())
        return y + 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for x in FLOATS * 2:
        compiled(x)
    got = losses.copy()
    losses.clear()
    for x in FLOATS * 2:
        fn(x)
    assert got == losses and torchbolt.stats()["regions"] == 1


def test_quotients():
    check(
        lambda x: (x.sum().item() / 3, x.sum().item() // 2.0, x.sum().item() % 0.75, x.sum().item() / len(x)), FLOATS, 1
    )
    check(lambda x: (x.sum().item() / 3, x.sum().item() // 2, x.sum().item() % 5, ~x.sum().item()), WHOLE, 1)


def test_division_by_what_is_followed():
    # A guard on what divides is enough: it must not be 0.
    def mean(x, count):
        return x.sum().item() / count, x.sum().item() / x.shape[0]

    torchbolt.reset()
    compiled = torchbolt.compile(mean, fullgraph=True)
    for n in (2, 3, 5, 7):
        x = torch.arange(n) + 1.0
        assert compiled(x, n + 1) == mean(x, n + 1)
    assert torchbolt.stats()["regions"] == 2
    with pytest.raises(ZeroDivisionError):
        torchbolt.compile(mean)(x, 0)


def test_sizes_of_what_was_scaled_by_a_number():
    def fn(x):
        y = x * x.mean().item()
        return F.layer_norm(y, y.shape)

    check(fn, FLOATS, 1)


def test_division_by_what_may_be_zero():
    def fn(x):
        return 1.0 / x[0].item()

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    assert compiled(FLOATS[0]) == 1.0 and compiled(FLOATS[1]) == -0.25
    with pytest.raises(ZeroDivisionError):
        compiled(FLOATS[2])


def test_nan_as_int_raises():
    compiled = torchbolt.compile(lambda x: int(x.sum()))
    assert compiled(FLOATS[0]) == 8
    with pytest.raises(ValueError):
        compiled(torch.tensor([float("nan")]))


def test_item_of_several_elements_raises():
    with pytest.raises(RuntimeError):
        torchbolt.compile(lambda x: x.item())(FLOATS[0])


def test_under_gradients():
    def fn(x):
        y = (x * x).sum()
        return y, y.item()

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for values in FLOATS:
        x, z = values.clone().requires_grad_(), values.clone().requires_grad_()
        y, number = compiled(x)
        y.backward()
        want, expected = fn(z)
        want.backward()
        assert number == expected and torch.equal(x.grad, z.grad)


OPERANDS = [
    "x / n * w",
    "(x * w + n) * (2.5 - n)",
    "(x * w).mul_(n).sub_(n)",
    "torch.addmm(x, x, x[:4] * w) * (n / 4 + 1) + n * n",
    "F.layer_norm(x * w, (4,), eps=n).square() * n",  # the normalisation is left to eager
    "F.leaky_relu(x * w, n).square() * n",
    "F.leaky_relu(x, n) * w",  # no gradient goes through what is given the number
    "torch.addmm(x, x, x[:4], beta=n) @ w.diag()",
]
WITH_TENSORS = [  # the same of a tensor in the number's place
    "torch.where(x > 0, x * w, n) + torch.where(x > 0, n, x * w)",
    "(x * w).clamp(-n, n) + (x * w).clamp(-0.1, n).clamp_min(n / 2).clamp(max=n)",
    "(x * w).clamp_(0, n)",
    "(x * w).masked_fill(x > 0, n) + (x * w).masked_fill_(x < 0, n)",
    "torch.add(x, w, alpha=n) - (x * w).sub(x, alpha=n) + (x * w).add_(x, alpha=n)",
    "torch.addcmul(x, x, w, value=n) + (x * w).addcdiv(x, w + 1, value=n)",
    "(x * w + 5).pow(n) + torch.pow(n, x * w) + torch.lerp(x, x * w, n)",
    "(x * w).fmod(n + 0.3) + (x * w).index_fill(0, torch.tensor([0]), n)",
]


@pytest.mark.parametrize("text", OPERANDS + WITH_TENSORS)
def test_gradients_read_their_numbers(text, capfd):
    body = eval(f"lambda x, w, n: ({text})", {"torch": torch, "F": F})

    def fn(x, w, s):
        y = body(x, w, x.abs().max().item() / 8) * s.item()
        return y.tanh() + s.item()

    torch.manual_seed(0)
    torchbolt.reset()
    torchbolt.set_logs("perf_hints")
    compiled = torchbolt.compile(fn)
    for k in range(6):
        x, seen = torch.randn(6 + k // 2, 4), []
        for f, dtype in ((fn, torch.float32), (compiled, torch.float32), (fn, torch.float64)):
            w, s = torch.ones(4, dtype=dtype, requires_grad=True), torch.tensor(0.5 + k, dtype=dtype)
            y = f(x.to(dtype), w, s)
            s.mul_(3)  # the number was taken out before
            (first,) = torch.autograd.grad(y.sum(), w, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), w)
            seen.append((y.detach(), first.detach(), second))
        torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(seen[1], seen[2], rtol=1e-4, atol=1e-4, check_dtype=False)
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["eager_fallbacks"], stats["region_ends"]) == (2, 0, 0)
    if text in WITH_TENSORS:
        assert "left to eager" not in capfd.readouterr().err


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("text", WITH_TENSORS)
def test_gradients_of_halves_read_their_numbers(text, dtype):
    body = eval(f"lambda x, w, n: ({text})", {"torch": torch})

    def fn(x, w):
        return body(x, w, x.abs().max().item() / 8) * 2

    torch.manual_seed(0)
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        x, seen = torch.randn(6, 4).to(dtype), []
        for f, of in ((fn, dtype), (compiled, dtype), (fn, torch.float64)):
            w = torch.full((4,), 0.75, dtype=of, requires_grad=True)
            y = f(x.to(of), w)
            seen.append((y.detach().double(), torch.autograd.grad(y.sum(), w)[0].double()))
        for eager, mine, exact in zip(*seen):
            error = (mine - exact).abs().max()
            assert error <= 2 * (eager - exact).abs().max() + 4 * torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_powers_at_their_edges(dtype):
    def fn(x, y, number):
        n = number.item()
        return x**n, n**y

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    # Not -0.0, whose root has a sign where the exponent is known to be 0.5.
    values = [0.0, 1.0, -1.0, 2.5, -2.5, 1e-3, 300.0, float("inf"), float("nan")]
    for n in (1.5, 0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 0.1, -3.3):
        seen, number = [], torch.tensor(n, dtype=torch.float64)
        for f in (fn, compiled):
            x, y = (torch.tensor(values, dtype=dtype, requires_grad=True) for _ in range(2))
            results = f(x, y, number)
            sum(r.sum() for r in results).backward()
            seen.append((*(r.detach() for r in results), x.grad, y.grad))
            with torch.no_grad():
                seen[-1] += f(x, y, number)
        for want, got in zip(*seen):
            torch.testing.assert_close(got, want, equal_nan=True)
    assert torchbolt.stats()["region_ends"] == torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("body, ends", [("y.clamp(-n, n / 2)", 0), ("F.layer_norm(y, (4,), eps=n)", 1)])
def test_a_step_reads_its_numbers(body, ends):
    body = eval(f"lambda y, n: ({body})", {"F": F})

    def step(model, optimizer, x):
        top = x.abs().max().item()
        loss = body(model(x / top) * top, top).square().mean() * (top + 1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    torch.manual_seed(0)
    torchbolt.reset()
    models = [torch.nn.Linear(4, 4)]
    models.append(copy.deepcopy(models[0]))
    (eager, mine), compiled = [(m, torch.optim.SGD(m.parameters(), 0.1)) for m in models], torchbolt.compile(step)
    for _ in range(4):
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(*mine, x), step(*eager, x))
    stats = torchbolt.stats()
    assert (stats["region_ends"], stats["eager_fallbacks"]) == (ends, 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int16], ids=str)
def test_other_element_types(dtype):
    check(
        lambda x: (x.max().item(), x * 2),
        [torch.tensor([1, 5, 2], dtype=dtype), torch.tensor([7, 3], dtype=dtype)][:1],
        1,
    )


def test_bool_ends_the_region_as_before():
    check(lambda x: ((x > 1).any().item(), x + 1), FLOATS, 3, breaks=1)  # one up to it, one for each value


def test_functions_of_numbers():
    def fn(x):
        mean, top = x.mean().item(), x.max().item()
        first, *rest = x.tolist()
        return (
            (round(mean, 3), round(mean), abs(mean), float(mean), int(top), math.floor(mean), math.ceil(mean)),
            (max(mean, 0.5), min(mean, top, 1.0), max(x.tolist()), min(rest), sum(x.long().tolist())),
            (math.exp(mean), math.sqrt(abs(first)), mean**2, abs(first) ** 0.5, 2.0 / (top + 10.0), 7 // (top + 10.0)),
            torch.tensor(mean) + x,
            torch.tensor([top, 2.0]),
            x.clamp(max=math.sqrt(abs(mean)) + 1.0),
        )

    check(fn, FLOATS[:2], 1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: 1.0 / x.sum().item(),
        lambda x: x.long().sum().item() // x.long().max().item(),
        lambda x: math.log(x.sum().item()),
        lambda x: math.sqrt(x.sum().item()),
        lambda x: math.exp(x.sum().item()),
        lambda x: x.sum().item() ** 3,
        lambda x: x.sum().item() ** 0.5,
        lambda x: x.sum().item() ** -1,
        lambda x: int(x.sum()),
        lambda x: math.floor(x.sum().item()),
        lambda x: round(x.sum().item()),
        lambda x: int(x.sum().item() * 2.0),
    ],
)
def test_what_raises_for_some_numbers_is_eagers(fn):
    def outcome(run, values):
        x = torch.tensor(values, dtype=torch.float64)
        try:
            return repr(run(x)), x
        except (ArithmeticError, ValueError) as error:
            return repr(error), x

    def writing(x):
        x.add_(1).sub_(1)
        return fn(x), x * 2

    for each in (lambda x: (fn(x), x * 2), writing):
        torchbolt.reset()
        compiled = torchbolt.compile(each)
        for total in (3.0, 5.0, 0.0, -2.0, float("inf"), float("nan"), -float("inf"), 1e200, 2e3, 1e-320, 4.0):
            values = [total, 0.0]
            got, want = outcome(compiled, values), outcome(each, values)
            assert got[0] == want[0] and repr(got[1]) == repr(want[1]), total


def test_the_larger_of_two_is_an_operand():
    """max and min of a number out of a tensor and others are numbers that operators are given."""

    def fn(x):
        size, rate = x.sum().item(), x.numel() / 7
        y = x * max(1e-3, size) + min(size, 0.5, x.max().item())
        return y.add_(x, alpha=-max(rate, size)) * min(size, rate), max(size, 2.0)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for seed in range(8):
        x = torch.randn(3 + seed // 4, generator=torch.Generator().manual_seed(seed))
        for each in (x, x * float("nan"), torch.zeros(3)):
            torch.testing.assert_close(compiled(each), fn(each), equal_nan=True)
    assert torchbolt.stats()["graph_breaks"] == 0 and torchbolt.stats()["recordings"] < 4


def test_texts():
    def fn(x):
        mean, top = x.mean().item(), int(x.argmax())
        text = "mean " + str(mean) + "!"
        text += " top %d" % top
        return (
            text,
            repr(mean),
            format(mean, ".3e"),
            "%s: %5.2f, %d of %d, 100%%" % ("row", mean, top, 3),
            "%.3f" % mean,
            "{:.2f}|{}|{}".format(mean, top, "end"),
            ", ".join([str(top), f"{mean:.1f}", "end"]),
            "".join([str(top)]),
            x * 2,
        )

    check(fn, FLOATS, 1)


def test_texts_that_are_read():
    def fn(x):
        return len(str(x.sum().item())), "%d" % x.sum().item(), str(x.sum().item()).upper(), x * 2

    compiled = torchbolt.compile(fn)
    for x in FLOATS * 2:
        assert repr(compiled(x)) == repr(fn(x))
    assert torchbolt.explain(fn)(FLOATS[0]).graph_break_count > 0
