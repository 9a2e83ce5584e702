# tests/programs/test_published_habits.py
"""How models and losses in other people's repositories are written: one short program for each habit."""

import collections
import itertools
import math
import warnings

import pytest
import torch
from rows import HIT, MISS, Rows, ints, randn
from torch import nn
from torch.nn import functional as F

ROWS = Rows()
LENGTHS = (8, 8, 8, 12, 16, 20)
SIZES = (MISS, HIT, HIT, MISS, HIT, HIT)


class Boxes:
    def __init__(self, tensor):
        self.tensor = tensor

    def __getitem__(self, item):
        return Boxes(self.tensor[item].view(1, -1) if isinstance(item, int) else self.tensor[item])

    def __len__(self):
        return self.tensor.shape[0]

    def clip(self, size):
        self.tensor = torch.minimum(self.tensor, self.tensor.new_tensor(size)).clamp(min=0)


class Instances:
    """Fields by name, all of one length."""

    def __init__(self, **fields):
        self._fields = {}
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            assert not self._fields or len(value) == len(self), f"{name} has {len(value)}"
            self._fields[name] = value

    def __getattr__(self, name):
        if name == "_fields" or name not in self._fields:
            raise AttributeError(name)
        return self._fields[name]

    def __len__(self):
        return len(next(iter(self._fields.values())))

    def __getitem__(self, item):
        return Instances(**{name: value[item] for name, value in self._fields.items()})


@ROWS(calls=[(randn(n, 4, seed=n), randn(n, seed=n)) for n in (5, 5, 5)])
def fields_of_instances(boxes, scores):
    found = Instances(boxes=Boxes(boxes), scores=scores)
    found.boxes.clip((1.0, 2.0, 1.0, 2.0))
    found.classes = (found.scores > 0).long()
    best = found[found.scores.argsort(descending=True)][:3]
    return best.boxes.tensor * 2, best.classes, len(found), hasattr(found, "masks")


@ROWS(
    calls=[(randn(2, n, 3, seed=n), ints(2, n, below=3, seed=n)) for n in LENGTHS],
    expect=(MISS, HIT, HIT, MISS, MISS, MISS),
    regions=4,
)
def forward_algorithm(emissions, tags):
    """Each length has its steps."""
    turns = torch.eye(3) * 0.5
    score, paths = emissions[:, 0].gather(1, tags[:, :1]).squeeze(1), emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        score = score + turns[tags[:, t - 1], tags[:, t]] + emissions[torch.arange(2), t, tags[:, t]]
        paths = torch.logsumexp(paths[:, :, None] + turns, 1) + emissions[:, t]
    return torch.logsumexp(paths, 1) - score


@ROWS(calls=[(randn(2, n, 4, seed=n),) for n in LENGTHS], expect=SIZES, regions=2)
def in_chunks_with_decay(x):
    """A linear recurrence by chunks, as state space models have it."""
    chunks = x.view(x.shape[0], x.shape[1] // 4, 4, 4)
    decay = torch.tril(torch.ones(4, 4)).cumsum(0) * -0.1
    within = torch.einsum("bclh,ls->bcsh", chunks, decay.exp())
    ends = torch.cat([torch.zeros_like(within[:, :1, -1]), within[:, :-1, -1]], 1)
    return (within + ends.cumsum(1)[:, :, None]).flatten(1, 2)


@ROWS(calls=[(randn(n, 6, seed=n, requires_grad=True),) for n in LENGTHS], expect=SIZES, regions=2, grad=True)
def experts_choose(x):
    chances = x[:, :3].softmax(-1)
    weights, rows = chances.t().topk(2, -1)
    shown = x[rows] * torch.arange(1.0, 4.0)[:, None, None]
    return torch.zeros_like(x).index_add(0, rows.flatten(), (shown * weights[..., None]).flatten(0, 1))


@ROWS.made(
    calls=[(ints(2, n, below=9, seed=n), 4 + i) for i, n in enumerate(LENGTHS)],
    expect=(MISS, MISS, HIT, MISS, HIT, HIT),
    regions=3,
)
def windows_that_grow():
    """Value embeddings, gates of skips, a cap on logits and a window that a schedule widens."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.values, self.head = nn.Embedding(9, 8), nn.Embedding(9, 8), nn.Linear(8, 9, bias=False)
            self.gates = nn.Parameter(torch.tensor([0.7, 0.3]))

        def forward(self, tokens, window):
            x = F.rms_norm(self.embed(tokens), (8,))
            place = torch.arange(tokens.shape[1])
            seen = (place[:, None] >= place) & (place[:, None] - place < window)
            value = self.gates[0] * x + self.gates[1] * self.values(tokens)
            x = x + F.scaled_dot_product_attention(x, x, value, attn_mask=seen)
            return 30 * torch.tanh(self.head(F.relu(x).square()) / 30)

    return Model()


@ROWS.made(randn(4, 3), expect=(MISS, MISS, HIT, HIT, HIT, HIT), regions=2)
def statistics_by_hooks():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    seen = collections.defaultdict(list)
    for name, part in model.named_children():
        part.register_forward_hook(lambda _, __, out, name=name: seen[name].append(out.detach().abs().mean()))

    def run(x):
        y = model(x)
        return y, {name: values[-1] for name, values in seen.items()}, len(seen)

    return run


@ROWS(randn(3), randn(3, seed=1))
def sent_to_a_generator(x, y):
    def mean():
        total, count = torch.zeros(3), 0
        while True:
            value = yield total / max(count, 1)
            total, count = total + value, count + 1

    running = mean()
    next(running)
    return [running.send(value) for value in (x, y, x)], list(itertools.accumulate([1, 2, 3]))


@ROWS.made(calls=[(randn(2, 4, n, seed=n),) for n in LENGTHS], expect=SIZES, regions=2)
def modes_of_a_spectrum():
    """A layer of a Fourier operator, for signals of any length."""
    weight = torch.randn(4, 4, 3, dtype=torch.complex64)

    def run(x):
        spectrum = torch.fft.rfft(x)
        mixed = torch.zeros_like(spectrum)
        mixed[..., :3] = torch.einsum("bim,iom->bom", spectrum[..., :3], weight)
        return torch.fft.irfft(mixed, n=x.shape[-1]), spectrum[..., : spectrum.shape[-1] // 2].abs()

    return run


@ROWS(calls=[(randn(2, 3, n, n + 4, seed=n),) for n in LENGTHS], expect=SIZES, regions=2, near=1e-4)
def sampled_by_a_grid(x):
    height, width = x.shape[-2:]
    y, z = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
    grid = torch.stack(torch.meshgrid(z, y, indexing="xy"), -1).expand(x.shape[0], -1, -1, -1)
    return F.grid_sample(x, grid * 0.9, align_corners=False)


SAMPLES = (72, 72, 80, 104, 99, 88)


@ROWS.made(calls=[(randn(2, n, seed=n),) for n in SAMPLES], expect=(MISS, HIT, MISS, HIT, HIT, HIT), regions=2)
def spectra_of_any_length():
    window = torch.hann_window(16)

    def run(x):
        centred = torch.stft(x, 16, 4, window=window, return_complex=True)
        inside = torch.stft(x, 16, 4, window=window, center=False, onesided=False, return_complex=True)
        return centred.abs().clamp(min=1e-5).log(), inside, torch.istft(centred, 16, 4, window=window)

    return run


@ROWS(
    calls=[(randn(n, 2, seed=n, requires_grad=True),) for n in (9, 9, 12, 14, 11, 8)],
    expect=(MISS, HIT, MISS, HIT, HIT, HIT),
    regions=2,
    grad=True,
)
def frames_by_strides(x):
    """As frames of a signal are made in C++."""
    rows = x.t().contiguous().tanh()
    frames = (rows.shape[1] - 4) // 2 + 1
    return rows.as_strided((2, frames, 4), (rows.shape[1], 2, 1)) * torch.arange(1.0, 5.0)


IMAGES = ((8, 8), (8, 12), (16, 8), (8, 16), (20, 12), (12, 4))


@ROWS(calls=[(randn(2, 3, h, w, seed=h + w),) for h, w in IMAGES], expect=(MISS, MISS, MISS, HIT, HIT, MISS), regions=4)
def patches_of_images(x):
    """Of any height and width: a row of patches is no symbol, as no size of 1 is."""
    batch, channels, height, width = x.shape
    rows = x.reshape(batch, channels, height // 4, 4, width // 4, 4).permute(0, 2, 4, 3, 5, 1)
    patches = rows.reshape(batch, (height // 4) * (width // 4), 16 * channels)
    return patches * 2, patches.view(batch, height // 4, width // 4, 4, 4, channels).mean(-1)


@ROWS(
    calls=[(randn(2, h, w, 3, seed=h + w), randn(2, h, w, dtype=torch.bool)) for h, w in IMAGES],
    expect=(MISS, MISS, MISS, HIT, HIT, HIT),
    regions=3,
)
def masks_of_pixels(x, mask):
    return x.flatten(1, -2).masked_fill(~mask.flatten(1)[..., None], 0.0).sum(1)


@ROWS(
    calls=[(randn(n, 4, seed=n, requires_grad=True), randn(n, 4, requires_grad=True)) for n in (6, 6, 8, 10, 5, 7)],
    expect=(MISS, HIT, MISS, HIT, HIT, HIT),
    regions=2,
    grad=True,
)
def halves_of_two_views(x, y):
    """Both views of a batch go through the model at once, and are compared."""
    seen, other = torch.cat((x, y)).tanh().chunk(2)
    return (2 - 2 * (F.normalize(seen, dim=-1) * F.normalize(other, dim=-1)).sum(-1)).mean()


@ROWS.made(calls=[(randn(2, n, 4, seed=n),) for n in LENGTHS], expect=(MISS, HIT, HIT, MISS, HIT, HIT), regions=2)
def codes_that_move():
    """Vectors are taken for the nearest of a book, which follows their mean."""
    book, counts = torch.randn(8, 4), torch.ones(8)

    def run(x):
        rows = x.flatten(0, 1)
        nearest = torch.cdist(rows, book).argmin(1)
        taken = F.one_hot(nearest, 8).to(rows.dtype)
        found = F.embedding(nearest, book).view_as(x)
        counts.mul_(0.9).add_(taken.sum(0), alpha=0.1)
        book.mul_(0.9).add_(taken.t() @ rows / counts[:, None].clamp(min=1e-3), alpha=0.1)
        used = taken.mean(0)
        return x + (found - x).detach(), (-(used * (used + 1e-10).log()).sum()).exp(), nearest, book.clone()

    return run


@ROWS(calls=[(randn(2, n, 2, seed=n), randn(2, n, 2, seed=n)) for n in LENGTHS], expect=SIZES, regions=2)
def sums_of_segments(x, steps):
    """A state space's decay between each two steps of a chunk, as an attention."""
    steps = F.softplus(steps).view(2, -1, 4, 2).permute(0, 3, 1, 2)
    sums = steps[..., None].expand(*steps.shape, 4)
    seen = torch.tril(torch.ones(4, 4, dtype=bool))
    sums = sums.masked_fill(~torch.tril(seen, diagonal=-1), 0).cumsum(-2).masked_fill(~seen, -torch.inf)
    return torch.einsum("bhcls,bcshp->bclhp", sums.neg().exp().nan_to_num(posinf=0.0), x.view(2, -1, 4, 2, 1))


@ROWS(calls=[(randn(n, 3, seed=n),) for n in LENGTHS], expect=SIZES, regions=2)
def splines_on_a_grid(x):
    """As layers of splines have their bases."""
    grid = (torch.arange(-2, 8) * 0.4 - 1).expand(3, -1)
    x = x.tanh().unsqueeze(-1)
    bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
    for k in range(1, 3):
        below = (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)]) * bases[:, :, :-1]
        above = (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:-k]) * bases[:, :, 1:]
        bases = below + above
    return bases, bases.sum(-1)


@ROWS(
    calls=[(randn(n, 4, seed=n), ints(2, 3 * n, below=n, seed=n), n) for n in (6, 6, 8, 9, 7)],
    expect=(MISS, HIT, MISS, HIT, HIT),
    regions=2,
)
def attention_over_edges(x, edges, nodes):
    source, target = edges
    scores = F.leaky_relu(x[source] + x[target], 0.2).sum(-1)
    most = torch.full((nodes,), -torch.inf).scatter_reduce(0, target, scores, "amax")
    shares = (scores - most[target]).exp()
    shares = shares / (torch.zeros(nodes).index_add(0, target, shares)[target] + 1e-16)
    return torch.zeros(nodes, 4).index_add_(0, target, x[source] * shares[:, None])


@ROWS.made(calls=[(randn(2, n, 4, seed=n),) for n in (6, 6, 8, 10, 5)], expect=(MISS, HIT, MISS, HIT, HIT), regions=2)
def experts_with_capacity():
    """Tokens that come too late for an expert are dropped; how many fit is rounded up from a float."""
    gate = nn.Linear(4, 3).requires_grad_(False)

    def run(x):
        tokens = x.flatten(0, 1)
        weights, chosen = gate(tokens).softmax(-1).max(-1)
        capacity = max(math.ceil(tokens.shape[0] / 3 * 1.25), 2)
        taken = F.one_hot(chosen, 3)
        place = (taken.cumsum(0) * taken).sum(-1) - 1
        kept = place < capacity
        slots = torch.zeros(3, capacity, 4)
        slots[chosen[kept], place[kept]] = tokens[kept] * weights[kept, None]
        return slots, (~kept).sum()

    return run


@ROWS.made(randn(3, 4))
def quiet_layers():
    """Each layer hides what the library warns of."""

    class Quiet(nn.Linear):
        def forward(self, x):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", category=FutureWarning, message="this")
                return super().forward(x).relu()

    return nn.Sequential(*[Quiet(4, 4) for _ in range(3)])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_published_habits(row):
    row.check()
