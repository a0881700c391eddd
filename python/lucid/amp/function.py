"""custom_fwd and custom_bwd: autocast for an autograd.Function written in Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from lucid import _C
from lucid._C import Tensor
from lucid.amp.autocast import autocast, get_autocast_dtype, is_autocast_enabled

__all__ = ["custom_bwd", "custom_fwd"]

F = TypeVar("F", bound=Callable[..., Any])


def _cast(value: Any, device: _C.device, dtype: _C.dtype) -> Any:
    """``value`` with its floating tensors on ``device`` in ``dtype``; float64 is left alone."""
    if isinstance(value, Tensor):
        is_cast = value.dtype.is_floating_point and value.dtype is not _C.float64
        return value.to(dtype) if is_cast and value.device == device else value
    if isinstance(value, Mapping):
        return {_cast(k, device, dtype): _cast(v, device, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, device, dtype) for item in value)
    return value


@overload
def custom_fwd(
    fwd: None = None, *, device_type: str = "cpu", cast_inputs: _C.dtype | None = None
) -> Callable[[F], F]: ...


@overload
def custom_fwd(fwd: F, *, device_type: str = "cpu", cast_inputs: _C.dtype | None = None) -> F: ...


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str = "cpu",
    cast_inputs: _C.dtype | None = None,
) -> Any:
    """Decorator of an ``autograd.Function``'s forward; its backward needs :func:`custom_bwd`.

    Args:
        cast_inputs: while autocast is on, floating tensors among the arguments are cast to this
            and the forward runs with autocast off; None leaves them, and autocast on.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    device = _C.device(device_type)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._autocast_dtype = get_autocast_dtype(device)
        ctx._fwd_used_autocast = is_autocast_enabled(device)
        if cast_inputs is None or not ctx._fwd_used_autocast:
            return fwd(ctx, *args, **kwargs)
        ctx._fwd_used_autocast = False
        with autocast(device, enabled=False):
            cast = _cast((args, kwargs), device, cast_inputs)
            return fwd(ctx, *cast[0], **cast[1])

    return decorated


@overload
def custom_bwd(bwd: None = None, *, device_type: str = "cpu") -> Callable[[F], F]: ...


@overload
def custom_bwd(bwd: F, *, device_type: str = "cpu") -> F: ...


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cpu") -> Any:
    """Decorator of an ``autograd.Function``'s backward: autocast as its forward had it."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    device = _C.device(device_type)

    @functools.wraps(bwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device, ctx._autocast_dtype, ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return decorated
