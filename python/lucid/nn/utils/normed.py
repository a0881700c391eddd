"""weight_norm and spectral_norm: a weight computed from other parameters each time it is read.

The module gets a class of its own, whose property is the weight: nothing is assigned in a forward,
so a traced step records the computation like any other.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, TypeVar

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.precision import without_autocast
from lucid.nn.functional.normalization import normalize
from lucid.nn.modules.convolution import ConvTranspose1d, ConvTranspose2d
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

M = TypeVar("M", bound=Module)


class Spec(NamedTuple):
    """How one weight is computed."""

    kind: str
    name: str
    dim: int | None
    iterations: int = 0
    eps: float = 0.0


class _Computed(Module):
    """Mixed into the class of a module with computed weights."""

    _base: type[Module]
    _specs: tuple[Spec, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        for spec in self._specs:
            if spec.name == name:
                raise _C.UserError(
                    f"{spec.kind}: {name!r} is computed and cannot be set; call "
                    f"remove_{spec.kind} first"
                )
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuilt, (self._base, self._specs), self.__dict__


def _rebuilt(base: type[Module], specs: tuple[Spec, ...]) -> Module:
    """An empty module for ``__setstate__``."""
    made = _class_of(base, specs)
    return made.__new__(made)


#: One class for one set of weights, so that twins have the same.
_classes: dict[tuple[type, tuple[Spec, ...]], type[Module]] = {}


def _class_of(base: type[Module], specs: tuple[Spec, ...]) -> type[Module]:
    """``base`` with the weights of ``specs`` as properties; itself for none."""
    if not specs:
        return base
    known = _classes.get((base, specs))
    if known is None:
        known = _classes[base, specs] = _made_class(base, specs)
    return known


def _made_class(base: type[Module], specs: tuple[Spec, ...]) -> type[Module]:
    members: dict[str, Any] = {
        spec.name: property(functools.partial(_value, spec=spec)) for spec in specs
    }
    members |= {"_base": base, "_specs": specs}
    members |= {k: getattr(base, k) for k in ("__module__", "__qualname__", "__doc__")}
    return type(base.__name__, (_Computed, base), members)


def _value(module: Module, spec: Spec) -> Tensor:
    if spec.kind == "parametrizations":
        weight: Tensor = module.parametrizations[spec.name]()
        return weight
    compute = _weight_normed if spec.kind == "weight_norm" else _spectrally_normed
    weight = without_autocast(compute, module, spec)
    return weight


def specs_of(module: Module) -> tuple[Spec, ...]:
    """The weights that the module computes."""
    return module._specs if isinstance(module, _Computed) else ()


def _set_specs(module: Module, specs: tuple[Spec, ...]) -> None:
    base = module._base if isinstance(module, _Computed) else type(module)
    object.__setattr__(module, "__class__", _class_of(base, specs))
    _C.bump_state()


def add_spec(module: Module, spec: Spec) -> None:
    """From now on the module computes that weight."""
    _set_specs(module, (*specs_of(module), spec))


def drop_spec(module: Module, kind: str, name: str) -> None:
    """The module no longer computes that weight."""
    kept = tuple(spec for spec in specs_of(module) if (spec.kind, spec.name) != (kind, name))
    _set_specs(module, kept)


def taken_parameter(op: str, module: Module, name: str) -> Parameter:
    """The parameter of that name, which the module then no longer has."""
    if any(spec.name == name for spec in specs_of(module)):
        raise _C.UserError(f"{op}: {name!r} is computed already; remove that first")
    param = module._parameters.get(name)
    if param is None:
        raise _C.UserError(f"{op}: {type(module).__name__} has no parameter {name!r}")
    delattr(module, name)
    return param


def _restore(op: str, module: Module, name: str, parts: tuple[str, ...]) -> None:
    """Make the computed weight a parameter again."""
    if (op, name) not in [(spec.kind, spec.name) for spec in specs_of(module)]:
        raise _C.UserError(f"remove_{op}: {type(module).__name__} has no {op} of {name!r}")
    weight = getattr(module, name).detach().clone()
    drop_spec(module, op, name)
    for part in parts:
        delattr(module, f"{name}_{part}")
    module.register_parameter(name, Parameter(weight))


# ---------------------------------------------------------------- weight_norm


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """Norms over all axes but ``dim``, which keep their axes; of all elements for None."""
    others = tuple(i for i in range(v.ndim) if dim is None or i != dim % v.ndim)
    return fn.norm(v, 2, others, keepdim=dim is not None)


def _weight_normed(module: Module, spec: Spec) -> Tensor:
    g: Tensor = getattr(module, f"{spec.name}_g")
    v: Tensor = getattr(module, f"{spec.name}_v")
    return weight_of(g, v, spec.dim)


def weight_of(magnitude: Tensor, direction: Tensor, dim: int | None) -> Tensor:
    """The weight with that magnitude (for each index of ``dim``) and direction."""
    return direction * (magnitude / norm_except(direction, dim))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Compute a weight as magnitude times direction, ``g * v / |v|``; both are trained.

    Args:
        module: its parameter ``name`` becomes the parameters ``name_g`` and ``name_v``.
        dim: the axis that keeps a magnitude of its own for each index; None: one for all.

    Returns: ``module``.
    Raises: UserError if there is no such parameter, or it is computed already; OutOfRangeError for
        a ``dim`` that is no axis.
    Source: Salimans, Kingma 2016, arXiv:1602.07868, equation 2.
    """
    known = module._parameters.get(name)
    if known is not None and dim is not None and not -known.ndim <= dim < known.ndim:
        raise _C.OutOfRangeError(
            f"weight_norm: dim out of range: got {dim} for a weight of {known.ndim} axes"
        )
    weight = taken_parameter("weight_norm", module, name)
    with no_grad():
        magnitude = norm_except(weight, dim)
    module.register_parameter(f"{name}_g", Parameter(magnitude, weight.requires_grad))
    module.register_parameter(f"{name}_v", Parameter(weight.detach().clone(), weight.requires_grad))
    add_spec(module, Spec("weight_norm", name, dim))
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make the weight a parameter again, of the value that it has. Raises: UserError if none is."""
    _restore("weight_norm", module, name, ("g", "v"))
    return module


# ---------------------------------------------------------------- spectral_norm


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight with ``dim`` as its rows."""
    moved = weight if dim == 0 else weight.movedim(dim, 0)
    return moved.reshape(moved.shape[0], -1)


def spectral_axis(module: Module, n_power_iterations: int, dim: int | None) -> int:
    """The axis of outputs of a weight. Raises: UserError for no rounds of power iteration."""
    if n_power_iterations < 1:
        raise _C.UserError(
            f"spectral_norm: n_power_iterations must be positive: got {n_power_iterations}"
        )
    if dim is not None:
        return dim
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d)) else 0


def _spectrally_normed(module: Module, spec: Spec) -> Tensor:
    assert spec.dim is not None
    weight: Tensor = getattr(module, f"{spec.name}_orig")
    u, v = (getattr(module, f"{spec.name}_{part}") for part in "uv")
    return weight / fn.dot(u, fn.mv(as_matrix(weight, spec.dim), v))


class _PowerIteration:
    """Forward pre-hook: moves the singular vectors, in training only."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def __call__(self, module: Module, args: Any) -> None:
        if module.training:
            without_autocast(_iterate, module, self.spec, self.spec.iterations)


def _iterate(module: Module, spec: Spec, count: int) -> None:
    assert spec.dim is not None
    with no_grad():
        matrix = as_matrix(getattr(module, f"{spec.name}_orig"), spec.dim)
        u, v = (getattr(module, f"{spec.name}_{part}") for part in "uv")
        new_u, new_v = u, v
        for _ in range(count):
            new_v = normalize(fn.mv(matrix.T, new_u), dim=0, eps=spec.eps)
            new_u = normalize(fn.mv(matrix, new_v), dim=0, eps=spec.eps)
        u.assign_(new_u)
        v.assign_(new_v)


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a weight by its largest singular value, found by power iteration.

    Args:
        module: its parameter ``name`` becomes ``name_orig``; the buffers ``name_u`` and ``name_v``
            are the singular vectors, moved before each forward in training.
        n_power_iterations: rounds for each forward.
        eps: bound of the lengths that are divided by.
        dim: the axis of outputs; None: 1 for transposed convolutions, else 0.

    Returns: ``module``.
    Raises: UserError if there is no such parameter, or it is computed already, or for no rounds.
    Source: Miyato and others 2018, arXiv:1802.05957, algorithm 1.
    """
    dim = spectral_axis(module, n_power_iterations, dim)
    weight = taken_parameter("spectral_norm", module, name)
    spec = Spec("spectral_norm", name, dim, n_power_iterations, eps)
    rows, columns = as_matrix(weight.detach(), dim).shape
    module.register_parameter(f"{name}_orig", weight)
    for part, size in (("u", rows), ("v", columns)):
        start = normalize(fn.randn(size, dtype=weight.dtype, device=weight.device), dim=0, eps=eps)
        module.register_buffer(f"{name}_{part}", start)
    module.register_forward_pre_hook(_PowerIteration(spec))
    add_spec(module, spec)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make the weight a parameter again, of the value that it has. Raises: UserError if none is."""
    _restore("spectral_norm", module, name, ("orig", "u", "v"))
    for key, (hook, _) in list(module._forward_pre_hooks.items()):
        if isinstance(hook, _PowerIteration) and hook.spec.name == name:
            del module._forward_pre_hooks[key]
    _C.bump_state()
    return module
