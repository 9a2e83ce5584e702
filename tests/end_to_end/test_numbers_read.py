# tests/end_to_end/test_numbers_read.py
"""Numbers in containers, read in every way Python has: a number that differs between calls is followed or guarded.

Each line is an expression of a list, a dict, a tuple and an object that hold the same two numbers. It is called with numbers
that change one by one, both at once, back and to those that are true or false, in a region of its own and before an end.
"""

import types

import pytest
import torch

import torchbolt


def passed_on(items):
    yield from items


class Reader:
    """An iterator of the user's own, whose last StopIteration has a value."""

    def __init__(self, items):
        self.items, self.at = items, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= len(self.items):
            raise StopIteration(len(self.items))
        self.at += 1
        return self.items[self.at - 1]


def passed_on_with_its_value(items):
    count = yield from Reader(items)
    yield count


def all_of(reader):
    yield from reader


class Sequence:
    """Is iterated by index."""

    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


def summed(*numbers, **named):
    return sum(numbers) + sum(named.values())


def matched(items):
    match items:
        case [3, y]:
            return y * 10
        case [x, y]:
            return x + y


def matched_by_key(table):
    match table:
        case {"p": 3}:
            return 77
        case {"p": p, "q": q}:
            return p * q


EXPRESSIONS = """
sum(passed_on(b))
sum(passed_on_with_its_value(b))
sum(Sequence(b))
sum([*b])
sum((*b, 1))
summed(*b)
summed(*passed_on(b))
sum(tuple(b))
sum(list(b))
sum(set(b))
sum(frozenset(b))
max(b)
min(b)
max(*b)
sum(sorted(b))
sorted(b)[0]
sorted(b, reverse=True)[0]
sorted(b, key=lambda v: -v)[0]
sum(b + [1])
sum(b * 2)
sum(b[1:])
b[::-1][0]
list(reversed(b))[0]
sum(reversed(b))
sum(collections.deque(b))
collections.deque(b, 1)[0]
int(b == [3, 4])
int([3,4] == b)
int(3 in b)
b.index(b[1])
b.count(3)
int(any(v > 4 for v in b))
int(all(b))
int(any(b))
list(map(lambda v: v + 1, b))[1]
list(map(operator.neg, b))[0]
sum(map(abs, b))
sum(map(int, b))
list(filter(None, b))[-1]
list(zip(b, b))[0][1]
sum(dict(zip(b, b)))
sum(dict.fromkeys(b))
sum(collections.Counter(b))
list(enumerate(b))[1][1]
functools.reduce(operator.add, b)
functools.reduce(lambda p, q: p * q, b)
math.prod(b)
math.fsum(b)
math.hypot(*b)
math.gcd(*b)
statistics.mean(b)
sum(itertools.chain(b, b))
sum(itertools.chain.from_iterable([b, b]))
list(itertools.accumulate(b))[-1]
list(itertools.product(b, b))[0][0]
list(itertools.permutations(b))[1][0]
list(itertools.islice(b, 1, 2))[0]
list(itertools.takewhile(lambda v: v < 5, b)).__len__()
sum(itertools.compress(b, [1, 1]))
list(itertools.starmap(operator.mul, [b]))[0]
list(itertools.zip_longest(b, [1]))[0][0]
len(list(itertools.groupby(b)))
list(itertools.pairwise(b))[0][0]
next(itertools.cycle(b))
next(itertools.repeat(b[0]))
sum(copy.copy(b))
sum(copy.deepcopy(b))
sum(b.copy())
operator.itemgetter(0)(b)
operator.itemgetter(0, 1)(b)[1]
operator.getitem(b, 1)
heapq.nsmallest(1, b)[0]
heapq.nlargest(1, b)[0]
bisect.bisect(b, 3)
matched(b)
matched_by_key(d)
sum(d.values())
sum(v for v in d.values())
sum(v for k, v in d.items())
sum(dict(d).values())
sum({**d}.values())
summed(**d)
sum((d | {'r': 1}).values())
d.get('p')
d.get('z', b[0])
d.setdefault('p', 1)
sum(map(d.get, d))
max(d.values())
sum(list(d.values()))
list(d.items())[0][1]
sum(copy.copy(d).values())
sum(collections.OrderedDict(d).values())
sum(collections.ChainMap(d).values())
collections.defaultdict(int, d)['p']
sum(t)
sum(t[1:])
(lambda p, q: p * q)(*t)
[p for p, *q in [b]][0]
[q for p, *q in [b]][0][0]
sum(torch.tensor(b).tolist())
int(torch.tensor(b).sum())
len('%d' % b[0])
len(str(b))
int(str(b[0]))
int(''.join(map(str, b)))
int(f"{b[0]}")
hash(t) % 7
hash(tuple(b)) % 5
len({b[0], b[1], 3})
int(b < [4, 0])
int(t > (3, 4))
t.index(t[1])
t.count(3)
int(tuple(b) == t)
max(b, key=lambda v: -v)
min(d, key=d.get) == 'p'
sorted(d, key=d.get)[0] == 'p'
sorted(d.items(), key=lambda kv: kv[1])[0][1]
sum(x for x in passed_on(passed_on(b)))
sum(iter(b))
sum(iter(lambda it=iter(b): next(it, None), None))
next(iter(b))
next(passed_on(b))
(lambda it: [next(it), next(it)][1])(iter(b))
(lambda q, r: q * r)(*passed_on(b))
range(*b).__len__()
len(range(b[0]))
list(range(b[0]))[-1]
sum(slice(*b).indices(9))
sum(b[i] for i in range(len(b)))
[b.pop(), b.append(5)][0]
[b.pop(0), b.insert(0, 4)][0]
[(b.reverse()), b[0]][1]
[(b.sort()), b[0]][1]
[b.extend([1]), b.pop(), sum(b)][2]
sum(vars(o).values())
o.p
getattr(o, 'q')
sum(o.__dict__.values())
divmod(b[1], b[0])[1]
pow(b[0], 2)
pow(b[0], 2, 5)
round(b[0] / b[1], 1)
abs(-b[0])
complex(b[0], b[1]).real
float(b[0])
int(float(b[1]))
bool(b[0] - 3)
b[0].bit_length()
b[0].__add__(1)
(b[0]).to_bytes(2, 'big')[1]
int.from_bytes(bytes(b), 'big')
bytes(b)[0]
bytearray(b)[1]
memoryview(bytes(b))[0]
chr(60 + b[0]) < 'A'
ord(chr(b[0]))
bin(b[0]).count('1')
len('x' * b[0])
len([0] * b[0])
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9][b[0]]
{3: 1, 4: 2}.get(b[0], 9)
(10, 20, 30, 40, 50, 60, 70, 80)[b[0]]
'abcdefghij'[b[0]] < 'e'
b[0] and b[1]
b[0] or 1
not b[0] - 3
b[0] if b[0] > b[1] else 7
(w := b[0]) + w
~b[0]
b[0] << 1
b[1] ^ b[0]
b[1] & 1
b[0] | 8
b[1] // b[0]
b[1] % b[0]
b[0] ** 2
-b[0]
b[0] < b[1] < 7
b[0] is b[1]
b[0] != 3
sum(all_of(iter(b)))
sum(all_of(iter(d.values())))
sum(all_of(Reader(b)))
sum(all_of(zip(b, b)).__next__())
"""

NUMBERS = [(3, 4), (4, 4), (5, 4), (5, 6), (3, 6), (7, 2), (3, 4), (1, 0), (0, 0)]


def outcome(function, p, q):
    arguments = torch.ones(2), [p, q], {"p": p, "q": q}, (p, q), types.SimpleNamespace(p=p, q=q)
    try:
        got = function(*arguments).tolist()
    except Exception as error:
        got = type(error), str(error)
    return got, arguments[1:]


@pytest.mark.parametrize("end", ["", "torchbolt.graph_break(); "], ids=["one region", "before an end"])
@pytest.mark.parametrize("expression", EXPRESSIONS.split("\n")[1:-1])
def test_numbers_are_read(expression, end):
    space = dict(globals())
    exec(f"def function(x, b, d, t, o):\n    n = {expression}\n    {end}return x * n", space)
    function = space["function"]
    compiled = torchbolt.compile(function, recompile_limit=32)
    for p, q in NUMBERS:
        assert outcome(compiled, p, q) == outcome(function, p, q), (p, q)
