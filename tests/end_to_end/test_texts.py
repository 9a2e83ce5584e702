# tests/end_to_end/test_texts.py
"""Texts that differ between calls: one program as long as nobody looks at them, and facts where somebody asks.

A text that is read (looked up, cut, handed to C code) makes a program of its own, and no other call may get that.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchbolt

WORDS = ["one", "two", "three", "f", "f", "one"]


def same(got, want):
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    else:
        assert type(got) is type(want) and got == want


def run(fn, words, compiled, fullgraph=True):
    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=fullgraph, recompile_limit=32)
    x = torch.randn(3)
    for word in words:
        same(fast(x, word), fn(x, word))
    assert compiled is None or torchbolt.stats()["regions"] == compiled
    assert torchbolt.stats()["eager_fallbacks"] == 0


class Holder:
    word = ""


HOLDER = Holder()


def kept(x, word):
    HOLDER.word = word
    return x + 1, HOLDER


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, word: x * 2,
        lambda x, word: (x * 2, word, [word, (word, 1)], {"word": word}),
        lambda x, word: (x * 2, f"layer.{word}", "%s-" % word, str(word), "-".join([word, "a"])),
        lambda x, word: x * 2 if word == "mean" else x + 1,
        lambda x, word: x * 2 if word in ("mean", "sum") else x + 1,
        lambda x, word: x * 2 if word in {"mean": 1} else x + 1,
        lambda x, word: x * 2 if word is None else x + 1,
        lambda x, word: x * 2 if word else x + 1,
        lambda x, word: x * 2 if isinstance(word, str) else x + 1,
        lambda x, word: x * 2 if "m" in word else x + 1,
        lambda x, word: x * {"mean": 2.0}.get(word, 1.0),
    ],
)
def test_a_text_that_nobody_reads(fn):
    run(fn, WORDS, 2)
    run(fn, [*WORDS, "mean", "", "sum", "mean", "one"], None)


def test_a_text_that_is_kept():
    torchbolt.reset()
    fast = torchbolt.compile(kept, fullgraph=True)
    for word in WORDS:
        fast(torch.ones(2), word)
        assert HOLDER.word == word
    assert torchbolt.stats()["regions"] == 2


def test_a_text_that_is_shown(capsys):
    def fn(x, word):
        print("now", word)
        return x + 1

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    for word in WORDS:
        fast(torch.ones(2), word)
    assert capsys.readouterr().out == "".join(f"now {word}\n" for word in WORDS)
    assert torchbolt.stats()["regions"] == 2


TABLE = {"one": 1.0, "two": 2.0, "three": 3.0, "f": 4.0, "one1": 5.0}


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({word: nn.Linear(3, 3) for word in TABLE})
        for word, number in TABLE.items():
            setattr(self, word, number)
        self.kind = "one"

    def forward(self, x, word):
        return self.layers[word](x) * getattr(self, word)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, word: x * TABLE[word],
        lambda x, word: x * TABLE.get(word, 9.0),
        lambda x, word: x * len(word),
        lambda x, word: (x, word.upper(), word[0], word[1:], word + "!", "a" + word, word * 2),
        lambda x, word: (x, word.startswith("t"), word < "p", word.replace("o", "0"), word.split("e")),
        lambda x, word: (x, [letter for letter in word], list(word), sorted(word), tuple(reversed(word))),
        lambda x, word: (x, {word: 1}, {word}, {word: 1}[word], dict([(word, 2)])),
        lambda x, word: (x, "{0[2]}".format(word + "  "), "{}".format(word), "{:.2}".format(word)),
        lambda x, word: (x, hash(word), ord(word[0]), word.encode(), word == word.lower()),
        lambda x, word: (x, f"{word!r:>10}", f"{word:>9}", "{:^9}|{}".format(word, 1), "%5s" % word, repr(word)),
        lambda x, word: (x, ("one", "two").index(word) if word in ("one", "two") else -1),
        lambda x, word: (x, [word, "a"].count("one"), ["one", "two"] == [word, "two"], (word,) < ("p",)),
        lambda x, word: x * getattr(HOLDER, word, 7),
        lambda x, word: (x, hasattr(x, word), getattr(x, "real" if word == "one" else word, 3)),
        lambda x, word: (x, getattr(HOLDER, "w" + word, 3), hasattr(HOLDER, word)),
        lambda x, word: (x, dict.fromkeys([word]), {"a": 1}.setdefault(word, 2)),
        lambda x, word: (x, {"one": 1, "two": 2}.pop(word, 3), object.__getattribute__(x, "shape" if word else word)),
        lambda x, word: (x, list(zip(word, range(9))), list(enumerate(word)), list(map(str.upper, word))),
        lambda x, word: (x, [*word, 1], {*word}, (lambda *letters: letters)(*word), *word[:1]),
        lambda x, word: x * (lambda **named: len(named) + ("one" in named))(**{word: 1}),
        lambda x, word: (x, max(word, "oz"), min([word, "oz"]), sorted([word, "oz", "a"])),
        lambda x, word: (x, type(word)(word), word.join(["a", "b"]), word.isalpha(), word.find("e")),
        lambda x, word: (x, word is word, word == "one" and word[0] == "o"),
        lambda x, word: (x, *word),
        lambda x, word: (x, {**{word: 1}, "one": 2}, int(word == "one"), bool(word)),
    ],
)
def test_a_text_that_is_read(fn):
    run(fn, [*WORDS, "one", "two"], None)
    run(fn, ["", *WORDS][1:] + ["one1"], None)


def test_classes_with_such_names():
    run(lambda x, word: (x + 1, type(word, (), {}).__name__), WORDS, None, fullgraph=False)


def test_matching():
    def fn(x, word):
        match word:
            case "one" | "two":
                return x + 1
            case str() if word.endswith("e"):
                return x + 2
            case _:
                return x + 3

    run(fn, WORDS, None)


def test_texts_that_say_what_is_computed():
    run(lambda x, word: torch.einsum(word, x, x), ["i,i->i", "i,i->", "i,j->ij", "i,j->ji", "i,i->"], None)
    run(lambda x, word: torch.nn.functional.gelu(x, approximate=word), ["none", "tanh", "none", "tanh"], None)
    run(lambda x, word: x.to(getattr(torch, word)), ["float64", "float32", "int32", "float64", "int32"], None)
    run(
        lambda x, word: torch.nn.functional.pad(x[None], (1, 1), word),
        ["constant", "reflect", "replicate", "reflect"],
        None,
    )


def test_attributes_and_containers():
    torchbolt.reset()
    module = Layers()
    fast = torchbolt.compile(module, recompile_limit=32)
    x = torch.randn(2, 3)
    for word in [*WORDS, "one", "two"]:
        same(fast(x, word), module.forward(x, word))

    def of_attributes(x):
        return x * 2 if module.kind == "mean" else x + 1, module.kind, words[0], words

    words = ["a", "b"]
    fast = torchbolt.compile(of_attributes, recompile_limit=32)
    for word in [*WORDS, "mean", "two"]:
        module.kind = word
        words[0] = word + "1"
        same(fast(x), of_attributes(x))


def test_two_texts():
    def fn(x, a, b):
        return x + (a == b), a, b, a != "one"

    torchbolt.reset()
    fast = torchbolt.compile(fn, recompile_limit=32)
    x = torch.randn(3)
    for a, b in [
        ("one", "two"),
        ("three", "f"),
        ("f", "f"),
        ("one", "one"),
        ("x", "x"),
        ("a", "b"),
        ("", "a"),
        ("", ""),
    ]:
        same(fast(x, a, b), fn(x, a, b))


def test_names_in_a_loop_that_ends_regions():
    """Every turn is one program: which name it is, nobody asks."""

    class Net(nn.Module):
        def __init__(self, n):
            super().__init__()
            for i in range(n):
                self.register_parameter(f"weight{i}", nn.Parameter(torch.randn(3)))

    def fn(net, x, found):
        for name, weight in net.named_parameters():
            x = x * weight + 1
            torchbolt.graph_break()
            found.append(name)
            x = x - weight
        return x

    def recordings(n):
        torchbolt.reset()
        fast = torchbolt.compile(fn, recompile_limit=32)
        net, x = Net(n), torch.randn(3)
        with torch.no_grad():
            for _ in range(3):
                mine, theirs = [], []
                same(fast(net, x, mine), fn(net, x, theirs))
                assert mine == theirs
        return torchbolt.stats()["regions"]

    assert recordings(6) == recordings(14)


class Word(str):
    pass


class Shown:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def test_texts_of_a_class_of_their_own():
    """What __repr__ gives stays of its class through repr() and str(); formatting makes a plain text of it."""
    shown = Shown(Word("a"))
    run(lambda x, word: (x + 1, str(shown), repr(shown), f"{shown}", f"{shown!r}"), WORDS, compiled=2)


@pytest.mark.parametrize(
    "made",
    [
        lambda word: "%s" % word,
        lambda word: "a %s" % ("%s" % word),
        lambda word: "{}".format(word),
        lambda word: "{:4}".format(word),
        lambda word: "%4s" % word,
        lambda word: f"{word:4}",
        lambda word: f"{word:.4}",
        lambda word: format(word, ""),
    ],
)
def test_formats_that_give_the_very_text(made):
    """CPython makes no new text where there is nothing to do to it, which is so for some texts only."""
    run(lambda x, word: (x + 1, made(word)), ["first", "second", "a", "one", "third one"], compiled=2)
