# torchbolt/stand_ins/optimizers.py
"""What torch.optim does otherwise where it is compiled."""

from __future__ import annotations

import torch


def value_of_number(x):
    """torch.optim's _get_value. Eager takes the number out of a float32 tensor and goes on in double precision, in
    which 1 - 0.999**step has four digits more. Where it is compiled torch.optim goes on with the tensor: here a double.
    """
    return x.double() if isinstance(x, torch.Tensor) and x.dtype is torch.float32 else x


#: By module and qualified name.
FUNCTIONS = {"torch.optim.optimizer._get_value": value_of_number}
