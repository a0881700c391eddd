"""Schedules that rise and fall."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid.optim.lr_scheduler.base import LRScheduler
from lucid.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts again after ``T_0`` epochs, each period ``T_mult`` times longer.

    Source: Loshchilov, Hutter 2016, arXiv:1608.03983, section 3.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise _C.UserError(
                f"CosineAnnealingWarmRestarts: T_0 must be a positive integer: got {T_0}"
            )
        if T_mult < 1 or not isinstance(T_mult, int):
            raise _C.UserError(
                f"CosineAnnealingWarmRestarts: T_mult must be an integer of 1 or more: got {T_mult}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        share = (1.0 + math.cos(math.pi * self.T_cur / self.T_i)) / 2.0
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one epoch, or to ``epoch``, which may be a fraction."""
        at = float(self.last_epoch + 1) if epoch is None else float(epoch)
        if at < 0:
            raise _C.UserError(
                f"CosineAnnealingWarmRestarts: epoch must not be negative: got {epoch}"
            )
        start, length = 0.0, self.T_0
        if self.T_mult == 1:
            start = at - at % self.T_0
        else:
            while at >= start + length:
                start += length
                length *= self.T_mult
        self.T_cur, self.T_i = at - start, length
        self.last_epoch = math.floor(at)
        for group, value in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = value
        self._last_lr = self._current()


class OneCycleLR(LRScheduler):
    """Rise to ``max_lr``, fall far below the first rate, and move the momentum the other way.

    Args:
        max_lr: the peak, one or one for each group.
        total_steps: length in steps, or ``epochs`` * ``steps_per_epoch``.
        pct_start: share of the rise. anneal_strategy: "cos" or "linear".
        cycle_momentum: move "momentum" or beta1 between ``max_momentum`` and ``base_momentum``.
        div_factor: peak over first rate. final_div_factor: first over last rate.
        three_phase: fall back to the first rate before the last phase.

    Raises: UserError for bad arguments, or for more steps than the cycle has.
    Source: Smith, Topin 2017, arXiv:1708.07120.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise _C.UserError(
                    "OneCycleLR: the number of steps is not known; give total_steps, or "
                    "epochs and steps_per_epoch"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise _C.UserError(
                f"OneCycleLR: total_steps must be a positive integer: got {total_steps}"
            )
        if not 0.0 <= pct_start <= 1.0:
            raise _C.UserError(f"OneCycleLR: pct_start must be from 0 to 1: got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise _C.UserError(
                f"OneCycleLR: anneal_strategy must be 'cos' or 'linear': got {anneal_strategy!r}"
            )
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        self._phases = self._plan(total_steps, pct_start, three_phase)
        groups = optimizer.param_groups
        peaks = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * len(groups)
        if len(peaks) != len(groups):
            raise _C.UserError(
                f"OneCycleLR: max_lr must be one number or {len(groups)}: got {len(peaks)}"
            )
        if last_epoch == -1:
            for group, peak in zip(groups, peaks, strict=True):
                group["initial_lr"] = peak / div_factor
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    self._set_momentum(group, max_momentum)
                    group["max_momentum"] = max_momentum
                    group["base_momentum"] = base_momentum
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _plan(
        total_steps: int, pct_start: float, three_phase: bool
    ) -> list[tuple[float, str, str, str, str]]:
        """Last step of each phase, and where rate and momentum start and end."""
        rise = pct_start * total_steps - 1.0
        up = ("initial_lr", "max_lr", "max_momentum", "base_momentum")
        last = float(total_steps - 1)
        if not three_phase:
            return [(rise, *up), (last, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        return [
            (rise, *up),
            (2.0 * rise, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
            (last, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
        ]

    @staticmethod
    def _set_momentum(group: dict[str, Any], value: float) -> None:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        elif "momentum" in group:
            group["momentum"] = value
        else:
            raise _C.UserError(
                "cycle_momentum: the optimizer has neither momentum nor betas; pass "
                "cycle_momentum=False"
            )

    def _anneal(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1.0)

    def get_lr(self) -> list[float]:
        """See the class; also sets the momentum."""
        step = self.last_epoch
        if step > self.total_steps:
            raise _C.UserError(
                f"OneCycleLR: more steps than total_steps: got step {step} of "
                f"{self.total_steps}; make the schedule longer"
            )
        first = 0.0
        last, *names = self._phases[-1]
        for index, (phase_last, *phase_names) in enumerate(self._phases):
            if step <= phase_last or index == len(self._phases) - 1:
                last, names = phase_last, phase_names
                break
            first = phase_last
        share = (step - first) / (last - first)
        values = []
        for group in self.optimizer.param_groups:
            values.append(self._anneal(group[names[0]], group[names[1]], share))
            if self.cycle_momentum:
                momentum = self._anneal(group[names[2]], group[names[3]], share)
                self._set_momentum(group, momentum)
        return values


class CyclicLR(LRScheduler):
    """Go up and down between ``base_lr`` and ``max_lr``.

    Args:
        step_size_up, step_size_down: steps of the rise and of the fall (None: as the rise).
        mode: "triangular", "triangular2" (half the height each cycle) or "exp_range"
            (gamma ^ step), unless ``scale_fn`` is given.
        scale_mode: "cycle" or "iterations", what ``scale_fn`` is called with.
        cycle_momentum: move "momentum" or beta1 the other way.

    Source: Smith 2015, arXiv:1506.01186.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        lows = list(base_lr) if isinstance(base_lr, Sequence) else [base_lr] * count
        highs = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * count
        if len(lows) != count or len(highs) != count:
            raise _C.UserError(f"CyclicLR: base_lr and max_lr must be one number or {count} each")
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise _C.UserError(
                "CyclicLR: mode must be 'triangular', 'triangular2' or 'exp_range': got "
                f"{mode!r}; or give scale_fn"
            )
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                group["lr"] = low
        self.max_lrs = highs
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn = scale_fn
        self.scale_mode = "iterations" if scale_fn is None and mode == "exp_range" else scale_mode
        self.cycle_momentum = cycle_momentum
        self.base_momentum = base_momentum
        self.max_momentum = max_momentum
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """Height of a cycle, or of a step, over the first."""
        if self._scale_fn is not None:
            return float(self._scale_fn(x))
        if self.mode == "triangular2":
            return float(2.0 ** (1.0 - x))
        return float(self.gamma**x) if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[float]:
        """See the class; also sets the momentum."""
        cycle = math.floor(1.0 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rises = x <= self.step_ratio
        share = x / self.step_ratio if rises else (x - 1.0) / (self.step_ratio - 1.0)
        height = share * self.scale_fn(
            float(cycle if self.scale_mode == "cycle" else self.last_epoch)
        )
        if self.cycle_momentum:
            momentum = self.max_momentum - (self.max_momentum - self.base_momentum) * height
            for group in self.optimizer.param_groups:
                OneCycleLR._set_momentum(group, momentum)
        pairs = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * height for low, high in pairs]
