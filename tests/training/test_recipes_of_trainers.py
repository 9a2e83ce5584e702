# tests/training/test_recipes_of_trainers.py
"""Training as trainers and papers write it: callbacks and what they log, optimizers of their own, dynamic programs in log
space, filters and integrators, weights that are parts and norms of others (recipes.py)."""

import collections
import math

import pytest
import torch
import torch.nn.functional as F
from recipes import Data, Recipes, mlp, state
from torch import nn

import torchbolt

recipe = Recipes()


class Logged(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.logged = mlp(10, 16, 3), {}

    def log(self, name, value):
        self.logged[name] = value.item() if isinstance(value, torch.Tensor) else value

    def training_step(self, batch, of):
        x, y = batch
        logits = of(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        self.log("loss", loss)
        self.log("accuracy", (logits.argmax(-1) == y).float().mean())
        return loss


class Average:
    def __init__(self, module, decay=0.9):
        self.kept, self.decay = [p.detach().clone() for p in module.parameters()], decay

    @torch.no_grad()
    def batch_end(self, trainer, loss):
        for kept, p in zip(self.kept, trainer.module.parameters(), strict=True):
            kept.lerp_(p, 1 - self.decay)


class History:
    def __init__(self):
        self.losses = collections.deque(maxlen=3)

    def batch_end(self, trainer, loss):
        self.losses.append(loss.detach())


class Trainer:
    def __init__(self, module, callbacks):
        self.module, self.callbacks, self.steps = module, callbacks, 0
        self.opt = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.opt, 0.2, total_steps=20)

    def step(self, batch, of):
        self.opt.zero_grad()
        loss = self.module.training_step(batch, of)
        loss.backward()
        self.opt.step()
        self.schedule.step()
        self.steps += 1
        for callback in self.callbacks:
            callback.batch_end(self, loss)
        return loss.detach()


@recipe
def a_trainer_with_callbacks(step_of, model_of):
    data, module = Data(), Logged()
    average, history = Average(module), History()
    trainer, of = Trainer(module, [average, history]), model_of(module.net)
    step = step_of(trainer.step)
    for _ in range(7):
        loss = step((data.randn(8, 10), data.ints(3, 8)), of)
        logged = module.logged
        yield [loss, logged["loss"], logged["accuracy"], trainer.steps, *average.kept, *history.losses, *state(module)]


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, every=2):
        super().__init__(params, {"lr": lr, "every": every})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                grad, kept = p.grad, self.state[p]
                if not kept:
                    kept["step"] = 0
                    for d, n in enumerate(grad.size()):
                        kept[f"of_{d}"], kept[f"root_{d}"] = torch.eye(n), torch.zeros(n, n)
                for d, n in enumerate(grad.size()):
                    grad = grad.transpose(0, d).contiguous()
                    sizes, rows = grad.size(), grad.view(n, -1)
                    kept[f"of_{d}"].add_(rows @ rows.t())
                    if kept["step"] % group["every"] == 0:
                        values, vectors = torch.linalg.eigh(kept[f"of_{d}"])
                        root = vectors @ values.pow(-1 / grad.ndim).diag() @ vectors.t()
                        kept[f"root_{d}"].copy_(root)
                    grad = (kept[f"root_{d}"] @ rows).view(sizes).transpose(0, d)
                kept["step"] += 1
                p.add_(grad, alpha=-group["lr"])


@recipe
def an_optimizer_with_roots_of_matrices(step_of, model_of):
    data, net = Data(), mlp(4, 6, 2)
    of, opt = model_of(net), Shampoo(net.parameters())

    @step_of
    def step(x, y):
        loss = F.mse_loss(of(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(6):
        yield [step(data.randn(16, 4), data.randn(16, 2)), *state(net)]


@recipe
def tags_in_their_best_order(step_of, model_of):
    data, net = Data(), nn.Linear(6, 5)
    to, first = nn.Parameter(data.randn(5, 5) * 0.1), nn.Parameter(torch.zeros(5))
    of, opt = model_of(net), torch.optim.SGD([*net.parameters(), to, first], 0.1)

    @step_of
    def step(x, tags, mask):
        scores, rows = of(x), torch.arange(x.size(1))
        path = first[tags[0]] + scores[0, rows, tags[0]]
        every = first + scores[0]
        for i in range(1, len(x)):
            path = path + (to[tags[i - 1], tags[i]] + scores[i, rows, tags[i]]) * mask[i]
            longer = torch.logsumexp(every.unsqueeze(2) + to + scores[i].unsqueeze(1), 1)
            every = torch.where(mask[i].unsqueeze(1).bool(), longer, every)
        loss = (torch.logsumexp(every, 1) - path).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(6):
        mask = (torch.arange(6)[:, None] < data.ints(5, 3) + 2).float()
        yield [step(data.randn(6, 3, 6), data.ints(5, 6, 3), mask), to, first, *state(net)]


@recipe
def a_filter_and_its_noise(step_of, model_of):
    data, moves, sees = Data(), torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    noises = nn.Parameter(torch.tensor([-3.0, -1.0]))
    opt = torch.optim.SGD([noises], 0.01)

    def likelihood(seen):
        x, spread, total = torch.zeros(2, 1), torch.eye(2), torch.zeros(())
        moving, seeing = noises.exp()
        for z in seen:
            x, spread = moves @ x, moves @ spread @ moves.T + moving * torch.eye(2)
            expected = sees @ spread @ sees.T + seeing
            gain, rest = spread @ sees.T @ torch.linalg.inv(expected), z.view(1, 1) - sees @ x
            x, spread = x + gain @ rest, (torch.eye(2) - gain @ sees) @ spread
            total = total - 0.5 * (rest * rest / expected + torch.log(2 * math.pi * expected)).squeeze()
        return total, x

    of = model_of(likelihood)

    @step_of
    def step(seen):
        total, x = of(seen)
        opt.zero_grad()
        (-total).backward()
        opt.step()
        return total, x

    for _ in range(5):
        yield [*step(data.randn(8).cumsum(0)), noises.detach().clone()]


class Directed(nn.Module):
    """A weight as its norms and a direction, to which a product of two small ones is added."""

    def __init__(self, linear, rank=2):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.a, self.b = (
            nn.Parameter(torch.randn(rank, linear.in_features)),
            nn.Parameter(torch.zeros(linear.out_features, rank)),
        )
        self.norms, self.merged = nn.Parameter(linear.weight.norm(dim=1, keepdim=True)), False

    def weight(self):
        whole = self.linear.weight + 2.0 * self.b @ self.a
        return self.norms * (whole / whole.norm(dim=1, keepdim=True).detach())

    def forward(self, x):
        return self.linear(x) if self.merged else F.linear(x, self.weight(), self.linear.bias)

    def merge(self):
        self.linear.weight.data = self.weight().data
        self.merged = True


@recipe
def norms_and_directions_that_are_merged(step_of, model_of):
    data, net = Data(), mlp(6, 8, 2)
    for name, child in list(net.named_children()):
        if isinstance(child, nn.Linear):
            setattr(net, name, Directed(child))
    of, opt = model_of(net), torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)

    @step_of
    def step(x, y):
        loss = F.cross_entropy(of(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(5):
        yield [step(data.randn(8, 6), data.ints(2, 8)), *state(net)]
    for child in net:
        if isinstance(child, Directed):
            child.merge()
    for _ in range(3):
        yield [of(data.randn(3, 6))]


@recipe
def a_mixer_of_times(step_of, model_of):
    class Mixer(nn.Module):
        def __init__(self, width=8):
            super().__init__()
            self.decay, self.now = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
            self.key, self.value, self.gate = (nn.Linear(width, width, bias=False) for _ in range(3))
            self.shift = nn.ZeroPad2d((0, 0, 1, -1))

        def forward(self, x):
            mixed = 0.5 * (x + self.shift(x))
            key, value, out = self.key(mixed), self.value(mixed), torch.empty_like(x)
            above, below = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
            most = torch.full_like(above, -1e38)
            for t in range(x.size(1)):
                k, v = key[:, t], value[:, t]
                p = torch.maximum(most, self.now + k)
                old, new = torch.exp(most - p), torch.exp(self.now + k - p)
                out[:, t] = (old * above + new * v) / (old * below + new)
                p = torch.maximum(most - self.decay.exp(), k)
                old, new = torch.exp(most - self.decay.exp() - p), torch.exp(k - p)
                above, below, most = old * above + new * v, old * below + new, p
            return self.gate(mixed).sigmoid() * out

    data, net = Data(), Mixer()
    of, opt = model_of(net), torch.optim.SGD(net.parameters(), 0.1)

    @step_of
    def step(x):
        loss = of(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(5):
        yield [step(data.randn(2, 5, 8)), *state(net)]


@pytest.mark.parametrize("compiled", ["step", "model"])
@pytest.mark.parametrize("name", recipe)
def test_as_eager(name, compiled):
    recipe.check(name, compiled)
    if compiled == "step":
        stats = torchbolt.stats()
        assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)
        assert stats["regions"] <= 4
