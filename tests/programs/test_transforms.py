# tests/programs/test_transforms.py
"""torch.func: vmap, grad and their relatives, functional_call. What they run are ordinary operators."""

import time

import pytest
import torch
from rows import HIT, MISS, Rows, ints, positive, randn
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

import torchbolt

ROWS = Rows()
MORE = dict(vmap=vmap, grad=grad, jacrev=jacrev, jacfwd=jacfwd, hessian=hessian)

for text, shapes in {
    "vmap(torch.mul)(x, y)": ((3, 4), (3, 4)),
    "vmap(torch.dot)(x, y)": ((3, 4), (3, 4)),
    "vmap(torch.mv)(x, y)": ((2, 3, 4), (2, 4)),
    "vmap(torch.mm)(x, y)": ((2, 3, 4), (2, 4, 5)),
    "vmap(lambda a: a.sum())(x) + y": ((3, 4), (3,)),
    "vmap(lambda a, b: a @ b, in_dims=(0, None))(x, y)": ((3, 2, 4), (4, 5)),
    "vmap(lambda a, b: a + b, in_dims=(1, 0))(x, y)": ((4, 3), (3, 4)),
    "vmap(lambda a, b: a * b, out_dims=1)(x, y)": ((3, 4), (3, 4)),
    "vmap(lambda a: (a + 1, a * 2))(x)[1] + y": ((3, 4), (4,)),
    "vmap(lambda a: {'s': a.softmax(-1)})(x)['s'] * y": ((3, 4), (4,)),
    "vmap(vmap(lambda a, b: a * b))(x, y)": ((2, 3, 4), (2, 3, 4)),
    "vmap(vmap(torch.dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)": ((2, 4), (3, 4)),
    "vmap(lambda a: F.linear(a, y))(x)": ((3, 2, 4), (5, 4)),
    "vmap(lambda a: F.layer_norm(a, (4,)))(x) + y": ((3, 2, 4), (4,)),
    "vmap(lambda a: a.t().reshape(-1))(x) * y": ((3, 2, 4), (8,)),
    "vmap(lambda a: torch.cat([a, a * 2]))(x) + y": ((3, 4), (8,)),
    "vmap(lambda a: torch.where(a > 0, a, -y))(x)": ((3, 4), (4,)),
    "vmap(lambda a: a.max(-1).values)(x) + y": ((3, 2, 4), (2,)),
    "vmap(lambda a: a[1:] - a[:-1])(x) + y": ((3, 4), (3,)),
    "vmap(lambda a: a.cumsum(0))(x) + y": ((3, 4), (4,)),
    "vmap(lambda a: F.conv1d(a, y))(x)": ((3, 1, 2, 8), (4, 2, 3)),
    "vmap(lambda a, b: torch.einsum('ij,jk->ik', a, b))(x, y)": ((2, 3, 4), (2, 4, 5)),
    "vmap(lambda a: a.clone().mul_(2))(x) + y": ((3, 4), (4,)),
    "vmap(lambda a: a * 2, chunk_size=2)(x) + y": ((5, 4), (4,)),
    "vmap(lambda a, k: a * k, in_dims=(0, None))(x, 3.0) + y": ((3, 4), (4,)),
}.items():
    ROWS.text(text, x=randn(*shapes[0]), y=randn(*shapes[1], seed=1), more=MORE)

for text in (
    "grad(lambda a: a.sin().sum())(x)",
    "grad(lambda a: (a ** 3).sum())(x) + x",
    "grad(lambda a, b: (a * b).sum(), argnums=1)(x, x + 1)",
    "grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)",
    "grad(lambda a: (a.exp().sum(), a + 1), has_aux=True)(x)",
    "grad(grad(lambda a: a.sin()))(x.sum())",
    "grad(lambda a: F.softmax(a, -1).max())(x)",
    "grad(lambda d: (d['w'] * x).sum())({'w': x * 2})['w']",
    "vmap(grad(lambda a: a.sin().sum()))(x)",
    "vmap(grad(lambda a: a.tanh().prod()))(x)",
    "jacrev(lambda a: a.sin())(x[0])",
    "jacrev(lambda a, b: a * b, argnums=(0, 1))(x[0], x[1])[1] * 2",
    "jacrev(lambda a: a * a, chunk_size=1)(x[0])",
    "vmap(jacrev(lambda a: a.sin() * a))(x)",
    "jacfwd(lambda a: a.sin())(x[0])",
    "hessian(lambda a: (a ** 3).sum())(x[0])",
    "hessian(lambda a: (a.sin() * a).sum())(x[0].relu() * 2) + x[0]",
):
    ROWS.text(text, x=randn(3, 4), more=MORE)


@ROWS(randn(3, 4))
def value_and_gradient(x):
    return grad_and_value(lambda a: (a * a).mean())(x)


# What the pullback holds outlives its level.
@ROWS(randn(3, 4))
def vector_jacobian_product(x):
    out, pull = vjp(torch.sin, x)
    return out, pull(torch.ones_like(out))


@ROWS(randn(3, 4))
def jacobian_vector_product(x):
    return jvp(torch.sin, (x,), (torch.ones_like(x),))


@ROWS(randn(4))
def pullback_of_a_batch(x):
    _, pull = vjp(lambda a: a.sin() * a, x.relu() + 1)
    return vmap(pull)(torch.eye(4))[0] + x


@ROWS(randn(4))
def pullback_with_something_beside(x):
    out, pull, beside = vjp(lambda a: (a.sin(), a.cos()), x, has_aux=True)
    return out + pull(x)[0], beside


@ROWS(randn(4))
def products_of_products(x):
    inner = vjp(lambda a: vjp(lambda b: b.sin() * b, a)[1](a)[0], x)[1](x)[0]
    return inner, jvp(lambda a: vjp(torch.sin, a)[1](torch.ones(4))[0], (x,), (x,))[1]


@ROWS(
    randn(4),
    ends=("a Tensor did not come", "is_nonzero", "a transform of torch.func has left"),
    regions=4,
    expect=(MISS, MISS, HIT),
)
def pullback_across_a_regions_end(x):
    out, pull = vjp(lambda a: a.sin() * a, x.relu() + 1)
    if out.sum() > -100:
        out = out.cos() * 2
    return pull(out)[0].sin() + 1


@ROWS(randn(4), ends="a Tensor did not come", regions=2, expect=(MISS, MISS, HIT))
def pullback_given_out(x):
    out, pull = vjp(lambda a: a.sin() * a, x.relu() + 1)
    return out.cos() * 2, pull


def written(a):
    return a.clone().add_(1).view(-1)


@ROWS(randn(2, 3), ends=("written",), regions=2)
def functionalized(x):
    return functionalize(written)(x * 2).sum() + x


@ROWS(randn(4), ends=("linearize", "jvp_fn"), regions=3)
def linearized(x):
    out, pushed = linearize(lambda a: a.sin() * a, x.relu() * 2)
    return pushed(torch.ones(4)).cos() + out


@ROWS(randn(4), ends="enter_dual_level", regions=2)
def tangents_by_hand(x):
    x = x.relu() + 1
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(4))
        out, tangent = forward_ad.unpack_dual(dual.sin() * dual)
    return (out + tangent).cos() * 2


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x, scale=1.0):
        return self.b(self.a(x).relu()) * scale + self.shift


@ROWS.made(randn(3, 4))
def functional_call_with_other_parameters():
    model = Small()
    parameters = {name: p.detach() * 2 for name, p in model.named_parameters()}
    return lambda x: functional_call(model, parameters, (x,))


@ROWS.made(randn(3, 4))
def functional_call_with_buffers_and_keywords():
    model = Small()
    state = dict(model.named_parameters()), {"shift": torch.zeros(2)}
    return lambda x: functional_call(model, state, (x,), {"scale": 2.0})


@ROWS.made(randn(3, 4))
def the_module_is_whole_again_after_functional_call():
    model = Small()
    return lambda x: (functional_call(model, {"a.bias": x[0, :1].expand(8)}, x), model(x))


@ROWS.made(randn(3, 4))
def ensemble_of_models():
    models = [Small() for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = Small().to("meta")

    def one(p, b, x):
        return functional_call(base, (p, b), (x,))

    return lambda x: vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)


# The batching rule of the loss is Python of torch's, a function of its arguments.
@ROWS.made(randn(5, 4), ints(5, below=2))
def gradients_per_sample():
    model = Small()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p, x, y):
        return torch.nn.functional.cross_entropy(functional_call(model, p, (x[None],)), y[None])

    return lambda x, y: vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)


# A transform's tensors live while it runs: the region ends before it.
@ROWS(randn(4), ends="within this instruction", regions=2, expect=(MISS, MISS, HIT))
def a_number_taken_out_inside_of_grad(x):
    return grad(lambda a: (a * a).sum() * a.detach().sum().item())(x * 2) + 1


@ROWS(randn(4), ends="within this instruction", regions=1, expect=(MISS, MISS, HIT))
def the_time_asked_inside_of_grad(x):
    return grad(lambda a: (a * a).sum() if time.clock_gettime(0) > 0 else a.sum())(x * 2)


@ROWS(randn(4, 6), randn(4, 6, seed=1))
def distances_between_all_pairs(x, y):
    return vmap(lambda a: vmap(lambda b: (a - b).norm())(y))(x)


@ROWS(positive(6, 2, 3), randn(6, 2, 3, seed=1))
def recurrence_by_halving(a, b):
    """The associative scan of transformers' mamba."""

    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    def halve(elements):
        if elements[0].shape[0] < 2:
            return elements
        pairs = vmap(combine)(tuple(e[:-1:2] for e in elements), tuple(e[1::2] for e in elements))
        odd = halve(pairs)
        if elements[0].shape[0] % 2 == 0:
            even = vmap(combine)(tuple(e[:-1] for e in odd), tuple(e[2::2] for e in elements))
        else:
            even = vmap(combine)(odd, tuple(e[2::2] for e in elements))
        even = tuple(torch.cat([e[:1], r]) for e, r in zip(elements, even))
        out = []
        for e, o in zip(even, odd):
            both = torch.stack([e[: o.shape[0]], o], 1).flatten(0, 1)
            out.append(torch.cat([both, e[o.shape[0] :]]))
        return tuple(out)

    return halve((a, b))[1]


@ROWS(randn(3, 4), expect=(MISS, MISS), regions=0)
def errors_of_vmap_are_eagers(x):
    return vmap(torch.add)(x, x[:2])


def test_calls_with_tangents_are_eagers():
    def program(x):
        return x.sin() * x

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    x, tangent = torch.randn(4), torch.randn(4)
    for first in (False, True):
        if first:
            compiled(x)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, tangent)
            for _ in range(2):
                got, want = forward_ad.unpack_dual(compiled(dual)), forward_ad.unpack_dual(program(dual))
                assert torch.equal(got.primal, want.primal) and torch.equal(got.tangent, want.tangent)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_transforms(row):
    row.check()
