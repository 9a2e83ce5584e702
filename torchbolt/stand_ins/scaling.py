# torchbolt/stand_ins/scaling.py
"""torch.amp.GradScaler inside a region: whether a step is skipped is data, and nearly always it is not."""

from __future__ import annotations


class _Overflow(Exception):
    pass


def _go_on_if_finite(found_inf):
    """A branch whose other side is an error: the program checks it (src/observe/ends/expectations.cpp)."""
    if found_inf:
        raise _Overflow


def maybe_step(self, optimizer, optimizer_state, *args, **kwargs):
    """GradScaler._maybe_opt_step. A call in which the check fails is eager's, so it skips just what eager skips."""
    found_inf = None
    for each in optimizer_state["found_inf_per_device"].values():
        found_inf = each if found_inf is None else found_inf + each.to(found_inf.device)
    try:
        _go_on_if_finite(found_inf)
    except _Overflow:
        return None
    return optimizer.step(*args, **kwargs)


#: By module and qualified name.
FUNCTIONS = {"torch.amp.grad_scaler.GradScaler._maybe_opt_step": maybe_step}
