# tests/training/test_recipes_of_images.py
"""Training of what looks at images and draws them (recipes.py)."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from recipes import Data, Recipes, mlp, state
from torch import nn

recipe = Recipes()


def painter():
    return nn.Sequential(
        *(nn.ReflectionPad2d(1), nn.Conv2d(3, 6, 3, bias=False), nn.InstanceNorm2d(6), nn.ReLU(True)),
        *(nn.Conv2d(6, 12, 3, 2, 1, bias=False), nn.InstanceNorm2d(12), nn.ReLU(True)),
        *(nn.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1, bias=False), nn.InstanceNorm2d(6), nn.ReLU(True)),
        *(nn.ReflectionPad2d(1), nn.Conv2d(6, 3, 3), nn.Tanh()),
    )


def judge():
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 4, 2, 1), nn.LeakyReLU(0.2, True)),
        *(
            nn.Conv2d(6, 8, 4, 2, 1, bias=False),
            nn.InstanceNorm2d(8),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(8, 1, 3, 1, 1),
        ),
    )


class Pool:
    """Images that were drawn before, given in the place of some that are drawn now."""

    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, images):
        out = []
        for image in images:
            image = torch.unsqueeze(image.data, 0)
            if len(self.images) < self.size:
                self.images.append(image)
                out.append(image)
            elif random.uniform(0, 1) > 0.5:
                place = random.randint(0, self.size - 1)
                out.append(self.images[place].clone())
                self.images[place] = image
            else:
                out.append(image)
        return torch.cat(out, 0)


@recipe
def pictures_there_and_back(step_of, model_of):
    nets = painter(), painter(), judge(), judge()
    to_b, to_a, judge_a, judge_b = map(model_of, nets)
    made = torch.optim.Adam(itertools.chain(nets[0].parameters(), nets[1].parameters()), lr=2e-3, betas=(0.5, 0.999))
    judged = torch.optim.Adam(itertools.chain(nets[2].parameters(), nets[3].parameters()), lr=2e-3, betas=(0.5, 0.999))
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1.0 - max(0, e - 2) / 4.0) for o in (made, judged)]
    labels = {True: torch.tensor(1.0), False: torch.tensor(0.0)}
    pools = Pool(2), Pool(2)

    def looks(scores, real):
        return F.mse_loss(scores, labels[real].expand_as(scores))

    def judge_learns(net, real, drawn):
        loss = (looks(net(real), True) + looks(net(drawn.detach()), False)) * 0.5
        loss.backward()
        return loss.detach()

    @step_of
    def step(a, b):
        drawn_b, drawn_a = to_b(a), to_a(b)
        made.zero_grad()
        same = F.l1_loss(to_b(b), b) + F.l1_loss(to_a(a), a)
        back = F.l1_loss(to_a(drawn_b), a) + F.l1_loss(to_b(drawn_a), b)
        loss = looks(judge_b(drawn_b), True) + looks(judge_a(drawn_a), True) + 5 * back + 2.5 * same
        loss.backward()
        made.step()
        judged.zero_grad()
        losses = judge_learns(judge_a, a, pools[0].query(drawn_a)), judge_learns(judge_b, b, pools[1].query(drawn_b))
        judged.step()
        return loss.detach(), *losses

    data = Data()
    for _ in range(3):
        yield [*step(data.randn(1, 3, 8, 8), data.randn(1, 3, 8, 8)), *state(*nets)]
        for schedule in schedules:
            schedule.step()


@recipe
def two_views_of_each(step_of, model_of):
    """NT-Xent: rows without the diagonal, picked by masks."""
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), mlp(8, 16, 8, act=nn.ReLU)),
    )
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4)
    fast = model_of(net)

    def logits_of(features):
        n = len(features) // 2
        labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        near = features @ features.T
        mask = torch.eye(labels.shape[0], dtype=torch.bool)
        labels, near = labels[~mask].view(2 * n, -1), near[~mask].view(2 * n, -1)
        same, others = near[labels.bool()].view(2 * n, -1), near[~labels.bool()].view(2 * n, -1)
        return torch.cat([same, others], dim=1) / 0.2

    @step_of
    def step(a, b):
        logits = logits_of(fast(torch.cat([a, b], dim=0)))
        labels = torch.zeros(logits.shape[0], dtype=torch.long)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _, best = logits.topk(2, 1, True, True)
        return loss.detach(), best.t().eq(labels.view(1, -1)).float().sum()

    data = Data()
    for _ in range(4):
        yield [*step(data.randn(6, 3, 8, 8), data.randn(6, 3, 8, 8)), *state(net)]


@recipe
def hardest_of_a_batch(step_of, model_of):
    net = mlp(8, 32, 8)
    fast = model_of(net)
    optimizer = torch.optim.RMSprop(net.parameters(), 1e-3, momentum=0.5)

    def hardest(far, same, margin=0.3):
        alone = torch.eye(len(far), dtype=torch.bool)
        farthest = (far * (same & ~alone)).max(1, keepdim=True)[0]
        nearest = (far + far.max(1, keepdim=True)[0] * same).min(1, keepdim=True)[0]
        return F.relu(farthest - nearest + margin).mean()

    def all_that_count(far, same, margin=0.3):
        triplets = far.unsqueeze(2) - far.unsqueeze(1) + margin
        others = ~torch.eye(len(far), dtype=torch.bool)
        distinct = others.unsqueeze(2) & others.unsqueeze(1) & others.unsqueeze(0)
        triplets = triplets * (same.unsqueeze(2) & ~same.unsqueeze(1) & distinct).float()
        triplets[triplets < 0] = 0
        count = triplets[triplets > 1e-16].size(0)
        return triplets.sum() / (count + 1e-16), count

    @step_of
    def step(x, y):
        features = F.normalize(fast(x), dim=-1)
        far, same = torch.cdist(features, features), y.unsqueeze(0) == y.unsqueeze(1)
        loss, count = all_that_count(far, same)
        loss = loss + hardest(far, same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), torch.tensor(count)

    data = Data()
    for _ in range(4):
        yield [*step(data.randn(12, 8), data.ints(3, 12)), *state(net)]


class TwoScales(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.1))
        self.coarse = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.1))
        self.heads = nn.ModuleList([nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 1)])
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, x):
        fine = self.fine(x)
        coarse = self.coarse(fine)
        scales = []
        for head, h in zip(self.heads, (coarse, torch.cat([self.up(coarse), fine], dim=1)), strict=True):
            scales.append(head(h).reshape(h.shape[0], 2, 8, *h.shape[2:]).permute(0, 1, 3, 4, 2))
        return scales


@recipe
def boxes_on_two_scales(step_of, model_of):
    net = TwoScales()
    fast = model_of(net)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    anchors = torch.tensor([[[0.3, 0.2], [0.5, 0.6]], [[0.1, 0.1], [0.2, 0.3]]])

    def loss_of(out, y, anchors):
        there, empty = y[..., 0] == 1, y[..., 0] == 0
        anchors = anchors.reshape(1, 2, 1, 1, 2)
        boxes = torch.cat([out[..., 1:3].sigmoid(), torch.exp(out[..., 3:5]) * anchors], dim=-1)
        fits = (-(boxes[there] - y[..., 1:5][there]).abs().sum(-1, keepdim=True)).exp().detach()
        sizes = torch.log(1e-16 + y[..., 3:5] / anchors)
        wrong = F.mse_loss(out[..., 1:3][there].sigmoid(), y[..., 1:3][there])
        wrong = wrong + F.mse_loss(out[..., 3:5][there], sizes[there])
        wrong = 10 * wrong + F.mse_loss(out[..., :1][there].sigmoid(), fits)
        wrong = wrong + 10 * F.binary_cross_entropy_with_logits(out[..., :1][empty], y[..., :1][empty])
        return wrong + F.cross_entropy(out[..., 5:][there], y[..., 5][there].long())

    @step_of
    def step(x, ys):
        out = fast(x)
        loss = loss_of(out[0], ys[0], anchors[0]) + loss_of(out[1], ys[1], anchors[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    data = Data()
    for _ in range(3):
        ys = []
        for side in (4, 8):
            y = data.randn(2, 2, side, side, 6).sigmoid()
            y[..., 0] = (y[..., 0] > 0.8).float()
            y[..., 5] = data.ints(3, 2, 2, side, side).float()
            y[0, 0, 0, 0, 0] = 1
            ys.append(y)
        yield [torch.tensor(step(data.randn(2, 3, 16, 16), ys)), *state(net)]


@pytest.mark.parametrize("compiled", ["step", "model"])
@pytest.mark.parametrize("name", recipe)
def test_as_eager(name, compiled):
    recipe.check(name, compiled)
