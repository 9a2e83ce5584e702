# tests/training/test_passes_with_history.py
"""Backward passes inside of a region whose gradients are differentiated themselves (create_graph)."""

import pytest
import torch
from step_scripts import assert_same, state_of
from torch import nn

import torchbolt


def norm_of(g):
    return g.flatten(1).square().sum(1).add(1e-12).sqrt()


def penalty(judge, mixed):
    score = judge(mixed)
    (g,) = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True, retain_graph=True)
    return ((norm_of(g) - 1) ** 2).mean()


def attention(width):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.all(x.unsqueeze(1).expand(-1, 3, -1) + x[:1]).chunk(3, -1)
            return self.out((q @ k.mT / width**0.5).softmax(-1) @ v).mean(1)

    return Attention()


def images(*layers):
    return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), *layers, nn.Flatten(), nn.LazyLinear(1))


JUDGES = {
    "mlp": lambda: nn.Sequential(nn.Linear(16, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1)),
    "smooth": lambda: nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 24), nn.SiLU(), nn.Linear(24, 1)),
    "norms": lambda: nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.Tanh(), nn.RMSNorm(24), nn.Linear(24, 1)),
    "softmax": lambda: nn.Sequential(nn.Linear(16, 24), nn.Softmax(-1), nn.Linear(24, 3), nn.LogSoftmax(-1)),
    "attention": lambda: nn.Sequential(attention(16), nn.Linear(16, 1)),
    "dropout": lambda: nn.Sequential(nn.Linear(16, 24), nn.Dropout(0.3), nn.ELU(), nn.Linear(24, 1)),
    "convolutions": lambda: images(nn.Conv2d(1, 4, 3, padding=1), nn.Softplus(), nn.Conv2d(4, 4, 3, 2, 1), nn.Mish()),
    "turned": lambda: images(nn.ConvTranspose2d(1, 4, 2, 2), nn.GroupNorm(2, 4), nn.ReLU(), nn.AvgPool2d(2)),
    "batch norm": lambda: images(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.MaxPool2d(2)),
    "enlarged": lambda: images(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(1, 2, 3, 2), nn.Hardswish()),
    "spectral": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 8)), nn.ReLU(), nn.Linear(8, 1)),
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), nn.GLU(), nn.Linear(4, 1)),
}  # fmt: skip


def made(name):
    torch.manual_seed(1)
    judge = JUDGES[name]()
    judge(torch.zeros(2, 16))
    return judge.double()


def data(steps, size=6):
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        yield [torch.randn(size, 16, generator=draw, dtype=torch.float64) for _ in range(2)]


def trained(make, wrap, steps=4):
    step, parts = make(wrap)
    torch.manual_seed(5)
    return [step(*batch) for batch in data(steps)], state_of(parts)


def same(make, steps=4, **tolerance):
    eager = trained(make, lambda f: f, steps)
    torchbolt.reset()
    ours = trained(make, torchbolt.compile, steps)
    torch.testing.assert_close(ours, eager, **tolerance)
    return torchbolt.stats()


@pytest.mark.parametrize("name", JUDGES)
def test_a_penalty_on_gradients_is_part_of_the_step(name):
    def make(wrap):
        judge = made(name)
        opt = torch.optim.SGD(judge.parameters(), 0.05)

        def step(x, y):
            mixed = (0.3 * x + 0.7 * y).requires_grad_(True)
            loss = judge(x).mean() - judge(y).mean() + 10 * penalty(judge, mixed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return wrap(step), (judge, opt)

    stats = same(make)
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)
    assert stats["regions"] <= 2


@pytest.mark.parametrize("name", JUDGES)
def test_a_penalty_is_compiled_and_the_pass_through_it_is_outside(name):
    def make(wrap):
        judge = made(name)
        opt = torch.optim.SGD(judge.parameters(), 0.05)
        of = wrap(lambda x, y: penalty(judge, (0.3 * x + 0.7 * y).requires_grad_(True)))

        def step(x, y):
            loss = judge(x).mean() + of(x, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return step, (judge, opt)

    stats = same(make)
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)


def test_a_leaf_that_is_an_argument():
    def make(wrap):
        judge = made("smooth")
        opt = torch.optim.SGD(judge.parameters(), 0.05)

        @wrap
        def step(x):
            loss = penalty(judge, x) + judge(x).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach(), x.grad

        return lambda x, y: step(x.requires_grad_()), (judge, opt)

    assert same(make)["graph_breaks"] == 0


def test_slopes_of_slopes():
    """A differential equation's residual."""

    def make(wrap):
        model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        for p in model.parameters():
            nn.init.uniform_(p, -0.4, 0.4, generator=torch.Generator().manual_seed(p.numel()))
        opt = torch.optim.Adam(model.parameters(), 0.01)

        def slope(of, by):
            return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]

        @wrap
        def step(x, t):
            x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
            u = model(torch.cat([x, t], 1))
            by_x = slope(u, x)
            loss = (slope(u, t) + u * by_x - 0.1 * slope(by_x, x)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return lambda x, y: step(x[:, :1], y[:, :1]), (model, opt)

    stats = same(make)
    assert (stats["graph_breaks"], stats["regions"]) == (0, 2)


def test_steps_within_a_step():
    """MAML: gradients of what is no leaf, by what earlier gradients made of the parameters."""

    def make(wrap):
        model = made("smooth")
        opt = torch.optim.SGD(model.parameters(), 0.05)

        @wrap
        def step(x, y):
            total = 0.0
            for task in (x, y):
                fast = dict(model.named_parameters())
                for _ in range(2):
                    out = torch.func.functional_call(model, fast, (task[:3],))
                    slopes = torch.autograd.grad(out.square().mean(), tuple(fast.values()), create_graph=True)
                    fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), slopes, strict=True)}
                total = total + torch.func.functional_call(model, fast, (task[3:],)).square().mean()
            opt.zero_grad()
            total.backward()
            opt.step()
            return total.detach()

        return step, (model, opt)

    stats = same(make)
    assert stats["graph_breaks"] == 0 and stats["regions"] <= 2


def forces(wrap, model):
    @wrap
    def of(place):
        energy = model(place).sum()
        return energy, -torch.autograd.grad(energy, place, create_graph=True)[0]

    return of


@pytest.mark.parametrize("which", ["both", "energy", "forces"])
def test_an_energy_and_its_forces(which):
    def make(wrap):
        model = made("smooth")
        opt = torch.optim.SGD(model.parameters(), 0.05)
        of = forces(wrap, model)

        def step(x, y):
            x = x.requires_grad_()
            energy, force = of(x)
            losses = {"energy": energy.square(), "forces": (force - y).square().mean()}
            loss = sum(losses.values()) if which == "both" else losses[which]
            opt.zero_grad()
            loss.backward()
            opt.step()
            return energy.detach(), force.detach(), x.grad

        return step, (model, opt)

    stats = same(make)
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)


def test_a_result_between_what_a_pass_goes_through():
    """It is seen as a part of another result, so it would be handed from one piece to the next. No piece has all nodes."""

    def make(wrap):
        model = made("smooth")

        @wrap
        def of(x):
            energy = model(x)
            (slope,) = torch.autograd.grad(energy.square().sum(), x, create_graph=True)
            return energy, energy[1:], slope

        def step(x, y):
            energy, part, slope = of(x.requires_grad_())
            (energy.sum() + part.sum() * 2 + (slope * y).sum()).backward()
            return slope.detach(), x.grad

        return step, (model,)

    same(make)


def test_forces_alone_are_no_graph():
    model = made("smooth").requires_grad_(False)
    of = forces(lambda f: f, model)
    ours = torchbolt.compile(lambda x: of(x.clone().requires_grad_())[1].detach())
    for x, _ in data(4):
        got = ours(x)
        assert_same(got, of(x.requires_grad_())[1].detach())
        assert not got.requires_grad
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_product_with_second_derivatives():
    def make(wrap):
        model = made("norms")
        parameters = list(model.parameters())

        @wrap
        def product(x, y):
            loss = model(x).square().mean()
            slopes = torch.autograd.grad(loss, parameters, create_graph=True)
            along = [torch.full_like(p, 0.1) for p in parameters]
            return torch.autograd.grad(slopes, parameters, along)

        return product, (model,)

    stats = same(make)
    assert (stats["graph_breaks"], stats["regions"]) == (0, 1)


def test_rows_of_second_derivatives():
    def make(wrap):
        def of(v, w):
            return (v.sin() * w).sum() * (v * w).sum()

        @wrap
        def rows(x, y):
            v = x[0, :4].clone().requires_grad_()
            (g,) = torch.autograd.grad(of(v, y[0, :4]), v, create_graph=True)
            return torch.stack([torch.autograd.grad(each, v, retain_graph=True)[0] for each in g])

        return rows, ()

    stats = same(make)
    assert (stats["graph_breaks"], stats["regions"]) == (0, 1)


def test_what_a_gradient_gives_is_what_it_was_given():
    def make(wrap):
        @wrap
        def step(x, y):
            x = x.clone().requires_grad_()
            y = y.clone().requires_grad_()
            (same,) = torch.autograd.grad(x + 0, x, y, create_graph=True)
            spread, unused = torch.autograd.grad((2 * x).sum(), (x, y), create_graph=True, allow_unused=True)
            (g,) = torch.autograd.grad((same * y).sum() + spread.sum() * x.sum(), y)
            return same.detach(), spread, unused, g

        return step, ()

    same(make)


def test_only_part_of_what_is_behind():
    """What no way leads to is not computed: a node that cannot be differentiated is not asked."""

    def make(wrap):
        @wrap
        def step(x, y):
            w = y.clone().requires_grad_()
            hidden = (x * w).tanh()
            out = hidden.square().sum()
            (by_hidden,) = torch.autograd.grad(out, hidden, create_graph=True)
            (g,) = torch.autograd.grad(by_hidden.sum(), w)
            return by_hidden.detach(), g

        return step, ()

    stats = same(make)
    assert (stats["graph_breaks"], stats["regions"]) == (0, 1)


def test_a_graph_that_stays_is_given():
    """The gradient is handed out with its history, and the pass through it comes later."""

    def make(wrap):
        model = made("smooth")
        of = wrap(lambda x: torch.autograd.grad(model(x).square().sum(), x, create_graph=True)[0])

        def step(x, y):
            g = of(x.requires_grad_())
            (twice,) = torch.autograd.grad((g * y).sum(), x, create_graph=True)
            (twice.sum() + g.sum()).backward()
            return g.detach(), twice.detach(), x.grad

        return step, (model,)

    same(make)


def test_hooks_end_the_region_before_the_pass():
    def make(wrap):
        model = made("smooth")
        seen = []
        model[0].register_full_backward_hook(lambda *_: seen.append(1))
        of = wrap(lambda x: torch.autograd.grad(model(x).square().sum(), x, create_graph=True)[0])
        return lambda x, y: (of(x.requires_grad_()).detach(), len(seen)), (model,)

    same(make)


def test_a_history_left_to_grad_is_eagers():
    def make(wrap):
        model = made("smooth")

        @wrap
        def step(x):
            model(x).square().sum().backward(create_graph=True)
            return model[0].weight.grad.square().sum()

        def outer(x, y):
            model.zero_grad()
            curvature = step(x)
            curvature.backward()
            found = [p.grad.detach().clone() for p in model.parameters()]
            model.zero_grad()
            return found

        return outer, ()

    same(make)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_types(dtype):
    def make(wrap):
        judge = made("smooth").to(dtype)
        opt = torch.optim.SGD(judge.parameters(), 0.05)

        @wrap
        def step(x, y):
            loss = penalty(judge, x.requires_grad_())
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return lambda x, y: step(x.to(dtype), y.to(dtype)), (judge, opt)

    same(make, **({"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}))


def test_autocast_around_the_pass():
    def make(wrap):
        judge = made("smooth").float()
        opt = torch.optim.SGD(judge.parameters(), 0.05)

        @wrap
        def step(x, y):
            mixed = (0.3 * x + 0.7 * y).float().requires_grad_(True)
            x = x.float()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = judge(x).mean() + penalty(judge, mixed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return step, (judge, opt)

    same(make, rtol=0.05, atol=0.02)


def test_sizes_that_differ():
    def make(wrap):
        judge = made("smooth")
        opt = torch.optim.SGD(judge.parameters(), 0.05)

        @wrap
        def step(x, y):
            loss = penalty(judge, (0.3 * x + 0.7 * y).requires_grad_(True))
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        sizes = iter([6, 6, 5, 6, 4, 5, 3, 2, 6, 5])

        def sized(x, y):
            n = next(sizes)
            return step(x[:n], y[:n])

        return sized, (judge, opt)

    same(make, steps=10)
