# tests/observe/helper.py
"""Observe a call, then ask its guards about other worlds."""

from torchbolt import _C


class Seen:
    def __init__(self, fn, *args, **kwargs):
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.result, self.observation = _C._observe(fn, args, kwargs)
        self.facts = _C._observe_facts(self.observation)

    def sound(self):
        assert self.facts["end"] == "returned", self.facts["breaks"]
        assert self.facts["unsound"] == "", self.facts["unsound"]
        return self

    def holds(self, *args, **kwargs):
        fn = kwargs.pop("fn", self.fn)
        answer = _C._observe_check(self.observation, fn, args, kwargs)
        # What a check remembers must not change what the next one says.
        assert _C._observe_check(self.observation, fn, args, kwargs) == answer
        return answer

    def again(self):
        return self.holds(*self.args, **self.kwargs)

    def why(self, *args, **kwargs):
        return _C._observe_explain(self.observation, self.fn, args, kwargs)

    def rebuild(self, *args, **kwargs):
        return _C._observe_rebuild(self.observation, self.fn, args, kwargs)

    def guarded(self, text):
        return any(text in line for line in self.facts["guards"])
