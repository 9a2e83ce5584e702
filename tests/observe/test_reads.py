# tests/observe/test_reads.py
"""Whatever a program reads is guarded: each row has what is there, an expression that reads it, and changes after each of
which the compiled program must say what eager says. Where a read cannot be guarded the region ends before it."""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import functools
import heapq
import inspect
import itertools
import operator
import os
import random
import sys
import textwrap
import types
import warnings

import pytest
import torch
from states import both_regions, outcome

import torchbolt

MODULES = (torch, sys, os, types, operator, inspect, functools, itertools, collections, contextlib, copy, heapq, bisect,
           warnings)  # fmt: skip
CASES = []


def C(there, reads, *changes):
    """`there`: statements; `reads`: an expression of x, or the body of a function; `changes`: statements."""
    CASES.append(pytest.param(there, reads, changes, id=f"{len(CASES)} {reads.splitlines()[0]}"))


# ---- classes
A = "class A:\n    k = 2\nclass B(A):\n    pass\nb = B()"
for e in (
    "b.k",
    "getattr(b,'k')",
    "B.k",
    "type(b).k",
    "getattr(b,'k',5)",
    "vars(A)['k']",
    "A.__dict__['k']",
    "operator.attrgetter('k')(b)",
    "super(B,b).k",
    "b.__class__.k",
    "inspect.getattr_static(b,'k')",
    "dict(inspect.getmembers(A))['k']",
):
    C(
        A,
        "x*" + e,
        "A.k=3",
        "B.k=4",
        "b.k=5",
        "del b.k",
        "del B.k",
        "B.__bases__=(type('Z',(),{'k':7}),)",
        "b.__class__=type('Y',(),{'k':8})",
        "A=type('A',(),{'k':9}); B=type('B',(A,),{}); b=B()",
    )
for e in (
    "hasattr(b,'z')",
    "getattr(b,'z',None) is None",
    "'z' in dir(b)",
    "'z' in vars(b)",
    "'z' in b.__dict__",
    "b.__dict__.get('z') is None",
):
    C(
        A,
        f"x*(2 if {e} else 3)",
        "b.z=1",
        "del b.z",
        "B.z=1",
        "del B.z",
        "A.z=1",
        "del A.z",
        "B.__getattr__=lambda s,n:1",
        "del B.__getattr__",
        "B.__getattribute__=lambda s,n:1 if n=='z' else object.__getattribute__(s,n)",
        "del B.__getattribute__",
    )
for e in ("try_(lambda: b.z)",):
    C(
        A + "\ndef try_(f):\n    try:\n        return f()\n    except AttributeError:\n        return 7",
        "x*" + e,
        "b.z=1",
        "del b.z",
        "B.z=2",
        "del B.z",
        "A.z=3",
        "del A.z",
        "B.__getattr__=lambda s,n:4",
    )
M = "class Meta(type):\n    k = 2\nclass A(metaclass=Meta):\n    pass\n"
C(
    M,
    "x*A.k",
    "Meta.k=3",
    "A.k=4",
    "del A.k",
    "Meta.k=property(lambda c: 6)",
    "Meta.__getattr__=lambda c,n:1",
    "del Meta.k",
)
C(
    M,
    "x*(2 if hasattr(A,'zz') else 3)",
    "Meta.zz=3",
    "del Meta.zz",
    "A.zz=4",
    "del A.zz",
    "Meta.__getattr__=lambda c,n:1",
)
F = "class A:\n    def f(s): return 2\n    @staticmethod\n    def st(): return 2\n    @classmethod\n    def cl(c): return c.kk\n    kk=2\n    @property\n    def p(s): return s.kk\nclass B(A): pass\na=B()"
C(
    F,
    "x*a.f()",
    "A.f=lambda s:3",
    "B.f=lambda s:4",
    "a.f=lambda:5",
    "del a.f",
    "del B.f",
    "A.f.__code__=(lambda s:9).__code__",
)
C(F, "x*A.f(a)", "A.f=lambda s:3", "A.f.__code__=(lambda s:9).__code__")
C(
    F,
    "x*a.st()",
    "A.st=staticmethod(lambda:3)",
    "B.st=staticmethod(lambda:4)",
    "a.st=lambda:5",
    "a.st.__code__=(lambda:11).__code__",
)
C(F, "x*a.cl()", "A.kk=3", "B.kk=4", "A.cl=classmethod(lambda c:5)", "B.cl=classmethod(lambda c:6)")
C(
    F,
    "x*a.p",
    "A.kk=3",
    "B.kk=4",
    "a.kk=8",
    "B.p=property(lambda s:5)",
    "A.p=3",
    "B.p=10",
    "del B.p",
    "a.__dict__['p']=12",
)
D = "def f(v=2,*,w=3): return v+10*w\ndef g(): return f()"
C(
    D,
    "x*f()",
    "f.__defaults__=(3,)",
    "f.__kwdefaults__={'w':4}",
    "f.__kwdefaults__['w']=5",
    "f.__code__=(lambda v=2,*,w=3:v).__code__",
    "f=lambda:99",
)
C(
    D,
    "x*g()",
    "f.__defaults__=(3,)",
    "f.__kwdefaults__={'w':4}",
    "f.__kwdefaults__['w']=5",
    "f.__code__=(lambda v=2,*,w=3:v).__code__",
    "f=lambda:99",
)
C(D, "x*functools.partial(f,w=5)()", "f.__defaults__=(3,)", "f.__code__=(lambda v=2,*,w=3:v).__code__")
C("def f(v,acc=[1]): return v+sum(acc)", "x*f(2)", "f.__defaults__[0].append(3)", "f.__defaults__[0].clear()")
C("def f(): return 1\nf.a=2", "x*f.a", "f.a=3", "f.__dict__['a']=4", "f.__dict__={'a':5}")
for n, v in (("__name__", "'abcd'"), ("__doc__", "'abcdef'"), ("__qualname__", "'ab.cd'"), ("__module__", "'m'")):
    C("def f(): 'doc'\nclass K: 'docs'", f"x*len(f.{n})", f"f.{n}={v}")
    C("def f(): 'doc'\nclass K: 'docs'", f"x*len(K.{n})", f"K.{n}={v}")
    C("def f(): 'doc'\nclass K: 'docs'\nk=K()", f"x*len(type(k).{n})", f"K.{n}={v}")
C("def f(a:int): pass", "x*len(f.__annotations__)", "f.__annotations__['b']=1", "f.__annotations__={}")
C("class K:\n    a:int=2", "x*len(K.__annotations__)", "K.__annotations__['b']=1")
C("import typing\ndef f(a:int): pass", "x*len(typing.get_type_hints(f))", "f.__annotations__['b']=int")
C(
    "def f(a,b=2): pass",
    "x*len(inspect.signature(f).parameters)",
    "f.__code__=(lambda a:1).__code__",
    "f.__signature__=inspect.signature(lambda a,b,c,d:1)",
)
C("def f(a,b=2): pass", "x*inspect.signature(f).parameters['b'].default", "f.__defaults__=(5,)")
C(
    "def make():\n    n=2\n    def get(): return n\n    def put(v):\n        nonlocal n\n        n=v\n    return get,put\nget,put=make()",
    "x*get()",
    "put(3)",
    "get.__closure__[0].cell_contents=4",
)
C(
    "def make():\n    n=2\n    def get(): return n\n    def put(v):\n        nonlocal n\n        n=v\n    return get,put\nget,put=make()",
    "x*get.__closure__[0].cell_contents",
    "put(3)",
    "get.__closure__[0].cell_contents=4",
)
C(
    "def f(v,w=1): return v*w\np=functools.partial(f,2)",
    "x*p()",
    "p.__setstate__((f,(3,),{},None))",
    "p.keywords['w']=4",
    "p.__setstate__((f,(3,),{'w':9},{}))",
)
C(
    "def f(v,w=1): return v*w\np=functools.partial(f,2)",
    "x*p.args[0]*p.func(1)*p.keywords.get('w',1)",
    "p.__setstate__((f,(3,),{},None))",
    "p.keywords['w']=4",
)
C("k=2\n@functools.lru_cache\ndef f(): return k", "x*f.__wrapped__()", "k=3")
C(
    "@functools.singledispatch\ndef f(v): return 2",
    "x*f(1)",
    "f.register(int)(lambda v:3)",
    "f.register(object)(lambda v:5)",
)
C("import abc\nclass A(abc.ABC): pass\nclass B: pass\nb=B()", "x*(2 if isinstance(b,A) else 3)", "A.register(B)")
C("import abc\nclass A(abc.ABC): pass\nclass B: pass\nb=B()", "x*(2 if issubclass(B,A) else 3)", "A.register(B)")
C("class A: pass", "x*(1+len(A.__subclasses__()))", "B=type('B',(A,),{})")
C("class A: pass\nclass B(A): pass", "x*len(B.__mro__)", "B.__bases__=(type('Z',(),{}),type('Y',(),{}))")
C("class A: pass\nclass B(A): pass", "x*len(B.mro())", "B.__bases__=(type('Z',(),{}),type('Y',(),{}))")
C("class A: pass\nclass B(A): pass\nb=B()", "x*(2 if isinstance(b,A) else 3)", "B.__bases__=(type('Z',(),{}),)")
C("class A: pass\nclass B: pass\nb=B()", "x*(2 if isinstance(b,A) else 3)", "b.__class__=A")
C("class S:\n    __slots__=('k','z')\ns=S(); s.k=2", "x*s.k", "s.k=3")
C("class S:\n    __slots__=('k','z')\ns=S(); s.k=2", "x*(2 if hasattr(s,'z') else 3)", "s.z=1", "del s.z")
C(
    "class S:\n    __slots__=('k','z')\ns=S(); s.k=2",
    "x*getattr(s,'z',4)",
    "s.z=1",
    "del s.z",
    "S.z=property(lambda s:8)",
)
C("import enum\nclass E(enum.Enum):\n    a=2\n    b=3\ne=E.a", "x*e.value", "e=E.b")
C("import enum\nclass E(enum.IntEnum):\n    a=2\n    b=3\ne=E.a", "x*e", "e=E.b")
C(
    "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a:int=2\n    b:int=3\nd=D()",
    "x*sum(getattr(d,f.name) for f in dataclasses.fields(d))",
    "d.a=5",
    "del D.__dataclass_fields__['b']",
)
C(
    "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a:int=2\n    b:int=3\nd=D()",
    "x*sum(dataclasses.asdict(d).values())",
    "d.a=5",
)
C(
    "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a:int=2\n    b:int=3\nd=D()",
    "x*dataclasses.replace(d,a=7).b",
    "d.b=5",
)
C(
    "import collections\nP=collections.namedtuple('P','a b')\np=P(2,3)",
    "x*p.a*len(p._fields)",
    "p=P(3,3)",
    "P._fields=('a','b','c')",
)
# modules
MO = "import types as _t\nm=_t.ModuleType('mm'); m.k=2\nsys.modules['mm']=m"
C(MO, "x*m.k", "m.k=3", "m.__dict__['k']=4", "del m.k; m.__getattr__=lambda n:7", "m=_t.ModuleType('mm'); m.k=8")
C(MO, "x*(2 if hasattr(m,'z') else 3)", "m.z=1", "del m.z", "m.__getattr__=lambda n:7")
C(MO, "import mm\nreturn x*mm.k", "m.k=3", "sys.modules['mm']=_t.SimpleNamespace(k=9)")
C(MO, "from mm import k\nreturn x*k", "m.k=3", "sys.modules['mm']=_t.SimpleNamespace(k=9)")
C(
    MO,
    "import importlib\nreturn x*importlib.import_module('mm').k",
    "m.k=3",
    "sys.modules['mm']=_t.SimpleNamespace(k=9)",
)
C(MO, "return x*__import__('mm').k", "m.k=3", "sys.modules['mm']=_t.SimpleNamespace(k=9)")
C(MO, "return x*sys.modules['mm'].k", "m.k=3", "sys.modules['mm']=_t.SimpleNamespace(k=9)")
C("", "x*len('abc')", "len=lambda v:9", "del len")
C("import builtins", "x*zork if 'zork' in globals() else x*2", "zork=5", "del zork")
C(
    "import builtins",
    "try:\n    return x*zork\nexcept NameError:\n    return x*7",
    "builtins.zork=5",
    "zork=6",
    "del zork",
    "del builtins.zork",
)
C("import builtins", "x*len('abc')", "builtins.len,old=(lambda v:9),builtins.len", "builtins.len=old")
C("k=2", "x*globals()['k']", "k=3")
C("k=2", "x*(2 if 'kk' in globals() else 3)", "kk=3", "del kk")
C("k=2", "x*globals().get('kk',4)", "kk=3", "del kk")
C("k=2", "x*len(globals())/100", "kk=3", "del kk")
C("k=2", "x*eval('k')", "k=3")
C("k=2\nns={}", "exec('q=k*2',globals(),ns)\nreturn x*ns['q']", "k=3")
C("import os", "x*int(os.environ.get('ZORK','2'))", "os.environ['ZORK']='3'", "del os.environ['ZORK']")
C("import os", "x*int(os.getenv('ZORK','2'))", "os.environ['ZORK']='3'", "del os.environ['ZORK']")
C("import os", "x*(2 if 'ZORK' in os.environ else 3)", "os.environ['ZORK']='3'", "del os.environ['ZORK']")
C("import contextvars\nv=contextvars.ContextVar('v',default=2)", "x*v.get()", "v.set(3)", "v.set(5)")
C("import threading\nl=threading.local(); l.k=2", "x*l.k", "l.k=3")
C("import threading\nl=threading.local(); l.k=2", "x*getattr(l,'z',4)", "l.z=3")
C("import weakref\nclass O: k=2\no=O(); r=weakref.ref(o)", "x*(2 if r() is None else 3)", "o=None")
C("import weakref\nclass O:\n    def __init__(s,k): s.k=k\no=O(2); r=weakref.ref(o)", "x*r().k", "o.k=5")
C(
    "import weakref\nclass O: pass\no=O(); w=weakref.WeakKeyDictionary({o:2})",
    "x*(w[o] if o in w else 9)*(1+len(w))",
    "w[o]=3",
    "del w[o]",
)
C("import weakref\nclass O: pass\no=O(); w=weakref.WeakSet([o])", "x*(1+len(w))", "o=None")
C("import weakref\nclass O: pass\no=O(); w=weakref.WeakValueDictionary(a=o)", "x*(2 if 'a' in w else 3)", "o=None")
C("import weakref\nclass O: k=2\no=O(); r=weakref.proxy(o)", "x*r.k", "o.k=3")
C(
    "import logging\nlog=logging.getLogger('zork'); log.setLevel(0); log.disabled=False",
    "x*(2 if log.isEnabledFor(logging.INFO) else 3)",
    "log.setLevel(logging.INFO)",
    "log.setLevel(logging.ERROR)",
    "log.disabled=True",
    "log.disabled=False",
    "log.setLevel(logging.INFO)",
    "logging.disable(logging.CRITICAL)",
    "logging.disable(0)",
)
C(
    "import logging\nlog=logging.getLogger('zork2'); log.setLevel(0)",
    "x*(1+log.getEffectiveLevel())",
    "log.setLevel(logging.INFO)",
    "log.setLevel(0)",
    "logging.root.setLevel(17)",
    "logging.root.setLevel(30)",
)
C("import decimal", "x*float(decimal.Decimal(1)/3)*1e9", "decimal.getcontext().prec=4", "decimal.getcontext().prec=28")
C("import decimal", "x*decimal.getcontext().prec", "decimal.getcontext().prec=4", "decimal.getcontext().prec=28")
C(
    "",
    "x*sys.getrecursionlimit()",
    "sys.setrecursionlimit(sys.getrecursionlimit()+7)",
    "sys.setrecursionlimit(sys.getrecursionlimit()-7)",
)
C("", "x*len(sys.argv)", "sys.argv.append('a')", "sys.argv.pop()")
C("", "x*len(sys.path)", "sys.path.append('a')", "sys.path.pop()")
C("import gc", "x*(2 if gc.isenabled() else 3)", "gc.disable()", "gc.enable()")
C(
    "import threading",
    "x*len(threading.current_thread().name)",
    "threading.current_thread().name='abc'",
    "threading.current_thread().name='MainThread'",
)
C("import os; old=os.getcwd()", "x*len(os.getcwd())", "os.chdir('/')", "os.chdir(old)")
C(
    "import os",
    "x*(2 if os.path.exists(f'{folder}/q') else 3)",
    "open(f'{folder}/q','w').close()",
    "os.remove(f'{folder}/q')",
)
C(
    "open(f'{folder}/r','w').write('22')",
    "x*len(open(f'{folder}/r').read())",
    "_f=open(f'{folder}/r','w'); _f.write('333'); _f.close()",
)
C(
    "import pathlib\nopen(f'{folder}/r','w').write('22')",
    "x*len(pathlib.Path(f'{folder}/r').read_text())",
    "_f=open(f'{folder}/r','w'); _f.write('333'); _f.close()",
)
C(
    "import warnings",
    "x*(1+len(warnings.filters))",
    "warnings.filters.append(('ignore',None,Warning,None,0))",
    "warnings.filters.pop()",
)
C("import random", "x*random.randint(1,1000)", "random.seed(3)", "random.seed(4)")
# containers
C("b=bytearray(b'ab')", "x*b[0]", "b[0]=5", "b.append(1)")
C("b=bytearray(b'ab')", "x*len(b)", "b.append(1)")
C("b=bytearray(b'ab')\nm=memoryview(b)", "x*m[0]", "b[0]=5")
C("b=bytearray(b'ab')", "x*sum(b)", "b[0]=5")
C("b=bytearray(b'ab')", "x*int.from_bytes(b,'little')", "b[0]=5")
C("b=bytearray(b'ab')", "x*len(bytes(b).decode())", "b.append(97)")
C("import struct\nb=bytearray(b'abcd')", "x*struct.unpack('I',b)[0]", "b[0]=5")
C("d=collections.deque([2,3,4])", "x*d[0]", "d.rotate(1)", "d[0]=9", "d.appendleft(3)")
C("d=collections.deque([2,3,4])", "x*d[-1]*len(d)", "d.append(7)", "d.pop()")
C("d=collections.OrderedDict(a=2,b=3)", "x*next(iter(d.values()))", "d.move_to_end('a')", "d['b']=4")
C("d=collections.defaultdict(lambda:2)", "x*d.get('q',4)", "d['q']=5")
C("d=collections.defaultdict(lambda:2); d['a']=3", "x*d['a']", "d['a']=5")
C("d=collections.Counter('aab')", "x*d['a']*(1+d['z'])", "d['a']=5", "d['z']=5", "d.update('z')")
C("d=collections.Counter('aab')", "x*d.most_common(1)[0][1]", "d['a']=5", "d['b']=50")
C("a={'k':2}; b={'z':3}\nd=collections.ChainMap(a,b)", "x*d['z']", "b['z']=4", "a['z']=5", "d.maps[0]={}")
C("d=collections.UserDict(k=2)", "x*d['k']", "d['k']=3", "d.data={'k':7}")
C("d=collections.UserList([2])", "x*d[0]*len(d)", "d[0]=3", "d.append(4)")
C("d={'k':2}\nm=types.MappingProxyType(d)", "x*m['k']", "d['k']=3")
C("d={'k':2}\nm=types.MappingProxyType(d)", "x*len(m)", "d['z']=3")
C(
    "class D(dict):\n    def __missing__(s,k): return 2\nd=D()",
    "x*d['k']",
    "d['k']=3",
    "del d['k']",
    "D.__missing__=lambda s,k:5",
)
C("d={'a':2}; e={'b':3}", "x*len(d|e)", "e['a']=1", "e['c']=1")
C("d={'a':2}; e={'b':3}", "x*(1+len(d.keys()&{'a','c'}))", "d['c']=1", "del d['a']")
C("d={'a':2,'b':3}", "x*sum(d.values())", "d['a']=4")
C("d={'a':2,'b':3}", "x*list(d)[0].__len__()", "d.clear(); d['abc']=1")
C("d={'a':2,'b':3}", "a,*r=d.items()\nreturn x*a[1]", "d['a']=5")
C("d={'a':2,'b':3}", "x*dict(d)['a']", "d['a']=5")
C("d={'a':2,'b':3}", "x*{**d}['a']", "d['a']=5")
C("d={'a':2,'b':3}", "x*(lambda a,b:a*b)(**d)", "d['a']=5")
C("d={'a':2,'b':3}", "x*max(d,key=d.get).__len__()*d[max(d,key=d.get)]", "d['a']=5")
C(
    "d={'a':2,'b':3}",
    "match d:\n    case {'a': v, **r}: return x*v*len(r)\n    case _: return x*7",
    "d['a']=5",
    "d['c']=1",
    "del d['a']",
)
C(
    "d=[2,3]",
    "match d:\n    case [a,b]: return x*a*b\n    case [a,*r]: return x*len(r)\n    case _: return x*7",
    "d[0]=5",
    "d.append(1)",
)
C(
    "class P:\n    __match_args__ = ('k', 'j')\nclass Q(P):\n    pass\np = P()\np.k, p.j = 2, 3",
    "match p:\n    case Q(): return x*9\n    case P(2, j): return x*j\n    case P(k=v): return x*v\n    case _: return x*7",
    "p.j = 4",
    "p.k = 5",
    "p.k = 2",
    "P.__match_args__ = ('k', 'k2')",
    "del p.k",
    "p.__class__ = Q",
)
C("s={2,3}", "x*(2 if 2 in s else 3)", "s.remove(2)", "s.add(2)")
C("s={2,3}", "x*len(s)", "s.remove(2)")
C("s={2,3}", "x*sum(s)", "s.remove(2)")
C("s={2,3}", "x*len(s-{2})*len(s|{7})", "s.add(9)")
C("s=frozenset({2,3})", "x*sum(s)", "s=frozenset({4})")
C("import queue\nq=queue.Queue(); q.put(2)", "x*(1+q.qsize())", "q.put(3)")
C("import threading\nl=threading.Lock()", "x*(2 if l.locked() else 3)", "l.acquire()", "l.release()")
C("import array\na=array.array('i',[2,3])", "x*a[0]*len(a)", "a[0]=5", "a.append(4)")
C("import json\nt='{\"a\":2}'", "x*json.loads(t)['a']", "t='{\"a\":3}'")
C("import json\nd={'a':2}", "x*len(json.dumps(d))", "d['b']=33")
C("import pickle\nd={'a':2}", "x*len(pickle.dumps(d))", "d['b']=33")
C("import pprint\nd={'a':2}", "x*len(pprint.pformat(d))", "d['b']=33")
C("import string\nt=string.Template('$a')\nd={'a':2}", "x*int(t.substitute(d))", "d['a']=33", "t.template='$a$a'")
C("import re\np=re.compile('a+')\nt='aa'", "x*len(p.match(t).group())", "t='aaaa'", "p=re.compile('a')")
C("d={'a':2}", "x*int('%(a)s' % d)", "d['a']=4")
C("d={'a':2}", "x*int('{a}'.format(**d))", "d['a']=4")
C("d={'a':2}", "x*int('{a}'.format_map(d))", "d['a']=4")
C("d=[2]", "x*int(f'{d[0]}')", "d[0]=4")
C("d=[2]", "x*len(repr(d))", "d.append(4)")
C("d=[[2]]", "x*len(str(d))", "d[0].append(4)")
C("d=[[2]]", "x*copy.deepcopy(d)[0][0]", "d[0][0]=4")
C("d=[3,1,2]", "x*sorted(d)[0]*heapq.nsmallest(1,d)[0]*bisect.bisect(d,2)", "d[1]=4")
C("it=iter([2,3,4,5,6,7,8,9,10,11,12]*9)", "x*next(it)", "next(it)")
C("it=itertools.count(2)", "x*next(it)", "next(it)")
C("it=(i*i for i in range(1,90))", "x*next(it)", "next(it)")
C("l=[2,3,4]*30\nit=iter(l)", "x*next(it)", "l[:]=[7]*90")
C("it=zip(range(2,90),range(90))", "x*sum(next(it))", "next(it)")
C("l=[2,3]", "x*sum(map(lambda v:v+1,l))", "l.append(4)")
C("l=[2,3]", "x*sum(v for v in l if v>2)", "l.append(4)")
C("l=[2,3]", "x*functools.reduce(operator.add,l)", "l.append(4)")
C("l=[2,3]", "x*sum(itertools.chain(l,l))", "l.append(4)")
C("l=[2,3]", "x*list(itertools.accumulate(l))[-1]", "l.append(4)")
C("l=[[2],[3]]", "x*sum(a for (a,) in l)", "l[0][0]=7")
C("l=[2,3]\nv=slice(0,1)", "x*l[v][0]*len(l[v])", "v=slice(0,2)")
C("r=range(3)", "x*len(r)", "r=range(5)")
C("import datetime\nd=datetime.timedelta(2)", "x*d.days", "d=datetime.timedelta(3)")
C("import fractions\nd=fractions.Fraction(2,3)", "x*float(d)", "d=fractions.Fraction(1,3)")
C("import pathlib\np=pathlib.Path('/a/b')", "x*len(p.parts)", "p=pathlib.Path('/a/b/c')")
# context managers etc
C("k=2\n@contextlib.contextmanager\ndef cm():\n    yield k", "with cm() as v:\n    return x*v", "k=3")
C(
    "class CM:\n    def __enter__(s): return 2\n    def __exit__(s,*a): return False\nc=CM()",
    "with c as v:\n    return x*v",
    "CM.__enter__=lambda s:3",
)
C(
    "class CM:\n    def __enter__(s): return 2\n    def __exit__(s,*a): return True\nc=CM()",
    "with c as v:\n    raise ValueError\nreturn x*9",
    "CM.__exit__=lambda s,*a:False",
)
C(
    "class A:\n    def f(s): return 2\nclass B(A):\n    def f(s): return super().f()+1\nb=B()",
    "x*b.f()",
    "A.f=lambda s:5",
    "B.__bases__=(type('Z',(),{'f':lambda s:8}),)",
)
C(
    "class A:\n    def __init__(s): s.k=2\n",
    "x*A().k",
    "A.__init__=lambda s:setattr(s,'k',5)",
    "A.__new__=staticmethod(lambda c: types.SimpleNamespace(k=7))",
)
C(
    "class A:\n    def __init_subclass__(c,**k): c.k=2\n",
    "class B(A): pass\nreturn x*B.k",
    "A.__init_subclass__=classmethod(lambda c,**k:setattr(c,'k',5))",
)
C("class A:\n    def __class_getitem__(c,i): return i\n", "x*A[2]", "A.__class_getitem__=classmethod(lambda c,i:i+1)")
C(
    "class A:\n    def __set_name__(s,o,n): s.n=n\n",
    "class B:\n    abc=A()\nreturn x*len(B.__dict__['abc'].n)",
    "A.__set_name__=lambda s,o,n:setattr(s,'n',n*2)",
)
C(
    "class A: pass\na=A()",
    "x*(2 if a else 3)",
    "A.__bool__=lambda s:False",
    "del A.__bool__",
    "A.__len__=lambda s:0",
    "del A.__len__",
)
C("class A: pass\na=A();b=A()", "x*(2 if a==b else 3)", "A.__eq__=lambda s,o:True", "del A.__eq__")
C(
    "class A:\n    __hash__=lambda s:1\n    __eq__=lambda s,o:isinstance(o,A)\na=A();b=A();d={a:2}",
    "x*d.get(b,3)",
    "A.__eq__=lambda s,o:s is o",
    "A.__hash__=object.__hash__",
)
C("class A: pass\na=A()", "x*len(str(a)[:3])", "A.__str__=lambda s:'q'", "del A.__str__", "A.__repr__=lambda s:'qq'")
C(
    "class A:\n    def __add__(s,o): return 2\nclass B(A): pass\na=A();b=B()",
    "x*(a+b)",
    "B.__radd__=lambda s,o:3",
    "A.__add__=lambda s,o:4",
    "B.__add__=lambda s,o:5",
    "del B.__radd__",
)
C("class A:\n    def __call__(s): return 2\na=A()", "x*a()", "A.__call__=lambda s:3", "a.__call__=lambda:9")
C("class A:\n    def __getattr__(s,n): return 2\na=A()", "x*a.q", "A.__getattr__=lambda s,n:3", "A.q=5", "a.q=6")
C(
    "class Desc:\n    def __get__(s,o,t): return 2\nclass A:\n    d=Desc()\na=A()",
    "x*a.d",
    "Desc.__get__=lambda s,o,t:3",
    "a.__dict__['d']=5",
    "Desc.__set__=lambda s,o,v:None",
    "del Desc.__set__",
    "A.d=8",
    "del a.d",
)
C("class Desc:\n    def __get__(s,o,t): return 2\nclass A:\n    d=Desc()\n", "x*A.d", "Desc.__get__=lambda s,o,t:3")
C(
    "class A:\n    @functools.cached_property\n    def c(s): return s.k\n    k=2\na=A()",
    "x*a.c",
    "a.c=5",
    "del a.c; A.k=9",
)
C("class A: pass\na=A()\na.f=torch.relu", "x*2+a.f(x)", "a.f=torch.sigmoid")
# tensors
C("t=torch.ones(3)\nt.my=2", "x*t.my", "t.my=3", "del t.my; t.my=5")
C("t=torch.ones(3)", "x*(2 if hasattr(t,'my') else 3)", "t.my=3", "del t.my")
C("t=torch.ones(3)", "x*(2 if t.requires_grad else 3)", "t.requires_grad_()", "t.requires_grad_(False)")
C("t=torch.ones(3,requires_grad=True)", "x*(2 if t.grad is None else 3)", "t.grad=torch.ones(3)", "t.grad=None")
C(
    "t=torch.ones(3,requires_grad=True);t.grad=torch.ones(3)",
    "(x*t.grad).detach()",
    "t.grad=torch.ones(3)*2",
    "t.grad.add_(3)",
)
C("t=torch.ones(3)", "x*(2 if t.is_leaf else 3)", "t=torch.ones(3,requires_grad=True)*2")
C("t=torch.ones(3)", "x*(1+t._version)", "t.add_(1)")
C("t=torch.ones(3)", "x*(1+t.storage_offset())", "t=torch.ones(6)[2:5]")
C(
    "t=torch.ones(3,4)",
    "x*t.stride(0)",
    "t=torch.ones(4,3).t()",
    "t=torch.ones(3,4)",
    "t.t_()",
    "t.resize_(2,2)",
    "t.data=torch.ones(5,6)",
    "t.set_(torch.ones(7,8))",
)
C(
    "t=torch.ones(3,4)",
    "x*t.shape[0]",
    "t.t_()",
    "t.resize_(2,2)",
    "t.data=torch.ones(5,6)",
    "t.set_(torch.ones(7,8))",
    "t.unsqueeze_(0)",
)
C("t=torch.ones(3,4)", "x*t.element_size()", "t.data=t.data.double()", "t=t.half()")
C("t=torch.ones(3,4)", "x*t.untyped_storage().nbytes()", "t=torch.ones(5,4)[:3]", "t.untyped_storage().resize_(400)")
C("t=torch.ones(3,4)", "x*(1+len(t._backward_hooks or ()))", "t.requires_grad_(); t.register_hook(lambda g:g)")
C("t=torch.ones(3); u=t", "x*(2 if t is u else 3)", "u=t.clone()", "u=t")
C("t=torch.ones(3); u=t.clone()", "x*(2 if t.data_ptr()==u.data_ptr() else 3)", "u=t[:]")
C("t=torch.ones(3); l=[t]", "x*(2 if any(t is v for v in l) else 3)", "l[0]=t.clone()")
if torch.__version__ < "2.13":  # later ones have no names
    C("t=torch.ones(3,names=('a',))", "x*len(t.names[0])", "t=t.rename('abc')", "t.names=('ab',)")
C("t=torch.ones(2)", "x*(2 if t.is_contiguous() else 3)", "t=torch.ones(4)[::2]")
C("t=torch.ones(2)", "x*(2 if t.is_inference() else 3)", "t=torch.inference_mode()(torch.ones)(2)")
C("t=torch.ones(2)", "x*(2 if t.is_conj() else 3)", "t=torch.ones(2,dtype=torch.cfloat).conj()")
C(
    "t=torch.ones(2)",
    "x*len(type(t).__name__)",
    "t=torch.nn.Parameter(t)",
    "t.__class__=type('SubX',(torch.Tensor,),{})",
)
C(
    "t=torch.ones(2)",
    "x*(2 if isinstance(t,torch.nn.Parameter) else 3)",
    "t=torch.nn.Parameter(t)",
    "t=torch.ones(2)",
    "t._is_param=True",
)
C(
    "p=torch.nn.Parameter(torch.ones(3)); q=torch.nn.Parameter(torch.ones(3)*2)",
    "(x*p).detach()",
    "torch.utils.swap_tensors(p,q)",
    "p.data.mul_(3)",
    "p.data=q.data*5",
)
# torch state
C(
    "",
    "x*(torch.ones(1).element_size())",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
C(
    "",
    "x*(2 if torch.get_default_dtype() is torch.float32 else 3)",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
C("", "x*(2 if torch.is_grad_enabled() else 3)", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)")
C("torch.set_num_threads(2)", "x*torch.get_num_threads()", "torch.set_num_threads(1)", "torch.set_num_threads(2)")
C(
    "",
    "x*(2 if torch.are_deterministic_algorithms_enabled() else 3)",
    "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(False)",
)
C(
    "",
    "x*(2 if torch.is_deterministic_algorithms_warn_only_enabled() else 3)",
    "torch.use_deterministic_algorithms(True,warn_only=True)",
    "torch.use_deterministic_algorithms(False)",
)
C(
    "",
    "x*len(torch.get_float32_matmul_precision())",
    "torch.set_float32_matmul_precision('high')",
    "torch.set_float32_matmul_precision('highest')",
)
# Not through torch.backends: torch.testing forbids that for the whole process.
C(
    "",
    "x*(2 if torch.backends.cudnn.enabled else 3)",
    "torch._C._set_cudnn_enabled(False)",
    "torch._C._set_cudnn_enabled(True)",
)
C(
    "",
    "x*(2 if torch.backends.cudnn.benchmark else 3)",
    "torch._C._set_cudnn_benchmark(True)",
    "torch._C._set_cudnn_benchmark(False)",
)
C(
    "",
    "x*(2 if torch.backends.mkldnn.enabled else 3)",
    "torch._C._set_mkldnn_enabled(False)",
    "torch._C._set_mkldnn_enabled(True)",
)
C(
    "",
    "x*(2 if torch.backends.cuda.matmul.allow_tf32 else 3)",
    "torch.backends.cuda.matmul.allow_tf32=True",
    "torch.backends.cuda.matmul.allow_tf32=False",
)
C(
    "",
    "x*(2 if torch.backends.cudnn.allow_tf32 else 3)",
    "torch._C._set_cudnn_allow_tf32(False)",
    "torch._C._set_cudnn_allow_tf32(True)",
)
C(
    "",
    "x*(2 if torch.backends.cuda.flash_sdp_enabled() else 3)",
    "torch.backends.cuda.enable_flash_sdp(False)",
    "torch.backends.cuda.enable_flash_sdp(True)",
)
C("", "x*(torch.initial_seed()%1000)", "torch.manual_seed(7)", "torch.manual_seed(8)")
C("", "x*torch.get_rng_state().sum()", "torch.manual_seed(7)", "torch.manual_seed(8)")
C(
    "",
    "x*(2 if torch.is_autocast_enabled('cpu') else 3)",
    "torch.set_autocast_enabled('cpu',True)",
    "torch.set_autocast_enabled('cpu',False)",
)
C(
    "",
    "x*(2 if torch.get_autocast_dtype('cpu') is torch.bfloat16 else 3)",
    "torch.set_autocast_dtype('cpu',torch.float16)",
    "torch.set_autocast_dtype('cpu',torch.bfloat16)",
)
C(
    "",
    "x*(2 if torch.is_autocast_cache_enabled() else 3)",
    "torch.set_autocast_cache_enabled(False)",
    "torch.set_autocast_cache_enabled(True)",
)
C("", "x*len(str(torch.get_default_device()))", "torch.set_default_device('meta')", "torch.set_default_device(None)")
C("", "x*len(str(torch.ones(2)))", "torch.set_printoptions(precision=9)", "torch.set_printoptions(profile='default')")
C(
    "",
    "x*(2 if torch.is_anomaly_enabled() else 3)",
    "torch.autograd.set_detect_anomaly(True)",
    "torch.autograd.set_detect_anomaly(False)",
)
C("", "x*(2 if torch.is_warn_always_enabled() else 3)", "torch.set_warn_always(True)", "torch.set_warn_always(False)")
C(
    "",
    "x*(2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3)",
    "torch.__future__.set_overwrite_module_params_on_conversion(True)",
    "torch.__future__.set_overwrite_module_params_on_conversion(False)",
)
# modules of nn
N = "net=torch.nn.Sequential(torch.nn.Linear(3,3),torch.nn.ReLU())"
for e in (
    "net(x)",
    "net[0](x)",
    "torch.nn.functional.linear(x,net[0].weight)",
    "sum(p.sum() for p in net.parameters())*x",
    "x*len(list(net.modules()))",
    "x*len(net.state_dict())",
    "x*len(net)",
    "dict(net.named_parameters())['0.weight']*x",
    "x*(2 if net.training else 3)",
    "net.get_parameter('0.weight')*x",
    "x*len(net._modules)",
    "x*len([m for m in net.children()])",
    "x*len(repr(net))",
):
    C(
        N,
        e,
        "net[0].weight.data.mul_(2)",
        "net[0].weight=torch.nn.Parameter(torch.ones(3,3))",
        "net.append(torch.nn.Sigmoid())",
        "net[1]=torch.nn.Tanh()",
        "net.eval()",
        "net.register_buffer('q',torch.ones(2))",
        "net[0].register_forward_hook(lambda m,i,o:o*2)",
        "net[0].register_forward_pre_hook(lambda m,i:(i[0]*2,))",
        "net[0].forward=lambda v:v*5",
        "torch.nn.utils.parametrize.register_parametrization(net[1] if 0 else net[0],'weight',torch.nn.Identity())",
        "h=torch.nn.modules.module.register_module_forward_hook(lambda m,i,o:o*1.5)",
        "h.remove()",
        "del net[1]",
    )


@pytest.fixture(autouse=True)
def as_it_was():
    """What some rows change in the process."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_default_device(None)
    torch.set_num_threads(THREADS)
    for name in ("mm", "mmm_missing"):
        sys.modules.pop(name, None)


THREADS = torch.get_num_threads()


def world_of(there, reads, ended, folder):
    """A module's dict with the program in it."""
    space = {m.__name__.rpartition(".")[2]: m for m in MODULES} | {"__name__": __name__, "folder": folder}
    exec(there, space)
    body = reads if "return" in reads else "return " + reads
    end = "    if x.sum() < -1e9:\n        return x\n" if ended else ""
    exec(compile(f"def program(x):\n{end}{textwrap.indent(body, '    ')}", "<row>", "exec"), space)
    return space


def outcomes(space, program, changes):
    x = torch.arange(3.0) + 1
    found = [outcome(program, x) for _ in range(3)]
    for change in changes:
        exec(change, space)
        found += [outcome(program, x), outcome(program, x)]
    return found


@pytest.mark.parametrize("there, reads, changes", CASES)
@both_regions
def test_what_is_read_is_guarded(there, reads, changes, ended, tmp_path):
    torchbolt.reset()
    found = []
    for wrap in (lambda program: program, torchbolt.compile):
        torch.manual_seed(0)
        random.seed(0)
        space = world_of(there, reads, ended, tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(outcomes(space, wrap(space["program"]), changes))
    for i, (want, got) in enumerate(zip(*found, strict=True)):
        after = changes[(i - 3) // 2] if i >= 3 else "nothing"
        assert type(got) is type(want), f"after {after}"
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want, equal_nan=True, msg=f"after {after}: {got}, not {want}")
        else:
            assert got == want, f"after {after}"
