# tests/training/test_recipes.py
"""Training as papers write it: each recipe (recipes.py) runs in eager, with its step compiled and with its model alone
compiled, and gives the same losses, parameters and whatever else it keeps.
"""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from recipes import Data, Recipes, mlp, state
from torch import nn
from torch.utils.checkpoint import checkpoint

recipe = Recipes()


@recipe
def distillation(step_of, model_of):
    teacher, student = mlp(8, 32, 4).eval().requires_grad_(False), mlp(8, 16, 4)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    wise, fast = model_of(teacher), model_of(student)

    @step_of
    def step(x, y, heat=3.0):
        with torch.no_grad():
            soft = F.softmax(wise(x) / heat, dim=-1)
        out = fast(x)
        far = F.kl_div(F.log_softmax(out / heat, dim=-1), soft, reduction="batchmean")
        loss = 0.7 * heat * heat * far + 0.3 * F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), (out.argmax(-1) == y).sum()

    data = Data()
    for _ in range(5):
        yield [*step(data.randn(16, 8), data.ints(4, 16)), *state(student)]


class Contrast(nn.Module):
    """A queue of keys from an encoder that follows slowly."""

    def __init__(self):
        super().__init__()
        self.of_queries, self.of_keys = mlp(8, 16, 8), mlp(8, 16, 8)
        self.of_keys.load_state_dict(self.of_queries.state_dict())
        self.of_keys.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(8, 32), dim=0))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        for slow, p in zip(self.of_keys.parameters(), self.of_queries.parameters(), strict=True):
            slow.data = slow.data * 0.9 + p.data * 0.1

    @torch.no_grad()
    def put(self, keys):
        place = int(self.place)
        self.queue[:, place : place + len(keys)] = keys.T
        self.place[0] = (place + len(keys)) % self.queue.shape[1]

    def forward(self, a, b):
        queries = F.normalize(self.of_queries(a), dim=1)
        with torch.no_grad():
            self.follow()
            keys = F.normalize(self.of_keys(b), dim=1)
        right = torch.einsum("nc,nc->n", [queries, keys]).unsqueeze(-1)
        wrong = torch.einsum("nc,ck->nk", [queries, self.queue.clone().detach()])
        self.put(keys)
        return torch.cat([right, wrong], dim=1) / 0.2


@recipe
def contrast_with_a_queue(step_of, model_of):
    model = Contrast()
    optimizer = torch.optim.SGD(model.of_queries.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    fast = model_of(model)

    @step_of
    def step(a, b):
        loss = F.cross_entropy(fast(a, b), torch.zeros(len(a), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(7):
        x = data.randn(8, 8)
        yield [step(x + 0.1 * data.randn(8, 8), x + 0.1 * data.randn(8, 8)), *state(model)]


class Codebook(nn.Module):
    """Straight through to the nearest code; the codes are averages of what they stood for."""

    def __init__(self):
        super().__init__()
        codes = torch.randn(16, 4)
        self.register_buffer("codes", codes)
        self.register_buffer("sizes", torch.zeros(16))
        self.register_buffer("sums", codes.clone())

    def forward(self, z):
        flat = z.reshape(-1, 4)
        far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.t() + self.codes.pow(2).sum(1)
        ids = far.argmin(1)
        chosen = F.one_hot(ids, 16).type(flat.dtype)
        near = F.embedding(ids, self.codes).view_as(z)
        if self.training:
            with torch.no_grad():
                self.sizes.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(chosen.t() @ flat.detach(), alpha=0.1)
                whole = self.sizes.sum()
                sizes = (self.sizes + 1e-5) / (whole + 16e-5) * whole
                self.codes.copy_(self.sums / sizes.unsqueeze(1))
        return z + (near - z).detach(), 0.25 * F.mse_loss(near.detach(), z)


@recipe
def quantised_codes(step_of, model_of):
    into, book, out = nn.Conv1d(1, 4, 4, 2, 1), Codebook(), nn.ConvTranspose1d(4, 1, 4, 2, 1)
    model = nn.ModuleList([into, book, out])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    fast = model_of(book)

    @step_of
    def step(x):
        optimizer.zero_grad()
        codes, beside = fast(into(x).transpose(1, 2))
        loss = F.mse_loss(out(codes.transpose(1, 2)), x) + beside
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(5):
        yield [step(data.randn(4, 1, 16)), *state(model)]


@recipe
def meta_learning(step_of, model_of):
    """The gradient goes through two steps of an inner learner."""
    net = mlp(1, 16, 1, act=nn.Tanh)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    forward = model_of(lambda parameters, x: torch.func.functional_call(net, parameters, (x,)))

    @step_of
    def step(tasks):
        optimizer.zero_grad()
        total = 0.0
        for x, y, asked, answer in tasks:
            parameters = dict(net.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(forward(parameters, x), y)
                slopes = torch.autograd.grad(loss, tuple(parameters.values()), create_graph=True)
                parameters = {k: p - 0.1 * g for (k, p), g in zip(parameters.items(), slopes, strict=True)}
            total = total + F.mse_loss(forward(parameters, asked), answer)
        total.backward()
        optimizer.step()
        return total.detach()

    data = Data()
    for _ in range(4):
        tasks = []
        for _ in range(2):
            shift, x, asked = data.randn(1), data.randn(5, 1), data.randn(5, 1)
            tasks.append((x, torch.sin(x + shift), asked, torch.sin(asked + shift)))
        yield [step(tasks), *state(net)]


@recipe
def clipped_policies(step_of, model_of):
    """A buffer of what was seen, gone through in parts."""
    body, policy, value = mlp(4, 32, 32, act=nn.Tanh), nn.Linear(32, 3), nn.Linear(32, 1)
    model = nn.ModuleList([body, policy, value])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)

    @model_of
    def act(x):
        hidden = torch.tanh(body(x))
        return torch.distributions.Categorical(logits=policy(hidden)), value(hidden).squeeze(-1)

    @step_of
    def update(seen, acts, before, gains, sums):
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        choices, worth = act(seen)
        ratio = (choices.log_prob(acts) - before).exp()
        loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
        loss = loss + 0.5 * F.mse_loss(worth, sums) - 0.01 * choices.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach(), norm

    data = Data()
    for _ in range(3):
        rows, worths, rewards = [], [], []
        with torch.no_grad():
            for _ in range(4):
                seen, acts = data.randn(4, 4), data.ints(3, 4)
                choices, worth = act(seen)
                rows.append((seen, acts, choices.log_prob(acts)))
                worths.append(worth)
                rewards.append(data.randn(4))
        gain, gains = torch.zeros(4), []
        for now, then, reward in zip(worths[::-1], [gain, *worths[:0:-1]], rewards[::-1], strict=True):
            gain = reward + 0.99 * then - now + 0.95 * gain
            gains.insert(0, gain)
        seen, acts, before = (torch.cat(parts) for parts in zip(*rows, strict=True))
        gains, sums = torch.cat(gains), torch.cat(gains) + torch.cat(worths)
        losses = [update(*(t[i] for t in (seen, acts, before, gains, sums))) for i in torch.arange(16).split(8)]
        yield [*itertools.chain(*losses), *state(model)]


class Sharpness(torch.optim.Optimizer):
    """Up to where the loss is worst nearby, and from there down."""

    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, {"rho": rho, **options})
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    def each(self):
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def step(self, closure):
        norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in self.each()]), p=2)
        for p in self.each():
            self.state[p]["before"] = p.data.clone()
            p.add_(p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12)).to(p))
        self.zero_grad()
        torch.enable_grad()(closure)()
        for p in self.each():
            p.data = self.state[p]["before"]
        self.base.step()


@recipe
def sharpness_aware(step_of, model_of):
    model = mlp(8, 16, 4)
    optimizer = Sharpness(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    fast = model_of(model)

    @step_of
    def step(x, y):
        def closure():
            loss = F.cross_entropy(fast(x), y)
            loss.backward()
            return loss

        loss = closure()
        optimizer.step(closure)
        optimizer.zero_grad()
        return loss.detach()

    data = Data()
    for _ in range(5):
        yield [step(data.randn(8, 8), data.ints(4, 8)), *state(model)]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x, past=None):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, 2, 8).transpose(1, 2) for part in self.into(self.norm(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mask = torch.ones(t, k.shape[2], dtype=torch.bool).tril(k.shape[2] - t)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + F.silu(self.out(mixed.transpose(1, 2).reshape(b, t, 16))), (k, v)


@recipe
def chunks_of_a_text(step_of, model_of):
    """Keys and values of the chunks before are part of the graph, and blocks are checkpoints."""
    words, blocks, norm = nn.Embedding(20, 16), nn.ModuleList([Block(), Block()]), nn.LayerNorm(16)
    model = nn.ModuleList([words, blocks, norm])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @model_of
    def forward(ids, pasts):
        x, kept = words(ids), []
        for block, past in zip(blocks, pasts, strict=True):
            x, pair = checkpoint(block, x, past, use_reentrant=False)
            kept.append(pair)
        return norm(x) @ words.weight.T, kept

    @step_of
    def step(ids):
        optimizer.zero_grad()
        pasts, losses = [None, None], []
        for chunk, target in zip(ids[:, :-1].split(4, 1), ids[:, 1:].split(4, 1), strict=True):
            logits, pasts = forward(chunk, pasts)
            losses.append(F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.1))
        loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step(data.ints(20, 2, 9)), *state(model)]


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(mlp(8, 16, 8) for _ in range(4))

    def forward(self, x):
        chances = F.softmax(self.gate(x), -1)
        weights, ids = chances.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, places = torch.where(ids == i)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, places].unsqueeze(-1))
        used = F.one_hot(ids, 4).to(x.dtype).sum(1).mean(0)
        return out, 4 * (used * chances.mean(0)).sum()


@recipe
def experts(step_of, model_of):
    model, head = Experts(), nn.Linear(8, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    fast = model_of(model)

    @step_of
    def step(x, y):
        mixed, balance = fast(x)
        loss = F.cross_entropy(head(x + mixed), y) + 0.01 * balance
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step(data.randn(16, 8), data.ints(3, 16)), *state(model, head)]


@recipe
def denoising(step_of, model_of):
    """Noise of all strengths, and an average of the weights whose pace differs between steps."""
    model = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.GroupNorm(4, 32), nn.Linear(32, 8))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    fast, left = model_of(model), torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)

    @step_of
    def step(x, t, noise, i):
        share = left.gather(0, t).reshape(-1, 1)
        made = share.sqrt() * x + (1 - share).sqrt() * noise
        far = F.mse_loss(fast(torch.cat([made, t[:, None] / 50], 1)), noise, reduction="none").mean(-1)
        clear = (share / (1 - share)).squeeze(1).clamp(max=5)
        loss = (far * clear / (clear + 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        pace = min(0.99, (1 + i) / (10 + i))
        with torch.no_grad():
            for slow, p in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(pace).add_(p, alpha=1 - pace)
        return loss.item()

    data = Data()
    for i in range(5):
        loss = step(data.randn(8, 8), data.ints(50, 8), data.randn(8, 8), i)
        yield [torch.tensor(loss), *state(model, average)]


@recipe
def an_integrated_path(step_of, model_of):
    net = mlp(3, 16, 2, act=nn.Tanh)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-2)
    slope = model_of(lambda t, y: net(torch.cat([y**3, t.expand(len(y), 1)], -1)))

    @step_of
    def step(y, target, times):
        optimizer.zero_grad()
        path = [y]
        for now, then in itertools.pairwise(times):
            h = then - now
            a = slope(now, y)
            b = slope(now + h / 2, y + h / 2 * a)
            c = slope(now + h / 2, y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + slope(then, y + h * c))
            path.append(y)
        loss = (torch.stack(path) - target).abs().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step(data.randn(4, 2) * 0.5, data.randn(4, 4, 2) * 0.5, torch.linspace(0, 1, 4)), *state(net)]


@recipe
def an_equation_of_physics(step_of, model_of):
    """Second derivatives of the inputs in the loss."""
    net, viscosity = mlp(2, 16, 16, 1, act=nn.Tanh), nn.Parameter(torch.tensor(0.1))
    optimizer = torch.optim.SGD([*net.parameters(), viscosity], lr=1e-2)
    fast = model_of(net)

    def slope(of, by):
        return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]

    @step_of
    def step(x, t, start):
        x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
        u = fast(torch.cat([x, t], 1))
        in_time, in_space = slope(u, t), slope(u, x)
        loss = (in_time + u * in_space - viscosity * slope(in_space, x)).pow(2).mean()
        loss = loss + 10 * F.mse_loss(fast(torch.cat([start, torch.zeros_like(start)], 1)), torch.sin(start))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(5):
        yield [step(data.randn(16, 1), data.randn(16, 1), data.randn(8, 1)), *state(net), viscosity.detach().clone()]


class Attending(nn.Module):
    """To the neighbours in a graph."""

    def __init__(self, given, gives):
        super().__init__()
        self.linear, self.mix = nn.Linear(given, gives, bias=False), nn.Parameter(torch.randn(2 * gives) * 0.1)

    def forward(self, x, edges):
        origin, target = edges
        h, n = self.linear(x), len(x)
        score = F.leaky_relu((torch.cat([h[origin], h[target]], -1) * self.mix).sum(-1), 0.2)
        most = torch.full((n,), -1e9).scatter_reduce(0, target, score, reduce="amax")
        weight = (score - most[target]).exp()
        weight = weight / (torch.zeros(n).index_add(0, target, weight)[target] + 1e-9)
        places = target.unsqueeze(-1).expand(-1, h.shape[1])
        return torch.zeros_like(h).scatter_add_(0, places, h[origin] * weight.unsqueeze(-1))


@recipe
def a_net_over_graphs(step_of, model_of):
    model = nn.ModuleList([Attending(5, 8), Attending(8, 8), nn.Linear(8, 2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @model_of
    def forward(x, edges, graph):
        for layer in model[:2]:
            x = F.elu(layer(x, edges))
        n = int(graph.max()) + 1
        sums = torch.zeros(n, x.shape[1]).index_add_(0, graph, x)
        return model[2](sums / torch.bincount(graph, minlength=n).clamp(min=1).unsqueeze(-1))

    @step_of
    def step(x, edges, graph, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x, edges, graph), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for i in range(5):
        n = 12 + i % 2
        yield [step(data.randn(n, 5), data.ints(n, 2, 30), torch.arange(n) // 5, data.ints(2, 3)), *state(model)]


class Adapted(nn.Linear):
    """Its adapter is merged into the weight while it is only used."""

    def __init__(self, given, gives):
        super().__init__(given, gives)
        self.down, self.up = nn.Parameter(torch.randn(2, given) * 0.1), nn.Parameter(torch.zeros(gives, 2))
        self.weight.requires_grad_(False)
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (self.up @ self.down) * (-2 if mode else 2)
            self.merged = not mode
        return self

    def forward(self, x):
        out = F.linear(x, self.weight, self.bias)
        return out if self.merged else out + (x @ self.down.t() @ self.up.t()) * 2


@recipe
def adapters_merged_for_use(step_of, model_of):
    model = nn.Sequential(Adapted(8, 16), nn.ReLU(), Adapted(16, 4))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    fast = model_of(model)

    @step_of
    def step(x, y):
        model.train()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    @step_of
    def use(x):
        model.eval()
        with torch.no_grad():
            return fast(x).softmax(-1)

    data = Data()
    for _ in range(4):
        yield [step(data.randn(8, 8), data.ints(4, 8)), use(data.randn(8, 8)).clone(), *state(model)]


@recipe
def packed_windows(step_of, model_of):
    words, net, head = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)
    model = nn.ModuleList([words, net, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @model_of
    def forward(ids, lengths, h):
        packed = nn.utils.rnn.pack_padded_sequence(words(ids), lengths, batch_first=True, enforce_sorted=False)
        out, h = net(packed, h)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=ids.shape[1])
        return head(out), h

    @step_of
    def window(ids, y, lengths, h):
        optimizer.zero_grad()
        out, h = forward(ids, lengths, h.detach())
        loss = F.cross_entropy(out.transpose(1, 2), y, ignore_index=-1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), h.detach()

    data, h, lengths = Data(), torch.zeros(1, 3, 8), torch.tensor([5, 3, 4])
    for _ in range(4):
        y = data.ints(3, 3, 5).masked_fill(torch.arange(5)[None] >= lengths[:, None], -1)
        loss, h = window(data.ints(12, 3, 5), y, lengths, h)
        yield [loss, h.clone(), *state(model)]


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        levels = torch.round(x / scale)
        ctx.save_for_backward((levels >= low) & (levels <= high))
        return levels.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None, None, None


class RoundedLinear(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("most", torch.tensor(-1.0))
        self.observes = True

    def forward(self, x):
        if self.training and self.observes:
            most = x.detach().abs().amax()
            if self.most < 0:
                self.most.copy_(most)
            else:
                self.most.copy_(0.9 * self.most + 0.1 * most)
        x = Rounded.apply(x, self.most / 127, -128, 127)
        scale = self.weight.detach().abs().amax(1, keepdim=True) / 127
        return F.linear(x, Rounded.apply(self.weight, scale, -128, 127), self.bias)


@recipe
def aware_of_rounding(step_of, model_of):
    model = nn.Sequential(RoundedLinear(8, 16), nn.ReLU(), RoundedLinear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fast = model_of(model)

    @step_of
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for i in range(5):
        for layer in (model[0], model[2]):
            layer.observes = i < 3
        yield [step(data.randn(8, 8), data.ints(4, 8)), *state(model)]


@recipe
def weights_from_another_net(step_of, model_of):
    main = mlp(4, 8, 2, act=nn.Tanh)
    sizes = {name: p.shape for name, p in main.named_parameters()}
    hyper = mlp(3, 32, sum(s.numel() for s in sizes.values()), act=nn.ReLU)
    optimizer = torch.optim.Adam(hyper.parameters(), lr=1e-3)
    fast = model_of(hyper)

    @step_of
    def step(task, x, y):
        parts = (fast(task) * 0.1).split([s.numel() for s in sizes.values()])
        parameters = {name: part.view(s) for (name, s), part in zip(sizes.items(), parts, strict=True)}
        loss = F.mse_loss(torch.func.functional_call(main, parameters, (x,)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(5):
        yield [step(data.randn(3), data.randn(6, 4), data.randn(6, 2)), *state(hyper)]


@recipe
def what_mattered_before(step_of, model_of):
    """Gradients of single samples are squared and added up outside, and weigh a penalty later."""
    model = mlp(6, 16, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weights = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    fast = model_of(model)

    @step_of
    def estimate(x, y):
        for i in range(len(x)):
            model.zero_grad()
            F.nll_loss(fast(x[i : i + 1]).log_softmax(-1), y[i : i + 1]).backward()
            for name, p in model.named_parameters():
                weights[name] += p.grad.detach() ** 2 / len(x)

    @step_of
    def step(x, y, share, order):
        out = fast(share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
        loss = loss + 5 * sum((weights[n] * (p - before[n]) ** 2).sum() for n, p in model.named_parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    data = Data()
    for i in range(4):
        if i % 2 == 0:
            estimate(data.randn(3, 6), data.ints(3, 3))
        loss = step(data.randn(8, 6), data.ints(3, 8), 0.3 + 0.1 * i, torch.arange(8).flip(0))
        yield [torch.tensor(loss), *state(model), *(w.clone() for w in weights.values())]


@recipe
def attacked_batches(step_of, model_of):
    """The attack is a leaf that the step makes, whose gradient is looked at and emptied."""
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    fast = model_of(model)

    @step_of
    def step(x, y):
        shift = torch.zeros_like(x, requires_grad=True)
        for _ in range(2):
            F.cross_entropy(fast(x + shift), y).backward()
            with torch.no_grad():
                shift += 0.05 * shift.grad.sign()
                shift.clamp_(-0.1, 0.1)
            shift.grad.zero_()
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x + shift.detach()), y)
        loss.backward()
        optimizer.step()
        return loss.detach(), shift.detach()

    data = Data()
    for _ in range(4):
        yield [*step(data.randn(8, 6), data.ints(4, 8)), *state(model)]


@pytest.mark.parametrize("compiled", ["step", "model"])
@pytest.mark.parametrize("name", recipe)
def test_as_eager(name, compiled):
    recipe.check(name, compiled)
