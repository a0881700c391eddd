"""The training steps that are measured: sizes, parameters and inputs, as NumPy arrays.

Parameters are keyed by the name that `state_dict()` of contestants/models.py gives them and drawn
in a fixed order from fixed seeds, so that every contestant starts from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Labels = NDArray[np.int64]

_PARAMETER_SEED = 1234
_INPUT_SEED = 99


@dataclass(frozen=True)
class GptSizes:
    """Sizes of the small transformer of gpt_mini."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    tokens: int = 128
    vocabulary: int = 512
    batch: int = 8


GPT_MINI = GptSizes()
WORKLOADS = ("mlp_tiny", "mlp_small", "lenet", "gpt_mini")
MLP_WIDTHS = {"mlp_tiny": (32, 64, 10), "mlp_small": (784, 256, 10)}
MLP_BATCH = {"mlp_tiny": 32, "mlp_small": 64}
LENET_BATCH = 64
NUM_CLASSES = 10


class _Draw:
    """Draws parameters one after the other into a dictionary."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}
        self._generator = np.random.default_rng(_PARAMETER_SEED)

    def normal(self, name: str, shape: tuple[int, ...], scale: float) -> None:
        drawn = self._generator.standard_normal(shape)
        self.parameters[name] = (scale * drawn).astype(np.float32)

    def layer(self, name: str, weight_shape: tuple[int, ...], bias: bool = True) -> None:
        """Weights of standard deviation 1 / sqrt(fan in), biases of 0.01."""
        drawn = self._generator.standard_normal(weight_shape)
        fan_in = np.sqrt(np.prod(weight_shape[1:]))
        self.parameters[f"{name}.weight"] = (drawn / fan_in).astype(np.float32)
        if bias:
            self.normal(f"{name}.bias", weight_shape[:1], 0.01)

    def norm(self, name: str, width: int) -> None:
        self.parameters[f"{name}.weight"] = np.ones(width, np.float32)
        self.parameters[f"{name}.bias"] = np.zeros(width, np.float32)


def _draw_mlp(draw: _Draw, widths: tuple[int, ...]) -> None:
    draw.layer("0", (widths[1], widths[0]))
    draw.layer("2", (widths[2], widths[1]))


def _draw_lenet(draw: _Draw) -> None:
    draw.layer("0", (6, 1, 5, 5))
    draw.layer("3", (16, 6, 5, 5))
    draw.layer("7", (120, 400))
    draw.layer("9", (84, 120))
    draw.layer("11", (NUM_CLASSES, 84))


def _draw_gpt(draw: _Draw, sizes: GptSizes) -> None:
    width = sizes.width
    draw.normal("token.weight", (sizes.vocabulary, width), 0.02)
    draw.normal("position", (sizes.tokens, width), 0.02)
    for i in range(sizes.layers):
        draw.norm(f"blocks.{i}.norm_attention", width)
        draw.layer(f"blocks.{i}.qkv", (3 * width, width))
        draw.layer(f"blocks.{i}.project", (width, width))
        draw.norm(f"blocks.{i}.norm_mlp", width)
        draw.layer(f"blocks.{i}.up", (4 * width, width))
        draw.layer(f"blocks.{i}.down", (width, 4 * width))
    draw.norm("norm", width)
    draw.layer("head", (sizes.vocabulary, width), bias=False)


def parameters(workload: str) -> dict[str, Array]:
    """The start values of all parameters, float32, weights as (outputs, inputs, *kernel)."""
    draw = _Draw()
    if workload in MLP_WIDTHS:
        _draw_mlp(draw, MLP_WIDTHS[workload])
    elif workload == "lenet":
        _draw_lenet(draw)
    elif workload == "gpt_mini":
        _draw_gpt(draw, GPT_MINI)
    else:
        raise ValueError(f"no workload {workload!r}; there are {', '.join(WORKLOADS)}")
    return draw.parameters


def inputs(workload: str) -> tuple[Array | Labels, Labels]:
    """The batch (x, target): float32 samples, or int64 tokens for gpt_mini; int64 targets."""
    generator = np.random.default_rng(_INPUT_SEED)
    if workload == "gpt_mini":
        shape = (GPT_MINI.batch, GPT_MINI.tokens)
        tokens = generator.integers(0, GPT_MINI.vocabulary, shape)
        return tokens, generator.integers(0, GPT_MINI.vocabulary, shape)
    if workload == "lenet":
        x_shape: tuple[int, ...] = (LENET_BATCH, 1, 28, 28)
    else:
        x_shape = (MLP_BATCH[workload], MLP_WIDTHS[workload][0])
    x = generator.standard_normal(x_shape).astype(np.float32)
    return x, generator.integers(0, NUM_CLASSES, x_shape[:1])
