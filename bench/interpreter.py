# bench/interpreter.py
"""Plain Python in our interpreter, beside CPython's own loop: programs of the kind that pyperformance times.

    python -m bench.interpreter [--seconds 0.3] [--rounds 5] [name ...]

"plain" is the loop that runs code between regions, "recorded" the one that a first call runs in, where nobody notes
what is read: what it costs to be ready for that. The three take turns.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time

from torchbolt import _C

PROGRAMS = {}


def program(function):
    """Adds `function(n)` to the programs."""
    PROGRAMS[function.__name__] = function
    return function


@program
def nbody(n):
    """Floats in lists that are taken apart and put back."""
    bodies = [
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 39.5),
        ([4.8, -1.2, -0.1], [0.6, 2.8, -0.02], 0.04),
        ([8.3, 4.1, -0.4], [-1.0, 1.8, 0.008], 0.01),
        ([12.9, -15.1, -0.2], [1.1, 0.9, -0.01], 0.002),
    ]
    pairs = list(itertools.combinations(bodies, 2))
    for _ in range(n * 40):
        for ([x1, y1, z1], v1, m1), ([x2, y2, z2], v2, m2) in pairs:
            dx, dy, dz = x1 - x2, y1 - y2, z1 - z2
            mag = 0.01 * ((dx * dx + dy * dy + dz * dz) ** -1.5)
            b1, b2 = m1 * mag, m2 * mag
            v1[0] -= dx * b2
            v1[1] -= dy * b2
            v1[2] -= dz * b2
            v2[0] += dx * b1
            v2[1] += dy * b1
            v2[2] += dz * b1
        for r, [vx, vy, vz], _ in bodies:
            r[0] += 0.01 * vx
            r[1] += 0.01 * vy
            r[2] += 0.01 * vz
    return bodies


@program
def fannkuch(n):
    """Integers, slices of lists, while loops."""
    most = 0
    for _ in range(n):
        size = 6
        count, perm1, r = list(range(1, size + 1)), list(range(size)), size
        while True:
            while r != 1:
                count[r - 1] = r
                r -= 1
            perm, flips = perm1[:], 0
            while (k := perm[0]) != 0:
                perm[: k + 1] = perm[k::-1]
                flips += 1
            most = max(most, flips)
            while r != size:
                perm1.insert(r, perm1.pop(0))
                count[r] -= 1
                if count[r] > 0:
                    break
                r += 1
            else:
                break
    return most


@program
def spectral_norm(n):
    """Calls of small functions from generator expressions."""

    def element(i, j):
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)

    def times(u):
        return [sum(element(i, j) * u[j] for j in range(len(u))) for i in range(len(u))]

    u = [1.0] * 24
    for _ in range(n):
        v = times(u)
        scale = math.sqrt(sum(x * x for x in v))
        u = [x / scale for x in v]
    return u


class Point:
    """For `points`: slots and methods."""

    __slots__ = ("x", "y", "z")

    def __init__(self, i):
        self.x = x = math.sin(i)
        self.y = math.cos(i) * 3
        self.z = (x * x) / 2

    def normalize(self):
        norm = math.sqrt(self.x**2 + self.y**2 + self.z**2)
        self.x /= norm
        self.y /= norm
        self.z /= norm

    def maximize(self, other):
        self.x = max(self.x, other.x)
        self.y = max(self.y, other.y)
        self.z = max(self.z, other.z)
        return self


@program
def points(n):
    """Many small objects."""
    for _ in range(n):
        all_points = [Point(i) for i in range(60)]
        for p in all_points:
            p.normalize()
        best = all_points[0]
        for p in all_points[1:]:
            best = best.maximize(p)
    return best.x, best.y, best.z


class Vector:
    """For `vectors`: overloaded operators."""

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y, self.z + other.z)

    def __mul__(self, factor):
        return Vector(self.x * factor, self.y * factor, self.z * factor)

    def dot(self, other):
        return self.x * other.x + self.y * other.y + self.z * other.z

    @property
    def length(self):
        return math.sqrt(self.dot(self))


@program
def vectors(n):
    """Operators and properties of a class, as a ray tracer uses them."""
    position, speed = Vector(0.0, 0.0, 0.0), Vector(1.0, 2.0, 3.0)
    for _ in range(n * 50):
        position = position + speed * 0.01
        if position.length > 10.0:
            speed = speed * -1.0
    return position.x, position.length


class Task:
    """For `tasks`."""

    def __init__(self, name, priority):
        self.name, self.priority, self.waiting, self.done = name, priority, [], 0


class Worker(Task):
    def step(self, scheduler):
        if not self.waiting:
            return False
        packet = self.waiting.pop()
        packet["hops"] += 1
        self.done += packet["size"]
        if packet["hops"] < 4:
            scheduler.send(packet, (self.priority + packet["hops"]) % len(scheduler.tasks))
        return True


class Idle(Task):
    def step(self, scheduler):
        self.done ^= 0x5A
        scheduler.send({"hops": 0, "size": self.done & 7}, self.done % len(scheduler.tasks))
        return scheduler.rounds < scheduler.limit


class Scheduler:
    def __init__(self, limit):
        self.tasks, self.rounds, self.limit = [], 0, limit
        for i in range(6):
            self.tasks.append((Worker if i else Idle)(f"task {i}", i))

    def send(self, packet, to):
        self.tasks[to].waiting.append(packet)

    def run(self):
        while True:
            self.rounds += 1
            going_on = [task.step(self) for task in self.tasks]  # each of them has its turn
            if True not in going_on:
                return sum(task.done for task in self.tasks)


@program
def tasks(n):
    """Classes that call each other, attributes, dicts: a scheduler."""
    return Scheduler(n * 8).run()


@program
def queens(n):
    """Generators from generators."""

    def permutations(items):
        indices = list(range(len(items)))
        cycles = list(range(len(items), 0, -1))
        yield tuple(items[i] for i in indices)
        while True:
            for i in reversed(range(len(items))):
                cycles[i] -= 1
                if cycles[i] == 0:
                    indices[i:] = indices[i + 1 :] + indices[i : i + 1]
                    cycles[i] = len(items) - i
                else:
                    j = cycles[i]
                    indices[i], indices[-j] = indices[-j], indices[i]
                    yield tuple(items[i] for i in indices)
                    break
            else:
                return

    found = 0
    for _ in range(max(1, n // 8)):
        for vec in permutations(range(5)):
            if len({vec[i] + i for i in range(5)}) == len({vec[i] - i for i in range(5)}) == 5:
                found += 1
    return found


@program
def tree(n):
    """`yield from` through a tree, and the tuples it is made of."""

    def make(low, high):
        if low >= high:
            return None
        middle = (low + high) // 2
        return make(low, middle), middle, make(middle + 1, high)

    def walk(node):
        if node:
            yield from walk(node[0])
            yield node[1]
            yield from walk(node[2])

    whole = make(0, 100)
    return [sum(walk(whole)) for _ in range(n)]


@program
def words(n):
    """Strings, dicts, sorting with a key."""
    text = "the quick brown fox jumps over the lazy dog while the cat sleeps under the old tree " * 4
    counts: dict[str, int] = {}
    for _ in range(n):
        for word in text.split():
            key = word.strip(".,").lower()
            counts[key] = counts.get(key, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@program
def messages(n):
    """f-strings and the making of keyword arguments."""

    def line(level, *parts, width=8, **fields):
        head = f"{level:>{width}}: " + " ".join(str(p) for p in parts)
        return head + "".join(f" {k}={v!r}" for k, v in fields.items())

    out = []
    for i in range(n * 8):
        out.append(line("info", "step", i, loss=i * 0.5, rate=1e-3))
    return out


@program
def errors(n):
    """Exceptions raised, caught and passed on; context managers."""

    class Guard:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            return kind is KeyError

    def risky(i):
        if i % 3 == 0:
            raise ValueError(i)
        if i % 3 == 1:
            raise KeyError(i)
        return i

    seen = 0
    for i in range(n * 25):
        try:
            with Guard():
                seen += risky(i)
        except ValueError as error:
            seen -= error.args[0]
        finally:
            seen += 1
    return seen


@program
def matching(n):
    """`match` over tuples, dicts and classes."""

    def value(node):
        match node:
            case int() | float():
                return node
            case ("+", left, right):
                return value(left) + value(right)
            case ("*", left, right):
                return value(left) * value(right)
            case {"neg": inner}:
                return -value(inner)
            case [*items]:
                return sum(value(x) for x in items)

    expression = ("+", ("*", 2, 3), ("+", {"neg": 4}, ("*", [1, 2, 3, 4], 0.5)))
    return sum(value(expression) for _ in range(n * 5))


@program
def mandelbrot(n):
    """Complex numbers in tight loops."""
    inside = 0
    for row in range(n):
        for column in range(12):
            c, z = complex(column / 6 - 1.5, row % 12 / 6 - 1), 0j
            for _ in range(20):
                z = z * z + c
                if abs(z) > 2:
                    break
            else:
                inside += 1
    return inside


@program
def closures(n):
    """Functions made, decorated and called with defaults and stars."""

    def counted(function):
        calls = 0

        def wrapper(*args, **kwargs):
            nonlocal calls
            calls += 1
            return function(*args, **kwargs), calls

        return wrapper

    @counted
    def affine(x, a=2, *, b=1):
        return a * x + b

    total = 0
    for i in range(n * 25):
        result, calls = affine(i, b=i % 5)
        total += result + calls
        total += sum(map(lambda v, i=i: v ^ i, (1, 2, 3)))
    return total


def timed(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(function, seconds: float, rounds: int) -> dict[str, float]:
    """Each way's time over CPython's, the median of rounds; and CPython's."""
    n = 1
    while (t := timed(lambda size=n: function(size))) < seconds:
        n = max(n + 1, int(n * min(8, 1.2 * seconds / t)))
    ways = {"plain": _C._interp_run, "recorded": _C._interp_run_observed}
    expected = repr(function(n))
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    times = []
    for _ in range(rounds):
        times.append(timed(lambda: function(n)))
        for name, run in ways.items():
            ratios[name].append(timed(lambda run=run: run(function, n)) / times[-1])
    if any(repr(run(function, n)) != expected for run in ways.values()):
        raise SystemExit(f"{function.__name__}: another result than CPython's")
    return {"ms": statistics.median(times) * 1e3} | {k: statistics.median(v) for k, v in ratios.items()}


def table(names=None, seconds=0.3, rounds=5) -> dict[str, dict[str, float]]:
    """Prints a line for each program; the rows by its name."""
    ways = ("plain", "recorded")
    print("| program | CPython ms | " + " | ".join(ways) + " |\n|---|---|" + "---|" * len(ways))
    rows = {}
    for name in names or PROGRAMS:
        row = rows[name] = measure(PROGRAMS[name], seconds, rounds)
        print(f"| {name} | {row['ms']:.1f} | " + " | ".join(f"{row[w]:.2f}" for w in ways) + " |", flush=True)
    means = " | ".join(f"{statistics.geometric_mean(row[w] for row in rows.values()):.2f}" for w in ways)
    print(f"| geometric mean | | {means} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    table(args.names, args.seconds, args.rounds)


if __name__ == "__main__":
    main()
