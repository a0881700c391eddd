"""Methods, properties and operators of Tensor, attached to the core's class by ``attach``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy
from numpy.typing import NDArray

from lucid import _C
from lucid._C import Tensor, emit
from lucid._C import view as make_view
from lucid.functions import (
    arranging,
    comparison,
    creation,
    indexing,
    linear_algebra,
    pointwise,
    random,
    reduction,
    searching,
    shape,
    sorting,
    subscript,
)
from lucid.functions.aliases import with_aliases
from lucid.functions.arguments import (
    DeviceLike,
    Operand,
    Size,
    as_device,
    cast,
    converted,
    normalize_dim,
    place,
)
from lucid.functions.data import to_array
from lucid.functions.dtypes import (
    as_dtype,
    dtype_from_name,
    dtype_name,
    is_floating,
    is_integer,
    numpy_name,
    size_bytes,
)
from lucid.functions.formatting import format_element, to_text
from lucid.functions.inplace import METHODS as IN_PLACE
from lucid.functions.operators import OPERATORS

__all__ = ["attach"]

# Functions whose first parameter is the tensor: methods as they are.
_FUNCTIONS = (
    (
        pointwise,
        "abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh ceil clamp "
        "clamp_max clamp_min clip cos cosh div divide erf erfc exp exp2 expm1 floor floor_divide "
        "fmod frac lerp log log10 log1p log2 logaddexp logit maximum minimum mul multiply "
        "nan_to_num neg negative pow reciprocal relu remainder round rsqrt sigmoid sign sin sinh "
        "sqrt square sub subtract tan tanh true_divide trunc xlogy",
    ),
    (
        comparison,
        "allclose bitwise_and bitwise_not bitwise_or bitwise_xor eq equal ge gt isclose isfinite "
        "isinf isnan le logical_and logical_not logical_or logical_xor lt masked_fill ne",
    ),
    (
        reduction,
        "all amax amin aminmax any argmax argmin count_nonzero cumprod cumsum diff "
        "log_softmax logsumexp max mean median min nanmean nansum norm prod quantile softmax std "
        "sum var",
    ),
    (sorting, "argsort kthvalue sort topk"),
    (
        shape,
        "broadcast_to chunk clone contiguous diagonal expand expand_as flatten flip movedim narrow "
        "permute ravel repeat repeat_interleave reshape roll select split squeeze swapaxes "
        "swapdims t tile transpose unbind unflatten unsqueeze view",
    ),
    (arranging, "diag diag_embed fliplr flipud moveaxis split_with_sizes unfold"),
    (searching, "argwhere bincount"),
    (subscript, "index_put"),
    (
        indexing,
        "gather index_add index_copy index_fill index_select masked_select nonzero scatter "
        "scatter_add scatter_reduce take take_along_dim unique",
    ),
    (
        linear_algebra,
        "addmm addmv baddbmm bmm dot inner matmul mm mv outer trace",
    ),
    (creation, "tril triu"),
    (random, "bernoulli multinomial"),
)


# ---- facts ---------------------------------------------------------------------------------


def size(self: Tensor, dim: int | None = None) -> tuple[int, ...] | int:
    """The shape, or the size of one axis. Raises: OutOfRangeError."""
    if dim is None:
        return self.shape
    if self.ndim == 0:
        raise _C.OutOfRangeError("size: a 0-d tensor has no axis; use size() or shape")
    return self.shape[normalize_dim("size", dim, self.ndim)]


def dim(self: Tensor) -> int:
    """Number of axes."""
    return self.ndim


def nelement(self: Tensor) -> int:
    """Number of elements."""
    return self.numel()


def element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return size_bytes(self.dtype)


def stride(self: Tensor, dim: int | None = None) -> tuple[int, ...] | int:
    """Elements between neighbours along each axis, or one: every tensor is dense, row-major."""
    sizes = self.shape
    strides = tuple([math.prod(sizes[d + 1 :]) for d in range(len(sizes))])
    return strides if dim is None else strides[normalize_dim("stride", dim, self.ndim)]


def is_contiguous(self: Tensor) -> bool:
    """True: every tensor is dense and in row-major order."""
    return True


def is_floating_point(self: Tensor) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return is_floating(self.dtype)


# ---- other dtypes and devices --------------------------------------------------------------


def to(
    self: Tensor,
    *args: Any,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    copy: bool = False,
) -> Tensor:
    """This tensor in another dtype, on another device, or both; itself if nothing changes.

    Args:
        args: a dtype, a device, a device and a dtype, or a tensor that has both.
        copy: makes a new tensor in any case.

    Raises: DeviceUnavailableError, DtypeError, ArgumentTypeError for another argument.
    """
    for i, arg in enumerate(args):
        if isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, str | _C.device):
            device = as_device(arg)
        elif isinstance(arg, bool) and i > 0:
            copy = copy or (arg and i == len(args) - 1 and i > 1)
        elif arg is not None:
            dtype = as_dtype(arg)
    if dtype is None:
        result = place(self, device)
    else:
        result = converted(self, as_dtype(dtype), device)
    return shape.clone(result) if copy and result is self else result


def type_(self: Tensor, dtype: _C.dtype | None = None) -> Tensor | str:
    """This tensor in ``dtype``; without one, the name of its own."""
    return str(self.dtype) if dtype is None else cast(self, as_dtype(dtype))


def cpu(self: Tensor) -> Tensor:
    """This tensor on the cpu."""
    return place(self, "cpu")


def metal(self: Tensor) -> Tensor:
    """This tensor on the Metal device. Raises: DeviceUnavailableError where there is none."""
    return place(self, "metal")


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype of ``other``, on its device; itself if it is there already."""
    return converted(self, other.dtype, other.device)


def _make_cast(name: str, dtype: _C.dtype) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        return cast(self, dtype)

    method.__name__ = name
    method.__doc__ = f"This tensor as {dtype_name(dtype)}; itself if it is."
    return method


_CASTS = {
    "bfloat16": _C.bfloat16,
    "bool": _C.bool_,
    "byte": _C.uint8,
    "char": _C.int8,
    "double": _C.float64,
    "float": _C.float32,
    "half": _C.float16,
    "int": _C.int32,
    "long": _C.int64,
    "short": _C.int16,
}


# ---- tensors like this one -----------------------------------------------------------------


def new_tensor(
    self: Tensor,
    data: object,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``lucid.tensor(data)`` with this dtype and device where none is given."""
    return creation.tensor(data, dtype or self.dtype, device or self.device, requires_grad)


def new_full(
    self: Tensor,
    size: Size,
    fill_value: float,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``lucid.full`` with this dtype and device where none is given."""
    return creation.filled(
        "new_full",
        (size,),
        fill_value,
        dtype or self.dtype,
        device or self.device,
        requires_grad,
    )


def _make_new(name: str, value: int) -> Callable[..., Tensor]:
    def method(
        self: Tensor,
        *size: Size,
        dtype: _C.dtype | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        kind, where = dtype or self.dtype, device or self.device
        return creation.filled(name, size, value, kind, where, requires_grad)

    method.__name__ = name
    method.__doc__ = f"``{value}`` everywhere, with this dtype and device where none is given."
    return method


# ---- hooks ---------------------------------------------------------------------------------


class HookHandle:
    """Stands for a gradient hook; ``remove`` takes it away. Also a context manager."""

    def __init__(self, tensor: Tensor, place: int) -> None:
        self._tensor: Tensor | None = tensor
        self._place = place

    def remove(self) -> None:
        """Takes the hook away; a second call does nothing."""
        if self._tensor is not None:
            self._tensor._remove_hook(self._place)
            self._tensor = None

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Calls ``hook(gradient)`` whenever this tensor's gradient is computed; a result replaces it.

    Raises: AutogradError if the tensor requires no gradient.
    """
    return HookHandle(self, self._register_hook(hook))


# ---- shapes --------------------------------------------------------------------------------


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """View with the shape of ``other``. Raises: ShapeError if the numbers of elements differ."""
    return make_view("reshape", self, shape=other.shape)


def _reversed_axes(self: Tensor) -> Tensor:
    """View with all axes in reverse order."""
    return make_view("permute", self, dims=tuple(range(self.ndim))[::-1])


def _transposed_matrices(self: Tensor) -> Tensor:
    """View with the last two axes swapped. Raises: ShapeError for fewer than two."""
    if self.ndim < 2:
        raise _C.ShapeError(
            f"mT: fewer than two axes: got shape {tuple(self.shape)}; give a matrix"
        )
    return shape.transpose(self, -2, -1)


def where(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """This tensor where ``condition`` is true, else ``other``."""
    return emit("where", condition, self, other)


# ---- protocols -----------------------------------------------------------------------------


_share = Tensor.__init__


def _init(self: Tensor, *data: Any, requires_grad: bool = False) -> None:
    """A leaf that shares the cell of a tensor; of sizes, zeros; of nested lists, their numbers.

    What is new has the default float dtype.
    """
    if data and isinstance(data[0], Tensor):
        _share(self, data[0], bool(data[1]) if len(data) > 1 else requires_grad)
        return
    if all(isinstance(n, int) for n in data):
        made = creation.zeros(data or (0,))
    else:
        made = creation.tensor(data[0], _C.get_default_dtype())
    _share(self, made, requires_grad)


def _len(self: Tensor) -> int:
    if self.ndim == 0:
        raise _C.ArgumentTypeError("len: a 0-d tensor has no length; use item()")
    return self.shape[0].__index__()  # a plain integer, which a marked size is told of


def _iter(self: Tensor) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise _C.ArgumentTypeError("iter: a 0-d tensor has no elements; use item()")
    return iter(shape.unbind(self))


def _single(self: Tensor, op: str) -> Any:
    if self.numel() != 1:
        raise _C.UserError(
            f"{op}: expected one element: got shape {tuple(self.shape)}; "
            "reduce it first, for example with any() or sum()"
        )
    return _C._to_numpy(self, op).item()


def _bool(self: Tensor) -> bool:
    return bool(_single(self, "bool"))


def _int(self: Tensor) -> int:
    return int(_single(self, "int"))


def _float(self: Tensor) -> float:
    return float(_single(self, "float"))


def _index(self: Tensor) -> int:
    if not is_integer(self.dtype) or self.ndim:
        raise _C.ArgumentTypeError(
            f"index: only a 0-d integer tensor counts as an index: got {dtype_name(self.dtype)} "
            f"of shape {tuple(self.shape)}"
        )
    return int(self.item())


def _contains(self: Tensor, element: Operand) -> bool:
    return bool(reduction.any(comparison.eq(self, element)).item())


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
    array = self.numpy()
    if dtype is not None and array.dtype is not dtype:
        if copy is False:
            raise _C.UserError(f"array: a copy is needed to give dtype {dtype}; allow it")
        return array.astype(dtype)
    return array.copy() if copy else array


def _dlpack(self: Tensor, **options: Any) -> Any:
    # NumPy's view is read-only, which its exporter refuses, so a copy is exported.
    return self.numpy().copy().__dlpack__(**options)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    return (1, 0)  # kDLCPU of dlpack.h


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if not self.is_leaf:
        raise _C.AutogradError(
            "deepcopy: the tensor is no leaf, and its history cannot be copied; "
            "copy x.detach().clone() instead"
        )
    copy = shape.clone(self.detach())
    memo[id(self)] = copy
    if self.requires_grad:
        copy.requires_grad_()
    if self.grad is not None:
        copy.grad = _deepcopy(self.grad, memo)
    return copy


def to_parts(x: Tensor) -> tuple[bytes, tuple[int, ...], str, str]:
    """Elements as bytes (bfloat16 as float32), shape, dtype's name and device, for pickling."""
    data = to_array(x).tobytes()
    return data, tuple(x.shape), dtype_name(x.dtype), x.device.type


def from_parts(
    data: bytes, sizes: tuple[int, ...], name: str, device: str, requires_grad: bool = False
) -> Tensor:
    """The tensor that ``to_parts`` took apart."""
    dtype = dtype_from_name(name)
    array = numpy.frombuffer(data, dtype=numpy_name(dtype) or "float32").reshape(sizes)
    tensor = cast(_C.from_numpy(array, copy=True), dtype)
    return place(tensor, None if device == "cpu" else device, requires_grad)


def _reduce(self: Tensor) -> tuple[Any, ...]:
    return from_parts, (*to_parts(self), self.requires_grad)


_PROTOCOLS: dict[str, Callable[..., Any]] = {
    "__array__": _array,
    "__bool__": _bool,
    "__contains__": _contains,
    "__deepcopy__": _deepcopy,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "__float__": _float,
    "__format__": format_element,
    "__getitem__": subscript.get,
    "__hash__": object.__hash__,
    "__index__": _index,
    "__init__": _init,
    "__int__": _int,
    "__iter__": _iter,
    "__len__": _len,
    "__reduce__": _reduce,
    "__repr__": to_text,
    "__setitem__": subscript.put,
}


def _methods() -> dict[str, Callable[..., Any]]:
    table = {name: getattr(module, name) for module, names in _FUNCTIONS for name in names.split()}
    own = (
        size,
        dim,
        nelement,
        element_size,
        stride,
        is_contiguous,
        is_floating_point,
        to,
        cpu,
        metal,
        type_as,
        new_tensor,
        new_full,
        view_as,
        where,
        register_hook,
    )
    table.update({function.__name__: function for function in own})
    table.update({name: _make_cast(name, dtype) for name, dtype in _CASTS.items()})
    table.update(
        {
            name: _make_new(name, v)
            for name, v in (("new_zeros", 0), ("new_ones", 1), ("new_empty", 0))
        }
    )
    table["ndimension"] = dim
    table["type"] = type_
    table["reshape_as"] = view_as
    return table


def attach() -> None:
    """Gives the core's Tensor its methods, operators and properties; what the core has stays."""
    native = set(vars(Tensor))
    inherited = {"__hash__", "__init__", "__repr__", "__format__", "__reduce__", "__eq__", "__ne__"}

    def put(name: str, value: Any) -> None:
        if name not in native or name in inherited:
            setattr(Tensor, name, value)

    for name, method in {**_methods(), **IN_PLACE}.items():
        put(name, with_aliases(method, method=True))
    for name, method in {**OPERATORS, **_PROTOCOLS}.items():
        put(name, method)
    put("T", property(_reversed_axes))
    put("mT", property(_transposed_matrices))
    put("itemsize", property(element_size))
    if not hasattr(_C.Generator, "seed"):
        setattr(_C.Generator, "seed", random.seed_anew)  # noqa: B010  # the stub has it
    # NumPy's arrays leave operators with a tensor to the tensor.
    put("__array_priority__", 1000)
