# torchbolt/stand_ins/distributed.py
"""Collectives that write to their tensors -> functional ones, which are operators and so part of a region.

torch.distributed's own are calls of a process group in C++, and give a Work. What is waited for in the same call is the
same as a functional collective with its wait_tensor. What is not used as usual (async_op, tensors that gradients go
through, a coalescing manager, other reductions) is left to torch, between two regions.
"""

from __future__ import annotations

import importlib

import torch
from torch import distributed

from torchbolt import _C
from torchbolt.controls import disable

#: By module and qualified name.
FUNCTIONS = {}


def stand_in_where_there_are_any():
    c10d = distributed.distributed_c10d
    reduced, sent = torch.ops._c10d_functional.all_reduce_.default, torch.ops._c10d_functional.broadcast_.default
    gathered = torch.ops._c10d_functional.all_gather_into_tensor.default
    scattered = torch.ops._c10d_functional.reduce_scatter_tensor.default
    waited = torch.ops._c10d_functional.wait_tensor.default
    in_c10d = f"{c10d.__name__}."

    @disable(reason="a collective is not used as usual")
    def natively(function, *args):
        return function(*args)

    def names_of(group, op):
        """(group, size, reduction), as operators take them; None: such a call is torch's own. Run unseen."""
        # Gradients and sizes of functional collectives are registered there, by its import.
        functional = importlib.import_module("torch.distributed._functional_collectives")
        if group is None or group == c10d.GroupMember.NON_GROUP_MEMBER:
            return None
        reduction = functional.REDUCE_OP_TO_STR.get(op) if op is not None else ""
        return None if reduction is None else (group.group_name, group.size(), reduction)

    def rank_in(group, rank):
        """Of a rank of the world. Run unseen."""
        return c10d.get_group_rank(group, rank)

    def place_in(group):
        """(rank, size). Run unseen."""
        return group.rank(), group.size()

    _C._mark(names_of, "constant", None)
    _C._mark(place_in, "constant", None)
    _C._mark(rank_in, "constant", None)

    def get_rank(group=None):
        world = c10d._world.default_pg
        usual = world is not None and (group is None or group is world)
        return place_in(world)[0] if usual else natively(c10d.get_rank, group)

    def get_world_size(group=None):
        world = c10d._world.default_pg
        usual = world is not None and (group is None or group is world)
        return place_in(world)[1] if usual else natively(c10d.get_world_size, group)

    def is_usual(tensor):
        return (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout is torch.strided
            and not tensor.is_complex()
            and tensor.is_contiguous()
            and not (tensor.requires_grad and torch.is_grad_enabled())
        )

    def usual(tensors, group, async_op, op=None):
        """What names_of says; None where the call is torch's own."""
        if async_op or c10d._world.pg_coalesce_state or False in [is_usual(t) for t in tensors]:
            return None
        return names_of(c10d._world.default_pg if group is None else group, op)

    def all_reduce(tensor, op=c10d.ReduceOp.SUM, group=None, async_op=False):
        names = usual((tensor,), group, async_op, op)
        if names is None:
            return natively(c10d.all_reduce, tensor, op, group, async_op)
        name, _, reduction = names
        waited(reduced(tensor, reduction, name))
        return None

    def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
        names = usual((tensor,), group, async_op) if (src is None) != (group_src is None) else None
        if names is None:
            return natively(c10d.broadcast, tensor, src, group, async_op, group_src)
        if src is not None and group is not None:
            src = rank_in(group, src)
        waited(sent(tensor, group_src if src is None else src, names[0]))
        return None

    def all_gather_single(output_tensor, input_tensor, group=None, async_op=False):
        names = usual((output_tensor, input_tensor), group, async_op)
        if names is None or not fits(output_tensor, input_tensor, names[1]):
            return natively(original_gather, output_tensor, input_tensor, group, async_op)
        given = waited(gathered(input_tensor, names[1], names[0]))
        with torch.no_grad():
            output_tensor.view(-1).copy_(given.view(-1))
        return None

    def reduce_scatter_single(output, input, op=c10d.ReduceOp.SUM, group=None, async_op=False):
        names = usual((output, input), group, async_op, op)
        if names is None or input.dim() == 0 or not fits(input, output, names[1]):
            return natively(original_scatter, output, input, op, group, async_op)
        given = waited(scattered(input.view(-1), names[2], names[1], names[0]))
        with torch.no_grad():
            output.view(-1).copy_(given)
        return None

    def fits(whole, part, count):
        return whole.dtype == part.dtype and whole.device == part.device and whole.numel() == count * part.numel()

    newer = hasattr(c10d, "all_gather_single")  # the older names call these
    gather = "all_gather_single" if newer else "all_gather_into_tensor"
    scatter = "reduce_scatter_single" if newer else "reduce_scatter_tensor"
    original_gather, original_scatter = getattr(c10d, gather), getattr(c10d, scatter)
    FUNCTIONS.update(
        {
            in_c10d + "all_reduce": all_reduce,
            in_c10d + "broadcast": broadcast,
            in_c10d + "get_rank": get_rank,
            in_c10d + "get_world_size": get_world_size,
            in_c10d + gather: all_gather_single,
            in_c10d + scatter: reduce_scatter_single,
        }
    )


if distributed.is_available():
    stand_in_where_there_are_any()
