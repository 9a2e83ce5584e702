# torchbolt/stand_ins/averages.py
"""torch.optim.swa_utils.AveragedModel inside a region: whether anything has been averaged yet is data, and only the
first call finds that nothing has."""

from __future__ import annotations

from torch.optim.swa_utils import AveragedModel

from torchbolt.stand_ins.copies import with_name

_usual = with_name(AveragedModel.update_parameters, "_usual_update")


class _NotBegun(Exception):
    pass


def _go_on_if_begun(n_averaged):
    """A branch whose other side is an error: the program checks it (src/observe/ends/expectations.cpp)."""
    if n_averaged == 0:
        raise _NotBegun


class _Count:
    """How many models have been averaged, of which it is known that it is more than none."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __eq__(self, other):
        return False if other == 0 else self.tensor == other

    def __gt__(self, other):
        return True if other == 0 else self.tensor > other

    def __iadd__(self, other):
        self.tensor += other
        return self

    def __getattr__(self, name):
        return getattr(self.tensor, name)


class _Begun:
    """The averaged model, with such a count."""

    def __init__(self, model):
        self.model, self.n_averaged = model, _Count(model.n_averaged)

    def __getattr__(self, name):
        return getattr(self.model, name)


def update_parameters(self, model):
    """A call in which the check fails is eager's: the averages have been begun anew."""
    try:
        _go_on_if_begun(self.n_averaged)
    except _NotBegun:
        return _usual(self, model)
    return _usual(_Begun(self), model)


#: By module and qualified name.
FUNCTIONS = {"torch.optim.swa_utils.AveragedModel.update_parameters": update_parameters}
