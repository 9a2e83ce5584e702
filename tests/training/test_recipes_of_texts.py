# tests/training/test_recipes_of_texts.py
"""Training of what reads and writes: models of language before and after they know any, and speech (recipes.py)."""

import contextlib
import copy
import math

import pytest
import torch
import torch.nn.functional as F
from recipes import Data, Recipes, mlp, state
from torch import nn
from torch.utils.checkpoint import checkpoint

recipe = Recipes()


class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = mlp(width, 4 * width, width)

    def forward(self, x):
        rows, length, width = x.size()
        parts = self.qkv(self.before(x)).split(width, dim=2)
        q, k, v = (t.view(rows, length, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(rows, length, width))
        return x + self.mlp(self.between(x))


class Language(nn.Module):
    def __init__(self, words=32, length=16, width=16, layers=2):
        super().__init__()
        self.length = length
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.last, self.head = nn.LayerNorm(width, bias=False), nn.Linear(width, words, bias=False)
        self.words.weight = self.head.weight

    def forward(self, ids, targets=None):
        assert ids.size(1) <= self.length
        x = self.words(ids) + self.places(torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device))
        for block in self.blocks:
            x = block(x)
        x = self.last(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def optimizer(self, decay, lr):
        params = {name: p for name, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)

    @torch.no_grad()
    def generate(self, ids, more):
        for _ in range(more):
            logits, _ = self(ids if ids.size(1) <= self.length else ids[:, -self.length :])
            ids = torch.cat((ids, logits[:, -1, :].argmax(-1, keepdim=True)), dim=1)
        return ids


@recipe
def a_small_model_of_language(step_of, model_of):
    """Parts of a batch, a rate that is set for each step, and losses that are estimated in between."""
    model = Language()
    fast, optimizer = model_of(model), model.optimizer(0.1, 1e-3)
    data = Data()
    text, context = data.ints(32, 500).numpy(), contextlib.nullcontext()

    def batch():
        starts = data.ints(len(text) - 16, 3)
        x = torch.stack([torch.from_numpy(text[i : i + 16]) for i in starts])
        return x, torch.stack([torch.from_numpy(text[i + 1 : i + 17]) for i in starts])

    def rate(step, warm=2, steps=5):
        if step < warm:
            return 1e-3 * (step + 1) / (warm + 1)
        return 1e-4 + 0.5 * (1.0 + math.cos(math.pi * (step - warm) / (steps - warm))) * 9e-4

    @torch.no_grad()
    def estimate():
        fast.eval()
        losses = torch.zeros(2)
        for k in range(2):
            losses[k] = fast(*batch())[1].item()
        fast.train()
        return losses.mean()

    @step_of
    def step(parts):
        for x, y in parts:
            with context:
                _, loss = fast(x, y)
                loss = loss / len(parts)
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm

    for i in range(5):
        for group in optimizer.param_groups:
            group["lr"] = rate(i)
        seen = [estimate(), model.generate(torch.zeros(1, 1, dtype=torch.long), 3)] if i % 2 == 0 else []
        yield [*step([batch() for _ in range(2)]), *seen, *state(model)]


@recipe
def preferred_answers(step_of, model_of):
    policy = Language()
    before = copy.deepcopy(policy).eval().requires_grad_(False)
    fast, first = model_of(policy), model_of(before)
    optimizer = torch.optim.SGD(policy.parameters(), 1e-2, momentum=0.9)

    def said(logits, labels):
        labels = labels[:, 1:].clone()
        counts = labels != -100
        labels[labels == -100] = 0
        of_each = torch.gather(logits[:, :-1].log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
        return (of_each * counts).sum(-1)

    @step_of
    def step(good, bad, beta=0.5):
        length = max(good.shape[1], bad.shape[1])
        ids = torch.cat([F.pad(t, (0, length - t.shape[1]), value=0) for t in (good, bad)])
        labels = torch.cat([F.pad(t, (0, length - t.shape[1]), value=-100) for t in (good, bad)])
        labels[:, :3] = -100
        now = said(fast(ids, ids)[0].float(), labels)
        with torch.no_grad():
            then = said(first(ids, ids)[0], labels)
        gains = beta * (now - then)
        better, worse = gains[: len(good)], gains[len(good) :]
        loss = (-F.logsigmoid(better - worse) * 0.9 - F.logsigmoid(worse - better) * 0.1).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        better, worse = better.detach(), worse.detach()
        return loss.detach(), (better > worse).float().mean().cpu(), (better - worse).mean(), norm

    data = Data()
    for i in range(4):
        yield [*step(data.ints(32, 3, 8), data.ints(32, 3, 7 + i % 2)), *state(policy)]


class Adapted(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.base(x) + (self.dropout(x) @ self.down.T @ self.up.T) * 2


class Checkpointed(Language):
    def forward(self, ids):
        h = self.words(ids) + self.places(torch.arange(ids.size(1)))
        h.requires_grad_(True)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.training else block(h)
        return self.head(self.last(h))


@recipe
def adapters_within_checkpoints(step_of, model_of):
    model = Checkpointed().requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out"):
            setattr(block, name, Adapted(getattr(block, name)))
    trained = [p for p in model.parameters() if p.requires_grad]
    fast, optimizer = model_of(model), torch.optim.AdamW(trained, 1e-2, eps=1e-4)

    @step_of
    def step(ids):
        logits = fast(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 32), ids[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    data = Data()
    for _ in range(4):
        yield [step(data.ints(32, 3, 9)), *state(model)]


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 16, 3, 1, 1)
        self.rnn = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 10)

    def forward(self, x, lengths):
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, lengths = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return F.log_softmax(self.head(out), -1).transpose(0, 1), lengths


@recipe
def speech_of_all_lengths(step_of, model_of):
    model = Speech()
    fast, optimizer = model_of(model), torch.optim.AdamW(model.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=6)

    @step_of
    def step(x, lengths, y, lengths_of_y):
        log_p, lengths = fast(x, lengths)
        loss = F.ctc_loss(log_p, y, lengths, lengths_of_y, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    data = Data()
    for _ in range(4):
        lengths = data.ints(5, 4) + 8
        lengths[0] = 12
        yield [step(data.randn(4, 12, 8), lengths, data.ints(9, 4, 4) + 1, data.ints(3, 4) + 2), *state(model)]


@recipe
def risk_of_a_beam(step_of, model_of):
    model = Language(words=12, layers=1)
    fast, optimizer = model_of(model), torch.optim.SGD(model.parameters(), 0.5)

    def beam(prompt, wide=3, steps=3, end=1):
        texts, scores, done = prompt.unsqueeze(0), torch.zeros(1), []
        for t in range(steps):
            total = scores.unsqueeze(1) + F.log_softmax(fast(texts)[0][:, -1], -1)
            scores, flat = total.view(-1).topk(min(wide, total.numel()))
            texts = torch.cat([texts[flat // total.size(1)], (flat % total.size(1)).unsqueeze(1)], dim=1)
            going = []
            for k in range(texts.size(0)):
                if texts[k, -1].item() == end:
                    done.append((scores[k] / (t + 1), texts[k]))
                else:
                    going.append(k)
            if not going:
                break
            texts, scores = texts[torch.tensor(going)], scores[torch.tensor(going)]
        done += [(s / steps, text) for s, text in zip(scores, texts, strict=True)]
        return sorted(done, key=lambda pair: -pair[0].item())[:wide]

    @step_of
    def step(prompt, right):
        found = beam(prompt)
        chances = F.softmax(torch.stack([score for score, _ in found]) * 0.5, 0)
        costs = [1 - len(set(text.tolist()) & set(right.tolist())) / len(right) for _, text in found]
        loss = (chances * torch.tensor(costs)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = Data()
    for _ in range(3):
        yield [step(data.ints(12, 3), data.ints(12, 5)), *state(model)]


@pytest.mark.parametrize("compiled", ["step", "model"])
@pytest.mark.parametrize("name", recipe)
def test_as_eager(name, compiled):
    recipe.check(name, compiled)
