"""Reverse-mode gradients of eager code: backward, grad, Function and the grad modes."""

from lucid.autograd import function
from lucid.autograd.engine import backward, grad
from lucid.autograd.function import Function, once_differentiable
from lucid.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "function",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]
