"""gradcheck and gradgradcheck: gradients against central differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd.engine import grad
from lucid.autograd.modes import enable_grad, no_grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Array = numpy.ndarray[Any, Any]
# What is checked: it returns the outputs, in the same number each time.
Outputs = Callable[..., list[Tensor]]


class GradcheckError(_C.AutogradError):
    """A gradient that is not what central differences give."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Compare the gradients of ``func`` with central differences.

    Args:
        func: takes ``inputs`` and returns a tensor or a tuple of tensors; those that are floating
            and require a gradient are checked.
        inputs: tensors and other values; the floating tensors that require a gradient are
            differentiated. float64 is meant; others are too coarse for ``eps``.
        eps: step of the differences.
        atol, rtol: bound on the error: atol + rtol * abs(difference quotient).
        raise_exception: False returns False instead of raising GradcheckError.
        nondet_tol: how much two backwards may differ.

    Returns: True.
    Raises: GradcheckError with the input, the output and the largest error, or if no output has a
        gradient; UserError if no input requires a gradient.
    Source: Griewank, Walther 2008, "Evaluating Derivatives", section 1 (central differences).
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    places = _differentiated(args)

    def outputs(*values: Any) -> list[Tensor]:
        return _checked_outputs(func(*values))

    def run() -> None:
        _check_all(outputs, args, places, eps, (atol, rtol, nondet_tol))

    return _passes(run, raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Compare the gradients of the gradients of ``func`` with central differences.

    A first gradient without history counts as one whose gradients are 0.

    Args:
        grad_outputs: gradients of the outputs; normal numbers by default.
        Others as :func:`gradcheck`.

    Returns: True.
    Raises: as :func:`gradcheck`.
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    places = _differentiated(args)

    def gradients(*values: Any) -> list[Tensor]:
        arguments, its_seeds = values[: len(args)], values[len(args) :]
        sources = [arguments[place] for place in places]
        with enable_grad():
            results = _checked_outputs(func(*arguments))
            found = grad(results, sources, its_seeds, create_graph=True, allow_unused=True)
        # One for each source, so that none goes unchecked.
        pairs = zip(sources, found, strict=True)
        return [fn.zeros_like(source) if g is None else g for source, g in pairs]

    def run() -> None:
        seeds = _seeds(_checked_outputs(func(*args)), grad_outputs)
        both = [*places, *range(len(args), len(args) + len(seeds))]
        _check_all(gradients, (*args, *seeds), both, eps, (atol, rtol, nondet_tol))

    return _passes(run, raise_exception)


def _seeds(outputs: list[Tensor], given: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    """Gradients of the outputs, as leaves: those that are given, or normal numbers."""
    if given is None:
        values = [fn.randn_like(output.detach()) for output in outputs]
    else:
        tensors = (given,) if isinstance(given, Tensor) else tuple(given)
        values = [seed.detach().clone() for seed in tensors]
    return [value.requires_grad_() for value in values]


def _passes(run: Callable[[], None], raise_exception: bool) -> bool:
    """Whether no check of ``run`` fails."""
    try:
        run()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _differentiated(args: tuple[Any, ...]) -> list[int]:
    """Places of the inputs whose gradients are checked."""
    places = [
        i
        for i, value in enumerate(args)
        if isinstance(value, Tensor) and value.requires_grad and value.is_floating_point()
    ]
    if not places:
        raise _C.UserError(
            "gradcheck: no input requires a gradient; set requires_grad on a floating tensor"
        )
    for place in places:
        if args[place].dtype != _C.float64:
            warnings.warn(
                f"gradcheck: input {place} is {args[place].dtype.name}, too coarse for central "
                "differences; use float64",
                UserWarning,
                stacklevel=3,
            )
    return places


def _checked_outputs(result: Any) -> list[Tensor]:
    """The outputs that have gradients, at least one."""
    if not isinstance(result, (Tensor, tuple, list)):
        raise _C.ArgumentTypeError(
            f"gradcheck: func must return a Tensor or a tuple of them: got {type(result).__name__}"
        )
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    checked = [
        r for r in results if isinstance(r, Tensor) and r.requires_grad and r.is_floating_point()
    ]
    if not checked:
        raise GradcheckError(
            f"gradcheck: no output requires a gradient: got {len(results)} without; return a "
            "floating tensor that is computed from the inputs"
        )
    return checked


def _check_all(
    func: Outputs,
    args: tuple[Any, ...],
    places: list[int],
    eps: float,
    tolerances: tuple[float, float, float],
) -> None:
    """Check each output of ``func`` with each input that is at one of ``places``."""
    for output in range(len(func(*args))):
        for place in places:
            _check(func, args, output, place, eps, tolerances)


def _check(
    func: Outputs,
    args: tuple[Any, ...],
    output: int,
    place: int,
    eps: float,
    tolerances: tuple[float, float, float],
) -> None:
    atol, rtol, nondet_tol = tolerances
    first, second = (_analytical(func, args, output, place) for _ in range(2))
    spread = _largest(numpy.abs(first - second))
    if spread > nondet_tol:
        raise GradcheckError(
            f"gradcheck: two backwards of output {output} differ for input {place}: by "
            f"{spread:.3g}; make them repeatable, or give nondet_tol"
        )
    expected = _numerical(func, args, output, place, eps)
    error = numpy.abs(first - expected)
    if numpy.all(error <= atol + rtol * numpy.abs(expected)):
        return
    row, column = numpy.unravel_index(int(numpy.argmax(error)), error.shape)
    raise GradcheckError(
        f"gradcheck: the gradient of output {output} for input {place} is not that of central "
        f"differences: element {row} of the input by element {column} of the output is "
        f"{first[row, column]:.6g}, expected {expected[row, column]:.6g}; correct the backward"
    )


def _largest(values: Array) -> float:
    return float(values.max()) if values.size else 0.0


def _analytical(func: Outputs, args: tuple[Any, ...], output: int, place: int) -> Array:
    """Derivatives by backwards: (elements of the input, elements of the output)."""
    source = args[place]
    result = func(*args)[output]
    jacobian = numpy.zeros((source.numel(), result.numel()))
    if not result.requires_grad:
        return jacobian
    for column in range(result.numel()):
        seed = numpy.zeros(result.numel())
        seed[column] = 1.0
        seed_tensor = fn.tensor(seed, dtype=result.dtype, device=result.device)
        (found,) = grad(
            [result],
            [source],
            [seed_tensor.reshape(*result.shape)],
            retain_graph=True,
            allow_unused=True,
        )
        if found is not None:
            jacobian[:, column] = _flat(found)
    return jacobian


def _numerical(func: Outputs, args: tuple[Any, ...], output: int, place: int, eps: float) -> Array:
    """The same by central differences; the input is moved in place, and put back."""
    source = args[place]
    start = source.detach().clone()
    values = _flat(source)
    columns = []
    try:
        for row in range(values.size):
            both = []
            for step in (eps, -eps):
                moved = values.copy()
                moved[row] += step
                _write(source, fn.tensor(moved, dtype=source.dtype, device=source.device))
                both.append(_flat(func(*args)[output]))
            columns.append((both[0] - both[1]) / (2.0 * eps))
    finally:
        _write(source, start)
    size = func(*args)[output].numel()
    return numpy.stack(columns) if columns else numpy.zeros((0, size))


def _write(target: Tensor, values: Tensor) -> None:
    """Put values into a tensor in place: ``func`` may reach it by another way than its argument."""
    with no_grad():
        target.detach().copy_(values.reshape(*target.shape))


def _flat(tensor: Tensor) -> Array:
    return numpy.asarray(tensor.detach().to("cpu", _C.float64).numpy()).reshape(-1).copy()
