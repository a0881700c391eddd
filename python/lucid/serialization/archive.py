"""save and load: trees of containers, numbers and tensors in an archive without any code.

The file is a zip archive, stored without compression: ``lucid.json`` holds the format's number, the
tree and the types of the tensors; ``tensors/<i>`` holds the elements of tensor i, little-endian and
row-major. In the tree a JSON object ``{"kind": value}`` stands for all that JSON lacks.
"""

from __future__ import annotations

import base64
import json
import math
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

from lucid import _C
from lucid._C import Tensor
from lucid.functions.arguments import DeviceLike, as_device, refuse_in_trace
from lucid.functions.dtypes import dtype_from_name
from lucid.nn.parameter import Parameter
from lucid.serialization.elements import Path, from_bytes, num_bytes, to_bytes, write_whole

__all__ = ["load", "save"]

_FORMAT = 1
_TREE = "lucid.json"
_MAX_DEPTH = 200


class _Writer:
    """The tree of an object, and its tensors in the order in which they were met."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}

    def tree(self, value: Any, path: str, depth: int = 0) -> Any:
        """``value`` as JSON has it; ``path`` is how messages call it."""
        if depth > _MAX_DEPTH:
            raise _C.UserError(
                f"save: containers are nested deeper than {_MAX_DEPTH}: {path[:60]}...; does one "
                "hold itself?"
            )
        if isinstance(value, Tensor):
            return self._tensor(value)
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode("ascii")}
        if kind in (list, tuple):
            items = [self.tree(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
            return {kind.__name__: items}
        if kind in (dict, OrderedDict):
            return {"dict" if kind is dict else "ordered": self._pairs(value, path, depth)}
        if isinstance(value, _C.dtype):
            return {"dtype": value.name}
        if isinstance(value, _C.device):
            return {"device": value.type}
        raise _C.ArgumentTypeError(
            f"save: no {kind.__name__} can be saved: {path}; save tensors, numbers, strings and "
            "containers of them, of a module its state_dict()"
        )

    def _pairs(self, value: dict[Any, Any], path: str, depth: int) -> list[Any]:
        return [
            [self.tree(k, f"key of {path}", depth + 1), self.tree(v, f"{path}[{k!r}]", depth + 1)]
            for k, v in value.items()
        ]

    def _tensor(self, tensor: Tensor) -> Any:
        place = self._places.setdefault(tensor._cell_id, len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
        kind = "parameter" if isinstance(tensor, Parameter) else "tensor"
        return {kind: [place, tensor.requires_grad and tensor.is_leaf]}


def save(obj: Any, f: Path | IO[bytes]) -> None:
    """Write a tree of tensors to a file, to be read by :func:`load`.

    Args:
        obj: tensors, parameters, numbers, strings, bytes, None, dtypes, devices, and lists, tuples
            and dicts of them: state dicts of modules, optimizers, schedules and scalers.
        f: a path, whose file is replaced once all is written, or an open binary file.

    A tensor met twice is written once and is one tensor again; views are written as values of their
    own, gradients and history are left out.

    Raises: ArgumentTypeError, which names the place, for other objects; nothing is written then.
    """
    refuse_in_trace("save", "a step is being traced", "save after it")
    writer = _Writer()
    tree = writer.tree(obj, "obj")
    types = [{"dtype": t.dtype.name, "shape": list(t.shape)} for t in writer.tensors]
    text = json.dumps({"format": _FORMAT, "tensors": types, "tree": tree}, allow_nan=False)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_TREE, text)
            for i, tensor in enumerate(writer.tensors):
                archive.writestr(f"tensors/{i}", to_bytes(tensor))

    write_whole(f, write)


class _Reader:
    """Makes the object of a tree again. Anything unexpected is a broken file."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._taken: dict[tuple[int, str], Tensor] = {}
        self._makers: dict[str, Callable[[Any], Any]] = {
            "float": lambda text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
            "bytes": lambda text: base64.b64decode(text, validate=True),
            "list": lambda items: [self.value(v) for v in items],
            "tuple": lambda items: tuple(self.value(v) for v in items),
            "dict": lambda pairs: {self.value(k): self.value(v) for k, v in pairs},
            "ordered": lambda pairs: OrderedDict((self.value(k), self.value(v)) for k, v in pairs),
            "dtype": dtype_from_name,
            "device": _C.device,
            "tensor": lambda found: self._tensor("tensor", *found),
            "parameter": lambda found: self._tensor("parameter", *found),
        }

    def value(self, tree: Any) -> Any:
        """The object that a part of the tree stands for."""
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        ((kind, content),) = tree.items()
        return self._makers[kind](content)

    def _tensor(self, kind: str, place: int, requires_grad: bool) -> Tensor:
        known = self._taken.get((place, kind))
        if known is None:
            known = self._tensors[range(len(self._tensors))[place]]
            if kind == "parameter":
                known = Parameter(known, bool(requires_grad))
            elif requires_grad:
                known = known.requires_grad_()
            self._taken[place, kind] = known
        return known


def load(
    f: Path | IO[bytes], map_location: DeviceLike | None = None, *, weights_only: bool = True
) -> Any:
    """Read what :func:`save` wrote. Nothing in the file is run, whoever made it.

    Args:
        f: a path or an open binary file.
        map_location: the device of the tensors; None means cpu.
        weights_only: as in PyTorch; only True, the safe way, is there.

    Returns: the object, of tensors without gradients.
    Raises: UserError for a file of another kind or one that is damaged, UnsupportedError for
        ``weights_only=False`` or a newer format, ArgumentTypeError for a ``map_location`` that is
        no device, OSError as ``open`` does.
    """
    refuse_in_trace("load", "a step is being traced", "load before it")
    if not weights_only:
        raise _C.UnsupportedError(
            "load: weights_only=False would run code from the file; only True is there"
        )
    device = None if map_location is None else _location(map_location)
    name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else "the open file"
    try:
        with zipfile.ZipFile(f) as archive:
            return _read(archive, device)
    except _Newer as error:
        raise _C.UnsupportedError(
            f"load: {name} has format {error.args[0]}, this version reads {_FORMAT}; use a newer "
            "lucid"
        ) from None
    except (
        *(zipfile.BadZipFile, _Broken, KeyError, ValueError, TypeError, LookupError),
        *(AttributeError, RecursionError, EOFError, NotImplementedError),
    ) as error:
        raise _C.UserError(
            f"load: {name} is no file of lucid.save, or damaged: {type(error).__name__}: "
            f"{str(error)[:80]}; for weights of others use load_safetensors"
        ) from None


def _location(map_location: object) -> _C.device:
    if isinstance(map_location, (str, _C.device)):
        device = as_device(map_location)
        _C.require_device(device)
        return device
    raise _C.ArgumentTypeError(
        f"load: map_location must be a device: got {type(map_location).__name__}; move tensors "
        "after loading"
    )


class _Newer(Exception):
    """A format of a later version."""


class _Broken(Exception):
    """A file that contradicts itself."""


def _read(archive: zipfile.ZipFile, device: DeviceLike | None) -> Any:
    # Stored means as large in the file as in memory: no small file asks for much.
    if archive.getinfo(_TREE).compress_type != zipfile.ZIP_STORED:
        raise _Broken("the tree is compressed")
    described = json.loads(archive.read(_TREE))
    if described["format"] != _FORMAT:
        raise _Newer(described["format"])
    tensors = [
        _read_tensor(archive, i, type_["dtype"], type_["shape"], device)
        for i, type_ in enumerate(described["tensors"])
    ]
    return _Reader(tensors).value(described["tree"])


def _read_tensor(
    archive: zipfile.ZipFile, i: int, dtype_name: str, shape: list[int], device: DeviceLike | None
) -> Tensor:
    dtype = dtype_from_name(dtype_name)
    if not all(type(n) is int and n >= 0 for n in shape):
        raise _Broken(f"tensor {i} has shape {shape}")
    info = archive.getinfo(f"tensors/{i}")
    wanted = num_bytes(dtype, shape)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != wanted:
        raise _Broken(f"tensor {i} has {info.file_size} bytes, not {wanted}")
    data = archive.read(info)
    if len(data) != wanted:
        raise _Broken(f"tensor {i} has {len(data)} bytes, not {wanted}")
    return from_bytes(data, dtype, shape, device)
