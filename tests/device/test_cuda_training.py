# tests/device/test_cuda_training.py
"""Compiled training with CUDA tensors: gradients as near to doubles as eager's. Needs a CUDA device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from on_cuda import leaf
from torch import nn
from torch.profiler import ProfilerActivity, profile

import torchbolt


def classes(n, of):
    return torch.arange(n, device="cuda") % of


def conv_block(x, w, g, b):
    return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, g, b, training=True))


FUNCTIONS = {
    "pointwise": (
        lambda a, b: torch.tanh(a * b).exp() + F.gelu(a),
        lambda d: (leaf(64, 96, dtype=d), leaf(96, dtype=d)),
    ),
    "product": (
        lambda a, w, b: F.linear(a, w, b).relu(),
        lambda d: (leaf(64, 96, dtype=d), leaf(32, 96, dtype=d), leaf(32, dtype=d)),
    ),
    "softmax": (lambda a: torch.softmax(a, -1) * a, lambda d: (leaf(64, 96, dtype=d),)),
    "layer_norm": (
        lambda a, w, b: F.layer_norm(a, (96,), w, b),
        lambda d: (leaf(64, 96, dtype=d), leaf(96, dtype=d), leaf(96, dtype=d)),
    ),
    "rms_norm": (lambda a, w: F.rms_norm(a, (96,), w), lambda d: (leaf(64, 96, dtype=d), leaf(96, dtype=d))),
    "group_norm": (
        lambda a, w, b: F.group_norm(a, 4, w, b),
        lambda d: (leaf(4, 16, 8, 8, dtype=d), leaf(16, dtype=d), leaf(16, dtype=d)),
    ),
    "batch_norm": (
        conv_block,
        lambda d: (leaf(4, 8, 12, 12, dtype=d), leaf(16, 8, 3, 3, dtype=d), leaf(16, dtype=d), leaf(16, dtype=d)),
    ),
    "cross_entropy": (lambda a: F.cross_entropy(a, classes(64, 96)), lambda d: (leaf(64, 96, dtype=d),)),
    "embedding": (lambda w: F.embedding(classes(50, 7), w).sin(), lambda d: (leaf(10, 16, dtype=d),)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda d: tuple(leaf(2, 4, 64, 32, dtype=d) for _ in range(3)),
    ),
    "attention_masked": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(64, 64, device="cuda").tril() > 0),
        lambda d: tuple(leaf(2, 4, 64, 32, dtype=d) for _ in range(3)),
    ),
    "conv": (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1).tanh(),
        lambda d: (leaf(4, 8, 12, 12, dtype=d), leaf(16, 8, 3, 3, dtype=d), leaf(16, dtype=d)),
    ),
    "conv_channels_last": (
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w, padding=1).relu(),
        lambda d: (leaf(4, 8, 12, 12, dtype=d), leaf(16, 8, 3, 3, dtype=d)),
    ),
    "conv_transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2).relu(),
        lambda d: (leaf(4, 8, 6, 6, dtype=d), leaf(8, 4, 2, 2, dtype=d)),
    ),
    "pools": (
        lambda x: F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 6),
        lambda d: (leaf(4, 8, 12, 12, dtype=d),),
    ),
    "windows_that_overlap": (
        lambda x: torch.cat(
            [
                F.max_pool2d(x.relu(), 3, 2, 1).flatten(1),
                F.max_pool2d(x.to(memory_format=torch.channels_last).relu(), 3, 2, 1).flatten(1),
                F.max_pool2d(x, (3, 2), (1, 2), dilation=(2, 1)).flatten(1),
                F.max_pool3d(x.unflatten(1, (2, 4)), 3, 2, 1).flatten(1),
            ],
            1,
        ).tanh(),
        lambda d: (leaf(4, 8, 11, 12, dtype=d),),
    ),
    "views": (
        lambda x: torch.cat([a * i for i, a in enumerate(x.chunk(3, 1), 1)], 0).transpose(0, 1).reshape(-1, 4) * 2,
        lambda d: (leaf(16, 12, dtype=d),),
    ),
    "slices": (lambda x: x[1:, ::2] * x[:-1, 1::2], lambda d: (leaf(16, 12, dtype=d),)),
    "index": (lambda x: x[classes(9, 5)].pow(2), lambda d: (leaf(16, 12, dtype=d),)),
    "gather": (lambda x: x.gather(1, classes(16, 12)[:, None]).exp(), lambda d: (leaf(16, 12, dtype=d),)),
    "cumsum": (lambda x: x.cumsum(1).tanh(), lambda d: (leaf(16, 12, dtype=d),)),
    "where": (
        lambda x, y: torch.where(x > 0, x * y, y.sin()),
        lambda d: (leaf(16, 12, dtype=d), leaf(16, 12, dtype=d)),
    ),
    "swiglu": (lambda x: F.silu(x[:, :8]) * x[:, 8:], lambda d: (leaf(64, 16, dtype=d),)),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2) * x.mean(), lambda d: (leaf(2, 4, 6, 6, dtype=d),)),
    "in_place": (lambda x: (x * 2).add_(1).tanh_() * x, lambda d: (leaf(64, 16, dtype=d),)),
    "number_of_the_processor": (lambda x: x * torch.tensor(3.0) + x.sum(), lambda d: (leaf(64, 16, dtype=d),)),
    "wide_rows": (lambda x: F.log_softmax(x, -1).sum(0), lambda d: (leaf(33, 20000, dtype=d),)),
}


def gradients(function, inputs):
    out = function(*inputs)
    torch.manual_seed(7)
    (out.double() * torch.randn(out.shape, device="cuda", dtype=torch.float64)).sum().backward()
    found = [out.detach()] + [t.grad for t in inputs]
    for t in inputs:
        t.grad = None
    return found


def near(got, want, exact):
    """No farther from what doubles give than twice eager's distance, and a rounding."""
    for a, b, c in zip(got, want, exact, strict=True):
        assert a.dtype == b.dtype and a.device == b.device and a.shape == b.shape
        scale = c.abs().max() * torch.finfo(b.dtype).eps * 2
        assert (a.double() - c).abs().max() <= 2 * (b.double() - c).abs().max() + scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    function, inputs = FUNCTIONS[name]
    compiled = torchbolt.compile(function, fullgraph=True)
    for _ in range(3):
        at = inputs(dtype)
        exact = gradients(function, [t.detach().double().requires_grad_() for t in at])
        near(gradients(compiled, at), gradients(function, at), exact)
    stats = torchbolt.stats()
    assert (stats["regions"], stats["eager_fallbacks"]) == (1, 0), torchbolt.stats()


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(500, 64), nn.Linear(64, 500)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, ids):
        x = self.head(self.blocks(self.tokens(ids)))
        return F.cross_entropy(x[:, :-1].reshape(-1, 500), ids[:, 1:].reshape(-1))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.second, self.other = nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = F.relu(x + self.other(self.second(x)))
        return F.cross_entropy(self.head(x.mean((2, 3))), classes(len(x), 10))


MODELS = {
    "language": (Language, lambda: torch.randint(500, (4, 32), device="cuda")),
    "images": (Images, lambda: torch.randn(8, 3, 32, 32, device="cuda")),
}


def steps(run, model, batches, autocast=None):
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for x in batches:
        with torch.autocast("cuda", dtype=autocast, enabled=autocast is not None):
            loss = run(x)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16], ids=["plain", "bf16", "f16"])
@pytest.mark.parametrize("name", MODELS)
def test_steps_of_models(name, autocast):
    make, batch = MODELS[name]
    model = make().cuda()
    start = {k: v.clone() for k, v in model.state_dict().items()}
    batches = [batch() for _ in range(8)]
    want = steps(model, model, batches, autocast)
    want_state = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(start)
    got = steps(torchbolt.compile(model), model, batches, autocast)
    loose = 3e-2 if autocast else 2e-4
    torch.testing.assert_close(got, want, rtol=loose, atol=loose)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, want_state[key], rtol=2 * loose, atol=2 * loose)
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_masks_that_hide_nothing_in_pieces(dropout):
    """Two results made of each other, so the tape is cut; the kernel for no mask has its result in another order."""

    def f(x, w):
        q, k, v = (F.linear(x, p).view(*x.shape[:-1], 2, 64).transpose(1, 2) for p in w)
        mask = (torch.arange(128, device="cuda") >= 0)[None, None, :, None].expand(4, 1, 128, 128)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout).transpose(1, 2).flatten(2)
        return h, torch.tanh(h[:, 0])

    def run(f):
        for _ in range(3):
            a, b = f(x, w)
            (a.float().sum() + b.float().sum()).backward()

    x = leaf(4, 128, 128, dtype=torch.bfloat16)
    w = [leaf(128, 128, dtype=torch.bfloat16) for _ in range(3)]
    compiled = torchbolt.compile(f)
    run(compiled)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run(compiled)
    assert not any("efficient" in event.key or "bmm" in event.key for event in seen.key_averages())


def test_plans_of_cudnn_are_shared_with_eager():
    """They are looked up by query, key and value; the result and its gradient must lie as they did when they were made."""

    def f(x, w, masked):
        q, k, v = (F.linear(x, p).view(*x.shape[:-1], 2, 64).transpose(1, 2) for p in w)
        mask = (torch.arange(197, device="cuda") >= 0)[None, None, :, None].expand(4, 1, 197, 197) if masked else None
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return h, torch.tanh(h[:, 0])

    def gradients(f, x, w, masked):
        a, b = f(x, w, masked)
        return torch.autograd.grad((a * a).double().sum() + b.double().sum(), w)

    x = leaf(4, 197, 128, dtype=torch.bfloat16)
    w = [leaf(128, 128, dtype=torch.bfloat16) for _ in range(3)]
    exact = gradients(f, x.double(), [p.double().detach().requires_grad_() for p in w], False)
    eager = gradients(f, x, w, False)
    compiled = torchbolt.compile(f)
    for _ in range(3):
        for got, want, near in zip(gradients(compiled, x, w, True), exact, eager):
            assert (got - want).norm() <= 2 * (near - want).norm()


def test_dropout_draws_eagers_numbers():
    def fn(x):
        return F.dropout(x, 0.3) * F.dropout(x.sin(), 0.5)

    x, compiled = leaf(64, 96), torchbolt.compile(fn)
    for _ in range(3):
        found = []
        for run in (fn, compiled):
            torch.manual_seed(5)
            out = run(x)
            out.sum().backward()
            found.append((out.detach(), x.grad, torch.cuda.get_rng_state()))
            x.grad = None
        torch.testing.assert_close(found[1], found[0])


def test_backward_on_another_stream_and_thread():
    def fn(x, w):
        return (x @ w).tanh() @ w

    x, w = leaf(256, 256), leaf(256, 256)
    compiled = torchbolt.compile(fn)
    want = torch.autograd.grad(fn(x, w).sum(), (x, w))

    def work(_):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                got = torch.autograd.grad(compiled(x, w).sum(), (x, w))
                stream.synchronize()
                torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_gradients_of_gradients():
    def fn(x, w):
        return F.softplus(x @ w).pow(2).sum()

    at = leaf(4, 5, dtype=torch.float64), leaf(5, 3, dtype=torch.float64)
    compiled = torchbolt.compile(fn)
    assert torch.autograd.gradcheck(compiled, at)
    assert torch.autograd.gradgradcheck(compiled, at)


def test_hooks_retained_graphs_and_saved_tensors_kept_elsewhere():
    def fn(x, w):
        return F.gelu(x @ w)

    x, w = leaf(16, 16), leaf(16, 16)
    compiled = torchbolt.compile(fn)
    want = torch.autograd.grad(fn(x, w).sum(), (x, w))
    seen = []
    w.register_hook(lambda g: seen.append(g))
    with torch.autograd.graph.save_on_cpu():
        out = compiled(x, w).sum()
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(out, (x, w), retain_graph=True), want)
    out.backward()
    assert seen and torch.allclose(seen[-1], want[1])


class Results(nn.Module):
    """Of some of its blocks, and of a pooler where it has one: each is made of those before it."""

    def __init__(self, shown, pools):
        super().__init__()
        self.shown, self.pools = shown, pools
        self.blocks, self.pooler = nn.ModuleList(Block(256, 8) for _ in range(6)), nn.Linear(256, 256)

    def forward(self, x):
        results = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            results += [x] if i in self.shown else []
        return (*results, torch.tanh(self.pooler(x[:, 0]))) if self.pools else tuple(results)


@pytest.mark.parametrize(("shown", "pools"), [({5}, False), ({5}, True), ({1, 5}, False), ({0, 3, 5}, True)])
def test_memory_of_a_step_is_no_more_than_eagers(shown, pools):
    model = Results(shown, pools).cuda()
    x = torch.randn(16, 256, 256, device="cuda")

    def peak(run):
        for _ in range(4):
            model.zero_grad()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            sum(t.square().mean() for t in run(x)).backward()
        return torch.cuda.max_memory_allocated()

    eager = peak(model)
    assert peak(torchbolt.compile(model)) <= 1.02 * eager


def test_products_of_sizes_that_the_library_is_slow_for():
    def fn(x, w, b):
        return F.linear(x, w, b).logsumexp(-1).sum()

    at = leaf(256, 512, dtype=torch.bfloat16), leaf(5003, 512, dtype=torch.bfloat16), leaf(5003, dtype=torch.bfloat16)
    compiled = torchbolt.compile(fn)
    double = [t.detach().double().requires_grad_() for t in at]
    exact = torch.autograd.grad(fn(*double), double)
    for _ in range(2):
        near(torch.autograd.grad(compiled(*at), at), torch.autograd.grad(fn(*at), at), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_groups(dtype):
    """A mixture of experts. For some types ATen reads on the host where groups end, which is a piece of eager's."""
    counts = [16, 24, 56, 32]
    ends = torch.tensor(counts, device="cuda").cumsum(0).to(torch.int32)

    def fn(x, w):
        return torch._grouped_mm(x * 2, w, offs=ends).relu().square().sum(-1)

    def of_doubles(x, w):
        return torch.cat([a @ b for a, b in zip((x * 2).split(counts), w, strict=True)]).relu().square().sum(-1)

    at = leaf(sum(counts), 32, dtype=dtype), leaf(len(counts), 32, 64, dtype=dtype)
    exact = gradients(of_doubles, [t.detach().double().requires_grad_() for t in at])
    compiled = torchbolt.compile(fn, fullgraph=True)
    for _ in range(3):
        near(gradients(compiled, at), gradients(fn, at), exact)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_sequence_that_grows():
    def f(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v).relu()

    compiled = torchbolt.compile(f)
    with torch.no_grad():
        for length in (32, 33, 34, 40, 41):
            q, k, v = (torch.randn(2, 4, n, 64, device="cuda", dtype=torch.bfloat16) for n in (1, length, length))
            torch.testing.assert_close(compiled(q, k, v), f(q, k, v), rtol=2e-2, atol=2e-2)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            compiled(q, k[:, :, :37].contiguous(), v[:, :, :37].contiguous())
    assert not any("cudnn_attention" in event.key for event in seen.key_averages())


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_attention_of_other_libraries(mode, dropout):
    """Without cuDNN's attention, as on older GPUs: flash attention's state of random numbers is of integers without sign."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        compiled = torchbolt.compile(attended, mode=mode)
        for step in range(8):
            leaves = [leaf(2, 4, 128, 64, dtype=torch.bfloat16) for _ in range(3)]
            found = []
            for run in (compiled, attended):
                torch.manual_seed(step)
                found.append(torch.autograd.grad(run(*leaves, dropout).float().pow(2).sum(), leaves))
            for ours, eager in zip(*found, strict=True):
                torch.testing.assert_close(ours, eager, rtol=0.05, atol=0.02 * eager.abs().max().item())
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def attended(q, k, v, dropout):
    return F.scaled_dot_product_attention(q.tanh(), k, v, dropout_p=dropout).sin()


class Tied(nn.Module):
    """A language model whose embedding is its last layer, and that hands out its logits."""

    def __init__(self, tied=True):
        super().__init__()
        self.embed, self.norm = nn.Embedding(1000, 64), nn.LayerNorm(64)
        self.hidden = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(4))
        self.head = nn.Linear(64, 1000, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.hidden:
            x = x + layer(self.norm(x)).tanh()
        logits = self.head(x)
        return F.cross_entropy(logits.float().flatten(0, 1), ids.flatten()), logits


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("tied", [True, False])
def test_weights_under_autocast(tied, mode):
    """Their gradients are stored in float32 by the library, their casts are few launches, and rows of an
    embedding's gradient are added where they belong."""
    model = Tied(tied).cuda()
    precise = Tied(tied).cuda().double()
    precise.load_state_dict({name: t.double() for name, t in model.state_dict().items()})
    fast = torchbolt.compile(model, mode=mode)

    def gradients(run, of, autocast=True):
        of.zero_grad()
        ids = torch.arange(96, device="cuda").reshape(2, 48) * 7 % 1000
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss, logits = run(ids)
        before = logits.detach().clone()
        loss.backward()
        assert torch.equal(logits, before)
        return [p.grad.double() for p in of.parameters()]

    exact = gradients(precise, precise, False)
    eager = gradients(model, model)
    for _ in range(5):
        found = gradients(fast, model)
    for a, b, c in zip(found, eager, exact, strict=True):
        assert (a - c).norm() <= 1.2 * (b - c).norm() + 1e-3 * c.norm()
    plans = "".join(r.get("plan") or "" for r in torchbolt.api.compiled_of(fast)._regions())
    assert "{wide=true}" in plans and "embedding_dense_backward" not in plans and " in list " in plans


def test_logits_are_written_to_before_the_backward_pass():
    """As in eager: what the loss needs of them is its own."""
    model = Tied().cuda()
    fast = torchbolt.compile(model)

    def gradients(run):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss, logits = run(torch.arange(96, device="cuda").reshape(2, 48))
        with torch.no_grad():
            logits.zero_()
        loss.backward()
        return model.embed.weight.grad.clone()

    expected = gradients(model)
    for _ in range(4):
        assert (gradients(fast) - expected).norm() <= 5e-2 * expected.norm()


def test_embeddings_of_the_same_bits_each_time():
    """Where the user wants that, rows are added in eager's order."""
    torch.use_deterministic_algorithms(True)
    try:
        fast = torchbolt.compile(lambda w, ids: F.embedding(ids, w).sin())
        w, ids = leaf(16, 64), torch.arange(4096, device="cuda") % 16
        for _ in range(4):
            (expected,) = torch.autograd.grad(F.embedding(ids, w).sin().sum(), w)
            (found,) = torch.autograd.grad(fast(w, ids).sum(), w)
        assert torch.equal(found, expected)
    finally:
        torch.use_deterministic_algorithms(False)


def test_modules_of_rms_norm_are_kernels():
    """As they are made by default, without an epsilon, in whole and half precision."""
    for dtype in (torch.float32, torch.bfloat16):
        torchbolt.reset()
        model = nn.Sequential(nn.Linear(96, 96), nn.RMSNorm(96), nn.GELU(), nn.RMSNorm(96, eps=1e-3)).cuda().to(dtype)
        compiled, x = torchbolt.compile(model), torch.randn(64, 96, device="cuda", dtype=dtype)
        for _ in range(3):
            found = []
            for run in (compiled, model):
                found.append([run(x), *torch.autograd.grad(run(x).float().sin().sum(), model.parameters())])
            for ours, eager in zip(*found, strict=True):
                error = 1e-4 if dtype == torch.float32 else 0.03
                torch.testing.assert_close(ours, eager, rtol=error, atol=error * eager.abs().max().item())
        with torch.no_grad():
            seen = torchbolt.explain(model)(x)
        assert "other ATen calls: 0" in str(seen)


def test_bias_of_a_convolution_is_summed_by_kernels():
    model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.GELU(), nn.Conv2d(32, 32, 3), nn.GELU()).cuda().bfloat16()
    compiled, x = torchbolt.compile(model), torch.randn(4, 16, 24, 24, device="cuda", dtype=torch.bfloat16)
    for wanted in (list(model.parameters()), [model[0].bias], [model[2].weight]):
        for _ in range(3):
            found = [torch.autograd.grad(run(x).float().pow(2).sum(), wanted) for run in (compiled, model)]
            for ours, eager in zip(*found, strict=True):
                torch.testing.assert_close(ours, eager, rtol=0.05, atol=0.02 * eager.abs().max().item())
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        compiled(x).float().sum().backward()
        torch.cuda.synchronize()
    assert not [e.name for e in seen.events() if "reduce_kernel" in e.name and "BFloat16" in e.name]
