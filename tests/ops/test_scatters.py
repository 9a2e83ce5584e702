# tests/ops/test_scatters.py
"""Writes at computed places: what is there is replaced, added to, multiplied, or compared with."""

import pytest
import torch
from agree import FLOATS, as_exact, check, lain_otherwise

import torchbolt

aten = torch.ops.aten


def values(*shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2, shape).to(dtype) if dtype == torch.bool else torch.randint(-4, 5, shape).to(dtype)


def permuted_rows(size, of, dim):
    """Indices that never meet along `dim`: what is written last is then no question."""
    return torch.rand(*size[:dim], of, *size[dim + 1 :]).argsort(dim).narrow(dim, 0, size[dim])


TYPES = [*FLOATS, torch.int64, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", [*TYPES, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_replaced(dim, dtype):
    x = values(6, 5, 7, dtype=dtype)
    size = (4, 5, 7) if dim == 0 else (6, 3, 7) if dim == 1 else (6, 5, 4)
    index, src = permuted_rows(size, x.shape[dim], dim % 3), values(6, 5, 7, dtype=dtype)
    check(lambda x, i, s: x.scatter(dim, i, s), x, index, src)
    check(lambda x, i: x.scatter(dim, i, 1), x, index)


def test_the_last_of_several_stays():
    x, src = torch.zeros(4, 3), torch.arange(30.0).reshape(10, 3)
    check(lambda x, i, s: x.scatter(0, i, s), x, torch.randint(0, 4, (10, 3)), src)
    check(lambda x, i, s: x.scatter(1, i, s), x, torch.randint(0, 3, (4, 9)), torch.arange(36.0).reshape(4, 9))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_added(dim, dtype):
    x, src = values(6, 5, 7, dtype=dtype), values(9, 9, 9, dtype=dtype)
    size = (9, 5, 7) if dim == 0 else (4, 9, 6) if dim == 1 else (6, 5, 9)
    index = torch.randint(0, x.shape[dim], size)
    check(lambda x, i, s: x.scatter_add(dim, i, s), x, index, src)
    check(lambda x, i, s: x.scatter(dim, i, s, reduce="add"), x, index, src)
    check(lambda x, i, s: x.scatter(dim, i, s, reduce="multiply"), x, index, src)
    check(lambda x, i: x.scatter(dim, i, 2, reduce="add"), x, index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_reduced(reduce, include_self, dtype):
    x, src = values(6, 5, dtype=dtype), values(9, 5, dtype=dtype)
    index = torch.randint(0, 6, (9, 5))
    check(lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include_self), x, index, src)
    if reduce != "sum":
        rows = torch.randint(0, 6, (9,))
        check(lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=include_self), x, rows, src)


def test_extremes_of_nan():
    x, src = torch.zeros(3, 2), torch.tensor([[1.0, torch.nan], [torch.nan, -1], [2, 3], [-torch.inf, torch.inf]])
    index = torch.tensor([[0, 0], [1, 1], [1, 0], [2, 2]])
    for reduce in ("amax", "amin"):
        check(lambda x, i, s, r=reduce: x.scatter_reduce(0, i, s, r), x, index, src)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_rows_of_a_list(dim, dtype):
    x = values(6, 5, 7, dtype=dtype)
    n = x.shape[dim]
    shape = [6, 5, 7]
    shape[dim] = 11
    src, index = values(*shape, dtype=dtype), torch.randint(0, n, (11,))
    check(lambda x, i, s: x.index_add(dim, i, s), x, index, src)
    check(lambda x, i, s: x.index_add(dim, i, s, alpha=2), x, index, src)
    some = torch.randperm(n)[: n - 2]
    check(lambda x, i, s: x.index_copy(dim, i, s.narrow(dim, 0, n - 2)), x, some, src)
    check(lambda x, i: x.index_fill(dim, i, 3), x, some - n)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_several_indices(accumulate, dtype):
    x = values(6, 5, 7, dtype=dtype)
    pairs = torch.randperm(30)[:8]
    i, j = pairs // 5, pairs % 5
    check(lambda x, i, j, v: x.index_put((i, j), v, accumulate), x, i - 6, j, values(8, 7, dtype=dtype))
    check(lambda x, i, j, v: x.index_put((i, j), v, accumulate), x, i, j, values(7, dtype=dtype))
    check(lambda x, i, j, v: aten.index_put(x, [None, i % 5, j], v, accumulate), x, torch.arange(4), torch.arange(4),
          values(6, 4, dtype=dtype))  # fmt: skip
    check(lambda x, i, v: x.index_put((i,), v, accumulate), x, torch.tensor([[0, 1], [5, 3]]),
          values(2, 2, 5, 7, dtype=dtype))  # fmt: skip
    if accumulate:
        check(lambda x, i, v: x.index_put((i,), v, True), x, torch.tensor([1, 1, 2, 1]), values(4, 5, 7, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("accumulate", [False, True])
def test_masks(accumulate, dtype):
    x, value = values(6, 5, dtype=dtype), values(dtype=dtype)
    check(lambda x, m, v: x.index_put((m,), v, accumulate), x, torch.rand(6, 5) > 0.5, value)
    check(lambda x, m, v: x.index_put((m,), v, accumulate), x, torch.rand(6) > 0.5, values(5, dtype=dtype))


def test_many_single_elements_are_shared_out_by_a_library():
    x, i, v = torch.zeros(99_000), torch.randperm(99_000)[:60_000], torch.randn(60_000)
    check(lambda x, i, v: x.index_put((i,), v), x, i, v, extern=1)
    check(lambda x, i, v: x.index_put((i,), v, accumulate=True), x, i, v)


@pytest.mark.parametrize("accumulate", [False, True])
def test_places_of_all(accumulate):
    x = torch.randn(4, 5)
    check(lambda x, i, s: x.put(i, s, accumulate), x, torch.tensor([[3, -1], [7, 0]]), torch.randn(2, 2))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("pads", [-1, 3])
def test_gradients_of_embeddings(pads, dtype):
    g, ids = torch.randn(4, 9, 6, dtype=dtype), torch.randint(0, 11, (4, 9))
    check(lambda g, i: aten.embedding_dense_backward(g, i, 11, pads, False), g, ids)
    check(lambda g, i: aten.embedding_dense_backward(g, i, 11, pads, False), g, ids.int())


def test_layouts():
    x, src, index = torch.randn(6, 5, 4), torch.randn(6, 5, 4), torch.randint(0, 5, (6, 5, 4))
    for _, a in lain_otherwise(x):
        for _, b in lain_otherwise(src):
            check(lambda x, i, s: x.scatter_add(1, i, s), a, index, b)
    for _, i in lain_otherwise(index):
        check(lambda x, i, s: x.scatter_add(1, i, s), x, i, src)


def test_numbers_and_nothing():
    check(lambda x, i, s: x.scatter_add(0, i, s), torch.tensor(2.0), torch.tensor(0), torch.tensor(3.0))
    check(lambda x, i, s: x.index_add(0, i, s), torch.tensor(2.0), torch.tensor(0), torch.tensor(3.0))
    check(lambda x, i, s: x.index_copy(0, i, s), torch.randn(3), torch.tensor([1]), torch.randn(1))
    check(
        lambda x, i, s: x.scatter_add(1, i, s),
        torch.randn(3, 4),
        torch.zeros(3, 0, dtype=torch.int64),
        torch.randn(3, 0),
    )
    check(lambda x, i, s: x.index_add(0, i, s), torch.randn(3, 4), torch.zeros(0, dtype=torch.int64), torch.randn(0, 4))


def test_many_that_meet():
    """More than one vector of them, from an index that does not vary, with values that do not either."""
    x = torch.zeros(5, 70)
    check(lambda x, i: x.scatter_add(0, i.expand(300, 70), x.new_ones(300, 70)), x, torch.tensor([[3]]))
    check(lambda x, i, s: x.index_add(0, i, s), x, torch.randint(0, 5, (1000,)), torch.randn(1000, 70))
    check(lambda x, i, s: x.index_add(1, i, s), x.t().contiguous(), torch.randint(0, 5, (1000,)), torch.randn(70, 1000))
    check(lambda x, i, s: x.scatter_add(0, i, s), torch.zeros(7), torch.randint(0, 7, (1000,)), torch.randn(1000))
    check(
        lambda i: torch.zeros(7, dtype=torch.int64).scatter_add(0, i, torch.ones_like(i)), torch.randint(0, 7, (999,))
    )


def test_windows_that_overlap():
    def fn(s):
        places = torch.arange(9)[:, None] + torch.arange(4)[None, :]
        return torch.zeros(12, dtype=s.dtype).scatter_add(0, places.reshape(-1), s.reshape(-1))

    check(fn, torch.randn(9, 4))


def test_what_is_around_is_one_kernel_with_it():
    x, i, s = torch.randn(9, 40), torch.randint(0, 9, (30,)), torch.randn(30, 40)
    region = check(lambda x, i, s: x.index_add(0, (i + 1) % 9, (s * 2).exp()) + 1, x, i, s)
    assert region["kernels"] == 3  # what is added to, the rows, what is read of it


def test_one_into_the_other():
    x, i, s = torch.randn(9, 4), torch.randint(0, 9, (7, 4)), torch.randn(7, 4)
    check(lambda x, i, s: x.scatter_add(0, i, s).scatter_add(0, i, s * 2).scatter_reduce(0, i, s, "amax"), x, i, s)
    check(lambda x, i, s: (x.scatter_add(0, i, s), x.relu().scatter_add(0, i, s), x.relu()), x, i, s)

    def read_between(x, i, s):
        a = x.scatter_add(0, i, s)
        return a.exp(), a.scatter_add(0, i, s), a

    check(read_between, x, i, s)


@pytest.mark.parametrize("name", ["index_copy_", "index_add_", "scatter_add_", "index_put_"])
def test_in_place(name):
    x, i, s = torch.randn(9, 4), torch.randperm(9)[:5], torch.randn(5, 4)
    fn = {
        "index_copy_": lambda x, i, s: x.index_copy_(0, i, s),
        "index_add_": lambda x, i, s: x[:, :3].index_add_(0, i, s[:, :3]),
        "scatter_add_": lambda x, i, s: x.scatter_add_(0, i[:, None].expand_as(s), s).sum(),
        "index_put_": lambda x, i, s: x.index_put_((i,), s) * 2,
    }[name]
    check(fn, x, i, s, written=(0,))


def test_written_where_python_indexes():
    def fn(x, i, v, m):
        x[i] = v
        x[:, i % 4] += 1
        x[m] = 0
        return x * 2

    check(fn, torch.randn(9, 4), torch.randperm(9)[:3], torch.randn(3, 4), torch.rand(9, 4) > 0.7, written=(0,))


OUTSIDE = {
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s),
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_copy": lambda x, i, s: x.index_copy(0, i, s),
    "index_put": lambda x, i, s: x.index_put((i,), s),
    "max_unpool2d": lambda x, i, s: aten.max_unpool2d(s[None, :, :1], i.reshape(1, 2, 1).clone(), (1, 4)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside_is_an_error(name):
    torchbolt.reset()
    compiled = torchbolt.compile(OUTSIDE[name])
    x, i, s = torch.zeros(4, 3), torch.tensor([0, 2]), torch.ones(2, 3)
    for _ in range(2):
        assert compiled(x, i, s).equal(OUTSIDE[name](x, i, s))
    for bad in (4, -5, 2**40):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(x, torch.tensor([0, bad]), s)
    assert x.equal(torch.zeros(4, 3))
    assert compiled(x, i, s).equal(OUTSIDE[name](x, i, s))


GRADIENTS = {
    "scatter": lambda x, i, s: x.scatter(0, i, s),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s),
    "gather": lambda x, i, s: x.gather(0, i) * s,
    "index": lambda x, i, s: x[i[:, 0]] * s,
    "index_select": lambda x, i, s: x.index_select(0, i[:, 1]) * s,
    "embedding": lambda x, i, s: torch.nn.functional.embedding(i[:, 1], x) * s,
    "index_add": lambda x, i, s: x.index_add(0, i[:, 0], s),
    "index_put": lambda x, i, s: x.index_put((i[:, 0],), s, accumulate=True),
    "amax": lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    "mean": lambda x, i, s: x.scatter_reduce(0, i, s, "mean"),
    "max_unpool2d": lambda x, i, s: aten.max_unpool2d(s[None, :, :1], i[None, :, :1].contiguous(), (1, 9)) * x.sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    torchbolt.reset()
    fn = GRADIENTS[name]
    x, s = torch.randn(6, 5), torch.randn(4, 5)
    i = permuted_rows((4, 5), 6, 0)

    def gradients(f, dtype):
        a, b = x.to(dtype, copy=True).requires_grad_(), s.to(dtype, copy=True).requires_grad_()
        f(a, i, b).exp().sum().backward()
        return [a.grad, b.grad]

    as_exact(
        gradients(torchbolt.compile(fn), torch.float32), gradients(fn, torch.float32), gradients(fn, torch.float64)
    )


def test_sizes_that_differ_between_calls():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x, i, s: x.index_add(0, i, s) * 2, dynamic=True)
    for n, m, d in [(4, 6, 3), (5, 9, 4), (3, 2, 17), (7, 40, 33)]:
        x, i, s = torch.randn(n, d), torch.randint(0, n, (m,)), torch.randn(m, d)
        torch.testing.assert_close(compiled(x, i, s), x.index_add(0, i, s) * 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_back_to_where_the_largest_was(dims, dtype):
    pool, unpool = (getattr(torch.nn.functional, f"max_{name}{dims}d") for name in ("pool", "unpool"))
    for shape in ((2, 3), (3,)):
        largest, places = pool(torch.randn(*shape, *(10, 8, 6)[:dims]).to(dtype), 2, return_indices=True)
        check(lambda x, i: unpool(x, i, 2) * 2, largest, places)
        for _, x in lain_otherwise(largest):
            check(lambda x, i: unpool(x * 2, i, 2), x, places)
