"""A parameter computed by modules from other parameters, each time it is read.

The computed one is a property of the module's class (see ``normed``), and what it is made of is in
the submodule ``parametrizations``, under the names that PyTorch gives it in a state dict.
"""

from __future__ import annotations

from lucid import _C
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.dtypes import dtype_name
from lucid.nn.modules.container import ModuleDict, ModuleList
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter
from lucid.nn.utils.normed import M, Spec, add_spec, drop_spec, specs_of, taken_parameter

__all__ = [
    "ParametrizationList",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
]

_KIND = "parametrizations"


class ParametrizationList(ModuleList):
    """The modules that compute one parameter, in order, and what the first one starts from."""

    def __init__(self, first: Module, weight: Parameter) -> None:
        super().__init__([first])
        self.is_tuple = False
        inverse = getattr(first, "right_inverse", None)
        parts = weight
        if inverse is not None:
            with no_grad():
                parts = inverse(weight)
        self.is_tuple = isinstance(parts, tuple)
        if parts is weight:
            self.register_parameter("original", weight)
            return
        given = parts if isinstance(parts, tuple) else (parts,)
        names = [f"original{i}" for i in range(len(given))] if self.is_tuple else ["original"]
        for name, part in zip(names, given, strict=True):
            self.register_parameter(name, Parameter(part.detach(), weight.requires_grad))

    def originals(self) -> tuple[Tensor, ...]:
        """What the parameter is computed from."""
        return tuple(self._parameters.values())  # type: ignore[arg-type]  # none is absent

    def forward(self) -> Tensor:
        """The parameter."""
        value: Tensor = self[0](*self.originals())
        for module in list(self)[1:]:
            value = module(value)
        return value


def computed(module: Module, name: str) -> Tensor:
    """The value of a parametrized parameter."""
    value: Tensor = module.parametrizations[name]()
    return value


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True if the parameter of that name, or any, is computed by ``register_parametrization``."""
    names = [spec.name for spec in specs_of(module) if spec.kind == _KIND]
    return bool(names) if tensor_name is None else tensor_name in names


def register_parametrization(
    module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> M:
    """Compute a parameter by ``parametrization(original)``; a further one takes the result.

    Args:
        parametrization: if it has ``right_inverse``, the original is what that gives for the value
            now; a tuple makes ``original0``, ``original1`` and so on, all of which it is given.
        unsafe: do not check that shape and dtype stay.

    Returns: ``module``, with the originals in ``module.parametrizations[tensor_name]``.
    Raises: UserError if there is no such parameter, ShapeError if its type would change.
    """
    if is_parametrized(module, tensor_name):
        listed = module.parametrizations[tensor_name]
        _check(computed(module, tensor_name), parametrization, unsafe)
        listed.append(parametrization)
        return module
    known = module._parameters.get(tensor_name)
    weight = taken_parameter("register_parametrization", module, tensor_name)
    try:
        listed = ParametrizationList(parametrization, weight)
        if not unsafe:
            with no_grad():
                _require_same(weight, listed())
    except Exception:
        module.register_parameter(tensor_name, known)
        raise
    if not is_parametrized(module):
        module.add_module(_KIND, ModuleDict())
    module.parametrizations[tensor_name] = listed
    add_spec(module, Spec(_KIND, tensor_name, None))
    return module


def _check(value: Tensor, parametrization: Module, unsafe: bool) -> None:
    if not unsafe:
        with no_grad():
            _require_same(value, parametrization(value))


def _require_same(before: Tensor, after: Tensor) -> None:
    if before.shape != after.shape or before.dtype != after.dtype:
        kinds = [f"{dtype_name(x.dtype)} {tuple(x.shape)}" for x in (before, after)]
        raise _C.ShapeError(
            f"register_parametrization: the type would change: {kinds[0]} to {kinds[1]}; "
            "pass unsafe=True"
        )


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Make a computed parameter an ordinary one again.

    Args:
        leave_parametrized: with the value that it has, else with that of its original.

    Raises: UserError if it is not computed, or has several originals and none to go back to.
    """
    if not is_parametrized(module, tensor_name):
        raise _C.UserError(
            f"remove_parametrizations: {type(module).__name__} has no parametrization of "
            f"{tensor_name!r}"
        )
    listed = module.parametrizations[tensor_name]
    if not leave_parametrized and listed.is_tuple:
        raise _C.UserError(
            f"remove_parametrizations: {tensor_name!r} has several originals; pass "
            "leave_parametrized=True"
        )
    originals = listed.originals()
    value = computed(module, tensor_name) if leave_parametrized else originals[0]
    drop_spec(module, _KIND, tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        delattr(module, _KIND)
    needs_grad = originals[0].requires_grad
    module.register_parameter(tensor_name, Parameter(value.detach().clone(), needs_grad))
    return module
