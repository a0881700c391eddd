"""weight_norm and spectral_norm as parametrizations, whose names in a state dict are PyTorch's."""

from __future__ import annotations

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.precision import without_autocast
from lucid.nn.functional.normalization import normalize
from lucid.nn.modules.module import Module
from lucid.nn.utils.normed import M, as_matrix, norm_except, spectral_axis, weight_of
from lucid.nn.utils.parametrize import register_parametrization

__all__ = ["spectral_norm", "weight_norm"]


class WeightNorm(Module):
    """``g * v / |v|``, the norm taken over all axes but ``dim``."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, magnitude: Tensor, direction: Tensor) -> Tensor:
        weight: Tensor = without_autocast(weight_of, magnitude, direction, self.dim)
        return weight

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Magnitude and direction of a weight."""
        return norm_except(weight, self.dim), weight.clone()


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Compute a weight as magnitude (``original0``) times direction (``original1``).

    Args:
        dim: the axis that keeps a magnitude of its own for each index; None or -1: one for all.

    Returns: ``module``. Raises: UserError if there is no such parameter.
    Source: Salimans, Kingma 2016, arXiv:1602.07868, equation 2.
    """
    return register_parametrization(module, name, WeightNorm(None if dim == -1 else dim))


class SpectralNorm(Module):
    """A weight divided by its largest singular value; each use in training moves the vectors."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim, self.eps, self.n_power_iterations = dim, eps, n_power_iterations
        matrix = as_matrix(weight.detach(), dim)
        for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
            start = normalize(fn.randn(size, dtype=weight.dtype, device=weight.device), 2, 0, eps)
            self.register_buffer(name, start)
        self._move(matrix, 15)

    def _move(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            u, v = self._u, self._v
            for _ in range(count):
                u = normalize(fn.mv(matrix, v), dim=0, eps=self.eps)
                v = normalize(fn.mv(matrix.T, u), dim=0, eps=self.eps)
            self._u.assign_(u)
            self._v.assign_(v)

    def _divided(self, weight: Tensor) -> Tensor:
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._move(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / fn.dot(u, fn.mv(matrix, v))

    def forward(self, weight: Tensor) -> Tensor:
        divided: Tensor = without_autocast(self._divided, weight)
        return divided


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a weight (``original``) by its largest singular value, found by power iteration.

    Args:
        n_power_iterations: rounds for each use of the weight in training.
        eps: bound of the lengths that are divided by.
        dim: the axis of outputs; None: 1 for transposed convolutions, else 0.

    Returns: ``module``. Raises: UserError if there is no such parameter, or for no rounds.
    Source: Miyato and others 2018, arXiv:1802.05957, algorithm 1.
    """
    dim = spectral_axis(module, n_power_iterations, dim)
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise _C.UserError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}")
    made = SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, made)
