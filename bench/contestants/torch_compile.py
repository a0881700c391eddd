"""PyTorch, compiled by torch.compile; needs a C++ compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from contestants.torch_eager import prepare_in, versions

__all__ = ["prepare", "versions"]


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    return prepare_in(workload, mode, torch.contiguous_format, compiled=True)
