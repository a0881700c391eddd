"""Which 3 x 3 convolutions are Winograd's: what differs, and the switch that turns it off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest

# Each input is beyond a quarter of the largest number; products and sums of them are not.
LARGE = """
import lucid
import lucid.nn.functional as F
x, w = lucid.full((2, 16, 12, 12), 1.5e38), lucid.full((16, 16, 3, 3), 1e-38)
print(float(F.conv2d(x, w, padding=1)[0, 0, 5, 5]))
"""


def run(script: str, folder: Path, **environment: str) -> float:
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, **environment},
    )
    return float(result.stdout)


def test_the_switch_gives_plain_sums(tmp_path: Path) -> None:
    assert run(LARGE, tmp_path, LUCID_WINOGRAD="0") == pytest.approx(1.5 * 144, rel=1e-5)
    assert not np.isfinite(run(LARGE, tmp_path))


def test_errors_follow_the_largest_input_of_a_tile() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 16, 12, 12))
    x[:, :, ::2] *= 1e6
    w = np.zeros((16, 16, 3, 3))
    w[:, :, 1] = rng.standard_normal((16, 16, 3))
    found = F.conv2d(lucid.tensor(x.astype("float32")), lucid.tensor(w.astype("float32")))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("float32"), (3, 3), axis=(2, 3))
    wanted = np.einsum("nchwij,kcij->nkhw", windows.astype("float64"), w.astype("float32"))
    small_rows = np.abs(found.numpy() - wanted)[:, :, ::2]
    assert small_rows.max() < 16 * 3 * 1e6 * np.abs(x[:, :, 1::2]).max() * np.finfo("float32").eps
