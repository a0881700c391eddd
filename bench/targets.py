"""What is to be reached: ratios to the best peer and to the physical limit of each workload's step.

The limit is the larger of the step's FLOPs over the machine's FLOP/s and of the fewest bytes that
it can move over the machine's bytes/s; nothing that runs the step can take less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import workloads
from report import markdown
from summary import Measured, Ratio, quantile
from workloads import DEEP, GPT_MINI, LSTM

_FIRST_CALL_MS = 30.0  # a first call may take so long, and two warm steps
_MOST_TENSOR_MB = {"deep_bottleneck": 95.0}  # gradients and the arena

_HEADINGS = (
    "workload",
    "best peer",
    "its ms",
    "ours ms",
    "peer / ours",
    "asked",
    "limit ms",
    "peer / limit",
    "ours / limit",
    "asked at most",
    "first call ms",
    "allowed",
    "peak MB",
    "that peer's",
    "least peer's",
    "tensors MB",
    "eager torch / lucid",
)


@dataclass(frozen=True)
class Asked:
    """Ratios to reach with loss and gradients alone."""

    peer_over_ours: float
    ours_over_limit: float | None = None
    ours_ms: float | None = None  # of an idle core, where no limit says anything


ASKED = {
    "mlp_tiny": Asked(4.0, ours_ms=0.015),
    "mlp_small": Asked(1.7, 1.8),
    "mlp_wide": Asked(1.1, 1.45),
    "lenet": Asked(4.0, 5.0),
    "resnet_small": Asked(1.6, 2.0),
    "gpt_mini": Asked(1.5, 1.8),
    "deep_bottleneck": Asked(1.5, 1.6),
    "lstm": Asked(1.6, 2.0),
}

# ---------------------------------------------------------------- work


@dataclass(frozen=True)
class Work:
    """What a step cannot do without: operations, and bytes read or written."""

    flops: float
    bytes: float


def _products(layers: list[tuple[int, int, int]]) -> float:
    """FLOPs of linear layers (rows, inputs, outputs) and both their gradients.

    The first layer's input has no gradient.
    """
    flops = [2.0 * rows * inputs * outputs for rows, inputs, outputs in layers]
    return 3 * sum(flops) - flops[0]


def _mlp(name: str) -> tuple[float, int]:
    widths, batch = workloads.MLP_WIDTHS[name], workloads.MLP_BATCH[name]
    layers = [(batch, a, b) for a, b in zip(widths, widths[1:], strict=False)]
    return _products(layers), batch * sum(widths[1:])


def _lenet() -> tuple[float, int]:
    batch, _, height, width = workloads.IMAGES["lenet"]
    first, second = batch * height * width, batch * 10 * 10
    rows = [(first, 25, 6), (second, 150, 16), (batch, 400, 120), (batch, 120, 84), (batch, 84, 10)]
    return _products(rows), first * 6 + second * 16 + batch * (120 + 84 + 10)


def _resnet() -> tuple[float, int]:
    batch, channels, height, width = workloads.IMAGES["resnet_small"]
    pixels = batch * height * width
    rows = [(pixels, 9 * channels, workloads.RESNET_STEM)]
    for block in workloads.RESNET_BLOCKS:
        pixels //= block.stride**2
        rows.append((pixels, 9 * block.inputs, block.outputs))
        rows.append((pixels, 9 * block.outputs, block.outputs))
        if block.has_projection:
            rows.append((pixels, block.inputs, block.outputs))
    saved = sum(count * outputs for count, _, outputs in rows)
    head = (batch, workloads.RESNET_BLOCKS[-1].outputs, workloads.NUM_CLASSES)
    return _products([*rows, head]), saved


def _gpt() -> tuple[float, int]:
    sizes = GPT_MINI
    rows, width = sizes.batch * sizes.tokens, sizes.width
    layer = 12 * width  # outputs of width inputs: 3 of qkv, 1, and twice 4 of the wide layers
    linear = 6.0 * rows * width * (sizes.layers * layer + sizes.vocabulary)
    pairs = sizes.batch * sizes.tokens * (sizes.tokens + 1) / 2  # a token sees those before it
    attention = 3 * sizes.layers * 2 * 2.0 * pairs * width
    saved = rows * (sizes.layers * (1 + 3 + 1 + 1 + 4) * width + width + sizes.vocabulary)
    return linear + attention, saved


def _deep() -> tuple[float, int]:
    block = [(DEEP.batch, DEEP.width, DEEP.inner), (DEEP.batch, DEEP.inner, DEEP.width)]
    return _products(block * DEEP.blocks), DEEP.blocks * DEEP.batch * (DEEP.inner + DEEP.width)


def _lstm() -> tuple[float, int]:
    rows = LSTM.batch * LSTM.steps
    layers = [(rows, LSTM.inputs, 4 * LSTM.hidden), (rows, LSTM.hidden, 4 * LSTM.hidden)]
    return _products([*layers, (LSTM.batch, LSTM.hidden, 10)]), rows * 5 * LSTM.hidden


def work(workload: str, mode: str) -> Work:
    """Operations of products and convolutions, and the fewest bytes of a step.

    Every parameter is read by the forward and by the backward pass, its gradient or itself is
    written; what the backward pass needs and cannot make from the rest is written and read once.
    """
    count = {"lenet": _lenet, "resnet_small": _resnet, "gpt_mini": _gpt}
    count |= {"deep_bottleneck": _deep, "lstm": _lstm}
    flops, saved = count[workload]() if workload in count else _mlp(workload)
    parameters = sum(array.size for array in workloads.parameters(workload).values())
    x, _ = workloads.inputs(workload)
    touched = {"grads": 3, "sgd": 5, "adamw": 7}[mode]  # momentum, or both moments, and back
    return Work(flops, 4.0 * (touched * parameters + 2 * saved) + 2 * x.nbytes)


@dataclass(frozen=True)
class Limit:
    """The work of a step and what the machine did meanwhile."""

    workload: str
    mode: str
    work: Work
    flops_per_second: float
    bytes_per_second: float

    @property
    def ms(self) -> float:
        """The least time that the step can take."""
        flops = self.work.flops / self.flops_per_second
        return 1e3 * max(flops, self.work.bytes / self.bytes_per_second)

    def to_json(self) -> dict[str, float | str]:
        return {
            "workload": self.workload,
            "mode": self.mode,
            "flops": self.work.flops,
            "bytes": self.work.bytes,
            "flops_per_second": self.flops_per_second,
            "bytes_per_second": self.bytes_per_second,
            "limit_ms": self.ms,
        }


# ---------------------------------------------------------------- tables


def _is_ours(one: Measured) -> bool:
    return one.contestant.startswith("lucid")


def _ours(rows: list[Measured]) -> Measured | None:
    """The step of one executable: compiled, in the modes with an update fused."""
    for name in ("lucid_fused", "lucid_step"):
        for one in rows:
            if one.contestant == name:
                return one
    return None


def _fastest(rows: list[Measured]) -> Measured | None:
    return min(rows, key=lambda one: one.quantile_ms(0.5), default=None)


def _of(measured: list[Measured], workload: str, mode: str) -> list[Measured]:
    return [one for one in measured if (one.workload, one.mode) == (workload, mode)]


@dataclass(frozen=True)
class Reached:
    """One workload and mode: ours beside the best peer and the limit."""

    workload: str
    mode: str
    ours: Measured
    peer: Measured | None
    rows: list[Measured]
    limit: Limit | None

    @property
    def lead(self) -> Ratio | None:
        """How many times longer the best peer takes."""
        return self.peer.ratio_to(self.ours) if self.peer else None

    def over_limit(self, one: Measured | None) -> float:
        if one is None or self.limit is None:
            return math.nan
        return one.quantile_ms(0.5) / self.limit.ms

    @property
    def least_peer_mb(self) -> float:
        peaks = [one.peak_bytes / 1e6 for one in self.rows if not _is_ours(one)]
        return min(peaks, default=math.nan)

    @property
    def eager_lead(self) -> float:
        """Time of PyTorch eager, in the better memory format, over that of lucid eager."""
        ours = [one for one in self.rows if one.contestant == "lucid_eager"]
        eager = ("torch_eager", "torch_channels_last")
        theirs = _fastest([one for one in self.rows if one.contestant in eager])
        return theirs.ratio_to(ours[0]).median if ours and theirs else math.nan

    def to_json(self) -> dict[str, float | str | None]:
        asked = ASKED[self.workload] if self.mode == "grads" else None
        return {
            "workload": self.workload,
            "mode": self.mode,
            "ours": self.ours.contestant,
            "ours_ms": self.ours.quantile_ms(0.5),
            "peer": self.peer.contestant if self.peer else None,
            "peer_ms": self.peer.quantile_ms(0.5) if self.peer else None,
            "peer_over_ours": self.lead.median if self.lead else None,
            "asked_peer_over_ours": asked.peer_over_ours if asked else None,
            "limit_ms": self.limit.ms if self.limit else None,
            "ours_over_limit": _known(self.over_limit(self.ours)),
            "asked_ours_over_limit": asked.ours_over_limit if asked else None,
            "peer_over_limit": _known(self.over_limit(self.peer)),
            "eager_lead": _known(self.eager_lead),
        }


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def reached(measured: list[Measured], limits: list[Limit]) -> list[Reached]:
    """What was reached, for each workload and mode that lucid's step ran."""
    result = []
    for workload, mode in dict.fromkeys((one.workload, one.mode) for one in measured):
        rows = _of(measured, workload, mode)
        ours = _ours(rows)
        if ours is None:
            continue
        peer = _fastest([one for one in rows if not _is_ours(one)])
        known = [x for x in limits if (x.workload, x.mode) == (workload, mode)]
        result.append(Reached(workload, mode, ours, peer, rows, known[0] if known else None))
    return result


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def _cells(one: Reached) -> tuple[str, ...]:
    asked, lead = ASKED[one.workload], one.lead
    ours_ms = one.ours.quantile_ms(0.5)
    peer_over_limit = one.over_limit(one.peer)
    needed = peer_over_limit / asked.peer_over_ours  # so many times the limit
    beyond = "" if math.isnan(needed) else f" ({needed:.2f} x limit{', beyond it' * (needed < 1)})"
    bound = f"{asked.ours_over_limit:.2f}" if asked.ours_over_limit else ""
    if asked.ours_ms is not None:
        bound = f"{1e3 * asked.ours_ms:.0f} us"
    first_ms = 1e3 * quantile(one.ours.first_seconds, 0.5)
    return (
        one.workload,
        one.peer.contestant if one.peer else "",
        f"{one.peer.quantile_ms(0.5):.4g}" if one.peer else "",
        f"{ours_ms:.4g}",
        f"{lead.median:.2f} ({lead.low:.2f}-{lead.high:.2f})" if lead else "",
        f"{asked.peer_over_ours:.1f}{beyond}",
        f"{one.limit.ms:.4g}" if one.limit else "",
        _number(peer_over_limit, ".2f"),
        _number(one.over_limit(one.ours), ".2f"),
        bound,
        f"{first_ms:.1f}",
        f"{_FIRST_CALL_MS + 2 * ours_ms:.1f}",
        f"{one.ours.peak_bytes / 1e6:.1f}",
        f"{one.peer.peak_bytes / 1e6:.1f}" if one.peer else "",
        _number(one.least_peer_mb, ".1f"),
        f"{one.ours.tensor_bytes / 1e6:.1f}" if one.ours.tensor_bytes else "",
        _number(one.eager_lead, ".2f"),
    )


def target_table(rows: list[Reached]) -> str:
    """What was to be reached with loss and gradients, and what was."""
    return markdown([_HEADINGS, *(_cells(one) for one in rows if one.mode == "grads")])


def update_table(rows: list[Reached]) -> str:
    """The lead with an update in the step, beside the lead without."""
    cells: list[tuple[str, ...]] = [
        ("workload", "mode", "best peer", "its ms", "ours", "ours ms", "peer / ours", "grads only")
    ]
    without = {one.workload: one.lead for one in rows if one.mode == "grads"}
    for one in rows:
        if one.mode == "grads" or one.peer is None or one.lead is None:
            continue
        before = without.get(one.workload)
        cells.append(
            (
                one.workload,
                one.mode,
                one.peer.contestant,
                f"{one.peer.quantile_ms(0.5):.4g}",
                one.ours.contestant,
                f"{one.ours.quantile_ms(0.5):.4g}",
                f"{one.lead.median:.2f} ({one.lead.low:.2f}-{one.lead.high:.2f})",
                f"{before.median:.2f}" if before else "",
            )
        )
    return markdown(cells) if len(cells) > 1 else ""


def verdicts(rows: list[Reached]) -> list[str]:
    """One line for each number that was asked for and missed."""
    lines = []
    for one in rows:
        if one.mode != "grads":
            continue
        asked, name = ASKED[one.workload], one.workload
        ours_ms = one.ours.quantile_ms(0.5)
        lead, over = one.lead, one.over_limit(one.ours)
        if lead and lead.median < asked.peer_over_ours:
            lines.append(f"{name}: {lead.median:.2f} of {asked.peer_over_ours:.1f} times the peer")
        if asked.ours_over_limit and over > asked.ours_over_limit:
            lines.append(f"{name}: {over:.2f} times the limit, at most {asked.ours_over_limit:.2f}")
        if asked.ours_ms and ours_ms > asked.ours_ms:
            lines.append(f"{name}: {1e3 * ours_ms:.1f} us, at most {1e3 * asked.ours_ms:.0f}")
        first_ms = 1e3 * quantile(one.ours.first_seconds, 0.5)
        if first_ms > _FIRST_CALL_MS + 2 * ours_ms:
            lines.append(f"{name}: first call {first_ms:.1f} ms")
        if one.ours.peak_bytes / 1e6 > one.least_peer_mb:
            lines.append(f"{name}: peak {one.ours.peak_bytes / 1e6:.1f} MB, the least peer's less")
        most_mb = _MOST_TENSOR_MB.get(name, math.inf)
        if one.ours.tensor_bytes and one.ours.tensor_bytes / 1e6 > most_mb:
            mb = one.ours.tensor_bytes / 1e6
            lines.append(f"{name}: {mb:.1f} MB of tensors, at most {most_mb:.0f}")
        if one.eager_lead < 1:
            lines.append(f"{name}: eager {one.eager_lead:.2f} times as fast as PyTorch's")
    return [f"MISSED {line}" for line in lines]
