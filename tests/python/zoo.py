"""Small models with data, on which whole training steps are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
from lucid import Tensor


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model, its loss and a batch: ``loss(model(batch[0]), *batch[1:])``."""

    name: str
    model: Callable[[], nn.Module]
    loss: Callable[..., Any]
    batch: Callable[[int], tuple[Any, ...]]


def floats(seed: int, *shape: int) -> Tensor:
    """Normal numbers that depend on the seed only."""
    return lucid.randn(*shape, generator=lucid.Generator(seed))


def labels(seed: int, classes: int, *shape: int) -> Tensor:
    """Class indices that depend on the seed only."""
    return lucid.randint(0, classes, shape, generator=lucid.Generator(seed + 1000))


class Tied(nn.Module):
    """An embedding whose weight is also the output head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x))


class PartlyUsed(nn.Module):
    """One frozen, one unused and one used layer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.unused = nn.Linear(5, 5)
        self.used = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(lucid.tanh(self.frozen(x)))


class TreeModel(nn.Module):
    """Takes a dict of tensors and a number, returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 2)
        self.right = nn.Linear(4, 2)

    def forward(self, x: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return self.left(x["a"]) * x["scale"], self.right(x["b"][0])


class MovingAverage(nn.Module):
    """Keeps a moving average of its input in a buffer, in place."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("average", lucid.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        with lucid.no_grad():
            self.average.mul_(0.9).add_(x.mean(dim=0) * 0.1)
        return self.linear(x - self.average)


class Writes(nn.Module):
    """Writes into slices of an intermediate tensor, also through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(floats(3, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight
        y[0] = self.weight[1] * 2.0
        y[:, 1] += self.weight[:, 2]
        y[:, ::2] = y[:, 1::2] * 3.0
        row = y[2]
        row.mul_(0.5)
        return y


class Block(nn.Module):
    """One pre-norm transformer block over a small vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 16)
        self.position = nn.Parameter(floats(5, 6, 16))
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.head = nn.Linear(16, 11)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.position
        n = self.norm1(h)
        h = h + self.attention(n, n, n, need_weights=False)[0]
        h = h + self.mlp(self.norm2(h))
        return self.head(h)


class CausalAttention(nn.Module):
    """Scaled dot product attention with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split(8, dim=2)
        q, k, v = (t.reshape(2, 5, 2, 4).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Recurrent(nn.Module):
    """A bidirectional LSTM of two layers with dropout between them, and a GRU on its output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 4, 2, batch_first=True, dropout=0.3, bidirectional=True)
        self.gru = nn.GRU(8, 6)
        self.cell = nn.RNNCell(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y, (h, c) = self.lstm(x)
        _, last = self.gru(y.transpose(0, 1))
        return self.cell(last[0], h[-1] + c[0])


def mlp() -> nn.Module:
    """Three linear layers with different activations."""
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    )


def normalized_mlp() -> nn.Module:
    """Linear layers with batch-norm, layer-norm and dropout."""
    return nn.Sequential(
        nn.Linear(8, 16),
        nn.BatchNorm1d(16),
        nn.LeakyReLU(0.1),
        nn.Dropout(0.3),
        nn.Linear(16, 16),
        nn.LayerNorm(16),
        nn.SiLU(),
        nn.Dropout(0.2),
        nn.Linear(16, 4),
    )


def convnet() -> nn.Module:
    """Convolutions with batch-norm, both poolings, dropout and groups."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2, bias=False),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(8, 10),
    )


def regression(seed: int) -> tuple[Tensor, Tensor]:
    """A batch of (6, 8) inputs and 4 classes."""
    return floats(seed, 6, 8), labels(seed, 4, 6)


def token_loss(y: Tensor, t: Tensor) -> Tensor:
    """Cross-entropy over all positions."""
    return F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))


WORKLOADS = [
    Workload("mlp", mlp, F.cross_entropy, regression),
    Workload("normalized_mlp", normalized_mlp, F.cross_entropy, regression),
    Workload(
        "label_smoothing",
        mlp,
        lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1, ignore_index=2),
        regression,
    ),
    Workload(
        "convnet",
        convnet,
        F.cross_entropy,
        lambda seed: (floats(seed, 5, 1, 9, 8), labels(seed, 10, 5)),
    ),
    Workload(
        "block",
        Block,
        token_loss,
        lambda seed: (labels(seed, 11, 3, 6), labels(seed + 1, 11, 3, 6)),
    ),
    Workload(
        "causal_attention",
        CausalAttention,
        lambda y, c: (y * c).sum(),
        lambda seed: (floats(seed, 2, 5, 8), floats(seed + 1, 2, 2, 5, 4)),
    ),
    Workload(
        "recurrent",
        Recurrent,
        F.cross_entropy,
        lambda seed: (floats(seed, 3, 6, 5), labels(seed, 4, 3)),
    ),
    Workload("tied", Tied, token_loss, lambda seed: (labels(seed, 7, 9), labels(seed + 1, 7, 9))),
    Workload(
        "partly_used",
        PartlyUsed,
        lambda y, t: F.mse_loss(y, t),
        lambda seed: (floats(seed, 4, 5), floats(seed + 1, 4, 3)),
    ),
    Workload(
        "tree",
        TreeModel,
        lambda y, t, w: ((y[0] - t) ** 2).mean() * w + y[1].abs().sum(),
        lambda seed: (
            {"a": floats(seed, 2, 3), "b": [floats(seed + 1, 2, 4)], "scale": 0.5},
            floats(seed + 2, 2, 2),
            3,
        ),
    ),
    Workload(
        "moving_average",
        MovingAverage,
        lambda y: (y * y).mean(),
        lambda seed: (floats(seed, 6, 4),),
    ),
    Workload("writes", Writes, lambda y: (y * y).sum(), lambda seed: (floats(seed, 4, 4),)),
]
