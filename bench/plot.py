"""Draws the plot of a run: plot.py RESULTS.json PLOT.png; needs matplotlib and nothing else."""

from __future__ import annotations

import json
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.ticker import NullFormatter  # noqa: E402


def draw(
    results: list[dict[str, Any]], reached: list[dict[str, Any]], title: str, file: str
) -> None:
    """Bars of 10th percentiles over that of the compiled lucid step, dots for the medians.

    Below, where the physical limits are known, how far from them lucid and the best peer are.
    """
    groups = list(dict.fromkeys((r["workload"], r["mode"]) for r in results))
    names = list(dict.fromkeys(r["contestant"] for r in results))
    rows = [r for r in reached if r["mode"] == "grads" and r["ours_over_limit"]]
    size = (2.5 + 1.8 * len(groups), 8 if rows else 4)
    figure, places_of = plt.subplots(
        2 if rows else 1, figsize=size, layout="constrained", squeeze=False
    )
    axes = places_of[0][0]
    if rows:
        draw_limits_reached(rows, places_of[1][0])
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        mine = [r for r in results if r["contestant"] == name and r["over_lucid_step"]]
        places = [groups.index((r["workload"], r["mode"])) + i * width for r in mine]
        quick = [r["over_lucid_step"]["of_p10"] for r in mine]
        usual = [r["over_lucid_step"]["median"] for r in mine]
        bars = axes.bar(places, quick, width, label=name)
        axes.scatter(places, usual, s=12, facecolor="white", edgecolor="black", zorder=3)
        axes.bar_label(bars, fmt="%.2g", fontsize=7, padding=4)
    axes.axhline(1, color="black", lw=0.8)
    axes.set_yscale("log")
    centre = 0.4 - width / 2
    labels = [w if mode == "grads" else f"{w}\n{mode}" for w, mode in groups]
    axes.set_xticks([place + centre for place in range(len(groups))], labels)
    axes.set_ylabel("step time / compiled lucid step")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=150)


def draw_limits_reached(rows: list[dict[str, Any]], axes: Any) -> None:
    """Bars of step times over the physical limit, ours and the best peer's, and what was asked."""
    kinds = (("ours_over_limit", "lucid"), ("peer_over_limit", "best peer"))
    for i, (key, label) in enumerate(kinds):
        places = [place + 0.35 * i for place in range(len(rows))]
        bars = axes.bar(places, [row[key] or 0 for row in rows], 0.35, label=label)
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    asked = [(i, r["asked_ours_over_limit"]) for i, r in enumerate(rows)]
    known = [(place, value) for place, value in asked if value]
    axes.scatter(*zip(*known, strict=True), marker="_", s=200, color="black", label="asked")
    axes.axhline(1, color="black", lw=0.8)
    axes.set_yscale("log")
    axes.set_xticks([i + 0.17 for i in range(len(rows))], [row["workload"] for row in rows])
    axes.set_ylabel("step time / physical limit")
    axes.legend(fontsize=8)


def draw_segments(rows: list[dict[str, Any]], title: str, file: str) -> None:
    """Time against the arena's peak, a dot for each number of segments."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    peaks = [row["memory"]["arena_peak"] / 1e6 for row in rows]
    usual = [row["over_one"]["median"] for row in rows]
    quick = [row["over_one"]["of_p10"] for row in rows]
    axes.plot(peaks, usual, color="0.8", zorder=1)
    axes.scatter(peaks, quick, facecolor="white", edgecolor="tab:blue", label="of p10", zorder=2)
    axes.scatter(peaks, usual, label="median of rounds", zorder=3)
    for i, (row, peak, time) in enumerate(zip(rows, peaks, usual, strict=True)):
        crowded = any(abs(peak - other) < 3 for other in peaks[:i])
        place = (8, 4) if crowded else (-12, -14)
        axes.annotate(str(row["segments"]), (peak, time), place, textcoords="offset points")
    axes.set_ylim(0.9, 1.5)
    axes.legend(fontsize=8)
    axes.set_xlim(0, None)
    axes.set_xlabel("planned peak of the arena, MB")
    axes.set_ylabel("step time / one segment")
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=100)


def draw_limits(rows: list[dict[str, Any]], title: str, file: str) -> None:
    """Time against the arena's peak, both over those without a limit; a line a workload."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    met = [row for row in rows if row["is_met"]]
    for name in dict.fromkeys(row["workload"] for row in met):
        mine = [row for row in met if row["workload"] == name]
        peaks = [100 * row["peak_of_free"] for row in mine]
        usual = [row["over_free"]["median"] for row in mine]
        quick = [row["over_free"]["of_p10"] for row in mine]
        line = axes.plot(peaks, usual, marker="o", label=name)[0]
        axes.scatter(peaks, quick, facecolor="white", edgecolor=line.get_color(), zorder=3)
    axes.axhline(1, color="black", lw=0.8)
    axes.axvline(50, color="0.8", lw=0.8)
    axes.set_xlim(0, 105)
    axes.set_xlabel("planned peak of the arena, % of that without a limit")
    axes.set_ylabel("step time / without a limit")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=100)


def draw_scaling(run: dict[str, Any], title: str, file: str) -> None:
    """Step time against each size, and compile time against nodes; all axes logarithmic."""
    rows, compiled = run["scaling"], run["compilations"]
    axes_names = list(dict.fromkeys(row["axis"] for row in rows))
    figure, all_axes = plt.subplots(
        1, len(axes_names) + 1, figsize=(3.2 * (len(axes_names) + 1), 3.4), layout="constrained"
    )
    for axes, name in zip(all_axes, axes_names, strict=False):
        mine = [row for row in rows if row["axis"] == name]
        for contestant in dict.fromkeys(key for row in mine for key in row["ms"]):
            known = [(row["at"], row["ms"][contestant]) for row in mine if contestant in row["ms"]]
            axes.plot(*zip(*known, strict=True), marker="o", ms=4, label=contestant)
        axes.set_xlabel(name)
        axes.set_ylabel("ms a step")
        axes.legend(fontsize=7)
    last = all_axes[-1]
    last.plot([r["nodes"] for r in compiled], [1e3 * r["seconds"] for r in compiled], marker="o")
    last.set_xlabel("nodes of the step")
    last.set_ylabel("ms to trace and compile")
    for axes in all_axes:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
    figure.suptitle(title, fontsize=9)
    figure.savefig(file, dpi=100)


def main() -> None:
    with open(sys.argv[1]) as file:
        run = json.load(file)
    facts = run["facts"]
    if "scaling" in run:
        draw_scaling(run, f"{facts['cpu']}, {facts['threads']} threads", sys.argv[2])
        return
    if "segments" in run:
        title = f"deep_bottleneck by number of segments; {facts['cpu']}, {facts['threads']} threads"
        draw_segments(run["segments"], title, sys.argv[2])
        return
    if "limits" in run:
        title = (
            f"memory limits; {facts['cpu']}, {facts['threads']} threads; dots: medians, rings: p10"
        )
        draw_limits(run["limits"], title, sys.argv[2])
        return
    title = f"{facts['cpu']}, {facts['threads']} threads; bars: 10th percentiles, dots: medians"
    draw(run["results"], run.get("reached", []), title, sys.argv[2])


if __name__ == "__main__":
    main()
