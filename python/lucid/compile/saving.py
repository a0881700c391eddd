"""save_compiled and load_compiled: compiled signatures as a file, without pickles.

A file is one line that names the format, one line of JSON with version and checksum, and one JSON
document: the traced graphs as text, the arguments they take, and what of the model they depend
on. It holds no values of parameters: loading binds them to a live model by name.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.amp import autocast
from lucid.autograd import set_grad_enabled
from lucid.compile.dynamic import Sized, SizedEntry
from lucid.compile.entries import Compiled, Entry, Served
from lucid.compile.function import CompiledFunction
from lucid.compile.module import CompiledModule
from lucid.compile.reach import KEPT_STEPS, Reach, plain_attributes
from lucid.compile.signature import Signature
from lucid.compile.step import Step, make_step
from lucid.compile.tracing import Subject, Traced
from lucid.compile.tree import Structure
from lucid.nn.modules.module import Module

__all__ = ["load_compiled", "save_compiled"]

_MAGIC = b"lucid-compiled\n"
_VERSION = 2
_PLAIN = (bool, int, float, str, type(None))


def save_compiled(compiled: Step | CompiledModule, path: str | os.PathLike[str]) -> None:
    """Write the compiled signatures of a step or module to a file.

    Those are written that hold for the model as it is now: its mode and attributes are noted.
    One of ``dynamic=True`` is written for all its sizes. A named tuple is written by the name of
    its class, which must have been imported where the file is loaded.

    Args:
        compiled: what :func:`make_step` or :func:`lucid.compile.compile` of a module returned;
            called, or ``compile``d, at least once.
        path: the file; replaced whole, or left as it was if something fails.

    Raises: ArgumentTypeError for something else; UserError before the first call, or for a
        signature that reads tensors which are no parameters or buffers of the model;
        UnsupportedError for hooks, keys of dicts that are no plain values, and generators of
        their own.
    """
    model, calls = _parts_of(compiled)
    entries = [e for e in calls._entries if e.traced.signature.difference() is None]
    if not entries:
        raise _C.UserError(
            "save_compiled: nothing has been compiled for the model as it is now; call it once"
        )
    body = {
        "kind": "step" if isinstance(calls, Step) else "module",
        "options": _options_of(calls),
        "loss": _describe_loss(calls._loss_fn) if isinstance(calls, Step) else None,
        "model": _describe_model(model),
        "tensors": _describe_tensors(model),
        "signatures": [_save_entry(entry, model) for entry in reversed(entries)],
    }
    text = json.dumps(body, separators=(",", ":")).encode()
    header = {"version": _VERSION, "sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(_MAGIC + json.dumps(header).encode() + b"\n" + text)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def load_compiled(
    path: str | os.PathLike[str],
    model: Module,
    loss_fn: Callable[..., Any] | None = None,
    *,
    fallback: str | None = None,
) -> Step | CompiledModule:
    """Read what :func:`save_compiled` wrote and bind it to a live model: nothing is traced.

    Args:
        path: the file.
        model: a model of the same structure: classes, modes and plain attributes of its modules,
            names, shapes and dtypes of its tensors.
        loss_fn: for a step, traces further signatures; without it other arguments than the saved
            ones are an error.
        fallback: as in :func:`make_step`.

    Returns: a step or a compiled module, as it was saved.
    Raises: UserError for a file that is damaged or of another kind or version, and for another
        model, with everything that differs.
    """
    if not isinstance(model, Module):
        raise _C.ArgumentTypeError(
            f"load_compiled: model must be an nn.Module: got {type(model).__name__}"
        )
    body = _read(Path(path))
    try:
        differing = _differences(body, model)
        if differing:
            listed = "\n  ".join(differing)
            raise _C.UserError(
                f"load_compiled: the file was saved from another model; it differs in:\n  {listed}"
            )
        return _rebuild(body, model, loss_fn, fallback)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _C.UserError(
            f"load_compiled: {path} is damaged: {type(error).__name__}: {error}"
        ) from None


# ---------------------------------------------------------------- the file


def _read(path: Path) -> dict[str, Any]:
    """The document of a file whose format, version and checksum are right."""
    data = path.read_bytes()
    if not data.startswith(_MAGIC):
        raise _C.UserError(f"load_compiled: {path} is no file of save_compiled")
    head, _, text = data[len(_MAGIC) :].partition(b"\n")
    try:
        header = json.loads(head)
        version, checksum, size = header["version"], header["sha256"], header["size"]
    except (ValueError, KeyError, TypeError):
        raise _C.UserError(f"load_compiled: {path} is damaged: its header cannot be read") from None
    if version != _VERSION:
        raise _C.UserError(
            f"load_compiled: {path} has version {version}, this package reads {_VERSION}; save it "
            "again"
        )
    if len(text) != size:
        raise _C.UserError(
            f"load_compiled: {path} is truncated or damaged: {len(text)} bytes where {size} belong"
        )
    if hashlib.sha256(text).hexdigest() != checksum:
        raise _C.UserError(f"load_compiled: {path} is damaged: its checksum does not fit")
    body: dict[str, Any] = json.loads(text)
    return body


# ---------------------------------------------------------------- what is written


def _parts_of(compiled: object) -> tuple[Module, Compiled]:
    if isinstance(compiled, CompiledModule):
        return compiled._target, compiled._calls
    if isinstance(compiled, Step):
        return compiled._model, compiled
    raise _C.ArgumentTypeError(
        "save_compiled: expected a step of make_step or a compiled module: got "
        f"{type(compiled).__name__}"
    )


def _options_of(calls: Compiled) -> dict[str, Any]:
    if isinstance(calls, Step):
        return {
            "segments": calls.segments,
            "has_aux": calls._has_aux,
            "memory_limit": calls._memory_limit,
        }
    assert isinstance(calls, CompiledFunction)
    return {"dynamic": calls.dynamic}


def _describe_loss(loss_fn: Any) -> list[str] | None:
    """Name and code of a loss function; codes of one Python version can be compared."""
    if not isinstance(loss_fn, FunctionType):
        return None
    code = loss_fn.__code__
    text = repr((code.co_code, code.co_names, code.co_consts if _is_plain(code) else ()))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return [loss_fn.__qualname__, f"{sys.implementation.cache_tag}:{checksum}"]


def _is_plain(code: CodeType) -> bool:
    return not any(isinstance(constant, CodeType) for constant in code.co_consts)


def _check_loss(saved: list[str] | None, loss_fn: Any) -> None:
    """Refuse a loss function that is seen to be another than the saved one."""
    live = _describe_loss(loss_fn)
    if saved is None or live is None:
        return
    same_python = saved[1].partition(":")[0] == live[1].partition(":")[0]
    if same_python and saved[1] != live[1]:
        raise _C.UserError(
            f"load_compiled: the file was saved with another loss function, {saved[0]}: got "
            f"{live[0]}; leave loss_fn out to run the saved one alone"
        )


def _describe_value(value: Any, depth: int = 3) -> Any:
    """What a file says of a plain attribute: numbers and strings by value, the rest by type."""
    if isinstance(value, _PLAIN):
        return [type(value).__name__, repr(value)]
    if isinstance(value, (list, tuple)) and depth > 0:
        return [type(value).__name__, [_describe_value(v, depth - 1) for v in value]]
    if isinstance(value, dict) and depth > 0:
        items = [[repr(k), _describe_value(v, depth - 1)] for k, v in value.items()]
        return ["dict", items]
    return ["type", f"{type(value).__module__}.{type(value).__qualname__}"]


def _describe_model(model: Module) -> dict[str, Any]:
    described = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if module._forward_hooks or module._forward_pre_hooks:
            raise _C.UnsupportedError(
                f"save_compiled: module {name!r} has hooks, which a file cannot hold; remove them"
            )
        attributes = {
            key: _describe_value(value)
            for key, value in plain_attributes(module).items()
            if key != KEPT_STEPS
        }
        described[name] = {"class": type(module).__qualname__, "attributes": attributes}
    return described


def _named_tensors(model: Module) -> dict[str, Tensor]:
    found: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    found.update(model.named_buffers(remove_duplicate=False))
    return found


def _describe_tensors(model: Module) -> dict[str, Any]:
    return {
        name: [list(tensor.shape), tensor.dtype.name, tensor.device.type, tensor.requires_grad]
        for name, tensor in _named_tensors(model).items()
    }


def _save_entry(entry: Entry, model: Module) -> dict[str, Any]:
    trace = entry.traced.trace
    names = {tensor._cell_id: name for name, tensor in reversed(_named_tensors(model).items())}
    return {
        "names": entry.names,
        "structures": [_tree_to_json(s) for s in entry.structures],
        "leaves": entry.traced.leaves,
        "output": None if entry.traced.output is None else _tree_to_json(entry.traced.output),
        "num_targets": entry.traced.num_targets,
        "grad_enabled": entry.fields["grad mode"],
        "default_dtype": entry.fields["default dtype"].name,
        "default_device": entry.fields["default device"].type,
        "autocast": entry.fields["autocast"],
        "trace": trace.save(),
        "sized": entry.save_sizes() if isinstance(entry, SizedEntry) else None,
        "captures": [_name_of(tensor, names) for tensor in trace.captures],
        "written": [None if t is None else _name_of(t, names) for t in trace.written],
    }


def _name_of(tensor: Tensor, names: dict[int, str]) -> str:
    found = names.get(tensor._cell_id)
    if found is None:
        raise _C.UserError(
            f"save_compiled: the step reads a tensor of shape {tensor.shape} that is no parameter "
            "or buffer of the model, so a file cannot name it; register it as a buffer, or pass "
            "it as an input"
        )
    return found


def _tree_to_json(structure: Structure) -> dict[str, Any]:
    kind = structure.kind
    result: dict[str, Any] = {"kind": kind}
    if kind == "namedtuple":
        result["class"] = _class_to_json(structure.value)
    if kind == "dataclass":
        raise _C.UnsupportedError(
            f"save_compiled: a result is a dataclass: got {structure.value[0].__name__}; "
            "return a named tuple"
        )
    if kind == "packed":
        result["sizes"] = list(structure.value)
    if kind == "static":
        type_, text, _ = structure.value
        result["value"] = [type_.__name__, text]
    elif kind in ("dict", "keywords"):
        result["keys"] = [_key_to_json(k) for k in structure.value]
    if structure.children:
        result["children"] = [_tree_to_json(child) for child in structure.children]
    return result


def _key_to_json(key: Any) -> list[str]:
    if type(key) not in _PLAIN:
        raise _C.UnsupportedError(
            f"save_compiled: a dict has a key of type {type(key).__name__}, which a file cannot "
            "hold; use strings or numbers"
        )
    return [type(key).__name__, repr(key)]


def _class_to_json(kind: type[Any]) -> list[Any]:
    """Where the class of a named tuple stands, and its fields."""
    fields = getattr(kind, "_fields", ())
    described = [kind.__module__, kind.__qualname__, list(fields)]
    if _find_class(described) is not kind:
        raise _C.UnsupportedError(
            f"save_compiled: the class of a named tuple cannot be found as {kind.__module__}."
            f"{kind.__qualname__}; define it in a module, or use a dict"
        )
    return described


def _find_class(described: list[Any]) -> Any:
    """The class of a named tuple among what has been imported; None if it is not there."""
    module, name, fields = described
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    is_named_tuple = isinstance(found, type) and issubclass(found, tuple)
    return found if is_named_tuple and getattr(found, "_fields", None) == tuple(fields) else None


# ---------------------------------------------------------------- what is read


def _literal(entry: list[str]) -> Any:
    kind, text = entry
    if kind == "float":
        return float(text)
    if kind in ("bool", "int", "complex", "str", "bytes", "NoneType"):
        return ast.literal_eval(text)
    raise _C.UserError(f"load_compiled: the file holds a value of type {kind}, which is not read")


def _tree_from_json(data: dict[str, Any]) -> Structure:
    kind = data["kind"]
    children = tuple(_tree_from_json(child) for child in data.get("children", ()))
    if kind == "static":
        value = _literal(data["value"])
        return Structure("static", (type(value), repr(value), value))
    if kind in ("dict", "keywords"):
        return Structure(kind, tuple(_literal(k) for k in data["keys"]), children)
    if kind == "tuple":
        return Structure(kind, tuple, children)
    if kind == "packed":
        return Structure(kind, tuple(data["sizes"]), children)
    if kind == "namedtuple":
        module, name, fields = data["class"]
        found = _find_class(data["class"])
        if found is None or len(children) != len(fields):
            raise _C.UserError(
                f"load_compiled: the file holds a named tuple {module}.{name} of "
                f"({', '.join(fields)}), which is not there; import its module first"
            )
        return Structure(kind, found, children)
    return Structure(kind, None, children)


def _differences(body: dict[str, Any], model: Module) -> list[str]:
    """Every name, shape, dtype, class and attribute in which a model is not the saved one."""
    result = []
    saved, live = body["tensors"], _describe_tensors(model)
    for name in {**saved, **live}:
        if name not in live:
            result.append(f"{name}: missing from the model, saved with shape {saved[name][0]}")
        elif name not in saved:
            result.append(f"{name}: not in the file, the model's shape is {live[name][0]}")
        else:
            kinds = ("shape", "dtype", "device", "requires_grad")
            for kind, was, now in zip(kinds, saved[name], live[name], strict=True):
                if was != now:
                    result.append(f"{name}: {kind} {was} saved, {now} now")
    saved, live = body["model"], _describe_model(model)
    for name in [n for n in saved if n in live]:
        if saved[name]["class"] != live[name]["class"]:
            result.append(
                f"module {name!r}: {saved[name]['class']} saved, {live[name]['class']} now"
            )
            continue
        was, now = saved[name]["attributes"], json.loads(json.dumps(live[name]["attributes"]))
        result += [
            f"module {name!r}: attribute {key}: {was.get(key)} saved, {now.get(key)} now"
            for key in {**was, **now}
            if was.get(key) != now.get(key)
        ]
    return result


def _no_loss(*_: Any) -> Any:
    raise _C.UserError(
        "load_compiled: the file has no signature for these arguments, or the model has changed; "
        "give load_compiled loss_fn= to compile others"
    )


def _rebuild(
    body: dict[str, Any],
    model: Module,
    loss_fn: Callable[..., Any] | None,
    fallback: str | None,
) -> Step | CompiledModule:
    options = body["options"]
    result: Step | CompiledModule
    calls: Compiled
    roots: tuple[Any, ...] = (model,)
    if body["kind"] == "step":
        _check_loss(body["loss"], loss_fn)
        result = calls = make_step(
            model,
            _no_loss if loss_fn is None else loss_fn,
            segments=options["segments"],
            fallback=fallback,
            has_aux=options["has_aux"],
            memory_limit=options["memory_limit"],
        )
        if loss_fn is not None:
            roots = (model, loss_fn)
    else:
        result = CompiledModule(model, options["dynamic"], fallback)
        calls = result._calls
    for saved in body["signatures"]:
        entry = _load_entry(saved, model, roots, options.get("memory_limit"), body["kind"])
        calls._entries.insert(0, entry)
        line = f"loaded: {entry.traced.entry.num_nodes} operations"
        calls._history.append(Served(line, entry.sizes))
    return result


def _leaves_of(specs: list[Any]) -> list[Tensor]:
    """Tensors of the saved types, one for arguments that shared one."""
    leaves: list[Tensor] = []
    for shape, dtype, device, requires_grad, same_as in specs:
        if same_as is not None:
            leaves.append(leaves[same_as])
            continue
        leaf = fn.empty(shape, dtype=getattr(_C, dtype), device=device)
        leaves.append(leaf.requires_grad_() if requires_grad else leaf)
    return leaves


class _Modes:
    """The modes of the thread and process that a signature was saved under."""

    def __init__(self, saved: dict[str, Any]) -> None:
        self._grad = set_grad_enabled(saved["grad_enabled"])
        self._dtype = getattr(_C, saved["default_dtype"])
        self._device = _C.device(saved["default_device"])
        self._casts = [
            autocast(device, dtype=getattr(_C, low), enabled=True)
            if low is not None
            else autocast(device, enabled=False)
            for device, low in zip(("cpu", "metal"), saved["autocast"], strict=True)
        ]

    def __enter__(self) -> None:
        self._before = (_C.get_default_dtype(), _C.get_default_device())
        self._grad.__enter__()
        _C.set_default_dtype(self._dtype)
        _C.set_default_device(self._device)
        for cast in self._casts:
            cast.__enter__()

    def __exit__(self, *error: Any) -> None:
        for cast in reversed(self._casts):
            cast.__exit__(None, None, None)
        _C.set_default_dtype(self._before[0])
        _C.set_default_device(self._before[1])
        self._grad.__exit__(None, None, None)


def _load_entry(
    saved: dict[str, Any],
    model: Module,
    roots: tuple[Any, ...],
    memory_limit: int | None,
    kind: str,
) -> Entry:
    tensors = _named_tensors(model)
    captures = [tensors[name] for name in saved["captures"]]
    written = [None if name is None else tensors[name] for name in saved["written"]]
    trace = _C.Trace.restore(saved["trace"], captures, written)
    output = None if saved["output"] is None else _tree_from_json(saved["output"])
    with _Modes(saved):
        leaves = _leaves_of(saved["leaves"])
        signature = Signature(Reach(*roots), list(model.modules()), captures, "load_compiled")
        kept = trace.copy()
        if kind == "step":
            entry = _C.compile_step(trace, leaves, captures, memory_limit)
        else:
            entry = _compile_function(trace, leaves, captures)
        traced = Traced(entry, signature, saved["num_targets"], output, kept, leaves)
        structures = [_tree_from_json(s) for s in saved["structures"]]
        sized = saved["sized"]
        if sized is None:
            return Entry(saved["names"], structures, leaves, traced)
        places, size = sized["places"], sized["size"]
        family = _C.SizedTrace.restore(kept, size, places, sized["arguments"])
        subject = Subject("compile", roots, _record_nothing, _compile_function)
        members = Sized(family, kept, subject)
        return SizedEntry(saved["names"], structures, leaves, traced, members, size)


def _compile_function(
    trace: _C.Trace, leaves: list[Tensor], captures: list[Tensor]
) -> _C.StepEntry:
    return _C.compile_function(trace, leaves, captures, True)


def _record_nothing(recorder: _C.Recorder, arguments: list[Any]) -> Any:
    raise _C.InternalError("load_compiled: other sizes of a loaded signature are not traced")
