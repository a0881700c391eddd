"""Averages of parameters over training: equal (SWA) or exponential moving (EMA)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.arguments import DeviceLike
from lucid.nn.modules.module import Module

__all__ = ["AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn"]

AverageFn = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverageFn = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _require_decay(op: str, decay: float) -> None:
    if not 0 <= decay <= 1:
        raise _C.UserError(f"{op}: decay must be in 0 to 1: got {decay}")


def get_ema_avg_fn(decay: float = 0.999) -> AverageFn:
    """An ``avg_fn``: decay * average + (1 - decay) * parameter. Raises: UserError."""
    _require_decay("get_ema_avg_fn", decay)

    def average(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return averaged * decay + current * (1 - decay)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverageFn:
    """A ``multi_avg_fn``: every average moves by 1 - decay towards its parameter."""
    _require_decay("get_ema_multi_avg_fn", decay)

    def average(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Any) -> None:
        for mean, value in zip(averaged, current, strict=True):
            if mean.dtype.is_floating_point:
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)

    return average


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that it was shown.

    The first ``update_parameters`` copies. Then comes ``avg_fn(average, current, n)``, whose result
    is the new average, or ``multi_avg_fn(averages, currents, n)``, which writes them; without
    either the average over all updates.

    Args:
        model: copied, with its buffers.
        device: where the copy is put; None: where the model is.
        use_buffers: floating buffers are averaged too; else all are copied at each update.

    Raises: UserError if both functions are given.
    Source: Izmailov and others 2018, arXiv:1803.05407, algorithm 1.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: AverageFn | None = None,
        multi_avg_fn: MultiAverageFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise _C.UserError("AveragedModel: avg_fn and multi_avg_fn are given; choose one")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", fn.zeros((), dtype=fn.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's result."""
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        yield from model.parameters()
        if self.use_buffers:
            yield from model.buffers()

    def update_parameters(self, model: Module) -> None:
        """Take the parameters that ``model`` has now into the averages."""
        with no_grad():
            averages = list(self._averaged(self.module))
            pairs = zip(averages, self._averaged(model), strict=True)
            currents = [value.detach().to(mean.device) for mean, value in pairs]
            if self.n_averaged.item() == 0:
                for mean, value in zip(averages, currents, strict=True):
                    mean.copy_(value)
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(averages, currents, self.n_averaged)
            else:
                self._average_each(averages, currents)
            if not self.use_buffers:
                for mean, value in zip(self.module.buffers(), model.buffers(), strict=True):
                    mean.copy_(value)
            self.n_averaged.add_(1)

    def _average_each(self, averages: Sequence[Tensor], currents: Sequence[Tensor]) -> None:
        count = int(self.n_averaged.item())
        for mean, value in zip(averages, currents, strict=True):
            if not mean.dtype.is_floating_point:
                mean.copy_(value)
            elif self.avg_fn is not None:
                mean.copy_(self.avg_fn(mean, value, self.n_averaged))
            else:
                mean.add_((value - mean) / (count + 1))
