# tests/training/test_recipes_of_loops.py
"""Training with what loops bring along: weights that grow with the step, averages of models, samples out of a memory,
penalties on gradients, losses with all their options (recipes.py)."""

import copy
import random
from collections import deque

import pytest
import torch
import torch.nn.functional as F
from recipes import Data, Recipes, mlp, state
from torch import nn

import torchbolt

recipe = Recipes()


@recipe
def an_autoencoder_whose_prior_grows(step_of, model_of):
    data, net = Data(), mlp(12, 24, 8)
    decode = mlp(4, 24, 12)
    encode, opt = model_of(net), torch.optim.Adam([*net.parameters(), *decode.parameters()], 1e-3)

    @step_of
    def step(x, beta):
        mean, log_var = encode(x).chunk(2, 1)
        z = mean + torch.sin(x[:, :4]) * (0.5 * log_var).exp()
        apart = -0.5 * torch.sum(1 + log_var - mean.square() - log_var.exp()) / len(x)
        loss = F.binary_cross_entropy_with_logits(decode(z), x, reduction="sum") / len(x) + beta * apart
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item(), apart.item()

    for i in range(6):
        yield [*step(data.randn(8, 12).sigmoid(), min(1.0, i / 5)), *state(net, decode)]


@recipe
def denoising_with_an_average(step_of, model_of):
    averages = torch.optim.swa_utils
    data, net = Data(), nn.Sequential(nn.Linear(9, 16, bias=False), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 8))
    of, opt = model_of(net), torch.optim.AdamW(net.parameters(), 1e-3)
    average = averages.AveragedModel(net, multi_avg_fn=averages.get_ema_multi_avg_fn(0.9))
    every, rate = averages.AveragedModel(net, use_buffers=True), averages.SWALR(opt, 0.01, anneal_epochs=3)
    left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)

    @step_of
    def step(x, noise, t):
        a = left[t].unsqueeze(1)
        loss = F.mse_loss(of(torch.cat([a.sqrt() * x + (1 - a).sqrt() * noise, t[:, None] / 50], 1)), noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        average.update_parameters(net)
        every.update_parameters(net)
        return loss.detach()

    for _ in range(6):
        yield [step(data.randn(8, 8), data.randn(8, 8), data.ints(50, 8)), *state(net, average, every)]
        rate.step()


@recipe
def turns_out_of_a_memory(step_of, model_of):
    data, net = Data(), mlp(4, 16, 2)
    behind, of = copy.deepcopy(net), model_of(net)
    opt, draw, memory = torch.optim.RMSprop(net.parameters(), 1e-3), random.Random(0), deque(maxlen=40)

    @step_of
    def step(batch):
        s, a, r, then, done = zip(*batch, strict=True)
        now = of(torch.stack(s)).gather(1, torch.stack(a)).squeeze(1)
        with torch.no_grad():
            best = behind(torch.stack(then)).max(1).values
            target = torch.tensor(r) + 0.99 * (1 - torch.tensor(done)) * best
        loss = F.smooth_l1_loss(now, target)
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            p.grad.data.clamp_(-1, 1)
        opt.step()
        return loss.item()

    for i in range(40):
        memory.append((data.randn(4), data.ints(2, 1), draw.random(), data.randn(4), float(draw.random() < 0.1)))
        if i >= 32:
            yield [step(draw.sample(list(memory), 12)), *state(net)]
        if i % 4 == 0:
            behind.load_state_dict(net.state_dict())


@recipe
def critic_with_a_penalty_on_slopes(step_of, model_of):
    data, makes, judges = Data(), mlp(4, 16, 8), mlp(8, 16, 1, act=nn.LeakyReLU)
    make, judge = model_of(makes), model_of(judges)
    first, second = (torch.optim.Adam(net.parameters(), 1e-3, betas=(0.0, 0.9)) for net in (makes, judges))

    @step_of
    def step(x, z, share):
        made = make(z).detach()
        between = (share * x + (1 - share) * made).requires_grad_(True)
        score = judge(between)
        (slope,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True)
        penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
        judged = judge(made).mean() - judge(x).mean() + 10 * penalty
        second.zero_grad()
        judged.backward()
        second.step()
        first.zero_grad()
        loss = -judge(make(z)).mean()
        loss.backward()
        first.step()
        return judged.detach(), penalty.detach(), loss.detach()

    for _ in range(5):
        yield [*step(data.randn(8, 8), data.randn(8, 4), data.randn(8, 1).sigmoid()), *state(makes, judges)]


@recipe
def losses_with_all_options(step_of, model_of):
    data, net = Data(), mlp(8, 16, 4)
    of, opt = model_of(net), torch.optim.SGD(net.parameters(), 0.1)
    smoothed = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5, 1.0]), ignore_index=3, label_smoothing=0.1)

    @step_of
    def step(x, y):
        out = of(x)
        each = F.cross_entropy(out, y, reduction="none")
        focal = (0.25 * (1 - torch.exp(-each)) ** 2 * each).mean()
        out = out.clone()
        out[out > 3] = 3.0
        loss = smoothed(out, y) + focal / (1 + (y == 0).float().sum().item())
        right = (out.argmax(1) == y).sum().item() / len(y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss.item(), right, norm

    for _ in range(5):
        yield [*step(data.randn(8, 8), data.ints(4, 8)), *state(net)]


@recipe
def taught_in_inference_mode(step_of, model_of):
    data, teacher, net = Data(), mlp(8, 32, 4), mlp(8, 8, 4)
    of, opt = model_of(net), torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)

    @step_of
    def step(x, y, heat=4.0):
        with torch.inference_mode():
            told = teacher(x)
        out = of(x)
        soft = F.kl_div(F.log_softmax(out / heat, 1), F.softmax(told / heat, 1), reduction="batchmean")
        loss = 0.7 * soft * heat * heat + 0.3 * F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(5):
        yield [step(data.randn(8, 8), data.ints(4, 8)), *state(net)]


@pytest.mark.parametrize("compiled", ["step", "model"])
@pytest.mark.parametrize("name", recipe)
def test_as_eager(name, compiled):
    recipe.check(name, compiled)
    if compiled == "step":
        stats = torchbolt.stats()
        assert stats["graph_breaks"] == 0
        assert stats["regions"] <= 4
