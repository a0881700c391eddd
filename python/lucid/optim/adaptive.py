"""Optimizers that scale by past gradients, and Lion: RMSprop, Adagrad, Adadelta, Lion."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from lucid import functions as fn
from lucid._C import Tensor
from lucid.optim.groups import check_common, checked_betas, require_range
from lucid.optim.optimizer import (
    Group,
    Numbers,
    Optimizer,
    ParamsLike,
    Updated,
    advance,
    decayed_gradient,
    ensure,
    follows_from_group,
    moved_towards,
    refuse_differentiable,
)


class RMSprop(Optimizer):
    """p <- p - lr * g / (sqrt(s) + eps), s the running mean of g^2.

    Args:
        params: see :class:`Optimizer`.
        lr: learning rate, >= 0.
        alpha: share that the mean keeps each step.
        eps: added to the root. weight_decay: L2 penalty.
        momentum: of the scaled gradient.
        centered: subtract the square of the gradient's running mean from s.
        maximize: ascend instead.
        foreach: see :meth:`Optimizer.step`.
        capturable: without effect, kept for PyTorch's arguments.

    Raises: UserError for a number out of range.
    Source: Tieleman, Hinton 2012, lecture 6.5; Graves 2013, arXiv:1308.0850, equation 38.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, eps, weight_decay)
        require_range("momentum value", momentum)
        require_range("alpha value", alpha)
        refuse_differentiable("RMSprop", differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return ensure(state, param, *names)

    @follows_from_group
    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        advance(counters)
        scalars = {
            "lr": group["lr"],
            "alpha": group["alpha"],
            "intake": 1.0 - group["alpha"],
            "eps": group["eps"],
            "momentum": group["momentum"],
            "weight_decay": group["weight_decay"],
        }
        options = {"maximize": group["maximize"], "has_decay": group["weight_decay"] != 0}
        return Numbers(scalars, options)

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """See the class; "grad_avg" means centered, "momentum_buffer" momentum."""
        gradient = decayed_gradient(parameter, gradient, scalars, options)
        square = tensors["square_avg"] * scalars["alpha"] + gradient * gradient * scalars["intake"]
        updated = {"square_avg": square}
        spread = square
        if "grad_avg" in tensors:
            mean = moved_towards(tensors["grad_avg"], gradient, scalars["intake"])
            updated["grad_avg"] = mean
            spread = square - mean * mean
        scaled = gradient / (fn.sqrt(spread) + scalars["eps"])
        if "momentum_buffer" in tensors:
            scaled = tensors["momentum_buffer"] * scalars["momentum"] + scaled
            updated["momentum_buffer"] = scaled
        return parameter - scaled * scalars["lr"], updated


class Adagrad(Optimizer):
    """p <- p - lr * g / (sqrt(s) + eps), s the sum of g^2.

    Args:
        params: see :class:`Optimizer`.
        lr: learning rate, >= 0; divided by 1 + (step - 1) * lr_decay.
        weight_decay: L2 penalty.
        initial_accumulator_value: the first s. eps: added to the root.
        maximize: ascend instead.
        foreach: see :meth:`Optimizer.step`.
        fused: without effect, kept for PyTorch's arguments.

    Raises: UserError for a number out of range.
    Source: Duchi, Hazan, Singer 2011, JMLR 12, figure 1.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_common(lr, eps, weight_decay)
        require_range("lr_decay value", lr_decay)
        require_range("initial_accumulator_value value", initial_accumulator_value)
        refuse_differentiable("Adagrad", differentiable)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        if "sum" not in state:
            state["sum"] = fn.full_like(param, group["initial_accumulator_value"])
        return {"sum": state["sum"]}

    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        step = advance(counters)
        scalars = {
            "step_size": group["lr"] / (1.0 + (step - 1) * group["lr_decay"]),
            "eps": group["eps"],
            "weight_decay": group["weight_decay"],
        }
        options = {"maximize": group["maximize"], "has_decay": group["weight_decay"] != 0}
        return Numbers(scalars, options)

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """See the class."""
        gradient = decayed_gradient(parameter, gradient, scalars, options)
        total = tensors["sum"] + gradient * gradient
        change = gradient * scalars["step_size"] / (fn.sqrt(total) + scalars["eps"])
        return parameter - change, {"sum": total}


class Adadelta(Optimizer):
    """p <- p - lr * g * sqrt(d + eps) / sqrt(s + eps).

    d and s are the running means of the squares of the changes (before lr) and of g.

    Args:
        params: see :class:`Optimizer`.
        lr: factor of the change, >= 0.
        rho: share that the means keep each step, 0 to 1.
        eps: added under both roots. weight_decay: L2 penalty.
        maximize: ascend instead.
        foreach: see :meth:`Optimizer.step`.
        capturable: without effect, kept for PyTorch's arguments.

    Raises: UserError for a number out of range.
    Source: Zeiler 2012, arXiv:1212.5701, algorithm 1.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, eps, weight_decay)
        require_range("rho value", rho, 1.0)
        refuse_differentiable("Adadelta", differentiable)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        return ensure(state, param, "square_avg", "acc_delta")

    @follows_from_group
    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        advance(counters)
        scalars = {
            "lr": group["lr"],
            "rho": group["rho"],
            "intake": 1.0 - group["rho"],
            "eps": group["eps"],
            "weight_decay": group["weight_decay"],
        }
        options = {"maximize": group["maximize"], "has_decay": group["weight_decay"] != 0}
        return Numbers(scalars, options)

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """See the class."""
        rho, intake, eps = scalars["rho"], scalars["intake"], scalars["eps"]
        gradient = decayed_gradient(parameter, gradient, scalars, options)
        square = tensors["square_avg"] * rho + gradient * gradient * intake
        past = tensors["acc_delta"]
        change = fn.sqrt(past + eps) / fn.sqrt(square + eps) * gradient
        past = past * rho + change * change * intake
        return parameter - change * scalars["lr"], {"square_avg": square, "acc_delta": past}


class Lion(Optimizer):
    """p <- p - lr * sign(beta1 * m + (1 - beta1) * g), m <- beta2 * m + (1 - beta2) * g.

    Args:
        params: see :class:`Optimizer`.
        lr: learning rate, >= 0.
        betas: see above, in [0, 1).
        weight_decay: shrinks p by lr * weight_decay first.
        maximize: ascend instead.
        foreach: see :meth:`Optimizer.step`.

    Raises: UserError for a number out of range.
    Source: Chen and others 2023, arXiv:2302.06675, algorithm 2.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        check_common(lr, 0.0, weight_decay)
        betas = checked_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        return ensure(state, param, "exp_avg")

    @follows_from_group
    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        beta1, beta2 = group["betas"]
        scalars = {
            "lr": group["lr"],
            "intake1": 1.0 - beta1,
            "intake2": 1.0 - beta2,
            "keep": 1.0 - group["lr"] * group["weight_decay"],
        }
        options = {"maximize": group["maximize"], "shrinks": group["weight_decay"] != 0}
        return Numbers(scalars, options)

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """See the class."""
        if options["maximize"]:
            gradient = -gradient
        if options["shrinks"]:
            parameter = parameter * scalars["keep"]
        mean = tensors["exp_avg"]
        direction = fn.sign(moved_towards(mean, gradient, scalars["intake1"]))
        mean = moved_towards(mean, gradient, scalars["intake2"])
        return parameter - direction * scalars["lr"], {"exp_avg": mean}
