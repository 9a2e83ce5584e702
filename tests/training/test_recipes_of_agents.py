# tests/training/test_recipes_of_agents.py
"""Training of agents, and of densities: with targets that follow, draws that gradients go through, and gradients of the
inputs (recipes.py)."""

import copy
import itertools
import math
import random
from collections import deque, namedtuple

import pytest
import torch
import torch.nn.functional as F
from recipes import Data, Recipes, mlp, state
from torch import nn
from torch.distributions import Categorical, MultivariateNormal, Normal

recipe = Recipes()


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(4, 16, 16, act=nn.ReLU)
        self.mean, self.log_std = nn.Linear(16, 2), nn.Linear(16, 2)

    def forward(self, s):
        h = F.relu(self.net(s))
        drawn_from = Normal(self.mean(h), torch.exp(torch.clamp(self.log_std(h), -20, 2)))
        a = drawn_from.rsample()
        log_p = drawn_from.log_prob(a).sum(axis=-1)
        log_p -= (2 * (math.log(2) - a - F.softplus(-2 * a))).sum(axis=1)
        return torch.tanh(a), log_p


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = mlp(6, 16, 1, act=nn.ReLU)

    def forward(self, s, a):
        return torch.squeeze(self.q(torch.cat([s, a], dim=-1)), -1)


@recipe
def soft_actor_and_critics(step_of, model_of):
    parts = nn.ModuleList([Actor(), Critic(), Critic()])
    behind = copy.deepcopy(parts)
    for p in behind.parameters():
        p.requires_grad = False
    act, *critics = map(model_of, parts)
    targets = [model_of(net) for net in behind[1:]]
    of_critics = list(itertools.chain(parts[1].parameters(), parts[2].parameters()))
    for_actor, for_critics = torch.optim.Adam(parts[0].parameters(), 1e-3), torch.optim.Adam(of_critics, 1e-3)
    log_heat = torch.zeros(1, requires_grad=True)
    for_heat = torch.optim.Adam([log_heat], 1e-3)

    @step_of
    def step(s, a, r, then, done):
        heat = log_heat.exp().detach()
        for_critics.zero_grad()
        with torch.no_grad():
            next_a, log_p = act(then)
            worth = torch.min(*(q(then, next_a) for q in targets))
            goal = r + 0.99 * (1 - done) * (worth - heat * log_p)
        loss = sum(((q(s, a) - goal) ** 2).mean() for q in critics)
        loss.backward()
        for_critics.step()
        for_actor.zero_grad()
        new_a, log_p = act(s)
        of_actor = (heat * log_p - torch.min(*(q(s, new_a) for q in critics))).mean()
        of_actor.backward()
        for_actor.step()
        of_heat = -(log_heat * (log_p - 2.0).detach()).mean()
        for_heat.zero_grad()
        of_heat.backward()
        for_heat.step()
        with torch.no_grad():
            for p, slow in zip(parts.parameters(), behind.parameters(), strict=True):
                slow.data.mul_(0.995)
                slow.data.add_((1 - 0.995) * p.data)
        return loss.detach(), of_actor.item(), of_heat.detach()

    data = Data()
    for _ in range(4):
        batch = data.randn(8, 4), data.randn(8, 2).tanh(), data.randn(8), data.randn(8, 4), data.ints(2, 8).float()
        loss, of_actor, of_heat = step(*batch)
        yield [loss, torch.tensor(of_actor), of_heat, log_heat.detach().clone(), *state(parts, behind)]


Turn = namedtuple("Turn", ("state", "action", "then", "reward"))


@recipe
def memory_of_turns(step_of, model_of):
    net = mlp(4, 16, 2, act=nn.ReLU)
    behind = copy.deepcopy(net)
    fast, target = model_of(net), model_of(behind)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, amsgrad=True)
    memory = deque([], maxlen=64)

    @step_of
    def step():
        if len(memory) < 8:
            return None
        batch = Turn(*zip(*random.sample(memory, 8), strict=True))
        goes_on = torch.tensor([s is not None for s in batch.then], dtype=torch.bool)
        then = torch.cat([s for s in batch.then if s is not None])
        q = fast(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        worth = torch.zeros(8)
        with torch.no_grad():
            worth[goes_on] = target(then).max(1).values
        loss = F.smooth_l1_loss(q, (worth * 0.99 + torch.cat(batch.reward)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 100)
        optimizer.step()
        return loss.detach()

    data = Data()
    for i in range(12):
        s = data.randn(1, 4)
        with torch.no_grad():
            a = fast(s).max(1).indices.view(1, 1)
        memory.append(Turn(s, a, None if i % 5 == 4 else data.randn(1, 4), data.randn(1)))
        loss = step()
        slow, now = behind.state_dict(), net.state_dict()
        behind.load_state_dict({k: now[k] * 0.1 + slow[k] * 0.9 for k in now})
        if loss is not None:
            yield [loss, a, *state(net, behind)]


@recipe
def advantages_of_a_rollout(step_of, model_of):
    trunk, action, value = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 1)
    nets = nn.ModuleList([trunk, action, value])
    optimizer = torch.optim.RMSprop(nets.parameters(), 7e-4, alpha=0.99, eps=1e-5)

    @model_of
    def look(x):
        h = F.relu(trunk(x))
        return F.softmax(action(h), dim=-1), value(h).squeeze(-1)

    @step_of
    def step(states, rewards):
        said, values, spread, returns = [], [], [], []
        for x in states:
            chances, v = look(x)
            drawn_from = Categorical(chances)
            said.append(drawn_from.log_prob(drawn_from.sample()))
            values.append(v)
            spread.append(drawn_from.entropy())
        coming = values[-1].detach()
        for r in rewards[::-1]:
            coming = r + 0.99 * coming
            returns.insert(0, coming)
        returns = torch.stack(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-7)
        of_actor = [-p * (r - v.detach()) for p, v, r in zip(said, values, returns, strict=True)]
        of_critic = [F.smooth_l1_loss(v, r) for v, r in zip(values, returns, strict=True)]
        loss = torch.stack(of_actor).sum() + torch.stack(of_critic).sum() - 0.01 * torch.stack(spread).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(nets.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step([data.randn(2, 4) for _ in range(4)], [data.randn(2) for _ in range(4)]), *state(nets)]


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 2))
        self.shift = nn.ModuleList([mlp(2, 16, 2, act=nn.LeakyReLU) for _ in range(4)])
        self.scale = nn.ModuleList([nn.Sequential(mlp(2, 16, 2, act=nn.LeakyReLU), nn.Tanh()) for _ in range(4)])
        self.prior = MultivariateNormal(torch.zeros(2), torch.eye(2))

    def forward(self, z):
        volume = z.new_zeros(z.shape[0])
        for i in reversed(range(len(self.shift))):
            kept = self.mask[i] * z
            scale = self.scale[i](kept) * (1 - self.mask[i])
            shift = self.shift[i](kept) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - shift) * torch.exp(-scale) + kept
            volume -= scale.sum(dim=1)
        return self.prior.log_prob(z) + volume


@recipe
def coupled_flows(step_of, model_of):
    net = Flow()
    fast = model_of(net)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    @step_of
    def step(x):
        loss = -fast(x).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step(data.randn(16, 2) * torch.tensor([2.0, 0.5]) + 1), *state(net)]


@recipe
def matched_scores(step_of, model_of):
    """Slices of the Jacobian, and its whole trace."""
    net = mlp(2, 16, 16, 2, act=nn.Softplus)
    fast = model_of(net)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def sliced(x):
        copies = x.unsqueeze(0).expand(2, *x.shape).contiguous().view(-1, *x.shape[1:]).requires_grad_(True)
        v = torch.randn_like(copies)
        v = v / torch.norm(v, dim=-1, keepdim=True)
        score = fast(copies)
        slope = torch.autograd.grad(torch.sum(score * v), copies, create_graph=True)[0]
        return (0.5 * torch.sum(score * score, dim=-1) + torch.sum(v * slope, dim=-1)).view(2, -1).mean()

    def exact(x):
        x.requires_grad_(True)
        score, trace = fast(x), torch.zeros(x.shape[0])
        for i in range(2):
            trace += torch.autograd.grad(score[:, i].sum(), x, create_graph=True, retain_graph=True)[0][:, i]
        return (0.5 * score.norm(dim=-1) ** 2 + trace).mean()

    @step_of
    def step(x):
        loss = sliced(x) + exact(x.clone())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step(data.randn(8, 2)), *state(net)]


@recipe
def curvature_by_draws(step_of, model_of):
    net = mlp(8, 16, 3, act=nn.Tanh)
    fast, params = model_of(net), list(net.parameters())
    slow, curved = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]

    @step_of
    def step(x, y, t):
        loss = F.cross_entropy(fast(x), y)
        net.zero_grad()
        loss.backward(create_graph=True)
        slopes = [p.grad for p in params]
        signs = [torch.randint(0, 2, p.size()) * 2.0 - 1.0 for p in params]
        products = torch.autograd.grad(slopes, params, grad_outputs=signs, retain_graph=False)
        with torch.no_grad():
            for p, g, z, hz, a, b in zip(params, slopes, signs, products, slow, curved, strict=True):
                a.mul_(0.9).add_(g.detach(), alpha=0.1)
                b.mul_(0.999).addcmul_(hz * z, hz * z, value=0.001)
                p.addcdiv_(a / (1 - 0.9**t), (b / (1 - 0.999**t)).sqrt().add_(1e-2), value=-0.01)
        for p in params:
            p.grad = None
        return loss.detach()

    data = Data()
    for t in range(1, 5):
        yield [step(data.randn(8, 8), data.ints(3, 8), t), *state(net)]


@pytest.mark.parametrize("compiled", ["step", "model"])
@pytest.mark.parametrize("name", recipe)
def test_as_eager(name, compiled):
    recipe.check(name, compiled)
