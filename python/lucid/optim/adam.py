"""Adam and its relatives: AdamW, Adamax, NAdam, RAdam."""

from __future__ import annotations

import math
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

Betas = tuple[float, float]


def _moments(
    gradient: Tensor, tensors: dict[str, Tensor], scalars: Mapping[str, float]
) -> tuple[Tensor, Tensor]:
    """Running means of the gradient and of its square."""
    mean = moved_towards(tensors["exp_avg"], gradient, scalars["intake1"])
    square = tensors["exp_avg_sq"] * scalars["beta2"] + gradient * gradient * scalars["intake2"]
    return mean, square


def _constants(group: Group) -> dict[str, float]:
    """Numbers that every member of the family takes and that no count of steps changes."""
    beta1, beta2 = group["betas"]
    return {
        "eps": group["eps"],
        "intake1": 1.0 - beta1,
        "intake2": 1.0 - beta2,
        "beta2": beta2,
        "weight_decay": group["weight_decay"],
        "keep": 1.0 - group["lr"] * group["weight_decay"],
    }


def _shared_scalars(group: Group, step: int) -> dict[str, float]:
    """The constants and the bias corrections."""
    beta1, beta2 = group["betas"]
    corrections = {"correction1": 1.0 - beta1**step, "correction2": 1.0 - beta2**step}
    return {**_constants(group), **corrections}


def _shared_options(group: Group) -> dict[str, Hashable]:
    is_decoupled = bool(group.get("decoupled_weight_decay", False))
    has_decay = group["weight_decay"] != 0
    return {
        "maximize": group["maximize"],
        "has_decay": has_decay and not is_decoupled,
        "shrinks": has_decay and is_decoupled,
    }


class Adam(Optimizer):
    """p <- p - lr * m' / (sqrt(v') + eps), bias-corrected means of the gradient and its square.

    Args:
        params: see :class:`Optimizer`.
        lr: learning rate, >= 0.
        betas: shares that the two means keep each step, in [0, 1).
        eps: added to the root, after the bias correction.
        weight_decay: L2 penalty, adds weight_decay * p to the gradient.
        amsgrad: divide by the largest v so far.
        maximize: ascend instead.
        decoupled_weight_decay: shrink p by lr * weight_decay instead (as AdamW).
        foreach: see :meth:`Optimizer.step`.
        capturable, fused: without effect, kept for PyTorch's arguments.

    Raises: UserError for a number out of range.
    Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 1; Reddi, Kale, Kumar 2018 (amsgrad).
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_common(lr, eps, weight_decay)
        betas = checked_betas(betas)
        refuse_differentiable(type(self).__name__, differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        names = ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        return ensure(state, param, *names)

    @follows_from_group
    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        lr, (beta1, beta2) = group["lr"], group["betas"]

        def by_step(step: int) -> tuple[float, ...]:
            return lr / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step)

        scalars = _constants(group)
        scalars["step_size"], scalars["root_correction2"] = by_step(advance(counters))
        return Numbers(scalars, _shared_options(group), by_step)

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """See the class; "max_exp_avg_sq" in ``tensors`` means amsgrad."""
        gradient = decayed_gradient(parameter, gradient, scalars, options)
        if options["shrinks"]:
            parameter = parameter * scalars["keep"]
        mean, square = _moments(gradient, tensors, scalars)
        updated = {"exp_avg": mean, "exp_avg_sq": square}
        if "max_exp_avg_sq" in tensors:
            square = fn.maximum(tensors["max_exp_avg_sq"], square)
            updated["max_exp_avg_sq"] = square
        divisor = fn.sqrt(square) / scalars["root_correction2"] + scalars["eps"]
        return parameter - mean * scalars["step_size"] / divisor, updated


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter by lr * weight_decay.

    Arguments as :class:`Adam`; ``weight_decay`` is 1e-2 by default.

    Source: Loshchilov, Hutter 2017, arXiv:1711.05101, algorithm 2.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As :meth:`Optimizer.load_state_dict`; a state of Adam decays as AdamW from then on."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class Adamax(Optimizer):
    """Adam with the largest gradient so far, decayed, in place of the root mean square.

    Arguments as :class:`Adam`.

    Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 2.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_common(lr, eps, weight_decay)
        betas = checked_betas(betas)
        refuse_differentiable("Adamax", differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        return ensure(state, param, "exp_avg", "exp_inf")

    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        step = advance(counters)
        scalars = _shared_scalars(group, step)
        scalars["step_size"] = group["lr"] / scalars["correction1"]
        return Numbers(scalars, _shared_options(group))

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
        mean = moved_towards(tensors["exp_avg"], gradient, scalars["intake1"])
        largest = fn.maximum(
            tensors["exp_inf"] * scalars["beta2"], fn.abs(gradient) + scalars["eps"]
        )
        change = mean * scalars["step_size"] / largest
        return parameter - change, {"exp_avg": mean, "exp_inf": largest}


class NAdam(Optimizer):
    """Adam with Nesterov's momentum.

    Args:
        momentum_decay: how fast the momentum's schedule approaches beta1.
        Others as :class:`Adam`.

    Source: Dozat 2016, "Incorporating Nesterov momentum into Adam", algorithm 2.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, eps, weight_decay)
        betas = checked_betas(betas)
        require_range("momentum_decay value", momentum_decay)
        refuse_differentiable("NAdam", differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        return ensure(state, param, "exp_avg", "exp_avg_sq")

    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        step = advance(counters)
        scalars = _shared_scalars(group, step)
        beta1, decay = group["betas"][0], group["momentum_decay"]
        now = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        following = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = float(counters.get("mu_product", 1.0)) * now
        counters["mu_product"] = product
        scalars["gradient_step"] = group["lr"] * (1.0 - now) / (1.0 - product)
        scalars["mean_step"] = group["lr"] * following / (1.0 - product * following)
        return Numbers(scalars, _shared_options(group))

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
        if options["shrinks"]:
            parameter = parameter * scalars["keep"]
        mean, square = _moments(gradient, tensors, scalars)
        divisor = fn.sqrt(square / scalars["correction2"]) + scalars["eps"]
        change = gradient * scalars["gradient_step"] + mean * scalars["mean_step"]
        return parameter - change / divisor, {"exp_avg": mean, "exp_avg_sq": square}


class RAdam(Optimizer):
    """Adam whose adaptive step waits until the variance of its estimate is small.

    Arguments as :class:`Adam`.

    Source: Liu and others 2019, arXiv:1908.03265, algorithm 2.
    """

    def __init__(
        self,
        params: ParamsLike,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_common(lr, eps, weight_decay)
        betas = checked_betas(betas)
        refuse_differentiable("RAdam", differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        return ensure(state, param, "exp_avg", "exp_avg_sq")

    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        step = advance(counters)
        scalars = _shared_scalars(group, step)
        beta2 = group["betas"][1]
        limit = 2.0 / (1.0 - beta2) - 1.0
        length = limit - 2.0 * step * beta2**step / scalars["correction2"]
        scalars["step_size"] = group["lr"] / scalars["correction1"]
        options = _shared_options(group)
        # Below 5 terms the variance is unbounded (section 4.2): a plain momentum step.
        options["is_rectified"] = length > 5.0
        if length > 5.0:
            ratio = (length - 4.0) * (length - 2.0) * limit
            ratio /= (limit - 4.0) * (limit - 2.0) * length
            scalars["rectified"] = math.sqrt(scalars["correction2"] * ratio)
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
        if options["shrinks"]:
            parameter = parameter * scalars["keep"]
        mean, square = _moments(gradient, tensors, scalars)
        change = mean * scalars["step_size"]
        if options["is_rectified"]:
            change = change * scalars["rectified"] / (fn.sqrt(square) + scalars["eps"])
        return parameter - change, {"exp_avg": mean, "exp_avg_sq": square}
