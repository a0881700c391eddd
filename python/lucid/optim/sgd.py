"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.optim.groups import require_range
from lucid.optim.optimizer import (
    Group,
    Numbers,
    Optimizer,
    ParamsLike,
    Updated,
    decayed_gradient,
    follows_from_group,
    refuse_differentiable,
)


class SGD(Optimizer):
    """p <- p - lr * v, v <- momentum * v + (1 - dampening) * g; the first v is g.

    Args:
        params: see :class:`Optimizer`.
        lr: learning rate, >= 0.
        momentum: 0 leaves v out: p <- p - lr * g.
        dampening: see above. weight_decay: L2 penalty, adds weight_decay * p to g.
        nesterov: use g + momentum * v in place of v.
        maximize: ascend instead.
        foreach: see :meth:`Optimizer.step`.
        fused: without effect, kept for PyTorch's argument order.

    Raises: UserError for a number out of range.
    Source: Sutskever and others 2013, ICML, section 2.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        require_range("learning rate", lr)
        require_range("momentum value", momentum)
        require_range("weight_decay value", weight_decay)
        refuse_differentiable("SGD", differentiable)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise _C.UserError("SGD: nesterov needs a momentum above 0 and a dampening of 0")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        known = state.get("momentum_buffer")
        return {} if known is None else {"momentum_buffer": known}

    @follows_from_group
    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        scalars = {
            "lr": group["lr"],
            "momentum": group["momentum"],
            "intake": 1.0 - group["dampening"],
            "weight_decay": group["weight_decay"],
        }
        options = {
            "maximize": group["maximize"],
            "has_decay": group["weight_decay"] != 0,
            "has_momentum": group["momentum"] != 0,
            "has_dampening": group["dampening"] != 0,
            "nesterov": group["nesterov"],
        }
        return Numbers(scalars, options)

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """See the class; without "momentum_buffer" in ``tensors`` it is the first step."""
        gradient = decayed_gradient(parameter, gradient, scalars, options)
        if not options["has_momentum"]:
            return parameter - gradient * scalars["lr"], {}
        velocity = tensors.get("momentum_buffer")
        if velocity is None:
            velocity = gradient.detach().clone()
        else:
            intake = gradient * scalars["intake"] if options["has_dampening"] else gradient
            velocity = velocity * scalars["momentum"] + intake
        direction = gradient + velocity * scalars["momentum"] if options["nesterov"] else velocity
        return parameter - direction * scalars["lr"], {"momentum_buffer": velocity}
