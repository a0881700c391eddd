"""Train a convolutional network on handwritten digits, eagerly and as one compiled step.

The data are the 1,797 images of 8 x 8 pixels of the UCI optical digits that scikit-learn ships.
Every seed trains the same model twice: the losses of every step must be equal bit for bit. Prints
a table and writes the loss curves to a PNG file. ``--precision`` trains in mixed precision.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import numpy
from lucid import Tensor
from lucid.amp import GradScaler
from lucid.compile import Step, make_step
from lucid.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH, HELD_OUT, WANTED = 64, 0.2, 0.98


class Split(NamedTuple):
    """Images (N, 1, 8, 8) in 0..1 and classes (N,)."""

    images: Tensor
    classes: Tensor


class Run(NamedTuple):
    """What one training gave."""

    losses: list[float]
    accuracy: float
    seconds: float
    step: Step | None


def digits(seed: int, device: str) -> tuple[Split, Split]:
    """Training and held-out images; 20 % of each class are held out."""
    data = load_digits()
    images = (data.images / 16.0).astype(numpy.float32)[:, None]
    parts = train_test_split(
        images, data.target, test_size=HELD_OUT, stratify=data.target, random_state=seed
    )
    tensors = [lucid.from_numpy(numpy.ascontiguousarray(part)).to(device) for part in parts]
    return Split(tensors[0], tensors[2]), Split(tensors[1], tensors[3])


def network() -> nn.Module:
    """Two convolution blocks with batch-norm, then dropout and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def progress(label: str, done: int, total: int, loss: float) -> None:
    """Draw a progress bar on the terminal; one line at the end elsewhere."""
    if not sys.stderr.isatty() and done < total:
        return
    bar = ("#" * (30 * done // total)).ljust(30, ".")
    end = "\n" if done == total else ""
    print(f"\r{label:<20} [{bar}] {done}/{total}  loss {loss:7.4f}", end=end, file=sys.stderr)


def accuracy(model: nn.Module, held_out: Split) -> float:
    """Share of held-out images whose class is found."""
    model.eval()
    with lucid.no_grad():
        found = model(held_out.images).argmax(dim=1)
    return float((found == held_out.classes).float().mean().item())


def train(seed: int, epochs: int, device: str, precision: str, compiled: bool) -> Run:
    """Train one network; the same seed gives the same data, weights and dropout masks."""
    low = None if precision == "float32" else getattr(lucid, precision)
    autocast = lucid.autocast(device, low, enabled=low is not None)
    scaler = GradScaler(device, enabled=precision == "float16")
    lucid.manual_seed(seed)
    training, held_out = digits(seed, device)
    model = network().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    step = make_step(model, F.cross_entropy, fallback="error") if compiled else None

    def eager(x: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(model(x), t)

    run: Callable[[Tensor, Tensor], Tensor] = eager if step is None else step
    loader = DataLoader(
        TensorDataset(*training), BATCH, shuffle=True, generator=lucid.Generator(seed)
    )
    losses: list[float] = []
    total = epochs * len(loader)
    label = f"seed {seed}, {'compiled' if compiled else 'eager'}"
    start = time.perf_counter()
    model.train()
    for _ in range(epochs):
        for x, t in loader:
            optimizer.zero_grad()
            with autocast:
                loss = run(x, t)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
            progress(label, len(losses), total, losses[-1])
        schedule.step()
    seconds = time.perf_counter() - start
    return Run(losses, accuracy(model, held_out), seconds, step)


def report(eager: list[Run], compiled: list[Run]) -> bool:
    """Print the table; True if the losses are equal and the accuracy is reached."""
    steps = len(eager[0].losses)
    equal = all(e.losses == c.losses for e, c in zip(eager, compiled, strict=True))
    last = compiled[0].step
    assert last is not None
    compile_ms = [1e3 * entry.timing()["compile_seconds"] for entry in last.cache]
    mean = sum(run.accuracy for run in compiled) / len(compiled)
    rates = [steps * len(runs) / sum(r.seconds for r in runs) for runs in (eager, compiled)]
    rows = [
        ("", "eager", "compiled"),
        ("steps per second", f"{rates[0]:.0f}", f"{rates[1]:.0f}"),
        ("held-out accuracy", f"{sum(r.accuracy for r in eager) / len(eager):.4f}", f"{mean:.4f}"),
        ("final loss, seed 0", f"{eager[0].losses[-1]:.6f}", f"{compiled[0].losses[-1]:.6f}"),
        ("compile time, ms", "-", " + ".join(f"{ms:.1f}" for ms in reversed(compile_ms))),
        ("planned peak, bytes", "-", f"{max(e.memory()['arena_peak'] for e in last.cache):,}"),
    ]
    for name, left, right in rows:
        print(f"{name:<22}{left:>14}{right:>18}")
    print(f"losses of all {steps} steps x {len(eager)} seeds equal bit for bit: {equal}")
    print(f"mean held-out accuracy {mean:.4f}, wanted at least {WANTED}: {mean >= WANTED}")
    return equal and mean >= WANTED


def draw(compiled: list[Run], path: Path) -> None:
    """Write the loss curves of all seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for seed, run in enumerate(compiled):
        axes.plot(run.losses, linewidth=0.8, label=f"seed {seed}")
    axes.set(xlabel="step", ylabel="cross-entropy", yscale="log", title="digits, compiled step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"loss curves: {path}")


def main() -> int:
    """Run the example; 0 if losses are equal and the accuracy is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or metal")
    parser.add_argument(
        "--precision", default="float32", choices=("float32", "bfloat16", "float16")
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path, default=Path("digits.png"))
    options = parser.parse_args()
    eager, compiled = [], []
    for seed in range(options.seeds):
        settings = (seed, options.epochs, options.device, options.precision)
        eager.append(train(*settings, compiled=False))
        compiled.append(train(*settings, compiled=True))
    reached = report(eager, compiled)
    draw(compiled, options.plot)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
