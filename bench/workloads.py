"""The training steps that are measured: sizes, parameters and inputs, as NumPy arrays.

Parameters are keyed by the name that `state_dict()` of contestants/models.py gives them and drawn
in a fixed order from fixed seeds, so that every contestant starts from the same numbers.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Labels = NDArray[np.int64]

_PARAMETER_SEED = 1234
_INPUT_SEED = 99

# Other sizes of a workload than its own: {"gpt_mini": {"tokens": 64}}; scaling.py sets it.
_SIZES: dict[str, dict[str, int]] = json.loads(os.environ.get("BENCH_SIZES", "{}"))


@dataclass(frozen=True)
class GptSizes:
    """Sizes of the small transformer of gpt_mini."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    tokens: int = 128
    vocabulary: int = 512
    batch: int = 8


GPT_MINI = GptSizes(**_SIZES.get("gpt_mini", {}))
WORKLOADS = (
    "mlp_tiny",
    "mlp_small",
    "mlp_wide",
    "lenet",
    "resnet_small",
    "gpt_mini",
    "deep_bottleneck",
    "lstm",
)
MLP_WIDTHS = {"mlp_tiny": (32, 64, 10), "mlp_small": (784, 256, 10), "mlp_wide": (2048,) * 5}
MLP_BATCH = {"mlp_tiny": 32, "mlp_small": 64, "mlp_wide": 256}
IMAGES = {"lenet": (64, 1, 28, 28), "resnet_small": (32, 3, 32, 32)}  # N, C, H, W
NUM_CLASSES = 10


@dataclass(frozen=True)
class DeepSizes:
    """Sizes of deep_bottleneck: blocks of Linear, GELU, Linear, LayerNorm."""

    blocks: int = 48
    width: int = 512
    inner: int = 128
    batch: int = 512


DEEP = DeepSizes(**_SIZES.get("deep_bottleneck", {}))


@dataclass(frozen=True)
class LstmSizes:
    """Sizes of lstm: one layer, whose last state goes through a linear one."""

    inputs: int = 128
    hidden: int = 256
    steps: int = 64
    batch: int = 32


LSTM = LstmSizes()


@dataclass(frozen=True)
class ResidualBlock:
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution if sizes change."""

    name: str
    inputs: int
    outputs: int
    stride: int

    @property
    def has_projection(self) -> bool:
        return self.stride != 1 or self.inputs != self.outputs


RESNET_STEM = 32
RESNET_BLOCKS = (
    ResidualBlock("blocks.0", 32, 32, 1),
    ResidualBlock("blocks.1", 32, 32, 1),
    ResidualBlock("blocks.2", 32, 64, 2),
    ResidualBlock("blocks.3", 64, 64, 1),
    ResidualBlock("blocks.4", 64, 128, 2),
    ResidualBlock("blocks.5", 128, 128, 1),
)


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

    def uniform(self, name: str, shape: tuple[int, ...], bound: float) -> None:
        drawn = self._generator.uniform(-bound, bound, shape)
        self.parameters[name] = drawn.astype(np.float32)

    def norm(self, name: str, width: int) -> None:
        self.parameters[f"{name}.weight"] = np.ones(width, np.float32)
        self.parameters[f"{name}.bias"] = np.zeros(width, np.float32)


def _draw_mlp(draw: _Draw, widths: tuple[int, ...]) -> None:
    for i in range(len(widths) - 1):
        draw.layer(f"{2 * i}", (widths[i + 1], widths[i]))


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


def _draw_resnet(draw: _Draw) -> None:
    draw.layer("stem", (RESNET_STEM, 3, 3, 3), bias=False)
    draw.norm("stem_norm", RESNET_STEM)
    for block in RESNET_BLOCKS:
        name, width = block.name, block.outputs
        draw.layer(f"{name}.first", (width, block.inputs, 3, 3), bias=False)
        draw.norm(f"{name}.first_norm", width)
        draw.layer(f"{name}.second", (width, width, 3, 3), bias=False)
        draw.norm(f"{name}.second_norm", width)
        if block.has_projection:
            draw.layer(f"{name}.project", (width, block.inputs, 1, 1), bias=False)
            draw.norm(f"{name}.project_norm", width)
    draw.layer("head", (NUM_CLASSES, RESNET_BLOCKS[-1].outputs))


def _draw_deep(draw: _Draw, sizes: DeepSizes) -> None:
    for i in range(sizes.blocks):
        draw.layer(f"{i}.0", (sizes.inner, sizes.width))
        draw.layer(f"{i}.2", (sizes.width, sizes.inner))
        draw.norm(f"{i}.3", sizes.width)


def _draw_lstm(draw: _Draw, sizes: LstmSizes) -> None:
    rows, bound = 4 * sizes.hidden, float(1 / np.sqrt(sizes.hidden))
    draw.uniform("lstm.weight_ih_l0", (rows, sizes.inputs), bound)
    draw.uniform("lstm.weight_hh_l0", (rows, sizes.hidden), bound)
    draw.uniform("lstm.bias_ih_l0", (rows,), bound)
    draw.uniform("lstm.bias_hh_l0", (rows,), bound)
    draw.layer("head", (NUM_CLASSES, sizes.hidden))


def parameters(workload: str) -> dict[str, Array]:
    """The start values of all parameters, float32, weights as (outputs, inputs, *kernel)."""
    draw = _Draw()
    if workload in MLP_WIDTHS:
        _draw_mlp(draw, MLP_WIDTHS[workload])
    elif workload == "lenet":
        _draw_lenet(draw)
    elif workload == "gpt_mini":
        _draw_gpt(draw, GPT_MINI)
    elif workload == "resnet_small":
        _draw_resnet(draw)
    elif workload == "deep_bottleneck":
        _draw_deep(draw, DEEP)
    elif workload == "lstm":
        _draw_lstm(draw, LSTM)
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
    x_shape: tuple[int, ...]
    if workload in IMAGES:
        x_shape, classes = IMAGES[workload], NUM_CLASSES
    elif workload == "deep_bottleneck":
        x_shape, classes = (DEEP.batch, DEEP.width), DEEP.width
    elif workload == "lstm":
        x_shape, classes = (LSTM.batch, LSTM.steps, LSTM.inputs), NUM_CLASSES
    else:
        widths = MLP_WIDTHS[workload]
        x_shape, classes = (MLP_BATCH[workload], widths[0]), widths[-1]
    x = generator.standard_normal(x_shape).astype(np.float32)
    return x, generator.integers(0, classes, x_shape[:1])
