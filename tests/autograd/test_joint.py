# tests/autograd/test_joint.py
"""The joint tape of a recorded run, executed, gives eager's outputs and gradients to the last bit."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchbolt import _C


def tensors_of(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


class State:
    """Values of everything that a run may write to, to be put back before the next."""

    def __init__(self, tensors):
        self.tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
        self.values = [t.detach().clone() for t in self.tensors]

    def put_back(self):
        torch.manual_seed(7)
        with torch.no_grad():
            for tensor, value in zip(self.tensors, self.values, strict=True):
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


def eager_gradients(outputs, tangents, inputs):
    wanted = [t for t in inputs if t.requires_grad]
    found = torch.autograd.grad(outputs, wanted, tangents, allow_unused=True) if outputs else [None] * len(wanted)
    found = iter(found)
    return [next(found) if t.requires_grad else None for t in inputs]


def same(a, b):
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


#: Shares of the memory that the parts may take, and none.
BUDGETS = (None, 1.0, 0.5, 0.25, 0.0)


def parts_within(budget):
    return lambda joint, tangents: _C._joint_run_parts(joint, tangents, budget)


RUNS = [_C._joint_run, *map(parts_within, BUDGETS)]


def check(fn, *args, state=(), module=None):
    """Records fn(*args), and compares the joint tape with eager. Gives the joint tape's text."""
    module = module or fn
    kept = [*args, *state]
    if isinstance(module, nn.Module):
        kept += [*module.parameters(), *module.buffers()]
    before = State(kept)
    before.put_back()
    joint = _C._joint(fn, args)
    text = _C._joint_text(joint)
    inputs = _C._joint_inputs(joint)
    read_back = _C._opt(text, ["-"])[0]
    assert read_back == "".join(line for line in text.splitlines(True) if not line.startswith("  ; "))

    before.put_back()
    expected = tensors_of(fn(*args))
    differentiated = [expected[i]._base if whole else expected[i] for i, whole in _C._joint_tangents(joint)]
    tangents = [torch.randn_like(o) for o in differentiated]
    gradients = eager_gradients(differentiated, tangents, inputs)
    expected = [o.detach().clone() for o in expected]
    after = State(kept)

    for run in RUNS:
        before.put_back()
        with torch.no_grad():
            outputs, found, complaints = run(joint, tangents)
        assert complaints == [], text
        assert [same(a, b) for a, b in zip(outputs, expected, strict=True)] == [True] * len(expected), text
        assert [same(a, b) for a, b in zip(found, gradients, strict=True)] == [True] * len(found), text
        assert all(map(torch.equal, State(kept).values, after.values)), "what the run wrote to"
    before.put_back()
    return text


def refused(fn, *args, match):
    with pytest.raises(RuntimeError, match=match):
        _C._joint(fn, args)


def leaf(*sizes, dtype=torch.float32):
    return torch.randn(sizes, dtype=dtype).requires_grad_()


# --- Networks ---------------------------------------------------------------------------------------------


def test_perceptron():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    text = check(model, torch.randn(5, 6))
    assert "aten::addmm" in text and "aten::linear" not in text
    assert text.index("backward:") < text.index("aten::gelu_backward")


@pytest.mark.parametrize("channels_last", [False, True])
def test_convolution_with_batch_norm(channels_last):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    text = check(model, x)
    assert "aten::native_batch_norm_backward" in text and "aten::convolution_backward" in text


def test_batch_norm_in_evaluation_and_frozen_parts():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 2, 3, stride=2))
    model[0].requires_grad_(False)
    check(model.eval(), leaf(2, 3, 9))


class Block(nn.Module):
    """A layer of a transformer, its attention by hand or by torch's function."""

    def __init__(self, width, heads, fused, causal, dropout=0.0):
        super().__init__()
        self.heads, self.fused, self.causal, self.dropout = heads, fused, causal, dropout
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        p = self.dropout if self.training else 0.0
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=p)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            if self.causal:
                hidden = torch.ones(s, s, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
            y = F.dropout(scores.softmax(-1), p) @ v
        return self.out(y.transpose(1, 2).reshape(b, s, w))

    def forward(self, x):
        x = x + F.dropout(self.attend(self.norm(x)), self.dropout, self.training)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Language(nn.Module):
    def __init__(self, block, words=50, width=32, places=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.blocks = nn.ModuleList([block(), block()])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight  # shared

    def forward(self, ids, labels):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        flat = logits[:, :-1].reshape(-1, logits.shape[-1])
        return F.cross_entropy(flat, labels[:, 1:].reshape(-1)), logits


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_language_model(fused, causal, dropout):
    model = Language(lambda: Block(32, 4, fused, causal, dropout))
    ids = torch.randint(0, 50, (2, 9))
    labels = ids.clone()
    labels[0, 3] = -100
    text = check(model, ids, labels)
    assert "aten::native_layer_norm_backward" in text and "aten::embedding_dense_backward" in text
    if fused and not dropout:
        assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in text


def small_transformer(transformers, name):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(vocab_size=100, **sizes))
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        config._attn_implementation = "eager"
        return transformers.GPT2LMHeadModel(config)
    if name == "t5":
        config = transformers.T5Config(
            vocab_size=100, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        return transformers.T5ForConditionalGeneration(config)
    return transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **sizes))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit"])
def test_transformers(name):
    model = small_transformer(pytest.importorskip("transformers"), name).train()
    ids = torch.randint(1, 100, (2, 8))
    if name == "t5":
        check(lambda x: model(input_ids=x, labels=x, use_cache=False).loss, ids, module=model)
    elif name == "vit":
        check(lambda x: model(x)[0], torch.randn(2, 3, 16, 16), module=model)
    elif name == "bert":
        check(lambda x: model(x)[0], ids, module=model)
    else:
        shown = torch.ones_like(ids)
        check(lambda x: model(x, attention_mask=shown)[0], ids, module=model)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_heads_that_lie_apart(causal):
    q, k, v = leaf(2, 4, 3, 8), leaf(2, 4, 6, 8), leaf(2, 4, 6, 8)
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v)


def test_lstm_cells():
    cell, head = nn.LSTMCell(5, 7), nn.Linear(7, 2)

    def run(xs):
        h = c = xs.new_zeros(3, 7)
        for x in xs:
            h, c = cell(x, (h, c))
        return head(h), c

    check(run, leaf(4, 3, 5), state=[*cell.parameters(), *head.parameters()])


def test_gru_and_group_norm():
    check(nn.GRU(4, 6, batch_first=True), torch.randn(2, 3, 4))
    check(nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.SiLU()), leaf(2, 2, 6, 6))


# --- Operators --------------------------------------------------------------------------------------------

PLACES = torch.tensor([[0, 1], [1, 1], [3, 0]])
LABELS = torch.tensor([1, 0, 3])

OPERATORS = {
    "used twice": lambda x, y: x * x + x,
    "broadcast": lambda x, y: (x + y[0]) * y[:, :1] - y.sum(),
    "softmax": lambda x, y: (x.softmax(-1) * y.log_softmax(0)).sum(-1),
    "cumsum": lambda x, y: x.cumsum(1) * y.cumsum(0),
    "reductions": lambda x, y: (x.mean(), y.sum(0), x.amax(1), y.max(1).values, x.var(1), y.std(), x.norm()),
    "variance and mean": lambda x, y: (*torch.var_mean(x, dim=(0, 1)), y.logsumexp(1)),
    "indexing": lambda x, y: (x[1:, ::2], y[torch.tensor([0, 2, 2])], x[..., -1], y[:, [1, 3]] * 2),
    "gather": lambda x, y: x.gather(1, PLACES) + y.index_select(1, torch.tensor([2, 2])),
    "scatter": lambda x, y: torch.zeros(3, 4).scatter_add(1, PLACES, x[:, :2]) * y,
    "scatter of values": lambda x, y: x.scatter(0, torch.zeros(1, 4, dtype=torch.long), y[:1]),
    "where": lambda x, y: torch.where(x > 0, x, y.exp()).masked_fill(y > 1, 0.5),
    "shapes": lambda x, y: torch.cat([x.t().reshape(2, 6), y.view(2, 6)], 1).permute(1, 0)[None].expand(2, 12, 2),
    "stack and split": lambda x, y: torch.stack([*x.unbind(0), *y.split(1)[0].chunk(1)][:3]).flip(0).roll(1, 0),
    "padding": lambda x, y: F.pad(x, (1, 2, 0, 1)) @ F.pad(y, (1, 2, 0, 0)).t(),
    "activations": lambda x, y: F.silu(x) + F.elu(y) + F.leaky_relu(x) + F.softplus(y) + F.mish(y),
    "hard activations": lambda x, y: F.hardtanh(x) + F.hardsigmoid(y) + F.hardswish(x) + F.relu6(y),
    "more activations": lambda x, y: F.logsigmoid(x) + x.sigmoid() + F.glu(y.repeat(1, 2)),
    "powers": lambda x, y: x.abs().pow(1.5) + y.square() / (x.abs() + 1).sqrt() + (y.abs() + 1).rsqrt(),
    "masked, turned": lambda x, y: x.masked_fill(y > 0, 1.0).t() * y.t().masked_fill(x.t() > 0, 2.0),
    "clamped": lambda x, y: x.clamp(-0.5, 0.5) * torch.maximum(x, y) - torch.minimum(x, y).clamp_min(0.1),
    "products": lambda x, y: (x @ y.t()) @ torch.einsum("ij,kj->ik", x, y) + torch.outer(x[:, 0], y[:, 1]) + x.mv(y[0]),
    "batched": lambda x, y: torch.baddbmm((x @ y.t())[None], x[None], y.t()[None], alpha=0.5),
    "losses": lambda x, y: (F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.l1_loss(x, y)),
    "entropies": lambda x, y: (
        F.binary_cross_entropy_with_logits(x, y.detach().sigmoid()), F.nll_loss(x.log_softmax(1), LABELS),
        F.binary_cross_entropy(x.sigmoid(), (y.detach() > 0).float()), F.cross_entropy(y, LABELS, label_smoothing=0.1),
    ),
    "sorted": lambda x, y: x.sort(1).values * y.topk(4, 1).values + y.sort(0, descending=True)[0],
    "triangles": lambda x, y: (x.tril() + y.triu(1)).diagonal(),
    "other types": lambda x, y: (x.double() * y.double()).float() + x.bfloat16().float() + x.argmax(1, keepdim=True),
    "detached": lambda x, y: x * y.detach() + (x - x.detach()),
    "prelu": lambda x, y: F.prelu(x, y[0, :1].abs()) + F.rrelu(y, training=False),
    "normalised": lambda x, y: F.layer_norm(x, (4,)) + F.normalize(y, dim=1) + F.rms_norm(x, (4,)),
    "distances": lambda x, y: F.cosine_similarity(x, y) + (x - y).norm(dim=1) + F.pairwise_distance(x, y),
    "unfolded": lambda x, y: x.unfold(1, 2, 1).sum(-1) + y.as_strided((3, 3), (4, 1), 1),
    "integers": lambda x, y: (x * 2, y.argmax(1), y > 0),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    torch.manual_seed(0)
    check(OPERATORS[name], leaf(3, 4), leaf(3, 4))


def test_images():
    def run(x):
        x = F.interpolate(x, scale_factor=2, mode="bilinear") + F.interpolate(x, scale_factor=2, mode="nearest")
        return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3), F.pixel_shuffle(x, 2)

    check(run, leaf(1, 4, 4, 4))


def test_a_pool_that_nobody_differentiates():
    """Where no gradient is wanted, ATen's composite operator computes itself."""

    def run(x, mask):
        seen = F.max_pool1d(mask, 2, 2)
        with torch.no_grad():
            largest = F.max_pool1d(x, 2, 2)
        return F.max_pool1d(x, 2, 2) * seen + largest

    check(run, leaf(2, 3, 8), torch.rand(2, 3, 8).round())


def test_classes_and_quantiles_of_what_needs_no_gradient():
    """ATen looks at the labels and at the shares themselves."""
    check(lambda x: x * F.one_hot(LABELS, 4) + x * x.detach().quantile(0.5, dim=0), leaf(3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode, dtype):
    ids, starts = torch.tensor([1, 0, 3, 3, 2]), torch.tensor([0, 2, 2])
    ends = torch.tensor([0, 2, 5])
    factors = leaf(5, dtype=dtype) if mode == "sum" else None
    run = lambda w: (F.embedding_bag(ids, w, starts, mode=mode), F.embedding_bag(ids.view(1, 5), w, mode=mode))  # noqa: E731
    check(run, leaf(4, 3, dtype=dtype))
    more = {"include_last_offset": True, "padding_idx": 3}
    check(lambda w, f: F.embedding_bag(ids, w, ends, mode=mode, per_sample_weights=f, **more) * 2,
          leaf(4, 3, dtype=dtype), factors)  # fmt: skip
    if mode == "sum":
        check(lambda w, f: F.embedding_bag(ids, w, starts, mode=mode, per_sample_weights=f),
              leaf(4, 3, dtype=dtype), factors)  # fmt: skip


def test_bags_of_what_lies_apart():
    """embedding_bag has its arguments made dense for what it calls, which does not look at how they lie. Here one copy
    is no value of its own, another is found to be one by later passes."""
    apart, start = torch.arange(12)[::2], torch.tensor([0, 9, 3, 9])[::2]
    check(lambda w, ids, starts: F.embedding_bag(ids, w, starts), leaf(12, 3), apart, start)
    check(lambda w, ids, starts: F.embedding_bag(ids * 1, w, starts), leaf(12, 3), apart, start)
    check(lambda w, ids: F.embedding_bag(ids.t(), w) * 2, leaf(12, 3), torch.randint(0, 12, (4, 3)))
    check(lambda x: F.pdist(x[:, ::2]) * 2, leaf(5, 6))


def test_embedding_with_padding():
    table = nn.Embedding(10, 4, padding_idx=0)
    check(table, torch.tensor([[1, 0, 3], [3, 3, 9]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_layer_norm_in_other_types(dtype):
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).to(dtype)
    check(model, leaf(3, 8, dtype=dtype))


def test_layer_norm_of_half_with_float_parameters():
    norm = nn.LayerNorm(8)
    check(lambda x: F.layer_norm(x, (8,), norm.weight, norm.bias), leaf(3, 8, dtype=torch.bfloat16), module=norm)


def test_dropout_and_other_draws():
    def run(x, w):
        y = F.dropout(x @ w, 0.3) + torch.rand_like(x) + torch.randn(4, 4)
        return y * torch.bernoulli(torch.full((4, 4), 0.5)), F.dropout(y, 0.1, training=False)

    text = check(run, leaf(4, 4), leaf(4, 4))
    assert "aten::bernoulli_.float" in text


def test_autocast():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().softmax(-1)

    assert "aten::_to_copy" in check(run, torch.randn(3, 8), module=model)


# --- Writes and views -------------------------------------------------------------------------------------


def written_under_a_view(x, y):
    a = x * 1
    b, c = a[1:], a.view(-1)
    a.mul_(y)
    return b.sum() + c, b


def written_through_a_view(x, y):
    a = x * 1
    b = a[:, 1:3]
    b.mul_(y[:, 1:3])
    b[0].add_(x[0, 0])
    a.view(-1)[2:5] = y.flatten()[:3]
    return a, b


def assigned(x, y):
    a = torch.zeros(3, 4)
    a[1] = x[0]
    a[:, 2] += y[:, 0]
    a[torch.tensor([0, 2]), torch.tensor([3, 3])] = y[0, :2]
    return a * x


def filled_diagonal(x, y):
    a = x @ y.t()
    a.diagonal().mul_(y.diagonal())
    return a


WRITES = {
    "in place": lambda x, y: ((x * 2).add_(y).mul_(3).tanh_(), (x + y).relu_(), F.silu(x * y, inplace=True)),
    "view, then write": written_under_a_view,
    "write through a view": written_through_a_view,
    "assigned": assigned,
    "diagonal": filled_diagonal,
    "filled": lambda x, y: (x * y).masked_fill_(x > 0, 1.0).index_fill_(0, torch.tensor([1]), 0.0),
    "copied into": lambda x, y: (
        torch.empty(3, 4).copy_(x) * torch.zeros(3, 4).index_put_((torch.tensor([0, 0]),), y[:2], accumulate=True)
    ),
    "zeroed": lambda x, y: (x * y).zero_() + x,
    "turned": lambda x, y: (x * y).t_().unsqueeze_(0) + y.t(),
    "out": lambda x, y: x * torch.add(torch.ones(4), 1, out=torch.empty(4)) + y,
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    torch.manual_seed(0)
    check(WRITES[name], leaf(3, 4), leaf(3, 4))


def test_one_value_where_a_mask_is():
    """Not gathered from as many places as the mask has, of which there is no knowing."""
    places = torch.zeros(3, 4, dtype=torch.bool)
    places[0, ::2] = True  # two, whose sum is the same in any order

    def run(x, y):
        z, rows = x * 2, x.sin()
        z[places] = y.sum()
        rows[places[0, :3]] = y[0]
        return z, rows

    check(run, leaf(3, 4), leaf(3, 4))


PRODUCTS = {
    "cumulative": lambda x: x.cumprod(1),
    "cumulative, over the first": lambda x: x.cumprod(-2).sin(),
    "of rows": lambda x: x.prod(-1),
    "of columns": lambda x: x.prod(0, keepdim=True) * x,
    "of all": lambda x: x.prod() + x.sum(),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_elements(name):
    torch.manual_seed(0)
    check(PRODUCTS[name], leaf(4, 5))


def test_no_grad_stretches_and_written_buffers():
    mean = torch.zeros(4)

    def run(x, w):
        with torch.no_grad():
            mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            scale = x.abs().max()
        return (x / scale - mean) @ w

    check(run, leaf(3, 4), leaf(4, 2), state=[mean])


def test_inputs_that_are_results_and_unused_ones():
    check(lambda x, y: (x, x * 2, x), leaf(3), leaf(2))
    check(lambda x, y: (y, x.view(3, 1), x.sum()), leaf(3), torch.randn(2))
    check(lambda x: x * 2, leaf(3) * 1)  # no leaf


def test_parameters_stepped_without_gradients():
    w = leaf(3)

    def run(x):
        with torch.no_grad():
            w.mul_(0.5)
        return x * w

    check(run, leaf(3), state=[w])


# --- What cannot be written so ----------------------------------------------------------------------------


def test_a_saved_tensor_written_later():
    def run(x):
        y = x.exp()
        z = y * 2
        y.add_(1)
        return z + y

    refused(run, leaf(3), match="modified by an inplace operation")


def test_leaves_made_inside():
    refused(lambda x: (x.detach() * 2).requires_grad_() * 3, torch.randn(3), match="none of ATen's operators")


def test_a_function_of_pythons():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    refused(lambda x: Double.apply(x) * 3, leaf(3), match="none of ATen's operators")


COMPLEX = {
    "absolute": lambda x, y: torch.view_as_complex(x.view(3, 2, 2)).abs(),
    "turned by positions": lambda x, y: torch.view_as_real(
        torch.view_as_complex(x.view(3, 2, 2)) * torch.polar(torch.ones(3, 2), y.detach()[:, :2])
    ).flatten(1),
    "product of two": lambda x, y: torch.view_as_real(
        torch.view_as_complex(x.view(3, 2, 2)) * torch.view_as_complex(y.view(3, 2, 2))
    ),
    "mixed by Fourier": lambda x, y: torch.fft.fftn(x, dim=(0, 1)).real + torch.fft.ifft(torch.fft.fft(y) * 2).real,
    "filtered": lambda x, y: torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * torch.fft.rfft(y), n=4, norm="ortho"),
    "spectrum": lambda x, y: torch.fft.rfft(x).abs().square() + torch.fft.rfft(y).angle(),
    "spectrogram": lambda x, y: torch.stft(
        x.flatten(), 4, window=y.detach()[0], return_complex=True
    ).abs().log1p(),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name):
    torch.manual_seed(0)
    check(COMPLEX[name], leaf(3, 4), leaf(3, 4))


def test_data_read_by_an_operator_itself():
    def run(x):
        return torch._pad_packed_sequence(x, torch.tensor([2, 2, 1]), True, 0.0, 3)[0]

    refused(run, leaf(5, 4), match="reads its tensors' data by itself")


def test_data_in_a_gradient():
    factors = leaf(3, dtype=torch.complex64)
    refused(lambda x: x.cumprod(0), factors, match="aten::_local_scalar_dense, which hands out")


# --- What is kept between the passes ----------------------------------------------------------------------


def bytes_of_eager(fn, *args, known):
    """Of the storages that autograd saves, without those of `known`."""
    storages = {}

    def pack(t):
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = fn(*args)
    for t in known:
        storages.pop(t.untyped_storage().data_ptr(), None)
    return result, sum(storages.values())


def test_saved_is_what_eager_saves():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(5, 6)
    joint = _C._joint(model, (x,))
    _, expected = bytes_of_eager(model, x, known=[x, *model.parameters()])
    count, found = _C._joint_saved(joint)
    assert found == expected and count >= 6


def test_nothing_is_saved_of_what_no_gradient_needs():
    joint = _C._joint(lambda x, y: (x + y).sum() * 2, (leaf(3), leaf(3)))
    assert _C._joint_saved(joint) == (0, 0)


def test_text():
    text = check(lambda x: (x * 2).sum(), leaf(3))
    comments = [line.strip() for line in text.splitlines() if line.startswith("  ; ")]
    assert comments == ["; tangents:", "; forward:", "; backward:", "; 1 results, then the gradient of each input"]
    assert text.splitlines()[-2].startswith("  return %")
    graph = _C._opt(text, ["--emit=graph", "-"])[0]
    assert graph.startswith("graph @") and " mul(" in graph


# --- As the run had it ------------------------------------------------------------------------------------


def test_a_convolution_of_rows_lies_as_it_did():
    conv = nn.Conv1d(64, 32, 3, padding=1)
    check(lambda x: F.relu(conv(x.transpose(1, 2))).transpose(1, 2), leaf(2, 16, 64), state=list(conv.parameters()))


def test_a_tensor_made_of_numbers_alone():
    def run(x):
        return x * torch.div(9, 2, rounding_mode="trunc") + torch.add(1, 2)

    check(run, leaf(3, 4))
