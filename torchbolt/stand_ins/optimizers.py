# torchbolt/stand_ins/optimizers.py
"""What torch.optim does otherwise where it is compiled.

ASGD, RAdam and Adafactor take numbers out of their state and decide by them, parameter by parameter, which would end a
region at each. Here they compute with the tensors, in double precision as Python does with its numbers, and choose
between tensors. Their forms with lists (foreach=True) are the same: which operations share a kernel is not theirs to
say.
"""

from __future__ import annotations

import torch
from torch.optim import _adafactor, asgd, radam
from torch.optim.optimizer import _to_scalar

from torchbolt.stand_ins.copies import with_name


def value_of_number(x):
    """torch.optim's _get_value. Eager takes the number out of a float32 tensor and goes on in double precision, in
    which 1 - 0.999**step has four digits more. Where it is compiled torch.optim goes on with the tensor: here a double.
    """
    return x.double() if isinstance(x, torch.Tensor) and x.dtype is torch.float32 else x


def _larger(number, x):
    """max(number, x), which in Python is `number` where x is NaN."""
    return torch.where(x > number, x, number)


def _smaller(number, x):
    return torch.where(x < number, x, number)


_asgd = with_name(asgd._single_tensor_asgd, "_asgd")
_radam = with_name(radam._single_tensor_radam, "_radam")
_usual_adafactor = with_name(_adafactor._single_tensor_adafactor, "_usual_adafactor")


def step_of_asgd(
    params, grads, axs, mus, etas, state_steps,
    *, lambd, lr, t0, alpha, weight_decay, maximize, differentiable, capturable, has_complex, lists=False,
):  # fmt: skip
    if differentiable or capturable:  # then it decides by nothing
        return _asgd(
            params, grads, axs, mus, etas, state_steps, lambd=lambd, lr=lr, t0=t0, alpha=alpha,
            weight_decay=weight_decay, maximize=maximize, differentiable=differentiable, capturable=capturable,
            has_complex=has_complex,
        )  # fmt: skip
    lr = _to_scalar(lr)
    for param, grad, ax, mu, eta, step_t in zip(params, grads, axs, mus, etas, state_steps, strict=True):
        if maximize:
            grad = -grad
        if torch.is_complex(param):
            grad, param, ax = torch.view_as_real(grad), torch.view_as_real(param), torch.view_as_real(ax)
        step_t += 1
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        # The rate stays data. Of half precision neither it nor the parameter is rounded before they meet.
        wide = torch.promote_types(param.dtype, torch.float32)
        param.copy_(param.to(wide) * (1 - lambd * eta.double()))
        param.copy_(torch.addcmul(param.to(wide), grad.to(wide), eta, value=-1))
        ax.copy_(torch.where(mu == 1, param, ax + (param - ax) * mu))
        step = step_t.double()
        eta.copy_(lr / ((1 + lambd * lr * (step_t if lists else step)) ** alpha))
        mu.copy_(1 / _larger(1, step - t0))


def step_of_asgd_with_lists(*lists, **options):
    """There eager makes the rate of the step in single precision."""
    return step_of_asgd(*lists, **options, lists=True)


def step_of_radam(
    params, grads, exp_avgs, exp_avg_sqs, state_steps,
    *, beta1, beta2, lr, weight_decay, eps, decoupled_weight_decay, differentiable, maximize, capturable, has_complex,
):  # fmt: skip
    if differentiable or capturable:
        return _radam(
            params, grads, exp_avgs, exp_avg_sqs, state_steps, beta1=beta1, beta2=beta2, lr=lr,
            weight_decay=weight_decay, eps=eps, decoupled_weight_decay=decoupled_weight_decay,
            differentiable=differentiable, maximize=maximize, capturable=capturable, has_complex=has_complex,
        )  # fmt: skip
    lr = _to_scalar(lr)
    rho_inf = 2 / (1 - beta2) - 1
    for param, grad, exp_avg, exp_avg_sq, step_t in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        if maximize:
            grad = -grad
        if torch.is_complex(param):
            param, grad = torch.view_as_real(param), torch.view_as_real(grad)
            exp_avg, exp_avg_sq = torch.view_as_real(exp_avg), torch.view_as_real(exp_avg_sq)
        step_t += 1
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)

        step = step_t.double()
        bias_correction1, bias_correction2 = 1 - beta1**step, 1 - beta2**step
        rho_t = rho_inf - 2 * step * (beta2**step) / bias_correction2
        rect = ((rho_t - 4) * (rho_t - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho_t)) ** 0.5
        # In the first steps nothing is divided by the second moment: 1 / (sqrt(min(it, 0)) + 1). So all that is chosen
        # are numbers, which may lie on another device than the parameter.
        rectified, one = rho_t > 5, torch.ones_like(step)
        most, added = torch.where(rectified, torch.inf, 0 * one), torch.where(rectified, eps, one)
        scale = torch.where(rectified, bias_correction2**0.5 * rect, one)
        divisor = exp_avg_sq.clamp(max=most.item()).sqrt_().add_(added.item())
        param.add_(exp_avg / bias_correction1 * lr * (scale / divisor), alpha=-1)


def step_of_adafactor(
    params, grads, row_vars, col_vars, variances, state_steps, grad_scale, found_inf,
    *, d, lr, beta2_decay, weight_decay, eps1, eps2, maximize, has_complex,
):  # fmt: skip
    if grad_scale is not None or found_inf is not None:  # an error
        return _usual_adafactor(
            params, grads, row_vars, col_vars, variances, state_steps, grad_scale, found_inf, d=d, lr=lr,
            beta2_decay=beta2_decay, weight_decay=weight_decay, eps1=eps1, eps2=eps2, maximize=maximize,
            has_complex=has_complex,
        )  # fmt: skip
    lr = _to_scalar(lr)
    for param, grad, row_var, col_var, variance, step_t in zip(
        params, grads, row_vars, col_vars, variances, state_steps, strict=True
    ):
        if maximize:
            grad = -grad
        if eps1 is None:
            eps1 = torch.finfo(param.dtype).eps
        step_t += 1
        step = step_t.double()
        forgotten = (step**beta2_decay).item()
        size = _larger(eps2, param.norm(2).double() / param.numel() ** 0.5)
        rate = size * _smaller(lr, 1 / step**0.5)
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        if grad.dim() > 1:
            row_var.lerp_(torch.norm(grad, dim=-1, keepdim=True).square_().div_(grad.size(-1)), forgotten)
            col_var.lerp_(torch.norm(grad, dim=-2, keepdim=True).square_().div_(grad.size(-2)), forgotten)
            estimate = row_var @ col_var
            estimate.div_(row_var.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            variance.lerp_(grad * grad, forgotten)
            estimate = variance.clone()
        update = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        excess = _larger(1.0, update.norm(2).double() / (update.numel() ** 0.5 * d))
        param.add_(update, alpha=(-rate / excess).item())


#: By module and qualified name.
FUNCTIONS = {
    "torch.optim.optimizer._get_value": value_of_number,
    "torch.optim.asgd._single_tensor_asgd": step_of_asgd,
    "torch.optim.asgd._multi_tensor_asgd": step_of_asgd_with_lists,
    "torch.optim.radam._single_tensor_radam": step_of_radam,
    "torch.optim.radam._multi_tensor_radam": step_of_radam,
    "torch.optim._adafactor._single_tensor_adafactor": step_of_adafactor,
    "torch.optim._adafactor._multi_tensor_adafactor": step_of_adafactor,
}
