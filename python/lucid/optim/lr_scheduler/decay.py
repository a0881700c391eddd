"""Schedules that follow from the number of the epoch."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from lucid import _C
from lucid.optim.lr_scheduler.base import LRScheduler
from lucid.optim.optimizer import Optimizer

_Factor = Callable[[int], float]


def _per_group(optimizer: Optimizer, functions: _Factor | Sequence[_Factor]) -> list[_Factor]:
    count = len(optimizer.param_groups)
    if callable(functions):
        return [functions] * count
    if len(functions) != count:
        raise _C.UserError(f"lr_lambda: one function or {count} are needed: got {len(functions)}")
    return list(functions)


class LambdaLR(LRScheduler):
    """The first rate times ``lr_lambda(epoch)``; one function or one for each group."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: _Factor | Sequence[_Factor], last_epoch: int = -1
    ) -> None:
        self.lr_lambdas = _per_group(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * factor(self.last_epoch) for base, factor in pairs]


class MultiplicativeLR(LRScheduler):
    """Multiply the rate by ``lr_lambda(epoch)`` at each epoch."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: _Factor | Sequence[_Factor], last_epoch: int = -1
    ) -> None:
        self.lr_lambdas = _per_group(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        if self.last_epoch <= 0:
            return self._current()
        pairs = zip(self._current(), self.lr_lambdas, strict=True)
        return [value * factor(self.last_epoch) for value, factor in pairs]


class StepLR(LRScheduler):
    """Multiply the rate by ``gamma`` every ``step_size`` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        factor = self.gamma ** (self.last_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiply the rate by ``gamma`` at each of the ``milestones``."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        if self.last_epoch not in self.milestones:
            return self._current()
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[float]:
        passed = bisect.bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The first rate times ``factor`` for ``total_iters`` epochs, then the first rate."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0.0 <= factor <= 1.0:
            raise _C.UserError(f"ConstantLR: factor must be from 0 to 1: got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch != self.total_iters:
            return self._current()
        return self._scaled(1.0 / self.factor)

    def _get_closed_form_lr(self) -> list[float]:
        factor = self.factor if self.last_epoch < self.total_iters else 1.0
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A factor that goes from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0.0 < start_factor <= 1.0:
            raise _C.UserError(
                f"LinearLR: start_factor must be above 0 and at most 1: got {start_factor}"
            )
        if not 0.0 <= end_factor <= 1.0:
            raise _C.UserError(f"LinearLR: end_factor must be from 0 to 1: got {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self.last_epoch > self.total_iters:
            return self._current()
        span = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * span
        return self._scaled(1.0 + span / before)

    def _get_closed_form_lr(self) -> list[float]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * share
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiply the rate by ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        return self._current() if self.last_epoch == 0 else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The first rate times (1 - epoch / total_iters) ^ power, 0 after ``total_iters``."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._current()
        now = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((now / before) ** self.power)

    def _get_closed_form_lr(self) -> list[float]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine wave from the first rate to ``eta_min`` in ``T_max`` epochs.

    Source: Loshchilov, Hutter 2016, arXiv:1608.03983, equation 5.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class; from one rate to the next, so that schedulers can be chained."""
        epoch, period, low = self.last_epoch, self.T_max, self.eta_min
        if epoch == 0:
            return self._current()
        if (epoch - 1 - period) % (2 * period) == 0:
            rise = (1.0 - math.cos(math.pi / period)) / 2.0
            pairs = zip(self._current(), self.base_lrs, strict=True)
            return [value + (base - low) * rise for value, base in pairs]
        now = 1.0 + math.cos(math.pi * epoch / period)
        before = 1.0 + math.cos(math.pi * (epoch - 1) / period)
        return [now / before * (value - low) + low for value in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        share = (1.0 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2.0
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]
