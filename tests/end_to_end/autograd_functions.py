# tests/end_to_end/autograd_functions.py
"""Functions with a gradient of their own."""

import torch


class Scaled(torch.autograd.Function):
    """Its arguments are told in a method of their own."""

    @staticmethod
    def forward(x, scale=3.0):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None
