# tests/training/test_scripts.py
"""Training as people write it: each script runs once in eager and once with what it compiles compiled, and gives the same
losses, parameters and whatever else it looks at.

A script is a generator of a function `compiled`, which is torchbolt.compile or does nothing. It yields what is compared.
"""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, weight_norm

import torchbolt

SCRIPTS = {}


def script(function):
    SCRIPTS[function.__name__] = function
    return function


def mlp(*widths, act=nn.GELU):
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def batches(steps, *sizes, classes=4):
    """Values that are the same in both runs, since they are drawn beside torch's generator."""
    values = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(*sizes, generator=values), torch.randint(0, classes, sizes[:1], generator=values)


def state(module):
    return [t.detach().clone() for t in module.state_dict().values()]


class Lora(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.randn(base.out_features, rank) * 0.1)
        self.scale = 0.5

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.T @ self.b.T)


@script
def lora_adapters_swapped(compiled):
    base = nn.Linear(8, 4)
    adapters = [Lora(base, rank) for rank in (2, 2, 3)]
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), adapters[0])
    fast = compiled(model)
    optimizers = [torch.optim.AdamW(a.parameters(), lr=0.01) for a in adapters]
    for step, (x, y) in enumerate(batches(9, 6, 8)):
        which = step % 3
        model[2] = adapters[which]
        optimizers[which].zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizers[which].step()
        assert base.weight.grad is None
        yield [loss.detach(), *state(adapters[which])]


@script
def weight_normalised(compiled):
    model = nn.Sequential(weight_norm(nn.Linear(8, 16)), nn.ReLU(), parametrizations.weight_norm(nn.Linear(16, 4)))
    fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches(6, 6, 8):
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        yield [loss.detach(), *state(model)]


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT


@script
def parametrized(compiled):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), parametrizations.orthogonal(nn.Linear(8, 4)))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    fast, optimizer = compiled(model), torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y in batches(6, 6, 8):
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        yield [loss.detach(), model[0].weight.detach().clone()]


@script
def spectrally_normalised(compiled):
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 16)), nn.LeakyReLU(0.1), nn.Linear(16, 4))
    fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches(6, 6, 8):
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        yield [loss.detach(), *state(model)]


@script
def averaged_weights(compiled):
    model = mlp(8, 16, 4)
    average = copy.deepcopy(model).requires_grad_(False)
    fast, teacher = compiled(model), compiled(average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches(7, 6, 8):
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        logits = fast(x)
        loss = F.cross_entropy(logits, y) + 0.1 * F.kl_div(logits.log_softmax(-1), target, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, p in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(p, 0.1)
        yield [loss.detach(), *state(average)]


@script
def two_players(compiled):
    generator, critic = mlp(3, 16, 8), mlp(8, 16, 1, act=nn.SiLU)
    make, judge = compiled(generator), compiled(critic)
    of_g, of_c = torch.optim.Adam(generator.parameters(), 0.01), torch.optim.Adam(critic.parameters(), 0.01)
    for real, _ in batches(6, 6, 8):
        fake = make(torch.sin(real[:, :3]))
        of_c.zero_grad()
        loss_c = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        loss_c.backward()
        of_c.step()
        of_g.zero_grad()
        loss_g = F.softplus(-judge(fake)).mean()
        loss_g.backward()
        of_g.step()
        yield [loss_c.detach(), loss_g.detach(), *state(generator), *state(critic)]


@script
def gradient_penalty(compiled):
    critic = mlp(8, 16, 1, act=nn.Tanh)
    judge, optimizer = compiled(critic), torch.optim.SGD(critic.parameters(), lr=0.05)
    for x, _ in batches(6, 6, 8):
        x.requires_grad_()
        score = judge(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = (slope.norm(dim=-1) - 1).square().mean() - score.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield [loss.detach(), slope.detach(), *state(critic)]


@script
def truncated_in_time(compiled):
    cell, head = nn.LSTMCell(4, 8), nn.Linear(8, 4)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    @compiled
    def window(xs, ys, h, c):
        loss = 0.0
        for t in range(xs.shape[0]):
            h, c = cell(xs[t], (h, c))
            loss = loss + F.cross_entropy(head(h), ys[t])
        return loss / xs.shape[0], h, c

    h, c = torch.zeros(3, 8), torch.zeros(3, 8)
    for x, y in batches(7, 4 * 3, 4):
        h, c = h.detach(), c.detach()
        loss, h, c = window(x.view(4, 3, 4), y.view(4, 3), h, c)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        yield [loss.detach(), h.detach(), *state(cell)]


@script
def parts_frozen_and_thawed(compiled):
    model = mlp(8, 16, 16, 4)
    fast = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(10, 6, 8)):
        model[0].requires_grad_(step % 4 >= 2)
        model[2].requires_grad_(step % 3 != 1)
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        yield [loss.detach(), *[p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]]
        optimizer.step()


@script
def tied_embeddings(compiled):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 8)
            self.inner = mlp(8, 16, 8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.inner(self.embedding(ids)))

    model = Tied()
    fast, optimizer = compiled(model), torch.optim.AdamW(model.parameters(), lr=0.01)
    for _, ids in batches(6, 12, 1, classes=11):
        ids = ids.view(2, 6)
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        yield [loss.detach(), *state(model)]


@script
def accumulated(compiled):
    model = mlp(8, 16, 4)
    fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.1)
    given = batches(200, 6, 8)
    for count in (1, 2, 4, 8, 16, 3):
        for x, y in itertools.islice(given, count):
            (F.cross_entropy(fast(x), y) / count).backward()
        yield [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad(set_to_none=count % 2 == 0)


@script
def functional_gradients(compiled):
    model = mlp(5, 8, 1, act=nn.Tanh)
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}

    def loss_of(parameters, x, y):
        return (torch.func.functional_call(model, parameters, (x,)).squeeze(-1) - y).square().mean()

    step = compiled(lambda parameters, x, y: torch.func.grad_and_value(loss_of)(parameters, x, y))
    each = compiled(lambda p, x, y: torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(p, x[:, None], y[:, None]))
    for x, y in batches(5, 4, 5):
        gradients, loss = step(parameters, x, y.float())
        per_sample = each(parameters, x, y.float())
        parameters = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
        yield [loss, *parameters.values(), *per_sample.values()]


@script
def transforms_over_compiled(compiled):
    weight = torch.randn(5, 5)
    fast = compiled(lambda x: (x @ weight).tanh() * x.sin())
    for x, _ in batches(5, 3, 5):
        value, pull = torch.func.vjp(fast, x)
        pushed = torch.func.jvp(fast, (x,), (torch.ones_like(x),))
        yield [value, *pull(torch.ones_like(value)), *pushed, torch.func.grad(lambda t: fast(t).sum())(x),
               torch.func.vmap(fast)(x), torch.func.jacrev(fast)(x[0])]  # fmt: skip


@script
def closures_of_lbfgs(compiled):
    model = mlp(6, 8, 1, act=nn.Tanh)
    fast = compiled(model)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, line_search_fn="strong_wolfe")
    for x, y in batches(5, 8, 6):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(fast(x).squeeze(-1), y.float())
            loss.backward()
            return loss

        yield [optimizer.step(closure).detach()]


@script
def hooks_of_parameters(compiled):
    model = mlp(8, 16, 4)
    seen = []

    def step(p):
        seen.append(p.grad.norm())
        p.data.sub_(0.1 * p.grad)

    for i, p in enumerate(model.parameters()):
        p.register_hook(lambda g, i=i: g.clamp(-0.1, 0.1) * (i + 1))
        p.register_post_accumulate_grad_hook(step)
    fast = compiled(model)
    for x, y in batches(6, 6, 8):
        F.cross_entropy(fast(x), y).backward()
        for p in model.parameters():
            p.grad = None
        yield [torch.stack(sorted(seen)), *state(model)]
        seen.clear()


@script
def an_optimizer_in_the_backward_pass(compiled):
    model = mlp(8, 16, 4)
    optimizers = {p: torch.optim.AdamW([p], lr=0.01) for p in model.parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    fast = compiled(model)
    for x, y in batches(6, 6, 8):
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        assert all(p.grad is None for p in model.parameters())
        yield [loss.detach(), *state(model)]


@script
def mixed_precision(compiled):
    model = mlp(8, 32, 4)
    fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    for x, y in batches(6, 6, 8):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(fast(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield [loss.detach().float().round(decimals=1), torch.tensor(scaler.get_scale())]


@script
def auxiliary_losses_and_retained_graphs(compiled):
    trunk, heads = mlp(8, 16, 16), nn.ModuleList([nn.Linear(16, 4), nn.Linear(16, 1)])
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=0.01)

    @compiled
    def both(x):
        hidden = trunk(x)
        return hidden, heads[0](hidden), heads[1](hidden.detach())

    for x, y in batches(6, 6, 8):
        optimizer.zero_grad()
        hidden, logits, value = both(x)
        hidden.retain_grad()
        F.cross_entropy(logits, y).backward(retain_graph=True)
        (hidden.square().mean() * 0.1).backward()
        F.mse_loss(value.squeeze(-1), y.float()).backward()
        optimizer.step()
        yield [hidden.grad.clone(), *state(trunk), *state(heads)]


@script
def batch_statistics_and_dropout(compiled):
    model = nn.Sequential(
        nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)
    )
    fast, optimizer = compiled(model), torch.optim.RMSprop(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(batches(8, 6, 8)):
        model.train(step % 4 != 3)
        if not model.training:
            with torch.no_grad():
                yield [fast(x).clone()]
            continue
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        yield [loss.detach(), torch.get_rng_state().float(), *state(model)]


@script
def policy_gradients(compiled):
    policy = mlp(8, 16, 4)
    fast, optimizer = compiled(policy), torch.optim.Adam(policy.parameters(), lr=0.01)
    for x, y in batches(6, 6, 8):
        choices = torch.distributions.Categorical(logits=fast(x))
        actions = choices.sample()
        rewards = (actions == y).float()
        loss = -(choices.log_prob(actions) * (rewards - rewards.mean())).mean() - 0.01 * choices.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield [loss.detach(), actions, *state(policy)]


@script
def a_schedule_and_weight_decay_groups(compiled):
    model = mlp(8, 16, 4)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=12)
    fast = compiled(model)
    for x, y in batches(10, 6, 8):
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        schedule.step()
        yield [loss.detach(), *state(model)]


@script
def contrastive(compiled):
    left, right = mlp(8, 16, 6), mlp(8, 16, 6)
    scale = nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.SGD([*left.parameters(), *right.parameters(), scale], lr=0.1)

    @compiled
    def loss_of(x, y):
        a, b = F.normalize(left(x), dim=-1), F.normalize(right(y), dim=-1)
        logits = a @ b.T * scale.exp()
        target = torch.arange(len(x))
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2

    for x, _ in batches(6, 6, 8):
        optimizer.zero_grad()
        loss = loss_of(x, x.flip(-1))
        loss.backward()
        optimizer.step()
        yield [loss.detach(), scale.detach().clone(), *state(left)]


@script
def checkpointed_blocks(compiled):
    from torch.utils.checkpoint import checkpoint

    blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(8), mlp(8, 16, 8), nn.Dropout(0.2)) for _ in range(3)])
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=0.01)

    @compiled
    def forward(x):
        for block in blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    for x, _ in batches(6, 6, 8):
        optimizer.zero_grad()
        loss = forward(x)
        loss.backward()
        optimizer.step()
        yield [loss.detach(), *state(blocks)]


@script
def a_weight_that_grows(compiled):
    from torch.distributions import Bernoulli, Independent, Normal, kl_divergence

    encoder, decoder = mlp(8, 16, 6), mlp(3, 16, 8)
    model = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @compiled
    def bound(x, beta):
        mean, scale = encoder(x).chunk(2, -1)
        code = Normal(mean, F.softplus(scale) + 1e-4)
        seen = Independent(Bernoulli(logits=decoder(code.rsample())), 1)
        prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
        return (beta * kl_divergence(code, prior).sum(-1) - seen.log_prob((x > 0).float())).mean()

    for step, (x, _) in enumerate(batches(8, 6, 8)):
        optimizer.zero_grad()
        loss = bound(x, min(1.0, step / 5))
        loss.backward()
        optimizer.step()
        yield [loss.detach(), *state(model)]


@script
def bags_of_features(compiled):
    tables = nn.ModuleList([nn.EmbeddingBag(30, 8, mode="sum"), nn.EmbeddingBag(20, 8, mode="mean")])
    bottom, top = mlp(4, 16, 8, act=nn.ReLU), mlp(11, 16, 1, act=nn.ReLU)
    model = nn.ModuleList([tables, bottom, top])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    first, second = torch.tril_indices(3, 3, -1)

    @compiled
    def click(x, ids, starts):
        dense = bottom(x)
        rows = [table(i, s) for table, i, s in zip(tables, ids, starts, strict=True)]
        every = torch.stack([dense, *rows], 1)
        return top(torch.cat([dense, (every @ every.mT)[:, first, second]], 1)).squeeze(1)

    for step, (x, y) in enumerate(batches(6, 5, 4)):
        values = torch.Generator().manual_seed(step)
        counts = torch.randint(1, 4, (2, 5), generator=values)
        ids = [torch.randint(0, 20, (int(c.sum()),), generator=values) for c in counts]
        starts = [F.pad(c.cumsum(0)[:-1], (1, 0)) for c in counts]
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(click(x, ids, starts), (y > 1).float())
        loss.backward()
        optimizer.step()
        yield [loss.detach(), *state(model)]


def steps_of(run, compiled):
    torch.manual_seed(0)
    return list(run(compiled))


@pytest.mark.parametrize("name", SCRIPTS)
def test_as_eager(name):
    torchbolt.reset()
    want = steps_of(SCRIPTS[name], lambda target: target)
    got = steps_of(SCRIPTS[name], torchbolt.compile)
    assert len(got) == len(want) >= 5
    for step, (ours, eagers) in enumerate(zip(got, want, strict=True)):
        for a, b in zip(ours, eagers, strict=True):
            assert (a is None) == (b is None), step
            if a is not None:
                torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, msg=lambda m, step=step: f"step {step}: {m}")


def test_accumulation_is_recorded_once():
    """Whether a gradient is there already is nothing to the forward pass."""
    torchbolt.reset()
    model = mlp(8, 16, 4)
    fast = torchbolt.compile(model)
    recorded = []
    for count in (1, 2, *range(3, 17)):
        for x, y in batches(count, 6, 8):
            F.cross_entropy(fast(x), y).backward()
        model.zero_grad()
        recorded.append(torchbolt.stats()["regions"])
    assert recorded[1:] == recorded[1:2] * (len(recorded) - 1)
