# tests/training/test_paths_of_results.py
"""A pass through one of several results comes to what that one is made of, and to nothing else, as in eager's graph."""

import gc
import threading
import weakref

import pytest
import torch

import torchbolt


def two_heads(trunk, left, right, x):
    h = torch.tanh(x @ trunk)
    return (h @ left).square().sum(-1), (h @ right).sin().sum(-1)


def noted(fn, use):
    """What hooks of the leaves see, and the gradients."""
    torch.manual_seed(1)
    leaves = [torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    x = torch.randn(5, 4, dtype=torch.float64)
    seen = {"trunk": [], "left": [], "right": []}
    for name, leaf in zip(seen, leaves, strict=True):
        leaf.register_hook(lambda g, name=name: seen[name].append(g.clone()) or g * 2)
    use(leaves, fn(*(leaf.clone() for leaf in leaves), x))
    return seen, [leaf.grad for leaf in leaves if leaf.grad is not None]


def check(use, fn=two_heads):
    fast = torchbolt.compile(fn)
    want = noted(fn, use)
    for _ in range(3):
        torch.testing.assert_close(noted(fast, use), want)
    stats = torchbolt.stats()
    assert (stats["eager_fallbacks"], stats["graph_breaks"]) == (0, 0)
    assert "Replayed" not in str(torchbolt.explain(fast))
    return want


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_two(which):
    seen, _ = check(lambda leaves, results: results[which].sum().backward())
    assert [len(seen[name]) for name in ("trunk", "left", "right")] == [1, 1 - which, which]


UNBOUNDED = {
    "sqrt": lambda x: (x.sqrt(), x * 3),
    "log": lambda x: (x.log().sum(), x * x),
    "far away": lambda x: ((x.sqrt() + 1).view(2, 2).mT.cumsum(0), (x * 2).sin()),
    "overflow": lambda x: (x.exp().sum() * 1e300 * 1e300, x.view(2, 2)[1] * 3),
    "a number that is none": lambda x: (x * torch.nan, x * 3),
    "a number without bounds": lambda x: ((x * 1e300 * 1e300).view(2, 2), x * 3),
    "divided by 0": lambda x: ((x / 0).sum(), x * 3),
    "written in place": lambda x: (torch.zeros(4).index_put((torch.arange(4),), x.sqrt()), x * 3),
}


@pytest.mark.parametrize("fn", UNBOUNDED.values(), ids=UNBOUNDED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_another_result_would_make_of_nothing(fn, dynamic):
    """The gradient of sqrt(0) times no gradient at all is nothing, not 0 * inf."""
    fast = torchbolt.compile(fn, dynamic=dynamic)
    for _ in range(3):
        found = []
        for call in (fn, fast):
            x = torch.tensor([0.0, 1, 2, 1000], requires_grad=True)
            found.append(torch.autograd.grad(call(x)[1].sum(), x)[0])
        torch.testing.assert_close(found[1], found[0])
        assert not found[1].isnan().any()


def test_what_another_result_would_make_where_sizes_and_numbers_differ():
    """One program for all of them, and what it takes for granted beyond the whole part holds for each or is replayed."""

    def fn(x, weight, scale):
        h = x @ weight
        return h.abs().sqrt().view(-1, 2).cumsum(0) * scale, (x.tanh() * scale) @ weight

    fast = torchbolt.compile(fn)
    weight = torch.randn(4, 4, requires_grad=True)
    for turn, rows in enumerate([5, 7, 5, 12, 7, 2, 9, 5]):
        x = torch.randn(rows, 4)
        x[0] = 0
        for which in (0, 1):
            want, got = (
                torch.autograd.grad(call(x.requires_grad_(), weight, turn / 7)[which].sum(), (x, weight))
                for call in (fn, fast)
            )
            torch.testing.assert_close(got, want, equal_nan=True)
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["eager_fallbacks"]) == (2, 0)


def test_what_another_result_would_make_of_what_was_written_to():
    def fn(x):
        return x.acos(), x * 3

    fast = torchbolt.compile(fn)
    for _ in range(3):
        x = torch.full((4,), 0.5, requires_grad=True)
        left, right = fast(x)
        with torch.no_grad():
            x.add_(2)
        torch.testing.assert_close(torch.autograd.grad(right.sum(), x)[0], torch.full((4,), 3.0))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            left.sum().backward()


def test_what_reads_nothing_goes_on_behind_what_did():
    """A result may be gone through as often as in eager, where another one that leads there is used up."""

    def fn(x):
        return x * x.detach(), x + 3

    fast = torchbolt.compile(fn)
    for _ in range(3):
        found = []
        for call in (fn, fast):
            x = torch.randn(4, generator=torch.Generator().manual_seed(1)).requires_grad_()
            left, right = call(x)
            left.sum().backward()
            right.sum().backward()
            right.sum().backward()
            found.append(x.grad)
            with pytest.raises(RuntimeError, match="a second time"):
                left.sum().backward()
        torch.testing.assert_close(found[1], found[0])


def test_each_in_turn():
    def use(leaves, results):
        results[0].sum().backward(retain_graph=True)
        results[1].sum().backward()

    check(use)


def test_both_at_once():
    check(lambda leaves, results: (results[0] * results[1]).sum().backward())


def test_some_inputs():
    def use(leaves, results):
        leaves[1].grad = torch.autograd.grad((results[0] * results[1]).sum(), leaves[1])[0]

    check(use)


def test_gradients_of_gradients():
    def use(leaves, results):
        (first,) = torch.autograd.grad(results[0].sum(), leaves[:1], create_graph=True)
        (first.square().sum() + results[1].sum()).backward()

    check(use)


def test_gradients_of_gradients_beside_a_result_that_is_gone():
    """A node that nobody holds any more is no pass that has been through its call."""

    def fn(a, b):
        summed, doubled = a.sum(), b * 2
        some = doubled[doubled > 0.2]
        some[1:].mul_(2)
        return summed, summed * 2

    fast = torchbolt.compile(fn)
    for _ in range(4):
        seen = []
        for run in (fn, fast):
            torch.manual_seed(1)
            a, b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
            seen.append(torch.autograd.grad(run(a * 1, b)[1], a, create_graph=True)[0].detach())
        torch.testing.assert_close(seen[1], seen[0])


def test_a_write_to_what_only_another_results_gradient_reads():
    def fn(x, a, b):
        return (a / x).sum(), (b * 2).sum()

    fast = torchbolt.compile(fn)
    for _ in range(3):
        seen = []
        for run in (fn, fast):
            torch.manual_seed(1)
            x, a, b = torch.randn(4), torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
            results = run(x, a, b)
            x.add_(1)
            results[1].backward(retain_graph=True)
            seen.append((a.grad, b.grad))
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                results[0].backward()
        torch.testing.assert_close(seen[1], seen[0])


def test_independent_results():
    def apart(a, b, c, x):
        c.neg_()
        return x @ a, b.exp()

    check(lambda leaves, results: results[0].sum().backward(), apart)
    check(lambda leaves, results: results[1].sum().backward(), apart)


def test_a_result_that_the_engine_comes_to_late():
    """Its nodes were made in another thread, where numbers begin anew, so the engine takes them for older ones."""

    def use(leaves, results):
        late = []

        def work():
            late.append((results[1] * 3).sum())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        (results[0].sum() + late[0]).backward()

    check(use)


def test_a_result_that_is_gone():
    def use(leaves, results):
        results[1].sum()
        first = results[0]
        del results
        gc.collect()
        first.sum().backward()

    check(use)


def test_nothing_stays():
    fast = torchbolt.compile(two_heads)
    for use in (lambda r: r[0].sum().backward(), lambda r: (r[0] + r[1]).sum().backward(), lambda r: None):
        leaves = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]
        x = torch.randn(5, 4)
        results = fast(*leaves, x)
        use(results)
        gone = [weakref.ref(t) for t in (*leaves, *results, x)]
        del leaves, results, x
        gc.collect()
        assert [r() for r in gone] == [None] * len(gone)


def test_a_pass_that_raises_keeps_no_gradient():
    """What it had come to by then goes with it, and not with the graph."""

    def refuse(_):
        raise ValueError("no")

    def apart(a, b):
        return a.sin(), b.cos()

    for fn in (apart, torchbolt.compile(apart)):
        leaves = [torch.randn(4, requires_grad=True) for _ in range(2)]
        results = fn(*leaves)
        results[0].register_hook(refuse)
        gradients = [torch.ones(4) for _ in range(2)]
        gone = [weakref.ref(t) for t in gradients]
        with pytest.raises(ValueError, match="no"):
            torch.autograd.backward(results, gradients)
        del gradients
        gc.collect()
        assert [r() for r in gone] == [None, None]


def given_in_the_other_order(trunk, left, right, x):
    first, second = two_heads(trunk, left, right, x)
    return second, first


@pytest.mark.parametrize("fn", [two_heads, given_in_the_other_order])
def test_a_second_pass_comes_to_results_in_eagers_order(fn):
    """What is made last comes first, so what a pass that raises retains is the same."""

    def use(leaves, results):
        for result in results:
            result.retain_grad()
        results[1].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.backward([r.sum() for r in results])
        seen.append([r.grad is not None for r in results])

    seen = []
    check(use, fn)
    assert seen == [seen[0]] * len(seen)


def test_a_second_pass_raises_before_it_comes_to_earlier_results():
    """So nothing is retained of it."""

    def use(leaves, results):
        results[0].retain_grad()
        results[1].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.backward([r.sum() for r in results])
        seen.append(results[0].grad is None)

    seen = []
    check(use)
    assert seen == [True] * len(seen)


def test_a_pass_goes_past_what_was_saved_for_another_and_updated():
    """A GAN's losses in one function: its second pass does not read the discriminator that the first one's step wrote to."""
    torch.manual_seed(0)
    generator, critic = (
        torch.nn.Linear(4, 4),
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)),
    )
    parameters = [*generator.parameters(), *critic.parameters()]
    begin = [p.detach().clone() for p in parameters]

    def losses(x, z):
        fake = generator(z)
        return (critic(fake.detach()) - critic(x)).mean(), fake

    def trained(losses):
        torch.manual_seed(1)
        with torch.no_grad():
            for p, b in zip(parameters, begin):
                p.copy_(b)
        optimizers = [torch.optim.Adam(m.parameters(), 1e-2) for m in (critic, generator)]
        for _ in range(4):
            loss, fake = losses(torch.randn(3, 4), torch.randn(3, 4))
            for optimizer, made in zip(optimizers, (lambda: loss, lambda: -critic(fake).mean())):
                optimizer.zero_grad()
                made().backward()
                optimizer.step()
        return [p.detach().clone() for p in parameters]

    for ours, theirs in zip(trained(torchbolt.compile(losses)), trained(losses)):
        torch.testing.assert_close(ours, theirs)


def test_what_a_pass_reads_and_was_written_to_still_raises():
    weight = torch.randn(4, 4, requires_grad=True)

    def fn(x):
        y = x @ weight
        return y.detach().tanh() @ weight, y.sigmoid()

    for each in (fn, torchbolt.compile(fn)):
        for _ in range(3):
            x = torch.randn(2, 4, requires_grad=True)
            first, second = each(x)
            first.sum().backward()
            with torch.no_grad():
                weight.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                second.sum().backward()
