"""Modules and optimizers that are compared with values recorded from PyTorch.

As in reference_cases.py, the functions take a part of either library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cases.case import Sample, normal, values


@dataclass(frozen=True)
class ModuleCase:
    """A module called and differentiated several times; its buffers are recorded too."""

    name: str
    build: Callable[[Any], Any]
    inputs: tuple[Sample, ...]
    run: Callable[..., Any] = lambda module, *inputs: module(*inputs)
    calls: int = 1
    training: bool = True


@dataclass(frozen=True)
class OptimizerCase:
    """An optimizer that is fed given gradients; the parameters after each step are recorded.

    coarse: as in FunctionCase.
    """

    name: str
    build: Callable[[Any, list[Any]], Any]
    steps: int = 8
    coarse: str = ""


def attend(module: Any, *inputs: Any, **more: Any) -> Any:
    """Self-attention of one input, or attention of query, key and value."""
    query, key, value = inputs * 3 if len(inputs) == 1 else inputs
    output, weights = module(query, key, value, **more)
    return output if weights is None else (output, weights)


ONE_INPUT = (normal(2, 4, 6),)


def multihead(
    name: str, run: Callable[..., Any] = attend, inputs: Any = ONE_INPUT, **options: Any
) -> ModuleCase:
    options = {"batch_first": True, **options}
    return ModuleCase(
        f"MultiheadAttention {name}", lambda nn: nn.MultiheadAttention(6, 2, **options), inputs, run
    )


def padded(module: Any, x: Any, mask: Any) -> Any:
    return attend(module, x, key_padding_mask=mask)


def pair_masked(module: Any, x: Any, mask: Any) -> Any:
    return attend(module, x, attn_mask=mask, need_weights=False)


def recur(module: Any, *inputs: Any) -> Any:
    """A recurrent layer or cell; states of an LSTM come as two inputs and go as two outputs."""
    x, *states = inputs
    hx = (tuple(states),) if len(states) == 2 else tuple(states)
    result = module(x, *hx)
    if not isinstance(result, tuple):
        return result
    first, rest = result
    return (first, *rest) if isinstance(rest, tuple) else (first, rest)


def recurrent(name: str, kind: str, inputs: Any, *sizes: int, **options: Any) -> ModuleCase:
    return ModuleCase(
        f"{kind} {name}".strip(), lambda nn: getattr(nn, kind)(*sizes, **options), inputs, recur
    )


def recur_packed(lengths: list[int], is_sorted: bool) -> Callable[..., Any]:
    """As ``recur``, of sequences of those lengths."""

    def run(module: Any, x: Any, *states: Any) -> Any:
        library = importlib.import_module(type(x).__module__.partition(".")[0])
        rnn = library.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=is_sorted)
        output, *last = recur(module, packed, *states)
        padded, _ = rnn.pad_packed_sequence(output, padding_value=0.5, total_length=5)
        return (padded, output[0], *last)

    return run


SEQUENCE = normal(4, 3, 5)
PACKED = [
    ModuleCase(
        f"{kind} packed{' in order' if is_sorted else ''}",
        lambda nn, kind=kind: getattr(nn, kind)(5, 2, 2, bidirectional=True),
        (SEQUENCE, *(normal(4, 3, 2),) * (2 if kind == "LSTM" else 1)),
        recur_packed(lengths, is_sorted),
    )
    for kind in ("RNN", "GRU", "LSTM")
    for lengths, is_sorted in (([2, 4, 1], False), ([4, 2, 2], True))
]

PROJECTED = [
    recurrent("projected", "LSTM", (SEQUENCE,), 5, 4, proj_size=2),
    recurrent(
        "projected both ways",
        "LSTM",
        (SEQUENCE, normal(4, 3, 2), normal(4, 3, 4)),
        5,
        4,
        2,
        bidirectional=True,
        proj_size=2,
        bias=False,
    ),
    ModuleCase(
        "LSTM projected packed",
        lambda nn: nn.LSTM(5, 4, bidirectional=True, proj_size=3),
        (SEQUENCE,),
        recur_packed([2, 4, 1], False),
    ),
]

RECURRENT = [
    *PACKED,
    *PROJECTED,
    *(recurrent("", kind, (SEQUENCE,), 5, 6) for kind in ("RNN", "GRU", "LSTM")),
    *(recurrent("one", kind, (normal(4, 5),), 5, 6) for kind in ("RNN", "GRU", "LSTM")),
    *(
        recurrent(
            "deep both ways",
            kind,
            (SEQUENCE, *(normal(4, 4, 2),) * (2 if kind == "LSTM" else 1)),
            5,
            2,
            2,
            bidirectional=True,
            batch_first=True,
        )
        for kind in ("RNN", "GRU", "LSTM")
    ),
    *(recurrent("without bias", kind, (SEQUENCE,), 5, 3, bias=False) for kind in ("GRU", "LSTM")),
    recurrent("relu", "RNN", (SEQUENCE, normal(2, 3, 4)), 5, 4, 2, nonlinearity="relu"),
    recurrent("", "RNNCell", (normal(3, 5), normal(3, 4)), 5, 4),
    recurrent("relu", "RNNCell", (normal(3, 5),), 5, 4, nonlinearity="relu"),
    recurrent("", "GRUCell", (normal(3, 5), normal(3, 4)), 5, 4),
    recurrent("", "LSTMCell", (normal(3, 5), normal(3, 4), normal(3, 4)), 5, 4),
    recurrent("one", "LSTMCell", (normal(5), normal(4), normal(4)), 5, 4, bias=False),
]

SMALL = [
    ModuleCase("PixelUnshuffle", lambda nn: nn.PixelUnshuffle(2), (normal(2, 3, 4, 6),)),
    ModuleCase("CircularPad2d", lambda nn: nn.CircularPad2d((1, 0, 2, 1)), (normal(1, 2, 3, 4),)),
    ModuleCase("CircularPad1d", lambda nn: nn.CircularPad1d(2), (normal(1, 2, 4),)),
    ModuleCase("ZeroPad1d", lambda nn: nn.ZeroPad1d((1, 2)), (normal(1, 2, 4),)),
    ModuleCase(
        "weight_norm",
        lambda nn: nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 2), dim=1),
        (normal(2, 3, 5),),
    ),
    ModuleCase(
        "spectral_norm",
        lambda nn: nn.utils.parametrizations.spectral_norm(nn.ConvTranspose1d(3, 4, 2)),
        (normal(2, 3, 5),),
        calls=2,
    ),
    ModuleCase(
        "spectral_norm of evaluation",
        lambda nn: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4), n_power_iterations=3),
        (normal(2, 3),),
        training=False,
    ),
]

MODULES = [
    *RECURRENT,
    *SMALL,
    ModuleCase("BatchNorm1d", lambda nn: nn.BatchNorm1d(3), (normal(4, 3),), calls=3),
    ModuleCase("BatchNorm1d sequence", lambda nn: nn.BatchNorm1d(3), (normal(4, 3, 5),), calls=2),
    ModuleCase(
        "BatchNorm2d", lambda nn: nn.BatchNorm2d(3, momentum=0.3), (normal(2, 3, 4, 4),), calls=3
    ),
    ModuleCase(
        "BatchNorm2d evaluation",
        lambda nn: nn.BatchNorm2d(3),
        (normal(2, 3, 4, 4),),
        training=False,
    ),
    ModuleCase(
        "BatchNorm2d averaging",
        lambda nn: nn.BatchNorm2d(3, momentum=None),
        (normal(2, 3, 4, 4),),
        calls=3,
    ),
    ModuleCase(
        "BatchNorm2d untracked",
        lambda nn: nn.BatchNorm2d(3, track_running_stats=False),
        (normal(2, 3, 4, 4),),
        training=False,
    ),
    ModuleCase(
        "BatchNorm2d plain",
        lambda nn: nn.BatchNorm2d(3, affine=False),
        (normal(2, 3, 4, 4),),
        calls=2,
    ),
    ModuleCase("LayerNorm", lambda nn: nn.LayerNorm((4, 5)), (normal(3, 4, 5),)),
    ModuleCase(
        "Embedding",
        lambda nn: nn.Embedding(7, 3, padding_idx=2),
        (values([[0, 6, 2], [2, 2, 5]], "int64"),),
    ),
    ModuleCase(
        "Conv2d",
        lambda nn: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        (normal(2, 4, 5, 6),),
    ),
    ModuleCase(
        "Sequential",
        lambda nn: nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)),
        (normal(4, 5),),
    ),
    multihead("weights"),
    multihead("plain", lambda m, x: attend(m, x, need_weights=False)),
    multihead("sequence first", batch_first=False),
    multihead("without bias", bias=False),
    multihead("cross", inputs=(normal(2, 3, 6), normal(2, 5, 6), normal(2, 5, 6))),
    multihead("sizes", kdim=4, vdim=3, inputs=(normal(2, 3, 6), normal(2, 5, 4), normal(2, 5, 3))),
    multihead(
        "padding",
        padded,
        (normal(2, 4, 6), values([[False] * 4, [False, False, True, True]], "bool")),
    ),
    multihead(
        "mask",
        pair_masked,
        (normal(2, 4, 6), values([[i < j for j in range(4)] for i in range(4)], "bool")),
    ),
    multihead("heads", lambda m, x: attend(m, x, average_attn_weights=False)),
    multihead("one", inputs=(normal(4, 6),)),
    ModuleCase(
        "TransformerEncoderLayer",
        lambda nn: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True),
        (normal(2, 4, 6),),
    ),
    ModuleCase(
        "TransformerEncoderLayer norm first",
        lambda nn: nn.TransformerEncoderLayer(
            6, 2, 8, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        ),
        (normal(2, 4, 6),),
    ),
]


def optimizer(name: str, kind: str, coarse: str = "", **options: Any) -> OptimizerCase:
    return OptimizerCase(
        f"{kind} {name}".strip(), lambda o, p: getattr(o, kind)(p, **options), coarse=coarse
    )


def groups(optim: Any, parameters: list[Any]) -> Any:
    first, *others = parameters
    return optim.AdamW(
        [{"params": [first], "lr": 0.3, "weight_decay": 0.0}, {"params": others}], lr=0.1
    )


OPTIMIZERS = [
    optimizer("", "SGD", lr=0.1),
    optimizer("momentum", "SGD", lr=0.1, momentum=0.9),
    optimizer("nesterov", "SGD", lr=0.1, momentum=0.9, nesterov=True),
    optimizer("dampening", "SGD", lr=0.1, momentum=0.9, dampening=0.4),
    optimizer("weight decay", "SGD", lr=0.1, momentum=0.8, weight_decay=0.05),
    optimizer("maximize", "SGD", lr=0.1, maximize=True),
    optimizer("", "Adam", lr=0.1),
    optimizer("betas", "Adam", lr=0.1, betas=(0.8, 0.95), eps=1e-4),
    optimizer("weight decay", "Adam", lr=0.1, weight_decay=0.05),
    optimizer("amsgrad", "Adam", lr=0.1, amsgrad=True),
    optimizer("", "AdamW", lr=0.1),
    optimizer("weight decay", "AdamW", lr=0.1, weight_decay=0.2),
    optimizer("amsgrad", "AdamW", lr=0.1, amsgrad=True, maximize=True),
    OptimizerCase("AdamW groups", groups),
    optimizer("", "Adagrad", lr=0.1),
    optimizer("options", "Adagrad", lr=0.1, lr_decay=0.1, weight_decay=0.05),
    optimizer("", "Adadelta", lr=0.5),
    optimizer("", "Adamax", lr=0.1),
    optimizer("", "NAdam", lr=0.1, coarse="PyTorch keeps the product of momenta in float32"),
    optimizer("", "RAdam", lr=0.1),
    optimizer("", "RMSprop", lr=0.1),
    optimizer("centered", "RMSprop", lr=0.1, centered=True, momentum=0.5),
]
