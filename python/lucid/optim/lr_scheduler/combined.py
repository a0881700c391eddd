"""Schedules made of others, and the one that follows a metric."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Sequence
from typing import Any

from lucid import _C
from lucid.optim.lr_scheduler.base import LRScheduler
from lucid.optim.optimizer import Optimizer


class SequentialLR(LRScheduler):
    """Several schedulers one after the other, changing at the ``milestones``."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            raise _C.UserError(
                "SequentialLR: schedulers must be one more than milestones: got "
                f"{len(schedulers)} and {len(milestones)}"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise _C.UserError("SequentialLR: all schedulers must belong to the same optimizer")
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Every scheduler set its first rate when it was made; only the first one shall count.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in schedulers:
            scheduler.last_epoch -= 1
        schedulers[0].step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Advance the scheduler whose turn it is."""
        self.last_epoch += 1
        index = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Own numbers and the schedulers' states."""
        skipped = ("optimizer", "_schedulers")
        state = {name: value for name, value in self.__dict__.items() if name not in skipped}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        own = {name: value for name, value in state_dict.items() if name != "_schedulers"}
        self.__dict__.update(own)
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(LRScheduler):
    """Several schedulers at once, each acting on the rate that the one before left."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            raise _C.UserError("ChainedScheduler: no schedulers are given; give at least one")
        self.optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        if any(scheduler.optimizer is not self.optimizer for scheduler in schedulers):
            raise _C.UserError("ChainedScheduler: all schedulers must belong to the same optimizer")
        self._schedulers = list(schedulers)
        self._last_lr = self._current()

    def step(self, epoch: int | None = None) -> None:
        """Advance every scheduler."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()

    def state_dict(self) -> dict[str, Any]:
        """The schedulers' states."""
        return {"_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """Multiply the rate by ``factor`` when a metric has stopped improving.

    Args:
        mode: "min" or "max", which direction is better.
        factor: below 1. patience: epochs without improvement that are allowed.
        threshold, threshold_mode: what counts as improvement, "rel" or "abs".
        cooldown: epochs to wait after a change.
        min_lr: lower bound, one or one for each group.
        eps: smaller changes are left out.

    Raises: UserError for a factor of 1 or more, or an unknown mode.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise _C.UserError(f"ReduceLROnPlateau: factor must be less than 1: got {factor}")
        if mode not in ("min", "max"):
            raise _C.UserError(f"ReduceLROnPlateau: mode must be 'min' or 'max': got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise _C.UserError(
                f"ReduceLROnPlateau: threshold_mode must be 'rel' or 'abs': got {threshold_mode!r}"
            )
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise _C.UserError(
                f"ReduceLROnPlateau: min_lr must be one number or {count}: got {len(self.min_lrs)}"
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current()
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self.best = math.inf if mode == "min" else -math.inf

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take the epoch's metric, a number or a tensor of one element, into account."""
        if epoch is not None:
            warnings.warn("ReduceLROnPlateau.step: epoch is ignored", UserWarning, stacklevel=2)
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current()

    def _is_better(self, value: float) -> bool:
        if self.threshold_mode == "abs":
            margin = self.threshold
        elif math.isinf(self.best):
            margin = 0.0
        else:
            margin = self.threshold * self.best
        if self.mode == "min":
            return value < self.best - margin
        return value > self.best + margin

    def _reduce(self) -> None:
        for group, low in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                group["lr"] = new
