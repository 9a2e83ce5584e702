# tests/programs/test_functional_programs.py
"""Expressions over torch and torch.nn.functional as models write them; einops-like code."""

import pytest
from rows import Rows, ints, randn

ROWS = Rows()
IMAGE = randn(2, 3, 8, 8)

for text in (
    "F.interpolate(x, scale_factor=2)",
    "F.interpolate(x, size=(5, 7), mode='bilinear', align_corners=False)",
    "F.interpolate(x, scale_factor=0.5, mode='area')",
    "F.interpolate(x, scale_factor=1.5, mode='bicubic', recompute_scale_factor=True)",
    "F.interpolate(x, (16, 16), mode='nearest-exact')",
    "F.interpolate(x, (5, 5), mode='bilinear', antialias=True)",
    "F.pad(x, (1, 2, 3, 4))",
    "F.pad(x, (1, 1, 1, 1), mode='reflect')",
    "F.pad(x, (1, 1, 1, 1), mode='replicate')",
    "F.pad(x, (1, 0, 2, 0), mode='circular')",
    "F.pad(x, (-1, -1), value=3.0)",
    "F.unfold(x, 3, padding=1, stride=2)",
    "F.fold(F.unfold(x, 2, stride=2), (8, 8), 2, stride=2)",
    "x.unfold(2, 3, 2).unfold(3, 3, 2)",
    "F.grid_sample(x, F.affine_grid(torch.eye(2, 3).repeat(2, 1, 1), (2, 3, 4, 4), align_corners=False), align_corners=False)",
    "F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)",
    "F.pixel_unshuffle(x, 2)",
    "F.max_pool2d(x, 3, 2, 1)",
    "F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)",
    "F.adaptive_avg_pool2d(x, 1).flatten(1)",
    "F.conv2d(x, torch.ones(6, 1, 3, 3), groups=3, padding=1)",
    "F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2)",
    "F.layer_norm(x, x.shape[1:])",
    "F.group_norm(x, 3)",
    "F.instance_norm(x)",
    "F.batch_norm(x, torch.zeros(3), torch.ones(3), training=False)",
    "F.normalize(x, dim=1)",
    "F.local_response_norm(x, 2)",
    "x.mean((2, 3), keepdim=True) * x",
    "x.permute(0, 2, 3, 1).reshape(2, -1, 3)",
    "x.flip(-1) + x.roll(1, 2)",
    "torch.rot90(x, 1, (2, 3))",
    "x.view(2, 3, 4, 2, 4, 2).permute(0, 1, 2, 4, 3, 5).flatten(4)",
    "torch.cat([x, x.neg()], 1)[:, ::2]",
    "x.split([1, 2], 1)[1] + x.chunk(3, 1)[0]",
    "torch.stack(x.unbind(1), -1)",
    "x.amax((2, 3)) - x.amin((2, 3))",
    "x.std(dim=(2, 3), unbiased=False)",
    "torch.var_mean(x, dim=1)",
    "x.cumsum(-1).cumprod(-2)",
    "torch.nn.functional.dropout2d(x, 0.5, training=False)",
    "x.clamp(min=0).pow(2).mean()",
    "x.tril(1) + x.triu(-1)",
    "x.diagonal(dim1=2, dim2=3)",
    "torch.logsumexp(x, (2, 3))",
    "x.quantile(0.5)",
    "x.nan_to_num().isfinite().all()",
    "x.type_as(x.double()).float()",
    "x.new_zeros(2, 3).index_add(0, torch.tensor([0, 1]), x[:, :, 0, 0])",
    "x.swapaxes(1, 2).movedim(0, -1).contiguous()",
    "x.squeeze().unsqueeze(-1).expand(-1, -1, -1, -1, 2).sum(-1)",
    "torch.broadcast_to(x[:, :1], (2, 4, 8, 8)) * 2",
    "x.masked_fill(x > 0, 0).masked_scatter(x > 1, x)",
    "(x > 0).masked_fill(x > 1, 0.5), (x > 0).fill_(2), (x > 0).logical_not().fill_(0.25), torch.full((2,), 0.5, dtype=torch.bool)",
    "torch.full_like(x, -0.5, dtype=torch.bool), F.pad(x > 0, (1, 1), value=0.25), x.new_full((2,), 3, dtype=torch.bool)",
    "(x > 0).long().masked_fill(x > 1, 2.7), torch.full((2,), -2.7, dtype=torch.int8), (x * 3).int().fill_(-1.5)",
    "torch.where(x > 0, 0.5, x > 1), (x > 0).index_fill(0, torch.tensor([0]), 0.5), (x > 0) * 2, (x > 0).mul(0.5)",
    "F.pad((x * 9).long(), (1, 1), value=2.9), (x > 0).clamp(max=0.5), (x * 3).int().clamp(min=-0.5), (x > 0).eq(2)",
    "torch.where(x > 0, x, 0.0) + torch.where(x > 0, 1, 0)",
    "x.repeat_interleave(2, dim=1)",
    "x.tile(1, 2, 1, 1)",
    "x.argmax(1)",
    "F.one_hot(x.argmax(1), 3)",
    "F.softmax(x, 1).log()",
    "F.cosine_similarity(x, x.roll(1, 0), dim=1)",
    "torch.cdist(x.flatten(2)[0], x.flatten(2)[1])",
    "torch.einsum('bchw,bdhw->bcd', x, x)",
    "torch.einsum('bchw->bhwc', x)",
    "torch.tensordot(x, x, ([2, 3], [2, 3]))",
    "x.flatten(1) @ x.flatten(1).mT",
    "torch.bmm(x.flatten(2), x.flatten(2).mT)",
    "torch.meshgrid(x[0, 0, 0], x[0, 0, 1], indexing='ij')",
    "torch.linspace(0, 1, 8) * x + torch.arange(8.0)",
    "x.to(torch.float16).to(torch.float32)",
    "x.bool().logical_not().float()",
    "x.sign() * x.abs().sqrt() + x.frac() + x.floor() + x.ceil() + x.trunc()",
    "torch.hypot(x, x).atan2(x)",
    "torch.erf(x) + torch.erfc(x) + torch.special.erfinv(x.tanh() * 0.9)",
    "F.elu(x) + F.selu(x) + F.celu(x) + F.mish(x) + F.softplus(x) + F.hardswish(x) + F.softsign(x)",
    "F.leaky_relu(x, 0.1) + F.relu6(x) + F.hardtanh(x) + F.logsigmoid(x) + F.tanhshrink(x) + F.softshrink(x)",
    "F.glu(x, -1) + F.gelu(x, approximate='tanh')[..., :4]",
    "F.threshold(x, 0.1, 20.0)",
    "x.sort(-1, descending=True).values",
    "x.flatten().topk(5).indices",
    "torch.searchsorted(torch.arange(8.0), x.flatten())",
    "torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))",
    "x.gather(1, x.argsort(1))",
    "x.take_along_dim(x.argmax(1, keepdim=True), 1)",
    "x[torch.arange(2), torch.tensor([0, 2])]",
    "x[:, [2, 0, 1]]",
    "x[..., None, :, ::2]",
    "x[:, :, x.shape[2] // 2:, -3:]",
    "x.select(1, 0).narrow(1, 2, 3)",
    "x.scatter(1, x.argmax(1, keepdim=True), 1.0)",
    "x.scatter_reduce(2, x.argmax(2, keepdim=True), x, 'amax')",
    "x.index_fill(1, torch.tensor([1]), 0.0)",
    "x.put(torch.tensor([0, 1]), torch.tensor([9.0, 8.0]))",
    "torch.trapezoid(x, dim=-1)",
    "x.diff(dim=-1)",
    "torch.histc(x, 4)",
    "torch.cross(x[:, :, 0], x[:, :, 1], dim=1)",
    "torch.kron(x[0, 0, :2, :2], x[0, 1, :2, :2])",
    "torch.block_diag(x[0, 0], x[0, 1])",
    "torch.cartesian_prod(x[0, 0, 0], x[0, 0, 1])",
    "torch.linalg.inv(x[0, 0] @ x[0, 0].mT + torch.eye(8))",
    "torch.linalg.solve(x[0, 0] @ x[0, 0].mT + torch.eye(8), x[0, 1])",
    "torch.linalg.cholesky(x[0, 0] @ x[0, 0].mT + torch.eye(8))",
    "torch.linalg.det(x[0])",
    "torch.linalg.vector_norm(x, dim=(2, 3)) + torch.linalg.matrix_norm(x)",
    "torch.linalg.matrix_power(x[0, 0], 3)",
    "x.float_power(2).float() + torch.float_power(x, 3).float()",
    "x.softmax(-1).multiply(torch.eye(8)).sum((-1, -2))",
):
    ROWS.text(text, x=IMAGE, near=1e-3)

for text in (
    "F.cross_entropy(x, t)",
    "F.cross_entropy(x, t, label_smoothing=0.1, reduction='sum')",
    "F.cross_entropy(x, t, weight=torch.tensor([1.0, 2.0, 3.0]), ignore_index=1)",
    "F.nll_loss(F.log_softmax(x, -1), t, reduction='none')",
    "F.mse_loss(x, x + 1)",
    "F.l1_loss(x, x * 2) + F.smooth_l1_loss(x, x * 2) + F.huber_loss(x, x * 2)",
    "F.kl_div(x.log_softmax(-1), x.roll(1, 0).softmax(-1), reduction='batchmean')",
    "F.binary_cross_entropy_with_logits(x, x.sigmoid())",
    "F.binary_cross_entropy(x.sigmoid(), x.roll(1, 0).sigmoid())",
    "F.cosine_embedding_loss(x, x.roll(1, 0), torch.ones(4))",
    "F.triplet_margin_loss(x, x + 0.1, x.roll(1, 0))",
    "F.hinge_embedding_loss(x, x.sign())",
    "F.poisson_nll_loss(x, x.abs())",
    "F.multi_margin_loss(x, t)",
    "F.soft_margin_loss(x, x.sign())",
    "F.embedding(t, x)",
    "F.embedding_bag(t.view(2, 2), x, mode='mean')",
    "x[t]",
    "F.one_hot(t, 3).float() @ x[:3]",
    "F.linear(x, x, x[:, 0])",
    "(x.argmax(-1) == t).float().mean()",
    "x.gather(1, t[:, None]).squeeze(1)",
    "torch.zeros(3, 3).index_put((t, t), x[:, 0], accumulate=True)",
    "torch.zeros(3).scatter_add_(0, t, x[:, 0])",
    "torch.bincount(t, minlength=3)",
    "F.ctc_loss(x[:, None].log_softmax(-1), torch.ones(1, 2, dtype=torch.int64), torch.tensor([4]), torch.tensor([2]))",
):
    ROWS.text(text, x=randn(4, 3), t=ints(4, below=3), near=1e-4)


for text in (
    "x.flip(0)",
    "x.cumsum(0)",
    "x.sort(0).values",
    "x.amax(-1)",
    "x.expand(2, 3)",
    "x.argmax(0)",
):
    ROWS.text(text, name=f"of a number: {text}", x=randn())


# -- Code in the manner of einops --------------------------------------------------------------------------------------
def rearrange(x, pattern, **sizes):
    """'b (h d) n -> b h n d' and the like."""
    left, right = (side.strip() for side in pattern.split("->"))

    def groups(side):
        out, group = [], None
        for token in side.replace("(", " ( ").replace(")", " ) ").split():
            if token == "(":
                group = []
            elif token == ")":
                out.append(group)
                group = None
            elif group is None:
                out.append([token])
            else:
                group.append(token)
        return out

    source, target = groups(left), groups(right)
    lengths = dict(sizes)
    for group, size in zip(source, x.shape):
        known = 1
        for name in group:
            known *= lengths.get(name, 1)
        for name in group:
            lengths.setdefault(name, size // known)
    names = [name for group in source for name in group]
    x = x.reshape([lengths[name] for name in names])
    order = [name for group in target for name in group]
    x = x.permute([names.index(name) for name in order])
    shape = []
    for group in target:
        n = 1
        for name in group:
            n *= lengths[name]
        shape.append(n)
    return x.reshape(shape)


for pattern, sizes in {
    "b c h w -> b (h w) c": {},
    "b c (h a) (w d) -> b (h w) (a d c)": dict(a=2, d=2),
    "b c h w -> (b h) (c w)": {},
    "b (g c) h w -> b g c (h w)": dict(g=3),
}.items():
    more = dict(rearrange=rearrange, sizes=sizes, pattern=pattern)
    ROWS.text("rearrange(x * 2, pattern, **sizes) + 1", name=f"rearrange {pattern}", x=IMAGE, more=more)


@ROWS(randn(2, 6, 16))
def heads_split_and_joined(x):
    q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=4) for t in (x, x * 2, x + 1))
    out = (q @ k.transpose(-2, -1)).softmax(-1) @ v
    return rearrange(out, "b h n d -> b n (h d)")


@ROWS(IMAGE)
def windows_and_back(x):
    w = rearrange(x, "b c (h a) (w d) -> (b h w) (a d) c", a=4, d=4)
    w = w - w.mean(1, keepdim=True)
    return rearrange(w, "(b h w) (a d) c -> b c (h a) (w d)", b=2, h=2, a=4)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_functional_programs(row):
    row.check()
