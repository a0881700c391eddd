"""GradScaler: keeps small gradients of a half-precision backward from becoming 0."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.arguments import refuse_in_trace
from lucid.functions.comparison import all_finite
from lucid.functions.precision import without_autocast
from lucid.optim.optimizer import Optimizer

__all__ = ["GradScaler"]


class _Stage(enum.Enum):
    """How far an optimizer is since the last update()."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Progress:
    """One optimizer between two updates; kept by reference so that its id stays its own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.stage = _Stage.READY
        self.found_inf: bool | None = None


def _rounded(value: float) -> float:
    """The nearest float32, as a Python number; PyTorch keeps the scale in that dtype."""
    with numpy.errstate(over="ignore", under="ignore"):
        return float(numpy.float32(value))


class GradScaler:
    """Multiplies the loss by a scale, divides the gradients by it, and steers the scale.

    Args:
        device: "cpu" or "metal"; without effect, the scale follows the tensors. In PyTorch's order.
        init_scale: the first scale.
        growth_factor: > 1; multiplies the scale after ``growth_interval`` good steps in a row.
        backoff_factor: < 1; multiplies the scale after a step with a gradient of inf or nan.
        growth_interval: number of steps.
        enabled: False makes ``scale`` and ``unscale_`` do nothing and ``step`` step.

    A step whose gradients are not all finite is left out: parameters and the optimizer's state
    stay as they are. The scale is a float32 number. A compiled step starts its backward with the
    scale of the call before, so a scale that has not changed costs no second run.

    Raises: UserError for a factor out of range, ArgumentTypeError for another ``device``.
    Source: Micikevicius and others 2018, arXiv:1710.03740, section 3.2; PyTorch 2.13,
        torch.amp.GradScaler.

    A step that scales, checks and updates by itself takes part by three methods: ``_scale_value``
    before the run, ``_check_step(optimizer)`` to refuse one out of turn, and
    ``_report(optimizer, found_inf)`` after it; ``update`` then goes on as usual.
    """

    def __init__(
        self,
        device: str | _C.device = "cpu",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not isinstance(device, (str, _C.device)):
            raise _C.ArgumentTypeError(
                f"GradScaler: device must be 'cpu' or 'metal': got {type(device).__name__}; "
                "give init_scale by name"
            )
        self._device = _C.device(device) if isinstance(device, str) else device
        self._enabled = bool(enabled)
        if self._enabled and not growth_factor > 1.0:
            raise _C.UserError(f"GradScaler: growth_factor must be > 1: got {growth_factor}")
        if self._enabled and not backoff_factor < 1.0:
            raise _C.UserError(f"GradScaler: backoff_factor must be < 1: got {backoff_factor}")
        if self._enabled and not (init_scale > 0 and math.isfinite(init_scale)):
            raise _C.UserError(
                f"GradScaler: init_scale must be positive and finite: got {init_scale}"
            )
        if self._enabled and growth_interval < 1:
            raise _C.UserError(
                f"GradScaler: growth_interval must be a positive integer: got {growth_interval}"
            )
        self._init_scale = _rounded(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._scale: float | None = None  # until it is first used
        self._tensors: dict[str, Tensor] = {}  # the scale, by device
        self._progress: dict[int, _Progress] = {}

    # ------------------------------------------------------------ a step

    def scale(self, outputs: Any) -> Any:
        """A tensor times the scale; of an iterable of tensors, each of them in a like iterable.

        Returns: a list or tuple for one, an iterator for another iterable.
        Raises: ArgumentTypeError for anything else, TraceError inside a compiled step.
        """
        if not self._enabled:
            return outputs
        refuse_in_trace(
            "scale",
            "a GradScaler inside a compiled step would be frozen into it",
            "scale the loss that the step returns",
        )
        if isinstance(outputs, Tensor):
            return outputs * self._scale_tensor(outputs.device)
        if isinstance(outputs, (str, bytes, Mapping)) or not isinstance(outputs, Iterable):
            raise _C.ArgumentTypeError(
                f"scale: outputs must be a Tensor or an iterable of Tensors: got "
                f"{type(outputs).__name__}"
            )
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place.

        ``step`` does it where it has not been done; call it to clip gradients in between.

        Raises: AutogradError a second time before ``update``, or after ``step``; UserError for
            float16 gradients, which have no room for the division, or without ``scale``.
        """
        if not self._enabled:
            return
        scale = self._used_scale("unscale_")
        progress = self._progress_of(optimizer)
        if progress.stage is _Stage.UNSCALED:
            raise _C.AutogradError(
                "unscale_: already called for this optimizer since the last update(); call it once"
            )
        if progress.stage is _Stage.STEPPED:
            raise _C.AutogradError(
                "unscale_: called after step(); call it before, or call update() first"
            )
        progress.found_inf = without_autocast(_unscale, _gradients_of(optimizer), scale)
        progress.stage = _Stage.UNSCALED

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step(*args, **kwargs)`` if every gradient is finite, else nothing.

        Returns: what the optimizer's step returned; None where it was left out.
        Raises: AutogradError a second time before ``update``; UserError for a closure, without
            ``scale``, or for an optimizer without any gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise _C.AutogradError(
                "step: a closure cannot be used while the GradScaler is enabled; compute the loss "
                "before"
            )
        self._used_scale("step")
        progress = self._progress_of(optimizer)
        self._refuse_second_step(progress)
        if progress.stage is _Stage.READY:
            self.unscale_(optimizer)
        if progress.found_inf is None:
            raise _C.UserError(
                "step: no gradient of this optimizer was checked: its parameters have none; call "
                "backward() first"
            )
        result = None if progress.found_inf else optimizer.step(**kwargs)
        progress.stage = _Stage.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Move the scale by what the steps since the last update met; or set it.

        Args:
            new_scale: a number, or a float32 tensor of one element.

        Raises: UserError without ``scale`` or without any checked step; ArgumentTypeError for
            another ``new_scale``.
        """
        if not self._enabled:
            return
        scale = self._used_scale("update")
        if new_scale is not None:
            self._set_scale(_number(new_scale))
        else:
            found = [p.found_inf for p in self._progress.values() if p.found_inf is not None]
            if not found:
                raise _C.UserError(
                    "update: no gradients were checked since the last update(); call "
                    "step(optimizer) first"
                )
            self._move(scale, any(found))
        self._progress = {}

    def _move(self, scale: float, found_inf: bool) -> None:
        if found_inf:
            self._growth_tracker = 0
            self._set_scale(_rounded(scale * self._backoff_factor))
            return
        self._growth_tracker += 1
        if self._growth_tracker != self._growth_interval:
            return
        self._growth_tracker = 0
        grown = _rounded(scale * self._growth_factor)
        if math.isfinite(grown):
            self._set_scale(grown)

    # ------------------------------------------------------------ the scale

    def _used_scale(self, op: str) -> float:
        if self._scale is None:
            raise _C.UserError(
                f"{op}: nothing has been scaled yet; call scale(loss).backward() before"
            )
        return self._scale

    def _set_scale(self, scale: float) -> None:
        if scale != self._scale:
            self._scale = scale
            self._tensors = {}

    def _scale_tensor(self, device: _C.device) -> Tensor:
        value = self._scale_value()
        known = self._tensors.get(device.type)
        if known is None:
            known = fn.tensor(value, dtype=_C.float32, device=device)
            self._tensors[device.type] = known
        return known

    def _progress_of(self, optimizer: Any) -> _Progress:
        return self._progress.setdefault(id(optimizer), _Progress(optimizer))

    def _refuse_second_step(self, progress: _Progress) -> None:
        if progress.stage is _Stage.STEPPED:
            raise _C.AutogradError(
                "step: already called for this optimizer since the last update(); call update() "
                "after each round of steps"
            )

    def _scale_value(self) -> float:
        """The scale that gradients shall have now; 1 if disabled. Counts as a use of ``scale``."""
        if not self._enabled:
            return 1.0
        if self._scale is None:
            self._scale = self._init_scale
        return self._scale

    def _check_step(self, optimizer: Any) -> None:
        """Refuse a step that unscales by itself where gradients are unscaled or stepped."""
        progress = self._progress_of(optimizer)
        self._refuse_second_step(progress)
        if progress.stage is _Stage.UNSCALED:
            raise _C.AutogradError(
                "step: unscale_() was called, but this step unscales by itself; leave it out"
            )

    def _report(self, optimizer: Any, found_inf: bool) -> None:
        """Note that the optimizer has stepped, or was left out because ``found_inf``."""
        if not self._enabled:
            return
        self._check_step(optimizer)
        progress = self._progress_of(optimizer)
        progress.found_inf = bool(found_inf)
        progress.stage = _Stage.STEPPED

    # ------------------------------------------------------------ settings

    def get_scale(self) -> float:
        """The scale; 1 if disabled. It has no effect to change what is returned."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale

    def get_growth_factor(self) -> float:
        """The factor of growth."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor of growth."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor after a step with inf or nan."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor after a step with inf or nan."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Number of good steps in a row before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of good steps in a row before the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """False if it was made with ``enabled=False``."""
        return self._enabled

    # ------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval and count in PyTorch's format; empty if disabled.

        Call it after ``update``: what is between ``scale`` and ``update`` is not saved.
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; nothing if disabled.

        Raises: UserError for an empty dict, that of a disabled one, or one without a key; then
            nothing has changed.
        """
        if not self._enabled:
            return
        missing = [key for key in self.state_dict() if key not in state_dict]
        if missing:
            raise _C.AutogradError(
                f"load_state_dict: the dict has no {missing[0]!r}; was it saved by an enabled "
                "GradScaler?"
            )
        scale = _rounded(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
        self._init_scale = scale
        if self._scale is not None:
            self._set_scale(scale)

    def __getstate__(self) -> dict[str, Any]:
        if self._progress:
            raise _C.UserError(
                "GradScaler: copied between unscale_() or step() and update(); copy it after "
                "update()"
            )
        return {**self.__dict__, "_tensors": {}}


def _gradients_of(optimizer: Optimizer) -> list[Tensor]:
    params = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in params if p.grad is not None]
    check_unscaled_dtypes(gradients)
    return gradients


def check_unscaled_dtypes(gradients: list[Tensor]) -> None:
    """Refuse gradients that cannot be divided by a scale."""
    if any(g.dtype is _C.float16 for g in gradients):
        raise _C.UserError(
            "unscale_: a gradient is float16: its range has no room for unscaling; keep the "
            "parameters in float32 and run the forward under autocast"
        )


def inverse_of(scale: float) -> float:
    """What gradients of a loss times ``scale`` are multiplied by: a float32 number."""
    return _rounded(1.0 / scale) if scale else math.inf


def unscaled(gradient: Tensor, inverse: Tensor) -> Tensor:
    """A gradient times the () float32 tensor ``inverse``, in the gradient's dtype."""
    # A bfloat16 gradient is multiplied in float32, where the factor is exact.
    wide = gradient.float() if gradient.dtype is _C.bfloat16 else gradient
    product = wide * inverse
    return product if product.dtype == gradient.dtype else product.to(gradient.dtype)


def _unscale(gradients: list[Tensor], scale: float) -> bool | None:
    """True if one of the gradients is not finite; None for no gradients."""
    if not gradients:
        return None
    by_device: dict[str, list[Tensor]] = {}
    for gradient in gradients:
        by_device.setdefault(gradient.device.type, []).append(gradient)
    inverse = inverse_of(scale)
    with no_grad():
        found = [all_finite(group) for group in by_device.values()]
        if inverse != 1.0:
            for group in by_device.values():
                factor = fn.tensor(inverse, dtype=_C.float32, device=group[0].device)
                for gradient in group:
                    gradient.assign_(unscaled(gradient, factor))
        return not all(bool(finite) for finite in found)


def _number(new_scale: float | Tensor) -> float:
    if isinstance(new_scale, Tensor):
        if new_scale.dtype is _C.float32 and new_scale.numel() == 1:
            if not new_scale.requires_grad:
                return float(new_scale.item())
    elif isinstance(new_scale, (int, float)) and not isinstance(new_scale, bool):
        return _rounded(new_scale)
    raise _C.ArgumentTypeError(
        "update: new_scale must be a number or a float32 tensor of one element without a gradient"
    )
