# tests/distributed/conftest.py
import pytest
from ranks import Ranks


def started(count):
    ranks = Ranks(count)
    yield ranks
    ranks.stop()


@pytest.fixture(scope="module")
def two():
    yield from started(2)


@pytest.fixture(scope="module")
def three():
    yield from started(3)
