# tests/observe/test_special_methods.py
"""Special methods in Python that C code calls behind the recording's back: comparing the elements of lists, hashing keys,
formatting, indexing, converting. What they read is guarded, or the region ends before them: each expression is called with
an object in one state and in another, and with one whose state is changed in place."""

from __future__ import annotations

import bisect  # noqa: F401  (used by the expressions)
import dataclasses
import decimal
import fractions
import functools
import heapq  # noqa: F401
import itertools  # noqa: F401
import math  # noqa: F401
import operator  # noqa: F401
import types
import warnings

import pytest
import torch
from states import both_regions, equal, outcome, reader

CASES = []


@dataclasses.dataclass
class DC:
    a: object
    b: list


def T(source, kind, first=2, second=3):
    """`source` is an expression of x and v; `kind` makes v of a number."""
    space = dict(globals())
    exec(f"def function(x, v):\n    return {source}", space)
    name = f"{source} of {getattr(kind, '__name__', 'a number')}"
    CASES.append(pytest.param(space["function"], kind, first, second, id=name))


def K(name, **methods):
    def init(s, n):
        s.n = n

    return type(name, (), {"__init__": init, **methods})


Bo = K("Bo", __bool__=lambda s: s.n > 1)
Ix = K("Ix", __index__=lambda s: s.n)
It = K("It", __int__=lambda s: s.n)
Flo = K("Flo", __float__=lambda s: float(s.n))
Cx = K("Cx", __complex__=lambda s: complex(s.n))
Cont = K("Cont", __contains__=lambda s, i: i == s.n)
Iter = K("Iter", __iter__=lambda s: iter([s.n]))
IterG = K("IterG", __iter__=lambda s: (i for i in range(s.n)))
GI = K("GI", __getitem__=lambda s, i: s.n, __len__=lambda s: 1)
GI2 = K("GI2", __getitem__=lambda s, i: [1, 2, 3, 4][: s.n][i])
Call = K("Call", __call__=lambda s: s.n)
Fmt = K("Fmt", __format__=lambda s, f: "a" * s.n)
St = K("St", __str__=lambda s: "a" * s.n)
Re = K("Re", __repr__=lambda s: "a" * s.n)
Eq = K("Eq", __eq__=lambda s, o: s.n == o, __hash__=lambda s: 1)
Lt = K(
    "Lt",
    __lt__=lambda s, o: s.n < (o.n if isinstance(o, Lt) else o),
    __gt__=lambda s, o: s.n > (o.n if isinstance(o, Lt) else o),
)
Ha = K("Ha", __hash__=lambda s: s.n, __eq__=lambda s, o: s.n == getattr(o, "n", None))
Ar = K(
    "Ar",
    __add__=lambda s, o: s.n + o,
    __radd__=lambda s, o: s.n + o,
    __mul__=lambda s, o: s.n * o,
    __rmul__=lambda s, o: s.n * o,
    __neg__=lambda s: -s.n,
    __abs__=lambda s: s.n,
    __round__=lambda s, *a: s.n,
    __floor__=lambda s: s.n,
    __ceil__=lambda s: s.n,
    __trunc__=lambda s: s.n,
    __divmod__=lambda s, o: (s.n, o),
    __pow__=lambda s, o: s.n,
    __invert__=lambda s: s.n,
    __matmul__=lambda s, o: s.n,
    __and__=lambda s, o: s.n,
    __lshift__=lambda s, o: s.n,
    __sub__=lambda s, o: s.n - o,
    __rsub__=lambda s, o: o - s.n,
    __truediv__=lambda s, o: s.n / o,
)
CM = K("CM", __enter__=lambda s: s.n, __exit__=lambda s, *a: s.n > 2)
GA = K("GA", __getattr__=lambda s, k: s.__dict__["n"] if k == "zz" else (_ for _ in ()).throw(AttributeError(k)))
GAt = K(
    "GAt", __getattribute__=lambda s, k: object.__getattribute__(s, k) if k != "zz" else object.__getattribute__(s, "n")
)
Cp = K("Cp", __copy__=lambda s: s.n, __deepcopy__=lambda s, m: s.n)
Rd = K("Rd", __reduce__=lambda s: (int, (s.n,)))
By = K("By", __bytes__=lambda s: bytes([s.n]))
Rev = K("Rev", __reversed__=lambda s: iter([s.n]))
Nx = K("Nx", __next__=lambda s: s.n, __iter__=lambda s: s)
LenHint = K("LH", __length_hint__=lambda s: s.n)
Dir = K("Dir", __dir__=lambda s: ["a"] * s.n)
Sz = K("Sz", __sizeof__=lambda s: s.n)


class Meta(type):
    def __instancecheck__(c, o):
        return o == c.n

    def __subclasscheck__(c, o):
        return c.n == 2

    def __len__(c):
        return c.n

    def __iter__(c):
        return iter([c.n])

    def __contains__(c, o):
        return c.n == o

    def __getitem__(c, k):
        return c.n

    def __call__(c):
        return c.n


def MC(n):
    return Meta("M", (), {"n": n})


class Desc:
    def __get__(s, o, t):
        return o.n if o else 1


class HasD:
    d = Desc()

    def __init__(s, n):
        s.n = n

    @property
    def p(s):
        return s.n

    @functools.cached_property
    def cp(s):
        return s.n

    @classmethod
    def cm(c):
        return c.k

    k = 2

    def __class_getitem__(c, i):
        return i


class Dm(dict):
    def __missing__(s, k):
        return s.n


class Li(list):
    pass


def dm(n):
    d = Dm()
    d.n = n
    return d


class TF:
    def __init__(s, n):
        s.n = n

    @classmethod
    def __torch_function__(c, f, t, args=(), kwargs=None):
        return args[0] * args[1].n if isinstance(args[1], TF) else 0


class SqLike:
    def __init__(s, n):
        s.n = n

    def __len__(s):
        return s.n

    def __getitem__(s, i):
        if i >= s.n:
            raise IndexError
        return i + 1


T("x*(2 if v else 3)", Bo, 1, 2)
T("x*(2 if not v else 3)", Bo, 1, 2)
T("x*bool(v)", Bo, 1, 2)
T("x*(2 if any([v]) else 3)", Bo, 1, 2)
T("x*(2 if all([v]) else 3)", Bo, 1, 2)
T("x*len(list(filter(None,[v])))", Bo, 1, 2)
T("x*len(list(filter(bool,[v])))", Bo, 1, 2)
T("x*(2 if operator.truth(v) else 3)", Bo, 1, 2)
T("x*(2 if operator.not_(v) else 3)", Bo, 1, 2)
T("x*(v and 3 or 2)", Bo, 1, 2)
T("x*[1,2,3,4,5][v]", Ix)
T("x*len([1,2,3,4,5][v:])", Ix)
T("x*len(range(v))", Ix)
T("x*operator.index(v)", Ix)
T("x*int(v)", Ix)
T("x*len('a'*v)", Ix)
T("x*len([1]*v)", Ix)
T("x*len(hex(v))", Ix, 2, 33)
T("x*'abcd'[v].__len__()", Ix)
T("x*ord('abcdef'[v])", Ix)
T("x*(1,2,3,4)[v]", Ix)
T("x*len(bytes(v))", Ix)
T("x*float(v)", Ix)
T("x*math.factorial(v)", Ix)
T("x*math.gcd(v,6)", Ix)
T("x.repeat(v,1)", Ix)
T("x[:, v]", Ix, 0, 1)
T("x.sum(v)", Ix, 0, 1)
T("x.reshape(v,-1)", Ix)
T("torch.zeros(v)", Ix)
T("x[:, :v]", Ix, 1, 2)
T("x*len(list(itertools.islice([1,2,3,4],v)))", Ix)
T("x*round(3.14159,v)", Ix)
T("x*len(slice(v).indices(10))+slice(v).indices(10)[1]", Ix)
T("x*divmod(7,int(v))[0]", Ix)
T("x*int(v)", It)
T("x*float(v)", Flo)
T("x*math.sqrt(v)", Flo)
T("x*complex(v).real", Cx)
T("x*complex(v).real", Flo)
T("x*math.floor(v)", Flo)
T("torch.tensor(v)*x", Flo)
T("torch.tensor([v,v]).sum()*x", Flo)
T("torch.full((2,),v)", Flo)
T("x*sum([v.__float__()])", Flo)
T("x*math.fsum([v,v])", Flo)
T("x*len('%d'%v)", It, 2, 33)
T("x*len('%f'%v)", Flo, 2, 33)
T("x*(2 if 2 in v else 3)", Cont)
T("x*operator.contains(v,2)", Cont)
for K_ in (Iter, IterG):
    for src in (
        "x*sum(v)",
        "x*max(v)",
        "x*list(v)[-1]",
        "x*tuple(v)[-1]",
        "x*max(set(v))",
        "x*[a for a in v][-1]",
        "x*(lambda *a:a[-1])(*v)",
        "x*len(','.join(map(str,v)))",
        "x*sorted(v)[-1]",
        "x*list(map(float,v))[-1]",
        "x*list(zip(v,v))[-1][0]",
        "x*list(enumerate(v))[-1][1]",
        "x*max(dict.fromkeys(v))",
        "x*collections.deque(v)[-1]",
        "x*max(collections.Counter(v))",
        "x*(2 if 2 in v else 3)",
        "x*list(itertools.chain(v))[-1]",
        "x*functools.reduce(operator.add,v)",
        "x*(2 if any(v) else 3)",
        "x*min(v,default=9)",
        "x*[*v][-1]",
        "x*torch.tensor(list(v)).sum()",
        "x*[0,*v][-1]",
        "x*list(reversed(list(v)))[0]",
        "x*max({*v})",
        "x*next(iter(v))",
        "x*math.prod(v)",
        "x*bytes(v)[-1]",
        "x*max(frozenset(v))",
        "x*list(itertools.accumulate(v))[-1]",
        "x*([0].__iadd__(v))[-1]",
        "x*(lambda l: (l.extend(v), l[-1])[1])([0])",
    ):
        T(src, K_)
T("x*v[0]", GI)
T("x*operator.getitem(v,0)", GI)
T("x*operator.itemgetter(0)(v)", GI)
T("x*list(v)[-1]", GI2)
T("x*sum(v)", GI2)
T("x*len([*v])", GI2)
T("x*len(list(reversed(v)))", SqLike)
T("x*sum(v)", SqLike)
T("x*max(reversed(v))", SqLike)
T("x*len(v)", SqLike)
T("x*(2 if v else 3)", SqLike, 0, 1)
T("x*operator.length_hint(v)", SqLike)
T("torch.tensor(v)[0]*x*len(v)", SqLike)
T("x*torch.as_tensor(v).sum()", SqLike)
T("x*v()", Call)
T("x*list(map(lambda f:f(),[v]))[0]", Call)
T("x*sorted([1],key=lambda q:v())[0]*v()", Call)
T("x*next(iter(v, 7))", Call)
T("x*functools.partial(v)()", Call)
T("x*operator.call(v)", Call)
T("x*len(f'{v}')", Fmt)
T("x*len(format(v))", Fmt)
T("x*len('{}'.format(v))", Fmt)
T("x*len(str(v))", St)
T("x*len(f'{v}')", St)
T("x*len('%s'%v)", St)
T("x*len('%s'%(v,))", St)
T("x*len(' '.join([str(v)]))", St)
T("x*len(repr(v))", Re)
T("x*len(str([v]))", Re)
T("x*len(f'{v!r}')", Re)
T("x*len('%r'%v)", Re)
T("x*len(str({1:v}))", Re)
T("x*len(ascii(v))", Re)
T("x*len('{!r}'.format(v))", Re)
T("x*len(f'{[v]}')", Re)
T("x*(2 if v==2 else 3)", Eq)
T("x*(2 if 2==v else 3)", Eq)
T("x*(2 if v!=2 else 3)", Eq)
T("x*(2 if 2 in [v] else 3)", Eq)
T("x*[v].count(2)", Eq)
T("x*(2 if [v]==[2] else 3)", Eq)
T("x*(2 if (v,)==(2,) else 3)", Eq)
T("x*(2 if {1:v}=={1:2} else 3)", Eq)
T("x*[v,2].index(2)", Eq)
T("x*(lambda l:(l.remove(2),len(l))[1])([v,5,2])", Eq)
T("x*operator.eq(v,2)", Eq)
T("x*(2 if [[v]]==[[2]] else 3)", Eq)
T("x*(2 if DC(v,[])==DC(2,[]) else 3)", Eq)
T("x*operator.countOf([v],2)", Eq)
T("x*(2 if v<Lt(3) else 3)", Lt, 2, 4)
T("x*sorted([v,Lt(3)])[0].n", Lt, 2, 4)
T("x*max([v,Lt(3)]).n", Lt, 2, 4)
T("x*min(v,Lt(3)).n", Lt, 2, 4)
T("x*(2 if [v]<[Lt(3)] else 3)", Lt, 2, 4)
T("x*(2 if (1,v)<(1,Lt(3)) else 3)", Lt, 2, 4)
T("x*(lambda l:(l.sort(),l[0].n)[1])([v,Lt(3)])", Lt, 2, 4)
T("x*heapq.nsmallest(1,[v,Lt(3)])[0].n", Lt, 2, 4)
T("x*bisect.bisect([Lt(3)],v)", Lt, 2, 4)
T("x*(lambda l:(heapq.heapify(l),l[0].n)[1])([Lt(3),v])", Lt, 2, 4)
T("x*(2 if v>3 else 3)", Lt, 2, 4)
T("x*(2 if 3<v else 3)", Lt, 2, 4)
T("x*{Ha(2):2,Ha(3):3}[v]", Ha)
T("x*{Ha(2):2,Ha(3):3}.get(v)", Ha)
T("x*(2 if v in {Ha(2)} else 3)", Ha)
T("x*(2 if v in {Ha(2):1} else 3)", Ha)
T("x*len({v,Ha(2)})", Ha)
T("x*len({v:1,Ha(2):2})", Ha)
T("x*len(set([v,Ha(2)]))", Ha)
T("x*hash(v)", Ha)
T("x*(2 if v in [Ha(2)] else 3)", Ha)
T("x*len(dict.fromkeys([v,Ha(2)]))", Ha)
T("x*len(collections.Counter([v,Ha(2)]))", Ha)
T("x*hash((v,))%7", Ha)
T("x*(lambda s:(s.add(v),len(s))[1])({Ha(2)})", Ha)
T("x*len(frozenset([v,Ha(2)]))", Ha)
T("x*len({Ha(2)}|{v})", Ha)
for e in (
    "v+1",
    "1+v",
    "v*2",
    "2*v",
    "-v",
    "abs(v)",
    "round(v)",
    "math.floor(v)",
    "math.ceil(v)",
    "math.trunc(v)",
    "divmod(v,1)[0]",
    "v**2",
    "~v",
    "v@1",
    "v&1",
    "v<<1",
    "v-1",
    "1-v",
    "v/1",
    "sum([v])",
    "sum([1,v])",
    "operator.add(v,1)",
    "operator.neg(v)",
    "functools.reduce(operator.add,[1,v])",
    "list(map(operator.neg,[v]))[0]",
    "sum([v],5)",
    "round(v,1)",
    "pow(v,2)",
    "int(v)",
    "operator.mul(v,2)",
    "list(itertools.accumulate([1,v]))[-1]",
    "math.prod([1,v])",
):
    T("x*(%s)" % e, Ar)
T("x*v", Ar)
T("v*x", Ar)
T("x+v", Ar)
T("torch.add(x,v)", TF)
T("x*v", TF)
T("x*v.zz", GA)
T("x*getattr(v,'zz')", GA)
T("x*operator.attrgetter('zz')(v)", GA)
T("x*v.zz", GAt)
T("x*v.d", HasD)
T("x*v.p", HasD)
T("x*v.cm()*v.n", HasD)
T("x*HasD[v]", lambda n: n)
T("x*operator.attrgetter('p')(v)", HasD)
T("x*getattr(v,'d')", HasD)
T("x*(2 if hasattr(v,'p') else 3)*v.p", HasD)
T("x*len(f'{v.p}')", HasD, 2, 33)
T("x*max([v],key=lambda q:q.p).n", HasD)
T("x*list(map(operator.attrgetter('p'),[v]))[0]", HasD)
T("x*sorted([v,HasD(9)],key=operator.attrgetter('p'))[0].n", HasD)
T("x*copy.copy(v)", Cp)
T("x*copy.deepcopy(v)", Cp)
T("x*copy.copy(v)", Rd)
T("x*copy.deepcopy([v])[0]", Cp)
T("x*bytes(v)[0]", By)
T("x*next(reversed(v))", Rev)
T("x*list(reversed(v))[0]", Rev)
T("x*next(v)", Nx)
T("x*list(itertools.islice(v,2))[0]", Nx)
T("x*next(iter(v))", Nx)
T("x*list(zip(v,[1,2]))[0][0]", Nx)
T("x*operator.length_hint(v)", LenHint)
T("x*len(dir(v))", Dir)
T("x*(2 if isinstance(2,v) else 3)", MC)
T("x*(2 if issubclass(int,v) else 3)", MC)
T("x*len(v)", MC)
T("x*list(v)[0]", MC)
T("x*(2 if 2 in v else 3)", MC)
T("x*v[0]", MC)
T("x*v()", MC)
T("x*(2 if isinstance(2,(str,v)) else 3)", MC)
T("x*v['q']", dm)
T("x*operator.getitem(v,'q')", dm)
T("x*operator.itemgetter('q')(v)", dm)
T("x*float(v)", decimal.Decimal)
T("x*float(v+1)", decimal.Decimal)
T("x*float(v*2)", fractions.Fraction)
T("x*v.numerator", fractions.Fraction)
T("x*int(v)", fractions.Fraction)
T("x*(2 if v==2 else 3)", fractions.Fraction)
T("x*float(sum([v,v]))", fractions.Fraction)
T("x*sum(v)", lambda n: Li([n]))
T("x*v[0]", lambda n: Li([n]))
T("x*(2 if v==[2] else 3)", lambda n: Li([n]))
T("x*max(v)", lambda n: Li([n]))
T("x*(lambda *a:a[0])(*v)", lambda n: Li([n]))


@pytest.mark.parametrize("function, kind, first, second", CASES)
@both_regions
def test_what_special_methods_read_is_guarded(function, kind, first, second, ended):
    cfg, compiled, program = reader(function, ended)
    x = torch.arange(6.0).reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (first, first, second, first, second, first):
            cfg.value = kind(n)
            want = outcome(program, x)
            cfg.value = kind(n)
            assert equal(outcome(compiled, x), want), n
        if not hasattr(cfg.value, "n") or isinstance(cfg.value, type):
            return
        cfg.value.n = second
        got = outcome(compiled, x)
        cfg.value = kind(second)
        assert equal(got, outcome(program, x))


def own_methods(kind):
    """Those of a class made for this table, by name."""
    if not isinstance(kind, type) or kind.__module__ != __name__:
        return {}
    return {name: m for name, m in vars(kind).items() if isinstance(m, types.FunctionType) and name != "__init__"}


@pytest.mark.parametrize("function, kind, first, second", [case for case in CASES if own_methods(case.values[1])])
@both_regions
def test_which_special_method_it_is_is_guarded(function, kind, first, second, ended):
    """The class gets another one, which answers as for the other state."""
    cfg, compiled, program = reader(function, ended)
    x = torch.arange(6.0).reshape(2, 3)

    def same():
        cfg.value = kind(first)
        want = outcome(program, x)
        cfg.value = kind(first)
        assert equal(outcome(compiled, x), want)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same()
        same()
        for name, method in own_methods(kind).items():
            setattr(kind, name, lambda self, *args, method=method: method(kind(second), *args))
            try:
                same()
                same()
            finally:
                setattr(kind, name, method)
            same()
