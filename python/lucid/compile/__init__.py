"""Compiling whole training steps."""

from lucid.compile.custom import CustomOp, TensorSpec, custom_op
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
    "CustomOp",
    "FallbackWarning",
    "RecompileWarning",
    "Step",
    "TensorSpec",
    "cache_info",
    "clear_cache",
    "counters",
    "custom_op",
    "make_autoseg_step",
    "make_segmented_step",
    "make_step",
]
