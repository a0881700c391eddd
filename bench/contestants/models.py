"""The models of the workloads, written once: lucid keeps PyTorch's names, so one source makes both.

`nn` stands for `lucid.nn` or `torch.nn` throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from workloads import (
    DEEP,
    GPT_MINI,
    LSTM,
    MLP_WIDTHS,
    NUM_CLASSES,
    RESNET_BLOCKS,
    RESNET_STEM,
    DeepSizes,
    GptSizes,
    LstmSizes,
    ResidualBlock,
)


def _make_mlp(nn: ModuleType, workload: str) -> Any:
    widths = MLP_WIDTHS[workload]
    activation = nn.GELU if workload == "mlp_wide" else nn.ReLU
    layers = [nn.Linear(widths[0], widths[1])]
    for i in range(1, len(widths) - 1):
        layers += [activation(), nn.Linear(widths[i], widths[i + 1])]
    return nn.Sequential(*layers)


def _make_deep(nn: ModuleType, sizes: DeepSizes) -> Any:
    def make_block() -> Any:
        return nn.Sequential(
            nn.Linear(sizes.width, sizes.inner),
            nn.GELU(),
            nn.Linear(sizes.inner, sizes.width),
            nn.LayerNorm(sizes.width),
        )

    return nn.Sequential(*(make_block() for _ in range(sizes.blocks)))


def _make_resnet(nn: ModuleType) -> Any:
    relu = nn.functional.relu

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        """Two convolutions and a shortcut."""

        def __init__(self, sizes: ResidualBlock) -> None:
            super().__init__()
            width, inputs, stride = sizes.outputs, sizes.inputs, sizes.stride
            self.first = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
            self.first_norm = nn.BatchNorm2d(width)
            self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.second_norm = nn.BatchNorm2d(width)
            self.has_projection = sizes.has_projection
            if self.has_projection:
                self.project = nn.Conv2d(inputs, width, 1, stride, bias=False)
                self.project_norm = nn.BatchNorm2d(width)

        def forward(self, x: Any) -> Any:
            y = relu(self.first_norm(self.first(x)))
            y = self.second_norm(self.second(y))
            shortcut = self.project_norm(self.project(x)) if self.has_projection else x
            return relu(y + shortcut)

    class ResNet(nn.Module):  # type: ignore[name-defined, misc]
        """A stem, six residual blocks in three stages, the mean over the image, a linear head."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, RESNET_STEM, 3, padding=1, bias=False)
            self.stem_norm = nn.BatchNorm2d(RESNET_STEM)
            self.blocks = nn.ModuleList([Block(sizes) for sizes in RESNET_BLOCKS])
            self.head = nn.Linear(RESNET_BLOCKS[-1].outputs, NUM_CLASSES)

        def forward(self, x: Any) -> Any:
            x = relu(self.stem_norm(self.stem(x)))
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean((2, 3)))

    return ResNet()


def _make_lenet(nn: ModuleType) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, NUM_CLASSES),
    )


def _make_gpt(nn: ModuleType, new_parameter: Callable[..., Any], sizes: GptSizes) -> Any:
    functional = nn.functional

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        """Causal attention and a two-layer perceptron, each behind a layer-norm."""

        def __init__(self) -> None:
            super().__init__()
            self.norm_attention = nn.LayerNorm(sizes.width)
            self.qkv = nn.Linear(sizes.width, 3 * sizes.width)
            self.project = nn.Linear(sizes.width, sizes.width)
            self.norm_mlp = nn.LayerNorm(sizes.width)
            self.up = nn.Linear(sizes.width, 4 * sizes.width)
            self.down = nn.Linear(4 * sizes.width, sizes.width)

        def attend(self, x: Any) -> Any:
            batch, tokens, width = x.shape
            q, k, v = (
                part.reshape(batch, tokens, sizes.heads, width // sizes.heads).transpose(1, 2)
                for part in self.qkv(x).split(width, dim=2)
            )
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.project(out.transpose(1, 2).reshape(batch, tokens, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm_attention(x))
            return x + self.down(functional.gelu(self.up(self.norm_mlp(x))))

    class Gpt(nn.Module):  # type: ignore[name-defined, misc]
        """Tokens (N, T) to logits (N * T, vocabulary)."""

        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(sizes.vocabulary, sizes.width)
            self.position = nn.Parameter(new_parameter(sizes.tokens, sizes.width))
            self.blocks = nn.ModuleList([Block() for _ in range(sizes.layers)])
            self.norm = nn.LayerNorm(sizes.width)
            self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).reshape(-1, sizes.vocabulary)

    return Gpt()


def _make_lstm(nn: ModuleType, sizes: LstmSizes) -> Any:
    class Classifier(nn.Module):  # type: ignore[name-defined, misc]
        """Sequences (N, T, inputs) to logits, from the last state."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(sizes.inputs, sizes.hidden, batch_first=True)
            self.head = nn.Linear(sizes.hidden, NUM_CLASSES)

        def forward(self, x: Any) -> Any:
            _, (last, _) = self.lstm(x)
            return self.head(last[0])

    return Classifier()


def make_model(framework: ModuleType, workload: str) -> Any:
    """The model of a workload, in training mode, not yet with the workload's parameters.

    Args:
        framework: the module `lucid` or `torch`.
    """
    if workload in MLP_WIDTHS:
        return _make_mlp(framework.nn, workload)
    if workload == "lenet":
        return _make_lenet(framework.nn)
    if workload == "resnet_small":
        return _make_resnet(framework.nn)
    if workload == "deep_bottleneck":
        return _make_deep(framework.nn, DEEP)
    if workload == "lstm":
        return _make_lstm(framework.nn, LSTM)
    return _make_gpt(framework.nn, framework.zeros, GPT_MINI)


def with_buffers(model: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """A state for `load_state_dict`: these parameters, and the buffers that the model has."""
    names = {name for name, _ in model.named_parameters()}
    buffers = {name: t for name, t in model.state_dict().items() if name not in names}
    return {**buffers, **parameters}


def make_optimizer(framework: ModuleType, mode: str, parameters: Any, **options: Any) -> Any:
    """The optimizer of a mode; None for "grads"."""
    if mode == "sgd":
        return framework.optim.SGD(parameters, lr=1e-4, momentum=0.9, **options)
    if mode == "adamw":
        return framework.optim.AdamW(parameters, lr=1e-5, weight_decay=0.01, **options)
    return None
