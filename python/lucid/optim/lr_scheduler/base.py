"""LRScheduler: numbers on the host, written into the optimizer's groups."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid.optim.optimizer import Optimizer


class LRScheduler:
    """Base class: ``get_lr`` gives each group's next learning rate from ``last_epoch``.

    Args:
        optimizer: its groups' "lr" is set; "initial_lr" remembers the first.
        last_epoch: -1 starts anew; another number resumes and needs "initial_lr".
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise _C.ArgumentTypeError(
                f"{type(self).__name__}: expected an Optimizer: got {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise _C.UserError(
                    f"{type(self).__name__}: 'initial_lr' is missing in "
                    f"param_groups[{index}]; it must be there when last_epoch is given"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self.step()

    def get_lr(self) -> list[float]:
        """The learning rate of each group at ``last_epoch``."""
        raise _C.UnsupportedError(f"{type(self).__name__}: get_lr is not defined")

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last step set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Advance by one epoch, or to ``epoch``, and set the learning rates."""
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", self.get_lr)
            values = closed()
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            group["lr"] = value
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _current(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[float]:
        return [value * factor for value in self._current()]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name != "optimizer" and not _holds_functions(value)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self.__dict__.update(state_dict)


def _holds_functions(value: object) -> bool:
    """True for a function and for a list of functions; objects with state are kept."""
    if isinstance(value, list):
        return any(_holds_functions(item) for item in value)
    return callable(value)
