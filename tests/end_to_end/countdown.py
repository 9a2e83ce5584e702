# tests/end_to_end/countdown.py
"""An iterator written in Python, as classes with a __next__ are."""


class Countdown:
    """Counts from n down to 0, and gives `item` each time."""

    def __init__(self, n, item=None):
        self.n, self.item = n, item

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.given()

    def given(self):
        return self.item
