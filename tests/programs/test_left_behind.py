# tests/programs/test_left_behind.py
"""What a program leaves behind, over several calls: its result, and what it wrote to whatever was there before. Rows have what
is there, the body of a function of x, and expressions of what it may have changed."""

from __future__ import annotations

import array
import ast
import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import operator
import os
import sys
import textwrap
import types
import typing
import warnings

import pytest
import torch
from rows import difference

import torchbolt

MODULES = (array, bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, inspect, itertools, operator,
           os, sys, types, typing, warnings, torch)  # fmt: skip
CASES = []


def E(there, body, *state):
    CASES.append(pytest.param(there, body, state, id=f"{len(CASES)} {' '.join(body.split())[:60]}"))


L = "l=[1,2,3]"
for b in (
    "l.append(4)",
    "l.append(x*2)",
    "l.extend([4,5])",
    "l+=[4]",
    "l*=2",
    "l.insert(1,9)",
    "l.insert(0,x*2)",
    "l.pop()",
    "l.pop(0)",
    "l.remove(2) if 2 in l else None",
    "l.reverse()",
    "l.sort()",
    "l.sort(key=lambda v:-v)",
    "l[0]=9",
    "l[-1]=x*3",
    "l[1:2]=[7,8]",
    "l[:]=[]",
    "del l[0]",
    "del l[:1]",
    "l.clear()",
    "l[:]=l[::-1]",
    "l[::2]=[0]*len(l[::2])",
    "l.append(l)",
    "l.append(len(l))",
    "l[0],l[1]=l[1],l[0]",
    "l.extend(l)",
    "l.extend(i for i in range(2))",
    "m=l; m.append(5)",
    "m=l[:]; m.append(5); l[0]=m",
    "l[0]+=1",
    "l[0]=l.pop()",
    "l.append([x*2]); l[-1].append(x*3)",
    "heapq.heappush(l,0)",
    "heapq.heapify(l)",
    "bisect.insort(l,2)",
    "l.__setitem__(0,5)",
    "l.__delitem__(0)",
    "operator.setitem(l,0,8)",
    "operator.iadd(l,[3])",
    "list.append(l,6)",
):
    E(L, "global l\n" + b + "\nreturn x*(len(l)+1)", "l")
D = "d={'a':1,'b':2}"
for b in (
    "d['c']=3",
    "d['a']=x*2",
    "d['a']+=1",
    "del d['a']; d['a']=5",
    "d.pop('a'); d['z']=1; d['a']=d.pop('z')",
    "d.pop('q',None)",
    "d.setdefault('c',[]).append(1)",
    "d.setdefault('a',9)",
    "d.update(c=5)",
    "d.update({'a':x*3})",
    "d.update([('k',1)])",
    "d|={'q':1}",
    "d.clear()",
    "d.popitem(); d['b']=7",
    "k,v=d.popitem(); d[k]=v+1",
    "d['b']=5; d['z']=6; d['a']=7; d.popitem()",
    "d[len(d)]=x*len(d)",
    "d.update(d)",
    "e=d; e['n']=1",
    "d['self']=d",
    "d['l']=d.get('l',[])+[1]",
    "d[(1,2)]=x*2",
    "d[x.shape]=1",
    "d['a']=d['b']=x*4",
    "for k in list(d): d[k]=x*2",
    "d.__setitem__('w',1)",
    "d={**d,'g':2}",
    "dict.update(d,h=1)",
    "d['a'],d['b']=d['b'],d['a']",
    "d.fromkeys('xy'); d['f']=dict.fromkeys('xy')",
):
    E(D, "global d\n" + b + "\nreturn x*(len(d)+1)", "d")
S = "s={1,2,3}"
for b in (
    "s.add(4)",
    "s.discard(2)",
    "s.remove(3); s.add(7)",
    "s.pop(); s.add(1)",
    "s.update([8,9])",
    "s|={5}",
    "s&={1,2}",
    "s-={1}",
    "s^={1,9}",
    "s.clear()",
    "s.difference_update({2})",
    "s.intersection_update({1,2,3})",
    "s.symmetric_difference_update({3,4})",
    "s.add(len(s))",
    "s.add((1,2))",
):
    E(S, "global s\n" + b + "\nreturn x*(len(s)+1)", "sorted(s,key=repr)", "list(s)")
Q = "q=collections.deque([1,2,3],maxlen=5)"
for b in (
    "q.append(4)",
    "q.append(x*2)",
    "q.appendleft(0)",
    "q.pop()",
    "q.popleft()",
    "q.extend([7,8,9])",
    "q.extendleft([7])",
    "q.rotate(1)",
    "q.reverse()",
    "q.clear()",
    "q[0]=9",
    "q.insert(1,5)",
    "q.remove(1) if 1 in q else q.append(1)",
    "q+=[4]",
    "del q[0]; q.append(3)",
):
    E(Q, "global q\n" + b + "\nreturn x*(len(q)+1)", "list(q)", "q.maxlen")
ORDERED = "o=collections.OrderedDict(a=1,b=2)"
for b in (
    "o['c']=1",
    "o.move_to_end('a')",
    "o.move_to_end('b',last=False)",
    "o['n']=x; o.move_to_end('n'); o['a']=1; o.move_to_end('a'); o['a']=x*2",
    "o.popitem(last=False); o['n']=x; o.popitem(last=False)",
    "o['n']=x; o.popitem(last=False); v=o.get('a'); o['v']=v",
    "o['a']=x; o.popitem(last=False)",
    "o.clear()",
    "k,v=o.popitem(last=False); o[k]=v",
    "o['a']=x*2",
    "del o['a']; o['a']=1",
    "o.update(z=1)",
):
    E(ORDERED, b + "\nreturn x*(len(o)+1)", "list(o.items())")
for b in (
    "c['a']+=1",
    "c.update('ab')",
    "c.subtract('a')",
    "c['q']",
    "del c['a']; c['a']=4",
    "c+=collections.Counter('z')",
    "c=c-collections.Counter('a')",
):
    E("c=collections.Counter('aabbb')", "global c\n" + b + "\nreturn x*(sum(c.values())+1)", "dict(c)", "list(c)")
for b in ("dd['a'].append(1)", "dd['a']", "dd['b']=[x*2]", "dd['a'].append(x*3)", "dd[len(dd)].append(dd['a'])"):
    E("dd=collections.defaultdict(list)", b + "\nreturn x*(len(dd)+1)", "dict(dd)")
E(
    "dd=collections.defaultdict(lambda: collections.defaultdict(int))",
    "dd['a']['b']+=1\nreturn x*dd['a']['b']",
    "{k:dict(v) for k,v in dd.items()}",
)
A = "class A:\n    k=1\n    def __init__(s): s.v=1\na=A()"
for b in (
    "a.v=2",
    "a.v+=1",
    "a.w=x*2",
    "del a.v; a.v=9",
    "setattr(a,'z',5)",
    "a.__dict__['y']=6",
    "vars(a)['y']=6",
    "a.__dict__.update(p=1)",
    "object.__setattr__(a,'u',3)",
    "a.k=a.k+1",
    "a.me=a",
    "a.l=getattr(a,'l',[]); a.l.append(x*2)",
    "a.x,a.y=1,x*2",
    "a.f=lambda v:v*2",
    "a.t=(x*2,x*3)",
    "a.n=None",
    "a.b=A(); a.b.v=7",
    "b=copy.copy(a); b.v=50; a.o=b",
    "a.d={'q':a}",
    "delattr(a,'v'); a.v=3",
    "a.v=a",
    "a.h=hash('q') and 1",
    "a.g=a.v; a.v=a.g+1",
):
    E(A, b + "\nreturn x*2", "vars(a)")
for b in ("A.k=2", "A.k+=1", "A.new=5", "setattr(A,'k',8)", "type(a).k=7", "del A.k; A.k=3"):
    E(A + "\nA.k=1", b + "\nreturn x*A.k", "A.k", "getattr(A,'new',None)")
E(
    "class P:\n    def __init__(s): s._v=1\n    @property\n    def v(s): return s._v\n    @v.setter\n    def v(s,n): s._v=n\n    @v.deleter\n    def v(s): s._v=0\np=P()",
    "p.v=p.v+1\nreturn x*p.v",
    "vars(p)",
)
E(
    "class P:\n    def __init__(s): s._v=1\n    @property\n    def v(s): return s._v\n    @v.deleter\n    def v(s): s._v-=1\np=P()",
    "del p.v\nreturn x*p.v",
    "vars(p)",
)
E(
    "class De:\n    def __set__(s,o,v): o.__dict__['h']=v*2\n    def __get__(s,o,t): return o.__dict__.get('h',1)\n    def __delete__(s,o): o.__dict__['h']=0\nclass P:\n    d=De()\np=P()",
    "p.d=p.d+1\nreturn x*p.d",
    "vars(p)",
)
E(
    "class De:\n    def __set__(s,o,v): o.__dict__['h']=v*2\n    def __get__(s,o,t): return o.__dict__.get('h',1)\n    def __delete__(s,o): o.__dict__['h']=0\nclass P:\n    d=De()\np=P()",
    "del p.d\nreturn x*(p.d+2)",
    "vars(p)",
)
E("class Sl:\n    __slots__=('a','b')\ns=Sl(); s.a=1", "s.a+=1\nreturn x*s.a", "s.a")
E("class Sl:\n    __slots__=('a','b')\ns=Sl(); s.a=1", "s.b=x*2\nreturn x*s.a", "s.b")
E("class Sl:\n    __slots__=('a','b')\ns=Sl(); s.a=1", "del s.a\ns.a=4\nreturn x*s.a", "s.a")
E(
    "class Sl:\n    __slots__=('a','b')\ns=Sl(); s.a=1",
    "if hasattr(s,'b'): del s.b\nelse: s.b=2\nreturn x*s.a",
    "hasattr(s,'b')",
)
E(
    "class G:\n    def __init__(s): s.d={}\n    def __setitem__(s,k,v): s.d[k]=v\n    def __getitem__(s,k): return s.d[k]\n    def __delitem__(s,k): del s.d[k]\ng=G()",
    "g['a']=x*2\ng[len(g.d)]=1\nreturn g['a']",
    "g.d",
)
E("class G:\n    def __setattr__(s,k,v): object.__setattr__(s,k+'_',v)\ng=G()", "g.a=x*2\nreturn g.a_", "vars(g)")
E(
    "class G:\n    def __init__(s): s.n=0\n    def __iadd__(s,o): s.n+=o; return s\ng=G()",
    "global g\ng+=2\nreturn x*g.n",
    "g.n",
)
E("class G:\n    def __init__(s): s.n=0\n    def __call__(s,v): s.n+=1; return v*s.n\ng=G()", "return g(x)+g(x)", "g.n")
E(
    "class G:\n    def __init__(s): s.n=[]\n    def __enter__(s): s.n.append('in'); return s\n    def __exit__(s,*a): s.n.append(a[0]); return True\ng=G()",
    "with g:\n    raise ValueError\nreturn x*len(g.n)",
    "g.n",
)
E("class G:\n    def __del__(s): log.append(1)\nlog=[]", "g=G()\ndel g\nreturn x*2", "log")
E(
    "@dataclasses.dataclass\nclass D:\n    a:int=1\n    b:list=dataclasses.field(default_factory=list)\nd=D()",
    "d.a+=1\nd.b.append(x*2)\nreturn x*d.a",
    "d.a",
    "d.b",
)
E(
    "@dataclasses.dataclass(frozen=True)\nclass D:\n    a:int=1\nd=D()",
    "object.__setattr__(d,'a',d.a+1)\nreturn x*d.a",
    "d.a",
)
E("n=0", "global n\nn+=1\nreturn x*n", "n")
E("n=0", "global n,m\nn=x*2\nm=[n]\nreturn n", "n", "m[0] is n")
E("n=0", "global n\ndel n\nn=3\nreturn x*n", "n")
E(
    "def make():\n    n=0\n    def inc(x):\n        nonlocal n\n        n+=1\n        return x*n\n    return inc\ninc=make()",
    "return inc(x)+inc(x)",
    "inc.__closure__[0].cell_contents",
)
E(
    "def make():\n    l=[]\n    def add(x):\n        l.append(x*2)\n        return l[-1]\n    return add\nadd=make()",
    "return add(x)",
    "len(add.__closure__[0].cell_contents)",
)
E("def f(): pass\nf.n=0", "f.n+=1\nreturn x*f.n", "f.n")
E("def f(v,acc=[]):\n    acc.append(v)\n    return acc", "return x*len(f(1))", "f.__defaults__")
E("m=types.ModuleType('m'); m.n=0", "m.n+=1\nreturn x*m.n", "m.n")
E("ns=types.SimpleNamespace(n=0)", "ns.n+=1\nns.t=x*2\nreturn x*ns.n", "vars(ns)")
E("import contextvars\nv=contextvars.ContextVar('v',default=0)", "v.set(v.get()+1)\nreturn x*v.get()", "v.get()")
E(
    "import contextvars\nv=contextvars.ContextVar('v',default=0)",
    "t=v.set(5)\nr=x*v.get()\nv.reset(t)\nreturn r",
    "v.get()",
)
E("import threading\nv=threading.local(); v.n=0", "v.n+=1\nreturn x*v.n", "v.n")
E(
    "import os; os.environ.pop('ZZQ',None)",
    "os.environ['ZZQ']=os.environ.get('ZZQ','')+'a'\nreturn x*len(os.environ['ZZQ'])",
    "os.environ['ZZQ']",
)
E("b=bytearray(b'ab')", "b[0]=5\nb.append(1)\nreturn x*len(b)", "bytes(b)")
E("a=array.array('i',[1,2])", "a[0]+=1\na.append(1)\nreturn x*a[0]", "list(a)")
E("g=(i for i in range(100))", "return x*next(g)", "next(g)")
E("it=iter(range(100))", "return x*next(it)", "next(it)")
E("it=itertools.count()", "return x*next(it)", "next(it)")
E("it=itertools.cycle([1,2,3])", "return x*next(it)", "next(it)")
E("def gen():\n    n=0\n    while True:\n        n+=(yield n) or 1\ng=gen(); next(g)", "return x*g.send(3)", "next(g)")
E("l=[3,1,2]", "return x*sorted(l)[0]+sum(map(lambda v: l.append(v) or v, list(l)))", "l")
E("log=[]", "def h(v):\n    log.append(v)\n    return v\nreturn x*h(1)+h(2)*h(3)", "log")
E("log=[]", "def h(v):\n    log.append(v)\n    return v\nreturn x*(h(1) and h(0) or h(5))", "log")
E("log=[]", "def h(v):\n    log.append(v)\n    return v\nr=[h(i) for i in range(3) if h(i)%2]\nreturn x*len(r)", "log")
E(
    "log=[]",
    "try:\n    log.append(1)\n    raise KeyError('q')\nexcept KeyError as e:\n    log.append(str(e))\nfinally:\n    log.append(3)\nreturn x*2",
    "log",
)
E(
    "log=[]",
    "for i in range(3):\n    if i==1: continue\n    log.append(i)\nelse:\n    log.append('else')\nreturn x*2",
    "log",
)
# tensors
for b in (
    "t.add_(1)",
    "t[0]=5",
    "t[1:]*=2",
    "t.zero_()",
    "t.copy_(x)",
    "t+=x",
    "t.data=t.data*2",
    "t.data.add_(1)",
    "t.fill_(x.sum())",
    "t.set_(x*2)",
    "t.resize_(2)",
    "t.requires_grad_()",
    "t.grad=x*2",
    "t.my=t.my+1 if hasattr(t,'my') else 0",
    "t.unsqueeze_(0); t.squeeze_(0)",
    "torch.add(x,1,out=t)",
    "t.index_add_(0,torch.tensor([0,1]),x[:2])",
    "t.masked_fill_(t>0,3)",
    "t.view(-1)[0]=7",
    "t.t_()",
    "t.mul_(2).add_(1)",
    "t[t>0]=9",
    "t[[0,1]]=4",
    "t[...]=1",
    "t.clamp_(min=2)",
    "t.swapaxes_(0,0)",
    "t.detach_()",
):
    E(
        "t=torch.ones(3)",
        "global t\n" + b + "\nreturn x*2+t.detach().reshape(-1)[0]",
        "t",
        "t.shape",
        "t.requires_grad",
        "t.grad",
        "t._version>=0",
        "getattr(t,'my',None)",
    )
for b in ("t2=t; t2.add_(1)", "v.add_(1)", "t.add_(v[0])", "v[0]=t[2]", "t.copy_(v.flip(0))", "w=t[1:]; w.mul_(2)"):
    E("t=torch.ones(3); v=t[:]", b + "\nreturn x*2+t+v", "t", "v", "t.data_ptr()==v.data_ptr()")
NN = "net=torch.nn.Linear(3,3); net.register_buffer('c',torch.zeros(3)); net.n=0"
for b in (
    "net.n+=1",
    "net.c+=1",
    "net.c=net.c+1",
    "net.c.add_(x)",
    "net.eval()",
    "net.train(False)",
    "net.weight.data.mul_(2)",
    "net.bias=None",
    "net.new=torch.nn.Linear(3,3,bias=False)",
    "net.register_buffer('q'+str(net.n),x*2); net.n+=1",
    "net.h=x*2",
    "net.p=torch.nn.Parameter(torch.ones(2))",
    "net.h=1",
    "net.weight.requires_grad_(False)",
    "net.requires_grad_(False)",
    "net.zero_grad()",
    "net.half().float()",
    "net.double(); net.float()",
    "net._buffers['c']=x*2",
    "net.register_forward_hook(lambda m,i,o:o*2) if net.n==0 else None; net.n+=1",
    "with torch.no_grad(): net.weight.add_(1)",
    "with torch.no_grad(): net.weight.copy_(net.weight*2)",
):
    E(
        "torch.manual_seed(0)\n" + NN,
        b + "\nreturn net(x)",
        "net.n",
        "net.c",
        "net.weight",
        "net.bias",
        "net.training",
        "sorted(net.state_dict())",
        "sorted(k for k in vars(net))",
        "net.weight.requires_grad",
    )
# what a region's end must not lose
for b in (
    "for i in range(6):\n    if i > 1: a.append(i)\nreturn x*len(a)",
    "for i in [7, 300, 5, 1000, 2]:\n    if i > 4: a.append(i * 2)\nreturn x*len(a)",
    "for i, v in enumerate([3.5, 1.5, 2.5]):\n    if v > 2: a.append(int(v) + i)\nreturn x*len(a)",
    "n = 0\nwhile n < 5:\n    n += 1\n    a.append(n)\nreturn x*n",
    "for i in range(4):\n    a.append(i)\n    if i is 2: a.append(99)\nreturn x*len(a)",
    "for i in range(4):\n    a.append(min(i, 1 << 70))\nreturn x*len(a)",
):
    E("a=array.array('i')", b, "list(a)")
E("", "a = array.array('i')\ndef g(n):\n    a.append(n)\n    return g(n - 1) if n else x\nreturn g(3)*len(a)")
E("", "def g(n):\n    g.calls = getattr(g, 'calls', 0) + 1\n    return g(n - 1) if n else x\ng(3)\nreturn g, g.calls")
E(
    "def f():\n    try:\n        raise KeyError('a')\n    except Exception:\n        yield 1",
    "g = f()\nnext(g)\ntry:\n    g.throw(ValueError)\nexcept ValueError as e:\n    return x*len(repr(e.__context__))",
)
E(
    "class SL(list):\n    __slots__ = ('h',)\nclass SS(set): pass",
    "l = SL([1])\nl.h = x*2\ns = SS([1])\ns.h = x*3\nreturn l, l.h, s, s.h",
)
E(
    "class W(dict):\n    __setattr__ = dict.__setitem__\n    __getattr__ = dict.__getitem__\nw = W()",
    "w.y = x*2\nreturn w.y",
    "dict(w)",
)
E(
    "a=array.array('i')\nclass L:\n    pass\nl = L()\nl.items = [1]",
    "l.items.append(2)\nl.items.append(3)\nr = []\nfor i in l.items:\n    if i == 2: a.append(i)\n    r.append(i)\ndel l.items[1:]\nreturn x*len(r), r",
    "l.items",
    "list(a)",
)
E(
    "class De:\n    def __set__(s, o, v): o.__dict__['d'] = v\nclass P:\n    d = De()\np = P()",
    "before = type(p.d).__name__\np.d = x*2\nreturn before, p.d",
    "sorted(vars(p))",
)
E("class C: pass", "try:\n    object.__setattr__(C, 'q', 1)\nexcept TypeError:\n    return x", "vars(C).get('q')")
E("class Int(int): pass", "i = Int(3)\ni.pair = x*2\nreturn [Int(v) for v in range(3)], i.pair")
E(
    "class R:\n    def __repr__(s): return str(s)\nR.__str__ = R.__repr__",
    "try:\n    return repr(R())\nexcept RecursionError:\n    return x",
)
E("p=functools.partial(print)\np.__setstate__((p, (), {}, {}))", "return x * len(repr(p))")
E(
    "",
    "def one():\n    yield 0\n    yield from two()\ndef two():\n    yield 1\ng = one()\nl = list(g)\na = array.array('i', l)\nreturn x*len(l), list(g)",
)
E("async def co(v): return v", "c = co(3)\ntry:\n    c.send(None)\nexcept StopIteration as e:\n    return x*e.value")
E(
    "class L:\n    @functools.cached_property\n    def c(s):\n        return 2 if x0.sum() > 0 else 3\nx0=torch.ones(2)",
    "l = L()\nreturn x*l.c + l.c",
)
E(
    "",
    "m = types.ModuleType.__new__(types.ModuleType)\nis_empty = not m.__dict__\nm.n = 2\nreturn x*m.n, is_empty, list(m.__dict__)",
)
R = "class R:\n    def __init__(s): s.items, s.read = [1, 2, 3], []\n    def __len__(s): return len(s.items)\n    def __getitem__(s, i): s.read.append(i); return s.items[i]\nr = R()"
E(R, "o = []\nfor i in reversed(r):\n    r.items[0] = 7\n    o.append(i)\nreturn x*len(o), o", "r.items", "r.read")
E(R, "for i in reversed(r):\n    if i == 2: break\nreturn x*i", "r.read")
E(R, "return [x*i for i in reversed(r)], [r.items.pop() and i for i in reversed(r)]", "r.items", "r.read")
E(
    "l=[]",
    "def g(a: int | None = 3, *, b: list['T'] = ()) -> str:\n    'what it says'\n@functools.wraps(g)\ndef h(*a): return a\nl[:] = [g, h]\nreturn x*2",
    "[(f.__name__, f.__doc__, f.__module__, f.__annotations__, f.__kwdefaults__) for f in l]",
)
E(
    "l=[]\nclass M(type):\n    def __getattribute__(c, n):\n        l.append(n)\n        return super().__getattribute__(n)\nclass C(metaclass=M):\n    k = 2\n    def m(s): return 3",
    "return x*C.k*C().m(), C.__name__, hasattr(C, 'nothing')",
    "[n for n in l if n in ('k', 'm', '__name__', 'nothing')]",
)
# outputs
for e in (
    "[x*2]*2",
    "(x*2,)*3",
    "{'a':x*2,'b':[x]}",
    "(lambda l:(l,l))([x*2])",
    "(lambda l:(l.append(l),l)[1])([x])",
    "(x,x)",
    "(x.view(-1),x)",
    "(x[1:],x[:1])",
    "(x.t(),x)",
    "x.detach()",
    "x.data",
    "x.unsqueeze(0).expand(2,3)",
    "(lambda y:(y,y[0],y.view(3,1)))(x*2)",
    "collections.OrderedDict(a=x*2)",
    "NT(x*2,1)",
    "types.SimpleNamespace(a=x*2)",
    "collections.deque([x*2],maxlen=3)",
    "collections.Counter('aab')",
    "collections.defaultdict(list,{'a':[x]})",
    "{1,2}",
    "frozenset([1])",
    "slice(1,2)",
    "range(3)",
    "iter([x*2])",
    "lambda v:v+x",
    "functools.partial(torch.add,x*2)",
    "x.shape",
    "x.dtype",
    "x.device",
    "x.size()",
    "torch.max(x,0)",
    "x.max(0).indices",
    "torch.return_types.max((x,x))",
    "float(3)",
    "1+2j",
    "None",
    "...",
    "NotImplemented",
    "ValueError('a',x*2)",
    "type(x)",
    "torch.relu",
    "[].append",
    "'a%d'%3",
    "b'abc'",
    "bytearray(b'a')",
    "array.array('i',[1])",
    "memoryview(b'a')",
    "A(x*2)",
    "A(A(x))",
    "(lambda a:(a,a.v,a))(A(x*2))",
    "E.a",
    "D(x*2)",
    "D(1,D(2))",
    "dict(a=1).items()",
    "dict(a=x).values()",
    "[x,*[x*2]]",
    "{**{'a':x}}",
    "map(len,['ab'])",
    "zip([1],[2])",
    "enumerate([1])",
    "reversed([1,2])",
    "x.numpy()",
    "torch.Size([1,2])",
    "torch.device('cpu')",
    "torch.Generator()",
    "torch.nn.Linear(2,2)",
    "torch.nn.Parameter(x*2)",
    "torch.nn.ParameterList([x*2])",
    "torch.nn.ModuleList([torch.nn.ReLU()])",
    "x.storage_offset()",
    "x*2 if True else 0",
    "(x*2).tolist()",
    "x.sum().item()",
    "property(len)",
    "staticmethod(len)",
    "classmethod(len)",
    "super(B,B()).f",
    "B().f",
    "B.f",
    "B",
    "types.MethodType(lambda s:1,x)",
    "typing.List[int]",
    "list[int]",
    "int|str",
    "re.compile('a')",
    "weakref.ref(K)",
    "copy.copy(A(x*2)).v",
    "copy.deepcopy([x*2])",
    "x.new_zeros(2)",
    "x.clone()",
    "torch.empty_like(x).fill_(1)",
    "UD(a=x*2)",
    "UL([x*2])",
    "datetime.timedelta(2)",
    "decimal.Decimal(2)",
    "fractions.Fraction(1,2)",
    "pathlib.Path('a')",
    "uuid.UUID(int=3)",
    "string.Template('$a')",
    "logging.getLogger('q')",
    "itertools.count(3)",
    "operator.itemgetter(1)",
    "threading.Lock()",
    "io.StringIO('a')",
    "contextlib.nullcontext(x)",
    "contextlib.ExitStack()",
    "sys.version_info",
    "collections.ChainMap({'a':x})",
    "types.MappingProxyType({'a':1})",
    "object.__new__(A)",
    "Exception()",
    "StopIteration(3)",
    "SubL([x*2])",
    "SubD(a=x*2)",
    "SubT((x,1))",
    "SubS('abc')",
    "SubI(3)",
    "SubTen",
):
    E(
        "import re,weakref,datetime,decimal,fractions,pathlib,uuid,string,logging,threading,io\nclass K: pass\nclass A:\n    def __init__(s,v): s.v=v\nclass B:\n    def f(s): return 1\nclass E(enum.Enum):\n    a=1\n@dataclasses.dataclass\nclass D:\n    a:object=None\n    b:object=None\nclass NT(typing.NamedTuple):\n    a:object\n    b:object\nclass UD(collections.UserDict): pass\nclass UL(collections.UserList): pass\nclass SubL(list): pass\nclass SubD(dict): pass\nclass SubT(tuple): pass\nclass SubS(str): pass\nclass SubI(int): pass\nclass ST(torch.Tensor): pass\nSubTen=torch.ones(2).as_subclass(ST)",
        "return " + e,
    )


def world_of(there, body, ended, classes):
    """A module's dict with the program in it. Classes and imports are made once, in `classes`."""
    once, anew = [], []
    for statement in ast.parse(there).body:
        (once if isinstance(statement, ast.ClassDef | ast.Import | ast.ImportFrom) else anew).append(statement)
    if not classes:
        classes.update({m.__name__: m for m in MODULES} | {"__name__": __name__})
        exec(compile(ast.Module(once, []), "<row>", "exec"), classes)
    space = classes
    exec(compile(ast.Module(anew, []), "<row>", "exec"), space)
    end = "    if x.sum() < -1e9:\n        return x\n" if ended else ""
    exec(compile(f"def program(x):\n{end}{textwrap.indent(body, '    ')}", "<row>", "exec"), space)
    return space


def left_behind(program, space, state, call):
    """[result, argument afterwards, what state says], as they are now."""
    x = torch.arange(3.0) + call
    try:
        result = program(x)
    except torchbolt.exc.TorchboltError:
        raise
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    seen = []
    for expression in state:
        try:
            seen.append(eval(expression, space))
        except Exception as error:
            seen.append(repr(error))
    try:
        return copy.deepcopy([result, x, seen])
    except Exception:  # not everything can be copied
        return [result, x, [str(each) for each in seen]]


@pytest.mark.parametrize("there, body, state", CASES)
@pytest.mark.parametrize("ended", [False, True], ids=["whole", "after an end"])
def test_what_is_left_behind(there, body, state, ended):
    torchbolt.reset()
    classes, found = {}, []
    for wrap in (lambda program: program, torchbolt.compile):
        torch.manual_seed(0)
        space = world_of(there, body, ended, classes)
        program = wrap(space["program"])
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            found.append([left_behind(program, space, state, call) for call in range(4)])
    for call, (want, got) in enumerate(zip(*found, strict=True)):
        assert not difference(got, want), f"call {call}: {difference(got, want)}"
    assert torchbolt.stats()["eager_fallbacks"] == 0
