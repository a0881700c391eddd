"""Compiling whole training steps."""

from lucid.compile.process import cache_info, clear_cache, counters
from lucid.compile.step import (
    FallbackWarning,
    RecompileWarning,
    Step,
    make_autoseg_step,
    make_segmented_step,
    make_step,
)

__all__ = [
    "FallbackWarning",
    "RecompileWarning",
    "Step",
    "cache_info",
    "clear_cache",
    "counters",
    "make_autoseg_step",
    "make_segmented_step",
    "make_step",
]
