# tests/end_to_end/test_shown_in_order.py
"""What is shown waits for the region's end, unless other code that shows something, or is told of it, would come first."""

from __future__ import annotations

import contextlib
import io
import logging

import pytest
import torch

import torchbolt


@torch.library.custom_op("shown::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    print("in the operator")
    return x.clone()


@noisy.register_fake
def _(x):
    return torch.empty_like(x)


def operators(x):
    print("before")
    x = noisy(x)
    print("between")
    x = noisy(x * 2)
    print("after")
    return x


def operator_first(x):
    x = noisy(x) * 2
    print("after")
    return x


class State:
    step = 0


STATE, TOLD = State(), []


class Told(logging.Handler):
    def __init__(self):
        super().__init__()
        self.count = 0

    def emit(self, record):
        self.count += 1
        TOLD.append((record.getMessage(), self.count, STATE.step))


class Chosen(logging.Filter):
    def filter(self, record):
        return STATE.step != 1


HANDLER, LOGGER = Told(), logging.getLogger("torchbolt_tests.shown")
LOGGER.propagate = False
LOGGER.setLevel("INFO")
LOGGER.addHandler(HANDLER)
FILTERED = logging.getLogger("torchbolt_tests.shown.filtered")
FILTERED.addFilter(Chosen())


def state_changes(x):
    LOGGER.info("one")
    STATE.step += 1
    x = x * 2
    LOGGER.info("two")
    STATE.step += 1
    return x


def handler_is_read(x):
    LOGGER.info("one")
    x = x * 2 + HANDLER.count
    LOGGER.info("two")
    return x + HANDLER.count


def handler_is_written(x):
    LOGGER.info("one")
    HANDLER.count = 10
    x = x * 2
    LOGGER.info("two")
    return x


def filter_goes_by_state(x):
    for _ in range(3):
        FILTERED.info("step")
        STATE.step += 1
        x = x * 2
    return x


def only_told(x):
    x = x * 2
    LOGGER.info("shape %s", x.shape)
    x = x + 1
    LOGGER.info("done")
    return x


def hidden(x):
    LOGGER.debug("too low")
    STATE.step += 1
    x = x * 2
    STATE.step += 1
    return x


def outcome(function, x):
    TOLD.clear()
    HANDLER.count = STATE.step = 0
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = function(x)
    return str(result), out.getvalue(), list(TOLD)


@pytest.mark.parametrize(
    "function, regions",
    [
        (operators, 3),
        (operator_first, 1),
        (state_changes, None),
        (handler_is_read, None),
        (handler_is_written, None),
        (filter_goes_by_state, None),
        (only_told, 1),
        (hidden, 1),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_in_the_order_of_the_program(function, regions):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for _ in range(4):
        x = torch.randn(3)
        assert outcome(compiled, x) == outcome(function, x)
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0
    assert regions in (None, stats["regions"])
