# tests/programs/test_kinds_of_tensors.py
"""Tensors that are not plain: complex, sparse, nested, subclasses, quantized, meta; numpy; torch.return_types."""

import numpy
import pytest
import torch
from rows import HIT, MISS, Lazy, Rows, ints, randn
from torch.testing._internal.logging_tensor import LoggingTensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

ROWS = Rows()

# -- Complex numbers ---------------------------------------------------------------------------------------------------
COMPLEX = randn(4, 4, dtype=torch.complex64)
LAZY = {  # conj and imag are only noted on a tensor
    "x.conj()": "only notes",
    "x.conj().imag": "only notes",
    "torch.svd(x).V": "only notes",
    "(x * 2).conj().mul_(2) + 1": "view",
    "x.imag.mul_(2)": "view",
    "torch.view_as_real(x)": "numbers of another type",
}
for text in (
    "x * 2",
    "x @ x",
    "x.real + x.imag",
    "x.abs() + x.angle()",
    "torch.view_as_real(x)",
    "torch.view_as_complex(torch.view_as_real(x) * 2)",
    "x.conj() * x",
    "x.conj()",
    "x.conj().imag",
    "x.mH @ x",
    "x.mH.mH + 1, x.adjoint().conj() + 1, x.conj().conj()",
    "x.conj().imag + x.conj().real",
    "(x.conj()[1:, :2].T.reshape(-1), x.conj())[0] + 1",
    "torch.cat([x.conj(), x]), torch.stack([x.mH, x]), x.conj().sum(0), x.conj().abs()",
    "x.conj().resolve_conj() * 2, x.conj().clone(), x.mH.contiguous(), x.conj().imag.resolve_neg()",
    "torch.linalg.solve(x.mH, x), torch.vdot(x[0].conj(), x[1]), x.conj().to(torch.complex128) * 1",
    "torch.svd(x).V",
    "(x * 2).conj().mul_(2) + 1",
    "torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(x.real).conj()).real.relu()",
    "torch.fft.ifft(torch.fft.fft(x))",
    "torch.fft.fft2(x).abs().sum()",
    "x.exp().sum()",
    "x.imag.mul_(2)",
    "(x * 1j).real",
    "x + 1",
    "torch.polar(x.abs(), x.angle())",
):
    ROWS.text(text, name=f"complex: {text}", x=COMPLEX, near=1e-4, replays=LAZY.get(text, ""))
for text in (
    "torch.fft.rfft(x)",
    "torch.fft.irfft(torch.fft.rfft(x))",
    "torch.fft.fftshift(torch.fft.fftfreq(4)) + x",
    "torch.complex(x, x + 1)",
    "x * 1j",
    "torch.stft(x.flatten(), 4, window=torch.ones(4), return_complex=True).abs()",
    "torch.polar(torch.ones_like(x), x)",
):
    ROWS.text(text, name=f"to complex: {text}", x=randn(4, 4), near=1e-4)


@ROWS(COMPLEX, replays="whose base was written")
def conjugates_of_what_is_written_later(x):
    y = x * 2
    seen = y.conj()
    y.add_(1j)
    return seen * 1


@ROWS(COMPLEX)
def complex_numbers_written_as_pairs(x):
    m = x * 0.5
    torch.view_as_real(m).lerp_(torch.view_as_real(x.abs() + 0j), 0.1)
    torch.view_as_real(x).addcdiv_(torch.view_as_real(m), torch.full((), 2.0), value=-0.1)
    turned = x * 1
    torch.view_as_real(turned).mul_(torch.view_as_real(m).transpose(0, 1))  # lies otherwise than it is written
    return m, x * 2, turned


@ROWS(randn(4, 2))
def pairs_written_as_complex_numbers(x):
    y = x * 2
    torch.view_as_complex(y).mul_(1j)
    return y + x


@ROWS(COMPLEX)
def conjugates_of_what_was(x):
    y = x * 2
    seen = y.conj() * 1
    y.add_(1j)
    return seen, y


@ROWS(
    calls=[(randn(n, 8, dtype=torch.complex64),) for n in (4, 6, 5, 7)],
    expect=(MISS, MISS, HIT, HIT),
    regions=2,
)
def conjugates_of_other_sizes(x):
    return (x.conj() * x).real.sqrt() + 1


@ROWS(randn(2, 6, 2, 8))
def rotary_embedding_by_complex_numbers(x):
    freqs = 1.0 / (10000.0 ** (torch.arange(0, 8, 2).float() / 8))
    turn = torch.polar(torch.ones(6, 4), torch.outer(torch.arange(6).float(), freqs))
    z = torch.view_as_complex(x.reshape(2, 6, 2, 4, 2))
    return torch.view_as_real(z * turn[None, :, None]).flatten(3)


TURNS = torch.polar(torch.ones(64, 4), torch.outer(torch.arange(64.0), torch.rand(4)))


@ROWS(
    calls=[(randn(2, n, 2, 8), at) for n, at in ((4, 0), (5, 3), (9, 7), (7, 20))],
    expect=(MISS, MISS, HIT, HIT),
    regions=2,
)
def a_part_of_complex_numbers_that_differs(x, start):
    turn = TURNS[start : start + x.shape[1]]
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * turn.view(1, turn.shape[0], 1, -1)).flatten(3).type_as(x)


@ROWS(
    calls=[(4, randn(9, 2, dtype=torch.cfloat)), (5, randn(8, 2, dtype=torch.cfloat))],
    expect=(MISS, MISS, HIT),
    regions=2,
)
def a_part_of_complex_numbers_that_is_written(n, x):
    part = x[1:n]
    part.mul_(2)
    return part * 2, x.sum(), x[n:]


# -- Sparse: regions end before each operator that takes or makes one --------------------------------------------------
for text, ends, regions in (
    ("torch.sparse.mm(x.to_sparse(), x)", ("makes a sparse", "of a sparse"), 0),
    ("x.to_sparse() @ x", ("makes a sparse", "of a sparse"), 0),
    ("x.relu().to_sparse().to_dense() * 2", ("makes a sparse", "of a sparse"), 2),
    ("(x.to_sparse() * 2).to_dense() + 1", ("makes a sparse", "of a sparse"), 1),
    ("x.to_sparse_csr() @ x.sin()", ("makes a sparse", "of a sparse"), 1),
    ("torch.sparse_coo_tensor([[0, 1], [1, 0]], x[0, :2], (4, 4)).to_dense() + x", ("sparse",), 2),
    ("x.to_sparse().shape[0] * x", ("makes a sparse",), 1),
):
    ROWS.text(text, name=f"sparse: {text}", x=randn(4, 4), ends=ends, regions=regions)


@ROWS(Lazy(lambda: torch.eye(4).to_sparse()), randn(4, 4), ends="of a sparse tensor", regions=2)
def sparse_argument(s, x):
    return torch.sin(torch.sparse.mm(s, x * 2)) * 2


@ROWS(randn(4, 4), ends="makes a sparse tensor")
def sparse_result(x):
    return (x * 2).to_sparse()


@ROWS(
    calls=[(Lazy(lambda n=n: torch.eye(n).to_sparse()), randn(4)) for n in (2, 3, 4)],
    expect=(MISS, MISS, MISS, HIT, HIT),
    regions=3,
)
def sizes_of_a_sparse_argument(s, x):
    return x * s.shape[0] + s.size(1)


@ROWS.made(randn(4), Lazy(lambda: torch.eye(4).to_sparse()), ends="of a sparse tensor", regions=2)
def sparse_attribute():
    class Mixes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.eye(4).to_sparse()

        def forward(self, x, _):
            return torch.mv(self.weights, x.relu() + 1).sin() * 2

    return Mixes()


@ROWS.made(ints(3, below=5), near=0)
def sparse_gradients_of_an_embedding():
    return torch.nn.Embedding(5, 4, sparse=True)


# -- Nested ------------------------------------------------------------------------------------------------------------
@ROWS(randn(3, 4), randn(2, 4), ends=("makes a nested", "of a nested"), regions=2)
def nested_inside(x, y):
    both = torch.nested.nested_tensor([x.sin(), y])
    return torch.nested.to_padded_tensor(both * 2, 0.0) + 1


NESTED = Lazy(lambda: torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)]))


@ROWS(NESTED, ends="of a nested", regions=0)
def nested_argument(n):
    return (n * 2).unbind()


@ROWS(NESTED, ends="of a nested", regions=0)
def nested_result(n):
    return n + n


@ROWS(
    calls=[(Lazy(lambda n=n: torch.nested.nested_tensor([torch.ones(3, 4)] * n)), randn(4)) for n in (2, 3)],
    expect=(MISS, MISS, HIT, HIT),
    regions=2,
)
def size_of_a_nested_argument(n, x):
    return x * n.size(0)


JAGGED = Lazy(lambda: torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged))


@ROWS(JAGGED, randn(4), ends="__torch_function__")
def jagged_argument(n, x):
    return n.values() * x.sin(), x.relu() + 1


@ROWS(randn(3, 4), randn(2, 4), ends=("jagged_from_list", "__torch_function__"), regions=2)
def jagged_inside(x, y):
    both = torch.nested.nested_tensor([x.sin() * 2, y], layout=torch.jagged)
    return (both * 2).values() + x[0]


# -- Subclasses --------------------------------------------------------------------------------------------------------
class Named(torch.Tensor):
    """A subclass that adds an attribute and leaves the rest to torch."""

    label = "plain"


class Logged(torch.Tensor):
    """A subclass with a __torch_function__ of its own."""

    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaled(torch.Tensor):
    """A wrapper with __torch_dispatch__."""

    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = lambda a: a.inner * a.scale if isinstance(a, Scaled) else a
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


class Placed(Scaled):
    """Asks Python for its sizes, too."""

    @staticmethod
    def __new__(cls, inner, scale=1):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes"
        )

    def __init__(self, inner, scale=1):
        super().__init__(inner, scale)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sym_size.default:
            return args[0].inner.shape
        return super().__torch_dispatch__(func, types, args, kwargs)


@ROWS(Lazy(lambda: torch.ones(4).as_subclass(Named)), ends="__torch_function__", regions=0)
def subclass_argument(x):
    return x * 2 + 1, type(x * 2).__name__, x.label


@ROWS(randn(4), ends=("__torch_function__", "as_subclass"), regions=0)
def subclass_made_inside(x):
    return x.as_subclass(Named) * 2


@ROWS(Lazy(lambda: torch.ones(4).as_subclass(Logged)), ends="__torch_function__", regions=0)
def torch_function_argument(x):
    return torch.add(x, 1).relu()


TORCH_DISPATCH = "of a tensor whose class has a __torch_dispatch__"


@ROWS(Lazy(lambda: Scaled(torch.ones(4), 3.0)), randn(4), ends=TORCH_DISPATCH, regions=2)
def torch_dispatch_argument(s, x):
    before = x.relu() * 2
    return (s + before).sin() * 2


@ROWS(
    calls=[(Lazy(lambda n=n: Scaled(torch.ones(n), 3.0)), randn(4)) for n in (2, 3)],
    expect=(MISS, MISS, HIT, HIT),
    regions=2,
)
def parts_of_a_torch_dispatch_argument(s, x):
    return x * s.shape[0] + s.inner.sum() * s.scale, s


@ROWS(randn(4), ends=("_make_wrapper_subclass", TORCH_DISPATCH), regions=2, expect=(MISS, MISS, HIT, HIT))
def torch_dispatch_made_inside(x):
    scaled = Scaled(x.sin() * 2, 2.0)
    return (scaled * 2).relu() + 1


@ROWS(Lazy(lambda: TwoTensor(torch.ones(4), torch.zeros(4))), randn(4), ends=TORCH_DISPATCH, regions=2)
def torch_dispatch_given_back(t, x):
    before = x.relu() * 2
    t = t + before
    return t, before.sin() + 1, t.a * 2


@ROWS.made(randn(2, 4), ends=TORCH_DISPATCH, regions=2)
def torch_dispatch_attribute():
    class Mixes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 4)
            self.second = Scaled(torch.ones(4, 4), 2.0)

        def forward(self, x):
            return torch.nn.functional.linear(self.first(x).relu(), self.second).sin() * 2

    return Mixes()


@ROWS(Lazy(lambda: LoggingTensor(torch.ones(4))), randn(4), ends=(TORCH_DISPATCH, "range_iterator"), regions=2)
def torch_dispatch_in_a_loop(t, x):
    for _ in range(3):
        x = (x * t.elem).sin() + 1
        t *= 2
    return x


@ROWS(
    Lazy(lambda: Placed(torch.ones(3, 4))),
    randn(4),
    ends=("CPython runs", TORCH_DISPATCH),
    regions=3,
    expect=(MISS, MISS, HIT, HIT),
)
def torch_dispatch_of_sizes(p, x):
    return x.relu() * p.shape[0] + p.sum()


class Duck:
    """No tensor, but known to torch by __torch_function__."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*[a.value if isinstance(a, Duck) else a for a in args], **(kwargs or {}))


@ROWS(randn(4), ends="__torch_function__", regions=1)
def duck_made_inside(x):
    return torch.add(Duck(x), 1) * 2


@ROWS(Lazy(lambda: torch.nn.Parameter(torch.ones(4), requires_grad=False)))
def parameter_argument(p):
    return p * 2, isinstance(p, torch.nn.Parameter)


@ROWS(Lazy(lambda: torch.nn.Buffer(torch.ones(4))))
def buffer_argument(b):
    return b * 2


# -- Other layouts and types -------------------------------------------------------------------------------------------
# Correct, and not compiled.
PLAINLY = dict(replays="not plain strided memory")
for text in (
    "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()",
    "x.to_mkldnn().relu().to_dense()",
):
    ROWS.text(text, x=randn(4, 4), **PLAINLY)
ROWS.text("torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)", x=randn(4, 4))
for dtype in (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.bool,
):
    ROWS.text("(x + x).sum(-1)", name=f"sums of {dtype}", x=randn(4, 8, dtype=dtype), near=1e-2)
    ROWS.text("torch.cat([x, x]).to(torch.float32) * 2", name=f"conversions of {dtype}", x=randn(4, 8, dtype=dtype))
for text in (
    "x * torch.FloatTensor([1, 2, 3, 4])",
    "torch.LongTensor([[1, 2], [3, 4]]) * x[0]",
    "torch.where(torch.BoolTensor([True, False, True, False]), x, torch.DoubleTensor([1.5]).float())",
    "torch.IntTensor(4).fill_(3) + x",
    "torch.Tensor([1.0, 2, 3, 4]).to(x.dtype) + torch.Tensor(4).zero_() + x",
    "torch.Tensor(2, 3).fill_(len(x)).sum() + x",
    "x[torch.LongTensor([0, 2])] * 2",
):
    ROWS.text(text, x=randn(4), name=f"classes of tensors: {text}")
ROWS.text(
    "Named([1.0, 2.0]) * 2",
    x=randn(4),
    more={"Named": Named},
    regions=0,
    ends=("torch._C.TensorBase", "__torch_function__"),
)
ROWS.text("x.to(torch.float8_e4m3fn).to(torch.float32)", x=randn(4, 4))
ROWS.text("torch.empty(2, 3, device='meta').shape[0] * x", x=randn(4), replays="tensors on meta")
ROWS.text("x.view(torch.int32) >> 16", x=randn(4))
ROWS.text("x.view(torch.int16).view(torch.float32) + 1", x=randn(4))
ROWS.text("x.to(memory_format=torch.channels_last) * 2", x=randn(2, 3, 4, 4))
ROWS.text("x.contiguous(memory_format=torch.channels_last).mean(1)", x=randn(2, 3, 4, 4))
ROWS.text("x.storage_offset() + x.stride(0) + x.element_size() + x.itemsize", x=randn(4, 4), regions=0)


# -- Named tuples ------------------------------------------------------------------------------------------------------
for text in (
    "torch.max(x, -1)",
    "x.min(0)",
    "torch.sort(x, -1)",
    "torch.topk(x, 2)",
    "x.median(-1)",
    "x.mode(-1)",
    "torch.kthvalue(x, 2)",
    "torch.cummax(x, 0)",
    "torch.aminmax(x, dim=0)",
    "torch.linalg.slogdet(x)",
    "torch.linalg.qr(x)",
    "torch.linalg.svd(x, full_matrices=False).S",
    "torch.linalg.eigh(x + x.mT).eigenvalues",
    "torch.frexp(x)",
    "torch.max(x, -1).values + torch.max(x, -1)[1]",
    "(lambda values, indices: values * indices)(*x.max(0))",
    "type(x.max(0)).__name__",
):
    ROWS.text(text, x=randn(4, 4), near=1e-4)

# -- numpy -------------------------------------------------------------------------------------------------------------
for text, regions in {
    "torch.tensor(np.array([1.0, 2.0, 3.0, 4.0])) * x": 1,
    "x[np.array([0, 2])] * 2": 1,
    "np.asarray(x * 2)": 1,
}.items():
    ROWS.text(text, name=f"numpy: {text}", x=randn(4), regions=regions, ends="numpy")
for text in (
    "torch.from_numpy(np.ones(4, np.float32)) + x",
    "torch.from_numpy((x * 2).numpy() + 1) * 3",
    "np.sin((x + 1).numpy())",
    "torch.as_tensor(np.arange(4)) + x",
):
    ROWS.text(text, name=f"arrays: {text}", x=randn(4))
for text in ("x + float(np.pi)", "x * np.float32(2)", "x * np.sqrt(4)", "x.sum() * np.prod(x.shape)"):
    ROWS.text(text, name=f"numbers of numpy's: {text}", x=randn(4))


def array(*sizes, dtype=numpy.float32):
    return Lazy(lambda: numpy.arange(1, 1 + numpy.prod(sizes)).reshape(sizes).astype(dtype))


@ROWS(array(4), randn(4))
def numpy_argument(a, x):
    return torch.from_numpy(a) + x


@ROWS(calls=[(array(n, 3),) for n in (4, 6, 9, 7)], expect=(MISS, MISS, HIT, HIT), regions=2)
def arrays_of_other_sizes(a):
    return torch.from_numpy(a).sin().mean(0)


@ROWS(array(4, dtype=numpy.float64), randn(4))
def copies_of_an_array(a, x):
    return torch.tensor(a) * x, torch.tensor(a, dtype=torch.float32).add_(1), x.new_tensor(a) + 2


@ROWS(array(4), randn(4))
def memory_of_an_array(a, x):
    memory = torch.as_tensor(a)
    memory[1:].mul_(x[1:])
    return memory, memory.double() * 2


@ROWS(array(4), randn(4))
def memory_that_is_read_as_two_tensors(a, x):
    return torch.from_numpy(a) * x, torch.from_numpy(a), torch.as_tensor(a, dtype=torch.float64) * 2


@ROWS(randn(5, 5), Lazy(lambda: numpy.array([0, 2, 2])), Lazy(lambda: numpy.array([True, False, True, True, False])))
def arrays_as_indices(x, rows, mask):
    y = x.clone()
    y[rows, 1] = 3
    return x[rows], x[:, rows] * 2, y, x[mask].sum()


@ROWS(randn(5, 5), Lazy(lambda: numpy.array([0, 2, 2], numpy.int32)), ends="numpy", regions=1)
def array_of_small_ints_as_an_index(x, rows):
    return x[rows] + 1


@ROWS(Lazy(lambda: numpy.broadcast_to(numpy.float32(2), (3,))), ends="numpy")
def memory_that_must_not_be_written(a):
    return torch.tensor(a) + 1


@ROWS.made(randn(4))
def an_array_that_is_kept():
    kept = {"weights": numpy.ones(4, numpy.float32)}

    def run(x):
        kept["weights"] = kept["weights"]
        return x * torch.from_numpy(kept["weights"])

    return run


@ROWS(randn(4), Lazy(lambda: numpy.float32(3)))
def numpy_number_argument(x, k):
    return x * k


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_kinds_of_tensors(row):
    row.check()
