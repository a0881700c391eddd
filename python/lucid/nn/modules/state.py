"""Loading a state dict into a tree of modules: everything is checked before anything changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid import _C
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.nn.parameter import Parameter

if TYPE_CHECKING:
    from lucid.nn.modules.module import Module


class IncompatibleKeys(NamedTuple):
    """What did not match: names the dict lacks, and names the module lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


class _Slot(NamedTuple):
    """A place that a state dict fills."""

    key: str
    module: Module
    name: str
    tensor: Tensor


def _slots(module: Module, prefix: str = "") -> Iterator[_Slot]:
    """Every parameter and persistent buffer below ``module``, shared ones at each name."""
    for name, tensor in module._state().items():
        yield _Slot(prefix + name, module, name, tensor)
    for name, child in module._modules.items():
        if child is not None:
            yield from _slots(child, f"{prefix}{name}.")


def _mismatch(slot: _Slot, value: object) -> str | None:
    """Say why ``value`` cannot fill ``slot``, or None."""
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{slot.key}", expected lucid.Tensor '
            f"from checkpoint but received {type(value).__name__}"
        )
    if tuple(value.shape) != tuple(slot.tensor.shape):
        return (
            f"size mismatch for {slot.key}: copying a param with shape {tuple(value.shape)} "
            f"from checkpoint, the shape in current model is {tuple(slot.tensor.shape)}."
        )
    return None


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _fill(slot: _Slot, value: Tensor, assign: bool) -> None:
    """Put one value in its place."""
    if not assign:
        if value.dtype != slot.tensor.dtype:
            value = value.to(slot.tensor.dtype)
        if value.device != slot.tensor.device:
            value = value.to(slot.tensor.device)
        slot.tensor.assign_(value.detach())
        return
    if slot.name in slot.module._parameters:
        if not isinstance(value, Parameter):
            value = Parameter(value.detach(), slot.tensor.requires_grad)
        slot.module._parameters[slot.name] = value
    else:
        slot.module._buffers[slot.name] = value


def load_state(
    module: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool
) -> IncompatibleKeys:
    """Fill ``module`` from ``state_dict``; see ``Module.load_state_dict``."""
    if not isinstance(state_dict, Mapping):
        raise _C.ArgumentTypeError(
            f"load_state_dict: expected a mapping: got {type(state_dict).__name__}"
        )
    slots = list(_slots(module))
    known = {slot.key for slot in slots}
    missing = [slot.key for slot in slots if slot.key not in state_dict]
    unexpected = [key for key in state_dict if key not in known]
    errors = []
    if strict and unexpected:
        errors.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}.")
    if strict and missing:
        errors.append(f"Missing key(s) in state_dict: {_quoted(missing)}.")
    present = [slot for slot in slots if slot.key in state_dict]
    mismatches = (_mismatch(slot, state_dict[slot.key]) for slot in present)
    errors.extend(text for text in mismatches if text is not None)
    if errors:
        raise _C.UserError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(errors)
        )
    with no_grad():
        for slot in present:
            _fill(slot, state_dict[slot.key], assign)
    return IncompatibleKeys(missing, unexpected)
