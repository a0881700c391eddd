"""Statistics of step times."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any


def quantile(values: list[float], part: float) -> float:
    """The value below which `part` of the values lie, interpolated between neighbours."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True)
class Ratio:
    """Time of one contestant over that of another, round by round."""

    median: float
    low: float  # 10th and 90th percentile of the rounds
    high: float
    of_p10: float  # ratio of the two 10th percentiles over all steps


def ratio(mine: list[list[int]], theirs: list[list[int]]) -> Ratio:
    """How many times longer the steps of `mine` take; one list of times a round."""
    rounds = [
        statistics.median(a) / statistics.median(b) for a, b in zip(mine, theirs, strict=True)
    ]
    p10s = [
        quantile([float(t) for burst in bursts for t in burst], 0.1) for bursts in (mine, theirs)
    ]
    return Ratio(
        median=statistics.median(rounds),
        low=quantile(rounds, 0.1),
        high=quantile(rounds, 0.9),
        of_p10=p10s[0] / p10s[1],
    )


@dataclass
class Measured:
    """What one contestant showed on one workload and mode."""

    contestant: str
    workload: str
    mode: str
    versions: dict[str, str]
    loss: float
    first_seconds: list[float]
    first_cpu_seconds: list[float]
    peak_bytes: int
    bursts_ns: list[list[int]]  # one list of step times a round
    tensor_bytes: int | None = None  # gradients and arena, where the contestant can tell

    @property
    def times_ns(self) -> list[float]:
        return [float(t) for burst in self.bursts_ns for t in burst]

    def quantile_ms(self, part: float) -> float:
        return quantile(self.times_ns, part) / 1e6

    @property
    def spread(self) -> float:
        """Half the width between the 10th and 90th percentile, over the median."""
        return (self.quantile_ms(0.9) - self.quantile_ms(0.1)) / 2 / self.quantile_ms(0.5)

    def ratio_to(self, other: Measured) -> Ratio:
        """How many times longer this one takes than the other."""
        return ratio(self.bursts_ns, other.bursts_ns)

    def to_json(self, base: Measured | None) -> dict[str, Any]:
        """All numbers, steps in milliseconds; the single times are left out."""
        return {
            "contestant": self.contestant,
            "workload": self.workload,
            "mode": self.mode,
            "versions": self.versions,
            "n": len(self.times_ns),
            "rounds": len(self.bursts_ns),
            "median_ms": self.quantile_ms(0.5),
            "p10_ms": self.quantile_ms(0.1),
            "p90_ms": self.quantile_ms(0.9),
            "min_ms": self.quantile_ms(0.0),
            "spread": self.spread,
            "round_medians_ms": [statistics.median(burst) / 1e6 for burst in self.bursts_ns],
            "first_call_seconds": self.first_seconds,
            "first_call_cpu_seconds": self.first_cpu_seconds,
            "peak_bytes": self.peak_bytes,
            "tensor_bytes": self.tensor_bytes,
            "loss": self.loss,
            "over_lucid_step": asdict(self.ratio_to(base)) if base else None,
        }
