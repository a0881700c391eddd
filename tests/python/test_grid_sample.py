"""grid_sample and affine_grid beyond recorded values: identities, odd positions, compiled."""

from __future__ import annotations

import itertools
import math

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor
from lucid.autograd import gradcheck
from lucid.compile import make_step
from zoo import floats

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
EVERY = pytest.mark.parametrize(
    ("mode", "padding", "align"), list(itertools.product(MODES, PADDINGS, (False, True)))
)
IDENTITY = lucid.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])


@EVERY
def test_the_identity_gives_the_image(mode: str, padding: str, align: bool) -> None:
    image = floats(0, 1, 2, 4, 5)
    grid = F.affine_grid(IDENTITY, (1, 2, 4, 5), align)
    found = F.grid_sample(image, grid, mode, padding, align)
    assert np.allclose(found.numpy(), image.numpy(), atol=1e-5)


@EVERY
def test_odd_positions(mode: str, padding: str, align: bool) -> None:
    """Positions that are no numbers, or far away, read nothing that is not there."""
    odd = [math.nan, math.inf, -math.inf, 1e30, -1e30, 3e9, 0.0]
    grid = lucid.tensor([[[x, y] for x in odd] for y in odd]).unsqueeze(0).requires_grad_()
    image = floats(1, 1, 3, 4, 5).requires_grad_()
    found = F.grid_sample(image, grid, mode, padding, align)
    assert tuple(found.shape) == (1, 3, 7, 7)
    assert bool(found[..., 6, 6].isfinite().all())
    found.sum().backward()
    assert image.grad is not None
    outside = F.grid_sample(image, lucid.full((1, 1, 1, 2), 50.0), mode, "zeros", align)
    assert np.all(outside.detach().numpy() == 0.0)


@EVERY
def test_one_element(mode: str, padding: str, align: bool) -> None:
    grid = floats(2, 1, 2, 3, 2)
    found = F.grid_sample(lucid.full((1, 1, 1, 1), 2.0), grid, mode, padding, align)
    assert bool(found.isfinite().all())
    if padding != "zeros":
        assert np.allclose(found.numpy(), 2.0)


@EVERY
@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (0, 0, 3, 4)])
def test_no_images_or_no_channels(
    mode: str, padding: str, align: bool, shape: tuple[int, ...]
) -> None:
    image = lucid.zeros(shape, requires_grad=True)
    grid = lucid.full((shape[0], 5, 6, 2), 0.3, requires_grad=True)
    found = F.grid_sample(image, grid, mode, padding, align)
    assert tuple(found.shape) == (*shape[:2], 5, 6)
    found.sum().backward()
    assert image.grad is not None and tuple(image.grad.shape) == shape
    assert grid.grad is not None and bool((grid.grad == 0).all())


def test_no_volumes_eager_and_compiled() -> None:
    compiled = lucid.compile(F.grid_sample, fallback="error")
    for function in (F.grid_sample, compiled):
        found = function(lucid.zeros(0, 2, 3, 3, 3), lucid.zeros(0, 2, 4, 5, 3))
        assert tuple(found.shape) == (0, 2, 2, 4, 5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_gradients(mode: str) -> None:
    image = floats(3, 2, 2, 4, 5).double().requires_grad_()
    grid = (floats(4, 2, 2, 3, 2).double() * 0.9).requires_grad_()
    for padding in PADDINGS:
        assert gradcheck(lambda x, g: F.grid_sample(x, g, mode, padding), (image, grid))  # noqa: B023
    theta = floats(5, 2, 2, 3).double().requires_grad_()
    assert gradcheck(lambda t: F.affine_grid(t, (2, 1, 3, 4), True), theta)


def test_empty_results() -> None:
    found = F.grid_sample(floats(0, 2, 3, 4, 5), lucid.zeros(2, 0, 3, 2))
    assert tuple(found.shape) == (2, 3, 0, 3)


class Transformer(nn.Module):
    """A spatial transformer: what an image shows is moved by a map learned from it."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Linear(64, 6)
        self.head = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.locate(x.flatten(1)).reshape(-1, 2, 3)
        moved = F.grid_sample(x, F.affine_grid(theta, x.shape))
        return self.head(moved.flatten(1))


def test_a_step_is_equal_to_eager() -> None:
    lucid.manual_seed(0)
    model = Transformer()
    x, t = floats(6, 3, 1, 8, 8), lucid.tensor([0, 3, 1])
    F.cross_entropy(model(x), t).backward()
    wanted = [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    make_step(model, F.cross_entropy, fallback="error")(x, t).backward()
    found = [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None]
    assert found == wanted and len(wanted) == 4


def test_mixed_precision_samples_in_float32() -> None:
    with lucid.autocast("cpu", lucid.bfloat16):
        found = F.grid_sample(floats(0, 1, 1, 4, 4).bfloat16(), lucid.zeros(1, 2, 2, 2).bfloat16())
    assert found.dtype == lucid.float32
