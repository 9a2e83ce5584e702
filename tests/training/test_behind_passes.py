# tests/training/test_behind_passes.py
"""What a step gives that leads back behind its own backward passes: results, leaves and inputs that the caller may
differentiate, or may not, as in eager."""

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, batches, loss_with_its_history, net, state_of
from torch import nn

import torchbolt


def test_the_loss_cannot_be_differentiated_again():
    step, _ = loss_with_its_history()
    step = torchbolt.compile(step)
    for x, y in batches(4):
        loss, _ = step(x, y)
        assert loss.requires_grad and loss.grad_fn is not None and not loss.is_leaf
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        (loss.detach() * 2).add_(1)


def test_a_graph_that_is_retained_can_be_used():
    def run(wrap):
        model = net()

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward(retain_graph=True)
            return loss

        step = wrap(step)
        for x, y in batches(3):
            step(x, y).backward()
        return state_of([model])

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_a_result_beside_the_loss_can_be_differentiated():
    def run(wrap):
        model, other = net(), nn.Linear(16, 4)
        other.load_state_dict({"weight": torch.ones(4, 16), "bias": torch.ones(4)})

        def step(x, y):
            F.cross_entropy(model(x), y).backward()
            return other(x).sum()

        step = wrap(step)
        for x, y in batches(3):
            step(x, y).backward()
        return state_of([model, other])

    assert_same(run(torchbolt.compile), run(lambda step: step))


def attacked_by_gradients_of_a_shift(model, x, y):
    """PGD. The shift is a leaf that the step makes."""
    shift = torch.zeros_like(x).requires_grad_()
    for _ in range(3):
        (g,) = torch.autograd.grad(F.cross_entropy(model(x + shift), y), shift)
        shift = (shift + 0.1 * g.sign()).clamp(-0.3, 0.3).detach().requires_grad_()
    return F.cross_entropy(model(x + shift.detach()), y)


def attacked_by_gradients_of_the_input(model, x, y):
    worst = x.detach() + 0.001
    for _ in range(2):
        worst.requires_grad_()
        g = torch.autograd.grad(F.cross_entropy(model(worst), y), [worst])[0]
        worst = worst.detach() + 0.1 * g.sign()
        worst = torch.min(torch.max(worst, x - 0.3), x + 0.3)
    logits = model(worst)
    return F.cross_entropy(logits, y) + F.kl_div(logits.log_softmax(-1), model(x).softmax(-1)), worst, logits


def attacked_once(model, x, y):
    """Other gradients of the first pass stay with the parameters."""
    shift = torch.zeros_like(x)
    shift.requires_grad = True
    F.cross_entropy(model(x + shift), y).backward()
    g = shift.grad.detach()
    shift = (shift + 0.1 * g.sign()).detach()
    return F.cross_entropy(model(x + shift), y)


def seen_with_the_shift(model, x, y):
    """The leaf is a result, which is given a gradient afterwards."""
    shift = torch.zeros_like(x).requires_grad_()
    (g,) = torch.autograd.grad(F.cross_entropy(model(x + shift), y), shift)
    return F.cross_entropy(model(x + shift + g), y), shift


def taught_twice(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    return F.cross_entropy(model(x * 2), y), loss


BEHIND_PASSES = [
    attacked_by_gradients_of_a_shift,
    attacked_by_gradients_of_the_input,
    attacked_once,
    seen_with_the_shift,
    taught_twice,
]


@pytest.mark.parametrize("fn", BEHIND_PASSES, ids=lambda fn: fn.__name__)
def test_what_is_made_behind_a_pass_can_be_differentiated(fn):
    def run(wrap):
        model = net(drop=0.2)
        fast = wrap(fn)
        found = []
        for x, y in batches(4):
            made = fast(model, x, y)
            loss, *others = made if isinstance(made, tuple) else (made,)
            loss.backward()
            found.append([loss.detach(), *[t.detach() for t in others], *[t.grad for t in others if t.is_leaf]])
            found.append([p.grad.clone() for p in model.parameters()])
        return found

    assert_same(run(torchbolt.compile), run(lambda fn: fn))
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0 and (fn is attacked_once or stats["graph_breaks"] == 0)


def attacked_in_place(w, x):
    shift = torch.zeros_like(x, requires_grad=True)
    for _ in range(2):
        ((x + shift) @ w).sin().sum().backward()
        with torch.no_grad():
            shift += 0.1 * shift.grad.sign()
            shift.grad.zero_()
    return shift.detach()


def optimized_inside(w, x):
    shift = nn.Parameter(torch.zeros(2, 4))
    opt = torch.optim.SGD([shift], lr=0.1, momentum=0.9)
    for _ in range(3):
        opt.zero_grad()
        ((x + shift) @ w).sin().sum().backward()
        opt.step()
    return shift, shift.grad


def given_out_with_its_gradient(w, x):
    shift = x.detach().clone().requires_grad_()
    (shift @ w).sin().sum().backward()
    return shift


def handed_on_with_its_gradient(w, x):
    shift = x.detach().clone().requires_grad_()
    (shift @ w).sin().sum().backward()
    torchbolt.graph_break()
    (shift * 3).sum().backward()
    return shift.grad + 1, shift


@pytest.mark.parametrize(
    "fn",
    [attacked_in_place, optimized_inside, given_out_with_its_gradient, handed_on_with_its_gradient],
    ids=lambda fn: fn.__name__,
)
def test_leaves_that_a_step_makes_have_gradients(fn):
    fast = torchbolt.compile(fn)
    for _ in range(4):
        w, x = torch.randn(4, 3, requires_grad=True), torch.randn(2, 4)
        seen = []
        for run in (fn, fast):
            w.grad = None
            found = run(w, x)
            found = found if isinstance(found, tuple) else (found,)
            kinds = [(t.requires_grad, t.is_leaf, type(t) is nn.Parameter) for t in found]
            seen.append([kinds, [t.detach() for t in found], [t.grad for t in found if t.is_leaf], w.grad])
        assert seen[1][0] == seen[0][0]
        assert_same(seen[1][1:], seen[0][1:])
    stats = torchbolt.stats()
    assert stats["graph_breaks"] == (fn is handed_on_with_its_gradient) and stats["eager_fallbacks"] == 0


def test_a_view_that_is_made_a_leaf():
    fast = torchbolt.compile(lambda x: x[0].requires_grad_())
    for _ in range(3):
        assert fast(torch.randn(2, 3)).requires_grad


def test_a_leaf_made_of_a_number():
    def step(x):
        scale = torch.tensor(2.0, requires_grad=True)
        (scale * x).sum().backward()
        return scale.grad, scale

    fast = torchbolt.compile(step)
    for _ in range(3):
        x = torch.randn(3)
        assert_same(fast(x), step(x))


@pytest.mark.parametrize("passes_through", [True, False])
def test_a_write_that_gives_an_input_a_history(passes_through):
    """The caller sees it. Where the pass goes through it, it is the engine's, between two regions; otherwise the
    region is eager's."""

    def step(x, w):
        x[0] = w.sum()
        loss = x.square().sum() if passes_through else w.square().sum()
        loss.backward()
        return loss.detach()

    fast = torchbolt.compile(step)
    for _ in range(3):
        seen = []
        for run in (step, fast):
            x, w = torch.ones(3), torch.ones(2, requires_grad=True)
            seen.append([run(x, w), w.grad, x.detach(), torch.tensor(x.requires_grad)])
            if not passes_through:
                seen[-1] += torch.autograd.grad(x.sum(), w)
        torch.testing.assert_close(seen[1], seen[0])
    assert torchbolt.stats()["eager_fallbacks"] == (0 if passes_through else 1)


@pytest.mark.parametrize("passes_through", [True, False])
def test_a_total_of_losses_that_begins_as_a_number(passes_through):
    """What is added to it gives it a history that is the run's own, and used up."""

    def run(compiled):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            total, loss = torch.tensor(0.0), 0
            for i in range(3):
                each = model(x).square().mean() * (i + 1)
                total += each
                loss = loss + each
            (total if passes_through else loss).backward()
            optimizer.step()
            return total

        fast = compiled(step)
        for _ in range(4):
            total = fast(torch.randn(5, 4))
            with pytest.raises(RuntimeError, match="a second time"):
                total.backward()
            yield total.detach(), torch.tensor(total.requires_grad), *[p.detach().clone() for p in model.parameters()]

    torch.testing.assert_close(list(run(torchbolt.compile)), list(run(lambda fn: fn)))
    stats = torchbolt.stats()
    assert (stats["eager_fallbacks"], stats["graph_breaks"]) == (0, 0)


def test_a_result_that_leads_to_another_one_which_is_used_up():
    """The way from the one to the other is left to the caller."""

    def step(x, w):
        loss = (x * w).square().sum()
        loss.backward()
        return loss * loss, loss

    fast = torchbolt.compile(step)
    for _ in range(3):
        seen = []
        for run in (step, fast):
            w = torch.ones(3, requires_grad=True)
            both = run(torch.arange(3.0), w)
            seen.append([*torch.autograd.grad(*both), w.grad])
        torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("through", [lambda w, loss: (w * 2).sum(), lambda w, loss: loss + w.sum()])
def test_a_result_with_a_way_to_a_leaf_that_no_pass_has_gone(through):
    def step(x, w):
        loss = (x * w).square().sum()
        loss.backward()
        return through(w, loss)

    fast = torchbolt.compile(step)
    for _ in range(3):
        seen = []
        for run in (step, fast):
            w = torch.ones(3, requires_grad=True)
            result = run(torch.arange(3.0), w)
            try:
                result.backward()
            except RuntimeError as error:
                seen.append(str(error)[:40])
            else:
                seen.append(w.grad.tolist())
        assert seen[1] == seen[0]
