"""autocast: each operation in the dtype that suits it. The casts themselves are the core's."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from lucid import _C
from lucid.autograd.modes import run_inside

__all__ = [
    "autocast",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])

_DEVICES = (_C.device("cpu"), _C.device("metal"))
_LOW = (_C.bfloat16, _C.float16)

_Modes = tuple[tuple[bool, _C.dtype], ...]


class _Entered(threading.local):
    """The modes before each context of this thread that has not ended."""

    def __init__(self) -> None:
        self.modes: list[_Modes] = []


_entered = _Entered()


def _device(op: str, device_type: object) -> _C.device:
    if isinstance(device_type, _C.device):
        return device_type
    if isinstance(device_type, str):
        return _C.device(device_type)
    raise _C.ArgumentTypeError(
        f"{op}: device_type must be 'cpu' or 'metal': got {type(device_type).__name__}; "
        "give it first, then dtype"
    )


class autocast:
    """Runs each operation inside in the dtype that suits it. Context manager and decorator.

    Args:
        device_type: "cpu" or "metal": operations on tensors of that device; None means both.
        dtype: the low dtype, bfloat16 or float16; None means bfloat16 on cpu, float16 on metal.
            Another dtype warns and turns autocast off, as in PyTorch.
        enabled: False turns autocast off inside, also within another autocast.
        cache_enabled: accepted and without effect: eager code casts a parameter at each use, a
            compiled step once a run; the results are the same.

    The mode belongs to the thread. Only floating tensors are cast, never float64; the casts are
    ordinary operations with gradients, so a parameter stays float32 and so does its gradient. The
    backward runs in the dtypes of the forward, whether or not it stands inside the context.

    - To the low dtype: linear, convolutions, transposed ones too, matmul, mm, bmm, mv, addmm,
      addmv, baddbmm, einsum, prelu, scaled_dot_product_attention, recurrent layers and cells.
    - To float32: acos, asin, cosh, sinh, tan, exp, expm1, log, log10, log1p, log2, pow, reciprocal,
      rsqrt, sum, prod, cumsum, cumprod, norm, logsumexp, softmax, log_softmax, softmin, softplus,
      layer_norm, group_norm, rms_norm, cosine_similarity, pairwise_distance, trace, grid_sample,
      padding by reflection and replication, and every loss.
    - To the widest among the inputs: addcdiv, addcmul, atan2, bilinear, cat, dot, index_copy,
      scatter_add, stack, tensordot; all element-wise operations promote by themselves.
    - All else is left alone. So are methods that write into their tensor (``x.exp_()``). A sum,
      product or softmax with ``dtype=`` has that dtype.

    On cpu a half tensor is stored in half the bytes and computed in float32.

    Differences from PyTorch, whose lists differ by device: the lists here hold for both devices;
    they are PyTorch's of CUDA with those of CPU added. Of float32 tensors the results have the
    dtypes of PyTorch 2.13 on CPU, but that mv, addmv and an einsum without a product give the low
    dtype, tensordot float32. Of low tensors exp, log, pow, sum, norm, softmax, softplus, layer_norm
    and their like give float32, which CPU leaves low. binary_cross_entropy runs in float32, where
    CUDA refuses it; rms_norm and every loss made of several operations are cast as a whole.

    Raises: ArgumentTypeError for another ``device_type`` or ``dtype``, UserError for an unknown
        device.
    Source: Micikevicius and others 2018, arXiv:1710.03740; PyTorch 2.13, torch.amp.
    """

    def __init__(
        self,
        device_type: str | _C.device | None = None,
        dtype: _C.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        both = device_type is None
        self._devices = _DEVICES if both else (_device("autocast", device_type),)
        if dtype is not None and not isinstance(dtype, _C.dtype):
            raise _C.ArgumentTypeError(
                f"autocast: dtype must be lucid.bfloat16 or lucid.float16: got "
                f"{type(dtype).__name__}; device_type comes first"
            )
        self._dtype = dtype
        self._enabled = bool(enabled)
        if dtype is not None and dtype not in _LOW:
            if self._enabled:
                warnings.warn(
                    f"autocast: dtype must be bfloat16 or float16: got {dtype.name}; autocast is "
                    "off here",
                    UserWarning,
                    stacklevel=2,
                )
            self._dtype = None
            self._enabled = False

    def __enter__(self) -> autocast:
        _entered.modes.append(tuple(_C.autocast_mode(d) for d in _DEVICES))
        for device in self._devices:
            low = _C.autocast_mode(device)[1] if self._dtype is None else self._dtype
            _C.set_autocast_mode(device, self._enabled, low)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for device, (enabled, low) in zip(_DEVICES, _entered.modes.pop(), strict=True):
            _C.set_autocast_mode(device, enabled, low)

    def __call__(self, function: F) -> F:
        return run_inside(lambda: self, function)


def is_autocast_enabled(device_type: str | _C.device | None = None) -> bool:
    """True where autocast is on in this thread for that device; None asks for any device."""
    if device_type is None:
        return _C.is_autocast_on()
    return _C.autocast_mode(_device("is_autocast_enabled", device_type))[0]


def get_autocast_dtype(device_type: str | _C.device = "cpu") -> _C.dtype:
    """The low dtype of autocast in this thread for that device, whether it is on or off."""
    return _C.autocast_mode(_device("get_autocast_dtype", device_type))[1]


def is_autocast_available(device_type: str | _C.device) -> bool:
    """True for a device that exists on this machine."""
    try:
        _C.require_device(_device("is_autocast_available", device_type))
    except _C.DeviceUnavailableError:
        return False
    return True
